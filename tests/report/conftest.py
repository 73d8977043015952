"""The reports that every format is tried on, and the comparison with stored output."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.model import (
    Certainty,
    Edit,
    Elsewhere,
    Finding,
    Fix,
    Hot,
    Price,
    Report,
    RuleInfo,
    Safety,
    Span,
    Summary,
)

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
