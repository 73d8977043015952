"""Questions about the source text of a function, asked before it is parsed: a no is certain, a yes is not."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection

_COMMENT_OR_STRING = re.compile(
    r"#[^\n]*"
    r"|(?P<prefix>\b[a-zA-Z]{1,2})?"
    r"(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''"
    r"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')",
    re.DOTALL,
)
_CALLED = re.compile(r"(?<!def )\b(\w+)\s*\(")
_BRACE = re.compile(r"\{\{|\}\}|[{}]")
_BRACKET = re.compile(r"[()\[\]{}]")
_ASSIGNS = re.compile(
    r"^[ \t]*(?=[\w(*])"
    r"(\([\w,*\s]+\)[ \t]*=(?!=)|(?:[\w,*() \t]+?=(?!=))+|\w+[ \t]*:[^=\n]+=(?!=))",
    re.MULTILINE,
)
_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")
_KEYWORD = re.compile(r"\s*=(?!=)")
_END_OF_LINE = re.compile(r"[()\[\]{}]|(?<!\\)\n")
_BRACKET_OR_FOR = re.compile(r"[()\[\]{}]|\bfor\b")
_FIRST_PARAMETER = re.compile(r"\bdef\s+\w+\s*(?:\[[^\]]*\]\s*)?\(\s*(\w+)")
_OWNER = re.compile(r"(?<![\w.])(\w+)\s*\.")
_LEAVES = re.compile(r"\b(?:return|raise)\b")


def repeats_a_call(source: str, names: Collection[str]) -> bool:
    """Whether the same call, of something by one of these names, is written twice."""
    bare = _bare(source)
    starts: dict[str, list[int]] = defaultdict(list)
    for found in _CALLED.finditer(bare):
        if found[1] in names:
            starts[found[1]].append(found.end())
    for places in starts.values():
        if len(places) > 1 and len({_arguments(bare, at) for at in places}) < len(places):
            return True
    return False


def loses_a_name(source: str, made_by: Collection[str]) -> bool:
    """Whether a name is assigned, of a call of something by one of these names, that may not be read before
    the function ends, is left, or assigns it again."""
    bare = _bare(source)
    ends: dict[int, int] = {}
    assigned: list[tuple[int, list[str]]] = []
    for found in _ASSIGNS.finditer(bare):
        end = _end_of_statement(bare, found.end(1))
        names = list(_NAME.finditer(bare, found.start(1), found.end(1)))
        ends.update((name.start(), end) for name in names)
        if any(call[1] in made_by for call in _CALLED.finditer(bare, found.end(1), end)):
            assigned.append((end, [name[0] for name in names]))
    if not assigned:
        return False
    places: dict[str, list[int]] = defaultdict(list)
    for found in _NAME.finditer(bare):
        if found.start() in ends or not _KEYWORD.match(bare, found.end()):
            places[found[0]].append(found.start())
    for end, names_of in assigned:
        for name in names_of:
            known = places[name]
            first = bisect_left(known, end)
            if first == len(known) or _leaves(bare, end, known[first]):
                return True
            anew = ends.get(known[first])
            if anew is not None and (first + 1 == len(known) or known[first + 1] >= anew):
                return True
    return False


def computes_the_last_argument(source: str, names: Collection[str]) -> bool:
    """Whether something by one of these names is called with a last argument that holds a call, or more."""
    bare = _bare(source)
    for found in _CALLED.finditer(bare):
        if found[1] in names and set("([{") & set(_last(_arguments(bare, found.end()))):
            return True
    return False


def comprehends_own_attributes(source: str) -> bool:
    """Whether a comprehension mentions an attribute of the first parameter of a function."""
    bare = _bare(source)
    owners = first_parameters(bare)
    opened: list[tuple[int, bool]] = []
    for found in _BRACKET_OR_FOR.finditer(bare):
        if found[0] == "for":
            if opened:
                opened[-1] = (opened[-1][0], True)
        elif found[0] in "([{":
            opened.append((found.end(), False))
        elif opened:
            start, comprehension = opened.pop()
            if comprehension and any(
                name[1] in owners for name in _OWNER.finditer(bare, start, found.start())
            ):
                return True
    return False


def first_parameters(source: str) -> set[str]:
    """The first parameters of the functions in a text: what methods call their own object."""
    return {found[1] for found in _FIRST_PARAMETER.finditer(source)}


def _last(arguments: str) -> str:
    """The last of some arguments, as they are written."""
    depth = 0
    for at in range(len(arguments.rstrip().rstrip(",")) - 1, -1, -1):
        depth += (arguments[at] in ")]}") - (arguments[at] in "([{")
        if arguments[at] == "," and not depth:
            return arguments[at + 1 :]
    return arguments


def _leaves(bare: str, start: int, end: int) -> bool:
    """Whether a statement between two places leaves the function."""
    return any(
        _end_of_statement(bare, found.end()) < end for found in _LEAVES.finditer(bare, start, end)
    )


def _bare(source: str) -> str:
    """A source text without comments, and of its strings only the expressions in formatted ones."""
    text = source.replace("\r\n", "\n").replace("\r", "\n")
    return _COMMENT_OR_STRING.sub(_kept, text)


def _kept(found: re.Match[str]) -> str:
    if "f" not in (found["prefix"] or "").lower():
        return " " if found[0].startswith("#") else '""'
    kept, depth, start = ['""'], 0, 0
    for brace in _BRACE.finditer(found[0]):
        if brace[0] == "{{" and not depth:
            continue
        opens = len(brace[0]) if brace[0][0] == "{" else -len(brace[0])
        if depth <= 0 < opens:
            start = brace.start()
        depth = max(depth + opens, 0)
        if not depth and opens < 0 and start:
            kept.append(found[0][start : brace.end()])
            start = 0
    return "".join(kept)


def _arguments(bare: str, start: int) -> str:
    """What stands in the brackets that have just opened."""
    depth = 1
    for bracket in _BRACKET.finditer(bare, start):
        depth += 1 if bracket[0] in "([{" else -1
        if not depth:
            return bare[start : bracket.start()]
    return bare[start:]


def _end_of_statement(bare: str, start: int) -> int:
    """Where the logical line ends that is being read."""
    depth = 0
    for found in _END_OF_LINE.finditer(bare, start):
        if found[0] == "\n":
            if depth <= 0:
                return found.start()
        else:
            depth += 1 if found[0] in "([{" else -1
    return len(bare)
