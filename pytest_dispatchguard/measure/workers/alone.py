"""Lets one process of pytest-xdist measure at a time."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def alone(lock: Path | None) -> Iterator[None]:
    """Waits until no other process of this run measures."""
    if lock is None or sys.platform == "win32":
        yield
        return
    handle = _locked(lock)
    try:
        yield
    finally:
        # A process that waits for it finds it removed, and makes a new one.
        lock.unlink(missing_ok=True)
        os.close(handle)


def _locked(path: Path) -> int:
    """Waits for a lock; gives the open file that holds it."""
    import fcntl

    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        except FileNotFoundError:
            pass  # it was removed while this process waited
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def lock_of(config: pytest.Config) -> Path | None:
    """The lock file for measuring in one pytest-xdist process at a time; None without pytest-xdist."""
    inner = getattr(config, "workerinput", None)
    if inner is None:
        return None
    return Path(tempfile.gettempdir()) / f"dispatchguard-{inner['testrunuid']}.lock"
