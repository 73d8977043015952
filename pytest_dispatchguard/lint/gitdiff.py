"""What git knows of a project: which lines changed since a revision."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from pytest_dispatchguard.git import run_git
from pytest_dispatchguard.model import UserError

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""First and last line of each changed stretch, both included."""

ALL: Ranges = ((1, sys.maxsize),)
"""Every line: the file is new to git."""

_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")

_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPED = dict(zip(b"abtnvfr", b"\a\b\t\n\v\f\r", strict=True))


def changed_lines(root: Path, rev: str) -> dict[str, Ranges]:
    """Lines of each file under root changed since the merge base of rev and HEAD.

    The working tree counts, staged or not, and so do untracked files, whole. Paths are relative to
    root, which may be a folder inside the repository. Files without changed lines are left out.
    """
    prefix = _ask(root, "rev-parse", "--show-prefix").removesuffix(b"\n")
    base = _merge_base(root, rev)
    diff = _ask(
        root,
        *("diff", "--unified=0", "--inter-hunk-context=0", "--no-color", "--no-ext-diff"),
        *("--no-textconv", "--text", "--find-renames", "--no-relative", "--ignore-submodules=all"),
        *("--src-prefix=a/", "--dst-prefix=b/", base, "--"),
    )
    changed: dict[str, Ranges] = {}
    for path, ranges in parse_diff(diff).items():
        if ranges and path.startswith(prefix):
            changed[os.fsdecode(path[len(prefix) :])] = ranges
    untracked = _ask(root, "ls-files", "--others", "--exclude-standard", "-z")
    changed |= {os.fsdecode(path): ALL for path in untracked.split(b"\0") if path}
    return changed


def touches(changed: Mapping[str, Ranges], path: str, first: int, last: int) -> bool:
    """Whether a stretch of lines of a file, both ends included, holds a changed line."""
    return any(first <= end and start <= last for start, end in changed.get(path, ()))


def carried(ranges: Ranges, before: str, after: str) -> Ranges:
    """Changed lines of a text as they are after further changes, which count as changed too."""
    from difflib import SequenceMatcher  # takes milliseconds, which most runs need not spend

    out: list[tuple[int, int]] = []
    old, new = before.split("\n"), after.split("\n")
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new).get_opcodes():
        if tag == "equal":
            kept = ((max(first, i1 + 1), min(last, i2)) for first, last in ranges)
            out.extend((low - i1 + j1, high - i1 + j1) for low, high in kept if low <= high)
        elif j2 > j1:
            out.append((j1 + 1, j2))
    return tuple(out)


def parse_diff(diff: bytes) -> dict[bytes, Ranges]:
    """Changed lines, as numbered after the change, by path from the top of the repository."""
    changed: dict[bytes, list[tuple[int, int]]] = {}
    path: bytes | None = None
    lines = iter(diff.split(b"\n"))
    for line in lines:
        if line.startswith(b"diff --git "):
            path = None
        elif line.startswith(b"+++ "):
            path = _new_path(line[4:])
        elif match := _HUNK.match(line):
            removed, start, added = (int(group) if group else 1 for group in match.groups())
            if path is not None and added:
                changed.setdefault(path, []).append((start, start + added - 1))
            # Content is counted off, never looked at: a line of it may look like a header.
            for _ in range(removed + added):
                while next(lines, b"").startswith(b"\\"):
                    pass
    return {path: tuple(ranges) for path, ranges in changed.items()}


def _new_path(text: bytes) -> bytes | None:
    if text.startswith(b'"'):
        text = _ESCAPE.sub(_unescape, text.rstrip(b"\t")[1:-1])
    else:
        # git ends a path that holds a space with a tab.
        text = text.removesuffix(b"\t")
    return text[2:] if text.startswith(b"b/") else None


def _unescape(match: re.Match[bytes]) -> bytes:
    escaped = match[1]
    byte = int(escaped, 8) if len(escaped) == 3 else _ESCAPED.get(escaped[0], escaped[0])
    return bytes([byte])


def _merge_base(root: Path, rev: str) -> str:
    for name in (rev, "HEAD"):
        commit = name + "^{commit}"
        verified = run_git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", commit)
        if verified is None or verified.returncode:
            if name == "HEAD":
                raise UserError("--diff-base: the repository has no commit yet; commit first")
            raise UserError(f'--diff-base: git knows no revision "{rev}"; fetch or mend it')
    found = run_git(root, "merge-base", "--end-of-options", rev, "HEAD")
    base = b"" if found is None else found.stdout.strip()
    if base:
        return base.decode("ascii")
    if _ask(root, "rev-parse", "--is-shallow-repository").strip() == b"true":
        raise UserError(
            f'--diff-base: this shallow clone does not reach back to where "{rev}" and HEAD part; '
            "fetch more history (git fetch --unshallow)"
        )
    raise UserError(f'--diff-base: "{rev}" and HEAD have no common commit; name another revision')


def _ask(root: Path, *arguments: str) -> bytes:
    answer = run_git(root, *arguments)
    if answer is None:
        raise UserError("--diff-base needs git, which cannot be started here; install it")
    if answer.returncode:
        said = answer.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        if "not a git repository" in said or "must be run in a work tree" in said:
            raise UserError(f"--diff-base: {root} is not in a git work tree; leave the option out")
        raise UserError(f"--diff-base: git {arguments[0]} failed: {said or answer.returncode}")
    return answer.stdout
