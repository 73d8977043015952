"""The side of the daemon that asks: hands it a command, and waits until it is done."""

from __future__ import annotations

import marshal
import os
import socket
import sys
from typing import Any

from pytest_dispatchguard.daemon import wire

_BEGIN = (
    "import marshal, sys; sys.path[:] = marshal.loads(sys.stdin.buffer.read());"
    "from pytest_dispatchguard.start import stand_by; stand_by()"
)
"""What a daemon is started with: it imports nothing from the folder it is started in."""
_FAILED, _INTERRUPTED = 2, 130


def ask(words: list[str]) -> int | None:
    """Has a daemon run this command, and gives its exit status; None where nobody did, and it is left to this
    process. Where there is no daemon, or one of before an upgrade, a new one begins, for the next time."""
    if not wire.POSSIBLE or sys._xoptions or not _open():
        return None
    mine = wire.identity()
    path = wire.place(mine)
    if path is None:
        return None
    try:
        cwd = os.getcwdb()  # noqa: PTH109 - pathlib costs what is to be saved
    except OSError:
        return None
    connection = wire.connected(path)
    if connection is None:
        _begin(path)
        return None
    with connection:
        umask = os.umask(0)
        os.umask(umask)
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        rest = tuple(words), cwd, dict(os.environb), umask, tuple(cores)
        try:
            wire.send(connection, (wire.RUN, mine, *rest), (0, 1, 2))
            answer, _ = wire.receive(connection)
        except (OSError, EOFError):
            return None
        if answer[0] == wire.STALE:
            _begin(path)
        return _waited(connection) if answer[0] == wire.TAKEN else None


def _open() -> bool:
    """Whether there are files to hand over."""
    try:
        for number in range(3):
            os.fstat(number)
    except OSError:
        return False
    return True


def _waited(connection: socket.socket) -> int:
    """The exit status of what a daemon does, when it is done."""
    interrupted = False
    while True:
        try:
            answer, _ = wire.receive(connection)
            status = int(answer[1])
            break
        except KeyboardInterrupt:
            interrupted = True
            try:
                connection.sendall(wire.INTERRUPT)
            except OSError:
                pass
        except (OSError, EOFError):
            status = -1
            break
    if status >= 0:
        return status
    if interrupted:
        return _INTERRUPTED
    os.write(2, b"dispatchguard: the daemon's run was ended before it was done; run again\n")
    return _FAILED


def _begin(path: str) -> None:
    """Starts a daemon, and does not wait for it."""
    import subprocess

    folder = os.path.dirname(path)  # noqa: PTH120 - pathlib costs what is to be saved
    try:
        with open(wire.log(path), "wb") as log:  # noqa: PTH123 - the same
            process = subprocess.Popen(
                [sys.executable, "-c", _BEGIN],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd=folder,
                start_new_session=True,
            )
        assert process.stdin is not None
        process.stdin.write(marshal.dumps(sys.path))
        process.stdin.close()
        process.returncode = 0  # nobody waits for it here
    except OSError:
        pass  # the next one tries again


def told() -> dict[str, Any] | None:
    """What the daemon of such commands tells of itself; None where there is none."""
    return _answer(wire.TELL)


def complaint() -> str:
    """The last words of a daemon that could not begin; empty where there are none."""
    from pathlib import Path

    path = wire.place(wire.identity()) if wire.POSSIBLE else None
    try:
        said = Path(wire.log(path or "")).read_text("utf-8", "replace")
    except OSError:
        return ""
    return (said.splitlines() or [""])[-1]


def stop() -> bool:
    """Ends the daemon of such commands, once what it does is done; whether there was one."""
    return _answer(wire.STOP) is not None


def _answer(question: str) -> dict[str, Any] | None:
    path = wire.place(wire.identity()) if wire.POSSIBLE else None
    connection = None if path is None else wire.connected(path)
    if connection is None:
        return None
    with connection:
        try:
            wire.send(connection, (question, wire.identity()))
            answer, _ = wire.receive(connection)
        except (OSError, EOFError):
            return None
    return dict(answer[1]) if answer[0] == wire.TOLD else None
