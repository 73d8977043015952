"""A review for a coding agent: what a change adds, as `report.formats.prompt` tells findings."""

from __future__ import annotations

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.reviews import Review
from pytest_dispatchguard.report.formats.prompt import prompt, quoted
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.report.review.wording import causes, headline
from pytest_dispatchguard.report.wording import count, ranked
from pytest_dispatchguard.visible import one_line

_MOST_BUDGETS = 10


def render(review: Review, options: Options) -> str:
    """New findings, the most expensive first, notes last, then budgets that failed."""
    told = ranked(f for f in review.new if f.certainty != "note")
    notes = ranked(f for f in review.new if f.certainty == "note")
    again = f"`dispatchguard review --base {quoted(review.base)}` no longer names this place."

    def verify(_: Finding) -> str:
        return again

    title = f"{headline(review)}, compared with {review.base}"
    lines = [*_budgets(review), *review.notes]
    return prompt(title, [*told, *notes], review.rules, options, notes=lines, verify=verify)


def _budgets(review: Review) -> list[str]:
    bad = [change for change in review.budgets or () if change.verdict in ("fail", "error")]
    lines = []
    for change in bad[:_MOST_BUDGETS]:
        moved = ", ".join(f"{move.name} {move.before} -> {move.now}" for move in change.moved)
        parts = [f"budget {change.verdict}: {change.node_id} ({change.subject})", moved]
        lines.append("; ".join(one_line(part) for part in (*parts, *causes(change)) if part))
    if len(bad) > _MOST_BUDGETS:
        lines.append(f"{count(len(bad) - _MOST_BUDGETS, 'more budget')} failed")
    return lines
