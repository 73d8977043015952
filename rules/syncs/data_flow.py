"""What becomes of a value inside its function: whether it goes back to tensors, is reduced at once, or is
needed by the host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from pytest_dispatchguard import Place, nodes

from .waits import NUMBERS, RANDOM, mask_of, only_raises, only_warns

MERGING = frozenset("all amax amin any count_nonzero logsumexp max mean min prod sum".split())
"""Reductions that a mask can be worked into: of all elements, with those outside blanked out."""
ELEMENTWISE = frozenset(
    "abs add bool clamp clamp_max clamp_min clone contiguous cos detach div double exp exp2 expm1 "
    "float half int isfinite isinf isnan logical_not long mul neg pow "
    "relu sigmoid sign sin square sub tanh type_as".split()
)
"""Work that is as good on elements outside of a mask: what is defined everywhere."""
_PARTIAL = frozenset(
    "acos asin acosh atanh log log10 log1p log2 logit norm normalize reciprocal rsqrt sqrt".split()
)
GROWING = frozenset("exp exp2 expm1".split())
"""What overflows for numbers that a mask or branch keeps out, which makes gradients NaN."""
_DIVIDING = frozenset({"div", "divide", "fmod", "pow", "remainder", "true_divide"})
_JOINING = frozenset(
    "add clamp div fmod full_like lerp masked_fill maximum minimum mul pow remainder sub "
    "true_divide where".split()
)
_MAKING = frozenset({"as_tensor", "asarray", "from_numpy", "scalar_tensor", "tensor"})
_DEPTH = 4


@dataclass(slots=True)
class _Tree:
    """Who is around whom in a function, and where each name stands."""

    of: dict[int, cst.CSTNode]
    loads: dict[str, list[cst.Name]]


def _tree(place: Place) -> _Tree:
    """The tree of the innermost function."""

    def make() -> _Tree:
        loads: dict[str, list[cst.Name]] = {}
        for name in nodes.names_in(place.function):
            loads.setdefault(name.value, []).append(name)
        return _Tree(nodes.around(place.function), loads)

    return place.once(("tree", id(place.function)), make)


def around(node: cst.CSTNode, place: Place) -> cst.CSTNode | None:
    """What is around a node: arguments, indices and elements are passed over."""
    of = _tree(place).of
    found = of.get(id(node))
    while isinstance(
        found, cst.Arg | cst.Index | cst.SubscriptElement | cst.Element | cst.ComparisonTarget
    ):
        found = of.get(id(found))
    return found


def statement_around(node: cst.CSTNode, place: Place) -> cst.CSTNode | None:
    """The small statement or the header that a node stands in."""
    found = around(node, place)
    while found is not None and not isinstance(
        found, cst.BaseSmallStatement | cst.BaseCompoundStatement
    ):
        found = around(found, place)
    return found


def loads(name: str, place: Place) -> Sequence[cst.Name]:
    """The places of the function where a local name is read."""
    key = ("loads", name, id(place.function))
    return place.once(key, lambda: list(_loads(name, place)))


def _loads(name: str, place: Place) -> Iterator[cst.Name]:
    of = _tree(place).of
    for node in _tree(place).loads.get(name, ()):
        parent = of.get(id(node))
        bound = parent
        while isinstance(bound, cst.Element | cst.Tuple | cst.List | cst.StarredElement):
            bound = of.get(id(bound))
        if isinstance(bound, cst.AssignTarget):
            continue
        if parent is not None and any(target is node for target in nodes.bound_by(parent)):
            continue
        yield node


def held_by(node: cst.BaseExpression, place: Place) -> str:
    """The local name that is given just this value, and nothing else in the function."""
    parent = around(node, place)
    if isinstance(parent, cst.Assign) and parent.value is node and len(parent.targets) == 1:
        target: cst.BaseExpression = parent.targets[0].target
        if isinstance(target, cst.Tuple) and len(target.elements) == 1:
            target = target.elements[0].value
        if isinstance(target, cst.Name) and place.assignments(target.value) == 1:
            return target.value
    return ""


def ends(node: cst.BaseExpression, place: Place, depth: int = 0) -> frozenset[str]:
    """Where a number read from a tensor ends up: `tensor` (back in tensor arithmetic), `check`, `branch`,
    `sum`, or something only the host can do (`host`)."""
    parent = around(node, place)
    if isinstance(parent, cst.UnaryOperation) and not isinstance(parent.operator, cst.Not):
        return ends(parent, place, depth)
    if isinstance(parent, cst.BinaryOperation):
        other = parent.right if parent.left is node else parent.left
        if place.kind(other).is_tensor:
            return _TENSOR
        total = around(parent, place)
        sums = [t.target for t in total.targets] if isinstance(total, cst.Assign) else []
        adds = isinstance(parent.operator, cst.Add | cst.Subtract)
        grown = next((target for target in sums if adds and _so_far(other, target, place)), None)
        if total is not None and grown is not None:
            return _summed(grown, total, place)
        return ends(parent, place, depth)
    if isinstance(parent, cst.Comparison):
        parts = [parent.left, *(c.comparator for c in parent.comparisons)]
        if any(place.kind(p).is_tensor for p in parts if p is not node):
            return _TENSOR
        return _asked(parent, place)
    if isinstance(parent, cst.Call) and parent.func is not node:
        return _given(node, parent, place, depth)
    if isinstance(parent, cst.AugAssign):
        if place.kind(parent.target).is_tensor:
            return _TENSOR
        return _summed(parent.target, parent, place)
    if isinstance(parent, cst.Assign) and depth < _DEPTH:
        stored = parent.targets[0].target
        if isinstance(stored, cst.Subscript) and place.on_device(stored.value):
            return _TENSOR  # `losses[step] = loss.item()`
        name = held_by(node, place)
        found = [ends(load, place, depth + 1) for load in loads(name, place)] if name else []
        return frozenset().union(*found) if found else _HOST
    return _HOST


_TENSOR, _HOST = frozenset({"tensor"}), frozenset({"host"})


def _so_far(value: cst.BaseExpression, total: cst.BaseExpression, place: Place) -> bool:
    """Whether a value is what a sum has been so far: `total` itself, or `totals.get(key, 0.0)` of
    `totals[key]`."""
    if place.same(value, total):
        return True
    if not isinstance(value, cst.Call) or place.last_name(value) != "get" or not value.args:
        return False
    table = place.receiver(value)
    return (
        isinstance(total, cst.Subscript)
        and table is not None
        and place.same(table, total.value)
        and len(total.slice) == 1
        and isinstance(total.slice[0].slice, cst.Index)
        and place.same(total.slice[0].slice.value, value.args[0].value)
    )


def _summed(target: cst.BaseExpression, statement: cst.CSTNode, place: Place) -> frozenset[str]:
    """Where a number ends up that is added to a sum: in the sum, unless the host looks at that in the same
    round, as it does who shows it at every step."""
    rounds = [loop for loop in place.loops if isinstance(loop, cst.For | cst.While)]
    within = rounds[-1].body if rounds else place.function.body
    for found in nodes.walk(within):
        if type(found) is not type(target) or not place.same(found, target):
            continue
        if isinstance(_handed(found, place), cst.Return):
            continue
        inside: cst.CSTNode | None = found
        while inside is not None and inside is not statement:
            by = _tree(place).of.get(id(inside))
            if isinstance(by, cst.AssignTarget | cst.Del) or _adds(by, found, place):
                break
            if isinstance(by, cst.If) and inside is by.body and _now_and_then(by, target, place):
                break
            inside = by
        if inside is None:
            return _HOST
    return frozenset({"sum"})


def _now_and_then(branch: cst.If, total: cst.BaseExpression, place: Place) -> bool:
    """Whether a branch looks at a sum of several rounds: after so many of them, or it begins anew there."""
    return (
        place.usual(branch.test) is False
        or any(
            isinstance(n, cst.BinaryOperation) and isinstance(n.operator, cst.Modulo)
            for n in nodes.walk(branch.test)
        )
        or any(
            isinstance(n, cst.Assign)
            and isinstance(n.value, cst.Integer | cst.Float)
            and any(place.same(t.target, total) for t in n.targets)
            for n in nodes.walk(branch.body)
        )
    )


def _adds(statement: cst.CSTNode | None, total: cst.BaseExpression, place: Place) -> bool:
    """Whether a statement only adds to a sum."""
    if isinstance(statement, cst.AugAssign):
        return place.same(statement.target, total)
    return isinstance(statement, cst.Assign) and any(
        place.same(target.target, total) for target in statement.targets
    )


def _handed(node: cst.CSTNode, place: Place) -> cst.CSTNode | None:
    """The node that passes a value on unchanged, alone or among others."""
    by = around(node, place)
    while isinstance(by, cst.Tuple | cst.List | cst.Dict | cst.DictElement):
        by = around(by, place)
    return by


def _asked(condition: cst.BaseExpression, place: Place) -> frozenset[str]:
    by: cst.CSTNode | None = around(condition, place)
    while isinstance(by, cst.BooleanOperation | cst.UnaryOperation):
        by = around(by, place)
    if isinstance(by, cst.Assert) or only_raises(by) or only_warns(by):
        return frozenset({"check"})
    return frozenset({"branch"}) if isinstance(by, cst.If) else _HOST


def _given(node: cst.BaseExpression, call: cst.Call, place: Place, depth: int) -> frozenset[str]:
    name, last = place.name(call), place.last_name(call)
    if name in NUMBERS or name in ("abs", "round"):
        return ends(call, place, depth)
    if name.startswith("torch."):
        return _TENSOR if last in _JOINING | _MAKING else _HOST
    receiver = place.receiver(call)
    if receiver is not None and place.is_tensor(receiver):
        joins = last in _JOINING or (last.endswith("_") and last[:-1] in _JOINING)
        return _TENSOR if joins else _HOST
    return _HOST


def reduced(
    node: cst.BaseExpression, place: Place, alike: frozenset[int] = frozenset(), depth: int = 0
) -> str:
    """The reduction that a selection ends in, with nothing but elementwise work before; empty where it is
    used otherwise. `alike` are selections by the same mask: they go together."""
    parent = around(node, place)
    if isinstance(parent, cst.UnaryOperation):
        return reduced(parent, place, alike, depth)
    if isinstance(parent, cst.BinaryOperation | cst.Comparison):
        parts = (
            [parent.left, parent.right]
            if isinstance(parent, cst.BinaryOperation)
            else [parent.left, *(c.comparator for c in parent.comparisons)]
        )
        fits = not undefined_elsewhere(parent, place, deep=False) and all(
            p is node or id(p) in alike or place.kind(p).what == "scalar" or place.kind(p).ndim == 0
            for p in parts
        )
        return reduced(parent, place, alike, depth) if fits else ""
    if isinstance(parent, cst.Attribute) and parent.value is node:
        call = around(parent, place)
        if not isinstance(call, cst.Call) or call.func is not parent:
            return ""
        last = parent.attr.value
        if last in MERGING and not call.args:
            return last
        scalars = all(place.kind(a.value).what == "scalar" for a in call.args)
        return reduced(call, place, alike, depth) if last in ELEMENTWISE and scalars else ""
    if isinstance(parent, cst.Call) and place.name(parent).startswith("torch."):
        last = place.last_name(parent)
        if last in MERGING and len(parent.args) == 1:
            return last
        if last in ELEMENTWISE and len(parent.args) == 1:
            return reduced(parent, place, alike, depth)
        return ""
    name = held_by(node, place) if depth < _DEPTH else ""
    if name:
        hows = {reduced(load, place, alike, depth + 1) for load in loads(name, place)}
        return sorted(hows)[0] if hows and "" not in hows else ""
    return ""


def undefined_elsewhere(node: cst.BaseExpression, place: Place, deep: bool = True) -> bool:
    """Whether an expression does (`deep`: anywhere in it) what some numbers are no input of: a division, a
    root, a logarithm. Worked out for elements that a mask or branch keeps out, it gives NaN, in gradients
    even where it is not selected."""
    return any(_partial(n, place) for n in (nodes.walk(node) if deep else (node,)))


def may_overflow(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression may be infinite where it is worked out in vain."""
    calls = (n for n in nodes.walk(node) if isinstance(n, cst.Call))
    return any(place.last_name(call).rstrip("_") in GROWING for call in calls)


