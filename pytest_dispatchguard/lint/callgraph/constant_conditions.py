"""Evaluate conditions on parameters that hold one of a few literals."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from itertools import product

from pytest_dispatchguard.lint.knowledge.cold_branches import parse_condition

_WORD = re.compile(r"[^\W\d]\w*")
_INFINITIES = frozenset({"inf", "math.inf", "np.inf", "numpy.inf", "torch.inf"})
_MOST = 16
"""Combinations of literals to try at most."""


class _OpenError(Exception):
    """The condition depends on something unknown."""


def truth(condition: str, given: Mapping[str, Sequence[str]]) -> bool | None:
    """Whether a condition is true, or false, for all literals that the names may hold; None if that depends:
    ``truth("mask is not None and n > 1", {"mask": ["None"]})`` is False. The literal ``...`` is anything but
    None."""
    names = sorted({name for name in _WORD.findall(condition) if name in given})
    node = parse_condition(condition) if names else None
    if node is None:
        return None
    found: set[bool | None] = set()
    for i, literals in enumerate(product(*(given[name] for name in names))):
        if i == _MOST:
            return None
        values = {name: ast.literal_eval(text) for name, text in zip(names, literals, strict=True)}
        found.add(_holds(node, values))
    return found.pop() if len(found) == 1 else None


def _holds(node: ast.expr, values: Mapping[str, object]) -> bool | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _holds(node.operand, values)
        return None if inner is None else not inner
    if isinstance(node, ast.BoolOp):
        parts = [_holds(part, values) for part in node.values]
        deciding = isinstance(node.op, ast.Or)
        if deciding in parts:
            return deciding
        return None if None in parts else not deciding
    try:
        value = _value(node, values)
        return None if value is ... else bool(value)
    except _OpenError:
        return None


def _value(node: ast.expr, values: Mapping[str, object]) -> object:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in values:
        return values[node.id]
    if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in _INFINITIES:
        return float("inf")
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return tuple(_value(element, values) for element in node.elts)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left = _value(node.left, values)
        right = _value(node.comparators[0], values)
        return _compared(left, node.ops[0], right)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and len(node.args) == 2
        and _value(node.args[0], values) is None
    ):
        return False  # None is an instance of nothing that anybody tests for
    raise _OpenError


def _compared(left: object, op: ast.cmpop, right: object) -> bool:
    if ... in (left, right) and not (isinstance(op, ast.Is | ast.IsNot) and None in (left, right)):
        raise _OpenError  # not None, otherwise unknown
    if isinstance(op, ast.Is | ast.IsNot):
        if left is not None and right is not None and not isinstance(left, bool):
            raise _OpenError  # equal numbers and strings may be one object or two
        return (left is right) is isinstance(op, ast.Is)
    if isinstance(op, ast.Eq):
        return left == right
    if isinstance(op, ast.NotEq):
        return left != right
    if isinstance(right, tuple) and isinstance(op, ast.In | ast.NotIn):
        return (left in right) is isinstance(op, ast.In)
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    if numbers and isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
        assert isinstance(left, int | float) and isinstance(right, int | float)
        if isinstance(op, ast.Lt):
            return left < right
        if isinstance(op, ast.LtE):
            return left <= right
        return left > right if isinstance(op, ast.Gt) else left >= right
    raise _OpenError
