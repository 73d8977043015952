"""Names for values that fixes keep, from the words that they are written with."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection

from pytest_dispatchguard import Place

_WORD = re.compile(r"[A-Za-z_]\w*")
_STRING = re.compile(r"([\"'])(.*?)\1")
_COMMENT = re.compile(r"#[^\n]*")
_KEYWORD = re.compile(r"\b\w+\s*=(?!=)[^,()]*")
_SIGN = re.compile(r"(^|[-(\[{,=:*/%+<>&|^])\s*([-~])\s*(?=[A-Za-z_(])")
_SIGNS = {"-": " neg ", "~": " not "}
_SAY_NOTHING = frozenset({"self", "cls", "torch", "F", "nn", "functional", "True", "False", "None"})
_LONGEST = 32


def fresh_name(
    source: str, place: Place, *, ending: str = "", most: int = 3, but: Collection[str] = ()
) -> str:
    """A name after the first words of a source, with an ending, that neither the function nor the file has;
    empty where there is none. `but` are words that say nothing there. Fixes of one function that name other
    sources get other names."""
    name = _words(source, ending, most, but)
    if not name:
        return ""
    given: dict[str, str] = place.once(("fresh names",), dict)
    for one in (name, *(f"{name}_{number}" for number in range(2, _MOST))):
        if given.get(one, source) == source and not (place.assignments(one) or place.is_taken(one)):
            given[one] = source
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
