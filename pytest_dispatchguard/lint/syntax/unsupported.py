"""Python that the grammar of tree-sitter does not know: said in words of the same length that it knows. Where
that does not do: which functions it has read as they are."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import accumulate

from pytest_dispatchguard.lint.syntax.python_ast import parsed, with_newlines

_SAYS_SOMETHING = re.compile("dispatchguard|noqa", re.IGNORECASE)


def bridged(source: bytes) -> bytes | None:
    """The text with an operator in the place of each star of a tuple, as in `return x, *(None, None)`, and
    without the comments on lines of their own in the midst of an expression, but those that are for linters:
    every node that is found has its own place. None where Python cannot read it either."""
    text = _text(source)
    tree = _tree(text)
    if tree is None:
        return None
    lines = _lines(text)
    for line, start in _stars(tree, lines):
        lines[line] = lines[line][:start] + b"+" + lines[line][start + 1 :]
    for line in _comments(text):
        lines[line] = b" " * len(lines[line])
    return b"\n".join(lines)


def read_whole(source: bytes) -> dict[tuple[str, int], int]:
    """The byte after the last one of each function, by its qualified name and its line, as Python reads them:
    what tree-sitter makes of a text that has errors to it may end early, or late, or be in another class."""
    text = _text(source)
    tree = _tree(text)
    if tree is None:
        return {}
    lines = _lines(text)
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    starts[0] = _mark(lines)
    return {
        (name, node.lineno): starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)
        for name, node in _functions(tree, "")
    }


def _functions(
    node: ast.AST, prefix: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
            yield from _functions(child, f"{prefix}{child.name}.<locals>.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def _text(source: bytes) -> str:
    """The text, with lines that end as those of tree-sitter do."""
    return with_newlines(source.decode("utf-8", "surrogatepass"))


def _lines(text: str) -> list[bytes]:
    return [line.encode("utf-8", "surrogatepass") for line in text.split("\n")]


def _mark(lines: list[bytes]) -> int:
    """The bytes of the mark that a text may begin with, which Python does not count."""
    mark = "\ufeff".encode()
    return len(mark) if lines[0].startswith(mark) else 0


def _tree(text: str) -> ast.Module | None:
    try:
        return parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _stars(tree: ast.AST, lines: list[bytes]) -> Iterator[tuple[int, int]]:
    """The line, from 0, and the byte of each star that is part of a tuple."""
    mark = _mark(lines)
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load):
            for part in node.elts:
                if isinstance(part, ast.Starred):
                    line = part.lineno - 1
                    start = part.col_offset + (mark if line == 0 else 0)
                    if lines[line][start : start + 1] == b"*":
                        yield line, start


def _comments(text: str) -> list[int]:
    """The lines, from 0, that hold nothing but a comment, within brackets."""
    found: list[int] = []
    depth = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.OP:
                depth += (token.string in "([{") - (token.string in ")]}")
            elif (
                token.type == tokenize.COMMENT
                and depth
                and not _SAYS_SOMETHING.search(token.string)
            ):
                line, column = token.start
                if not token.line[:column].strip():
                    found.append(line - 1)
    except (tokenize.TokenError, SyntaxError):
        pass  # it reads otherwise than the parser: what was found so far is right
    return found
