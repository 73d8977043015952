"""Branches that ask a mask for hits before they write through it: without hits they do nothing."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Fix, Place

from ...syntax import head_comment, small_statements
from ..waits import Asked, mask_of

_COUNTS = frozenset({"sum", "count_nonzero"})
_FILLS = frozenset({"masked_fill", "masked_fill_"})


def needless(node: cst.BaseExpression, who: Asked, place: Place) -> bool:
    """Whether an if asks a mask for hits, and does nothing but write through it."""
    branch = who.by
    if not isinstance(branch, cst.If) or branch.orelse is not None:
        return False
    mask = _asked_for_hits(node, place)
    if isinstance(place.parent(node), cst.UnaryOperation):
        return False  # `if not mask.any()`
    if mask is None or not isinstance(branch.body, cst.IndentedBlock):
        return False
    return all(_writes_through(small, mask, place) for small in small_statements(branch.body))


def without_asking(who: Asked, place: Place) -> Fix | None:
    """The one write of such an if, in its place."""
    branch = who.by
    if not isinstance(branch, cst.If) or branch is not place.statement:
        return None
    lines = branch.body.body
    alone = who.whole is branch.test and len(lines) == 1
    if not alone or head_comment(branch) or "#" in place.text(branch):
        return None
    text = place.text(lines[0]).strip()
    if "\n" in text or ";" in text:
        return None
    return place.replace(
        branch,
        text,
        safety="unsafe",
        message="Write without asking: no value changes without hits, but autograd counts each write",
    )


def _asked_for_hits(node: cst.BaseExpression, place: Place) -> cst.BaseExpression | None:
    """`mask` of `mask.any()`, `torch.any(mask)` and `mask.sum() > 0`."""
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
        comparison = node.comparisons[0]
        some = isinstance(comparison.operator, cst.GreaterThan | cst.NotEqual)
        counted = node.left if some and place.text(comparison.comparator) == "0" else None
        return _reduced(counted, _COUNTS, place)
    return _reduced(node, frozenset({"any"}), place)


def _reduced(
    node: cst.CSTNode | None, names: frozenset[str], place: Place
) -> cst.BaseExpression | None:
    if not isinstance(node, cst.Call) or place.last_name(node) not in names:
        return None
    if place.name(node).startswith("torch."):
        return node.args[0].value if len(node.args) == 1 else None
    return None if node.args else place.receiver(node)


def _writes_through(statement: cst.CSTNode, mask: cst.BaseExpression, place: Place) -> bool:
    """Whether a statement fills elements that a mask hits, and waits for nothing itself."""
    if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
        target = statement.targets[0].target
        if _at_hits(target, mask, place):
            return _is_number(statement.value, place)
        filled = _filled(statement.value, mask, place)
        return filled is not None and place.same(filled, target)
    if isinstance(statement, cst.Expr) and isinstance(statement.value, cst.Call):
        in_place = place.last_name(statement.value).endswith("_")
        return in_place and _filled(statement.value, mask, place) is not None
    return False


def _at_hits(target: cst.BaseExpression, mask: cst.BaseExpression, place: Place) -> bool:
    """Whether a target is what a mask hits of a tensor."""
    if not isinstance(target, cst.Subscript) or len(target.slice) > 1:
        return False
    by = mask_of(target, place)
    return by is not None and place.same(by, mask)


def _filled(
    call: cst.BaseExpression, mask: cst.BaseExpression, place: Place
) -> cst.BaseExpression | None:
    """What `x.masked_fill(mask, value)` and `torch.where(mask, value, x)` leave as it is but for the hits."""
    if not isinstance(call, cst.Call):
        return None
    if place.last_name(call) in _FILLS:
        by, filled = place.argument(call, 0, "mask"), place.receiver(call)
        value = place.argument(call, 1, "value")
    elif place.name(call) == "torch.where" and len(call.args) == 3:
        by, value, filled = (a.value for a in call.args)
    else:
        return None
    plain = isinstance(value, cst.Name | cst.Attribute)
    if value is None or not (plain or _is_number(value, place)):
        return None  # nobody knows what it does, and costs, where nothing is hit
    return filled if by is not None and place.same(by, mask) else None


def _is_number(value: cst.BaseExpression, place: Place) -> bool:
    """Whether a value is a number that is there already, or a limit: `-1.0`, `self.eps`, `float("inf")`,
    `torch.finfo(x.dtype).min`."""
    if isinstance(value, cst.UnaryOperation):
        return _is_number(value.expression, place)
    if isinstance(value, cst.Call):
        return place.name(value) == "float" and all(
            isinstance(a.value, cst.SimpleString) for a in value.args
        )
    if isinstance(value, cst.Attribute) and isinstance(value.value, cst.Call):
        return place.name(value.value) in ("torch.finfo", "torch.iinfo")
    plain = isinstance(value, cst.Integer | cst.Float | cst.Name | cst.Attribute)
    return plain and place.kind(value).what == "scalar"
