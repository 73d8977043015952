"""Comments that silence findings: `# dispatchguard: ignore[DG401] -- reason`, `ignore-file`, and
`# noqa: DG401`. Tells which findings they cover, and which of them cover nothing (DG002)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import tree_sitter

from pytest_dispatchguard.edits import split_lines
from pytest_dispatchguard.lint.syntax.grammar import LANGUAGE, tree_of
from pytest_dispatchguard.model.findings import Edit, Finding, Fix, Span
from pytest_dispatchguard.spelling import did_you_mean, nearest

UNUSED = "DG002"
UNUSED_NAME = "unused-suppression"
MARKS = ("hot", "cold")
"""Directives that are no suppressions: the scout reads them."""
DIRECTIVES = ("ignore", "ignore-file", *MARKS)

_SIMPLE = (
    "assert_statement",
    "break_statement",
    "continue_statement",
    "delete_statement",
    "exec_statement",
    "expression_statement",
    "future_import_statement",
    "global_statement",
    "import_from_statement",
    "import_statement",
    "nonlocal_statement",
    "pass_statement",
    "print_statement",
    "raise_statement",
    "return_statement",
    "type_alias_statement",
)
_COMPOUND = (
    "case_clause",
    "class_definition",
    "elif_clause",
    "else_clause",
    "except_clause",
    "finally_clause",
    "for_statement",
    "function_definition",
    "if_statement",
    "match_statement",
    "try_statement",
    "while_statement",
    "with_statement",
)

_SEGMENT = re.compile(r"(?:^|(?<=\s))#(?!\d)")
_DIRECTIVE = re.compile(r"#+\s*dispatchguard\s*:\s*(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_WORD = re.compile(r"(?P<word>[A-Za-z][\w-]*)\s*(?P<after>.*)", re.DOTALL)
_CODES = re.compile(r"\[(?P<codes>[^\[\]]*)\]\s*(?:--.*)?", re.DOTALL)
_NOQA = re.compile(
    r"#+\s*noqa\s*:\s*(?P<codes>[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*)(?!\w)", re.IGNORECASE
)
MISSPELT = re.compile(r"#\s*(?P<name>d[a-z_-]{10,14})\s*:", re.IGNORECASE)
"""Comments that may begin with our name misspelt."""
_CLOSE = 0.84
"""How alike a word must be to our name: two letters of it may be wrong."""
_IDLE_MARK = re.compile(r"#\s*dispatchguard:\s*(?P<word>hot|cold)\s*(?:--.*|#.*)?$")
_CODE = re.compile(r"\bDG\d{1,3}\b", re.IGNORECASE)
_COOKIE = re.compile(r"[ \t\f]*#.*?coding[:=]")


@dataclass(frozen=True, slots=True)
class Unit:
    """What one suppression covers: a simple statement, or the header of a compound one."""

    start: tuple[int, int]
    end_line: int


@dataclass(frozen=True, slots=True)
class Directive:
    """One suppression as written."""

    kind: Literal["ignore", "ignore-file", "noqa"]
    codes: tuple[str, ...]
    """Upper case, every one written, also those of other tools in a `noqa`. Empty is all codes."""
    written: tuple[str, ...]
    """The codes exactly as written."""
    separator: str
    span: Span
    codes_span: Span | None
    """Where the codes stand, for removing some of them."""
    erase: Span | None
    """What to delete to be rid of it, or None where deleting could change the code."""
    units: frozenset[int]
    lines: frozenset[int]
    source: str

    def names(self, code: str) -> bool:
        """Whether it speaks of a code."""
        return not self.codes or any(code.startswith(own) for own in self.codes)


@dataclass(frozen=True, slots=True)
class Complaint:
    """A comment meant for us that cannot be followed."""

    span: Span
    message: str
    source: str


@dataclass(frozen=True, slots=True)
class Applied:
    """Findings sorted by what the suppressions make of them."""

    kept: tuple[Finding, ...]
    suppressed: tuple[Finding, ...]
    unused: tuple[Finding, ...]
    """DG002: suppressions that cover nothing, with a fix, and comments that cannot be followed."""


@dataclass(frozen=True, slots=True)
class Suppressions:
    """The suppressions of one file."""

    directives: tuple[Directive, ...] = ()
    complaints: tuple[Complaint, ...] = ()
    units: tuple[Unit, ...] = ()

    def apply(
        self,
        findings: Iterable[Finding],
        *,
        path: str,
        ran: Collection[str],
        known: Mapping[str, bool],
    ) -> Applied:
        """Sort a file's findings, the *maybe* ones included: they too make a suppression used.

        ``ran`` are the codes that were judged; only suppressions of those can be unused. ``known``
        are all codes, and whether each is on by default.
        """
        kept: list[Finding] = []
        suppressed: list[Finding] = []
        used: set[tuple[int, str]] = set()
        for finding in findings:
            covering = [i for i, d in enumerate(self.directives) if self._covers(d, finding)]
            (suppressed if covering else kept).append(finding)
            for i in covering:
                codes = self.directives[i].codes or ("",)
                used.update((i, code) for code in codes if finding.code.startswith(code))
        unused: list[Finding] = [
            _complaint(path, complaint.span, complaint.message, complaint.source)
            for complaint in self.complaints
        ]
        for i, directive in enumerate(self.directives):
            mine = {code for number, code in used if number == i}
            unused.extend(_unused(directive, mine, path, ran, known))
        silenced = [
            f for f in unused if any(d.codes and self._covers(d, f) for d in self.directives)
        ]
        return Applied(
            kept=tuple(kept),
            suppressed=(*suppressed, *silenced),
            unused=tuple(f for f in unused if f not in silenced),
        )

    def _covers(self, directive: Directive, finding: Finding) -> bool:
        if not directive.names(finding.code):
            return False
        if directive.kind == "ignore-file":
            return True
        owner = self._owner(finding.span)
        if owner is None:
            return finding.span.line in directive.lines
        return owner in directive.units

    def _owner(self, span: Span) -> int | None:
        """The unit that a place belongs to: the last that starts before it, if it has not ended."""
        at = bisect_right(self.units, (span.line, span.column), key=lambda unit: unit.start) - 1
        return at if at >= 0 and span.line <= self.units[at].end_line else None


NONE = Suppressions()
"""The suppressions of a file that has none."""


def read(text: str) -> Suppressions:
    """The suppressions of a source text, whether or not it parses."""
    lowered = text.lower()
    if "dispatchguard" not in lowered and "noqa" not in lowered and not MISSPELT.search(text):
        return NONE
    lines = split_lines(text, keepends=False)
    comments, units, marked = _scan(lines)
    found = [
        item
        for line, column in comments.items()
        for item in _read_comment(lines, line, column, comments, units)
    ]
    found.extend(_idle_marks(lines, comments, marked))
    return Suppressions(
        directives=tuple(item for item in found if isinstance(item, Directive)),
        complaints=tuple(item for item in found if isinstance(item, Complaint)),
        units=units,
    )


@lru_cache(maxsize=1)
def _query() -> tree_sitter.Query:
    nodes = (
        ("comment", ("comment",)),
        ("simple", _SIMPLE),
        ("compound", _COMPOUND),
        ("decorated", ("decorated_definition",)),
    )
    patterns = (f"[{' '.join(f'({kind})' for kind in kinds)}] @{name}" for name, kinds in nodes)
    query: tree_sitter.Query = tree_sitter.Query(LANGUAGE, "\n".join(patterns))
    return query


def _scan(lines: list[str]) -> tuple[dict[int, int], tuple[Unit, ...], frozenset[int]]:
    """The column of the comment on each line that has one, the units in order, and the lines on which `hot`
    and `cold` count: those of a definition's header, and with a minus those right above one."""
    encoded = [line.encode("utf-8", "surrogatepass") for line in lines]
    tree = tree_of(b"\n".join(encoded) + b"\n")
    captures = tree_sitter.QueryCursor(_query()).captures(tree.root_node)

    def place(point: tree_sitter.Point) -> tuple[int, int]:
        before = encoded[point.row][: point.column] if point.row < len(encoded) else b""
        return point.row + 1, len(before.decode("utf-8", "replace")) + 1

    comments = dict(place(node.start_point) for node in captures.get("comment", ()))
    units = [Unit(place(node.start_point), _last_line(node)) for node in captures.get("simple", ())]
    decorated = set()
    marked: set[int] = set()
    for node in captures.get("decorated", ()):
        definition = node.child_by_field_name("definition")
        if definition is not None:
            decorated.add(definition.id)
            units.append(Unit(place(node.start_point), _header_end(definition)))
            marked.update(_marked_lines(node, definition))
    units.extend(
        Unit(place(node.start_point), _header_end(node))
        for node in captures.get("compound", ())
        if node.id not in decorated
    )
    for node in captures.get("compound", ()):
        if node.type in ("function_definition", "class_definition") and node.id not in decorated:
            marked.update(_marked_lines(node, node))
    ordered = tuple(sorted(units, key=lambda unit: unit.start))
    return dict(sorted(comments.items())), ordered, frozenset(marked)


