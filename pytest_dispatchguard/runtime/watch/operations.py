"""Which operations reach torch's dispatcher, line by line of a project: how many, what becomes of their
results, and what is done twice."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode

from pytest_dispatchguard.model.operations import OperationsAt, together
from pytest_dispatchguard.runtime import torch_private
from pytest_dispatchguard.runtime.hooks.dispatch_mode import DispatchMode
from pytest_dispatchguard.runtime.hooks.function_calls import each_function
from pytest_dispatchguard.runtime.tensors import storage_of, tensors

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
_OPERATIONS = 5000
"""Operations of a function of which more is done than counting: a script's loop is one long call."""
_LONGEST = 1000
"""Operations that a row is followed for."""
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
_PARAMETER = torch.nn.Parameter.__new__.__code__
"""Takes a tensor's memory over without a word to the dispatcher."""
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
    schema = torch_private.schema_of(func)
    if schema is None:
        return _About(str(func.name()), False, False, False, (), "")
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
    constants: dict[Any, list[tuple[int, int]]] = field(default_factory=dict)
    """Constants, by what they are made of: the memory of each, and how often that had been written to."""
    chains: Counter[tuple[int, int, tuple[int, ...]]] = field(default_factory=Counter)
    """Operations one on the other's result: how many, up to which line, over which shape."""
    rows: Counter[tuple[str, int]] = field(default_factory=Counter)
    """One operation on tensor after tensor: by what does it at once, and how many."""


class _Place(NamedTuple):
    """What runs."""

    code: CodeType
    line: int
    instruction: int
    frame: int
    """Its identity, for as long as it runs."""
    theirs: bool
    """Whether which operations run is up to the line: how an optimizer makes its step is not."""


@dataclass
class _Step:
    """An operation that may go on: in a chain, or in a row."""

    place: _Place
    name: str
    shape: tuple[int, ...]
    tensor: Any
    """The result, in a chain; what was worked on, in a row."""


class _Done(NamedTuple):
    """An operation that ran in a call."""

    line: int
    given: list[Any]
    memory: list[tuple[int, int]]
    """Of its results, and how often that had been written to."""


