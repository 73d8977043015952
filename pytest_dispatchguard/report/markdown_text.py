"""Text as Markdown: escaped, as code, in a fence."""

from __future__ import annotations

import re

from pytest_dispatchguard.visible import one_line

LIMIT = 60_000
"""Characters; GitHub rejects comments of more than 65,536."""

CODE = re.compile(r"(?<!`)`[^`\n]+`(?!`)")
"""Code in a message."""
_SIGNS = re.compile(r"([\\`*_\[\]<>|~])")


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line; text in backticks stays code."""
    line = one_line(" ".join(text.split()))
    out, done = "", 0
    for match in CODE.finditer(line):
        out += _escape_plain(line[done : match.start()]) + match.group()
        done = match.end()
    return out + _escape_plain(line[done:])


def _escape_plain(text: str) -> str:
    # An @ before a word would notify a person or team of that name.
    return _SIGNS.sub(r"\\\1", text).replace("&", "&amp;").replace("@", "@<!-- -->")


def code(text: str) -> str:
    """A name as code, whatever it contains."""
    line = one_line(" ".join(text.split()))
    ticks = "`" * (_longest_ticks(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def fence_around(text: str) -> str:
    """A fence that no line of the text closes."""
    return "`" * max(3, _longest_ticks(text) + 1)


def _longest_ticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
