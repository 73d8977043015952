"""Replays calls of torch: from Python, and in loops below Python, whole and with parts removed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from itertools import repeat
from typing import Any

import torch

from pytest_dispatchguard.measure.layers.statements import Statement
from pytest_dispatchguard.measure.timing.calling import Block, spelt
from pytest_dispatchguard.measure.timing.interleaved import Arm, Clock
from pytest_dispatchguard.runtime.aten_loops import Loop, Operation, bare_loop, loop_of, reached
from pytest_dispatchguard.runtime.hooks.torch_calls import State, TorchCall
from pytest_dispatchguard.runtime.torch_private import compiler, dispatcher


def _anew(kept: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor's earlier value; not a leaf if it requires grad, as leaves may not be written to."""
    with torch.set_grad_enabled(tensor.requires_grad), dispatcher.plain_tensors():
        return kept.detach().requires_grad_(tensor.requires_grad).clone()


def statement_of(call: TorchCall) -> Statement:
    """A call of torch as source."""
    given = [f"{{{i}}}" for i in range(len(call.args))]
    if call.attribute:
        return Statement(f"{{0}}.{call.attribute}", call.args)
    if call.method == "__getitem__":
        return Statement("{0}[{1}]", call.args)
    if call.method == "__setitem__":
        return Statement("{0}[{1}] = {2}", call.args)
    after = len(call.args)
    if call.method:
        words, values = spelt(given[1:], call.kwargs, after)
        return Statement(f"{{0}}.{call.method}({words})", [*call.args, *values])
    words, values = spelt(given, call.kwargs, after)
    last = after + len(values)
    return Statement(f"{{{last}}}({words})", [*call.args, *values, call.function])


_LEAST_LOOPS = 50
"""Starting and ending a loop takes as long as some operations."""


def renewed_by(calls: Sequence[TorchCall]) -> dict[int, Callable[[], Any]]:
    """Functions that restore the tensors that calls write to, and lists of them, by id."""
    return {id(place): _renewing(place) for call in calls for place in _written_by(call)}


def _renewing(place: Any) -> Callable[[], Any]:
    if isinstance(place, torch.Tensor):
        return partial(_anew, place.detach().clone(), place)
    makers = [_renewing(one) for one in place]
    return lambda: [make() for make in makers]


def _written_by(call: TorchCall) -> Iterator[Any]:
    name = call.method or getattr(call.function, "__name__", "")
    writes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
    for place in (*(call.args[:1] if writes else ()), call.kwargs.get("out")):
        several = place if isinstance(place, tuple | list) else [place]
        if several and all(isinstance(one, torch.Tensor) for one in several):
            yield place


def in_state(state: State, *, recorded: bool = True) -> AbstractContextManager[None]:
    """Enters torch's state of a call; `recorded` says whether autograd records."""
    return dispatcher.in_grad_state(state.grad and recorded, state.inference)


@contextmanager
def as_plain_tensors(state: State) -> Iterator[None]:
    """Enters torch's state of a call, with `__torch_function__` of subclasses disabled."""
    with in_state(state), dispatcher.plain_tensors():
        yield


@contextmanager
def below_autograd(state: State) -> Iterator[None]:
    """Enters torch's state of a call, below the dispatch keys of autograd and ADInplaceOrView."""
    with in_state(state, recorded=False), dispatcher.below_autograd():
        yield


def loop_arm(operations: Sequence[Operation], clock: Clock, around: Callable[[], Any]) -> Arm:
    """Operations in a loop below Python."""
    fresh = [_written(operation) for operation in operations]
    made = [operation for operation, _ in fresh]
    with around():
        loop, bare = loop_of(made), bare_loop(made)

    def again() -> None:
        for _, restore in fresh:
            restore()

    with around():
        loop(2)
    bare(2)
    return Arm(timed(loop, clock), around, again, timed(bare, clock), _LEAST_LOOPS)


