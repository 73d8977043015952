"""The scout in functions that are cold whatever calls them: it reads what they bind, register, hook and
return, which other functions live by, and leaves out what they call."""

from __future__ import annotations

from tree_sitter import Node

from pytest_dispatchguard.lint.scout import assignments, definitions, imports
from pytest_dispatchguard.lint.scout.assignments import bind, bind_loop
from pytest_dispatchguard.lint.scout.calls import REMEMBERED, call_of_note
from pytest_dispatchguard.lint.scout.state import Handler, Walk, parts_of, visit, visit_children
from pytest_dispatchguard.lint.scout.statements import note_globals, note_return, uneven
from pytest_dispatchguard.lint.scout.values import text


def _block(walk: Walk, node: Node) -> None:
    children = node.named_children
    if uneven(node, children):
        walk.uneven = True
    for child in children:
        visit(walk, child)


def _for(walk: Walk, node: Node) -> None:
    left = node.child_by_field_name("left")
    right = node.child_by_field_name("right")
    if left is not None and right is not None:
        bind_loop(walk, left, right)
    for part in node.named_children:
        if part.type in ("block", "else_clause"):
            visit(walk, part)


def _with_item(walk: Walk, node: Node) -> None:
    for value in node.named_children:
        if value.type == "as_pattern" and walk.where == "function":
            bind(walk, value.named_children[-1], True)


def _call(walk: Walk, node: Node) -> None:
    callee, arguments = node.named_children[0], node.named_children[-1]
    named = callee.named_children[-1] if callee.type == "attribute" else callee
    last = text(walk.source, named)
    if last in REMEMBERED and arguments.type == "argument_list":
        call_of_note(walk, last, callee, arguments.named_children)


def _return(walk: Walk, node: Node) -> None:
    parts = parts_of(node)
    note_return(walk, parts[0] if parts else None)


def _yield(walk: Walk, node: Node) -> None:
    walk.reading.yields = True


HANDLERS: dict[str, Handler] = {
    **assignments.HANDLERS,
    **definitions.HANDLERS,
    **imports.HANDLERS,
    **dict.fromkeys(
        """case_clause elif_clause else_clause except_clause except_group_clause expression_statement
        finally_clause if_statement match_statement try_statement while_statement with_clause
        with_statement""".split(),
        visit_children,
    ),
    "block": _block,
    "call": _call,
    "for_statement": _for,
    "global_statement": note_globals,
    "module": _block,
    "return_statement": _return,
    "with_item": _with_item,
    "yield": _yield,
}
"""All other kinds of nodes are passed over."""
