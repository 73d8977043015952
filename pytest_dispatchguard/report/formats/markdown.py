"""``--format markdown``: for a comment on a pull request, or a summary page of a CI step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import groupby

from pytest_dispatchguard.model.findings import Finding, Fix, Hot
from pytest_dispatchguard.model.operations import OperationsAt
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.report.budgets import operations
from pytest_dispatchguard.report.diff import diff_of_edits
from pytest_dispatchguard.report.markdown_text import CODE, LIMIT, code, escape, fence_around
from pytest_dispatchguard.report.options import Options, Sources
from pytest_dispatchguard.report.wording import (
    costs,
    count,
    dearest_files_first,
    docs_url,
    footing,
    headline,
    heat_notes,
    in_trace,
    noted,
    remedy,
    statement,
)
from pytest_dispatchguard.visible import one_line, visible, without_commands


def render(report: Report, options: Options) -> str:
    """Findings file by file in a list, each with its reason, its price and the diff of its fix."""
    sources = cache(options.source)
    out = f"### dispatchguard: {escape(headline(report))}\n"
    if footing(report):
        out += f"\n{escape(footing(report))}\n"
    notes = "".join(f"\n> {escape(note)}\n" for note in report.notes)
    if report.operations is not None:
        notes += _operations(report.operations)
    told = report.of("sure", "maybe")
    findings = list(told) if report.ranked else dearest_files_first(told)
    notes = _noted(report, LIMIT // 3) + notes
    return out + listed(findings, sources, LIMIT - len(out) - len(notes)) + notes


def _noted(report: Report, room: int) -> str:
    """The notes, one line each, in a collapsed section: as many as requested, and as fit."""
    found = [note for group in noted(report) for note in group]
    if not found:
        return ""
    title = f"{count(len(found), 'note')}: these cost host time; whether to change them is yours to decide"
    out = f"\n<details><summary>{title}</summary>\n\n"
    shown = 0
    for note in found[: report.most_notes]:
        measured = "" if note.traced is None else f"**{in_trace(note.traced)}**: "
        place = code(f"{note.path}:{note.span.line}")
        line = f"- {linked(note)} {place}: {measured}{escape(note.message)}\n"
        if len(out) + len(line) > room:
            break
        out, shown = out + line, shown + 1
    rest = len(found) - shown
    return out + (f"- … and {rest} more\n" if rest else "") + "\n</details>\n"


def listed(findings: Sequence[Finding], sources: Sources, most: int) -> str:
    """Findings file by file, as many as fit."""
    out, told = "", 0
    for path, group in groupby(findings, key=lambda finding: finding.path):
        block = f"\n#### {code(path)}\n"
        for finding in group:
            block += f"\n{_item(finding, sources)}"
            if len(out) + len(block) > most:
                rest = len(findings) - told
                return f"{out}\n… and {rest} more, left out to keep this short.\n"
            out, block, told = out + block, "", told + 1
    return out


def _operations(lines: Sequence[OperationsAt]) -> str:
    out = f"\n#### {operations.title(lines)}\n"
    table = operations.rows(lines)
    if table:
        out += "\n| per call | calls | place | function | operations |\n| --: | --: | --- | --- | --- |\n"
    for row in table:
        cells = [row.per_call, row.calls, code(row.place), code(row.function)]
        told = "<br>".join(escape(text) for text in (row.operations, *row.remarks))
        out += f"| {' | '.join([*cells, told])} |\n"
    return out + (f"\n{operations.rest(lines)}\n" if operations.rest(lines) else "")


def _item(finding: Finding, sources: Sources) -> str:
    where = f" in {code(finding.function)}" if finding.function else ""
    rule = linked(finding)
    lines = [f"- {rule} line {finding.span.line}{where}: {escape(statement(finding))}"]
    lines += reasons(finding)
    if finding.fix is not None:
        lines += "", *shown_fix(finding, finding.fix, sources(finding.path))
    return _indented(lines)


def linked(finding: Finding) -> str:
    """A finding's code, with a link to its page."""
    return f"**[{finding.code}]({docs_url(finding.code)})**"


def reasons(finding: Finding) -> list[str]:
    """Why a place is hot and what it costs, as a separate paragraph; nothing if neither is known."""
    facts = []
    if finding.hot is not None:
        facts.append(f"hot: {_heat(finding.hot)}")
    if costs(finding):
        facts.append(f"**{escape(costs(finding))}**")
    return ["", " · ".join(facts)] if facts else []


def _heat(hot: Hot) -> str:
    way = " → ".join(code(name) for name in hot.path or (hot.root,))
    return f"{escape(hot.reason)}: {way} {escape(heat_notes(hot))}".rstrip()


def shown_fix(finding: Finding, fix: Fix, text: str | None) -> list[str]:
    """What a fix does, with its diff in a collapsed section if available."""
    title = f"fix: {escape(remedy(fix))}"
    diff = "" if text is None else _diff(finding.path, fix, text)
    if not diff:
        return [title]
    fence = fence_around(diff)
    # Inside the tag only HTML is interpreted, not Markdown, so code spans become tags.
    summary = CODE.sub(lambda match: f"<code>{match.group()[1:-1]}</code>", _html(remedy(fix)))
    return [
        f"<details><summary>fix: {summary}</summary>",
        "",
        f"{fence}diff",
        *diff.rstrip("\n").split("\n"),
        fence,
        "",
        "</details>",
    ]


def _html(text: str) -> str:
    line = one_line(" ".join(text.split()))
    escaped = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("@", "@<!-- -->")


def _diff(path: str, fix: Fix, text: str) -> str:
    try:
        diff = diff_of_edits(path, text, fix.edits)
    except ValueError:
        # The file has changed since it was judged.
        return ""
    return without_commands(visible(diff.replace("\r\n", "\n")))


def _indented(lines: Sequence[str]) -> str:
    first, *rest = lines
    return "".join(f"{line}\n" for line in (first, *(f"  {line}" if line else "" for line in rest)))
