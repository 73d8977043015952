"""The reports that every format is tried on, and the comparison with stored output."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.model.findings import (
    Certainty,
    Edit,
    Elsewhere,
    Finding,
    Fix,
    Hot,
    Price,
    RuleInfo,
    Safety,
    Span,
)
from pytest_dispatchguard.model.layers import Layer, Layers
from pytest_dispatchguard.model.measurements import CostlyLine, Interval, Measurement
from pytest_dispatchguard.model.operations import OperationsAt
from pytest_dispatchguard.model.reports import Report, Summary
from pytest_dispatchguard.model.verdicts import Limit, Verdict
from pytest_dispatchguard.report.html.page import Known

HERE = Path(__file__).parent

BLOCK = """\
import torch
from torch import nn


class Block(nn.Module):
    def forward(self, x, mask):
        for layer in self.layers:
            x = pick(layer(x), mask)
        return x


def pick(x, mask):
    if mask.any():
\t\treturn x.to("cpu")
    names = {"größe": x, "名前": mask.item()}
    return names
"""

SPACED = """\
def step(self, values):
    wrapped = partial(scale, factor=2)
    return wrapped(values)
"""

FILES = {
    "src/my net/step.py": SPACED,
    "src/net/block.py": BLOCK,
}

FORWARD = Hot(
    root="Block.forward",
    path=("Block.forward", "pick"),
    reason="forward of a torch.nn.Module",
    loop=True,
)


def make(
    code: str,
    rule: str,
    path: str,
    span: tuple[int, int, int, int],
    message: str,
    *,
    function: str = "",
    certainty: Certainty = "sure",
    hot: Hot | None = None,
    price: Price | None = None,
    fix: Fix | None = None,
    source: str | None = None,
    elsewhere: Elsewhere | None = None,
) -> Finding:
    """A finding whose source line is that of the example's files."""
    if source is None:
        source = FILES[path].split("\n")[span[0] - 1] if path in FILES else ""
    return Finding(
        code=code,
        rule=rule,
        path=path,
        span=Span(*span),
        function=function,
        message=message,
        certainty=certainty,
        hot=hot,
        price=price,
        fix=fix,
        source=source,
        elsewhere=elsewhere,
    )


def edit(path: str, span: tuple[int, int, int, int], replacement: str) -> Edit:
    return Edit(path, Span(*span), replacement)


def fix(safety: Safety, message: str, *edits: Edit) -> Fix:
    return Fix(safety, message, edits)


RULES = (
    RuleInfo(
        code="DG303",
        name="wrapper-built-per-call",
        summary="A callable is wrapped anew on every call, used once, and thrown away.",
        help="# DG303\n\nWrap once, outside of the call.\n",
        fix="safe",
        origin="keras#23183",
    ),
    RuleInfo(
        code="DG401",
        name="truth-of-a-tensor",
        summary="The truth of a tensor makes the host wait for the device.",
        help="# DG401\n\n`if mask.any():` copies one value to the host.\n",
        fix="unsafe",
        origin="torchmetrics",
    ),
    RuleInfo(
        code="DG799",
        name="only-when-selected",
        summary="A rule that speaks only when selected.",
        help="",
        fix="none",
        origin="a test",
        default=False,
    ),
)

FULL = Report(
    findings=(
        make(
            "DG402",
            "item-of-a-tensor",
            "src/net/block.py",
            (15, 33, 15, 44),
            "`mask.item()` waits: 100% of it | all\nfor `größe`, once, @every call: a_b*c",
            function="pick",
            certainty="maybe",
            hot=Hot(
                root="Trainer.training_step",
                path=("Trainer.training_step", "Block.forward", "pick"),
                reason="training_step of a lightning.LightningModule",
                per="step",
                seen=12.5,
            ),
        ),
        make(
            "DG401",
            "truth-of-a-tensor",
            "src/net/block.py",
            (13, 8, 13, 18),
            "the truth of `mask.any()` makes the host wait for the device",
            function="pick",
            hot=FORWARD,
            price=Price(2.634, 2.5, 2.8, "a machine"),
            fix=fix(
                "unsafe",
                "choose with `torch.where` where both sides are cheap",
                edit("src/net/block.py", (13, 5, 14, 21), 'x = torch.where(mask, x.to("cpu"), x)'),
            ),
        ),
        make(
            "DG404",
            "copy-to-host",
            "src/net/block.py",
            (14, 10, 14, 21),
            'x.to("cpu") waits for the device',
            function="pick",
            hot=FORWARD,
            price=Price(0.31),
        ),
        make(
            "DG303",
            "wrapper-built-per-call",
            "src/my net/step.py",
            (2, 15, 3, 27),
            "`partial(...)` builds a wrapper on every call: pass the arguments",
            function="step",
            hot=Hot("step", ("step",), "a step function named in the configuration"),
            price=Price(1234.5),
            fix=fix(
                "safe",
                "call `scale` directly",
                edit("src/my net/step.py", (2, 1, 3, 1), ""),
                edit("src/my net/step.py", (3, 12, 3, 27), "scale(values, factor=2)"),
            ),
        ),
        make(
            "DG601",
            "signature-per-call",
            "src/net/block.py",
            (8, 13, 8, 17),
            "makes `pick` hot, where src/net/names.py:4 has: `inspect.signature` on every call",
            function="Block.forward",
            hot=FORWARD,
            price=Price(9.5),
            elsewhere=Elsewhere("src/net/names.py", Span(4, 5, 4, 30), "pick"),
        ),
        make(
            "DG001",
            "does-not-parse",
            "src/broken.py",
            (7, 3, 7, 3),
            "invalid syntax",
            source="  def :",
        ),
    ),
    summary=Summary(files=57, functions=340, hot_functions=12, suppressed=2, baselined=3, fixed=1),
    rules=RULES,
    version="0.1.0",
    notes=(
        "dispatchguard-baseline.json: 1 entry no longer matches; prune it with --prune-baseline",
        "src/latin.py: passed over, 100% unreadable",
    ),
)

