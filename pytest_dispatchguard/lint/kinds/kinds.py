"""What a value can be, as far as reading tells: surely a tensor, maybe one, surely something else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

What = Literal[
    "tensor",
    "module",
    "modules",
    "scalar",
    "text",
    "nested",
    "function",
    "none",
    "other",
    "unknown",
]
Dtype = Literal["bool", "int", "float", ""]


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of one expression at one place."""

    what: What = "unknown"
    """`modules` is a ModuleList or Sequential, `nested` a tuple, list or dict, `scalar` a Python number or
    bool, `other` surely none of the rest (a NumPy array, a dtype, a device)."""
    sure: bool = True
    """False: maybe. Never look at `what` alone; use `is_tensor`, `maybe_tensor`, `not_tensor`."""
    host: bool = False
    """Of a tensor: surely on the CPU, so reading it waits for nothing. Of a device: surely the CPU."""
    dtype: Dtype = ""
    ndim: int | None = None
    """Of a tensor: its number of dimensions, where known (0 for full reductions)."""
    element: Kind | None = None
    """Of a nested value, and of what may be one: what iterating gives."""
    items: tuple[Kind, ...] | None = None
    """Of a tuple of known length: its parts."""
    cls: str = ""
    """Of an instance: the dotted name of its class."""
    optional: bool = False
    """May be None as well."""
    roaming: bool = False
    """Of a tensor: made on the CPU and perhaps moved since, as attributes and globals may be."""
    built: bool = False
    """Of a tensor: made anew from Python data in this very function (`torch.tensor([1, 2])`)."""
    either: Kind | None = None
    """Of what may be a tensor, by an annotation or because a module gave it: the only other thing that it
    can be."""

    @property
    def is_tensor(self) -> bool:
        """Surely a tensor (or None, where `optional`)."""
        return self.what == "tensor" and self.sure

    @property
    def maybe_tensor(self) -> bool:
        """Surely or maybe a tensor; False for what is surely something else and for the unknown."""
        return self.what == "tensor"

    @property
    def not_tensor(self) -> bool:
        """Surely no tensor."""
        return self.what not in ("tensor", "unknown") and self.sure

    @property
    def on_device(self) -> bool:
        """Surely a tensor, and one that nothing says may live on the CPU: reading it may wait."""
        return self.is_tensor and not self.host and not self.roaming

    @property
    def is_empty(self) -> bool:
        """A list or table with nothing in it so far."""
        return self.what == "nested" and self.items == ()

    def maybe(self) -> Kind:
        """The same, less surely."""
        return replace(self, sure=False)

    def used(self) -> Kind:
        """The same, where something is done with it that only a tensor, and no container, allows."""
        is_tensor = self.either is not None and self.either.what == "nested"
        return replace(self, sure=True, either=None) if is_tensor else self


UNKNOWN = Kind()
SCALAR = Kind("scalar")
TEXT = Kind("text")
NONE = Kind("none")
OTHER = Kind("other")
FUNCTION = Kind("function")
MODULE = Kind("module")
TENSOR = Kind("tensor")
SHAPE = Kind("nested", element=SCALAR, cls="torch.Size")
TENSORS = Kind("nested", element=TENSOR)
NESTED = Kind("nested", element=UNKNOWN)
DICT = Kind("nested", element=UNKNOWN, cls="dict")
OUTPUT = Kind("tensor", sure=False, either=NESTED)
"""What a module gives: a tensor, or something that holds some."""
EMPTY = Kind("nested", items=())
EMPTY_DICT = Kind("nested", items=(), cls="dict")


def join(a: Kind, b: Kind) -> Kind:
    """What is true of a value that is one or the other."""
    if a == b:
        return a
    if a.what == "none" and b.what != "none":
        return replace(b, optional=True)
    if b.what == "none" and a.what != "none":
        return replace(a, optional=True)
    if a.is_empty != b.is_empty and a.what == b.what and a.cls == b.cls:
        return b if a.is_empty else a  # nothing that is in the one contradicts the other
    if a.what == b.what:
        element = join(a.element, b.element) if a.element and b.element else None
        same_items = a.items if a.items == b.items else None
        return Kind(
            a.what,
            sure=a.sure and b.sure,
            host=a.host and b.host,
            dtype=a.dtype if a.dtype == b.dtype else "",
            ndim=a.ndim if a.ndim == b.ndim else None,
            element=element,
            items=same_items,
            cls=a.cls if a.cls == b.cls else "",
            optional=a.optional or b.optional,
            roaming=a.roaming or b.roaming,
            built=a.built and b.built,
        )
    if "tensor" in (a.what, b.what):
        tensor = a if a.what == "tensor" else b
        return replace(tensor, sure=False, either=None)
    unions = [k for k in (a, b) if k.what == "unknown" and k.cls and not k.cls.startswith("?")]
    if len(unions) == 1 and "nested" in (a.what, b.what):
        # One, or a list or table of such: attributes are those of the one.
        return replace(unions[0], element=(a if a.what == "nested" else b).element)
    return UNKNOWN


def filled(container: Kind, value: Kind) -> Kind:
    """A list or table after one more value has been put in."""
    if container.is_empty:
        return replace(container, items=None, element=value)
    if container.element is None or container.element.what == "unknown":
        return container
    return replace(container, items=None, element=join(container.element, value))


def element_of(kind: Kind) -> Kind:
    """What iterating over a value gives."""
    if kind.what == "nested":
        if kind.cls == "dict":
            return UNKNOWN  # its keys
        if kind.element is not None and kind.element.what != "unknown":
            return kind.element
        if kind.items:
            out = kind.items[0]
            for item in kind.items[1:]:
                out = join(out, item)
            return out
        return UNKNOWN
    if kind.what == "tensor":
        return replace(kind, ndim=None, optional=False)
    if kind.what == "modules":
        return MODULE
    if kind.what == "text":
        return TEXT
    return UNKNOWN
