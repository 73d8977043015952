"""What the built-in rules advise fits the code it is given for."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_dispatchguard.lint.check import check
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.model.findings import Finding

HEAD = "import torch\nfrom torch import nn\n\n\n# dispatchguard: hot\n"


def found(tmp_path: Path, code: str, body: str) -> tuple[Finding, ...]:
    """What one rule finds in one hot function."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'advice'\n", encoding="utf-8")
    file = tmp_path / "advice.py"
    file.write_text(HEAD + body, encoding="utf-8")
    request = Request((file,), tmp_path, settings={"select": (code,)}, write=False, cache=False)
    return tuple(check(request).report.findings)


def advice(tmp_path: Path, code: str, body: str) -> list[str]:
    """What one rule surely finds in one hot function."""
    return [f.message for f in found(tmp_path, code, body) if f.certainty == "sure"]


FITS = {
    "DG504-type": (
        "def f(x: torch.Tensor):\n    return torch.eye(3).type_as(x)\n",
        "device=x.device, dtype=x.dtype",
    ),
    "DG504-random": (
        "def f(x: torch.Tensor):\n    return torch.randn(3).to(x.device)\n",
        "the same seed gives different values",
    ),
    "DG603-package": (
        (
            "from importlib.util import find_spec\n\n\n# dispatchguard: hot\ndef f(x):\n"
            "    return x if find_spec('flash_attn') is None else x + 1\n"
        ),
        "asks all folders of packages",
    ),
    "DG603-version": (
        (
            "from packaging import version\n\n\n# dispatchguard: hot\ndef f(x):\n"
            "    return version.parse(torch.__version__) > 2\n"
        ),
        "Ask once, at import",
    ),
    "DG427-slice": (
        (
            "def f(x: torch.Tensor, ends: torch.Tensor):\n"
            "    part = slice(ends[0], ends[1])\n    return x[part]\n"
        ),
        "`slice` needs a number but gets the tensor `ends[0]`",
    ),
    "DG606-fields": (
        (
            "import dataclasses\n\n\n# dispatchguard: hot\ndef f(options):\n"
            "    return dataclasses.asdict(options)\n"
        ),
        "`vars` has all of them",
    ),
    "DG704-parts": (
        "def f(x: torch.Tensor, layers):\n    return nn.Sequential(*layers)(x)\n",
        "call its parts one after the other",
    ),
    "DG504-views": (
        (
            "def f(x: torch.Tensor, n: int):\n"
            "    steps = torch.arange(0, n).long()\n"
            "    rows = steps.unsqueeze(0).expand_as(x)\n"
            "    if x.is_cuda:\n        rows = rows.to(x.device)\n    return rows < x\n"
        ),
        "pass `device=` to the factory",
    ),
    "DG504-triangle": (
        (
            "def f(x: torch.Tensor, n: int):\n"
            "    return torch.triu(torch.ones(n, n) * -1e9, diagonal=1)[None].bool().to(x.device)\n"
        ),
        "`torch.ones(…)` is made on the CPU",
    ),
    "DG504-frequencies": (
        (
            "def f(x: torch.Tensor, n: int):\n    steps = torch.arange(0, n, 2) / n\n"
            "    return torch.exp(steps * -9.2).to(x.device) * x\n"
        ),
        "`torch.arange(…)` is made on the CPU",
    ),
    "DG504-numbers": (
        "def f(x: torch.Tensor, n: int):\n    return (1.0 / (100 ** (torch.arange(n) / n))).to(x)\n",
        "device=x.device, dtype=x.dtype",
    ),
    "DG502-old": (
        "def f(x: torch.Tensor):\n    return torch.FloatTensor([0.5, 2.0]).to(x.device)\n",
        "builds the same constant",
    ),
    "DG505-old": (
        (
            "class Table:\n    def __init__(self, rows):\n        self.rows = torch.Tensor(rows)\n\n"
            "    # dispatchguard: hot\n    def f(self, x):\n        return x + self.rows.to(x.device)\n"
        ),
        "`self.rows` is a plain tensor on the CPU",
    ),
    "DG438-last": ("def f(x: torch.Tensor):\n    return x[:, [-1]]\n", "`-1:` slices"),
    "DG438-one-of-the-last": ("def f(x: torch.Tensor):\n    return x[:, [-3]]\n", "`-3:-2` slices"),
    "DG438-number": ("def f(x: torch.Tensor):\n    return x[:, [2]]\n", "`2:3` slices"),
    "DG510-range": (
        (
            "def f(x: torch.Tensor, n: int):\n"
            "    return torch.tensor(range(n - 1, -1, -1), device=x.device)\n"
        ),
        "torch.arange(n - 1, -1, -1, device=…)",
    ),
    "DG510-one": (
        "def f(x: torch.Tensor, n: int):\n    return x.new_tensor([n])\n",
        "new_full((1,), …)",
    ),
    "DG502-numbers": (
        (
            "def f(x: torch.Tensor):\n"
            "    table = torch.tensor([0.5, 2.0], device=x.device)\n"
            "    for v in table:\n        x = x * v\n    return x\n"
        ),
        "keep a Python list",
    ),
    "DG434-brackets": (
        "def f(x: torch.Tensor, n: int):\n    return x[x != n].numel()\n",
        "`(x != n).sum()` counts",
    ),
    "DG435-columns": (
        "def f(x: torch.Tensor):\n    return [x[:, i] for i in range(x.size(1))]\n",
        "`list(x.unbind(1))` makes all views in one call",
    ),
    "DG435-last": (
        "def f(x: torch.Tensor):\n    return [x[..., i] for i in range(x.shape[-1])]\n",
        "`list(x.unbind(-1))` makes all views in one call",
    ),
    "DG435-narrow": (
        "def f(x: torch.Tensor):\n    return [x.narrow(1, i, 1) for i in range(x.shape[1])]\n",
        "`list(x.split(1, 1))` makes all views in one call",
    ),
    "DG435-made": (
        (
            "def f(x: torch.Tensor, n: int):\n"
            "    held = torch.empty(n, 4, device=x.device)\n"
            "    return [held[i] for i in range(n)]\n"
        ),
        "`list(held.unbind())` makes all views in one call",
    ),
    "DG435-rows": (
        "def f(x: torch.Tensor):\n    return [x[i] for i in range(x.shape[0])]\n",
        "`list(x.unbind())` makes all views",
    ),
    "DG416-of-a-list": (
        ("def f(xs: list[torch.Tensor], k: int):\n    return [xs[i].item() for i in range(k)]\n"),
        "`torch.stack(xs).tolist()`",
    ),
    "DG609-end": (
        "def f(x, layers: nn.ModuleList):\n    for m in layers[:-1]:\n        x = m(x)\n    return x\n",
        "Iterate over `list(layers)[:-1]`",
    ),
    "DG609-start": (
        "def f(x, layers: nn.ModuleList):\n    for m in layers[2:]:\n        x = m(x)\n    return x\n",
        "itertools.islice(layers, 2, None)",
    ),
    "DG611-device": (
        "def f(x: torch.Tensor):\n    return x * torch.cuda.get_device_capability(x.device)[0]\n",
        "once per device",
    ),
    "DG401-rows": (
        (
            "def f(x: torch.Tensor, classes: torch.Tensor):\n    for c in classes:\n"
            "        if c > 3:\n            x = x + 1\n    return x\n"
        ),
        "`classes.flatten().tolist()`",
    ),
    "DG402-name": (
        (
            "def f(x: torch.Tensor):\n    bad = x.isnan().any()\n    if bad:\n"
            "        raise ValueError\n    return x\n"
        ),
        "`if bad` (that is `x.isnan().any()`)",
    ),
    "DG402-unique": (
        (
            "def f(x: torch.Tensor):\n    found = torch.unique(x)\n"
            "    if torch.any(found > 1):\n        raise ValueError\n    return x\n"
        ),
        "`torch.unique(x)` before it waits as well: where the question is about all values, ask it of the",
    ),
    "DG401-tensors": (
        "def f(x: torch.Tensor, y: torch.Tensor):\n    return x.any() and y.any()\n",
        "Use `&`, `|` or `torch.logical_*`",
    ),
    "DG401-denied": (
        "def f(x: torch.Tensor, some: bool):\n    return not x.any() or some\n",
        "Use `&`, `|`, `~` or `torch.logical_*`",
    ),
    "DG411-made": (
        (
            "def f(losses: list[torch.Tensor]):\n    total = torch.zeros(1)\n"
            "    loss = losses[0].mean()\n    total += loss.item()\n    return total\n"
        ),
        "device=loss.device",
    ),
    "DG422-columns": (
        (
            "def f(x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor):\n"
            "    return x[:, mask > 0], y[mask > 0]\n"
        ),
        "`(rows,) = (mask > 0).nonzero(as_tuple=True)`) and select by that: `x[:, rows]`",
    ),
    "DG421-added": (
        (
            "def f(angles: torch.Tensor):\n    angles[torch.where(angles > 180)] -= 360\n"
            "    return angles\n"
        ),
        "only to write a constant there, or to add one. Keep the mask",
    ),
    "DG422-rounds": (
        (
            "def f(x: torch.Tensor, y: torch.Tensor, left: torch.Tensor, n: int):\n    out = []\n"
            "    for _ in range(n):\n        out.append(x[left > 0])\n"
            "        out.append(y[left > 0])\n        left[0] -= 1\n    return out\n"
        ),
        "once per iteration",
    ),
    "DG422-operand": (
        (
            "def f(x: torch.Tensor, ones: torch.Tensor):\n"
            "    return x.masked_select(ones > 0.9).mean()\n"
        ),
        "/ (ones > 0.9).sum()`",
    ),
    "DG427-linspace": (
        (
            "def f(x: torch.Tensor, n: int):\n"
            "    return torch.linspace(x.min(), x.max(), n, device=x.device)\n"
        ),
        "low + (high - low) * torch.linspace(0, 1, steps, device=...)",
    ),
    "DG423-selected": (
        (
            "def f(x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor):\n"
            "    x[mask > 0] = y[mask > 0].relu()\n    return x\n"
        ),
        "`y[mask > 0]` waits as well",
    ),
}


