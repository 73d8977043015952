"""The scout at statements and expressions that steer: branches, loops, contexts, returns, what is
cold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from tree_sitter import Node

from pytest_dispatchguard.lint.facts import ClassFact, FunctionFact
from pytest_dispatchguard.lint.knowledge import cold_branches, error_paths
from pytest_dispatchguard.lint.knowledge.entry_points import over_batches
from pytest_dispatchguard.lint.scout.assignments import bind, bind_loop
from pytest_dispatchguard.lint.scout.calls import call_as
from pytest_dispatchguard.lint.scout.origins import about_defaults, begins, origins_of, with_flags
from pytest_dispatchguard.lint.scout.state import (
    Handler,
    Walk,
    note_call,
    parts_of,
    visit,
    visit_children,
    visit_cold,
)
from pytest_dispatchguard.lint.scout.tensor_guesses import (
    ask_counted,
    ask_iterated,
    ask_looped,
    ask_truth,
)
from pytest_dispatchguard.lint.scout.values import dotted, text

_LEAVING = ("return_statement", "continue_statement", "break_statement")


def _block(walk: Walk, node: Node) -> None:
    table, under = walk.table, walk.under
    children = node.named_children
    if uneven(node, children):
        walk.uneven = True
    for i, child in enumerate(children):
        handler = table[child.kind_id]
        if handler is None:
            continue
        kind = child.type
        if kind == "if_statement":
            walk.done = _set_true(walk, children[i + 1 : i + 4])
        handler(walk, child)
        if walk.early_exit is not None:
            (condition, origins), walk.early_exit = walk.early_exit, None
            rest = children[i + 1 :]
            if cold_branches.rest_is_cold(condition, True, _assigned(walk, rest) | origins):
                visit_cold(walk, rest)
                walk.early_exit = None
                break
        if kind == "if_statement":
            _note_early_end(walk, child)
        elif (kind == "try_statement" and _only_failing_goes_on(walk, child)) or (
            kind == "with_statement" and _swallows(walk, child)
        ):
            visit_cold(walk, children[i + 1 :])
            walk.early_exit = None
            break
    walk.under = under


def _only_failing_goes_on(walk: Walk, node: Node) -> bool:
    """Whether what follows a `try` in its block runs only where that failed: ``try: return CACHE[key]``."""
    parts = parts_of(node)
    handlers = [part for part in parts if part.type == "except_clause"]
    return (
        bool(handlers)
        and len(handlers) == len(parts) - 1
        and _leaves(parts[0])
        and all(
            error_paths.is_rare(text(walk.source, part))
            for handler in handlers
            for part in parts_of(handler)
            if part.type != "block"
        )
    )


def _swallows(walk: Walk, node: Node) -> bool:
    """Whether what follows a `with` in its block runs only where that failed: ``with ignore_oom(): return
    …``."""
    block = node.child_by_field_name("body")
    if block is None or not _leaves(block):
        return False
    clauses = (clause for clause in node.named_children if clause.type == "with_clause")
    items = (item for clause in clauses for item in clause.named_children if item.named_child_count)
    entered = (item.named_children[0] for item in items)
    return any(
        one.type == "call" and error_paths.swallows(dotted(walk.source, one.named_children[0]))
        for one in entered
    )


def _note_early_end(walk: Walk, node: Node) -> None:
    """What follows ``if condition: return`` in its block stands under the opposite."""
    fact = walk.reading.fact
    if fact is None or not fact.params or node.child_by_field_name("alternative") is not None:
        return
    block, condition = (node.child_by_field_name(n) for n in ("consequence", "condition"))
    if condition is not None and last_kind(block) in ("return_statement", "raise_statement"):
        written = text(walk.source, condition)
        if about_defaults(walk, written):
            walk.under = (*walk.under, f"-{written}")


def uneven(node: Node, children: list[Node]) -> bool:
    """Whether a block may not be indented as Python wants it, which tree-sitter does not mind."""
    column = 0 if node.type == "module" else -1
    for i, child in enumerate(children):
        at = child.start_point[1]
        if at == column or child.is_extra:
            continue
        if column >= 0 and (i == 0 or children[i - 1].end_point[0] != child.start_point[0]):
            return True
        if column < 0:
            column = at
    return column < 0


def _assigned(walk: Walk, statements: Iterable[Node]) -> set[str]:
    """The lasting names that statements assign, whatever they find: attributes, and names declared global."""
    found: set[str] = set()
    for statement in statements:
        if statement.type == "expression_statement" and statement.named_child_count:
            found |= _assigned_by(walk, statement.named_children[0])
        elif statement.type == "if_statement":
            found |= _assigned_in_all(walk, statement)
        elif statement.type in _WITH_BLOCKS:
            body = statement.child_by_field_name("body")
            if statement.type not in ("with_statement", "try_statement"):
                body = None  # a loop may have nothing to go through, or leave before its end
            blocks = [body, *(_last_block(one) for one in statement.named_children)]
            for block in blocks:
                found |= _assigned(walk, block.named_children) if block is not None else set()
    return found


_WITH_BLOCKS = frozenset({"with_statement", "try_statement", "for_statement", "while_statement"})


def _last_block(part: Node) -> Node | None:
    """The block of a `finally`, or of the `else` of a loop."""
    parts = part.named_children if part.type in ("finally_clause", "else_clause") else ()
    return next((one for one in parts if one.type == "block"), None)


def _assigned_in_all(walk: Walk, node: Node) -> set[str]:
    """The lasting names that each branch of an `if` assigns; a chain of `elif` has all cases there are."""
    *others, last = [node, *node.children_by_field_name("alternative")]
    if last.type == "if_statement":
        return set()
    blocks = [part.child_by_field_name("consequence") for part in others]
    blocks.append(last.child_by_field_name("body" if last.type == "else_clause" else "consequence"))
    found = [_assigned(walk, block.named_children) for block in blocks if block is not None]
    return set.intersection(*found) if len(found) == len(blocks) else set()


def _assigned_by(walk: Walk, expression: Node) -> set[str]:
    found: set[str] = set()
    value: Node | None = expression
    while value is not None and value.type in ("assignment", "augmented_assignment"):
        left = target = value.child_by_field_name("left")
        while target is not None and target.type == "subscript":
            target = target.named_children[0]
        if target is not None:
            name = dotted(walk.source, target)
            lasting = "." in name or name in walk.reading.globals or walk.where == "module"
            if name and (lasting or left != target):
                found.add(name)
                right = value.child_by_field_name("right")
                if right is not None and right.type == "false":
                    found.add(cold_branches.switched_off(name))
                if name in walk.reading.globals:
                    found.add(f"global {name}")
        value = value.child_by_field_name("right")
    return found


def _leaves(block: Node | None) -> bool:
    """Whether the end of a block is not reached, as far as its last statement tells."""
    if block is None:
        return False
    last = next((child for child in reversed(block.named_children) if not child.is_extra), None)
    if last is None or last.type != "if_statement":
        return last is not None and last.type in _LEAVING
    *others, otherwise = [last, *last.children_by_field_name("alternative")]
    return (
        otherwise.type == "else_clause"
        and _leaves(otherwise.child_by_field_name("body"))
        and all(_leaves(part.child_by_field_name("consequence")) for part in others)
    )


def _set_true(walk: Walk, statements: Iterable[Node]) -> frozenset[str]:
    """The attributes that statements set to True, as is done of what need not be done again."""
    found = set()
    for statement in statements:
        if statement.type == "expression_statement" and statement.named_child_count:
            expression = statement.named_children[0]
            left = expression.child_by_field_name("left")
            right = expression.child_by_field_name("right")
            if left is not None and right is not None and right.type == "true":
                found.add(dotted(walk.source, left))
    return frozenset(name for name in found if "." in name)


def last_of(block: Node | None) -> Node | None:
    """A block's last statement."""
    children = block.named_children if block is not None else ()
    return next((child for child in reversed(children) if not child.is_extra), None)


