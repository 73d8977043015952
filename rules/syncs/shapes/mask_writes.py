"""DG423: a tensor is written through a boolean mask."""

from __future__ import annotations

from typing import TypeGuard

import libcst as cst

from pytest_dispatchguard import Certainty, Finding, Place, Rule, Setitem, nodes, weaker

from ...syntax import subscripts_written
from ..data_flow import sources, undefined_elsewhere
from ..host_code import works_on_host
from ..waits import RANDOM, indices, is_mask_by_name, mask_of
from .mask_fixes import added_to_all, for_all, of_the_module, selecting
from .mask_indices import written_by_indices


class MaskWrite(Rule):
    """A tensor is written through a boolean mask: the host waits to learn how many elements are hit.

    ## What it does

    Finds `x[mask] = tensor` and `x[mask] += …` with masks on a device. Writing a Python number
    (`x[mask] = 0`) becomes `masked_fill_`, which waits for nothing, and is not flagged, unless a tensor or a
    list is an index beside the mask (`x[mask, columns] = 0`).

    ## Why it costs

    The mask is turned into indices first; their number depends on values, so the host waits for the device.

    ## Example

    ```python
    x[mask] = other[mask]
    ```

    ## Instead

    ```python
    x = torch.where(mask, other, x)  # or in place: x.copy_(torch.where(mask, other, x))
    ```

    ## Fix safety

    Unsafe: the fix works the value out for all elements and keeps it where the mask says, in place
    (`x.copy_(torch.where(mask, other, x))`), which takes memory for a whole tensor and a mask of booleans. A
    value made by `view(-1, n)` is scattered (`masked_scatter_`), one row for each hit: a single row is no
    longer spread over all. Where that cannot be told, or a value outside of the mask is not defined or may
    overflow, which makes gradients NaN, a statement that counts the mask more than once finds its indices
    once, which takes a mask that has a dimension.
    """

    code = "DG423"
    name = "mask-write"
    origin = "diffusers#13461"
    looks_for = Setitem()
    fixes = "unsafe"

    def judge(
        self, node: cst.Assign | cst.AugAssign | cst.AnnAssign, place: Place
    ) -> Finding | None:
        """An assignment through a mask."""
        if works_on_host(place) or isinstance(node, cst.AnnAssign):
            return None
        for target in subscripts_written(node):
            mask = mask_of(target, place)
            if mask is None:
                continue
            if isinstance(node, cst.Assign) and not (
                _tensor_value(node.value, place) or _takes_more(target, mask, place)
            ):
                continue
            operator = place.text(node.operator) if isinstance(node, cst.AugAssign) else "="
            certainty, how = _without_counting(target, mask, node.value, operator, place)
            if is_mask_by_name(mask, place) or not place.kind(node.value).sure:
                certainty = weaker(certainty, "note")
            if _selected_by(mask, node.value, place) and _unsafe_for_all(node.value, place):
                certainty = "note"
            waits = (
                "twice (for the read and for the write)" if operator != "=" else "for the device"
            )
            return place.finding(
                node,
                f"`{place.short(target)} {operator} …` turns the mask into indices, and the host "
                f"waits {waits} to count them. {how}",
                certainty=certainty,
                fix=selecting(node, target, mask, place) or written_by_indices(mask, place),
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
                return place.short(inner, 32)
    return ""


def _is_subscript(node: cst.CSTNode) -> TypeGuard[cst.Subscript]:
    return isinstance(node, cst.Subscript)


def _unsafe_for_all(value: cst.BaseExpression, place: Place) -> bool:
    """Whether a value is computed by what elements that are not selected may be no input of, or by a function
    of the project, of which that is not known."""
    origins = list(sources(value, place))
    calls = (n for s in origins for n in nodes.walk(s) if isinstance(n, cst.Call))
    subscripts = (n for s in origins for n in nodes.walk(s) if _is_subscript(n))
    looked_up = (
        source
        for n in subscripts
        for index in indices(n)
        if index is not mask_of(n, place)
        for source in sources(index, place)
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
    base, shown = place.short(target.value, 24), place.short(mask, 32)
    rows = " (with `mask[..., None]` if the mask has fewer dimensions)"
    kind = place.kind(value)
    single = kind.what == "scalar" or kind.ndim == 0 or of_the_module(value, place)
    # `x[mask] = y[mask, column]` takes one of each row, so the numbers of indices have to be the same.
    picked = (
        isinstance(value, cst.Subscript)
        and place.same(mask_of(value, place) or value, mask)
        and len(value.slice) == len(target.slice)
    )
    if len(target.slice) > 1 and _takes_more(target, mask, place):
        return "note", (
            "What is beside the mask has as many elements as it hits, so it has to be counted: find its "
            f"indices once (`{shown}.nonzero(as_tuple=True)`) if several statements use it."
        )
    if len(target.slice) > 1:
        certainty: Certainty = "sure" if single or picked else "note"
        return certainty, (
            "Writing the whole slice with `torch.where(mask, new, old)` waits for nothing."
        )
    if single or picked:
        new = place.short(value.value if isinstance(value, cst.Subscript) and picked else value, 24)
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
        return "note", f"Compute it for all of `{base}` and select with `torch.where`."
    if operator != "=":
        one_row = added_to_all(value, place)
        known = one_row or for_all(value, mask, place.dotted(target.value), place) is not None
        return (
            "sure" if known else "note",
            f"Compute it for all of `{base}` and select with `torch.where`"
            + (f", as `{place.short(value, 24)}` has one row for all hits." if one_row else "."),
        )
    selected, new = _selected_by(mask, value, place), "values" if base == "new" else "new"
    if selected:
        return "sure", (
            f"`{selected}` waits as well. `{base} = torch.where({shown}, {new}, {base})`{rows}, with "
            f"`{new}` computed for all elements, waits for nothing."
        )
    return "sure", (
        f"`torch.where({shown}, {new}, {base})`{rows} takes one value, or a value for each element "
        f"of `{base}`; "
        f"`{base}.masked_scatter_({shown}, {new})` one value per hit; neither waits."
    )


def _tensor_value(value: cst.BaseExpression, place: Place) -> bool:
    """Whether what is written is a tensor, or what is converted as tensors are, and no single CPU number,
    which would be filled in."""
    kind = place.kind(value)
    converted = kind.maybe_tensor and isinstance(value, cst.Call)
    return (kind.is_tensor or converted) and not (kind.host and kind.ndim == 0)


def _takes_more(target: cst.Subscript, mask: cst.BaseExpression, place: Place) -> bool:
    """Whether a tensor or a list is an index beside the mask, which then has to become indices, too."""
    for index in indices(target):
        kind = place.kind(index)
        listed = kind.what == "nested" and kind.cls != "dict" and kind.sure
        if index is not mask and (listed or (kind.is_tensor and kind.ndim != 0)):
            return True
    return False
