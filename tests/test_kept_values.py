"""Fixes that keep a value under a name: where they put it, what they call it, and where there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.lint.check import check
from pytest_dispatchguard.lint.request import Request

HEAD = "import torch\n\n\n# dispatchguard: hot\n"


def fixed(tmp_path: Path, code: str, body: str) -> str:
    """A hot function after all fixes of one rule."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'kept'\n", encoding="utf-8")
    file = tmp_path / "kept.py"
    file.write_text(HEAD + body, encoding="utf-8")
    request = Request(
        (file,), tmp_path, settings={"select": (code,)}, fix="unsafe", write=False, cache=False
    )
    return str(check(request).after.get("kept.py", HEAD + body)).removeprefix(HEAD)


TWICE = {
    "a name that it has": (
        "def f(x: torch.Tensor):\n    e = torch.exp(x)\n    return e * 2 + torch.exp(x)\n",
        "def f(x: torch.Tensor):\n    e = torch.exp(x)\n    return e * 2 + e\n",
    ),
    "a condition": (
        (
            "def f(x: torch.Tensor, y: torch.Tensor):\n"
            "    if torch.max(x) > torch.max(y):\n        return y\n    return y / torch.max(x)\n"
        ),
        (
            "def f(x: torch.Tensor, y: torch.Tensor):\n    max_x = torch.max(x)\n"
            "    if max_x > torch.max(y):\n        return y\n    return y / max_x\n"
        ),
    ),
    "signs and numbers in names": (
        (
            "def f(h: torch.Tensor, x: torch.Tensor):\n"
            "    low = x * torch.exp(-h) + torch.exp(h) * torch.exp(2 * h)\n"
            "    return low - torch.exp(-h) * 2 - torch.exp(h) * 3 - torch.exp(2 * h) * 4\n"
        ),
        (
            "def f(h: torch.Tensor, x: torch.Tensor):\n"
            "    exp_neg_h = torch.exp(-h)\n    exp_h = torch.exp(h)\n    exp_h_2 = torch.exp(2 * h)\n"
            "    low = x * exp_neg_h + exp_h * exp_h_2\n"
            "    return low - exp_neg_h * 2 - exp_h * 3 - exp_h_2 * 4\n"
        ),
    ),
    "a name that is taken": (
        (
            "def f(x: torch.Tensor, exp_x: int):\n"
            "    y = torch.exp(x) * 2\n    return y + torch.exp(x) * exp_x\n"
        ),
        (
            "def f(x: torch.Tensor, exp_x: int):\n    exp_x_2 = torch.exp(x)\n"
            "    y = exp_x_2 * 2\n    return y + exp_x_2 * exp_x\n"
        ),
    ),
    "what a statement assigns in the end": (
        (
            "def f(x: torch.Tensor, h: torch.Tensor):\n"
            "    x = x * torch.exp(h)\n    return x + torch.exp(h) * 2\n"
        ),
        (
            "def f(x: torch.Tensor, h: torch.Tensor):\n    exp_h = torch.exp(h)\n"
            "    x = x * exp_h\n    return x + exp_h * 2\n"
        ),
    ),
}


@pytest.mark.parametrize("case", TWICE)
def test_a_result_is_used_again(tmp_path: Path, case: str) -> None:
    before, after = TWICE[case]
    assert fixed(tmp_path, "DG521", before) == after


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            (
                "def f(x: torch.Tensor):\n    y = x.add_(1) * torch.exp(x)\n"
                "    return y + torch.exp(x) * 2\n"
            ),
            id="changed on the way",
        ),
        pytest.param(
            (
                "def f(x: torch.Tensor, z: torch.Tensor):\n    y = (x := z) * torch.exp(x)\n"
                "    return y + torch.exp(x) * 2\n"
            ),
            id="bound on the way",
        ),
        pytest.param(
            (
                "def f(x: torch.Tensor, n: int):\n    if n > 1:\n        return x\n"
                "    elif torch.exp(x).sum() > 1:\n        return x + torch.exp(x) * 2\n    return x\n"
            ),
            id="an elif",
        ),
        pytest.param(
            (
                "def f(x: torch.Tensor, n: int):\n    y = x; z = y * torch.exp(x)\n"
                "    return z + torch.exp(x) * 2\n"
            ),
            id="two statements on a line",
        ),
    ],
)
def test_a_result_is_left_where_it_is(tmp_path: Path, body: str) -> None:
    assert fixed(tmp_path, "DG521", body) == body


