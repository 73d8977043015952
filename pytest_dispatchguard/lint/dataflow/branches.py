"""Which branches of a function are cold, and which of its blocks are left early."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

import libcst as cst

from pytest_dispatchguard.lint.dataflow.narrowing import decided
from pytest_dispatchguard.lint.dataflow.reader import Reader
from pytest_dispatchguard.lint.facts import ONE, SCRIPT
from pytest_dispatchguard.lint.knowledge import cold_branches, error_paths
from pytest_dispatchguard.lint.knowledge.entry_points import over_batches
from pytest_dispatchguard.lint.syntax.nodes import names_in, walk
from pytest_dispatchguard.lint.syntax.spelling import dotted, text

_LINES = frozenset({cst.SimpleStatementLine, cst.SimpleStatementSuite})
_WITH_BLOCKS = frozenset({cst.With, cst.Try, cst.TryStar, cst.For, cst.While})
"""Statements with a block that runs whatever they find: of loops, which may have nothing to go through, the
`else`."""


def cold_branches_of(
    reader: Reader, node: cst.If, rest: Sequence[cst.CSTNode]
) -> tuple[bool, bool, bool]:
    """Whether the body, the else and what follows the statement are cold."""
    condition = _with_flags(reader, text(node.test))
    body = _statements(node.body)
    orelse = _statements(node.orelse.body) if isinstance(node.orelse, cst.Else) else ()
    returns = _returns(body)
    filled = origins = filled_else = filled_after = frozenset[str]()
    if cold_branches.worth_asking(condition):  # of no other does it matter what is filled
        origins = _looked_up(reader, condition) | _periods_of_one(reader, condition)
        origins |= _counted(reader, condition)
        filled, filled_else = _assigned(reader, body), _assigned(reader, orelse)
        filled_after = _assigned(reader, rest) if returns else filled_after
    body_cold, else_cold = cold_branches.cold_branches(
        condition,
        body_assigns=filled | origins,
        orelse_assigns=filled_else | origins if orelse else (),
        body_raises=_raises(body)
        or _gives_up(body)
        or cold_branches.of_the_past(condition, _called(body)),
        orelse_raises=_raises(orelse) or _gives_up(orelse),
    )
    rest_cold = cold_branches.rest_is_cold(
        condition, body_returns=returns, following_assigns=filled_after | origins
    )
    holds = decided(reader, node.test)
    body_cold = (
        body_cold or _is_of_the_first_round(reader, node) or _tries_itself(reader, condition)
    )
    return body_cold or holds is False, else_cold or holds is True, rest_cold or holds is True


def _tries_itself(reader: Reader, condition: str) -> bool:
    """Whether a branch of a function is for when its own file is run, which tries what it defines."""
    return reader.scene.qualname != SCRIPT and condition.startswith("__name__ ==")


def _is_of_the_first_round(reader: Reader, node: cst.If) -> bool:
    """Whether a branch fills what was set to None before the loop, where only the loop is hot: ``if preds is
    None: preds = …``."""
    loop = reader.scene.loops[-1] if reader.scene.loops else None
    hot = reader.brief.hot.get(reader.scene.qualname)
    if hot is None or not hot.only_loops or not isinstance(loop, cst.For | cst.While):
        return False
    name, _, compared = text(node.test).partition(" is ")
    if compared != "None" or name not in reader.set_to_none:
        return False
    around = reader.scene.loops[:-1]
    if around and not (
        isinstance(loop, cst.For) and over_batches(text(loop.target), text(loop.iter))
    ):
        return False  # it may be filled once in each step
    if not any(name in _bound_by(one) for one in _smalls(_statements(node.body))):
        return False
    bound = (one for one in walk(loop.body) if name in _bound_by(one))
    return not any(inner.value == "None" for one in bound for inner in names_in(one))


def _bound_by(node: cst.CSTNode) -> set[str]:
    """The names that an assignment binds."""
    targets = node.targets if isinstance(node, cst.Assign) else ()
    return {name.value for target in targets for name in names_in(target)}


def _with_flags(reader: Reader, condition: str) -> str:
    """A condition with what a flag in it was given last, where that counts rounds."""

    def value_of(name: str) -> str:
        value = reader.last_values.get(name)
        return "" if value is None else text(value)

    return cold_branches.with_flag(condition, value_of)


def _assigned(reader: Reader, statements: Sequence[cst.CSTNode]) -> frozenset[str]:
    """The names that statements assign, as `guards` wants them."""
    names = _assigned_names(statements, reader.globals)
    return frozenset(names | {f"global {name}" for name in names & reader.globals})


def _looked_up(reader: Reader, condition: str) -> frozenset[str]:
    """What the names of a condition were looked up in last, where that outlives the call, and no other
    way leaves them empty."""
    found = set()
    for name in cold_branches.names_in(condition):
        value = None if name in reader.set_to_none else reader.last_values.get(name)
        while isinstance(value, cst.IfExp) and (inner := _the_one_in(value)) is not None:
            value = inner
        container: cst.BaseExpression | None = None
        if type(value) is cst.Subscript:
            container = value.value
        elif type(value) is cst.Call and type(value.func) is cst.Attribute:
            container = value.func.value if value.func.attr.value == "get" else None
        kept = dotted(container) if container is not None else None
        own = kept in reader.names.kinds or kept == reader.self_name
        if kept and ("." in kept or not own):
            found.add(cold_branches.looked_up(name, kept))
    return frozenset(found)


def _the_one_in(node: cst.IfExp) -> cst.BaseExpression | None:
    """What is given where a condition does not choose None: ``cache.get(key) if kept else None``."""
    parts = [one for one in (node.body, node.orelse) if text(one) != "None"]
    return parts[0] if len(parts) == 1 else None


def _counted(reader: Reader, condition: str) -> set[str]:
    """The names of a condition that were given the number of elements, or of rows, last."""
    if not cold_branches.may_count(condition):
        return set()
    values = {name: reader.last_values.get(name) for name in cold_branches.names_in(condition)}
    return {
        cold_branches.counted(name)
        for name, value in values.items()
        if value is not None and cold_branches.counts(text(value))
    }


def _periods_of_one(reader: Reader, condition: str) -> set[str]:
    attributes = reader.cls.attrs if reader.cls is not None else {}
    return cold_branches.periods_of_one(
        condition, reader.self_name, lambda name: ONE in attributes.get(name, ())
    )


def _statements(body: cst.BaseSuite) -> Sequence[cst.CSTNode]:
    if isinstance(body, cst.IndentedBlock):
        return body.body
    return [body]


def _smalls(statements: Iterable[cst.CSTNode]) -> Iterable[cst.CSTNode]:
    for statement in statements:
        if type(statement) in _LINES:
            yield from statement.body  # type: ignore[attr-defined]  # both have one
        else:
            yield statement


def _assigned_names(statements: Iterable[cst.CSTNode], declared: AbstractSet[str]) -> set[str]:
    """The lasting names that statements assign, whatever they find: attributes, what has items, and what is
    declared global."""
    found: set[str] = set()
    for small in _smalls(statements):
        targets: list[cst.BaseExpression] = []
        if type(small) is cst.Assign:
            targets = [t.target for t in small.targets]
        elif type(small) is cst.AnnAssign or type(small) is cst.AugAssign:
            targets = [small.target]
        elif type(small) is cst.If:
            found |= _assigned_in_all(small, declared)
        elif type(small) in _WITH_BLOCKS:
            for block in _blocks_that_run(small):
                found |= _assigned_names(_statements(block), declared)
        for target in targets:
            whole = target
            while type(target) is cst.Subscript:
                target = target.value
            name = dotted(target) or ""
            if "." in name or name in declared or (name and target is not whole):
                found.add(name)
                value = getattr(small, "value", None)
                if type(value) is cst.Name and value.value == "False":
                    found.add(cold_branches.switched_off(name))
    return found


def _blocks_that_run(node: cst.CSTNode) -> Iterable[cst.BaseSuite]:
    """The blocks of a `with`, a `try` or a loop that run as a rule."""
    if isinstance(node, cst.With | cst.Try | cst.TryStar):
        yield node.body
    for name in ("orelse", "finalbody"):
        part = getattr(node, name, None)
        if part is not None:
            yield part.body


def _assigned_in_all(node: cst.If, declared: AbstractSet[str], chained: bool = False) -> set[str]:
    """The lasting names that each branch of an `if` assigns; a chain of `elif` has all cases there are."""
    found = _assigned_names(_statements(node.body), declared)
    if isinstance(node.orelse, cst.If):
        return found & _assigned_in_all(node.orelse, declared, chained=True)
    if node.orelse is None:
        return found if chained else set()
    return found & _assigned_names(_statements(node.orelse.body), declared)


def _last(statements: Sequence[cst.CSTNode]) -> cst.CSTNode | None:
    """The last of them, of several on one line too."""
    smalls = list(_smalls(statements[-1:]))
    return smalls[-1] if smalls else None


def _raises(statements: Sequence[cst.CSTNode]) -> bool:
    last = _last(statements)
    if isinstance(last, cst.Assert | cst.Expr):
        return error_paths.fails(text(last))
    return type(last) is cst.Raise


_ENDS = frozenset({cst.Return, cst.Yield})


def leads_to_raise(statements: Sequence[cst.CSTNode]) -> int:
    """The first of the statements of a function from which on it gets to a `raise`, whatever they find: 0
    where it does in whatever way it is called, as one does that is not done yet."""
    raising = (number for number, statement in enumerate(statements) if _raises([statement]))
    first = next(raising, None)
    if first is None:
        return len(statements)
    while first and not any(type(node) in _ENDS for node in walk(statements[first - 1])):
        first -= 1
    return first


def _gives_up(statements: Sequence[cst.CSTNode]) -> bool:
    """Whether a block logs that something is wrong, and leaves, or does nothing but give what is not a
    number."""
    said = list(_smalls(statements))
    if len(said) == 1 and isinstance(said[0], cst.Return | cst.Assign) and gives_nan(said[0].value):
        return True
    return _leaves(statements) and any(map(error_paths.complains, _called(statements)))


def gives_nan(node: cst.BaseExpression | None) -> bool:
    """Whether an expression makes a tensor that is not a number."""
    if not isinstance(node, cst.Call):
        return False
    last = (dotted(node.func) or "").rpartition(".")[2]
    return last in error_paths.MAKES_OF_NUMBERS and error_paths.gives_nan(text(node))


def _called(statements: Sequence[cst.CSTNode]) -> list[str]:
    """The names of what statements call for nothing but what it does."""
    said = [small.value for small in _smalls(statements) if isinstance(small, cst.Expr)]
    return [dotted(one.func) or "" for one in said if isinstance(one, cst.Call)]


def only_errors_continue(node: cst.Try | cst.TryStar) -> bool:
    """Whether what follows a `try` in its block runs only where that failed: ``try: return CACHE[key]``."""
    return (
        bool(node.handlers)
        and _leaves(_statements(node.body))
        and node.orelse is None
        and node.finalbody is None
        and all(h.type is None or error_paths.is_rare(text(h.type)) for h in node.handlers)
    )


def suppresses_errors(node: cst.With) -> bool:
    """Whether what follows a `with` in its block runs only where that failed: ``with ignore_oom(): return
    …``."""
    entered = [item.item for item in node.items]
    return _leaves(_statements(node.body)) and any(
        isinstance(one, cst.Call) and error_paths.swallows(dotted(one.func) or "")
        for one in entered
    )


def _leaves(statements: Sequence[cst.CSTNode]) -> bool:
    """Whether the end of a block is not reached, as far as its last statement tells."""
    last = _last(statements)
    while isinstance(last, cst.If):
        if last.orelse is None or not _leaves(_statements(last.body)):
            return False
        if isinstance(last.orelse, cst.Else):
            return _leaves(_statements(last.orelse.body))
        last = last.orelse
    return isinstance(last, cst.Return | cst.Continue | cst.Break)


def _returns(statements: Sequence[cst.CSTNode]) -> bool:
    return type(_last(statements)) is cst.Return