def _divides(node: cst.AugAssign, place: Place) -> bool:
    """Whether a tensor is divided in place by what may be zero."""
    dividing = cst.DivideAssign | cst.FloorDivideAssign | cst.ModuloAssign | cst.PowerAssign
    return isinstance(node.operator, dividing) and place.kind(node.value).what != "scalar"


def _partial(node: cst.CSTNode, place: Place) -> bool:
    if isinstance(node, cst.BinaryOperation):
        divides = isinstance(node.operator, cst.Divide | cst.FloorDivide | cst.Modulo)
        return (divides and place.kind(node.right).what != "scalar") or (
            isinstance(node.operator, cst.Power) and not isinstance(node.right, cst.Integer)
        )
    if not isinstance(node, cst.Call):
        return False
    last = place.last_name(node).rstrip("_")
    if last in _DIVIDING and node.args:
        by = node.args[-1].value
        return place.kind(by).what != "scalar" or (
            last == "pow" and not isinstance(by, cst.Integer)
        )
    return last in _PARTIAL


def only_compared(node: cst.BaseExpression, place: Place, depth: int = 0) -> bool:
    """Whether a value is only compared, element by element, and the answers are joined by any or all."""
    parent = around(node, place)
    if isinstance(parent, cst.Comparison):
        operators = [c.operator for c in parent.comparisons]
        if any(isinstance(o, cst.In | cst.NotIn | cst.Is | cst.IsNot) for o in operators):
            return False
        return _joined(parent, place)
    if isinstance(parent, cst.Call) and place.is_torch(parent, "isin", "isnan", "isfinite"):
        return _joined(parent, place)
    name = held_by(node, place) if depth < _DEPTH else ""
    found = [only_compared(load, place, depth + 1) for load in loads(name, place)] if name else []
    return bool(found) and all(found)


