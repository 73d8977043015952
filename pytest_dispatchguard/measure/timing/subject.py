"""The `overhead` fixture and its subjects: ``overhead(f, x).against(g, x).named("wide")``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from pytest_dispatchguard.measure.timing.calling import Call

Mode = Literal["grad", "no_grad", "inference"]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far numbers may differ; None is torch's default for their dtype."""

    rtol: float | None = None
    atol: float | None = None


class Subject:
    """A callable under budget. Every method returns the subject, so that they chain."""

    def __init__(self, call: Call, name: str) -> None:
        self.call = call
        self.name = name
        self.reference: Call | None = None
        self.tolerance: Tolerance | None = Tolerance()
        self.fresh: Callable[[], object] | None = None
        self._mode: Mode | None = None

    def against(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Subject:
        """The reference call that the subject is compared with."""
        _must_be_callable(function, "against")
        self.reference = Call(function, args, kwargs)
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

    def __call__(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Subject:
        """Adds a subject: a function and its arguments."""
        _must_be_callable(function, "overhead")
        subject = Subject(Call(function, args, kwargs), _name(function))
        self.subjects.append(subject)
        return subject


def _must_be_callable(function: object, where: str) -> None:
    if not callable(function):
        raise TypeError(f"{where}() needs something to call, not {function!r}")


def _name(function: Callable[..., Any]) -> str:
    """The display name: ``Dense.call``, `add` for ``torch._C._VariableFunctionsClass.add``, the class for an
    instance."""
    name: str = getattr(function, "__qualname__", None) or type(function).__qualname__
    owner, _, last = name.rpartition(".")
    return last if owner.startswith("_") else name
