"""DG1xx: trees that are walked on hot paths where there is one tensor, or nothing to walk for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Place, Rule

from ._backends import runs_elsewhere

_FLATTENS = ("flatten", "tree_flatten", "tree_leaves", "leaves")
_MAPS = ("map_structure", "tree_map", "map", "tree_map_only")
_ASKS = re.compile(
    r"is_?nested(?:_\w+)?|is_?instance|is_(?:\w+_)?tensor\w*|is_(?:leaf|sequence|structure|tree)|tree_is_leaf|type"
)
_ONE = re.compile(
    r"x|y|input|output|out|tensor|mask|(?:previous|input|output|attention)_mask|first_arg|\w*tensor_arg"
)
_ONE_IN_KERAS = re.compile(r"inputs|outputs|output_masks|input_spec|y_pred|y_true")
_GETS_MASK = re.compile(r"_?get_\w*mask|\w*mask_(?:from|of)_\w+")


class _Walk(NamedTuple):
    """One call into a tree library."""

    function: str
    module: str
    subjects: tuple[cst.BaseExpression, ...]
    """The structures it walks; empty where stars hide them."""
    gives_list: bool
    """Whether the call itself is the list of leaves (and not a pair with the structure)."""

    @property
    def flattens(self) -> bool:
        return self.function in _FLATTENS


def _walk(node: cst.Call, place: Place) -> _Walk | None:
    """What the call walks; None where it is no call of a tree library, or none that torch code runs."""
    if not place.is_tree_call(node, *_FLATTENS, *_MAPS):
        return None
    module, _, function = place.name(node).rpartition(".")
    of_jax = module.startswith("jax.") and "torch" not in place.imports
    if of_jax or runs_elsewhere(place):
        return None
    first = 0 if function in _FLATTENS else 2 if function == "tree_map_only" else 1
    subjects: list[cst.BaseExpression] = []
    for i, arg in enumerate(node.args):
        if arg.star:
            return _Walk(function, module, (), False)
        if arg.keyword is None and i >= first and (function not in _FLATTENS or i == 0):
            subjects.append(arg.value)
    gives_list = function in ("tree_leaves", "leaves") or (
        function == "flatten" and module != "jax.tree"
    )
    return _Walk(function, module, tuple(subjects), gives_list)


def _asked(subject: cst.BaseExpression, place: Place) -> bool:
    """Whether the function tests somewhere what the subject is: whether it is nested, or a tensor."""
    return any(
        place.same(call.args[0].value, subject)
        for call, _ in place.calls()
        if call.args and _ASKS.fullmatch(place.last_name(call)) and not _asks_for_dict(call, place)
    )


def _asks_for_dict(call: cst.Call, place: Place) -> bool:
    """Whether a test tells only dicts from all else: what is no dict can still be a tensor."""
    return len(call.args) > 1 and place.name(call.args[1].value) == "dict"


def _leaves(node: cst.Call, walk: _Walk, place: Place) -> cst.BaseExpression | None:
    """The expression that is the list of leaves: the call, or `[0]` of it."""
    if walk.gives_list:
        return node
    around = place.parent(node)
    return around if isinstance(around, cst.Subscript) and _index(around) == 0 else None


def _index(node: cst.Subscript) -> int | None:
    if len(node.slice) != 1 or not isinstance(node.slice[0].slice, cst.Index):
        return None
    value = node.slice[0].slice.value
    return int(value.evaluated_value) if isinstance(value, cst.Integer) else None


def _small_statements(suite: cst.BaseSuite) -> Sequence[cst.CSTNode]:
    if isinstance(suite, cst.IndentedBlock):
        out: list[cst.CSTNode] = []
        for statement in suite.body:
            out.extend(
                statement.body if isinstance(statement, cst.SimpleStatementLine) else [statement]
            )
        return out
    return list(suite.body)


def _stops_at_first(loop: cst.For) -> cst.BaseExpression | None:
    """The test of a loop that does nothing but look for the first element that passes it."""
    body = _small_statements(loop.body)
    if len(body) != 1 or not isinstance(body[0], cst.If) or body[0].orelse is not None:
        return None
    inside = _small_statements(body[0].body)
    ends = bool(inside) and isinstance(inside[-1], cst.Return | cst.Raise | cst.Break)
    return body[0].test if ends and len(inside) <= 2 else None


def _scan_of(around: cst.CSTNode | None, place: Place) -> cst.BaseExpression | None:
    """What a generator inside `any`, `all` or `next` asks of each element."""
    if not isinstance(around, cst.GeneratorExp):
        return None
    call = place.parent(around)
    if not isinstance(call, cst.Call) or place.name(call) not in ("any", "all", "next"):
        return None
    if around.for_in.inner_for_in is not None:
        return None
    if place.name(call) == "next":
        return around.for_in.ifs[0].test if around.for_in.ifs else None
    return around.elt


def _scan(leaves: cst.BaseExpression, place: Place) -> cst.BaseExpression | None:
    """The test, where the leaves are made only to look for one that passes it."""
    statement = place.statement
    if isinstance(statement, cst.For) and statement.iter is leaves:
        return _stops_at_first(statement)
    return _scan_of(place.parent(leaves), place)


def _first_leaf(leaves: cst.BaseExpression, place: Place) -> bool:
    around = place.parent(leaves)
    return isinstance(around, cst.Subscript) and around.value is leaves and _index(around) == 0


class FlattenOfOneTensor(Rule):
    """A value that is one tensor is flattened as if it were nested.

    ## What it does

    Flags `tree.flatten(x)`, `tree_leaves(x)` and `tree_flatten(x)` of Keras' tree, optree, dm-tree and
    `torch.utils._pytree` in hot code, where `x` is a tensor.

    ## Why it costs

    The walk looks up how the type is registered, builds a list and a description of the structure, and
    throws the description away: host time on every call, for a list of one.

    ## Example

    ```python
    for leaf in tree_leaves(x.relu()):
        total = total + leaf.sum()
    ```

    ## Instead

    ```python
    for leaf in [x.relu()]:
        total = total + leaf.sum()
    ```

    ## Fix safety

    Unsafe: the fix trusts the annotation or the use by which the value is known to be one tensor. A caller
    that passes a list in spite of it gets a list in a list.
    """

    code = "DG101"
    name = "flatten-of-one-tensor"
    origin = "keras#22674"
    looks_for = Call(*_FLATTENS)
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Speaks where what is flattened is a tensor."""
        walk = _walk(node, place)
        if walk is None or not walk.subjects:
            return None
        subject = walk.subjects[0]
        if not place.kind(subject).maybe_tensor or _asked(subject, place):
            return None
        shown = place.text(subject)
        message = (
            f"`{shown}` is one tensor, yet `{walk.function}` walks it as a tree: the walk, its list and its "
            f"description of the structure cost host time on every call; `[{shown}]` is the same list"
        )
        sure = place.is_tensor(subject)
        return place.finding(
            node,
            message,
            certainty="sure" if sure else "maybe",
            fix=self._fix(node, walk, place) if sure else None,
        )

    def _fix(self, node: cst.Call, walk: _Walk, place: Place) -> Fix | None:
        leaves = _leaves(node, walk, place)
        if leaves is None or len(node.args) != 1 or place.kind(walk.subjects[0]).optional:
            return None
        shown = place.text(walk.subjects[0])
        return place.replace(leaves, f"[{shown}]", safety="unsafe", message=f"Write `[{shown}]`")


