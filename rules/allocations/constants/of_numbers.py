"""What is computed of numbers alone: of sizes, settings and constants, by factories and operations."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Place, nodes

from ...syntax import VIEWS, assigned, changed_names, unpacked
from ..data import FACTORIES, RANDOM, is_number
from ..devices import is_device
from ..uses import loads_of

_PURE = frozenset(
    "abs add bool cartesian_prod cat clamp cos cumsum div double eq exp fill_ flip float floor_divide ge gt "
    "half int le log logical_not long lt masked_fill masked_fill_ mul ne outer pow reciprocal repeat "
    "repeat_interleave rsqrt sin sqrt square stack sub to tril tril_ triu triu_ where".split()
)
_LONGEST = 6
"""Names of names that are followed."""


def is_setting(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression is a setting of the module that this call does not change, and no tensor."""
    if not isinstance(node, cst.Attribute) or not place.in_module or not place.self_name:
        return False
    written = place.dotted(node)
    own = written.startswith(f"{place.self_name}.") and not place.kind(node).maybe_tensor
    return own and written not in changed_names(place)


def is_size(node: cst.BaseExpression, place: Place) -> bool:
    """Whether what a factory is given is no tensor, and was not read from one."""
    held = place.value_of(node) if isinstance(node, cst.Name) else node
    read = any(
        isinstance(one, cst.Call) and _reads(one, place)
        for one in nodes.walk(held if held is not None else node)
    )
    return not read and not place.is_tensor(node)


def _reads(call: cst.Call, place: Place) -> bool:
    """Whether a call makes a number of a tensor."""
    if place.last_name(call) in ("item", "tolist"):
        return True
    return place.name(call) in ("int", "float") and any(
        place.kind(a.value).maybe_tensor for a in call.args
    )


def grown_of_numbers(
    node: cst.BaseExpression, place: Place, depth: int = _LONGEST
) -> tuple[cst.BaseExpression, int]:
    """The largest value that is computed of a tensor of numbers, and of numbers alone, and by how many
    operations, views not counted."""
    key = ("grown of numbers", id(node), depth)
    return place.once(key, lambda: _grown_of_numbers(node, place, depth))


def _grown_of_numbers(
    node: cst.BaseExpression, place: Place, depth: int
) -> tuple[cst.BaseExpression, int]:
    steps = 0
    while (outer := _around(node, place)) is not None:
        node, launches = outer
        steps += launches
    largest, most = node, 0
    for read in _reads_of(node, place) if depth else ():
        whole, more = grown_of_numbers(read, place, depth - 1)
        if more > most:
            largest, most = whole, more
    return largest, steps + most


