"""Counts the native instructions of one call, in blocks like those that are timed."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from pytest_dispatchguard.measure.timing.calling import Call, empty_block
from pytest_dispatchguard.runtime.counters.native import Counter
from pytest_dispatchguard.runtime.hooks.garbage_collector import collector_off

_CALLS = 200
"""Calls in a block: what a call leaves to the next, such as free memory, differs a little."""
_MOST = 10_000_000
"""Instructions in a block of calls that run many: callgrind takes some 0.1 s for them."""
_BLOCKS, _EMPTY = 15, 3
_SIZES = range(0, 480, 16)
"""Of bytes that take from 48 to 512 bytes, each another size of Python's allocator."""
_SINGLE_CALLS = 11
"""Blocks of one call, each followed by an empty one: reading the clock takes many times what is between."""


def native_instructions(
    call: Call, counter: Counter, fresh: Callable[[], object] | None = None
) -> int:
    """The instructions of one call: those of the block that takes fewest, less those of an empty one, as what
    lies where in memory only adds to them, by up to a percent. With `fresh`, which makes fresh state for each
    call, blocks are of one call, and their median counts."""
    block, empty = call.block(counter.clock), empty_block(counter.clock)
    held: list[object] = []

    def prepare() -> None:
        # A pool of Python's allocator that is about to be full takes more instructions at every call. With
        # one more object of each size, the next block finds other pools so.
        held.append([object(), float(len(held)), *map(bytes, _SIZES)])
        if len(held) % 3 == 1:  # and what malloc gives lies elsewhere in some blocks
            held.append([*map(bytearray, range(8 * len(held), 4000, 104))])
        if fresh is not None:
            fresh()

    with collector_off():
        counter.spent([block], 1, prepare)
        first, nothing = counter.spent([block, empty], 1, prepare)
        each = max(1, first - nothing)
        calls = 1 if fresh is not None else max(1, min(_CALLS, _MOST // each))
        # Python specializes code that runs repeatedly.
        counter.spent([block, empty], calls, prepare)
        if fresh is None:
            blocks = [block] * _BLOCKS + [empty] * _EMPTY
        else:
            blocks = [block, empty] * _SINGLE_CALLS
        spent = list(zip(blocks, counter.spent(blocks, calls, prepare), strict=True))
    of_all = statistics.median if fresh is not None else min
    whole, beside = (
        of_all([number for one, number in spent if one is kind]) for kind in (block, empty)
    )
    return max(0, round((whole - beside) / calls))
