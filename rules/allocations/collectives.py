"""DG518: processes that exchange one small tensor after the other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import libcst as cst

from pytest_dispatchguard import Call, Finding, Place, Rule, nodes

from ..syncs.host_code import works_on_host
from ..syntax import bound_names, is_word, names_in, target_names

_TENSORS = {
    "all_gather": ("tensor_list", "tensor"),
    "all_reduce": ("tensor",),
    "broadcast": ("tensor",),
    "reduce": ("tensor",),
}
"""Collectives that can be one for several tensors, and what their first arguments are called: tensors. (One
for the buffer of several would scatter it in other parts, or gather it in another order.)"""
_TOGETHER = "_coalescing_manager"
_BETWEEN = 4
"""Statements that may stand between two of them."""


@dataclass(frozen=True, slots=True)
class _Collective:
    """A collective that is a statement of its own, and waits for its result."""

    call: cst.Call
    name: str
    tensors: tuple[cst.BaseExpression, ...]
    others: tuple[str, ...]
    """The other arguments, as written: the operation, the group."""


class CollectivesInARow(Rule):
    """Collectives follow each other that could be one.

    ## What it does

    Finds `dist.all_reduce`, `broadcast`, `all_gather` and their like in hot code that follow the same
    collective with the same operation and group, where nothing in between says that the second needs the
    result of the first. One finding stands for a whole row of them; it is a note where the tensors are known
    to be of several dtypes. One for each value in a loop (`for value in metrics.values()`) is a note, too.
    Collectives with `async_op=True`, or in a `_coalescing_manager`, run side by side and are left alone; one
    for each parameter of a loop is DG512.

    ## Why it costs

    Each collective pays for Python, a launch and a message of its own, and every process waits for the
    slowest each time. For a few numbers that is the whole cost: one message that carries all of them takes as
    long as one that carries the first.

    ## Example

    ```python
    dist.all_reduce(loss)
    dist.all_reduce(correct)
    ```

    ## Instead

    ```python
    both = torch.stack([loss, correct])
    dist.all_reduce(both)
    loss, correct = both
    ```

    Tensors of several shapes go into one flat buffer (`torch.cat` of what is flattened). Counts among floats
    go as `float64`, which is exact up to 2**53. Collectives work in place: where others hold the tensors,
    copy the results back (`self.total.copy_(both[0])`).

    ## Fix safety

    No fix: the tensors have to be of one dtype, and some of them may be large enough for a message of their
    own.
    """

    code = "DG518"
    name = "collectives-in-a-row"
    also_compiled = False
    origin = "apex#8a1ed9e8"
    looks_for = Call(*_TENSORS)

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """The second of a row."""
        if not place.name(node).startswith("torch.distributed.") or works_on_host(place):
            return None
        around = [item.item for outer in place.withs for item in outer.items]
        if any(isinstance(one, cst.Call) and place.last_name(one) == _TOGETHER for one in around):
            return None
        rows = _rows(place.block, place)
        row = next((row for row in rows if len(row) > 1 and row[1].call is node), None)
        if row is None:
            return self._of_each(node, place)
        left = len(row) - 2
        more = f" (and {left} more follow{'s' if left == 1 else ''})" if left else ""
        dtypes = {place.kind(tensor).dtype for one in row for tensor in one.tensors} - {""}
        return place.finding(
            node,
            f"`{place.short(node)}` follows `{place.short(row[0].call)}`{more}: each collective costs Python "
            "time, a launch and a network round trip. Put the tensors into one buffer of one dtype "
            "(`torch.stack`, or `torch.cat` of flat ones), send that, and take the results out of it",
            certainty="note" if len(dtypes) > 1 else "sure",
        )

    def _of_each(self, node: cst.Call, place: Place) -> Finding | None:
        """One for each of several values, which are no parameters: those are DG512."""
        loop = place.loops[-1] if place.loops else None
        sent = _collective(node, place)
        if (
            not isinstance(loop, cst.For)
            or sent is None
            or not isinstance(place.parent(node), cst.Expr)
        ):
            return None
        names = target_names(loop)
        if not all(names_in(tensor) & names for tensor in sent.tensors):
            return None
        given = frozenset(name.value for arg in node.args for name in nodes.names_in(arg.value))
        tensors = frozenset().union(*map(names_in, sent.tensors))
        if (given - tensors) & names or _OF_PARAMETERS.search(place.text(loop.iter)):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` sends one of `{place.short(loop.iter)}` after another, and each costs "
            "Python time, a launch and a network round trip. Stack small ones, send that, and take results "
            "out of it",
            certainty="note",
        )


_OF_PARAMETERS = re.compile(r"param|grad|range\(|bucket|chunk|state_dict|modules?\b")
"""Loops over what is large, over modules, or over ranks."""


def _rows(block: Iterable[cst.CSTNode], place: Place) -> list[list[_Collective]]:
    """The collectives of a block, those together that can be one."""
    rows: list[list[_Collective]] = []
    between: list[cst.CSTNode] = []
    last = 0
    for number, statement in enumerate(block):
        found = _collective(statement, place)
        if found is not None:
            near = bool(rows) and number - last <= _BETWEEN + 1
            if near and _can_join(rows[-1], between, found, place):
                rows[-1].append(found)
            else:
                rows.append([found])
                between = []
            last = number
        elif isinstance(statement, cst.SimpleStatementLine) and not _sends(statement, place):
            between.append(statement)
        else:
            last = number - _BETWEEN - 1
    return rows


def _collective(node: cst.CSTNode, place: Place) -> _Collective | None:
    """The collective that a statement or its call is."""
    if isinstance(node, cst.SimpleStatementLine):
        only = node.body[0] if len(node.body) == 1 else None
        return _collective(only.value, place) if isinstance(only, cst.Expr) else None
    if not isinstance(node, cst.Call) or not place.name(node).startswith("torch.distributed."):
        return None
    name = place.last_name(node)
    called = _TENSORS.get(name, ())
    tensors: list[cst.BaseExpression] = []
    others: list[str] = []
    for i, arg in enumerate(node.args):
        keyword = arg.keyword.value if arg.keyword is not None else ""
        if arg.star or (keyword == "async_op" and not is_word(arg.value, "False")):
            return None
        if keyword in called or (not keyword and i < len(called)):
            tensors.append(arg.value)
        elif keyword != "async_op":
            others.append(f"{keyword}={place.text(arg.value)}")
    if len(tensors) != len(called) or not all(place.dotted(_owner(one)) for one in tensors):
        return None
    return _Collective(node, name, tuple(tensors), tuple(sorted(others)))


def _owner(node: cst.BaseExpression) -> cst.BaseExpression:
    """What holds a tensor: of `x[0]` and `x.view(-1)`, `x`; of `self.x[0]`, `self.x`."""
    while True:
        if isinstance(node, cst.Subscript):
            node = node.value
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            if any(nodes.names_in(arg) for arg in node.args):
                return node
            node = node.func.value
        else:
            return node


def _can_join(
    row: Sequence[_Collective], between: Iterable[cst.CSTNode], last: _Collective, place: Place
) -> bool:
    """Whether the tensors of a collective could be sent with those of a row: it is the same operation in the
    same group, they are others, and no statement in between speaks of them."""
    sent = [place.text(tensor) for one in row for tensor in one.tensors]
    asked = [place.text(tensor) for tensor in last.tensors]
    apart = not any(
        one == other or one.startswith(f"{other}[") or other.startswith(f"{one}[")
        for one in sent
        for other in asked
    )
    settings = {name.value for arg in last.call.args for name in nodes.names_in(arg)}
    settings -= {name.value for tensor in last.tensors for name in nodes.names_in(tensor)}
    return (
        apart
        and not settings & bound_names(between)
        and (row[0].name, row[0].others) == (last.name, last.others)
        and not any(_mentions(one, tensor, place) for one in between for tensor in last.tensors)
    )


def _sends(statement: cst.CSTNode, place: Place) -> bool:
    """Whether a statement has processes meet; to ask how many there are is no meeting."""
    return any(
        isinstance(call, cst.Call)
        and place.name(call).startswith("torch.distributed.")
        and not place.last_name(call).startswith(("get_", "is_"))
        for call in nodes.walk(statement)
    )


def _mentions(statement: cst.CSTNode, tensor: cst.BaseExpression, place: Place) -> bool:
    """Whether a statement speaks of a tensor, binds the name that it is reached by, or has what holds it do
    something."""
    owner = place.dotted(_owner(tensor))
    root, _, held = owner.partition(".")
    for node in nodes.walk(statement):
        if isinstance(node, cst.Name | cst.Attribute) and place.dotted(node) == owner:
            return True
        if held and isinstance(node, cst.Call):
            receiver = place.receiver(node)
            given = [a.value for a in node.args]
            if any(one is not None and is_word(one, root) for one in (receiver, *given)):
                return True
        if any(isinstance(t, cst.Name) and t.value == root for t in nodes.bound_by(node)):
            return True
    return False
