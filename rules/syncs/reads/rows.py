"""DG435: launches for each row of a tensor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import libcst as cst

from pytest_dispatchguard import Comprehension, Finding, Place, Rounds, Rule, nodes

from ...allocations.uses import is_written_to
from ...syntax import names_in
from ..host_code import works_on_host
from ..used import used_as_tensor
from .row_loops import RowLoop, is_worked_on, row_loop


class LaunchPerRow(Rule):
    """A loop over the rows of a tensor launches operations for each of them.

    ## What it does

    Finds loops and comprehensions in hot code that take a tensor row by row, or piece by piece: over a
    `range` or `enumerate`, around operations on `x[i]`, `x[i : i + 1]` or `x.narrow(0, i, 1)`; around pieces
    of different sizes (`x[start:end]` of sequences, experts, requests); around comparisons of a whole tensor
    with the counter (`labels == i`); over what `x.split(sizes)` or `x.unbind()` gave. It is a note, on the
    loop and on the first rows of up to three more tensors: the author has to find a way to work on all rows.

    Left alone are pieces of equal size, or whose names say that they are as large as memory allows
    (`chunks`, `tiles`), what a model has a few of, by its name (`layers`, `levels`, `features`), and, but for
    a `range`, loops whose iterations depend on the one before.

    A comprehension that only lists the views of all rows, which nobody writes to, is a finding: `x.unbind()`
    and `x.split(1)` make them in one call.

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
    also_compiled = False
    origin = "kornia#3832"
    looks_for = (Rounds(), Comprehension(having=Rounds()))

    def judge(
        self, node: cst.For | cst.While | cst.BaseComp, place: Place
    ) -> Iterable[Finding] | None:
        """A loop, or a comprehension, that counts through the rows of a tensor."""
        if isinstance(node, cst.While) or works_on_host(place):
            return None
        loop = node.for_in if isinstance(node, cst.BaseComp) else node
        body = node.body if isinstance(node, cst.For) else getattr(node, "elt", node)
        rounds = row_loop(loop, body, place)
        if rounds is None or isinstance(node, cst.DictComp):
            return None
        worked = _rows_worked_on(rounds, body, place)
        if not worked:
            return None
        row = next((one for one in worked if is_worked_on(one, body, place)), worked[0])
        counted = rounds.over
        if isinstance(node, cst.For):
            return [
                self._note(counted, row, rounds, place),
                *self._rows(row, worked, counted, place),
            ]
        if rounds.counts and isinstance(counted, cst.Call):
            views = _all_views(node, worked[0], counted, place)
            if views:
                return [
                    place.finding(
                        worked[0],
                        f"Every iteration over `{place.short(counted, 32)}` makes a view of one row; "
                        f"`{views}` makes all views in one call",
                    )
                ]
        return [self._note(row, row, rounds, place)]

    def _rows(
        self,
        told: cst.CSTNode,
        worked: Sequence[cst.CSTNode],
        counted: cst.BaseExpression,
        place: Place,
    ) -> list[Finding]:
        """The first rows that a loop takes of a few other tensors, in lines of their own."""
        known = {_owner(told, place)}
        lines = {place.after(counted, "").span.line}
        found: list[Finding] = []
        for row in worked:
            line = place.after(row, "").span.line
            if isinstance(row, cst.Name) or _owner(row, place) in known or line in lines:
                continue
            known.add(_owner(row, place))
            lines.add(line)
            does = "compares all of a tensor" if isinstance(row, cst.Comparison) else "takes a row"
            found.append(
                place.finding(
                    row,
                    f"The loop over `{place.short(counted, 32)}` {does} in every iteration "
                    f"(`{place.short(row, 32)}`)",
                    certainty="note",
                )
            )
        return found[:_MOST_ROWS]

    def _note(self, at: cst.CSTNode, row: cst.CSTNode, rounds: RowLoop, place: Place) -> Finding:
        shown = place.short(rounds.over, 32)
        return place.finding(
            at,
            f"The loop over `{shown}` makes views and launches kernels in every iteration "
            f"(`{place.short(row, 32)}`). {_instead(row, rounds, place)}",
            certainty="note",
        )


