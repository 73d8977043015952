"""Names, attributes and subscripts that are read."""

from __future__ import annotations

import re
from dataclasses import replace

import libcst as cst

from pytest_dispatchguard.lint.dataflow.reader import CPU_NAME, Reader
from pytest_dispatchguard.lint.kinds.fact_values import field_kind
from pytest_dispatchguard.lint.kinds.kinds import (
    MODULE,
    NONE,
    OTHER,
    SCALAR,
    TENSOR,
    TEXT,
    UNKNOWN,
    Kind,
)
from pytest_dispatchguard.lint.kinds.methods import attribute_kind
from pytest_dispatchguard.lint.kinds.placement import on_cpu
from pytest_dispatchguard.lint.syntax.spelling import dotted


def read_name(reader: Reader, node: cst.Name) -> Kind:
    """Read a plain name."""
    name = node.value
    reader.used[name] = reader.used.get(name, 0) + 1
    value = reader.names.values.get(name)
    if value is not None:
        reader.values[id(node)] = value
    resolved = reader.resolve(node)
    if resolved is not None:
        reader.dotted_names[id(node)] = resolved
    if name in ("True", "False"):
        return Kind("scalar", dtype="bool")
    if name == "None":
        return NONE
    return reader.lookup(name)


_RANKS = re.compile(r"(?:^|[._])mesh\.mesh$")
"""The ranks of a device mesh, which are on the CPU."""


def read_attribute(reader: Reader, node: cst.Attribute) -> Kind:
    """Read an attribute that is not called."""
    base = reader.read(node.value, node)
    reader.emit("attribute", node, node.attr.value)
    return kind_of_attribute(reader, node, base)


def kind_of_attribute(reader: Reader, node: cst.Attribute, base: Kind) -> Kind:
    """The kind of an attribute of a value whose kind is `base`; its dotted name is noted as well."""
    name = dotted(node)
    resolved = reader.resolve(node)
    if resolved is not None:
        reader.dotted_names[id(node)] = resolved
    if name is not None:
        value = reader.names.values.get(name)
        if value is not None:
            reader.values[id(node)] = value
        kind = reader.lookup(name)
        if kind.what != "unknown" or kind.cls:
            if kind.what == "tensor" and CPU_NAME.search(name):
                return replace(kind, host=True)
            return kind
    if resolved is not None and resolved.startswith("torch."):
        if resolved in ("torch.inf", "torch.pi", "torch.nan", "torch.e"):
            return SCALAR
        return OTHER
    if resolved in ("math.pi", "math.e", "math.inf", "math.nan", "math.tau"):
        return SCALAR
    held = reader.brief.fields.get(base.cls, {}).get(node.attr.value) if base.cls else None
    if held:
        return field_kind(tuple(held), reader.tensor_types)
    found = attribute_kind(base, node.attr.value)
    if found is None and name is not None and _RANKS.search(name):
        return on_cpu(TENSOR.maybe())
    return found if found is not None else UNKNOWN


def read_subscript(reader: Reader, node: cst.Subscript) -> Kind:
    """Read a subscript that is not assigned to."""
    base = reader.read(node.value, node)
    indices = read_indices(reader, node)
    reader.emit("getitem", node)
    kind = _item_kind(node, base, indices)
    return on_cpu(kind) if _names_the_cpu(node) else kind


def _item_kind(node: cst.Subscript, base: Kind, indices: list[Kind | None]) -> Kind:
    """What a subscript gives."""
    name = dotted(node.value)
    if name is not None and name.endswith(".shape"):
        return SCALAR if indices and indices[0] is not None else base
    if base.what == "nested":
        if len(indices) == 1 and isinstance(node.slice[0].slice, cst.Slice):
            return Kind("nested", element=base.element)
        if base.items is not None and len(node.slice) == 1:
            index = node.slice[0].slice
            if isinstance(index, cst.Index):
                at = _integer(index.value)
                if at is not None and -len(base.items) <= at < len(base.items):
                    return base.items[at]
        if base.element is not None:
            return base.element
        return UNKNOWN
    if base.what == "tensor":
        one = len(indices) == 1 and indices[0] is not None and indices[0].what == "scalar"
        return replace(base, ndim=0 if one and base.ndim == 1 else None, optional=False)
    if base.what == "modules":
        return base if isinstance(node.slice[0].slice, cst.Slice) else MODULE
    if base.what == "unknown" and not base.cls and any(i and _is_mask(i) for i in indices):
        return TENSOR  # only tensors are indexed with a mask on a device
    return UNKNOWN if base.what != "text" else TEXT


def read_indices(reader: Reader, node: cst.Subscript) -> list[Kind | None]:
    """Read what stands in the brackets: the kinds of indices, None for slices."""
    out: list[Kind | None] = []
    for element in node.slice:
        part = element.slice
        if isinstance(part, cst.Index):
            out.append(reader.read(part.value))
            reader.parents[id(part.value)] = node
        else:
            assert isinstance(part, cst.Slice)
            for bound in (part.lower, part.upper, part.step):
                if bound is not None:
                    reader.read(bound, node)
            out.append(None)
    return out


def _names_the_cpu(node: cst.Subscript) -> bool:
    """Whether a key says that it stands for a CPU tensor: ``info["cpu_lengths"]``."""
    index = node.slice[0].slice
    if not isinstance(index, cst.Index) or not isinstance(index.value, cst.SimpleString):
        return False
    return CPU_NAME.search(str(index.value.evaluated_value)) is not None


def _is_mask(kind: Kind) -> bool:
    return kind.on_device and kind.dtype == "bool"


def _integer(node: cst.BaseExpression) -> int | None:
    if isinstance(node, cst.Integer):
        return int(node.evaluated_value)
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        inner = _integer(node.expression)
        return None if inner is None else -inner
    return None