@pytest.mark.parametrize("case", FITS)
def test_advice_fits(case: str, tmp_path: Path) -> None:
    body, wanted = FITS[case]
    said = advice(tmp_path, case.partition("-")[0], body)
    assert len(said) == 1 and wanted in said[0], said


UNSAID = {
    "DG502": "def g(x: torch.Tensor):\n    return x + torch.Tensor([1.0, 2.0], device=x.device)\n",
    "DG402": (
        "class Retry(Exception): ...\n\n\n# dispatchguard: hot\n"
        "def g(x: torch.Tensor):\n    if x.isnan().any():\n        raise Retry\n    return x\n"
    ),
    "DG303": (
        "def pick(kind, plain=False):\n    if kind in TABLE:\n        return TABLE[kind]\n"
        "    return lambda x: x\n\n\n# dispatchguard: hot\n"
        "def g(x, kind):\n    return pick(kind)(x)\n"
    ),
    "DG416": (
        "class P(nn.Module):\n    def forward(self, images):\n"
        "        made = self.processor(images, return_tensors='pt')\n"
        "        parts = torch.split(made['num_patches'], 2)\n"
        "        return [n.sum().item() for n in parts]\n"
    ),
    "DG422": (
        "def g(x: torch.Tensor, y: torch.Tensor):\n    mask = y > 0\n"
        "    on_cpu = x.device.type == 'cpu'\n    if on_cpu:\n"
        "        return x[mask].sum()\n    return x\n"
    ),
}


@pytest.mark.parametrize("code", UNSAID)
def test_what_is_not_sure_is_not_said(code: str, tmp_path: Path) -> None:
    body = UNSAID[code]
    body = (
        body if "# dispatchguard" in body or "class P" in body else f"# dispatchguard: hot\n{body}"
    )
    said = advice(tmp_path, code, "def f(x):\n    return x\n\n\n" + body)
    assert said == []


WAITS = {
    "DG502-device": ("x * torch.tensor([0.5, 2.0], device=x.device)", True),
    "DG502-host": ("x * torch.tensor([0.5, 2.0])", False),
    "DG503-device": ("x * torch.tensor(0.5, device=x.device)", True),
    "DG503-host": ("x * torch.tensor(0.5)", False),
    "DG502-moved": ("x * torch.tensor([0.5, 2.0]).to(x.device, x.dtype)", None),
    "DG502-index": ("x[:, torch.tensor([1, 0])]", None),
    "DG604-unknown": ("log.debug(f'{n} of {n.other}')", None),
    "DG604-name": ("log.debug(f'{n} of {type(x).__name__}')", False),
    "DG604-tensor": ("log.debug(f'{n} of {x}')", True),
    "DG604-percent": ("log.debug('%s of %s' % (n, x))", True),
    "DG604-format": ("log.debug('{} of {}'.format(n, x))", True),
    "DG604-shape": ("log.debug(f'{n} of {x.shape}')", False),
    "DG604-one": ("log.debug('%s' % n)", False),
}


@pytest.mark.parametrize("which", WAITS)
def test_waits_are_told_where_there_are_any(tmp_path: Path, which: str) -> None:
    written, waits = WAITS[which]
    body = f"def f(x: torch.Tensor, n: int):\n    return {written}\n\n\nimport logging\n"
    (one,) = found(tmp_path, which.partition("-")[0], f"{body}log = logging.getLogger()\n")
    if waits is None:
        assert one.price is None
        return
    assert one.price is not None
    assert (one.price.waits > 0) is waits
    assert (one.price.us is not None) is not waits