def is_triangle(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a triangle is all that is taken of a new tensor, there or by its name."""
    uses: list[cst.BaseExpression] = [node, *_reads_of(node, place)]
    around = [outer[0] if (outer := _around(one, place)) is not None else None for one in uses]
    taken = [call for call in around if call is not None] if len(uses) == 1 else around[1:]
    return bool(taken) and all(
        isinstance(call, cst.Call) and place.last_name(call).rstrip("_") in ("tril", "triu")
        for call in taken
    )


def _reads_of(node: cst.BaseExpression, place: Place) -> list[cst.Name]:
    """Where the function reads a value by its name, or by the names of its parts; nowhere where it writes to
    it."""
    name = assigned(node, place)
    if name is None:
        parts = [one for one, value in unpacked(place).items() if value is node]
        found = [loads_of(one, place) for one in parts]
        return [] if any(one.written for one in found) else [r for one in found for r in one.reads]
    named = loads_of(name.value, place)
    if named.written:
        return []
    return [read for read in named.reads if place.value_of(read) is node]


def _around(node: cst.BaseExpression, place: Place) -> tuple[cst.BaseExpression, int] | None:
    """What is computed of a value and of numbers, and whether that launches something; None where anything
    else goes into it, or it is used otherwise."""
    parent = place.parent(node)
    if isinstance(parent, cst.BinaryOperation):
        other = parent.right if parent.left is node else parent.left
        return (parent, 1) if _of_numbers(other, place) else None
    if isinstance(parent, cst.Comparison):
        parts = [parent.left, *(one.comparator for one in parent.comparisons)]
        others = [part for part in parts if part is not node]
        return (parent, 1) if all(_of_numbers(part, place) for part in others) else None
    if isinstance(parent, cst.UnaryOperation) and not isinstance(parent.operator, cst.Not):
        return parent, 1
    if isinstance(parent, cst.Subscript) and parent.value is node:
        plain = all(
            isinstance(e.slice, cst.Slice) or _of_numbers(e.slice.value, place)
            for e in parent.slice
            if isinstance(e.slice, cst.Slice | cst.Index)
        )
        return (parent, 0) if plain else None
    if isinstance(parent, cst.Attribute) and parent.value is node:
        call = place.parent(parent)
        return _called(call, parent, place) if isinstance(call, cst.Call) else None
    if isinstance(parent, cst.Tuple | cst.List):
        others = [e.value for e in parent.elements if e.value is not node]
        if not all(_of_numbers(one, place) for one in others):
            return None
        node, parent = parent, place.parent(parent)
    if isinstance(parent, cst.Call) and parent.func is not node:
        return _called(parent, node, place) if place.name(parent).startswith("torch.") else None
    return None


def _called(
    call: cst.Call, of: cst.BaseExpression, place: Place
) -> tuple[cst.BaseExpression, int] | None:
    last = place.last_name(call)
    if last not in _PURE and last not in VIEWS:
        return None
    if call.func is not of and not any(a.value is of for a in call.args):
        return None
    others = [
        a.value
        for a in call.args
        if a.value is not of and not isinstance(a.value, cst.SimpleString)
    ]
    if not all(_of_numbers(one, place) or is_device(one, place) for one in others):
        return None
    return call, int(last in _PURE)


def _of_numbers(node: cst.BaseExpression, place: Place, depth: int = _LONGEST) -> bool:
    """Whether a value is a number, or computed of numbers alone."""
    key = ("of numbers", id(node), depth)
    return place.once(key, lambda: _is_of_numbers(node, place, depth))


def _is_of_numbers(node: cst.BaseExpression, place: Place, depth: int) -> bool:
    if is_number(node, place) or place.kind(node).what == "scalar":
        return True
    if depth == 0:
        return False
    if isinstance(node, cst.Name):
        if node.value in ("None", "True", "False"):
            return True
        held = place.value_of(node)
        held = unpacked(place).get(node.value) if held is None else held
        if held is None or loads_of(node.value, place).written:
            return False
        return _of_numbers(held, place, depth - 1)
    if isinstance(node, cst.Attribute):
        return place.name(node).startswith("torch.")
    if isinstance(node, cst.BinaryOperation):
        return _of_numbers(node.left, place, depth - 1) and _of_numbers(
            node.right, place, depth - 1
        )
    if isinstance(node, cst.UnaryOperation):
        return _of_numbers(node.expression, place, depth - 1)
    if isinstance(node, cst.Tuple | cst.List):
        return all(_of_numbers(e.value, place, depth - 1) for e in node.elements)
    if isinstance(node, cst.Subscript):
        return place.kind(node.value).is_tensor and _of_numbers(node.value, place, depth - 1)
    if isinstance(node, cst.Call):
        return _made_of_numbers(node, place, depth)
    return False


def _made_of_numbers(call: cst.Call, place: Place, depth: int) -> bool:
    name, last = place.name(call), place.last_name(call)
    if name in FACTORIES:
        if last in RANDOM:
            return False
        if last == "full":
            value = place.argument(call, 1, "fill_value")
            if value is None or not _of_numbers(value, place, depth - 1):
                return False
        sizes = [a.value for a in call.args if a.keyword is None]
        return all(is_size(one, place) for one in sizes[:1])
    receiver = None if name.startswith("torch.") else place.receiver(call)
    parts = [a.value for a in call.args if not isinstance(a.value, cst.SimpleString)]
    parts += [receiver] if receiver is not None else []
    return last in _PURE | VIEWS and all(
        _of_numbers(one, place, depth - 1) or is_device(one, place) for one in parts
    )
