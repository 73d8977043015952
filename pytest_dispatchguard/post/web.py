"""One web API, asked with patience: retries, rate limits, and no secret in anything that is said."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from pytest_dispatchguard.model import UserError

_TIMES = 4
"""How often something is asked before it is given up."""
_LONGEST = 90.0
"""Seconds that a host may have us wait: beyond them a run of CI has better things to do."""
_MOST_BYTES = 32 * 2**20
_PAGE, _MOST_PAGES = 100, 100


class UnsureError(Exception):
    """Nobody knows whether what was sent has arrived: it may have to be looked up before it is sent again."""


class RefusedError(UserError):
    """The host understands what it is asked, and does not do it."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


@dataclass(frozen=True, slots=True)
class Answer:
    """What a host said."""

    data: Any
    headers: Mapping[str, str]
    """By names in lower case."""


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: a token is for the host that it was given for."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(slots=True)
class Web:
    """An API below one address."""

    address: str
    headers: Mapping[str, str]
    secrets: tuple[str, ...]
    """What must never be shown."""
    advice: Mapping[int, str]
    """What to do about a status."""
    timeout: float = 30.0
    sleep: Callable[[float], None] = time.sleep
    _opener: OpenerDirector = field(default_factory=lambda: build_opener(_NoRedirect), init=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.address)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise UserError(f"--post: {self._clean(self.address)!r} is no web address of an API")
        if any(not (v.isascii() and v.isprintable()) for v in self.headers.values()):
            raise UserError("--post: the token holds signs that no token has; set it anew")

    @property
    def host(self) -> str:
        """The name of the host."""
        return urlsplit(self.address).hostname or ""

    def get(self, path: str) -> Answer:
        """Reads."""
        return self._patiently("GET", path, None)

    def all(self, path: str) -> Iterator[dict[str, Any]]:
        """Reads a list, page by page."""
        for page in range(1, _MOST_PAGES + 1):
            found = self.get(f"{path}?per_page={_PAGE}&page={page}").data
            yield from found
            if len(found) < _PAGE:
                return

    def put(self, path: str, body: object, method: str = "PUT") -> Answer:
        """Writes what may be written twice."""
        return self._patiently(method, path, body)

    def post(self, path: str, body: object) -> Answer:
        """Makes something anew. `UnsureError` where it may have been made although nobody said so."""
        return self._patiently("POST", path, body)

    def _patiently(self, method: str, path: str, body: object) -> Answer:
        wait = 1.0
        for left in reversed(range(_TIMES)):
            trouble, pause = "", wait
            try:
                return self._ask(method, path, body)
            except HTTPError as error:
                pause = self._pause(error, wait)
                trouble = f"answers {error.code}"
                unsure = method == "POST" and error.code >= 500
            except (URLError, http.client.HTTPException, OSError) as error:
                reason = getattr(error, "reason", None) or error
                trouble = f"cannot be reached: {self._clean(str(reason) or type(error).__name__)}"
                # Nothing was sent where no connection was made.
                unsure = method == "POST" and not isinstance(reason, ConnectionRefusedError)
            if unsure:
                self.sleep(pause)
                raise UnsureError(f"--post: {self.host} {trouble}")
            if left:
                self.sleep(pause)
                wait *= 2
        raise UserError(f"--post: {self.host} {trouble}, {_TIMES} times; try again later")

    def _ask(self, method: str, path: str, body: object) -> Answer:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "User-Agent": "dispatchguard", **self.headers}
        if data is not None:
            headers["Content-Type"] = "application/json"
        url = f"{self.address.rstrip('/')}/{path.lstrip('/')}"
        request = Request(url, data=data, headers=headers, method=method)
        with self._opener.open(request, timeout=self.timeout) as response:
            text = response.read(_MOST_BYTES)
            found = {name.lower(): value for name, value in response.headers.items()}
        try:
            return Answer(json.loads(text) if text.strip() else None, found)
        except ValueError:
            raise UserError(
                f"--post: {self.host} answers what is no JSON; check the address"
            ) from None

    def _pause(self, error: HTTPError, usual: float) -> float:
        """How long to wait before asking again; an error where that would not help."""
        with error:
            said = _said(error)
        headers = {name.lower(): value for name, value in error.headers.items()}
        limited = error.code == 429 or (
            error.code == 403
            and ("retry-after" in headers or headers.get("x-ratelimit-remaining") == "0")
        )
        if limited:
            return self._limited(headers, usual)
        if error.code < 500:
            self._refused(error.code, said)
        return usual

    def _limited(self, headers: Mapping[str, str], usual: float) -> float:
        try:
            if "retry-after" in headers:
                pause = float(headers["retry-after"])
            else:
                reset = headers.get("x-ratelimit-reset") or headers.get("ratelimit-reset")
                pause = usual if reset is None else float(reset) - time.time()
        except ValueError:
            pause = usual
        if pause > _LONGEST:
            raise UserError(
                f"--post: {self.host} takes no more requests for {pause / 60:.0f} minutes (rate limit); "
                "run the job again then"
            )
        return max(pause, 0.0)

    def _refused(self, status: int, said: str) -> NoReturn:
        told = self._clean(said)
        if status in self.advice:
            words = f" ({told})" if told else ""
            raise UserError(f"--post: {self.host} answers {status}{words}: {self.advice[status]}")
        if 300 <= status < 400:
            told = "what is asked for has moved; give the API's own address"
        raise RefusedError(status, f"--post: {self.host} answers {status}: {told or 'no reason'}")

    def _clean(self, text: str) -> str:
        """One line, without secrets."""
        for secret in self.secrets:
            if secret:
                text = text.replace(secret, "***")
        line = " ".join(text.split())
        return line if len(line) <= 200 else f"{line[:199]}…"


def _said(error: HTTPError) -> str:
    """What a host gives as its reason."""
    try:
        data = json.loads(error.read(2**16))
    except (ValueError, OSError, http.client.HTTPException):
        return ""
    if not isinstance(data, dict):
        return ""
    parts = [data.get("message"), data.get("error"), data.get("errors")]
    return "; ".join(p if isinstance(p, str) else json.dumps(p) for p in parts if p)