@pytest.mark.parametrize("column", ["labels[mask] - 1", "column"])
def test_a_column_of_each_row_is_not_the_row(tmp_path: Path, column: str) -> None:
    body = (
        "def f(x: torch.Tensor, rows: torch.Tensor, labels: torch.Tensor):\n    mask = labels >= 0\n"
        f"    column = labels[mask] - 1\n    x[mask] = rows[mask, {column}]\n    return x\n"
    )
    (one,) = found(tmp_path, "DG423", body)
    assert one.certainty == "note"
    assert "torch.where(mask, rows, x)" not in one.message
    assert "with `new` computed for all elements" in one.message


def test_a_read_that_decides_more_than_a_check_is_not_asserted_on_the_device(
    tmp_path: Path,
) -> None:
    body = (
        "def f(x: torch.Tensor):\n    flag = x.sum()\n    if flag.item() == 1:\n"
        "        with leaving():\n            x.zero_()\n        raise SystemExit\n    return x\n"
    )
    assert advice(tmp_path, "DG411", body) == []
    (said,) = advice(
        tmp_path, "DG411", body.replace("        with leaving():\n            x.zero_()\n", "")
    )
    assert "_assert_async" in said


@pytest.mark.parametrize(
    "says",
    [
        "if y: said = 'a'\n        else: said = 'b'\n        raise ValueError(said)",
        "for v in y: log.error(v)\n        raise ValueError",
    ],
)
def test_a_check_may_put_together_what_it_says(tmp_path: Path, says: str) -> None:
    body = (
        f"def f(x: torch.Tensor, y: list):\n    if (x < 0).any():\n        {says}\n    return x\n"
    )
    assert len(advice(tmp_path, "DG402", body)) == 1


def test_what_others_put_into_a_tensor_is_read_again(tmp_path: Path) -> None:
    body = (
        "def f(flag: torch.Tensor):\n    a = flag.item()\n"
        "    torch.distributed.all_reduce(flag)\n    return a, flag.item()\n"
    )
    assert advice(tmp_path, "DG418", body) == []
    assert len(advice(tmp_path, "DG418", body.replace("all_reduce(flag)", "get_rank()"))) == 1


def test_what_each_round_makes_anew_is_not_to_be_read_before_the_loop(tmp_path: Path) -> None:
    (told,) = found(
        tmp_path,
        "DG416",
        "def f(x: torch.Tensor, labels: list[int]):\n"
        "    out = []\n"
        "    for i in labels:\n        part = x.narrow(0, i, 3)\n        out.append(part[i].item())\n"
        "    return out\n",
    )
    assert told.certainty == "note" and "collect the tensors" in told.message


@pytest.mark.parametrize(
    ("value", "safety", "keeps"),
    [
        ("torch.zeros(4).unsqueeze(0).to(x)", "safe", False),
        ("torch.zeros(4).long().to(x)", "safe", True),
        ("(torch.ones(4) * 0.5).to(x)", "safe", True),
        ("(torch.arange(4) * -2).to(x.device)", "safe", False),
        ("torch.exp(torch.arange(4) * -2).to(x.device)", "unsafe", False),
        ("(2 ** torch.ones(4)).to(x.device)", "unsafe", False),
        ("torch.arange(4).float().sin().to(x.device)", "unsafe", False),
    ],
)
def test_a_factory_takes_the_device_and_what_is_computed_stays(
    tmp_path: Path, value: str, safety: str, keeps: bool
) -> None:
    """A cast or arithmetic between a factory and its move decides the type: a move to another tensor stays,
    and converts; one that only names the device has nothing left to do."""
    (one,) = found(tmp_path, "DG504", f"def f(x: torch.Tensor):\n    return {value}\n")
    assert one.fix is not None
    assert one.fix.safety == safety
    removed = [edit for edit in one.fix.edits if not edit.replacement]
    assert bool(removed) is not keeps


def test_a_loop_that_carries_a_value_is_followed_to_an_end(tmp_path: Path) -> None:
    body = (
        "def f(x: torch.Tensor, n):\n    while n:\n        y = y * 2\n"
        "        x = x + y.to(x.device)\n    return x\n"
    )
    assert found(tmp_path, "DG504", body) == ()


LIGHTNING = """from lightning.pytorch import LightningModule


class Task(LightningModule):
    def training_step(self, batch, index):
        loss = torch.relu(batch)
        self.log("rows", len(batch))
        self.log("loss", loss, prog_bar=True)
        self.log("loss", loss)
        self.log("loss", loss, prog_bar=True, on_step=False)
        return loss

    def validation_step(self, batch, index):
        self.log("loss", torch.relu(batch), prog_bar=True)


class Other:
    def training_step(self, batch):
        self.log("rows", len(batch), prog_bar=True)
"""


def test_what_lightning_does_with_what_is_logged(tmp_path: Path) -> None:
    lines = LIGHTNING.splitlines()
    for code, line in (("DG510", '"rows", len(batch))'), ("DG433", "loss, prog_bar=True)")):
        (one,) = found(tmp_path, code, LIGHTNING)
        assert one.certainty == "note"
        said = (HEAD.splitlines() + lines)[one.span.line - 1]
        assert said.endswith(line)


def test_the_norm_of_clipped_gradients_is_a_tensor(tmp_path: Path) -> None:
    body = "def f(weights):\n    return nn.utils.clip_grad_norm_(weights, 1.0).item()\n"
    (one,) = found(tmp_path, "DG411", body)
    assert one.certainty == "note"


_SUM = """\
def f(model: nn.Module, loader, criterion):
    total = 0.0
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        total += loss.item(){power}
{inside}    {after}
    return total
"""


@pytest.mark.parametrize(
    ("power", "inside", "after", "read"),
    [
        ("", "", "total = total / len(loader)", "float(total)"),
        (" ** 2", "", "total = total ** 0.5", "float(total)"),
        ("", "        total = total * 0.9\n", "print(total)", None),
        ("", "", "total = len(loader) / total", None),
        ("", "", "total = total / (1 + total)", None),
        ("", "", "total = other(total)", None),
    ],
)
def test_a_sum_may_become_a_mean_or_a_root(
    tmp_path: Path, power: str, inside: str, after: str, read: str | None
) -> None:
    (one,) = found(tmp_path, "DG411", _SUM.format(power=power, inside=inside, after=after))
    made = [] if one.fix is None else [edit.replacement for edit in one.fix.edits]
    assert made == ([] if read is None else ["loss.detach()", read])


_LOOP = (
    "def f(xs: dict[str, torch.Tensor], y: torch.Tensor):\n    for key, x in xs.items():\n"
    "        log.log_scalar(key, {read})\n        keep({copied})\n"
)


