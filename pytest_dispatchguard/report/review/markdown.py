"""The text of a review as Markdown: a summary of the change, and comments on its lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.reviews import Remark, Review
from pytest_dispatchguard.report.budgets.markdown import SIGNS
from pytest_dispatchguard.report.fingerprint import fingerprints
from pytest_dispatchguard.report.formats.markdown import linked, listed, reasons, shown_fix
from pytest_dispatchguard.report.markdown_text import LIMIT, code, escape, fence_around
from pytest_dispatchguard.report.options import Options, Sources
from pytest_dispatchguard.report.review.wording import causes, headline
from pytest_dispatchguard.report.suggestions import Lines, whole_lines
from pytest_dispatchguard.report.wording import NAME, bill, costs, count, remedy, statement
from pytest_dispatchguard.visible import one_line

_MOST_OF_BUDGETS = LIMIT // 2
_MOST_GONE = 20


@dataclass(frozen=True, slots=True)
class Comment:
    """One comment on lines of a change."""

    remark: Remark
    fingerprint: str
    """Stable for the same finding; hidden in the comment."""
    suggestion: Lines | None
    """Lines that replace others, all of which are part of the diff."""

    prefix: str = ""
    """The path from the root of the repository to the project."""

    @property
    def path(self) -> str:
        """Its file, relative to the root of the repository."""
        return self.prefix + self.remark.finding.path

    @property
    def first(self) -> int:
        """The first of its lines."""
        return self.remark.first if self.suggestion is None else self.suggestion.first

    @property
    def last(self) -> int:
        """The last of its lines."""
        return self.remark.last if self.suggestion is None else self.suggestion.last


def render(review: Review, options: Options) -> str:
    """The whole review on one page."""
    return summary(review, options, commented=False)


def mark(fingerprint: str) -> str:
    """A hidden text in a comment, by which a later run recognizes it."""
    return f"<!-- {NAME}: {fingerprint} -->"


def summary_mark(review: Review) -> str:
    """A hidden text by which a later run recognizes the summary; each project of a repository has its own."""
    if not review.prefix:
        return f"<!-- {NAME}: summary -->"
    name = sha256(review.prefix.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"<!-- {NAME}: summary {name} -->"


def comments(review: Review, options: Options) -> list[Comment]:
    """A comment for each new finding on lines of the change."""
    sources = cache(options.source)
    found = [remark.finding for remark in review.remarks]
    names = fingerprints([replace(f, path=review.prefix + f.path) for f in found])
    return [
        Comment(remark, name, _suggestion(remark, sources), review.prefix)
        for remark, name in zip(review.remarks, names, strict=True)
    ]


def _suggestion(remark: Remark, sources: Sources) -> Lines | None:
    finding = remark.finding
    if finding.fix is None:
        return None
    lines = whole_lines(finding, sources(finding.path))
    shown = remark.shown
    inside = lines is not None and shown.first <= lines.first <= lines.last <= shown.last
    return lines if inside else None


def body(comment: Comment, options: Options, opening: str = "suggestion") -> str:
    """The text of a comment. `opening` is how the code host begins a suggestion block."""
    finding = comment.remark.finding
    lines = [f"{linked(finding)} {escape(statement(finding))}", *reasons(finding)]
    if finding.fix is not None and comment.suggestion is not None:
        text = "\n".join(comment.suggestion.text)
        fence = fence_around(text)
        lines += ["", f"fix: {escape(remedy(finding.fix))}", "", f"{fence}{opening}"]
        lines += [*comment.suggestion.text, fence]
    elif finding.fix is not None:
        lines += ["", *shown_fix(finding, finding.fix, options.source(finding.path))]
    return "\n".join((*lines, "", mark(comment.fingerprint))) + "\n"


def summary(review: Review, options: Options, *, commented: bool) -> str:
    """The review as one comment. Findings that are `commented` on at their lines are only counted here."""
    sources = cache(options.source)
    out = f"### dispatchguard: {escape(headline(review))}\n"
    out += f"\nCompared with {code(review.base)}.\n"
    costs = bill(review.new)
    if costs:
        out += "\nWhat the new lines cost in a call of each root:\n\n"
        out += "".join(f"- {escape(line)}\n" for line in costs)
    rest = "".join((*_gone(review.fixed), *_budgets(review), *_notes(review)))
    rest += f"\n{summary_mark(review)}\n"
    room = LIMIT - len(out) - len(rest)
    here = [remark.finding for remark in review.remarks]
    if here and commented:
        told = "comment stands" if len(here) == 1 else "comments stand"
        out += f"\n{len(here)} {told} on the changed lines.\n"
    elif here:
        out += listed(here, sources, room)
    if review.others:
        which = "Without their own comment:" if commented else "On lines outside the diff:"
        out += f"\n{which}\n"
        out += listed(review.others, sources, max(room - len(out), 0))
    return out + rest


def _gone(findings: Sequence[Finding]) -> Iterator[str]:
    if not findings:
        return
    yield "\n#### Resolved\n\n"
    for finding in findings[:_MOST_GONE]:
        where = f" in {code(finding.function)}" if finding.function else ""
        price = f": {escape(costs(finding))}" if costs(finding) else ""
        yield f"- {linked(finding)}{where}, {code(finding.path)}{price}\n"
    if len(findings) > _MOST_GONE:
        yield f"- … and {len(findings) - _MOST_GONE} more\n"


def _notes(review: Review) -> Iterator[str]:
    for note in review.notes:
        yield f"\n> {escape(note)}\n"


def _budgets(review: Review) -> Iterator[str]:
    if review.budgets is None:
        return
    yield "\n#### Budgets\n"
    kept = count(review.kept, "budget")
    if not review.budgets:
        yield f"\n{kept} unchanged: no counter moved.\n" if review.kept else "\nNo budgets.\n"
        return
    yield "\n| test | verdict | counters that moved | times |\n| --- | --- | --- | ---: |\n"
    left, used = len(review.budgets), 0
    for change in review.budgets:
        moved = "<br>".join(f"{escape(m.name)}: {m.before} → {m.now}" for m in change.moved)
        times = "" if change.change is None else f"{change.change.value:.3f}"
        name = code(f"{change.node_id} ({change.subject})" if change.subject else change.node_id)
        # Even in code, a bar would end the cell.
        cells = [
            name.replace("|", "\\|"),
            f"{SIGNS[change.verdict]} {change.verdict}",
            moved,
            times,
        ]
        row = f"| {' | '.join(cells)} |\n"
        if used + len(row) > _MOST_OF_BUDGETS:
            yield f"\n… and {left} more, left out to keep this short.\n"
            return
        left, used = left - 1, used + len(row)
        yield row
    if review.kept:
        yield f"\n{kept} more unchanged.\n"
    for change in review.budgets:
        told = causes(change)
        if told:
            text = "\n".join(map(one_line, told))
            fence = fence_around(text)
            block = f"\n{code(change.node_id)}\n\n{fence}text\n{text}\n{fence}\n"
            if used + len(block) > _MOST_OF_BUDGETS:
                yield "\n… what moved the others is left out to keep this short.\n"
                return
            used += len(block)
            yield block
