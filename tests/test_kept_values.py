"""Fixes that keep a value under a name: where they put it, what they call it, and where there is none."""

from __future__ import annotations

import ast
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
        (file,),
        tmp_path,
        settings={"select": tuple(code.split(","))},
        fix="unsafe",
        write=False,
        cache=False,
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


AGAIN = {
    "a condition": (
        (
            "def f(x: torch.Tensor, n: torch.Tensor):\n    if n.item() > 1:\n"
            "        x = x / n.item()\n    return x - n.item()\n"
        ),
        (
            "def f(x: torch.Tensor, n: torch.Tensor):\n    n_value = n.item()\n    if n_value > 1:\n"
            "        x = x / n_value\n    return x - n_value\n"
        ),
    ),
    "lines of a log": (
        (
            "def f(loss: torch.Tensor, log, bar):\n    log.add(loss.item())\n"
            "    bar.show(f'{loss.item():.4f}')\n"
        ),
        (
            "def f(loss: torch.Tensor, log, bar):\n    loss_value = loss.item()\n"
            "    log.add(loss_value)\n    bar.show(f'{loss_value:.4f}')\n"
        ),
    ),
    "a name that it has": (
        (
            "def f(x: torch.Tensor, n: torch.Tensor):\n    count = int(n)\n"
            "    return x[:count], int(n)\n"
        ),
        (
            "def f(x: torch.Tensor, n: torch.Tensor):\n    count = int(n)\n"
            "    return x[:count], count\n"
        ),
    ),
}


@pytest.mark.parametrize("case", AGAIN)
def test_what_was_read_is_used_again(tmp_path: Path, case: str) -> None:
    before, after = AGAIN[case]
    assert fixed(tmp_path, "DG418", before) == after


ELEMENTS = {
    "a loop": (
        (
            "def f(xs: list[torch.Tensor], n: torch.Tensor):\n    out = []\n    for i in range(len(xs)):\n"
            "        if n[i].item() > 0:\n            out.append(xs[i] * int(n[i]))\n    return out\n"
        ),
        (
            "def f(xs: list[torch.Tensor], n: torch.Tensor):\n    out = []\n    n_list = n.tolist()\n"
            "    for i in range(len(xs)):\n        if n_list[i] > 0:\n"
            "            out.append(xs[i] * int(n_list[i]))\n    return out\n"
        ),
    ),
    "a list": (
        (
            "def f(xs: list[torch.Tensor], n: torch.Tensor):\n"
            "    return [x * n[i].item() for i, x in enumerate(xs)]\n"
        ),
        (
            "def f(xs: list[torch.Tensor], n: torch.Tensor):\n    n_list = n.tolist()\n"
            "    return [x * n_list[i] for i, x in enumerate(xs)]\n"
        ),
    ),
}


@pytest.mark.parametrize("case", ELEMENTS)
def test_elements_are_read_together(tmp_path: Path, case: str) -> None:
    before, after = ELEMENTS[case]
    assert fixed(tmp_path, "DG416", before) == after


def test_elements_of_what_changes_are_read_one_by_one(tmp_path: Path) -> None:
    body = (
        "def f(xs: list[torch.Tensor], n: torch.Tensor):\n    out = []\n    for i, x in enumerate(xs):\n"
        "        out.append(n[i].item())\n        n = n + x\n    return out\n"
    )
    assert fixed(tmp_path, "DG416", body) == body