def last_kind(block: Node | None) -> str:
    """The kind of a block's last statement."""
    last = last_of(block)
    return last.type if last is not None else ""


def _raises(walk: Walk, block: Node | None) -> bool:
    """Whether a block ends in an error, or ends the program."""
    last = last_of(block)
    if last is None or last.type not in ("assert_statement", "expression_statement"):
        return last is not None and last.type == "raise_statement"
    return error_paths.fails(text(walk.source, last))


def _gives_up(walk: Walk, block: Node | None) -> bool:
    """Whether a block logs that something is wrong, and leaves, or does nothing but give what is not a
    number."""
    if block is None:
        return False
    said = [one for one in block.named_children if not one.is_extra]
    if len(said) == 1 and _gives_nan(walk, said[0]):
        return True
    return _leaves(block) and any(map(error_paths.complains, _called(walk, block)))


def _gives_nan(walk: Walk, node: Node) -> bool:
    """Whether an expression, or a statement, gives a tensor that is not a number."""
    may = node.type in ("call", "return_statement", "expression_statement")
    return may and error_paths.gives_nan(text(walk.source, node))


def _called(walk: Walk, block: Node) -> list[str]:
    """The names of what the statements of a block call for nothing but what it does."""
    statements = [s for s in block.named_children if s.type == "expression_statement"]
    calls = [s.named_children[0] for s in statements if s.named_child_count == 1]
    return [dotted(walk.source, c.named_children[0]) for c in calls if c.type == "call"]


