"""DG506, DG515: tensors that grow by concatenation."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from pytest_dispatchguard import Call, Finding, Place, Rule, SelfWrite, nodes

from ...syntax import has_few_rounds, is_word, names_in
from ..uses import loads

_CATS = frozenset(
    f"torch.{name}"
    for name in "cat column_stack concat concatenate dstack hstack row_stack vstack".split()
)
_STATEMENT_LOOPS = (cst.For, cst.While)


class ConcatenationInLoop(Rule):
    """A tensor grows by concatenation in a loop: every round copies everything so far.

    ## What it does

    Finds `out = torch.cat([out, y])` in a loop that uses `out` for nothing else. Over crops, levels or
    scales, by their name, of which there are few, it is a note. `torch.stack(parts)` of a list that the same
    loop appends to is a note: the loop may need all parts in every round.

    ## Why it costs

    Each round allocates and copies the whole result so far, so that n rounds copy on the order of n² rows.
    A list of parts and one `torch.cat` after the loop copies each row once, with one call.

    ## Example

    ```python
    out = x.new_empty(0)
    for step in steps:
        out = torch.cat([out, step(x)])
    ```

    ## Instead

    ```python
    parts = []
    for step in steps:
        parts.append(step(x))
    out = torch.cat(parts)
    ```

    ## Fix safety

    No fix: it changes the initial value, and the result of a loop without rounds.
    """

    code = "DG506"
    name = "concatenation-in-loop"
    origin = "keras#23305"
    looks_for = Call("stack", *(name.rpartition(".")[2] for name in sorted(_CATS)), place="loop")

    def judge(self, call: cst.Call, place: Place) -> Finding | None:
        """`name = cat([name, …])`, and the loop asks for `name` nowhere else."""
        return self._of_a_list(call, place) or self._of_itself(call, place)

    def _of_a_list(self, call: cst.Call, place: Place) -> Finding | None:
        """What a list holds that grows in the same loop, joined in every round."""
        parts = place.argument(call, 0, "tensors")
        if place.name(call) not in _CATS | {"torch.stack"} or parts is None or not place.loops:
            return None
        if isinstance(parts, cst.List | cst.Tuple):
            starred = [e.value for e in parts.elements if isinstance(e, cst.StarredElement)]
            parts = starred[0] if len(starred) == 1 else None
        loop = place.loops[-1]
        if not isinstance(parts, cst.Name) or not isinstance(loop, _STATEMENT_LOOPS):
            return None
        if has_few_rounds(loop, _SHORT, place) or not _grows(parts.value, loop, place):
            return None
        if isinstance(loop, cst.For) and place.self_name in names_in(loop.iter):
            return None  # the layers of a network
        if any(isinstance(one, cst.Return | cst.Break | cst.Raise) for one in _ends(place)):
            return None  # the last round
        return place.finding(
            call,
            f"`{place.short(call)}` copies all that `{parts.value}` holds in every iteration, and the loop "
            "appends to it; write into a tensor that is made before the loop, or join once after it",
            certainty="note",
        )

    def _of_itself(self, call: cst.Call, place: Place) -> Finding | None:
        node = place.parent(call)
        if not isinstance(node, cst.Assign) or len(node.targets) != 1 or not place.loops:
            return None
        target, loop = node.targets[0].target, place.loops[-1]
        if not isinstance(target, cst.Name):
            return None
        if (
            place.name(call) not in _CATS
            or not isinstance(loop, _STATEMENT_LOOPS)
            or has_few_rounds(loop, _SHORT, place)
        ):
            return None
        parts = place.argument(call, 0, "tensors")
        if not isinstance(parts, cst.List | cst.Tuple):
            return None
        name = target.value
        if not any(isinstance(e.value, cst.Name) and e.value.value == name for e in parts.elements):
            return None
        if any(r for r in loads(name, loop).reads if not self._start(r, place, parts)):
            return None
        return place.finding(
            node,
            f"`{name} = {place.text(call.func)}([{name}, …])` copies all of `{name}` in every "
            "iteration of the "
            f"loop; append to a list and concatenate once after it",
            certainty="note" if isinstance(loop, cst.For) and _are_few(loop, place) else "sure",
        )

    def _start(self, read: cst.Name, place: Place, parts: cst.List | cst.Tuple) -> bool:
        """Whether a mention is no use of what has grown: the cat itself, an assignment, `is None`."""
        parent = place.parent(read)
        if parent is None or parent is parts:
            return True
        if isinstance(parent, cst.Comparison):
            return all(isinstance(c.operator, cst.Is | cst.IsNot) for c in parent.comparisons)
        return False


_SHORT = 3
"""Rounds that are not worth a word."""
_FEW = re.compile(r"(?:^|_)(?:crops|levels|scales)$")


def _are_few(loop: cst.For, place: Place) -> bool:
    """Whether a loop goes through what are two or three, by their name."""
    over = loop.iter
    if isinstance(over, cst.Call) and place.name(over) == "enumerate" and over.args:
        over = over.args[0].value
    return _FEW.search(place.dotted(over).rpartition(".")[2]) is not None


def _ends(place: Place) -> Iterator[cst.CSTNode]:
    """The last statements of the block that a place is in."""
    last = place.block[-1] if place.block else None
    if isinstance(last, cst.SimpleStatementLine):
        yield from last.body


_EMPTYING = frozenset({"clear", "pop", "popleft", "remove"})


def _grows(name: str, loop: cst.CSTNode, place: Place) -> bool:
    """Whether a loop appends to a list, in each round, and takes nothing out of it."""
    grown = False
    for one in nodes.walk(loop):
        bound = nodes.bound_by(one)
        if any(isinstance(target, cst.Name) and target.value == name for target in bound):
            return False
        if isinstance(one, cst.Call) and is_word(place.receiver(one), name):
            last = place.last_name(one)
            if last in _EMPTYING:
                return False
            grown = grown or last == "append"
    return grown


class GrownByCopy(Rule):
    """An attribute grows by a copy of everything it holds, on every call.

    ## What it does

    Flags `self.seen = torch.cat([self.seen, x])` in hot code. It is a note, but for a metric that only
    collects: only the author knows when the parts are needed as one tensor.

    ## Why it costs

    The n-th call copies n parts, so the time for all calls grows with the square of their number. Each copy
    also allocates memory and launches a kernel.

    ## Example

    ```python
    def update(self, scores):
        self.scores = torch.cat([self.scores, scores])
    ```

    ## Instead

    ```python
    def update(self, scores):
        self.parts.append(scores)  # one torch.cat where they are needed
    ```

    ## Fix safety

    No fix: code that reads the attribute has to accept a list, or a buffer allocated in advance.
    """

    code = "DG515"
    name = "grown-by-copy"
    origin = "ignite#68452b98"
    looks_for = SelfWrite()

    def judge(self, node: cst.CSTNode, place: Place) -> Finding | None:
        """Flags an attribute that is assigned a concatenation of itself and more."""
        if not isinstance(node, cst.Assign) or len(node.targets) != 1:
            return None
        target, made = node.targets[0].target, node.value
        if not isinstance(made, cst.Call) or place.name(made) not in _CATS or not made.args:
            return None
        parts = made.args[0].value
        if not isinstance(parts, cst.List | cst.Tuple):
            return None
        if not any(place.same(e.value, target) for e in parts.elements):
            return None
        return place.finding(
            made,
            f"`{place.text(target)}` is copied whole on every call to grow by one part, so each call "
            "copies more. Collect the parts in a list and join them once, or write into a "
            "preallocated tensor",
            certainty="sure"
            if _of_a_metric(place) and not _used_whole(target, node, place)
            else "note",
        )


_ABOUT = frozenset({"device", "dtype", "is_cuda", "ndim", "shape"})
_LIKE = frozenset({"to", "type_as"})


def _of_a_metric(place: Place) -> bool:
    """Whether the place is in the `update` of a metric of a known library, which computes later."""
    return place.hot.reason.startswith("update of a") and place.hot.reason.endswith("Metric")


def _used_whole(target: cst.BaseExpression, grown: cst.Assign, place: Place) -> bool:
    """Whether the function does more with what has grown than let it grow, and read its shape or dtype."""
    body = list(nodes.walk(place.function.body))
    growing = set(map(id, nodes.walk(grown)))
    growing.update(id(found.target) for found in body if isinstance(found, cst.AssignTarget))
    return any(
        id(found) not in growing
        and type(found) is type(target)
        and place.same(found, target)
        and not _asks_about(found, place)
        for found in body
    )


def _asks_about(use: cst.CSTNode, place: Place) -> bool:
    by = place.parent(use)
    if isinstance(by, cst.Attribute):
        return by.attr.value in _ABOUT
    if isinstance(by, cst.Comparison):
        return all(isinstance(c.operator, cst.Is | cst.IsNot) for c in by.comparisons)
    if isinstance(by, cst.Call):
        return by.func is not use and place.last_name(by) in _LIKE
    return False
