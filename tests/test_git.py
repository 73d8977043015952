"""Whoever has git look at a repository runs nothing that the repository configures: each way that git has is
planted in a real one, with a command that leaves a mark."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import pytest_dispatchguard
from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.history.checkouts import checkout_of
from pytest_dispatchguard.history.search import git as asked_by_bisect
from pytest_dispatchguard.lint.sources.files import discover
from pytest_dispatchguard.lint.sources.git_diff import changes, texts_at
from pytest_dispatchguard.measure.revisions.checkout import Revision
from pytest_dispatchguard.model.errors import UserError

MINE = {
    **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
    **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


def git(folder: Path, *words: str, check: bool = True, given: str | None = None) -> str:
    """Git as anybody asks it: with all that is configured."""
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *words],
        cwd=folder,
        env=MINE,
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        text=True,
        check=check,
        timeout=60,
    )
    return done.stdout


class Planted:
    """A repository with two commits, a changed file, and a command that leaves a mark."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "repo"
        self.mark = folder / "mark"
        self.evil = folder / "evil.sh"
        self.evil.write_text(
            f'#!/bin/sh\necho "$0 $*" >> "{self.mark}"\n[ "$1" = git-upload-pack ] || cat\nexit 0\n'
        )
        self.evil.chmod(0o755)
        self.top.mkdir()
        git(self.top, "init", "-q", "-b", "main")
        self.commit("x = 1\n")
        self.commit("x = 2\n")

    def commit(self, text: str, *more: str) -> None:
        (self.top / "a.py").write_text(text)
        git(self.top, "add", "-A")
        git(self.top, "commit", "-qm", "c", *more)

    def set(self, name: str, value: object = None) -> None:
        git(self.top, "config", name, str(self.evil if value is None else value))

    def attribute(self, text: str) -> None:
        (self.top / ".gitattributes").write_text(f"*.py {text}\n")
        self.commit("x = 3\n")

    def hooks(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True, parents=True)
        names = (
            "post-checkout post-index-change reference-transaction post-commit fsmonitor-watchman"
        )
        for name in names.split():
            shutil.copy(self.evil, folder / name)


def clean(at: Planted, name: str = "x") -> None:
    at.attribute(f"filter={name}")
    for key in ("clean", "smudge"):
        at.set(f"filter.{name}.{key}")
    at.set(f"filter.{name}.required", "true")


def process(at: Planted) -> None:
    at.attribute("filter=x")
    at.set("filter.x.process")


def lfs(at: Planted) -> None:
    """As git-lfs sets itself up."""
    at.attribute("filter=lfs diff=lfs merge=lfs -text")
    for key in ("clean", "smudge", "process"):
        at.set(f"filter.lfs.{key}", f"{at.evil} {key} %f")
    at.set("filter.lfs.required", "true")


def included(at: Planted) -> None:
    at.attribute("filter=x")
    more = at.top.parent / "more.config"
    more.write_text(f'[filter "x"]\nclean = {at.evil}\nsmudge = {at.evil}\n')
    at.set("include.path", more)


def included_for_worktrees(at: Planted) -> None:
    """What only the worktree sees that a revision is checked out into."""
    at.attribute("filter=x")
    more = at.top.parent / "more.config"
    more.write_text(f'[filter "x"]\nclean = {at.evil}\nsmudge = {at.evil}\n')
    at.set("includeIf.gitdir:**/worktrees/**.path", more)


def own_attributes(at: Planted) -> None:
    """Attributes that no commit holds."""
    at.set("filter.x.clean")
    at.set("filter.x.smudge")
    (at.top / ".git/info").mkdir(exist_ok=True)
    (at.top / ".git/info/attributes").write_text("* filter=x\n")


def textconv(at: Planted) -> None:
    at.attribute("diff=x")
    at.set("diff.x.textconv")
    at.set("diff.x.cachetextconv", "true")


def external_diff(at: Planted) -> None:
    at.attribute("diff=x")
    at.set("diff.x.command")
    at.set("diff.external")


def fsmonitor(at: Planted) -> None:
    at.set("core.fsmonitor")
    at.set("core.fsmonitorHookVersion", "1")
    at.set("core.untrackedCache", "true")


def hooks(at: Planted) -> None:
    at.hooks(at.top / ".git/hooks")


def hooks_path(at: Planted) -> None:
    at.hooks(at.top.parent / "hooks")
    at.set("core.hooksPath", at.top.parent / "hooks")


