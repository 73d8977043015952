"""Makes calls in the exact form that a test wrote: a wrapper with ``*args`` would add to the cost."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

Block = Callable[[Iterable[None]], int]
"""Makes one call for each item, and returns how long all of them took."""


@dataclass(frozen=True, slots=True)
class Call:
    """A callable and its arguments."""

    function: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def form(self) -> str:
        """The call as source, ``f(a0, a1, axis=k0)``: the form alone changes times by some percent."""
        names = _names(self)
        if _spelt(self):
            return f"f({', '.join(names)})"
        return "f(*args, **kwargs)"

    def once(self) -> FunctionType:
        """A function without parameters that makes the call."""
        if not _spelt(self):
            return _starred(self)
        made = _scope(_once_code(len(self.args), tuple(self.kwargs)))["make"]
        run: FunctionType = made(self.function, *self.args, *self.kwargs.values())
        return run

    def block(self, clock: Callable[[], int]) -> Block:
        """A block of calls. Its code is compiled for it alone: blocks with shared code would share the
        interpreter's specializations, and undo each other's."""
        made = _scope(compile(_block_source(self), "<dispatchguard>", "exec"))["make"]
        block: Block = (
            made(clock, self.function, *self.args, *self.kwargs.values())
            if _spelt(self)
            else made(clock, self.function, self.args, self.kwargs)
        )
        return block


def empty_block(clock: Callable[[], int]) -> Block:
    """An empty block, whose time is subtracted from the others."""
    block: Block = _scope(compile(_BLOCK.format("", "", "pass"), "<dispatchguard>", "exec"))[
        "make"
    ](clock)
    return block


def block_of(
    lines: Sequence[str], values: Mapping[str, list[Any]], clock: Callable[[], int]
) -> Block:
    """A block of several statements that use values by name. Each value is in a list of one, so that it can
    be replaced between blocks."""
    names = list(values)
    taken = "; ".join(f"{name} = v{i}[0]" for i, name in enumerate(names)) or "pass"
    parameters = "".join(f", v{i}" for i in range(len(names)))
    defaults = "".join(f", v{i}=v{i}" for i in range(len(names)))
    source = _BLOCK.format(parameters, defaults, "\n            ".join(lines) or "pass")
    source = source.replace("        start = clock()", f"        {taken}\n        start = clock()")
    made = _scope(compile(source, "<dispatchguard>", "exec"))["make"]
    block: Block = made(clock, *values.values())
    return block


# Arguments are defaults of parameters, so that the loop reads them as fast as local variables.
_BLOCK = """
def make(clock{0}):
    def block(times, clock=clock{1}):
        start = clock()
        for _ in times:
            {2}
        return clock() - start
    return block
"""


def _block_source(call: Call) -> str:
    if not _spelt(call):
        return _BLOCK.format(", f, a, k", ", f=f, a=a, k=k", "f(*a, **k)")
    names = ["f", *_variables(len(call.args), len(call.kwargs))]
    parameters = "".join(f", {name}" for name in names)
    defaults = "".join(f", {name}={name}" for name in names)
    return _BLOCK.format(parameters, defaults, call.form)


def _variables(positional: int, keywords: int) -> list[str]:
    return [f"a{i}" for i in range(positional)] + [f"k{i}" for i in range(keywords)]


def _names(call: Call) -> list[str]:
    given = [f"a{i}" for i in range(len(call.args))]
    return given + [f"{name}=k{i}" for i, name in enumerate(call.kwargs)]


def _spelt(call: Call) -> bool:
    """Whether all keywords are valid names, so that source can contain them."""
    return all(map(_is_name, call.kwargs))


def _is_name(word: str) -> bool:
    return word.isidentifier() and not keyword.iskeyword(word)


def spelt(
    positional: Iterable[str], kwargs: Mapping[str, Any], first: int
) -> tuple[str, list[Any]]:
    """Returns arguments as a format string, ``{0}, axis={1}``, and the values of `kwargs`, which are
    numbered from `first`. Keywords that are no valid names are passed as one mapping."""
    words = list(positional)
    if all(map(_is_name, kwargs)):
        words += [f"{name}={{{first + i}}}" for i, name in enumerate(kwargs)]
        return ", ".join(words), list(kwargs.values())
    return ", ".join([*words, f"**{{{first}}}"]), [dict(kwargs)]


@lru_cache(maxsize=256)
def _once_code(positional: int, keywords: tuple[str, ...]) -> CodeType:
    given = [f"a{i}" for i in range(positional)]
    given += [f"{name}=k{i}" for i, name in enumerate(keywords)]
    source = (
        f"def make({', '.join(['f', *_variables(positional, len(keywords))])}):\n"
        f"    def run():\n"
        f"        return f({', '.join(given)})\n"
        f"    return run\n"
    )
    return compile(source, "<dispatchguard>", "exec")


def _scope(code: CodeType) -> dict[str, Any]:
    scope: dict[str, Any] = {}
    exec(code, scope)
    return scope


def _starred(call: Call) -> FunctionType:
    """A call for keywords that are no valid names."""
    function, args, kwargs = call.function, call.args, call.kwargs

    def run() -> Any:
        return function(*args, **kwargs)

    assert isinstance(run, FunctionType)
    return run
