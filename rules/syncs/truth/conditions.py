"""What a condition asks: the tensors in it, and the host values that could decide first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import libcst as cst

from pytest_dispatchguard import Certainty, Place, nodes

from ..asked import asked_certainty
from ..host_code import works_on_host
from ..waits import Asked, asked, waits_inside


def tensor_question(node: cst.BaseExpression, place: Place) -> tuple[Certainty, Asked] | None:
    """How surely the truth of a device tensor is asked here, and by whom; None where it is not, and for all
    but the first tensor of a condition."""
    certainty = asked_certainty(node, place)
    if certainty is None or waits_inside(node, place) or works_on_host(place):
        return None
    if _of_host_data(node, place):
        certainty = "maybe"
    who = asked(node, place)
    first = _asked_of(who.whole, place).first.get(certainty)
    return None if first is not None and first is not node else (certainty, who)


class _Condition(NamedTuple):
    """What a whole condition asks."""

    first: Mapping[Certainty, cst.BaseExpression]
    """The first of what is, as surely, a tensor."""
    tensors: int


def _asked_of(whole: cst.BaseExpression, place: Place) -> _Condition:
    """What a whole condition asks; computed once for all of its operands."""
    return place.once(("asked of", id(whole)), lambda: _condition(whole, place))


def _condition(whole: cst.BaseExpression, place: Place) -> _Condition:
    first: dict[Certainty, cst.BaseExpression] = {}
    tensors = 0
    for leaf in asked_parts(whole, place):
        certainty = asked_certainty(leaf, place)
        if certainty is not None:
            first.setdefault(certainty, leaf)
            tensors += 1
    return _Condition(first, tensors)


def _of_host_data(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a name of the condition holds what a function of the project makes of texts and numbers alone:
    that is made on the CPU, unless the function moves it."""
    for name in nodes.names_in(node):
        made = place.value_of(name)
        if isinstance(made, cst.Call) and place.callee(made) is not None and made.args:
            kinds = [place.kind(a.value) for a in made.args]
            parts = [k.element or k if k.what == "nested" else k for k in kinds]
            if all(k.what in ("scalar", "text") for k in parts):
                return True
    return False


def asked_parts(whole: cst.BaseExpression, place: Place) -> Iterator[cst.BaseExpression]:
    """The operands of a condition in order, with chains split."""
    stack = [whole]
    while stack:
        node = stack.pop()
        if isinstance(node, cst.BooleanOperation):
            stack += (node.right, node.left)
        elif isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
            stack.append(node.expression)
        elif isinstance(node, cst.Call) and place.name(node) == "bool" and len(node.args) == 1:
            stack.append(node.args[0].value)
        elif isinstance(node, cst.NamedExpr):
            stack.append(node.value)
        else:
            yield node


def several_tensors(who: Asked, place: Place) -> str:
    """What is to be said where one condition asks several tensors."""
    count = _asked_of(who.whole, place).tensors
    if count < 2:
        return ""
    return (
        f" The condition reads {count} tensors, and waits for each: combine them with `&` or `|` "
        "and read the result once."
    )


def condition_text(node: cst.BaseExpression, place: Place) -> str:
    """The condition as the message names it: `not x.any()` with its not, of a chain the operand."""
    parent = place.parent(node)
    if isinstance(parent, cst.UnaryOperation):
        return place.short(parent)
    return place.short(node)


def host_first(
    node: cst.BaseExpression, who: Asked, place: Place
) -> tuple[cst.BooleanOperation, list[cst.BaseExpression], cst.BaseExpression] | None:
    """The chain in which a tensor is asked before a host test, its operands, and the test in question. Only
    for the first tensor of a chain whose value is used for its truth alone."""
    if who.asker == "value":
        return None
    chain = _chain_around(node, place)
    if chain is None:
        return None
    parts = operands(chain)
    if not all(_asks_tensor(o, place) or plain_host(o, place) for o in parts):
        return None
    first = next(i for i, o in enumerate(parts) if _asks_tensor(o, place))
    if _bare(parts[first]) is not node:
        return None
    goes_on = isinstance(
        chain.operator, cst.And
    )  # with this answer the tensor is asked all the same
    later = [
        o for o in parts[first + 1 :] if plain_host(o, place) and place.usual(o) is not goes_on
    ]
    return (chain, parts, later[0]) if later else None


