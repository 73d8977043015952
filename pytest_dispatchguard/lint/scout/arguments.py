"""The scout at arguments: literals, parameters handed on, tensors that are surely on the CPU."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tree_sitter import Node

from pytest_dispatchguard.lint.facts import CPU, CPU_ATTRIBUTES, SOMETHING
from pytest_dispatchguard.lint.scout.state import Reading, Walk
from pytest_dispatchguard.lint.scout.values import (
    PLAIN_KINDS,
    dotted,
    plain_literal,
    resolved,
    text,
)

_MOST_FORMS = 4
"""Ways to call one name: more of them say nothing of its arguments."""
_DEEPEST = 12
"""Expressions in one another that are followed."""
_TO_HOST = frozenset({"cpu", "numpy"})
_HELPERS = re.compile(
    r"_?(?:\w+_)?to_device|_?(?:\w+_)?(?:copy|move|put|send|transfer)_(?:\w+_)?(?:device|to)|_?recursive_to"
)
"""Functions that move what they are given to a device, and all that is in it."""
_MOVING = frozenset("to cuda xpu npu to_device type_as expand_as view_as like".split())
_FACTORIES = frozenset(
    """zeros ones empty full arange linspace logspace eye rand randn randint randperm from_numpy
    tril_indices triu_indices""".split()
)
"""Functions of torch that make tensors with dimensions, on the CPU unless told a device."""
_DTYPE = re.compile(
    r"torch\.(?:b?float(?:16|32|64)?|double|half|int(?:8|16|32|64)?|long|short|uint8|bool|complex\d+)"
)


def forms(walk: Walk, reading: Reading, name: str) -> list[str]:
    """The arguments of the calls of a name, as in `CallFact.given`."""
    found: list[str] = []
    for arguments in reading.arguments.get(name, ()):
        form = _form(walk, reading, arguments)
        if form not in found:
            found.append(form)
        if len(found) > _MOST_FORMS:
            return ["*"]
    return found


def _form(walk: Walk, reading: Reading, arguments: Node) -> str:
    if arguments.type != "argument_list":
        return "?"  # a generator is the only argument
    here = _on_cpu_here(walk, reading, arguments) if walk.asks_devices else frozenset()
    words = []
    for argument in arguments.named_children:
        kind = argument.type
        name, value = "", argument
        if kind == "keyword_argument":
            name, value = (
                f"{text(walk.source, argument.named_children[0])}=",
                argument.named_children[-1],
            )
        if kind in ("list_splat", "dictionary_splat"):
            words.append("*")
        elif kind != "comment":
            word = _word(walk, reading, value)
            words.append(name + (CPU if word[1:] in here and word[0] in "=~" else word))
    return ",".join(words)


_NOT_ON_CUDA = re.compile(
    r"not ([\w.]+)\.is_cuda|([\w.]+)\.is_cpu|([\w.]+)\.device\.type (?:== ['\"]cpu|!= ['\"]cuda)['\"]"
)
_ON_CUDA = re.compile(
    r"([\w.]+)\.is_cuda|not ([\w.]+)\.is_cpu|([\w.]+)\.device\.type (?:!= ['\"]cpu|== ['\"]cuda)['\"]"
)


def _on_cpu_here(walk: Walk, reading: Reading, node: Node) -> frozenset[str]:
    """The parameters that are surely tensors on the CPU where a node stands, as a branch says: where one of
    them is, the others are as a rule."""
    while node.parent is not None and node.parent.type not in ("function_definition", "lambda"):
        around, child = node.parent, node
        tests: list[tuple[re.Pattern[str], Node]] = []
        if around.child_by_field_name("consequence") == child:
            tests.append((_NOT_ON_CUDA, around))
        elif around.type == "if_statement":
            tests.append((_ON_CUDA, around))
        elif around.type == "block":
            before = (one for one in around.named_children if one.end_byte <= child.start_byte)
            tests += ((_ON_CUDA, one) for one in before if _returns(one))
        for asked, test in tests:
            condition = test.child_by_field_name("condition")
            said = condition is not None and asked.fullmatch(text(walk.source, condition))
            if said and reading.fact is not None:
                annotated = (n for n, given in reading.fact.defaults.items() if given == SOMETHING)
                return frozenset({*said.groups(""), *reading.fact.tensors, *annotated})
        node = around
    return frozenset()


def _returns(node: Node) -> bool:
    """Whether a statement is an `if` with nothing but a body that returns."""
    block = node.child_by_field_name("consequence") if node.type == "if_statement" else None
    if block is None or node.child_by_field_name("alternative") is not None:
        return False
    said = [one for one in block.named_children if not one.is_extra]
    return bool(said) and said[-1].type == "return_statement"


def _word(walk: Walk, reading: Reading, value: Node) -> str:
    kind = value.type
    if kind == "identifier":
        name = text(walk.source, value)
        if name in reading.params and name not in reading.bindings:
            return f"={name}"
    if kind in PLAIN_KINDS:
        return plain_literal(walk.source, value) or SOMETHING
    known = walk.tensors_here and (origin(walk, reading, value) or _on_host(walk, reading, value))
    return known or (SOMETHING if _never_none(walk, value) else "?")


def _on_host(walk: Walk, reading: Reading, node: Node) -> str:
    """The word for what is surely a number or an array, and so no tensor of a device: by itself, beside one,
    it says nothing of what is worked out."""
    if node.type == "identifier":
        bound = reading.bindings.get(text(walk.source, node), ())
        values = [value for value in bound if not isinstance(value, bool)]
        there = bool(values) and len(values) == len(bound) and len(values) <= _MOST_FORMS
        made = there and all(v.type == "call" and _on_host(walk, reading, v) for v in values)
        return CPU if made else ""
    if node.type != "call":
        return ""
    callee = dotted(walk.source, node.named_children[0])
    full = resolved(callee, walk.imports)
    return CPU if callee in _NUMBERS or full.startswith(("math.", "numpy.")) else ""


_NUMBERS = frozenset({"int", "float", "len"})
_SOMETHING = frozenset(
    """concatenated_string tuple list dictionary set list_comprehension lambda binary_operator
    comparison_operator""".split()
)
_ALWAYS_THERE = frozenset("device dtype shape ndim layout".split())


def _never_none(walk: Walk, value: Node) -> bool:
    """Whether an expression gives something, whatever it is."""
    if value.type == "attribute":
        return text(walk.source, value.named_children[-1]) in _ALWAYS_THERE
    if value.type == "call" and walk.tensors_here:
        callee = dotted(walk.source, value.named_children[0])
        last = callee.rpartition(".")[2]
        full = resolved(callee, walk.imports)
        return last in ("size", "dim", "numel") or full.startswith("torch.") or callee == "len"
    return value.type in _SOMETHING


def origin(walk: Walk, reading: Reading, node: Node, depth: int = 0) -> str:
    """Where a tensor is that an expression gives: ``cpu``, ``~x`` for where the parameter `x` is, empty where
    that cannot be told."""
    kind = node.type
    if depth > _DEEPEST:
        return ""
    if kind == "identifier":
        return _of_name(walk, reading, node, depth)
    if kind == "call":
        return _of_call(walk, reading, node, depth)
    if kind in ("subscript", "parenthesized_expression", "unary_operator"):
        parts = node.named_children
        return origin(walk, reading, parts[0], depth + 1) if parts else ""
    if kind in ("tuple", "expression_list"):
        return _agreed(origin(walk, reading, part, depth + 1) for part in node.named_children)
    if kind in ("binary_operator", "comparison_operator"):
        return _beside(walk, reading, node.named_children, depth)
    if kind == "attribute" and text(walk.source, node.named_children[-1]) in CPU_ATTRIBUTES:
        return CPU
    return ""


def _beside(walk: Walk, reading: Reading, parts: Iterable[Node], depth: int) -> str:
    """Where operands are: one on the CPU has only such for company, and one on a device none of others."""
    found = [origin(walk, reading, part, depth + 1) for part in parts]
    return CPU if CPU in found else next(filter(None, found), "")


def _agreed(origins: Iterable[str]) -> str:
    found = set(origins)
    return found.pop() if len(found) == 1 else ""


def _of_name(walk: Walk, reading: Reading, node: Node, depth: int) -> str:
    name = text(walk.source, node)
    bound = reading.bindings.get(name)
    if bound is None:
        return f"~{name}" if name in reading.params and name != reading.self_name else ""
    last = bound[-1] if bound else False
    if not isinstance(last, bool) and _surely_before(last, node):
        return origin(walk, reading, last, depth + 1)
    if name in reading.params or len(bound) > 3:
        return ""
    return _agreed(
        "" if isinstance(value, bool) else origin(walk, reading, value, depth + 1)
        for value in bound
    )


def _surely_before(value: Node, node: Node) -> bool:
    """Whether the statement that binds a value has run wherever a node is reached."""
    statement = value.parent
    while statement is not None and statement.type == "assignment":
        statement = statement.parent
    block = statement.parent if statement is not None else None
    if statement is None or block is None or statement.type != "expression_statement":
        return False
    return statement.end_byte <= node.start_byte and node.end_byte <= block.end_byte


def _of_call(walk: Walk, reading: Reading, node: Node, depth: int) -> str:
    callee, arguments = node.named_children[0], node.named_children[-1]
    given = arguments.named_children if arguments.type == "argument_list" else []
    written = dotted(walk.source, callee)
    if _HELPERS.fullmatch(written.rpartition(".")[2]) and _names_the_cpu(walk, reading, given):
        return CPU
    if callee.type != "attribute":
        return ""
    method = text(walk.source, callee.named_children[-1])
    owner = callee.named_children[0]
    if method in _TO_HOST:
        return CPU
    device = _device(walk, reading, given)
    full = resolved(written, walk.imports)
    if full.startswith("torch."):
        if device is not None:
            return CPU if device else ""
        if full.removeprefix("torch.") in _FACTORIES:
            return CPU
        return _beside(walk, reading, given, depth)
    if method == "to" and given:
        if given[0].type != "keyword_argument" and device is None:
            device = _is_cpu(walk, reading, given[0])
            if _DTYPE.fullmatch(text(walk.source, given[0])):
                return origin(walk, reading, owner, depth + 1)
        return CPU if device else ""
    if method in _MOVING or device is not None:
        return CPU if device else ""
    return origin(walk, reading, owner, depth + 1)


def _names_the_cpu(walk: Walk, reading: Reading, given: list[Node]) -> bool:
    """Whether one of the arguments, but the first, is the CPU as a device."""
    values = (a.named_children[-1] if a.type == "keyword_argument" else a for a in given[1:])
    return any(_is_cpu(walk, reading, value) for value in values)


def _device(walk: Walk, reading: Reading, given: list[Node]) -> bool | None:
    """Whether the `device` among the arguments is the CPU, None where there is none."""
    for argument in given:
        if argument.type == "keyword_argument":
            name, value = argument.named_children[0], argument.named_children[-1]
            if text(walk.source, name) == "device":
                return _is_cpu(walk, reading, value)
    return None


def _is_cpu(walk: Walk, reading: Reading, node: Node) -> bool:
    """Whether an expression is the CPU as a device: ``"cpu"``, ``torch.device("cpu")``, a local with that."""
    if node.type == "identifier":
        bound = reading.bindings.get(text(walk.source, node), ())
        return (
            len(bound) == 1 and not isinstance(bound[0], bool) and _is_cpu(walk, reading, bound[0])
        )
    written = text(walk.source, node)
    return re.fullmatch(r"(?:torch\.device\()?[\"']cpu[\"']\)?", written) is not None
