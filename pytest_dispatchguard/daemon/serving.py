"""The side of the daemon that does what it is asked: each command in a copy of itself that has all modules
already, so that no run sees anything of another."""

from __future__ import annotations

import fcntl
import gc
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

from pytest_dispatchguard.daemon import wire

IDLE_SECONDS = 30 * 60
"""A daemon that nobody asks for so long ends."""
LOOK_SECONDS = 60
"""How often it looks whether it is still of use."""
_PATIENCE = 5.0
"""Seconds for a command to begin to say what it wants."""
_AT_ONCE = 0.5
"""Seconds for it to end, which stops all others."""
_SIGNALS = {
    wire.INTERRUPT: signal.SIGINT,
    wire.PAUSE: signal.SIGSTOP,
    wire.RESUME: signal.SIGCONT,
}


@dataclass(frozen=True, slots=True)
class Work:
    """What a daemon is for."""

    command: Callable[[], NoReturn]
    """Runs the command whose words are in `sys.argv`."""
    interrupted: Callable[[], NoReturn]
    """Ends a command at a Ctrl-C that it has not begun to heed."""
    prepare: Callable[[], Iterable[str]]
    """Imports all that commands may need; gives the files that were read for it and are no modules."""
    stamp: Callable[[Iterable[str]], str]
    """Changes when one of these files does, or what is installed."""


@dataclass(slots=True)
class _Run:
    """A command that is being done."""

    connection: socket.socket
    process: int


@dataclass(slots=True)
class _Daemon:
    path: str
    identity: wire.Identity
    work: Work
    lock: int
    listener: socket.socket
    wakeup: tuple[socket.socket, socket.socket]
    read: tuple[str, ...]
    """The files that were read for it and are no modules."""
    stamp: str
    """Of all that was imported, as it was on disk; empty where that is not what was imported."""
    number: int
    """Of its socket, as a file."""
    runs: dict[int, _Run] = field(default_factory=dict)
    """By the number of the connection."""
    waiting: dict[socket.socket, float] = field(default_factory=dict)
    """Connections that have not said yet all that they want, and until when they may."""
    began: float = field(default_factory=time.time)
    last: float = field(default_factory=time.monotonic)
    served: int = 0
    ending: bool = False
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)


def serve(work: Work) -> None:
    """Waits for commands, and runs each in a copy of this process, until nobody asks any more. Where another
    daemon does so already, there is nothing to do."""
    began = time.time()
    mine = wire.identity()
    path = wire.place(mine)
    if path is None:
        return
    lock = _locked(f"{path}.lock")
    if lock is None:
        return
    _complain_in(wire.log(path))
    read = tuple(work.prepare())
    if _threads() > 1:
        print("a rule pack starts threads, which a forked process does not have", file=sys.stderr)
        return
    gc.collect()
    gc.freeze()
    stamp = _stamp(work, read)
    if any(_written(file) >= began - 1 for file in _imported(read)):
        stamp = ""  # perhaps after it was imported
    with suppress(FileNotFoundError):
        Path(path).unlink()  # of a daemon that was killed
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    number = Path(path).stat().st_ino
    wakeup = socket.socketpair()
    _loop(_Daemon(path, mine, work, lock, listener, wakeup, read, stamp, number))


def _locked(path: str) -> int | None:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


def _complain_in(path: str) -> None:
    """Puts what is written to standard error into a file."""
    made = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW
    log = os.open(path, made, 0o600)
    os.dup2(log, 2)
    os.close(log)


def _threads() -> int:
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return 1


# -- what was imported -----------------------------------------------------------------------------


