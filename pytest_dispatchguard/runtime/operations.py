"""Which operations reach torch's dispatcher, line by line of a project: how many, what becomes of their
results, and what is done twice."""

from __future__ import annotations

import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from pytest_dispatchguard.model import OperationsAt, together
from pytest_dispatchguard.runtime.dispatch_mode import DispatchMode
from pytest_dispatchguard.runtime.entering import each_function
from pytest_dispatchguard.runtime.tensors import tensors

Rel = Callable[[str], "str | None"]
"""A file's path relative to the project root; None for files that are not the project's own."""

_LOOKED_AT = 64
"""Calls of a function in which more is done than counting."""
_LONG = 4
"""Operations that are a chain worth telling."""
_ROW = 8
"""Equal operations in a row that are worth telling."""
_SMALL = 1 << 16
"""Elements of tensors for which an operation's overhead counts."""
_VALUES = 64
"""Elements of constants whose values are compared."""
_KEPT = 4096
"""Operations of one call that are held against those that follow."""
_OFTEN = 3
"""Calls that have to make a constant before it is told."""


class _About(NamedTuple):
    """What there is to know of an operation, asked of torch once."""

    name: str
    pure: bool
    """Whether it gives the same for the same, in memory of its own, and changes nothing."""
    pointwise: bool
    constant: bool
    """Whether it makes a tensor of nothing but numbers."""
    writes: tuple[int | str, ...]
    """The arguments that it changes."""
    in_a_row: str
    """The function that does it to many tensors at once; empty where there is none."""


_COPIES = frozenset({"clone", "lift_fresh", "lift", "_to_copy", "detach", "alias"})
"""Made to be changed, most times: to make two of them is no mistake."""
_PARTS = tuple(
    str(Path("torch", name)) + os.sep for name in ("optim", "distributed", "amp", "utils")
)
_NOTHING = frozenset({"detach", "alias"})
"""What autograd does beside the operations that lines ask for."""
_CONSTANTS = frozenset(
    {
        "arange",
        "eye",
        "full",
        "lift_fresh",
        "linspace",
        "logspace",
        "ones",
        "scalar_tensor",
        "tril_indices",
        "triu_indices",
        "zeros",
    }
)


@cache
def _about(func: Any) -> _About:
    schema = func._schema
    name = schema.name.partition("::")[2]
    writes: list[int | str] = []
    for number, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            writes += [number, argument.name]
    aliased = any(returned.alias_info is not None for returned in schema.returns)
    tags = set(func.tags)
    pure = not (writes or aliased or torch.Tag.nondeterministic_seeded in tags)
    return _About(
        name,
        pure and name not in _COPIES and not name.startswith(("empty", "new_empty", "rand")),
        torch.Tag.pointwise in tags,
        name in _CONSTANTS,
        tuple(writes),
        f"torch._foreach_{name}" if hasattr(torch, f"_foreach_{name}") else "",
    )


@dataclass
class Tally:
    """What one line did."""

    names: Counter[str] = field(default_factory=Counter)
    backward: int = 0
    """Operations of the backward pass, which the line began."""
    results: int = 0
    """Results whose end was awaited."""
    dropped: int = 0
    """Of these, those that ended unused, while the function still ran."""
    again: Counter[tuple[str, int]] = field(default_factory=Counter)
    """What was done before in the same call, and at which line."""
    constants: Counter[Any] = field(default_factory=Counter)
    """Calls that made a constant, by what it is made of."""
    written: set[Any] = field(default_factory=set)
    """Of these, those that were changed afterwards."""
    chains: Counter[tuple[int, int, tuple[int, ...]]] = field(default_factory=Counter)
    """Operations one on the other's result: how many, up to which line, over which shape."""
    rows: Counter[tuple[str, int]] = field(default_factory=Counter)
    """One operation on tensor after tensor: by what does it at once, and how many."""


@dataclass
class _Step:
    """An operation that may go on: in a chain, or in a row."""

    line: int
    name: str
    shape: tuple[int, ...]
    result: Any


