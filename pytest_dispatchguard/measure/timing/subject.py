"""The `overhead` fixture and its subjects: ``overhead(f, x).against(g, x).named("wide")``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pytest_dispatchguard.measure.timing.calling import Call

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Mode = Literal["grad", "no_grad", "inference"]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far numbers may differ; None is torch's default for their dtype."""

    rtol: float | None = None
    atol: float | None = None


class Subject:
    """A callable under budget. Every method returns the subject, so that they chain."""

    def __init__(
        self,
        call: Call,
        name: str,
        loop: Callable[[], Callable[[], AbstractEventLoop]] | None = None,
    ) -> None:
        """`loop` finds an event loop for a reference that needs one."""
        self.call = call
        self._loop = loop
        self.name = name
        self.reference: Call | None = None
        self.tolerance: Tolerance | None = Tolerance()
        self.fresh: Callable[[], object] | None = None
        self._mode: Mode | None = None

    def against(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Subject:
        """The reference call that the subject is compared with. It is awaited as the subject is if it is a
        coroutine function, and iterated as the subject is."""
        _must_be_callable(function, "against")
        use = self.call.use
        if use == "await" and not _is(inspect.iscoroutinefunction, function):
            use = "call"  # eager torch needs no loop
        if use.startswith("iterate"):
            asynchronous = _is(inspect.isasyncgenfunction, function)
            use = "iterate async" if asynchronous else "iterate"
        loop = self._loop() if self._loop and use in ("await", "iterate async") else None
        self.reference = Call(function, args, kwargs, use, loop)
        return self

    def named(self, name: str) -> Subject:
        """Names the subject, if a test has several."""
        if not isinstance(name, str) or not name or not name.isprintable():
            raise ValueError(f"a subject is named by one line of text, not {name!r}")
        self.name = name
        return self

    def setup(self, function: Callable[[], object]) -> Subject:
        """A function that makes fresh state: called before every call that is compared or counted, and
        before every block that is timed."""
        _must_be_callable(function, "setup")
        self.fresh = function
        return self

    def mode(self, mode: Mode) -> Subject:
        """The grad mode of subject and reference; by default that of the test."""
        if mode not in ("grad", "no_grad", "inference"):
            raise ValueError(f'mode must be "grad", "no_grad" or "inference", not {mode!r}')
        self._mode = mode
        return self

    def agreeing(self, *, rtol: float | None = None, atol: float | None = None) -> Subject:
        """How far the results of subject and reference may differ."""
        self.tolerance = Tolerance(rtol, atol)
        return self

    def unchecked(self) -> Subject:
        """Subject and reference need not return the same."""
        self.tolerance = None
        return self

    def prepare(self) -> None:
        """Makes fresh state, if the test says how."""
        if self.fresh is not None:
            self.fresh()

    def in_mode(self) -> AbstractContextManager[object]:
        """Enters the grad mode."""
        if self._mode is None:
            return nullcontext()
        import torch

        entered: AbstractContextManager[object] = (
            torch.inference_mode()
            if self._mode == "inference"
            else torch.set_grad_enabled(self._mode == "grad")
        )
        return entered


class Overhead:
    """The `overhead` fixture: names the subjects of one test."""

    def __init__(self) -> None:
        self.subjects: list[Subject] = []
        self._own_loop: AbstractEventLoop | None = None

    def __call__(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Subject:
        """Adds a subject: a function and its arguments."""
        _must_be_callable(function, "overhead")
        return self._added(Call(function, args, kwargs))

    def awaited(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Subject:
        """Adds a subject that returns a coroutine, or another awaitable: it is awaited in an event loop that
        runs already, the one that runs here if there is one."""
        _must_be_callable(function, "overhead.awaited")
        return self._added(Call(function, args, kwargs, "await", self._loop()))

    def exhausted(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Subject:
        """Adds a subject that returns a generator, or another iterable: it is iterated to its end. An
        asynchronous generator function is iterated in an event loop, as in `awaited`."""
        _must_be_callable(function, "overhead.exhausted")
        if _is(inspect.isasyncgenfunction, function):
            return self._added(Call(function, args, kwargs, "iterate async", self._loop()))
        return self._added(Call(function, args, kwargs, "iterate"))

    def _added(self, call: Call) -> Subject:
        subject = Subject(call, _name(call.function), self._loop)
        self.subjects.append(subject)
        return subject

    def _loop(self) -> Callable[[], AbstractEventLoop]:
        """Gives the loop that runs now, unless it is closed by then; else one of its own."""
        import asyncio  # takes longer than many a test, and few are asynchronous

        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None

        def loop() -> AbstractEventLoop:
            if running is not None and not running.is_closed():
                return running
            if self._own_loop is None:
                self._own_loop = asyncio.new_event_loop()
            return self._own_loop

        return loop

    def close(self) -> None:
        """Closes its own loop, if it has one."""
        if self._own_loop is not None:
            self._own_loop.run_until_complete(self._own_loop.shutdown_asyncgens())
            self._own_loop.close()


def _is(kind: Callable[[object], bool], function: object) -> bool:
    """Whether a function, or the call of an object, is of a kind: a coroutine function, for example."""
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004 - not whether it is there


def _must_be_callable(function: object, where: str) -> None:
    if not callable(function):
        raise TypeError(f"{where}() needs something to call, not {function!r}")


def _name(function: Callable[..., Any]) -> str:
    """The display name: ``Dense.call``, `add` for ``torch._C._VariableFunctionsClass.add``, the class for an
    instance."""
    name: str = getattr(function, "__qualname__", None) or type(function).__qualname__
    owner, _, last = name.rpartition(".")
    return last if owner.startswith("_") else name
