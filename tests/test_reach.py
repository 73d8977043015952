"""Code that maintainers removed because it cost host time, as commits of theirs showed it, is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_dispatchguard.lint.check import check
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.model.findings import Finding

HEAD = "import numpy as np\nimport torch\nfrom torch import nn\n\n\n"


def told(tmp_path: Path, text: str) -> tuple[Finding, ...]:
    """What is found in a file of a project that is no library."""
    file = tmp_path / "code.py"
    file.write_text(text, encoding="utf-8")
    request = Request((file,), tmp_path, settings={"select": ("DG",)}, write=False, cache=False)
    return tuple(check(request).report.findings)


TOLD = {
    "bound-after": ("DG521", "x = torch.stack([torch.cos(x), torch.sin(x), torch.cos(x)])"),
    "bound-between": ("", "y = torch.cos(x)\n    x = x + 1\n    x = torch.cos(x) * y"),
    "member-of-numbers": ("DG401", "if x.sum() in (1, 2, 3):\n        x = x * 2"),
    "tensor-among-words": ("", "if x[0] in ['a', 'b']:\n        x = x * 2"),
    "key-of-a-table": ("", "if x[0] in {}:\n        x = x * 2"),
    "member-of-words": ("", "if names in ('a', 'b'):\n        x = x * 2"),
    "element-is-member": (
        "DG401",
        "for i in range(n):\n        if x[i] not in kept and torch.any(y == x[i]):\n            x = x + 1",
    ),
    "rounds-by-number": (
        "",
        "for i in range(n):\n        if i in steps and torch.any(y == n):\n            x = x + 1",
    ),
    "stacked-in-loop": (
        "DG506",
        "z = x\n    for i in range(64):\n        z = torch.vstack([z, x])\n    x = z",
    ),
    "cast-then-moved": ("DG510", "x = torch.from_numpy(grid).long().to(x.device)"),
    "one-cast-then-moved": ("DG501", "x = x[torch.tensor(n).half().to(x.device)]"),
    "tensor-of-tensors": ("DG508", "x = torch.FloatTensor([x.mean(), x.sum()])"),
    "back-where-it-is": (
        "DG514",
        "y = torch.ones_like(x).requires_grad_(False).to(x.device)",
    ),
    "device-by-a-name": ("DG514", "where = x.device\n    y = torch.exp(x).to(where)"),
}


@pytest.mark.parametrize("case", TOLD)
def test_what_stands_in_one_function(tmp_path: Path, case: str) -> None:
    code, body = TOLD[case]
    head = (
        "# dispatchguard: hot\ndef f(x: torch.Tensor, y: torch.Tensor, grid: np.ndarray, n: int, "
        "names, kept: list[int], steps):\n    "
    )
    findings = told(tmp_path, f"{HEAD}{head}{body}\n    return x, y\n")
    if code:
        assert code in {f.code for f in findings}
    else:
        assert not {"DG401", "DG521"} & {f.code for f in findings}


def test_a_slip_in_an_annotation_is_a_tensor(tmp_path: Path) -> None:
    text = "# dispatchguard: hot\ndef f(x: torch.tensor):\n    return torch.sum(x).item()\n"
    assert {f.code for f in told(tmp_path, HEAD + text)} == {"DG411"}


TABLES = """\
class Schedule(nn.Module):
    def __init__(self, n):
        super().__init__()
        betas = torch.linspace(0, 1, n)
        alphas = torch.cumprod(1.0 - betas, dim=0)
        self.table = {table}

    def forward(self, x: torch.Tensor):
        return x * self.table.to(x.device)
"""


@pytest.mark.parametrize(
    ("table", "certainties"),
    [
        ("betas * (1 - alphas)", ["sure"]),
        ("torch.sqrt(1.0 / alphas)", ["sure"]),
        ("alphas.clamp(min=1e-20)", ["sure"]),
        ("torch.sqrt(1.0 / alphas).to(n)", []),
        ("torch.zeros(4, device=n)\n        self.table = self.table * 2", []),
        ("n * 2", []),
        ("make(alphas)", []),
    ],
)
def test_a_table_worked_out_of_tables_is_on_the_cpu(
    tmp_path: Path, table: str, certainties: list[str]
) -> None:
    findings = told(tmp_path, HEAD + TABLES.format(table=table))
    assert [f.certainty for f in findings if f.code == "DG505"] == certainties


def test_a_default_that_is_moved_under_its_own_name(tmp_path: Path) -> None:
    text = (
        "# dispatchguard: hot\ndef f(x: torch.Tensor, up=torch.tensor([0.0, 1.0])):\n    {line}\n"
        "    return x + up\n"
    )
    (one,) = told(tmp_path, HEAD + text.format(line="up = up.to(x.device)"))
    assert (one.code, one.certainty) == ("DG505", "note")
    assert told(tmp_path, HEAD + text.format(line="up = other(up)")) == ()


WITHOUT_GRADIENTS = """\
class Vocoder(Base):
    @torch.{decorator}
    def {name}(self, features: torch.Tensor):
        return self.source(features.cpu())