class _Call:
    """One call of a function of the project, as far as it has come."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.done: dict[Any, tuple[int, list[Any]]] = {}
        """What was done, by operation and arguments: at which line, and the tensors it was given."""
        self.chain: list[_Step] = []
        self.row: list[_Step] = []


@dataclass(eq=False)
class _Result:
    """What an operation gave, for as long as nobody has used it."""

    code: CodeType
    tally: Tally
    alive: int = 0
    used: bool = False


class Operations:
    """What was seen so far."""

    def __init__(self, rel: Rel) -> None:
        self._rel = rel
        self._own: dict[CodeType, bool] = {}
        self._calls: dict[CodeType, int] = {}
        self._now: dict[CodeType, _Call] = {}
        self._tallies: dict[tuple[CodeType, int], Tally] = {}
        self._unused: dict[int, tuple[Any, _Result]] = {}
        """Results that nobody has used yet, by their tensors' identity."""
        self._made: dict[int, Callable[[], object]] = {}
        """What to forget when memory is written to."""
        self.elsewhere = 0
        """Operations that no line of the project asked for."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Sees what runs inside, in this thread."""
        with each_function(self._entered), _Uses(self), _Seen(self):
            yield
        for code in list(self._now):
            self._ended(code)

    def _entered(self, frame: FrameType) -> bool:
        code = frame.f_code
        own = self._own.get(code)
        if own is None:
            own = self._ours(code)
        if own:
            self._calls[code] = self._calls.get(code, 0) + 1
        return own

    def _ours(self, code: CodeType) -> bool:
        """Whether code is a function of the project: what has no name of its own counts for what it is in."""
        named = not code.co_name.startswith("<") or code.co_name == "<module>"
        own = self._own[code] = named and self._rel(code.co_filename) is not None
        return own

    def _place(self, frame: FrameType | None) -> tuple[CodeType, int, bool] | None:
        """The function and the line of the project that run, and whether what they do is up to them: how an
        optimizer makes its step is not."""
        theirs = True
        while frame is not None:
            code = frame.f_code
            own = self._own.get(code)
            if own is None:
                own = self._ours(code)
            if own:
                return code, frame.f_lineno, theirs
            theirs = theirs and not _by_itself(code.co_filename)
            frame = frame.f_back
        return None

    def used(self, given: Sequence[torch.Tensor]) -> None:
        """Takes note of tensors that are used."""
        if self._unused:
            for tensor in given:
                known = self._unused.pop(id(tensor), None)
                if known is not None:
                    known[1].used = True

    def ran(self, func: Any, args: Any, kwargs: Mapping[str, Any], made: Any) -> None:
        """Takes note of an operation that has run."""
        given = tensors((args, kwargs))
        self.used(given)
        about = _about(func)
        for position in about.writes:
            target = (
                args[position]
                if isinstance(position, int) and position < len(args)
                else kwargs.get(str(position))
            )
            for tensor in tensors(target):
                self._written(tensor)
        place = self._place(sys._getframe(2))
        if place is None:
            self.elsewhere += 1
            return
        code, line, theirs = place
        tally = self._tallies.get((code, line))
        if tally is None:
            tally = self._tallies[code, line] = Tally()
        tally.names[about.name] += 1
        number = self._calls.get(code, 0)
        if torch._C._current_graph_task_id() != -1:
            tally.backward += 1
            return  # what is done there no line says
        if number > _LOOKED_AT or not theirs or about.name in _NOTHING:
            return
        results = tensors(made)
        if not all(type(t) in (torch.Tensor, torch.nn.Parameter) for t in (*given, *results)):
            return
        call = self._now.get(code)
        if call is None or call.number != number:
            self._ended(code)
            call = self._now[code] = _Call(number)
        if about.pure:
            if given:
                self._repeated(call, tally, line, func, about, args, kwargs, given, results)
            self._await(code, tally, results)
        if about.constant:
            self._constant(tally, number, func, args, kwargs, results)
        self._go_on(code, call, line, about, given, results)

    # -- results that nobody uses ------------------------------------------------------------------

    def _await(self, code: CodeType, tally: Tally, results: Sequence[torch.Tensor]) -> None:
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
        # What a function returns ends later, at the hands of others: that is for them to say.
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
        about: _About,
        args: Any,
        kwargs: Mapping[str, Any],
        given: Sequence[torch.Tensor],
        results: Sequence[torch.Tensor],
    ) -> None:
        try:
            key = (func, _key(args), _key(kwargs))
            before = call.done.get(key)
        except (RuntimeError, TypeError):
            return  # tensors of inference mode count no changes
        if before is not None and all(
            ref() is tensor for ref, tensor in zip(before[1], given, strict=True)
        ):
            tally.again[about.name, before[0]] += 1
            return
        if len(call.done) > _KEPT:
            call.done.clear()  # a script's loop is one long call
        call.done[key] = line, [weakref.ref(tensor) for tensor in given]
        for tensor in results:
            self._until_written(tensor, lambda: call.done.pop(key, None))

    def _constant(
        self,
        tally: Tally,
        number: int,
        func: Any,
        args: Any,
        kwargs: Mapping[str, Any],
        results: Sequence[torch.Tensor],
    ) -> None:
        if len(results) != 1:
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
        tally.constants[key] += 1
        self._until_written(tensor, lambda: tally.written.add(key))

    def _until_written(self, tensor: torch.Tensor, forget: Callable[[], object]) -> None:
        """Has it forgotten when the memory of a tensor is written to."""
        memory = _memory(tensor)
        if memory is not None:
            self._made[memory] = forget  # it is new: what stood at its address is gone

    def _written(self, tensor: torch.Tensor) -> None:
        memory = _memory(tensor)
        forget = None if memory is None else self._made.pop(memory, None)
        if forget is not None:
            forget()

    # -- chains and rows ---------------------------------------------------------------------------

    def _go_on(
        self,
        code: CodeType,
        call: _Call,
        line: int,
        about: _About,
        given: Sequence[torch.Tensor],
        results: Sequence[torch.Tensor],
    ) -> None:
        shape = tuple(results[0].shape) if len(results) == 1 else None
        last = call.chain[-1].result() if call.chain else None
        small = shape is not None and 0 < results[0].numel() <= _SMALL
        goes_on = (
            last is not None
            and any(tensor is last for tensor in given)
            and call.chain[-1].shape == shape
        )
        if not (about.pointwise and small and goes_on):
            self._chain_ended(code, call)
        if about.pointwise and small and shape is not None:
            call.chain.append(_Step(line, about.name, shape, weakref.ref(results[0])))
        follows = bool(call.row) and (call.row[-1].line, call.row[-1].name) == (line, about.name)
        if not (about.in_a_row and follows and not goes_on):
            self._row_ended(code, call)
        if about.in_a_row and small and shape is not None:
            call.row.append(_Step(line, about.name, shape, None))

    def _ended(self, code: CodeType) -> None:
        call = self._now.get(code)
        if call is not None:
            self._chain_ended(code, call)
            self._row_ended(code, call)

    def _chain_ended(self, code: CodeType, call: _Call) -> None:
        chain, call.chain = call.chain, []
        if len(chain) >= _LONG:
            first, last = chain[0], chain[-1]
            self._tallies[code, first.line].chains[len(chain), last.line, first.shape] += 1

    def _row_ended(self, code: CodeType, call: _Call) -> None:
        row, call.row = call.row, []
        if len(row) >= _ROW:
            self._tallies[code, row[0].line].rows[f"torch._foreach_{row[0].name}", len(row)] += 1

    # -- the report --------------------------------------------------------------------------------

    def report(self) -> list[OperationsAt]:
        """Lines by how many operations they asked for."""
        return together(self._lines())

    def _lines(self) -> Iterator[OperationsAt]:
        for (code, line), tally in self._tallies.items():
            rel = self._rel(code.co_filename)
            if rel is not None:
                name = str(getattr(code, "co_qualname", code.co_name))
                function = "" if name == "<module>" else name
                calls = self._calls.get(code, 1)
                remarks = tuple(_remarks(tally, line, calls))
                yield OperationsAt(rel, line, function, calls, dict(tally.names), remarks)


