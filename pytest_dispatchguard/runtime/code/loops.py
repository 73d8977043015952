"""Finds the loop that a line of source stands in."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache
from typing import NamedTuple


class Loop(NamedTuple):
    """A loop, from the line of its `for` or `while` to the last of its body."""

    path: str
    line: int
    end: int


def loop_around(path: str, line: int) -> Loop | None:
    """The innermost loop around a line, within its function; None if there is none."""
    loops, functions = _read(path)
    around = [loop for loop in loops if loop.line <= line <= loop.end]
    inner = max(around, default=None, key=lambda loop: loop.line)
    if inner is None or any(inner.line < start <= line <= end for start, end in functions):
        return None  # a function defined in a loop does not run in it
    return inner


@lru_cache(maxsize=256)
def _read(path: str) -> tuple[list[Loop], list[tuple[int, int]]]:
    """All loops of a file, and the lines of all functions."""
    try:
        nodes = list(ast.walk(ast.parse("".join(linecache.getlines(path)))))
    except (SyntaxError, ValueError, RecursionError):
        return [], []
    loops = [
        # The `else` of a loop runs once.
        Loop(path, node.lineno, node.body[-1].end_lineno or node.lineno)
        for node in nodes
        if isinstance(node, ast.For | ast.AsyncFor | ast.While)
    ]
    functions = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return loops, functions
