"""DG103, DG104, DG106: a structure is flattened for one leaf, for one question, or twice."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from pytest_dispatchguard import Call, Finding, Place, Rule

from ..syntax import assigned_once, is_word
from .walks import (
    FLATTENS,
    Walk,
    constant_index,
    first_leaf,
    is_tested,
    leaf_list,
    scan_of,
    scan_test,
    walk_of,
)


class FlattenOnlyToScan(Rule):
    """A structure is flattened only to look for one leaf.

    ## What it does

    Flags a flatten in hot code whose leaves are only asked a question: a loop that returns, raises or breaks
    at the first leaf that passes a test, or `any`, `all`, `next` over the leaves.

    ## Why it costs

    A list of all leaves and a description of the structure are built on every call, though most arguments
    are plain tensors that could be asked themselves.

    ## Example

    ```python
    def any_symbolic(args, kwargs):
        for x in tree.flatten((args, kwargs)):
            if isinstance(x, Symbolic):
                return True
        return False
    ```

    ## Instead

    ```python
    def any_symbolic(args, kwargs):
        for items in (args, kwargs.values()):
            for x in items:
                if isinstance(x, Symbolic):
                    return True
                if tree.is_nested(x) and any(isinstance(leaf, Symbolic) for leaf in tree.flatten(x)):
                    return True
        return False
    ```

    ## Fix safety

    No fix: only the author knows which arguments can be nested.
    """

    code = "DG103"
    name = "flatten-only-to-scan"
    origin = "keras#23187"
    looks_for = Call(*FLATTENS, place="imported")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags leaves that are only asked a question."""
        walk = walk_of(node, place)
        if walk is None:
            return None
        subject = walk.subjects[0]
        leaves = leaf_list(node, walk, place)
        if leaves is None or place.is_tensor(subject) or is_tested(subject, place):
            return None
        test = scan_test(leaves, place) or self._scan_by_name(leaves, place)
        if test is None:
            return None
        message = (
            f"`{place.text(node)}` flattens the tree on every call only to test "
            f"`{place.short(test)}` on each leaf; test the top-level values first, and flatten only "
            "those that are nested"
        )
        return place.finding(node, message)

    def _scan_by_name(self, leaves: cst.BaseExpression, place: Place) -> cst.BaseExpression | None:
        """The same for `flat = flatten(x)` where every use of `flat` is a scan."""
        name = assigned_once(leaves, place)
        if name is None:
            return None
        tests = list(_scans_of_name(name.value, place))
        return tests[0] if tests and len(tests) == place.uses(name.value) else None


def _scans_of_name(name: str, place: Place) -> Iterator[cst.BaseExpression]:
    for call, _ in place.calls("any", "all", "next"):
        around = call.args[0].value if call.args else None
        if isinstance(around, cst.GeneratorExp) and is_word(around.for_in.iter, name):
            test = scan_of(around, place)
            if test is not None:
                yield test


class SameStructureFlattenedTwice(Rule):
    """The same structure is flattened twice in one function.

    ## What it does

    Flags a flatten in hot code whose argument the same function has flattened before, and not changed since.

    ## Why it costs

    The second walk finds what the first one found. Its list, or its pair of leaves and structure, can be
    kept in a name.

    ## Example

    ```python
    leaves = tree_flatten(state)[0]
    spec = tree_flatten(state)[1]
    ```

    ## Instead

    ```python
    leaves, spec = tree_flatten(state)
    ```

    ## Fix safety

    No fix: whether the two lists may be one object depends on who changes them.
    """

    code = "DG104"
    name = "same-structure-flattened-twice"
    origin = "keras#22770"
    looks_for = Call(*FLATTENS, place="imported")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags the second of two flattens of the same structure."""
        walk = walk_of(node, place)
        if walk is None or place.scene.deferred:
            return None
        subject = walk.subjects[0]
        if not _steady(subject, place) or place.is_tensor(subject):
            return None
        if not any(self._ran_before(call, place, walk) for call in self._earlier(node, place)):
            return None
        shown = place.text(subject)
        message = (
            f"this function has already flattened `{shown}`, and walks it again here on every call; "
            "keep the leaves of the first walk in a variable"
        )
        return place.finding(node, message)

    def _earlier(self, node: cst.Call, place: Place) -> Iterator[cst.Call]:
        mine = place.scene
        for call, scene in place.calls(*FLATTENS):
            if call is node:
                return
            # Only what runs whenever this place runs: the same conditions or fewer, the same loops or fewer.
            conditions = [(id(test), holds) for test, holds in mine.conditions]
            same_way = all((id(test), holds) in conditions for test, holds in scene.conditions)
            in_loops = scene.loops == mine.loops[: len(scene.loops)]
            if (
                scene.function is mine.function
                and same_way
                and in_loops
                and not scene.cold
                and not scene.deferred
            ):
                yield call

    def _ran_before(self, call: cst.Call, place: Place, mine: Walk) -> bool:
        walk = walk_of(call, place)
        if walk is None or walk.module != mine.module:
            return False
        keywords = any(a.keyword is not None for a in call.args)
        return not keywords and place.same(walk.subjects[0], mine.subjects[0])


def _steady(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression of names gives the same wherever the function asks for it."""
    if isinstance(node, cst.Tuple | cst.List):
        return bool(node.elements) and all(_steady(e.value, place) for e in node.elements)
    if isinstance(node, cst.Subscript):
        return constant_index(node) is not None and _steady(node.value, place)
    name = place.dotted(node)
    if not name:
        return False
    parts = name.split(".")
    owners = [".".join(parts[: i + 1]) for i in range(1, len(parts))]
    return place.assignments(parts[0]) <= 1 and not any(place.assignments(o) for o in owners)


class FlattenForFirstLeaf(Rule):
    """A structure is flattened to take its first leaf.

    ## What it does

    Flags `tree.flatten(x)[0]`, `tree_leaves(x)[0]` and `tree_flatten(x)[0][0]` in hot code.

    ## Why it costs

    All leaves are visited and listed on every call, and all but one are thrown away.

    ## Example

    ```python
    batch_size = tree_leaves(inputs)[0].shape[0]
    ```

    ## Instead

    ```python
    first = inputs if isinstance(inputs, torch.Tensor) else tree_leaves(inputs)[0]
    batch_size = first.shape[0]
    ```

    ## Fix safety

    No fix: only the author knows how deep the first leaf may be.
    """

    code = "DG106"
    name = "flatten-for-first-leaf"
    origin = "keras#22674"
    looks_for = Call(*FLATTENS, place="imported")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags a list of all leaves of which only the first is used."""
        walk = walk_of(node, place)
        if walk is None:
            return None
        subject = walk.subjects[0]
        leaves = leaf_list(node, walk, place)
        if leaves is None or not first_leaf(leaves, place):
            return None
        if place.is_tensor(subject) or is_tested(subject, place):
            return None
        shown = place.text(subject)
        message = (
            f"`{place.text(node)}` lists all leaves on every call, but only the first is used; use "
            f"`{shown}` itself if it is a tensor, and walk it only if it is nested"
        )
        return place.finding(node, message)
