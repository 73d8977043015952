"""Signs the rows of a cache with a key that only the user has, so that rows of others are not believed."""

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
"""Of the environment: names the file of a key that several users or machines share, with their cache."""

_NAME = "cache.key"
_SIZE = 32
_LEAST = 16
"""Characters: a shorter key could be guessed."""
_MOST = 4096


@dataclass(frozen=True, slots=True)
class Seals:
    """Makes digests under a key."""

    key: bytes

    def of(self, kind: str) -> Callable[[bytes, bytes], bytes]:
        """What gives the digest of a value of a kind, and of the name that it has there. Neither kinds nor
        names hold a NUL."""
        begun = blake2b(b"%b\0" % kind.encode(), digest_size=16, key=self.key)

        def seal(name: bytes, value: bytes) -> bytes:
            digest = begun.copy()  # beginning anew for each of a thousand rows takes twice as long
            digest.update(b"%b\0%b" % (name, value))
            return digest.digest()

        return seal


def own_seals(environment: Mapping[str, str]) -> Seals:
    """Those of this user, or of the key that is shared on purpose; the key is made where it is missing."""
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
        raise UserError(f"{path}: the key of the cache cannot be kept: {said}") from None
    if key is None or len(key) < _LEAST:
        raise UserError(f"{path}: is no key of a cache; remove it")
    return Seals(blake2b(key, digest_size=_SIZE).digest())


def _state_folder(environment: Mapping[str, str]) -> Path:
    """The folder for what programs keep of a user from run to run."""
    given = environment.get("LOCALAPPDATA" if os.name == "nt" else "XDG_STATE_HOME", "")
    if os.path.isabs(given):  # noqa: PTH117 - pathlib would cost every run
        return Path(given)
    try:
        return Path.home() / ".local" / "state"
    except RuntimeError:
        raise UserError("there is no home folder, and no place for the key of the cache") from None


def _read(path: Path, *, own: bool) -> bytes | None:
    """The key in a file, which must be this user's alone if it is their own; None where there is no such
    file."""
    try:
        # A pipe that nobody writes to is not waited for.
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
    """Makes a key: whole or not at all, readable for nobody else, and never in the place of another."""
    temporary = path.with_name(f"{path.name}.{os.urandom(4).hex()}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(_SIZE).hex().encode() + b"\n")
        try:
            os.link(temporary, path)
        except FileExistsError:
            return  # another run was faster, and its key is as good
        except OSError:  # a file system without links
            temporary.replace(path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
