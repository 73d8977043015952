"""The source of parsed nodes, and where they are: what libcst's `code_for_node` and PositionProvider tell, in
less time."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any

import libcst as cst
from libcst._nodes.expression import _BaseParenthesizedNode
from libcst._nodes.internal import CodegenState
from libcst._nodes.op import _BaseOneTokenOp

_NEWLINE = re.compile(r"\r\n?|\n")

Position = tuple[int, int, int, int]
"""Line and column of the beginning, line and column of the end: lines from 1, columns from 0."""


def positions(module: cst.Module) -> dict[int, Position]:
    """The places of all nodes by `id`, without the whitespace that they own.

    Positions exist only while code is generated. MetadataWrapper generates it too, but then visits the
    whole tree once more for nobody, and makes objects of every line and column on the way.
    """
    state = _Recorder(module.default_indent, module.default_newline)
    with _ONE_AT_A_TIME, _quick_codegen():
        module._codegen(state)
    return state.found


@contextmanager
def _quick_codegen() -> Iterator[None]:
    """Has libcst generate code in half of the time: with one call for each node where it makes three, no
    context for nodes without parentheses, and nothing recorded of whitespace, which is nearly half of all
    nodes."""
    every, parenthesized = cst.CSTNode, _BaseParenthesizedNode
    every._codegen = _recorded  # type: ignore[method-assign]  # put back below
    parenthesized._parenthesize = _parenthesize  # type: ignore[method-assign, assignment]  # as above
    for kind, way in _WAYS.items():
        kind._codegen = way
    try:
        yield
    finally:
        every._codegen = _generated  # type: ignore[method-assign]  # as above
        parenthesized._parenthesize = _with_parentheses  # type: ignore[method-assign]  # as above
        for kind in _WAYS:
            del kind._codegen


_ONE_AT_A_TIME = threading.Lock()
_generated = cst.CSTNode._codegen
_with_parentheses = _BaseParenthesizedNode._parenthesize


# Another thread may generate code for a state of its own at the same time.
def _recorded(self: cst.CSTNode, state: CodegenState, **options: Any) -> None:
    if type(state) is not _Recorder:
        _generated(self, state, **options)
        return
    line, column = state.line, state.column
    self._codegen_impl(state, **options)
    found = state.found
    # The place without whitespace, where the node has told it, stands.
    if id(self) not in found:
        found[id(self)] = (line, column, state.line, state.column)


def _parenthesize(
    self: _BaseParenthesizedNode, state: CodegenState
) -> AbstractContextManager[None]:
    if self.lpar or self.rpar:
        return _with_parentheses(self, state)
    if type(self) is cst.StarredElement:  # the one of them that writes its comma, too
        return state.record_syntactic_position(self)
    return _NOTHING


def _name(self: cst.Name, state: CodegenState) -> None:
    if self.lpar or type(state) is not _Recorder:
        _recorded(self, state)
        return
    line, column = state.line, state.column
    state.column = end = column + len(self.value)
    state.found[id(self)] = (line, column, line, end)


def _operator(self: _BaseOneTokenOp, state: CodegenState) -> None:
    if type(state) is not _Recorder:
        _generated(self, state)
        return
    self.whitespace_before._codegen(state)
    line, column = state.line, state.column
    state.column = end = column + len(self._get_token())
    state.found[id(self)] = (line, column, line, end)
    self.whitespace_after._codegen(state)


def _only_text(self: cst.SimpleWhitespace, state: CodegenState) -> None:
    if self.value:
        state.add_token(self.value)


_WAYS: dict[Any, Callable[..., None]] = {
    cst.Name: _name,
    _BaseOneTokenOp: _operator,
    cst.SimpleWhitespace: _only_text,
}


def source_of(node: cst.CSTNode) -> str:
    """The source of a node, with the spaces and comments that it owns."""
    state = _Writer("    ", "\n")
    node._codegen(state)
    return "".join(state.tokens)


class _Writer(CodegenState):
    """Makes nothing for each place that nobody wants to know."""

    def record_syntactic_position(  # type: ignore[override]  # any context manager serves
        self, node: cst.CSTNode, **ends: cst.CSTNode | None
    ) -> nullcontext[None]:
        return _NOTHING


_NOTHING = nullcontext()


class _Recorder(CodegenState):
    """Keeps where nodes begin and end, and nothing of what they write."""

    def __init__(self, indent: str, newline: str) -> None:
        super().__init__(default_indent=indent, default_newline=newline)
        self.found: dict[int, Position] = {}
        self.line = 1
        self.column = 0
        self.tokens.append("")  # a module without any would write a newline of its own

    def add_indent_tokens(self) -> None:
        for token in self.indent_tokens:
            self.add_token(token)

    def add_token(self, value: str) -> None:
        if "\n" in value or "\r" in value:
            parts = _NEWLINE.split(value)
            self.line += len(parts) - 1
            self.column = len(parts[-1])
        else:
            self.column += len(value)

    def record_syntactic_position(  # type: ignore[override]  # any context manager serves
        self,
        node: cst.CSTNode,
        *,
        start_node: cst.CSTNode | None = None,
        end_node: cst.CSTNode | None = None,
    ) -> _Syntactic:
        return _Syntactic(self, node, start_node, end_node)


class _Syntactic:
    """Around what a node writes of itself."""

    __slots__ = ("column", "end_node", "line", "node", "start_node", "state")

    def __init__(
        self,
        state: _Recorder,
        node: cst.CSTNode,
        start_node: cst.CSTNode | None,
        end_node: cst.CSTNode | None,
    ) -> None:
        self.state = state
        self.node = node
        self.start_node = start_node
        self.end_node = end_node

    def __enter__(self) -> None:
        self.line, self.column = self.state.line, self.state.column

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            return
        state = self.state
        start = (self.line, self.column)
        end = (state.line, state.column)
        if self.start_node is not None:
            start = state.found[id(self.start_node)][:2]
        if self.end_node is not None:
            end = state.found[id(self.end_node)][2:]
        state.found[id(self.node)] = (*start, *end)
