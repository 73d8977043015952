"""Conditions as one boolean tensor, which the host need not read."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Place

from ..asked import asked_certainty

_MOST_OPERANDS = 8


def truth_on_device(node: cst.BaseExpression, denied: bool, place: Place) -> str | None:
    """A condition, or its contrary, as one boolean tensor; None where a part of it is none."""
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        return truth_on_device(node.expression, not denied, place)
    if isinstance(node, cst.Call) and place.name(node) == "bool" and len(node.args) == 1:
        return truth_on_device(node.args[0].value, denied, place)
    if isinstance(node, cst.BooleanOperation):
        if _is_long(node):
            return None
        joined = _joined(node, False, place)
        if not denied or joined is None:
            return joined
        return f"~({joined})" if "~" not in joined else _joined(node, True, place)
    if asked_certainty(node, place) != "sure" or isinstance(node, cst.NamedExpr):
        return None
    if isinstance(node, cst.Comparison) and len(node.comparisons) != 1:
        return None
    if isinstance(node, cst.Comparison) and isinstance(
        node.comparisons[0].operator, cst.In | cst.NotIn | cst.Is | cst.IsNot
    ):
        return None
    plain = isinstance(node, cst.Name | cst.Attribute | cst.Call | cst.Subscript) or node.lpar
    shown = place.text(node)
    boolean = isinstance(node, cst.Comparison) or place.kind(node).dtype == "bool" or _asks(node)
    if not denied:
        return shown if boolean else f"{shown if plain else f'({shown})'} != 0"
    shown = shown if plain else f"({shown})"
    return f"~{shown}" if boolean else f"{shown} == 0"


def _joined(node: cst.BooleanOperation, denied: bool, place: Place) -> str | None:
    """Both operands of a chain, or their contraries, with the sign that joins tensors."""
    left = truth_on_device(node.left, denied, place)
    right = truth_on_device(node.right, denied, place)
    if left is None or right is None:
        return None
    both = isinstance(node.operator, cst.And) is not denied
    return f"{operand(left)} {'&' if both else '|'} {operand(right)}"


def _is_long(node: cst.BaseExpression) -> bool:
    """Whether more operands are chained than anybody wants to read as one tensor."""
    number = 1
    while isinstance(node, cst.BooleanOperation):
        node, number = node.left, number + 1
        if number > _MOST_OPERANDS:
            return True
    return False


def _asks(node: cst.BaseExpression) -> bool:
    """Whether an expression ends in `any()` or `all()`, whose answer is boolean."""
    name = node.func if isinstance(node, cst.Call) else None
    name = name.attr if isinstance(name, cst.Attribute) else name
    return isinstance(name, cst.Name) and name.value in ("any", "all", "equal", "isnan", "isinf")


def operand(text: str) -> str:
    """A condition as it may stand beside `&` and `|`."""
    signs = ("<", "<=", ">", ">=", "==", "!=", "|", "&")
    loose = any(f" {sign} " in text for sign in signs)
    return f"({text})" if loose and not _stands_alone(text) else text


def _stands_alone(text: str) -> bool:
    """Whether a text is in parentheses as a whole, perhaps denied."""
    opened = text.removeprefix("~")
    if not opened.startswith("("):
        return False
    depth = 0
    for place, char in enumerate(opened):
        depth += (char == "(") - (char == ")")
        if not depth:
            return place == len(opened) - 1
    return False


def host_before(
    test: cst.BaseExpression, place: Place
) -> tuple[cst.BaseExpression | None, list[cst.BaseExpression]]:
    """What the host asks of a chain of `and` before it comes to tensors, and the tensors: one by one, as they
    have to be denied."""
    if (
        isinstance(test, cst.BooleanOperation)
        and isinstance(test.operator, cst.And)
        and not test.lpar
        and asked_certainty(test.left, place) is None
        and truth_on_device(test.left, False, place) is None
    ):
        return test.left, [test.right]
    return None, [test]