@pytest.mark.parametrize(
    ("read", "copied", "certainty"),
    [
        ("x.mean().item()", "x.detach().cpu()", "note"),
        ("x.mean().item()", "torch.relu(x).numpy()", "note"),
        ("torch.mean(x).item()", "torch.relu(y).cpu()", "sure"),
        ("x.mean().item()", "y.cpu()", "sure"),
        ("y[0].mean().item()", "y[1].cpu()", "sure"),
    ],
)
def test_a_number_of_what_is_copied_anyway_saves_no_wait(
    tmp_path: Path, read: str, copied: str, certainty: str
) -> None:
    body = _LOOP.format(read=read, copied=copied)
    codes = ("DG411", "DG416", "DG419")
    told = [f for code in codes for f in found(tmp_path, code, body) if f.span.line == 8]
    assert [f.certainty for f in told] == [certainty]


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ("env.step(1)", True),
        ("x.sum().backward()\n        optimizer.step()", False),
        ("optimizer.zero_grad()\n        optimizer.step()", False),
    ],
)
def test_what_an_optimizer_steps_is_another_in_each_round(
    tmp_path: Path, steps: str, told: bool
) -> None:
    body = (
        "def f(x: torch.Tensor, optimizer, env, n: int):\n    out = []\n    for _ in range(n):\n"
        f"        {steps}\n        out.append(x.exp().item())\n    return out\n"
    )
    assert bool(found(tmp_path, "DG419", body)) is told


@pytest.mark.parametrize(
    ("test", "made", "told"),
    [
        ("not m.any()", "return torch.tensor(0.0, device=x.device)", False),
        ("not (m > 0).any()", "return torch.zeros(3).to(x.device)", False),
        ("m.any()", "return torch.tensor(0.0, device=x.device)", True),
        ("not m.any()", "return x * torch.tensor(0.5, device=x.device).exp()", True),
        ("not torch.isnan(x).any()", "return torch.zeros(3).to(x.device)", True),
        ("not any(rows)", "return torch.zeros(3).to(x.device)", True),
    ],
)
def test_what_is_returned_for_nothing_is_no_cost(
    tmp_path: Path, test: str, made: str, told: bool
) -> None:
    body = (
        "def f(x: torch.Tensor, m: torch.Tensor, rows: list):\n"
        f"    if {test}:\n        {made}\n    return x\n"
    )
    codes = ("DG501", "DG503", "DG504")
    assert any(f for code in codes for f in found(tmp_path, code, body)) is told


@pytest.mark.parametrize(
    ("uses", "certainty"),
    [
        ("return c", "note"),
        ("return x, c", "note"),
        ("return x + c", "sure"),
        ("y = c[0]\n    return y", "sure"),
    ],
)
def test_a_constant_that_the_caller_gets_may_be_modified(
    tmp_path: Path, uses: str, certainty: str
) -> None:
    made = "torch.tensor([0.5, 2.0], device=x.device).view(1, 2)"
    body = f"def f(x: torch.Tensor):\n    c = {made}\n    {uses}\n"
    assert [f.certainty for f in found(tmp_path, "DG502", body)] == [certainty]


@pytest.mark.parametrize(
    ("shown", "certainty"),
    [
        ("log.info(line)", "note"),
        ("print('step', line)", "note"),
        ("log.info('step ' + line)", "note"),
        ("cv2.putText(image, line, (0, 0))", "note"),
        ("annotator.box_label(x, line, color=1)", "note"),
        ("log.info(f'{len(line)}')", "sure"),
        ("log.debug(line)", "sure"),
    ],
)
def test_a_line_that_is_shown_may_be_wanted(tmp_path: Path, shown: str, certainty: str) -> None:
    body = f"def f(x: torch.Tensor):\n    line = ''\n    line += f'{{x[0]}}'\n    {shown}\n"
    assert {f.certainty for f in found(tmp_path, "DG415", body)} == {certainty}


@pytest.mark.parametrize(
    ("owner", "method", "told"),
    [
        ("ImageDataset", "update", "note"),
        ("Data", "update", "sure"),
        ("ImageDataModule", "setup_batch", "note"),
        ("ImageDataModule", "on_after_batch_transfer", "sure"),
    ],
)
def test_data_is_on_the_cpu_until_it_is_moved(
    tmp_path: Path, owner: str, method: str, told: str
) -> None:
    body = (
        f"class {owner}:\n    def {method}(self, x: torch.Tensor):\n"
        "        return torch.zeros(3).to(x)\n"
    )
    assert [f.certainty for f in found(tmp_path, "DG504", body)] == [told]


@pytest.mark.parametrize(
    ("head", "test", "certainty"),
    [
        ("flag: bool = False", "flag and x.isnan().any()", "maybe"),
        ("error_if_nonfinite", "error_if_nonfinite and x.isnan().any()", "note"),
        ("cfg", "cfg.sanity_checks and (x < 0).any()", "note"),
        ("validate_args", "validate_args and (x < 0).any()", "sure"),
        ("rows: list", "rows or (x < 0).any()", "sure"),
    ],
)
def test_a_check_that_is_off_by_default_is_for_who_turns_it_on(
    tmp_path: Path, head: str, test: str, certainty: str
) -> None:
    body = (
        f"def f(x: torch.Tensor, {head}):\n    if {test}:\n        raise ValueError\n    return x\n"
    )
    settings = {"select": ("DG402",), "pedantic": True}
    (tmp_path / "advice.py").write_text(HEAD + body, encoding="utf-8")
    told = check(Request((tmp_path,), tmp_path, settings=settings, cache=False)).report.findings
    assert [f.certainty for f in told] == [certainty]


@pytest.mark.parametrize("method", ["max()", "sum()", "argmax(-1)", "squeeze(0).any()"])
@pytest.mark.parametrize(
    ("owner", "name", "certainty"),
    [("M", "forward", "note"), ("M", "helper", None)],
)
def test_what_a_module_is_given_has_the_methods_of_a_tensor(
    tmp_path: Path, method: str, owner: str, name: str, certainty: str | None
) -> None:
    bases = "nn.Module" if owner == "M" else "object"
    body = (
        f"class {owner}({bases}):\n    def {name}(self, lookup, y):\n        m = lookup.{method}\n"
        "        if m > 4:\n            y = y * 2\n        return y\n"
    )
    told = found(tmp_path, "DG401", body)
    assert [f.certainty for f in told] == ([] if certainty is None else [certainty])


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("f'layer{i}'", True),
        ("'layer%d' % i", True),
        ("'layer{}'.format(i)", True),
        ("'layer'", False),
        ("names[i]", False),
    ],
)
def test_a_name_is_made_in_any_way(tmp_path: Path, made: str, told: bool) -> None:
    body = (
        "class M(nn.Module):\n    def forward(self, x, names):\n        for i in range(3):\n"
        f"            x = getattr(self, {made})(x)\n        return x\n"
    )
    assert bool(found(tmp_path, "DG616", body)) is told


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("F.pad(x, (0, n))", True),
        ("torch.zeros(torch.Size(n))", True),
        ("x.roll(n)", True),
        ("x.select(0, n)", True),
        ("x.split(n)", True),
        ("torch.logspace(0, n, 3)", True),
        ("F.pad(n, (0, 1))", False),
        ("self.pad(x, n)", False),
        ("x.split(x.shape[0])", False),
    ],
)
def test_what_needs_a_number_reads_a_tensor(tmp_path: Path, written: str, told: bool) -> None:
    body = (
        "import torch.nn.functional as F\n\n\nclass M(nn.Module):\n"
        "    def forward(self, x: torch.Tensor, counts):\n"
        f"        n = counts.unsqueeze(0).max()\n        return {written}\n"
    )
    assert bool(found(tmp_path, "DG427", body)) is told


