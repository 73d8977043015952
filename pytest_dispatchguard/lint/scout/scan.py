"""The scout: turns source text into facts with tree-sitter, without importing or running anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tree_sitter import Node

from pytest_dispatchguard.lint.facts import SCRIPT, FileFacts, FunctionFact
from pytest_dispatchguard.lint.scout import (
    assignments,
    calls,
    cold_functions,
    definitions,
    imports,
    statements,
)
from pytest_dispatchguard.lint.scout.finish import finish, settle
from pytest_dispatchguard.lint.scout.state import (
    Handler,
    Reading,
    Tables,
    Walk,
    visit,
    visit_children,
)
from pytest_dispatchguard.lint.syntax.grammar import LANGUAGE, tree_of
from pytest_dispatchguard.lint.syntax.python_ast import parsed, with_newlines
from pytest_dispatchguard.lint.syntax.recursion import with_more_frames
from pytest_dispatchguard.lint.syntax.script_text import LEFT_OUT, first_loop

_FOREIGN = re.compile(
    r"(?:import|from)[ \t]+(?:tensorflow|jax|flax|openvino|mlx|paddle|mindspore|mxnet|cntk)\b"
)
_MARK = re.compile(r"#\s*dispatchguard:\s*(hot|cold)\b")

_HANDLERS: dict[str, Handler] = {
    **assignments.HANDLERS,
    **calls.HANDLERS,
    **definitions.HANDLERS,
    **imports.HANDLERS,
    **statements.HANDLERS,
}
_SKIPPED = frozenset(
    """identifier ellipsis integer float true false none comment line_continuation string_start
    string_end escape_sequence string_content type_conversion type future_import_statement
    pass_statement break_statement continue_statement nonlocal_statement type_alias_statement
    type_parameter dotted_name import_prefix parameters lambda_parameters""".split()
)
_UNREADABLE: Final = 0xFFFF
"""The kind number that tree-sitter gives to errors."""


def _tables() -> Tables:
    hot: list[Handler | None] = []
    cold: list[Handler | None] = []
    script: list[Handler | None] = []
    for kind in range(LANGUAGE.node_kind_count):
        name = LANGUAGE.node_kind_for_id(kind) or ""
        named = LANGUAGE.node_kind_is_named(kind)
        hot.append(_HANDLERS.get(name, visit_children) if named and name not in _SKIPPED else None)
        cold.append(cold_functions.HANDLERS.get(name) if named else None)
        script.append(None if name in LEFT_OUT else hot[-1])
    for table in (hot, cold, script):
        table += [None] * (_UNREADABLE + 1 - len(table))
    hot[_UNREADABLE] = script[_UNREADABLE] = visit_children
    return Tables(hot, cold, script)


_TABLES: Final = _tables()


def scan(
    text: str, module: str, is_package: bool, cold: Callable[[str], bool] | None = None
) -> FileFacts:
    """The facts of one file. `module` is its dotted name and `is_package` whether it is an `__init__.py`,
    both to resolve relative imports. Calls in functions whose names are `cold` are left out."""
    text = with_newlines(text)
    source = text.encode("utf-8", "surrogatepass")
    root = tree_of(source).root_node
    error = _error(text, source, root)
    if error is not None:
        return FileFacts(error=error)
    try:
        return with_more_frames(lambda: _facts(text, source, module, is_package, root, cold))
    except RecursionError:
        return FileFacts(error=(1, 1, "nested too deeply to be read"))


def _facts(
    text: str,
    source: bytes,
    module: str,
    is_package: bool,
    root: Node,
    cold: Callable[[str], bool] | None,
) -> FileFacts:
    if cold is not None and _foreign(text, root):
        cold = _always
    walk = Walk(source, module, is_package, _marks(text), _TABLES, cold or _never)
    visit(walk, root)
    error = _parse(text) if walk.uneven else None
    if error is not None:
        return FileFacts(error=error)
    _read_script(walk, root)
    facts = finish(walk)
    if root.has_error:
        facts.functions = list(_well_read(facts.functions, source))
    return facts


def _read_script(walk: Walk, root: Node) -> None:
    """Reads what a module does itself as a function whose loops count, once the rest of it has been read.
    Whether it is a script that trains or feeds a model can be told only when the file has been read to the
    end."""
    first = first_loop(root) if walk.tensors_here else None
    if first is None:
        return
    fact = FunctionFact(
        name=SCRIPT,
        line=first.start_point[0] + 1,
        end_line=root.end_point[0] + 1,
        start_byte=0,
        end_byte=len(walk.source),
    )
    outer, reading = walk.reading, Reading(fact, None, "")
    kept = (walk.where, walk.table, walk.early_exit, walk.done)
    walk.reading, walk.where, walk.table = reading, "function", walk.tables.script
    walk.facts.functions.append(fact)
    walk.readings.append(reading)
    visit(walk, root)
    walk.reading = outer
    walk.where, walk.table, walk.early_exit, walk.done = kept
    settle(walk, reading, False)


def _well_read(functions: Iterable[FunctionFact], source: bytes) -> Iterator[FunctionFact]:
    """The functions that start and end where Python says, in a text with syntax unknown to tree-sitter."""
    from pytest_dispatchguard.lint.syntax.unsupported import read_whole

    ends = read_whole(source)
    for function in functions:
        end = ends.get((function.name, function.line))
        if end is not None and end <= function.end_byte:
            rest = source[end : function.end_byte].splitlines()
            if not any(line.strip() and not line.lstrip().startswith(b"#") for line in rest):
                yield function


def _always(name: str) -> bool:
    return True


def _never(name: str) -> bool:
    return False


def _foreign(text: str, root: Node) -> bool:
    """Whether a file is for another framework: it imports one at the top level, and does not mention
    torch."""
    return "torch" not in text and any(
        node.type in ("import_statement", "import_from_statement")
        and _FOREIGN.match((node.text or b"").decode("utf-8", "replace"))
        for node in root.named_children
    )


def _marks(text: str) -> dict[int, str]:
    """Line number to mark. A comment on a line of its own, which marks the definition below it, has its
    negative line number."""
    if "dispatchguard:" not in text:
        return {}
    marks: dict[int, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        found = _MARK.search(line)
        if found:
            if line.lstrip().startswith("#"):
                marks[-number] = found.group(1)
            else:
                marks[number] = found.group(1)
    return marks


def _error(text: str, source: bytes, root: Node) -> tuple[int, int, str] | None:
    """The line, column and message of a syntax error; None if tree-sitter or Python can parse the text."""
    nul = text.find("\0")
    if nul >= 0:
        line = text.count("\n", 0, nul) + 1
        return line, nul - text.rfind("\n", 0, nul), "source code contains a NUL byte"
    if not (root.has_error or _old_statement(source, root)):
        return None
    return _parse(text)


def _parse(text: str) -> tuple[int, int, str] | None:
    """The same from Python's own parser."""
    try:
        parsed(text)
    except SyntaxError as exc:
        return exc.lineno or 1, max(exc.offset or 1, 1), exc.msg or "invalid syntax"
    except (RecursionError, MemoryError):
        return 1, 1, "nested too deeply to be read"
    except ValueError as exc:
        return 1, 1, str(exc)
    return None


def _old_statement(source: bytes, root: Node) -> bool:
    """Whether there is a Python 2 print or exec statement, which tree-sitter accepts."""
    if b"print " not in source and b"exec " not in source and b"print\t" not in source:
        return False
    stack = [root]
    while stack:
        node = stack.pop()
        for child in node.named_children:
            kind = child.type
            if kind in ("print_statement", "exec_statement"):
                return True
            if kind.endswith(("_statement", "_clause", "_definition")) or kind == "block":
                stack.append(child)
    return False
