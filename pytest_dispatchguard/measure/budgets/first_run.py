"""Calls subject and reference for the first time: whether they agree, and whether calls can be repeated."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, NamedTuple

from pytest_dispatchguard.measure.budgets.agreement import disagreement, kept
from pytest_dispatchguard.measure.timing.subject import Subject, Tolerance
from pytest_dispatchguard.model.errors import UserError

_EXACT = Tolerance(0.0, 0.0)


class FirstRun(NamedTuple):
    """The outcome of the first calls."""

    differ: str
    """The difference between subject and reference; empty if they agree or need not."""
    note: str
    """How later calls will differ from the first; empty if they do not."""


def first_run(subject: Subject) -> FirstRun:
    """Runs subject and reference once each."""
    __tracebackhide__ = True
    with subject.in_mode():
        subject.prepare()
        before = {} if subject.fresh else kept(_inputs(subject))
        result = subject.call.once()()
        _refuse_unused(result, "the subject")
        note = _changed(subject, before)
        if subject.reference is None:
            return FirstRun("", note)
        if subject.tolerance is not None:
            result = kept(result)  # the reference may use the same tensors
        subject.prepare()
        expected = subject.reference.once()()
        _refuse_unused(expected, "its reference")
    if subject.tolerance is None:
        return FirstRun("", note)
    try:
        return FirstRun(disagreement(result, expected, subject.tolerance), note)
    except RecursionError:
        raise UserError(
            "the results are nested too deeply to be compared: say .unchecked()"
        ) from None


def _inputs(subject: Subject) -> dict[str, Any]:
    """The tensors and containers among the arguments, except outputs."""
    given = {f"argument {i}": value for i, value in enumerate(subject.call.args)}
    given |= {name: value for name, value in subject.call.kwargs.items() if name != "out"}
    torch = sys.modules.get("torch")
    kinds = (list, dict) if torch is None else (list, dict, torch.Tensor)
    return {name: value for name, value in given.items() if isinstance(value, kinds)}


def _changed(subject: Subject, before: dict[str, Any]) -> str:
    now = _inputs(subject)
    for name, was in before.items():
        if disagreement(was, now[name], _EXACT):
            return (
                f"{subject.name} changes its {name}, so that later calls see what earlier ones left: "
                ".setup(fn) makes fresh state"
            )
    return ""


def _refuse_unused(result: object, what: str) -> None:
    """A generator or coroutine has done nothing yet."""
    if isinstance(result, Coroutine):
        result.close()  # else Python warns that it was never awaited
    if isinstance(result, Generator | Coroutine | AsyncGenerator):
        made = type(result).__name__.replace("_", " ")
        article = "an" if made[0] in "aeiou" else "a"
        name = "awaited" if isinstance(result, Coroutine) else "exhausted"
        instead = (
            f"name the subject by overhead.{name}(f, ...)"
            if what == "the subject"
            else "name a function that uses it up"
        )
        raise UserError(f"{what} only makes {article} {made}: {instead}")