@pytest.mark.parametrize(
    ("reduced", "told"),
    [
        ("mean(dim=1)", True),
        ("max(dim=-1).values", True),
        ("sum(0, keepdim=True)", True),
        ("mean(axis=1)", False),
        ("mean(dim='time')", False),
        ("sum(0, keepdims=True)", False),
    ],
)
def test_arrays_have_axes_and_tensors_dims(tmp_path: Path, reduced: str, told: bool) -> None:
    body = (
        "class M(nn.Module):\n    def forward(self, x, part):\n"
        f"        scores = part.scores(x).{reduced}\n        if scores.flatten()[0] > 1:\n"
        "            x = x + 1\n        return x\n"
    )
    assert bool(found(tmp_path, "DG401", body)) is told


@pytest.mark.parametrize(
    ("made", "certainty"),
    [
        ("torch.zeros(4, device=x.device)", "sure"),
        ("x.new_zeros(4)", "sure"),
        ("torch.zeros(4)", "note"),
        ("[0.0] * 4", "note"),
    ],
)
def test_a_number_that_goes_back_into_a_tensor_need_not_be_read(
    tmp_path: Path, made: str, certainty: str
) -> None:
    body = f"def f(x: torch.Tensor):\n    kept = {made}\n    kept[0] = x.sum().item()\n    return kept\n"
    told = found(tmp_path, "DG411", body)
    assert [f.certainty for f in told] == [certainty]


@pytest.mark.parametrize(
    ("made", "index", "told"),
    [
        ("torch.zeros(n, device=x.device)", "0", True),
        ("torch.zeros((n, 2), device=x.device)", "0, 1", True),
        ("torch.full((n,), 1.0, device=x.device)", "-1", True),
        ("torch.zeros((n, 2), device=x.device)", "0", False),
        ("torch.zeros(x.shape, device=x.device)", "0", False),
        ("torch.zeros(n, device=x.device)", ":1", False),
        ("torch.zeros(n)", "0", False),
    ],
)
def test_a_number_is_copied_into_one_element_and_filled_into_more(
    tmp_path: Path, made: str, index: str, told: bool
) -> None:
    body = (
        f"def f(x: torch.Tensor, n: int):\n    kept = {made}\n    kept[{index}] = 1.0\n"
        "    return kept\n"
    )
    assert bool(found(tmp_path, "DG436", body)) is told


@pytest.mark.parametrize(
    ("code", "statement", "safety"),
    [
        ("DG421", "x[torch.where(x > 6)] = 0", "safe"),
        ("DG421", "x[torch.where(x.sum(-1) > 6)] = 0", "safe"),
        ("DG421", "x[torch.where((ids == 3) & ids)] = 0", None),
        ("DG421", "x[torch.where(x[:, :2] > 0)] = 0", None),
        ("DG421", "x[torch.where(x > ids)] = 0", None),
        ("DG438", "x[:, [0, 2]] = 1.0", "safe"),
        ("DG438", "x[:, [0, 1]] -= ids * 2", "safe"),
        ("DG438", "x[:, [0, 1]] -= ids", "unsafe"),
        ("DG438", "x[:, [0, 1]] -= x[:, :1]", "unsafe"),
        ("DG438", "ids = x[:, [2, 3]] ** 2", "unsafe"),
        ("DG504", "ids = x[torch.arange(3), ids]", "safe"),
        ("DG504", "ids = x[torch.randperm(3)]", "unsafe"),
        ("DG504", "ids = x[torch.randperm(3, generator=None)]", None),
        ("DG436", "kept[0] = 1", "safe"),
        ("DG436", "kept[-1] = 0.5", "unsafe"),
    ],
)
def test_a_rewrite_is_as_safe_as_it_says(
    tmp_path: Path, code: str, statement: str, safety: str | None
) -> None:
    body = (
        "def f(x: torch.Tensor, ids: torch.Tensor):\n    kept = torch.zeros(4, device=x.device)\n"
        f"    {statement}\n    return x, ids, kept\n"
    )
    (told,) = found(tmp_path, code, body)
    assert (told.fix.safety if told.fix else None) == safety


@pytest.mark.parametrize(
    ("code", "statement"),
    [
        ("DG504", "x = x[torch.arange(3, device='cpu')]"),
        ("DG504", "x = x[torch.eye(3, dtype=torch.bool)]"),
        ("DG436", "kept[i == 2] = 1"),
        ("DG436", "kept[True] = 1"),
        ("DG443", "x[0] = torch.tensor(0.5)"),
    ],
)
def test_what_waits_for_nothing_or_is_meant_is_not_told(
    tmp_path: Path, code: str, statement: str
) -> None:
    body = (
        "def f(x: torch.Tensor, i: int):\n    kept = torch.zeros(4, device=x.device)\n"
        f"    {statement}\n    return x, kept\n"
    )
    assert not found(tmp_path, code, body)


def test_what_has_no_elements_is_not_copied(tmp_path: Path) -> None:
    body = (
        "def f(x: torch.Tensor):\n    none = torch.rand(3, 0).to(x.device), torch.zeros((0, 4)).cuda()\n"
        "    return none, torch.zeros(3, 4).to(x.device), torch.arange(0, 4).cuda()\n"
    )
    assert len(found(tmp_path, "DG504", body)) == 2


@pytest.mark.parametrize(("then", "told"), [("total = total + x", True), ("total += x", False)])
def test_what_a_loop_adds_to_is_another_in_each_round(
    tmp_path: Path, then: str, told: bool
) -> None:
    body = (
        "def f(xs, n: int):\n    for x in xs:\n        total = torch.tensor([n], device='cuda')\n"
        f"        {then}\n        total.backward()\n"
    )
    messages = advice(tmp_path, "DG510", body)
    assert ["the same in every iteration" in message for message in messages] == [told]


