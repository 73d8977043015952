"""DG42x: the size of a result depends on values on the device, or a tensor stands where Python
needs a number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TypeGuard

import libcst as cst

from pytest_dispatchguard import (
    Call,
    Certainty,
    Finding,
    Getitem,
    Kind,
    Place,
    Rule,
    Scene,
    Setitem,
    SizedCall,
    nodes,
    weaker,
)

from ._sync_uses import (
    MERGING,
    around,
    held_by,
    loads,
    only_compared,
    reduced,
    selectable,
    sources,
    undefined_elsewhere,
)
from ._syncs import (
    RANDOM,
    as_sure_as_its_mask,
    asked,
    bound_names,
    holds,
    is_mask_by_name,
    mask_of,
    names_in,
    on_host_by_trade,
    only_raises,
    say,
    target_names,
    tell,
    tensor_certainty,
    waits_inside,
)


def _worked_on(call: cst.Call, place: Place) -> tuple[cst.BaseExpression, Certainty] | None:
    """The tensor that `torch.f(x)` or `x.f()` works on, if the host may have to wait for it. What is given to
    a function of torch is a tensor, wherever it comes from."""
    if place.last_name(call) in place.qualname.split("."):
        return None  # the function is there to be that operation
    if place.name(call).startswith("torch."):
        given = place.argument(call, 0, "input")
        if given is None or place.kind(given).host or place.kind(given).not_tensor:
            return None
        certainty: Certainty | None = "sure"
    else:
        given = place.receiver(call)
        if given is None or place.name(call):
            return None
        certainty = tensor_certainty(given, place, strict=True)
    if certainty is None or on_host_by_trade(place) or waits_inside(given, place):
        return None
    return given, certainty


class Nonzero(Rule):
    """`nonzero`, `argwhere` or one-argument `where`: the host waits to learn how many there are.

    ## What it does

    Finds `nonzero`, `argwhere` and `torch.where(condition)` of device tensors in hot code, where the indices
    only serve to write a constant, to read one position, or are looked up more than once. Where the rows
    themselves are wanted it is a note: what to do is for the author.

    ## Why it costs

    The size of the result depends on values, so the host waits until the device has counted before it can go
    on. The same shape for every input would need no wait, and would not make `torch.compile` break the graph.

    ## Example

    ```python
    rows = (scores > 0.5).nonzero()
    x = x.index_fill(0, rows[:, 0], 0.0)
    ```

    ## Instead

    ```python
    x = x.masked_fill((scores > 0.5)[:, None], 0.0)
    ```

    ## Fix safety

    No fix: how to do without the indices is for a reader to find.
    """

    code = "DG421"
    name = "indices-of-nonzero"
    origin = "pytorch#131256"
    looks_for = (Call("nonzero", "argwhere"), Call("where", arguments=1))

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A call that looks positions up."""
        if place.last_name(node) == "where" and (
            not place.is_torch(node, "where") or len(node.args) != 1
        ):
            return None
        worked_on = _worked_on(node, place)
        if worked_on is None:
            return None
        if _position_is_read(node, place):
            return tell(
                place,
                node,
                f"`{say(place, node)}` looks a position up on the device, and the host waits for "
                "it, and once more to read it. Keep the position as a Python number from where "
                "it is known (a counter); `.int().argmax()` finds the first one in one wait.",
                certainty=worked_on[1],
            )
        shown = say(place, node)
        again = _looked_up_again(node, worked_on[0], place)
        if again:
            return tell(
                place,
                node,
                f"`{shown}` makes the host wait for the device to count the hits, {again}",
                certainty=worked_on[1],
            )
        if _only_blanks(node, place):
            return tell(
                place,
                node,
                f"`{shown}` makes the host wait for the device to count the hits, only to write a "
                "constant there. Keep the mask: `masked_fill` or `torch.where(mask, a, b)` waits "
                "for nothing.",
                certainty=worked_on[1],
            )
        return tell(
            place,
            node,
            f"`{shown}` gives as many rows as there are hits, so the host waits for the device to "
            "count them. One wait is inherent where the rows themselves are wanted; where only "
            "values at those places change, keep the mask (`torch.where(mask, a, b)`).",
            certainty=weaker(worked_on[1], "note"),
        )


