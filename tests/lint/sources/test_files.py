"""Finding, reading and writing files, odd ones above all."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.config.load import load_config
from pytest_dispatchguard.lint.sources.files import (
    Discovery,
    Source,
    Unreadable,
    decode_source,
    discover,
    is_excluded,
    read_source,
    write_source,
)
from pytest_dispatchguard.model.errors import UserError

as_user = pytest.mark.skipif(
    hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read and write everything"
)


def plant(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n", encoding="utf-8")
    return root


def find(root: Path, *paths: str, exclude: tuple[str, ...] = ()) -> Discovery:
    config = load_config([Path(path) for path in paths], cwd=root, known_codes=())
    config = replace(config, exclude=(*config.exclude, *exclude))
    return discover([Path(path) for path in paths], config, cwd=root)


def targets(found: Discovery) -> list[str]:
    return [file.rel for file in found.targets]


def context(found: Discovery) -> list[str]:
    return [file.rel for file in found.project]


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture(params=["plain", "git"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An empty project, inside git and outside: both must see the same."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "pyproject.toml").touch()
    if request.param == "git":
        git(root, "init", "-q")
    return root


def test_a_run_over_everything(project: Path) -> None:
    plant(project, "b.py", "a/c.py", "a/__init__.py", "a/data.txt", "ü b.py", "stub.pyi")
    found = find(project)
    assert targets(found) == ["a/__init__.py", "a/c.py", "b.py", "ü b.py"]
    assert found.project == found.targets
    file = found.targets[2]
    status = (project / "b.py").stat()
    assert file.path == project / "b.py"
    assert (file.size, file.mtime_ns) == (status.st_size, status.st_mtime_ns)


def test_the_context_is_the_whole_project(project: Path) -> None:
    plant(project, "a/x.py", "a/y.py", "b.py")
    assert targets(find(project, "a/x.py")) == ["a/x.py"]
    assert targets(find(project, "a")) == ["a/x.py", "a/y.py"]
    assert targets(find(project, "a/x.py", "a", "./a/../a/x.py")) == ["a/x.py", "a/y.py"]
    for paths in (["a/x.py"], ["a"], ["b.py"]):
        assert context(find(project, *paths)) == ["a/x.py", "a/y.py", "b.py"]
    assert targets(find(project / "a", "x.py")) == ["a/x.py"]


def test_what_is_nobodys_code_stays_out(project: Path) -> None:
    plant(
        project,
        *(f"{name}/a.py" for name in ("venv", ".venv", "env", "build", "dist", "node_modules")),
        *(f"deep/{name}/a.py" for name in ("__pycache__", "x.egg-info", ".tox", "site-packages")),
        "deep/kept.py",
        "deep/env/__init__.py",
        "deep/env/maze.py",
        "buildings/a.py",
    )
    kept = ["buildings/a.py", "deep/env/__init__.py", "deep/env/maze.py", "deep/kept.py"]
    assert targets(find(project)) == kept


def test_exclude_adds_and_holds_for_named_files_too(project: Path) -> None:
    plant(project, "gen/a.py", "gen/deep/b.py", "x_pb2.py", "keep/gen.py", "build/a.py", "old/c.py")
    exclude = ("gen/", "*_pb2.py", "old/*.py")
    assert targets(find(project, exclude=exclude)) == ["keep/gen.py"]
    named = find(project, "gen/deep/b.py", "x_pb2.py", "build/a.py", "keep/gen.py", exclude=exclude)
    assert targets(named) == ["keep/gen.py"]
    assert find(project, "gen", exclude=exclude).notes == ("gen: excluded, so not checked",)


def test_is_excluded() -> None:
    config = Config(root=Path("/nowhere"), exclude=("gen/",))
    assert is_excluded("a/gen/b.py", config)
    assert is_excluded("gen/", config)
    assert not is_excluded("gen", config)
    assert is_excluded("build/b.py", config)
    assert not is_excluded("a/b.py", config)
    assert not is_excluded(".", config)


def test_a_named_file_of_any_kind(project: Path) -> None:
    plant(project, "script", "stub.pyi", "a.py")
    found = find(project, "script", "stub.pyi")
    assert targets(found) == ["script", "stub.pyi"]
    assert context(found) == ["a.py", "script", "stub.pyi"]


def test_a_folder_named_like_a_file(project: Path) -> None:
    plant(project, "x.py/a.py", "x.py/b.txt")
    assert targets(find(project)) == ["x.py/a.py"]
    assert targets(find(project, "x.py")) == ["x.py/a.py"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_no_file(project: Path) -> None:
    os.mkfifo(project / "pipe.py")
    assert targets(find(project)) == []
    with pytest.raises(UserError, match=r"pipe\.py: neither a file nor a directory"):
        find(project, "pipe.py")


def test_a_missing_path(project: Path) -> None:
    with pytest.raises(UserError, match=r"^no/such\.py: no such file or directory$"):
        find(project, "no/such.py")


def test_links(project: Path, tmp_path: Path) -> None:
    outside = plant(tmp_path / "outside", "o.py", "sub/p.py")
    plant(project, "real/a.py")
    (project / "loop").symlink_to(project, target_is_directory=True)
    (project / "up").symlink_to(tmp_path, target_is_directory=True)
    (project / "again").symlink_to(project / "real", target_is_directory=True)
    (project / "out").symlink_to(outside, target_is_directory=True)
    (project / "out2").symlink_to(outside, target_is_directory=True)
    (outside / "back").symlink_to(project, target_is_directory=True)
    (outside / "self").symlink_to(outside, target_is_directory=True)
    (project / "twin.py").symlink_to(project / "real/a.py")
    (project / "far.py").symlink_to(plant(tmp_path / "other", "f.py") / "f.py")
    (project / "broken.py").symlink_to(project / "nowhere.py")
    assert targets(find(project)) == ["far.py", "out/o.py", "out/sub/p.py", "real/a.py"]
    assert targets(find(project, "twin.py")) == ["real/a.py"]


def test_gitignored_files_stay_out_unless_named(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    plant(tmp_path, "a.py", "scratch.py", "tmp/b.py", "tmp/tracked.py", "sub/c.py", "sub/d.py")
    (tmp_path / ".gitignore").write_text("scratch.py\ntmp/\n", encoding="utf-8")
    (tmp_path / "sub/.gitignore").write_text("d.py\n", encoding="utf-8")
    git(tmp_path, "add", "-f", "tmp/tracked.py", "a.py")
    assert targets(find(tmp_path)) == ["a.py", "sub/c.py", "tmp/tracked.py"]
    assert targets(find(tmp_path, "scratch.py")) == ["scratch.py"]
    (tmp_path / "a.py").unlink()
    assert "a.py" not in targets(find(tmp_path))


def test_an_ignored_folder_that_is_named(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    plant(tmp_path, "a.py", "tmp/b.py")
    (tmp_path / ".gitignore").write_text("tmp/\n", encoding="utf-8")
    found = find(tmp_path, "tmp")
    assert targets(found) == ["tmp/b.py"]
    assert context(found) == ["a.py", "tmp/b.py"]


def test_packages_in_an_ignored_environment(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text(".venv\n", encoding="utf-8")
    installed = tmp_path / ".venv/lib/site-packages"
    plant(installed, "one/__init__.py", "one/sub/a.py", "two/__init__.py", "loose.py")
    found = find(installed, "one")
    assert targets(found) == ["one/__init__.py", "one/sub/a.py"]
    # Installed packages are many; only the one asked for gives the context.
    assert context(found) == targets(found)


def test_repositories_in_the_repository(tmp_path: Path) -> None:
    root = plant(tmp_path / "r", "a.py", "nested/b.py", "nested/ignored.py")
    git(root, "init", "-q")
    git(root / "nested", "init", "-q")
    (root / "nested/.gitignore").write_text("ignored.py\n", encoding="utf-8")
    assert targets(find(root)) == ["a.py", "nested/b.py"]
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    git(root / "nested", "add", ".")
    git(root / "nested", *identity, "commit", "-qm", "c")
    git(root, "add", "nested")
    assert targets(find(root)) == ["a.py", "nested/b.py"]


def test_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, "a.py")
    git(tmp_path, "init", "-q")
    monkeypatch.setenv("PATH", os.devnull)
    assert targets(find(tmp_path)) == ["a.py"]


def test_context_without_a_project(tmp_path: Path) -> None:
    root = plant(
        tmp_path / "lib", "pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/a.py", "x.py", "y/z.py"
    )
    assert context(find(root, "pkg/sub/a.py")) == [
        "pkg/__init__.py",
        "pkg/sub/__init__.py",
        "pkg/sub/a.py",
    ]
    assert context(find(root, "x.py")) == ["x.py"]
    assert context(find(root, "y")) == ["z.py"]
    assert len(context(find(root))) == 5


@as_user
def test_an_unreadable_folder_is_passed_over(project: Path) -> None:
    plant(project, "a.py", "locked/b.py")
    (project / "locked").chmod(0)
    try:
        found = find(project)
    finally:
        (project / "locked").chmod(0o755)
    assert targets(found) == ["a.py"]


def decoded(data: bytes) -> Source:
    source = decode_source(data, "a.py")
    assert isinstance(source, Source)
    return source


def unreadable(data: bytes) -> Unreadable:
    problem = decode_source(data, "a.py")
    assert isinstance(problem, Unreadable)
    assert problem.rel == "a.py"
    assert "\n" not in problem.message
    return problem


@pytest.mark.parametrize(
    ("data", "text", "encoding", "bom"),
    [
        (b"", "", "utf-8", False),
        (b"x = 1\r\ny = 2\rz\n\x0c", "x = 1\r\ny = 2\rz\n\x0c", "utf-8", False),
        ("é\u2028".encode(), "é\u2028", "utf-8", False),
        (b"\xef\xbb\xbfx", "x", "utf-8", True),
        (b"\xef\xbb\xbf# coding: utf-8\n", "# coding: utf-8\n", "utf-8", True),
        (b"# coding: utf-8-sig\nx", "# coding: utf-8-sig\nx", "utf-8", False),
        (b"# coding: latin-1\n\xe9", "# coding: latin-1\né", "iso8859-1", False),
        (b"#!/x\n# vim: fileencoding=latin-1\n\xe9", None, "iso8859-1", False),
        (b"#!/x\r# coding=cp1252\r'\x80'", None, "cp1252", False),
        (b"# coding: shift_jis\n'\x83\x5c'", None, "shift_jis", False),
    ],
)
def test_decoding(data: bytes, text: str | None, encoding: str, bom: bool) -> None:
    source = decoded(data)
    assert text is None or source.text == text
    assert (source.encoding, source.bom) == (encoding, bom)
    assert source.encode(source.text) == data
    assert source.encode(source.text + "\r\nx") == data + b"\r\nx"


@pytest.mark.parametrize(
    ("data", "line", "column", "part"),
    [
        (b"x = 1\n'\xe9'", 2, 2, "byte 0xe9 is not UTF-8; save it as UTF-8, or name"),
        ("é = '".encode() + b"\xff'", 1, 6, "byte 0xff"),
        (b"a\r\nb\rc\xff", 3, 2, "byte 0xff"),
        (b"x\n# coding: latin-1\n\xe9", 3, 1, "byte 0xe9 is not UTF-8"),
        (b"x = 1\ny\0 = 2", 2, 2, "NUL byte"),
        ("x = 1".encode("utf-16"), 1, 4, "NUL byte"),
        (b"# coding: klingon\n", 1, 11, "unknown encoding: klingon"),
        (b"\n# coding: rot13\n", 2, 11, "unknown encoding: rot13"),
        (b"# coding: undefined\n", 1, 11, "not an encoding for source: undefined"),
        (b"\xef\xbb\xbf# coding: latin-1\n", 1, 11, "byte order mark"),
        (b"# coding: ascii\n\xe9", 2, 1, "byte 0xe9 is not ASCII"),
    ],
)
def test_undecodable(data: bytes, line: int, column: int, part: str) -> None:
    problem = unreadable(data)
    assert (problem.line, problem.column) == (line, column)
    assert part in problem.message


def test_a_fix_that_the_encoding_cannot_hold() -> None:
    with pytest.raises(UserError, match="iso8859-1 has no"):
        decoded(b"# coding: latin-1\n").encode("# coding: latin-1\n€")


def test_an_encoding_that_loses_bytes_is_not_rewritten() -> None:
    source = decoded(b"# coding: utf-7\n'+AGEAYQ-'")
    assert source.encode(source.text) == source.data
    with pytest.raises(UserError, match="cannot be rewritten"):
        source.encode(source.text + "x")


def test_read_source(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"x\r\n")
    assert read_source(tmp_path / "a.py", "a.py") == Source(
        "a.py", b"x\r\n", "x\r\n", "utf-8", False
    )
    gone = read_source(tmp_path / "gone.py", "gone.py")
    assert gone == Unreadable("gone.py", 1, 1, "cannot be read: No such file or directory")
    assert isinstance(read_source(tmp_path, "."), Unreadable)


@as_user
def test_read_source_without_permission(tmp_path: Path) -> None:
    plant(tmp_path, "a.py")
    (tmp_path / "a.py").chmod(0)
    problem = read_source(tmp_path / "a.py", "a.py")
    assert isinstance(problem, Unreadable)
    assert problem.message == "cannot be read: Permission denied"


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_told(data: bytes) -> None:
    read = decode_source(data, "a.py")
    if isinstance(read, Source):
        assert read.encode(read.text) == data
        assert "\0" not in read.text
    else:
        assert read.line >= 1
        assert read.column >= 1


def test_write_keeps_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")
    path.chmod(0o754)
    write_source(path, b"new\r\n")
    assert path.read_bytes() == b"new\r\n"
    assert path.stat().st_mode & 0o7777 == 0o754
    assert list(tmp_path.iterdir()) == [path]


def test_write_goes_through_a_link(tmp_path: Path) -> None:
    real = plant(tmp_path, "real/a.py") / "real/a.py"
    link = tmp_path / "link.py"
    link.symlink_to(real)
    write_source(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_write_a_new_file_with_the_usual_mode(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_source(tmp_path / "a.json", b"{}")
    assert (tmp_path / "a.json").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = plant(tmp_path, "a.py") / "a.py"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_source(path, b"new")
    assert path.read_bytes() == b"x = 1\n"
    assert list(tmp_path.iterdir()) == [path]


def test_writing_nowhere_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written: No such file or directory"):
        write_source(tmp_path / "no/a.py", b"")


@as_user
def test_a_read_only_file_is_left_alone(tmp_path: Path) -> None:
    path = plant(tmp_path, "a.py") / "a.py"
    path.chmod(0o444)
    with pytest.raises(UserError, match="read-only"):
        write_source(path, b"new")
    assert path.read_bytes() == b"x = 1\n"