ARRAYS = {
    "arange": ("x[np.arange(3)]", True),
    "permutation": ("x[:, np.random.permutation(3)]", True),
    "choice": ("x[np.random.choice(9, 4)]", True),
    "annotated": ("x[rows]", True),
    "one of a choice": ("x[np.random.choice(9)]", False),
    "one number": ("x[np.random.randint(4)]", False),
    "one number of a type": ("x[np.random.randint(0, 4, dtype=np.int64)]", False),
    "an array of no dimension": ("x[np.array(3)]", False),
    "the place of a number": ("x[np.argmax(rows)]", False),
}


@pytest.mark.parametrize("way", ARRAYS)
def test_an_array_of_numpy_as_an_index_is_copied(way: str, tmp_path: Path) -> None:
    index, told = ARRAYS[way]
    body = f"def f(x: torch.Tensor, rows: np.ndarray):\n    y = {index}\n    return y\n\nimport numpy as np\n"
    assert bool(found(tmp_path, "DG438", body)) is told


DATA = {
    "a parameter": ("sizes, device=x.device", True),
    "of a batch": ('batch["label"], device=x.device', True),
    "of a batch, moved": ('batch["label"]).to(x.device', True),
    "on the CPU": ("sizes", False),
    "an index of it": ("sizes[i], device=x.device", False),
}


@pytest.mark.parametrize("way", DATA)
def test_data_of_unknown_kind_is_copied_all_the_same(way: str, tmp_path: Path) -> None:
    given, told = DATA[way]
    body = f"def f(x: torch.Tensor, sizes, batch, i):\n    return torch.tensor({given})\n"
    assert [f.certainty for f in found(tmp_path, "DG510", body)] == ["note"] * told


def test_a_workspace_whose_size_differs_is_no_constant(tmp_path: Path) -> None:
    made = "tmp = torch.empty({}, device=x.device)"
    body = f"def f(x: torch.Tensor, n):\n    {made}\n    torch.mul(x, 2, out=tmp)\n"
    assert found(tmp_path, "DG502", body.format("4096"))
    assert not found(tmp_path, "DG502", body.format("n"))
    assert not found(tmp_path, "DG502", body.format("4096").replace("tmp", "result"))


@pytest.mark.parametrize(
    "kept",
    ["outs.append(tmp)", "ctx.save_for_backward(tmp)", "self.last = tmp", "return tmp.view(-1)"],
)
def test_memory_that_is_kept_is_no_workspace(kept: str, tmp_path: Path) -> None:
    made = "tmp = torch.empty(4096, device=x.device)\n    torch.mul(x, 2, out=tmp)"
    body = f"def f(x: torch.Tensor, outs, ctx, self):\n    {made}\n    {kept}\n"
    assert not found(tmp_path, "DG502", body)


WORKED_OUT = {
    "sqrt": ("x / torch.sqrt(torch.tensor(n))", True),
    "a method": ("x / torch.tensor(n).float().sqrt()", True),
    "moved to the device": ("x / torch.tensor(n).sqrt().to(x.device)", True),
    "made like the other operand": ("x / torch.tensor(n).sqrt().to(x)", True),
    "with numbers": ("x * -(torch.log(torch.tensor(2.0)) / n)", True),
    "made like indices": ("x / torch.tensor(3.7).to(rows).sqrt()", False),
    "rounded": ("x / torch.tensor(3.7).sqrt().to(torch.int64)", False),
    "a complex number": ("x * torch.exp(torch.tensor(1j))", False),
    "no result": ("x * torch.sqrt(torch.tensor(-1.0))", False),
    "too large a result": ("x * torch.exp(torch.tensor(1000.0))", False),
    "read": ("torch.sqrt(torch.tensor(n)).item()", False),
}


@pytest.mark.parametrize("way", WORKED_OUT)
def test_what_a_function_works_out_of_a_number(way: str, tmp_path: Path) -> None:
    code, told = WORKED_OUT[way]
    body = f"def f(x: torch.Tensor, rows: torch.LongTensor, n: int):\n    return {code}\n"
    assert bool(found(tmp_path, "DG503", body)) is told


@pytest.mark.parametrize("name", ["output", "inputs", "timestamps"])
def test_names_that_only_contain_that_of_a_device_hide_no_copy(tmp_path: Path, name: str) -> None:
    body = f"def f({name}):\n    if torch.is_tensor({name}):\n        {name} = {name}.cpu()\n"
    body += f"    return {name}\n"
    assert [f.certainty for f in found(tmp_path, "DG414", body)] == ["note"]
    assert not found(tmp_path, "DG414", body.replace("torch.is_tensor", "is_npu"))


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (
            "DG514",
            (
                "def f(x: torch.Tensor, w: torch.Tensor):\n    device = x.device\n"
                "    return torch.sum(x * w).to(device)\n"
            ),
        ),
        (
            "DG514",
            (
                "def f(x: torch.Tensor):\n    a, b = torch.split(x, 2, dim=1)\n"
                "    return a.to(x.device), b\n"
            ),
        ),
        (
            "DG509",
            (
                "class C:\n    # dispatchguard: hot\n    def f(self, x: torch.Tensor):\n"
                "        if self.limits is not None:\n"
                "            self.limits = torch.tensor(self.limits, device=x.device)\n        return x\n"
            ),
        ),
    ],
)
def test_what_is_moved_or_made_again(tmp_path: Path, code: str, body: str) -> None:
    assert len(advice(tmp_path, code, body)) == 1


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("not torch.is_tensor(t)", False),
        ("not isinstance(t, torch.Tensor)", False),
        ("isinstance(t, int)", True),
    ],
)
def test_what_is_there_for_callers_who_have_a_number(
    tmp_path: Path, condition: str, *, told: bool
) -> None:
    body = (
        f"def f(x: torch.Tensor, t: int):\n    if {condition}:\n"
        "        t = torch.tensor([t], dtype=x.dtype, device=x.device)\n    return x * t.exp()\n"
    )
    assert bool(found(tmp_path, "DG510", body)) is told


def test_what_makes_room_on_purpose(tmp_path: Path) -> None:
    body = "def {}(x: torch.Tensor):\n    torch.cuda.empty_cache()\n    return x\n"
    assert found(tmp_path, "DG432", body.format("f"))
    assert not found(tmp_path, "DG432", body.format("offload_model"))


def test_methods_of_attributes_wait_as_well(tmp_path: Path) -> None:
    body = (
        "class C:\n    def __init__(self):\n        self.ended = torch.zeros(3, device='cuda')\n\n"
        "    # dispatchguard: hot\n    def f(self, x: torch.Tensor):\n"
        "        self.ended = x > 3\n        return self.ended.nonzero()\n"
    )
    assert found(tmp_path, "DG421", body)


