"""Python's grammar for tree-sitter, and the tree of a text by it."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import tree_sitter_python
from tree_sitter import Language, Parser, Tree

LANGUAGE: Final = Language(tree_sitter_python.language())


@lru_cache(maxsize=1)
def tree_of(source: bytes) -> Tree:
    """The tree of a text. That of the last one stays: several look at a file that has just changed."""
    return Parser(LANGUAGE).parse(source)
