"""The baseline: findings a project has accepted, in a file made for review and for git."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pytest_dispatchguard.config.config import UNPARSABLE
from pytest_dispatchguard.lint.sources.files import write_source
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.findings import Finding

SCHEMA = 1
SHOWN = 120
"""Characters of a line that an entry shows; its hash covers the whole line."""

# How a baseline begins, also one that a merge or an edit has broken.
_OURS = re.compile(rb'\s*(?:<{7}[^\n]*\n\s*)?\{\s*"tool"\s*:\s*"dispatchguard"')


class _ReplaceableError(UserError):
    """No baseline can be read, and a new one in its place would destroy nothing of anybody else's."""


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """Findings alike in all but their lines."""

    path: str
    code: str
    function: str
    text: str
    """The line, blanks evened out, cut to SHOWN characters."""
    hash: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Baseline:
    """All accepted findings."""

    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """Findings held against a baseline."""

    new: tuple[Finding, ...]
    matched: tuple[Finding, ...]
    stale: tuple[Entry, ...]
    """Entries that no longer match, each with the count of what is gone."""


def load(path: Path) -> Baseline:
    """Read a baseline file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"{path}: not a file; name another")
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise _ReplaceableError(
            f"{path}: no such baseline; create it with --write-baseline"
        ) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        if content.strip() and not _OURS.match(content):
            raise UserError(
                f"{path}: not a dispatchguard baseline: not valid JSON{where}; name another file"
            ) from None
        raise _ReplaceableError(
            f"{path}: not valid JSON{where}; repair it, or write it again with --write-baseline"
        ) from None
    if not isinstance(data, dict) or data.get("tool") != "dispatchguard":
        raise UserError(f"{path}: not a dispatchguard baseline; name another file")
    schema = data.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise UserError(
            f"{path}: baseline schema {schema}, this version reads {SCHEMA}; update dispatchguard"
        )
    if schema != SCHEMA:
        raise _ReplaceableError(
            f"{path}: baseline schema {schema!r}, this version reads {SCHEMA}; write it again with "
            "--write-baseline"
        )
    entries = data.get("entries")
    if not isinstance(entries, list):
        raise _ReplaceableError(
            f"{path}: baseline without entries; write it again with --write-baseline"
        )
    return Baseline(tuple(_entry(item, path, number) for number, item in enumerate(entries, 1)))


def standing(path: Path) -> Baseline:
    """The baseline that a new one takes the place of: empty where there is none or a broken one. A file
    that is something else is refused, so that it is not written over."""
    try:
        return load(path)
    except _ReplaceableError:
        return Baseline()


def match(
    findings: Iterable[Finding],
    baseline: Baseline,
    *,
    checked: Collection[str],
    ran: Collection[str] | None = None,
    root: Path | None = None,
) -> Match:
    """Tell new findings from accepted ones, and name the entries that nothing matches any more.

    A finding keeps its entry when lines move and when its function is renamed. Of more findings
    alike than an entry counts, the last in the file are new. An entry can be stale only when its
    path was ``checked`` (or is gone from ``root``) and its code is among those that ``ran``. That
    something cannot be read is never accepted: it would hide all else there is.
    """
    left: Counter[tuple[str, str, str, str]] = Counter()
    for entry in baseline.entries:
        left[entry.path, entry.code, entry.hash, entry.function] += entry.count
    matched: set[int] = set()
    ordered = sorted(findings, key=lambda finding: finding.sort_key)
    keys = [_key(finding) for finding in ordered]
    for number, key in enumerate(keys):
        if left[key] > 0 and ordered[number].code != UNPARSABLE:
            left[key] -= 1
            matched.add(number)
    # What is left over may be the same finding in a function with a new name.
    renamed: dict[tuple[str, str, str], list[tuple[str, str, str, str]]] = {}
    for key, count in left.items():
        renamed.setdefault(key[:3], []).extend([key] * count)
    for number, key in enumerate(keys):
        if number in matched or ordered[number].code == UNPARSABLE:
            continue
        if renamed.get(key[:3]):
            left[renamed[key[:3]].pop(0)] -= 1
            matched.add(number)
    stale = []
    for entry in baseline.entries:
        key = (entry.path, entry.code, entry.hash, entry.function)
        gone = min(left[key], entry.count)
        if gone <= 0 or (ran is not None and entry.code not in ran):
            continue
        if entry.path in checked or (root is not None and _gone(root / entry.path)):
            left[key] -= gone
            stale.append(replace(entry, count=gone))
    return Match(
        new=tuple(f for number, f in enumerate(ordered) if number not in matched),
        matched=tuple(f for number, f in enumerate(ordered) if number in matched),
        stale=tuple(stale),
    )


def from_findings(findings: Collection[Finding]) -> Baseline:
    """The baseline that accepts these findings, save those of what cannot be read."""
    acceptable = [finding for finding in findings if finding.code != UNPARSABLE]
    counts = Counter(_key(finding) for finding in acceptable)
    shown = {_key(finding): _even(finding.source)[:SHOWN] for finding in acceptable}
    return Baseline(
        tuple(
            sorted(
                Entry(path, code, function, shown[path, code, digest, function], digest, count)
                for (path, code, digest, function), count in counts.items()
            )
        )
    )


def renewed(
    old: Baseline,
    told: Collection[Finding],
    untold: Collection[Finding],
    *,
    checked: Collection[str],
    ran: Collection[str],
    root: Path,
) -> Baseline:
    """The baseline that accepts what a run ``told``, and goes on accepting what it did not look at, or did
    not tell."""
    accepted = set(match([*told, *untold], old, checked=()).matched)
    made = from_findings([*told, *(f for f in untold if f in accepted)])
    counts = {replace(entry, count=0): entry.count for entry in made.entries}
    for entry in old.entries:
        elsewhere = entry.path not in checked and not _gone(root / entry.path)
        if (elsewhere or entry.code not in ran) and entry.code != UNPARSABLE:
            # A file that was read in part has some of its findings in both.
            key = replace(entry, count=0)
            counts[key] = max(counts.get(key, 0), entry.count)
    return Baseline(tuple(sorted(replace(entry, count=n) for entry, n in counts.items())))


def _gone(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return True
    except OSError:
        return False
    return False


def pruned(baseline: Baseline, stale: Iterable[Entry]) -> Baseline:
    """The baseline less what is stale."""
    gone = Counter[Entry]()
    for entry in stale:
        gone[replace(entry, count=0)] += entry.count
    kept = []
    for entry in baseline.entries:
        less = min(gone[replace(entry, count=0)], entry.count)
        gone[replace(entry, count=0)] -= less
        if entry.count > less:
            kept.append(replace(entry, count=entry.count - less))
    return Baseline(tuple(kept))


def write(path: Path, baseline: Baseline) -> None:
    """Write a baseline file, whole or not at all: sorted, one entry a line."""
    lines = [
        json.dumps(
            {
                "path": entry.path,
                "code": entry.code,
                "function": entry.function,
                "count": entry.count,
                "text": entry.text,
                "hash": entry.hash,
            },
            # Text is for readers, save what no encoding can hold: undecodable file names.
            ensure_ascii=not _encodable(entry),
        )
        for entry in sorted(baseline.entries)
    ]
    body = "[\n" + ",\n".join(f"    {line}" for line in lines) + "\n  ]" if lines else "[]"
    text = f'{{\n  "tool": "dispatchguard",\n  "schema": {SCHEMA},\n  "entries": {body}\n}}\n'
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None
    write_source(path, text.encode())


def _even(source: str) -> str:
    return " ".join(source.split())


@lru_cache(maxsize=256)
def _digest(source: str) -> str:
    # A long line may have thousands of findings.
    return hashlib.sha256(_even(source).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _key(finding: Finding) -> tuple[str, str, str, str]:
    return finding.path, finding.code, _digest(finding.source), finding.function


def _encodable(entry: Entry) -> bool:
    try:
        f"{entry.path}{entry.function}{entry.text}".encode()
    except UnicodeEncodeError:
        return False
    return True


def _entry(item: Any, path: Path, number: int) -> Entry:
    if isinstance(item, dict):
        fields = ("path", "code", "function", "text", "hash")
        words = {key: item[key] for key in fields if isinstance(item.get(key), str)}
        count = item.get("count")
        if len(words) == len(fields) and type(count) is int and count > 0:
            return Entry(**words, count=count)
    raise _ReplaceableError(
        f"{path}: entry {number} is not a baseline entry; remove it, or write the file again with "
        "--write-baseline"
    )
