"""Text of others where it goes out to people: what would steer a terminal, or turn text around, is shown."""

from __future__ import annotations

import re
from unicodedata import category

_STEERS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Controls, format characters (such as those that turn the direction of text), halves of pairs, line ends."""
_JOINERS = "\u200c\u200d"
"""Words of Persian and signs made of several need them, and they move nothing."""


_COMMAND = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)


def visible(text: str, keep: str = "\n\t") -> str:
    """A text with its controls as Python writes them, such as `\\x1b`, but for those to `keep`."""
    if text.isprintable():
        return text
    return "".join(
        _written(char)
        if category(char) in _STEERS and char not in keep and char not in _JOINERS
        else char
        for char in text
    )


def one_line(text: str) -> str:
    """The same, with ends of lines and tabs shown too."""
    return visible(text, keep="")


def without_commands(text: str) -> str:
    """A text no line of which is a workflow command: what begins with two colons, the log of a CI job takes
    for one, whatever blanks are before them."""
    return _COMMAND.sub(r"\1\\x3a", text)


def _written(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
