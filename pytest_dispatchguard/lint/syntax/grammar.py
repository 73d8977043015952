"""Python's grammar for tree-sitter, and the tree of a text by it."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import tree_sitter_python
from tree_sitter import Language, Parser, Tree

LANGUAGE: Final = Language(tree_sitter_python.language())


@lru_cache(maxsize=1)
def tree_of(source: bytes) -> Tree:
    """The tree of a text, for whose nodes only the places count: where Python knows more than the grammar, it
    is that of a text of the same length. That of the last one stays: several look at a file that has just
    changed."""
    tree = Parser(LANGUAGE).parse(source)
    if not tree.root_node.has_error:
        return tree
    # Costly to import, and hardly ever needed.
    from pytest_dispatchguard.lint.syntax.unsupported import bridged

    bridge = bridged(source)
    return tree if bridge is None else Parser(LANGUAGE).parse(bridge)