def _imported(read: Iterable[str]) -> list[str]:
    """The files of all modules, and those that were read beside."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return sorted({*read, *filter(None, files)})


def _stamp(work: Work, read: Iterable[str]) -> str:
    try:
        return work.stamp(_imported(read))
    except OSError:
        return ""


def _written(file: str) -> float:
    try:
        found = Path(file).stat()
    except OSError:
        return 0.0
    return max(found.st_mtime, found.st_ctime)


def _is_stale(daemon: _Daemon) -> bool:
    """Whether what was imported is no longer what is installed."""
    return not daemon.stamp or daemon.stamp != _stamp(daemon.work, daemon.read)


# -- the loop --------------------------------------------------------------------------------------


def _loop(daemon: _Daemon) -> None:
    for end in (*daemon.wakeup, daemon.listener):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(daemon.wakeup[1].fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    daemon.selector.register(daemon.listener, selectors.EVENT_READ, _accept)
    daemon.selector.register(daemon.wakeup[0], selectors.EVENT_READ, _reap)
    looked = time.monotonic()
    while daemon.runs or not daemon.ending:
        patience = min(LOOK_SECONDS, _PATIENCE) if daemon.waiting else LOOK_SECONDS
        for key, _ in daemon.selector.select(patience):
            key.data(daemon, key.fileobj)
        now = time.monotonic()
        for connection in [c for c, until in daemon.waiting.items() if until < now]:
            _dismiss(daemon, connection)
        if now - looked >= LOOK_SECONDS:
            looked = now
            idle = now - daemon.last > IDLE_SECONDS
            if idle or not _is_there(daemon) or _is_stale(daemon):
                _end(daemon)


def _is_there(daemon: _Daemon) -> bool:
    """Whether a daemon can still be found: its socket may have been cleaned away."""
    try:
        return Path(daemon.path).stat().st_ino == daemon.number
    except OSError:
        return False


def _end(daemon: _Daemon) -> None:
    """Takes no more commands, and lets another daemon begin; what is being done is not disturbed."""
    if daemon.ending:
        return
    daemon.ending = True
    daemon.selector.unregister(daemon.listener)
    if _is_there(daemon):
        with suppress(OSError):
            Path(daemon.path).unlink()
    daemon.listener.close()
    os.close(daemon.lock)


def _accept(daemon: _Daemon, listener: socket.socket) -> None:
    try:
        connection, _ = listener.accept()
    except OSError:
        return  # whoever asked is gone, or there are too many
    connection.settimeout(_AT_ONCE)
    daemon.waiting[connection] = time.monotonic() + _PATIENCE
    daemon.selector.register(connection, selectors.EVENT_READ, _listen)


def _dismiss(daemon: _Daemon, connection: socket.socket) -> None:
    daemon.waiting.pop(connection, None)
    with suppress(KeyError, ValueError):
        daemon.selector.unregister(connection)
    connection.close()


def _listen(daemon: _Daemon, connection: socket.socket) -> None:
    """Hears what is asked, and answers."""
    try:
        question, theirs, *rest = wire.receive(connection)
        if question in (wire.TELL, wire.STOP):
            if question == wire.STOP:
                _end(daemon)
            facts = {"process": os.getpid(), "began": daemon.began, "runs": daemon.served}
            wire.send(connection, (wire.TOLD, facts))
        elif theirs != daemon.identity:
            wire.send(connection, (wire.OTHER,))
        elif daemon.ending or _is_stale(daemon):
            _end(daemon)
            wire.send(connection, (wire.STALE,))
        else:
            begin = partial(_run, wanted=_Wanted(*rest))
            wire.send(connection, (wire.TAKEN,))
            daemon.waiting[connection] = time.monotonic() + _PATIENCE
            daemon.selector.modify(connection, selectors.EVENT_READ, begin)
            return
    except (OSError, EOFError, TypeError, ValueError):
        pass  # whoever asked is gone, or asks what nobody can
    _dismiss(daemon, connection)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A command as it was asked for."""

    words: tuple[str, ...]
    environment: dict[bytes, bytes]
    umask: int
    cores: tuple[int, ...]


def _run(daemon: _Daemon, connection: socket.socket, wanted: _Wanted) -> None:
    """Has a copy of this process do it, with the files that are handed over."""
    try:
        files = _taken_over(connection, 4)
    except (OSError, EOFError):
        _dismiss(daemon, connection)
        return
    # A Ctrl-C waits until the copy can hear it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = os.fork()
        if not process:
            _become(daemon, connection, wanted, files)
        with suppress(OSError):
            os.setpgid(process, process)
    except OSError:  # no room for another process
        with suppress(OSError):
            wire.send(connection, (wire.STALE,))
        _dismiss(daemon, connection)
        return
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for file in files:
            os.close(file)
    del daemon.waiting[connection]
    connection.setblocking(False)
    daemon.runs[connection.fileno()] = _Run(connection, process)
    daemon.selector.modify(connection, selectors.EVENT_READ, _hear)
    daemon.served += 1
    daemon.last = time.monotonic()


