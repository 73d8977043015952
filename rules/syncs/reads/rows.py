"""DG435: launches for each row of a tensor."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Comprehension, Finding, Place, Rounds, Rule, nodes

from ...syntax import names_in
from ..waits import works_on_host


class LaunchPerRow(Rule):
    """A loop over the rows of a tensor launches operations for each of them.

    ## What it does

    Finds loops and comprehensions over a `range` around operations on `x[i]` or `x.narrow(0, i, 1)`, in hot
    code. It is a note: the author has to find a way to work on all rows at once. A comprehension that only
    lists views of the rows is a finding: `x.unbind()` and `x.split(1)` make them all in one call.

    ## Why it costs

    Every round makes views and launches kernels of its own, a few microseconds each on the host, for work
    that one operation does for all rows.

    ## Example

    ```python
    for i in range(x.shape[0]):
        out[i] = x[i] / x[i].norm()
    ```

    ## Instead

    ```python
    out = x / x.norm(dim=-1, keepdim=True)
    ```

    ## Fix safety

    No fix: only the author knows how to work on all rows at once.
    """

    code = "DG435"
    name = "launch-per-row"
    origin = "kornia#3832"
    looks_for = (Rounds(), Comprehension(having=Rounds()))

    def judge(self, node: cst.For | cst.While | cst.BaseComp, place: Place) -> Finding | None:
        """A loop, or a comprehension, that counts through the rows of a tensor."""
        if isinstance(node, cst.While) or works_on_host(place):
            return None
        loop = node.for_in if isinstance(node, cst.BaseComp) else node
        counted = _counted(loop, place)
        if counted is None or (isinstance(node, cst.BaseComp) and isinstance(node, cst.DictComp)):
            return None
        body = node.body if isinstance(node, cst.For) else getattr(node, "elt", node)
        index = names_in(loop.target)
        bound_here = {
            target.value
            for part in nodes.walk(body)
            for target in nodes.bound_by(part)
            if isinstance(target, cst.Name)
        }
        worked = [
            part
            for part in nodes.walk(body)
            if (taken_from := _taken_from(part, index, place)) is not None
            and not names_in(taken_from) & bound_here
        ]
        if not worked:
            return None
        if isinstance(node, cst.BaseComp) and _lists_views(node, worked[0], place):
            return place.finding(
                worked[0],
                f"Every iteration over `{place.short(counted, 32)}` makes a view of one row; "
                f"`{_all_views(worked[0], place)}` makes all views in one call",
            )
        return place.finding(
            worked[0],
            f"The loop over `{place.short(counted, 32)}` makes views and launches kernels in every "
            "iteration "
            f"(`{place.short(worked[0], 32)}`). Work on all rows at once; if that cannot be, one "
            "`.unbind()` before the loop makes all views in one call.",
            certainty="note",
        )


_RESHAPES = frozenset("flatten reshape squeeze unsqueeze view".split())


def _lists_views(node: cst.BaseComp, row: cst.CSTNode, place: Place) -> bool:
    """Whether a comprehension makes nothing but views of rows, by index or `narrow`, all of them."""
    part = node.elt if isinstance(node, cst.ListComp | cst.GeneratorExp) else None
    if part is None or node.for_in.ifs or node.for_in.inner_for_in is not None:
        return False
    while isinstance(part, cst.Call) and part is not row and isinstance(part.func, cst.Attribute):
        if part.func.attr.value not in _RESHAPES:
            return False
        part = part.func.value
    if isinstance(part, cst.Subscript):
        return part is row and sum(not _is_whole(at.slice) for at in part.slice) == 1
    return (
        part is row and isinstance(part, cst.Call) and place.last_name(part) in ("narrow", "select")
    )


def _is_whole(index: cst.BaseSlice) -> bool:
    """Whether an index takes all there is: `:` or `...`."""
    if isinstance(index, cst.Slice):
        return index.lower is None and index.upper is None and index.step is None
    return isinstance(index, cst.Index) and isinstance(index.value, cst.Ellipsis)


def _all_views(row: cst.CSTNode, place: Place) -> str:
    """What makes the views of all rows: `x.unbind()`, `x.split(1)`."""
    if isinstance(row, cst.Subscript):
        return f"{place.short(row.value, 24)}.unbind({'' if len(row.slice) == 1 else 'dim'})"
    assert isinstance(row, cst.Call)
    torch = place.is_torch(row, "narrow", "select")
    owner = place.argument(row, 0, "input") if torch else place.receiver(row)
    of = f"{place.short(owner, 24)}." if owner is not None else ""
    return f"{of}unbind(dim)" if place.last_name(row) == "select" else f"{of}split(1, dim)"


def _taken_from(
    part: cst.CSTNode, index: frozenset[str], place: Place
) -> cst.BaseExpression | None:
    """The tensor on a device that an expression takes the row of a round of: `x[i]`, `x.narrow(0, i, 1)`,
    `torch.index_select(x, 0, torch.tensor([i]))`."""
    if isinstance(part, cst.Subscript):
        owner: cst.BaseExpression | None = part.value
        at = [e.slice.value for e in part.slice if isinstance(e.slice, cst.Index)]
    elif isinstance(part, cst.Call) and place.last_name(part) in _SELECTING:
        torch = place.is_torch(part, *_SELECTING)
        owner = place.argument(part, 0, "input") if torch else place.receiver(part)
        at = [_held(a.value, place) for a in part.args]
    else:
        return None
    taken = owner is not None and place.on_device(owner)
    return owner if taken and any(names_in(a) == index for a in at) else None


def _held(node: cst.BaseExpression, place: Place) -> cst.BaseExpression:
    """The numbers that a tensor of indices is made of."""
    made = isinstance(node, cst.Call) and place.is_torch(node, "tensor", "as_tensor")
    return node.args[0].value if made and isinstance(node, cst.Call) and node.args else node


_SELECTING = ("index_select", "narrow", "select")
_FEW = 4


def _counted(loop: cst.For | cst.CompFor, place: Place) -> cst.Call | None:
    """The `range` that a loop counts through, unless it is surely short."""
    counted = loop.iter
    if not isinstance(counted, cst.Call) or place.name(counted) != "range" or not counted.args:
        return None
    last = counted.args[min(len(counted.args), 2) - 1].value
    short = isinstance(last, cst.Integer) and last.evaluated_value <= _FEW
    return None if short else counted
