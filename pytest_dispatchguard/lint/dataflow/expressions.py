"""Operators, strings, lambdas; and `EXPRESSIONS`, which says how each type of expression is read."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from pytest_dispatchguard.lint.dataflow.calls import read_call
from pytest_dispatchguard.lint.dataflow.conditions import (
    read_boolean,
    read_comparison,
    read_condition,
    read_conditional,
)
from pytest_dispatchguard.lint.dataflow.containers import (
    read_comprehension,
    read_dict,
    read_sequence,
)
from pytest_dispatchguard.lint.dataflow.lookups import read_attribute, read_name, read_subscript
from pytest_dispatchguard.lint.dataflow.reader import Handler, Reader
from pytest_dispatchguard.lint.kinds.kinds import (
    FUNCTION,
    NESTED,
    OTHER,
    SCALAR,
    TEXT,
    UNKNOWN,
    Kind,
)
from pytest_dispatchguard.lint.kinds.placement import placed


def _binary(reader: Reader, node: cst.BinaryOperation) -> Kind:
    left = reader.read(node.left, node)
    right = reader.read(node.right, node)
    bitwise = isinstance(node.operator, cst.BitAnd | cst.BitOr | cst.BitXor)
    kind = arithmetic_kind(left, right)
    if kind.what == "tensor" and bitwise and "bool" in (left.dtype, right.dtype):
        return replace(kind, dtype="bool")
    if type(node.operator) is cst.Multiply and left.dtype == right.dtype == "bool":
        return replace(kind, dtype="bool")
    if left.what == "text":
        return TEXT
    if kind.what in ("tensor", "unknown") and _adds_a_list(node):
        return NESTED  # to a tensor no list can be added
    return kind


def _adds_a_list(node: cst.BinaryOperation) -> bool:
    """Whether a list that is written down is added to something: ``[0] + x``."""
    return type(node.operator) is cst.Add and cst.List in (type(node.left), type(node.right))


def _unary(reader: Reader, node: cst.UnaryOperation) -> Kind:
    if isinstance(node.operator, cst.Not):
        return read_condition(reader, node)
    kind = reader.read(node.expression, node)
    return kind if kind.what in ("tensor", "scalar") else UNKNOWN


def _lambda(reader: Reader, node: cst.Lambda) -> Kind:
    reader.emit("lambda", node)
    saved, outer, bound = reader.names, reader.scene, reader.last_values
    reader.names, reader.last_values = saved.copy(), {}
    reader.scene = replace(outer, deferred=True)
    for p in [*node.params.posonly_params, *node.params.params, *node.params.kwonly_params]:
        if p.default is not None:
            reader.read(p.default)
        reader.bind_name(p.name.value, UNKNOWN)
    reader.read(node.body, node)
    reader.names, reader.scene, reader.last_values = saved, outer, bound
    return FUNCTION


def _named(reader: Reader, node: cst.NamedExpr) -> Kind:
    kind = reader.read(node.value, node)
    reader.bind(node.target, kind, node.value)
    return kind


def _fstring(reader: Reader, node: cst.FormattedString) -> Kind:
    for part in node.parts:
        if isinstance(part, cst.FormattedStringExpression):
            reader.read(part.expression, node)
    reader.emit("fstring", node)
    return TEXT


def _concatenated(reader: Reader, node: cst.ConcatenatedString) -> Kind:
    reader.read(node.left, node)
    reader.read(node.right, node)
    return TEXT


def _await(reader: Reader, node: cst.Await) -> Kind:
    reader.read(node.expression, node)
    return UNKNOWN


def _yield(reader: Reader, node: cst.Yield) -> Kind:
    value = node.value
    inner = value.item if isinstance(value, cst.From) else value
    if inner is not None:
        reader.read(inner, node)
    return UNKNOWN


def arithmetic_kind(left: Kind, right: Kind) -> Kind:
    """The kind of ``left + right`` and of the other arithmetic operators."""
    tensors = [k for k in (left, right) if k.what == "tensor"]
    if tensors:
        if any(k.what in ("nested", "text", "none") for k in (left, right)):
            return UNKNOWN if any(k.what == "text" for k in (left, right)) else tensors[0].maybe()
        left, right = left.used(), right.used()
        tensors = [k for k in (left, right) if k.what == "tensor"]
        sure = any(k.sure for k in tensors)
        zero = all(k.what == "scalar" or k.ndim == 0 for k in (left, right))
        whole = Kind("tensor", sure=sure, ndim=0 if zero else None)
        return placed(whole, (left, right))
    if left.what == right.what == "scalar":
        return SCALAR
    if left.what == "nested" and right.what in ("nested", "scalar"):
        return Kind("nested", element=left.element)
    if left.cls == "numpy" or right.cls == "numpy":
        return Kind("other", cls="numpy")
    return UNKNOWN


def _constant(kind: Kind) -> Handler:
    return lambda reader, node: kind


EXPRESSIONS: dict[type, Handler] = {
    cst.Name: read_name,
    cst.Attribute: read_attribute,
    cst.Call: read_call,
    cst.Subscript: read_subscript,
    cst.BinaryOperation: _binary,
    cst.UnaryOperation: _unary,
    cst.Comparison: read_comparison,
    cst.BooleanOperation: read_boolean,
    cst.IfExp: read_conditional,
    cst.Tuple: read_sequence,
    cst.List: read_sequence,
    cst.Set: read_sequence,
    cst.Dict: read_dict,
    cst.ListComp: read_comprehension,
    cst.SetComp: read_comprehension,
    cst.GeneratorExp: read_comprehension,
    cst.DictComp: read_comprehension,
    cst.Lambda: _lambda,
    cst.NamedExpr: _named,
    cst.FormattedString: _fstring,
    cst.ConcatenatedString: _concatenated,
    cst.Await: _await,
    cst.Yield: _yield,
    cst.Integer: _constant(Kind("scalar", dtype="int")),
    cst.Float: _constant(Kind("scalar", dtype="float")),
    cst.Imaginary: _constant(SCALAR),
    cst.SimpleString: _constant(TEXT),
    cst.Ellipsis: _constant(OTHER),
}