class _Call:
    """One call of a function of the project, as far as it has come."""

    def __init__(self, number: int, frame: int) -> None:
        self.key = number, frame
        self.done: dict[Any, _Done] = {}
        """By operation and arguments."""
        self.chain: list[_Step] = []
        self.row: list[_Step] = []
        self.last: Any = None
        """The last result."""


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
        """Whether values are being written into a tensor, which makes tensors of numbers."""
        self._thread = 0
        self.elsewhere = 0
        """Operations that no line of the project asked for."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Sees what runs inside, in this thread. What is compiled runs as it is written."""
        self._thread = threading.get_ident()
        with ExitStack() as stack:
            stack.enter_context(_as_written())
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
            for tensor in given:  # which has its own: no constant that could be kept
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
        """Whether code is a function of the project: what has no name of its own counts for what it is in."""
        named = not code.co_name.startswith("<") or code.co_name == "<module>"
        own = named and self._rel(code.co_filename) is not None
        self._codes[id(code)] = code  # alive, so that no other takes its place
        self._own[id(code)] = own
        return own

    def _place(self, frame: FrameType | None) -> _Place | None:
        """The innermost line of the project."""
        theirs = True
        while frame is not None:
            code = frame.f_code
            own = self._own.get(id(code))
            if own is None:
                own = self._ours(code)
            if own:
                return _Place(code, frame.f_lineno, frame.f_lasti, id(frame), theirs)
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
        tally.names[about.name] += 1
        if torch_private.in_backward():
            tally.backward += 1
            return  # what is done there no line says
        number = self._calls.get(key, 0)
        if number > _LOOKED_AT or not place.theirs or about.name in _NOTHING:
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
            call = self._now[key] = _Call(number, place.frame)
        if about.pure:
            if given:
                self._repeated(call, tally, place.line, func, about, args, kwargs, given, results)
            self._await(place.code, tally, results)
        if about.constant and not self.writing:
            self._constant(tally, func, args, kwargs, results)
        self._go_on(call, place, about, given, results)

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
            key = (func, self._key(args), self._key(kwargs), torch.is_grad_enabled())
            before = call.done.get(key)
        except (RuntimeError, TypeError):
            return  # tensors of inference mode count no changes
        if (
            before is not None
            and all(ref() is tensor for ref, tensor in zip(before.given, given, strict=True))
            and all(self._writes[memory] == times for memory, times in before.memory)
        ):
            tally.again[about.name, before.line] += 1
            return
        call.done[key] = _Done(
            line, [weakref.ref(tensor) for tensor in given], [*map(self._state, results)]
        )

    def _state(self, tensor: torch.Tensor) -> tuple[int, int]:
        """The memory of a tensor, and how often it was written to."""
        memory = _memory(tensor)
        return memory, self._writes[memory]

    def _key(self, value: Any) -> Any:
        """What an argument is, as far as results depend on it."""
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
            # While this is held, no other memory is taken for it.
            self._held.append(StorageWeakRef(storage))

    def _same_constants(self, tally: Tally) -> bool:
        """Whether a line made nothing but a few constants, each several times, that nobody changed."""
        return (
            0 < len(tally.constants) <= _OFTEN
            and all(len(made) >= _OFTEN for made in tally.constants.values())
            and all(
                self._writes[memory] == times
                for made in tally.constants.values()
                for memory, times in made
            )
        )

    # -- chains and rows ---------------------------------------------------------------------------

    def _go_on(
        self,
        call: _Call,
        place: _Place,
        about: _About,
        given: Sequence[torch.Tensor],
        results: Sequence[torch.Tensor],
    ) -> None:
        shape = tuple(results[0].shape) if len(results) == 1 else None
        small = shape is not None and 0 < results[0].numel() <= _SMALL
        chain, row = call.chain, call.row
        last = chain[-1].tensor() if chain else None
        builds = last is not None and any(tensor is last for tensor in given)
        if (
            chain and not (about.pointwise and small and builds and chain[-1].shape == shape)
        ) or _around(chain, place, about.name):
            self._chain_ended(call)
        if about.pointwise and small and shape is not None:
            call.chain.append(_Step(place, about.name, shape, weakref.ref(results[0])))
        target = given[0] if given else None
        if row and not (
            about.in_a_row
            and not (call.last is not None and any(tensor is call.last() for tensor in given))
            and (row[-1].place.line, row[-1].name) == (place.line, about.name)
            and all(step.tensor() is not target for step in row)
        ):
            self._row_ended(call)
        if about.in_a_row and small and shape is not None and target is not None:
            call.row.append(_Step(place, about.name, shape, weakref.ref(target)))
            del call.row[_LONGEST:]
        call.last = weakref.ref(results[0]) if len(results) == 1 else None

    def _ended(self, key: int) -> None:
        call = self._now.get(key)
        if call is not None:
            self._chain_ended(call)
            self._row_ended(call)

    def _chain_ended(self, call: _Call) -> None:
        chain, call.chain = call.chain, []
        if len(chain) >= _LONG:
            first, last = chain[0], chain[-1]
            tally = self._tallies[id(first.place.code), first.place.line]
            tally.chains[len(chain), last.place.line, first.shape] += 1

    def _row_ended(self, call: _Call) -> None:
        row, call.row = call.row, []
        if len(row) >= _ROW:
            place = row[0].place
            tally = self._tallies[id(place.code), place.line]
            tally.rows[f"torch._foreach_{row[0].name}", len(row)] += 1

    # -- the report --------------------------------------------------------------------------------

    def report(self) -> list[OperationsAt]:
        """Lines by how many operations they asked for."""
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
                    tuple(_remarks(tally, line, calls, self._same_constants(tally))),
                    tally.backward,
                    tally.results,
                    tally.dropped,
                )


@contextmanager
def _as_written() -> Iterator[None]:
    """Has compiled code run as it is written, also what is compiled from now on. The compiler takes seconds
    to import: until somebody asks for it, it is left alone."""
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
        """Runs an operation, and has it noted."""
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
        if func is not torch.Tensor.__setitem__:
            return func(*args, **kwargs)
        self.watcher.writing += 1
        try:
            return func(*args, **kwargs)
        finally:
            self.watcher.writing -= 1


@cache
def _by_itself(path: str) -> bool:
    """Whether a file is of a part of torch that decides by itself which operations it takes."""
    return any(part in path for part in _PARTS)


def _around(chain: Sequence[_Step], place: _Place, name: str) -> bool:
    """Whether a loop has come around: then what follows is another round, and no longer chain."""
    if not chain or place.instruction != chain[0].place.instruction:
        return False
    return name == chain[0].name or chain[-1].place.instruction != place.instruction


def _memory(tensor: torch.Tensor) -> int:
    storage = storage_of(tensor)
    return id(tensor) if storage is None else int(storage._cdata)


def _remarks(tally: Tally, line: int, calls: int, same_constants: bool) -> Iterator[str]:
    for (name, where), times in tally.again.most_common():
        if 2 * times >= min(calls, _LOOKED_AT):
            at = "on this line" if where == line else f"at line {where}"
            yield f"`{name}` of the same tensors ran already {at} in the same call"
    if same_constants:
        yield "the same constant is made again and again: keep it"
    for (length, end, shape), _ in tally.chains.most_common(1):
        to = "on this line" if end == line else f"to line {end}"
        size = "x".join(map(str, shape)) or "one number"
        yield f"{length} small operations one on the other's result {to}, over {size}: fusing makes them one"
    for (function, length), _ in tally.rows.most_common(1):
        yield f"{length} of a kind in a row, each on tensors of its own: `{function}` takes them at once"