def _if(walk: Walk, node: Node) -> None:
    clauses = node.children_by_field_name("alternative")
    leaves = None
    if not clauses:
        block = node.child_by_field_name("consequence")
        condition = node.child_by_field_name("condition")
        if condition is not None and last_kind(block) == "return_statement":
            written = text(walk.source, condition)
            if cold_branches.worth_asking(written):
                leaves = written, origins_of(walk, written)
    _branch(walk, node, clauses, 0)
    walk.early_exit = leaves


def _branch(walk: Walk, node: Node, clauses: list[Node], following: int) -> None:
    """One `if` or `elif` with what comes after it: ``clauses[following:]``."""
    done, walk.done = walk.done, frozenset()
    condition = node.child_by_field_name("condition")
    block = node.child_by_field_name("consequence")
    if condition is None or block is None:
        visit_children(walk, node)
        return
    ask_truth(walk, condition)
    visit(walk, condition)
    asked = text(walk.source, condition)
    written = with_flags(walk, asked)
    after = clauses[following] if following < len(clauses) else None
    orelse = after.child_by_field_name("body") if after and after.type == "else_clause" else None
    orelse_raises = _raises(walk, orelse)
    body_cold = _raises(walk, block) or _gives_up(walk, block)
    else_cold = orelse_raises or _gives_up(walk, orelse)
    if cold_branches.worth_asking(written):
        origins = origins_of(walk, written)
        body_cold, else_cold = cold_branches.cold_branches(
            written,
            orelse_assigns=_assigned(walk, orelse.named_children) | origins if orelse else (),
            body_assigns=_assigned(walk, block.named_children) | done | origins,
            body_raises=body_cold,
            orelse_raises=else_cold,
        )
        body_cold = body_cold or cold_branches.of_the_past(written, _called(walk, block))
        body_cold = body_cold or begins(walk, written, block)
    was_foreign, was_under = walk.foreign, walk.under
    body_foreign, else_foreign = cold_branches.foreign_branches(asked)
    walk.foreign = was_foreign or body_foreign
    of_defaults = about_defaults(walk, asked)
    if of_defaults:
        walk.under = (*was_under, f"+{asked}")
    if body_cold and cold_branches.now_and_then(written):
        _visit_seldom(walk, block)
    elif body_cold:
        visit_cold(walk, [block])
    else:
        _block(walk, block)
    walk.foreign, walk.under = was_foreign, was_under
    if after is None:
        return
    if of_defaults:
        walk.under = (*was_under, f"-{asked}")
    _otherwise(walk, clauses, following, else_cold, else_foreign)
    walk.under = was_under


def _visit_seldom(walk: Walk, block: Node) -> None:
    """Reads what runs in one of several rounds: it is cold, but for loops over all batches."""
    for statement in block.named_children:
        is_loop = statement.type == "for_statement"
        left = statement.child_by_field_name("left") if is_loop else None
        right = statement.child_by_field_name("right") if is_loop else None
        body = statement.child_by_field_name("body") if statement.type == "with_statement" else None
        if (
            left is not None
            and right is not None
            and over_batches(text(walk.source, left), text(walk.source, right))
        ):
            visit(walk, statement)
        elif body is not None:
            visit_cold(walk, [part for part in statement.named_children if part != body])
            _visit_seldom(walk, body)
        else:
            visit_cold(walk, [statement])


