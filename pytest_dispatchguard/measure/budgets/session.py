"""Turns the subjects of the fixture into verdicts, and verdicts into the budget file and the report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pytest_dispatchguard.measure.budgets.budget_file import (
    Recorded,
    as_text,
    key_of,
    load,
    updated,
    version_of,
)
from pytest_dispatchguard.measure.budgets.first_run import first_run
from pytest_dispatchguard.measure.budgets.limits import Marker, limits_for
from pytest_dispatchguard.measure.budgets.machine import installed_versions
from pytest_dispatchguard.measure.budgets.messages import Request, Samples
from pytest_dispatchguard.measure.budgets.native import counted_alone
from pytest_dispatchguard.measure.budgets.verdicts import Timing, judged, require_references
from pytest_dispatchguard.measure.layers.layers import of_subject
from pytest_dispatchguard.measure.timing.devices import KINDS, LAZY, here
from pytest_dispatchguard.measure.timing.lockstep import Ends, Partner, follow, lead, turns_of
from pytest_dispatchguard.measure.timing.subject import Overhead, Subject
from pytest_dispatchguard.measure.timing.timing import Sample
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.verdicts import Limit, Outcome, Verdict
from pytest_dispatchguard.runtime.compiled.counts import failure
from pytest_dispatchguard.runtime.counters import counters
from pytest_dispatchguard.runtime.torch_private.compiler import without_trace_logs

_PATIENCE = 0.8
"""As part of the time after which a process that says nothing is ended, how long another waits for it."""
_MOST_OF_A_KIND = 5
"""The most messages of one kind about the budget file; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run measures, beside checking that subject and reference agree."""

    recorded: Recorded = field(default_factory=dict)
    """The content of the budget file."""
    request: Request | None = None
    """How subjects are timed; None if they are only counted."""
    turns: Ends | None = None
    """The pipes to a process of another revision, which takes turns with this one."""


@dataclass(frozen=True, slots=True)
class SettledTest:
    """The results of a test with subjects."""

    wrong: str = ""
    """An error in its budget as a whole; empty if there is none."""
    verdicts: Sequence[Verdict] = ()
    samples: Samples = field(default_factory=dict)


def settle(
    node_id: str,
    overhead: Overhead | None,
    markers: Sequence[Marker],
    settings: Sequence[tuple[str, Mapping[str, Any]]],
    asked: Asked | None,
    device: str | None = None,
) -> SettledTest:
    """Runs the subjects of a test, and counts and times them if asked to. `device` is the test's
    `overhead_device`."""
    __tracebackhide__ = True
    verdicts: list[Verdict] = []
    samples: dict[int, list[Sample]] = {}
    subjects = overhead.subjects if overhead is not None else []
    several, version_here = len(subjects) > 1, version_of(installed_versions())
    try:
        limits = limits_for(node_id, markers, settings, "overhead_budget")
        wrong = "" if subjects else _nothing_named(limits)
    except UserError as error:
        wrong = str(error)
    if wrong:
        name = node_id.rpartition("::")[2]
        return SettledTest(wrong, [Verdict(node_id, name, "error", {}, reason=wrong)])
    _tell_apart(subjects)
    if asked is not None and asked.request is not None and asked.request.lockstep:
        return _in_lockstep(node_id, subjects, asked, asked.request, device)
    for number, subject in enumerate(subjects):
        try:
            require_references(subject, limits)
            with without_trace_logs():
                differ, note = first_run(subject)
            if differ:
                said = f"{subject.name} and its reference disagree: {differ}\n{note}".rstrip()
                verdicts.append(Verdict(node_id, subject.name, "fail", {}, reason=said))
            elif asked is not None and asked.request is not None and asked.request.is_of_one_thing:
                with without_trace_logs():
                    verdicts.append(_one_thing(node_id, subject, asked.request, device))
            elif asked is not None:
                recorded = asked.recorded.get(key_of(node_id, subject.name, several), {}).get(
                    version_here
                )
                timing = _timing(asked.request, number, len(subjects), device)
                with without_trace_logs():
                    verdict, sample = judged(
                        *(node_id, subject, limits, recorded, timing, note),
                        compared=asked.request is not None,
                        counted=counters.OF_LAZY if device == LAZY else (),
                    )
                verdicts.append(verdict)
                if sample is not None:
                    samples[number] = [sample]
        except Exception as error:
            known = error if isinstance(error, UserError) else asked and failure(error)
            if not known:
                raise
            said = f"{subject.name}: {known}"
            verdicts.append(Verdict(node_id, subject.name, "error", {}, reason=said))
    return SettledTest("", verdicts, samples)


def _in_lockstep(
    node_id: str, subjects: Sequence[Subject], asked: Asked, request: Request, device: str | None
) -> SettledTest:
    """Times subjects by turns with the process of another revision."""
    assert asked.turns is not None
    # Shorter than the time after which a silent process is ended, so that who only waits says so first.
    partner = Partner(asked.turns, request.meeting, request.timeout * _PATIENCE)
    known = {subject.name: subject for subject in subjects}
    samples: dict[int, list[Sample]] = {}
    seconds = request.seconds / len(request.subjects)
    with without_trace_logs():
        for number, name in enumerate(request.subjects):
            # A test's only subject may have another name in the other revision.
            subject = known.get(name) or (subjects[0] if len(subjects) == 1 else None)
            if subject is None:
                raise UserError(f"the test has no subject {name} there")
            with subject.in_mode():
                subject.prepare()
                turns = turns_of(subject.call, subject.reference, subject.fresh, here(device))
                if request.lockstep == "lead":
                    samples[number] = [lead(turns, partner, seconds, request.confidence)]
                else:
                    samples[number] = [follow(turns, partner, request.confidence)]
    return SettledTest(
        "", [Verdict(node_id, name, "pass", {}) for name in request.subjects], samples
    )


def _one_thing(node_id: str, subject: Subject, request: Request, device: str | None) -> Verdict:
    """What a request asks for that asks for neither the usual counters nor times."""
    if request.native:
        return counted_alone(node_id, subject, request.native)
    return _taken_apart(node_id, subject, request.layers, device)


def _taken_apart(node_id: str, subject: Subject, seconds: float, device: str | None) -> Verdict:
    """The layers of a failing subject and of its reference."""
    verdict = Verdict(node_id, subject.name, "fail", {})
    try:
        found = of_subject(subject, subject.name, seconds, device=device)
        if subject.reference is None or subject.reference.loop is not None:
            return replace(verdict, layers=found)
        reference = of_subject(subject, "its reference", seconds, subject.reference, device)
    except UserError as error:
        return replace(verdict, reason=str(error))
    except Exception as error:  # noqa: BLE001 - what fails here is no failure of the subject
        said = f"it could not be taken apart: {type(error).__name__}: {error}".splitlines()[0]
        return replace(verdict, reason=said)
    return replace(verdict, layers=found, reference_layers=reference)


def _tell_apart(subjects: Sequence[Subject]) -> None:
    """Numbers subjects with the same name: the second f is `f #2`."""
    seen: Counter[str] = Counter()
    for subject in subjects:
        seen[subject.name] += 1
        if seen[subject.name] > 1:
            subject.name = f"{subject.name} #{seen[subject.name]}"


def _timing(request: Request | None, number: int, of: int, device: str | None) -> Timing | None:
    if request is None or not request.seconds:
        return None
    return Timing(
        request.seconds / of,
        request.confidence,
        request.known.get(number, ()),
        here(device),
        request.fully,
        request.controls,
    )


def broken(node_id: str, overhead: Overhead, error: BaseException) -> list[Verdict]:
    """The verdicts of a test in which a subject raised."""
    said = f"{type(error).__name__}: {error}"
    outcome: Outcome = "error"
    if type(error).__name__ == "Skipped":
        outcome, said = "skipped", str(error)
    return [
        Verdict(node_id, subject.name, outcome, {}, reason=said) for subject in overhead.subjects
    ]


def not_compiled(node_id: str, error: BaseException) -> Verdict | None:
    """The verdict of a test in which compiling failed; None for other failures."""
    known = failure(error)
    if known is None:
        return None
    return Verdict(node_id, node_id.rpartition("::")[2], "error", {}, reason=str(known))


def properties(verdicts: Sequence[Verdict]) -> list[tuple[str, object]]:
    """Verdicts as properties of a test's report, as junit files show them."""
    found: list[tuple[str, object]] = []
    for verdict in verdicts:
        figures: dict[str, object] = {"verdict": verdict.verdict, **verdict.counters}
        if verdict.measured is not None:
            figures["subject_us"] = round(verdict.measured.subject_us.value, 4)
            ratio = verdict.measured.ratio
            if ratio is not None:
                figures["ratio"] = round(ratio.value, 4)
                figures["ratio_interval"] = f"{ratio.low:.4f} to {ratio.high:.4f}"
        found += [(f"overhead {verdict.subject} {name}", value) for name, value in figures.items()]
    return found


