"""From the subjects of a test to verdicts: do subject and reference agree, and does the subject keep its
limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_dispatchguard.measure.agreement import disagreement
from pytest_dispatchguard.measure.subject import Subject
from pytest_dispatchguard.model import Limit, UserError, Verdict
from pytest_dispatchguard.runtime import counters
from pytest_dispatchguard.runtime.instructions import instructions_by_place

_MOST_LINES = 8
"""Lines of source that a failing budget shows."""


def agreed(subject: Subject) -> str:
    """Runs subject and reference once each; what they differ in, empty where they agree or need not."""
    with subject.in_mode():
        subject.prepare()
        result = subject.run()
        if subject.reference is None:
            return ""
        subject.prepare()
        expected = subject.reference()
    return "" if subject.tolerance is None else disagreement(result, expected, subject.tolerance)


def counted(
    node_id: str,
    subject: Subject,
    limits: Mapping[str, Limit],
    recorded: Mapping[str, int] | None = None,
) -> Verdict:
    """Counts what one call of the subject does, and holds it against the limits; counters that these leave
    open, against what is recorded."""
    with subject.in_mode():
        counts = counters.count(subject.run, _countable(), subject.prepare)
        unknown = [name for name in limits if name not in counts.values]
        if unknown:
            raise UserError(f"{', '.join(unknown)} cannot be counted without torch; install it")
        over = [limit for name, limit in limits.items() if counts.values[name] > limit.most]
        dearer = [
            name
            for name, number in (recorded or {}).items()
            if name not in limits and counts.values.get(name, 0) > number
        ]
        failed = bool(over or dearer)
        return Verdict(
            node_id,
            subject.name,
            "fail" if failed else "pass",
            counts.values,
            tuple(limits.values()),
            _reason(counts, over, {name: (recorded or {})[name] for name in dearer}),
            recorded,
            _costly_lines(subject) if failed else (),
        )


def _countable() -> tuple[str, ...]:
    """All counters, without those of torch where it is not installed."""
    from importlib.util import find_spec

    return counters.NAMES if find_spec("torch") is not None else counters.OF_PYTHON


def _reason(counts: counters.Counts, over: Sequence[Limit], dearer: Mapping[str, int]) -> str:
    told = [f"{limit.name}: {counts.values[limit.name]}, allowed {limit.shown}" for limit in over]
    told += [f"{name}: {counts.values[name]}, recorded {number}" for name, number in dearer.items()]
    told += [
        f"{name} differs from call to call: does the subject keep something?"
        for name in counts.varying
    ]
    return "; ".join(told)


def _costly_lines(subject: Subject) -> tuple[tuple[str, int, int], ...]:
    """The lines that run most instructions in one call: file, line, instructions."""
    subject.prepare()
    places = instructions_by_place(subject.run)
    most = sorted(places.items(), key=lambda item: (-item[1], item[0]))[:_MOST_LINES]
    return tuple((path, line, times) for (path, line), times in most)
