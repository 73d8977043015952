"""A review as one JSON object for programs."""

from __future__ import annotations

from typing import Any

from pytest_dispatchguard.model.findings import SCHEMA
from pytest_dispatchguard.model.reviews import BudgetChange, Review
from pytest_dispatchguard.report.formats.json_ import dump, finding_object
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.report.review.markdown import comments


def render(review: Review, options: Options) -> str:
    """The object, indented, in ASCII."""
    told = comments(review, options)
    return dump(
        {
            "schema": SCHEMA,
            "base": review.base,
            "new": [
                {
                    "comment": {"first": one.first, "last": one.last},
                    "fingerprint": one.fingerprint,
                    "suggestion": None if one.suggestion is None else list(one.suggestion.text),
                    **finding_object(one.remark.finding),
                }
                for one in told
            ],
            "elsewhere": [finding_object(finding) for finding in review.others],
            "gone": [finding_object(finding) for finding in review.fixed],
            "budgets": None if review.budgets is None else [_budget(b) for b in review.budgets],
            "budgets_kept": review.kept,
            "notes": list(review.notes),
        }
    )


def _budget(change: BudgetChange) -> dict[str, Any]:
    return {
        "nodeid": change.node_id,
        "subject": change.subject,
        "verdict": change.verdict,
        "reason": change.reason,
        "moved": {move.name: [move.before, move.now] for move in change.moved},
        "lines": [
            {"path": line.path, "line": line.line, "extra": line.extra, "text": line.text}
            for line in change.lines
        ],
        "guards": [
            {"kind": g.kind, "source": g.pattern, "extra": g.extra, "place": g.place}
            for g in change.guards
        ],
    }