BY_MASK = {
    "one mask": (
        (
            "def f(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor):\n    valid = m > 0\n"
            "    x = x[valid]\n    return x, y[valid]\n"
        ),
        (
            "def f(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor):\n    valid = m > 0\n"
            "    valid_rows = valid.nonzero(as_tuple=True)\n"
            "    x = x[valid_rows]\n    return x, y[valid_rows]\n"
        ),
    ),
    "two masks of the same words": (
        (
            "def f(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor):\n"
            "    a, b = x[m == 1], y[m == 1]\n    return a, b, x[m == 2], y[m == 2]\n"
        ),
        (
            "def f(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor):\n"
            "    m_rows = (m == 1).nonzero(as_tuple=True)\n    a, b = x[m_rows], y[m_rows]\n"
            "    m_rows_2 = (m == 2).nonzero(as_tuple=True)\n    return a, b, x[m_rows_2], y[m_rows_2]\n"
        ),
    ),
    "a mask and what is left": (
        (
            "def f(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor):\n    keep = m > 0\n"
            "    a, b = x[keep], y[keep]\n    return a, b, x[~keep], y[~keep]\n"
        ),
        (
            "def f(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor):\n    keep = m > 0\n"
            "    keep_rows = keep.nonzero(as_tuple=True)\n    a, b = x[keep_rows], y[keep_rows]\n"
            "    not_keep_rows = (~keep).nonzero(as_tuple=True)\n"
            "    return a, b, x[not_keep_rows], y[not_keep_rows]\n"
        ),
    ),
}


@pytest.mark.parametrize("case", BY_MASK)
def test_indices_are_found_once(tmp_path: Path, case: str) -> None:
    before, after = BY_MASK[case]
    assert fixed(tmp_path, "DG422", before) == after


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            (
                "def f(xs: list[torch.Tensor], ms: torch.Tensor):\n"
                "    return [(x[m > 0], (x * 2)[m > 0]) for x, m in zip(xs, ms)]\n"
            ),
            id="in a comprehension",
        ),
        pytest.param(
            (
                "def f(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor):\n    mask = m > 0\n"
                "    return x[:, mask], y[:, mask]\n"
            ),
            id="a mask of unknown dimensions among other indices",
        ),
        pytest.param(
            (
                "def f(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor):\n    mask = m > 0\n"
                "    a = x[mask]\n    mask[0] = True\n    return a, y[mask]\n"
            ),
            id="a mask that changes",
        ),
    ],
)
def test_selections_are_left_as_they_are(tmp_path: Path, body: str) -> None:
    assert fixed(tmp_path, "DG422", body) == body


@pytest.mark.parametrize("case", [*TWICE, *BY_MASK])
def test_the_result_is_the_same(tmp_path: Path, case: str) -> None:
    torch = pytest.importorskip("torch")
    code, cases = ("DG521", TWICE) if case in TWICE else ("DG422", BY_MASK)
    before = cases[case][0]
    functions: list[Callable[..., object]] = []
    for text in (before, fixed(tmp_path, code, before)):
        known: dict[str, Any] = {}
        exec(HEAD + text, known)
        functions.append(known["f"])
    parameters = before.partition(")")[0]
    for seed in range(5):
        torch.manual_seed(seed)
        given = [torch.randint(0, 3, (7,)).float() for _ in range(parameters.count("Tensor"))]
        more = [3] * parameters.count(": int")
        one, other = (f(*(tensor.clone() for tensor in given), *more) for f in functions)
        pairs = zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]
        assert all(torch.equal(a, b) for a, b in pairs)


