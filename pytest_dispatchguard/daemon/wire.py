"""How a command finds its daemon, and what the two say to each other. Imports next to nothing: a command that
asks is over before others have imported their modules."""

from __future__ import annotations

import _socket  # what `socket` is built on, and imports in a tenth of its time
import marshal
import os
import struct
import sys
import zlib

from pytest_dispatchguard import __version__
from pytest_dispatchguard.startup.user_folder import own_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Identity = tuple[Any, ...]
    """What two processes must have in common for one to do what the other was asked for."""
    Connection = _socket.socket
    """One of `socket` is one of these."""

POSSIBLE = hasattr(os, "fork") and hasattr(_socket, "SCM_RIGHTS")
"""Whether this system has what it takes: a process that forks, and files handed from one to another."""

RUN, TELL, STOP = "run", "tell", "stop"
"""What may be asked."""
TAKEN, STALE, OTHER, DONE, TOLD = "taken", "stale", "other", "done", "told"
"""What may be answered: hand over your files, and it is done; the daemon is of another time and has ended, or
has no room; it is for others; it has been done; what there is to tell of the daemon."""
INTERRUPT, PAUSE, RESUME = b"i", b"z", b"c"
"""What a command says while it waits: the user pressed Ctrl-C, or Ctrl-Z, or has it go on."""
ANSWER_SECONDS = 3.0
"""A daemon that takes longer to say whether it does a run is left alone."""

_LENGTH = struct.Struct(">I")
_MOST = 2**24
_LONGEST = 64
"""Bytes of a folder's path: that of a socket in it has room for some hundred."""
_LIMITS = ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_NOFILE")


def identity() -> Identity:
    """Of this process: another Python, other places to import from, another encoding, other rights, limits or
    files could do otherwise."""
    import resource

    python = sys.version, sys.executable, sys.prefix, tuple(sys.flags), tuple(sys.warnoptions)
    said = sorted(item for item in os.environb.items() if tells_python(item[0]))
    limits = tuple(resource.getrlimit(getattr(resource, name, 0)) for name in _LIMITS)
    rights = os.getegid(), tuple(sorted(os.getgroups())), os.nice(0), limits
    return (__version__, *python, tuple(sys.path), tuple(said), *rights, *_files())


def tells_python(name: bytes) -> bool:
    """Whether a variable of the environment has a say in how Python begins."""
    return name.startswith((b"PYTHON", b"LC_")) or name in (b"LANG", b"LANGUAGE")


def _files() -> tuple[Any, ...]:
    """What files a process sees: those of a container are others."""
    root = os.stat("/")  # noqa: PTH116 - pathlib costs what is to be saved
    try:
        mounts = os.readlink("/proc/self/ns/mnt")  # noqa: PTH115 - the same
    except OSError:
        mounts = ""
    return root.st_dev, root.st_ino, mounts


# -- where -----------------------------------------------------------------------------------------


def place(mine: Identity) -> str | None:
    """Where the daemon of such a process listens; None where there is no folder that is this user's alone."""
    found = folder()
    return None if found is None else f"{found}/{zlib.crc32(repr(mine).encode()):08x}"


def log(path: str) -> str:
    """Where the daemon that listens there complains."""
    return f"{path}.log"


def folder() -> str | None:
    """The folder of this user's daemons, made where it is missing."""
    for base in (os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("TMPDIR"), "/tmp"):
        if base and os.path.isabs(base) and len(os.fsencode(base)) <= _LONGEST:  # noqa: PTH117 - the same
            found = own_folder(base.rstrip("/"), f"dispatchguard-{os.getuid()}")
            if found is not None:
                return found
    return None


# -- what is said ----------------------------------------------------------------------------------


def connected(path: str) -> Connection | None:
    """A connection to the daemon that listens there, if one does."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.settimeout(ANSWER_SECONDS)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


def send(connection: Connection, message: tuple[Any, ...]) -> None:
    """Says something."""
    data = marshal.dumps(message)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive(connection: Connection) -> tuple[Any, ...]:
    """What the other says. EOFError where the other is gone, or what it says makes no sense."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > _MOST:
        raise EOFError
    try:
        message = marshal.loads(_exactly(connection, length))
    except (ValueError, TypeError):
        raise EOFError from None
    if not (isinstance(message, tuple) and message):
        raise EOFError
    return message


def hand_over(connection: Connection, files: tuple[int, ...]) -> None:
    """Gives the other these open files, who has them from then on until it is done with them."""
    handed = struct.pack(f"{len(files)}i", *files)
    connection.sendmsg([b"f"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handed)])


def _exactly(connection: Connection, count: int) -> bytes:
    parts = []
    while count:
        part = connection.recv(count)
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
