"""What stands in for a GPU where a step is tried without one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch

from pytest_dispatchguard.runtime.ghost.ghost import ghost
from pytest_dispatchguard.runtime.syncs.syncs import Recorder


@contextmanager
def stand_in() -> Iterator[Recorder]:
    """The ghost, which can be told to sleep, and does not: its times mean nothing."""
    with ghost() as seen, patch.object(torch.cuda, "_sleep", lambda cycles: None):
        yield seen