def _nothing_named(limits: Mapping[str, Limit]) -> str:
    return "the test has a budget, but never calls overhead(...)" if limits else ""


def keyed(verdicts: Sequence[Verdict]) -> list[tuple[str, Verdict]]:
    """Verdicts with their keys in the budget file."""
    per_test = Counter(verdict.node_id for verdict in verdicts)
    return [(key_of(v.node_id, v.subject, per_test[v.node_id] > 1), v) for v in verdicts]


def rewritten(path: Path, verdicts: Sequence[Verdict], collected: Collection[str]) -> str:
    """The new text of the budget file. Tests that no longer exist are removed, for files that were
    collected."""
    counted_now = [(key, verdict) for key, verdict in keyed(verdicts) if verdict.counters]
    gone = partial(_is_gone, collected, verdicts)
    return as_text(updated(load(path), counted_now, version_of(installed_versions()), gone))


def _is_gone(collected: Collection[str], verdicts: Sequence[Verdict], key: str) -> bool:
    """Whether an entry is of a test that was measured and has no such subject, or of a test file that was
    collected and of no test in it. Tests on devices that this machine lacks are kept."""
    tests = {v.node_id for v in verdicts if v.counters}
    if any(_is_of(key, node_id) for node_id in tests):
        return key not in {known for known, _ in keyed(verdicts)}
    files = {node_id.partition("::")[0] for node_id in collected}
    if key.partition("::")[0] not in files or any(_is_of(key, test) for test in collected):
        return False
    words = re.split(r"[-\[\]]", key.rpartition("::")[2])
    return not any(word in KINDS and word != "cpu" for word in words)