def _otherwise(walk: Walk, clauses: list[Node], following: int, cold: bool, foreign: bool) -> None:
    """What runs when a condition does not hold."""
    after, was_foreign = clauses[following], walk.foreign
    if cold:
        walk.foreign = was_foreign or foreign
        visit_cold(walk, clauses[following:])
        walk.foreign = was_foreign
    elif after.type == "elif_clause":
        _branch(walk, after, clauses, following + 1)
    else:
        visit_children(walk, after)


def _for(walk: Walk, node: Node) -> None:
    walk.reading.looks.add("loop")
    left = node.child_by_field_name("left")
    right = node.child_by_field_name("right")
    if left is None or right is None:
        visit_children(walk, node)
        return
    ask_looped(walk, right)
    ask_counted(walk, left, right, right.end_byte, node.end_byte)
    visit(walk, right)
    bind_loop(walk, left, right)
    outer = walk.rounds
    walk.loop += 1
    walk.rounds = (*outer, node.start_byte)
    for part in node.named_children:
        if part.type == "block":
            _block(walk, part)
    walk.loop -= 1
    walk.rounds = outer
    for clause in node.children_by_field_name("alternative"):
        visit_children(walk, clause)


def _while(walk: Walk, node: Node) -> None:
    walk.reading.looks.add("loop")
    condition = node.child_by_field_name("condition")
    body = node.child_by_field_name("body")
    outer = walk.rounds
    walk.loop += 1
    walk.rounds = (*outer, node.start_byte)
    if condition is not None:
        ask_truth(walk, condition)
        visit(walk, condition)
    if body is not None:
        _block(walk, body)
    walk.loop -= 1
    walk.rounds = outer
    for clause in node.children_by_field_name("alternative"):
        visit_children(walk, clause)


def _comprehension(walk: Walk, node: Node) -> None:
    parts = parts_of(node)
    opened = 0
    for clause in parts[1:]:
        if clause.type == "for_in_clause":
            left = clause.child_by_field_name("left")
            right = clause.child_by_field_name("right")
            if left is None or right is None:
                continue
            ask_looped(walk, right)
            ask_counted(walk, left, right, parts[0].start_byte, parts[0].end_byte)
            visit(walk, right)
            if walk.where == "function":
                bind_loop(walk, left, right)
            walk.loop += 1
            opened += 1
        else:
            for condition in clause.named_children:
                ask_truth(walk, condition)
                visit(walk, condition)
    if parts:
        visit(walk, parts[0])
    walk.loop -= opened


def _with(walk: Walk, node: Node) -> None:
    walk.reading.looks.add("with")
    visit_children(walk, node)


def _with_item(walk: Walk, node: Node) -> None:
    for value in node.named_children:
        target = None
        if value.type == "as_pattern":
            parts = value.named_children
            value, target = parts[0], parts[-1]
        if value.type == "call":
            call_as(walk, value, "new-scope")
        else:
            visit(walk, value)
        if target is not None and walk.where == "function":
            bind(walk, target, True)


def _try(walk: Walk, node: Node) -> None:
    facts = walk.facts
    functions, classes = len(facts.functions), len(facts.classes)
    for part in node.named_children:
        if part.type not in ("except_clause", "except_group_clause"):
            visit(walk, part)
            continue
        known = {f.name for f in facts.functions[functions:]}
        known |= {c.name for c in facts.classes[classes:]}
        before = len(facts.functions), len(facts.classes)
        visit_cold(walk, [part])
        if known:
            # What stands in for a definition of the same name, where a package is missing, is another thing.
            _drop_twins(facts.functions, before[0], known)
            _drop_twins(facts.classes, before[1], known)


_Definition = TypeVar("_Definition", FunctionFact, ClassFact)