@pytest.mark.parametrize(
    ("call", "told"),
    [("nonzero(as_tuple=False)", True), ("nonzero()", False), ("unique_consecutive()", True)],
)
def test_methods_that_only_tensors_have(tmp_path: Path, call: str, *, told: bool) -> None:
    body = f"def f(agent):\n    return agent.read().{call}\n"
    code = "DG421" if "nonzero" in call else "DG424"
    assert bool(found(tmp_path, code, body)) is told


def test_rows_of_a_table_and_of_a_buffer(tmp_path: Path) -> None:
    body = (
        "class C:\n    def __init__(self):\n        self.table = torch.{}(8)\n\n"
        "    # dispatchguard: hot\n    def f(self, x: torch.Tensor, t):\n"
        "        return x * self.table[t].to(x.device)\n"
    )
    assert [f.certainty for f in found(tmp_path, "DG505", body.format("arange"))] == ["note"]
    assert not found(tmp_path, "DG505", body.format("zeros"))


@pytest.mark.parametrize(
    "lines",
    [
        "self.seen = []\n        self.seen.append(x)\n        self.seen = torch.tensor(self.seen)",
        "self.seen = torch.tensor(x.shape[0])",
    ],
)
def test_what_is_gathered_anew_is_no_tensor_of_itself(tmp_path: Path, lines: str) -> None:
    body = (
        "class C:\n    # dispatchguard: hot\n    def f(self, x: torch.Tensor):\n"
        f"        {lines}\n        return x\n"
    )
    assert not found(tmp_path, "DG509", body)


def test_what_is_joined_once_at_the_end(tmp_path: Path) -> None:
    body = (
        "def f(x: torch.Tensor, chunks):\n    parts = []\n    while True:\n"
        "        chunk = next(chunks, None)\n        if chunk is None:\n"
        "            return torch.cat(parts)\n        parts.append(chunk * x)\n"
    )
    assert not found(tmp_path, "DG506", body)


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("self.training and self.gradient_checkpointing", False),
        ("self.use_checkpoint and x.requires_grad", False),
        ("not self.gradient_checkpointing", True),
        ("not (self.training and self.use_checkpoint)", True),
        ("self.load_from_checkpoint or self.training", True),
    ],
)
def test_closures_beside_activation_checkpoints_cost_nothing(
    tmp_path: Path, test: str, told: bool
) -> None:
    body = (
        "class M(torch.nn.Module):\n    def forward(self, x):\n"
        f"        if {test}:\n            def half(a):\n                return a / 2\n"
        "            x = half(x) + half(x)\n        return x\n"
    )
    assert bool(found(tmp_path, "DG302", body)) == told


@pytest.mark.parametrize(
    ("loop", "says"),
    [
        ("out = out * 2 + (labels == i) * x", "Compare with all of them at once"),
        ("out = out * x[i]", "Each iteration needs the one before it"),
        ("parts.append(x[i] * 2)", "Work on all rows at once"),
    ],
)
def test_what_to_do_in_place_of_a_loop_over_rows(tmp_path: Path, loop: str, says: str) -> None:
    body = (
        "def f(x: torch.Tensor, labels: torch.Tensor, out: torch.Tensor, parts: list):\n"
        f"    for i in range(x.shape[0]):\n        {loop}\n    return out, parts\n"
    )
    told = [f for f in found(tmp_path, "DG435", body) if says in f.message]
    assert [f.span.line for f in told] == [min(f.span.line for f in found(tmp_path, "DG435", body))]


@pytest.mark.parametrize(
    ("name", "certainty"),
    [
        ("losses", "sure"),
        ("self.train_loss", "sure"),
        ("accepted_tokens", "note"),
        ("lengths", "note"),
    ],
)
def test_what_is_collected_for_a_log_by_its_name(tmp_path: Path, name: str, certainty: str) -> None:
    body = (
        "class T:\n    # dispatchguard: hot\n    def f(self, xs, losses, lengths, accepted_tokens):\n"
        "        for x in xs:\n            y = torch.relu(x)\n"
        f"            {name}.append(y.mean().item())\n"
    )
    told = found(tmp_path, "DG4", body)
    assert {f.certainty for f in told if f.code in ("DG411", "DG416")} == {certainty}


SCHEDULER = """import numpy as np
import torch
from diffusers import SchedulerMixin


class Scheduler(SchedulerMixin):
    def __init__(self, levels):
        self.levels = levels

    def set_timesteps(self, steps, device):
        self.levels = {made}
        self.levels = self.levels.to({device})

    def parts(self, level):
        return 1 - level, level

    def step(self, x, i):
        alpha, level = self.parts(self.levels[i])
        gap = torch.log(alpha) - torch.log(level)
        gaps = torch.tensor([gap * j for j in range(3)], device=x.device)
        return x * torch.exp(-gap) + (torch.exp(-gap) - 1) * gaps * self.levels[i].item()
"""


@pytest.mark.parametrize("code", ["DG411", "DG508", "DG521"])
def test_what_a_class_keeps_on_the_cpu_is_read_there(tmp_path: Path, code: str) -> None:
    made = "torch.from_numpy(np.linspace(1, 0, steps))"
    for device in ('"cpu"', 'device="cpu"', 'torch.device("cpu")'):
        assert found(tmp_path, code, SCHEDULER.format(made=made, device=device)) == ()
    elsewhere = SCHEDULER.format(made="torch.rand(steps, device=device)", device="device")
    assert found(tmp_path, code, elsewhere)


def test_a_flag_that_counts_rounds_is_what_it_was_given(tmp_path: Path) -> None:
    loop = (
        "def f(model, loader, opt, every):\n    for step, x in enumerate(loader):\n"
        "        loss = model(x).sum()\n        loss.backward()\n        opt.step()\n"
        "        due = step % every == 0\n        if {asked}:\n            seen = loss.item()\n"
    )
    for asked in ("due", "due and step > 5", "divisible_by(step, every)"):
        assert found(tmp_path, "DG411", loop.format(asked=asked)) == ()
    for asked in ("seen", "not due", "step > 5 and due is None"):
        assert found(tmp_path, "DG411", loop.format(asked=asked))


def test_two_names_for_one_result_may_be_a_mistake(tmp_path: Path) -> None:
    body = (
        "def f(a: torch.Tensor, b: torch.Tensor):\n    low = torch.mean(a, dim=0)\n"
        "    high = torch.mean(a, dim=0)\n    return low * b + high\n"
    )
    (told,) = found(tmp_path, "DG521", body)
    assert "meant to be another" in told.message
    assert told.fix is None
    (used,) = found(tmp_path, "DG521", body.replace("return low", "low = low + b\n    return low"))
    assert used.fix is None


def test_more_arguments_stand_as_those_before_them(tmp_path: Path) -> None:
    body = (
        "def f(x: torch.Tensor, y: torch.Tensor):\n    loss = torch.nn.NLLLoss(reduction='sum')\n"
        "    return loss(\n        x,\n        y,\n    ) + loss(x, y)\n"
    )
    (told,) = found(tmp_path, "DG704", body)
    assert told.fix is not None
    new = [edit.replacement for edit in told.fix.edits]
    assert "y,\n        reduction='sum'" in new
    assert "y, reduction='sum'" in new