def timed(loop: Loop, clock: Clock) -> Block:
    """A block whose calls are iterations of a loop below Python."""

    def block(times: repeat[None]) -> int:
        count = operator.length_hint(times)
        start = clock()
        loop(count)
        return clock() - start

    return block  # type: ignore[return-value]  # blocks are always given a repeat


def _written(operation: Operation) -> tuple[Operation, Callable[[], None]]:
    """The operation on copies of what it writes to, and a function that restores these."""
    places = {
        i
        for i, argument in enumerate(operation.schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    }
    values: list[Any] = list(operation.values)
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    for i in places:
        if isinstance(values[i], torch.Tensor):
            values[i] = _of_its_own(values[i], kept)
        elif isinstance(values[i], list):
            values[i] = [_of_its_own(one, kept) for one in values[i]]
    return Operation(operation.overload, values), partial(_put_back, kept)


def _of_its_own(value: Any, kept: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """A copy of a tensor to write to; it is added to `kept` with its first value."""
    if not isinstance(value, torch.Tensor) or not value.numel():
        return value
    held = value.detach().clone().requires_grad_(value.requires_grad)
    made = _anew(held, value)
    kept.append((made, held))
    return made


def _put_back(kept: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for tensor, held in kept:
        if tensor.requires_grad:
            tensor.detach_()  # else autograd would record every write
        with torch.set_grad_enabled(held.requires_grad):
            tensor.copy_(held)


def emptied(operation: Operation) -> Operation | None:
    """The same operation on empty tensors, so that its kernel has nothing to do; None if it rejects them, or
    might crash on them."""
    lists = sum(isinstance(value, list) and bool(_tensors(value)) for value in operation.values)
    tensors = {
        (number, inner): tensor
        for number, value in enumerate(operation.values)
        for inner, tensor in enumerate(value if isinstance(value, list) else [value])
        if isinstance(tensor, torch.Tensor) and tensor.dim()
    }
    # Lists beside tensors may be weights of recurrent layers, whose kernels do not check sizes.
    if (
        not tensors
        or not operation.name.startswith("aten::")
        or (lists and len(operation.values) > 2)
    ):
        return None
    widest = max(tensor.dim() for tensor in tensors.values())
    wide = {place: t for place, t in tensors.items() if t.dim() == widest}
    first = next(iter(wide.values())).shape[0]
    alike = {place for place, tensor in wide.items() if tensor.shape[0] == first}
    places = [{place} for place, t in tensors.items() if place in wide or not t.is_floating_point()]
    for chosen in (alike, *places):
        try:
            values = [_narrowed(v, number, chosen) for number, v in enumerate(operation.values)]
            with torch.no_grad():
                _try_shapes(Operation(operation.overload, [_on_meta(value) for value in values]))
                made = Operation(operation.overload, values)
                made.run()
                if [o.name for o in reached(made.run)] != [o.name for o in reached(operation.run)]:
                    continue  # it has a fast path for empty tensors
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
            continue
        return made
    return None


def _try_shapes(on_meta: Operation) -> None:
    with suppress(ImportError), compiler.without_compiler():
        on_meta.run()
        return
    on_meta.run()  # it needs the compiler itself


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    return [value for value in values if isinstance(value, torch.Tensor)]


def _on_meta(value: Any) -> Any:
    """A value on the device meta, where mismatches raise instead of reaching a kernel."""
    if isinstance(value, list):
        return [_on_meta(one) for one in value]
    if isinstance(value, torch.device):
        return torch.device("meta")
    return value.to("meta") if isinstance(value, torch.Tensor) else value


def _narrowed(value: Any, number: int, chosen: set[tuple[int, int]]) -> Any:
    if isinstance(value, list):
        return [_none_of(v) if (number, i) in chosen else v for i, v in enumerate(value)]
    return _none_of(value) if (number, 0) in chosen else value


def _none_of(tensor: torch.Tensor) -> torch.Tensor:
    """An empty tensor like another."""
    return tensor.detach().narrow(0, 0, 0).requires_grad_(tensor.requires_grad)
