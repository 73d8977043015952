"""Posting, attacked by answers that no documentation has: a table of them, and as many random ones as wanted.

`python bench/attacks/odd_answers.py --number 1000 --seed 7` goes through all of them, with a real server on
this machine, and ends with 1 where one did not end in a comment posted or in one clear line.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unicodedata import category
from urllib.parse import unquote

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.findings import Finding, Hot, Span
from pytest_dispatchguard.model.reviews import Remark, Review, Stretch
from pytest_dispatchguard.post import github, gitlab
from pytest_dispatchguard.post.sending import Posted, send
from pytest_dispatchguard.post.web import Web
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.visible import one_line

TOKEN = "ghs_secret0123456789"
HEAD = "a" * 40
KINDS = ("github", "gitlab")
DRIP = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"

# What is asked for on the way, as METHOD and the end of the path.
ASKED = {
    "github": (
        "GET /user",
        "GET /pulls/7",
        "GET /pulls/7/comments",
        "POST /pulls/7/reviews",
        "GET /issues/7/comments",
        "POST /issues/7/comments",
    ),
    "gitlab": (
        "GET /user",
        "GET /merge_requests/7",
        "GET /merge_requests/7/discussions",
        "POST /merge_requests/7/discussions",
        "GET /merge_requests/7/notes",
        "POST /merge_requests/7/notes",
    ),
}


@dataclass(frozen=True)
class Odd:
    """An odd answer: the bytes that come back, and how."""

    name: str
    data: bytes
    """All that is sent, from the status line on."""
    drip: float = 0.0
    """Seconds between single bytes, once the data is sent: without end."""
    kind: str = ""
    """The host that it is an answer of; empty for both."""
    asked: str = ""
    """What it is the answer to; empty for everything."""
    elsewhere: bool = False
    """Whether `{elsewhere}` in it is the address of another server, which must not be asked."""


@dataclass(frozen=True)
class Outcome:
    """What came of an attempt."""

    ended: str
    """`posted`, `told` (one clear line), or what went wrong."""
    said: str
    seconds: float

    @property
    def fine(self) -> bool:
        """Whether it is as promised."""
        return self.ended in ("posted", "told")


# -- answers ---------------------------------------------------------------------------------------


def answer(body: object, status: str = "200 OK", *headers: str) -> bytes:
    """A whole answer; a body that is no bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = (f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(data)}", "Connection: close")
    return "\r\n".join((*lines, "", "")).encode("latin-1") + data


def _told(url: str) -> bytes:
    return answer({"id": 9, "html_url": url}, "201 Created")


def _comments(**fields: object) -> bytes:
    usual = {"id": 1, "body": "x", "user": {"login": "ci", "type": "Bot"}}
    return answer([{**usual, **fields}])


def _limited(seconds: str, status: str = "429 Too Many Requests") -> bytes:
    return answer({}, status, f"Retry-After: {seconds}")


_DEEP = b"[" * 200_000 + b"]" * 200_000
_REFUSED = "403 Forbidden"
_WRITE = "POST /issues/7/comments"
_PULL, _LINES, _NOTES = "GET /pulls/7", "GET /pulls/7/comments", "GET /issues/7/comments"