def _looked_up_again(node: cst.Call, mask: cst.BaseExpression, place: Place) -> str:
    """What to do where the same hits are counted more than once; empty where they are not."""
    if place.loops and _same_in_every_round(mask, place.loops[-1], place):
        return "in every round of the loop, though they are the same. Look them up once before it."
    for other, scene in place.calls(place.last_name(node)):
        if other is not node and scene.block == place.block and place.same(other, node):
            return "" if _bound_in(mask, place) else "more than once. Look them up once."
    selections = [
        o
        for o, s in _selections(mask, place)
        if s.block == place.block and _selects_by(o, mask, place)
    ]
    if selections and not _bound_in(mask, place):
        return (
            f"and `{say(place, selections[0])}` counts them again. Select by the indices found "
            "(`x[rows]`, with `rows = mask.nonzero(as_tuple=True)`)."
        )
    return ""


def _same_in_every_round(mask: cst.BaseExpression, loop: cst.CSTNode, place: Place) -> bool:
    """Whether a mask held by a name is the same in every round of the innermost loop."""
    if not isinstance(mask, cst.Name) or not isinstance(loop, cst.For | cst.BaseComp):
        return False
    if any(test for test, _ in place.conditions if holds(loop, test)):
        return False
    if isinstance(loop, cst.BaseComp) and holds(loop.for_in.iter, place.node):
        return False
    return not names_in(mask) & target_names(loop) and place.invariant(mask, loop)


def _bound_in(mask: cst.BaseExpression, place: Place) -> bool:
    """Whether a name of the mask may get another value within the block after it was made."""
    names = names_in(mask)
    return any(place.assignments(n) > 1 and n in bound_names(place.block) for n in names)


def _only_blanks(node: cst.BaseExpression, place: Place, depth: int = 0) -> bool:
    """Whether indices serve only to write a constant: `x[rows] = 0`, `index_fill(0, rows, 0)`."""
    parent = around(node, place)
    if isinstance(parent, cst.Subscript) and parent.value is not node:
        return _written_constant(parent, place)
    if isinstance(parent, cst.Subscript) and parent.value is node:
        return _only_blanks(parent, place, depth)
    if isinstance(parent, cst.Call) and parent.func is not node:
        if place.last_name(parent) not in ("index_fill", "index_fill_"):
            return False
        value = parent.args[-1].value
        return value is not node and place.kind(value).what == "scalar"
    if isinstance(parent, cst.Attribute) and parent.attr.value in ("squeeze", "flatten", "view"):
        call = around(parent, place)
        return isinstance(call, cst.Call) and _only_blanks(call, place, depth)
    name = held_by(node, place) if depth < 3 else ""
    found = [_only_blanks(load, place, depth + 1) for load in loads(name, place)] if name else []
    return bool(found) and all(found)


def _written_constant(target: cst.Subscript, place: Place) -> bool:
    statement = around(target, place)
    if isinstance(statement, cst.AssignTarget):
        statement = around(statement, place)
    indices = [place.text(element.slice) for element in target.slice]
    return (
        isinstance(statement, cst.Assign)
        and len(set(indices)) == len(indices)  # `x[rows, rows]` is a diagonal, which no mask is
        and all(t.target is target for t in statement.targets)
        and place.kind(statement.value).what == "scalar"
    )


def _position_is_read(call: cst.Call, place: Place) -> bool:
    """Whether what was found is brought to Python at once: `(ts == t).nonzero().item()`."""
    node: cst.CSTNode | None = place.parent(call)
    while isinstance(node, cst.Attribute | cst.Subscript | cst.Call):
        if isinstance(node, cst.Call) and place.last_name(node) in ("item", "int"):
            return True
        node = place.parent(node)
    return False


_RIGHT = re.compile(r"valid|finite|(?:^|_)(?:ok|good|sane)(?:_|$)")
"""What a mask is called that holds everywhere, unless something is wrong."""


def _only_where_wrong(mask: cst.BaseExpression, place: Place) -> bool:
    """Whether a selection is made only where not all is as it should be: ``if not valid.all(): x =
    x[valid]``."""
    name = place.dotted(mask)
    return _RIGHT.search(name) is not None and any(
        holds and f"{name}.all()" in place.text(test) and "not " in place.text(test)
        for test, holds in place.conditions
    )