class MapOverOneTensor(Rule):
    """A function is mapped over a value that is one tensor.

    ## What it does

    Flags `tree.map_structure(f, x)` and `tree_map(f, x)` in hot code, where `x` is a tensor.

    ## Why it costs

    The walk takes the structure apart, calls `f` once, and puts the structure together again. Calling
    `f(x)` gives the same without the walk.

    ## Example

    ```python
    y = tree_map(torch.relu, x.float())
    ```

    ## Instead

    ```python
    y = torch.relu(x.float())
    ```

    ## Fix safety

    Unsafe: the fix trusts the annotation or the use by which the value is known to be one tensor. A caller
    that passes a list in spite of it would get `f` of the list.
    """

    code = "DG102"
    name = "map-over-one-tensor"
    origin = "keras#22770"
    looks_for = Call(*_MAPS)
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Speaks where all that is mapped over are tensors."""
        walk = _walk(node, place)
        if walk is None or not walk.subjects or any(_asked(s, place) for s in walk.subjects):
            return None
        if not all(place.kind(s).maybe_tensor for s in walk.subjects):
            return None
        sure = all(place.is_tensor(s) for s in walk.subjects)
        shown = ", ".join(place.text(s) for s in walk.subjects)
        function = (
            place.text(node.args[0].value) if walk.function != "tree_map_only" else "the function"
        )
        called = (
            f"`{function}({shown})`"
            if function.replace(".", "").isidentifier()
            else "call the function"
        )
        one = "is one tensor" if len(walk.subjects) == 1 else "are tensors"
        message = (
            f"`{shown}` {one}, yet `{walk.function}` walks it as a tree and rebuilds the structure, "
            f"which costs host time on every call; {called} directly"
        )
        return place.finding(
            node,
            message,
            certainty="sure" if sure else "maybe",
            fix=self._fix(node, walk, place) if sure else None,
        )

    def _fix(self, node: cst.Call, walk: _Walk, place: Place) -> Fix | None:
        function = node.args[0].value
        plain = all(a.keyword is None for a in node.args) and walk.function != "tree_map_only"
        if not plain or not isinstance(function, cst.Name | cst.Attribute):
            return None
        if any(place.kind(s).optional for s in walk.subjects):
            return None
        new = f"{place.text(function)}({', '.join(place.text(s) for s in walk.subjects)})"
        return place.replace(
            node, new, safety="unsafe", message=f"Call `{place.text(function)}` directly"
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

    No fix: which arguments can be nested, only the author knows.
    """

    code = "DG103"
    name = "flatten-only-to-scan"
    origin = "keras#23187"
    looks_for = Call(*_FLATTENS)

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Speaks where the leaves are asked a question and then dropped."""
        walk = _walk(node, place)
        if walk is None or not walk.subjects:
            return None
        subject = walk.subjects[0]
        leaves = _leaves(node, walk, place)
        if leaves is None or place.is_tensor(subject) or _asked(subject, place):
            return None
        test = _scan(leaves, place) or self._scan_by_name(leaves, place)
        if test is None:
            return None
        message = (
            f"`{place.text(node)}` lists every leaf on each call only to ask "
            f"`{_short(test, place)}` of them; ask the values themselves first, "
            "and flatten only those that are nested"
        )
        return place.finding(node, message)

    def _scan_by_name(self, leaves: cst.BaseExpression, place: Place) -> cst.BaseExpression | None:
        """The same for `flat = flatten(x)` where every use of `flat` is a scan."""
        assign = place.parent(leaves)
        if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
            return None
        target = assign.targets[0].target
        if not isinstance(target, cst.Name) or place.assignments(target.value) != 1:
            return None
        tests = list(_scans_of_name(target.value, place))
        return tests[0] if tests and len(tests) == place.uses(target.value) else None


def _scans_of_name(name: str, place: Place) -> Iterator[cst.BaseExpression]:
    for call, _ in place.calls("any", "all", "next"):
        around = call.args[0].value if call.args else None
        if isinstance(around, cst.GeneratorExp) and _is_name(around.for_in.iter, name):
            test = _scan_of(around, place)
            if test is not None:
                yield test


def _is_name(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def _short(node: cst.CSTNode, place: Place, limit: int = 60) -> str:
    shown = " ".join(place.text(node).split())
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


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
    looks_for = Call(*_FLATTENS)

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Speaks at the second of two flattens that surely see the same."""
        walk = _walk(node, place)
        if walk is None or not walk.subjects or place.scene.deferred:
            return None
        subject = walk.subjects[0]
        if not _steady(subject, place) or place.is_tensor(subject):
            return None
        if not any(self._ran_before(call, place, walk) for call in self._earlier(node, place)):
            return None
        shown = place.text(subject)
        message = (
            f"`{shown}` was flattened before in this function, and is walked again here on every call; "
            "keep the leaves of the first walk in a name"
        )
        return place.finding(node, message)

    def _earlier(self, node: cst.Call, place: Place) -> Iterator[cst.Call]:
        mine = place.scene
        for call, scene in place.calls(*_FLATTENS):
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

    def _ran_before(self, call: cst.Call, place: Place, mine: _Walk) -> bool:
        walk = _walk(call, place)
        if walk is None or not walk.subjects or walk.module != mine.module:
            return False
        keywords = any(a.keyword is not None for a in call.args)
        return not keywords and place.same(walk.subjects[0], mine.subjects[0])


