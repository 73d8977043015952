"""The key of a user's cache: made once, whole, and nobody else's."""

from __future__ import annotations

import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from pytest_dispatchguard.lint.store.signatures import VARIABLE, Seals, own_seals
from pytest_dispatchguard.model.errors import UserError

HOME = "LOCALAPPDATA" if os.name == "nt" else "XDG_STATE_HOME"
posix = pytest.mark.skipif(os.name != "posix", reason="rights of files are others there")


def key_in(folder: Path) -> Path:
    return folder / "dispatchguard" / "cache.key"


def test_a_key_is_made_once(tmp_path: Path) -> None:
    first = own_seals({HOME: str(tmp_path / "state")})
    assert own_seals({HOME: str(tmp_path / "state")}) == first
    assert own_seals({HOME: str(tmp_path / "other")}) != first
    assert [p.name for p in key_in(tmp_path / "state").parent.iterdir()] == ["cache.key"]


@posix
def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    own_seals({HOME: str(tmp_path)})
    path = key_in(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    with pytest.raises(UserError, match="not yours alone; remove it"):
        own_seals({HOME: str(tmp_path)})


def test_a_shared_key(tmp_path: Path) -> None:
    """Whoever names the same file has the same seals; it is made where it is missing."""
    shared = tmp_path / "shared.key"
    first = own_seals({VARIABLE: str(shared), HOME: str(tmp_path / "a")})
    assert own_seals({VARIABLE: str(shared), HOME: str(tmp_path / "b")}) == first
    shared.chmod(0o644)  # as secrets are handed to jobs
    assert own_seals({VARIABLE: str(shared)}) == first
    shared.write_text(f"  {shared.read_text()}\n\n")
    assert own_seals({VARIABLE: str(shared)}) == first


@pytest.mark.parametrize("content", [b"", b"short", b" " * 100])
def test_what_is_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(UserError, match="not a cache key"):
        own_seals({VARIABLE: str(tmp_path / "key")})


def test_a_home_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be stored"):
        own_seals({HOME: str(tmp_path / "file")})


def _make(folder: Path, made: multiprocessing.Queue[bytes]) -> None:
    made.put(own_seals({HOME: str(folder)}).key)


def test_runs_that_begin_at_once_have_one_key(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn" if os.name == "nt" else "fork")
    made: multiprocessing.Queue[bytes] = context.Queue()
    runs = [context.Process(target=_make, args=(tmp_path, made)) for _ in range(8)]
    for run in runs:
        run.start()
    assert len({made.get(timeout=60) for _ in runs}) == 1
    for run in runs:
        run.join(60)


def test_a_seal_is_of_its_place() -> None:
    seals = Seals(b"key")
    seal = seals.of("kind")(b"name", b"value")
    assert seals.of("kind")(b"name", b"value") == seal
    others = [
        ("kind2", b"name", b"value"),
        ("kind", b"name2", b"value"),
        ("kind", b"name", b"value2"),
    ]
    assert seal not in [seals.of(kind)(*rest) for kind, *rest in others]
    assert Seals(b"other").of("kind")(b"name", b"value") != seal
