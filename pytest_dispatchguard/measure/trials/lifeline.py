"""Ends a process, and those that it started, when the one that wanted its work is gone."""

from __future__ import annotations

import os
import signal
import threading


def hold(end: int) -> None:
    """Watches the reading end of a pipe that only the parent has the other end of. When that is closed, by
    whatever ends the parent, the process group of this process is killed."""
    os.set_inheritable(end, False)
    threading.Thread(target=_wait, args=(end, os.getpid()), daemon=True).start()


def _wait(end: int, process: int) -> None:
    while os.read(end, 1):
        pass
    # A forked child shares the pipe, but has no such thread.
    if os.getpgid(0) == process:
        os.killpg(process, signal.SIGKILL)
    os._exit(1)
