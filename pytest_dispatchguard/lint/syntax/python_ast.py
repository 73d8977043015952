"""A source text as Python itself reads it, told apart from how tree-sitter does."""

from __future__ import annotations

import ast
import re
import warnings

_CARRIAGE = re.compile(r"\r(?!\n)")


def with_newlines(text: str) -> str:
    """The text, of the same length, with lines that end for tree-sitter where they do for Python, to which a
    carriage return alone ends one as well."""
    return _CARRIAGE.sub("\n", text) if "\r" in text else text


def parsed(text: str) -> ast.Module:
    """Its tree, without a warning; SyntaxError, ValueError, RecursionError or MemoryError where there is
    none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text.removeprefix("\ufeff"))
