"""Python's grammar for tree-sitter, and the tree of a text by it."""

from __future__ import annotations

from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final

from tree_sitter import Language, Parser, Tree


def _language() -> Language:
    """Python's grammar. Its package is not imported where that can be helped: it brings what reads its
    queries, which takes longer than to read a large file."""
    name = "tree_sitter_python"
    package = PathFinder.find_spec(name)
    places = None if package is None else package.submodule_search_locations
    binding = PathFinder.find_spec(f"{name}._binding", places) if places else None
    if binding is None or binding.loader is None:
        import tree_sitter_python

        return Language(tree_sitter_python.language())
    module = module_from_spec(binding)
    binding.loader.exec_module(module)
    return Language(module.language())


LANGUAGE: Final = _language()


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
