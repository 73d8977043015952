"""Turns unified diffs into the files that they change."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pytest_dispatchguard.git import run_git
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.verify.scratch import Copy, Scratch

_APPLY = ("apply", "--whitespace=nowarn")


def applied(
    scratch: Scratch, copy: Copy, patch: bytes, folders: Sequence[Path]
) -> dict[str, bytes | None]:
    """Applies a diff to a copy, and gives the files it changes. Its paths are relative to the first of the
    folders of the work tree where it applies. Raises `UserError` if it applies to none, or makes links."""
    if not patch.strip():
        raise UserError("it is empty")
    patch = patch if patch.endswith(b"\n") else patch + b"\n"
    said = ""
    for folder in dict.fromkeys(folders):
        where = Path(copy.moved(str(folder)))
        if not where.is_dir():
            continue
        # Hunks whose counts are wrong, as of those that are written by hand, are taken by their lines.
        for apply in (_APPLY, (*_APPLY, "--recount")):
            # The folder above is no part of a repository, whatever is above that.
            tried = run_git(where, *apply, "--check", "-", given=patch, ceiling=scratch.folder)
            if tried is None:
                raise UserError("git is needed, and cannot be started; install it")
            if tried.returncode == 0:
                before = _states(copy.tree)
                run_git(where, *apply, "-", given=patch, ceiling=scratch.folder)
                return _changed(scratch, copy, before)
            said = said or os.fsdecode(tried.stderr).strip().partition("\n")[0]
    raise UserError(f"it does not apply: {said.removeprefix('error: ')}")


_State = tuple[int, int, int]


def _states(tree: Path) -> dict[str, _State]:
    """What shows that a file has changed."""
    found: dict[str, _State] = {}
    for folder, folders, names in os.walk(tree):
        linked = [name for name in folders if Path(folder, name).is_symlink()]
        for name in (*names, *linked):
            path = Path(folder, name)
            state = path.lstat()
            found[path.relative_to(tree).as_posix()] = (
                state.st_ino,
                state.st_size,
                state.st_mtime_ns,
            )
    return found


def _changed(scratch: Scratch, copy: Copy, before: dict[str, _State]) -> dict[str, bytes | None]:
    after = _states(copy.tree)
    paths = sorted(p for p in {*before, *after} if before.get(p) != after.get(p))
    paths = [p for p in paths if not p.startswith(".git/") and "__pycache__" not in p]
    links = [path for path in paths if (copy.tree / path).is_symlink()]
    if links:
        scratch.restore(copy, paths)
        raise UserError(f"it makes a link, {links[0]}; make that by hand")
    outside = [path for path in paths if not scratch.is_inside(path)]
    if outside:
        scratch.restore(copy, paths)
        raise UserError(f"it writes through a link, {outside[0]}; do that by hand")
    for path in paths:
        if path in after:
            scratch.stamp(copy.tree / path)
    if not paths:
        raise UserError("it changes nothing")
    return {path: copy.read(path) for path in paths}