def _joined(node: cst.BaseExpression, place: Place) -> bool:
    """Whether elementwise answers end in any() or all()."""
    parent: cst.CSTNode | None = around(node, place)
    while isinstance(parent, cst.BinaryOperation | cst.UnaryOperation):
        parent = around(parent, place)
    if isinstance(parent, cst.Attribute):
        return parent.attr.value in ("any", "all")
    return isinstance(parent, cst.Call) and place.last_name(parent) in ("any", "all")


def selectable(branch: cst.CSTNode | None, place: Place) -> bool:
    """Whether both sides of an if only give tensors new values, by operations of torch: a selection on the
    device can stand in its place."""
    if not isinstance(branch, cst.If):
        return False
    if isinstance(branch.orelse, cst.If):
        return _plain_work(branch.body, place) and selectable(branch.orelse, place)
    orelse = branch.orelse
    if orelse is None and any(_was_none(t, place) for t in nodes.walk(branch.body)):
        return False
    return _plain_work(branch.body, place) and (orelse is None or _plain_work(orelse.body, place))


def _was_none(node: cst.CSTNode, place: Place) -> bool:
    """Whether a name that is given a value may hold None without it: there is nothing to select from."""
    target = node.target if isinstance(node, cst.AssignTarget) else None
    name = target.value if isinstance(target, cst.Name) else ""
    if not name:
        return False
    key = ("may be none", name, id(place.function))
    return place.once(key, lambda: any(place.kind(load).optional for load in loads(name, place)))


