"""What happens to a new tensor: whether it is kept, read or written to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from pytest_dispatchguard import Place, nodes

from ..syntax import called_name, names_in

_COUNTS = re.compile(r"(?:^|[._])(?:len|numel|nelement|size|sum|num|count|total)(?:$|[_s(])")
"""What counts elements, by its name."""


def is_kept(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a value outlives the call on purpose: it is assigned to an attribute, an entry, or a global."""
    parent: cst.CSTNode | None = node
    while parent is not None and not isinstance(parent, cst.Assign | cst.AnnAssign | cst.AugAssign):
        parent = place.parent(parent)
    if isinstance(parent, cst.AugAssign):
        return False  # an operand of what is kept
    if isinstance(parent, cst.AnnAssign):
        targets: Sequence[cst.BaseExpression] = [parent.target]
    elif isinstance(parent, cst.Assign):
        targets = [t.target for t in parent.targets]
    else:
        return False
    return any(
        not isinstance(t, cst.Name | cst.Tuple) and not _is_of_this_call(t, place) for t in targets
    )


_OF_A_BATCH = re.compile(
    r"_?(?:\w+_)?(?:batch|inputs?|kwargs|losses|loss_dict|obs|observations?|outputs?|samples?)"
)
"""What a step is given, or makes, by its name."""


def _is_of_this_call(target: cst.BaseExpression, place: Place) -> bool:
    """Whether what is assigned to is an entry of a dict that the call makes, or of its batch."""
    if not isinstance(target, cst.Subscript) or not isinstance(target.value, cst.Name):
        return False
    name = target.value.value
    if _OF_A_BATCH.fullmatch(name) and not place.global_values(name):
        return True
    held = place.value_of(target.value)
    if isinstance(held, cst.Call):
        return place.name(held) in ("dict", "next")
    return isinstance(held, cst.Dict) and not place.loops


@dataclass(slots=True)
class _Loads:
    """Where a name is read, and whether something writes through it."""

    reads: list[cst.Name] = field(default_factory=list)
    written: bool = False


def loads(name: str, inside: cst.CSTNode) -> _Loads:
    """The reads of a name inside a node."""
    return _all_loads(inside).get(name) or _Loads()


def loads_of(name: str, place: Place) -> _Loads:
    """The reads of a name inside the function, found once for all names."""
    known: dict[str, _Loads] = place.once(
        ("loads", id(place.function)), lambda: _all_loads(place.function)
    )
    return known.get(name) or _Loads()


def _all_loads(inside: cst.CSTNode) -> dict[str, _Loads]:
    found: dict[str, _Loads] = {}
    bound: set[int] = set()

    for node in nodes.walk(inside):
        if isinstance(node, cst.Name):
            if id(node) not in bound:
                found.setdefault(node.value, _Loads()).reads.append(node)
            continue
        if isinstance(node, cst.AssignTarget | cst.AugAssign):
            bound.add(id(node.target))
        written = list(nodes.written_by(node))
        if isinstance(node, cst.Attribute) and _is_in_place(node):
            written.append(node.value)
        for one in written:
            if isinstance(one, cst.Name):
                found.setdefault(one.value, _Loads()).written = True
    return found


def is_written_to(node: cst.BaseExpression, place: Place) -> bool:
    """Whether the function changes in place the tensor that an expression makes, there or by its name."""
    names: list[cst.BaseExpression] = []
    parent: cst.CSTNode | None = place.parent(node)
    if isinstance(parent, cst.Attribute) and _is_in_place(parent):
        return True
    while parent is not None:
        if isinstance(parent, cst.Assign):
            names += [t.target for t in parent.targets]
        elif isinstance(parent, cst.AnnAssign | cst.NamedExpr):
            names.append(parent.target)
        parent = place.parent(parent)
    return any(loads_of(n.value, place).written for n in names if isinstance(n, cst.Name))


def looked_at(into: cst.BaseExpression, loop: cst.CSTNode) -> bool:
    """Whether a loop does more with a tensor than write to it."""
    names = [
        n for n in nodes.names_in(loop) if isinstance(into, cst.Name) and n.value == into.value
    ]
    return len(names) > 1


_ONLY_READ = frozenset(
    "_assert add append debug error extend info insert log log_dict mark_non_differentiable print put "
    "register_buffer save_for_backward setattr setdefault update warning write".split()
)
"""Calls for their effect that leave alone what they are given."""


def _only_reads(name: str) -> bool:
    return name in _ONLY_READ or _LOOKS.match(name) is not None


_LOOKS = re.compile(r"_?(?:assert|check|validate|verify)(?:_|$)")