LEFT = {
    "DG422": {
        "chosen by a condition": """def f(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor, some: bool):
    mask = m > 0
    a = x[mask] if some else x
    b = y[mask] if some else y
    return a, b
""",
        "asked again by a loop": """def f(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor):
    mask = m > 0
    a = x[mask]
    while y[mask].sum() > 0:
        mask = mask & (y > 2)
        y = y - 1
    return a
""",
        "written through a view": """def f(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor):
    mask = m > 0
    v = mask.view(-1)
    a = x[mask]
    v[0] = True
    return a, y[mask]
""",
        "filled by a helper": """def f(x: torch.Tensor, y: torch.Tensor, m: torch.Tensor, fill):
    mask = m > 0
    a = x[mask]
    fill(mask)
    return a, y[mask]
""",
        "of who knows what": """def f(insts, x: torch.Tensor, m: torch.Tensor):
    keep = m > 0
    return insts[keep], x[keep]
""",
    },
    "DG517": {
        "under a condition": """def f(x: torch.Tensor, bs: list[torch.Tensor], some: bool):
    return [b * torch.exp(x) for b in bs] if some else []
""",
        "behind a guard": """def f(x: torch.Tensor, bs: list[torch.Tensor]):
    out = []
    for b in bs:
        if x is None:
            continue
        out.append(b * torch.exp(x))
    return out
""",
        "written by another name": """def f(x: torch.Tensor, bs: list[torch.Tensor]):
    out = []
    for b in bs:
        y = torch.exp(x)
        v = y.view(-1)
        v.add_(b)
        out.append(b * y)
    return out
""",
        "of what a view changes": """def f(x: torch.Tensor, bs: list[torch.Tensor]):
    v = x.view(-1)
    out = []
    for i, b in enumerate(bs):
        out.append(b * torch.exp(x))
        v[i] = 1.0
    return out
""",
        "given a value on the way": """def f(x: torch.Tensor, bs: list[torch.Tensor]):
    return [(t := x * 2), [b * torch.exp(t) for b in bs]]
""",
        "asked for later": """def f(x: torch.Tensor, bs: list[torch.Tensor]):
    g = (b * torch.exp(x) for b in bs)
    x.mul_(2)
    return sum(g)
""",
        "under a mode": """def f(x: torch.Tensor, bs: list[torch.Tensor]):
    out = []
    for i, b in enumerate(bs):
        torch.set_grad_enabled(i > 0)
        out.append(b * torch.exp(x))
    return out
""",
    },
    "DG521": {
        "taken away": """def f(x: torch.Tensor):
    a = torch.exp(x)
    s = a.sum()
    del a
    return s * torch.exp(x).mean()
""",
        "written by another name": """def f(x: torch.Tensor):
    a = torch.exp(x)
    b = torch.exp(x)
    c = b.view(-1)
    c.mul_(2)
    return a * b
""",
        "written through what it is a view of": """def f(boxes: torch.Tensor, scale: torch.Tensor):
    wh = boxes[:, 2:]
    area = wh.prod(1) * 2
    boxes[:, 2:] *= scale
    return area, wh.prod(1) * 3
""",
        "written as an attribute": """def f(x: torch.Tensor, state):
    state.x = x
    a = torch.exp(x) * 2
    state.x.add_(1)
    return a + torch.exp(x) * 3
""",
        "written by a function inside": """def f(x: torch.Tensor):
    def bump():
        x.add_(1)

    a = torch.exp(x) * 2
    bump()
    return a + torch.exp(x) * 3
""",
        "put into a list": """def f(x: torch.Tensor):
    parts = []
    e = torch.exp(x)
    parts.append(e)
    parts[0] += 1
    return parts, torch.exp(x) * 2
""",
        "captured by a pattern": """def f(x: torch.Tensor, y: list[torch.Tensor]):
    a = torch.exp(x).sum()
    match y:
        case [x]:
            return a * torch.exp(x).mean()
    return a
""",
        "sorted": """def f(ys: list[torch.Tensor]):
    e = torch.cat(ys) * 2
    ys.sort()
    return e * torch.cat(ys)
""",
        "after gradients": """def f(base: torch.Tensor, noise: torch.Tensor):
    w = base + noise
    a = torch.exp(w).sum()
    a.backward()
    b = torch.exp(w).mean()
    b.backward()
""",
    },
    "DG416": {
        "of what may be missing": """def f(n: torch.Tensor | None, xs: list[torch.Tensor]):
    return [n[i].item() * x for i, x in enumerate(xs)] if n is not None else xs
""",
        "of what is drawn": """def f(x: torch.Tensor, n: int):
    return [torch.bernoulli(x)[i].item() for i in range(n)]
""",
        "of what a helper changes": """def f(matched: torch.Tensor, assign):
    out = []
    for i in range(5):
        if matched[i].item() > 0:
            out.append(assign(i))
            matched[i + 1] = 0
    return out
""",
    },
    "DG418": {
        "a list that is changed": """def f(x: torch.Tensor, shuffle):
    a = x.tolist()
    b = x.tolist()
    shuffle(b)
    return a, b
""",
        "shown as it is written": """def f(n: torch.Tensor):
    print(f"{n.item()=}")
    return n.item()
""",
    },
    "DG411": {
        "whole numbers and others": """def f(model: torch.nn.Module, xs: list[torch.Tensor]):
    total = 0
    for x in xs:
        loss = model(x).mean()
        loss.backward()
        hits = (x > 0).sum()
        total += hits.item()
        total += 0.5
    return total
""",
        "weighted whole numbers": """def f(model: torch.nn.Module, xs: list[torch.Tensor], n: int):
    total = 0
    for x in xs:
        loss = model(x).mean()
        loss.backward()
        total += (x > 0).sum().item() * n
    return [0] * total
""",
    },
}


