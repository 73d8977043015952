"""Runs torch's operations in loops from C++, to time them without Python.

TorchScript's interpreter runs the loop, so that neither Python nor torch's binding takes part. Nothing is
optimized: every operation goes through the dispatcher as it does from Python.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pytest_dispatchguard.runtime.hooks.dispatch_mode import DispatchMode
from pytest_dispatchguard.runtime.hooks.torch_calls import TorchCall
from pytest_dispatchguard.runtime.torch_private import dispatcher

Loop = Callable[[int], object]
"""Runs its operations a number of times."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the dispatcher with its arguments."""

    overload: Any
    """The overload that takes it: ``torch.ops.aten.add.Tensor``."""
    values: Sequence[Any]
    """A value for every parameter of the schema."""

    @property
    def schema(self) -> Any:
        """The schema of the overload."""
        return dispatcher.schema_of(self.overload)

    @property
    def name(self) -> str:
        """Its qualified name: ``aten::add``."""
        return str(self.schema.name)

    def run(self) -> Any:
        """Runs it once, from Python."""
        pairs = list(zip(self.schema.arguments, self.values, strict=True))
        args = [value for argument, value in pairs if not argument.kwarg_only]
        return self.overload(*args, **{a.name: v for a, v in pairs if a.kwarg_only})

    @property
    def only_allocates(self) -> bool:
        """Whether it only allocates memory."""
        return self.name.removeprefix("aten::").removeprefix("new_").startswith("empty")

    def writing(self) -> Operation | None:
        """The same operation with results written to existing memory (``out=``); None if there is no such
        overload."""
        if self.name == "aten::clone" and self.values[1] is None:
            there = self.run().detach()
            return Operation(torch.ops.aten.copy_.default, [there, self.values[0], False])
        schema = self.schema
        wanted = [(a.name, str(a.type)) for a in schema.arguments]
        for other in dispatcher.overloads_of(self.overload):
            if torch.Tag.generated in other.tags:
                continue  # it makes a new result, and copies that
            parameters = dispatcher.schema_of(other).arguments
            places = [a for a in parameters if a.is_out]
            given = [(a.name, str(a.type)) for a in parameters if not a.is_out]
            if places and given == wanted and all(str(a.type) == "Tensor" for a in places):
                made = self.run()
                made = list(made) if isinstance(made, tuple | list) else [made]
                if len(made) == len(places):
                    room = [m.detach().clone() for m in made]
                    writing = Operation(other, [*self.values, *room])
                    return writing if _runs_quietly(writing) else None
        return None


