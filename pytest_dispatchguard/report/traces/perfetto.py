"""Waits, idle times and findings as events on a timeline, for Perfetto and chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.trace_marks import Mark
from pytest_dispatchguard.model.traces import Told
from pytest_dispatchguard.report.traces.wording import place
from pytest_dispatchguard.report.wording import NAME, docs_url, remedy, statement
from pytest_dispatchguard.visible import one_line

PROCESS = 1_999_999_999
"""The number of the process that our tracks stand under: none that a system gives."""
_CAUSES = {
    "waits": "the host had waited",
    "late": "launched too late",
    "input": "the data loader",
    "queued": "the next kernel is queued",
}


def marked(told: Told, marks: Iterable[Mark]) -> Iterator[dict[str, Any]]:
    """Events of the trace event format: a track of waits for each place, one of idle times for each device
    and cause, and calls of other places that the linter knows."""
    others = {one.line: one.findings for one in told.joined if not one.waits}
    behind = {
        (one.line, wait.operator): one.behind(wait) for one in told.joined for wait in one.waits
    }
    yield _metadata("process_name", {"name": NAME})
    yield _metadata("process_sort_index", {"sort_index": -1})
    tracks: dict[tuple[str, int], int] = {}
    for mark in marks:
        if mark.kind == "call":
            if others.get(mark.line):
                yield _instant(mark, others[mark.line])
            continue
        found = behind.get((mark.line, mark.operator), ())
        if mark.kind == "wait":
            where = place(mark.line, found) or mark.operator or mark.what
            name = f"wait: {where}"
        else:
            where = place(mark.line, found) or mark.operator
            name = f"device {mark.lane} idle: {_CAUSES[mark.what]}"
        track = tracks.setdefault((name, mark.lane), len(tracks) + 1)
        what = "call" if mark.kind == "wait" else "cause"
        args = {what: mark.what, "operator": mark.operator, "place": where}
        yield from _span(mark, name, track, _filled(args) | _told(found))


def _span(mark: Mark, name: str, track: int, args: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """A time on a track of its own, as the two events that make one."""
    same = {"cat": NAME, "name": one_line(name), "id": track, "pid": PROCESS, "tid": 0}
    yield {"ph": "b", **same, "ts": mark.at_us, "args": args}
    yield {"ph": "e", **same, "ts": mark.at_us + mark.us}


def _instant(mark: Mark, findings: tuple[Finding, ...]) -> dict[str, Any]:
    name = f"{', '.join(dict.fromkeys(f.code for f in findings))}: {place(mark.line, findings)}"
    same = {"cat": NAME, "name": one_line(name), "pid": PROCESS, "tid": 1}
    return {"ph": "i", "s": "t", **same, "ts": mark.at_us, "args": _told(findings)}


def _metadata(name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": PROCESS, "tid": 0, "ts": 0, "args": args}


def _told(findings: tuple[Finding, ...]) -> dict[str, str]:
    """What the linter says, of several findings one after the other."""
    fixes = [remedy(finding.fix) for finding in findings if finding.fix is not None]
    return _filled(
        {
            "code": ", ".join(dict.fromkeys(finding.code for finding in findings)),
            "message": "; ".join(map(statement, findings)),
            "fix": "; ".join(fixes),
            "page": " ".join(dict.fromkeys(docs_url(finding.code) for finding in findings)),
        }
    )


def _filled(args: Mapping[str, str]) -> dict[str, str]:
    return {name: one_line(words) for name, words in args.items() if words}
