"""Watches for calls that cost more than they need to when repeated: generator contexts, signature lookups,
reads of the environment, tree walks over a single leaf."""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from pytest_dispatchguard.runtime.code.foreign import is_user_s
from pytest_dispatchguard.runtime.compiled.program import Compiling
from pytest_dispatchguard.runtime.hooks.function_calls import each_function
from pytest_dispatchguard.runtime.syncs.syncs import Frame, Sync, place_of
from pytest_dispatchguard.runtime.torch_private.dispatcher import is_optimizer_step
from pytest_dispatchguard.runtime.watch.imports import Importing
from pytest_dispatchguard.runtime.watch.instruction_profile import InstructionProfiles
from pytest_dispatchguard.runtime.watch.per_call_functions import Building

Ask = Callable[[FrameType], "str | None"]
"""The name of a call in a message; None if it is not to be reported."""


class Costly(NamedTuple):
    """A function that costs more than its caller needs."""

    code: str
    """The linter's rule for the same thing."""
    why: str
    operation: Ask


def _generator(frame: FrameType) -> str | None:
    manager = frame.f_locals.get("self")
    made = getattr(manager, "gen", None)
    code = getattr(made, "gi_code", None)
    # Contexts of Python or torch are not for the user to rewrite.
    return None if code is None or not is_user_s(code) else str(getattr(made, "__qualname__", "?"))


def _named(name: str) -> Ask:
    return lambda frame: name


def _leaf(name: str) -> Ask:
    def asked(frame: FrameType) -> str | None:
        torch = sys.modules.get("torch")
        tree = frame.f_locals.get("tree", frame.f_locals.get("pytree"))
        return name if torch is not None and isinstance(tree, torch.Tensor) else None

    return asked


def _costly() -> dict[CodeType, Costly]:
    """The functions to watch, by code."""
    found: dict[CodeType, Costly] = {}

    def add(function: Any, code: str, operation: Ask, why: str) -> None:
        known = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
        if known is not None:
            found[known] = Costly(code, why, operation)

    managers: Any = vars(contextlib)
    add(
        managers["_GeneratorContextManager"].__enter__,
        "DG201",
        _generator,
        "a context made by a generator is built, started and ended by Python code each time; a class with "
        "`__enter__` and `__exit__` spares most of that",
    )
    add(
        contextlib.ExitStack.__enter__,
        "DG202",
        _named("ExitStack"),
        "a stack for contexts is built and unwound by Python code each time",
    )
    add(
        contextlib.nullcontext.__enter__,
        "DG203",
        _named("nullcontext"),
        "a context that does nothing is made and entered each time; an `if` costs nothing",
    )
    add(
        contextlib.suppress.__enter__,
        "DG204",
        _named("suppress"),
        "`try` and `except` do the same without an object and two calls",
    )
    add(
        inspect.signature,
        "DG601",
        _named("inspect.signature"),
        "a signature does not change: look it up once",
    )
    environment: Any = os.environ
    add(
        type(environment).__getitem__,
        "DG603",
        _named("os.environ"),
        "the environment is read and decoded each time: read it once",
    )
    add(
        copy.deepcopy,
        "DG606",
        _named("deepcopy"),
        "all that hangs on it is copied each time",
    )
    return found


_TREES = str(Path("torch", "utils", "_pytree.py"))
_WALKS = {
    "tree_flatten": "DG101",
    "tree_leaves": "DG101",
    "tree_flatten_with_path": "DG101",
    "tree_map": "DG102",
    "tree_map_": "DG102",
}


def _of_torch(code: CodeType) -> Costly | None:
    """The entry for a function of torch, which may be imported after watching began."""
    rule = _WALKS.get(code.co_name)
    if rule is None or not code.co_filename.endswith(_TREES):
        return None
    return Costly(rule, "it is given one tensor, and walks it as a tree", _leaf(code.co_name))


class CostlyCalls:
    """The costly calls seen so far, made by user code. Profiles a call of each function in files that are
    the project's `own`, with instruction counts if `figures`."""

    def __init__(
        self, own: Callable[[str], bool] = lambda path: True, *, figures: bool = True
    ) -> None:
        # By id, as comparing code is slow.
        self._codes: dict[int, CodeType] = {id(code): code for code in _costly()}
        self._known: dict[int, Costly | None] = {id(c): costly for c, costly in _costly().items()}
        self._places: dict[tuple[int, str, int, int], list[Any]] = {}
        """By callee, name and line of the call: the finding, and its count."""
        self._stepping: set[int] = set()
        """The wrappers of optimizer steps."""
        self._building = Building()
        self._importing = Importing(own)
        self._compiling = Compiling()
        self.steps: Counter[tuple[Frame, ...]] = Counter()
        """Optimizer steps, by the stack of the caller."""
        self.looks = InstructionProfiles(own, figures)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches all threads."""
        with (
            self._compiling.watching(),
            self._importing.watching(),
            each_function(self._entered),
        ):
            try:
                yield
            finally:
                self.looks.end()

    @property
    def times(self) -> Counter[Sync]:
        """The costly calls, with counts."""
        times = self._building.wasted()
        times.update(self._importing.times)
        times.update(self._compiling.times)
        for seen, number in list(self._places.values()):
            times[seen] += number
        return times

    def _entered(self, frame: FrameType) -> bool:
        code = frame.f_code
        key = id(code)
        try:
            costly = self._known[key]
        except KeyError:
            self._codes[key] = code
            costly = self._known[key] = _of_torch(code)
            if is_optimizer_step(code):
                self._stepping.add(key)
        if key in self._stepping:
            self.steps[place_of(frame)] += 1
            return True
        wanted = self._building.entered(frame)
        wanted = self.looks.entered(frame) or wanted
        if costly is None:
            return wanted
        caller = _caller(frame)
        if caller is not None:
            operation = costly.operation(frame)
            if operation is not None:
                place = (key, operation, id(caller.f_code), caller.f_lineno)
                known = self._places.get(place)
                if known is None:
                    self._codes[id(caller.f_code)] = caller.f_code
                    way = place_of(caller)
                    seen = Sync(operation, costly.why, costly.code, way, waits=False)
                    known = self._places[place] = [seen, 0]
                known[1] += 1
        return True


_BETWEEN = frozenset({"_collections_abc", "collections.abc", "os"})
"""Modules of Python that only pass a lookup in the environment on."""


def _caller(frame: FrameType) -> FrameType | None:
    """The frame of the caller; None unless it is user code."""
    at = frame.f_back
    while at is not None and at.f_globals.get("__name__") in _BETWEEN:
        at = at.f_back
    return at if at is not None and is_user_s(at.f_code) else None
