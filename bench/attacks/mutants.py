"""Mutants of Python files: bytes flipped, lines moved, brackets lost, odd characters, halves joined."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
OWN = (HERE / "fixtures", HERE / "pytest_dispatchguard", HERE / "rules")
LARGEST = 60_000
"""Bytes of a file that is taken: beyond that a mutant costs time, and holds nothing new."""

_TOKEN = re.compile(rb"\w+|[^\w\s]")
_BRACKETS = b"()[]{}"
_ODD = (
    *(
        "\u00e9",
        "\u00b5",
        "\u540d",
        "\U0001f600",
        "\u200b",
        "\u202e",
        "\u2028",
        "\u0085",
        "\x0c",
        "\x1b[2J",
    ),
    *(
        "\x00",
        "\x07",
        "\x1a",
        "\ufeff",
        "\u0301",
        "\uff10",
        "\u00a0",
        '"\\ud800"',
        '"\\N{DASH}"',
        "'\\x'",
    ),
)
_ODD_BYTES = (b"\xed\xa0\x80", b"\xff\xfe", b"\xc3", b"\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf")
_HEADS = (
    b"\xef\xbb\xbf",
    b"# -*- coding: latin-1 -*-\n",
    b"# -*- coding: utf-16 -*-\n",
    b"# -*- coding: no_such_codec -*-\n",
    b"#!/usr/bin/python\x00\n",
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A file that nobody wrote."""

    number: int
    data: bytes
    made: str
    """From which files, and how."""

    @property
    def name(self) -> str:
        """Its file's."""
        return f"m{self.number:05}.py"


def sources(folders: Sequence[Path]) -> list[list[Path]]:
    """The files of each folder that mutants are made from."""
    found = (
        (p for p in sorted(f.rglob("*.py")) if 0 < p.stat().st_size <= LARGEST) for f in folders
    )
    return [files for files in map(list, found) if files]


def mutants(folders: Sequence[Path], number: int, seed: int) -> Iterator[Mutant]:
    """So many mutants, from all folders alike; a mutant depends on seed and number alone."""
    groups = sources(folders)
    for count in range(number):
        rng = random.Random(f"{seed} {count}")
        first, second = (rng.choice(rng.choice(groups)) for _ in range(2))
        data, other = first.read_bytes(), second.read_bytes()
        ways = rng.choices(WAYS, k=rng.choice((1, 1, 2, 4)))
        for way in ways:
            data = way(rng, data, other)
        said = ", ".join(way.__name__ for way in ways)
        yield Mutant(count, data, f"{first.name} and {second.name}: {said}")


# -- ways to change a text ---------------------------------------------------------------------------


def flip_bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 20)) if out else 0):
        out[rng.randrange(len(out))] ^= rng.randrange(1, 256)
    return bytes(out)


def delete_lines(rng: random.Random, data: bytes, other: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    first = rng.randrange(len(lines) + 1)
    del lines[first : first + rng.choice((1, 1, 2, 10))]
    return b"".join(lines)


def duplicate_lines(rng: random.Random, data: bytes, other: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    first = rng.randrange(len(lines) + 1)
    return b"".join(
        [*lines[:first], *lines[first : first + 5] * rng.choice((2, 2, 9)), *lines[first:]]
    )


def swap_lines(rng: random.Random, data: bytes, other: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    for _ in range(rng.choice((1, 5)) if lines else 0):
        one, another = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[one], lines[another] = lines[another], lines[one]
    return b"".join(lines)


def drop_brackets(rng: random.Random, data: bytes, other: bytes) -> bytes:
    places = [n for n, byte in enumerate(data) if byte in _BRACKETS]
    gone = set(rng.sample(places, min(len(places), rng.choice((1, 1, 4)))))
    return bytes(byte for n, byte in enumerate(data) if n not in gone)


def change_indentation(rng: random.Random, data: bytes, other: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    for _ in range(rng.choice((1, 1, 8)) if lines else 0):
        n = rng.randrange(len(lines))
        lines[n] = rng.choice((b" ", b"    ", b"\t", b"")) + lines[n].lstrip(
            rng.choice((b"", b" \t"))
        )
    return b"".join(lines)


def swap_tokens(rng: random.Random, data: bytes, other: bytes) -> bytes:
    found = list(_TOKEN.finditer(data))
    if len(found) < 2:
        return data
    near = rng.randrange(len(found) - 1)
    one, another = sorted((near, rng.choice((near + 1, rng.randrange(len(found))))))
    if one == another:
        return data
    a, b = found[one], found[another]
    return data[: a.start()] + b[0] + data[a.end() : b.start()] + a[0] + data[b.end() :]


def take_tokens(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Tokens of another file in place of some."""
    theirs = _TOKEN.findall(other) or [b"x"]
    chosen = rng.choice((0.001, 0.01, 0.1))
    return _TOKEN.sub(lambda m: rng.choice(theirs) if rng.random() < chosen else m[0], data)


def odd_characters(rng: random.Random, data: bytes, other: bytes) -> bytes:
    for _ in range(rng.choice((1, 1, 6))):
        at = rng.randrange(len(data) + 1)
        odd = rng.choice((rng.choice(_ODD).encode(), rng.choice(_ODD_BYTES)))
        data = data[:at] + odd + data[at:]
    return data


def odd_head(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return rng.choice(_HEADS) + data


def odd_line_ends(rng: random.Random, data: bytes, other: bytes) -> bytes:
    ends = rng.choice(
        ((b"\r\n",), (b"\r",), (b"\n", b"\r\n", b"\r"), (b"\n", b"\n", b"\x0c\n", b"\\\n"))
    )
    return re.sub(rb"\n", lambda _: rng.choice(ends), data)


def truncate(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def join(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """The beginning of one, the end of another: in the middle of lines, or between two."""
    ends: Callable[[bytes], int] = rng.choice(
        (
            lambda text: rng.randrange(len(text) + 1),
            lambda text: text.find(b"\n", len(text) // 2) + 1,
        )
    )
    return data[: ends(data)] + other[ends(other) :]


WAYS = (
    *(flip_bytes, delete_lines, duplicate_lines, swap_lines, drop_brackets, change_indentation),
    *(swap_tokens, take_tokens, odd_characters, odd_head, odd_line_ends, truncate, join),
)
