"""A merge request on GitLab."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.post.answers import Part
from pytest_dispatchguard.post.web import SECONDS, RefusedError, Web
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.report.review.gitlab import discussion
from pytest_dispatchguard.report.review.markdown import Comment

_ADVICE = {
    401: "give a valid token in GITLAB_TOKEN; the job's own token cannot write comments",
    403: "the token may not write here; it needs the scope `api` and the role of a reporter",
    404: "no such merge request, or the token may not see it",
}


class GitLab:
    """One merge request, as `sending.Host` wants it."""

    def __init__(self, web: Web, project: str, number: str, address: str = "") -> None:
        self._web = web
        self._request = f"projects/{quote(project, safe='')}/merge_requests/{number}"
        self._address = address
        self._commits: dict[str, str] = {}
        self._login = ""

    def head(self) -> str:
        """The commit at its head."""
        self._login = self._web.get("user").text("username")
        refs = self._web.get(self._request).object("diff_refs")
        shas = {name: refs.text(name) for name in ("base_sha", "start_sha", "head_sha")}
        self._commits = {name: sha for name, sha in shas.items() if sha}
        return self._commits.get("head_sha", "")

    def bodies(self) -> Iterator[str]:
        """The texts of all comments of ours at lines."""
        for found in self._web.all(f"{self._request}/discussions"):
            for note in found.objects("notes"):
                if self._is_own(note):
                    yield note.text("body")

    def _is_own(self, note: Part) -> bool:
        """Whether a note is one of ours: anybody can write our marks."""
        return bool(self._login) and note.object("author").text("username") == self._login

    def place(self, new: Sequence[Comment], options: Options) -> list[Comment]:
        """Starts a discussion for each comment; gives those that GitLab does not take at their lines."""
        refused = []
        for comment in new:
            try:
                self._web.post(
                    f"{self._request}/discussions", discussion(comment, options, self._commits)
                )
            except RefusedError as error:
                if error.status not in (400, 422):
                    raise
                refused.append(comment)
        return refused

    def notes(self) -> Iterator[tuple[str, str]]:
        """Name and text of each comment of ours on the whole."""
        for note in self._web.all(f"{self._request}/notes"):
            if self._is_own(note):
                yield str(note.number("id")), note.text("body")

    def write(self, text: str, known: str | None) -> str:
        """Writes a comment on the whole, in place of a known one, and gives its address."""
        if known is None:
            answer = self._web.post(f"{self._request}/notes", {"body": text})
        else:
            answer = self._web.put(f"{self._request}/notes/{known}", {"body": text})
        number = answer.number("id")
        return f"{self._address}#note_{number}" if self._address else "a note"


def from_environment(environment: Mapping[str, str], seconds: float = SECONDS) -> GitLab:
    """The merge request that a job of GitLab CI runs for."""
    token = environment.get("DISPATCHGUARD_TOKEN") or environment.get("GITLAB_TOKEN") or ""
    number = environment.get("CI_MERGE_REQUEST_IID", "")
    if not number.isdecimal():
        raise UserError(
            "--post: this job is for no merge request; run it with "
            '`rules: - if: $CI_PIPELINE_SOURCE == "merge_request_event"`'
        )
    if not token:
        raise UserError(
            "--post: no token; give the job a project access token with the scope `api` as the variable "
            "GITLAB_TOKEN"
        )
    web = Web(
        environment.get("CI_API_V4_URL", ""),
        {"PRIVATE-TOKEN": token.strip()},
        (token.strip(),),
        _ADVICE,
        seconds,
    )
    project = environment.get("CI_PROJECT_ID", "")
    url = environment.get("CI_PROJECT_URL", "")
    return GitLab(web, project, number, f"{url}/-/merge_requests/{number}" if url else "")
