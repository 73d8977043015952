"""DG422: a tensor is indexed with a boolean mask."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Getitem, Place, Rule, weaker

from ...syntax import bound_names, names_in, shown_as_owner
from ..data_flow import MERGING, around, reduced
from ..host_code import works_on_host
from ..waits import as_sure_as_its_mask, device_input, mask_of, waits_inside
from .mask_fixes import summed_up
from .mask_indices import by_indices
from .masks import in_mask_write, same_in_every_round, selections_by, selects_by

_RIGHT = re.compile(r"valid|finite|(?:^|_)(?:ok|good|sane)(?:_|$)")
"""What a mask is called that holds everywhere, unless something is wrong."""


def _only_where_wrong(mask: cst.BaseExpression, place: Place) -> bool:
    """Whether a selection is made only where not all is as it should be: ``if not valid.all(): x =
    x[valid]``."""
    name = place.dotted(mask)
    return _RIGHT.search(name) is not None and any(
        contains and f"{name}.all()" in place.text(test) and "not " in place.text(test)
        for test, contains in place.conditions
    )


class MaskRead(Rule):
    """A tensor is indexed with a boolean mask: the host waits to learn how many elements are left.

    ## What it does

    Finds `x[mask]` and `masked_select` with masks on a device, where the selection is reduced at once, or
    made by one mask more than once; of these, all but the first are notes. Where the selection itself is
    wanted it is a note.

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

    Unsafe: a sum or mean of the selection is taken over all elements with zeros outside of the mask, which
    adds up in another order; for several selections by one mask its indices are found once, which takes a
    boolean mask that has a dimension. None is offered for other uses: only the author knows what the
    selection is for.
    """

    code = "DG422"
    name = "mask-read"
    origin = "vLLM#38047"
    looks_for = (Getitem(), Call("masked_select", place="torch"))
    fixes = "unsafe"

    def judge(self, node: cst.Subscript | cst.Call, place: Place) -> Finding | None:
        """A selection by a mask, the first of those by one mask."""
        mask = mask_of(node, place) if isinstance(node, cst.Subscript) else None
        if mask is not None and _only_where_wrong(mask, place):
            return None
        return as_sure_as_its_mask(self._judged(node, place), mask, place)

    def _judged(self, node: cst.Subscript | cst.Call, place: Place) -> Finding | None:
        if isinstance(node, cst.Call):
            given = device_input(node, place)
            if given is None:
                return None
            certainty = given[1]
            mask = place.argument(node, 1 if place.name(node) else 0, "mask")
        else:
            certainty, mask = "sure", mask_of(node, place)
            if mask is None or works_on_host(place) or waits_inside(node.value, place):
                return None
            if in_mask_write(node, place):
                return None
            before = takewhile(lambda found: found[0] is not node, selections_by(mask, place))
            alike = [
                s.statement
                for o, s in before
                if s.block == place.block and selects_by(o, mask, place)
            ]
            if alike and not _changed_between(mask, [*alike, place.statement], place):
                return self._once_more(node, mask, alike, place)
            repeated, fix = self._counted_again(node, mask, place)
            if repeated:
                scripted = _is_scripted(place)
                return place.finding(
                    node,
                    f"`{place.short(node)}` {repeated}.",
                    certainty="note" if scripted else "sure",
                    fix=None if scripted else fix,
                )
        shown = place.short(mask) if mask is not None else "mask"
        message = (
            f"`{place.short(node)}` keeps as many elements as `{shown}` says, so the host waits for the "
            "device to count them. "
        )
        how = reduced(node, place)
        if not how:
            return place.finding(
                node,
                f"{message}One wait is inherent if you need the selection itself; if not, work on "
                "all elements and mask out the rest (`torch.where`).",
                certainty=weaker(certainty, "note"),
            )
        operand = shown_as_owner(mask, place) if mask is not None else shown
        instead = _masked_reduction(how, shown, operand, _selected_from(node, place))
        return place.finding(
            node,
            message + instead + _of_rows(node, mask, place),
            certainty=certainty,
            fix=summed_up(node, mask, how, place)
            if isinstance(node, cst.Subscript) and mask is not None
            else None,
        )

    def _once_more(
        self,
        node: cst.Subscript,
        mask: cst.BaseExpression,
        before: Sequence[cst.CSTNode],
        place: Place,
    ) -> Finding | None:
        """A selection by a mask that an earlier statement of the block selected by, where nothing is said of
        it yet."""
        if any(statement is place.statement for statement in before):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` has the device count `{place.short(mask, 32)}` once more, and the host "
            "waits again; its indices, found once, do for all.",
            certainty="note",
        )

    def _counted_again(
        self, node: cst.Subscript, mask: cst.BaseExpression, place: Place
    ) -> tuple[str, Fix | None]:
        """What is said of a mask that is counted more than once, and what can be done; empty where it is
        not."""
        name = "rows" if len(node.slice) == 1 else "(rows,)"
        rows = f"`{name} = {shown_as_owner(mask, place)}.nonzero(as_tuple=True)`"
        select = f"({rows}) and select by that: `{_by_rows(node, mask, place)}`"
        if len(node.slice) > 1 and place.kind(mask).ndim != 1:
            select += " (with as many names as the mask has dimensions)"
        # Of a tensor without dimensions a mask selects, and indices do not.
        if len(node.slice) == 1 and place.kind(node.value).ndim is None:
            select += " (flattened first, where it may have no dimension)"
        alike = [
            (o, s)
            for o, s in selections_by(mask, place)
            if s.block == place.block and selects_by(o, mask, place)
        ]
        if len(alike) > 1 and not _changed_between(mask, [s.statement for _, s in alike], place):
            changes = bool(place.loops) and not place.invariant(mask, place.loops[-1])
            once = "once per iteration" if changes else "once"
            more = "one more selection" if len(alike) == 2 else f"{len(alike) - 1} more selections"
            return (
                f"and {more} use the same mask; for each, the host waits for the "
                f"device to count its elements. Find its indices {once} {select}"
            ), by_indices(mask, alike, place)
        if place.loops and same_in_every_round(mask, place.loops[-1], place):
            return (
                "counts the same mask in every iteration, and the host waits for the device each "
                f"time. Find its indices once before the loop {select}"
            ), None
        buffer = _fixed_buffer(mask, place)
        return buffer and (
            f"counts the buffer `{buffer}` on every call, and the host waits for the device. Find "
            "its indices once, where it is created, and select by those"
        ), None


def _by_rows(node: cst.Subscript, mask: cst.BaseExpression, place: Place) -> str:
    """The selection by indices: `x[rows]`; among other indices, `rows` spread out."""
    parts = [
        "rows" if isinstance(e.slice, cst.Index) and e.slice.value is mask else place.text(e.slice)
        for e in node.slice
    ]
    return f"{place.short(node.value, 24)}[{', '.join(parts)}]"


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
    return place.short(base, 24) if base is not None and direct else "…"


def _masked_reduction(how: str, mask: str, operand: str, x: str) -> str:
    """How a reduction of selected values is made without selecting; `operand` is the mask as it may stand
    beside operators."""
    if how in ("any", "count_nonzero"):
        return f"Test all elements: `({x} & {operand}).{how}()`."
    if how == "all":
        return f"Test all elements: `({x} | ~{operand}).all()`."
    if how == "sum":
        return f"Sum over all elements: `torch.where({mask}, {x}, 0).sum()`."
    if how == "mean":
        return f"Use a weighted mean: `torch.where({mask}, {x}, 0).sum() / {operand}.sum()`."
    neutral = {"prod": "1", "max": "-inf", "amax": "-inf", "logsumexp": "-inf"}.get(how, "inf")
    return f"Mask out the rest: `torch.where({mask}, {x}, {neutral}).{how}()`."


def _is_scripted(place: Place) -> bool:
    """Whether a function is compiled as TorchScript, which knows no `as_tuple` and selects by no tuple."""
    return any(
        place.dotted(one.decorator).endswith("jit.script") for one in place.function.decorators
    )
