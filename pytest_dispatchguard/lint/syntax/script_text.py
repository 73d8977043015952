"""What a module does itself: its text without definitions and imports, at the same lines and columns."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from pytest_dispatchguard.lint.syntax.grammar import tree_of

LEFT_OUT = frozenset(
    "class_definition decorated_definition function_definition future_import_statement "
    "import_from_statement import_statement".split()
)
"""Kinds of statements that are read elsewhere: definitions on their own, and imports for the whole file."""


def script_text(source: bytes) -> bytes:
    """The source with `pass` in place of each definition and import: as long as before, in as many lines."""
    parts: list[bytes] = []
    last = 0
    for node in _left_out(tree_of(source).root_node):
        held = source[node.start_byte : node.end_byte]
        rest = source[node.end_byte : node.end_byte + 80].lstrip(b" \t")
        if b"\n" in held and rest.startswith(b";"):
            continue  # what follows could not stand where it stands
        blank = bytes(byte if byte in b"\r\n" else 0x20 for byte in held[4:])
        parts += [source[last : node.start_byte], b"pass", blank]
        last = node.end_byte
    return b"".join([*parts, source[last:]])


def first_loop(root: Node) -> Node | None:
    """The first loop of a module that stands in no definition."""
    return next((node for node in _statements(root) if node.type in _LOOPS), None)


_LOOPS = frozenset({"for_statement", "while_statement"})


def _left_out(root: Node) -> Iterator[Node]:
    return (node for node in _statements(root) if node.type in LEFT_OUT)


def _statements(root: Node) -> Iterator[Node]:
    """The statements of a module and of the blocks in it, in order, but for those of definitions."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if node.type not in LEFT_OUT and (
            node.type in ("module", "block") or node.type.endswith(("_clause", "_statement"))
        ):
            waiting.extend(reversed(node.named_children))
