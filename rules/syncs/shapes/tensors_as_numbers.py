"""DG427: a tensor stands where Python needs a number."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from pytest_dispatchguard import (
    Call,
    Certainty,
    Finding,
    Fix,
    Getitem,
    Kind,
    Place,
    Rule,
    Setitem,
    SizedCall,
    nodes,
)

from ...syntax import subscripts_written
from ..data_flow import sources
from ..host_code import works_on_host
from ..waits import is_of_grid, waits_inside

_FACTORIES = frozenset(
    "zeros ones empty full rand randint randn eye arange linspace logspace".split()
)
_FILLED = {"masked_fill": 1, "masked_fill_": 1, "index_fill": 2, "index_fill_": 2}
"""Where the methods that fill take the number; as functions, one later."""
_MADE_FULL = {"full": 1, "full_like": 1, "new_full": 1}
_NAMED = {
    "range": "range",
    "slice": "slice",
    "Size": "torch.Size",
    "pad": "torch.nn.functional.pad",
}
"""Other functions, by their last names."""
_SIZE_NAMES = frozenset(
    "size shape start end steps length low high n m index pad shifts split_size".split()
)


class TensorAsNumber(Rule):
    """A tensor stands where Python needs a number: a size, a bound, an index, a range.

    ## What it does

    Finds device tensors as arguments of `range`, as bounds of slices, as indices of Python lists, as sizes
    (`torch.zeros(n)`, `x.view(n, -1)`, `torch.Size(t)`, `F.pad(x, (0, n))`), as what is filled in
    (`x.masked_fill(mask, x.min())`, `torch.full_like(x, x.max())`), and tensors of no dimension as indices of
    tensors. Grid sizes of images (`image_grid_thw`), which many projects leave on the CPU, are a note.

    ## Why it costs

    Python asks the tensor for its number, an implicit `.item()`, and the host waits for the device.

    ## Example

    ```python
    height = ids.max() + 1
    grid = torch.zeros(height, width)
    ```

    ## Instead

    ```python
    grid = torch.zeros(known_height, width)
    ```

    ## Fix safety

    Unsafe for an index of no dimension among slices: `x[i[None]].squeeze(0)` looks it up on the device, and
    gives a copy. None is offered for sizes and bounds: only the author knows where the host can get the
    number from.
    """

    code = "DG427"
    name = "tensor-as-number"
    origin = "diffusers#13356"
    looks_for = (SizedCall(), Call(*_FILLED, *_MADE_FULL, place="torch"), Getitem(), Setitem())
    fixes = "unsafe"

    def judge(self, node: cst.CSTNode, place: Place) -> Iterator[Finding]:
        """A call or subscript with a tensor where a number belongs."""
        if works_on_host(place):
            return
        if isinstance(node, cst.Call):
            found = self._in_call(node, place)
        elif isinstance(node, cst.Subscript):
            found = self._in_brackets(node, place)
        elif isinstance(node, cst.Assign):
            written = subscripts_written(node)
            found = next((f for s in written if (f := self._in_brackets(s, place))), None)
        else:
            found = None  # the target of an augmented assignment is read as well, and shown as read
        if found is not None:
            yield found

    def _in_call(self, call: cst.Call, place: Place) -> Finding | None:
        last = place.last_name(call)
        if last in _FILLED or last in _MADE_FULL:
            found = self._filled_in(call, last, place)
            if found is not None or last in _FILLED:
                return found
        if last in _NAMED:
            if place.name(call) != _NAMED[last]:
                return None
        elif last in _FACTORIES:
            if not place.is_torch(call, last):
                return None
        elif not (isinstance(call.func, cst.Attribute) and place.is_tensor(call.func.value)):
            return None
        for argument in call.args:
            if argument.star or (
                argument.keyword is not None and argument.keyword.value not in _SIZE_NAMES
            ):
                continue
            if last in ("full", "new_full") and argument is not call.args[0]:
                continue
            if last == "pad" and argument is call.args[0]:
                continue
            parts = [argument.value]
            if isinstance(argument.value, cst.Tuple | cst.List):
                parts = [e.value for e in argument.value.elements]
            for part in parts:
                if self._number(part, place) and not _given_before(part, call, place):
                    return place.finding(
                        part,
                        f"`{last}` needs a number but gets the tensor `{place.short(part)}`, so the "
                        f"host waits for the device to read it. {_instead(last)}",
                        certainty="maybe" if _of_own_helper(part, place) else _level(part, place),
                    )
        return None

    def _filled_in(self, call: cst.Call, last: str, place: Place) -> Finding | None:
        """The number that a tensor is filled with."""
        function = place.is_torch(call, last)
        if not function and not (
            isinstance(call.func, cst.Attribute) and place.is_tensor(call.func.value)
        ):
            return None
        if last in _FILLED:
            value = place.argument(call, _FILLED[last] + function, "value")
            instead = "`torch.where` takes it as it is"
        else:
            value = place.argument(call, _MADE_FULL[last], "fill_value")
            instead = "`value.expand(size)` takes it as it is, `.clone()` where it is written to"
        if value is None or not self._number(value, place):
            return None
        return place.finding(
            value,
            f"`{last}` reads the number of the tensor `{place.short(value)}`, and the host waits for the "
            f"device. {instead}.",
        )

    def _in_brackets(self, node: cst.Subscript, place: Place) -> Finding | None:
        base = place.kind(node.value)
        for element in node.slice:
            part = element.slice
            if isinstance(part, cst.Slice):
                for bound in (part.lower, part.upper, part.step):
                    if bound is not None and self._number(bound, place):
                        return place.finding(
                            node,
                            f"The bound `{place.short(bound)}` is a tensor: slicing needs its "
                            "number, and the host waits for the device. Slice by a number that "
                            "the host knows, or mask by position (`torch.arange(n) < bound`).",
                            certainty=_level(bound, place),
                        )
            elif isinstance(part, cst.Index) and self._number(part.value, place):
                shown = place.short(part.value)
                if base.what in ("nested", "modules") and base.cls != "dict" and base.sure:
                    return place.finding(
                        node,
                        f"`{place.short(node)}` indexes a Python sequence with the tensor `{shown}`, "
                        "so the host waits for the device. Stack the sequence into a tensor and "
                        "index on the device, or use a number that the host knows.",
                        certainty=_level(part.value, place) if _stackable(base) else "note",
                    )
                if (
                    base.is_tensor
                    and place.kind(part.value).ndim == 0
                    and place.kind(part.value).dtype != "bool"
                ):
                    if _indexed_before(part.value, node, place):
                        return None
                    return place.finding(
                        node,
                        f"`{shown}` is a 0-dimensional tensor: each indexing with it reads its "
                        "value, and the host waits for the device. `index_select(0, "
                        f"{shown}.reshape(1))` stays on the device; if several tensors are indexed "
                        f"with it, read it once (`int({shown})`).",
                        fix=_looked_up(node, part.value, place),
                    )
        return None

    def _number(self, node: cst.BaseExpression, place: Place) -> bool:
        """Whether Python has to read the number of a device tensor here for the first time."""
        kind = place.kind(node)
        return kind.on_device and not waits_inside(node, place)


def _level(part: cst.BaseExpression, place: Place) -> Certainty:
    return "note" if is_of_grid(part, place) else "sure"


def _looked_up(node: cst.Subscript, index: cst.BaseExpression, place: Place) -> Fix | None:
    """`x[:, i[None]].squeeze(1)` for `x[:, i]`: the index as a tensor of one element, which no host reads."""
    before = [e.slice for e in node.slice]
    at = next(
        i for i, one in enumerate(before) if isinstance(one, cst.Index) and one.value is index
    )
    others = [s.value for s in before if isinstance(s, cst.Index) and s.value is not index]
    if not all(isinstance(o, cst.Integer) or place.kind(o).what == "scalar" for o in others):
        return None
    parent = place.parent(node)
    plain = isinstance(index, cst.Name | cst.Attribute | cst.Call | cst.Subscript)
    if not plain or place.kind(index).dtype not in ("int", "") or node.lpar:
        return None
    if parent is None or (
        isinstance(parent, cst.AugAssign | cst.Assign | cst.Del)
        and (not isinstance(parent, cst.Assign) or any(t.target is node for t in parent.targets))
    ):
        return None
    dim = sum(isinstance(s, cst.Slice) for s in before[:at])
    text = place.text(node.with_deep_changes(node.slice[at], slice=cst.Index(_widened(index))))
    return place.replace(
        node,
        f"{text}.squeeze({dim})",
        safety="unsafe",
        message="Look it up on the device; gives a copy, where a number gives a view",
    )


def _widened(index: cst.BaseExpression) -> cst.Subscript:
    return cst.Subscript(index, [cst.SubscriptElement(cst.Index(cst.Name("None")))])


def _instead(factory: str) -> str:
    if factory == "linspace":
        return (
            "Between tensors: `low + (high - low) * torch.linspace(0, 1, steps, device=...)` stays on the "
            "device."
        )
    return (
        "Pass a number that the host knows, perhaps an upper bound; otherwise read it once "
        "(`int(...)`) and reuse it."
    )


def _of_own_helper(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a number comes out of a function of the project that was given no tensor: where that puts what
    it makes is unknown."""
    for source in sources(node, place):
        for call in (n for n in nodes.walk(source) if isinstance(n, cst.Call)):
            given = [a.value for a in call.args]
            made_here = place.callee(call) is not None or place.is_torch(call, "as_tensor")
            if made_here and not any(place.on_device(v) for v in given):
                return True
    return False


def _stackable(base: Kind) -> bool:
    """Whether a sequence holds tensors or numbers, which one tensor can hold."""
    return base.element is not None and base.element.what in ("tensor", "scalar")


def _given_before(part: cst.BaseExpression, call: cst.Call, place: Place) -> bool:
    """Whether the same number was asked for on the way to what the call works on: one place, one finding."""
    node: cst.BaseExpression = call.func
    while isinstance(node, cst.Attribute | cst.Call | cst.Subscript):
        if isinstance(node, cst.Call):
            if any(place.same(a.value, part) for a in node.args):
                return True
            node = node.func
        else:
            node = node.value
    return False


def _indexed_before(index: cst.BaseExpression, node: cst.Subscript, place: Place) -> bool:
    """Whether the same index was used before in the block: one place, one finding."""
    return any(
        any(
            isinstance(e.slice, cst.Index) and place.same(e.slice.value, index) for e in other.slice
        )
        for other in _earlier(node, place)
    )


def _earlier(node: cst.Subscript, place: Place) -> Iterator[cst.Subscript]:
    """The subscripts read before in the same block."""
    for other, scene in place.subscripts():
        if other is node:
            return
        if scene.block is place.block or scene.block == place.block:
            yield other