def _taken_over(connection: socket.socket, count: int) -> list[int]:
    """The open files that the other hands over; EOFError where there are not so many."""
    said, files, _, _ = socket.recv_fds(connection, 1, count)
    if not said or len(files) != count:
        for file in files:
            os.close(file)
        raise EOFError
    return files


def _hear(daemon: _Daemon, connection: socket.socket) -> None:
    """What a waiting command says: a key was pressed, or, when it says nothing any more, that it is gone."""
    run = daemon.runs.get(connection.fileno())
    if run is None:  # done a moment ago
        return
    try:
        said = connection.recv(1)
    except BlockingIOError:
        return
    except OSError:
        said = b""
    with suppress(OSError):
        os.killpg(run.process, _SIGNALS.get(said, signal.SIGTERM))
    if not said:
        daemon.selector.unregister(connection)
        with suppress(OSError):
            os.killpg(run.process, signal.SIGCONT)  # one that is paused hears nothing


def _reap(daemon: _Daemon, wakeup: socket.socket) -> None:
    """Tells commands that are done how they ended."""
    with suppress(BlockingIOError):
        while wakeup.recv(4096):
            pass
    for number, run in list(daemon.runs.items()):
        process, status = os.waitpid(run.process, os.WNOHANG)
        if not process:
            continue
        del daemon.runs[number]
        with suppress(KeyError, ValueError):
            daemon.selector.unregister(run.connection)
        with suppress(OSError):
            run.connection.settimeout(_AT_ONCE)
            wire.send(run.connection, (wire.DONE, os.waitstatus_to_exitcode(status)))
        run.connection.close()
        daemon.last = time.monotonic()


# -- a copy that runs a command --------------------------------------------------------------------


def _become(
    daemon: _Daemon, connection: socket.socket, wanted: _Wanted, files: list[int]
) -> NoReturn:
    """Turns a copy of the daemon into the process that was asked for. Its connection stays open as long as it
    lives: whoever waits there waits for it, even where the daemon is gone."""
    try:
        gc.enable()
        os.setpgid(0, 0)  # with its workers, so that all of them can be told to end
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        others = [run.connection for run in daemon.runs.values()]
        waiting = [other for other in daemon.waiting if other is not connection]
        for ours in (daemon.listener, *daemon.wakeup, *waiting, *others):
            ours.close()
        daemon.selector.close()
        if not daemon.ending:
            os.close(daemon.lock)
        *streams, folder = files
        for number, file in enumerate(streams):
            os.dup2(file, number)
            os.close(file)
        os.fchdir(folder)
        os.close(folder)
        os.umask(wanted.umask)
        os.environ.clear()
        os.environb.update(wanted.environment)
        if wanted.cores:
            with suppress(OSError):
                os.sched_setaffinity(0, wanted.cores)
        _reopen()
        sys.argv[:] = wanted.words
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        daemon.work.command()
    except KeyboardInterrupt:
        daemon.work.interrupted()
    except SystemExit as end:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(end.code if isinstance(end.code, int) else int(end.code is not None))
    except BaseException as error:  # noqa: BLE001 - a copy must not go on as a second daemon
        said = f"dispatchguard: the daemon could not start the run: {error}\n"
        os.write(2, said.encode("utf-8", "backslashreplace"))
    finally:
        os._exit(2)


def _reopen() -> None:
    """Standard streams over the files that were handed over, as Python makes them when it begins."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        stream = open(  # noqa: SIM115 - for as long as the process lasts
            number,
            "w" if number else "r",
            buffering=1 if number == 2 else -1,
            encoding=old.encoding,
            errors=old.errors,
            closefd=False,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
