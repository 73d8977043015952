"""The folder of a project: what is kept there is never written through what a repository put in its place."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pytest_dispatchguard import prices, project_folder
from pytest_dispatchguard.commands.measuring import price_rules
from pytest_dispatchguard.history import store, trends
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.history import Checkout
from pytest_dispatchguard.model.prices import PriceTable
from pytest_dispatchguard.profile import Profile, Seen
from pytest_dispatchguard.profile import load as load_profile
from pytest_dispatchguard.project_folder import PROFILE
from pytest_dispatchguard.pytest_run import recording

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links are for administrators there")


def _record(root: Path) -> None:
    (root / "a.py").touch()
    recording.keep(root, Profile({("a.py", "f"): Seen("digest")}))


def _price(root: Path) -> None:
    price_rules._keep(PriceTable({}, ()), root / prices.NAME)


def _add_to_history(root: Path) -> None:
    began = trends.Began("2026-01-01T00:00:00.000000Z", Checkout("", "", False))
    trends.keep([], {}, began, str(root / store.FILE))


def _save_run(root: Path) -> None:
    project_folder.write(root / project_folder.FOLDER / "runs" / "base.json", b"{}")


WRITERS: dict[str, Callable[[Path], None]] = {
    PROFILE.name: _record,
    Path(prices.NAME).name: _price,
    store.FILE.name: _add_to_history,
    "runs/base.json": _save_run,
}
writers = pytest.mark.parametrize("name", WRITERS)


@writers
def test_a_file_is_kept_and_git_leaves_it_alone(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path)
    folder = tmp_path / project_folder.FOLDER
    assert (folder / name).is_file()
    assert (folder / ".gitignore").read_text() == "*\n"
    WRITERS[name](tmp_path)
    assert not list(folder.rglob("*.tmp"))


@writers
@pytest.mark.parametrize("there", [True, False], ids=["file", "nothing"])
def test_a_link_in_the_place_of_a_file(tmp_path: Path, name: str, there: bool) -> None:
    elsewhere = tmp_path / "elsewhere"
    WRITERS[name](tmp_path)
    path = tmp_path / project_folder.FOLDER / name
    if there:
        path.rename(elsewhere)
    else:
        path.unlink()
    path.symlink_to(elsewhere)
    before = elsewhere.read_bytes() if there else None
    with pytest.raises(UserError, match="is a link, through which nothing is written"):
        WRITERS[name](tmp_path)
    assert (elsewhere.read_bytes() if elsewhere.exists() else None) == before
    assert path.is_symlink()


@writers
def test_a_link_in_the_place_of_the_folder(tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / project_folder.FOLDER).symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(UserError, match="is a link, through which nothing is written"):
        WRITERS[name](tmp_path)
    assert list(elsewhere.iterdir()) == []


def test_a_link_in_the_place_of_a_folder_inside(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / project_folder.FOLDER).mkdir()
    (tmp_path / project_folder.FOLDER / "runs").symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(UserError, match="is a link"):
        _save_run(tmp_path)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_links_beside_the_history(tmp_path: Path, suffix: str) -> None:
    """SQLite would open them, also to read."""
    _add_to_history(tmp_path)
    path = tmp_path / store.FILE
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"precious")
    path.with_name(path.name + suffix).symlink_to(elsewhere)
    for use in (_add_to_history, lambda root: trends.earlier(None, ["test"], root)):
        with pytest.raises(UserError, match="is a link"):
            use(tmp_path)
    assert elsewhere.read_bytes() == b"precious"


def test_a_history_elsewhere_may_be_a_link(tmp_path: Path) -> None:
    """What users name is theirs to place."""
    (tmp_path / "link.sqlite").symlink_to(tmp_path / "real.sqlite")
    began = trends.Began("2026-01-01T00:00:00.000000Z", Checkout("", "", False))
    trends.keep([], {}, began, str(tmp_path / "link.sqlite"))
    with closing(sqlite3.connect(tmp_path / "real.sqlite")) as kept:
        assert kept.execute("SELECT count(*) FROM dispatchguard_runs").fetchone() == (1,)


def test_a_disk_that_is_full_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int, mode: str) -> None:
        os.close(handle)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(UserError, match="cannot be written: No space left on device"):
        _save_run(tmp_path)
    folder = tmp_path / project_folder.FOLDER
    assert not [path for path in folder.rglob("*") if path.is_file()]
    monkeypatch.undo()
    _save_run(tmp_path)
    assert (folder / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("load", [prices.load, load_profile])
@pytest.mark.parametrize("target", ["/dev/zero", "pipe"])
def test_what_is_no_file_is_not_read(
    tmp_path: Path, load: Callable[[Path], object], target: str
) -> None:
    """Neither an endless one nor one that nobody writes to."""
    path = tmp_path / project_folder.FOLDER / "file.json"
    path.parent.mkdir()
    if target == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(target)
    with pytest.raises(UserError, match="remove it"):
        load(path)


@pytest.mark.parametrize("load", [prices.load, load_profile])
def test_nothing_is_read_from_a_folder_that_is_a_link(
    tmp_path: Path, load: Callable[[Path], object]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file.json").write_text("{}")
    (tmp_path / project_folder.FOLDER).symlink_to(elsewhere, target_is_directory=True)
    assert load(tmp_path / project_folder.FOLDER / "file.json") is None