def _runs_quietly(operation: Operation) -> bool:
    """Whether torch does not warn. Some operations (`linear` of a vector) resize their `out` each time,
    which takes longer than allocating. Runs in a loop, as other warnings of C++ bypass Python's filters."""
    with torch.no_grad(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loop_of([operation])(1)
    return not told


def operations_of(call: TorchCall) -> list[Operation]:
    """The operations of a torch call: the one that the binding calls, if it can be found; else those that
    reach the bottom of the dispatcher."""
    seen = reached(lambda: call.function(*call.args, **call.kwargs))
    names = [operation.overload for operation in seen]
    for candidate in _candidates(call) if seen else ():
        if [operation.overload for operation in reached(candidate.run)] == names:
            return [candidate]
    return seen


class _Reached(DispatchMode):
    """Records the operations that reach the bottom of the dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []

    def run(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        values = _by_schema(dispatcher.schema_of(func), args, kwargs)
        if values is not None:
            self.operations.append(Operation(func, values))
        return func(*args, **kwargs)


def reached(run: Callable[[], object]) -> list[Operation]:
    """The operations that reach the bottom of the dispatcher; none if the function raises."""
    seen = _Reached()
    with seen:
        try:
            run()
        except (RuntimeError, TypeError):
            return []
    return seen.operations


def _candidates(call: TorchCall) -> Iterator[Operation]:
    """The operations that a call may be, most likely first."""
    name = call.method or getattr(call.function, "__name__", "")
    if call.attribute or not name.isidentifier():
        return
    # Sizes may be separate arguments: x.view(2, 3).
    forms: list[Sequence[Any]] = [call.args]
    sizes = call.args[1:] if call.method else call.args
    if sizes and all(isinstance(size, int) for size in sizes):
        forms.insert(0, [*call.args[: len(call.args) - len(sizes)], list(sizes)])
    for packet in _packets(call, name):
        for args in forms:
            found = dispatcher.resolved(packet, args, call.kwargs)
            if found is None:
                continue
            overload = getattr(getattr(torch.ops.aten, packet), found)
            values = _by_schema(dispatcher.schema_of(overload), args, call.kwargs)
            if values is not None:
                yield Operation(overload, values)


def _packets(call: TorchCall, name: str) -> Iterable[str]:
    """Possible names of the operation of a function."""
    known = dispatcher.operation_behind(call.function)
    names = dict.fromkeys((known, name, name.strip("_") if name.startswith("__") else name))
    return [one for one in names if one and hasattr(torch.ops.aten, one)]


def _by_schema(schema: Any, args: Sequence[Any], kwargs: Any) -> Sequence[Any] | None:
    """A value for every parameter; None if they do not match."""
    given, used, found = list(args), set(), []
    for argument in schema.arguments:
        if not argument.kwarg_only and given:
            found.append(given.pop(0))
        elif argument.name in kwargs:
            found.append(kwargs[argument.name])
            used.add(argument.name)
        elif argument.has_default_value():
            found.append(argument.default_value)
        else:
            return None
    if given or used != set(kwargs):
        return None
    return [_fitting(v, argument) for v, argument in zip(found, schema.arguments, strict=True)]


def _fitting(value: Any, argument: Any) -> Any:
    """Converts a value to the type in the schema, where torch accepts others as well."""
    kind = argument.type
    if kind.kind() == "OptionalType" and value is not None:
        kind = kind.getElementType()
    if isinstance(value, tuple):
        return list(value)
    if kind.kind() == "ListType" and isinstance(value, int | float):
        return [value] * (argument.N or 1)
    if kind.kind() == "TensorType" and isinstance(value, int | float | complex):
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
    return value


as_they_are = dispatcher.scripts_unoptimised
"""Compiles loops that run here for the first time without optimizations."""


def loop_of(operations: Sequence[Operation]) -> Loop:
    """A function that runs operations in order, a number of times. It must be made and first run within
    `as_they_are`."""
    inputs: list[Any] = []
    declared: list[str] = []
    body: list[str] = []
    for number, operation in enumerate(operations):
        schema = operation.schema
        given = []
        for argument, value in zip(schema.arguments, operation.values, strict=True):
            given.append(f"%v{len(inputs)}")
            declared.append(f"{given[-1]} : {_input_type(argument.type, value)}")
            inputs.append(value)
        results = [f"%r{number}_{i}" for i in range(len(schema.returns))]
        kinds = [_ir_type(result.type) for result in schema.returns]
        typed = ", ".join(f"{name} : {kind}" for name, kind in zip(results, kinds, strict=True))
        body.append(f"{typed}{' = ' if typed else ''}{schema.name}({', '.join(given)})")
        body += _held(results)
    return _loop(declared, inputs, body)


def bare_loop(operations: Sequence[Operation]) -> Loop:
    """The same loop without its operations."""
    return _loop([], [], [line for _ in operations for line in _held(["%never"])])


def _held(results: Sequence[str]) -> list[str]:
    """Keeps results alive until here, where Python would drop them: unused operations would be removed."""
    if not results:
        return []
    printing = f"    prim::Print({', '.join(results)})"
    return ["prim::If(%never)", "  block0():", printing, "    -> ()", "  block1():", "    -> ()"]


def _loop(declared: Sequence[str], inputs: Sequence[Any], body: Sequence[str]) -> Loop:
    lines = "".join(f"      {line}\n" for line in body)
    source = (
        f"graph({', '.join(['%times : int', '%never : bool', *declared])}):\n"
        "  %on : bool = prim::Constant[value=1]()\n"
        "  prim::Loop(%times, %on)\n"
        f"    block0(%i : int):\n{lines}      -> (%on)\n"
        "  return (%times)\n"
    )
    function = dispatcher.script(source)

    def run(times: int) -> object:
        return function(times, False, *inputs)

    return run


def _input_type(kind: Any, value: Any) -> str:
    """The type of an input: for numbers that of the value."""
    written = _ir_type(kind)
    if written.startswith("Scalar") and value is not None:
        return type(value).__name__ + "?" * written.endswith("?")
    return written


def _ir_type(kind: Any) -> str:
    """A type in TorchScript's IR syntax."""
    if kind.kind() == "ListType":
        return f"{_ir_type(kind.getElementType())}[]"
    if kind.kind() == "OptionalType":
        return f"{_ir_type(kind.getElementType())}?"
    return "Scalar" if kind.kind() == "NumberType" else str(kind)
