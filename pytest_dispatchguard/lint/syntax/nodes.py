"""Walks over the libcst nodes that mean something: statements, expressions, names.

libcst's own visitors also call on every space, comma and bracket, and rebuild the tree on the way; that
takes ten times as long as reading it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

import libcst as cst

_PUNCTUATION = frozenset(
    """leading_lines lines_after_decorators lines_after_module_docstring header footer lpar rpar
    lbracket rbracket lbrace rbrace comma semicolon dot colon first_colon second_colon equal operator
    star star_token posonly_ind asynchronous indent start end prefix encoding default_indent
    default_newline has_trailing_newline trailing_whitespace""".split()
)
_LABELS: dict[type[cst.CSTNode], frozenset[str]] = {
    cst.Arg: frozenset({"keyword"}),
    cst.Attribute: frozenset({"attr"}),
    cst.ClassDef: frozenset({"name"}),
    cst.FunctionDef: frozenset({"name"}),
    cst.Global: frozenset({"names"}),
    cst.ImportAlias: frozenset({"name", "asname"}),
    cst.ImportFrom: frozenset({"module", "relative"}),
    cst.Nonlocal: frozenset({"names"}),
    cst.Param: frozenset({"name"}),
}
"""Fields that hold names which are not looked up there."""
_FIRST = {
    "decorators": 0, "params": 1, "bases": 1, "keywords": 1, "returns": 2,
    "type": 1, "name": 2, "pattern": 1, "guard": 2,
}  # fmt: skip
"""Fields that libcst lists after a body they stand before."""


@cache
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """The fields of a kind of node that can hold nodes of note, last first."""
    labels = _LABELS.get(kind, frozenset())
    names = [
        f.name
        for f in dataclasses.fields(kind)
        if not f.name.startswith("whitespace") and f.name not in _PUNCTUATION | labels
    ]
    if "body" in names:
        names.sort(key=lambda n: _FIRST.get(n, 9))
    return tuple(reversed(names))


def walk(node: cst.CSTNode, without: Collection[type[cst.CSTNode]] = ()) -> Iterator[Any]:
    """The node and all below it, in the order of the source, without going into the given kinds.
    Spaces, punctuation and operators are left out, and so are names that are not looked up: of attributes,
    keywords, parameters, definitions and imports."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        kind = type(node)
        if kind in without:
            continue
        for name in _fields(kind):
            child = getattr(node, name)
            if isinstance(child, (list, tuple)):
                stack.extend(reversed(child))
            elif child is not None and type(child) not in _NO_NODES:
                stack.append(child)


_NO_NODES = frozenset({str, bool, int, float, cst.MaybeSentinel})


def around(node: cst.CSTNode) -> dict[int, cst.CSTNode]:
    """Of every node below, by identity: the node it stands in."""
    found: dict[int, cst.CSTNode] = {}
    stack = [node]
    while stack:
        node = stack.pop()
        for name in _fields(type(node)):
            child = getattr(node, name)
            children = child if isinstance(child, (list, tuple)) else (child,)
            for inner in children:
                if inner is not None and type(inner) not in _NO_NODES:
                    found[id(inner)] = node
                    stack.append(inner)
    return found


def names_in(node: cst.CSTNode) -> list[cst.Name]:
    """The names that a node reads or binds, in order; of ``a.b``, `a`."""
    return [n for n in walk(node) if type(n) is cst.Name]


_TARGET = frozenset(
    {cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For, cst.CompFor, cst.NamedExpr}
)


