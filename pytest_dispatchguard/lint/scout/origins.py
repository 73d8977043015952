"""Where the names of a condition come from, which says how often it holds."""

from __future__ import annotations

import re

from tree_sitter import Node

from pytest_dispatchguard.lint.facts import ONE, REQUIRED, SOMETHING
from pytest_dispatchguard.lint.knowledge import cold_branches
from pytest_dispatchguard.lint.scout.state import Reading, Walk
from pytest_dispatchguard.lint.scout.values import dotted, text


def origins_of(walk: Walk, condition: str) -> set[str]:
    """What its names were looked up in, which are periods of one, and which count something."""
    owner = walk.reading.owner
    attributes = owner.attrs if owner is not None else {}
    periods = cold_branches.periods_of_one(
        condition, walk.reading.self_name, lambda name: ONE in attributes.get(name, ())
    )
    return _looked_up(walk, condition) | periods | _counted(walk, condition)


def with_flags(walk: Walk, condition: str) -> str:
    """A condition with what a flag in it was given last, where that counts rounds."""

    def value_of(name: str) -> str:
        bound = walk.reading.bindings.get(name, ())
        return text(walk.source, bound[-1]) if bound and isinstance(bound[-1], Node) else ""

    return cold_branches.with_flag(condition, value_of)


def _looked_up(walk: Walk, condition: str) -> set[str]:
    """What the names of a condition were looked up in last, where that outlives the call, and no other way
    leaves them empty."""
    found: set[str] = set()
    for name in cold_branches.names_in(condition):
        bound = walk.reading.bindings.get(name, ())
        if any(isinstance(one, Node) and one.type == "none" for one in bound):
            continue
        value = bound[-1] if bound else None
        while isinstance(value, Node) and (inner := _the_one_in(value)) is not None:
            value = inner
        if not isinstance(value, Node) or not value.named_child_count:
            continue
        container = value.named_children[0]
        if value.type == "call":
            if container.type != "attribute" or not text(walk.source, container).endswith(".get"):
                continue
            container = container.named_children[0]
        elif value.type != "subscript":
            continue
        kept = dotted(walk.source, container)
        if "." in kept or (kept and not _is_own(walk, kept)):
            found.add(cold_branches.looked_up(name, kept))
    return found


def _the_one_in(node: Node) -> Node | None:
    """What is in brackets, or given where a condition does not choose None: ``(cache.get(key) if kept else
    None)``."""
    if node.type == "parenthesized_expression":
        return node.named_children[0]
    if node.type != "conditional_expression" or node.named_child_count != 3:
        return None
    left, _, right = node.named_children
    if "none" not in (left.type, right.type):
        return None
    return right if left.type == "none" else left


def _counted(walk: Walk, condition: str) -> set[str]:
    """The names of a condition that were given the number of elements, or of rows, last."""
    found: set[str] = set()
    if not cold_branches.may_count(condition):
        return found
    for name in cold_branches.names_in(condition):
        bound = walk.reading.bindings.get(name, ())
        value = bound[-1] if bound else None
        if isinstance(value, Node) and cold_branches.counts(text(walk.source, value)):
            found.add(cold_branches.counted(name))
    return found


def _is_own(walk: Walk, name: str) -> bool:
    """Whether a name is bound in the function, or in one around it."""
    reading: Reading | None = walk.reading
    while reading is not None:
        if name in reading.bindings or name in reading.params or name == reading.self_name:
            return True
        reading = reading.outer
    return False


def begins(walk: Walk, condition: str, block: Node) -> bool:
    """Whether a branch does nothing but have a method make what is not there yet. A setting that may stay
    None is assigned once in its file; what is asked for may be a property of what is assigned."""
    asked = cold_branches.not_yet(condition)
    if not asked or block.named_child_count != 1:
        return False
    if sum(walk.source.count(b"self.%b =" % name.encode()) for name in (asked, f"_{asked}")) < 2:
        return False
    return cold_branches.begins(text(walk.source, block))


_COMPARED_WITH_TEXT = re.compile(r"(\w+)\s*(?:[!=]=|(?:not )?in)\s*[(\[{]*\s*['\"]")


def about_defaults(walk: Walk, condition: str) -> bool:
    """Whether a condition asks for a parameter that has a plain default, or compares one with text, with
    nothing bound to it so far. One without a default is then noted among those that have one."""
    fact = walk.reading.fact
    if fact is None or not fact.params or len(condition) > 80:
        return False
    bound = walk.reading.bindings
    compared = _COMPARED_WITH_TEXT.match(condition)
    if compared is not None and compared[1] in fact.params and compared[1] not in bound:
        fact.defaults.setdefault(compared[1], REQUIRED)
    return any(
        fact.defaults.get(name, SOMETHING) != SOMETHING and name not in bound
        for name in cold_branches.names_in(condition)
    )
