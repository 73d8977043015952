"""A scratch copy of a project, in which patches are tried: a git repository of its own, in a temporary
folder, whose only commit is the project as it is now, with what is not committed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pytest_dispatchguard.agents.parameters import shown, within
from pytest_dispatchguard.agents.workplace import Call
from pytest_dispatchguard.config.project_root import ALWAYS_EXCLUDED
from pytest_dispatchguard.git import complaint, run_git
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.project_folder import FOLDER
from pytest_dispatchguard.visible import one_line

MOST_FILES = 20_000
MOST_BYTES = 500_000_000
_OURS = ("profile.json", "prices.json")
"""What decides hotness and prices, and is in no commit."""
_BUILT = ("*.so", "*.pyd", "*.dylib")
"""Extensions that were built in place: git ignores them, and the project cannot be imported without."""
_WHO = (
    *("-c", "user.name=dispatchguard", "-c", "user.email=dispatchguard@localhost"),
    *("-c", "commit.gpgsign=false"),
)
_FILES_OF_A_LOOK = 500
"""Files that are copied between two looks at whether the call must end."""


@dataclass(frozen=True, slots=True)
class Change:
    """A file that a patch changes."""

    rel: str
    gone: bool


@dataclass(frozen=True, slots=True)
class Scratch:
    """The copy."""

    origin: Path
    tree: Path
    stamps: dict[str, tuple[int, int]]
    """Of the files when they were copied: size and time of the last change."""


@contextmanager
def scratch(origin: Path, call: Call) -> Iterator[Scratch]:
    """A copy of a project, until it is no longer needed."""
    folder = Path(tempfile.mkdtemp(prefix="dispatchguard-agent-")).resolve()
    try:
        tree = folder / (origin.name or "project")
        tree.mkdir()
        made = Scratch(origin, tree, {})
        _copy(made, call)
        _commit(tree)
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy(made: Scratch, call: Call) -> None:
    size = 0
    for number, rel in enumerate(_files(made.origin)):
        if number >= MOST_FILES or size > MOST_BYTES:
            raise UserError(
                f"the project is too large to copy (more than {MOST_FILES} files or "
                f"{MOST_BYTES // 10**6} MB): start the server in a part of it, with --project"
            )
        if number % _FILES_OF_A_LOOK == 0:
            call.check()
        size += _copy_file(made, rel)


def _copy_file(made: Scratch, rel: str) -> int:
    source, target = made.origin / rel, made.tree / rel
    try:
        if not within(made.origin, source) or not source.exists():
            return 0  # links that lead out, what is gone
        if source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            there = made.tree / source.resolve().relative_to(made.origin)
            target.symlink_to(os.path.relpath(there, target.parent))
            return 0
        if not source.is_file():
            return 0  # submodules
        target.parent.mkdir(parents=True, exist_ok=True)
        status = source.stat()
        made.stamps[rel] = status.st_size, status.st_mtime_ns
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
    except OSError as error:
        raise UserError(f"{rel}: cannot be copied: {error.strerror or error}") from None
    return status.st_size


def _files(root: Path) -> list[str]:
    """The files that make up a project: those that git knows or would add, else all but caches and
    environments."""
    listed = run_git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    found = _names(listed.stdout) if listed is not None and not listed.returncode else []
    if found:
        built = run_git(root, "ls-files", "--others", "-z", "--", *_BUILT)
        found += _names(built.stdout) if built is not None else []
    else:
        found = list(_walked(root))
    found += [f"{FOLDER}/{name}" for name in _OURS if (root / FOLDER / name).is_file()]
    return sorted(rel for rel in set(found) if not _is_left_out(rel))


def _names(listed: bytes) -> list[str]:
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]


def _is_left_out(rel: str) -> bool:
    parts = rel.split("/")
    return any(p in (".git", ".venv", "site-packages", "node_modules") for p in parts)


def _walked(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        kept = [f for f in folders if f not in ALWAYS_EXCLUDED and not f.endswith(".egg-info")]
        folders[:] = [f for f in kept if not (Path(folder) / f / "pyvenv.cfg").exists()]
        yield from ((Path(folder) / file).relative_to(root).as_posix() for file in files)


def _commit(tree: Path) -> None:
    _asked(tree, "init", "--quiet")
    # Texts must not depend on the platform: what is compared is what was copied.
    _asked(tree, "config", "core.autocrlf", "false")
    _asked(tree, "add", "--force", "--all", ".")
    _asked(tree, *_WHO, "commit", "--quiet", "--allow-empty", "--no-verify", "-m", "as it was")


def _asked(tree: Path, *words: str, given: bytes | None = None) -> bytes:
    answer = run_git(tree, *words, given=given)
    if answer is None or answer.returncode:
        raise UserError(f"the project cannot be copied for a trial: {complaint(answer)}")
    return answer.stdout


def apply(made: Scratch, diff: str) -> list[Change]:
    """Apply a unified diff in the copy, all of it or nothing; the files that it changes. Hunks whose counts
    are wrong are taken by their lines."""
    text = diff if diff.endswith("\n") else f"{diff}\n"
    data = text.encode("utf-8", "surrogateescape")
    said = _apply(made.tree, data)
    if said and _apply(made.tree, data, "--recount"):
        raise UserError(f"the diff does not apply to the project as it is: {said}")
    _asked(made.tree, "add", "--force", "--all", ".")
    listed = _asked(
        made.tree,
        "diff",
        "--cached",
        "--name-status",
        "--no-renames",
        "--no-ext-diff",
        "-z",
        "HEAD",
    )
    words = _names(listed)
    changes = [
        Change(rel, state == "D") for state, rel in zip(words[::2], words[1::2], strict=True)
    ]
    if not changes:
        raise UserError("the diff changes nothing")
    for change in changes:
        if (made.tree / change.rel).is_symlink():
            raise UserError(f"the diff makes a link of {shown(change.rel)}, which is refused")
        if not within(made.origin, made.origin / change.rel):
            raise UserError(
                f"the diff writes through a link, {shown(change.rel)}, which is refused"
            )
    return changes


def _apply(tree: Path, data: bytes, *more: str) -> str:
    """Why a diff does not apply; empty if it was applied."""
    answer = run_git(tree, "apply", "--whitespace=nowarn", *more, "-", given=data)
    if answer is not None and not answer.returncode:
        return ""
    lines = [] if answer is None else answer.stderr.decode("utf-8", "replace").splitlines()
    told = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return one_line("; ".join(told[:2]) or complaint(answer))


def write_back(made: Scratch, changes: list[Change]) -> None:
    """Write what a patch changed in the copy to the project itself, each file whole. Where a file is not as
    it was when it was copied, nothing is written."""
    from pytest_dispatchguard.lint.sources.files import write_source

    for change in changes:
        target = made.origin / change.rel
        if target.is_symlink() or not within(made.origin, target):
            raise UserError(f"{change.rel}: a link, which is not written through")
        if _stamp(target) != made.stamps.get(change.rel):
            raise UserError(f"{change.rel}: changed meanwhile, so nothing was written; try again")
    for change in changes:
        target = made.origin / change.rel
        try:
            if change.gone:
                target.unlink()
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            write_source(target, (made.tree / change.rel).read_bytes())
        except OSError as error:
            raise UserError(f"{change.rel}: cannot be written: {error.strerror or error}") from None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