_MOST_ROWS = 3
"""How many rows of a loop are reported beside the loop."""


def _instead(row: cst.CSTNode, rounds: RowLoop, place: Place) -> str:
    """What to do in place of a loop over rows."""
    unbound = (
        "one `.unbind()` before the loop makes all views in one call, for rows that are only read"
    )
    if isinstance(row, cst.Comparison):
        return (
            "Compare with all of them at once (`x[:, None] == torch.arange(n, device=x.device)`), or let "
            "each element say where it belongs (`index_add_`, `bincount`)."
        )
    if rounds.carries:
        return f"Each iteration needs the one before it, but {unbound}."
    if isinstance(row, cst.Name):
        return "Work on the whole tensor, before it is taken apart."
    if isinstance(row, cst.Subscript) and any(
        not _is_whole(e.slice) and _one(e.slice, place) is None for e in row.slice
    ):
        return (
            "Work on all pieces at once: with an index that says which piece each row belongs to "
            "(`index_add_`, `segment_reduce`), padded, or nested."
        )
    return f"Work on all rows at once; if that is not possible, {unbound}."


def _owner(row: cst.CSTNode, place: Place) -> str:
    """What a row is taken from, as it is written."""
    if isinstance(row, cst.Subscript):
        return place.text(row.value)
    return place.text(row.func if isinstance(row, cst.Call) else row)


def _rows_worked_on(rounds: RowLoop, body: cst.CSTNode, place: Place) -> list[cst.CSTNode]:
    """The rows that a loop takes, in the order of the text: of a counter, each; others where something is
    computed of them."""
    bound_here = {
        target.value
        for part in nodes.walk(body)
        for target in nodes.bound_by(part)
        if isinstance(target, cst.Name)
    }
    found: list[cst.CSTNode] = []
    for part in nodes.walk(body):
        if isinstance(part, cst.Name):
            if part.value in rounds.rows - bound_here and is_worked_on(part, body, place):
                found.append(part)
            continue
        if _compares_with(part, rounds.counters, place):
            found.append(part)
            continue
        owner = _taken_from(part, rounds.counters, place) if rounds.counters else None
        by_counter = owner is not None
        if owner is None:
            owner = _piece_of(part, rounds.bounds, place)
        if owner is None or names_in(owner) & bound_here:
            continue
        if (by_counter and rounds.counts) or is_worked_on(part, body, place):
            found.append(part)
    return found


def _piece_of(part: cst.CSTNode, bounds: frozenset[str], place: Place) -> cst.BaseExpression | None:
    """The tensor on a device that an expression takes several rows of, between such bounds."""
    if not bounds or not isinstance(part, cst.Subscript) or not _is_tensor(part.value, place):
        return None
    for element in part.slice:
        piece = element.slice
        if isinstance(piece, cst.Index) and _is_slice(piece.value, bounds, place):
            return part.value
        # What begins where all others do is no piece, but a longer beginning.
        if (
            isinstance(piece, cst.Slice)
            and piece.lower is not None
            and any(
                end is not None and names_in(end) & bounds for end in (piece.lower, piece.upper)
            )
        ):
            return part.value
    return None


def _is_slice(index: cst.BaseExpression, bounds: frozenset[str], place: Place) -> bool:
    """Whether an index is `slice(start, end)`, by a name."""
    held = place.value_of(index) if isinstance(index, cst.Name) else index
    return (
        isinstance(held, cst.Call) and place.name(held) == "slice" and bool(names_in(held) & bounds)
    )


_RESHAPES = frozenset("flatten reshape squeeze unsqueeze view".split())


