"""Watches which operations reach torch's dispatcher, by line of a project: how many, which results go unused,
and what is done twice."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from pytest_dispatchguard.model.operations import OperationsAt, together
from pytest_dispatchguard.runtime.hooks.dispatch_mode import DispatchMode
from pytest_dispatchguard.runtime.hooks.function_calls import each_function
from pytest_dispatchguard.runtime.hooks.tensors import storage_of, tensors
from pytest_dispatchguard.runtime.torch_private import dispatcher
from pytest_dispatchguard.runtime.watch.line_tally import LOOKED_AT, Tally
from pytest_dispatchguard.runtime.watch.operation_info import OperationInfo, operation_info
from pytest_dispatchguard.runtime.watch.operation_runs import Place, Runs

Rel = Callable[[str], "str | None"]
"""A file's path relative to the project root; None for files that are not the project's own."""

_VALUES = 64
"""Elements of constants whose values are compared."""
_OPERATIONS = 5000
"""Operations of a function that are examined; a script's loop is one long call."""
_OFTEN = 3
"""Calls that have to make a constant before it is reported."""
_PARTS = tuple(
    str(Path("torch", name)) + os.sep for name in ("optim", "distributed", "amp", "utils")
)
_PARAMETER = torch.nn.Parameter.__new__.__code__
"""It takes over the memory of a tensor, which the dispatcher does not see."""
_ADDED_BY_AUTOGRAD = frozenset({"detach", "alias"})
"""Operations that autograd adds to those that a line asks for."""


class _Done(NamedTuple):
    """An operation that ran in a call."""

    line: int
    given: list[Any]
    memory: list[tuple[int, int]]
    """The memory of each result, and its number of writes by then."""


class _Call:
    """A call of a function of the project that is running."""

    def __init__(self, number: int, frame: int, tallies: Mapping[tuple[int, int], Tally]) -> None:
        self.key = number, frame
        self.done: dict[Any, _Done] = {}
        """By operation and arguments."""
        self.runs = Runs(tallies)


@dataclass(eq=False)
class _Result:
    """The result of an operation, while it is unused."""

    code: CodeType
    tally: Tally
    alive: int = 0
    used: bool = False


