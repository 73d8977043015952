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
_QUIET = 0.2
"""Seconds without a command after which there is time to learn."""
_AT_LAST = 1.0
"""Seconds that what there is to learn waits for that: then a moment without a command does. Some ask again
and again."""
_EVERY = 0.005
"""Seconds after which whoever asks has a turn while something is learned."""
_ARENA = 20
"""Bits of an address within one of the parts that Python divides the memory of small objects into."""
_MOST_GAPS = 200_000
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
    listen: Callable[[Callable[[bytes], object]], None]
    """Has what a run found out told in a few bytes: what there is to learn of it."""
    learn: Callable[[bytes, Callable[[], object]], Iterable[str]]
    """Keeps that in memory, for the runs to come, and gives way to others every now and then; gives the names
    of all that is kept."""


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
    news: tuple[socket.socket, socket.socket]
    """Where its copies tell it what there is to learn."""
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
    unlearned: dict[bytes, float] = field(default_factory=dict)
    """What copies told, in order, and when they did so first."""
    filling: list[bytes] = field(default_factory=list)
    """What lies between that, so that nothing of a copy does."""
    knows: tuple[str, ...] = ()
    """What is kept in memory for them."""
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
        print("a rule pack starts threads, which no copy of a process has", file=sys.stderr)
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
    news = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    _loop(_Daemon(path, mine, work, lock, listener, wakeup, news, read, stamp, number))


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


class _EndingError(Exception):
    """Nothing need be learned any more."""


def _loop(daemon: _Daemon) -> None:
    for end in (*daemon.wakeup, *daemon.news, daemon.listener):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(daemon.wakeup[1].fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    daemon.selector.register(daemon.listener, selectors.EVENT_READ, _accept)
    daemon.selector.register(daemon.wakeup[0], selectors.EVENT_READ, _reap)
    daemon.selector.register(daemon.news[0], selectors.EVENT_READ, _note)
    looked = time.monotonic()
    while daemon.runs or not daemon.ending:
        patience = min(LOOK_SECONDS, _PATIENCE) if daemon.waiting else LOOK_SECONDS
        _turn(daemon, min(patience, _QUIET) if daemon.unlearned else patience)
        now = time.monotonic()
        if daemon.unlearned and not daemon.runs and not daemon.waiting:
            told, since = next(iter(daemon.unlearned.items()))
            if now - daemon.last >= _QUIET or now - since >= _AT_LAST:
                _learn(daemon, told)
        if now - looked >= LOOK_SECONDS:
            looked = now
            idle = now - daemon.last > IDLE_SECONDS
            if idle or not _is_there(daemon) or _is_stale(daemon):
                _end(daemon)


def _turn(daemon: _Daemon, patience: float) -> None:
    """Does what there is to do for others."""
    for key, _ in daemon.selector.select(patience):
        key.data(daemon, key.fileobj)
    now = time.monotonic()
    for connection in [c for c, until in daemon.waiting.items() if until < now]:
        _dismiss(daemon, connection)


def _note(daemon: _Daemon, news: socket.socket) -> None:
    """Takes down what copies tell."""
    with suppress(BlockingIOError):
        while told := news.recv(4096):
            daemon.unlearned.setdefault(told, time.monotonic())


def _learn(daemon: _Daemon, told: bytes) -> None:
    """Takes up what a run found out. Whoever asks meanwhile has the next turn."""
    del daemon.unlearned[told]
    if _is_stale(daemon):
        _end(daemon)
        return
    turn = time.monotonic() + _EVERY

    def step() -> None:
        nonlocal turn
        if time.monotonic() >= turn:
            _turn(daemon, 0)
            if daemon.ending:
                raise _EndingError
            turn = time.monotonic() + _EVERY

    gc.disable()  # all of it lasts, and copies are to share it
    try:
        daemon.knows = tuple(daemon.work.learn(told, step))
    except _EndingError:
        pass
    except Exception as error:  # noqa: BLE001 - whatever it is, runs find out by themselves
        daemon.knows = tuple(name for name in daemon.knows if name != os.fsdecode(told))
        said = f"{os.fsdecode(told)} could not be learned: {error!r}\n"
        os.write(2, said.encode("utf-8", "backslashreplace"))
    finally:
        daemon.filling.clear()
        daemon.filling = _fill_gaps()
        gc.freeze()
        gc.enable()


def _fill_gaps() -> list[bytes]:
    """Objects in the gaps between those there are: what copies make of their own would lie there else, in
    memory that they share, each page of which has to be copied for it first."""
    gc.unfreeze()
    filled = {id(one) >> _ARENA for one in gc.get_objects()}
    made: list[bytes] = []
    for size in range(512, 32, -16):  # what small objects take
        elsewhere = 0
        while elsewhere < 64 and len(made) < _MOST_GAPS:
            made.append(bytes(size - 33))  # which takes so much as an object
            elsewhere += id(made[-1]) >> _ARENA not in filled
    return made


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
            facts = {
                "process": os.getpid(),
                "began": daemon.began,
                "runs": daemon.served,
                "knows": daemon.knows,
            }
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
        for ours in (daemon.listener, *daemon.wakeup, daemon.news[0], *waiting, *others):
            ours.close()
        daemon.work.listen(partial(_tell, daemon.news[1]))
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
        said = f"dispatchguard: the daemon could not begin the run: {error}\n"
        os.write(2, said.encode("utf-8", "backslashreplace"))
    finally:
        os._exit(2)


def _tell(news: socket.socket, told: bytes) -> None:
    """Lets the daemon know what there is to learn, if it has an ear."""
    with suppress(OSError):
        news.send(told)


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
