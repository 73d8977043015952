"""Which values of the enclosing call a nested function or class needs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

import libcst as cst

from pytest_dispatchguard import Place, nodes

from ..backends import runs_elsewhere

COMPILERS = (
    "torch.compile",
    "torch.jit.script",
    "torch.jit.trace",
    "triton.jit",
    "torch.func.vmap",
    "torch.vmap",
)


def is_negligible(place: Place) -> bool:
    """Whether a function more or less is nothing here: once beside a step of training, beside layers that
    run again in the backward pass to save memory, or elsewhere. Where only loops are hot, these are the
    steps."""
    more = (place.hot.loop or place.loops) and not place.hot.only_loops
    once_a_step = not place.per_call and not more
    return once_a_step or _is_checkpointed(place) or not_run_by_torch(place)


_CHECKPOINTING = re.compile(
    r"(?:^|[._])(?:(?:activation|grad|gradient|use)_)?(?:checkpointing|use_checkpoint|activation_checkpoint)$"
)
"""Settings that have the activations of a layer worked out again in the backward pass."""


def _is_checkpointed(place: Place) -> bool:
    """Whether the place is only reached with checkpoints of activations."""
    return any(_says_checkpointing(test, holds, place) for test, holds in place.conditions)


def _says_checkpointing(test: cst.BaseExpression, holds: bool, place: Place) -> bool:
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return _says_checkpointing(test.expression, not holds, place)
    if isinstance(test, cst.BooleanOperation):
        sides = [_says_checkpointing(side, holds, place) for side in (test.left, test.right)]
        return any(sides) if isinstance(test.operator, cst.And) == holds else all(sides)
    return holds and _CHECKPOINTING.search(place.dotted(test)) is not None


def not_run_by_torch(place: Place) -> bool:
    """Whether the function runs under another backend than torch, or only while torch compiles it."""
    return runs_elsewhere(place) or any(
        place.name(d.decorator) in COMPILERS for d in place.function.decorators
    )


@dataclass(slots=True)
class _Scope:
    """The names that a function reads, and those that it binds itself."""

    read: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    shares: bool = False
    """Whether it writes to names of the function around it."""


def _scope(node: cst.CSTNode) -> _Scope:
    scope = _Scope()
    for inner in nodes.walk(node):
        kind = type(inner)
        if kind is cst.Name:
            scope.read.add(inner.value)
        elif kind is cst.Param or kind is cst.FunctionDef:
            scope.bound.add(inner.name.value)
        elif kind is cst.ImportAlias:
            scope.bound.add(_imported(inner))
        elif kind is cst.Nonlocal:
            scope.shares = True
        else:
            scope.bound.update(t.value for t in nodes.bound_by(inner) if type(t) is cst.Name)
    return scope


def _imported(alias: cst.ImportAlias) -> str:
    """The name that an import binds."""
    bound: cst.CSTNode = alias.asname.name if alias.asname is not None else alias.name
    while isinstance(bound, cst.Attribute):
        bound = bound.value
    return bound.value if isinstance(bound, cst.Name) else ""


def needs_the_call(node: cst.ClassDef | cst.Call, place: Place) -> bool:
    """Whether a class made in a function uses values of this very call, in its bases or its body: it cannot
    be defined elsewhere."""
    if isinstance(node, cst.Call):
        return any(place.assignments(n.value) for a in node.args for n in nodes.names_in(a.value))
    scope = _scope(node)
    local = {n for n in scope.read - scope.bound if place.assignments(n)}
    return scope.shares or bool(local - {node.name.value}) or _collects(node, place)


def _collects(node: cst.ClassDef, place: Place) -> bool:
    """Whether a class itself, not its instances, is given things, or collects them: one class for all calls
    would keep them."""
    name = node.name.value
    around = list(nodes.walk(place.function))
    if any(_is_given_to(name, one) for one in around):
        return True
    held = {
        target.value
        for one in nodes.walk(node.body, without={cst.FunctionDef, cst.ClassDef})
        if isinstance(one, cst.Assign | cst.AnnAssign) and isinstance(one.value, _COLLECTIONS)
        for part in (one.targets if isinstance(one, cst.Assign) else [one])
        for target in nodes.bound_by(part)
        if isinstance(target, cst.Name)
    }
    return any(
        isinstance(one, cst.Attribute)
        and isinstance(one.value, cst.Name)
        and one.value.value in (name, "cls")
        and one.attr.value in held
        for one in around
    )


def _is_given_to(name: str, node: cst.CSTNode) -> bool:
    """Whether a statement gives a new attribute to what has that name."""
    owners: list[cst.CSTNode] = [
        target.value for target in nodes.bound_by(node) if isinstance(target, cst.Attribute)
    ]
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.args:
        owners += [node.args[0].value] if node.func.value == "setattr" else []
    return any(isinstance(owner, cst.Name) and owner.value == name for owner in owners)


_COLLECTIONS = (cst.List, cst.Dict, cst.Set)


def captures_local(node: cst.FunctionDef | cst.Lambda, place: Place) -> bool:
    """Whether a function made inside another needs anything of this very call."""
    scope = _scope(node)
    # Defaults are computed around the function, where a parameter of the same name is not meant.
    params = (*node.params.posonly_params, *node.params.params, *node.params.kwonly_params)
    defaults = {n.value for p in params if p.default is not None for n in nodes.names_in(p.default)}
    own = {node.name.value} if isinstance(node, cst.FunctionDef) else set()
    if scope.shares or scope.read & {"super", "__class__", place.self_name}:
        return True
    needed = (scope.read - scope.bound - own) | defaults
    return any(place.assignments(name) for name in needed) or bool(
        needed & _local_imports(place.function)
    )


@lru_cache(maxsize=4)
def _local_imports(function: cst.FunctionDef) -> frozenset[str]:
    found: set[str] = set()
    for node in nodes.walk(function):
        kind = type(node)
        if kind is cst.ImportAlias:
            found.add(_imported(node))
        elif kind is cst.ExceptHandler and node.name is not None:
            found.update(n.value for n in nodes.names_in(node.name))
    return frozenset(found)


def called_once(name: str, place: Place) -> bool:
    """Whether a local function is used for nothing but one call, in the function and loop that made it."""
    if place.uses(name) != 1 or place.assignments(name) != 1:
        return False
    for call, scene in place.calls(name):
        if isinstance(call.func, cst.Name):
            same = scene.function is place.function and scene.loops == place.loops
            return same and not scene.deferred and not scene.cold
    return False
