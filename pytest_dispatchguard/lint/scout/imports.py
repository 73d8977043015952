"""The scout at imports."""

from __future__ import annotations

from tree_sitter import Node

from pytest_dispatchguard.lint.scout.state import Handler, Walk, parts_of
from pytest_dispatchguard.lint.scout.values import text


def _add_import(walk: Walk, name: str, target: str) -> None:
    if walk.foreign:
        return
    entry = (name, target)
    if entry not in walk.facts.imports:
        walk.facts.imports.append(entry)
    if name == "*":
        walk.star = True
        return
    walk.imports.setdefault(name, target)
    if target.partition(".")[0] == "torch":
        walk.torch_names.add(name)


def _import(walk: Walk, node: Node) -> None:
    for part in parts_of(node):
        if part.type == "aliased_import":
            name, alias = part.named_children[0], part.named_children[-1]
            target = text(walk.source, name)
            _note_import(walk, target)
            _add_import(walk, text(walk.source, alias), target)
        elif part.type == "dotted_name":
            root = text(walk.source, part).partition(".")[0]
            _note_import(walk, root)
            _add_import(walk, root, root)


def _note_import(walk: Walk, written: str) -> None:
    """Notes that a function imports something, and from which package."""
    if walk.where == "function":
        looks = walk.reading.looks
        looks.add("import")
        looks.add(f"import:{written.partition('.')[0] or '.'}")


def _absolute(walk: Walk, written: str) -> str:
    """The dotted name that a relative import means."""
    rest = written.lstrip(".")
    up = len(written) - len(rest) - (1 if walk.is_package else 0)
    package = walk.module.split(".")
    package = package[: max(0, len(package) - up)]
    return ".".join([*package, rest] if rest else package)


def _import_from(walk: Walk, node: Node) -> None:
    parts = parts_of(node)
    if not parts:
        return
    written = "".join(text(walk.source, parts[0]).split())
    _note_import(walk, written)
    base = _absolute(walk, written) if written.startswith(".") else written
    for part in parts[1:]:
        if part.type == "wildcard_import":
            _add_import(walk, "*", base)
        elif part.type == "aliased_import":
            name, alias = part.named_children[0], part.named_children[-1]
            _add_import(walk, text(walk.source, alias), f"{base}.{text(walk.source, name)}")
        elif part.type == "dotted_name":
            name_text = text(walk.source, part)
            _add_import(walk, name_text, f"{base}.{name_text}" if base else name_text)


HANDLERS: dict[str, Handler] = {
    "import_from_statement": _import_from,
    "import_statement": _import,
}
