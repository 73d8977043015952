"""Makes the fixes of one file, as many as fit together; what overlaps waits for the next pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from pytest_dispatchguard.edits import apply_edits
from pytest_dispatchguard.model.findings import Edit, Finding, Safety


@dataclass(frozen=True, slots=True)
class Fixed:
    """A file's text after one pass, and the findings whose fixes are in it."""

    text: str
    made: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """The fixes of one pass in one file."""

    path: str
    before: str
    made: tuple[Finding, ...]
    """In reading order; their edits are those of the text before."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """Files after all passes: only those that changed."""

    before: Mapping[str, str]
    after: Mapping[str, str]
    counts: Mapping[str, int]
    """How many fixes were made in each."""
    rounds: tuple[Round, ...] = ()
    """The same fix by fix: by file, and in each in the order of passes."""


_PASSES = 20
_LONE = re.compile(r"(?<!\r)\n")


def repair(
    findings: Iterable[Finding],
    read: Callable[[str], str | None],
    again: Callable[[Mapping[str, str]], Iterable[Finding]],
    safeties: Collection[Safety],
) -> Repaired:
    """Makes fixes in passes until nothing is left to fix: edits that overlap take turns. `again` gives what
    is found where the texts it is given stand in place of those that are read."""
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    counts: dict[str, int] = {}
    rounds: list[Round] = []
    for _ in range(_PASSES):
        by_file: dict[str, list[Finding]] = {}
        for finding in findings:
            if finding.fix is not None and finding.fix.safety in safeties:
                by_file.setdefault(finding.path, []).append(finding)
        made = False
        for rel, found in by_file.items():
            text = after.get(rel)
            if text is None:
                text = read(rel)
            if text is None:
                continue
            done = fix(text, found, safeties)
            if done.made and done.text != text:
                before.setdefault(rel, text)
                rounds.append(Round(rel, text, done.made))
                after[rel] = done.text
                counts[rel] = counts.get(rel, 0) + len(done.made)
                made = True
        if not made:
            break
        findings = again(after)
    for rel in [rel for rel in after if after[rel] == before[rel]]:
        del after[rel], before[rel], counts[rel]
    kept = sorted((one for one in rounds if one.path in after), key=lambda one: one.path)
    return Repaired(before, after, counts, tuple(kept))


def fix(text: str, findings: Iterable[Finding], safeties: Collection[Safety]) -> Fixed:
    """Applies fixes in reading order. A fix is made whole or not at all; one that touches what an
    earlier one changed is left for the next pass; one that would break the file is not made."""
    wanted = [f for f in findings if f.fix is not None and f.fix.safety in safeties]
    wanted.sort(key=lambda f: f.sort_key)
    made, edits = _compatible(wanted)
    if not made:
        return Fixed(text, ())
    after = _applied(text, edits)
    if after is not None:
        return Fixed(after, tuple(made))
    # Something in the lot breaks the file: make those that do not, one after the other.
    made, edits = [], set()
    for finding in wanted:
        assert finding.fix is not None
        tried = edits | set(finding.fix.edits)
        if _overlapping(edits, finding.fix.edits) or _applied(text, tried) is None:
            continue
        made.append(finding)
        edits = tried
    return Fixed(_applied(text, edits) or text, tuple(made)) if made else Fixed(text, ())


def _compatible(wanted: Iterable[Finding]) -> tuple[list[Finding], set[Edit]]:
    made: list[Finding] = []
    edits: set[Edit] = set()
    for finding in wanted:
        assert finding.fix is not None
        if not _overlapping(edits, finding.fix.edits):
            made.append(finding)
            edits.update(finding.fix.edits)
    return made, edits


def _overlapping(taken: Collection[Edit], new: Iterable[Edit]) -> bool:
    """Whether an edit collides with one that is taken. The same insertion asked for twice (an import)
    is one edit and no collision."""
    return any(
        edit != other and edit.span.overlaps(other.span)
        for edit in new
        if edit not in taken
        for other in taken
    )


def _applied(text: str, edits: Collection[Edit]) -> str | None:
    """The text after the edits, None when they do not fit or the result is no Python any more. New lines
    end as the first one of the text does."""
    import libcst  # costs a quarter of a second: only runs that fix something pay it

    if text.partition("\n")[0].endswith("\r"):
        edits = [replace(e, replacement=_LONE.sub("\r\n", e.replacement)) for e in edits]
    try:
        after = apply_edits(text, edits)
        libcst.parse_module(after)
    except (ValueError, libcst.ParserSyntaxError):
        return None
    return after