def _plain_work(body: cst.BaseSuite, place: Place) -> bool:
    lines = body.body if isinstance(body, cst.IndentedBlock) else [body]
    for line in lines:
        if not isinstance(line, cst.SimpleStatementLine | cst.SimpleStatementSuite):
            return False
        for small in line.body:
            if isinstance(small, cst.Assign):
                target: cst.BaseExpression = small.targets[0].target
                if len(small.targets) != 1 or not place.kind(small.value).is_tensor:
                    return False
            elif isinstance(small, cst.AugAssign):
                target = small.target
                if not place.kind(target).is_tensor or _divides(small, place):
                    return False
            else:
                return False
            fits = isinstance(target, cst.Name) or (
                isinstance(target, cst.Subscript) and place.is_tensor(target.value)
            )
            if not fits or not cheap(small.value, place) or _resizes(target, small.value, place):
                return False
    return bool(lines)


_NOT_IN_VAIN = frozenset(
    "matmul mm bmm einsum svd inverse item tolist nonzero masked_select unique".split()
)
_DEAR = ("linalg.", "fft.", "distributed.", "nn.functional.conv", "nn.functional.linear")
_GROWING = frozenset({"cat", "concat", "hstack", "pad", "repeat", "stack", "vstack"})


def _resizes(target: cst.BaseExpression, value: cst.BaseExpression, place: Place) -> bool:
    """Whether a name is given a part of what it held, or more than that: of another shape, nothing can be
    selected element by element."""
    if isinstance(value, cst.Subscript):
        return place.same(value.value, target) or any(
            mask_of(s, place) is not None for s in nodes.walk(value) if isinstance(s, cst.Subscript)
        )
    return isinstance(value, cst.Call) and place.last_name(value) in _GROWING


def cheap(value: cst.BaseExpression, place: Place) -> bool:
    """Whether computing a value in vain costs little and does nothing else: it draws no random numbers, and
    is defined where the branch is not taken."""
    if undefined_elsewhere(value, place):
        return False
    for call in (n for n in nodes.walk(value) if isinstance(n, cst.Call)):
        name, last = place.name(call), place.last_name(call)
        if last in _NOT_IN_VAIN or last in RANDOM:
            return False
        if name.startswith("torch."):
            if name[6:].startswith(_DEAR):
                return False
            continue
        receiver = place.receiver(call)
        if receiver is None or not place.kind(receiver).maybe_tensor:
            return False
    return True


def sources(
    value: cst.BaseExpression, place: Place, depth: int = 3
) -> Iterator[cst.BaseExpression]:
    """An expression, and those that the names in it surely hold."""
    yield value
    for name in nodes.names_in(value) if depth else ():
        held = place.value_of(name)
        if held is not None:
            yield from sources(held, place, depth - 1)
