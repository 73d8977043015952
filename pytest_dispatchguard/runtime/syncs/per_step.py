"""Classifies the waits of a program by how often they occur: in each optimizer step, in each iteration of
another loop, or once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pytest_dispatchguard.model.findings import Ran
from pytest_dispatchguard.runtime.code.loops import Loop, loop_around
from pytest_dispatchguard.runtime.syncs.syncs import Frame, Sync

_CALLED = frozenset({"forward", "__call__"})
"""Functions whose loops are no training steps: a model's loop over its layers."""


def ran(
    waits: Mapping[Sync, int],
    steps: Mapping[tuple[Frame, ...], int],
    rel: Callable[[str], str | None],
) -> dict[Sync, Ran]:
    """How often each wait occurred, and in which loop. `steps` counts optimizer steps, by stack."""
    stepping = _stepping(steps)
    loops = {sync: _step_around(sync.frames, stepping) or _loop(sync.frames) for sync in waits}
    rounds = dict(stepping)
    for sync, number in waits.items():
        loop = loops[sync]
        if loop is not None and loop not in stepping and _once_a_round(sync.frames, loop):
            rounds[loop] = max(number, rounds.get(loop, 0))
    return {
        sync: Ran(number)
        if loop is None
        else Ran(number, rounds.get(loop, 0), _told(loop, rel), loop in stepping)
        for (sync, number), loop in zip(waits.items(), loops.values(), strict=True)
    }


def _stepping(steps: Mapping[tuple[Frame, ...], int]) -> dict[Loop, int]:
    """The loops around optimizer steps, and the number of steps."""
    found: dict[Loop, int] = {}
    for way, number in steps.items():
        around = (loop_around(frame.path, frame.line) for frame in way)
        loop = next((loop for loop in around if loop is not None), None)
        if loop is not None:  # several optimizers in one loop make one step of it
            found[loop] = max(number, found.get(loop, 0))
    return found


def _step_around(frames: Sequence[Frame], stepping: Mapping[Loop, int]) -> Loop | None:
    for frame in frames:
        for loop in stepping:
            if frame.path == loop.path and loop.line <= frame.line <= loop.end:
                return loop
    return None


def _loop(frames: Sequence[Frame]) -> Loop | None:
    """The innermost loop around a model's call, or around the place itself if no model is called."""
    found = None
    for frame in reversed(frames):
        if frame.function.rpartition(".")[2] in _CALLED and found is not None:
            break
        found = loop_around(frame.path, frame.line) or found
    return found


def _once_a_round(frames: Sequence[Frame], loop: Loop) -> bool:
    """Whether a place has no other loop between it and this one."""
    for frame in frames:
        around = loop_around(frame.path, frame.line)
        if around is not None:
            return around == loop
    return False


def _told(loop: Loop, rel: Callable[[str], str | None]) -> str:
    return f"{rel(loop.path) or Path(loop.path).name}:{loop.line}"
