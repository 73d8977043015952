"""Helpers on Python's syntax, for tree-sitter and libcst."""