ROUNDS = {
    "a name that it has": (
        (
            "def f(xs: list[torch.Tensor], w: torch.Tensor):\n    out = []\n    for x in xs:\n"
            "        scale = w.exp()\n        out.append(x * scale)\n    return out\n"
        ),
        (
            "def f(xs: list[torch.Tensor], w: torch.Tensor):\n    out = []\n    scale = w.exp()\n"
            "    for x in xs:\n        out.append(x * scale)\n    return out\n"
        ),
    ),
    "a comment behind it": (
        (
            "def f(xs: list[torch.Tensor], w: torch.Tensor):\n    out = []\n    for x in xs:\n"
            "        scale = w.exp()  # why\n        out.append(x * scale)\n    return out\n"
        ),
        (
            "def f(xs: list[torch.Tensor], w: torch.Tensor):\n    out = []\n    w_exp = w.exp()\n"
            "    for x in xs:\n        scale = w_exp  # why\n        out.append(x * scale)\n    return out\n"
        ),
    ),
    "twice in a loop": (
        (
            "def f(xs: list[torch.Tensor], w: torch.Tensor):\n    out = []\n    for x in xs:\n"
            "        out.append(x * w.exp() + (1 - w.exp()))\n    return out\n"
        ),
        (
            "def f(xs: list[torch.Tensor], w: torch.Tensor):\n    out = []\n    w_exp = w.exp()\n"
            "    for x in xs:\n        out.append(x * w_exp + (1 - w_exp))\n    return out\n"
        ),
    ),
    "a list": (
        "def f(xs: list[torch.Tensor], w: torch.Tensor):\n    return [x * w.exp() for x in xs]\n",
        (
            "def f(xs: list[torch.Tensor], w: torch.Tensor):\n    w_exp = w.exp()\n"
            "    return [x * w_exp for x in xs]\n"
        ),
    ),
    "of the loop around it": (
        (
            "def f(xs: list[torch.Tensor], ws: list[torch.Tensor]):\n    out = []\n    for w in ws:\n"
            "        out.append([x * w.exp() for x in xs])\n    return out\n"
        ),
        (
            "def f(xs: list[torch.Tensor], ws: list[torch.Tensor]):\n    out = []\n    for w in ws:\n"
            "        w_exp = w.exp()\n        out.append([x * w_exp for x in xs])\n    return out\n"
        ),
    ),
}


@pytest.mark.parametrize("case", ROUNDS)
def test_what_each_round_computes_is_computed_before_them(tmp_path: Path, case: str) -> None:
    before, after = ROUNDS[case]
    assert fixed(tmp_path, "DG517", before) == after


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            (
                "def f(xs: list[torch.Tensor], w: torch.Tensor):\n    out = []\n    for x in xs:\n"
                "        with torch.no_grad():\n            scale = w.exp()\n"
                "        out.append(x * scale)\n    return out\n"
            ),
            id="in a context of the loop",
        ),
        pytest.param(
            (
                "def f(xs: list[torch.Tensor], ws: list[torch.Tensor]):\n"
                "    return [[x * w.exp() for x in xs] for w in ws]\n"
            ),
            id="of another list around it",
        ),
    ],
)
def test_what_a_round_computes_is_left_there(tmp_path: Path, body: str) -> None:
    assert fixed(tmp_path, "DG517", body) == body


_SUMMED = """def f(model: torch.nn.Module, train: list[torch.Tensor], valid: list[torch.Tensor]):
    total, rounds = 0.0, 0
    for x in train:
        loss = model(x).mean()
        loss.backward()
        total += {loss} * x.size(0)
        rounds += 1
    print({total} / rounds)
    total = 0.0
    for x in valid:
        with torch.no_grad():
            loss = model(x).mean()
        total += {valid}
    total {scaled}
    return total
"""


def test_each_sum_of_one_name_is_kept_by_itself(tmp_path: Path) -> None:
    reads = dict.fromkeys(("loss", "valid"), "loss.item()")
    sums = dict.fromkeys(("loss", "valid"), "loss.detach()")
    before = _SUMMED.format(**reads, total="total", scaled="/= len(valid)")
    after = _SUMMED.format(**sums, total="float(total)", scaled="= float(total) / len(valid)")
    assert fixed(tmp_path, "DG411", before) == after


def test_a_sum_that_begins_anew_on_another_way_is_read_on_both(tmp_path: Path) -> None:
    body = """def f(model: torch.nn.Module, train: list[torch.Tensor], again: bool):
    total = 0.0
    for x in train:
        loss = model(x).mean()
        loss.backward()
        total += {loss}
    if again:
        total = 0.0
        print(total)
    return {total}
"""
    before = body.format(loss="loss.item()", total="total")
    after = body.format(loss="loss.detach()", total="float(total)")
    assert fixed(tmp_path, "DG411", before) == after