class MaskRead(Rule):
    """A tensor is indexed with a boolean mask: the host waits to learn how many elements are left.

    ## What it does

    Finds `x[mask]` and `masked_select` with masks on a device, where the selection is reduced at once, or
    made by one mask more than once. Where the selection itself is wanted it is a note.

    ## Why it costs

    The size of the result depends on values, so the host waits until the device has counted the mask.

    ## Example

    ```python
    mean = x[mask].mean()
    ```

    ## Instead

    ```python
    mean = torch.where(mask, x, 0.0).sum() / mask.sum()
    ```

    ## Fix safety

    No fix: what the selection is for is for a reader to see.
    """

    code = "DG422"
    name = "mask-read"
    origin = "vLLM#38047"
    looks_for = (Getitem(), Call("masked_select"))

    def judge(self, node: cst.Subscript | cst.Call, place: Place) -> Finding | None:
        """A selection by a mask, the first of those by one mask."""
        mask = mask_of(node, place) if isinstance(node, cst.Subscript) else None
        if mask is not None and _only_where_wrong(mask, place):
            return None
        return as_sure_as_its_mask(self._judged(node, place), mask, place)

    def _judged(self, node: cst.Subscript | cst.Call, place: Place) -> Finding | None:
        if isinstance(node, cst.Call):
            worked_on = _worked_on(node, place)
            if worked_on is None:
                return None
            certainty, mask = (
                worked_on[1],
                place.argument(node, 1 if place.name(node) else 0, "mask"),
            )
        else:
            mask = mask_of(node, place)
            if mask is None or on_host_by_trade(place) or waits_inside(node.value, place):
                return None
            before = takewhile(lambda found: found[0] is not node, _selections(mask, place))
            if _in_mask_write(node, place) or any(
                s.block == place.block and _selects_by(o, mask, place) for o, s in before
            ):
                return None
            certainty = "sure"
            name = "rows" if len(node.slice) == 1 else "(rows,)"
            rows = f"`{name} = {_bracketed(mask, place)}.nonzero(as_tuple=True)`"
            # Of a tensor without dimensions a mask selects, and indices do not.
            unsure = len(node.slice) == 1 and place.kind(node.value).ndim is None
            scalars = " (flattened first, where it may have no dimension)" if unsure else ""
            alike = [
                s.statement
                for o, s in _selections(mask, place)
                if s.block == place.block and _selects_by(o, mask, place)
            ]
            if len(alike) > 1 and not _changed_between(mask, alike, place):
                anew = bool(place.loops) and not place.invariant(mask, place.loops[-1])
                once = "once per round" if anew else "once"
                return tell(
                    place,
                    node,
                    f"`{say(place, node)}` and {len(alike) - 1} more select by the same mask, and the "
                    f"host waits for the device to count it each time. Look it up {once} ({rows}) "
                    f"and select by that: `{_by_rows(node, mask, place)}`{scalars}.",
                )
            if place.loops and _same_in_every_round(mask, place.loops[-1], place):
                return tell(
                    place,
                    node,
                    f"`{say(place, node)}` counts the same mask in every round, and the host "
                    f"waits for the device each time. Look it up once before the loop ({rows}) "
                    f"and select by that: `{_by_rows(node, mask, place)}`{scalars}.",
                )
            buffer = _fixed_buffer(mask, place)
            if buffer:
                return tell(
                    place,
                    node,
                    f"`{say(place, node)}` counts the buffer `{buffer}` on every call, and the "
                    "host waits for the device. Look its indices up once, where it is made, and "
                    "select by those.",
                )
        shown = say(place, mask) if mask is not None else "mask"
        how = reduced(node, place)
        if how:
            operand = _bracketed(mask, place) if mask is not None else shown
            instead = _masked_reduction(how, shown, operand, _selected_from(node, place))
            instead += _of_rows(node, mask, place)
            return tell(
                place,
                node,
                f"`{say(place, node)}` keeps as many elements as `{shown}` says, so the host waits "
                f"for the device to count them. {instead}",
                certainty=certainty,
            )
        return tell(
            place,
            node,
            f"`{say(place, node)}` keeps as many elements as `{shown}` says, so the host waits "
            "for the device to count them. One wait is inherent where the selection itself is "
            "wanted; where it is not, work on all elements and blank out the rest "
            "(`torch.where`).",
            certainty=weaker(certainty, "note"),
        )


def _bracketed(mask: cst.BaseExpression, place: Place) -> str:
    shown = say(place, mask, 32)
    return shown if isinstance(mask, cst.Name | cst.Attribute | cst.Call) else f"({shown})"


def _by_rows(node: cst.Subscript, mask: cst.BaseExpression, place: Place) -> str:
    """The selection by indices: `x[rows]`; among other indices, `rows` spread out."""
    parts = [
        "rows" if isinstance(e.slice, cst.Index) and e.slice.value is mask else place.text(e.slice)
        for e in node.slice
    ]
    return f"{say(place, node.value, 24)}[{', '.join(parts)}]"


