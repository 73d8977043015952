"""A review as the JSON of GitLab's requests that start discussions on a merge request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_dispatchguard.model.reviews import Review
from pytest_dispatchguard.report.formats.json_ import dump
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.report.review.markdown import Comment, body, comments, summary


def render(review: Review, options: Options) -> str:
    """A summary note, and a discussion for each place. The commits of the merge request's diff, which
    GitLab needs in each position, are added when they are sent."""
    found = [discussion(comment, options, {}) for comment in comments(review, options)]
    return dump({"note": {"body": summary(review, options, commented=True)}, "discussions": found})


def discussion(comment: Comment, options: Options, commits: Mapping[str, str]) -> dict[str, Any]:
    """The body of the request that starts a discussion. `commits` are the merge request's `diff_refs`."""
    shown = comment.remark.shown
    line = comment.last
    position: dict[str, Any] = {
        "position_type": "text",
        **commits,
        "new_path": comment.path,
        "old_path": comment.prefix + shown.old_path if shown.old_path else comment.path,
        "new_line": line,
    }
    # An unchanged line is identified by both its old and new number.
    if line in shown.same:
        position["old_line"] = shown.same[line]
    opening = f"suggestion:-{line - comment.first}+0"
    return {"body": body(comment, options, opening), "position": position}
