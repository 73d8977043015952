"""Whether what a loop works out in every round may be worked out once, in a line before the loop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from pytest_dispatchguard import Place, nodes

from .kept_results import worked_out
from .same_value import changes, may_be_skipped, stays
from .syntax import contains, is_left, is_word, names_in, target_names


def outside(loop: cst.CSTNode, place: Place) -> cst.CSTNode | None:
    """The statement before which a line runs once for all rounds of a loop: the loop, or the one that holds
    a comprehension; None where there is none, or where that is the header of another statement."""
    if isinstance(loop, cst.For | cst.While):
        return loop
    line = place.statement
    return line if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else None


def may_move(
    node: cst.BaseExpression, loop: cst.CSTNode, around: cst.CSTNode, place: Place
) -> bool:
    """Whether an expression gives before a loop what it gives in it, wherever the loop has a round."""
    names = names_in(node)
    if any(_may_be_missing(name, place) for name in names):
        return False
    if isinstance(loop, cst.BaseComp):
        within = [one for one in place.loops if isinstance(one, cst.BaseComp)]
        filters = (part for one in within for part in one.for_in.ifs)
        return (
            (not isinstance(loop, cst.GeneratorExp) or _is_consumed(loop, place))
            and not names & frozenset().union(*map(target_names, within))
            and not any(names & names_in(part.test) for part in filters)
            and not may_be_skipped(loop, place)
            and not changes(node, worked_out(around) or around, place)
        )
    guards = (one for one in nodes.walk(loop) if isinstance(one, cst.If) and _leaves(one))
    return (
        not any(names & names_in(guard.test) for guard in guards)
        and not is_left([loop])
        and not any(isinstance(one, cst.Nonlocal) for one in nodes.walk(place.function))
        and not (isinstance(loop, cst.While) and isinstance(loop.test, cst.BooleanOperation))
        and stays(node, lines_of(loop), place)
    )


_CONSUMES = frozenset(
    "all any cat extend join list max min prod set sorted stack sum tuple".split()
)


def _is_consumed(loop: cst.GeneratorExp, place: Place) -> bool:
    """Whether a generator is run to its end where it stands."""
    parent = place.parent(loop)
    return isinstance(parent, cst.Call) and place.last_name(parent) in _CONSUMES


def lines_of(loop: cst.CSTNode) -> Sequence[cst.CSTNode]:
    """The statements of a loop's own block."""
    body = loop.body if isinstance(loop, cst.For | cst.While) else None
    return body.body if isinstance(body, cst.IndentedBlock) else ()


def _leaves(branch: cst.If) -> bool:
    """Whether a branch ends the round, the loop, or the call."""
    leave = cst.Continue | cst.Break | cst.Return | cst.Raise
    return any(isinstance(one, leave) for one in nodes.walk(branch.body))


def _may_be_missing(name: str, place: Place) -> bool:
    """Whether a name may hold None: by its default, or as the function asks for that."""
    missing = place.once(
        ("may be missing", id(place.function)), lambda: set(_missing(place.function))
    )
    return name in missing


def _missing(function: cst.FunctionDef) -> Iterator[str]:
    params = function.params
    for one in (*params.posonly_params, *params.params, *params.kwonly_params):
        if is_word(one.default, "None"):
            yield one.name.value
    for node in nodes.walk(function.body):
        if isinstance(node, cst.Comparison) and any(
            is_word(part.comparator, "None") for part in node.comparisons
        ):
            yield from names_in(node.left)


def shares_context(loop: cst.CSTNode, place: Place) -> bool:
    """Whether a place in a loop is in no context that is entered in the loop."""
    return not any(contains(loop, one) for one in place.withs)