def _marked_lines(whole: tree_sitter.Node, definition: tree_sitter.Node) -> Iterator[int]:
    """The lines on which the scout reads the mark of a definition."""
    first = whole.start_point.row + 1
    body = definition.child_by_field_name("body")
    end = definition.start_point.row + 1
    if body is not None:
        end = max(end, body.start_point.row)
    yield from range(first, end + 1)
    yield 1 - first


def _idle_marks(
    lines: list[str], comments: Mapping[int, int], marked: Collection[int]
) -> Iterator[Complaint]:
    """`hot` and `cold` where nobody reads them."""
    for line, column in comments.items():
        text = lines[line - 1]
        found = _IDLE_MARK.search(text, column - 1)
        alone = not text[: column - 1].strip()
        if found is None or (-line if alone else line) in marked:
            continue
        yield Complaint(
            Span(line, found.start() + 1, line, len(text.rstrip()) + 1),
            f"`{found['word']}` has no effect here: write it on the line of a `def` or `class`, or right "
            "above it",
            text.strip(),
        )


def _last_line(node: tree_sitter.Node) -> int:
    row, column = node.end_point
    return row + 1 if column else max(row, node.start_point.row + 1)


def _header_end(node: tree_sitter.Node) -> int:
    """The line of the colon that ends a compound statement's header."""
    for child in node.children:
        if child.type == ":":
            return child.end_point.row + 1
    return node.start_point.row + 1