def _changed_between(
    mask: cst.BaseExpression, statements: Sequence[cst.CSTNode], place: Place
) -> bool:
    """Whether a name of the mask may hold something else, or other values, by the last of some statements of
    the block than at the first."""
    at = [i for i, s in enumerate(place.block) if any(s is o for o in statements)]
    return not at or not names_in(mask).isdisjoint(bound_names(place.block[at[0] : at[-1]]))


def _of_rows(node: cst.Subscript | cst.Call, mask: cst.BaseExpression | None, place: Place) -> str:
    """What is to be said of a mask that may have fewer dimensions than what it selects from."""
    if mask is None or isinstance(node, cst.Call):
        return ""
    dims, masked = place.kind(node.value).ndim, place.kind(mask).ndim
    if dims is not None and dims == masked:
        return ""
    return " A mask of rows needs `[:, None]` there, and a mean the number of columns."


def _fixed_buffer(mask: cst.BaseExpression, place: Place) -> str:
    """`self.x`, where that is a buffer to which the class gives nothing else."""
    name = place.dotted(mask)
    if not place.self_name or not name.startswith(f"{place.self_name}."):
        return ""
    values = set(place.attribute_values(name.partition(".")[2]))
    return name if values == {"buffer"} else ""


def _selected_from(node: cst.Subscript | cst.Call, place: Place) -> str:
    """What a selection that is reduced at once is made from; of one that is worked on first, `…`."""
    parent = around(node, place)
    base = node.value if isinstance(node, cst.Subscript) and len(node.slice) == 1 else None
    direct = isinstance(parent, cst.Attribute) and parent.attr.value in MERGING
    direct = direct or (isinstance(parent, cst.Call) and place.last_name(parent) in MERGING)
    return say(place, base, 24) if base is not None and direct else "…"


def _masked_reduction(how: str, mask: str, operand: str, x: str) -> str:
    """How a reduction of selected values is made without selecting; `operand` is the mask as it may stand
    beside operators."""
    if how in ("any", "count_nonzero"):
        return f"Ask all: `({x} & {operand}).{how}()`."
    if how == "all":
        return f"Ask all: `({x} | ~{operand}).all()`."
    if how == "sum":
        return f"Sum over all: `torch.where({mask}, {x}, 0).sum()`."
    if how == "mean":
        return f"Weigh instead: `torch.where({mask}, {x}, 0).sum() / {operand}.sum()`."
    neutral = {"prod": "1", "max": "-inf", "amax": "-inf", "logsumexp": "-inf"}.get(how, "inf")
    return f"Blank out the rest: `torch.where({mask}, {x}, {neutral}).{how}()`."


def _selections(mask: cst.BaseExpression, place: Place) -> Sequence[tuple[cst.Subscript, Scene]]:
    """What selects by a mask that reads like one, in reading order."""
    found = place.once(("selections",), lambda: _by_masks(place))
    return found.get(place.text(mask), ())


def _by_masks(place: Place) -> dict[str, list[tuple[cst.Subscript, Scene]]]:
    found: dict[str, list[tuple[cst.Subscript, Scene]]] = {}
    for node, scene in place.subscripts():
        mask = mask_of(node, place)
        if mask is not None:
            found.setdefault(place.text(mask), []).append((node, scene))
    return found


def _selects_by(node: cst.Subscript, mask: cst.BaseExpression, place: Place) -> bool:
    found = mask_of(node, place)
    if found is None or not place.same(found, mask):
        return False
    values = place.value_of(found), place.value_of(mask)
    rebound = None not in values and values[0] is not values[1]
    return not rebound and not _in_mask_write(node, place)


def _in_mask_write(node: cst.Subscript, place: Place) -> bool:
    """Whether a subscript is written to (`x[m] += 1`), or read for a write by the same mask (`y[m] = x[m]`):
    the write is told."""
    if not isinstance(place.statement, cst.SimpleStatementLine):
        return False
    for small in place.statement.body:
        targets: list[cst.BaseExpression] = []
        if isinstance(small, cst.Assign):
            targets = [t.target for t in small.targets]
        elif isinstance(small, cst.AugAssign):
            targets = [small.target]
        for target in targets:
            if target is node:
                return True
            if isinstance(target, cst.Subscript):
                written, read = mask_of(target, place), mask_of(node, place)
                if written is not None and read is not None and place.same(written, read):
                    return True
    return False