REPORTS = {
    "full": FULL,
    "clear": Report((), Summary(files=1, functions=9, hot_functions=1), RULES[:1], "0.1.0"),
}


@pytest.fixture(scope="session")
def full() -> Report:
    """Findings of all kinds."""
    return FULL


@pytest.fixture(scope="session")
def clear() -> Report:
    """Nothing found."""
    return REPORTS["clear"]


@pytest.fixture(params=REPORTS)
def named_report(request: pytest.FixtureRequest) -> tuple[str, Report]:
    """Each of the reports by its name."""
    return request.param, REPORTS[request.param]


@pytest.fixture(scope="session")
def sources() -> Callable[[str], str | None]:
    """The text of the files that the reports speak of."""
    return FILES.get


@pytest.fixture(scope="session")
def finding() -> Callable[..., Finding]:
    """Makes a finding of code, rule, path, span, message and what else is named."""
    return make


@pytest.fixture(scope="session")
def report_of() -> Callable[..., Report]:
    """Makes a report of nothing but findings."""

    def build(*findings: Finding, **others: Any) -> Report:
        return Report(findings, Summary(files=1), RULES, "0.1.0", **others)

    return build


@pytest.fixture(scope="session")
def snapshot() -> Callable[[str, str], None]:
    """Compares with a stored file, byte for byte.

    With ``DISPATCHGUARD_UPDATE_SNAPSHOTS=1`` in the environment the file is written instead.
    """

    def check(name: str, got: str) -> None:
        path = HERE / "snapshots" / name
        if os.environ.get("DISPATCHGUARD_UPDATE_SNAPSHOTS"):
            path.write_bytes(got.encode())
        assert path.exists(), f"{path} is missing: run once with DISPATCHGUARD_UPDATE_SNAPSHOTS=1"
        assert got.encode() == path.read_bytes()

    return check


@pytest.fixture(scope="session")
def schemas() -> Path:
    """The folder of the JSON schemas."""
    return HERE.parent / "schemas"


HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]> &amp; &lt;b&gt; ' \" `<i>x</i>` `a` b`",
    "\u2028\u2029\x00\x1b[31m\u202egnp.exe\udc80",
    "<img src=x onerror=alert(1)> {{7*7}} ${x} javascript:alert(1)",
)
"""What names, code and messages may have in them to break a page."""


def hostile(number: int) -> str:
    return HOSTILE[number % len(HOSTILE)]


