"""DG512: parameters, or their gradients, that are worked on one by one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

import libcst as cst

from pytest_dispatchguard import Attribute, Call, Certainty, Finding, Loop, Place, Rule, nodes

from ...syntax import is_word, names_in, small_statements, target_names

_FOREACH = frozenset(
    "abs_ add_ addcdiv_ addcmul_ clamp_max_ clamp_min_ copy_ div_ lerp_ mul_ neg_ sqrt_ sub_ zero_".split()
)
"""Methods in place that have a counterpart for lists."""
_OPERATORS: dict[type[cst.BaseAugOp], str] = {
    cst.AddAssign: "add_",
    cst.SubtractAssign: "sub_",
    cst.MultiplyAssign: "mul_",
    cst.DivideAssign: "div_",
}
_NORMS = frozenset({"norm", "vector_norm"})
_COLLECTIVES = frozenset({"all_gather", "all_reduce", "broadcast", "reduce", "reduce_scatter"})
_TENSORS_OF_ONE = frozenset({"data", "grad"})
_WALKS = frozenset({"buffers", "named_buffers", "named_parameters", "parameters"})
_WRAPPERS = frozenset({"chain", "enumerate", "filter", "list", "reversed", "tqdm", "tuple", "zip"})
_NAMED = re.compile(r"(?:\w*_)?(?:parameters|params)\d?")
"""What holds parameters, by its name."""
_LONGEST = 6
"""Names of names that are followed."""


class ParameterLoop(Rule):
    """Parameters, or their gradients, are worked on one by one, in a Python loop.

    ## What it does

    Finds loops over parameters whose rounds launch operations on the parameter: averaging of weights,
    scaling of gradients, copies from one model to another, norms, the update of an optimizer, collectives.

    It is a finding where the rounds only update tensors in place. It is a note where they do more, where
    nothing but a name says that these are parameters, or where torch has no function for lists; so are
    updates in place of other tensors in a list (`for average, grad in zip(averages, grads)`). The other
    operations of a loop are notes, each in its line.

    ## Why it costs

    Each operation pays Python, the dispatcher and a kernel launch for every parameter. The
    `torch._foreach_*` functions, which torch's own optimizers use, take whole lists: one call, and few
    launches. A collective for each parameter pays for a message each; one over a flat buffer pays once.

    ## Example

    ```python
    for p, q in zip(self.average.parameters(), self.model.parameters()):
        p.mul_(0.9).add_(q, alpha=0.1)
    ```

    ## Instead

    ```python
    ps, qs = list(self.average.parameters()), list(self.model.parameters())
    torch._foreach_mul_(ps, 0.9)
    torch._foreach_add_(ps, qs, alpha=0.1)
    ```

    with the two lists made once.

    ## Fix safety

    No fix: the lists belong somewhere that lasts, and the functions want lists of one length.
    """

    code = "DG512"
    name = "parameter-loop"
    torch = ">=1.9"
    also_compiled = False
    origin = "timm#1553"
    looks_for = Loop(
        having=(Call(*_FOREACH, *_NORMS, *_COLLECTIVES, place="loop"), Attribute("grad"))
    )

    def judge(self, node: cst.For | cst.While, place: Place) -> Iterable[Finding] | None:
        """A for loop over parameters, and what is done to each."""
        if not isinstance(node, cst.For):
            return None
        names = target_names(node)
        launches, only_updates = _launches(node, names, place)
        if not launches:
            return None
        sure = _walked(node.iter, place) or ("note" if _of_gradients(node, names) else None)
        each = "parameter"
        if sure is None and _of_lists(node.iter, place) and _is_updated(launches[0].node, names):
            sure, each = "note", "tensor"
        if sure is None or _knows_lists(place):
            return None
        first, count = next((one for one in launches if one.sends), launches[0]), len(launches)
        what = f"`{first.shown}`"
        if count > 1:
            what += f" and {count - 1} more operation{'' if count == 2 else 's'}"
        runs, pays = ("runs", "pays") if count == 1 else ("run", "pay")
        told = place.finding(
            first.node,
            f"{what} {runs} once per {each}, and {pays} for Python, dispatcher and kernel launch each "
            f"time; {first.instead}",
            certainty=sure if only_updates else "note",
        )
        return [told, *self._others(first, launches, each, place)]

    def _others(
        self, first: _Launch, launches: Sequence[_Launch], each: str, place: Place
    ) -> Iterator[Finding]:
        """The other operations, where they stand in lines of their own: one may be new in an old loop."""
        lines = {place.after(first.node, "").span.line}
        for launch in launches:
            line = place.after(launch.node, "").span.line
            if line not in lines:
                lines.add(line)
                yield place.finding(
                    launch.node,
                    f"`{launch.shown}` runs once per {each} as well",
                    certainty="note",
                )


@dataclass(frozen=True, slots=True)
class _Launch:
    """An operation on one parameter."""

    node: cst.CSTNode
    shown: str
    instead: str
    listed: bool = True
    """Whether there is a function for lists that does just that."""
    sends: bool = False
    """Whether it sends a message to other processes, which is the dearest."""


def _update(node: cst.CSTNode, method: str) -> _Launch:
    instead = f"collect the tensors in lists once and call `torch._foreach_{method}`"
    return _Launch(node, f".{method}(…)", instead)


# -- what is looped over -----------------------------------------------------------------------------


def _walked(node: cst.BaseExpression, place: Place, depth: int = 0) -> Certainty | None:
    """How sure it is that an expression goes through parameters; None if nothing says so."""
    if depth > _LONGEST:
        return None
    if isinstance(node, cst.Name):
        made = place.value_of(node)
        known = _walked(made, place, depth + 1) if made is not None else None
        return known or _by_name(node.value)
    if isinstance(node, cst.Attribute):
        return _by_name(node.attr.value)
    if isinstance(node, cst.Subscript):
        return "sure" if place.text(node).endswith(("['params']", '["params"]')) else None
    if isinstance(node, cst.ListComp | cst.GeneratorExp):
        return _walked(node.for_in.iter, place, depth + 1)
    if isinstance(node, cst.IfExp):
        either = [_walked(one, place, depth + 1) for one in (node.body, node.orelse)]
        return None if None in either else "note" if "note" in either else "sure"
    if not isinstance(node, cst.Call):
        return None
    last = place.last_name(node)
    if last in _WALKS:
        return None if place.name(node).startswith(("torch.", "inspect.")) else "sure"
    if _NAMED.fullmatch(last) and "hyper" not in last:
        return "note"  # `self.trainable_parameters()`
    if last in ("items", "values") and isinstance(node.func, cst.Attribute):
        table = node.func.value
        of_module = isinstance(table, cst.Call) and place.last_name(table) == "state_dict"
        return "note" if of_module else None
    if last not in _WRAPPERS:
        return None
    found = [_walked(a.value, place, depth + 1) for a in node.args]
    return "sure" if "sure" in found else "note" if "note" in found else None


def _by_name(name: str) -> Certainty | None:
    return "note" if _NAMED.fullmatch(name) else None


def _of_gradients(loop: cst.For, names: Set[str]) -> bool:
    """Whether what is looped over has gradients."""
    return any(
        isinstance(n, cst.Attribute) and n.attr.value == "grad" and is_word(n.value, *names)
        for n in nodes.walk(loop.body)
    )


def _of_lists(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression goes through lists, not through the rows of a tensor."""
    if isinstance(node, cst.Call):
        parts = [a.value for a in node.args if a.keyword is None]
        return place.name(node) == "zip" and bool(parts) and all(_of_lists(p, place) for p in parts)
    kind = place.kind(node)
    listed = kind.what == "nested" and kind.cls != "dict"
    return isinstance(node, cst.Name | cst.Attribute) and (listed or kind.what == "unknown")


