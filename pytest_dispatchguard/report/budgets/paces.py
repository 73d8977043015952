"""What a comparison with a saved run says of the machine: how control calls changed that both have timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from pytest_dispatchguard.model.measurements import Pace
from pytest_dispatchguard.model.verdicts import Base, Verdict
from pytest_dispatchguard.visible import one_line


def of_base(base: Base | None) -> str:
    """The machine's pace in the comparison of one subject; empty if it is with no earlier run, or needed no
    times."""
    if base is None or not base.earlier or base.change is None:
        return ""
    if base.pace is None:
        return _unknown(base)
    change = base.pace.change
    told = (
        f"control calls take {change.value:.3f} times what they took in {base.name} "
        f"({change.low:.3f} to {change.high:.3f}), which is of the machine alone{_others(base)}"
    )
    divided = base.pace.subject is not None and base.pace.subject == base.change
    return f"{told}; the subject's times are divided by it" if divided else told


def of_run(verdicts: Sequence[Verdict]) -> list[str]:
    """The same of all tests of a run, a line for each earlier run."""
    found: dict[str, list[Base]] = {}
    for verdict in verdicts:
        if verdict.base is not None and verdict.base.earlier:
            found.setdefault(verdict.base.name, []).append(verdict.base)
    return [one_line(_line(bases)) for bases in found.values()]


def _line(bases: Sequence[Base]) -> str:
    paces = [base.pace.change.value for base in bases if base.pace is not None]
    if not paces:
        return _unknown(bases[0])
    low, middle, high = (f"{end(paces):.3f}" for end in (min, median, max))
    times = middle if low == high else f"{middle} times ({low} to {high} from test to test)"
    return (
        f"control calls take {times}{'' if low != high else ' times'} what they took in "
        f"{bases[0].name}: that much is of the machine alone{_others(bases[0])}"
    )


def _unknown(base: Base) -> str:
    return (
        f"{base.name} has no control calls: how much of a difference in time is of the machine alone "
        f"is not known{_others(base)}"
    )


def _others(base: Base) -> str:
    return f" ({', '.join(base.other)})" if base.other else ""


def as_object(pace: Pace | None, figure: Any) -> Mapping[str, Any] | None:
    """The pace as JSON; `figure` makes an interval an object."""
    if pace is None:
        return None
    return {
        "change": figure(pace.change),
        "each": dict(pace.each),
        "apart": pace.apart,
        "subject": figure(pace.subject),
    }