def _read_comment(
    lines: list[str], line: int, column: int, comments: Mapping[int, int], units: tuple[Unit, ...]
) -> Iterator[Directive | Complaint]:
    text = lines[line - 1]
    comment = text[column - 1 :]
    starts = [match.start() for match in _SEGMENT.finditer(comment)]
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(comment)
        segment = comment[start:end].rstrip()
        span = Span(line, column + start, line, column + start + len(segment))
        read = _read_segment(segment)
        if read is None:
            continue
        if isinstance(read, str):
            yield Complaint(span, read, text.strip())
            continue
        kind, codes, codes_at = read
        alone = not text[: column - 1].strip()
        reach = _reach(lines, line, alone, comments, units, kind)
        if kind == "ignore-file" and not (alone and column == 1 and not _around(line, units)):
            yield Complaint(
                span, "`ignore-file` must be alone on its line, without indentation", text.strip()
            )
            continue
        yield Directive(
            kind=kind,
            codes=tuple(code.upper() for code in codes),
            written=codes,
            separator=", " if re.search(r",\s", segment) else "," if "," in segment else " ",
            span=span,
            codes_span=codes_at
            and Span(line, span.column + codes_at[0], line, span.column + codes_at[1]),
            erase=_erase(lines, line, column, starts, number),
            units=frozenset(reach),
            lines=frozenset([line]).union(
                *(range(units[i].start[0], units[i].end_line + 1) for i in reach)
            ),
            source=text.strip(),
        )


_Read = tuple[Literal["ignore", "ignore-file", "noqa"], tuple[str, ...], "tuple[int, int] | None"]


def _read_segment(segment: str) -> _Read | str | None:
    """Kind, codes and where they stand; or what is wrong; or None when it is not meant for us."""
    noqa = _NOQA.match(segment)
    if noqa:
        return "noqa", tuple(re.split(r"[,\s]+", noqa["codes"])), noqa.span("codes")
    misspelt = MISSPELT.match(segment)
    if misspelt is not None and misspelt["name"].lower() != "dispatchguard":
        return _misspelt(misspelt["name"], segment[misspelt.end() :].strip())
    directive = _DIRECTIVE.match(segment)
    word = directive and _WORD.match(directive["rest"])
    if directive is None or word is None:
        return None
    name, after = word["word"].lower(), word["after"]
    if name in MARKS:
        return None
    if name not in ("ignore", "ignore-file"):
        # Prose may begin with our name too: `# dispatchguard: the linter that ...`.
        near = nearest(name, DIRECTIVES)
        codes_named = _CODE.findall(after)
        if near is None and codes_named:
            meant = ", ".join(codes_named).upper()
            return f'unknown directive "{word["word"]}"; write `ignore[{meant}]`'
        if near is None and after and not after.startswith("["):
            return None
        return f'unknown directive "{word["word"]}"; {did_you_mean(name, DIRECTIVES)}'
    kind: Literal["ignore", "ignore-file"] = "ignore" if name == "ignore" else "ignore-file"
    if not after or after.startswith("--"):
        return kind, (), None
    codes = _CODES.fullmatch(after)
    if codes is None:
        return f"cannot be understood; write `{kind}[CODE, ...] -- reason`"
    written = tuple(re.split(r"[,\s]+", codes["codes"].strip(" \t,")))
    if written == ("",):
        return f"`{kind}[]` names no code; name one, or write `{kind}` for all"
    offset = directive.start("rest") + word.start("after")
    return kind, written, (offset + codes.start("codes"), offset + codes.end("codes"))


