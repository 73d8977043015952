"""From source text to facts, with tree-sitter."""
