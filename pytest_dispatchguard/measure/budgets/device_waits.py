"""Checks the number of waits for the device against its limit, under the ghost."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pytest_dispatchguard.measure.timing.subject import Subject
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.verdicts import Limit, Verdict
from pytest_dispatchguard.runtime.code.source_text import shown
from pytest_dispatchguard.runtime.syncs import torch_mode
from pytest_dispatchguard.runtime.syncs.syncs import Sync, is_there, recording

NAME = "syncs"
_WARM_UPS = 2


def judged_on_ghost(
    node_id: str,
    subject: Subject,
    limits: Mapping[str, Limit],
    recorded: Mapping[str, float] | None,
    note: str,
) -> Verdict:
    """Counts the waits of one call. Nothing else is counted or timed, as it would include the ghost's own
    work."""
    others = [name for name in limits if name != NAME]
    if others:
        raise UserError(
            f"{', '.join(others)} cannot be told on a ghost, whose own work would be in it: put "
            f"{'it' if len(others) == 1 else 'them'} into a test without ghost_cuda"
        )
    with subject.in_mode():
        for _ in range(_WARM_UPS):
            subject.prepare()
            subject.call.once()()
        first, second = _once(subject), _once(subject)
    number = max(first.total(), second.total())
    limit = limits.get(NAME)
    if limit is None and recorded and NAME in recorded:
        limit = Limit(NAME, recorded[NAME], recorded=True)
    failing = limit is not None and number > limit.most
    told = [note] if note else []
    if limit is not None and failing:
        told.append(f"{NAME}: {number}, {limit.said}")
        told += [_told(sync, times) for sync, times in (first | second).most_common()]
    varying = first != second
    if varying:
        told.append(f"{NAME} differ from call to call, at most {number}")
    return Verdict(
        node_id,
        subject.name,
        "fail" if failing else "pass",
        {NAME: number},
        tuple(limits.values()),
        "; ".join(told),
        recorded,
        varying=(NAME,) if varying else (),
        form=subject.call.form,
    )


@contextmanager
def refused() -> Iterator[Callable[[], str]]:
    """Watches for waits, and yields what tells of those that were seen: nothing where there were none. On a
    real device the first one raises, where it is."""
    if not is_there():
        with torch_mode.mode("error"):
            yield lambda: ""
        return
    with recording() as seen:
        yield lambda: _complaint(seen.times)


def _complaint(times: Counter[Sync]) -> str:
    lines = [f"  {_told(sync, number)}" for sync, number in times.most_common()]
    return "\n".join(
        ["the test waits for the device, and is marked no_sync", *lines] if lines else []
    )


def _once(subject: Subject) -> Counter[Sync]:
    subject.prepare()
    call = subject.call.once()
    with recording() as seen:
        call()
    return seen.times


def _told(sync: Sync, times: int) -> str:
    often = f"{times} times " if times > 1 else ""
    if sync.place is None:
        return f"{often}{sync.operation} ({sync.code}) by the call itself: {sync.why}"
    path = " → ".join(frame.function for frame in reversed(sync.frames))
    place = f"{_shown(sync.place.path)}:{sync.place.line}"
    text = shown(sync.place.path, sync.place.place)
    source = f", `{text}`" if text else ""
    return f"{often}{sync.operation} ({sync.code}) at {place} in {path}{source}: {sync.why}"


def _shown(path: str) -> str:
    here = Path.cwd()
    return os.path.relpath(path, here) if Path(path).is_relative_to(here) else path
