"""What a trace and the linter say of one place, brought together."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.traces import Joined, Line, Overhead, Trace, Wait
from pytest_dispatchguard.traces.operators import fits, likely, waits

TextOf = Callable[[str], "str | None"]
"""The text of a file of the project, by its path relative to the root; None where it cannot be read."""

_COMPREHENSIONS: Mapping[type[ast.AST], str] = {
    ast.ListComp: "<listcomp>",
    ast.SetComp: "<setcomp>",
    ast.DictComp: "<dictcomp>",
    ast.GeneratorExp: "<genexpr>",
}
_MODULE, _LAMBDA = "<module>", "<lambda>"


@dataclass(frozen=True, slots=True)
class Scope:
    """Code that runs in a frame of its own."""

    name: str
    """As Python calls its code: ``step``, ``<lambda>``."""
    qualified: str
    """``Model.step``; that of the function around it for lambdas and comprehensions."""
    first: int
    """Its first line, decorators included."""
    last: int
    function: bool
    """Whether what stands in it never runs in the frame around it."""

    @property
    def is_named(self) -> bool:
        """Whether it is a function with a name, and so no lambda."""
        return self.function and self.name != _LAMBDA


def joined(trace: Trace, findings: Iterable[Finding], text_of: TextOf) -> tuple[Joined, ...]:
    """The places of the project, those with the longest waits first, each with its findings."""
    waiting: dict[Line, list[Wait]] = {}
    for wait in trace.waits:
        if wait.line.ours:
            waiting.setdefault(wait.line, []).append(wait)
    overheads = {one.line: one for one in trace.overheads if one.line.ours}
    by_file: dict[str, list[Finding]] = {}
    for finding in findings:
        by_file.setdefault(_place(finding)[0], []).append(finding)
    scopes = Scopes(text_of)
    lines = [*waiting, *(line for line in overheads if line not in waiting)]
    return tuple(
        sorted(
            (
                _joined(line, waiting.get(line, ()), overheads.get(line), by_file, scopes)
                for line in lines
            ),
            key=lambda one: (-sum(wait.us for wait in one.waits), -_host_us(one), one.line),
        )
    )


def _host_us(one: Joined) -> float:
    return one.overhead.host_us if one.overhead is not None else 0.0


def _joined(
    line: Line,
    waits_here: Sequence[Wait],
    overhead: Overhead | None,
    by_file: Mapping[str, Sequence[Finding]],
    scopes: Scopes,
) -> Joined:
    there = by_file.get(line.file, ())
    found = _findings(line, {wait.operator for wait in waits_here}, there, scopes)
    findings = tuple(sorted(found, key=lambda finding: finding.sort_key))
    suspects = {wait: _suspects(line, wait, findings) for wait in waits_here}
    return Joined(line, tuple(waits_here), overhead, findings, suspects)


def _suspects(line: Line, wait: Wait, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    fitting = tuple(f for f in findings if f.dry is not True and fits(f.code, wait.operator))
    if fitting or not line.exact:
        likeliest = tuple(f for f in fitting if likely(f.code, wait.operator))
        return likeliest or fitting
    # Where the line is known, what is said of it counts for more than the name of an operator.
    return tuple(finding for finding in findings if waits(finding.code))


def _findings(
    line: Line, operators: set[str], there: Sequence[Finding], scopes: Scopes
) -> list[Finding]:
    """Those on the line; where only the function is known, those in it that can make the host wait in these
    operators, or those that make it wait nowhere if there are none."""

    def suits(finding: Finding) -> bool:
        if not operators:
            return not waits(finding.code)
        return finding.dry is not True and any(fits(finding.code, one) for one in operators)

    if not there:
        return []
    if line.exact:
        on_it = [f for f in there if _place(f)[1] <= line.line <= _place(f)[2]]
        if on_it and (scopes.at(line) is not None or not scopes.of(line.file)):
            return on_it
        # Its lines have moved since: its function is all that still holds.
    candidates = scopes.meant(line)
    found = [
        [f for f in there if suits(f) and scopes.owns(line.file, one, _place(f)[1])]
        for one in candidates
    ]
    # Of several functions of one name, only one that can be meant is taken.
    some = [one for one in found if one]
    return some[0] if len(some) == 1 else []


def _place(finding: Finding) -> tuple[str, int, int]:
    """The file, first and last line of the code that a finding is about."""
    if finding.elsewhere is not None:
        span = finding.elsewhere.span
        return finding.elsewhere.path, span.line, span.end_line
    return finding.path, finding.span.line, finding.span.end_line


class Scopes:
    """The functions, lambdas and comprehensions of files, read once each."""

    def __init__(self, text_of: TextOf) -> None:
        self._text_of = text_of
        self._known: dict[str, tuple[Scope, ...]] = {}
        self._loops: dict[str, tuple[tuple[int, int], ...]] = {}

    def of(self, file: str) -> tuple[Scope, ...]:
        """All of a file; the module itself is the first. None of one that cannot be read."""
        known = self._known.get(file)
        if known is None:
            text = self._text_of(file)
            tree = None if text is None else _parsed(text)
            known = self._known[file] = () if tree is None else tuple(_scopes(tree))
            self._loops[file] = () if tree is None else tuple(_loops(tree))
        return known

    def loops(self, file: str) -> tuple[tuple[int, int], ...]:
        """The first and last lines of the loops of a file."""
        self.of(file)
        return self._loops[file]

    def at(self, line: Line) -> Scope | None:
        """The innermost of that name that the line stands in."""
        around = [
            one
            for one in self.of(line.file)
            if one.name == line.function and one.first <= line.line <= one.last
        ]
        return min(around, key=lambda one: one.last - one.first, default=None)

    def meant(self, line: Line) -> list[Scope]:
        """The one at that line; all of that name where the lines have moved since."""
        here = self.at(line)
        if here is not None:
            return [here]
        return [one for one in self.of(line.file) if one.name == line.function]

    def owns(self, file: str, scope: Scope, line: int) -> bool:
        """Whether code at a line runs in the frame of a scope. That of comprehensions may: Python 3.12 and
        later run them in the frame around."""
        if not scope.first <= line <= scope.last:
            return False
        inner = [
            one
            for one in self.of(file)
            if one.function
            and one != scope
            and scope.first <= one.first
            and one.last <= scope.last
            # One on the same lines, such as a lambda in a statement, cannot be told from its own.
            and one.first <= line <= one.last
            and (one.first, one.last) != (line, line)
        ]
        return not inner


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _loops(tree: ast.Module) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            yield node.lineno, node.end_lineno or node.lineno


def _scopes(tree: ast.Module) -> Iterator[Scope]:
    yield Scope(_MODULE, "", 1, sys.maxsize, False)
    stack: list[tuple[ast.AST, str, str]] = [(tree, "", "")]
    while stack:
        node, prefix, around = stack.pop()
        inside, name = prefix, around
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            name, inside = prefix + node.name, f"{prefix}{node.name}.<locals>."
            yield Scope(node.name, name, first, node.end_lineno or first, True)
        elif isinstance(node, ast.ClassDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            inside = f"{prefix}{node.name}."
            yield Scope(node.name, around, first, node.end_lineno or first, False)
        elif isinstance(node, ast.Lambda):
            last = node.end_lineno or node.lineno
            yield Scope(_LAMBDA, around, node.lineno, last, True)
        elif type(node) in _COMPREHENSIONS:
            assert isinstance(node, ast.expr)
            last = node.end_lineno or node.lineno
            yield Scope(_COMPREHENSIONS[type(node)], around, node.lineno, last, False)
        stack.extend((child, inside, name) for child in ast.iter_child_nodes(node))
