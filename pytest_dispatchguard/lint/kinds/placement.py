"""Where tensors are: on the CPU, on a device, or nobody knows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_dispatchguard.lint.kinds.kinds import UNKNOWN, Kind


def on_cpu(kind: Kind) -> Kind:
    """The same, where its tensors are known to be on the CPU."""
    if kind.what == "nested":
        element = on_cpu(kind.element) if kind.element is not None else None
        items = tuple(map(on_cpu, kind.items)) if kind.items is not None else None
        return replace(kind, element=element, items=items)
    if kind.what == "tensor":
        return replace(kind, host=True)
    return (
        Kind("tensor", sure=False, host=True) if kind.what == "unknown" and not kind.cls else kind
    )


def moved_to(made: Kind, keywords: Mapping[str, Kind], texts: Mapping[str, str]) -> Kind:
    """A tensor like another, which an argument may put elsewhere."""
    device = texts.get("device", "")
    if device in ("", "None"):
        return made
    on_cpu = CPU.search(device) is not None or keywords.get("device", UNKNOWN).host
    return replace(made, host=on_cpu)


def tensors_in(args: Sequence[Kind]) -> list[Kind]:
    """The tensors among arguments, and in the lists and tuples among them."""
    out: list[Kind] = []
    for a in args:
        if a.what == "tensor":
            out.append(a)
        elif a.what == "nested":
            out.extend(i for i in (a.items or (a.element,)) if i is not None and i.what == "tensor")
    return out


def placed(result: Kind, parts: Sequence[Kind]) -> Kind:
    """What an operation gives, with what its operands tell of where it is: on the CPU when a CPU tensor is
    among them and no other. A CPU tensor of no dimension goes with tensors of any device, so that beside an
    unknown operand it proves nothing: then nobody is sure."""
    tensors = tensors_in(parts)
    hosts = [t for t in tensors if t.host]
    if not tensors and parts and all(p.what in ("scalar", "text", "none") for p in parts):
        return replace(result, host=True)  # `torch.div(7, 2)` makes its tensor of numbers
    if not tensors and parts and parts[0].what == "scalar":
        return replace(result, sure=False)  # `torch.div(x.size(1), n)`: of a number or of a tensor
    if hosts and not any(t.sure and not t.host for t in tensors) and len(hosts) < len(tensors):
        return replace(result, host=False, sure=False)  # what is not on the CPU may be no tensor
    if not hosts or len(hosts) < len(tensors):
        roams = any(t.roaming for t in tensors) and not any(t.on_device for t in tensors)
        return replace(result, host=False, roaming=roams)
    if any(_may_hold_more(p) for p in parts) and not any(_has_dimensions(t) for t in hosts):
        return replace(result, host=False, sure=False)
    return replace(result, host=True)


def followed(result: Kind, parts: Sequence[Kind]) -> Kind:
    """What a function of the project gives, with what its arguments tell of where it is: on the CPU when all
    the tensors among them are, and nobody is sure where they come from tables of unsure values. What is in a
    tuple that it makes of tensors alone may be one, where these are."""
    tensors = tensors_in(parts)
    host = bool(tensors) and all(t.host for t in tensors)
    tables = any(p.cls == "dict" and p.element is not None and not p.element.sure for p in parts)
    alone = bool(tensors) and all(p.what in ("tensor", "scalar", "text", "none") for p in parts)
    roams = alone and all(t.host or t.roaming for t in tensors)
    if any(t.on_device for t in tensors) or not (host or tables or roams):
        return result

    def moved(kind: Kind) -> Kind:
        if roams and kind == UNKNOWN:
            return Kind("tensor", sure=False, host=host, roaming=not host)
        if kind.what == "tensor" and (host or tables):
            return replace(kind, host=kind.host or host, sure=kind.sure and host)
        if kind.what != "nested":
            return kind
        return replace(
            kind,
            element=moved(kind.element) if kind.element is not None else None,
            items=tuple(moved(i) for i in kind.items) if kind.items is not None else None,
        )

    return moved(result)


def _may_hold_more(kind: Kind) -> bool:
    """Whether a value may be, or hold, tensors that are not known."""
    return kind.what == "unknown" or (kind.what == "nested" and not (kind.items or kind.element))


def _has_dimensions(tensor: Kind) -> bool:
    return tensor.ndim != 0 and not (tensor.built and tensor.ndim is None)


CPU = re.compile(r"""["']cpu(?::\d+)?["']""")