def _all_views(node: cst.BaseComp, row: cst.CSTNode, counted: cst.Call, place: Place) -> str:
    """What makes the views that a comprehension lists, in one call (`x.unbind()`, `x.split(1)`), where it
    lists nothing but the views of all rows, in order; else nothing."""
    part = node.elt if isinstance(node, cst.ListComp | cst.GeneratorExp) else None
    if part is None or node.for_in.ifs or node.for_in.inner_for_in is not None:
        return ""
    while isinstance(part, cst.Call) and part is not row and isinstance(part.func, cst.Attribute):
        if part.func.attr.value not in _RESHAPES:
            return ""
        part = part.func.value
    if part is not row or is_written_to(node, place):
        return ""
    made = _by_index(part, node, place) or _by_method(part, node, place)
    if made is None or not _counts_all(counted, made[0], made[1], place):
        return ""
    owner, dim, method, arguments = made
    given = ", ".join([*arguments, *([str(dim)] if dim else [])])
    shown = f"{place.short(owner, 24)}.{method}({given})"
    return f"list({shown})" if isinstance(node, cst.ListComp) else shown


_Made = tuple[cst.BaseExpression, int, str, tuple[str, ...]]
"""The tensor, the dimension that is counted through, and the call that makes all views."""


def _by_index(row: cst.CSTNode, node: cst.BaseComp, place: Place) -> _Made | None:
    """Of `x[i]` and `x[:, i]`, with the bare counter."""
    if not isinstance(row, cst.Subscript):
        return None
    at = [element.slice for element in row.slice]
    places = [i for i, index in enumerate(at) if not _is_whole(index)]
    ellipses = [i for i, index in enumerate(at) if _is_ellipsis(index)]
    if len(places) != 1 or len(ellipses) > 1:
        return None
    index, dim = at[places[0]], places[0]
    if not isinstance(index, cst.Index) or not place.same(index.value, node.for_in.target):
        return None
    if ellipses and ellipses[0] < dim:
        dim -= len(at)
    return row.value, dim, "unbind", ()


def _by_method(row: cst.CSTNode, node: cst.BaseComp, place: Place) -> _Made | None:
    """Of `x.select(dim, i)` and `x.narrow(dim, i, 1)`, with the bare counter."""
    if not isinstance(row, cst.Call) or place.last_name(row) not in ("narrow", "select"):
        return None
    of_torch = place.is_torch(row, "narrow", "select")
    owner = place.argument(row, 0, "input") if of_torch else place.receiver(row)
    given = [a.value for a in row.args if a.keyword is None and not a.star][int(of_torch) :]
    narrow = place.last_name(row) == "narrow"
    if owner is None or len(row.args) - int(of_torch) != len(given) or len(given) != 2 + narrow:
        return None
    dim = _number(given[0])
    if dim is None or not place.same(given[1], node.for_in.target):
        return None
    if narrow:
        return (owner, dim, "split", ("1",)) if _number(given[2]) == 1 else None
    return owner, dim, "unbind", ()


def _counts_all(counted: cst.Call, owner: cst.BaseExpression, dim: int, place: Place) -> bool:
    """Whether a `range` counts through all of a dimension of a tensor."""
    stop = counted.args[0].value if len(counted.args) == 1 else None
    if stop is not None and _made_with(stop, owner, dim, place):
        return True
    held = place.value_of(stop) if isinstance(stop, cst.Name) else None
    stop = held if held is not None else stop
    if isinstance(stop, cst.Subscript) and isinstance(stop.value, cst.Attribute):
        index = stop.slice[0].slice if len(stop.slice) == 1 else None
        return (
            stop.value.attr.value == "shape"
            and place.same(stop.value.value, owner)
            and isinstance(index, cst.Index)
            and _number(index.value) == dim
        )
    if not isinstance(stop, cst.Call) or len(stop.args) != 1:
        return False
    if place.name(stop) == "len":
        return dim == 0 and place.same(stop.args[0].value, owner)
    receiver = place.receiver(stop)
    return (
        place.last_name(stop) == "size"
        and receiver is not None
        and place.same(receiver, owner)
        and _number(stop.args[0].value) == dim
    )


_FACTORIES = frozenset({"empty", "ones", "rand", "randn", "zeros"})


def _made_with(stop: cst.BaseExpression, owner: cst.BaseExpression, dim: int, place: Place) -> bool:
    """Whether a tensor was made with just this size: `torch.empty(n, 4)`, of `range(n)`."""
    made = place.value_of(owner)
    if not isinstance(made, cst.Call) or not place.is_torch(made, *_FACTORIES):
        return False
    sizes = [a.value for a in made.args if a.keyword is None and not a.star]
    if len(sizes) == 1 and isinstance(sizes[0], cst.Tuple | cst.List):
        sizes = [element.value for element in sizes[0].elements]
    settled = not isinstance(stop, cst.Name) or place.assignments(stop.value) == 1
    return settled and 0 <= dim < len(sizes) and place.same(sizes[dim], stop)


