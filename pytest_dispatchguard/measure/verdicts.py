"""From the subjects of a test to verdicts: do subject and reference agree, and does the subject keep its
limits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping, Sequence

from pytest_dispatchguard.measure.agreement import disagreement, kept
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
        _refuse_unused(result)
        if subject.reference is None:
            return ""
        if subject.tolerance is not None:
            result = kept(result)  # the reference may work on the same tensors
        subject.prepare()
        expected = subject.reference()
    if subject.tolerance is None:
        return ""
    try:
        return disagreement(result, expected, subject.tolerance)
    except RecursionError:
        raise UserError(
            "the results are nested too deeply to be compared: say .unchecked()"
        ) from None


def _refuse_unused(result: object) -> None:
    """A generator or coroutine has done nothing yet."""
    if isinstance(result, Coroutine):
        result.close()  # else Python warns of what was never awaited
    if isinstance(result, Generator | Coroutine | AsyncGenerator):
        made = type(result).__name__.replace("_", " ")
        raise UserError(f"the subject only makes a {made}: name a function that uses it up")


def counted(
    node_id: str,
    subject: Subject,
    limits: Mapping[str, Limit],
    recorded: Mapping[str, int] | None = None,
) -> Verdict:
    """Counts what one call of the subject does, and holds it against the limits; counters that these leave
    open, against what is recorded."""
    with subject.in_mode():
        counts = counters.count(subject.run, prepare=subject.prepare)
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


def _reason(counts: counters.Counts, over: Sequence[Limit], dearer: Mapping[str, int]) -> str:
    told = [f"{limit.name}: {counts.values[limit.name]}, allowed {limit.shown}" for limit in over]
    told += [f"{name}: {counts.values[name]}, recorded {number}" for name, number in dearer.items()]
    told += [
        f"{name} differ from call to call, at most {counts.values[name]}: does the subject keep something?"
        for name in counts.varying
    ]
    return "; ".join(told)


def _costly_lines(subject: Subject) -> tuple[tuple[str, int, int], ...]:
    """The lines that run most instructions in one call: file, line, instructions."""
    subject.prepare()
    places = instructions_by_place(subject.run)
    most = sorted(places.items(), key=lambda item: (-item[1], item[0]))[:_MOST_LINES]
    return tuple((path, line, times) for (path, line), times in most)
