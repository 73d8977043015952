"""Statements that bind names: assignments, deletions, imports."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from pytest_dispatchguard.lint.dataflow.expressions import arithmetic_kind
from pytest_dispatchguard.lint.dataflow.lookups import read_indices
from pytest_dispatchguard.lint.dataflow.reader import Reader
from pytest_dispatchguard.lint.kinds.kinds import UNKNOWN, Kind, element_of, filled
from pytest_dispatchguard.lint.syntax.spelling import dotted


def read_assign(reader: Reader, node: cst.Assign) -> None:
    """Read ``x = y = value``."""
    kind = reader.read(node.value, node)
    reader.emit("assign", node)
    for target in node.targets:
        _read_target(reader, target.target, node)
        reader.bind(target.target, kind, node.value)
        _note_entry(reader, target.target, kind)


def _note_entry(reader: Reader, target: cst.BaseExpression, value: Kind) -> None:
    """Record that a dict holds one more value, of the kind of the others: ``losses["box"] = value``."""
    if not isinstance(target, cst.Subscript) or not isinstance(target.value, cst.Name):
        return
    known = reader.names.kinds.get(target.value.value)
    if known is None or known.what != "nested" or known.cls != "dict":
        return
    kinds = {kind.what for kind in (known.element, value) if kind is not None} - {"unknown"}
    if "nested" in kinds or len(kinds) > 1:  # keys are not told apart
        known, value = replace(known, items=None, element=UNKNOWN), UNKNOWN
    reader.names.kinds[target.value.value] = filled(known, value)


def read_annotated_assign(reader: Reader, node: cst.AnnAssign) -> None:
    """Read ``x: Tensor = value``, or the annotation alone."""
    kind = reader.annotation(node.annotation.annotation)
    if node.value is not None:
        value = reader.read(node.value, node)
        if value.what != "unknown" or kind.what == "unknown":
            kind = value if not (value.what == "none" and kind.what != "unknown") else kind
        reader.emit("assign", node)
        _read_target(reader, node.target, node)
        reader.bind(node.target, kind, node.value)
    else:
        reader.bind(node.target, kind, None)


def read_augmented_assign(reader: Reader, node: cst.AugAssign) -> None:
    """Read ``x += value``."""
    old = reader.read(node.target)
    value = reader.read(node.value, node)
    reader.emit("assign", node)
    _read_target(reader, node.target, node)
    kind = old if old.what == "tensor" else arithmetic_kind(old, value)
    if isinstance(node.target, cst.Name | cst.Attribute):
        reader.bind(node.target, kind, None)


def _read_target(reader: Reader, target: cst.BaseExpression, statement: cst.CSTNode) -> None:
    if type(target) is cst.Subscript:
        base = reader.read(target.value, target)
        read_indices(reader, target)
        reader.kinds[id(target)] = element_of(base)
        reader.emit("setitem", statement)
    elif type(target) is cst.Attribute:
        reader.read(target.value)
        if (
            type(target.value) is cst.Name
            and target.value.value == reader.self_name
            and reader.self_name
        ):
            reader.emit("attribute-write", statement, target.attr.value)
    elif isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            _read_target(reader, element.value, statement)


def read_delete(reader: Reader, node: cst.Del) -> None:
    """Read ``del x`` or ``del xs[0]``."""
    if isinstance(node.target, cst.Name):
        reader.names.kinds.pop(node.target.value, None)
    elif isinstance(node.target, cst.Subscript):
        reader.read(node.target.value)


def read_import(reader: Reader, node: cst.Import | cst.ImportFrom) -> None:
    """Read an import inside the function."""
    reader.emit("import", node)
    if isinstance(node.names, cst.ImportStar):
        return
    prefix = ""
    if isinstance(node, cst.ImportFrom):
        module = dotted(node.module) if node.module is not None else ""
        if node.relative:
            package = reader.brief.module.split(".")
            package = (
                package[: len(package) - len(node.relative)]
                if len(node.relative) <= len(package)
                else []
            )
            module = ".".join([*package, *([module] if module else [])])
        prefix = f"{module}." if module else ""
    for alias in node.names:
        target = dotted(alias.name) or ""
        if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
            local = alias.asname.name.value
        elif prefix:
            local = target
        else:
            local = target = target.partition(".")[0]
        reader.names.imports[local] = prefix + target
        reader.names.kinds.pop(local, None)
