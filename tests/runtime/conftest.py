from __future__ import annotations

from collections import Counter

from pytest_dispatchguard.runtime.syncs.syncs import Sync
from pytest_dispatchguard.runtime.watch.costly_calls import CostlyCalls


def seen_in(watch: CostlyCalls, *paths: str) -> Counter[Sync]:
    """What was seen of the functions of these files: threads of others, as those by which pytest's workers
    talk, go on beside a test."""
    return Counter(
        {
            sync: number
            for sync, number in watch.times.items()
            if any(frame.path in paths for frame in sync.frames)
        }
    )