def configured_hooks(at: Planted) -> None:
    """As git 2.54 and newer know them."""
    for event in ("post-checkout", "reference-transaction", "post-index-change"):
        at.set(f"hook.{event}-x.event", event)
        at.set(f"hook.{event}-x.command")


def programs(at: Planted) -> None:
    """What git starts for people, and aliases of the commands that we use."""
    for name in (
        "core.pager",
        "core.editor",
        "sequence.editor",
        "core.askPass",
        "credential.helper",
    ):
        at.set(name)
    for name in "diff status log show worktree bisect checkout ls-files rev-parse config".split():
        at.set(f"pager.{name}")
        at.set(f"alias.{name}", f"!{at.evil}")
    at.set("interactive.diffFilter")


def signed(at: Planted) -> None:
    """A commit that says that it is signed."""
    at.set("log.showSignature", "true")
    for name in ("gpg.program", "gpg.ssh.program", "gpg.x509.program"):
        at.set(name)
    raw = git(at.top, "cat-file", "commit", "HEAD").split("\n\n", 1)
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n aaaa\n -----END PGP SIGNATURE-----"
    text = f"{raw[0]}\n{signature}\n\n{raw[1]}"
    name = git(at.top, "hash-object", "-t", "commit", "-w", "--stdin", given=text)
    git(at.top, "reset", "-q", "--hard", name.strip())


def partial_clone(at: Planted) -> None:
    """A repository that lacks what it would fetch by a command."""
    source = at.top.rename(at.top.parent / "source")
    git(source, "config", "uploadpack.allowFilter", "true")
    git(at.top.parent, "clone", "-q", "--filter=blob:none", source.as_uri(), str(at.top))
    at.set("remote.origin.url", f"ext::{at.evil} %S")
    at.set("protocol.ext.allow", "always")
    at.set("remote.origin.vcs", "ext")
    at.set("core.gitProxy")
    at.set("core.sshCommand")
    at.set("remote.origin.uploadpack")


def submodule(at: Planted) -> None:
    """A repository inside, with a configuration of its own."""
    other = at.top.parent / "other"
    other.mkdir()
    git(other, "init", "-q", "-b", "main")
    (other / "b.py").write_text("b\n")
    (other / ".gitattributes").write_text("* filter=x\n")
    git(other, "add", "-A")
    git(other, "commit", "-qm", "b")
    git(at.top, "submodule", "--quiet", "add", str(other), "sub")
    at.commit("x = 4\n")
    for name in ("filter.x.clean", "filter.x.smudge", "core.fsmonitor"):
        git(at.top / "sub", "config", name, str(at.evil))
    at.set("submodule.recurse", "true")
    at.set("diff.ignoreSubmodules", "none")
    at.set("status.submoduleSummary", "true")
    at.set("diff.submodule", "diff")
    (at.top / "sub/b.py").write_text("c\n")


def bare_inside(at: Planted) -> None:
    """A folder of the work tree that looks like a bare repository."""
    inner = at.top / "inner"
    git(at.top, "init", "-q", "--bare", str(inner))
    git(inner, "config", "core.fsmonitor", str(at.evil))
    git(inner, "config", "core.bare", "false")
    git(inner, "config", "core.worktree", str(at.top))


def clean_by_an_odd_name(at: Planted) -> None:
    clean(at, "a.b.c")


PLANTS = [
    clean,
    clean_by_an_odd_name,
    process,
    lfs,
    included,
    included_for_worktrees,
    own_attributes,
    textconv,
    external_diff,
    fsmonitor,
    hooks,
    hooks_path,
    configured_hooks,
    programs,
    signed,
    partial_clone,
    submodule,
    bare_inside,
]


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path)


