"""Counts the native instructions of one call, in blocks like those that are timed."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from pytest_dispatchguard.measure.timing.calling import Call, empty_block
from pytest_dispatchguard.runtime.counters.luck import Luck
from pytest_dispatchguard.runtime.counters.native import Counter
from pytest_dispatchguard.runtime.hooks.garbage_collector import collector_off

_CALLS = (200, 100, 50, 20, 10, 5, 2)
"""Calls in a block: what a call leaves to the next, such as free memory, differs a little. Of few numbers, so
that it is the same in every run."""
_MOST = 10_000_000
"""Instructions in a block of calls that run many: callgrind takes some 0.1 s for them."""
_GROUPS, _TOGETHER, _EMPTY = 7, 2, 2
"""Blocks that count, in groups between which all classes get new versions, and empty ones."""
_TO_SPECIALIZE = 100
"""Calls after which Python has specialized its code again; they do not count. Calls so dear that half as many
are no block hardly notice when an attribute is not in the interpreter's cache."""
_SINGLE_CALLS = 11
"""Blocks of one call, each followed by an empty one: reading the clock takes many times what is between."""


def native_instructions(
    call: Call, counter: Counter, fresh: Callable[[], object] | None = None
) -> int:
    """The instructions of one call: the median of blocks, each with other luck, less those of an empty one.
    With `fresh`, which makes fresh state for each call, blocks are of one call."""
    block, renewed, warming = (call.block(counter.clock) for _ in range(3))
    empty = empty_block(counter.clock)
    luck, plan = Luck(), iter([block])

    def prepare() -> None:
        if next(plan, block) is renewed:
            luck.renew_classes()
        luck.move_memory()
        if fresh is not None:
            fresh()

    with collector_off():
        counter.spent([block], 1, prepare)
        first, nothing = counter.spent([block, empty], 1, prepare)
        calls = 1 if fresh is not None else _calls_in_a_block(first - nothing)
        # Python specializes code that runs repeatedly.
        counter.spent([block, empty], calls, prepare)
        if fresh is not None:
            blocks = [block, empty] * _SINGLE_CALLS
        else:
            again = [renewed, *[warming] * (-(-_TO_SPECIALIZE // calls) - 1)]
            worth_it = calls >= _TO_SPECIALIZE // 2
            blocks = [*(again if worth_it else ()), *[block] * _TOGETHER] * _GROUPS
            blocks += [empty] * _EMPTY
        plan = iter(blocks)
        spent = list(zip(blocks, counter.spent(blocks, calls, prepare), strict=True))
    whole, beside = (
        statistics.median(number for one, number in spent if one is kind) for kind in (block, empty)
    )
    return max(0, round((whole - beside) / calls))


def _calls_in_a_block(each: int) -> int:
    return next((calls for calls in _CALLS if calls * each <= _MOST), 1)