def _chain_around(node: cst.BaseExpression, place: Place) -> cst.BooleanOperation | None:
    """The whole chain of one operator that a node is an operand of."""
    parent = place.parent(node)
    while isinstance(parent, cst.UnaryOperation):
        parent = place.parent(parent)
    if not isinstance(parent, cst.BooleanOperation):
        return None
    chain = parent
    while True:
        outer = place.parent(chain)
        if (
            isinstance(outer, cst.BooleanOperation)
            and outer.left is chain
            and not chain.lpar
            and type(outer.operator) is type(chain.operator)
        ):
            chain = outer
        else:
            return chain


def operands(chain: cst.BooleanOperation) -> list[cst.BaseExpression]:
    """The operands of a chain of one operator, in order."""
    left = chain.left
    same = isinstance(left, cst.BooleanOperation) and type(left.operator) is type(chain.operator)
    if isinstance(left, cst.BooleanOperation) and same and not left.lpar:
        return [*operands(left), chain.right]
    return [left, chain.right]


def _bare(node: cst.BaseExpression) -> cst.BaseExpression:
    while isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not):
        node = node.expression
    return node


def _asks_tensor(node: cst.BaseExpression, place: Place) -> bool:
    return place.certainty(_bare(node)) is not None


_PURE_CALLS = frozenset({"len", "isinstance"})
_PURE_METHODS = frozenset({"dim", "ndimension", "numel", "size", "is_floating_point", "is_complex"})


def plain_host(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression is a host value, read without side effects and without raising where the rest of
    its chain makes sense."""
    node = _bare(node)
    if isinstance(node, cst.Integer | cst.Float | cst.SimpleString):
        return True
    if isinstance(node, cst.BooleanOperation):
        return plain_host(node.left, place) and plain_host(node.right, place)
    if isinstance(node, cst.Comparison):
        if place.kind(node).what != "scalar":
            return False
        parts = [node.left, *(c.comparator for c in node.comparisons)]
        identity = all(isinstance(c.operator, cst.Is | cst.IsNot) for c in node.comparisons)
        return all(_no_effects(p, place) and (identity or plain_host(p, place)) for p in parts)
    if isinstance(node, cst.Call):
        return _no_effects(node, place)
    if isinstance(node, cst.Attribute) and node.attr.value == "training":
        return True
    return (
        place.kind(node).what in ("scalar", "text")
        and place.kind(node).sure
        and _no_effects(node, place)
    )


def _no_effects(node: cst.BaseExpression, place: Place) -> bool:
    if isinstance(node, cst.Name | cst.Integer | cst.Float | cst.SimpleString):
        return True
    if isinstance(node, cst.Attribute):
        return _no_effects(node.value, place)
    if isinstance(node, cst.Subscript):
        whole = place.text(node.value)
        return whole.endswith((".shape", ".size()")) and _no_effects(node.value, place)
    if isinstance(node, cst.UnaryOperation):
        return _no_effects(node.expression, place)
    if isinstance(node, cst.BinaryOperation):
        return _no_effects(node.left, place) and _no_effects(node.right, place)
    if isinstance(node, cst.Call):
        if place.name(node) in _PURE_CALLS:
            return all(_no_effects(a.value, place) for a in node.args if place.name(node) == "len")
        if place.last_name(node) in _PURE_METHODS and isinstance(node.func, cst.Attribute):
            return place.is_tensor(node.func.value) and _no_effects(node.func.value, place)
    return False
