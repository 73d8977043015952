"""The source of parsed nodes, and where they are: what libcst's `code_for_node` and PositionProvider tell, in
less time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType

import libcst as cst
from libcst._nodes.expression import _BaseParenthesizedNode
from libcst._nodes.internal import CodegenState

_NEWLINE = re.compile(r"\r\n?|\n")

Position = tuple[int, int, int, int]
"""Line and column of the beginning, line and column of the end: lines from 1, columns from 0."""


def positions(module: cst.Module) -> dict[int, Position]:
    """The places of all nodes by `id`, without the whitespace that they own.

    Positions exist only while code is generated. MetadataWrapper generates it too, but then visits the
    whole tree once more for nobody, and makes objects of every line and column on the way.
    """
    state = _Recorder(module.default_indent, module.default_newline)
    with _quick_codegen():
        module._codegen(state)
    return state.found


@contextmanager
def _quick_codegen() -> Iterator[None]:
    """Has libcst generate code in two thirds of the time: with no generator for each node without
    parentheses, and nothing recorded of whitespace, which is nearly half of all nodes."""
    parenthesized, whitespace = _BaseParenthesizedNode, cst.SimpleWhitespace
    parenthesized._parenthesize = _parenthesize  # type: ignore[method-assign, assignment]  # put back below
    whitespace._codegen = _only_text  # type: ignore[method-assign, assignment]  # as above
    try:
        yield
    finally:
        parenthesized._parenthesize = _with_parentheses  # type: ignore[method-assign]  # as above
        del whitespace._codegen


_with_parentheses = _BaseParenthesizedNode._parenthesize


def _parenthesize(
    self: _BaseParenthesizedNode, state: CodegenState
) -> AbstractContextManager[None]:
    if self.lpar or self.rpar:
        return _with_parentheses(self, state)
    return state.record_syntactic_position(self)


def _only_text(self: cst.SimpleWhitespace, state: CodegenState) -> None:
    if self.value:
        state.add_token(self.value)


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
    def __init__(self, indent: str, newline: str) -> None:
        super().__init__(default_indent=indent, default_newline=newline)
        self.found: dict[int, Position] = {}
        self.line = 1
        self.column = 0
        self.starts: list[tuple[int, int]] = []

    def add_indent_tokens(self) -> None:
        for token in self.indent_tokens:
            self.add_token(token)

    def add_token(self, value: str) -> None:
        self.tokens.append(value)
        if "\n" in value or "\r" in value:
            parts = _NEWLINE.split(value)
            self.line += len(parts) - 1
            self.column = len(parts[-1])
        else:
            self.column += len(value)

    def before_codegen(self, node: cst.CSTNode) -> None:
        self.starts.append((self.line, self.column))

    def after_codegen(self, node: cst.CSTNode) -> None:
        line, column = self.starts.pop()
        # The place without whitespace, where the node has told it, stands.
        self.found.setdefault(id(node), (line, column, self.line, self.column))

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
