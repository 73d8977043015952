"""Arms that take their turns as in a loop: their first calls after others' are dearer, and not timed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import repeat

from pytest_dispatchguard.measure.timing.calling import Block
from pytest_dispatchguard.measure.timing.interleaved import Arm

WARMING = 5
"""Calls before each block that are not timed."""


def warmed(arm: Arm, calls: Block | None = None) -> Arm:
    """An arm with calls of its own before each block, or with other `calls`: also after guards are skipped or
    checked again the first ones are dearer."""
    first = calls or arm.block

    @contextmanager
    def warm() -> Iterator[None]:
        with arm.around():
            first(repeat(None, WARMING))
            yield

    return replace(arm, around=warm)