def _steady(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression of names gives the same wherever the function asks for it."""
    if isinstance(node, cst.Tuple | cst.List):
        return bool(node.elements) and all(_steady(e.value, place) for e in node.elements)
    if isinstance(node, cst.Subscript):
        return _index(node) is not None and _steady(node.value, place)
    name = place.dotted(node)
    if not name:
        return False
    parts = name.split(".")
    owners = [".".join(parts[: i + 1]) for i in range(1, len(parts))]
    return place.assignments(parts[0]) <= 1 and not any(place.assignments(o) for o in owners)


class UnguardedTreeWalk(Rule):
    """What a layer takes or gives is walked as a tree without asking whether it is one tensor.

    ## What it does

    Flags tree walks on hot paths over a layer's input, output or mask (`inputs`, `outputs`, `mask`, `x`,
    `y_pred` …), and walks that collect the mask of every leaf, where the function never asks whether the
    value is one tensor.

    ## Why it costs

    Such a value may be nested, and is one tensor in most calls. Then the walk, its list and the structure it
    rebuilds are host time on every call of every layer. Asking `isinstance(x, torch.Tensor)` first costs a
    fraction of that.

    ## Example

    ```python
    mask = tree.map_structure(get_mask, inputs)
    ```

    ## Instead

    ```python
    if isinstance(inputs, torch.Tensor):
        mask = get_mask(inputs)
    else:
        mask = tree.map_structure(get_mask, inputs)
    ```

    ## Fix safety

    No fix: what counts as one tensor (symbolic ones, subclasses) is the library's to say.
    """

    code = "DG105"
    name = "unguarded-tree-walk"
    origin = "keras#23187"
    looks_for = Call(*_FLATTENS, *_MAPS)

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Speaks where a value of a layer may be nested, mostly is not, and nobody asks."""
        walk = _walk(node, place)
        if walk is None or len(walk.subjects) != 1 or _walks_for_others(place):
            return None
        subject = walk.subjects[0]
        kind = place.kind(subject)
        if kind.is_tensor or kind.not_tensor or _asked(subject, place) or not place.dotted(subject):
            return None
        if walk.flattens and self._has_own_rule(node, walk, place):
            return None
        certainty = self._certainty(node, walk, place)
        if certainty == "":
            return None
        shown = place.text(subject)
        one = "spec" if shown.endswith("_spec") else "tensor"
        ask = (
            f"whether `{shown}` is a single spec"
            if one == "spec"
            else f"`isinstance({shown}, torch.Tensor)`"
        )
        message = (
            f"`{shown}` may be nested but is one {one} in most calls, and `{walk.function}` walks it "
            f"as a tree each time; test {ask} first and walk only what is nested"
        )
        return place.finding(node, message, certainty="sure" if certainty == "sure" else "maybe")

    def _has_own_rule(self, node: cst.Call, walk: _Walk, place: Place) -> bool:
        leaves = _leaves(node, walk, place)
        return leaves is not None and (
            _scan(leaves, place) is not None or _first_leaf(leaves, place)
        )

    def _certainty(self, node: cst.Call, walk: _Walk, place: Place) -> str:
        last = place.dotted(walk.subjects[0]).rpartition(".")[2]
        mapped = "" if walk.flattens else place.dotted(node.args[0].value).rpartition(".")[2]
        if _ONE.fullmatch(last) or _GETS_MASK.fullmatch(mapped):
            return "sure"
        if _ONE_IN_KERAS.fullmatch(last):
            return "sure" if walk.module.startswith(("keras.", "tree")) else "maybe"
        return ""


def _walks_for_others(place: Place) -> bool:
    """Whether the function is itself part of a tree library: there the walk is the work."""
    name = place.function.name.value
    return name in (*_FLATTENS, *_MAPS) or name.startswith(("tree_", "map_structure", "_tree"))


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

    No fix: how deep the first leaf may lie, only the author knows.
    """

    code = "DG106"
    name = "flatten-for-first-leaf"
    origin = "keras#22674"
    looks_for = Call(*_FLATTENS)

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Speaks where all leaves are listed and one is taken."""
        walk = _walk(node, place)
        if walk is None or not walk.subjects:
            return None
        subject = walk.subjects[0]
        leaves = _leaves(node, walk, place)
        if leaves is None or not _first_leaf(leaves, place):
            return None
        if place.is_tensor(subject) or _asked(subject, place):
            return None
        shown = place.text(subject)
        message = (
            f"`{place.text(node)}` lists all leaves on every call and only the first is used; take "
            f"`{shown}` itself where it is a tensor, and walk it only where it is nested"
        )
        return place.finding(node, message)