def bound_by(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """What a node by itself gives a new value: names, attributes and subscripts, taken out of patterns."""
    kind = type(node)
    if kind in _TARGET:
        yield from _parts(node.target)  # type: ignore[attr-defined]  # all of these have one
    elif kind is cst.AsName:
        yield from _parts(node.name)  # type: ignore[attr-defined]  # as above
    elif isinstance(node, cst.MatchAs | cst.MatchStar):
        if node.name is not None:
            yield node.name
    elif isinstance(node, cst.MatchMapping) and node.rest is not None:
        yield node.rest


_CHANGING = frozenset("append extend pop update add insert clear remove step".split())


def changed_by(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """What a node by itself binds, or changes in place: `x` of ``x.append(1)``, ``x.add_(1)``,
    ``x.view(-1)[0] = 1``."""
    yield from bound_by(node)
    yield from written_by(node)
    called = node.func if isinstance(node, cst.Call) else None
    if isinstance(called, cst.Attribute) and called.attr.value in _CHANGING:
        yield called.value


def written_by(node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """The tensors and containers that a node by itself writes into: `x` of ``x[0] = 1``, ``x.data = y``,
    ``x += 1``, ``x.view(-1).add_(1)``, ``nn.init.zeros_(x)``, ``F.relu(x, inplace=True)``,
    ``torch.add(y, z, out=x)``."""
    if isinstance(node, cst.AugAssign):
        yield whole_of(node.target)
    elif isinstance(node, cst.Call):
        yield from map(whole_of, filled_by(node))
        yield from map(whole_of, _written_in_place(node))
    else:
        for target in bound_by(node):
            whole = whole_of(target)
            if whole is not target:
                yield whole


_VIEWS = frozenset(
    "as_strided chunk contiguous detach diagonal expand flatten narrow numpy permute reshape select split "
    "squeeze swapaxes t transpose unbind unflatten unfold unsqueeze view view_as".split()
)
"""Methods whose results share the memory of a tensor, or may."""
_SAME_MEMORY = frozenset({"H", "T", "data", "imag", "mH", "mT", "real"})
_OF_FUNCTIONS = frozenset({"F", "functional", "init", "torch"})
"""Modules with functions that write into what they are given, by their last names."""


def whole_of(node: cst.BaseExpression) -> cst.BaseExpression:
    """What an expression is a part or a view of: `x` of ``x[0]``, ``x.data``, ``x.view(-1)[0]``."""
    while True:
        part = node.func if isinstance(node, cst.Call) else node
        names = _VIEWS if part is not node else _SAME_MEMORY
        if isinstance(node, cst.Subscript):
            node = node.value
        elif isinstance(part, cst.Attribute) and part.attr.value in names:
            node = part.value
        else:
            return node


def _written_in_place(call: cst.Call) -> Iterator[cst.BaseExpression]:
    """What a call writes into, as its name ends in an underscore, or as it is told to."""
    name = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    told = any(
        arg.keyword is not None
        and arg.keyword.value == "inplace"
        and isinstance(arg.value, cst.Name)
        and arg.value.value == "True"
        for arg in call.args
    )
    ends = isinstance(name, cst.Name) and name.value.endswith("_") and not name.value.endswith("__")
    if not told and not ends:
        return
    if isinstance(call.func, cst.Attribute):
        owner = call.func.value
        last = owner.attr if isinstance(owner, cst.Attribute) else owner
        if not isinstance(last, cst.Name) or last.value not in _OF_FUNCTIONS:
            if ends:
                yield owner
            return
    first = call.args[0].value if call.args else None
    if isinstance(first, cst.List | cst.Tuple):
        yield from (element.value for element in first.elements)
    elif first is not None:
        yield first


_COLLECTIVES = frozenset(
    "all_reduce broadcast recv irecv all_gather all_gather_into_tensor reduce reduce_scatter "
    "reduce_scatter_tensor scatter all_to_all all_to_all_single".split()
)
"""They put what the processes have into the tensor that they are given first."""
_TO_FILL = frozenset({"out", "output", "output_tensor"})


def filled_by(call: cst.Call) -> Iterator[cst.BaseExpression]:
    """The names that a call writes into, by what it is called: a collective into its first argument, others
    into ``out=``."""
    name = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    collective = isinstance(name, cst.Name) and name.value in _COLLECTIVES
    for i, arg in enumerate(call.args):
        given = arg.keyword.value if arg.keyword is not None else ""
        if given == "out" or (
            collective and (given in _TO_FILL or (given in ("", "tensor") and i == 0))
        ):
            yield whole_of(arg.value)


def _parts(target: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    if isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            yield from _parts(element.value)
    elif isinstance(target, cst.StarredElement):
        yield from _parts(target.value)
    elif isinstance(target, cst.BaseExpression):
        yield target
