"""The side of the daemon that asks: hands it a command, and waits until it is done."""

from __future__ import annotations

import marshal
import os
import sys
from contextlib import suppress

from pytest_dispatchguard.daemon import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BEGIN = (
    "import marshal, sys; sys.path[:] = marshal.loads(sys.stdin.buffer.read());"
    "from pytest_dispatchguard.start import stand_by; stand_by()"
)
"""What a daemon is started with: it imports nothing from the folder it is started in."""
_OWN_FILES = ("/dev/", "/proc/")
"""Names that mean something else in another process."""
_PASSED_ON = (b"HOME", b"PATH", b"LD_LIBRARY_PATH", b"TMPDIR", b"XDG_RUNTIME_DIR")
"""Of the environment, what a daemon begins with beside what Python asks for: it lives longer than a job, and
is not to keep its secrets. Each run has the environment of whoever asks."""
_FAILED, _INTERRUPTED = 2, 130


def ask(words: list[str]) -> int | None:
    """Has a daemon run this command, and gives its exit status; None where nobody did, and it is left to this
    process. Where there is no daemon, or one of before an upgrade, a new one begins, for the next time."""
    if not wire.POSSIBLE or sys._xoptions or not _open():
        return None
    if any(name in word for word in words for name in _OWN_FILES):
        return None
    mine = wire.identity()
    path = wire.place(mine)
    if path is None:
        return None
    connection = wire.connected(path)
    if connection is None:
        _begin(path)
        return None
    try:
        answer = _asked(connection, mine, words)
        if answer == wire.STALE:
            _begin(path)
        return _waited(connection) if answer == wire.TAKEN else None
    finally:
        connection.close()


def _open() -> bool:
    """Whether there are files to hand over."""
    try:
        for number in range(3):
            os.fstat(number)
    except OSError:
        return False
    return True


def _asked(connection: wire.Connection, mine: wire.Identity, words: list[str]) -> str:
    """The daemon's answer, after which it has our files if it does the run; empty where there is none."""
    umask = os.umask(0)
    os.umask(umask)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    wanted = wire.RUN, mine, tuple(words), dict(os.environb), umask, tuple(cores)
    try:
        here = os.open(".", os.O_RDONLY)
    except OSError:
        return ""
    try:
        wire.send(connection, wanted)
        answer = str(wire.receive(connection)[0])
        if answer == wire.TAKEN:
            # Not before: what a daemon has that does not answer stays open.
            wire.hand_over(connection, (0, 1, 2, here))
    except (OSError, EOFError):
        return ""
    finally:
        os.close(here)
    return answer


def _waited(connection: wire.Connection) -> int | None:
    """The exit status of what a daemon does, when it is done; None where it could not begin it."""
    import signal  # not before the daemon is at work

    def pause(number: int, frame: object) -> None:
        with suppress(OSError):
            connection.sendall(wire.PAUSE)
        os.kill(os.getpid(), signal.SIGSTOP)
        with suppress(OSError):
            connection.sendall(wire.RESUME)

    connection.settimeout(None)
    if signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL:
        signal.signal(signal.SIGTSTP, pause)
    interrupted = False
    status = None
    while status is None:
        try:
            answer, *rest = wire.receive(connection)
            if answer != wire.DONE:
                return None
            status = int(rest[0])
        except KeyboardInterrupt:
            interrupted = True
            with suppress(OSError):
                connection.sendall(wire.INTERRUPT)
        except (OSError, EOFError):
            status = -1
    if status >= 0:
        return status
    if interrupted:
        return _INTERRUPTED
    with suppress(OSError):
        os.write(2, b"dispatchguard: the daemon's run was ended before it was done; run again\n")
    return _FAILED


def _begin(path: str) -> None:
    """Starts a daemon, and does not wait for it."""
    import subprocess

    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # multiprocessing's way
    environment = {
        name: value
        for name, value in os.environb.items()
        if wire.tells_python(name) or name in _PASSED_ON
    }
    with suppress(OSError):  # the next one tries again
        process = subprocess.Popen(
            [sys.executable, *flags, "-c", _BEGIN],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=os.path.dirname(path),  # noqa: PTH120 - pathlib costs what is to be saved
            env=environment,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(marshal.dumps(sys.path))
        process.stdin.close()
        process.returncode = 0  # nobody waits for it here


# -- what a person asks ----------------------------------------------------------------------------


def told() -> list[dict[str, Any]]:
    """What each daemon of this user tells of itself."""
    return _answers(wire.TELL)


def stop() -> int:
    """Ends the daemons of this user, each when what it does is done; how many there were."""
    return len(_answers(wire.STOP))


def complaint() -> str:
    """The last words of the daemon of such a command, where it could not begin; else empty."""
    from pathlib import Path

    path = wire.place(wire.identity())
    if path is None:
        return "there is no directory for it that only you can write to"
    try:
        said = Path(wire.log(path)).read_text("utf-8", "replace")
    except OSError:
        return ""
    return (said.splitlines() or [""])[-1]


def _answers(question: str) -> list[dict[str, Any]]:
    from pathlib import Path

    folder = wire.folder()
    found = []
    for path in sorted(Path(folder).iterdir()) if folder else ():
        connection = wire.connected(str(path)) if path.is_socket() else None
        if connection is None:
            continue
        with suppress(OSError, EOFError):
            wire.send(connection, (question, None))
            found.append(dict(wire.receive(connection)[1]))
        connection.close()
    return found
