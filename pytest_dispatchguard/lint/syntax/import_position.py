"""Where a new import goes among those of a file: where import sorters would put it."""

from __future__ import annotations

import sys
from typing import NamedTuple

import tree_sitter

from pytest_dispatchguard.lint.syntax.chunks import Lines
from pytest_dispatchguard.lint.syntax.grammar import tree_of

_IMPORTS = ("import_statement", "import_from_statement", "future_import_statement")
_FUTURE, _STANDARD, _OTHER, _RELATIVE = range(4)


class _Import(NamedTuple):
    """One statement among the imports at the top of a file."""

    key: tuple[int, bool, str]
    """What sorters go by: its section, whether it is a `from`, its module."""
    first: int
    """Its first line, comments right above it included."""
    last: int
    alone: bool
    """Whether no other statement begins on its line."""


def import_place(text: str, statement: str) -> tuple[int, str]:
    """The line before which `import name` is to stand, and the lines to put there: the statement, with a
    blank line where sections meet. Imports that are in no order get it at their end."""
    lines = Lines(text)
    docstring, top = _top(lines)
    if not top:
        return _before_code(lines, docstring), f"{statement}\n\n"
    key = _key("import_statement", statement.split()[1])
    earlier = [i for i in top if i.key <= key]
    later = [i for i in top if i.key > key]
    sections = [i.key[0] for i in top]
    in_order = [*earlier, *later] == top and sections == sorted(sections)
    if not in_order or not all(i.alone for i in top):
        return top[-1].last + 1, f"{statement}\n"
    if earlier and (earlier[-1].key[0] == key[0] or not later or later[0].key[0] != key[0]):
        blank = "" if earlier[-1].key[0] == key[0] else "\n"
        return earlier[-1].last + 1, f"{blank}{statement}\n"
    blank = "" if later[0].key[0] == key[0] else "\n"
    return later[0].first, f"{statement}\n{blank}"


def _top(lines: Lines) -> tuple[int, list[_Import]]:
    """The last line of the docstring, 0 without one, and the imports with no other code above them."""
    nodes = [n for n in tree_of(lines.data).root_node.named_children if n.type != "comment"]
    docstring = 0
    end = 0
    found: list[_Import] = []
    for i, node in enumerate(nodes):
        start = lines.line_of(lines.offset(node.start_byte))
        if node.type in _IMPORTS:
            first = start
            # Comments at the top of a file are the file's, not the first import's.
            while first - 1 > end > 0 and lines.line(first - 1).lstrip().startswith("#"):
                first -= 1
            alone = start > end
            end = lines.line_of(lines.offset(node.end_byte))
            found.append(_Import(_key(node.type, _module(node)), first, end, alone))
        elif (
            i == 0
            and node.type == "expression_statement"
            and node.named_children[0].type == "string"
        ):
            docstring = end = lines.line_of(lines.offset(node.end_byte))
        else:
            break
    return docstring, found


def _before_code(lines: Lines, docstring: int) -> int:
    """The line for the first import of a file: after its docstring, or the comments at its top."""
    after = docstring
    while not docstring and after < len(lines.starts):
        if not lines.line(after + 1).lstrip().startswith("#"):
            break
        after += 1
    return after + 1


def _module(node: tree_sitter.Node) -> str:
    if node.type == "future_import_statement":
        return "__future__"
    name = node.child_by_field_name("module_name") or node.child_by_field_name("name")
    if name is not None and name.type == "aliased_import":
        name = name.child_by_field_name("name")
    return (name.text or b"").decode("utf-8", "replace") if name is not None else ""


def _key(kind: str, module: str) -> tuple[int, bool, str]:
    root = module.partition(".")[0]
    section = _STANDARD if root in sys.stdlib_module_names else _OTHER
    if not root:
        section = _RELATIVE
    elif root == "__future__":
        section = _FUTURE
    return section, kind != "import_statement", module.lower()
