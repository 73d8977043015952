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
_BLOCKS = 9
_SINGLE_CALLS = 25
_WARM_UPS = (1, 10, 40)
"""Calls in blocks that are not counted: Python specializes what runs repeatedly."""


def native_instructions(
    call: Call, counter: Counter, fresh: Callable[[], object] | None = None
) -> int:
    """The instructions of one call: the median of blocks, less those of empty blocks. With `fresh`, which
    makes fresh state for each call, blocks are of one call."""
    block, empty = call.block(counter.clock), empty_block(counter.clock)
    prepare = fresh or (lambda: None)
    with collector_off():
        each = 0
        for calls in _WARM_UPS if fresh is None else [1] * len(_WARM_UPS):
            spent = counter.spent([block, empty], calls, prepare)
            each = max(1, (spent[0] - spent[1]) // calls)
        calls = 1 if fresh is not None else max(1, min(_CALLS, _MOST // each))
        counter.spent([block, empty], calls, prepare)
        rounds = _BLOCKS if fresh is None else _SINGLE_CALLS
        spent = counter.spent([block, empty] * rounds, calls, prepare)
    differences = [one - other for one, other in zip(spent[::2], spent[1::2], strict=True)]
    return max(0, round(statistics.median(differences) / calls))