class _Seen(DispatchMode):
    def __init__(self, watcher: Operations) -> None:
        super().__init__()
        self.watcher = watcher

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        self.watcher.ran(func, args, kwargs, made)
        return made


class _Uses(TorchFunctionMode):  # type: ignore[misc]  # torch is not read when types are checked
    """Whoever asks a tensor for anything uses it, also for what the dispatcher does not see: its shape, its
    memory, its numbers as a list."""

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
        return func(*args, **kwargs)


@cache
def _by_itself(path: str) -> bool:
    """Whether a file is of a part of torch that decides by itself which operations it takes."""
    return any(part in path for part in _PARTS)


def _key(value: Any) -> Any:
    """What an argument is, as far as results depend on it."""
    if isinstance(value, torch.Tensor):
        return id(value), value._version
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    if isinstance(value, Mapping):
        return tuple((name, _key(value[name])) for name in sorted(value))
    return type(value), repr(value)


def _memory(tensor: torch.Tensor) -> int | None:
    try:
        address: int = tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return None  # sparse tensors have none of their own
    return address


def _remarks(tally: Tally, line: int, calls: int) -> Iterator[str]:
    if tally.backward:
        yield f"{tally.backward} of them in the backward pass"
    if tally.results and tally.dropped == tally.results:
        yield "the result is dropped unused"
    for (name, where), times in tally.again.most_common():
        if 2 * times >= min(calls, _LOOKED_AT):
            at = "on this line" if where == line else f"at line {where}"
            yield f"`{name}` of the same tensors ran already {at} in the same call"
    same = [
        key
        for key, times in tally.constants.items()
        if times >= _OFTEN and key not in tally.written
    ]
    if same and len(tally.constants) == len(same):
        yield "the same constant is made again and again: keep it"
    for (length, end, shape), _ in tally.chains.most_common(1):
        to = "on this line" if end == line else f"to line {end}"
        size = "x".join(map(str, shape)) or "one number"
        yield f"{length} small operations one on the other's result {to}, over {size}: fusing makes them one"
    for (function, length), _ in tally.rows.most_common(1):
        yield f"{length} of a kind in a row, each on tensors of its own: `{function}` takes them at once"