def many(number: int, *, ugly: bool = False) -> Report:
    """A report of so many findings, of all kinds, in files of ten; with texts that would break a page."""
    found = []
    for n in range(number):
        word = hostile(n) if ugly else ""
        path = f"src/package/{word.replace('/', '_')}module_{n // 10}.py"
        waits = n % 3 == 0
        code, rule = (
            ("DG401", "truth-of-a-tensor") if waits else ("DG303", "wrapper-built-per-call")
        )
        root = f"package.layers.{('Dense', 'Gate', 'Block')[n // 10 % 3]}.forward"
        found.append(
            make(
                code,
                rule,
                path,
                (n % 10 * 3 + 2, 8, n % 10 * 3 + 2, 18),
                f"the truth of `mask.any()` makes the host wait for the device {word}",
                function=f"pick{word}",
                certainty="maybe" if n % 7 == 6 else "sure",
                hot=Hot(
                    root, (root, f"pick{word}"), f"forward of a torch.nn.Module{word}", n % 4 == 0
                ),
                price=Price(None, waits=1 + n % 2)
                if waits
                else Price(0.1 + n % 50, 0.1, 60, "a machine"),
                fix=fix(
                    "safe" if n % 2 else "unsafe",
                    f"choose with `torch.where`{word}",
                    edit(
                        path,
                        (n % 10 * 3 + 2, 5, n % 10 * 3 + 2, 19),
                        f"x = {word or 'torch.where(mask)'}",
                    ),
                )
                if n % 5
                else None,
                source=f"    if mask.any():  # {word}",
            )
        )
    notes = tuple(HOSTILE) if ugly else ("a note for people",)
    return Report(
        tuple(found),
        Summary(files=number // 8 + 1, functions=number, hot_functions=number),
        RULES,
        "0.1.0",
        notes,
    )


def source_of(path: str) -> str:
    """The text of a file that `many` speaks of."""
    return "".join(
        f"def f{n}(x):\n    if mask.any():  # {path}\n        return x\n" for n in range(10)
    )


def budgets(*, ugly: bool = False) -> list[Verdict]:
    """Verdicts of all kinds; one fails by its time and its counters, and is taken apart."""
    words = HOSTILE if ugly else ("",) * 5
    times = Measurement(
        Interval(12.8, 12.1, 13.2),
        Interval(1.93, 1.9, 2.0),
        Interval(6.663, 6.244, 7.084),
        pairs=800,
        processes=1,
    )
    quick = replace(times, ratio=Interval(1.057, 1.038, 1.076), subject_us=Interval(3.3, 3.2, 3.4))
    layers = Layers(
        f"add{words[0]}",
        Interval(12.8, 12.1, 13.2),
        (
            Layer(
                f"tree_flatten{words[1]}", "python", Interval(6.5, 6.0, 7.0), path="tree.py", line=8
            ),
            Layer("dispatcher", "dispatcher", Interval(2.1, 1.9, 2.2), note=words[2]),
            Layer("kernels", "kernel", Interval(3.0, 2.8, 3.4)),
        ),
        40,
        (words[3],),
    )
    reference = Layers("torch.add", Interval(1.93, 1.9, 2.0), layers.layers[1:], 40)
    ratio = (Limit("ratio", 2), Limit("instructions", 60))
    return [
        Verdict(
            f"tests/test_ops.py::test_add{words[0]}",
            f"add{words[1]}",
            "fail",
            {"instructions": 745, "dispatches": 1},
            ratio,
            f"instructions: 745, allowed 60; ratio: 6.663 (6.244 to 7.084), allowed 2 {words[2]}",
            {"instructions": 60},
            (
                CostlyLine("src/ops.py", 8, 691, f"leaves = flatten(structure)  # {words[3]}"),
                CostlyLine(f"src/{words[4]}.py", 12, 21, "if isinstance(leaf, Symbolic):"),
            ),
            times,
            form=words[0],
            layers=layers,
            reference_layers=reference,
        ),
        Verdict(
            "tests/test_ops.py::test_clamp_length",
            "clamp",
            "pass",
            {"instructions": 9},
            ratio,
            measured=quick,
        ),
        Verdict(
            f"tests/test_ops.py::test_close[{words[1]}]",
            "close",
            "undecided",
            {"instructions": 9},
            ratio[:1],
            "ratio: 2.000 (1.9 to inf), allowed 2: measuring about 18 times as long would decide it",
            measured=replace(quick, ratio=Interval(2.0, 1.9, math.inf)),
        ),
        Verdict(
            f"tests/test_ops.py::test_gone{words[2]}",
            "gone",
            "error",
            {},
            reason=f"it raised {words[0]}",
        ),
        Verdict("tests/test_ops.py::test_left", "left", "skipped", {}, reason="no GPU here"),
    ]


def known(number: int, *, ugly: bool = False) -> Known:
    """All that a page can be made of."""
    verdicts = budgets(ugly=ugly)
    first, second = ((v.node_id, v.subject) for v in verdicts[:2])
    trends = {first: [2.1, 2.0, 2.2, 4.0, 6.66], second: [1.05] * 4}
    machine = {
        "python": "3.11.9",
        "torch": "2.13.0",
        "cpu": hostile(0) if ugly else "Some CPU @ 2.50GHz",
    }
    operations = (
        OperationsAt(
            "src/a.py", 3, hostile(1) if ugly else "pick", 4, {"add": 8, "mul": 4}, ("used twice",)
        ),
    )
    report = replace(many(number, ugly=ugly), operations=operations)
    return Known(report.version, report, verdicts, machine, trends, source_of)


@pytest.fixture(scope="session")
def known_of() -> Callable[..., Known]:
    """Makes all that is known of a project of so many findings; with texts that would break a page."""
    return known


@pytest.fixture(scope="session")
def hostile_words() -> tuple[str, ...]:
    """Texts that would break a page."""
    return HOSTILE
