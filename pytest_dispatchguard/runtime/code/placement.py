"""Puts code and stack of a process elsewhere in memory.

Where code lies moves what it takes by 1 to 3%, and a change of a few lines moves all that comes after it. In
processes with one layout of addresses that looks like a change of the code's own: always the same, so more of
them would not average it. So every process that takes turns has its code placed anew, at random. The two that
take turns with each other have the same seed: what slows both alike says nothing of the change."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TypeVar

_T = TypeVar("_T")

_CHANCE = random.SystemRandom()
"""No seed that others set: depths differ from block to block."""
_BLOCKS, _LARGEST = 400, 3000
"""Allocations that are made and kept, at most, and their bytes."""
_DEEPEST = 24
"""Calls of C functions, at most, below which something runs."""
_INSTALLED = ("site-packages", "dist-packages")


def place_anew(root: Path, seed: str) -> list[bytearray]:
    """Places the functions of the modules below a folder anew, among allocations that the caller keeps as
    long as it measures. Installed packages are left alone, and all code where torch compiles some, as it
    would be compiled again."""
    chance = random.Random(seed)
    kept = [_gap(chance) for _ in range(chance.randrange(_BLOCKS))]
    if "torch._dynamo" in sys.modules:
        return kept
    seen: set[int] = set()
    for module in list(sys.modules.values()):
        if not _is_below(module, root):
            continue
        for function in _functions(module):
            if id(function) not in seen:
                seen.add(id(function))
                function.__code__ = _copy(function.__code__, kept, chance)
    return kept


def at_some_depth(call: Callable[[], _T]) -> _T:
    """What something gives that runs somewhere else on the stack of C: where that begins depends on how long
    the environment is and the paths of the command."""
    return _below(_CHANCE.randrange(_DEEPEST), call)


def _below(depth: int, call: Callable[[], _T]) -> _T:
    if depth == 0:
        return call()

    def deeper(left: int) -> _T:
        return _below(left, call)

    return next(map(deeper, (depth - 1,)))


def _gap(chance: random.Random) -> bytearray:
    return bytearray(chance.randrange(1, _LARGEST))


def _is_below(module: ModuleType, root: Path) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return False
    path = Path(file)
    return path.is_relative_to(root) and not any(part in path.parts for part in _INSTALLED)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """The functions of a module and of its classes."""
    for value in list(vars(module).values()):
        inside = list(vars(value).values()) if isinstance(value, type) else [value]
        for one in inside:
            for function in (one, getattr(one, "__func__", None), getattr(one, "fget", None)):
                if isinstance(function, FunctionType):
                    yield function


def _copy(code: CodeType, kept: list[bytearray], chance: random.Random) -> CodeType:
    """The same code elsewhere, with the code of the functions within."""
    kept.append(_gap(chance))
    constants = [
        _copy(one, kept, chance) if isinstance(one, CodeType) else one for one in code.co_consts
    ]
    return code.replace(co_consts=tuple(constants))
