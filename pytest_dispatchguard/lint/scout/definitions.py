"""The scout at functions, lambdas and classes."""

from __future__ import annotations

import re

from tree_sitter import Node

from pytest_dispatchguard.lint.facts import (
    ONE,
    SOMETHING,
    ClassFact,
    FunctionFact,
    Value,
)
from pytest_dispatchguard.lint.scout.finish import settle
from pytest_dispatchguard.lint.scout.state import (
    Handler,
    Reading,
    Walk,
    note_call,
    parts_of,
    visit,
)
from pytest_dispatchguard.lint.scout.tensor_api import document
from pytest_dispatchguard.lint.scout.tensor_guesses import is_long
from pytest_dispatchguard.lint.scout.values import (
    PLAIN_KINDS,
    annotation,
    annotation_text,
    default_word,
    dotted,
    plain_literal,
    text,
    values,
)

_HOST_ANNOTATIONS = frozenset({"int", "float", "bool", "str", "bytes"})
_TENSOR_ANNOTATIONS = frozenset({"Tensor", "torch.Tensor"})


def _decorated(walk: Walk, node: Node) -> None:
    names: list[str] = []
    definition: Node | None = None
    for part in node.named_children:
        if part.type == "decorator":
            expression = parts_of(part)[0]
            called = expression.named_children[0] if expression.type == "call" else expression
            name = dotted(walk.source, called)
            names.append(name or "?")
            if name and walk.where == "function":
                note_call(walk, name, "decorated", part)
                walk.reading.looks.add(f"call:{name.rpartition('.')[2]}")
            if expression.type == "call":
                for argument in expression.named_children[1:]:
                    visit(walk, argument)
        elif part.type in ("function_definition", "class_definition"):
            definition = part
    if definition is None:
        return
    if definition.type == "class_definition":
        _class_as(walk, definition, names, node)
    else:
        _function_as(walk, definition, names, node)


def _function(walk: Walk, node: Node) -> None:
    _function_as(walk, node, [], node)


def _class(walk: Walk, node: Node) -> None:
    _class_as(walk, node, [], node)


def _mark(walk: Walk, whole: Node, definition: Node) -> str:
    if not walk.marks:
        return ""
    start = whole.start_point[0]
    body = definition.child_by_field_name("body")
    end = body.start_point[0] if body is not None else definition.start_point[0] + 1
    # The line above counts only where it holds nothing but the comment (a negative key).
    above = walk.marks.get(-start)
    for line in range(start, max(end, definition.start_point[0] + 1)):
        if line + 1 in walk.marks:
            return walk.marks[line + 1]
    return above or ""


def _parameter(walk: Walk, reading: Reading, node: Node) -> None:
    fact = reading.fact
    assert fact is not None
    kind = node.type
    declared: Node | None = None
    default: Node | None = None
    named = node
    if kind in ("typed_parameter", "default_parameter", "typed_default_parameter"):
        named = node.named_children[0]
        declared = node.child_by_field_name("type")
        default = node.child_by_field_name("value")
    written = text(walk.source, named)
    if named.type not in ("identifier", "list_splat_pattern", "dictionary_splat_pattern"):
        return
    fact.params.append(written)
    name = written.lstrip("* ")
    reading.params.add(name)
    if written.startswith("*"):
        reading.hosts.add(name)
        return
    found: list[Value] = []
    shown = ""
    if declared is not None:
        shown = annotation_text(text(walk.source, declared), walk.imports)
        found.append(f"ann:{shown}")
        if shown in _HOST_ANNOTATIONS:
            reading.hosts.add(name)
        elif shown in _TENSOR_ANNOTATIONS and default is None:
            fact.defaults[name] = SOMETHING
    if default is not None:
        plain = default.type in PLAIN_KINDS and plain_literal(walk.source, default)
        if plain:
            fact.defaults[name] = plain
        literal = values(walk.source, default, walk.imports)
        if literal[0] in ("int", "float", "bool", "str"):
            if "Tensor" not in shown:
                reading.hosts.add(name)
            if declared is None:
                found.extend(literal)
        elif literal == ["none"]:
            found.extend(["none"] if declared is not None else ["none", "unknown"])
        else:
            found.append("unknown")
        if plain == "1":
            found.append(ONE)
        elif fact.name.endswith("__init__"):
            found.extend(default_word(walk.source, default))
    reading.param_values[name] = found or ["unknown"]


