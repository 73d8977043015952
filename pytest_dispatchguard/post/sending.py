"""What posting a review means, whichever host it is for: comments that are not there yet, and one summary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.reviews import Review
from pytest_dispatchguard.post.web import UnsureError
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.report.review.markdown import Comment, comments, summary, summary_mark

_MARK = re.compile(r"<!-- dispatchguard: ([0-9a-f]{32}) -->\s*\Z")
"""At the end alone: what is quoted above it is somebody else's word."""
_TIMES = 3

T = TypeVar("T")


class Host(Protocol):
    """A merge or pull request on a code host."""

    def head(self) -> str:
        """The commit at its head."""
        ...

    def bodies(self) -> Iterable[str]:
        """The texts of all comments at lines that are ours."""
        ...

    def place(self, new: Sequence[Comment], options: Options) -> list[Comment]:
        """Puts comments at lines; gives those that the host does not take there."""
        ...

    def notes(self) -> Iterable[tuple[str, str]]:
        """Name and text of each comment on the whole that is ours."""
        ...

    def write(self, text: str, known: str | None) -> str:
        """Writes a comment on the whole, in place of a known one, and gives its address."""
        ...


@dataclass(frozen=True, slots=True)
class Posted:
    """What came of it."""

    new: int
    """Comments that were made."""
    there: int
    """Comments that an earlier run had made."""
    address: str
    """Of the summary; empty where there was nothing to say."""
    note: str = ""


def send(host: Host, review: Review, options: Options, commit: str) -> Posted:
    """Posts a review of a commit. Comments that an earlier run made stay as they are, its summary is written
    anew; where nothing is to be said, and nothing was, nothing is."""
    head = host.head()
    note = ""
    if head != commit:
        # Lines of another commit would be commented on.
        note = (
            f"the head to merge is {head[:12]}, and {commit[:12]} is checked out: no comments at lines; "
            "check out the head itself"
        )
        new, there, refused = 0, 0, comments(review, options)
    else:
        new, there, refused = _comments(host, review, options)
    left = [comment.remark.finding for comment in refused]
    here = [r for r in review.remarks if r.finding not in left]
    rest = replace(review, remarks=tuple(here), others=(*left, *review.others))
    if note:
        rest = replace(rest, notes=(*rest.notes, note))
    text = summary(rest, options, commented=True)
    own = summary_mark(review)
    address = _surely(lambda: _summary(host, text, own, needed=_says_something(rest)))
    return Posted(new, there, address, note)


def _says_something(review: Review) -> bool:
    return bool(review.new or review.fixed or review.budgets)


def _comments(host: Host, review: Review, options: Options) -> tuple[int, int, list[Comment]]:
    all_of_them = comments(review, options)
    first: list[Comment] | None = None

    def once() -> tuple[int, int, list[Comment]]:
        nonlocal first
        known = {name for body in host.bodies() for name in _MARK.findall(body)}
        new = [comment for comment in all_of_them if comment.fingerprint not in known]
        if first is None:
            first = new
        refused = host.place(new, options) if new else []
        made = len(first) - len(refused)
        return made, len(all_of_them) - len(first), refused

    return _surely(once)


def _summary(host: Host, text: str, own: str, *, needed: bool) -> str:
    known = next((name for name, body in host.notes() if body.rstrip().endswith(own)), None)
    return host.write(text, known) if needed or known is not None else ""


def _surely(step: Callable[[], T]) -> T:
    """A step that looks at what is there first, and so can be done again when nobody knows whether it was."""
    for _ in range(_TIMES):
        try:
            return step()
        except UnsureError as error:
            last = str(error)
    raise UserError(f"{last}, {_TIMES} times; try again later")
