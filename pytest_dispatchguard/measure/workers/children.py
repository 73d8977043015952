"""Forked children that answer requests, a line each. A crash, a leak or a changed global stays with the
child, and the parent learns what happened."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pytest_dispatchguard.measure.timing import devices
from pytest_dispatchguard.measure.timing.timeouts import gave_no_answer

Answer = dict[str, Any]
Ends = tuple[int, int]
_PATIENCE = 2.0
"""Seconds a child has to end by itself."""
_PR_SET_PDEATHSIG = 1
_OOM_SCORE = Path("/proc/self/oom_score_adj")


def may_fork() -> bool:
    """Whether a test can run in a forked child: not if an accelerator may be in use already."""
    return hasattr(os, "fork") and devices.accelerator() is None


class Child:
    """One forked child: `pid` is its process, and its group."""

    def __init__(self, answer: Callable[[str, Ends], Answer], closed: Sequence[int] = ()) -> None:
        """`answer` gets each request, and the child's ends of the pipes. `closed` are file descriptors to
        close in the child."""
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # from Python 3.12 on, about threads that do not exist in the child
            parent, self.pid = os.getpid(), os.fork()
        if self.pid == 0:
            # Nobody would hear its answer, and whoever measures next would meet it at the same pipes.
            killed_with_parent()
            if os.getppid() != parent:
                os._exit(1)
            for end in (self._requests, self._replies, *closed):
                os.close(end)
            _live(answer, requests, replies)
        os.close(requests)
        os.close(replies)
        self._gone: Answer = {}
        """How it ended."""

    def ask(
        self,
        request: str,
        timeout: float | None,
        asking: int | None = None,
        leave: Callable[[], NoReturn] | None = None,
    ) -> Answer:
        """The child's answer to a request, or how it ended under `died`. `asking` only becomes readable
        before that if whoever asked is gone: then the child is ended, and `leave` ends this process."""
        if self._gone:
            return self._gone
        answer = self._answer(request, timeout, asking, leave)
        if "died" in answer:
            self._gone = answer
        return answer

    def _answer(
        self,
        request: str,
        timeout: float | None,
        asking: int | None,
        leave: Callable[[], NoReturn] | None,
    ) -> Answer:
        try:
            _write(self._requests, request.encode())
        except BrokenPipeError:
            pass  # how it ended is returned below
        heard = self._heard(timeout, asking, leave)
        if heard is None:
            self.end()
            return {"died": gave_no_answer(timeout or 0.0)}
        try:
            answer: Answer = json.loads(heard)
        except ValueError:
            answer = {"died": fate(self.end(_PATIENCE))}
        else:
            if "died" in answer:
                self.end(_PATIENCE)
        return answer

    def _heard(
        self, timeout: float | None, asking: int | None, leave: Callable[[], NoReturn] | None
    ) -> bytes | None:
        """A line of the answer, also if other processes hold the pipe open; less if the child is gone, and
        None if the time is up."""
        heard = b""
        give_up = None if timeout is None else time.monotonic() + timeout
        ends = [self._replies] if asking is None else [self._replies, asking]
        while not heard.endswith(b"\n"):
            left = None if give_up is None else max(0.0, give_up - time.monotonic())
            ready, _, _ = select.select(ends, [], [], left)
            if asking in ready:
                self.interrupt()
                if leave is not None:
                    leave()
                os._exit(1)
            if not ready:
                return None
            read = os.read(self._replies, 1 << 16)
            if not read:
                break
            heard += read
        return heard

    def interrupt(self) -> None:
        """Ends a child as Ctrl-C does, so that it can tear down fixtures."""
        try:
            os.kill(self.pid, signal.SIGINT)
        except ProcessLookupError:
            pass
        self.end(_PATIENCE)

    def end(self, patience: float = 0.0) -> int:
        """Ends a child and the processes that it started; returns its exit status. It gets `patience`
        seconds to end by itself."""
        if self._gone:
            return 0
        os.close(self._requests)
        status = self._waited(patience)
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # it has no group yet, or is gone already
        if status is None:
            os.kill(self.pid, signal.SIGKILL)
            status = os.waitpid(self.pid, 0)[1]
        os.close(self._replies)
        self._gone = {"died": "was ended"}
        return os.waitstatus_to_exitcode(status)

    def _waited(self, patience: float) -> int | None:
        """The status of a child; None if it does not end in time."""
        give_up = time.monotonic() + patience
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return status
            if time.monotonic() > give_up:
                return None
            time.sleep(0.001)


def killed_with_parent(how: int = signal.SIGKILL) -> None:
    """Has Linux send this process a signal when its parent ends, also if that is killed; 0 for none."""
    if sys.platform != "linux":
        return
    try:
        import ctypes
    except ImportError:
        return  # a Python that was built without it
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, how)


def _live(answer: Callable[[str, Ends], Answer], requests: int, replies: int) -> NoReturn:
    """The main loop of a child: it ends when the pipe is closed, or when answering raises."""
    child = os.getpid()
    status = 1
    try:
        os.setpgid(0, 0)
        _go_first()
        with os.fdopen(requests, "rb", closefd=False) as lines:
            while line := lines.readline():
                try:
                    said = answer(line.decode().rstrip("\n"), (requests, replies))
                except BaseException as error:  # noqa: BLE001 - whatever ends it is told
                    said = {"died": f"ended by {type(error).__name__}: {error}"}
                if os.getpid() != child:
                    break  # the test has forked; only the child itself answers
                _write(replies, json.dumps(said, default=str).encode())
                if "died" in said:
                    break
        status = 0
    finally:
        os._exit(status)


def _go_first() -> None:
    """Makes Linux kill the child first, not its parent, when memory runs out."""
    try:
        _OOM_SCORE.write_text("1000")
    except OSError:
        pass  # not Linux, or not allowed


def _write(end: int, line: bytes) -> None:
    data = line + b"\n"
    while data:
        data = data[os.write(end, data) :]


def fate(status: int) -> str:
    """How a process ended, by its exit status."""
    if status >= 0:
        return f"ended by itself with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
