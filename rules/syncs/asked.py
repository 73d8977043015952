"""Whether what a condition asks is a tensor on a device."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Certainty, Place

from .waits import names_a_function, only_torch

_ASKING = frozenset("all amax amin any max mean min norm sum".split())


def asked_certainty(node: cst.BaseExpression, place: Place) -> Certainty | None:
    """Whether what a condition asks is a tensor on a device. In a file that knows no arrays but torch's,
    what has `any`, `all` or another reduction called on it is one: surely where it may be one otherwise, and
    as a note where nothing is known of it."""
    certainty = place.certainty(node)
    if type(node) is cst.Comparison and len(node.comparisons) == 1:
        part = node.comparisons[0]
        if type(part.operator) is cst.In or type(part.operator) is cst.NotIn:
            return _membership_certainty(node.left, part.comparator, place)
    if certainty == "sure" or not only_torch(place):
        return certainty
    reduced = node.left if type(node) is cst.Comparison else node
    if type(reduced) is not cst.Call or type(reduced.func) is not cst.Attribute:
        return certainty
    if reduced.func.attr.value not in _ASKING:
        return certainty
    receiver = place.kind(reduced.func.value)
    if receiver.maybe_tensor:
        return None if receiver.host or receiver.roaming else "sure"
    unknown = receiver.what == "unknown" and not receiver.cls
    return "note" if unknown and not names_a_function(reduced, place) else certainty


def _membership_certainty(
    left: cst.BaseExpression, right: cst.BaseExpression, place: Place
) -> Certainty | None:
    """Whether a test for membership compares with a tensor on a device, once for each element."""
    if isinstance(left, cst.BaseString) or place.kind(left).what == "text":
        return None
    if place.on_device(right):
        return "sure"
    if not place.on_device(left):
        return None
    if isinstance(right, cst.List | cst.Tuple):
        numbers = [e for e in right.elements if not isinstance(e.value, cst.BaseString)]
        return "sure" if numbers else None
    held = place.kind(right)
    return "note" if held.what == "nested" and not held.cls else None  # others ask for its hash