def test_a_tuple_by_its_type_is_no_tensor(tmp_path: Path) -> None:
    body = (
        "def f(x: torch.Tensor):\n    y = x.cumsum(0)\n    if type(x) {sign} tuple:\n"
        "        for one in x:\n            y = y + one\n    return y\n"
    )
    assert found(tmp_path, "DG428", body.format(sign="==")) == ()
    assert found(tmp_path, "DG428", body.format(sign="is")) == ()
    assert found(tmp_path, "DG428", body.format(sign="!="))


def test_a_reduction_needs_no_squeeze(tmp_path: Path) -> None:
    body = (
        "def f(x: torch.Tensor, y):\n    a = x.mean().item()\n    b = y.sum().item()\n"
        "    c = y.reshape(1).item()\n    return a, b, c\n"
    )
    told = [one for one in found(tmp_path, "DG417", body) if one.fix is not None]
    text = "".join(edit.replacement for one in told for edit in one.fix.edits if one.fix)
    assert "torch.stack([x.mean()" in text
    assert ".mean().squeeze" not in text
    assert ".sum().squeeze" not in text


@pytest.mark.parametrize(
    ("mask", "count"),
    [
        ("x.nonzero()", "`torch.count_nonzero(x)` counts"),
        ("(x > 0).nonzero()", "`(x > 0).sum()` counts"),
        ("torch.nonzero(x * 2)", "`torch.count_nonzero(x * 2)` counts"),
    ],
)
def test_what_is_not_zero_is_counted_and_not_added_up(
    tmp_path: Path, mask: str, count: str
) -> None:
    body = f"def f(x: torch.Tensor):\n    return x.sum() / {mask}.size(0)\n"
    (message,) = advice(tmp_path, "DG434", body)
    assert count in message


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ("torch.split(x, 4, dim=1)", "unflatten"),
        ("x.chunk(8, dim=1)", "unflatten"),
        ("[x * i for i in range(9)]", "torch.stack"),
    ],
)
def test_pieces_of_one_tensor_are_added_by_a_view(tmp_path: Path, parts: str, says: str) -> None:
    body = f"def f(x: torch.Tensor):\n    parts = {parts}\n    return sum(parts)\n"
    (note,) = found(tmp_path, "DG437", body)
    assert note.certainty == "note"
    assert says in note.message


@pytest.mark.parametrize(
    ("code", "moved", "told"),
    [
        ("DG416", "x.type(tensor_type)", 0),
        ("DG416", "x.type(torch.cuda.HalfTensor)", 0),
        ("DG416", "x.type(torch.float16)", 1),
        ("DG416", "x.type(kind)", 1),
        ("DG416", "x.type(other)", 1),
    ],
)
def test_what_of_a_batch_is_not_moved_stays_on_the_cpu(
    tmp_path: Path, code: str, moved: str, told: int
) -> None:
    body = (
        "def evaluate(model, loader, other):\n"
        "    tensor_type = torch.cuda.HalfTensor\n    kind = torch.float16\n"
        "    for i, (x, _, ids) in enumerate(progress(loader)):\n"
        f"        number = ids.unsqueeze(0).max().item()\n        x = {moved}\n        model(x, number)\n"
    )
    assert len(found(tmp_path, code, body)) == told


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ("", 1),
        ("def _get_global_gloo_group():\n    return None\n\n\n# dispatchguard: hot\n", 0),
    ],
)
def test_objects_are_gathered_on_the_cpu(tmp_path: Path, head: str, told: int) -> None:
    body = (
        "def _pad_to_largest_tensor(tensor: torch.Tensor, group):\n"
        "    return torch.tensor([tensor.numel()], dtype=torch.int64, device=tensor.device)\n"
    )
    assert len(found(tmp_path, "DG510", head + body)) == told


@pytest.mark.parametrize(("mode", "told"), [('mode == "cpu"', 0), ('mode == "gpu"', 1)])
def test_what_is_there_for_the_cpu_waits_for_nothing(tmp_path: Path, mode: str, told: int) -> None:
    body = f"def f(x: torch.Tensor, y, mode: str):\n    if {mode}:\n        y = y.cpu()\n    return y\n"
    assert len(found(tmp_path, "DG414", body)) == told


@pytest.mark.parametrize(("over", "certainty"), [("self.crops", "note"), ("self.rows", "sure")])
def test_what_grows_over_two_or_three_is_a_note(tmp_path: Path, over: str, certainty: str) -> None:
    body = (
        "class Net(nn.Module):\n    def forward(self, x: torch.Tensor):\n        out = x\n"
        f"        for one in {over}:\n            out = torch.cat((out, self.net(one)))\n"
        "        return self.head(out)\n"
    )
    assert [one.certainty for one in found(tmp_path, "DG506", body)] == [certainty]


@pytest.mark.parametrize(
    ("owner", "certainty"), [("Net", "sure"), ("EMA", "note"), ("VaeTrainer", "note")]
)
def test_buffers_of_what_is_around_a_model_may_stay_on_the_cpu(
    tmp_path: Path, owner: str, certainty: str
) -> None:
    body = (
        f"class {owner}(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('steps', torch.tensor(0))\n\n    # dispatchguard: hot\n"
        "    def update(self, x):\n        if self.steps > 3:\n            x = x + 1\n        return x\n"
    )
    assert [one.certainty for one in found(tmp_path, "DG401", body)] == [certainty]


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ('self.offload_device == "cpu"', 1),
        ('self.device == "cpu"', 0),
        ('cfg.device_type != "cpu"', 1),
        ('out in "cpu"', 1),
        ('save_device == "cpu"', 1),
    ],
)
def test_where_something_goes_is_not_where_it_comes_from(
    tmp_path: Path, where: str, told: int
) -> None:
    body = (
        "class Net(nn.Module):\n    def forward(self, x: torch.Tensor, cfg, out, save_device):\n"
        f"        h = self.net(x)\n        if {where}:\n            h = h.cpu()\n        return h\n"
    )
    assert len(found(tmp_path, "DG414", body)) == told


@pytest.mark.parametrize(
    ("second", "said"),
    [("x.argmax()", True), ("x.mean()", False)],
)
def test_reads_of_several_dtypes_are_told_with_what_stacking_does(
    tmp_path: Path, second: str, said: bool
) -> None:
    first = "torch.softmax(x, 0).sum()"
    body = f"def f(x: torch.Tensor):\n    a = {first}.item()\n    b = {second}.item()\n    return a, b\n"
    messages = [f.message for f in found(tmp_path, "DG417", body)]
    assert messages and any(".double()" in one for one in messages) is said