def _function_as(walk: Walk, node: Node, decorators: list[str], whole: Node) -> None:
    name_node = node.child_by_field_name("name")
    body = node.child_by_field_name("body")
    if name_node is None or body is None:
        return
    name = text(walk.source, name_node)
    outer = walk.reading
    fact = FunctionFact(
        name=walk.prefix + name,
        line=node.start_point[0] + 1,
        end_line=node.end_point[0] + 1,
        start_byte=whole.start_byte,
        end_byte=whole.end_byte,
        decorators=decorators,
        mark=_mark(walk, whole, node),
    )
    is_method = walk.where == "class"
    owner = walk.class_ if is_method else outer.owner
    reading = Reading(fact, owner, outer.self_name if owner is not None else "")
    _signature(walk, reading, fact, node, is_method)
    reading.looks.add(f"name:{name}")
    reading.looks.update(f"decorator:{d.rpartition('.')[2]}" for d in decorators)
    reading.document = document(walk, body)
    reading.outer = outer if walk.where == "function" else None
    if not is_method:
        outer.nested.add(name)
        if walk.where == "function":
            outer.looks.update(("def", "def:decorated") if decorators else ("def",))
            outer.bindings.setdefault(name, []).append(False)
    kept = (walk.where, walk.prefix, walk.loop, walk.table, walk.under, walk.rounds)
    walk.under, walk.rounds = (), ()
    walk.reading, walk.where, walk.loop = reading, "function", 0
    walk.prefix = f"{fact.name}.<locals>."
    marked = fact.mark or (is_method and walk.class_ is not None and walk.class_.mark)
    walk.table = walk.tables.cold if not marked and walk.cold(name) else walk.tables.hot
    walk.facts.functions.append(fact)
    walk.readings.append(reading)
    visit(walk, body)
    walk.reading = outer
    walk.where, walk.prefix, walk.loop, walk.table, walk.under, walk.rounds = kept
    settle(walk, reading, node.child_by_field_name("return_type") is not None)
    if reading.outer is not None and not decorators:
        if _needs_the_call(reading, outer):
            outer.capturing.add(name)
        else:
            outer.looks.add("def:plain")
    if outer.fact is not None:
        # A function has the looks of those nested in it.
        outer.looks |= {token for token in reading.looks if not token.startswith("name:")}
        for token, hinges in reading.pending.items():
            outer.hinges(token).attributes |= hinges.attributes


def _needs_the_call(reading: Reading, outer: Reading) -> bool:
    """Whether a nested function surely reads a local of the one around it."""
    if "lambda" in reading.looks:
        return False  # whose parameters may be what is read
    here, around = reading.params | reading.bindings.keys(), outer.params | outer.bindings.keys()
    read = (name.partition(".")[0] for name in (*reading.passed, *(n for n, _ in reading.calls)))
    return bool(reading.self_name and reading.reads) or any(
        name in around and name not in here and name not in outer.nested for name in read
    )


def _signature(
    walk: Walk, reading: Reading, fact: FunctionFact, node: Node, is_method: bool
) -> None:
    """Read the parameters and the return annotation of a function."""
    parameters = node.child_by_field_name("parameters")
    if parameters is not None:
        for parameter in parameters.named_children:
            kind = parameter.type
            if kind in ("default_parameter", "typed_default_parameter"):
                value = parameter.child_by_field_name("value")
                if value is not None:
                    visit(walk, value)
            _parameter(walk, reading, parameter)
    if is_method:
        static = "staticmethod" in fact.decorators
        first = fact.params[0] if fact.params and not static else ""
        reading.self_name = "" if first.startswith("*") else first
    elif reading.self_name in reading.params:
        reading.self_name = ""
    declared = node.child_by_field_name("return_type")
    if declared is not None:
        fact.returns = annotation(walk.source, declared, walk.imports)


def _is_handed_on_with_self(walk: Walk, node: Node) -> bool:
    """Whether a lambda is an argument, and reads something of the method's own object."""
    name = walk.reading.self_name
    if not name or is_long(node):
        return False
    around = node.parent
    handed_on = around is not None and around.type in ("argument_list", "keyword_argument")
    read = re.compile(rf"(?<![\w.'\"]){name}\.")
    return handed_on and read.search(text(walk.source, node)) is not None


def _lambda(walk: Walk, node: Node) -> None:
    reading = walk.reading
    reading.looks.add("lambda")
    if not _is_handed_on_with_self(walk, node):
        reading.looks.add("lambda:plain")
    before = set(reading.tensor_uses)
    body = node.child_by_field_name("body")
    parameters = node.child_by_field_name("parameters")
    names = set()
    if parameters is not None:
        for parameter in parameters.named_children:
            inner = parameter
            if parameter.type != "identifier" and parameter.named_child_count:
                inner = parameter.named_children[0]
                if parameter.type == "default_parameter":
                    visit(walk, parameter.named_children[-1])
            names.add(text(walk.source, inner))
    if body is not None:
        visit(walk, body)
    reading.tensor_uses -= names - before


def _class_as(walk: Walk, node: Node, decorators: list[str], whole: Node) -> None:
    name_node = node.child_by_field_name("name")
    body = node.child_by_field_name("body")
    if name_node is None or body is None:
        return
    name = text(walk.source, name_node)
    bases: list[str] = []
    superclasses = node.child_by_field_name("superclasses")
    if superclasses is not None:
        for base in parts_of(superclasses):
            if base.type == "keyword_argument":
                continue
            if base.type in ("subscript", "call"):
                called = base.type == "call"
                base = base.named_children[0]
                base_name = dotted(walk.source, base) + ("()" if called else "")
            else:
                base_name = dotted(walk.source, base)
            bases.append(base_name or "?")
    fact = ClassFact(
        name=walk.prefix + name,
        line=node.start_point[0] + 1,
        bases=bases,
        decorators=decorators,
        mark=_mark(walk, whole, node),
    )
    walk.facts.classes.append(fact)
    if walk.where == "function":
        walk.reading.looks.add("class")
        walk.reading.bindings.setdefault(name, []).append(False)
    kept = (walk.where, walk.prefix, walk.class_, walk.loop)
    walk.where, walk.class_, walk.loop = "class", fact, 0
    walk.prefix = f"{fact.name}."
    visit(walk, body)
    walk.where, walk.prefix, walk.class_, walk.loop = kept


HANDLERS: dict[str, Handler] = {
    "lambda": _lambda,
    "class_definition": _class,
    "decorated_definition": _decorated,
    "function_definition": _function,
}
