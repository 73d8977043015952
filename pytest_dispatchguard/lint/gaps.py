"""Python that the grammar of tree-sitter does not know, said in words of the same length that it knows."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterator

_SAYS_SOMETHING = re.compile("dispatchguard|noqa", re.IGNORECASE)


def bridged(source: bytes) -> bytes | None:
    """The text with an operator in the place of each star of a tuple, as in `return x, *(None, None)`, and
    without the comments on lines of their own in the midst of an expression, but those that are for linters:
    every node that is found has its own place. None where Python cannot read it either."""
    text = source.decode("utf-8", "surrogatepass")
    tree = _tree(text)
    if tree is None:
        return None
    lines = [line.encode("utf-8", "surrogatepass") for line in text.split("\n")]
    for line, start in _stars(tree, lines):
        lines[line] = lines[line][:start] + b"+" + lines[line][start + 1 :]
    for line in _comments(text):
        lines[line] = b" " * len(lines[line])
    return b"\n".join(lines)


def _tree(text: str) -> ast.AST | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _stars(tree: ast.AST, lines: list[bytes]) -> Iterator[tuple[int, int]]:
    """The line, from 0, and the byte of each star that is part of a tuple."""
    mark = len("\ufeff".encode()) if lines[0].startswith("\ufeff".encode()) else 0
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
