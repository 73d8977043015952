"""Whether a loop shows in each round what a number goes into, so that the host needs the number there."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from pytest_dispatchguard import Place, nodes

from ..data_flow import around
from ..waits import NUMBERS, Read

SERVICES = ("comet_ml.", "mlflow.", "neptune.", "swanlab.", "wandb.")
"""Packages whose functions read at once what they are given."""
_SHOWING = frozenset(
    "add_scalar add_scalars format info print set_description set_description_str set_postfix "
    "set_postfix_str write".split()
)
_COLLECTING = frozenset("add append extend put track update".split())


def shown_each_round(read: Read, place: Place) -> bool:
    """Whether what a number is added or given to is shown in every round that reads it:
    `losses.update(loss.item())`, and `print(losses.avg)` some lines on."""
    loop = place.loops[-1] if place.loops else None
    if not isinstance(loop, cst.For | cst.While):
        return False
    keeper = _keeper(read.call, place)
    return keeper != "" and place.once(
        ("shown", id(read.call)), lambda: _is_shown(keeper, read, loop, place)
    )


def _keeper(node: cst.BaseExpression, place: Place) -> str:
    """The source of what a number is added or given to; empty if it is neither."""
    parent = around(node, place)
    while isinstance(parent, cst.BinaryOperation | cst.UnaryOperation) or (
        isinstance(parent, cst.Call) and place.name(parent) in (*NUMBERS, "round")
    ):
        parent = around(parent, place)
    kept: cst.BaseExpression | None = None
    if isinstance(parent, cst.AugAssign):
        kept = parent.target
    elif isinstance(parent, cst.Call) and place.last_name(parent) in _COLLECTING:
        kept = place.receiver(parent)
    of = kept
    while isinstance(of, cst.Subscript):
        of = of.value
    own = kept is None or place.text(kept) == place.self_name
    return place.text(kept) if kept and not own and isinstance(of, cst.Name | cst.Attribute) else ""


def _is_shown(keeper: str, read: Read, loop: cst.For | cst.While, place: Place) -> bool:
    showing = {id(node) for node in (*_calls_that_show(place), *_texts(loop))}
    names, been_read = {keeper, keeper.partition("[")[0]}, False
    for node in nodes.walk(loop.body, without=(cst.For, cst.While)) if showing else ():
        if node is read.call:
            been_read = True
        elif isinstance(node, cst.Continue) and been_read:
            return False  # only some of the rounds come further
        elif isinstance(node, cst.Assign) and _mentions(names, node.value, place):
            names |= {place.text(target.target) for target in node.targets}
        elif id(node) in showing and any(_mentions(names, one, place) for one in _parts(node)):
            return True
    return False


def _parts(node: cst.Call | cst.FormattedString) -> Iterator[cst.BaseExpression]:
    """What is shown by a call, or in a text."""
    if isinstance(node, cst.Call):
        yield from (argument.value for argument in node.args)
    else:
        yield node


def _calls_that_show(place: Place) -> Iterator[cst.Call]:
    """The calls beside a place, in every round, that show what they are given."""
    for call, scene in place.calls():
        if place.last_name(call) not in _SHOWING and not place.name(call).startswith(SERVICES):
            continue
        if scene.loops == place.loops and all(
            condition in place.conditions or place.usual(condition[0]) is condition[1]
            for condition in scene.conditions
        ):
            yield call


def _texts(loop: cst.For | cst.While) -> Iterator[cst.FormattedString]:
    """The texts that every round of a loop makes."""
    for statement in loop.body.body:
        if isinstance(statement, cst.SimpleStatementLine):
            yield from (
                one for one in nodes.walk(statement) if isinstance(one, cst.FormattedString)
            )


def _mentions(names: set[str], node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression has what is called so, but as a table of which it takes another part."""
    parts = {
        id(one.value)
        for one in nodes.walk(node)
        if isinstance(one, cst.Subscript) and place.text(one) not in names
    }
    return any(
        place.text(one) in names and id(one) not in parts
        for one in nodes.walk(node)
        if isinstance(one, cst.Name | cst.Attribute | cst.Subscript)
    )
