"""The pieces of a file that are worth judging, and texts by the bytes, characters and lines they are
counted in."""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from pytest_dispatchguard.lint.facts import (
    HELPER_CALL,
    PART,
    SCRIPT,
    FileFacts,
    FunctionFact,
    Value,
)
from pytest_dispatchguard.lint.syntax.script_text import script_text

_NEWLINE = re.compile(r"\r\n|\r|\n")


class Outline(NamedTuple):
    """An outermost function worth judging: where it stands in its file."""

    name: str
    line: int
    start_byte: int
    end_byte: int
    tokens: tuple[str, ...] = ()
    """What rules look for and it holds; empty where it has to be judged whatever that is."""


_PLAIN = frozenset(
    """unknown none int float bool number str function ann:None ann:int ann:float ann:bool ann:str
    ann:bytes""".split()
)
"""What functions return, as `Value` has it, that is neither a tensor nor holds one."""
_NESTED = frozenset({"tuple", "list", "dict"})
"""The same of what may hold some, which nobody knows."""


def worth_judging(
    facts: FileFacts,
    hot: Collection[str],
    seen: Collection[str],
    returns: Mapping[str, Value],
    readers: Collection[str],
    tokens: Collection[str],
) -> list[Outline]:
    """Outermost functions that are hot, or hold hot ones, with something that a rule looks for; and those
    that were `seen` with tensors, of which their text may say nothing. Where it hinges on calls, it counts
    unless all of them `return` what nobody takes for a tensor. `readers` are the last names of helpers
    that read what they are given: a rule may look for calls of these."""
    wanted = frozenset(tokens)

    def found_in(function: FunctionFact) -> set[str]:
        if function.name not in hot:
            return set()
        found = {*wanted.intersection(function.looks)}
        for token, calls in function.hinges.items():
            if token in wanted and any(_may_count(token, call, returns) for call in calls):
                found.add(token)
        if readers and HELPER_CALL in wanted:
            called = (call.name.rpartition(".")[2] for call in function.calls)
            if any(last in readers for last in called):
                found.add(HELPER_CALL)
        return found

    outlines = []
    for outer, inner in outermost(facts):
        whole = [outer, *inner]
        found = set().union(*map(found_in, whole))
        always = any(function.name in seen for function in whole)
        setter = any(d.endswith((".setter", ".deleter")) for d in outer.decorators)
        if (found or always) and not setter:
            held = () if always else tuple(sorted(found))
            outlines.append(Outline(outer.name, outer.line, outer.start_byte, outer.end_byte, held))
    return outlines


def _may_count(token: str, call: str, returns: Mapping[str, Value]) -> bool:
    """Whether a token may count where it is asked of what a call returns, or of a part of that. What is not
    known counts, but has no parts that anybody knows. A list is no tensor, but as an index it is as dear as
    one."""
    part = call.endswith(PART)
    returned = returns.get(call.removesuffix(PART))
    if returned is None:
        return not part
    if returned in _NESTED:
        return token in ("subscript", "setitem") and not part
    return returned not in _PLAIN and not returned.startswith("name:")


def outermost(facts: FileFacts) -> Iterable[tuple[FunctionFact, list[FunctionFact]]]:
    """Functions that no other function encloses, each with those inside it."""
    inside: dict[str, list[FunctionFact]] = defaultdict(list)
    tops: list[FunctionFact] = []
    for function in facts.functions:
        head, local, _ = function.name.partition(".<locals>.")
        if local:
            inside[head].append(function)
        else:
            tops.append(function)
    for top in tops:
        yield (
            top,
            [f for f in inside.get(top.name, ()) if top.start_byte <= f.start_byte < top.end_byte],
        )


def _line_starts(text: str) -> list[int]:
    """The first character of every line."""
    if "\r" in text:
        return [0, *(m.end() for m in _NEWLINE.finditer(text))]
    starts = list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))
    return starts[:-1]


class Lines:
    """A text by lines and by bytes, as Python counts them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.data = text.encode("utf-8", "surrogatepass")
        self.starts = _line_starts(text)
        self.ascii = len(self.data) == len(text)
        self._last = (0, "")
        """The line that was asked for last: a long one may be asked for thousands of times."""

    def offset(self, byte: int) -> int:
        """The character at a byte."""
        return byte if self.ascii else len(self.data[:byte].decode("utf-8", "surrogatepass"))

    def line_of(self, offset: int) -> int:
        """The line, from 1, of a character."""
        return bisect.bisect_right(self.starts, offset)

    def line(self, number: int) -> str:
        """One line's text, without its newline."""
        if self._last[0] != number:
            end = self.starts[number] if number < len(self.starts) else len(self.text)
            self._last = number, self.text[self.starts[number - 1] : end].rstrip("\r\n")
        return self._last[1]

    def chunk(self, outline: Outline) -> tuple[str, int, bool]:
        """The source of a function from the beginning of its first line, the number of that line,
        and whether the function is indented."""
        if outline.name == SCRIPT:
            return self._script, 1, False
        start = self.offset(outline.start_byte)
        first = self.line_of(start)
        line_start = self.starts[first - 1]
        source = self.text[line_start : self.offset(outline.end_byte)]
        indented = start > line_start and not self.text[line_start:start].strip(" \t\f")
        return source, first, indented

    @cached_property
    def _script(self) -> str:
        return script_text(self.data).decode("utf-8", "surrogatepass")

    def rest(self, outline: Outline) -> str:
        """What follows a function on its last line."""
        end = self.offset(outline.end_byte)
        last = self.line_of(end)
        start = self.starts[last - 1]
        return self.line(last)[end - start :]
