"""Sets torch's sync debug mode, which is global to the process: once the GPU is in use, not before; restored
at the end."""

from __future__ import annotations

import importlib.util
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec
from typing import Any

_lock = threading.RLock()
_wanted: list[str] = []
"""The requested modes, innermost last."""
_allowing = 0
"""The number of active `off` contexts, in all threads."""
_found: list[Any] = []
"""The mode before the first request."""


@contextmanager
def mode(name: str) -> Iterator[None]:
    """Sets the sync debug mode to "warn" or "error". Does not initialize the GPU: when, and which one, is
    for the program to decide."""
    with _lock:
        _wanted.append(name)
        _apply()
    if "torch" not in sys.modules:
        _on_import("torch", _apply)
    try:
        yield
    finally:
        with _lock:
            _wanted.remove(name)
            _apply()


@contextmanager
def off() -> Iterator[None]:
    """Switches the sync debug mode off."""
    global _allowing
    with _lock:
        _allowing += 1
        _apply()
    try:
        yield
    finally:
        with _lock:
            _allowing -= 1
            _apply()


def _apply() -> None:
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None:
        return
    if cuda.is_initialized():
        _set(cuda)
    elif _wanted and not _allowing:
        cuda._lazy_call(lambda: _set(cuda))


def _set(cuda: Any) -> None:
    with _lock:
        if not _found:
            if not _wanted and not _allowing:
                return
            _found.append(cuda.get_sync_debug_mode())
        now = _wanted[-1] if _wanted else _found[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the warning that the mode is a prototype
            cuda.set_sync_debug_mode("default" if _allowing else now)
        if not _wanted and not _allowing:
            _found.clear()


class _Finder:
    """Calls back when a module has been imported, once."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name, self.then = name, then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Returns the spec that other finders find, with the callback added to its loader."""
        if name != self.name:
            return None
        with suppress(ValueError):
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load, then = spec.loader.exec_module, self.then

            def loaded(module: Any) -> None:
                load(module)
                then()

            spec.loader.exec_module = loaded  # type: ignore[method-assign]  # of this one import
        return spec


def _on_import(name: str, then: Callable[[], None]) -> None:
    sys.meta_path.insert(0, _Finder(name, then))
