"""A code host on this machine: it speaks as much of the documented APIs as a review needs, and fails when
told to."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

TOKEN = "ghs_secret0123456789"
HEAD = "a" * 40
OWN = {"user": {"login": "ci[bot]", "type": "Bot"}, "author": {"username": "ci"}}
"""Who wrote what the token wrote, as one host says it and the other."""

Reply = tuple[int, dict[str, str], object]


@dataclass
class Failure:
    """What goes wrong: the answer in place of the right one, so many times, to requests that match."""

    method: str
    path: str
    status: int
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    body: object = None
    after: bool = False
    """Whether what was asked for is done all the same."""
    hang: float = 0.0


@dataclass
class Host:
    """What the host holds."""

    address: str = ""
    head: str = HEAD
    """The commit at the head of the pull request."""
    shown: dict[str, set[int]] = field(default_factory=dict)
    """Lines that the change shows, by path: comments elsewhere are refused."""
    comments: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    login: str | None = "ci"
    """Whose token it is; None where it may not ask."""
    authorized: set[str] = field(default_factory=set)

    def fail(self, method: str, path: str, status: int, **more: Any) -> None:
        self.failures.append(Failure(method, path, status, **more))

    def asked(self, method: str, path: str) -> list[Any]:
        """The bodies of requests."""
        return [b for m, p, b in self.requests if m == method and re.search(path, p)]

    # -- the two APIs ------------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Reply:
        for pattern, reply in ROUTES:
            match = re.fullmatch(f"{method} {pattern}", f"{method} {path}")
            if match:
                return reply(self, method, query, body, *match.groups())
        return 404, {}, {"message": "Not Found"}

    def user(self, method: str, query: Any, body: Any) -> Reply:
        if self.login is None:
            return 403, {}, {"message": "Resource not accessible by integration"}
        return 200, {}, {"login": self.login, "username": self.login}

    def pull(self, method: str, query: Any, body: Any) -> Reply:
        return 200, {}, {"number": 7, "head": {"sha": self.head}}

    def pages(self, found: list[dict[str, Any]], query: dict[str, list[str]]) -> Reply:
        each, page = int(query["per_page"][0]), int(query["page"][0])
        return 200, {}, found[(page - 1) * each : page * each]

    def _takes(self, comment: dict[str, Any]) -> bool:
        first = comment.get("start_line", comment["line"])
        lines = self.shown.get(comment["path"], set())
        return comment["side"] == "RIGHT" and set(range(first, comment["line"] + 1)) <= lines

    def review_comments(self, method: str, query: Any, body: Any) -> Reply:
        if method == "GET":
            return self.pages(self.comments, query)
        assert body["commit_id"] == self.head
        if not self._takes(body):
            return 422, {}, {"message": "Validation Failed", "errors": ["line must be in the diff"]}
        self.comments.append({**body, **OWN})
        return 201, {}, {"id": len(self.comments)}

    def reviews(self, method: str, query: Any, body: Any) -> Reply:
        assert body["event"] == "COMMENT" and body["body"] and body["commit_id"] == self.head
        assert {"start_line" in c for c in body["comments"]} <= {True, False}
        assert all(c.get("start_line", 0) < c["line"] for c in body["comments"])
        if not all(self._takes(comment) for comment in body["comments"]):
            return (
                422,
                {},
                {"message": "Unprocessable Entity", "errors": ["Line could not be resolved"]},
            )
        self.comments += [{**comment, **OWN} for comment in body["comments"]]
        return 200, {}, {"id": 80}

    def issue_comments(self, method: str, query: Any, body: Any) -> Reply:
        if method == "GET":
            return self.pages(self.notes, query)
        self.notes.append({"id": 1000 + len(self.notes), "body": body["body"], **OWN})
        return 201, {}, {**self.notes[-1], "html_url": f"https://github.example/{len(self.notes)}"}

    def issue_comment(self, method: str, query: Any, body: Any, number: str) -> Reply:
        for note in self.notes:
            if note["id"] == int(number):
                note["body"] = body["body"]
                return 200, {}, {**note, "html_url": "https://github.example/edited"}
        return 404, {}, {"message": "Not Found"}

    def merge_request(self, method: str, query: Any, body: Any) -> Reply:
        refs = {"base_sha": "b" * 40, "start_sha": "c" * 40, "head_sha": self.head}
        return 200, {}, {"iid": 7, "diff_refs": refs}

    def discussions(self, method: str, query: Any, body: Any) -> Reply:
        if method == "GET":
            return self.pages([{"notes": [c]} for c in self.comments], query)
        position = body["position"]
        assert position["head_sha"] == self.head and position["position_type"] == "text"
        if position["new_line"] not in self.shown.get(position["new_path"], set()):
            return 400, {}, {"message": "400 Bad request - Note line_code can't be blank"}
        self.comments.append({**body, **OWN})
        return 201, {}, {"id": "d"}

    def all_notes(self, method: str, query: Any, body: Any) -> Reply:
        return self.issue_comments(method, query, body)


ROUTES: list[tuple[str, Callable[..., Reply]]] = [
    (r"/user", Host.user),
    (r"/repos/me/lib/pulls/7", Host.pull),
    (r"/repos/me/lib/pulls/7/comments", Host.review_comments),
    (r"/repos/me/lib/pulls/7/reviews", Host.reviews),
    (r"/repos/me/lib/issues/7/comments", Host.issue_comments),
    (r"/repos/me/lib/issues/comments/(\d+)", Host.issue_comment),
    (r"/projects/me/lib/merge_requests/7", Host.merge_request),
    (r"/projects/me/lib/merge_requests/7/discussions", Host.discussions),
    (r"/projects/me/lib/merge_requests/7/notes", Host.all_notes),
    (r"/projects/me/lib/merge_requests/7/notes/(\d+)", Host.issue_comment),
]


@pytest.fixture
def host() -> Iterator[Host]:
    """The host, at its address."""
    held = Host()
    released = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def _do(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            path = unquote(parts.path)
            held.requests.append((self.command, path, body))
            told = self.headers.get("Authorization") or self.headers.get("PRIVATE-TOKEN") or ""
            held.authorized.add(told)
            for failure in held.failures:
                if (
                    failure.times
                    and failure.method == self.command
                    and re.search(failure.path, path)
                ):
                    failure.times -= 1
                    if failure.after:
                        held.answer(self.command, path, parse_qs(parts.query), body)
                    if failure.hang:
                        released.wait(failure.hang)
                        return
                    self._reply(failure.status, failure.headers, failure.body)
                    return
            if TOKEN not in told:
                self._reply(401, {}, {"message": f"Bad credentials: {told}"})
                return
            self._reply(*held.answer(self.command, path, parse_qs(parts.query), body))

        def _reply(self, status: int, headers: dict[str, str], body: object) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    for method in ("GET", "POST", "PUT", "PATCH"):
        setattr(Handler, f"do_{method}", Handler._do)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    held.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield held
    released.set()
    server.shutdown()
    server.server_close()
    thread.join()
