"""Finds the guards of the compiled code that an expression runs, grouped by cause, and times each group
against all guards without it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.measure.timing.timing import Sample, sample
from pytest_dispatchguard.model.compiled import GuardedCode, GuardFilter, GuardGroup
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.runtime import target as targets
from pytest_dispatchguard.runtime.compiled.guards import Cause, Guard, cause_of, guards_in
from pytest_dispatchguard.runtime.torch_private import compiler, guard_trees
from pytest_dispatchguard.runtime.torch_private.guard_trees import Built

_MOST_TIMED = 12
"""The most groups of a function that are timed, largest first."""
_MOST_TREES = 8
_CONFIDENCE = 0.999
_MOST_PLACES = 3
_WORTH_A_TUPLE = 8
"""The number of constants from which a tuple of them needs fewer checks: it has some four of its own."""
_CAUSES = {
    "attribute": "module attribute",
    "tensors": "parameters and buffers",
    "structure": "make-up of a module: types, dicts, hooks, submodules",
    "argument": "argument",
    "global": "global",
    "library": "modules and builtins that the code uses",
    "ambient": "ambient state: grad mode, autocast, threads, default device, function modes",
}


@dataclass(slots=True)
class _Trees:
    """The guards of one function, whole and without parts."""

    built: Built
    modules: Collection[str]
    groups: Mapping[Cause, Sequence[Guard]]
    values: Mapping[Cause, list[object]]
    """The constants that are checked."""
    without: dict[Cause, Any] = field(default_factory=dict)
    filtered: dict[str, Any] = field(default_factory=dict)
    empty: Any = None


def guarded(target: str, setup: str, folder: Path, *, seconds: float = 0.3) -> list[GuardedCode]:
    """What is checked before the compiled code that an expression runs. It is evaluated once, and all it runs
    is compiled anew; each group is timed for so many seconds, none where that is 0."""
    code, names = targets.prepared(target, setup, folder)
    targets.need_compiler()
    trees: list[_Trees] = []
    compiler.reset_compiler()
    with compiler.no_caches(), guard_trees.guards_built(lambda b: trees.append(_trees(b))):
        targets.run(code, names, folder)
    if not trees:
        raise UserError(
            "nothing is compiled in TARGET: it must call a function or module that torch.compile has made"
        )
    return [_code(one, seconds) for one in trees]


def checking(
    run: Callable[[], object], prepare: Callable[[], object], seconds: float
) -> Interval | None:
    """The time of checking all guards of a call; None if there are several trees, or if they only hold
    within the call. Recompiles all that it runs."""
    found: list[tuple[Built, Any]] = []
    compiler.reset_compiler()
    with (
        compiler.no_caches(),
        guard_trees.guards_built(lambda b: found.append((b, b.without(guard_trees.no_guards)))),
    ):
        prepare()
        run()
    if not 0 < len(found) <= _MOST_TREES or not all(b.root.check(b.values) for b, _ in found):
        return None
    parts = [_saved(b.root, b.values, empty, seconds / len(found)) for b, empty in found]
    ends = [(part.value, part.low, part.high) for part in parts if part is not None]
    return Interval(*map(math.fsum, zip(*ends, strict=True)))


def _trees(built: Built) -> _Trees:
    """Builds the guard trees to compare, which is only possible while compiling."""
    import torch

    modules = {name for name, value in built.values.items() if isinstance(value, torch.nn.Module)}
    groups: dict[Cause, list[Guard]] = defaultdict(list)
    for guard in guards_in(built.root):
        groups[guard.cause(modules)].append(guard)
    of_entry = [_cause(entry, modules) for entry in built.entries]
    values: dict[Cause, list[object]] = defaultdict(list)
    for cause, entry in zip(of_entry, built.entries, strict=True):
        values[cause].append(entry.value)
    found = _Trees(built, modules, groups, values)
    most = sorted(groups, key=lambda cause: -len(groups[cause]))[:_MOST_TIMED]
    for cause in most:
        if cause in of_entry:
            found.without[cause] = built.without(partial(_all_but, cause, modules))
    for name, keeps in guard_trees.helpers().items():
        found.filtered[name] = built.without(keeps)
    found.empty = built.without(guard_trees.no_guards)
    return found


def _all_but(cause: Cause, modules: Collection[str], entries: list[Any]) -> list[bool]:
    return [_cause(entry, modules) != cause for entry in entries]


def _cause(entry: Any, modules: Collection[str]) -> Cause:
    return cause_of(
        guard_trees.name_of(entry), type(entry.value) if entry.has_value else object, modules
    )


def _code(trees: _Trees, seconds: float) -> GuardedCode:
    built = trees.built
    total = sum(map(len, trees.groups.values()))
    holds = built.root.check(built.values)
    timing = holds and seconds
    timed = partial(_saved, built.again, built.values) if timing else lambda other, seconds: None
    whole = _saved(built.root, built.values, trees.empty, seconds) if timing else None
    groups = [
        GuardGroup(
            _CAUSES[cause.kind],
            cause.name,
            len(guards),
            dict(Counter(guard.kind for guard in guards).most_common()),
            _places(guards),
            timed(trees.without[cause], seconds) if cause in trees.without else None,
            tuple(_advice(cause, guards, trees)),
        )
        for cause, guards in trees.groups.items()
    ]
    filters = []
    for name, root in trees.filtered.items():
        left = _number(root)
        if left < total:
            unseen = guard_trees.HELPERS[name]
            filters.append(GuardFilter(name, left, timed(root, seconds), unseen))
    code = built.code
    return GuardedCode(
        getattr(code, "co_qualname", code.co_name),
        code.co_filename,
        code.co_firstlineno,
        total,
        whole,
        tuple(sorted(groups, key=lambda g: (-g.number, g.cause, g.name))),
        tuple(filters),
        ""
        if holds
        else "its guards hold only within the call, so what they take cannot be measured",
    )


def _number(root: Any) -> int:
    return sum(1 for _ in guards_in(root))


def _saved(root: Any, values: Mapping[str, object], other: Any, seconds: float) -> Interval | None:
    """How much longer one guard tree takes than another."""
    taken: Sample = sample(
        Call(root.check, (values,)),
        Call(other.check, (values,)),
        enough=lambda found: False,
        seconds=seconds,
        confidence=_CONFIDENCE,
    )
    return taken.extra_us


def _places(guards: Sequence[Guard]) -> tuple[str, ...]:
    places = Counter(
        f"{guard.place}{f': {guard.text}' if guard.text else ''}" for guard in guards if guard.place
    )
    return tuple(place for place, _ in places.most_common(_MOST_PLACES))


def _advice(cause: Cause, guards: Sequence[Guard], trees: _Trees) -> list[str]:
    """Changes, each of which removes the group."""
    if cause.kind == "attribute":
        return _of_constants(cause, guards, trees)
    if cause.kind == "argument" and any("size()" in guard.expression for guard in guards):
        said = (
            f"its sizes are dynamic: torch._dynamo.mark_static({cause.name}) before the first call fixes "
            "them, and every other size is compiled anew"
        )
        return [said]
    if cause.kind in ("argument", "ambient"):
        return []
    for name, root in trees.filtered.items():
        left = sum(1 for guard in guards_in(root) if guard.cause(trees.modules) == cause)
        if left * 2 <= len(guards):
            filtering = f'options={{"guard_filter_fn": torch.compiler.{name}}}'
            unseen = guard_trees.HELPERS[name]
            return [
                f"{filtering} leaves {left} of {len(guards)}, unsafe: may change unseen: {unseen}"
            ]
    return []


def _of_constants(cause: Cause, guards: Sequence[Guard], trees: _Trees) -> list[str]:
    """Changes that remove checks of an attribute's value."""
    attribute, found = cause.name.rpartition(".")[2], []
    if not attribute.isidentifier() or cause not in trees.without:
        return []
    values = trees.values[cause]
    equal = all(type(v) is type(values[0]) and v == values[0] for v in values)
    if len(guards) >= _WORTH_A_TUPLE and not equal:
        said = "in the module that is compiled, handed to each, is a handful of checks"
        found.append(f"a tuple of all {len(guards)} {said}")
    if len(guards) > 1 and equal:
        found.append(
            f"all {len(guards)} are {values[0]!r}: a constant of the file that is read in place of the "
            "attribute is checked once"
        )
    keeps = f'lambda gs: [not g.name.endswith(".{attribute}") for g in gs]'
    found.append(
        f'options={{"guard_filter_fn": {keeps}}}, unsafe: where `{attribute}` changes after compiling, the '
        "old value is used"
    )
    return found
