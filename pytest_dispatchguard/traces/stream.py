"""Reads the events of a trace file one by one, in memory that does not grow with the file.

The parser is the scanner of the standard library's `json`, written in C and given one event after the
other: as fast as the streaming parsers there are (`ijson` with yajl takes the same time), it needs nothing
installed, reads what PyTorch writes though it is no JSON (`NaN`), and knows where a damaged file breaks
off."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from pytest_dispatchguard.model.errors import UserError

Tell = Callable[[int, int], None]
"""Is told how many bytes of the file are read, of how many."""

_CHUNK = 1 << 20
_LARGEST = 1 << 24
"""Characters of one event, at most. The largest that PyTorch writes have some ten thousand."""
_EMPTY = 1 << 26
"""Characters without one event after which a file counts as damaged: what a bomb unpacks to."""
_SHORTEST, _FEW = 16, 10_000
"""Characters that events have on average, at least; of so many, those of a file may have fewer."""
_RATIO, _PACKED = 400, 1 << 26
"""What a packed file may unpack to: so many times its size, or so many bytes. Traces have 10 to 100 times."""
_KEPT = ("deviceProperties", "computeProperties", "distributedInfo", "schemaVersion", "traceName")
_MOST_MEMBERS, _LONGEST = 100, 10_000
_BETWEEN = re.compile(r"[\s,]*")
_COLON = re.compile(r"[\s:]*")
_SPACE = re.compile(r"\s*")
_UNREADABLE = (ValueError, RecursionError)
_EXPONENT = 2
"""Characters at the end of a number that are none of it until a digit follows: `.`, `e-`."""
_LITERAL = 12
"""Characters that may be a part of a number or a word: `-Infinity`, `\\ud83d\\ude00`."""


class _DamageError(Exception):
    """The text breaks off or is no JSON; the message says where."""


@dataclass(slots=True)
class Header:
    """What a file says beside its events, filled while it is read."""

    values: dict[str, Any] = field(default_factory=dict)
    damage: str = ""
    events: int = 0


def events(path: Path, header: Header, tell: Tell | None = None) -> Iterator[dict[str, Any]]:
    """The events of a trace, plain or packed with gzip. A file that is damaged or cut off is read as far as
    it goes; `header.damage` then says why it ends."""
    try:
        about = path.stat()
        if not (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)):
            raise UserError(
                f"{path}: the trace cannot be read: it is no file; write it to one first"
            )
        size = about.st_size
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)

            def told(unpacked: int) -> None:
                if packed and unpacked > max(_PACKED, _RATIO * file.tell()):
                    raise _DamageError(f"it unpacks to more than {_RATIO} times its size")
                if tell is not None:
                    tell(file.tell(), size)

            source: Any = gzip.GzipFile(fileobj=file) if packed else file
            try:
                yield from _Reader(source, header, told).events()
            except _DamageError as damage:
                header.damage = str(damage)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"{path}: the trace cannot be read: {reason}") from None
    if not header.events:
        reason = header.damage or "it has no `traceEvents`"
        raise UserError(
            f"{path} is no profiler trace ({reason}); write one with `prof.export_chrome_trace(...)`"
        )


class _Reader:
    """A window of text that slides over the file."""

    def __init__(self, source: BinaryIO, header: Header, tell: Callable[[int], None]) -> None:
        self._source = source
        self._header = header
        self._tell = tell
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._scan = json.JSONDecoder().raw_decode
        self._text = ""
        self._at = 0
        self._before = 0
        """Characters that have left the window."""
        self._counted = 0
        """Events that had been read when the window moved, and what else stands among them."""
        self._others = 0
        self._read = 0
        """Bytes, unpacked."""
        self._over = False
        self._broken = ""
        """What the file itself said when it could not be read any further."""

    def events(self) -> Iterator[dict[str, Any]]:
        if not self._more() and not self._text:
            raise _DamageError(f"it breaks off ({self._broken})" if self._broken else "it is empty")
        self._text = self._text.removeprefix("\ufeff")
        self._skip(_SPACE)
        if self._take("["):
            yield from self._items()
        elif self._take("{"):
            yield from self._members()
        else:
            raise _DamageError("it is no JSON")

    def _members(self) -> Iterator[dict[str, Any]]:
        """The members of the outermost object."""
        while True:
            self._skip(_BETWEEN)
            if self._take("}"):
                return
            key = self._value()
            self._skip(_COLON)
            if key == "traceEvents" and self._take("["):
                yield from self._items()
                continue
            value = self._value()
            if isinstance(key, str) and (key in _KEPT or self._is_short(value)):
                self._header.values[key] = value

    def _is_short(self, value: object) -> bool:
        """Whether a member may be kept that only a copy of the file needs."""
        if len(self._header.values) >= _MOST_MEMBERS:
            return False
        return isinstance(value, int | float) or (isinstance(value, str) and len(value) < _LONGEST)

    def _items(self) -> Iterator[dict[str, Any]]:
        scan, between, header = self._scan, _BETWEEN.match, self._header
        while True:
            text, at = self._text, self._at
            with suppress(*_UNREADABLE):
                while True:  # the quick way, as long as events lie in the window as a whole
                    at = between(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
                    if not text.startswith("{", at):
                        break
                    value, at = scan(text, at)
                    header.events += 1
                    self._at = at
                    yield value
            self._skip(_BETWEEN)
            if self._take("]"):
                return
            value = self._value()
            if isinstance(value, dict):
                header.events += 1
                yield value
            else:
                self._others += 1

    def _take(self, character: str) -> bool:
        if not self._text.startswith(character, self._at):
            return False
        self._at += 1
        return True

    def _skip(self, pattern: re.Pattern[str]) -> None:
        skipped = 0
        while True:
            found = pattern.match(self._text, self._at)
            if found is not None:
                skipped += found.end() - self._at
                self._at = found.end()
            if self._at < len(self._text):
                return
            if skipped > _EMPTY:
                raise _DamageError(f"after {self._place()} comes nothing but blanks")
            if not self._more():
                raise self._end()

    def _value(self) -> Any:
        """The value that begins here."""
        most = _CHUNK
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except _UNREADABLE as error:
                large = len(self._text) - self._at > _LARGEST
                if large or not self._may_go_on(error):
                    raise _DamageError(f"what begins at {self._place()} is no event") from None
                if not self._more(most):
                    raise self._end() from None
                most *= 2
                continue
            length = end - self._at
            number = isinstance(value, (int, float))
            if number and end >= len(self._text) - _EXPONENT and self._more():
                continue  # it may go on
            self._at += length
            return value

    def _may_go_on(self, error: Exception) -> bool:
        """Whether a value is unreadable because not all of it is here."""
        if not isinstance(error, json.JSONDecodeError):
            return False  # nested too deep, or a number with too many digits
        return error.pos >= len(self._text) - _LITERAL or error.msg.startswith(
            "Unterminated string"
        )

    def _more(self, most: int = _CHUNK) -> bool:
        """Moves the window; False at the end of the file."""
        if self._over:
            return False
        try:
            data = self._source.read(most)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            data = b""
            self._broken = " ".join(str(error).split())
        self._over = not data
        items = self._header.events + self._others
        if items - self._counted > max(_FEW, self._at // _SHORTEST):
            raise _DamageError(f"what comes before {self._place()} are no events")
        self._counted = items
        self._read += len(data)
        self._before += self._at
        self._text = self._text[self._at :] + self._decode(data, final=self._over)
        self._at = 0
        self._tell(self._read)
        return not self._over

    def _place(self) -> str:
        return f"character {self._before + self._at:,}"

    def _end(self) -> _DamageError:
        how = f"breaks off ({self._broken})" if self._broken else "is cut off"
        return _DamageError(f"it {how} after {self._header.events:,} events")