def _is_of(key: str, node_id: str) -> bool:
    return key == node_id or key.startswith(f"{node_id} (")


def compared(verdicts: Sequence[Verdict], path: Path, collected: Collection[str]) -> list[str]:
    """Messages about the budget file beside failures: missing entries, stale entries, lower counts."""
    if not path.exists():
        return []
    missing = [key for key, v in keyed(verdicts) if v.recorded is None and v.counters]
    stale = [key for key in load(path) if _is_gone(collected, verdicts, key)]
    cheaper = [
        key
        for key, verdict in keyed(verdicts)
        if any(verdict.counters.get(n, number) < number for n, number in _recorded(verdict))
    ]
    lines = [
        *_few(f"{path.name} has no entry of this Python and torch for {key}" for key in missing),
        *_few(f"{path.name} has an entry for {key}, which is not there any more" for key in stale),
        *_few(f"{key} does less than {path.name} records" for key in cheaper),
    ]
    return [*lines, "`pytest --overhead-budget=update` records what is found"] if lines else []


def _few(lines: Iterable[str]) -> list[str]:
    """The first lines, and how many more there are."""
    every = list(lines)
    left = len(every) - _MOST_OF_A_KIND
    return every if left <= 1 else [*every[:_MOST_OF_A_KIND], f"… and {left} more like this"]


def _recorded(verdict: Verdict) -> Iterable[tuple[str, float]]:
    return (verdict.recorded or {}).items()
