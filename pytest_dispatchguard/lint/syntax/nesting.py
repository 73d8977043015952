"""How deeply a function is nested, told before libcst reads it: its parser is native and recursive, so that
what is too deep for it ends the process, and the time it takes grows with the square of the depth."""

from __future__ import annotations

import ast

from tree_sitter import Node, Parser

from pytest_dispatchguard.lint.syntax.grammar import LANGUAGE
from pytest_dispatchguard.lint.syntax.python_ast import parsed

_MOST = 600
"""Steps of a chain (`a.b.c`, ``a + b + c``) within each other; every other level counts as several of
these. They fit into the stack several times over; what they bound is time: libcst takes a fifth of a second
for 400 of them, and sixteen times as long for four times as many."""
_BRACKET = 3
"""Steps that a level of brackets counts as: it takes 6 to 14 KiB, where a step takes 1.0 to 2.4, and by far
more time. Python itself reads 200 of them."""
_BLOCK = 7
"""The same of an indented block: 25 KiB."""
_MOST_IN_PATTERN = 12
"""Levels of brackets in the pattern of a `case`, of which each doubles the time that libcst takes; those of a
mapping double it twice."""

_FEW_BRACKETS = 100
_FEW_STEPS = 500
_NO_STEP = bytes(c for c in range(256) if c > 127 or chr(c).isalnum() or chr(c) in " \t\n\r\f_,:=")
_WORDS = ("not", "and", "or", "if", "for", "lambda", "await")
"""Words that make an expression deeper by one step."""

_LEVELS = {"block": _BLOCK, "subscript": 2}
_BRACKETED = frozenset(
    """argument_list dictionary dictionary_comprehension generator_expression interpolation lambda_parameters
    list list_comprehension list_pattern parameters parenthesized_expression parenthesized_list_splat set
    set_comprehension tuple tuple_pattern type_parameter""".split()
)
_IN_A_ROW = frozenset(
    """concatenated_string dictionary_comprehension dotted_name generator_expression if_statement
    list_comprehension set_comprehension""".split()
)
"""Nodes whose children stand side by side here, and in each other for libcst."""
_A_STEP = {"concatenated_string": 3}
"""How many of those children are a step; one, where it is not said."""
_PATTERNS = {
    "class_pattern": 1, "list_pattern": 1, "tuple_pattern": 1, "dict_pattern": 2, "case_pattern": 0,
}  # fmt: skip


def too_deep(source: str) -> bool:
    """Whether a source is nested more deeply than libcst can be trusted with."""
    # The default of a parameter of a lambda stands in brackets that nobody writes.
    brackets = sum(map(source.count, ("(", "[", "{", "lambda")))
    few = brackets < _FEW_BRACKETS and _steps(source) < _FEW_STEPS
    # Hardly any function gets beyond this, so what follows may take longer.
    if few and not ("match" in source and "case" in source and brackets >= _MOST_IN_PATTERN / 2):
        return False
    root = Parser(LANGUAGE).parse(source.encode("utf-8", "surrogatepass")).root_node
    return _unread_is_deep(source) if root.has_error else _deep(root)


def _steps(source: str) -> int:
    """At least the number of steps in a source: of the signs and words that may be one."""
    signs = source.encode("utf-8", "surrogatepass").translate(None, _NO_STEP)
    return len(signs) + sum(map(source.count, _WORDS))


def _deep(root: Node) -> bool:
    stack = [(root, 0, 0)]
    while stack:
        node, depth, pattern = stack.pop()
        kind = node.type
        if kind in _IN_A_ROW:
            depth += node.child_count // _A_STEP.get(kind, 1)
        if kind in _PATTERNS:
            pattern += _PATTERNS[kind]
        inside = depth + (_BRACKET if kind in _BRACKETED else _LEVELS.get(kind, 1))
        if inside > _MOST or pattern > _MOST_IN_PATTERN:
            return True
        first = True
        for child in node.children:
            # What is picked makes a chain, what it is picked by stands in brackets.
            below = depth + _BRACKET if kind == "subscript" and not first else inside
            first = False
            if child.child_count:
                stack.append((child, below, pattern))
    return False


def _unread_is_deep(source: str) -> bool:
    """The same for what tree-sitter cannot read; of what Python cannot read either, nobody knows."""
    try:
        tree: ast.AST = parsed(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    stack = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > _MOST // _BRACKET:
            return True
        stack.extend((child, depth + 1) for child in ast.iter_child_nodes(node))
    return False
