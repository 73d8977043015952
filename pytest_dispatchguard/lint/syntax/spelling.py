"""How nodes are written: their source, and the dotted names they spell."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard.lint.syntax.positions import source_of


def text(node: cst.CSTNode) -> str:
    """The source of a node."""
    if type(node) is cst.Name and not node.lpar:
        return node.value
    return source_of(node).strip()


def dotted(node: cst.CSTNode) -> str | None:
    """``a.b.c`` for a chain of names and attributes, None for anything else."""
    parts: list[str] = []
    # Exact types, as libcst makes them: `isinstance` with abstract base classes is slow, and this is asked
    # of every expression.
    if type(node) is cst.Name:
        return node.value
    while type(node) is cst.Attribute:
        parts.append(node.attr.value)
        node = node.value
    if type(node) is cst.Name:
        parts.append(node.value)
    elif type(node) is cst.Call and type(node.func) is cst.Name and node.func.value == "super":
        parts.append("super()")
    else:
        return None
    parts.reverse()
    return ".".join(parts)
