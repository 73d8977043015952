"""Questions about syntax that rules of several families ask."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import libcst as cst

from pytest_dispatchguard import Edit, Place, nodes

VIEWS = frozenset(
    "chunk detach expand flatten meshgrid narrow permute reshape select split squeeze t transpose unbind "
    "unsqueeze view view_as".split()
)
"""Functions and methods that give views of a tensor, and launch nothing."""


MODULE_NAMES = re.compile(
    r"model|module|net\d*$|unet|vae|encoder|decoder|transformer|pipe|layer|block|policy|actor|critic|agent"
)
"""What modules, and what consists of them, are called, in lower case."""


def is_left(parts: Iterable[cst.CSTNode]) -> bool:
    """Whether somebody else may run meanwhile: a generator's caller, or what waits beside a coroutine."""
    walked = (one for part in parts for one in nodes.walk(part))
    return any(isinstance(one, cst.Yield | cst.Await) for one in walked)


def shown_as_owner(node: cst.BaseExpression, place: Place, limit: int = 32) -> str:
    """An expression in a message, with a method to stand behind it."""
    shown = place.short(node, limit)
    owner = isinstance(node, cst.Name | cst.Attribute | cst.Call | cst.Subscript)
    return shown if owner else f"({shown})"


def line_before(statement: cst.CSTNode, line: str, place: Place) -> Edit:
    """A line of its own before a statement."""
    return place.before(statement, f"{line}\n{place.indent(statement)}")


def further_arguments(
    call: cst.Call, given: Sequence[str], place: Place
) -> tuple[cst.BaseExpression, str]:
    """The last argument of a call and what stands in its place with more of them behind it: on lines of their
    own, where it has one."""
    last = call.args[-1].value
    comma = call.args[-2].comma if len(call.args) > 1 else None
    before = comma.whitespace_after if isinstance(comma, cst.Comma) else call.whitespace_before_args
    own_line = isinstance(before, cst.ParenthesizedWhitespace)
    gap = f",\n{place.indent(last)}" if own_line else ", "
    return last, gap.join([place.text(last), *given])


def is_word(node: cst.CSTNode | None, *words: str) -> bool:
    """Whether a node is one of these names, or of the constants `True`, `False` and `None`."""
    return isinstance(node, cst.Name) and node.value in words


def call_of(node: cst.CSTNode, place: Place) -> cst.Call | None:
    """The call whose function is just this expression: `f(x)(y)` of `f(x)`."""
    parent = place.parent(node)
    return parent if isinstance(parent, cst.Call) and parent.func is node else None


def method_call(node: cst.CSTNode, place: Place) -> cst.Call | None:
    """The call of a method of this very expression: `x.to(y)` of `x`."""
    parent = place.parent(node)
    return call_of(parent, place) if isinstance(parent, cst.Attribute) else None


def called_name(call: cst.Call) -> str:
    """The last name of what is called: `c` of `a.b.c(x)`; empty where that has no name."""
    name = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    return name.value if isinstance(name, cst.Name) else ""


def assigned(node: cst.CSTNode, place: Place) -> cst.Name | None:
    """`x` of the statement `x = node`."""
    parent = place.parent(node)
    if not isinstance(parent, cst.Assign) or parent.value is not node or len(parent.targets) != 1:
        return None
    target = parent.targets[0].target
    return target if isinstance(target, cst.Name) else None


def assigned_once(node: cst.CSTNode, place: Place) -> cst.Name | None:
    """`x` of the statement `x = node`, where the function gives `x` no other value."""
    name = assigned(node, place)
    return name if name is not None and place.assignments(name.value) == 1 else None


_IN_PARTS = frozenset({"chunk", "meshgrid", "split", "tensor_split", "unbind"})


def unpacked(place: Place) -> dict[str, cst.BaseExpression]:
    """The names that the function gives to the parts into which a tensor is taken, and to nothing else, with
    the call that takes it apart."""

    def found() -> dict[str, cst.BaseExpression]:
        return {
            part.value.value: one.value
            for one in nodes.walk(place.function)
            if isinstance(one, cst.Assign) and isinstance(one.value, cst.Call)
            if called_name(one.value) in _IN_PARTS
            for target in one.targets
            if isinstance(target.target, cst.Tuple | cst.List)
            for part in target.target.elements
            if isinstance(part.value, cst.Name) and place.assignments(part.value.value) == 1
        }

    return place.once(("unpacked", id(place.function)), found)


def only_called(name: cst.Name, place: Place) -> bool:
    """Whether the function reads a name, bound by this node, only to call what it holds."""
    same = (n for n in nodes.names_in(place.function) if n.value == name.value)
    reads = [n for n in same if n is not name]
    return bool(reads) and all(call_of(n, place) is not None for n in reads)


def clauses(comprehension: cst.BaseComp) -> Iterator[cst.CompFor]:
    """The `for` clauses of a comprehension, outermost first."""
    clause: cst.CompFor | None = comprehension.for_in
    while clause is not None:
        yield clause
        clause = clause.inner_for_in