def _misspelt(name: str, rest: str) -> str | None:
    """What to say of a comment that begins with something like our name; None for prose."""
    from difflib import SequenceMatcher  # only mistakes need it

    word = _WORD.match(rest)
    close = SequenceMatcher(None, name.lower(), "dispatchguard").ratio() >= _CLOSE
    if not close or word is None:
        return None
    if word["word"].lower() not in DIRECTIVES and not _CODE.search(word["after"]):
        return None
    return f'"{name}" is not recognized; write "dispatchguard:"'


def _around(line: int, units: tuple[Unit, ...]) -> list[int]:
    """The units that a line is part of."""
    last = bisect_right(units, line, key=lambda unit: unit.start[0])
    return [i for i in range(last) if units[i].end_line >= line]


def _reach(
    lines: list[str],
    line: int,
    alone: bool,
    comments: Mapping[int, int],
    units: tuple[Unit, ...],
    kind: str,
) -> list[int]:
    """The units that a comment speaks of: those on its line, or on the first line of code below."""
    around = _around(line, units)
    if around or not alone or kind != "ignore":
        return around
    below = line + 1
    while below in comments and not lines[below - 1][: comments[below] - 1].strip():
        below += 1
    return [i for i in _around(below, units) if units[i].start[0] == below]


def _erase(lines: list[str], line: int, column: int, starts: list[int], number: int) -> Span | None:
    text = lines[line - 1]
    if line <= 2 and (_COOKIE.match(text) or (len(lines) > 2 and _COOKIE.match(lines[2]))):
        # Deleting could move an encoding declaration to where it counts, or take it away.
        return None
    start = column + starts[number]
    if number + 1 < len(starts):
        return Span(line, start, line, column + starts[number + 1])
    before = text[: start - 1].rstrip()
    if before:
        return Span(line, len(before) + 1, line, len(text) + 1)
    if line > 1 and lines[line - 2].endswith("\\"):
        # The comment ends a continued line; without it the next line would be joined on.
        return None
    if line < len(lines):
        return Span(line, 1, line + 1, 1)
    if line > 1:
        return Span(line - 1, len(lines[line - 2]) + 1, line, len(text) + 1)
    return Span(line, 1, line, len(text) + 1)


def _unused(
    directive: Directive,
    used: Collection[str],
    path: str,
    ran: Collection[str],
    known: Mapping[str, bool],
) -> Iterator[Finding]:
    if not directive.codes:
        if not used and _judged("", ran, known):
            message = "unused suppression: nothing here is flagged; remove it"
            fix = _fix(path, directive.erase, "")
            yield _complaint(path, directive.span, message, directive.source, fix)
        return
    own = [code for code in directive.codes if directive.kind != "noqa" or _ours(code, known)]
    unknown = [code for code in own if not any(k.startswith(code) for k in known)]
    if unknown:
        told = "; ".join(f'unknown code "{c}", {did_you_mean(c, known.keys())}' for c in unknown)
        yield _complaint(path, directive.span, told, directive.source)
    idle = {
        code
        for code in own
        if code not in used and code not in unknown and _judged(code, ran, known)
    }
    if not idle:
        return
    rest = [
        written
        for code, written in zip(directive.codes, directive.written, strict=True)
        if code not in idle
    ]
    gone = ", ".join(code for code in dict.fromkeys(directive.codes) if code in idle)
    edit = (directive.codes_span, directive.separator.join(rest)) if rest else (directive.erase, "")
    message = f"unused suppression: nothing here is flagged {gone}; remove it"
    yield _complaint(path, directive.span, message, directive.source, _fix(path, *edit))


def _ours(code: str, known: Mapping[str, bool]) -> bool:
    """Whether a code in a `noqa` is one of ours, perhaps misspelt."""
    return code in known or re.match(r"DG\d", code) is not None


def _judged(code: str, ran: Collection[str], known: Mapping[str, bool]) -> bool:
    """Whether all that a code or prefix names was judged, rules off by default aside."""
    if code in known:
        return code in ran and code != UNUSED
    named = [k for k in known if k.startswith(code) and k != UNUSED]
    return any(k in ran for k in named) and all(k in ran for k in named if known[k])


def _fix(path: str, span: Span | None, replacement: str) -> Fix | None:
    if span is None:
        return None
    return Fix("safe", "remove the unused suppression", (Edit(path, span, replacement),))


def _complaint(path: str, span: Span, message: str, source: str, fix: Fix | None = None) -> Finding:
    return Finding(
        code=UNUSED,
        rule=UNUSED_NAME,
        path=path,
        span=span,
        function="",
        message=message,
        fix=fix,
        source=source,
    )
