"""Counters of rounds in conditions, by their names, and which rounds are the first, the last, or few."""

from __future__ import annotations

import ast
import re

COUNTER = re.compile(r"step|iter|epoch|batch|idx|index|count|^i$|^n$|(?:^|_)it$", re.IGNORECASE)


def dotted(node: ast.expr) -> str:
    """``a.b.c`` as written; empty for any other expression."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    parts.append(node.id)
    return ".".join(reversed(parts))


_TOTAL = re.compile(
    r"(?:num|total|max|n)_\w*(?:steps?|iters?|iterations|batches|epochs?|rounds)\w*|(?:steps|batches|iters)_per_\w+"
)
"""How many rounds there are."""


def is_last_round(left: ast.expr, right: ast.expr) -> bool:
    """Whether a counter is compared with how many rounds there are, or with the last of them."""
    if isinstance(right, ast.BinOp) and isinstance(right.op, ast.Sub):
        right = right.left
    if isinstance(right, ast.Call) and dotted(right.func) == "len" and right.args:
        total = re.search("load|batches", dotted(right.args[0])) is not None
    else:
        total = _TOTAL.fullmatch(dotted(right).rpartition(".")[2]) is not None
    if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add):
        left = left.left
    return total and COUNTER.search(dotted(left).rpartition(".")[2]) is not None


def is_first_round(node: ast.expr) -> bool:
    """Whether a counter is asked to be zero: ``it == 0``."""
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], ast.Eq):
        return False
    first = node.comparators[0]
    counter = COUNTER.search(dotted(node.left).rpartition(".")[2]) is not None
    return counter and isinstance(first, ast.Constant) and first.value == 0


_ROUNDS_TO_LOG = re.compile(
    r"(?:log|save|print|eval|plot|display|checkpoint|ckpt|snapshot|report)\w*_(?:steps?|iters?|iterations|epochs?|at)"
)


def are_few_rounds(left: ast.expr, right: ast.expr) -> bool:
    """Whether a counter is looked up among the rounds in which something is shown or saved:
    ``it in self.log_iters``."""
    counter = COUNTER.search(dotted(left).rpartition(".")[2]) is not None
    return counter and _ROUNDS_TO_LOG.fullmatch(dotted(right).rpartition(".")[2]) is not None
