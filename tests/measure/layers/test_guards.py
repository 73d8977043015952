"""Guards by cause; advice that is given removes what it says."""

from __future__ import annotations

import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pytest_dispatchguard.measure.layers.guards import guarded
from pytest_dispatchguard.model.compiled import GuardedCode, GuardGroup
from pytest_dispatchguard.model.errors import UserError

torch = pytest.importorskip("torch", reason="reads what torch compiles")

NET = """
import torch

SCALE = 2.0
WIDE = True

class Scaled(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x * {read}

class Net(torch.nn.Module):
    def __init__(self, scales):
        super().__init__()
        self.layers = torch.nn.ModuleList(Scaled(scale) for scale in scales)
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, n):
        for layer in self.layers:
            x = layer(x)
        return self.linear(x) + n if WIDE else x

def broken(x):
    print("seen")
    x = x + 1
    print(end="")
    return x * 2
"""
SECONDS = 0.0
COUNT = 5


def found(
    folder: Path,
    scales: str = "range(1, 6)",
    *,
    read: str = "self.scale",
    how: str = "",
    seconds: float = SECONDS,
    net: str = NET,
) -> GuardedCode:
    """The guards of a net whose modules are imported under a name of their own."""
    name = f"net_{abs(hash((scales, read, how, net)))}"
    (folder / f"{name}.py").write_text(net.format(read=read))
    setup = (
        f"import torch, {name} as net\n"
        f"model = torch.compile(net.Net({scales}), backend='eager', {how})\n"
        "x = torch.ones(3, 4)"
    )
    (code,) = guarded("model(x, 3)", setup, folder, seconds=seconds)
    return code


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> GuardedCode:
    """What is checked of the net as it is."""
    return found(tmp_path_factory.mktemp("net"))


def group(code: GuardedCode, cause: str, name: str = "") -> GuardGroup:
    (one,) = [g for g in code.groups if g.cause.startswith(cause) and g.name == name]
    return one


def test_guards_are_told_by_cause_and_source(code: GuardedCode) -> None:
    assert code.function.endswith("forward") and Path(code.path).parent.name.startswith("net")
    assert code.number == sum(one.number for one in code.groups)
    scales = group(code, "module attribute", "L['self'].layers[*].scale")
    assert (scales.number, dict(scales.kinds)) == (COUNT, {"EQUALS_MATCH": COUNT})
    assert "return x * self.scale" in scales.places[0] and "in forward" in scales.places[0]
    assert group(code, "global", "WIDE").number == 1
    assert "TENSOR_MATCH" in group(code, "argument", "x").kinds
    assert group(code, "argument", "n").number >= 1
    assert group(code, "parameters", "self").number >= 2
    assert "GLOBAL_STATE" in group(code, "ambient").kinds
    assert not group(code, "ambient").advice


@pytest.mark.thorough
def test_what_groups_take_is_measured_by_turns(tmp_path: Path) -> None:
    code = found(tmp_path, seconds=0.1)
    assert code.cost_us is not None and code.cost_us.low > 0, "checking takes time"
    scales = group(code, "module attribute", "L['self'].layers[*].scale")
    assert scales.cost_us is not None and scales.cost_us.value < code.cost_us.high
    assert scales.cost_us.low <= scales.cost_us.value <= scales.cost_us.high


@pytest.mark.thorough
def test_a_group_that_is_next_to_nothing_takes_next_to_nothing(tmp_path: Path) -> None:
    """However the trees that are held against each other lie in memory."""
    buffers = "[torch.nn.Buffer(torch.ones(())) for _ in range(60)]"
    code = found(tmp_path, buffers, seconds=0.1)
    one = group(code, "global", "WIDE")
    assert one.number == 1
    assert one.cost_us is not None and code.cost_us is not None
    assert one.cost_us.value < 0.15 * code.cost_us.value


def options_of(advice: str) -> str:
    told = re.match(r"(options=\{.*\})(?:,| leaves)", advice)
    assert told is not None, advice
    return told[1]


def test_the_filter_of_an_attribute_removes_its_guards(tmp_path: Path, code: GuardedCode) -> None:
    advice = group(code, "module attribute", "L['self'].layers[*].scale").advice
    assert len(advice) == 1, "they differ, and are few"
    after = found(tmp_path, how=options_of(advice[0]))
    assert after.number == code.number - COUNT
    assert not [one for one in after.groups if one.name.endswith(".scale")]


def test_values_that_differ_are_few_guards_as_a_tuple_of_the_whole(tmp_path: Path) -> None:
    code = found(tmp_path, "range(1, 21)")
    advice = group(code, "module attribute", "L['self'].layers[*].scale").advice
    assert advice[0].startswith("a tuple of all 20 in the module that is compiled")
    handed = NET
    for old, new in (
        ("self, x):", "self, x, scale):"),
        ("        self.layers", "        self.scales = (*scales,)\n        self.layers"),
        ("for layer in self.layers:", "for layer, scale in zip(self.layers, self.scales):"),
        ("x = layer(x)", "x = layer(x, scale)"),
    ):
        assert old in handed
        handed = handed.replace(old, new)
    after = found(tmp_path, "range(1, 21)", read="scale", net=handed)
    assert after.number <= code.number - 20 + 5