def given_to_writers(part: cst.CSTNode, place: Place) -> frozenset[str]:
    """The names of tensors that code gives to what may write into them: to calls that are made for their
    effect, to kernels, to operators of torch's library."""
    walked = list(nodes.walk(part))
    effects = {id(one.value) for one in walked if isinstance(one, cst.Expr)}
    found: set[str] = set()
    for call in walked:
        if not isinstance(call, cst.Call) or _only_reads(place.last_name(call)):
            continue
        given = [argument.value for argument in call.args]
        if id(call) in effects:
            found.update(*map(names_in, given))
        elif isinstance(call.func, cst.Subscript) or place.name(call).startswith("torch.ops."):
            found.update(one.value for one in given if isinstance(one, cst.Name))
    return frozenset(found)


def _is_in_place(node: cst.Attribute) -> bool:
    return node.attr.value.endswith("_") and not node.attr.value.startswith("__")


def bare(node: cst.BaseExpression, place: Place) -> str:
    """The source of an expression that may stand beside an operator."""
    plain = isinstance(
        node, cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.Integer | cst.Float
    )
    source = place.text(node)
    return source if plain or node.lpar else f"({source})"


_NAMED = (cst.Name, cst.Attribute, cst.Subscript)


def is_no_tensor_here(node: cst.BaseExpression, place: Place) -> bool:
    """Whether the place is only reached where what an expression names is no tensor: it is there for callers
    who have a number."""
    meant = {place.text(one) for one in nodes.walk(node) if isinstance(one, _NAMED)}
    for test, holds in place.conditions:
        while isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            test, holds = test.expression, not holds
        parts = [test]
        if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And) is holds:
            parts = [test.left, test.right]
        for part in parts:
            if holds or not isinstance(part, cst.Call) or not part.args:
                continue
            kind = part.args[1].value if len(part.args) > 1 else None
            asks = called_name(part) == "is_tensor" or (
                called_name(part) == "isinstance"
                and kind is not None
                and place.text(kind).endswith("Tensor")
            )
            if asks and place.text(part.args[0].value) in meant:
                return True
    return False


def is_for_nothing(place: Place) -> bool:
    """Whether the place is only reached where a count, by its name, or a size is zero: ``if total == 0``, or
    ``n, _ = x.shape`` and ``if n <= 0``; or makes what is returned where nothing is found: ``if not
    mask.any(): return torch.tensor(0.0)``. Where an expression counts by what it is (``len(x) == 0``), the
    place is cold for every rule."""
    if any(_asks_for_nothing(test, holds, place) for test, holds in place.conditions):
        return True
    return bool(place.conditions) and _finds_none(*place.conditions[-1], place)


def _finds_none(test: cst.BaseExpression, holds: bool, place: Place) -> bool:
    """Whether a condition asks if any element is there, and what is returned where none is, is a constant."""
    while isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        test, holds = test.expression, not holds
    if holds or not isinstance(test, cst.Call) or not isinstance(test.func, cst.Attribute):
        return False
    if test.func.attr.value != "any" or _FAULTS.search(place.text(test)):
        return False
    last = place.block[-1]
    statement = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else None
    value = statement.value if isinstance(statement, cst.Return) else None
    while isinstance(value, cst.Call) and called_name(value) not in _OF_NUMBERS:
        value = value.func.value if isinstance(value.func, cst.Attribute) else None
    return isinstance(value, cst.Call)


_FAULTS = re.compile(r"nan|inf(?![a-z])|finite|bad|skip|overflow|done", re.IGNORECASE)
"""What usually is nowhere, by its name."""
_OF_NUMBERS = frozenset(
    {"tensor", "as_tensor", "full", "zeros", "new_tensor", "new_full", "new_zeros"}
)
"""Functions that make what is returned for nothing."""


def _asks_for_nothing(test: cst.BaseExpression, holds: bool, place: Place) -> bool:
    while isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        test, holds = test.expression, not holds
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    part = test.comparisons[0]
    zero = isinstance(part.comparator, cst.Integer) and part.comparator.value == "0"
    none = cst.Equal | cst.LessThanEqual if holds else cst.NotEqual | cst.GreaterThan
    if not zero or not isinstance(part.operator, none):
        return False
    return _COUNTS.search(place.text(test.left)) is not None or _is_size(test.left, place)


def _is_size(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a name holds a size, one of an unpacked shape perhaps: `n, _ = x.shape`."""
    held = place.value_of(node)
    if held is not None:
        return _SIZE.search(place.text(held)) is not None
    if not isinstance(node, cst.Name) or place.assignments(node.value) != 1:
        return False
    function = place.function
    sizes = place.once(("sizes", id(function)), lambda: frozenset(_sizes(function, place)))
    return node.value in sizes


def _sizes(function: cst.FunctionDef, place: Place) -> Iterator[str]:
    for one in nodes.walk(function):
        if isinstance(one, cst.Assign) and _SHAPE.fullmatch(place.text(one.value)):
            for target in one.targets:
                if isinstance(target.target, cst.Tuple | cst.List):
                    yield from names_in(target.target)


_SIZE = re.compile(r"(?:\.size\(-?\d+\)|\.shape\[-?\d+\]|\.numel\(\))$|^len\(")
_SHAPE = re.compile(r"[\w.\[\]]+(?:\.shape|\.size\(\))")
