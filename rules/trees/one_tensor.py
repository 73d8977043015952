"""DG101, DG102, DG105: a tree walk over what is a single tensor."""

from __future__ import annotations

import re

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Place, Rule

from .walks import FLATTENS, MAPS, Walk, first_leaf, is_tested, leaf_list, scan_test, walk_of

_ONE = re.compile(
    r"x|y|input|output|out|tensor|mask|(?:previous|input|output|attention)_mask|first_arg|\w*tensor_arg"
)
_ONE_IN_KERAS = re.compile(r"inputs|outputs|output_masks|input_spec|y_pred|y_true")
_GETS_MASK = re.compile(r"_?get_\w*mask|\w*mask_(?:from|of)_\w+")


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
    that passes a list anyway gets a list inside a list.
    """

    code = "DG101"
    name = "flatten-of-one-tensor"
    origin = "keras#22674"
    looks_for = Call(*FLATTENS, place="imported")
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags flattening of a tensor."""
        walk = walk_of(node, place)
        if walk is None:
            return None
        subject = walk.subjects[0]
        if not place.kind(subject).maybe_tensor or is_tested(subject, place):
            return None
        shown = place.text(subject)
        message = (
            f"`{shown}` is one tensor, yet `{walk.function}` walks it as a tree, which costs host "
            f"time on every call; `[{shown}]` is the same list"
        )
        sure = place.is_tensor(subject)
        return place.finding(
            node,
            message,
            certainty="sure" if sure else "maybe",
            fix=self._fix(node, walk, place) if sure else None,
        )

    def _fix(self, node: cst.Call, walk: Walk, place: Place) -> Fix | None:
        leaves = leaf_list(node, walk, place)
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
    that passes a list anyway would get `f` of the list.
    """

    code = "DG102"
    name = "map-over-one-tensor"
    origin = "keras#22770"
    looks_for = Call(*MAPS, place="imported")
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags maps over nothing but tensors."""
        walk = walk_of(node, place)
        if walk is None or any(is_tested(s, place) for s in walk.subjects):
            return None
        if not all(place.kind(s).maybe_tensor for s in walk.subjects):
            return None
        sure = all(place.is_tensor(s) for s in walk.subjects)
        shown = ", ".join(place.text(s) for s in walk.subjects)
        function = (
            place.text(node.args[0].value) if walk.function != "tree_map_only" else "the function"
        )
        called = (
            f"`{function}({shown})`" if function.replace(".", "").isidentifier() else "the function"
        )
        one, it = "is one tensor", "it as a tree"
        if len(walk.subjects) > 1:
            one, it = "are tensors", "them as trees"
        message = (
            f"`{shown}` {one}, yet `{walk.function}` walks {it} and rebuilds the structure, "
            f"which costs host time on every call; call {called} directly"
        )
        return place.finding(
            node,
            message,
            certainty="sure" if sure else "maybe",
            fix=self._fix(node, walk, place) if sure else None,
        )

    def _fix(self, node: cst.Call, walk: Walk, place: Place) -> Fix | None:
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


class UnguardedTreeWalk(Rule):
    """A layer's inputs or outputs are walked as a tree without checking for a single tensor first.

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

    No fix: only the library knows what counts as one tensor (symbolic ones, subclasses).
    """

    code = "DG105"
    name = "unguarded-tree-walk"
    origin = "keras#23187"
    looks_for = Call(*FLATTENS, *MAPS, place="imported")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags walks over a layer's values that do not check for a single tensor first."""
        walk = walk_of(node, place)
        if walk is None or len(walk.subjects) != 1 or _walks_for_others(place):
            return None
        subject = walk.subjects[0]
        kind = place.kind(subject)
        if (
            kind.is_tensor
            or kind.not_tensor
            or is_tested(subject, place)
            or not place.dotted(subject)
        ):
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
            f"as a tree each time; test {ask} first, and walk only nested values"
        )
        return place.finding(node, message, certainty="sure" if certainty == "sure" else "maybe")

    def _has_own_rule(self, node: cst.Call, walk: Walk, place: Place) -> bool:
        leaves = leaf_list(node, walk, place)
        return leaves is not None and (
            scan_test(leaves, place) is not None or first_leaf(leaves, place)
        )

    def _certainty(self, node: cst.Call, walk: Walk, place: Place) -> str:
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
    return name in (*FLATTENS, *MAPS) or name.startswith(("tree_", "map_structure", "_tree"))
