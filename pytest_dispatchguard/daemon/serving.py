"""The side of the daemon that does what it is asked: each command in a copy of itself that has all modules
already, so that no run sees anything of another."""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import pkgutil
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from pytest_dispatchguard import lint, report
from pytest_dispatchguard.daemon import wire
from pytest_dispatchguard.lint import catalog, packs
from pytest_dispatchguard.lint.judge import bench
from pytest_dispatchguard.lint.target import Target
from pytest_dispatchguard.model import UserError

IDLE_SECONDS = 30 * 60
"""A daemon that nobody asks for so long ends."""
LOOK_SECONDS = 60
_PATIENCE = 5.0
"""Seconds for a command to say what it wants."""


@dataclass(slots=True)
class _Run:
    """A command that is being done."""

    connection: socket.socket
    process: int


@dataclass(slots=True)
class _Daemon:
    path: str
    identity: wire.Identity
    listener: socket.socket
    wakeup: tuple[socket.socket, socket.socket]
    stamp: str
    """Of all that was imported, as it was on disk."""
    command: Callable[[], NoReturn]
    interrupted: Callable[[], NoReturn]
    """Ends a command at a Ctrl-C that it has not begun to heed."""
    runs: dict[int, _Run] = field(default_factory=dict)
    """By the number of the connection."""
    began: float = field(default_factory=time.time)
    last: float = field(default_factory=time.monotonic)
    served: int = 0
    ending: bool = False
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)


def serve(command: Callable[[], NoReturn], interrupted: Callable[[], NoReturn]) -> None:
    """Waits for commands, and runs each in a copy of this process, until nobody asks any more. Where another
    daemon does so already, there is nothing to do."""
    mine = wire.identity()
    path = wire.place(mine)
    if path is None:
        return
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    before = catalog.fingerprint()
    with suppress(UserError):  # a pack that cannot be loaded: each run will say so
        _import_all()
    gc.collect()
    gc.freeze()
    daemon = _Daemon(
        path,
        mine,
        wire.listening(path),
        socket.socketpair(),
        f"{before}:{_imported()}",
        command,
        interrupted,
    )
    _loop(daemon)
    os.close(lock)


def _import_all() -> None:
    """Everything that a check may import."""
    for package in (lint, report):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            with suppress(ImportError):  # of an extra that is not installed, and not asked for here
                importlib.import_module(module.name)
    for name in ("commands.check", "progress", "git"):
        importlib.import_module(f"pytest_dispatchguard.{name}")
    packs.load()
    bench(Target())


def _imported() -> str:
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return catalog.stamp(sorted({file for file in files if file}))


def _is_stale(daemon: _Daemon) -> bool:
    """Whether what was imported is no longer what is installed."""
    return daemon.stamp != f"{catalog.fingerprint()}:{_imported()}"


# -- the loop --------------------------------------------------------------------------------------


def _loop(daemon: _Daemon) -> None:
    for end in daemon.wakeup:
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(daemon.wakeup[1].fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watched = Path(daemon.path).stat().st_ino
    daemon.selector.register(daemon.listener, selectors.EVENT_READ, _accept)
    daemon.selector.register(daemon.wakeup[0], selectors.EVENT_READ, _reap)
    while daemon.runs or not daemon.ending:
        for key, _ in daemon.selector.select(LOOK_SECONDS):
            key.data(daemon, key.fileobj)
        if time.monotonic() - daemon.last > IDLE_SECONDS or not _is_there(daemon.path, watched):
            _end(daemon)


def _is_there(path: str, number: int) -> bool:
    """Whether a daemon can still be found: its socket may have been cleaned away."""
    try:
        return Path(path).stat().st_ino == number
    except OSError:
        return False


def _end(daemon: _Daemon) -> None:
    """Takes no more commands; those that are being done are not disturbed."""
    if daemon.ending:
        return
    daemon.ending = True
    daemon.selector.unregister(daemon.listener)
    with suppress(OSError):
        Path(daemon.path).unlink()
    daemon.listener.close()


def _accept(daemon: _Daemon, listener: socket.socket) -> None:
    connection, _ = listener.accept()
    connection.settimeout(_PATIENCE)
    try:
        message, files = wire.receive(connection, 3)
    except (OSError, EOFError):
        connection.close()
        return
    try:
        _answer(daemon, connection, message, files)
    except (OSError, EOFError):
        connection.close()  # whoever asked is gone
    finally:
        for file in files:
            os.close(file)


def _answer(
    daemon: _Daemon, connection: socket.socket, message: tuple[Any, ...], files: list[int]
) -> None:
    question, theirs, *rest = message
    if theirs != daemon.identity:
        wire.send(connection, (wire.OTHER,))
        connection.close()
    elif question in (wire.TELL, wire.STOP):
        if question == wire.STOP:
            _end(daemon)
        facts = {"process": os.getpid(), "began": daemon.began, "runs": daemon.served}
        wire.send(connection, (wire.TOLD, facts))
        connection.close()
    elif daemon.ending or len(files) != 3 or _is_stale(daemon):
        _end(daemon)
        wire.send(connection, (wire.STALE,))
        connection.close()
    else:
        _run(daemon, connection, files, rest)


def _run(daemon: _Daemon, connection: socket.socket, files: list[int], wanted: list[Any]) -> None:
    wire.send(connection, (wire.TAKEN,))
    daemon.served += 1
    daemon.last = time.monotonic()
    # A Ctrl-C waits until the copy can hear it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    process = os.fork()
    if not process:
        _become(daemon, connection, files, wanted)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with suppress(OSError):
        os.setpgid(process, process)
    connection.setblocking(False)
    daemon.runs[connection.fileno()] = _Run(connection, process)
    daemon.selector.register(connection, selectors.EVENT_READ, _hear)


def _hear(daemon: _Daemon, connection: socket.socket) -> None:
    """What a waiting command says: Ctrl-C was pressed, or, when it says nothing any more, that it is gone."""
    run = daemon.runs[connection.fileno()]
    try:
        said = connection.recv(64)
    except BlockingIOError:
        return
    except OSError:
        said = b""
    with suppress(OSError):
        os.killpg(run.process, signal.SIGINT if said else signal.SIGTERM)
    if not said:
        daemon.selector.unregister(connection)


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
            run.connection.settimeout(_PATIENCE)
            wire.send(run.connection, (wire.DONE, os.waitstatus_to_exitcode(status)))
        run.connection.close()
        daemon.last = time.monotonic()


# -- a copy that runs a command --------------------------------------------------------------------


def _become(
    daemon: _Daemon, connection: socket.socket, files: list[int], wanted: list[Any]
) -> NoReturn:
    """Turns a copy of the daemon into the process that was asked for."""
    try:
        words, cwd, environment, umask, cores = wanted
        os.setpgid(0, 0)  # with its workers, so that all of them can be told to end
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        others = [run.connection for run in daemon.runs.values()]
        for ours in (daemon.listener, *daemon.wakeup, connection, *others):
            ours.close()
        daemon.selector.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.umask(umask)
        os.chdir(cwd)
        os.environ.clear()
        os.environb.update(environment)
        if cores:
            with suppress(OSError):
                os.sched_setaffinity(0, cores)
        _reopen()
        sys.argv[:] = words
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        daemon.command()
    except KeyboardInterrupt:
        daemon.interrupted()
    except SystemExit as end:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(end.code if isinstance(end.code, int) else int(end.code is not None))
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
