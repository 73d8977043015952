"""DG406: a branch on a tensor that `clamp` can replace."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from pytest_dispatchguard import Finding, Fix, Place, Rule, Truth

from ...syntax import small_statements
from ..waits import Asked
from .conditions import tensor_question


class ClampByBranch(Rule):
    """A branch on a tensor does what `clamp` does.

    ## What it does

    Finds `if x > limit: x = limit` (and `<`), and `if x > 1: y = x * k` after `y = k`, where `x` is a tensor.

    ## Why it costs

    The branch makes the host wait until the device has computed `x`. `clamp` does not ask.

    ## Example

    ```python
    if scale > 1.0:
        scale = 1.0
    ```

    ## Instead

    ```python
    scale = scale.clamp(max=1.0)
    ```

    ## Fix safety

    Unsafe: the result is always a tensor, and NaN stays NaN.
    """

    code = "DG406"
    name = "clamp-by-branch"
    origin = "DeepSpeed#5632"
    looks_for = Truth()
    fixes = "unsafe"

    def judge(self, node: cst.BaseExpression, place: Place) -> Finding | None:
        """A condition whose branch amounts to a clamp."""
        question = tensor_question(node, place)
        if question is None:
            return None
        certainty, who = question
        new = as_clamp(who, place)
        if new is None or not isinstance(who.by, cst.If):
            return None
        return place.finding(
            node,
            f"`if {place.short(node)}` makes the host wait for the device, only to clamp a value. "
            f"`{new}` does the same without a branch.",
            certainty=certainty,
            fix=_one_line(who.by, new, place),
        )


def _one_line(branch: cst.If, new: str, place: Place) -> Fix | None:
    """The fix that puts one simple statement in place of an if, with the comment of its first line; none
    where
    that would lose another comment."""
    if branch is not place.statement:
        return None
    header = branch.body.header.comment if isinstance(branch.body, cst.IndentedBlock) else None
    kept = f"  {header.value}" if header is not None else ""
    if place.text(branch).count("#") != kept.count("#"):
        return None
    message = "Clamp on the device; the result is always a tensor"
    return place.replace(branch, new + kept, safety="unsafe", message=message)


def as_clamp(who: Asked, place: Place) -> str | None:
    """The statement with `clamp` that a branch on a tensor amounts to."""
    branch = who.by
    if who.asker != "if" or not isinstance(branch, cst.If) or branch.orelse is not None:
        return None
    test = who.whole
    smalls = list(small_statements(branch.body))
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1 or len(smalls) != 1:
        return None
    only = smalls[0]
    if not isinstance(only, cst.Assign) or len(only.targets) != 1:
        return None
    tensor, limit = test.left, test.comparisons[0].comparator
    operator = test.comparisons[0].operator
    above = isinstance(operator, cst.GreaterThan | cst.GreaterThanEqual)
    if not above and not isinstance(operator, cst.LessThan | cst.LessThanEqual):
        return None
    if not isinstance(tensor, cst.Name | cst.Attribute) or place.kind(limit).what != "scalar":
        return None
    target, value = only.targets[0].target, only.value
    if place.same(target, tensor) and place.same(value, limit):
        name = place.text(tensor)
        return f"{name} = {name}.clamp({'max' if above else 'min'}={place.text(limit)})"
    factor = _factor(value, tensor, place)
    if (
        above
        and factor is not None
        and place.text(limit) in ("1", "1.0")
        and _was(target, factor, branch, place)
    ):
        clamped = f"{place.text(tensor)}.clamp(min={place.text(limit)})"
        return f"{place.text(target)} = {clamped} * {place.text(factor)}"
    return None


def _factor(
    value: cst.BaseExpression, tensor: cst.BaseExpression, place: Place
) -> cst.BaseExpression | None:
    """`k` of `tensor * k` or `k * tensor`."""
    if not isinstance(value, cst.BinaryOperation) or not isinstance(value.operator, cst.Multiply):
        return None
    if place.same(value.left, tensor):
        return value.right
    return value.left if place.same(value.right, tensor) else None


def _was(
    target: cst.BaseExpression, factor: cst.BaseExpression, branch: cst.If, place: Place
) -> bool:
    """Whether the target was given the factor before the branch, in the same block."""
    for assign in _assigns_before(branch, place):
        if any(place.same(t.target, target) for t in assign.targets):
            return place.same(assign.value, factor)
    return False


def _assigns_before(branch: cst.If, place: Place) -> Iterator[cst.Assign]:
    before: list[cst.Assign] = []
    for statement in place.block:
        if statement is branch:
            break
        if isinstance(statement, cst.SimpleStatementLine):
            before.extend(s for s in statement.body if isinstance(s, cst.Assign))
    return reversed(before)