def _number(node: cst.BaseExpression) -> int | None:
    """The number that a literal is."""
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        number = _number(node.expression)
        return None if number is None else -number
    return node.evaluated_value if isinstance(node, cst.Integer) else None


def _is_whole(index: cst.BaseSlice) -> bool:
    """Whether an index takes all there is: `:` or `...`."""
    if isinstance(index, cst.Slice):
        return index.lower is None and index.upper is None and index.step is None
    return _is_ellipsis(index)


def _is_ellipsis(index: cst.BaseSlice) -> bool:
    return isinstance(index, cst.Index) and isinstance(index.value, cst.Ellipsis)


def _taken_from(
    part: cst.CSTNode, index: frozenset[str], place: Place
) -> cst.BaseExpression | None:
    """The tensor on a device that an expression takes the row of a round of: `x[i]`, `x.narrow(0, i, 1)`,
    `torch.index_select(x, 0, torch.tensor([i]))`."""
    if isinstance(part, cst.Subscript):
        owner: cst.BaseExpression | None = part.value
        at = [at for e in part.slice if (at := _one(e.slice, place)) is not None]
    elif isinstance(part, cst.Call) and place.last_name(part) in _SELECTING:
        torch = place.is_torch(part, *_SELECTING)
        owner = place.argument(part, 0, "input") if torch else place.receiver(part)
        at = [_held(a.value, place) for a in part.args]
    else:
        return None
    if owner is None or not any(names_in(a) == index for a in at):
        return None
    return owner if _is_tensor(owner, place) else None


_COMPARING = (
    *(cst.Equal, cst.NotEqual, cst.LessThan, cst.LessThanEqual),
    *(cst.GreaterThan, cst.GreaterThanEqual),
)


def _compares_with(part: cst.CSTNode, counters: frozenset[str], place: Place) -> bool:
    """Whether an expression compares a tensor on a device with the number of the round: `labels == i`."""
    if not isinstance(part, cst.Comparison) or len(part.comparisons) != 1:
        return False
    if not isinstance(part.comparisons[0].operator, _COMPARING):
        return False
    sides = (part.left, part.comparisons[0].comparator)
    number = next((s for s in sides if isinstance(s, cst.Name) and s.value in counters), None)
    return number is not None and any(
        _is_tensor(side, place) and not names_in(side) & counters for side in sides
    )


def _is_tensor(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression is a tensor on a device, by what is known of it or by its use."""
    kind = place.kind(node)
    unknown = kind.what == "unknown" and not kind.cls and not _OF_NUMPY.search(place.text(node))
    return place.on_device(node) or (unknown and used_as_tensor(node, place))


_OF_NUMPY = re.compile(r"(?:^|_)(?:np|numpy)(?:_|$)")
"""Arrays of NumPy, by their names."""


def _one(index: cst.BaseSlice, place: Place) -> cst.BaseExpression | None:
    """The number of the one row that is selected: of `i`, and of `i : i + 1`."""
    if isinstance(index, cst.Index):
        return index.value
    if not isinstance(index, cst.Slice) or index.lower is None or index.step is not None:
        return None
    end = index.upper
    next_one = isinstance(end, cst.BinaryOperation) and isinstance(end.operator, cst.Add)
    if not isinstance(end, cst.BinaryOperation) or not next_one:
        return None
    return index.lower if place.same(end.left, index.lower) and _number(end.right) == 1 else None


def _held(node: cst.BaseExpression, place: Place) -> cst.BaseExpression:
    """The numbers that a tensor of indices is made of."""
    made = isinstance(node, cst.Call) and place.is_torch(node, "tensor", "as_tensor")
    return node.args[0].value if made and isinstance(node, cst.Call) and node.args else node


_SELECTING = ("index_select", "narrow", "select")
