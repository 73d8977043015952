"""A process that makes itself ready for work while this one still finds out what there is to do."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")


_KILLED: list[int] = []
"""Processes that end, which nobody waits for: the next one that begins asks how they did."""


class Ahead:
    """Does work that this process could do as well, only later; if it cannot, this one does it."""

    def __init__(self, pid: int, asks: int, answers: int) -> None:
        self._pid = pid
        self._asks = asks
        self._answers = answers

    @classmethod
    def begin(cls, prepare: Callable[[], object]) -> Ahead | None:
        """Begins one, which does what is to `prepare` first; None where there can be none."""
        if not hasattr(os, "fork") or threading.active_count() > 1:
            return None
        _forget_killed()
        _flush()  # else it would write again what waits here
        ends: list[int] = []
        try:
            for _ in range(2):
                ends.extend(os.pipe())
            pid = os.fork()
        except OSError:
            for end in ends:
                os.close(end)
            return None
        asked, asks, answers, answer = ends
        if pid == 0:
            try:
                os.close(asks)
                os.close(answers)
                _stand_by(prepare, asked, answer)
            finally:
                os._exit(1)
        os.close(asked)
        os.close(answer)
        return cls(pid, asks, answers)

    def map(self, function: Callable[[_In], _Out], items: Iterable[_In]) -> Iterable[_Out]:
        """The results in order."""
        import pickle

        todo = list(items)
        if not todo:
            return []
        done: list[_Out] | None = None
        with suppress(OSError, EOFError, pickle.PickleError, AttributeError, TypeError):
            asked = pickle.dumps((function, todo))
            with open(self._asks, "wb", closefd=False) as pipe:
                pipe.write(asked)
            with open(self._answers, "rb", closefd=False) as pipe:
                done = pickle.load(pipe)
        return map(function, todo) if done is None else done

    def close(self) -> None:
        """Ends it, whatever it is doing."""
        os.close(self._asks)
        os.close(self._answers)
        with suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
        _KILLED.append(self._pid)


def _stand_by(prepare: Callable[[], object], asked: int, answer: int) -> None:
    """The life of such a process; it ends with the one that began it."""
    import pickle

    # Ctrl-C reaches both: this one only ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare()
    while True:
        with open(asked, "rb", closefd=False) as pipe:
            function, todo = pickle.load(pipe)
        done: list[Any] | None
        try:
            done = [function(item) for item in todo]
        except Exception:  # noqa: BLE001 - the other process will meet it as well, and tell
            done = None
        _flush()  # what rules may have written
        with open(answer, "wb", closefd=False) as pipe:
            pickle.dump(done, pipe)


def _forget_killed() -> None:
    """Lets the system forget those that have ended."""
    for pid in tuple(_KILLED):
        with suppress(OSError):
            if os.waitpid(pid, os.WNOHANG)[0] != pid:
                continue
        _KILLED.remove(pid)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or not there
            stream.flush()
