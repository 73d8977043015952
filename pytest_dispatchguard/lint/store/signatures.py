"""Signs the rows of a cache with a key that only the user has, so that rows written by others are ignored."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from pytest_dispatchguard.model.errors import UserError

VARIABLE = "DISPATCHGUARD_CACHE_KEY_FILE"
"""The environment variable that names the key file, for users or machines that share a cache."""

_NAME = "cache.key"
_SIZE = 32
_LEAST = 16
"""Characters: a shorter key could be guessed."""
_MOST = 4096


@dataclass(frozen=True, slots=True)
class Seals:
    """Makes signatures with a key."""

    key: bytes

    def of(self, kind: str) -> Callable[[bytes, bytes], bytes]:
        """A function that signs values of a kind under their names. Kinds and names must not contain NUL."""
        begun = blake2b(b"%b\0" % kind.encode(), digest_size=16, key=self.key)

        def seal(name: bytes, value: bytes) -> bytes:
            digest = begun.copy()  # starting over for each of a thousand rows takes twice as long
            digest.update(b"%b\0%b" % (name, value))
            return digest.digest()

        return seal


def own_seals(environment: Mapping[str, str]) -> Seals:
    """Signatures with this user's key, or with a key that is shared on purpose; the key is created if it
    is missing."""
    shared = environment.get(VARIABLE)
    path = Path(shared) if shared else _state_folder(environment) / "dispatchguard" / _NAME
    try:
        if not shared:
            path.parent.mkdir(0o700, parents=True, exist_ok=True)
        key = _read(path, own=not shared)
        if key is None:
            _make(path)
            key = _read(path, own=not shared)
    except OSError as error:
        said = error.strerror or error
        raise UserError(f"{path}: the key of the cache cannot be stored: {said}") from None
    if key is None or len(key) < _LEAST:
        raise UserError(f"{path}: not a cache key; remove it")
    return Seals(blake2b(key, digest_size=_SIZE).digest())


def _state_folder(environment: Mapping[str, str]) -> Path:
    """The directory for data that programs keep per user."""
    given = environment.get("LOCALAPPDATA" if os.name == "nt" else "XDG_STATE_HOME", "")
    if os.path.isabs(given):  # noqa: PTH117 - pathlib would cost every run
        return Path(given)
    try:
        return Path.home() / ".local" / "state"
    except RuntimeError:
        raise UserError("there is no home folder, and no place for the key of the cache") from None


def _read(path: Path, *, own: bool) -> bytes | None:
    """The key in a file; None if there is no such file. The user's own key must not be readable for
    others."""
    try:
        # Do not wait for a pipe that nobody writes to.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            return b""
        if own and os.name == "posix" and (found.st_uid != os.geteuid() or found.st_mode & 0o077):
            raise UserError(f"{path}: the key of the cache is not yours alone; remove it")
        return file.read(_MOST).strip()


def _make(path: Path) -> None:
    """Create a key file: completely or not at all, readable only for the user, and never over an existing
    one."""
    temporary = path.with_name(f"{path.name}.{os.urandom(4).hex()}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(_SIZE).hex().encode() + b"\n")
        try:
            os.link(temporary, path)
        except FileExistsError:
            return  # another run created it first; use that key
        except OSError:  # a file system without hard links
            temporary.replace(path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