class Operations:
    """The operations seen so far."""

    def __init__(self, rel: Rel) -> None:
        self._rel = rel
        # By the identity of code: equal code of another file is another function.
        self._codes: dict[int, CodeType] = {}
        self._own: dict[int, bool] = {}
        self._calls: dict[int, int] = {}
        self._looked_at: Counter[int] = Counter()
        self._now: dict[int, _Call] = {}
        self._tallies: dict[tuple[int, int], Tally] = {}
        self._unused: dict[int, tuple[Any, _Result]] = {}
        """Results that nobody has used yet, by their tensors' identity."""
        self._writes: Counter[int] = Counter()
        """How often memory was written to."""
        self._held: list[StorageWeakRef] = []
        self.writing = 0
        """How many `__setitem__` are running: they make tensors from numbers."""
        self._thread = 0
        self.elsewhere = 0
        """Operations that no line of the project caused."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches this thread. Compiled code runs eagerly meanwhile."""
        self._thread = threading.get_ident()
        with ExitStack() as stack:
            stack.enter_context(_eagerly())
            stack.enter_context(each_function(self._entered))
            stack.enter_context(_Uses(self))
            stack.enter_context(_Seen(self))
            yield
        for key in list(self._now):
            self._ended(key)
        self._now.clear()
        self._unused.clear()

    def _entered(self, frame: FrameType) -> bool:
        if frame.f_code is _PARAMETER:
            given = tensors(frame.f_locals.get("data"))
            self.used(given)
            for tensor in given:  # a parameter may change, so its data is no constant
                self._writes[_memory(tensor)] += 1
            return True
        key = id(frame.f_code)
        own = self._own.get(key)
        if own is None:
            own = self._ours(frame.f_code)
        if own and threading.get_ident() == self._thread:
            self._calls[key] = self._calls.get(key, 0) + 1
        return own

    def _ours(self, code: CodeType) -> bool:
        """Whether code is a function of the project. Lambdas and comprehensions count as part of the function
        around them."""
        named = not code.co_name.startswith("<") or code.co_name == "<module>"
        own = named and self._rel(code.co_filename) is not None
        self._codes[id(code)] = code  # kept alive, so that its id stays unique
        self._own[id(code)] = own
        return own

    def _place(self, frame: FrameType | None) -> Place | None:
        """The innermost line of the project."""
        by_user = True
        while frame is not None:
            code = frame.f_code
            own = self._own.get(id(code))
            if own is None:
                own = self._ours(code)
            if own:
                return Place(code, frame.f_lineno, frame.f_lasti, id(frame), by_user)
            by_user = by_user and not _chooses_operations(code.co_filename)
            frame = frame.f_back
        return None

    def used(self, given: Sequence[torch.Tensor]) -> None:
        """Marks results as used."""
        if self._unused:
            for tensor in given:
                known = self._unused.pop(id(tensor), None)
                if known is not None:
                    known[1].used = True

    def ran(self, func: Any, args: Any, kwargs: Mapping[str, Any], made: Any) -> None:
        """Records an operation that has run."""
        given = tensors((args, kwargs))
        self.used(given)
        info = operation_info(func)
        for position in info.writes:
            known = isinstance(position, int) and position < len(args)
            target = args[position] if known else kwargs.get(str(position))
            for tensor in tensors(target):
                self._writes[_memory(tensor)] += 1
        place = self._place(sys._getframe(2))
        if place is None:
            self.elsewhere += 1
            return
        key = id(place.code)
        tally = self._tallies.get((key, place.line))
        if tally is None:
            tally = self._tallies[key, place.line] = Tally()
        tally.names[info.name] += 1
        if dispatcher.in_backward():
            tally.backward += 1
            return  # no line of the project chooses those
        number = self._calls.get(key, 0)
        if number > LOOKED_AT or not place.by_user or info.name in _ADDED_BY_AUTOGRAD:
            return
        self._looked_at[key] += 1
        if self._looked_at[key] > _OPERATIONS:
            return
        results = tensors(made)
        if not all(type(t) in (torch.Tensor, torch.nn.Parameter) for t in (*given, *results)):
            return
        call = self._now.get(key)
        if call is None or call.key != (number, place.frame):
            self._ended(key)
            call = self._now[key] = _Call(number, place.frame, self._tallies)
        if info.pure:
            if given:
                self._repeated(call, tally, place.line, func, info, args, kwargs, given, results)
            self._follow(place.code, tally, results)
        if info.constant and not self.writing:
            self._constant(tally, func, args, kwargs, results)
        call.runs.add(place, info, given, results)

    # -- results that nobody uses ------------------------------------------------------------------

    def _follow(self, code: CodeType, tally: Tally, results: Sequence[torch.Tensor]) -> None:
        result = _Result(code, tally)
        for tensor in results:
            key = id(tensor)
            if key in self._unused:
                continue

            def ended(_: Any, key: int = key) -> None:
                known = self._unused.pop(key, None)
                if known is not None:
                    self._dropped(known[1])

            self._unused[key] = weakref.ref(tensor, ended), result
            result.alive += 1
        if result.alive:
            tally.results += 1

    def _dropped(self, result: _Result) -> None:
        result.alive -= 1
        if result.alive or result.used:
            return
        # Only while the function still runs: what it returns is for its callers to use.
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if frame.f_code is result.code:
                result.tally.dropped += 1
                return
            frame = frame.f_back

    # -- what is done twice ------------------------------------------------------------------------

    def _repeated(
        self,
        call: _Call,
        tally: Tally,
        line: int,
        func: Any,
        info: OperationInfo,
        args: Any,
        kwargs: Mapping[str, Any],
        given: Sequence[torch.Tensor],
        results: Sequence[torch.Tensor],
    ) -> None:
        try:
            key = (func, self._key(args), self._key(kwargs), torch.is_grad_enabled())
            before = call.done.get(key)
        except (RuntimeError, TypeError):
            return  # inference tensors have no version counter
        if (
            before is not None
            and all(ref() is tensor for ref, tensor in zip(before.given, given, strict=True))
            and all(self._writes[memory] == times for memory, times in before.memory)
        ):
            tally.again[info.name, before.line] += 1
            return
        call.done[key] = _Done(
            line, [weakref.ref(tensor) for tensor in given], [*map(self._state, results)]
        )

    def _state(self, tensor: torch.Tensor) -> tuple[int, int]:
        """The memory of a tensor, and how often it was written to."""
        memory = _memory(tensor)
        return memory, self._writes[memory]

    def _key(self, value: Any) -> Any:
        """A key that is equal for arguments which give equal results."""
        if isinstance(value, torch.Tensor):
            return id(value), value._version, self._state(value)
        if isinstance(value, list | tuple):
            return tuple(map(self._key, value))
        if isinstance(value, Mapping):
            return tuple((name, self._key(value[name])) for name in sorted(value))
        return type(value), repr(value)

    def _constant(
        self,
        tally: Tally,
        func: Any,
        args: Any,
        kwargs: Mapping[str, Any],
        results: Sequence[torch.Tensor],
    ) -> None:
        if len(results) != 1 or len(tally.constants) > _OFTEN:
            return
        (tensor,) = results
        try:
            if tensors((args, kwargs)):
                if tensor.numel() > _VALUES or tensor.device.type != "cpu":
                    return
                key = (func, str(tensor.dtype), repr(tensor.tolist()))
            else:
                key = (func, repr(args), repr(sorted(kwargs.items(), key=str)))
        except (RuntimeError, TypeError):
            return
        tally.constants.setdefault(key, []).append(self._state(tensor))
        storage = storage_of(tensor)
        if storage is not None:
            # Held, so that the address is not reused.
            self._held.append(StorageWeakRef(storage))

    def _same_constants(self, tally: Tally) -> bool:
        """Whether a line only made a few constants, each several times, and none was changed."""
        return (
            0 < len(tally.constants) <= _OFTEN
            and all(len(made) >= _OFTEN for made in tally.constants.values())
            and all(
                self._writes[memory] == times
                for made in tally.constants.values()
                for memory, times in made
            )
        )

    def _ended(self, key: int) -> None:
        call = self._now.get(key)
        if call is not None:
            call.runs.end()

    # -- the report --------------------------------------------------------------------------------

    def report(self) -> list[OperationsAt]:
        """Lines, those with most operations first."""
        return together(self._lines())

    def _lines(self) -> Iterator[OperationsAt]:
        for (key, line), tally in self._tallies.items():
            code = self._codes[key]
            rel = self._rel(code.co_filename)
            if rel is not None:
                name = str(getattr(code, "co_qualname", code.co_name))
                calls = self._calls.get(key, 1)
                yield OperationsAt(
                    rel,
                    line,
                    "" if name == "<module>" else name,
                    calls,
                    dict(tally.names),
                    tuple(tally.remarks(line, calls, same_constants=self._same_constants(tally))),
                    tally.backward,
                    tally.results,
                    tally.dropped,
                )


