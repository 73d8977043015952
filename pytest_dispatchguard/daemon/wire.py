"""How a command finds its daemon, and what the two say to each other. Imports next to nothing: a command that
asks is over before others have imported their modules."""

from __future__ import annotations

import errno
import marshal
import os
import socket
import stat
import struct
import sys
import zlib
from typing import Any

from pytest_dispatchguard import __version__

Identity = tuple[Any, ...]
"""What two processes must have in common for one to do what the other was asked for."""

POSSIBLE = hasattr(os, "fork") and hasattr(socket, "send_fds")
"""Whether this system has what it takes: a process that forks, and files handed from one to another."""

RUN, TELL, STOP = "run", "tell", "stop"
"""What may be asked."""
TAKEN, STALE, OTHER, DONE, TOLD = "taken", "stale", "other", "done", "told"
"""What may be answered: it is being done; the daemon is of another time and has ended; it is for others; it
has been done; what there is to tell of the daemon."""
INTERRUPT = b"i"
"""What a command says while it waits, when the user pressed Ctrl-C."""

_LENGTH = struct.Struct(">I")
_MOST = 2**24
_LONGEST = 64
"""Bytes of a folder's path: that of a socket in it has room for some hundred."""


def identity() -> Identity:
    """Of this process: another Python, other places to import from or another encoding could do otherwise."""
    said = sorted(
        item
        for item in os.environb.items()
        if item[0].startswith((b"PYTHON", b"LC_")) or item[0] in (b"LANG", b"LANGUAGE")
    )
    python = sys.version, sys.executable, sys.prefix
    return (__version__, *python, tuple(sys.path), tuple(said))


def place(mine: Identity) -> str | None:
    """Where the daemon of such a process listens; None where there is no folder that is this user's alone."""
    folder = _folder()
    return None if folder is None else f"{folder}/{zlib.crc32(repr(mine).encode()):08x}"


def log(path: str) -> str:
    """Where the daemon that listens there complains."""
    return f"{path}.log"


def _folder() -> str | None:
    places = os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("TMPDIR"), "/tmp"
    base = next(place for place in places if place and len(os.fsencode(place)) <= _LONGEST)
    path = f"{base.rstrip('/')}/dispatchguard-{os.getuid()}"
    try:
        os.mkdir(path, 0o700)  # noqa: PTH102 - pathlib costs what is to be saved
    except FileExistsError:
        pass
    except OSError:
        return None
    try:
        found = os.lstat(path)
    except OSError:
        return None
    # Whoever can write here could have this user run what they like.
    alone = (
        stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    )
    return path if alone else None


def connected(path: str) -> socket.socket | None:
    """A connection to the daemon that listens there, if one does."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


def listening(path: str) -> socket.socket:
    """A socket that waits there for whoever asks."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        os.unlink(path)  # noqa: PTH108 - of a daemon that was killed
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
    listener.bind(path)
    listener.listen(16)
    return listener


def send(connection: socket.socket, message: tuple[Any, ...], files: tuple[int, ...] = ()) -> None:
    """Says something, and hands over open files."""
    data = marshal.dumps(message)
    head = _LENGTH.pack(len(data))
    if files:
        socket.send_fds(connection, [head], list(files))
    else:
        connection.sendall(head)
    connection.sendall(data)


def receive(connection: socket.socket, files: int = 0) -> tuple[tuple[Any, ...], list[int]]:
    """What the other says, and the files that came with it, `files` of them at most. EOFError where the other
    is gone, or what it says makes no sense."""
    handed: list[int] = []
    head = b""
    if files:
        head, handed, _, _ = socket.recv_fds(connection, _LENGTH.size, files)
    try:
        head += _exactly(connection, _LENGTH.size - len(head))
        (length,) = _LENGTH.unpack(head)
        if length > _MOST:
            raise EOFError
        message = marshal.loads(_exactly(connection, length))
    except (EOFError, ValueError, TypeError):
        for file in handed:
            os.close(file)
        raise EOFError from None
    return message, handed


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = connection.recv(count)
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
