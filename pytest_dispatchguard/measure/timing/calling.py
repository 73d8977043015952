"""Makes calls in the exact form that a test wrote: a wrapper with ``*args`` would add to the cost."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Literal

from pytest_dispatchguard.runtime.counters.counters import OWN_CODE

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Block = Callable[[Iterable[None]], int]
"""Makes one call for each item, and returns how long all of them took."""


Use = Literal["call", "await", "iterate", "iterate async"]
"""What is done with what a function returns: nothing; or it is awaited; or iterated to its end."""


@dataclass(frozen=True, slots=True)
class Call:
    """A callable and its arguments."""

    function: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    use: Use = "call"
    loop: Callable[[], AbstractEventLoop] | None = None
    """Gives the event loop that runs what is asynchronous."""

    @property
    def form(self) -> str:
        """The call as source, ``f(a0, a1, axis=k0)``: the form alone changes times by some percent."""
        call = f"f({', '.join(_names(self))})" if _spelt(self) else "f(*args, **kwargs)"
        return _STATEMENTS[self.use].format(call)

    def once(self) -> FunctionType:
        """A function without parameters that makes the call, and returns all that it gives."""
        names, values, call = _parts(self)
        return self._runner(tuple(names), values, _RESULTS[self.use].format(call))

    def idle(self) -> FunctionType | None:
        """What `once` runs beside the call; None if that is nothing, else the event loop with nothing to
        do."""
        return self._runner((), [], "None") if self.loop is not None else None

    def _runner(self, names: tuple[str, ...], values: Sequence[Any], result: str) -> FunctionType:
        if self.loop is None:
            made = _scope(_once_code(_ONCE, names, result))["make"]
            run: FunctionType = made(*values)
        else:
            made = _scope(_once_code(_ONCE_IN_LOOP, names, result))["make"]
            run = made(self.loop().run_until_complete, *values)
        return run

    def block(self, clock: Callable[[], int]) -> Block:
        """A block of calls. Its code is compiled for it alone: blocks with shared code would share the
        interpreter's specializations, and undo each other's. Asynchronous calls share one coroutine, so that
        starting the event loop is not timed."""
        names, values, call = _parts(self)
        given = "".join(f", {name}" for name in names)
        defaults = "".join(f", {name}={name}" for name in names)
        source = _BLOCK.format(given, defaults, _STATEMENTS[self.use].format(call))
        if self.loop is not None:
            source = source.replace("def block", "async def block")
        made = _scope(compile(source, OWN_CODE, "exec"))["make"]
        block: Block = made(clock, *values)
        return block if self.loop is None else _in_loop(self.loop(), block)


def _in_loop(loop: AbstractEventLoop, block: Callable[[Iterable[None]], Any]) -> Block:
    def run(times: Iterable[None]) -> int:
        took: int = loop.run_until_complete(block(times))
        return took

    return run


def empty_block(clock: Callable[[], int]) -> Block:
    """An empty block, whose time is subtracted from the others."""
    block: Block = _scope(compile(_BLOCK.format("", "", "pass"), OWN_CODE, "exec"))["make"](clock)
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
    made = _scope(compile(source, OWN_CODE, "exec"))["make"]
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


_STATEMENTS: Mapping[Use, str] = {
    "call": "{0}",
    "await": "await {0}",
    "iterate": "for _ in {0}: pass",
    "iterate async": "async for _ in {0}: pass",
}
_RESULTS: Mapping[Use, str] = {
    "call": "{0}",
    "await": "await {0}",
    "iterate": "[*{0}]",
    "iterate async": "[_ async for _ in {0}]",
}
_ONCE = """
def make({0}):
    def run():
        return {1}
    return run
"""
_ONCE_IN_LOOP = """
def make(to_end{0}):
    async def wait():
        return {1}
    def run():
        return to_end(wait())
    return run
"""


def _parts(call: Call) -> tuple[list[str], list[Any], str]:
    """The names that the source of a call uses, their values, and the source."""
    if _spelt(call):
        names = ["f", *_variables(len(call.args), len(call.kwargs))]
        values = [call.function, *call.args, *call.kwargs.values()]
        return names, values, f"f({', '.join(_names(call))})"
    return ["f", "a", "k"], [call.function, call.args, call.kwargs], "f(*a, **k)"


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
def _once_code(template: str, names: tuple[str, ...], result: str) -> CodeType:
    given = ", ".join(names) if template is _ONCE else "".join(f", {name}" for name in names)
    return compile(template.format(given, result), OWN_CODE, "exec")


def _scope(code: CodeType) -> dict[str, Any]:
    scope: dict[str, Any] = {}
    exec(code, scope)
    return scope
