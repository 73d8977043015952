"""Changed lines, in real repositories."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dispatchguard.lint.sources.git_diff import (
    ALL,
    changed_lines,
    changes,
    parse_hunks,
    texts_at,
    touches,
)
from pytest_dispatchguard.model.errors import UserError

TEN = "".join(f"line{number}\n" for number in range(1, 11))


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *identity, "-c", "init.defaultBranch=main", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def commit(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "c", "--allow-empty")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q")
    commit(folder, a=TEN, b=TEN, c=TEN)
    git(folder, "checkout", "-qb", "work")
    return folder


def test_nothing_changed(repository: Path) -> None:
    assert changed_lines(repository, "main") == {}


def test_committed_staged_unstaged_and_untracked(repository: Path) -> None:
    commit(repository, a=TEN.replace("line3", "LINE3").replace("line9\n", "line9\nnew\nnew\n"))
    (repository / "b.py").write_text(TEN.replace("line1\n", "one\n"), encoding="utf-8")
    git(repository, "add", "b.py")
    (repository / "c.py").write_text(TEN.replace("line5\n", ""), encoding="utf-8")
    (repository / "new.py").write_text("x\n", encoding="utf-8")
    (repository / ".gitignore").write_text("ignored.py\n", encoding="utf-8")
    (repository / "ignored.py").write_text("x\n", encoding="utf-8")
    changed = changed_lines(repository, "main")
    assert changed == {
        "a.py": ((3, 3), (10, 11)),
        "b.py": ((1, 1),),
        "new.py": ALL,
        ".gitignore": ALL,
    }
    assert touches(changed, "a.py", 1, 3)
    assert touches(changed, "a.py", 11, 11)
    assert not touches(changed, "a.py", 4, 9)
    assert touches(changed, "new.py", 10**6, 10**6)
    assert not touches(changed, "c.py", 1, 10)


def test_only_since_the_merge_base(repository: Path) -> None:
    git(repository, "checkout", "-q", "main")
    commit(repository, b=TEN.replace("line2\n", "theirs\n"))
    git(repository, "checkout", "-q", "work")
    commit(repository, a=TEN.replace("line2\n", "ours\n"))
    assert changed_lines(repository, "main") == {"a.py": ((2, 2),)}


def test_renames_count_what_changed_and_deletions_nothing(repository: Path) -> None:
    git(repository, "mv", "a.py", "moved.py")
    git(repository, "rm", "-q", "b.py")
    (repository / "moved.py").write_text(TEN.replace("line4\n", "four\n"), encoding="utf-8")
    assert changed_lines(repository, "main") == {"moved.py": ((4, 4),)}


@pytest.mark.parametrize(
    "name", ["with space.py", "ünï😀.py", 'quo"te.py', "tab\there.py", "new\nline.py", "back\\s.py"]
)
def test_odd_names(repository: Path, name: str) -> None:
    (repository / name).write_text(TEN, encoding="utf-8")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "odd")
    (repository / name).write_text(TEN.replace("line7\n", "seven\n"), encoding="utf-8")
    assert changed_lines(repository, "HEAD") == {name: ((7, 7),)}
    assert changed_lines(repository, "main") == {name: ((1, 10),)}


def test_root_inside_the_repository(repository: Path) -> None:
    inner = repository / "inn er"
    inner.mkdir()
    commit(inner, x=TEN)
    commit(repository, a="changed\n")
    (inner / "x.py").write_text(TEN.replace("line1\n", "one\n"), encoding="utf-8")
    (inner / "y.py").write_text("", encoding="utf-8")
    assert changed_lines(inner, "HEAD") == {"x.py": ((1, 1),), "y.py": ALL}


def test_crlf_and_no_newline_at_the_end(repository: Path) -> None:
    (repository / "a.py").write_bytes(b"one\r\ntwo\r\nthree")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "crlf")
    (repository / "a.py").write_bytes(b"one\r\ntwo\r\nTHREE")
    (repository / "b.py").write_text(TEN.replace("line2\n", "two\n"), encoding="utf-8")
    assert changed_lines(repository, "HEAD") == {"a.py": ((3, 3),), "b.py": ((2, 2),)}


def test_content_that_looks_like_a_header(repository: Path) -> None:
    commit(repository, a="-- a/x.py\n++ b/x.py\n@@ -1 +1 @@\n" + TEN)
    assert changed_lines(repository, "main") == {"a.py": ((1, 3),)}
    commit(repository, a=TEN)
    assert changed_lines(repository, "HEAD~1") == {}


def test_settings_of_the_user_do_not_matter(repository: Path) -> None:
    for setting in (
        ("diff.noprefix", "true"),
        ("diff.mnemonicPrefix", "true"),
        ("color.ui", "always"),
        ("diff.context", "5"),
        ("diff.external", "false"),
        ("core.quotePath", "true"),
        ("diff.renames", "false"),
        ("diff.relative", "true"),
    ):
        git(repository, "config", *setting)
    (repository / ".gitattributes").write_text("*.py -diff\n", encoding="utf-8")
    (repository / "é.py").write_text(TEN, encoding="utf-8")
    commit(repository, a=TEN.replace("line2\n", "two\n"))
    changed = changed_lines(repository, "main")
    assert changed["a.py"] == ((2, 2),)
    assert changed["é.py"] == ((1, 10),)


def test_inside_a_hook(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "inner").mkdir()
    commit(repository / "inner", x=TEN)
    monkeypatch.setenv("GIT_DIR", ".git")
    monkeypatch.setenv("GIT_INDEX_FILE", ".git/index")
    assert changed_lines(repository / "inner", "main") == {"x.py": ((1, 10),)}


def complaint(root: Path, rev: str) -> str:
    with pytest.raises(UserError) as caught:
        changed_lines(root, rev)
    message = str(caught.value)
    assert message.startswith("--diff-base")
    assert "\n" not in message
    return message


def test_unknown_revision(repository: Path) -> None:
    assert 'no revision "nowhere"' in complaint(repository, "nowhere")
    assert 'no revision "--all"' in complaint(repository, "--all")


def test_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert "is not in a git work tree" in complaint(tmp_path, "main")


def test_no_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert "no commit yet" in complaint(tmp_path, "HEAD")


def test_no_git(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    assert "needs git" in complaint(repository, "main")


def test_no_merge_base(repository: Path) -> None:
    git(repository, "checkout", "-q", "--orphan", "island")
    commit(repository, d=TEN)
    assert "have no common commit" in complaint(repository, "main")


def test_shallow_clone(repository: Path, tmp_path: Path) -> None:
    commit(repository, a="mine\n")
    git(repository, "checkout", "-q", "main")
    commit(repository, b="theirs\n")
    clone = tmp_path / "clone"
    url = repository.as_uri()
    git(tmp_path, "clone", "-q", "--depth=1", "--no-single-branch", "-b", "work", url, str(clone))
    assert "shallow clone" in complaint(clone, "origin/main")


def test_parse_hunks_of_nothing() -> None:
    assert parse_hunks(b"") == []


# -- the whole of what changed ---------------------------------------------------------------------


def test_what_came_what_went_and_what_moved(repository: Path) -> None:
    commit(repository, d="", e="x\n")
    git(repository, "mv", "a.py", "moved.py")
    git(repository, "mv", "d.py", "empty.py")
    git(repository, "rm", "-q", "b.py")
    (repository / "c.py").write_text(TEN.replace("line5\n", ""), encoding="utf-8")
    (repository / "new.py").write_text("x\n", encoding="utf-8")
    (repository / "staged.py").write_text("staged\n", encoding="utf-8")
    git(repository, "add", "staged.py")
    git(repository, "rm", "-q", "--cached", "e.py")  # still there, but git no longer follows it
    found = changes(repository, "HEAD")
    assert found.base == git(repository, "rev-parse", "HEAD").strip()
    assert found.before == {"moved.py": "a.py", "empty.py": "d.py", "c.py": "c.py"}
    assert found.new == {"new.py", "staged.py", "e.py"}
    assert found.gone == {"a.py", "b.py", "d.py"}
    assert found.lines == {"new.py": ALL, "staged.py": ((1, 1),), "e.py": ALL}
    # A line that went can be commented on by those around it.
    assert found.shown["c.py"] == ((2, 7),)
    assert found.shown["moved.py"] == ()


def test_lines_around_changed_ones_can_be_commented_on(repository: Path) -> None:
    git(repository, "config", "diff.suppressBlankEmpty", "true")
    text = TEN.replace("line4\n", "\n").replace("line6\n", "\n")
    commit(repository, a=text)
    commit(repository, a=text.replace("line5\n", "five\nsix\n"))
    found = changes(repository, "HEAD~1")
    assert found.lines == {"a.py": ((5, 6),)}
    assert found.shown["a.py"] == ((2, 9),)


def test_texts_of_a_commit(repository: Path) -> None:
    inner = repository / "inn er"
    inner.mkdir()
    commit(inner, x=TEN, ü="")
    (inner / "x.py").write_text("now\n", encoding="utf-8")
    assert changes(inner, "HEAD").prefix == "inn er/"
    assert changes(repository, "HEAD").prefix == ""
    found = texts_at(inner, "HEAD", ["x.py", "none.py", "ü.py", "x\ny.py", "../a.py"])
    assert found == {"x.py": TEN.encode(), "ü.py": b"", "../a.py": TEN.encode()}
    assert texts_at(repository, "HEAD", ["inn er", "a.py"]) == {"a.py": TEN.encode()}


LINES = st.lists(
    st.sampled_from(["a\n", "b\n", "\n", "+++ x\n", "-- y\n", "@@ -1 +1 @@\n", "\\ z\n"])
)


@settings(max_examples=25)
@given(LINES, LINES, st.booleans())
def test_what_did_not_change_was_there_before(old: list[str], new: list[str], ended: bool) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        git(folder, "init", "-q")
        end = "" if ended else "last"
        commit(folder, a="".join(old) + end)
        commit(folder, a="".join(new) + end)
        found = changes(folder, "HEAD~1")
    inside = {n for a, b in found.lines.get("a.py", ()) for n in range(a, b + 1)}
    shown = {n for a, b in found.shown.get("a.py", ()) for n in range(a, b + 1)}
    whole = [*new, *([end] if end else [])]
    assert inside <= shown <= set(range(1, len(whole) + 1))
    left = iter([*old, *([end] if end else [])])
    assert all(line in left for number, line in enumerate(whole, 1) if number not in inside)
