"""Which device a new tensor is put on."""

from __future__ import annotations

import re
from typing import Literal

import libcst as cst

from pytest_dispatchguard import Place

from ..syntax import is_word, method_call
from .data import CASTS

_DEVICE = re.compile(r"(?:\w*_)?device(?:_?id)?|dev|_?(?:gpu(?:_?id)?|(?:local_)?rank)")
"""What devices are called, and their numbers."""


def names_cpu(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a device argument says `cpu`, or nothing, or is that of a tensor on the CPU."""
    if isinstance(node, cst.Attribute) and node.attr.value == "device":
        like = place.kind(node.value)
        return like.is_tensor and like.host
    held = place.value_of(node)
    if held is not None and held is not node:
        return names_cpu(held, place)
    if isinstance(node, cst.Call) and node.args:
        node = node.args[0].value
    if isinstance(node, cst.SimpleString):
        return str(node.evaluated_value).startswith(("cpu", "meta"))
    if isinstance(node, cst.IfExp) and "is_tensor(" in place.text(node.test):
        return names_cpu(node.body, place)  # "cpu" is for callers who have no tensor
    if isinstance(node, cst.IfExp) and "cuda" not in place.text(node):
        # "cpu" if gloo else …: the CPU by choice, not because there is no device.
        return names_cpu(node.body, place) or names_cpu(node.orelse, place)
    return is_word(node, "None")


def sets_device(context: cst.BaseExpression, place: Place) -> bool:
    """Whether a context says where factories make their tensors: `torch.device(…)`, or that of a tensor."""
    if isinstance(context, cst.Attribute) and context.attr.value == "device":
        return place.is_tensor(context.value)
    return isinstance(context, cst.Call) and place.name(context) == "torch.device"


def makes_tensors_there(place: Place) -> bool:
    """Whether a context around a place says where its factories make their tensors."""
    return any(sets_device(item.item, place) for block in place.withs for item in block.items)


def is_device(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression is surely a device other than the CPU."""
    if names_cpu(node, place):
        return False
    if isinstance(node, cst.SimpleString):
        return str(node.evaluated_value).partition(":")[0] in (
            "cuda",
            "xpu",
            "mps",
            "hpu",
            "npu",
            "xla",
        )
    if isinstance(node, cst.Call):
        return place.name(node) == "torch.device" or _asks_where(node, place)
    last = node.attr.value if isinstance(node, cst.Attribute) else place.dotted(node)
    if _DEVICE.fullmatch(last) is not None:
        return True
    held = place.value_of(node) if isinstance(node, cst.Name) else None
    return (
        isinstance(held, cst.Attribute) and held.attr.value == "device" and is_device(held, place)
    )


def _asks_where(call: cst.Call, place: Place) -> bool:
    """Whether a tensor is asked for the number of its device: `x.get_device()`."""
    owner = place.receiver(call)
    return place.last_name(call) == "get_device" and owner is not None and place.on_device(owner)


def move_target(call: cst.Call, place: Place) -> cst.BaseExpression | Literal["cuda"] | None:
    """Where `x.to(device)`, `x.to(device=device)` or `x.cuda()` moves a tensor; None for what moves none,
    or does more than that."""
    if not isinstance(call.func, cst.Attribute):
        return None
    last = call.func.attr.value
    if last == "cuda" and not call.args:
        return "cuda"
    if last != "to" or not call.args:
        return None
    device: cst.BaseExpression | None = None
    for i, arg in enumerate(call.args):
        keyword = arg.keyword.value if arg.keyword is not None else ""
        if arg.star or keyword not in ("", "device", "non_blocking") or (not keyword and i > 0):
            return None
        if keyword != "non_blocking":
            device = arg.value
    return device if device is not None and is_device(device, place) else None


def moved_by(call: cst.Call, place: Place) -> cst.BaseExpression | Literal["cuda"] | None:
    """Where the result of a call is moved at once: the device of ``call(...).to(device)``."""
    outer = method_call(call, place)
    return move_target(outer, place) if outer is not None else None


def device_of(call: cst.Call, place: Place) -> cst.BaseExpression | Literal["cuda"] | None:
    """The device, not the CPU, that a call puts its new tensor on: by its argument, or moved at once."""
    given = place.argument(call, None, "device")
    if given is not None:
        return None if names_cpu(given, place) else given
    return moved_by(cast_by(call, place), place)


def cast_by(call: cst.Call, place: Place) -> cst.Call:
    """What casts make at once of what a call gives: `torch.zeros(n).long()` of `torch.zeros(n)`."""
    while (outer := method_call(call, place)) is not None:
        if outer.args or place.last_name(outer) not in CASTS:
            break
        call = outer
    return call


def follows_a_tensor(call: cst.Call, place: Place) -> bool:
    """Whether what a call makes is moved at once to where another tensor is: `torch.tensor(0).to(x)`."""
    outer = method_call(cast_by(call, place), place)
    return (
        outer is not None
        and place.last_name(outer) in ("to", "type_as")
        and len(outer.args) == 1
        and place.on_device(outer.args[0].value)
    )
