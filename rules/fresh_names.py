"""Names for values that fixes keep, from the words that they are written with."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection

import libcst as cst

from pytest_dispatchguard import Place

from .syntax import bound_names

_WORD = re.compile(r"[A-Za-z_]\w*")
_STRING = re.compile(r"([\"'])(.*?)\1")
_COMMENT = re.compile(r"#[^\n]*")
_KEYWORD = re.compile(r"\b\w+\s*=(?!=)[^,()]*")
_SIGN = re.compile(r"(^|[-(\[{,=:*/%+<>&|^])\s*([-~])\s*(?=[A-Za-z_(])")
_SIGNS = {"-": " neg ", "~": " not "}
_SAY_NOTHING = frozenset({"self", "cls", "torch", "F", "nn", "functional", "True", "False", "None"})
_LONGEST = 32


def fresh_name(
    source: str,
    at: cst.CSTNode,
    place: Place,
    *,
    ending: str = "",
    most: int = 3,
    but: Collection[str] = (),
) -> str:
    """A name after the first words of a source, with an ending, that neither the function nor the file has;
    empty where there is none. `but` are words that say nothing there. Fixes of one function that name other
    sources, or at another statement, get other names."""
    name = _words(source, ending, most, but)
    if not name:
        return ""
    given: dict[str, tuple[str, int]] = place.once(("fresh names",), dict)
    bound = place.once(("bound", id(place.function)), lambda: bound_names([place.function]))
    mine = source, id(at)
    for one in (name, *(f"{name}_{number}" for number in range(2, _MOST))):
        taken = one in bound or place.assignments(one) or place.is_taken(one)
        if given.get(one, mine) == mine and not taken:
            given[one] = mine
            return one
    return ""


_MOST = 10
"""Names that differ by their numbers."""


def _words(source: str, ending: str, most: int, but: Collection[str]) -> str:
    text = _COMMENT.sub("", source)
    text = _KEYWORD.sub("", _STRING.sub(r"\2", text))
    text = _SIGN.sub(lambda found: found[1] + _SIGNS[found[2]], text)
    words = [word.strip("_") for word in _WORD.findall(text) if word not in _SAY_NOTHING]
    words = [word for word in words if word and word not in but][:most]
    if not words:
        return ""
    name = "_".join([*words, ending] if ending else words)
    name = f"{name}_value" if hasattr(builtins, name) else name
    return name if len(name) <= _LONGEST and not keyword.iskeyword(name) else ""