class MaskWrite(Rule):
    """A tensor is written through a boolean mask: the host waits to learn how many elements are hit.

    ## What it does

    Finds `x[mask] = tensor` and `x[mask] += …` with masks on a device. Writing a Python number
    (`x[mask] = 0`) becomes `masked_fill_`, which waits for nothing, and is not told.

    ## Why it costs

    The mask is turned into indices first; their number depends on values, so the host waits for the device.

    ## Example

    ```python
    x[mask] = other[mask]
    ```

    ## Instead

    ```python
    x = torch.where(mask, other, x)
    ```

    ## Fix safety

    No fix: `torch.where` makes a new tensor, and the shapes have to fit.
    """

    code = "DG423"
    name = "mask-write"
    origin = "diffusers#13461"
    looks_for = Setitem()

    def judge(
        self, node: cst.Assign | cst.AugAssign | cst.AnnAssign, place: Place
    ) -> Finding | None:
        """An assignment through a mask."""
        if on_host_by_trade(place) or isinstance(node, cst.AnnAssign):
            return None
        targets = (
            [node.target] if isinstance(node, cst.AugAssign) else [t.target for t in node.targets]
        )
        for target in targets:
            if not isinstance(target, cst.Subscript):
                continue
            mask = mask_of(target, place)
            if mask is None:
                continue
            if isinstance(node, cst.Assign) and not _tensor_value(node.value, place):
                continue
            operator = place.text(node.operator) if isinstance(node, cst.AugAssign) else "="
            certainty, how = _without_counting(target, mask, node.value, operator, place)
            if is_mask_by_name(mask, place):
                certainty = weaker(certainty, "note")
            if _selected_by(mask, node.value, place) and _unsafe_for_all(node.value, place):
                certainty = "note"
            waits = "twice (to read and to write)" if operator != "=" else "for the device"
            return tell(
                place,
                node,
                f"`{say(place, target)} {operator} …` turns the mask into indices, and the host "
                f"waits {waits} to count them. {how}",
                certainty=certainty,
            )
        return None


def _selected_by(mask: cst.BaseExpression, value: cst.BaseExpression, place: Place) -> str:
    """The selection by the same mask that a value is computed from, as written; empty where there is none."""
    for source in sources(value, place):
        for inner in nodes.walk(source):
            by = mask_of(inner, place) if isinstance(inner, cst.Subscript) else None
            if isinstance(inner, cst.Call) and place.last_name(inner) == "masked_select":
                by = inner.args[-1].value if inner.args else None
            if by is not None and place.same(by, mask):
                return say(place, inner, 32)
    return ""


def _is_subscript(node: cst.CSTNode) -> TypeGuard[cst.Subscript]:
    return isinstance(node, cst.Subscript)


def _unsafe_for_all(value: cst.BaseExpression, place: Place) -> bool:
    """Whether a value is computed by what elements that are not selected may be no input of, or by a function
    of the project, of which that is not known."""
    origins = list(sources(value, place))
    calls = (n for s in origins for n in nodes.walk(s) if isinstance(n, cst.Call))
    looked_up = (
        element
        for s in origins
        for n in nodes.walk(s)
        if isinstance(n, cst.Subscript) and mask_of(n, place) is None
        for element in n.slice
    )
    if any(mask_of(n, place) for e in looked_up for n in nodes.walk(e) if _is_subscript(n)):
        return True  # by indices that are none elsewhere
    return any(undefined_elsewhere(s, place) for s in origins) or any(
        place.last_name(call) in RANDOM  # drawn for all, the numbers are others
        or (place.callee(call) is not None and place.kind(call.func).what != "module")
        for call in calls
    )


def _without_counting(
    target: cst.Subscript,
    mask: cst.BaseExpression,
    value: cst.BaseExpression,
    operator: str,
    place: Place,
) -> tuple[Certainty, str]:
    """How a write through a mask is made without counting it, and whether that surely fits here."""
    base, shown = say(place, target.value, 24), say(place, mask, 32)
    rows = " (`mask[:, None]` where it is one of rows)"
    single = place.kind(value).what == "scalar" or place.kind(value).ndim == 0
    picked = isinstance(value, cst.Subscript) and place.same(mask_of(value, place) or value, mask)
    if len(target.slice) > 1:
        certainty: Certainty = "sure" if single or picked else "note"
        return certainty, (
            "Writing the whole slice with `torch.where(mask, new, old)` waits for nothing."
        )
    if single or picked:
        new = say(place, value.value if isinstance(value, cst.Subscript) and picked else value, 24)
        if operator in ("+=", "-=", "*=", "/="):
            rest = 0 if operator in ("+=", "-=") else 1
            return "sure", (
                f"`{base} {operator} torch.where({shown}, {new}, {rest})`{rows} waits for nothing."
            )
        if operator == "=":
            return (
                "sure",
                f"`{base} = torch.where({shown}, {new}, {base})`{rows} waits for nothing.",
            )
        return "note", f"Compute it for all of `{base}` and pick with `torch.where`."
    if operator != "=":
        return "note", f"Compute it for all of `{base}` and pick with `torch.where`."
    selected, new = _selected_by(mask, value, place), "values" if base == "new" else "new"
    if selected:
        return "sure", (
            f"`{selected}` waits as well. `{base} = torch.where({shown}, {new}, {base})`{rows}, with `{new}` "
            "worked out for all elements, waits for nothing."
        )
    return "sure", (
        f"`torch.where({shown}, {new}, {base})`{rows} takes one value or values made for all of `{base}`, "
        f"`{base}.masked_scatter_({shown}, {new})` one value per hit; neither waits."
    )


