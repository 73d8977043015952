"""Tuples, lists, sets, dicts and comprehensions."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from pytest_dispatchguard.lint.dataflow.conditions import read_condition
from pytest_dispatchguard.lint.dataflow.narrowing import narrow
from pytest_dispatchguard.lint.dataflow.reader import Reader
from pytest_dispatchguard.lint.kinds.kinds import EMPTY, EMPTY_DICT, UNKNOWN, Kind, element_of, join


def read_sequence(reader: Reader, node: cst.Tuple | cst.List | cst.Set) -> Kind:
    """Read a tuple, list or set that is written out."""
    kinds: list[Kind] = []
    exact = True
    for element in node.elements:
        kind = reader.read(element.value, node)
        if type(element) is cst.StarredElement:
            exact = False
            reader.emit("iterate", element.value)
            kind = element_of(kind)
        kinds.append(kind)
    element_kind = UNKNOWN
    if not node.elements and isinstance(node, cst.List):
        return EMPTY
    if kinds:
        element_kind = kinds[0]
        for kind in kinds[1:]:
            element_kind = join(element_kind, kind)
    items = tuple(kinds) if exact and type(node) is cst.Tuple else None
    return Kind("nested", element=element_kind, items=items)


def read_dict(reader: Reader, node: cst.Dict) -> Kind:
    """Read a dict that is written out."""
    element_kind: Kind | None = None
    for element in node.elements:
        if isinstance(element, cst.DictElement):
            reader.read(element.key, node)
        kind = reader.read(element.value, node)
        if isinstance(element, cst.StarredDictElement):
            kind = kind.element or UNKNOWN
        element_kind = kind if element_kind is None else join(element_kind, kind)
    if element_kind is None:
        return EMPTY_DICT
    return Kind("nested", element=element_kind, cls="dict")


def read_comprehension(reader: Reader, node: cst.BaseComp, truth_of_element: bool = False) -> Kind:
    """Read a comprehension; `truth_of_element` where it is given to `any` or `all`."""
    reader.emit("comprehension", node)
    saved, outer = reader.names, reader.scene
    reader.names = saved.copy()
    clause: cst.CompFor | None = node.for_in
    while clause is not None:
        iterated = reader.read(clause.iter, node)
        reader.emit("iterate", clause.iter)
        reader.scene = replace(reader.scene, loops=(*reader.scene.loops, node))
        reader.bind(clause.target, element_of(iterated), None)
        for condition in clause.ifs:
            read_condition(reader, condition.test)
            reader.parents[id(condition.test)] = node
            narrow(reader, condition.test, True)
        clause = clause.inner_for_in
    if isinstance(node, cst.DictComp):
        reader.read(node.key, node)
        element = reader.read(node.value, node)
        cls = "dict"
    else:
        elt: cst.BaseExpression = node.elt  # type: ignore[attr-defined]  # the rest have it
        element = read_condition(reader, elt) if truth_of_element else reader.read(elt)
        reader.parents[id(elt)] = node
        cls = ""
    reader.names, reader.scene = saved, outer
    return Kind("nested", element=element, cls=cls)
