"""Fixes of reads and writes by one mask: its indices are found once for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from pytest_dispatchguard import Fix, Place, Scene, nodes

from ...allocations.uses import bare
from ...fresh_names import fresh_name
from ...same_value import may_be_skipped, stays
from ...syntax import is_left, line_before, names_in, subscripts_written
from ..waits import mask_of


def by_indices(
    mask: cst.BaseExpression, alike: Sequence[tuple[cst.Subscript, Scene]], place: Place
) -> Fix | None:
    """The indices of a mask, found once before the first of some selections in a block, for all of them, and
    for what is written by the mask up to the last one."""
    if any(s.deferred or any(isinstance(o, cst.BaseComp) for o in s.loops) for _, s in alike):
        return None
    selecting_ones = [s.statement for _, s in alike]
    at = [i for i, s in enumerate(place.block) if any(s is one for one in selecting_ones)]
    # A loop asks its condition again, and what is skipped may be no selection at all.
    if any(isinstance(one, cst.While) for one in selecting_ones) or may_be_skipped(
        alike[0][0], place
    ):
        return None
    between = place.block[at[0] : at[-1]]
    if not stays(mask, between, place) or is_left(between):
        return None
    written = [
        target
        for line in place.block[at[0] : at[-1] + 1]
        for target in _written_by(mask, line, place)
        if names_in(target.value).isdisjoint(names_in(mask)) and not _writes_one(line, place)
    ]
    return _by_rows(mask, [*(node for node, _ in alike), *written], selecting_ones[0], place)


def written_by_indices(mask: cst.BaseExpression, place: Place) -> Fix | None:
    """The indices of a mask, found once for a statement that writes by it, and for the lines that follow in
    the block and read or write by the same: where it is counted more than once."""
    at = next((i for i, one in enumerate(place.block) if one is place.statement), None)
    if at is None:
        return None
    for number in range(at - 1, max(at - _MOST_LINES, -1), -1):
        if not stays(mask, [place.block[number]], place):
            break
        if _written_by(mask, place.block[number], place):
            return None  # found for that line, they do for this one
    found: list[cst.Subscript] = []
    times = 0
    for line in place.block[at : at + _MOST_LINES]:
        used = [
            one
            for one in nodes.walk(line, _LATER)
            if isinstance(one, cst.Subscript)
            and _is_by(mask, one, place)
            and (len(one.slice) == 1 or place.kind(mask).ndim == 1)
        ]
        if _writes_one(line, place):
            used = []
        if isinstance(line, cst.SimpleStatementLine):
            found += used
            times += len(used) + sum(
                isinstance(small, cst.AugAssign) for small in line.body
            ) * bool(used)
        if not stays(mask, [line], place) or is_left([line]):
            break
    return _by_rows(mask, found, place.statement, place) if times > 1 else None


_MOST_LINES = 30
_LATER = (cst.Lambda, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
"""What stands in them may be another mask of that name, or run later."""


def _by_rows(
    mask: cst.BaseExpression, found: Sequence[cst.Subscript], line: cst.CSTNode, place: Place
) -> Fix | None:
    """Subscripts by the indices of a mask in place of the mask, after a line that finds them."""
    source = place.text(mask)
    spread = any(len(node.slice) > 1 for node in found)
    # What has a `__getitem__` of its own may take no tuple.
    if not all(place.kind(node.value).is_tensor for node in found):
        return None
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1 or "\n" in source:
        return None
    if spread and place.kind(mask).ndim != 1:
        return None
    name = fresh_name(source, line, place, ending="rows")
    if not name:
        return None
    pairs = [
        (element.slice.value, name)
        for node in found
        for element in node.slice
        if isinstance(element.slice, cst.Index) and place.same(element.slice.value, mask)
    ]
    target = f"({name},)" if spread else name
    whole = f"{target} = {bare(mask, place)}.nonzero(as_tuple=True)"
    return place.edits(
        pairs,
        safety="unsafe",
        message="Find the indices once; needs a boolean mask with a dimension",
        more=[line_before(line, whole, place)],
    )


def _writes_one(line: cst.CSTNode, place: Place) -> bool:
    """Whether a line writes one tensor to all elements: by a mask it is converted, by indices it may not."""
    return isinstance(line, cst.SimpleStatementLine) and any(
        isinstance(small, cst.Assign)
        and place.kind(small.value).is_tensor
        and place.kind(small.value).ndim == 0
        for small in line.body
    )


def _is_by(mask: cst.BaseExpression, node: cst.Subscript, place: Place) -> bool:
    own = mask_of(node, place)
    return own is not None and place.same(own, mask)


def _written_by(mask: cst.BaseExpression, line: cst.CSTNode, place: Place) -> list[cst.Subscript]:
    """What a line writes to by a mask."""
    if not isinstance(line, cst.SimpleStatementLine):
        return []
    written = (one for small in line.body for one in subscripts_written(small))
    return [one for one in written if _is_by(mask, one, place)]
