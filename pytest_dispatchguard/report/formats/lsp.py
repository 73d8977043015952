"""Findings as objects of the Language Server Protocol: positions, diagnostics, edits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from lsprotocol import types

from pytest_dispatchguard.edits import split_lines
from pytest_dispatchguard.model.findings import Edit, Elsewhere, Finding, RuleInfo, Span
from pytest_dispatchguard.report.wording import (
    NAME,
    cost,
    details,
    docs_url,
    severity,
    statement,
)

_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
    "hint": types.DiagnosticSeverity.Hint,
}
_WHY = re.compile(r"^## Why[^\n]*\n+(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A text with positions as an editor counts them: from 0, in the agreed encoding."""

    lines: Sequence[str]
    """Without line endings."""
    encoding: types.PositionEncodingKind | str

    def range(self, span: Span) -> types.Range:
        """The range of a span."""
        return types.Range(
            self._position(span.line, span.column), self._position(span.end_line, span.end_column)
        )

    def _position(self, line: int, column: int) -> types.Position:
        if line > len(self.lines):
            return types.Position(line - 1, 0)
        return types.Position(line - 1, self._units(self.lines[line - 1][: column - 1]))

    def _units(self, text: str) -> int:
        if self.encoding == types.PositionEncodingKind.Utf32 or text.isascii():
            return len(text)
        if self.encoding == types.PositionEncodingKind.Utf8:
            return len(text.encode("utf-8", "surrogatepass"))
        return len(text.encode("utf-16-le", "surrogatepass")) // 2


def sheet(text: str, encoding: types.PositionEncodingKind | str) -> Sheet:
    """A text for an editor that uses this position encoding."""
    return Sheet(split_lines(text, keepends=False), encoding)


def diagnostic(
    finding: Finding, on: Sheet, elsewhere: Callable[[Elsewhere], types.Location | None]
) -> types.Diagnostic:
    """A finding as editors show it; `elsewhere` returns the location of its pattern in another file."""
    related = None
    if finding.elsewhere is not None and (there := elsewhere(finding.elsewhere)) is not None:
        said = f"in {finding.elsewhere.function}" if finding.elsewhere.function else "here"
        related = [types.DiagnosticRelatedInformation(there, said)]
    return types.Diagnostic(
        range=on.range(finding.span),
        message="\n".join([statement(finding), *details(finding)]),
        severity=_SEVERITIES[severity(finding)],
        code=finding.code,
        code_description=types.CodeDescription(docs_url(finding.code)),
        source=NAME,
        related_information=related,
    )


def text_edits(edits: Iterable[Edit], on: Sheet) -> list[types.TextEdit]:
    """Edits of one text."""
    ordered = sorted(set(edits), key=lambda edit: (edit.span, edit.replacement))
    return [types.TextEdit(on.range(edit.span), edit.replacement) for edit in ordered]


def changes(before: str, after: str, path: str = "") -> list[Edit]:
    """The edits that turn one text into another: the whole lines that differ."""
    old, new = split_lines(before), split_lines(after)
    found = []
    for tag, first, last, start, end in SequenceMatcher(None, old, new, False).get_opcodes():
        if tag != "equal":
            found.append(Edit(path, _whole(old, first, last), "".join(new[start:end])))
    return found


def _whole(lines: Sequence[str], first: int, last: int) -> Span:
    """Whole lines including their ends; the last line of a text may have none."""
    unended = first < last == len(lines) and not lines[-1].endswith(("\n", "\r"))
    end = (last, len(lines[-1]) + 1) if unended else (last + 1, 1)
    return Span(first + 1, 1, *end)


def hover(rule: RuleInfo) -> str:
    """A short description of a rule as Markdown: what it is about, why it costs, and how much."""
    why = _WHY.search(rule.help)
    parts = [f"**{rule.code} {rule.name}**", rule.summary]
    if why is not None:
        parts.append(why["text"].strip())
    if rule.price is not None:
        parts.append(f"Price: {cost(rule.price)}.")
    parts.append(f"[{docs_url(rule.code)}]({docs_url(rule.code)})")
    return "\n\n".join(parts)
