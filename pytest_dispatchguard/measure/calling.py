"""Calls of the exact form that a test wrote: a wrapper with ``*args`` would cost, and be counted, itself."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import FunctionType
from typing import Any


@lru_cache(maxsize=256)
def _maker(positional: int, keywords: tuple[str, ...]) -> Callable[..., FunctionType]:
    names = [f"a{i}" for i in range(positional)] + [f"k{i}" for i in range(len(keywords))]
    given = [f"a{i}" for i in range(positional)]
    given += [f"{name}=k{i}" for i, name in enumerate(keywords)]
    source = (
        f"def make({', '.join(['f', *names])}):\n"
        f"    def run():\n"
        f"        return f({', '.join(given)})\n"
        f"    return run\n"
    )
    scope: dict[str, Any] = {}
    exec(compile(source, "<dispatchguard>", "exec"), scope)
    made: Callable[..., FunctionType] = scope["make"]
    return made


def calling(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> FunctionType:
    """A function without parameters that calls `function` as it is written: ``f(a, b, axis=c)``."""
    if any(not name.isidentifier() or keyword.iskeyword(name) for name in kwargs):
        return _starred(function, args, kwargs)
    return _maker(len(args), tuple(kwargs))(function, *args, *kwargs.values())


def _starred(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> FunctionType:
    """For names that no call can spell out."""

    def run() -> Any:
        return function(*args, **kwargs)

    assert isinstance(run, FunctionType)
    return run
