"""Fixes of functions and classes that are built on every call: they move to module level."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import libcst as cst

from pytest_dispatchguard import Edit, Fix, Place, nodes

from ..syntax import assigned


def hoisted(
    node: cst.FunctionDef | cst.ClassDef | cst.Lambda | cst.Call, place: Place
) -> Fix | None:
    """What a function builds on every call, defined at module level under a name of its own; None where it
    refers to itself, has decorators, or defaults that each call works out anew."""
    if isinstance(node, cst.FunctionDef | cst.ClassDef):
        name, gone = node.name, place.without(node)
        comments = _comments_above(node)
        if gone is not None and comments and not gone.replacement:
            gone = replace(gone, span=replace(gone.span, line=gone.span.line - len(comments)))
        else:
            comments = []  # what is all of a block leaves them where they are
    else:
        held = assigned(node, place)
        if held is None:
            return None
        name, gone, comments = held, place.without(place.statement), []
    gone = _with_blank_lines(gone, place) if gone is not None else None
    own = _own(name.value)
    definition = _defined(node, own, comments, place)
    if (
        gone is None
        or definition is None
        or place.assignments(name.value) != 1
        or place.assignments(own)
    ):
        return None
    inside = {id(n) for n in nodes.walk(node)}
    uses = [n for n in _names_of(place.function).get(name.value, ()) if n is not name]
    if not uses or any(id(n) in inside for n in uses) or any(map(_is_private, nodes.walk(node))):
        return None
    return _fix(node, uses, own, definition, gone, place)


def _with_blank_lines(gone: Edit, place: Place) -> Edit:
    """What is removed, with the blank lines behind it where there are some before it, or nothing is."""
    if gone.replacement or gone.span.column != 1 or gone.span.end_column != 1:
        return gone
    at = next((i for i, one in enumerate(place.block) if one is place.statement), -1)
    if not 0 <= at < len(place.block) - 1:
        return gone
    before, behind = _blank_lines(place.block[at]), _blank_lines(place.block[at + 1])
    if not behind or (at and not before):
        return gone
    return replace(gone, span=replace(gone.span, end_line=gone.span.end_line + behind))


def _blank_lines(statement: cst.CSTNode) -> int:
    """The blank lines above a statement, and above the comment on it."""
    lines = getattr(statement, "leading_lines", ())
    return len(list(itertools.takewhile(lambda line: line.comment is None, lines)))


def _own(name: str) -> str:
    """The name at module level: another than the one that the file has already."""
    plain = name.strip("_")
    return f"_{plain}_impl" if name.startswith("_") else f"_{plain}"


def _comments_above(node: cst.FunctionDef | cst.ClassDef) -> list[cst.EmptyLine]:
    """The lines of the comment that stands right above a definition, and moves with it."""
    lines: list[cst.EmptyLine] = []
    for line in reversed(node.leading_lines):
        aligned = line.indent and not line.whitespace.value
        if line.comment is None or not aligned or _OF_TOOLS.match(line.comment.value):
            break
        lines.insert(0, line)
    return lines


_OF_TOOLS = re.compile(
    r"#\s*(?:fmt|isort|mypy|noqa|pragma|pylint|pyright|ruff|type)\b|#+\s*[-=*#~]{2}"
)
"""Comments that tell a tool something, or divide a file into sections: they stay where they are."""


@lru_cache(maxsize=2)
def _names_of(function: cst.CSTNode) -> dict[str, list[cst.Name]]:
    """The names in a function, by spelling: one that builds hundreds of functions is walked through once."""
    found: dict[str, list[cst.Name]] = {}
    for name in nodes.names_in(function):
        found.setdefault(name.value, []).append(name)
    return found


def _fix(
    node: cst.CSTNode, uses: list[cst.Name], own: str, definition: str, gone: Edit, place: Place
) -> Fix:
    function = isinstance(node, cst.FunctionDef | cst.Lambda)
    return place.edits(
        [(use, own) for use in uses],
        safety="safe" if function else "unsafe",
        message="Define it at module level" + ("" if function else "; one class, of another name"),
        definitions=(definition,),
        more=(gone,),
    )


def _defined(
    node: cst.FunctionDef | cst.ClassDef | cst.Lambda | cst.Call,
    own: str,
    comments: Sequence[cst.EmptyLine],
    place: Place,
) -> str | None:
    """The source of the definition at module level, below its comments."""
    if isinstance(node, cst.Call):
        source = place.text(node)
        return None if "\n" in source else f"{own} = {source}"
    if isinstance(node, cst.ClassDef):
        if node.decorators:
            return None
        moved = node.with_changes(
            name=cst.Name(own), leading_lines=comments, lines_after_decorators=[]
        )
        return place.text(moved).strip("\n")
    if not all(p.default is None or _is_literal(p.default) for p in _params(node)):
        return None
    if isinstance(node, cst.Lambda):
        parts = place.text(node.params), place.text(node.body)
        return None if "\n" in "".join(parts) else f"def {own}({parts[0]}):\n    return {parts[1]}"
    if node.decorators or node.asynchronous is not None:
        return None
    changed = node.with_changes(
        name=cst.Name(own), leading_lines=comments, lines_after_decorators=[]
    )
    return place.text(changed).strip("\n")


def _params(node: cst.FunctionDef | cst.Lambda) -> tuple[cst.Param, ...]:
    params = node.params
    return (*params.posonly_params, *params.params, *params.kwonly_params)


def _is_private(node: cst.CSTNode) -> bool:
    """Whether a node is a name that Python spells otherwise inside of a class: `__x`."""
    return (
        isinstance(node, cst.Name) and node.value.startswith("__") and not node.value.endswith("__")
    )


def _is_literal(node: cst.BaseExpression) -> bool:
    """Whether a default is the same object on every call, in effect."""
    if isinstance(node, cst.Name):
        return node.value in ("None", "True", "False")
    return isinstance(node, cst.Integer | cst.Float | cst.SimpleString)