def _tensor_value(value: cst.BaseExpression, place: Place) -> bool:
    """Whether what is written is a tensor, and no single CPU number, which would be filled in."""
    kind = place.kind(value)
    return kind.is_tensor and not (kind.host and kind.ndim == 0)


class Unique(Rule):
    """`unique` makes the host wait for the device.

    ## What it does

    Finds `unique` and `unique_consecutive` of device tensors in hot code whose values are only compared.
    Where the values themselves are wanted it is a note: what to do is for the author.

    ## Why it costs

    The size of the result depends on values: the host waits until the device has sorted and counted.

    ## Example

    ```python
    seen = torch.unique(labels)
    wrong = torch.any((seen < 0) | (seen >= classes))
    ```

    ## Instead

    ```python
    wrong = torch.any((labels < 0) | (labels >= classes))
    ```

    ## Fix safety

    No fix: how the comparison reads without `unique` is for a reader to write.
    """

    code = "DG424"
    name = "unique-values"
    origin = "pytorch#107132"
    looks_for = Call("unique", "unique_consecutive")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A call on a device tensor."""
        worked_on = _worked_on(node, place)
        if worked_on is None:
            return None
        if only_compared(node, place):
            return tell(
                place,
                node,
                f"`{say(place, node)}` makes the host wait for the device to sort and count, only "
                f"to compare the values. Compare `{say(place, worked_on[0])}` itself: any and all "
                "of it give the same, without `unique`.",
                certainty=worked_on[1],
            )
        return tell(
            place,
            node,
            f"`{say(place, node)}` gives as many elements as there are values, so the host waits "
            "for the device to sort and count them. One wait is inherent where the values are "
            "unknown; where they are known, count into a tensor of fixed size (`scatter_add_`).",
            certainty=weaker(worked_on[1], "note"),
        )


class Bincount(Rule):
    """`bincount` makes the host wait for the device, also with `minlength`.

    ## What it does

    Finds `bincount` of device tensors in hot code.

    ## Why it costs

    The size of the result depends on the largest value, which the host waits for; `minlength` does not
    spare the wait.

    ## Example

    ```python
    counts = torch.bincount(labels, minlength=n)
    ```

    ## Instead

    ```python
    counts = torch.zeros(n, dtype=torch.long, device=labels.device)
    counts = counts.scatter_add_(0, labels, torch.ones_like(labels))
    ```

    ## Fix safety

    No fix: values beyond the fixed size fail in `scatter_add_`, and grow the result of `bincount`.
    """

    code = "DG425"
    name = "bincount-of-tensor"
    origin = "torchmetrics#1413"
    looks_for = Call("bincount")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A call on a device tensor."""
        worked_on = _worked_on(node, place)
        if worked_on is None:
            return None
        size = place.argument(node, 2 if place.name(node) else 1, "minlength")
        counted = say(place, worked_on[0], 32)
        certainty = worked_on[1]
        if (
            isinstance(size, cst.Name | cst.Attribute | cst.Integer)
            and not _may_be_zero(size, place)
            and not place.kind(size).maybe_tensor
        ):
            known, new = "", say(place, size, 24)
        else:
            known, new = "Where the host knows how many bins there are, ", "n"
            # With no size, or none in some calls, the largest value has to be asked for; one on the device
            # would have to be read.
            certainty = weaker(certainty, "note")
        return tell(
            place,
            node,
            f"`{say(place, node)}` asks for the largest value first, and the host waits for the "
            f"device. {known}`torch.zeros({new}, …).scatter_add_(0, {counted}, ones)` (of int64 indices) "
            "has a fixed size and waits for nothing.",
            certainty=certainty,
        )