"""


@pytest.mark.parametrize(
    ("decorator", "name", "hot"),
    [
        ("inference_mode()", "speak", True),
        ("no_grad()", "speak", True),
        ("jit.ignore", "speak", False),
        ("no_grad()", "init_weights", False),
        ("no_grad()", "load_lora_weights", False),
        ("no_grad()", "quantize_rows", False),
    ],
)
def test_what_works_without_gradients_is_inference(
    tmp_path: Path, decorator: str, name: str, hot: bool
) -> None:
    findings = told(tmp_path, HEAD + WITHOUT_GRADIENTS.format(decorator=decorator, name=name))
    assert [(f.code, f.certainty) for f in findings] == ([("DG414", "note")] if hot else [])


def test_an_evaluation_takes_no_tensors(tmp_path: Path) -> None:
    text = "@torch.no_grad()\ndef show(model, config):\n    return model.norm(config).cpu()\n"
    assert told(tmp_path, HEAD + text) == ()


OBJECTS = """\
class Head(nn.Module):
    def reduce(self, x):
        return x.sum().item()


class Model(nn.Module):
    def __init__(self, device):
        super().__init__()
        self.head = {head}

    def forward(self, x):
        return self.head.reduce(x)
"""


@pytest.mark.parametrize(
    ("head", "hot"),
    [
        ("Head()", True),
        ("Head().to(device)", True),
        ("Head().cuda().eval()", True),
        ("Head().reduce(device)", False),
        ("head().to(device)", False),
    ],
)
def test_a_module_that_is_moved_is_the_same(tmp_path: Path, head: str, hot: bool) -> None:
    assert bool(told(tmp_path, HEAD + OBJECTS.format(head=head))) is hot


ABSTRACT = """\
from abc import ABC, abstractmethod


class Dispatcher(ABC):
    {decorator}
    def post(self, x):
        raise NotImplementedError


{classes}
def build(kind) -> Dispatcher: ...


