"""The scout at the level of a module: a script that trains a model, or feeds one, there is read as a function
whose loops count."""

from __future__ import annotations

from tree_sitter import Node

from pytest_dispatchguard.lint.facts import SCRIPT, FunctionFact
from pytest_dispatchguard.lint.scout.finish import settle
from pytest_dispatchguard.lint.scout.state import Reading, Walk, visit
from pytest_dispatchguard.lint.syntax.script_text import first_loop


def read_script(walk: Walk, root: Node) -> None:
    """Reads what a module does itself, once the rest of it has been read. Whether it is a script that trains
    or feeds a model can be told only when the file has been read to the end."""
    first = first_loop(root)
    if first is None or not walk.tensors_here:
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