def _may_be_zero(size: cst.BaseExpression, place: Place) -> bool:
    """Whether a number of bins is 0 or may be none."""
    zero = isinstance(size, cst.Integer) and size.evaluated_value == 0
    return zero or place.kind(size).optional


class RepeatInterleave(Rule):
    """`repeat_interleave` with a tensor of repeats and no `output_size` makes the host wait for the device.

    ## What it does

    Finds `repeat_interleave` whose repeats are a device tensor and that is not told its `output_size`. A
    Python
    number as repeats waits for nothing.

    ## Why it costs

    The size of the result is the sum of the repeats: the host waits until the device has it.

    ## Example

    ```python
    y = torch.repeat_interleave(x, lengths, dim=0)
    ```

    ## Instead

    ```python
    y = torch.repeat_interleave(x, lengths, dim=0, output_size=total)
    ```

    ## Fix safety

    No fix: a wrong `output_size` is a device-side assertion.
    """

    code = "DG426"
    name = "repeat-interleave-without-size"
    origin = "torchtitan#2440"
    looks_for = Call("repeat_interleave")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A call whose repeats are a tensor."""
        if on_host_by_trade(place) or place.argument(node, None, "output_size") is not None:
            return None
        first = 1 if place.is_torch(node, "repeat_interleave") else 0
        repeats = place.argument(node, first, "repeats")
        if repeats is None and first and len(node.args) == 1:
            repeats = place.argument(node, 0)
        if repeats is None or waits_inside(repeats, place):
            return None
        certainty = place.certainty(repeats)
        if certainty is None:
            return None
        if _moved_afterwards(node, place):
            certainty = "maybe"  # what is moved to the device only then was not there
        return tell(
            place,
            node,
            f"`repeat_interleave` with the tensor `{say(place, repeats)}` makes the host wait "
            "for the device to add it up. Where the host knows the total, say it: "
            "`output_size=total`.",
            certainty=certainty,
        )


def _moved_afterwards(call: cst.Call, place: Place) -> bool:
    """Whether what a call gives is moved to a device at once, or after some methods."""
    node: cst.CSTNode = call
    parent = place.parent(node)
    while isinstance(parent, cst.Attribute | cst.Call):
        if isinstance(parent, cst.Call) and place.last_name(parent) in ("to", "cuda"):
            return any("device" in place.text(a) for a in parent.args) or not parent.args
        node, parent = parent, place.parent(parent)
    return False


_FACTORIES = frozenset("zeros ones empty full rand randn eye arange linspace".split())
_SIZE_NAMES = frozenset("size shape start end steps length n m".split())


class TensorAsNumber(Rule):
    """A tensor stands where Python needs a number: a size, a bound, an index, a range.

    ## What it does

    Finds device tensors as arguments of `range`, as bounds of slices, as indices of Python lists, as sizes
    (`torch.zeros(n)`, `x.view(n, -1)`), and tensors of no dimension as indices of tensors.

    ## Why it costs

    Python asks the tensor for its number: it is `.item()` without the word, and the host waits for the
    device.

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

    No fix: where the host can get the number from is for a reader to find.
    """

    code = "DG427"
    name = "tensor-as-number"
    origin = "diffusers#13356"
    looks_for = (SizedCall(), Getitem(), Setitem())

    def judge(self, node: cst.CSTNode, place: Place) -> Iterator[Finding]:
        """A call or subscript with a tensor where a number belongs."""
        if on_host_by_trade(place):
            return
        if isinstance(node, cst.Call):
            found = self._in_call(node, place)
        elif isinstance(node, cst.Subscript):
            found = self._in_brackets(node, place)
        elif isinstance(node, cst.Assign):
            subscripts = [t.target for t in node.targets if isinstance(t.target, cst.Subscript)]
            found = next((f for s in subscripts if (f := self._in_brackets(s, place))), None)
        else:
            found = None  # the target of an augmented assignment is read as well, and shown as read
        if found is not None:
            yield found

    def _in_call(self, call: cst.Call, place: Place) -> Finding | None:
        last = place.last_name(call)
        if last == "range":
            if place.name(call) != "range":
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
            parts = [argument.value]
            if isinstance(argument.value, cst.Tuple | cst.List):
                parts = [e.value for e in argument.value.elements]
            for part in parts:
                if self._number(part, place) and not _given_before(part, call, place):
                    return tell(
                        place,
                        part,
                        f"`{last}` needs a number where the tensor `{say(place, part)}` is "
                        f"given, so the host waits for the device to have it. {_instead(last)}",
                        certainty="maybe" if _of_own_helper(part, place) else "sure",
                    )
        return None

    def _in_brackets(self, node: cst.Subscript, place: Place) -> Finding | None:
        base = place.kind(node.value)
        for element in node.slice:
            part = element.slice
            if isinstance(part, cst.Slice):
                for bound in (part.lower, part.upper, part.step):
                    if bound is not None and self._number(bound, place):
                        return tell(
                            place,
                            node,
                            f"The bound `{say(place, bound)}` is a tensor: slicing needs its "
                            "number, and the host waits for the device. Slice by a number that "
                            "the host knows, or mask by position (`torch.arange(n) < bound`).",
                        )
            elif isinstance(part, cst.Index) and self._number(part.value, place):
                shown = say(place, part.value)
                if base.what in ("nested", "modules") and base.cls != "dict" and base.sure:
                    return tell(
                        place,
                        node,
                        f"`{say(place, node)}` picks from a Python sequence by the tensor "
                        f"`{shown}`, so the host waits for the device. Stack what is picked from "
                        "and index on the device, or pick by a number that the host knows.",
                        certainty="sure" if _stackable(base) else "note",
                    )
                if (
                    base.is_tensor
                    and place.kind(part.value).ndim == 0
                    and place.kind(part.value).dtype != "bool"
                ):
                    if _indexed_before(part.value, node, place):
                        return None
                    return tell(
                        place,
                        node,
                        f"`{shown}` is a tensor of no dimension: each index by it reads its "
                        "number, and the host waits for the device. `index_select(0, "
                        f"{shown}.reshape(1))` stays on the device; where several tensors are "
                        f"indexed by it, read it once (`int({shown})`).",
                    )
        return None

    def _number(self, node: cst.BaseExpression, place: Place) -> bool:
        """Whether a device tensor stands here that Python must ask for its number, unasked as yet."""
        kind = place.kind(node)
        return kind.on_device and not waits_inside(node, place)


def _instead(factory: str) -> str:
    if factory == "linspace":
        return (
            "Between tensors: `low + (high - low) * torch.linspace(0, 1, steps, device=...)` stays on the "
            "device."
        )
    return (
        "Pass a number that the host knows, a bound perhaps; where none will do, read it once "
        "(`int(...)`) for all that needs it."
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


class CompareWholeTensors(Rule):
    """`torch.equal` or `allclose` makes the host wait for the device.

    ## What it does

    Finds `allclose` of device tensors in hot code. `equal` is a note: of a tensor
    and itself, and of unlike shapes, it answers without the device.

    ## Why it costs

    Both give a Python bool: the host waits until the device has compared.

    ## Example

    ```python
    if not torch.allclose(a, b):
        x = x + 1
    ```

    ## Instead

    ```python
    x = torch.where(torch.isclose(a, b).all(), x, x + 1)
    ```

    ## Fix safety

    No fix: what depends on the answer is for a reader to see.
    """

    code = "DG429"
    name = "compare-whole-tensors"
    origin = "pytorch#36853"
    looks_for = Call("equal", "allclose")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """The first comparison of a statement."""
        worked_on = _worked_on(node, place)
        if worked_on is None or any(place.kind(a.value).host for a in node.args):
            return None
        if any(place.kind(a.value).not_tensor for a in node.args[:2] if a.keyword is None):
            return None
        if not _first_of(node, place):
            return None
        who = asked(node, place)
        branches = who.asker in ("if", "while", "filter")
        last = place.last_name(node)
        # Of one tensor twice, or of unlike shapes, `equal` answers without the device; who asks it may mean
        # just that, and `(a == b).all()` raises then.
        if last == "equal" or (
            branches and not only_raises(who.by) and not selectable(who.by, place)
        ):
            worked_on = (worked_on[0], weaker(worked_on[1], "note"))
        how = "(a == b).all()" if last == "equal" else "torch.isclose(a, b).all()"
        keep = f"Keep the answer on the device (`{how}`), or remember on the host what changed."
        if who.asker == "assert" or only_raises(who.by):
            keep = f"Check on the device (`torch._assert_async({how})`), or only when asked to."
        if last == "equal":
            keep += " That needs equal shapes."
        return tell(
            place,
            node,
            f"`{say(place, node)}` gives a Python bool, so the host waits for the device to "
            f"compare. {keep}",
            certainty=worked_on[1],
        )


def _first_of(node: cst.Call, place: Place) -> bool:
    """Whether a comparison is the first of its statement: one place, one finding."""
    first = next(c for c, s in place.calls("equal", "allclose") if s.statement is place.statement)
    return first is node
