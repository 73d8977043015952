"""A forked child that runs one thing, answers in one line and is gone: a crash, a leak or a changed global
stays with it, and the process that waits is told what became of it."""

from __future__ import annotations

import gc
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

from pytest_dispatchguard.measure import devices
from pytest_dispatchguard.measure.calling import Call
from pytest_dispatchguard.runtime import counters

_OOM_SCORE = Path("/proc/self/oom_score_adj")


def may_fork() -> bool:
    """Whether a test can run in a child: not where an accelerator may be in use already."""
    return hasattr(os, "fork") and devices.accelerator() is None


def warm_up() -> None:
    """Does once what every child would do again: what torch imports when it is first counted."""
    torch = sys.modules.get("torch")
    counters.count(Call(len, ("",)).once() if torch is None else Call(torch.ones, (1,)).once())


def answer_of_child(
    run: Callable[[], dict[str, Any]],
    timeout: float,
    *,
    closed: Sequence[int] = (),
    asking: int | None = None,
) -> dict[str, Any]:
    """What a child says that runs this, or under `died` what became of it. `closed` are ends of pipes that
    it has no business with; nothing comes from `asking` before an answer, unless who asks is gone."""
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # from Python 3.12 on, of threads that the child will not have
        child = os.fork()
    if child == 0:
        for end in (ours, *closed):
            os.close(end)
        _live(run, theirs)
    os.close(theirs)
    status: int | None = None
    try:
        heard, ended = _heard(child, ours, timeout, asking)
        if not ended:
            return {
                "died": f"was given up after {timeout:g} s without an answer "
                "(--overhead-timeout allows longer)"
            }
        status = _ended(child) if heard.endswith(b"\n") else _waited(child)
        try:
            answer: dict[str, Any] = json.loads(heard)
        except ValueError:
            return {"died": _fate(status)}
        return answer
    finally:
        os.close(ours)
        if status is None:  # given up, or who waits was interrupted
            _ended(child)


def _heard(child: int, end: int, timeout: float, asking: int | None) -> tuple[bytes, bool]:
    """What a child says, and whether that is all. Its line is its last word: what it has started may hold the
    pipe open for longer."""
    heard = b""
    give_up = time.monotonic() + timeout
    ends = [end] if asking is None else [end, asking]
    while not heard.endswith(b"\n"):
        left = max(0.0, give_up - time.monotonic())
        ready, _, _ = select.select(ends, [], [], left)
        if asking in ready:
            _ended(child)
            os._exit(1)
        if not ready:
            return heard, False
        read = os.read(end, 1 << 16)
        if not read:
            break
        heard += read
    return heard, True


def _live(run: Callable[[], dict[str, Any]], end: int) -> NoReturn:
    """The life of a child."""
    child = os.getpid()
    try:
        os.setpgid(0, 0)
        gc.freeze()  # what is there already stays shared: nobody looks through it for garbage
        _go_first()
        try:
            answer = run()
        except BaseException as error:  # noqa: BLE001 - whatever ends the test is told
            answer = {"died": f"ended by {type(error).__name__}: {error}"}
        data = json.dumps(answer, default=str).encode() + b"\n"
        if os.getpid() != child:
            os._exit(0)  # what was run has forked, and the child itself answers
        while data:
            data = data[os.write(end, data) :]
    finally:
        os._exit(1)


def _go_first() -> None:
    """Has Linux end the child, and not who waits for it, where the memory of the machine is used up."""
    try:
        _OOM_SCORE.write_text("1000")
    except OSError:
        pass  # another system, or one that does not allow it


def _ended(child: int) -> int:
    """Ends a child and what it has started, which would disturb the tests that follow."""
    try:
        os.killpg(child, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # it has not come as far as to have a group, or is gone
    try:
        os.kill(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return _waited(child)


def _waited(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _fate(status: int) -> str:
    if status >= 0:
        return f"ended by itself with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
