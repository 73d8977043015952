"""What a review says in any format for people: its headline, and what made a budget move."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath

from pytest_dispatchguard.model.measurements import CostlyLine
from pytest_dispatchguard.model.reviews import BudgetChange, Review
from pytest_dispatchguard.model.verdicts import Outcome
from pytest_dispatchguard.report.wording import count

_MOST_LINES = 5


def headline(review: Review) -> str:
    """The change in one line."""
    parts = []
    notes = sum(finding.certainty == "note" for finding in review.new)
    if len(review.new) > notes:
        parts.append(count(len(review.new) - notes, "new finding"))
    if notes:
        parts.append(count(notes, "new note"))
    if review.fixed:
        parts.append(f"{len(review.fixed)} gone")
    outcomes = Counter(change.verdict for change in review.budgets or ())
    words: dict[Outcome, str] = {
        "fail": "over budget",
        "error": "broken",
        "undecided": "undecided",
    }
    parts += [f"{outcomes[o]} {words[o]}" for o in words if outcomes[o]]
    moved = outcomes["pass"] + outcomes["skipped"]
    if moved:
        parts.append(f"{count(moved, 'budget')} moved")
    if parts:
        return ", ".join(parts)
    return "nothing new" + (", every budget unchanged" if review.budgets is not None else "")


def causes(change: BudgetChange) -> list[str]:
    """What became more expensive and where, one line each."""
    told = [line for line in change.reason.splitlines()[:1] if line]
    lines = sorted(change.lines, key=lambda line: -(line.extra or 0))
    told += [_costly(line) for line in lines[:_MOST_LINES] if line.extra]
    for group in change.guards[:_MOST_LINES]:
        place = f" at {group.place}: {group.text}" if group.place else ""
        told.append(f"+{group.extra} guards {group.kind} of {group.pattern}{place}")
    return told


def _costly(line: CostlyLine) -> str:
    path = PurePath(line.path).as_posix()
    return f"+{line.extra} instructions at {path}:{line.line}: {line.text.strip()}"
