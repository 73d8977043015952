"""Fixes of tensors that are made of Python data on every call: made on the device, or kept."""

from __future__ import annotations

import re

import libcst as cst

from pytest_dispatchguard import Fix, Place, nodes

from ...syntax import assigned, method_call
from ..data import FROM_DATA, is_number
from ..devices import move_target

_OF_THEIR_OWN = {
    "0": "zeros",
    "0.0": "zeros",
    "0.": "zeros",
    "1": "ones",
    "1.0": "ones",
    "1.": "ones",
}
_MOST = 8
"""Tensors that the function of a constant keeps."""


def _sized(data: cst.BaseExpression) -> tuple[tuple[int, ...], list[cst.BaseExpression]] | None:
    """The shape of a table written down, and its numbers; None where it is ragged."""
    if not isinstance(data, cst.List | cst.Tuple):
        return (), [data]
    inner = [_sized(e.value) for e in data.elements if isinstance(e, cst.Element)]
    known = [one for one in inner if one is not None]
    if len(known) != len(data.elements) or len({shape for shape, _ in known}) != 1:
        return None
    return (len(known), *known[0][0]), [number for _, numbers in known for number in numbers]


def filled(node: cst.Call, data: cst.BaseExpression, place: Place) -> Fix | None:
    """`torch.full((2,), 0.5, …)` for `torch.tensor([0.5, 0.5], …)`: of one number, however often it is there;
    zeros and ones have functions of their own."""
    found = _sized(data)
    if found is None or not found[0] or len({place.text(n) for n in found[1]}) != 1:
        return None
    shape, number = found[0], found[1][0]
    if not is_number(number, place):
        return None
    rest = _further(node, data, place)
    if rest is None or rest.keys() - {"dtype", "device"}:
        return None
    receiver = place.receiver(node)
    own = place.last_name(node) == "new_tensor" and receiver is not None
    # Without a dtype, that of `full` follows the number; that of `zeros` does not.
    told = place.text(number)
    of_its_own = _OF_THEIR_OWN.get(told) if own or "dtype" in rest or "." in told else None
    if own and receiver is not None:
        function = f"{place.text(receiver)}.new_{of_its_own or 'full'}"
    elif place.name(node) in FROM_DATA:
        function = place.spelling(f"torch.{of_its_own or 'full'}")
    else:
        return None
    size = ", ".join(map(str, shape))
    if of_its_own is None:
        size = f"({size}{',' if len(shape) == 1 else ''}), {told}"
    given = [size, *(f"{k}={v}" for k, v in rest.items())]
    if not function or "\n" in "".join(given):
        return None
    return place.replace(
        node, f"{function}({', '.join(given)})", safety="safe", message="Fill it on the device"
    )


def _further(node: cst.Call, data: cst.BaseExpression, place: Place) -> dict[str, str] | None:
    """The arguments of a call beside its data, by keyword; None where one has none."""
    rest = [a for a in node.args if a.value is not data]
    if any(a.star or a.keyword is None for a in rest):
        return None
    return {a.keyword.value: place.text(a.value) for a in rest if a.keyword is not None}


def kept(node: cst.Call, data: cst.BaseExpression, place: Place) -> Fix | None:
    """A function at module level that builds the constant once for each device and dtype, and its call."""
    rest = _further(node, data, place)
    if rest is None or rest.keys() - {"dtype", "device"} or _of_the_call(data, place):
        return None
    whole: cst.BaseExpression = node
    if place.last_name(node) == "new_tensor":
        receiver = place.receiver(node)
        like = place.dotted(receiver) if receiver is not None else ""
        if not like:
            return None
        rest = {"device": f"{like}.device", "dtype": f"{like}.dtype", **rest}
    elif place.name(node) not in FROM_DATA:
        return None
    outer = method_call(node, place)
    target = move_target(outer, place) if outer is not None else None
    if outer is not None and target is not None and "device" not in rest:
        whole = outer
        rest["device"] = '"cuda"' if target == "cuda" else place.text(target)
    if "device" not in rest or "\n" in "".join(rest.values()) or "#" in place.text(whole):
        return None
    held = assigned(whole, place)
    last = place.qualname.rpartition(".")[2].strip("_").lower()
    name = f"_{last}_{held.value.strip('_').lower() if held is not None else 'constant'}"
    source = re.sub(r"\s*\n\s*", " ", place.text(data))
    torch = place.spelling("torch.tensor")
    if not torch.endswith(".tensor") or "#" in source:
        return None
    definition = (
        f"@functools.lru_cache(maxsize={_MOST})\n"
        f"def {name}(**where):\n"
        f"    with {torch.removesuffix('tensor')}inference_mode(False):\n"
        f"        return {torch}({source}, **where)"
    )
    return place.replace(
        whole,
        f"{name}({', '.join(f'{k}={v}' for k, v in rest.items())})",
        safety="unsafe",
        message="Build it once for each device and dtype; every call gives the same tensor",
        imports=("import functools",),
        definitions=(definition,),
    )


def _of_the_call(data: cst.BaseExpression, place: Place) -> bool:
    """Whether data is made of what only the call has: its names, its instance."""
    return any(
        place.assignments(n.value) or n.value == place.self_name for n in nodes.names_in(data)
    )


def made_there(node: cst.Call, data: cst.BaseExpression, place: Place) -> Fix | None:
    """`torch.arange(n, device=…)` for a tensor of `list(range(n))`; for numbers that differ from call to
    call, a copy from pinned memory that the host does not wait for."""
    rest = _further(node, data, place)
    if rest is None or place.name(node) not in FROM_DATA or "#" in place.text(node):
        return None
    inner = data.args[0].value if isinstance(data, cst.Call) and len(data.args) == 1 else data
    if (
        isinstance(inner, cst.Call)
        and place.name(inner) == "range"
        and not rest.keys() - {"dtype", "device"}
    ):
        if any(a.star or a.keyword for a in inner.args) or not place.spelling("torch.arange"):
            return None
        given = [*(place.text(a.value) for a in inner.args), *(f"{k}={v}" for k, v in rest.items())]
        return place.replace(
            node,
            f"{place.spelling('torch.arange')}({', '.join(given)})",
            safety="unsafe",
            message="Count on the device; an empty range gives integers",
        )
    return _pinned(node, data, rest, place)


def _pinned(
    node: cst.Call, data: cst.BaseExpression, rest: dict[str, str], place: Place
) -> Fix | None:
    device = place.argument(node, None, "device")
    listed = isinstance(data, cst.List | cst.Tuple | cst.ListComp)
    if device is None or not listed or rest.keys() - {"dtype", "device"}:
        return None
    if not isinstance(device, cst.Attribute) or device.attr.value != "device":
        return None
    if (
        not place.is_tensor(device.value)
        or not place.dotted(device)
        or not place.spelling("torch.tensor")
    ):
        return None
    like = place.dotted(device.value)
    given = [place.text(data), *(f"{k}={v}" for k, v in rest.items() if k != "device")]
    if "\n" in "".join(given):
        return None
    return place.replace(
        node,
        f"{place.spelling('torch.tensor')}({', '.join(given)}, pin_memory={like}.is_cuda)"
        f".to({like}.device, non_blocking=True)",
        safety="unsafe",
        message="Copy from pinned memory without waiting; takes page-locked memory on each call",
    )
