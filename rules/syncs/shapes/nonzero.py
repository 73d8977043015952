"""DG421: `nonzero`, `argwhere` and one-argument `where`."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Place, Rule, weaker

from ...syntax import is_word
from ..data_flow import around, held_by, loads
from ..waits import device_input
from .masks import rebound_in_block, same_in_every_round, selections_by, selects_by


class Nonzero(Rule):
    """`nonzero`, `argwhere` or one-argument `where`: the host waits to learn how many there are.

    ## What it does

    Finds `nonzero`, `argwhere` and `torch.where(condition)` of device tensors in hot code, where the indices
    only serve to write a constant (`x[rows] = 0`) or to add one (`x[rows] -= 360`), to read one position, or
    are looked up more than once. Where the rows themselves are wanted it is a note: the author has to decide
    what to do.

    ## Why it costs

    The size of the result depends on values, so the host waits until the device has counted. A result with
    the same shape for every input needs no wait, and no graph break under `torch.compile`.

    ## Example

    ```python
    rows = (scores > 0.5).nonzero()
    x = x.index_fill(0, rows[:, 0], 0.0)
    ```

    ## Instead

    ```python
    x = x.masked_fill((scores > 0.5)[:, None], 0.0)
    ```

    ## Fix safety

    Safe where the rows of a comparison of a tensor are looked up to write a constant to it: the mask
    itself writes the same (`x[x > 3] = 0`), without counting. None is offered elsewhere: only the author
    knows how to do without the indices.
    """

    code = "DG421"
    name = "indices-of-nonzero"
    origin = "pytorch#131256"
    looks_for = (Call("nonzero", "argwhere", place="torch"), Call("where", arguments=1))
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A call that looks positions up."""
        if place.last_name(node) == "where" and (
            not place.is_torch(node, "where") or len(node.args) != 1
        ):
            return None
        worked_on = device_input(node, place)
        if worked_on is None:
            return None
        if _position_is_read(node, place):
            return place.finding(
                node,
                f"`{place.short(node)}` looks up a position on the device; the host waits for that, "
                "and once more to read it. Keep the position as a Python number from where "
                "it is known (a counter); `.int().argmax()` finds the first one in one wait.",
                certainty=worked_on[1],
            )
        shown = place.short(node)
        again = _looked_up_again(node, worked_on[0], place)
        if again:
            return place.finding(
                node,
                f"`{shown}` makes the host wait for the device to count the hits, {again}",
                certainty=worked_on[1],
            )
        if _only_blanks(node, place):
            return place.finding(
                node,
                f"`{shown}` makes the host wait for the device to count the hits, only to write a "
                "constant there, or to add one. Keep the mask: `masked_fill` or `torch.where(mask, a, b)` "
                "waits for nothing.",
                certainty=worked_on[1],
                fix=_through_the_mask(node, worked_on[0], place),
            )
        return place.finding(
            node,
            f"`{shown}` returns one row per hit, so the host waits for the device to count them. One "
            "wait is inherent if you need the rows themselves; if only the values there change, "
            "keep the mask (`torch.where(mask, a, b)`).",
            certainty=weaker(worked_on[1], "note"),
        )


def _looked_up_again(node: cst.Call, mask: cst.BaseExpression, place: Place) -> str:
    """What to do where the same hits are counted more than once; empty where they are not."""
    if place.loops and same_in_every_round(mask, place.loops[-1], place):
        return "in every iteration of the loop, though they are the same. Find them once before it."
    for other, scene in place.calls(place.last_name(node)):
        if other is not node and scene.block == place.block and place.same(other, node):
            return "" if rebound_in_block(mask, place) else "more than once. Find them once."
    selections = [
        o
        for o, s in selections_by(mask, place)
        if s.block == place.block and selects_by(o, mask, place)
    ]
    if selections and not rebound_in_block(mask, place):
        return (
            f"and `{place.short(selections[0])}` counts them again. Select by the indices found "
            "(`x[rows]`, with `rows = mask.nonzero(as_tuple=True)`)."
        )
    return ""


