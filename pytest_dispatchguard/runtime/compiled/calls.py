"""Classifies the Python functions of a compiled call, and lists what the generated code calls."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any

from pytest_dispatchguard.model.layers import LayerKind
from pytest_dispatchguard.runtime.hooks.call_tree import PythonCall, variables_of
from pytest_dispatchguard.runtime.torch_private.compiler import code_before
from pytest_dispatchguard.runtime.torch_private.dispatcher import in_grad_state
from pytest_dispatchguard.runtime.torch_private.guard_trees import cache_entries, guard_tree

_GRAPH, _RESUME = "__compiled_fn", "__resume_at"
"""Prefixes of the names that Dynamo gives to graphs, and to the code after a break."""


@dataclass(frozen=True, slots=True)
class Role:
    """The job of a torch function in a compiled call."""

    name: str
    kind: LayerKind


_DYNAMO = Role("Dynamo's way in", "frame")
_AOT = Role("AOTAutograd's wrapper", "wrapper")
_INDUCTOR = Role("Inductor's wrapper", "wrapper")
_GENERATED = Role("the generated code", "compiled")
_DISABLED = Role("torch._dynamo.disable", "wrapper")
"""The wrapper around graphs and profiler marks that hides them from Dynamo."""
_CHECKING = Role("guards written in Python", "guards")
_OF_COMPILE, _OF_DISABLE = ("compile_wrapper",), ("_fn",)
"""Names of the functions that torch._dynamo wraps around others."""
_PLACES = (
    (f"{os.sep}_dynamo{os.sep}guards.py", _CHECKING),
    (f"{os.sep}torch{os.sep}_dynamo{os.sep}", _DYNAMO),
    (f"{os.sep}torch{os.sep}_compile.py", _DISABLED),
    (f"{os.sep}torch{os.sep}compiler{os.sep}", _DYNAMO),
    (f"{os.sep}torch{os.sep}_functorch{os.sep}", _AOT),
    ("subclass_codegen", _AOT),
    (f"{os.sep}torch{os.sep}_inductor{os.sep}", _INDUCTOR),
)


def is_rewritten(call: PythonCall) -> bool:
    """Whether it is a user's function that Dynamo rewrote."""
    return any(name.startswith((_GRAPH, _RESUME)) for name in call.code.co_names)


def is_generated(call: PythonCall) -> bool:
    """Whether it is code that Inductor wrote."""
    return "async_compile" in call.code.co_names or (
        call.code.co_name == "call" and "empty_strided_cpu" in _names(call)
    )


def _names(call: PythonCall) -> Mapping[str, Any]:
    return {} if call.function is None else call.function.__globals__


def role(call: PythonCall) -> Role | None:
    """The job of a function in a compiled call; None for the user's own functions."""
    if is_rewritten(call):
        return Role(f"{call.code.co_name}, as Dynamo rewrote it", "wrapper")
    if is_generated(call):
        return _GENERATED
    if call.code.co_name in _OF_DISABLE and _is_in_dynamo(call):
        return _DISABLED
    return next((found for place, found in _PLACES if place in call.code.co_filename), None)


def lets_in(call: PythonCall) -> bool:
    """Whether it is the wrapper that runs its callees compiled."""
    return call.code.co_name in _OF_COMPILE and _is_in_dynamo(call)


def keeps_out(call: PythonCall) -> bool:
    """Whether it is the wrapper that runs its callees eagerly."""
    return role(call) == _DISABLED


def _is_in_dynamo(call: PythonCall) -> bool:
    return call.code.co_filename.endswith(f"_dynamo{os.sep}eval_frame.py")


@dataclass(frozen=True, slots=True)
class Checks:
    """The guards that are checked before a call runs compiled code."""

    roots: Sequence[Any]
    """The roots of the guard trees that are checked: all up to the first that holds."""
    values: Mapping[str, Any]
    """The local variables of the call, which the guards check."""
    state: tuple[bool, bool]
    """Whether grad mode is on, and inference mode."""


def checks_of(calls: Iterable[PythonCall]) -> list[Checks | None]:
    """The guards that calls of rewritten functions check, call by call, if the calls are repeated in this
    order. None where they cannot be found, or do not hold outside of the call. The cache entry that holds is
    moved to the front, so the next call checks it first."""
    orders: dict[CodeType, list[Any]] = {}
    found: list[Checks | None] = []
    for call in calls:
        before = code_before(call.code)
        if before is None or call.function is None:
            found.append(None)
            continue
        entries = orders.setdefault(before, cache_entries(before))
        at = next((i for i, entry in enumerate(entries) if entry.code is call.code), None)
        if at is None:
            found.append(None)
            continue
        roots = [guard_tree(entry) for entry in entries[: at + 1]]
        entries.insert(0, entries.pop(at))
        values = variables_of(call)
        with in_grad_state(*call.state):
            held = [root.check(values) for root in roots]
        alone = held == [*[False] * at, True]
        found.append(Checks(roots, values, call.state) if alone else None)
    return found


@contextmanager
def guards_skipped() -> Iterator[None]:
    """Makes compiled calls check only the guards that distinguish cache entries."""
    import torch

    with torch.compiler.set_stance(skip_guard_eval_unsafe=True):
        yield


def unrecorded() -> AbstractContextManager[object]:
    """Disables grad mode, as generated code runs without it: autograd is handled around it."""
    import torch

    found: AbstractContextManager[object] = torch.no_grad()
    return found


@dataclass(frozen=True, slots=True)
class Made:
    """A call that generated code makes."""

    name: str
    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @property
    def kind(self) -> LayerKind:
        """The layer that it belongs to."""
        if self.name.startswith(("empty_strided", "alloc_from_pool")):
            return "allocation"
        return "compiled" if self.name.startswith(("assert_", "reinterpret_tensor")) else "kernel"


def made_by(call: PythonCall) -> list[Made]:
    """The calls of generated code, found by running it again."""
    assert call.function is not None
    space = call.function.__globals__
    made: list[Made] = []
    before = {name: space[name] for name in call.code.co_names if name in space}
    try:
        for name, value in before.items():
            space[name] = _Noted(name, value, made)
        with unrecorded():
            call.function(
                *(list(a) if isinstance(a, list) else a for a in call.args), **call.kwargs
            )
    finally:
        space.update(before)
    return made


class _Noted:
    """A stand-in for a value in generated code that records calls."""

    def __init__(self, name: str, value: Any, made: list[Made]) -> None:
        self._name, self._value, self._made = name, value, made

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._value, name)
        if isinstance(self._value, type(sys)) and not callable(value):
            return value  # torch.float32
        return _Noted(f"{self._name}.{name}", value, self._made) if callable(value) else value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._made.append(Made(self._name, self._value, args, kwargs))
        return self._value(*args, **kwargs)
