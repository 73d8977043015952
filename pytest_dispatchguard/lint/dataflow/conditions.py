"""Expressions that are tested: conditions, `and`, `or`, `not`, comparisons, conditional expressions."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from pytest_dispatchguard.lint.dataflow.branches import gives_nan
from pytest_dispatchguard.lint.dataflow.narrowing import decided, narrow
from pytest_dispatchguard.lint.dataflow.reader import Reader
from pytest_dispatchguard.lint.kinds.kinds import SCALAR, UNKNOWN, Kind, join
from pytest_dispatchguard.lint.kinds.placement import placed
from pytest_dispatchguard.lint.knowledge import cold_branches
from pytest_dispatchguard.lint.syntax.spelling import text


def read_condition(reader: Reader, node: cst.BaseExpression) -> Kind:
    """Read an expression whose truth value is tested."""
    if type(node) is cst.BooleanOperation:
        return read_boolean(reader, node, tested=True)
    if type(node) is cst.UnaryOperation and type(node.operator) is cst.Not:
        read_condition(reader, node.expression)
        reader.parents[id(node.expression)] = node
        reader.kinds[id(node)] = SCALAR
        return SCALAR
    if type(node) is cst.NamedExpr:
        kind = reader.read(node)
        reader.emit("truth", node.value)
        return kind
    kind = reader.read(node)
    reader.emit("truth", node)
    return kind


def read_boolean(reader: Reader, node: cst.BooleanOperation, tested: bool = False) -> Kind:
    """Read a chain of `and`, or of `or`, operand by operand, without recursion over its length."""
    conjunction = isinstance(node.operator, cst.And)
    chain = [node]
    while (
        isinstance(left := chain[-1].left, cst.BooleanOperation)
        and isinstance(left.operator, cst.And) is conjunction
    ):
        chain.append(left)
    chain.reverse()
    before: cst.BaseExpression = chain[0].left
    kind = read_condition(reader, before)
    saved, scene = reader.names, reader.scene
    reader.names = saved.copy()
    for one in chain:
        narrow(reader, before, conjunction)
        if decided(reader, before) is (not conjunction):
            reader.scene = replace(scene, cold=True)  # never evaluated
        before = one.right
        right = read_condition(reader, before) if tested or one is not node else reader.read(before)
        reader.parents[id(one.left)] = reader.parents[id(one.right)] = one
        reader.kinds[id(one)] = kind = join(kind, right)
    reader.names, reader.scene = saved, scene
    return kind


def read_comparison(reader: Reader, node: cst.Comparison) -> Kind:
    """Read a comparison."""
    kinds = [reader.read(node.left)]
    reader.parents[id(node.left)] = node
    identity = False
    for part in node.comparisons:
        kinds.append(reader.read(part.comparator))
        reader.parents[id(part.comparator)] = node
        identity = identity or isinstance(part.operator, cst.Is | cst.IsNot | cst.In | cst.NotIn)
    reader.emit("comparison", node)
    if identity:
        return SCALAR
    tensors = [k for k in kinds if k.what == "tensor"]
    if not tensors:
        whats = {k.what for k in kinds}
        return (
            SCALAR
            if whats <= {"scalar", "text", "none"} or "text" in whats or "other" in whats
            else UNKNOWN
        )
    if any(k.what in ("none", "text") for k in kinds):
        return SCALAR
    kinds = [k.used() for k in kinds]
    surest = any(k.sure for k in kinds if k.what == "tensor")
    ndim = 0 if all(k.what == "scalar" or k.ndim == 0 for k in kinds) else None
    return placed(Kind("tensor", sure=surest, dtype="bool", ndim=ndim), kinds)


def read_conditional(reader: Reader, node: cst.IfExp) -> Kind:
    """Read ``a if test else b``."""
    read_condition(reader, node.test)
    reader.parents[id(node.test)] = node
    saved = reader.names
    reader.names = saved.copy()
    narrow(reader, node.test, True)
    scene, holds = reader.scene, decided(reader, node.test)
    body_cold, else_cold = cold_branches.cold_branches(text(node.test))
    body_cold = body_cold or holds is False or gives_nan(node.body)
    else_cold = else_cold or holds is True or gives_nan(node.orelse)
    reader.scene = replace(scene, cold=scene.cold or body_cold)
    body = reader.read(node.body, node)
    reader.names = saved.copy()
    narrow(reader, node.test, False)
    reader.scene = replace(scene, cold=scene.cold or else_cold)
    orelse = reader.read(node.orelse, node)
    reader.names, reader.scene = saved, scene
    return join(body, orelse)
