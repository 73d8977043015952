"""Calls into tree libraries (`torch.utils._pytree`, optree, dm-tree, Keras), and what their result is for."""

from __future__ import annotations

import re
from typing import NamedTuple

import libcst as cst

from pytest_dispatchguard import Place

from ..backends import runs_elsewhere
from ..syntax import small_statements

FLATTENS = ("flatten", "tree_flatten", "tree_leaves", "leaves")
MAPS = ("map_structure", "tree_map", "map", "tree_map_only")
_ASKS = re.compile(
    r"is_?nested(?:_\w+)?|is_?instance|is_(?:\w+_)?tensor\w*|is_(?:leaf|sequence|structure|tree)|tree_is_leaf|type"
)


class Walk(NamedTuple):
    """One call into a tree library."""

    function: str
    module: str
    subjects: tuple[cst.BaseExpression, ...]
    """The structures it walks; empty where stars hide them."""
    gives_list: bool
    """Whether the call itself is the list of leaves (and not a pair with the structure)."""

    @property
    def flattens(self) -> bool:
        """Whether the call lists the leaves."""
        return self.function in FLATTENS


def walk_of(node: cst.Call, place: Place) -> Walk | None:
    """What the call walks; None where it is no call of a tree library, or
    none that torch code runs, or where the arguments do not say what is walked."""
    if not place.is_tree_call(node, *FLATTENS, *MAPS):
        return None
    module, _, function = place.name(node).rpartition(".")
    of_jax = module.startswith("jax.") and "torch" not in place.imports
    if of_jax or runs_elsewhere(place):
        return None
    first = 0 if function in FLATTENS else 2 if function == "tree_map_only" else 1
    subjects: list[cst.BaseExpression] = []
    for i, arg in enumerate(node.args):
        if arg.star:
            return None
        if arg.keyword is None and i >= first and (function not in FLATTENS or i == 0):
            subjects.append(arg.value)
    if not subjects:
        return None
    gives_list = function in ("tree_leaves", "leaves") or (
        function == "flatten" and module != "jax.tree"
    )
    return Walk(function, module, tuple(subjects), gives_list)


def is_tested(subject: cst.BaseExpression, place: Place) -> bool:
    """Whether the function tests somewhere what the subject is: whether it is nested, or a tensor."""
    return any(
        place.same(call.args[0].value, subject)
        for call, _ in place.calls()
        if call.args and _ASKS.fullmatch(place.last_name(call)) and not _asks_for_dict(call, place)
    )


def _asks_for_dict(call: cst.Call, place: Place) -> bool:
    """Whether a test only asks for a dict: what is not a dict may still be a tensor."""
    return len(call.args) > 1 and place.name(call.args[1].value) == "dict"


def leaf_list(node: cst.Call, walk: Walk, place: Place) -> cst.BaseExpression | None:
    """The expression that is the list of leaves: the call, or `[0]` of it."""
    if walk.gives_list:
        return node
    around = place.parent(node)
    return around if isinstance(around, cst.Subscript) and constant_index(around) == 0 else None


def constant_index(node: cst.Subscript) -> int | None:
    """`0` of `x[0]`; None for slices and computed indices."""
    if len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
        return None
    value = node.slice[0].slice.value
    return int(value.evaluated_value) if isinstance(value, cst.Integer) else None


def _stops_at_first(loop: cst.For) -> cst.BaseExpression | None:
    """The test of a loop that does nothing but look for the first element that passes it."""
    body = list(small_statements(loop.body))
    if len(body) != 1 or not isinstance(body[0], cst.If) or body[0].orelse is not None:
        return None
    inside = list(small_statements(body[0].body))
    ends = bool(inside) and isinstance(inside[-1], cst.Return | cst.Raise | cst.Break)
    return body[0].test if ends and len(inside) <= 2 else None


def scan_of(around: cst.CSTNode | None, place: Place) -> cst.BaseExpression | None:
    """What a generator inside `any`, `all` or `next` asks of each element."""
    if not isinstance(around, cst.GeneratorExp):
        return None
    call = place.parent(around)
    if not isinstance(call, cst.Call) or place.name(call) not in ("any", "all", "next"):
        return None
    if around.for_in.inner_for_in is not None:
        return None
    if place.name(call) == "next":
        return around.for_in.ifs[0].test if around.for_in.ifs else None
    return around.elt


def scan_test(leaves: cst.BaseExpression, place: Place) -> cst.BaseExpression | None:
    """The test, where the leaves are made only to look for one that passes it."""
    statement = place.statement
    if isinstance(statement, cst.For) and statement.iter is leaves:
        return _stops_at_first(statement)
    return scan_of(place.parent(leaves), place)


def first_leaf(leaves: cst.BaseExpression, place: Place) -> bool:
    """Whether only the first of the leaves is taken."""
    around = place.parent(leaves)
    return (
        isinstance(around, cst.Subscript) and around.value is leaves and constant_index(around) == 0
    )
