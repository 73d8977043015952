"""Exact counts of what one call does, which are equal in every run on one version of Python and torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import FunctionType

from pytest_dispatchguard.runtime.compiled import counts as compiled
from pytest_dispatchguard.runtime.counters import allocations, native
from pytest_dispatchguard.runtime.counters.calls import calls
from pytest_dispatchguard.runtime.counters.instructions import instructions_by_place
from pytest_dispatchguard.runtime.hooks.garbage_collector import collector_off
from pytest_dispatchguard.runtime.torch_private import compiler, lazy_backend

OF_PYTHON = ("instructions", "py_calls", "c_calls", "py_allocations")
OF_TORCH = ("dispatches", "functions", "tensor_allocations")
OF_LAZY = ("lazy_ops",)
OF_GHOST = ("syncs",)
OF_COMPILER = compiled.NAMES
OF_PROCESSOR = (native.NAME,)
NAMES = OF_PYTHON + OF_TORCH + OF_COMPILER + OF_LAZY + OF_GHOST + OF_PROCESSOR
"""All counters, in the order of reports. Those of the compiler are counted where a call runs compiled code,
the next ones on the lazy device or the ghost, the last one in a process of its own."""
ALWAYS = tuple(name for name in OF_PYTHON + OF_TORCH if name != "py_allocations")
"""The default counters; the others take a hundred times as long."""
COUNTABLE = OF_PYTHON + OF_TORCH if allocations.COUNTABLE else ALWAYS
"""The counters that work on this Python."""

OWN_CODE = "<dispatchguard>"
"""The file of code that makes calls, which is not counted."""
_WARM_UPS = 2
"""Calls before counting, so that one-time setup is not counted."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The counters of one call."""

    values: Mapping[str, int]
    varying: tuple[str, ...] = ()
    """Counters that differ from call to call; the maximum is kept."""
    compiled: bool = False
    """Whether it ran compiled code; known where instructions were counted."""

    def less(self, other: Counts) -> Counts:
        """These counters without those of what ran beside the call."""
        left = {n: max(0, v - other.values.get(n, 0)) for n, v in self.values.items()}
        return replace(self, values=left)


def count(
    run: FunctionType,
    names: Collection[str] = ALWAYS,
    prepare: Callable[[], object] = lambda: None,
) -> Counts:
    """Counts each group of counters in two calls of its own, to detect calls that do more each time.
    `prepare` runs before every call, uncounted. A call that compiles every time is not counted, as that
    would count torch's compiler."""
    for _ in range(_WARM_UPS - 1):
        prepare()
        run()
    prepare()
    if compiled.compiles(run):
        return Counts({}, compiled=True)
    with collector_off():
        _, files = _once(
            run, names, prepare
        )  # this call may compile, or cache, because it is watched
        (first, _), (second, _) = _once(run, names, prepare), _once(run, names, prepare)
        if first != second:
            first, (second, _) = second, _once(run, names, prepare)
    varying = tuple(name for name in first if first[name] != second[name])
    most = {name: max(first[name], second[name]) for name in first}
    prepare()
    return Counts(most, varying, compiled.runs_compiled(run, files))


def _once(
    run: FunctionType, names: Collection[str], prepare: Callable[[], object]
) -> tuple[dict[str, int], set[str]]:
    """The counters and, if torch's compiler is imported, the files whose code ran."""
    found: dict[str, int] = {}
    files: set[str] = set()
    if "instructions" in names:
        prepare()
        places = instructions_by_place(run)
        found["instructions"] = sum(n for (path, _), n in places.items() if path != OWN_CODE)
        if compiler.compiler_is_there():
            files = {path for path, _ in places}
    if "py_calls" in names or "c_calls" in names:
        prepare()
        found["py_calls"], found["c_calls"] = calls(run)
    if "py_allocations" in names and "py_allocations" in COUNTABLE:
        prepare()
        found["py_allocations"] = allocations.blocks(run)
    if any(name in names for name in OF_TORCH):
        found |= dict.fromkeys(OF_TORCH, 0)
    if any(name in names for name in OF_TORCH) and "torch" in sys.modules:
        from pytest_dispatchguard.runtime.counters import (
            torch_calls,  # code that never imported torch does not use it
        )

        prepare()
        found["dispatches"], found["tensor_allocations"] = torch_calls.dispatched(run)
        prepare()
        functions = torch_calls.functions(run)
        if functions is None:
            del found["functions"]
        else:
            found["functions"] = functions
    if "lazy_ops" in names:
        prepare()
        before = lazy_backend.lazy_operations()
        run()
        found["lazy_ops"] = lazy_backend.lazy_operations() - before
    return {name: found[name] for name in NAMES if name in names and name in found}, files