TABLE: tuple[Odd, ...] = (
    Odd("empty body", answer(b"")),
    Odd("blank body", answer(b" \n")),
    Odd("null", answer(None)),
    Odd("true", answer(True)),
    Odd("a number", answer(7)),
    Odd("text", answer("hello")),
    Odd("an empty list", answer([])),
    Odd("an empty object", answer({})),
    Odd("a list of lists", answer([[[]]])),
    Odd("comments that are strings", answer(["a", "b"])),
    Odd("comments that are null", answer([None])),
    Odd("a page of HTML", answer(b"<html>sign in</html>")),
    Odd("half of an object", answer(b'{"head": {"sha": "a')),
    Odd("nested deep", answer(_DEEP)),
    Odd("nested deep in an object", answer(b'{"head":' * 100_000 + b"1" + b"}" * 100_000)),
    Odd("invalid UTF-8", answer(b'{"head": {"sha": "\xff\xfe"}}')),
    Odd("a byte order mark", answer(b"\xef\xbb\xbf{}")),
    Odd("UTF-16", answer('{"id": 1}'.encode("utf-16"))),
    Odd("a number of 5,000 digits", answer(b'{"id": ' + b"9" * 5000 + b"}")),
    Odd("not a number", answer(b'[{"id": NaN, "body": Infinity}]')),
    Odd("a lone surrogate", answer(b'{"head": {"sha": "\\ud800"}, "login": "\\udfff"}')),
    Odd("head is null", answer({"head": None}), kind="github", asked=_PULL),
    Odd("head is text", answer({"head": "main"}), kind="github", asked=_PULL),
    Odd("head is a list", answer({"head": [1]}), kind="github", asked=_PULL),
    Odd("sha is a number", answer({"head": {"sha": 7}}), kind="github", asked=_PULL),
    Odd(
        "sha is a command",
        answer({"head": {"sha": "a\n::error::b"}}),
        kind="github",
        asked=_PULL,
    ),
    Odd(
        "diff_refs is a list",
        answer({"diff_refs": [1]}),
        kind="gitlab",
        asked="GET /merge_requests/7",
    ),
    Odd(
        "a sha is an object",
        answer({"diff_refs": {"head_sha": {}}}),
        kind="gitlab",
        asked="GET /merge_requests/7",
    ),
    Odd("the login is a list", answer({"login": [1], "username": [1]}), asked="GET /user"),
    Odd("a body is a number", _comments(body=7), kind="github", asked=_LINES),
    Odd("a body is null", _comments(body=None), kind="github", asked=_LINES),
    Odd("a user is text", _comments(user="eve"), kind="github", asked=_LINES),
    Odd("a user is null", _comments(user=None), kind="github", asked=_LINES),
    Odd("an id is a way out", _comments(id="../../user"), kind="github", asked=_NOTES),
    Odd("an id is null", _comments(id=None), kind="github", asked=_NOTES),
    Odd(
        "notes are text",
        answer([{"notes": "many"}]),
        kind="gitlab",
        asked="GET /merge_requests/7/discussions",
    ),
    Odd(
        "an address of two lines",
        _told("https://x/1\n::error::owned"),
        kind="github",
        asked=_WRITE,
    ),
    Odd(
        "an address that steers",
        _told("\x1b]0;x\x07\x9b2J\u202e\r"),
        kind="github",
        asked=_WRITE,
    ),
    Odd(
        "an address with the token",
        _told(f"https://x/{TOKEN}"),
        kind="github",
        asked=_WRITE,
    ),
    Odd(
        "an address is a list",
        answer({"html_url": [1]}),
        kind="github",
        asked=_WRITE,
    ),
    Odd("waits for nan", _limited("nan")),
    Odd("waits for less than nothing", _limited("-5")),
    Odd("waits for ever", _limited("inf")),
    Odd("waits for 1e400", _limited("1e400")),
    Odd("waits for long", _limited("99999999999999999999")),
    Odd("waits until a date", _limited("Fri, 31 Dec 2199 23:59:59 GMT")),
    Odd("waits until a past date", _limited("Wed, 21 Oct 2015 07:28:00 GMT")),
    Odd("waits until no date", _limited("soon, \x1b[31m")),
    Odd(
        "waits until nan",
        answer({}, _REFUSED, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: nan"),
    ),
    Odd("refuses in a list", answer([1], _REFUSED)),
    Odd("refuses with a number", answer({"message": 7, "errors": {"a": [None]}}, "422 Odd")),
    Odd("refuses in depth", answer(b'{"errors": ' + b"[" * 9000 + b"]" * 9000 + b"}", "422 Odd")),
    Odd("refuses with a command", answer({"message": "a\r\n::error::b\x1b[2J"}, "404 Gone")),
    Odd("refuses with the token", answer({"message": f"bad {TOKEN}"}, "418 Teapot")),
    Odd("refuses in invalid UTF-8", answer(b"\xff\xfe\xfd", "400 Bad")),
    Odd(
        "a redirect to another host",
        answer(b"", "302 Found", "Location: {elsewhere}"),
        elsewhere=True,
    ),
    Odd("a redirect that stays", answer(b"", "307 Temporary", "Location: /user")),
    Odd("a redirect to nowhere", answer(b"", "308 Permanent")),
    Odd("a redirect to a wrong address", answer(b"", "301 Moved", "Location: http://[::1/")),
    Odd("a redirect to a file", answer(b"", "302 Found", "Location: file:///etc/passwd")),
    Odd("a body cut short", b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"id"'),
    Odd("chunks cut short", b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{"id"'),
    Odd("chunks of no size", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n"),
    Odd("a length that is no number", b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n{}"),
    Odd("a length below nothing", b"HTTP/1.1 200 OK\r\nContent-Length: -9\r\n\r\n{}"),
    Odd("a refusal cut short", b'HTTP/1.1 400 Bad\r\nContent-Length: 1000\r\n\r\n{"message": "a'),
    Odd("nothing at all", b""),
    Odd("another protocol", b"SSH-2.0-OpenSSH_9.2\r\n"),
    Odd("no status", b"HTTP/1.1\r\n\r\n"),
    Odd("status 0", b"HTTP/1.1 0 None\r\n\r\n"),
    Odd("status 999", answer({}, "999 Odd")),
    Odd("status 204", b"HTTP/1.1 204 No Content\r\n\r\n"),
    Odd("status 304", b"HTTP/1.1 304 Not Modified\r\n\r\n"),
    Odd("status 101", b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
    Odd("1,000 headers", answer({}, "200 OK", *(f"X-{n}: 1" for n in range(1000)))),
    Odd("a header without end", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000),
    Odd("bytes in headers", b"HTTP/1.1 200 OK\r\n\xff\xfe: \x00\x1b\r\n\r\n{}"),
    Odd("compressed", answer(b"\x1f\x8b\x08\x00junk", "200 OK", "Content-Encoding: gzip")),
    Odd("a body that drips", DRIP, drip=0.1),
    Odd("a header that drips", b"HTTP/1.1 200 OK\r\nX: ", drip=0.1),
    Odd("a refusal that drips", DRIP.replace(b"200 OK", b"400 Bad"), drip=0.1),
    Odd("chunks that drip", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", drip=0.1),
    Odd("continue, for ever", b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000, drip=0.1),
)


def random_odd(rng: random.Random, number: int) -> Odd:
    """A random answer: JSON of a random shape, a good answer that is damaged, or bytes."""
    kind = rng.choice(KINDS)
    asked = rng.choice(ASKED[kind])
    way = rng.randrange(4)
    good = answer(_good(kind, asked))
    if way == 0:
        data = answer(_shape(rng, 4), rng.choice(("200 OK", "201 Created", "404 Gone", "422 Odd")))
    elif way == 1:
        data = answer(_bent(rng, _good(kind, asked)))
    elif way == 2:
        damaged = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        data = bytes(damaged[: rng.choice((len(damaged), rng.randrange(len(damaged))))])
    else:
        odd = rng.choice(TABLE)
        return Odd(f"random {number}: {odd.name}", odd.data, odd.drip, kind, asked, odd.elsewhere)
    return Odd(f"random {number}", data, 0.0, kind, asked)


_WORDS = (
    *(
        "head",
        "sha",
        "id",
        "body",
        "user",
        "login",
        "username",
        "author",
        "notes",
        "type",
        "message",
    ),
    *(
        "html_url",
        "diff_refs",
        "head_sha",
        "errors",
        "\n::error::x",
        "\x1b[31m",
        "\ud800",
        "",
        HEAD,
    ),
)


def _shape(rng: random.Random, depth: int) -> object:
    kind = rng.randrange(8 if depth else 6)
    if kind < 6:
        plain = (None, True, rng.choice(_WORDS), rng.randrange(-9, 10**6), 1e308, 0.5)
        return plain[kind]
    if kind == 6:
        return [_shape(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice(_WORDS): _shape(rng, depth - 1) for _ in range(rng.randrange(6))}


def _bent(rng: random.Random, value: object) -> object:
    """A good answer in which one thing is another."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(sorted(value))
        return {**value, key: _bent(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], _bent(rng, value[at]), *value[at + 1 :]]
    return _shape(rng, 2)


# -- a host ----------------------------------------------------------------------------------------


def _good(kind: str, asked: str) -> object:
    """What a host answers rightly."""
    who = {"user": {"login": "ci", "type": "Bot"}, "author": {"username": "ci"}}
    note = {"id": 5, "body": "talk", **who}
    if asked.startswith("POST"):
        return {"id": 6, "html_url": "https://host.example/6"}
    if asked.endswith("/user"):
        return {"login": "ci", "username": "ci"}
    if asked.endswith(("/pulls/7", "/merge_requests/7")):
        refs = {"base_sha": "b" * 40, "start_sha": "c" * 40, "head_sha": HEAD}
        return {"head": {"sha": HEAD}, "diff_refs": refs}
    return [{"notes": [note]}] if asked.endswith("/discussions") else [note]


@dataclass
class Server:
    """A host on this machine, which answers one thing oddly."""

    kind: str
    odd: Odd | None = None
    elsewhere: str = ""
    address: str = ""
    requests: list[str] = field(default_factory=list)
    """All that came: the first lines, and the token where one was sent."""
    done: threading.Event = field(default_factory=threading.Event)

    def serve(self, connection: socket.socket) -> None:
        """Answers one request."""
        with connection:
            connection.settimeout(5)
            try:
                asked = self._read(connection)
                self._answer(connection, asked)
            except OSError:
                pass  # whoever asked has gone

    def _read(self, connection: socket.socket) -> str:
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                break
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        lengths = [line for line in lines if line.lower().startswith("content-length:")]
        wanted = int(lengths[0].partition(":")[2]) if lengths else 0
        while len(body) < wanted:
            more = connection.recv(65536)
            if not more:
                break
            body += more
        self.requests.append(head.decode("latin-1"))
        method, _, rest = lines[0].partition(" ")
        return f"{method} {unquote(rest.split(' ')[0].partition('?')[0])}"

    def _answer(self, connection: socket.socket, asked: str) -> None:
        method, _, path = asked.partition(" ")
        odd = self.odd
        if odd is not None and odd.asked:
            wanted, _, end = odd.asked.partition(" ")
            odd = odd if wanted == method and path.endswith(end) else None
        if odd is None:
            connection.sendall(answer(_good(self.kind, asked)))
            return
        data = odd.data
        if odd.elsewhere:
            data = data.replace(b"{elsewhere}", self.elsewhere.encode())
        connection.sendall(data)
        while odd.drip and not self.done.wait(odd.drip):
            connection.sendall(b"1")


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Has it answer as long as it is asked for."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(0.02)
    server.address = f"http://127.0.0.1:{listening.getsockname()[1]}"

    def loop() -> None:
        while not server.done.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                continue
            threading.Thread(target=server.serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.done.set()
        thread.join()
        listening.close()


# -- attempts --------------------------------------------------------------------------------------

_FOUND = Finding("DG601", "r", "a.py", Span(4, 1, 4, 8), "f", "slow", hot=Hot("f", ("f",), "hot"))
_OTHER = Finding("DG601", "r", "a.py", Span(40, 1, 40, 8), "f", "slow", hot=Hot("f", ("f",), "hot"))
_REVIEW = Review("main", (Remark(_FOUND, 4, 4, Stretch(3, 9, "a.py", {})),), (_OTHER,), ())


def environment(kind: str, address: str) -> dict[str, str]:
    """What a job of CI is given."""
    if kind == "github":
        return {
            "GITHUB_API_URL": address,
            "GITHUB_REPOSITORY": "me/lib",
            "GITHUB_REF": "refs/pull/7/merge",
            "GITHUB_TOKEN": TOKEN,
        }
    return {
        "CI_API_V4_URL": address,
        "CI_PROJECT_ID": "me/lib",
        "CI_PROJECT_URL": "https://gitlab.example/me/lib",
        "CI_MERGE_REQUEST_IID": "7",
        "GITLAB_TOKEN": TOKEN,
    }


def attempt(kind: str, odd: Odd, seconds: float = 1.0) -> Outcome:
    """Posts a review to a host that gives an odd answer, within so many seconds, and without waiting between
    attempts."""
    with serving(Server("other")) as other, serving(Server(kind, odd, other.address)) as server:
        made: Callable[..., github.GitHub | gitlab.GitLab] = (
            github.from_environment if kind == "github" else gitlab.from_environment
        )
        host = made(environment(kind, server.address), seconds)
        web: Web = host._web
        web.sleep = lambda pause: time.sleep(min(pause, 0.001))
        began = time.monotonic()
        try:
            done: Posted | None = send(host, _REVIEW, Options(), HEAD)
            said, ended = "" if done is None else f"{done.address} {done.note}".strip(), "posted"
        except UserError as error:
            said, ended = str(error), "told"
        except Exception as error:  # noqa: BLE001 - which is what is looked for
            said, ended = one_line(str(error)), f"{type(error).__name__} was raised"
        took = time.monotonic() - began
        wrong = _wrong(ended, said, took, seconds)
        if other.requests:
            wrong = "another host was asked"
        return Outcome(wrong or ended, said, took)


def _wrong(ended: str, said: str, took: float, seconds: float) -> str:
    if ended == "told" and not said.startswith("--post: "):
        return "the line does not say what it is about"
    if any(category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in said):
        return "controls are told raw"
    if TOKEN in said:
        return "the token is told"
    if len(said) > 600:
        return "the line is too long"
    return "it took too long" if took > seconds + 1.0 else ""


def attempts(number: int, seed: int) -> Iterator[tuple[str, Odd, Outcome]]:
    """Goes through the table for both hosts, and through so many random answers."""
    for kind in KINDS:
        for odd in TABLE:
            if odd.kind in ("", kind):
                yield kind, odd, attempt(kind, odd)
    rng = random.Random(seed)
    for count in range(number):
        odd = random_odd(rng, count)
        yield odd.kind, odd, attempt(odd.kind, odd, 0.5)


def main() -> int:
    """Tells how many answers ended in what, and each that ended as none should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=500, help="random answers (default: 500)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    ended: Counter[str] = Counter()
    for kind, odd, outcome in attempts(arguments.number, arguments.seed):
        ended[outcome.ended] += 1
        if not outcome.fine:
            print(
                f"{kind}, {odd.name} to {odd.asked or 'everything'}: {outcome.ended}: {outcome.said}"
            )
    print(", ".join(f"{number} {what}" for what, number in ended.most_common()))
    return 0 if set(ended) <= {"posted", "told"} else 1


if __name__ == "__main__":
    sys.exit(main())
