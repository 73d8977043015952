"""Functions, blocks and statements, read in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import libcst as cst

from pytest_dispatchguard.lint.dataflow.assignments import (
    read_annotated_assign,
    read_assign,
    read_augmented_assign,
    read_delete,
    read_import,
)
from pytest_dispatchguard.lint.dataflow.branches import (
    cold_branches_of,
    leads_to_raise,
    only_errors_continue,
    suppresses_errors,
)
from pytest_dispatchguard.lint.dataflow.conditions import read_condition
from pytest_dispatchguard.lint.dataflow.expressions import EXPRESSIONS
from pytest_dispatchguard.lint.dataflow.moves import left_behind, moves_of
from pytest_dispatchguard.lint.dataflow.narrowing import narrow
from pytest_dispatchguard.lint.dataflow.parameters import (
    apply_recorded_types,
    bind_parameters,
    parameters_of,
)
from pytest_dispatchguard.lint.dataflow.reader import (
    NOTHING_MOVES,
    Handler,
    Moves,
    Names,
    Reader,
    merged,
)
from pytest_dispatchguard.lint.dataflow.scene import Scene
from pytest_dispatchguard.lint.facts import Brief
from pytest_dispatchguard.lint.kinds.kinds import FUNCTION, OTHER, UNKNOWN, element_of
from pytest_dispatchguard.lint.kinds.placement import on_cpu
from pytest_dispatchguard.lint.knowledge import cold_branches
from pytest_dispatchguard.lint.knowledge.entry_points import over_batches
from pytest_dispatchguard.lint.syntax.spelling import dotted, text

_ENDING = frozenset({cst.Return, cst.Raise, cst.Continue, cst.Break})


def read_function(
    function: cst.FunctionDef, brief: Brief, qualname: str, tensor_types: tuple[str, ...] = ()
) -> Reader:
    """Read an outermost function and all inside it: what every expression can be, and what rules may see."""
    reader = _read(function, brief, qualname, tensor_types, NOTHING_MOVES)
    if not reader.moved:
        return reader
    moves = moves_of(reader)
    return _read(function, brief, qualname, tensor_types, moves) if moves.later else reader


def _read(
    function: cst.FunctionDef,
    brief: Brief,
    qualname: str,
    tensor_types: tuple[str, ...],
    moves: Moves,
) -> Reader:
    reader = Reader(brief, qualname, tensor_types, EXPRESSIONS, moves)
    decorators = {dotted(d.decorator) for d in function.decorators}
    params = [*function.params.posonly_params, *function.params.params]
    if reader.class_name and params and "staticmethod" not in decorators:
        reader.self_name = params[0].name.value
    reader.scene = Scene(function, qualname, function)
    _read_function(reader, function, qualname)
    return reader


def _read_function(reader: Reader, function: cst.FunctionDef, qualname: str) -> None:
    """Read a function in a scope of its own."""
    hot = reader.brief.hot.get(qualname)
    outer, outer_names, outer_known = reader.scene, reader.names, reader.known_tensors
    outer_literals, outer_values = reader.literals, (reader.last_values, reader.set_to_none)
    reader.last_values, reader.set_to_none = {}, set()
    reader.names = outer_names.copy()
    reader.known_tensors = outer_known | frozenset(reader.brief.tensors.get(qualname, ()))
    body = function.body.body
    failing = leads_to_raise(body)
    reader.failing.update(map(id, body[failing : failing + 1]))
    cold = hot is None or failing == 0
    reader.scene = Scene(function, qualname, function, cold=cold)
    reader.emit("function", function, function.name.value)
    reader.literals = dict(outer_literals)
    bind_parameters(reader, function.params, function.name.value)
    apply_recorded_types(reader, reader.brief.seen.get(qualname, {}))
    reader.literals.update(reader.brief.given.get(qualname, {}))
    for name in reader.moves.later & parameters_of(function.params):
        known = reader.lookup(name)
        if known.what == "tensor":
            reader.hold(name, replace(known, roaming=True))
    for name in reader.brief.on_cpu.get(qualname, ()):
        kind = reader.names.kinds.get(name, UNKNOWN)
        reader.hold(name, on_cpu(kind))
    _read_suite(reader, function.body)
    reader.scene, reader.names, reader.known_tensors = outer, outer_names, outer_known
    reader.literals = outer_literals
    reader.last_values, reader.set_to_none = outer_values


def _read_block(reader: Reader, statements: Sequence[cst.BaseStatement]) -> bool:
    """Read statements in order; True when the end of the block is not reached."""
    block = tuple(statements)
    before = reader.scene
    ended = False
    for i, statement in enumerate(block):
        reader.scene = reader.scene.at(statement, block)
        if id(statement) in reader.failing:
            reader.scene = replace(reader.scene, cold=True, seldom=False)
        if type(statement) is cst.SimpleStatementLine:
            ended = _read_line(reader, statement) or ended
        elif type(statement) is cst.If:
            ended = _if(reader, statement, block[i + 1 :]) or ended
        elif isinstance(statement, cst.Try | cst.TryStar):
            _try(reader, statement)
            if only_errors_continue(statement):
                reader.scene = replace(reader.scene, cold=True, seldom=False)
        else:
            handler = _STATEMENTS.get(type(statement))
            if handler is not None:
                handler(reader, statement)
            if type(statement) is cst.With and suppresses_errors(statement):
                reader.scene = replace(reader.scene, cold=True, seldom=False)
    reader.scene = before
    return ended


def _read_line(reader: Reader, line: cst.SimpleStatementLine | cst.SimpleStatementSuite) -> bool:
    ended = False
    for small in line.body:
        reader.parents[id(small)] = line
        handler = _SMALL.get(type(small))
        if handler is not None:
            handler(reader, small)
        ended = ended or type(small) in _ENDING
    return ended


def _read_suite(reader: Reader, body: cst.BaseSuite) -> bool:
    if isinstance(body, cst.IndentedBlock):
        return _read_block(reader, body.body)
    assert isinstance(body, cst.SimpleStatementSuite)
    return _read_line(reader, body)


def _if(reader: Reader, node: cst.If, rest: Sequence[cst.CSTNode]) -> bool:
    before_scene = reader.scene
    read_condition(reader, node.test)
    body_cold, else_cold, rest_cold = cold_branches_of(reader, node, rest)
    is_cold = body_cold or else_cold or rest_cold
    seldom = is_cold and cold_branches.now_and_then(text(node.test))
    start = reader.names
    reader.names = start.copy()
    narrow(reader, node.test, True)
    reader.scene = replace(
        _colder(before_scene, body_cold, seldom),
        conditions=(*before_scene.conditions, (node.test, True)),
    )
    body_ended = _read_suite(reader, node.body)
    after_body = reader.names
    reader.names = start.copy()
    narrow(reader, node.test, False)
    else_ended = False
    reader.scene = replace(
        _colder(before_scene, else_cold, seldom),
        conditions=(*before_scene.conditions, (node.test, False)),
    )
    if type(node.orelse) is cst.If:
        reader.parents[id(node.orelse)] = node
        else_ended = _if(reader, node.orelse, rest)
    elif type(node.orelse) is cst.Else:
        else_ended = _read_suite(reader, node.orelse.body)
    after_else = reader.names
    reader.scene = before_scene
    if body_ended and not else_ended:
        reader.names = after_else
    elif else_ended and not body_ended:
        reader.names = after_body
    else:
        reader.names = merged(after_body, after_else)
    if body_ended and not else_ended:
        reader.scene = _colder(reader.scene, rest_cold, seldom)
    return body_ended and else_ended and node.orelse is not None


def _colder(scene: Scene, cold: bool, seldom: bool) -> Scene:
    """The same surroundings in a branch that is cold, if it is, because it runs `seldom` or for good."""
    if not cold:
        return scene
    return replace(scene, cold=True, seldom=seldom and (scene.seldom or not scene.cold))


def _global(reader: Reader, node: cst.Global) -> None:
    reader.globals.update(item.name.value for item in node.names)


def _nonlocal(reader: Reader, node: cst.Nonlocal) -> None:
    reader.nonlocals.update(item.name.value for item in node.names)


def _for(reader: Reader, node: cst.For) -> None:
    iterated = reader.read(node.iter)
    reader.emit("iterate", node.iter)
    reader.emit("loop", node)
    outer = reader.scene
    reader.scene = replace(outer, loops=(*outer.loops, node))
    if outer.seldom and over_batches(text(node.target), text(node.iter)):
        reader.scene = replace(reader.scene, cold=False, seldom=False)

    def one_round() -> None:
        reader.bind(node.target, element_of(iterated), None)
        for name in left_behind(reader, node):
            reader.hold(name, on_cpu(reader.lookup(name)))
        _read_suite(reader, node.body)

    _read_rounds(reader, one_round)
    reader.scene = outer
    if node.orelse is not None:
        _read_suite(reader, node.orelse.body)


def _while(reader: Reader, node: cst.While) -> None:
    outer = reader.scene
    reader.scene = replace(outer, loops=(*outer.loops, node))

    def one_round() -> None:
        read_condition(reader, node.test)
        reader.emit("loop", node)
        narrow(reader, node.test, True)
        _read_suite(reader, node.body)

    _read_rounds(reader, one_round)
    reader.scene = outer
    if node.orelse is not None:
        _read_suite(reader, node.orelse.body)


def _read_rounds(reader: Reader, one_round: Callable[[], None]) -> None:
    """Read a loop's body twice: first as a rehearsal, to learn what its names hold when the second round
    begins. Loops inside a rehearsed body are read once."""
    before = reader.names.copy()
    if not reader.rehearsing:
        events, assigned, used = len(reader.events), dict(reader.assigned), dict(reader.used)
        values, dotted_names = dict(reader.values), dict(reader.dotted_names)
        last_values, scene = dict(reader.last_values), reader.scene
        reader.rehearsing = True
        one_round()
        reader.rehearsing = False
        del reader.events[events:]
        reader.assigned, reader.used, reader.scene = assigned, used, scene
        reader.values, reader.dotted_names = values, dotted_names
        reader.last_values = last_values
        reader.names = merged(before, reader.names)
    one_round()
    reader.names = merged(before, reader.names)


def _with(reader: Reader, node: cst.With) -> None:
    outer = reader.scene
    for item in node.items:
        kind = reader.read(item.item, node)
        if item.asname is not None:
            target = item.asname.name
            if isinstance(target, cst.Name | cst.Attribute | cst.Tuple | cst.List):
                reader.bind(target, UNKNOWN if kind.what != "tensor" else kind, None)
    reader.emit("with", node)
    reader.scene = replace(outer, withs=(*outer.withs, node))
    _read_suite(reader, node.body)
    reader.scene = outer


def _try(reader: Reader, node: cst.Try | cst.TryStar) -> None:
    outer = reader.scene
    before = reader.names.copy()
    reader.scene = replace(outer, tries=(*outer.tries, node))
    _read_suite(reader, node.body)
    after = reader.names
    for handler in node.handlers:
        reader.names = merged(before, after)
        reader.scene = replace(outer, cold=True, seldom=False)
        _read_suite(reader, handler.body)
    reader.names = after
    reader.scene = outer
    if node.orelse is not None:
        _read_suite(reader, node.orelse.body)
    if node.finalbody is not None:
        _read_suite(reader, node.finalbody.body)


def _function_def(reader: Reader, node: cst.FunctionDef) -> None:
    for decorator in node.decorators:
        reader.read(decorator.decorator, node)
    reader.emit("def", node, node.name.value)
    _read_function(reader, node, f"{reader.scene.qualname}.<locals>.{node.name.value}")
    reader.bind_name(node.name.value, FUNCTION)


def _class_def(reader: Reader, node: cst.ClassDef) -> None:
    reader.emit("class", node, node.name.value)
    reader.bind_name(node.name.value, OTHER)


def _match(reader: Reader, node: cst.Match) -> None:
    reader.read(node.subject)
    before = reader.names
    after: Names | None = None
    for case in node.cases:
        reader.names = before.copy()
        if case.guard is not None:
            read_condition(reader, case.guard)
        ended = _read_suite(reader, case.body)
        if not ended:
            after = reader.names if after is None else merged(after, reader.names)
    reader.names = merged(before, after) if after is not None else before


def _expression(reader: Reader, node: cst.Expr) -> None:
    reader.read(node.value, node)


def _return(reader: Reader, node: cst.Return) -> None:
    if node.value is not None:
        reader.read(node.value, node)


def _raise(reader: Reader, node: cst.Raise) -> None:
    outer = reader.scene
    reader.scene = replace(outer, cold=True, seldom=False)
    if node.exc is not None:
        reader.read(node.exc)
    reader.scene = outer


def _assert(reader: Reader, node: cst.Assert) -> None:
    read_condition(reader, node.test)
    outer = reader.scene
    reader.scene = replace(outer, cold=True, seldom=False)
    if node.msg is not None:
        reader.read(node.msg)
    reader.scene = outer
    narrow(reader, node.test, True)


_STATEMENTS: dict[type, Handler] = {
    cst.For: _for,
    cst.While: _while,
    cst.With: _with,
    cst.Try: _try,
    cst.TryStar: _try,
    cst.FunctionDef: _function_def,
    cst.ClassDef: _class_def,
    cst.Match: _match,
}

_SMALL: dict[type, Handler] = {
    cst.Expr: _expression,
    cst.Assign: read_assign,
    cst.AnnAssign: read_annotated_assign,
    cst.AugAssign: read_augmented_assign,
    cst.Return: _return,
    cst.Raise: _raise,
    cst.Assert: _assert,
    cst.Del: read_delete,
    cst.Global: _global,
    cst.Nonlocal: _nonlocal,
    cst.Import: read_import,
    cst.ImportFrom: read_import,
}