def _drop_twins(definitions: list[_Definition], start: int, known: set[str]) -> None:
    """Takes out, from `start` on, what is known by its name, and what stands inside of that."""
    definitions[start:] = [
        d
        for d in definitions[start:]
        if not any(d.name == name or d.name.startswith(f"{name}.") for name in known)
    ]


def _raise(walk: Walk, node: Node) -> None:
    visit_cold(walk, node.named_children)


def _assert(walk: Walk, node: Node) -> None:
    parts = parts_of(node)
    if parts:
        ask_truth(walk, parts[0])
        visit(walk, parts[0])
        visit_cold(walk, parts[1:])


def _return(walk: Walk, node: Node) -> None:
    parts = parts_of(node)
    value = parts[0] if parts else None
    note_return(walk, value)
    if value is not None:
        visit(walk, value)


def note_return(walk: Walk, value: Node | None) -> None:
    """Notes what a function returns, and the names it hands out so."""
    walk.reading.returns.append(value)
    if value is not None:
        for name in _returned_names(walk, value):
            note_call(walk, name, "returned", value)


def _returned_names(walk: Walk, value: Node) -> list[str]:
    """The names a return statement hands out, by themselves or wrapped: ``return
    wraps(fn)(wrapper)``."""
    if value.type == "identifier":
        return [text(walk.source, value)]
    if value.type == "conditional_expression":
        parts = parts_of(value)
        return [name for part in (parts[0], parts[-1]) for name in _returned_names(walk, part)]
    if value.type in ("expression_list", "tuple"):
        return [text(walk.source, p) for p in value.named_children if p.type == "identifier"]
    if value.type == "call":
        arguments = value.named_children[-1]
        return [text(walk.source, a) for a in arguments.named_children if a.type == "identifier"]
    return []


def _conditional(walk: Walk, node: Node) -> None:
    parts = parts_of(node)
    if len(parts) != 3:
        visit_children(walk, node)
        return
    body, condition, orelse = parts
    ask_truth(walk, condition)
    visit(walk, condition)
    written = text(walk.source, condition)
    body_cold, else_cold = cold_branches.cold_branches(written)
    for part, cold in ((body, body_cold), (orelse, else_cold)):
        if cold or _gives_nan(walk, part):
            visit_cold(walk, [part])
        else:
            visit(walk, part)


def _boolean(walk: Walk, node: Node) -> None:
    for operand in node.named_children:
        ask_truth(walk, operand)
        visit(walk, operand)


def _comparison(walk: Walk, node: Node) -> None:
    walk.reading.looks.add("comparison")
    visit_children(walk, node)


def _string(walk: Walk, node: Node) -> None:
    if node.named_child_count <= 3 and all(c.type != "interpolation" for c in node.named_children):
        return
    for child in node.named_children:
        if child.type == "interpolation":
            walk.reading.looks.add("fstring")
            visit_children(walk, child)


def _keyword(walk: Walk, node: Node) -> None:
    visit(walk, node.named_children[-1])


def _splat(walk: Walk, node: Node) -> None:
    if node.named_child_count:
        ask_iterated(walk, node.named_children[-1])
    visit_children(walk, node)


def _yield(walk: Walk, node: Node) -> None:
    walk.reading.yields = True
    visit_children(walk, node)


def note_globals(walk: Walk, node: Node) -> None:
    """Notes the names that a function declares global."""
    walk.reading.globals.update(text(walk.source, name) for name in node.named_children)


HANDLERS: dict[str, Handler] = {
    "assert_statement": _assert,
    "block": _block,
    "boolean_operator": _boolean,
    "comparison_operator": _comparison,
    "conditional_expression": _conditional,
    "dictionary_comprehension": _comprehension,
    "for_statement": _for,
    "generator_expression": _comprehension,
    "global_statement": note_globals,
    "if_statement": _if,
    "keyword_argument": _keyword,
    "list_comprehension": _comprehension,
    "list_splat": _splat,
    "module": _block,
    "not_operator": _boolean,
    "raise_statement": _raise,
    "return_statement": _return,
    "set_comprehension": _comprehension,
    "string": _string,
    "try_statement": _try,
    "while_statement": _while,
    "with_item": _with_item,
    "with_statement": _with,
    "yield": _yield,
}
