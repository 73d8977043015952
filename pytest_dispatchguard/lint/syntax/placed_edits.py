"""Edits that go elsewhere in a file than the code they are made for: imports, and definitions at module
level. Where that is takes the whole text, which judging one function does not see."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from pytest_dispatchguard.lint.syntax.chunks import module_imports
from pytest_dispatchguard.lint.syntax.import_position import import_place
from pytest_dispatchguard.model.findings import (
    ATTRIBUTES,
    DEFINITIONS,
    IMPORTS,
    Edit,
    Finding,
    Span,
)

_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def placed(findings: list[Finding], text: str) -> list[Finding]:
    """The findings of a file, with such edits where they belong. What is there already is not added again; a
    fix goes where a name that it needs stands for something else, or for nothing yet."""
    imported = module_imports(text)
    tree = ast.parse(text)
    return [_placed(finding, text, tree, imported) for finding in findings]


def _placed(finding: Finding, text: str, tree: ast.Module, imported: Mapping[str, str]) -> Finding:
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
                line, lines = import_place(text, edit.replacement.rstrip("\n"))
                edits.append(Edit(edit.path, Span(line, 1, line, 1), lines))
        elif edit.span == DEFINITIONS:
            found = definition_place(text, tree, edit.replacement, new)
            if found is None:
                return replace(finding, fix=None)
            line, lines = found
            if lines:
                edits.append(Edit(edit.path, Span(line, 1, line, 1), lines))
        elif edit.span == ATTRIBUTES:
            if not always_sets(tree, edit.replacement.strip()):
                return replace(finding, fix=None)
        else:
            edits.append(edit)
    return replace(finding, fix=replace(finding.fix, edits=tuple(edits)))


def definition_place(
    text: str, tree: ast.Module, definition: str, imported: Iterable[str] = ()
) -> tuple[int, str] | None:
    """The line before which a definition is to stand, and the lines to put there: none where the file has it.
    None where its name is in use, or something that it needs is not there by then."""
    (wanted,) = ast.parse(definition).body
    source = ast.unparse(wanted)
    if any(ast.unparse(one) == source for one in tree.body if type(one) is type(wanted)):
        return 1, ""
    (name,) = _bound_by([wanted])
    first = next((i for i, one in enumerate(tree.body) if isinstance(one, _DEFINES)), None)
    if first is None or name in set(_names(tree)):
        return None
    there = {*_bound_by(tree.body[:first]), *imported, *dir(builtins)}
    lazy = any(isinstance(o, ast.ImportFrom) and o.module == "__future__" for o in tree.body)
    if not there.issuperset(_needed(wanted, lazy)):
        return None
    node = tree.body[first]
    assert isinstance(node, _DEFINES)
    line = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    lines = text.splitlines()
    while line > 1 and lines[line - 2].startswith("#"):
        line -= 1
    return line, f"{definition.rstrip()}\n\n\n"


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
