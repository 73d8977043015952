"""The scout at assignments: what names and attributes are bound to."""

from __future__ import annotations

from tree_sitter import Node

from pytest_dispatchguard.lint.facts import SET_ANEW, ClassFact, Value, default_of
from pytest_dispatchguard.lint.scout.calls import may_be_list, note_patch
from pytest_dispatchguard.lint.scout.state import (
    Handler,
    Walk,
    add_values,
    is_self_attribute,
    local_values,
    visit,
    visit_children,
)
from pytest_dispatchguard.lint.scout.tensor_guesses import ask_index, ask_iterated
from pytest_dispatchguard.lint.scout.values import (
    annotation,
    dotted,
    resolved,
    table_read,
    text,
    values,
)


def bind(walk: Walk, target: Node, value: Node | bool, whole: Node | None = None) -> None:
    """Binds the names of a target: of a pattern, each to an unknown value, which is a part of the `whole`."""
    kind = target.type
    if kind == "identifier":
        name = text(walk.source, target)
        walk.reading.bindings.setdefault(name, []).append(value)
        if value is True and whole is not None:
            walk.reading.taken.setdefault(name, []).append(whole)
    elif kind in ("pattern_list", "tuple_pattern", "list_pattern", "tuple", "list"):
        inner = _part_value(walk, value)
        whole = whole if isinstance(value, bool) else value
        for part in target.named_children:
            bind(walk, part, inner, whole)
    elif kind in (
        "list_splat_pattern",
        "list_splat",
        "as_pattern_target",
        "parenthesized_expression",
    ):
        for part in target.named_children:
            bind(walk, part, isinstance(value, bool) and value, whole)


def _part_value(walk: Walk, value: Node | bool) -> bool:
    """Whether the parts of an unpacked value may be tensors."""
    if isinstance(value, bool):
        return value
    if value.type == "attribute":
        return not text(walk.source, value).endswith(
            (".shape", "_shape", ".stride", ".kernel_size")
        )
    if value.type == "call":
        return not text(walk.source, value).endswith((".size()", ".stride()"))
    return True


def bind_loop(walk: Walk, left: Node, right: Node) -> None:
    """Binds the targets of a loop; what `range` and `enumerate` count is no tensor."""
    if walk.where != "function":
        return
    callee, given = "", [right]
    if right.type == "call" and right.named_children[-1].type == "argument_list":
        callee, given = (
            text(walk.source, right.named_children[0]),
            right.named_children[-1].named_children,
        )
    parts = left.named_children if left.type in ("pattern_list", "tuple_pattern") else []
    if callee == "range":
        bind(walk, left, False)
    elif callee == "enumerate" and parts:
        bind(walk, parts[0], False)
        for part in parts[1:]:
            bind(walk, part, True, given[0] if given else right)
    elif callee == "zip" and len(parts) == len(given):
        for part, whole in zip(parts, given, strict=True):
            bind(walk, part, True, whole)
    else:
        bind(walk, left, True, right)