def _only_blanks(node: cst.BaseExpression, place: Place, depth: int = 0) -> bool:
    """Whether indices serve only to write a constant, or to add one: `x[rows] = 0`, `x[rows] -= 360`,
    `index_fill(0, rows, 0)`."""
    parent = around(node, place)
    if isinstance(parent, cst.Subscript) and parent.value is not node:
        return _written_constant(parent, place)
    if isinstance(parent, cst.Subscript) and parent.value is node:
        # The positions of one dimension; a second subscript picks some hits, which no mask does.
        one = not isinstance(node, cst.Subscript) and _is_of_a_dimension(parent)
        return one and _only_blanks(parent, place, depth)
    if isinstance(parent, cst.Call) and parent.func is not node:
        if place.last_name(parent) not in ("index_fill", "index_fill_"):
            return False
        value = parent.args[-1].value
        return value is not node and place.kind(value).what == "scalar"
    if isinstance(parent, cst.Attribute) and parent.attr.value in ("squeeze", "flatten", "view"):
        call = around(parent, place)
        return isinstance(call, cst.Call) and _only_blanks(call, place, depth)
    name = held_by(node, place) if depth < 3 else ""
    found = [_only_blanks(load, place, depth + 1) for load in loads(name, place)] if name else []
    return bool(found) and all(found)


def _is_of_a_dimension(node: cst.Subscript) -> bool:
    """Whether `[0]` or `[:, 0]` follows, and not `[-1]`, the last of the hits."""
    last = node.slice[-1].slice
    return isinstance(last, cst.Index) and isinstance(last.value, cst.Integer)


def _compares(mask: cst.BaseExpression, whole: cst.BaseExpression, place: Place) -> bool:
    """Whether a mask compares a tensor, or what its last dimension is reduced to: it fits the tensor."""
    if not isinstance(mask, cst.Comparison) or place.kind(mask).dtype != "bool":
        return False
    left = mask.left
    given = (
        place.text(left.args[0]).replace(" ", "")
        if isinstance(left, cst.Call) and left.args
        else ""
    )
    if isinstance(left, cst.Call) and len(left.args) == 1 and given in ("-1", "dim=-1"):
        left = place.receiver(left) or left
    others = [place.kind(part.comparator) for part in mask.comparisons]
    return place.same(left, whole) and all(o.what == "scalar" or o.ndim == 0 for o in others)


def _through_the_mask(node: cst.Call, mask: cst.BaseExpression, place: Place) -> Fix | None:
    """The mask in place of the indices, for a write of a constant to what they find and nothing else."""
    target = around(node, place)
    statement = around(target, place) if isinstance(target, cst.Subscript) else None
    if isinstance(statement, cst.AssignTarget):
        statement = around(statement, place)
    if not isinstance(target, cst.Subscript) or not isinstance(statement, cst.Assign):
        return None
    pairs = place.last_name(node) == "where" or (
        (given := place.argument(node, None, "as_tuple")) is not None and is_word(given, "True")
    )
    index = target.slice[0].slice
    alone = len(target.slice) == 1 and isinstance(index, cst.Index) and not index.star
    if not (pairs and alone and _compares(mask, target.value, place)) or "#" in place.text(node):
        return None
    return place.replace(
        node,
        place.text(mask),
        safety="safe",
        message="write through the mask, which counts nothing",
    )


def _written_constant(target: cst.Subscript, place: Place) -> bool:
    statement = around(target, place)
    if isinstance(statement, cst.AssignTarget):
        statement = around(statement, place)
    indices = [place.text(element.slice) for element in target.slice]
    if len(set(indices)) < len(indices):
        return False  # `x[rows, rows]` is a diagonal, which no mask is
    if isinstance(statement, cst.Assign):
        fits = all(t.target is target for t in statement.targets)
    elif isinstance(statement, cst.AugAssign):
        adds = isinstance(statement.operator, cst.AddAssign | cst.SubtractAssign)
        fits = adds and statement.target is target
    else:
        return False
    return fits and place.kind(statement.value).what == "scalar"


def _position_is_read(call: cst.Call, place: Place) -> bool:
    """Whether what was found is brought to Python at once: `(ts == t).nonzero().item()`."""
    node: cst.CSTNode | None = place.parent(call)
    while isinstance(node, cst.Attribute | cst.Subscript | cst.Call):
        if isinstance(node, cst.Call) and place.last_name(node) in ("item", "int"):
            return True
        node = place.parent(node)
    return False
