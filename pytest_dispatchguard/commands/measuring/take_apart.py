"""Does the work of `dispatchguard layers`: resolves the target, measures its layers, and formats them."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from pytest_dispatchguard.measure.budgets.machine import installed_versions
from pytest_dispatchguard.measure.layers.layers import Wanted, layers, of_subject
from pytest_dispatchguard.measure.layers.scaling import scaling
from pytest_dispatchguard.measure.layers.targets import call_of
from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.measure.timing.subject import Mode, Subject
from pytest_dispatchguard.measure.workers.subjects import each_subject, names_test
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.layers import Layers
from pytest_dispatchguard.model.measurements import Scaling
from pytest_dispatchguard.report.budgets import layers as report
from pytest_dispatchguard.report.budgets import scaling as report_scaling
from pytest_dispatchguard.report.budgets.flame import as_speedscope
from pytest_dispatchguard.runtime.target import names_after, reporting_errors

Tell = Callable[[str, int, int], object]
Format = Literal["text", "json", "markdown", "svg"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What to measure."""

    target: str
    setup: str
    sizes: Sequence[int] | None
    against: str | None
    mode: Mode | None
    seconds: float
    cwd: Path


def taken_apart(asked: Asked, tell: Tell) -> list[Layers] | Scaling:
    """Measure the layers."""
    gc.enable()  # as the measured code expects it
    if names_test(asked.target):
        return _tests(asked, tell)
    if asked.sizes is None:
        wanted = _wanted(asked, {}, tell)
        with reporting_errors(asked.target, asked.cwd):
            return [layers(wanted)]

    def made(size: int) -> tuple[Wanted, Call | None]:
        names = names_after(asked.setup, asked.cwd, {"n": size})
        reference = None if asked.against is None else call_of(asked.against, names, asked.cwd)
        return _wanted(asked, {"n": size}, tell), reference

    with reporting_errors(asked.target, asked.cwd):
        return scaling(asked.target, asked.sizes, made, tell)


def _wanted(asked: Asked, given: dict[str, object], tell: Tell) -> Wanted:
    call = call_of(asked.target, names_after(asked.setup, asked.cwd, given), asked.cwd)
    subject = Subject(call, asked.target)
    if asked.mode is not None:
        subject.mode(asked.mode)
    mode: Callable[[], AbstractContextManager[object]] = (
        subject.in_mode if asked.mode else nullcontext
    )
    heard = (
        (lambda done: None) if given else (lambda done: tell("measuring", round(done * 100), 100))
    )
    return Wanted(call, asked.target, asked.seconds, mode=mode, tell=heard)


def _tests(asked: Asked, tell: Tell) -> list[Layers]:
    if asked.setup or asked.sizes or asked.mode:
        raise UserError(
            "--setup, --sizes and --mode require an expression: a test sets these itself"
        )
    found: list[Layers] = []

    def use(node_id: str, subject: Subject) -> None:
        tell(node_id, len(found), len(found) + 1)
        found.append(of_subject(subject, f"{node_id} ({subject.name})", asked.seconds))

    here = str(asked.cwd)
    sys.path.append(here)  # like `python -m pytest`
    try:
        each_subject(asked.target, use)
    finally:
        sys.path.remove(here)
    return found


def written(
    found: Sequence[Layers] | Scaling, form: Format, *, color: bool = False, width: int = 100
) -> str:
    """The layers in one of the formats."""
    if isinstance(found, Scaling):
        ways: dict[str, Callable[[], str]] = {
            "text": partial(report_scaling.as_text, found, color=color),
            "json": partial(report_scaling.as_json, found, installed_versions()),
            "markdown": partial(report_scaling.as_markdown, found, installed_versions()),
            "svg": partial(report_scaling.as_svg, found, installed_versions()),
        }
        return ways[form]()
    ways = {
        "text": partial(report.as_text, found, color=color, width=width),
        "json": partial(report.as_json, found, installed_versions()),
        "markdown": partial(report.as_markdown, found, installed_versions()),
        "svg": partial(report.as_svg, found, installed_versions()),
    }
    return ways[form]()


def flame(found: Sequence[Layers] | Scaling) -> str:
    """The layers as a flame graph."""
    assert not isinstance(found, Scaling)
    return as_speedscope(found)
