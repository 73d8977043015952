"""Edits that go elsewhere in a file than the code they are made for: imports, and definitions at module
level. Where that is takes the whole text, which judging one function does not see."""

from __future__ import annotations

import ast
import builtins
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from pytest_dispatchguard.lint.syntax.import_position import import_place
from pytest_dispatchguard.lint.syntax.python_ast import parsed
from pytest_dispatchguard.model.findings import (
    ATTRIBUTES,
    DEFINITIONS,
    IMPORTS,
    Edit,
    Finding,
    Span,
)

_WORD = re.compile(r"\w+")
_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def placed(findings: list[Finding], text: str) -> list[Finding]:
    """The findings of a file, with such edits where they belong. What is there already is not added again; a
    fix goes where a name that it needs stands for something else, or for nothing yet."""
    try:
        file = File(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Code that Python does not read, though libcst does: where anything goes there, nobody knows.
        return [_kept_in_place(finding) for finding in findings]
    imported = module_imports(file.tree)
    return [_placed(finding, file, imported) for finding in findings]


class File:
    """The text of a file, and what every definition that is put there asks of it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = parsed(text)
        self.first = next(
            (i for i, n in enumerate(self.tree.body) if isinstance(n, _DEFINES)), None
        )
        """The first definition at module level."""

    def has_name(self, name: str) -> bool:
        """Whether a name is used or bound anywhere."""
        return (name in self._words or not name.isascii()) and name in self._names

    @cached_property
    def _words(self) -> frozenset[str]:
        """What may be a name in ASCII letters: to look through the tree takes far longer. Python normalizes
        names in other letters, some of which then are ASCII."""
        text = self.text if self.text.isascii() else unicodedata.normalize("NFKC", self.text)
        return frozenset(_WORD.findall(text))

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(_names(self.tree))

    @cached_property
    def there(self) -> frozenset[str]:
        """What is bound before the first definition."""
        return frozenset(_bound_by(self.tree.body[: self.first]))

    @cached_property
    def lines(self) -> list[str]:
        """The lines."""
        return self.text.splitlines()

    @cached_property
    def is_lazy(self) -> bool:
        """Whether annotations are not evaluated."""
        imports = (one for one in self.tree.body if isinstance(one, ast.ImportFrom))
        return any(one.module == "__future__" for one in imports)

    def has(self, wanted: ast.stmt) -> bool:
        """Whether it has a statement at module level already."""
        names, source = _bound_by([wanted]), ast.unparse(wanted)
        same = (one for one in self.tree.body if type(one) is type(wanted))
        return any(_bound_by([one]) == names and ast.unparse(one) == source for one in same)


def _kept_in_place(finding: Finding) -> Finding:
    """A finding without its fix, where part of that goes elsewhere."""
    fix = finding.fix
    if fix is None or all(edit.span.line for edit in fix.edits):
        return finding
    return replace(finding, fix=None)


def _placed(finding: Finding, file: File, imported: Mapping[str, str]) -> Finding:
    if finding.fix is None:
        return finding
    edits: list[Edit] = []
    new: dict[str, str] = {}
    """What the fix imports."""
    for edit in sorted(finding.fix.edits, key=lambda e: e.span == DEFINITIONS):
        if edit.span == IMPORTS:
            ((local, target),) = module_imports(edit.replacement).items()
            if imported.get(local, target) != target:
                return replace(finding, fix=None)
            new[local] = target
            if local not in imported:
                line, lines = import_place(file.text, edit.replacement.rstrip("\n"))
                edits.append(Edit(edit.path, Span(line, 1, line, 1), lines))
        elif edit.span == DEFINITIONS:
            found = definition_place(file, edit.replacement, new)
            if found is None:
                return replace(finding, fix=None)
            line, lines = found
            if lines:
                edits.append(Edit(edit.path, Span(line, 1, line, 1), lines))
        elif edit.span == ATTRIBUTES:
            if not always_sets(file.tree, edit.replacement.strip()):
                return replace(finding, fix=None)
        else:
            edits.append(edit)
    return replace(finding, fix=replace(finding.fix, edits=tuple(edits)))


def definition_place(
    file: File, definition: str, imported: Iterable[str] = ()
) -> tuple[int, str] | None:
    """The line before which a definition is to stand, and the lines to put there: none where the file has it.
    None where its name is in use, or something that it needs is not there by then."""
    (wanted,) = ast.parse(definition).body
    if file.has(wanted):
        return 1, ""
    (name,) = _bound_by([wanted])
    if file.first is None or file.has_name(name):
        return None
    there = {*file.there, *imported, *dir(builtins)}
    if not there.issuperset(_needed(wanted, file.is_lazy)):
        return None
    node = file.tree.body[file.first]
    assert isinstance(node, _DEFINES)
    line = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    while line > 1 and file.lines[line - 2].startswith("#"):
        line -= 1
    return line, f"{definition.rstrip()}\n\n\n"


def module_imports(code: str | ast.Module) -> dict[str, str]:
    """Names that imports outside functions bind when the file is imported, to what they stand for:
    ``{"np": "numpy"}``. Imports inside functions are no help to other functions."""
    found: dict[str, str] = {}
    stack: list[ast.AST] = [ast.parse(code) if isinstance(code, str) else code]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                found[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                found[alias.asname or alias.name] = f"{module}.{alias.name}"
        elif isinstance(node, (ast.Module, ast.If, ast.Try, ast.With)):
            stack.extend(ast.iter_child_nodes(node))
    return found


def always_sets(tree: ast.Module, attribute: str) -> bool:
    """Whether a class of the file always gives itself an attribute in `__init__`, under no condition."""
    *path, last = attribute.split(".")
    body: list[ast.stmt] = tree.body
    for name in (*path, "__init__"):
        found = next((n for n in body if isinstance(n, _DEFINES) and n.name == name), None)
        if found is None:
            return False
        body = found.body
    return any(
        isinstance(target, ast.Attribute) and target.attr == last
        for statement in body
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None
        for target in (
            statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        )
    )


def _bound_by(statements: Iterable[ast.stmt]) -> set[str]:
    """The names that statements at module level bind."""
    found: set[str] = set()
    stack: list[ast.AST] = list(statements)
    while stack:
        node = stack.pop()
        if isinstance(node, _DEFINES):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update(a.asname or a.name.partition(".")[0] for a in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif not isinstance(node, ast.Lambda):
            stack.extend(ast.iter_child_nodes(node))
    return found


def _names(tree: ast.AST) -> Iterator[str]:
    """Every name that the file uses or binds, anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, _DEFINES):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]


def _needed(statement: ast.stmt, lazy: bool) -> set[str]:
    """The names that have to be there when a definition runs: of a function, those of its head, without its
    annotations where these are `lazy`; of a class, all but its own."""
    found: list[ast.AST] = [statement]
    if isinstance(statement, ast.FunctionDef):
        arguments = statement.args
        found = [*statement.decorator_list, *arguments.defaults]
        found += [one for one in arguments.kw_defaults if one is not None]
        if not lazy:
            hints = [arg.annotation for arg in ast.walk(arguments) if isinstance(arg, ast.arg)]
            found += [hint for hint in (*hints, statement.returns) if hint is not None]
    own = _bound_by(statement.body) if isinstance(statement, ast.ClassDef) else set()
    return {
        node.id
        for one in found
        for node in ast.walk(one)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    } - own
