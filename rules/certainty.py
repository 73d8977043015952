"""How certain it is that a place runs often enough to matter."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Certainty, Place, nodes

from .syntax import is_word


def path_certainty(place: Place) -> Certainty:
    """Long paths from a root go through methods that may be another class's, so they are less certain."""
    return "sure" if len(place.hot.path) <= 5 else "maybe"


def may_return_before(place: Place) -> bool:
    """Whether a statement before the place may end the function, so that the place runs only sometimes."""
    blocks = [place.block]
    if isinstance(place.function.body, cst.IndentedBlock):
        blocks.append(tuple(place.function.body.body))
    for block in blocks:
        for statement in block:
            if statement is place.statement:
                break
            inside = nodes.walk(statement, without=(cst.FunctionDef,))
            if any(isinstance(n, cst.Return | cst.Continue) for n in inside):
                return True
    return False


def layer_certainty(place: Place) -> Certainty:
    """Sure if a place runs in layers, where microseconds count, and not just once per step or generation."""
    often = place.in_module or place.hot.loop or bool(place.loops)
    return "sure" if often else "note"


def only_where_given(place: Place) -> str:
    """The optional argument without which a place never runs (`if labels is not None:`); empty if none."""
    params = place.function.params
    optional = {
        p.name.value
        for p in (*params.posonly_params, *params.params, *params.kwonly_params)
        if is_word(p.default, "None")
    }
    open_parts = [test for test, holds in place.conditions if holds]
    while open_parts:
        part = open_parts.pop()
        if isinstance(part, cst.BooleanOperation) and isinstance(part.operator, cst.And):
            open_parts += [part.left, part.right]
        if isinstance(part, cst.Comparison) and isinstance(part.left, cst.Name):
            asked = part.comparisons[0]
            given = isinstance(asked.operator, cst.IsNot) and is_word(asked.comparator, "None")
            if given and part.left.value in optional:
                return part.left.value
    return ""