@pytest.mark.parametrize(("code", "case"), [(code, case) for code in LEFT for case in LEFT[code]])
def test_what_is_better_left(tmp_path: Path, code: str, case: str) -> None:
    assert fixed(tmp_path, code, LEFT[code][case]) == LEFT[code][case]


def test_only_what_may_share_a_result_does(tmp_path: Path) -> None:
    body = """def f(x: torch.Tensor, bs: list[torch.Tensor], apply):
    out = []
    for b in bs:
        z = b * torch.exp(x)
        y = torch.exp(x)
        y.add_(b)
        out.append(apply(lambda x: torch.exp(x), b) + y + z)
        out.append(torch.exp(x))
    return out
"""
    after = body.replace("    for b", "    exp_x = torch.exp(x)\n    for b").replace(
        "b * torch.exp(x)", "b * exp_x"
    )
    assert fixed(tmp_path, "DG517", body) == after


def test_fixes_of_several_rules_take_several_names(tmp_path: Path) -> None:
    body = """def f(x: torch.Tensor, bs: list[torch.Tensor], out: torch.Tensor):
    h = torch.sum(x, 0).exp()
    for b in bs:
        out = out + torch.sum(x, 1) * b
    return out + h + torch.sum(x, 0).sin()
"""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'kept'\n", encoding="utf-8")
    after = fixed(tmp_path, "DG517,DG521", body)
    assert after.count("sum_x = ") == after.count("sum_x_2 = ") == 1, after
    assert ast.parse(after)


def test_a_name_is_not_taken_across_modes_of_gradients(tmp_path: Path) -> None:
    body = """def f(w: torch.Tensor, bs: list[torch.Tensor]):
    out = [torch.exp(w) * 2]
    with torch.no_grad():
        for b in bs:
            out.append(b * torch.exp(w))
    out.append(torch.exp(w) * 3)
    return out
"""
    after = fixed(tmp_path, "DG517,DG521", body)
    assert after.count("exp_w = ") == after.count("exp_w_2 = ") == 1, after


def test_no_builtin_is_hidden(tmp_path: Path) -> None:
    body = """def f(x: torch.Tensor, xs: list[int]):
    a = torch.sum(input=x) * 2
    return a * torch.sum(input=x) * sum(xs)
"""
    assert "sum_value = torch.sum(input=x)" in fixed(tmp_path, "DG521", body)


def test_the_numbers_of_another_sum_stay_as_they_are(tmp_path: Path) -> None:
    body = """def f(model: torch.nn.Module, xs: list[torch.Tensor]):
    total = 0
    for x in xs:
        total += 1
    print(total)
    total = 0.0
    for x in xs:
        loss = model(x).mean()
        loss.backward()
        total += {loss}
    return {total}
"""
    before = body.format(loss="loss.item()", total="total")
    after = body.format(loss="loss.detach()", total="float(total)")
    assert fixed(tmp_path, "DG411", before) == after


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
