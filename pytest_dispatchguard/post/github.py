"""A pull request on GitHub."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.post.answers import OddAnswerError, Part
from pytest_dispatchguard.post.web import SECONDS, RefusedError, Web
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.report.review.github import comment_object
from pytest_dispatchguard.report.review.markdown import Comment
from pytest_dispatchguard.report.wording import NAME, count

_ADVICE = {
    401: "give a valid token in GITHUB_TOKEN",
    403: "the token may not write here; the job needs `permissions: pull-requests: write` (and pull "
    "requests from forks have no such token)",
    404: "no such pull request, or the token may not see it",
}


class GitHub:
    """One pull request, as `sending.Host` wants it."""

    def __init__(self, web: Web, repository: str, number: int) -> None:
        self._web = web
        self._repository = f"repos/{repository}"
        self._pull = f"{self._repository}/pulls/{number}"
        self._issue = f"{self._repository}/issues/{number}"
        self._head = ""
        self._login = ""

    def head(self) -> str:
        """The commit at its head."""
        self._login = self._own_login()
        answer = self._web.get(self._pull)
        self._head = answer.object("head").text("sha")
        if not re.fullmatch(r"[0-9a-f]{40,64}", self._head):
            raise OddAnswerError(f"{answer.place} without a commit at its head; check the address")
        return self._head

    def _own_login(self) -> str:
        """Whose token it is; empty for that of a job, which may not ask."""
        try:
            return self._web.get("user").text("login")
        except OddAnswerError:
            raise
        except UserError:
            return ""

    def _is_own(self, comment: Part) -> bool:
        """Whether a comment may be one of ours: anybody can write our marks."""
        user = comment.object("user")
        return user.text("login") == self._login if self._login else user.text("type") == "Bot"

    def bodies(self) -> Iterator[str]:
        """The texts of all comments of ours at lines."""
        for comment in self._web.all(f"{self._pull}/comments"):
            if self._is_own(comment):
                yield comment.text("body")

    def place(self, new: Sequence[Comment], options: Options) -> list[Comment]:
        """Makes one review of all comments; where GitHub does not take it, each comment by itself."""
        objects = [comment_object(comment, options) for comment in new]
        told = f"{NAME}: {count(len(new), 'new finding')} at lines of this change."
        review = {"commit_id": self._head, "event": "COMMENT", "body": told, "comments": objects}
        try:
            self._web.post(f"{self._pull}/reviews", review)
            return []
        except RefusedError as error:
            if error.status != 422:
                raise
        refused = []
        for comment, body in zip(new, objects, strict=True):
            try:
                self._web.post(f"{self._pull}/comments", {"commit_id": self._head, **body})
            except RefusedError:
                refused.append(comment)
        return refused

    def notes(self) -> Iterator[tuple[str, str]]:
        """Name and text of each comment of ours on the whole."""
        for comment in self._web.all(f"{self._issue}/comments"):
            if self._is_own(comment):
                yield str(comment.number("id")), comment.text("body")

    def write(self, text: str, known: str | None) -> str:
        """Writes a comment on the whole, in place of a known one, and gives its address."""
        if known is None:
            answer = self._web.post(f"{self._issue}/comments", {"body": text})
        else:
            path = f"{self._repository}/issues/comments/{known}"
            answer = self._web.put(path, {"body": text}, method="PATCH")
        return self._web.shown(answer.text("html_url"))


def from_environment(environment: Mapping[str, str], seconds: float = SECONDS) -> GitHub:
    """The pull request that a job of GitHub Actions runs for."""
    token = environment.get("DISPATCHGUARD_TOKEN") or environment.get("GITHUB_TOKEN") or ""
    repository = environment.get("GITHUB_REPOSITORY", "")
    if not token:
        raise UserError(
            "--post: no token; give the job's step `env: GITHUB_TOKEN: ${{ github.token }}`"
        )
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise UserError("--post: GITHUB_REPOSITORY names no repository; run this in a GitHub job")
    web = Web(
        environment.get("GITHUB_API_URL") or "https://api.github.com",
        {
            "Authorization": f"Bearer {token.strip()}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        },
        (token.strip(),),
        _ADVICE,
        seconds,
    )
    return GitHub(web, repository, _number(environment))


def _number(environment: Mapping[str, str]) -> int:
    from_ref = re.fullmatch(r"refs/pull/(\d+)/\w+", environment.get("GITHUB_REF", ""))
    if from_ref:
        return int(from_ref[1])
    try:
        event = json.loads(Path(environment["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        return int(event["pull_request"]["number"])
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, OSError):
        raise UserError(
            "--post: this job is for no pull request; run it on `pull_request`"
        ) from None
