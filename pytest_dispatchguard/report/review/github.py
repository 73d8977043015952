"""A review as the JSON of GitHub's request that creates one."""

from __future__ import annotations

from typing import Any

from pytest_dispatchguard.model.reviews import Review
from pytest_dispatchguard.report.formats.json_ import dump
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.report.review.markdown import Comment, body, comments, summary


def render(review: Review, options: Options) -> str:
    """The body of the request."""
    return dump(as_object(review, options))


def as_object(review: Review, options: Options) -> dict[str, Any]:
    """The body of the request: a summary, and a comment for each place."""
    return {
        "event": "COMMENT",
        "body": summary(review, options, commented=True),
        "comments": [comment_object(comment, options) for comment in comments(review, options)],
    }


def comment_object(comment: Comment, options: Options) -> dict[str, Any]:
    """One comment; the first line is only given if there are several."""
    place: dict[str, Any] = {"path": comment.path, "line": comment.last, "side": "RIGHT"}
    if comment.first < comment.last:
        place |= {"start_line": comment.first, "start_side": "RIGHT"}
    return {**place, "body": body(comment, options)}