def test_equal_values_are_one_guard_as_a_constant_of_the_file(tmp_path: Path) -> None:
    code = found(tmp_path, "[2.0] * 5")
    advice = group(code, "module attribute", "L['self'].layers[*].scale").advice
    assert advice[0].startswith("all 5 are 2.0")
    after = found(tmp_path, "[2.0] * 5", read="SCALE")
    assert group(after, "global", "SCALE").number == 1
    assert not [one for one in after.groups if one.name.endswith(".scale")]
    assert after.number <= code.number - COUNT + 1


def test_buffers_bring_more_guards_than_constants(tmp_path: Path, code: GuardedCode) -> None:
    """So that nobody is told to make one of a constant."""
    buffers = "[torch.nn.Buffer(torch.ones(())) for _ in range(5)]"
    assert found(tmp_path, buffers).number > code.number


@pytest.mark.parametrize(
    ("cause", "name"), [("make-up", "self"), ("parameters", "self"), ("global", "WIDE")]
)
def test_the_filter_that_is_advised_leaves_what_it_says(
    tmp_path: Path, code: GuardedCode, cause: str, name: str
) -> None:
    (advice,) = group(code, cause, name).advice
    told = re.search(r"leaves (\d+) of (\d+), unsafe", advice)
    assert told is not None
    after = found(tmp_path, how=options_of(advice))
    left = sum(
        one.number for one in after.groups if (one.cause, one.name) == _key(code, cause, name)
    )
    assert left == int(told[1]) <= int(told[2]) / 2
    (helper,) = [f for f in code.filters if f.name in advice]
    assert after.number == helper.left


def _key(code: GuardedCode, cause: str, name: str) -> tuple[str, str]:
    one = group(code, cause, name)
    return one.cause, one.name


def test_dynamic_sizes_are_fixed_by_mark_static(tmp_path: Path) -> None:
    def of_x(mark: str) -> GuardGroup:
        setup = (
            "import torch\n"
            "f = torch.compile(lambda x: x * 2 if x.shape[0] < 9 else x, backend='eager', dynamic=True)\n"
            f"x = torch.ones(7)\n{mark}"
        )
        (code,) = guarded("f(x)", setup, tmp_path, seconds=SECONDS)
        return group(code, "argument", "x")

    before = of_x("")
    (advice,) = before.advice
    after = of_x(re.search(r"torch\._dynamo\.mark_static\(x\)", advice)[0])  # type: ignore[index]  # it is found
    assert not after.advice and sum(after.kinds.values()) < sum(before.kinds.values())


def test_each_piece_of_a_broken_graph_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pieces.py").write_text(NET.format(read="1"))
    setup = "import torch, pieces; f = torch.compile(pieces.broken, backend='eager')"
    codes = guarded("f(torch.ones(2))", setup, tmp_path, seconds=SECONDS)
    assert len(codes) >= 2 and all(code.number for code in codes)
    told = capsys.readouterr()
    assert "seen" in told.err and not told.out, "what is printed is no part of the report"


def test_guards_that_hold_within_the_call_alone_are_not_timed(tmp_path: Path) -> None:
    setup = (
        "import torch\n"
        "f = torch.compile(lambda x: x * 2, backend='eager')\n"
        "def call(x):\n"
        "    with torch.no_grad():\n"
        "        return f(x)"
    )
    (code,) = guarded("call(torch.ones(2))", setup, tmp_path, seconds=0.1)
    assert code.number and code.cost_us is None and "within the call" in code.note


def test_a_filter_of_the_users_stays(tmp_path: Path) -> None:
    none = "lambda guards: [False] * len(guards)"
    everything = found(tmp_path, how=f'options={{"guard_filter_fn": {none}}}')
    # Torch 2.8 keeps two, whatever a filter says.
    left = {kind for group in everything.groups for kind in group.kinds}
    assert left <= {"GLOBAL_STATE", "TORCH_FUNCTION_MODE_STACK"}
    assert everything.number == len(left) and not everything.filters


@pytest.mark.parametrize(
    ("target", "setup", "said"),
    [
        ("f(", "", "TARGET must be an expression: *"),
        ("f = 1", "", "TARGET must be an expression: *"),
        ("f()", "def", "--setup must be Python code: *"),
        (
            "f()",
            "import no_such_module",
            "--setup: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("f()", "raise SystemExit(3)", "--setup: SystemExit: 3"),
        ("f()", "", "TARGET: NameError: name 'f' is not defined"),
        ("f(1)", "import torch; f = abs", "nothing is compiled in TARGET: *"),
        (
            "torch.compile(g, fullgraph=True, backend='eager')(torch.ones(2))",
            "import torch\ndef g(x):\n    print(x)\n    return x",
            "TARGET: it cannot be compiled: Unsupported: *",
        ),
    ],
)
def test_mistakes_end_in_one_line(tmp_path: Path, target: str, setup: str, said: str) -> None:
    with pytest.raises(UserError) as told:
        guarded(target, setup, tmp_path, seconds=SECONDS)
    assert "\n" not in str(told.value)
    assert fnmatchcase(str(told.value), said), str(told.value)


def test_compiled_code_works_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.guards import CheckFunctionManager

    before = CheckFunctionManager.__init__
    module: Any = ModuleType("made_by_test")
    module.f = torch.compile(lambda x: x + 1, backend="eager")
    monkeypatch.setitem(sys.modules, "made_by_test", module)
    setup = "import torch; from made_by_test import f"
    guarded("f(torch.ones(2))", setup, tmp_path, seconds=SECONDS)
    assert CheckFunctionManager.__init__ is before
    assert torch.equal(module.f(torch.ones(3)), torch.full((3,), 2.0))
