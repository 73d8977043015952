"""Private names of torch's compiler for guards: cache entries, guard trees and guard filters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any

HELPERS = {
    "skip_guard_on_inbuilt_nn_modules_unsafe": "hooks and attributes of torch's own modules, as nn.Linear",
    "skip_guard_on_globals_unsafe": "globals, among them functions and classes of modules",
    "skip_guard_on_all_nn_modules_unsafe": "hooks, attributes, parameters and submodules of all modules",
    "keep_tensor_guards_unsafe": "everything but tensors that are given, grad mode and autocast too",
}
"""Filters that `torch.compiler` offers as `guard_filter_fn`, and what may then change unnoticed; safest
first."""
GuardFilter = Callable[[list[Any]], list[bool]]
"""Which guards to keep, as `torch.compile` takes it for `guard_filter_fn`."""


def cache_entries(code: CodeType) -> list[Any]:
    """The cache entries of code: what torch goes through when the code is called."""
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    return list(_debug_get_cache_entry_list(code))


def guard_tree(entry: Any) -> Any:
    """The root of a cache entry's guard tree."""
    manager = getattr(entry, "guard_manager", None)
    root = getattr(manager, "root", None)
    if root is None:
        raise NotImplementedError("this torch keeps its guards in no tree")
    return root


def no_guards_tree() -> Any:
    """The root of an empty guard tree."""
    from torch._C._dynamo.guards import RootGuardManager

    return RootGuardManager()


def managers(root: Any) -> Iterator[Any]:
    """The nodes of a guard tree, parents first."""
    yield root
    pairs = getattr(root, "get_key_value_managers", None)
    below = [m for _, pair in sorted(pairs().items()) for m in pair] if pairs is not None else []
    for manager in (*below, *root.get_child_managers()):
        if manager is not None:
            yield from managers(manager)


def leaf_guards(manager: Any) -> list[Any]:
    """The leaf guards of a node."""
    last = getattr(manager, "get_epilogue_lambda_guards", list)
    return [*manager.get_leaf_guards(), *last()]


def guarded_type(manager: Any) -> type:
    """The type of the value that a node guards; before torch 2.9 a guess from its leaf guards."""
    known = getattr(manager, "get_type_of_guarded_value", None)
    if known is not None:
        found: type = known()
        return found
    import torch

    kinds = {type(leaf).__name__ for leaf in leaf_guards(manager)}
    if "TENSOR_MATCH" in kinds:
        tensor: type = torch.Tensor
        return tensor
    constant = kinds & {"EQUALS_MATCH", "TRUE_MATCH", "FALSE_MATCH"}
    return float if constant else object


@dataclass(frozen=True, slots=True)
class Built:
    """The guards that were built when code was compiled."""

    code: CodeType
    root: Any
    again: Any
    """The root of the same guards built again, to compare with filtered ones: memory layout changes times
    too."""
    values: Mapping[str, object]
    """What the guards check: the local variables of the call that was compiled."""
    entries: list[Any]
    """What a guard filter receives."""
    without: Callable[[GuardFilter], Any]
    """Builds the guards again with a filter and returns their root; works only while compiling."""


@contextmanager
def guards_built(seen: Callable[[Built], None]) -> Iterator[None]:
    """Calls `seen` for all guards that torch builds in this context."""
    from torch._dynamo.guards import CheckFunctionManager

    build = CheckFunctionManager.__init__
    form = inspect.signature(build)
    building = False

    def built(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal building
        build(self, *args, **kwargs)
        if building:
            return
        bound = form.bind(self, *args, **kwargs)
        users = bound.arguments.get("guard_filter_fn")
        entries: list[Any] = []

        def noted(given: list[Any]) -> list[bool]:
            entries.extend(given)
            return [True] * len(given)

        def without(keeps: GuardFilter) -> Any:
            def both(given: list[Any]) -> list[bool]:
                kept = users(given) if users is not None else [True] * len(given)
                return [bool(a and b) for a, b in zip(kept, keeps(given), strict=True)]

            other = CheckFunctionManager.__new__(CheckFunctionManager)
            changed = {**bound.arguments, "guard_filter_fn": both, "self": other}
            if "cache_entries" in changed:
                changed["cache_entries"] = None
            build(**changed)
            return other.guard_manager.root

        building = True
        try:
            again = without(noted)
            graph = bound.arguments["output_graph"]
            values = dict(graph.local_scope)
            root, code = self.guard_manager.root, bound.arguments["f_code"]
            seen(Built(code, root, again, values, entries, without))
        finally:
            building = False

    CheckFunctionManager.__init__ = built
    try:
        yield
    finally:
        CheckFunctionManager.__init__ = build


def helpers() -> dict[str, GuardFilter]:
    """The guard filters that this torch offers, safest first."""
    import torch

    offered = ((name, getattr(torch.compiler, name, None)) for name in HELPERS)
    return {name: keeps for name, keeps in offered if keeps is not None}


def no_guards(given: list[Any]) -> list[bool]:
    """The filter that keeps nothing."""
    return [False] * len(given)


def name_of(entry: Any) -> str:
    """The source of a guard that a filter receives."""
    name = entry.orig_guard.name
    return str(name() if callable(name) else name)