def _is_updated(node: cst.CSTNode, names: Set[str]) -> bool:
    """Whether an operation in place works on what is looped over itself."""
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value in _FOREACH
        and is_word(node.func.value, *names)
    )


def _knows_lists(place: Place) -> bool:
    """Whether the function is one of two, for those who want no lists."""
    return "foreach" in place.text(place.function) or "single_tensor" in place.qualname


# -- what is done to each ------------------------------------------------------------------------------


def _launches(loop: cst.For, names: frozenset[str], place: Place) -> tuple[list[_Launch], bool]:
    """The operations on what is looped over, and whether the loop does nothing else."""
    own, found, only = set(names), [], True
    for statement in _statements(loop.body):
        launch = _launch(statement, own, place)
        if launch is not None:
            found.append(launch)
            only &= launch.listed
        elif isinstance(statement, cst.Assign):
            only &= isinstance(statement.value, cst.Attribute)
        else:
            only &= isinstance(statement, cst.Continue | cst.Pass)
        if isinstance(statement, cst.Assign) and names_in(statement.value) & own:
            for target in statement.targets:
                if isinstance(target.target, cst.Name | cst.Tuple):
                    own |= names_in(target.target)
    return found, only


def _statements(body: cst.BaseSuite) -> Iterator[cst.CSTNode]:
    """The simple statements of a block, also those under its conditions; loops and the like whole. An
    alternative is a statement of its own as well."""
    for statement in small_statements(body):
        if isinstance(statement, cst.With):
            yield from _statements(statement.body)
        elif isinstance(statement, cst.If):
            branch: cst.If | cst.Else | None = statement
            while branch is not None:
                if branch is not statement:
                    yield branch
                yield from _statements(branch.body)
                branch = branch.orelse if isinstance(branch, cst.If) else None
        else:
            yield statement