def ask_all(at: Planted) -> list[str]:
    """Asks all that the package has to ask of git; what fails is told."""
    failed: list[str] = []

    def ask(what: Callable[[], object]) -> None:
        try:
            what()
        except UserError as error:
            failed.append(str(error))

    def checked_out() -> None:
        revision = Revision(at.top, "HEAD")
        try:
            assert (revision.tree / "a.py").is_file()
            asked_by_bisect(revision.tree, "checkout", "--quiet", "--detach", "main~1")
            asked_by_bisect(revision.tree, "rev-list", "--bisect-all", "main", "^main~1")
            asked_by_bisect(revision.tree, "show", "--no-patch", "--format=%an%n%as%n%s", "main")
        finally:
            revision.remove()

    ask(lambda: discover((), Config(root=at.top), cwd=at.top))
    ask(lambda: changes(at.top, "HEAD~1"))
    ask(lambda: changes(at.top / "inner", "HEAD~1") if (at.top / "inner").is_dir() else None)
    ask(lambda: texts_at(at.top, "HEAD~1", ["a.py"]))
    ask(lambda: checkout_of(at.top))
    ask(checked_out)
    return failed


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_nothing_that_a_repository_configures_is_run(
    planted: Planted, plant: Callable[[Planted], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in MINE.items():
        monkeypatch.setenv(key, value)
    plant(planted)
    (planted.top / "a.py").write_text("x = 5\n")
    os.utime(planted.top / "a.py", (1, 1))
    planted.mark.unlink(missing_ok=True)
    failed = ask_all(planted)
    assert not planted.mark.exists(), planted.mark.read_text()
    lacking = "this is a partial clone, and missing objects are not fetched; clone without --filter"
    if plant is partial_clone:
        assert failed and all(lacking in said for said in failed)
    else:
        assert failed == ([] if plant is not bare_inside else failed[:1])


ALIVE = [p for p in PLANTS if p not in (configured_hooks, programs)]


@pytest.mark.parametrize("plant", ALIVE, ids=lambda plant: plant.__name__)
def test_what_is_planted_is_run_by_git_itself(
    planted: Planted, plant: Callable[[Planted], None]
) -> None:
    """Else the test above would hold nothing."""
    plant(planted)
    (planted.top / "a.py").write_text("x = 5\n")
    planted.mark.unlink(missing_ok=True)
    inside = planted.top / "inner" if plant is bare_inside else planted.top
    for words in (
        "status",
        "diff HEAD~1",
        "show HEAD",
        "checkout -q --detach",
        "cat-file -p HEAD~1:a.py",
    ):
        git(inside, *words.split(), check=False)
    git(planted.top, "worktree", "add", "-q", str(planted.top.parent / "w"), "HEAD", check=False)
    assert planted.mark.exists()


def test_a_filter_that_cannot_be_turned_off_ends_it(planted: Planted) -> None:
    """The command line has a setting's name end at its first equals sign."""
    (planted.top / ".gitattributes").write_text("*.py filter=a=b\n")
    with (planted.top / ".git/config").open("a") as file:
        file.write(f'[filter "a=b"]\nclean = {planted.evil}\n')
    (planted.top / "a.py").write_text("x = 5\n")
    with pytest.raises(UserError, match="cannot be turned off; rename it"):
        changes(planted.top, "HEAD~1")
    assert not planted.mark.exists()


def test_line_ends_are_no_filters(planted: Planted) -> None:
    """They are git's own work: what only they tell apart is no change."""
    planted.set("core.autocrlf", "true")
    (planted.top / "a.py").unlink()
    git(planted.top, "checkout", "a.py")
    assert (planted.top / "a.py").read_bytes() == b"x = 2\r\n"
    os.utime(planted.top / "a.py", (1, 1))
    assert changes(planted.top, "HEAD").lines == {}
    assert checkout_of(planted.top).dirty is False
    (planted.top / "a.py").write_bytes(b"x = 2\r\ny = 1\r\n")
    assert changes(planted.top, "HEAD").lines == {"a.py": ((2, 2),)}


def test_what_a_filter_changes_is_told_as_changed(planted: Planted) -> None:
    """The work tree is held against what git has stored, as both are."""
    planted.attribute("filter=x")
    planted.set("filter.x.clean", "sed s/9/3/")
    (planted.top / "a.py").write_text("x = 9\n")
    os.utime(planted.top / "a.py", (1, 1))
    git(planted.top, "add", "a.py")
    assert git(planted.top, "status", "--porcelain") == ""
    assert changes(planted.top, "HEAD").lines == {}  # git knows the file's date, and does not look
    os.utime(planted.top / "a.py", (2, 2))
    assert changes(planted.top, "HEAD").lines == {"a.py": ((1, 1),)}


def test_a_submodule_at_another_commit_is_a_change(planted: Planted) -> None:
    submodule(planted)
    assert checkout_of(planted.top).dirty is False
    git(planted.top / "sub", "-c", "filter.x.clean=cat", "commit", "-aqm", "c")
    assert checkout_of(planted.top).dirty is True


def test_git_is_started_in_one_place() -> None:
    """A command line that begins with git is written there alone."""
    package = Path(pytest_dispatchguard.__file__).parent
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.List | ast.Tuple)
        and node.elts
        and isinstance(node.elts[0], ast.Constant)
        and node.elts[0].value == "git"
    }
    assert found == {"git.py"}
