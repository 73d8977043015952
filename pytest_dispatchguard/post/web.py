"""One web API, asked with patience: retries, rate limits, a deadline, no secret in what is said."""

from __future__ import annotations

import http.client
import json
import math
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from email.utils import parsedate_to_datetime
from threading import Thread
from typing import NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.post.answers import OddAnswerError, Part
from pytest_dispatchguard.visible import one_line

SECONDS = 60.0
"""What all of posting may take, unless another time is asked for."""
_TIMES = 4
"""How often something is asked before it is given up."""
_MOST_BYTES = 32 * 2**20
_MOST_OF_ERROR = 2**16
_PAGE, _MOST_PAGES = 100, 100


class UnsureError(Exception):
    """Nobody knows whether what was sent has arrived: it may have to be looked up before it is sent again."""


class RefusedError(UserError):
    """The host understands what it is asked, and does not do it."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


@dataclass(frozen=True, slots=True)
class _Answer:
    """What came over the wire."""

    status: int
    headers: Mapping[str, str]
    """By names in lower case."""
    text: bytes


def _opener() -> urllib.request.OpenerDirector:
    """What opens addresses but follows no redirect: a token is for the host that it was given for."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    return opener


@dataclass(slots=True)
class Web:
    """An API below one address. Its deadline counts from when it is made."""

    address: str
    headers: Mapping[str, str]
    secrets: tuple[str, ...]
    """What must never be shown."""
    advice: Mapping[int, str]
    """What to do about a status."""
    seconds: float = SECONDS
    """What all that is asked may take."""
    timeout: float = 30.0
    sleep: Callable[[float], None] = time.sleep
    _opener: urllib.request.OpenerDirector = field(default_factory=_opener, init=False)
    _end: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds
        try:
            parts = urlsplit(self.address)
            fine = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # of the port, or of brackets
            fine = False
        if not fine:
            raise UserError(f"--post: {self.shown(self.address)!r} is no web address of an API")
        if any(not (v.isascii() and v.isprintable()) for v in self.headers.values()):
            raise UserError("--post: the token holds signs that no token has; set it anew")

    @property
    def host(self) -> str:
        """The name of the host."""
        return urlsplit(self.address).hostname or ""

    def get(self, path: str) -> Part:
        """Reads."""
        return self._patiently("GET", path, None)

    def all(self, path: str) -> Iterator[Part]:
        """Reads a list, page by page."""
        for page in range(1, _MOST_PAGES + 1):
            found = self.get(f"{path}?per_page={_PAGE}&page={page}").each()
            yield from found
            if len(found) < _PAGE:
                return

    def put(self, path: str, body: object, method: str = "PUT") -> Part:
        """Writes what may be written twice."""
        return self._patiently(method, path, body)

    def post(self, path: str, body: object) -> Part:
        """Makes something anew. `UnsureError` where it may have been made although nobody said so."""
        return self._patiently("POST", path, body)

    def shown(self, text: str) -> str:
        """What a host said, on one line, without secrets and without what steers a terminal."""
        for secret in self.secrets:
            if secret:
                text = text.replace(secret, "***")
        line = one_line(" ".join(text.split()))
        return line if len(line) <= 200 else f"{line[:199]}…"

    def _patiently(self, method: str, path: str, body: object) -> Part:
        wait = 1.0
        for left in reversed(range(_TIMES)):
            pause = wait
            try:
                answer = self._in_time(method, path, body)
                if 200 <= answer.status < 300:
                    return Part(self._read(method, path, answer), self._place(method, path))
                pause = self._pause(answer, wait)
                trouble = f"answers {answer.status}"
                unsure = method == "POST" and answer.status >= 500
            # ValueError: of a host's name that no host can have.
            except (URLError, http.client.HTTPException, OSError, ValueError) as error:
                reason = getattr(error, "reason", None) or error
                trouble = f"cannot be reached: {self.shown(str(reason) or type(error).__name__)}"
                # Nothing was sent where no connection was made.
                unsure = method == "POST" and not isinstance(reason, ConnectionRefusedError)
            if left or unsure:
                if pause > self._left():
                    self._too_late()
                self.sleep(pause)
                wait *= 2
            if unsure:
                raise UnsureError(f"--post: {self.host} {trouble}")
        raise UserError(f"--post: {self.host} {trouble}, {_TIMES} times; try again later")

    def _left(self) -> float:
        return self._end - time.monotonic()

    def _too_late(self) -> NoReturn:
        raise UserError(
            f"--post: {self.host} took longer than {self.seconds:g} s in all (--post-timeout); what it has "
            "taken stays, and the next run adds the rest"
        )

    def _in_time(self, method: str, path: str, body: object) -> _Answer:
        """Asks in a thread that is left behind at the deadline: a host that sends a byte now and then keeps
        every timeout of a socket."""
        left = self._left()
        if left <= 0:
            self._too_late()
        came: list[_Answer | Exception] = []

        def ask() -> None:
            try:
                came.append(self._ask(method, path, body, min(self.timeout, left)))
            except Exception as error:  # noqa: BLE001 - raised below, where somebody waits for it
                came.append(error)

        thread = Thread(target=ask, daemon=True)
        thread.start()
        thread.join(left)
        if not came:
            self._too_late()
        if isinstance(came[0], Exception):
            raise came[0]
        return came[0]

    def _ask(self, method: str, path: str, body: object, timeout: float) -> _Answer:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "User-Agent": "dispatchguard", **self.headers}
        if data is not None:
            headers["Content-Type"] = "application/json"
        url = f"{self.address.rstrip('/')}/{path.lstrip('/')}"
        request = urllib.request.Request(url, data=data, headers=headers, method=method)
        try:
            response = self._opener.open(request, timeout=timeout)
        except HTTPError as error:
            with error:
                return _Answer(error.code, _lower(error.headers), _begun(error))
        with response:
            text = response.read(_MOST_BYTES + 1)
            return _Answer(response.status, _lower(response.headers), text)

    def _place(self, method: str, path: str) -> str:
        return f"--post: {self.host} answers {method} {path.partition('?')[0]}"

    def _read(self, method: str, path: str, answer: _Answer) -> object:
        if len(answer.text) > _MOST_BYTES:
            raise OddAnswerError(
                f"{self._place(method, path)} with more than {_MOST_BYTES >> 20} MiB; check the address"
            )
        try:
            return _parsed(answer.text) if answer.text.strip() else None
        except ValueError:
            raise OddAnswerError(
                f"{self._place(method, path)} with what is no JSON; check the address"
            ) from None

    def _pause(self, answer: _Answer, usual: float) -> float:
        """How long to wait before asking again; an error where that would not help."""
        headers = answer.headers
        limited = answer.status == 429 or (
            answer.status == 403
            and ("retry-after" in headers or headers.get("x-ratelimit-remaining") == "0")
        )
        if limited:
            return self._limited(headers, usual)
        if answer.status < 500:
            self._refused(answer.status, _reason(answer.text))
        return usual

    def _limited(self, headers: Mapping[str, str], usual: float) -> float:
        pause = _seconds(headers.get("retry-after", ""))
        if pause is None:
            reset = headers.get("x-ratelimit-reset") or headers.get("ratelimit-reset") or ""
            at = _seconds(reset)
            pause = usual if at is None else at - time.time()
        if pause > self._left():
            minutes = f"{math.ceil(pause / 60)} minutes" if pause < 1e6 else "a long time"
            raise UserError(
                f"--post: {self.host} takes no more requests for {minutes} (rate limit); "
                "run the job again then"
            )
        return max(pause, 0.0)

    def _refused(self, status: int, said: str) -> NoReturn:
        told = self.shown(said)
        if status in self.advice:
            words = f" ({told})" if told else ""
            raise UserError(f"--post: {self.host} answers {status}{words}: {self.advice[status]}")
        if 300 <= status < 400:
            told = "what is asked for has moved; give the API's own address"
        raise RefusedError(status, f"--post: {self.host} answers {status}: {told or 'no reason'}")


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _begun(error: HTTPError) -> bytes:
    """As much of the body of a refusal as is there."""
    try:
        return error.read(_MOST_OF_ERROR)
    except (OSError, http.client.HTTPException, ValueError):
        return b""


def _parsed(text: bytes) -> object:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _reason(text: bytes) -> str:
    """What a host gives as its reason."""
    try:
        data = _parsed(text)
        if not isinstance(data, dict):
            return ""
        parts = [data.get("message"), data.get("error"), data.get("errors")]
        return "; ".join(p if isinstance(p, str) else json.dumps(p) for p in parts if p)
    except (ValueError, RecursionError):
        return ""


def _seconds(said: str) -> float | None:
    """Seconds, or the seconds until a date; None where it is neither."""
    try:
        number = float(said)
    except ValueError:
        try:
            return parsedate_to_datetime(said).timestamp() - time.time()
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return number if math.isfinite(number) else None