class Layer(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.dispatcher = build(kind)

    def forward(self, x):
        return self.dispatcher.post(x)
"""
ONE = "class D{number}(Dispatcher):\n    def post(self, x):\n        return x.sum().item()\n\n\n"


@pytest.mark.parametrize(
    ("decorator", "number", "hot"),
    [("@abstractmethod", 4, True), ("@abstractmethod", 40, False), ("", 4, False), ("", 3, True)],
)
def test_an_abstract_method_is_one_of_its_definitions(
    tmp_path: Path, decorator: str, number: int, hot: bool
) -> None:
    classes = "".join(ONE.format(number=one) for one in range(number))
    findings = told(tmp_path, HEAD + ABSTRACT.format(decorator=decorator, classes=classes))
    assert len(findings) == (number if hot else 0)


@pytest.mark.parametrize(
    ("name", "hot"),
    [("on_step", True), ("on_train_step_end", True), ("on_batch_start", True), ("on_epoch", False)],
)
def test_hooks_of_trainers_run_in_every_step(tmp_path: Path, name: str, hot: bool) -> None:
    text = (
        f"class Hook:\n    def {name}(self, task: torch.Tensor):\n        log(task.norm().item())\n"
    )
    assert bool(told(tmp_path, HEAD + text)) is hot


@pytest.mark.parametrize(
    ("use", "known"),
    [
        ("torch.cumsum(data.sizes, 0)", True),
        ("data.sizes.cumsum(0)", False),  # NumPy has it, too, and this file knows arrays
        ("build(data.sizes)", False),
        ("torch.cumsum(data.of.sizes, 0)", False),
    ],
)
def test_what_torch_is_given_of_a_batch_is_a_tensor(tmp_path: Path, use: str, known: bool) -> None:
    text = f"class Net(nn.Module):\n    def forward(self, data):\n        ends = {use}\n"
    text += "        return [int(n) for n in data.sizes], ends\n"
    assert [one.code for one in told(tmp_path, HEAD + text)] == ["DG428"] * known


LAZY = """class Net(nn.Module):
    def __init__(self, teacher=None):
        super().__init__()
        self.teacher = teacher
        self.engine = None

    def load(self, x):
        self.engine = x.sum().item()

    def make(self, x):
        return x.max().item()

    def forward(self, x: torch.Tensor):
        if self.{asked} is None:
            self.{called}(x)
        return x
"""


@pytest.mark.parametrize(
    ("asked", "called", "hot"),
    [("engine", "load", False), ("teacher", "make", True), ("engine", "make", False)],
)
def test_what_a_first_call_makes_is_made_once(
    tmp_path: Path, asked: str, called: str, hot: bool
) -> None:
    assert bool(told(tmp_path, HEAD + LAZY.format(asked=asked, called=called))) is hot


LOCAL_TABLE = """class Criterion(nn.Module):
    def loss_of_boxes(self, x):
        return x.sum().item()

    def loss_of_masks(self, x):
        return x.max().item()

    def get_loss(self, name, x):
        losses = {{"boxes": self.loss_of_boxes, "masks": {other}}}
        return losses[name](x)

    def forward(self, x: torch.Tensor):
        return [self.get_loss(name, x) for name in self.names]
"""


@pytest.mark.parametrize(
    ("other", "number"), [("self.loss_of_masks", 2), ("'loss_of_masks'", 1), ("None", 1)]
)
def test_a_table_of_methods_leads_to_them(tmp_path: Path, other: str, number: int) -> None:
    findings = told(tmp_path, HEAD + LOCAL_TABLE.format(other=other))
    assert [one.code for one in findings] == ["DG411"] * number


RETRIED = """def train(model, loader, optimizer):
    for x in loader:
        while True:
            try:
                loss = model(x).sum()
                loss.backward()
                optimizer.step()
                print(loss.item())
                break
            except RuntimeError:
                x = x[::2]
"""


def test_a_step_that_is_tried_again_is_one(tmp_path: Path) -> None:
    assert told(tmp_path, HEAD + RETRIED)


@pytest.mark.parametrize("kept", ["batch.copy()", "dict(batch)"])
def test_a_copied_table_may_hold_tensors(tmp_path: Path, kept: str) -> None:
    text = "class Net(nn.Module):\n    def forward(self, batch: dict[str, torch.Tensor]):\n"
    text += f"        kept = {kept}\n        return batch['lengths'].sum().item(), kept\n"
    assert [one.code for one in told(tmp_path, HEAD + text)] == ["DG411"]


@pytest.mark.parametrize(
    ("over", "told_as"),
    [
        ("islice(x, 9)", "sure"),
        ("reversed(x)", "sure"),
        ("chain(x, x)", "sure"),
        ("self.chain(x)", ""),
        ("islice(x.tolist(), 9)", ""),
    ],
)
def test_what_itertools_hands_on(tmp_path: Path, over: str, told_as: str) -> None:
    text = "from itertools import chain, islice\n\n\nclass Net(nn.Module):\n"
    text += "    def forward(self, x: torch.Tensor):\n        total = 0\n"
    text += f"        for n in {over}:\n            total += int(n)\n        return total\n"
    findings = [one for one in told(tmp_path, HEAD + text) if one.code == "DG428"]
    assert [one.certainty for one in findings[:1]] == [told_as] * bool(told_as)


@pytest.mark.parametrize(
    ("name", "hot"), [("_hook_on_batch_end", True), ("_hook_on_fit_end", False)]
)
def test_hooks_in_a_table_of_a_trainer(tmp_path: Path, name: str, hot: bool) -> None:
    text = f"class Trainer:\n    def {name}(self, loss: torch.Tensor):\n        note(loss.sum().item())\n"
    assert bool(told(tmp_path, HEAD + text)) is hot


EVALUATES = """import torch


@torch.no_grad()
def perform(model, loader):
    for x in loader:
        print(model(x.cuda()).sum().item())
"""


@pytest.mark.parametrize(
    ("name", "head", "hot"),
    [
        ("test_net.py", "", True),
        ("tools/test_net.py", "", True),
        ("cloze_test.py", "", True),
        ("tests/test_net.py", "", False),
        ("test_net.py", "import pytest\n", False),
        ("test_net.py", "def test_it():\n    pass\n\n\n", False),
        ("conftest.py", "", False),
    ],
)
def test_a_program_may_be_called_as_tests_are(
    tmp_path: Path, name: str, head: str, hot: bool
) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'it'\n", encoding="utf-8")
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(head + EVALUATES, encoding="utf-8")
    request = Request((file,), tmp_path, settings={"select": ("DG",)}, write=False, cache=False)
    assert bool(check(request).report.findings) is hot


@pytest.mark.parametrize(
    ("body", "reads"),
    [
        ("if math.isnan(loss):\n        raise ValueError", True),
        ("return not math.isfinite(loss)", True),
        ("return torch.isnan(loss)", False),
        ("return math.isnan(loss.shape[0])", False),
    ],
)
def test_helpers_that_ask_for_what_is_no_number(tmp_path: Path, body: str, reads: bool) -> None:
    text = f"import math\n\n\ndef check_loss(loss):\n    {body}\n\n\nclass Net(nn.Module):\n"
    text += "    def forward(self, x: torch.Tensor):\n        loss = x.sum()\n"
    text += "        check_loss(loss)\n        return loss\n"
    assert ("DG433" in [one.code for one in told(tmp_path, HEAD + text)]) is reads


PART = """class Tower(nn.Module):
    def forward_features(self, x):
        return x.sum().item()


class Other({base}):
    def forward_features(self, x):
        return x.max().item()


class Net(nn.Module):
    def __init__(self, tower):
        super().__init__()
        self.tower = tower

    def forward(self, x: torch.Tensor):
        return self.tower.forward_features(x)
"""


@pytest.mark.parametrize(("base", "number"), [("nn.Module", 2), ("object", 0)])
def test_a_part_of_a_forward_is_that_of_any_module(tmp_path: Path, base: str, number: int) -> None:
    findings = told(tmp_path, HEAD + PART.format(base=base))
    assert [one.code for one in findings] == ["DG411"] * number
