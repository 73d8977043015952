"""Read from git which lines changed since a revision."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from pytest_dispatchguard.git import complaint, run_git
from pytest_dispatchguard.model.errors import UserError

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""First and last line of each changed range, inclusive."""

ALL: Ranges = ((1, sys.maxsize),)
"""Every line: the file is not in git yet."""

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_CONTEXT = 3
"""Lines of context that code hosts show around changes, and accept comments on."""

_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPED = dict(zip(b"abtnvfr", b"\a\b\t\n\v\f\r", strict=True))


@dataclass(frozen=True, slots=True)
class FileDiff:
    """The changes in one file."""

    old: bytes | None
    """Its path before the change, from the top of the repository; None for a new file."""
    new: bytes | None
    """Its path now; None for a deleted file."""
    changed: Ranges = ()
    """Added and changed lines, by their numbers now."""
    shown: Ranges = ()
    """These and the context lines: all that a review can comment on."""
    same: Mapping[int, int] = field(default_factory=dict)
    """Line numbers now to line numbers before, of the context lines."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed below a folder since the merge base of a revision and HEAD. The working tree counts,
    staged or not, and so do untracked files as a whole."""

    base: str
    """The commit to compare with."""
    prefix: str
    """The folder's path from the top of the repository; empty, or ending with a slash."""
    lines: Mapping[str, Ranges]
    """Changed lines by path. Files without changes are left out."""
    shown: Mapping[str, Ranges]
    """Lines that a review can comment on, by path."""
    same: Mapping[str, Mapping[int, int]]
    """The unchanged ones among them, by path: line numbers now to line numbers before."""
    before: Mapping[str, str]
    """Path now to path before, of every existing file whose text or path changed."""
    new: frozenset[str]
    """Files that did not exist before."""
    gone: frozenset[str]
    """Deleted files."""


def changes(root: Path, rev: str, option: str = "--diff-base") -> Changes:
    """What changed below root, which may be a folder inside the repository. Paths are relative to it. Errors
    name the option that asked for this."""
    prefix = _ask(root, option, "rev-parse", "--show-prefix").removesuffix(b"\n")
    base = _merge_base(root, rev, option)
    diff = _ask(
        root,
        option,
        *("diff", f"--unified={_CONTEXT}", "--inter-hunk-context=0", "--no-color", "--no-ext-diff"),
        *("--no-textconv", "--text", "--find-renames", "--no-relative", "--ignore-submodules=all"),
        *("--src-prefix=a/", "--dst-prefix=b/", base, "--"),
    )

    def here(path: bytes | None) -> str | None:
        return (
            os.fsdecode(path[len(prefix) :])
            if path is not None and path.startswith(prefix)
            else None
        )

    lines: dict[str, Ranges] = {}
    shown: dict[str, Ranges] = {}
    same: dict[str, Mapping[int, int]] = {}
    before: dict[str, str] = {}
    new: set[str] = set()
    gone: set[str] = set()
    for file in parse_hunks(diff):
        now, then = here(file.new), here(file.old)
        if now is None:
            gone |= {then} if then is not None else set()
            continue
        if file.changed:
            lines[now] = file.changed
        shown[now] = file.shown
        same[now] = file.same
        if then is None:
            new.add(now)
        else:
            before[now] = then
            gone |= {then} - {now}
    untracked = _ask(root, option, "ls-files", "--others", "--exclude-standard", "-z")
    for path in filter(None, untracked.split(b"\0")):
        name = os.fsdecode(path)
        lines[name] = shown[name] = ALL
        # Files removed only from the index are still on disk.
        gone.discard(name)
        new.add(name)
    return Changes(
        base, os.fsdecode(prefix), lines, shown, same, before, frozenset(new), frozenset(gone)
    )


def changed_lines(root: Path, rev: str) -> Mapping[str, Ranges]:
    """Changed lines since the merge base of rev and HEAD, for each file below root."""
    return changes(root, rev).lines


def texts_at(root: Path, commit: str, paths: Iterable[str]) -> dict[str, bytes]:
    """The contents of files at a commit. Files that it does not contain are left out, and so are paths with
    a newline, which git cannot be asked for here."""
    wanted = [path for path in paths if "\n" not in path]
    # "./" makes paths relative to the folder that git runs in.
    asked = b"".join(f"{commit}:./".encode() + os.fsencode(path) + b"\n" for path in wanted)
    answer = run_git(root, "cat-file", "--batch", given=asked)
    if answer is None or answer.returncode:
        raise UserError(f"the files at {commit[:12]} cannot be read: {complaint(answer)}")
    found: dict[str, bytes] = {}
    left = answer.stdout
    for path in wanted:
        head, _, rest = left.partition(b"\n")
        words = head.split()
        if len(words) == 3 and words[1] == b"blob":
            size = int(words[2])
            found[path] = rest[:size]
            left = rest[size + 1 :]
        elif len(words) == 3 and words[2].isdigit():
            left = rest[int(words[2]) + 1 :]
        else:
            left = rest
    return found


def touches(changed: Mapping[str, Ranges], path: str, first: int, last: int) -> bool:
    """Whether a range of lines, inclusive, contains a changed line."""
    return any(first <= end and start <= last for start, end in changed.get(path, ()))