def _assign_target(walk: Walk, target: Node, value: Node | None, declared: Node | None) -> None:
    reading = walk.reading
    kind = target.type
    if kind == "identifier":
        if walk.where == "function":
            bind(walk, target, value if value is not None else True)
            name = text(walk.source, target)
            if declared is not None:
                reading.declared.add(name)
            if name in reading.globals:
                add_values(
                    walk.facts.assigns,
                    name,
                    local_values(walk, value) if value is not None else ["unknown"],
                )
            return
        table = (
            walk.facts.assigns
            if walk.where == "module" or walk.class_ is None
            else walk.class_.attrs
        )
        add_values(table, text(walk.source, target), _declared_values(walk, value, declared))
    elif kind == "attribute":
        parts = target.named_children
        if parts[0].type == "identifier" and text(walk.source, parts[0]) == reading.self_name:
            reading.looks.add("self-write")
            if reading.owner is not None:
                found = _declared_values(walk, value, declared)
                if value is not None:
                    found += _held_methods(walk, value)
                _assign_attribute(reading.owner, text(walk.source, parts[-1]), found)
        else:
            visit(walk, parts[0])
            if value is not None:
                note_patch(walk, target, value)
    elif kind == "subscript":
        ask_index(walk, target, "setitem")
        indices = target.named_children[1:]
        if any(
            index.type in ("integer", "unary_operator")
            or (walk.loop and index.type == "identifier")
            for index in indices
        ):
            reading.looks.add("element")
        if any(may_be_list(walk, index) for index in indices):
            reading.looks.add("list-index")
        visit_children(walk, target)
    elif kind in ("pattern_list", "tuple_pattern", "list_pattern"):
        if value is not None and value.type in ("identifier", "call", "subscript"):
            ask_iterated(walk, value)
        if walk.where == "function":
            bind(walk, target, value if value is not None else True)
        for part in target.named_children:
            if part.type in ("attribute", "subscript") or (
                part.type == "identifier" and walk.where != "function"
            ):
                _assign_target(walk, part, None, None)


def _assign_attribute(owner: ClassFact, name: str, found: list[Value]) -> None:
    """Notes what an attribute is given. One that is given something in several places keeps no option."""
    known = owner.attrs.get(name)
    if known is not None and default_of((*known, *found)):
        found.append(SET_ANEW)
    add_values(owner.attrs, name, found)


def _declared_values(walk: Walk, value: Node | None, declared: Node | None) -> list[Value]:
    found: list[Value] = []
    if declared is not None:
        found.append(annotation(walk.source, declared, walk.imports))
    if value is not None:
        if walk.where == "function":
            new = local_values(walk, value)
        else:
            new = values(walk.source, value, walk.imports)
        if declared is None or new != ["unknown"]:
            found.extend(new)
    elif declared is None:
        found.append("unknown")
    return found


def _held_methods(walk: Walk, value: Node) -> list[Value]:
    """What else of its object an attribute holds: a method perhaps, or one of a table of methods."""
    if value.type == "call" and len(value.named_children[-1].named_children) == 2:
        callee = resolved(dotted(walk.source, value.named_children[0]), walk.imports)
        if callee == "types.MethodType":
            value = value.named_children[-1].named_children[0]
    owner, _, name = dotted(walk.source, table_read(walk.source, value) or value).partition(".")
    is_own = owner == walk.reading.self_name and name and "." not in name
    return [f"item:self.{name}"] if is_own else []


def _assignment(walk: Walk, node: Node) -> None:
    walk.reading.looks.add("assign")
    left = node.child_by_field_name("left")
    right = node.child_by_field_name("right")
    declared = node.child_by_field_name("type")
    innermost = right
    while innermost is not None and innermost.type == "assignment":
        innermost = innermost.child_by_field_name("right")
    if right is not None:
        if right.type == "dictionary" and right.named_child_count > 1:
            walk.reading.looks.add("table")
        visit(walk, right)
    if left is not None:
        _assign_target(walk, left, innermost, declared)


def _augmented(walk: Walk, node: Node) -> None:
    walk.reading.looks.add("assign")
    left = node.child_by_field_name("left")
    right = node.child_by_field_name("right")
    if right is not None:
        visit(walk, right)
    if left is None:
        return
    if left.type == "identifier":
        if walk.where == "function":
            bind(walk, left, right if right is not None else True)
    elif left.type == "attribute":
        if is_self_attribute(walk, left):
            walk.reading.looks.add("self-write")
        visit(walk, left)
    elif left.type == "subscript":
        ask_index(walk, left, "setitem")
        visit(walk, left)


def _named_expression(walk: Walk, node: Node) -> None:
    parts = node.named_children
    visit(walk, parts[-1])
    if walk.where == "function":
        bind(walk, parts[0], parts[-1])


HANDLERS: dict[str, Handler] = {
    "assignment": _assignment,
    "augmented_assignment": _augmented,
    "named_expression": _named_expression,
}