@contextmanager
def _eagerly() -> Iterator[None]:
    """Runs compiled code eagerly, code that is compiled later too. The compiler takes seconds to import, so
    it is only configured once somebody uses it."""
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            yield
            return
        compiler = torch.compile

        @wraps(compiler)
        def asked(*args: Any, **kwargs: Any) -> Any:
            if torch.compile is asked:
                torch.compile = compiler
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            return compiler(*args, **kwargs)

        torch.compile = asked
        try:
            yield
        finally:
            if torch.compile is asked:
                torch.compile = compiler


class _Seen(DispatchMode):
    def __init__(self, watcher: Operations) -> None:
        super().__init__()
        self.watcher = watcher

    def run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Runs an operation and records it."""
        made = func(*args, **kwargs)
        self.watcher.ran(func, args, kwargs, made)
        return made


class _Uses(TorchFunctionMode):  # type: ignore[misc]  # torch is not read when types are checked
    """Marks tensors as used by calls that the dispatcher does not see too: `shape`, `data_ptr`, `tolist`."""

    def __init__(self, watcher: Operations) -> None:
        super().__init__()
        self.watcher = watcher

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        self.watcher.used(tensors((args, kwargs) if kwargs else args))
        if func is not torch.Tensor.__setitem__:
            return func(*args, **kwargs)
        self.watcher.writing += 1
        try:
            return func(*args, **kwargs)
        finally:
            self.watcher.writing -= 1


@cache
def _chooses_operations(path: str) -> bool:
    """Whether a file is part of torch code that chooses its operations by itself, such as optimizers."""
    return any(part in path for part in _PARTS)


def _memory(tensor: torch.Tensor) -> int:
    storage = storage_of(tensor)
    return id(tensor) if storage is None else int(storage._cdata)