def carried(ranges: Ranges, before: str, after: str) -> Ranges:
    """Changed lines of a text after further changes, which count as changed too."""
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


def parse_hunks(diff: bytes) -> list[FileDiff]:
    """The changes of each file in git's diff output."""
    found: list[FileDiff] = []
    lines = iter(diff.split(b"\n"))
    for line in lines:
        if line.startswith(b"diff --git "):
            found.append(FileDiff(*_unnamed(line)))
        elif not found:
            continue
        elif line.startswith(b"rename from "):
            found[-1] = replace(found[-1], old=_path(line[12:]))
        elif line.startswith(b"rename to "):
            found[-1] = replace(found[-1], new=_path(line[10:]))
        elif line.startswith(b"--- "):
            found[-1] = replace(found[-1], old=_named(line[4:], b"a/"))
        elif line.startswith(b"+++ "):
            found[-1] = replace(found[-1], new=_named(line[4:], b"b/"))
        elif line.startswith(b"new file mode "):
            found[-1] = replace(found[-1], old=None)
        elif line.startswith(b"deleted file mode "):
            found[-1] = replace(found[-1], new=None)
        elif match := _HUNK.match(line):
            old, removed, new, added = (int(group) if group else 1 for group in match.groups())
            changed, same = _hunk(lines, (old, removed), (new, added))
            file = found[-1]
            shown = ((new, new + added - 1),) if added else ()
            found[-1] = replace(
                file,
                changed=(*file.changed, *changed),
                shown=(*file.shown, *shown),
                same={**file.same, **same},
            )
    return found


def _hunk(
    lines: Iterator[bytes], old: tuple[int, int], new: tuple[int, int]
) -> tuple[Ranges, dict[int, int]]:
    """The added lines of a hunk, and its context lines as numbers now to numbers before. Only the first
    character of a line decides: its content may look like a header, and an empty line may lack that
    character."""
    ranges: list[tuple[int, int]] = []
    same: dict[int, int] = {}
    then, now = old[0], new[0]
    old_end, new_end = then + old[1], now + new[1]
    while then < old_end or now < new_end:
        sign = next(lines, b"")[:1]
        if sign == b"\\":
            continue
        if sign == b"+":
            if ranges and ranges[-1][1] == now - 1:
                ranges[-1] = (ranges[-1][0], now)
            else:
                ranges.append((now, now))
        elif sign != b"-":
            same[now] = then
        now += sign != b"-"
        then += sign != b"+"
    return tuple(ranges), same


def _unnamed(line: bytes) -> tuple[bytes | None, bytes | None]:
    """The two paths of a diff's first line. They are the same where no other line names them: in an empty
    file, or one with only a new mode."""
    text = line[len(b"diff --git ") :]
    if text.startswith(b'"'):
        quoted = re.match(rb'"a/((?:[^"\\]|\\.)*)" ', text)
        path = _ESCAPE.sub(_unescape, quoted[1]) if quoted else None
        return path, path
    half = text[2 : (len(text) - 1) // 2]
    return (half, half) if text == b"a/" + half + b" b/" + half else (None, None)


def _path(text: bytes) -> bytes:
    if text.startswith(b'"'):
        return _ESCAPE.sub(_unescape, text.rstrip(b"\t")[1:-1])
    # git adds a tab after a path with a space.
    return text.removesuffix(b"\t")


def _named(text: bytes, prefix: bytes) -> bytes | None:
    path = _path(text)
    return path[len(prefix) :] if path.startswith(prefix) else None


def _unescape(match: re.Match[bytes]) -> bytes:
    escaped = match[1]
    byte = int(escaped, 8) if len(escaped) == 3 else _ESCAPED.get(escaped[0], escaped[0])
    return bytes([byte])


def _merge_base(root: Path, rev: str, option: str) -> str:
    for name in (rev, "HEAD"):
        commit = name + "^{commit}"
        verified = run_git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", commit)
        if verified is None or verified.returncode:
            if name == "HEAD":
                raise UserError(f"{option}: the repository has no commit yet; commit first")
            raise UserError(f'{option}: git knows no revision "{rev}"; fetch or correct it')
    found = run_git(root, "merge-base", "--end-of-options", rev, "HEAD")
    base = b"" if found is None else found.stdout.strip()
    if base:
        return base.decode("ascii")
    if _ask(root, option, "rev-parse", "--is-shallow-repository").strip() == b"true":
        raise UserError(
            f'{option}: this shallow clone does not contain the merge base of "{rev}" and HEAD; '
            "fetch more history (git fetch --unshallow)"
        )
    raise UserError(f'{option}: "{rev}" and HEAD have no common commit; name another revision')


def _ask(root: Path, option: str, *arguments: str) -> bytes:
    answer = run_git(root, *arguments)
    if answer is None:
        raise UserError(f"{option} needs git, which cannot be started; install it")
    if answer.returncode:
        said = complaint(answer)
        if "not a git repository" in said or "must be run in a work tree" in said:
            raise UserError(f"{option}: {root} is not in a git work tree; leave the option out")
        raise UserError(f"{option}: git {arguments[0]} failed: {said}")
    return answer.stdout