def _launch(statement: cst.CSTNode, own: Set[str], place: Place) -> _Launch | None:
    """The operation on a parameter that a simple statement is."""
    if isinstance(statement, cst.Expr) and isinstance(statement.value, cst.Call):
        call = statement.value
        method = place.last_name(call)
        if isinstance(call.func, cst.Attribute) and method in _FOREACH and _is_of(call, own):
            return _update(call, method)
    elif isinstance(statement, cst.AugAssign):
        operator = _OPERATORS.get(type(statement.operator))
        if operator is not None and _is_tensor(statement.target, own, place):
            return _update(statement, operator)
    elif isinstance(statement, cst.Assign) and len(statement.targets) == 1:
        target = statement.targets[0].target
        computed = isinstance(statement.value, cst.BinaryOperation)
        if computed and names_in(statement.value) & own and _is_entry(target, own):
            instead = "collect the tensors in lists once and use the functions `torch._foreach_*`"
            return _Launch(statement, place.short(statement), instead, listed=False)
    if isinstance(statement, cst.BaseSmallStatement):
        return _reduced(statement, own, place)
    return None


def _reduced(statement: cst.BaseSmallStatement, own: Set[str], place: Place) -> _Launch | None:
    """A norm of a parameter, or a collective with it, within a statement."""
    for call in nodes.walk(statement, without=(cst.Lambda,)):
        if not isinstance(call, cst.Call):
            continue
        last, name = place.last_name(call), place.name(call)
        given = [a.value for a in call.args[:2]]
        if last in _NORMS:
            of = given[:1] if name.startswith("torch.") else [call.func]
            if of and _is_of(of[0], own):
                instead = "`torch._foreach_norm` takes them all"
                return _Launch(call, place.short(call), instead, listed=False)
        collective = last in _COLLECTIVES and name.startswith("torch.distributed.")
        if collective and any(_is_of(one, own) for one in given):
            instead = "flatten them into one buffer, and call it once for all"
            return _Launch(call, place.short(call), instead, listed=False, sends=True)
    return None


def _is_of(node: cst.BaseExpression, own: Set[str]) -> bool:
    """Whether an expression starts from what is looped over: `p.grad.data`, `self.averages[name]`."""
    while True:
        if isinstance(node, cst.Attribute):
            node = node.value
        elif isinstance(node, cst.Call):
            node = node.func
        elif isinstance(node, cst.Subscript):
            if any(names_in(index) & own for index in node.slice):
                return True
            node = node.value
        else:
            return is_word(node, *own)


def _is_own(target: cst.BaseExpression, own: Set[str]) -> bool:
    """Whether what is assigned to is the data or the gradient of a parameter."""
    return (
        isinstance(target, cst.Attribute)
        and target.attr.value in _TENSORS_OF_ONE
        and _is_of(target, own)
    )


def _is_tensor(target: cst.BaseExpression, own: Set[str], place: Place) -> bool:
    """Whether what is changed in place is a parameter, or its gradient."""
    named = isinstance(target, cst.Name) and target.value in own and place.is_tensor(target)
    return named or _is_own(target, own)


def _is_entry(target: cst.BaseExpression, own: Set[str]) -> bool:
    """Whether what is assigned to belongs to a parameter: `p.data`, `averages[name]`."""
    indices = target.slice if isinstance(target, cst.Subscript) else ()
    return _is_own(target, own) or any(names_in(index) & own for index in indices)