def small_statements(body: cst.BaseSuite) -> Iterator[cst.CSTNode]:
    """Statements of a block, with lines of several statements split; compound ones as they are."""
    for statement in body.body:
        if isinstance(statement, cst.SimpleStatementLine):
            yield from statement.body
        else:
            yield statement


def head_comment(branch: cst.If) -> str:
    """The comment behind the head of an if; empty where there is none."""
    header = branch.body.header if isinstance(branch.body, cst.IndentedBlock) else None
    return header.comment.value if header is not None and header.comment is not None else ""


def last_small(body: cst.BaseSuite) -> cst.CSTNode | None:
    """The last statement of a block."""
    return next(iter(reversed(list(small_statements(body)))), None)


def names_in(node: cst.CSTNode) -> frozenset[str]:
    """The names that an expression reads; of `a.b`, `a`."""
    return frozenset(n.value for n in nodes.names_in(node))


def contains(outer: cst.CSTNode, *wanted: cst.CSTNode) -> bool:
    """Whether one of the nodes is the outer node or lies inside it."""
    ids = {id(n) for n in wanted}
    return any(id(n) in ids for n in nodes.walk(outer))


def subscripts_written(node: cst.CSTNode) -> list[cst.Subscript]:
    """The subscripts that an assignment writes to: of `x[0] = y[1] = 2`, both."""
    targets: list[cst.CSTNode] = []
    if isinstance(node, cst.Assign):
        targets = [target.target for target in node.targets]
    elif isinstance(node, cst.AugAssign) or (isinstance(node, cst.AnnAssign) and node.value):
        targets = [node.target]
    return [target for target in targets if isinstance(target, cst.Subscript)]


def item_key(node: cst.CSTNode) -> str:
    """`label` of `batch["label"]`; empty for anything else."""
    if not isinstance(node, cst.Subscript) or len(node.slice) != 1:
        return ""
    index = node.slice[0].slice
    key = index.value if isinstance(index, cst.Index) else None
    return str(key.raw_value) if isinstance(key, cst.SimpleString) else ""


def target_names(loop: cst.CSTNode) -> frozenset[str]:
    """The names that a for loop or comprehension gives a new value in every iteration, by its header."""
    targets: list[cst.CSTNode] = []
    if isinstance(loop, cst.For):
        targets.append(loop.target)
    elif isinstance(loop, cst.BaseComp):
        targets += [clause.target for clause in clauses(loop)]
    return frozenset().union(*(names_in(t) for t in targets))


def has_few_rounds(loop: cst.CSTNode, most: int, place: Place) -> bool:
    """Whether a loop surely has so many rounds at most."""
    over = loop.for_in.iter if isinstance(loop, cst.BaseComp) else getattr(loop, "iter", None)
    while (
        isinstance(over, cst.Call) and place.name(over) in ("enumerate", "reversed") and over.args
    ):
        over = over.args[0].value
    if isinstance(over, cst.List | cst.Tuple):
        starred = any(isinstance(one, cst.StarredElement) for one in over.elements)
        return not starred and len(over.elements) <= most
    if not isinstance(over, cst.Call) or place.name(over) != "range" or len(over.args) != 1:
        return False
    last = over.args[0].value
    return isinstance(last, cst.Integer) and last.evaluated_value <= most


def bound_names(statements: Iterable[cst.CSTNode]) -> frozenset[str]:
    """The names that statements give a new value."""
    return frozenset().union(*map(_bound_in, statements))


@lru_cache(maxsize=4096)
def _bound_in(statement: cst.CSTNode) -> frozenset[str]:
    found: set[str] = set()
    for node in nodes.walk(statement):
        for target in nodes.changed_by(node):
            while isinstance(target, cst.Subscript | cst.Attribute):
                target = target.value
            if isinstance(target, cst.Name):
                found.add(target.value)
    return frozenset(found)


def changed_names(place: Place) -> frozenset[str]:
    """The names and attributes, as they are written, that a function binds or changes in place."""
    return place.once(
        ("changed names", id(place.function)),
        lambda: frozenset(
            place.dotted(target)
            for part in nodes.walk(place.function.body)
            for target in nodes.changed_by(part)
        ),
    )


def has_default(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression is a parameter that callers may leave out, and that is something then."""
    if not isinstance(node, cst.Name) or place.assignments(node.value) != 1:
        return False
    given = place.function.params
    return any(
        param.name.value == node.value
        and param.default is not None
        and not is_word(param.default, "None")
        for param in (*given.posonly_params, *given.params, *given.kwonly_params)
    )


def parameter_names(place: Place) -> frozenset[str]:
    """The names of a function's parameters, but for those with stars."""
    given = place.function.params
    every = (*given.posonly_params, *given.params, *given.kwonly_params)
    return frozenset(param.name.value for param in every)
