"""The scout's dispatch: which handler reads which kind of node."""

from __future__ import annotations

from typing import Final

from pytest_dispatchguard.lint.scout import (
    assignments,
    calls,
    cold_functions,
    definitions,
    imports,
    statements,
)
from pytest_dispatchguard.lint.scout.state import Handler, Tables, visit_children
from pytest_dispatchguard.lint.syntax.grammar import LANGUAGE

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
"""The number that tree-sitter gives to what its grammar has no rule for."""


def _tables() -> Tables:
    hot: list[Handler | None] = []
    cold: list[Handler | None] = []
    for kind in range(LANGUAGE.node_kind_count):
        name = LANGUAGE.node_kind_for_id(kind) or ""
        named = LANGUAGE.node_kind_is_named(kind)
        hot.append(_HANDLERS.get(name, visit_children) if named and name not in _SKIPPED else None)
        cold.append(cold_functions.HANDLERS.get(name) if named else None)
    for table in (hot, cold):
        table += [None] * (_UNREADABLE + 1 - len(table))
    hot[_UNREADABLE] = visit_children
    return Tables(hot, cold)


TABLES: Final = _tables()
