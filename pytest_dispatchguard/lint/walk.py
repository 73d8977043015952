"""The scout's walk over a tree-sitter tree: one handler for each kind of node, what is met goes into the
function, class or file that is being read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import tree_sitter_python
from tree_sitter import Language, Node

from pytest_dispatchguard.lint import guards
from pytest_dispatchguard.lint import vocabulary as words
from pytest_dispatchguard.lint.facts import CallFact, ClassFact, FileFacts, FunctionFact, Value
from pytest_dispatchguard.lint.values import (
    annotation,
    annotation_text,
    dotted,
    resolved,
    text,
    values,
)

LANGUAGE: Final = Language(tree_sitter_python.language())

_HOST_ANNOTATIONS = frozenset({"int", "float", "bool", "str", "bytes"})
_TORCH_ROOTS = ("torch", "torch.nn.functional", "torch.special", "torch.linalg", "torch.functional")


class Reading:
    """A function (or the module's own level) while it is being read."""

    __slots__ = (
        "backward", "bindings", "calls", "fact", "globals", "hooks", "hosts", "looks", "nested", "outer",
        "owner", "param_values", "params", "passed", "pending", "pending_self", "reads", "returns", "self_name",
        "step", "tensor_uses", "tested", "yields",
    )  # fmt: skip

    def __init__(self, fact: FunctionFact | None, owner: ClassFact | None, self_name: str) -> None:
        self.fact = fact
        self.owner = owner
        self.self_name = self_name
        self.params: set[str] = set()
        self.param_values: dict[str, list[Value]] = {}
        self.hosts: set[str] = set()
        self.bindings: dict[str, list[Node | bool]] = {}
        """Of each local: the expressions bound to it; True for an unknown value, False for a host value."""
        self.looks: set[str] = set()
        self.calls: dict[tuple[str, str], CallFact] = {}
        self.passed: dict[str, CallFact] = {}
        self.reads: dict[str, CallFact] = {}
        self.pending: dict[str, set[str]] = {}
        """Token to the local names of which one must be a possible tensor for it to count."""
        self.pending_self: dict[str, set[str]] = {}
        self.tested: set[str] = set()
        self.tensor_uses: set[str] = set()
        self.nested: set[str] = set()
        self.globals: set[str] = set()
        self.hooks: list[CallFact] = []
        self.returns: list[Node | None] = []
        self.yields = False
        self.backward = False
        self.step = False


class Walk:
    """Where the walk is, and what it has gathered of the file."""

    __slots__ = (
        "class_", "early_exit", "facts", "imports", "is_package", "loop", "marks", "module", "prefix", "reading",
        "readings", "source", "where",
    )  # fmt: skip

    def __init__(self, source: bytes, module: str, is_package: bool, marks: dict[int, str]) -> None:
        self.source = source
        self.module = module
        self.is_package = is_package
        self.marks = marks
        self.facts = FileFacts()
        self.imports: dict[str, str] = {}
        self.reading = Reading(None, None, "")
        self.readings: list[Reading] = []
        self.class_: ClassFact | None = None
        self.prefix = ""
        self.where = "module"
        self.loop = 0
        self.early_exit: str | None = None


Handler = Callable[[Walk, Node], None]


def visit(walk: Walk, node: Node) -> None:
    """Hands a node to its handler."""
    handler = _TABLE[node.kind_id]
    if handler is not None:
        handler(walk, node)


def _children(walk: Walk, node: Node) -> None:
    table = _TABLE
    for child in node.named_children:
        handler = table[child.kind_id]
        if handler is not None:
            handler(walk, child)


def _parts(node: Node) -> list[Node]:
    """The named children, comments apart."""
    return [c for c in node.named_children if not c.is_extra]


def _cold(walk: Walk, nodes: Iterable[Node]) -> None:
    """Reads what lies in a cold region: definitions and attributes count, calls and looks do not."""
    reading = walk.reading
    kept = (
        reading.looks,
        reading.calls,
        reading.passed,
        reading.reads,
        reading.pending,
        reading.pending_self,
    )
    reading.looks, reading.calls, reading.passed, reading.reads = set(), {}, {}, {}
    reading.pending, reading.pending_self = {}, {}
    for node in nodes:
        visit(walk, node)
    (
        reading.looks,
        reading.calls,
        reading.passed,
        reading.reads,
        reading.pending,
        reading.pending_self,
    ) = kept


# --- could it be a tensor -------------------------------------------------------------------------


def _doubt(walk: Walk, node: Node, names: set[str], attributes: set[str]) -> bool:
    """Whether an expression may be a tensor whatever its names are; else it may be one only if one of the
    `names`, or of the `attributes` of self, is, which are added to."""
    kind = node.type
    if kind == "identifier":
        names.add(text(walk.source, node))
        return False
    if kind == "attribute":
        parts = node.named_children
        attribute = text(walk.source, parts[-1])
        if attribute in words.READABLE_TENSOR_ATTRIBUTES:
            return True
        if parts[0].type == "identifier" and text(walk.source, parts[0]) == walk.reading.self_name:
            attributes.add(attribute)
        return False
    if kind == "call":
        return _doubt_of_call(walk, node, names, attributes)
    if kind == "comparison_operator":
        return _doubt_of_comparison(walk, node, names, attributes)
    if kind in (
        "parenthesized_expression",
        "unary_operator",
        "binary_operator",
        "boolean_operator",
        "await",
    ):
        found = False
        for child in node.named_children:
            found = _doubt(walk, child, names, attributes) or found
        return found
    if kind == "conditional_expression":
        parts = _parts(node)
        first = _doubt(walk, parts[0], names, attributes)
        return _doubt(walk, parts[-1], names, attributes) or first
    if kind == "subscript":
        return _doubt(walk, node.named_children[0], names, attributes)
    if kind == "named_expression":
        return _doubt(walk, node.named_children[-1], names, attributes)
    return kind in ("yield", "ERROR")


def _doubt_of_call(walk: Walk, node: Node, names: set[str], attributes: set[str]) -> bool:
    callee = node.named_children[0]
    kind = callee.type
    if kind == "identifier":
        name = text(walk.source, callee)
        return not (name in words.HOST_CALLS or name.startswith(words.HOST_PREFIXES))
    if kind == "attribute":
        parts = callee.named_children
        name = text(walk.source, parts[-1])
        if name in words.HOST_CALLS or name.startswith(words.HOST_PREFIXES):
            return False
    return True


def _doubt_of_comparison(walk: Walk, node: Node, names: set[str], attributes: set[str]) -> bool:
    for child in node.children:
        if not child.is_named and child.type in ("is", "is not", "in", "not in"):
            return False
    operands = _parts(node)
    for operand in operands:
        if operand.type in (
            "string",
            "none",
            "list",
            "tuple",
            "concatenated_string",
            "dictionary",
            "set",
        ):
            return False
    for operand in operands:
        if operand.type == "attribute" and not _is_self_attribute(walk, operand):
            attribute = text(walk.source, operand.named_children[-1])
            if attribute in ("shape", "ndim", "dtype", "device", "name", "__class__", "layout"):
                return False
    found = False
    for operand in operands:
        found = _doubt(walk, operand, names, attributes) or found
    return found


def _is_self_attribute(walk: Walk, node: Node) -> bool:
    owner = node.named_children[0]
    return owner.type == "identifier" and text(walk.source, owner) == walk.reading.self_name


def _ask(walk: Walk, node: Node, token: str) -> None:
    """Sets the token if the expression may be a tensor, now or when the names in it are known."""
    reading = walk.reading
    if token in reading.looks:
        return
    names: set[str] = set()
    attributes: set[str] = set()
    if _doubt(walk, node, names, attributes):
        reading.looks.add(token)
        return
    if names:
        reading.pending.setdefault(token, set()).update(names)
    if attributes:
        reading.pending_self.setdefault(token, set()).update(attributes)


def _truth(walk: Walk, node: Node) -> None:
    kind = node.type
    if kind == "parenthesized_expression":
        for child in node.named_children:
            _truth(walk, child)
    elif kind not in ("boolean_operator", "not_operator"):  # they ask for their operands themselves
        _ask(walk, node, "truth")


def _iterated(walk: Walk, node: Node) -> None:
    if node.type == "call":
        callee = node.named_children[0]
        last = text(
            walk.source, callee.named_children[-1] if callee.type == "attribute" else callee
        )
        if last in words.SEQUENCE_CALLS or last in words.ITERATING_CALLS or last == "range":
            return
    _ask(walk, node, "iterate")


def _index(walk: Walk, node: Node, token: str) -> None:
    """Sets the token if one of the indices may be a tensor."""
    for index in node.named_children[1:]:
        kind = index.type
        if kind in ("integer", "string", "ellipsis", "none", "true", "false", "comment"):
            continue
        if kind == "unary_operator" and index.children[0].type == "~":
            walk.reading.looks.add(token)
        elif kind in ("slice", "tuple", "list", "expression_list"):
            _index_parts(walk, index, token)
        else:
            _ask(walk, index, token)


def _index_parts(walk: Walk, index: Node, token: str) -> None:
    for part in index.named_children:
        if part.type in ("slice", "tuple"):
            _index_parts(walk, part, token)
        else:
            _ask(walk, part, token)


# --- calls, names, attributes ------------------------------------------------------------------------


def _note(table: dict[str, CallFact], name: str, how: str, node: Node, loop: bool) -> None:
    known = table.get(name)
    if known is None:
        table[name] = CallFact(name, node.start_point[0] + 1, loop, how)
    elif loop:
        known.loop = True


def _note_call(walk: Walk, name: str, how: str, node: Node) -> None:
    calls = walk.reading.calls
    known = calls.get((name, how))
    if known is None:
        calls[name, how] = CallFact(name, node.start_point[0] + 1, walk.loop > 0, how)
    elif walk.loop:
        known.loop = True


def _call(walk: Walk, node: Node) -> None:
    _call_as(walk, node, "call")


def _call_as(walk: Walk, node: Node, how: str) -> None:
    source, reading = walk.source, walk.reading
    looks = reading.looks
    parts = node.named_children
    callee, arguments = parts[0], parts[-1]
    kind = callee.type
    last = ""
    if kind == "identifier":
        last = text(source, callee)
        _note_call(walk, last, how, node)
    elif kind == "attribute":
        owner = callee.named_children[0]
        last = text(source, callee.named_children[-1])
        name = dotted(source, callee)
        if name:
            _note_call(walk, name, how, node)
        if owner.type == "identifier":
            if last in words.TENSOR_METHODS:
                _note_tensor_method(walk, text(source, owner), last, arguments)
        else:
            visit(walk, owner)
    else:
        visit(walk, callee)
    looks.add("call")
    if last:
        looks.add(f"call:{last}")
    if arguments.type != "argument_list":
        if last in words.ITERATING_CALLS and kind == "identifier":
            _comprehended_truth(walk, arguments, last)
        visit(walk, arguments)
        return
    given = arguments.named_children
    if last in _CALLS_OF_NOTE or (given and last in words.TORCH_OPS):
        _call_of_note(walk, last, callee, given)
    for argument in given:
        kind = argument.type
        if kind == "keyword_argument":
            argument = argument.named_children[-1]
            kind = argument.type
        elif kind == "list_splat":
            _iterated(walk, argument.named_children[-1])
        if kind == "identifier":
            _note(reading.passed, text(source, argument), "passed", argument, walk.loop > 0)
        elif kind == "attribute":
            name = dotted(source, argument)
            if name:
                _note(reading.passed, name, "passed", argument, walk.loop > 0)
            _attribute(walk, argument)
        else:
            handler = _TABLE[argument.kind_id]
            if handler is not None:
                handler(walk, argument)


def _comprehended_truth(walk: Walk, generator: Node, last: str) -> None:
    """``any(x > 0 for x in …)`` asks the truth of every element."""
    if last in ("any", "all") and generator.named_child_count:
        _truth(walk, generator.named_children[0])


_CALLS_OF_NOTE = (
    words.TYPE_TESTS
    | words.ITERATING_CALLS
    | {"bool", "register_buffer", "register_parameter", "add_module", "register_module", "setattr"}
    | {"backward", "step"}
    | words.HOOKS
)


def _call_of_note(walk: Walk, last: str, callee: Node, given: list[Node]) -> None:
    reading = walk.reading
    bare = callee.type == "identifier"
    if last in ("backward", "step") and walk.loop:
        if last == "backward":
            reading.backward = True
        else:
            reading.step = True
    if not given:
        return
    first = given[0]
    if last in words.HOOKS:
        name = dotted(walk.source, first)
        if name and reading.fact is not None:
            reading.hooks.append(CallFact(name, first.start_point[0] + 1, False, "hook"))
    if last in words.TYPE_TESTS and first.type == "identifier":
        reading.tested.add(text(walk.source, first))
    if bare and last in words.ITERATING_CALLS:
        for argument in given:
            if argument.type in ("identifier", "call", "subscript", "attribute", "binary_operator"):
                _iterated(walk, argument)
            elif argument.type in ("generator_expression", "list_comprehension"):
                _comprehended_truth(walk, argument, last)
    elif bare and last == "bool":
        _truth(walk, first)
    elif last in (
        "register_buffer",
        "register_parameter",
        "add_module",
        "register_module",
        "setattr",
    ):
        _note_registration(walk, last, callee, given)
    if last in words.TORCH_OPS and first.type == "identifier":
        name = dotted(walk.source, callee)
        root = resolved(name, walk.imports).rpartition(".")[0]
        if root in _TORCH_ROOTS:
            _note_tensor_use(walk, text(walk.source, first))


def _note_registration(walk: Walk, last: str, callee: Node, given: list[Node]) -> None:
    owner, reading = walk.reading.owner, walk.reading
    if owner is None:
        return
    if last == "setattr":
        if len(given) < 3 or text(walk.source, given[0]) != reading.self_name:
            return
        given = given[1:]
    elif not dotted(walk.source, callee).startswith(f"{reading.self_name}."):
        return
    if given[0].type != "string":
        return
    name = text(walk.source, given[0]).strip("rbu'\"")
    if not name.isidentifier():
        return
    value = given[1] if len(given) > 1 else None
    if value is not None and value.type == "keyword_argument":
        value = value.named_children[-1]
    if value is not None and value.type == "none":
        _add(owner.attrs, name, ["none"])
    elif last == "register_buffer":
        _add(owner.attrs, name, ["buffer"])
    elif last == "register_parameter":
        _add(owner.attrs, name, ["param"])
    else:
        _add(owner.attrs, name, _local_values(walk, value) if value is not None else ["unknown"])


def _note_tensor_method(walk: Walk, name: str, method: str, arguments: Node) -> None:
    if method == "backward" and arguments.named_child_count:
        return
    if method == "view" and arguments.named_child_count == 1:
        # `array.view(np.uint8)` is NumPy's, `x.view(-1)` and `x.view(shape)` are tensors'.
        only = arguments.named_children[0]
        if only.type == "attribute" and text(walk.source, only).startswith(
            ("np.", "numpy.", "jnp.")
        ):
            return
    _note_tensor_use(walk, name)


def _note_tensor_use(walk: Walk, name: str) -> None:
    reading = walk.reading
    if name in reading.params:
        if name not in reading.bindings:
            reading.tensor_uses.add(name)
    elif name in reading.bindings:
        reading.tensor_uses.add(name)


def _attribute(walk: Walk, node: Node) -> None:
    source, reading = walk.source, walk.reading
    parts = node.named_children
    owner = parts[0]
    attribute = text(source, parts[-1])
    reading.looks.add(f"attr:{attribute}")
    if owner.type == "identifier":
        name = text(source, owner)
        if name == reading.self_name:
            _note(reading.reads, f"{name}.{attribute}", "read", node, walk.loop > 0)
        elif attribute in words.TENSOR_ATTRIBUTES:
            _note_tensor_use(walk, name)
    else:
        visit(walk, owner)


def _subscript(walk: Walk, node: Node) -> None:
    reading = walk.reading
    if "subscript" not in reading.looks:
        parts = node.named_children
        _index(walk, node, "subscript")
        if (
            parts[-1].type == "slice"
            and parts[0].type == "attribute"
            and _is_self_attribute(walk, parts[0])
        ):
            # A slice of a ModuleList builds a new one.
            sliced = text(walk.source, parts[0].named_children[-1])
            reading.pending_self.setdefault("subscript", set()).add(sliced)
    _children(walk, node)


# --- assignments -------------------------------------------------------------------------------------


def _add(table: dict[str, list[Value]], name: str, new: list[Value]) -> None:
    known = table.setdefault(name, [])
    for value in new:
        if value not in known:
            known.append(value)


def _local_values(walk: Walk, node: Node) -> list[Value]:
    """What an expression inside a function may be, parameters and locals looked up one step."""
    reading = walk.reading
    if node.type == "identifier":
        name = text(walk.source, node)
        bound = reading.bindings.get(name)
        if bound is None:
            if name in reading.params:
                return reading.param_values.get(name, ["unknown"])
        else:
            only = bound[0]
            if len(bound) > 1 or isinstance(only, bool):
                return ["unknown"]
            local = frozenset(reading.params | reading.bindings.keys())
            return values(walk.source, only, walk.imports, local)
    local = frozenset(reading.params | reading.bindings.keys())
    return values(walk.source, node, walk.imports, local)


def _bind(walk: Walk, target: Node, value: Node | bool) -> None:
    """Binds the names of a target: of a pattern, each to an unknown value."""
    kind = target.type
    if kind == "identifier":
        walk.reading.bindings.setdefault(text(walk.source, target), []).append(value)
    elif kind in ("pattern_list", "tuple_pattern", "list_pattern", "tuple", "list"):
        inner = _part_value(walk, value)
        for part in target.named_children:
            _bind(walk, part, inner)
    elif kind in (
        "list_splat_pattern",
        "list_splat",
        "as_pattern_target",
        "parenthesized_expression",
    ):
        for part in target.named_children:
            _bind(walk, part, isinstance(value, bool) and value)


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


def _assign_target(walk: Walk, target: Node, value: Node | None, declared: Node | None) -> None:
    reading = walk.reading
    kind = target.type
    if kind == "identifier":
        if walk.where == "function":
            _bind(walk, target, value if value is not None else True)
            name = text(walk.source, target)
            if name in reading.globals:
                _add(
                    walk.facts.assigns,
                    name,
                    _local_values(walk, value) if value is not None else ["unknown"],
                )
            return
        table = (
            walk.facts.assigns
            if walk.where == "module" or walk.class_ is None
            else walk.class_.attrs
        )
        _add(table, text(walk.source, target), _declared_values(walk, value, declared))
    elif kind == "attribute":
        parts = target.named_children
        if parts[0].type == "identifier" and text(walk.source, parts[0]) == reading.self_name:
            reading.looks.add("self-write")
            if reading.owner is not None:
                _add(
                    reading.owner.attrs,
                    text(walk.source, parts[-1]),
                    _declared_values(walk, value, declared),
                )
        else:
            visit(walk, parts[0])
    elif kind == "subscript":
        _index(walk, target, "setitem")
        _children(walk, target)
    elif kind in ("pattern_list", "tuple_pattern", "list_pattern"):
        if value is not None and value.type in ("identifier", "call", "subscript"):
            _iterated(walk, value)
        if walk.where == "function":
            _bind(walk, target, value if value is not None else True)
        for part in target.named_children:
            if part.type in ("attribute", "subscript") or (
                part.type == "identifier" and walk.where != "function"
            ):
                _assign_target(walk, part, None, None)


def _declared_values(walk: Walk, value: Node | None, declared: Node | None) -> list[Value]:
    found: list[Value] = []
    if declared is not None:
        found.append(annotation(walk.source, declared, walk.imports))
    if value is not None:
        if walk.where == "function":
            new = _local_values(walk, value)
        else:
            new = values(walk.source, value, walk.imports)
        if declared is None or new != ["unknown"]:
            found.extend(new)
    elif declared is None:
        found.append("unknown")
    return found


def _assignment(walk: Walk, node: Node) -> None:
    walk.reading.looks.add("assign")
    left = node.child_by_field_name("left")
    right = node.child_by_field_name("right")
    declared = node.child_by_field_name("type")
    innermost = right
    while innermost is not None and innermost.type == "assignment":
        innermost = innermost.child_by_field_name("right")
    if right is not None:
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
            _bind(walk, left, right if right is not None else True)
    elif left.type == "attribute":
        if _is_self_attribute(walk, left):
            walk.reading.looks.add("self-write")
        visit(walk, left)
    elif left.type == "subscript":
        _index(walk, left, "setitem")
        _subscript(walk, left)


def _named_expression(walk: Walk, node: Node) -> None:
    parts = node.named_children
    visit(walk, parts[-1])
    if walk.where == "function":
        _bind(walk, parts[0], parts[-1])


# --- statements ----------------------------------------------------------------------------------------


def _block(walk: Walk, node: Node) -> None:
    table = _TABLE
    children = node.named_children
    for i, child in enumerate(children):
        handler = table[child.kind_id]
        if handler is None:
            continue
        handler(walk, child)
        if walk.early_exit is not None:
            condition, walk.early_exit = walk.early_exit, None
            rest = children[i + 1 :]
            if guards.rest_is_cold(condition, True, _assigned(walk, rest)):
                _cold(walk, rest)
                walk.early_exit = None
                return


def _assigned(walk: Walk, statements: Iterable[Node]) -> set[str]:
    """The lasting names that statements assign: attributes, and names declared global."""
    found: set[str] = set()
    for statement in statements:
        if statement.type != "expression_statement":
            continue
        expression: Node | None = (
            statement.named_children[0] if statement.named_child_count else None
        )
        while expression is not None and expression.type in ("assignment", "augmented_assignment"):
            target = expression.child_by_field_name("left")
            while target is not None and target.type == "subscript":
                target = target.named_children[0]
            if target is not None:
                name = dotted(walk.source, target)
                if "." in name or (
                    name and (name in walk.reading.globals or walk.where == "module")
                ) or (name and statement.named_children[0].child_by_field_name("left") != target):
                    found.add(name)
            expression = expression.child_by_field_name("right")
    return found


def _last(block: Node | None) -> str:
    """The kind of a block's last statement."""
    if block is None:
        return ""
    for child in reversed(block.named_children):
        if not child.is_extra:
            return child.type
    return ""


def _if(walk: Walk, node: Node) -> None:
    clauses = node.children_by_field_name("alternative")
    _branch(walk, node, clauses, 0)
    walk.early_exit = None
    if not clauses:
        block = node.child_by_field_name("consequence")
        condition = node.child_by_field_name("condition")
        if condition is not None and _last(block) == "return_statement":
            written = text(walk.source, condition)
            if guards.worth_asking(written):
                walk.early_exit = written


def _branch(walk: Walk, node: Node, clauses: list[Node], following: int) -> None:
    """One `if` or `elif` with what comes after it: ``clauses[following:]``."""
    condition = node.child_by_field_name("condition")
    block = node.child_by_field_name("consequence")
    if condition is None or block is None:
        _children(walk, node)
        return
    _truth(walk, condition)
    visit(walk, condition)
    written = text(walk.source, condition)
    after = clauses[following] if following < len(clauses) else None
    orelse_raises = False
    if after is not None and after.type == "else_clause":
        orelse_raises = _last(after.child_by_field_name("body")) == "raise_statement"
    body_cold, else_cold = guards.cold_branches(
        written,
        body_assigns=_assigned(walk, block.named_children) if guards.worth_asking(written) else (),
        body_raises=_last(block) == "raise_statement",
        orelse_raises=orelse_raises,
    )
    if body_cold:
        _cold(walk, [block])
    else:
        _block(walk, block)
    if after is None:
        return
    if else_cold:
        _cold(walk, clauses[following:])
    elif after.type == "elif_clause":
        _branch(walk, after, clauses, following + 1)
    else:
        _children(walk, after)


def _elif(walk: Walk, node: Node) -> None:
    """Met only inside what is cold already."""
    _children(walk, node)


def _for(walk: Walk, node: Node) -> None:
    walk.reading.looks.add("loop")
    left = node.child_by_field_name("left")
    right = node.child_by_field_name("right")
    if left is None or right is None:
        _children(walk, node)
        return
    _iterated(walk, right)
    visit(walk, right)
    _bind_loop(walk, left, right)
    walk.loop += 1
    for part in node.named_children:
        if part.type == "block":
            _block(walk, part)
    walk.loop -= 1
    for clause in node.children_by_field_name("alternative"):
        _children(walk, clause)


def _bind_loop(walk: Walk, left: Node, right: Node) -> None:
    value = True
    if right.type == "call":
        callee = text(walk.source, right.named_children[0])
        if callee == "range":
            value = False
        elif callee == "enumerate" and left.type in ("pattern_list", "tuple_pattern"):
            parts = left.named_children
            _bind(walk, parts[0], False)
            for part in parts[1:]:
                _bind(walk, part, True)
            return
    if walk.where == "function":
        _bind(walk, left, value)


def _while(walk: Walk, node: Node) -> None:
    walk.reading.looks.add("loop")
    condition = node.child_by_field_name("condition")
    body = node.child_by_field_name("body")
    walk.loop += 1
    if condition is not None:
        _truth(walk, condition)
        visit(walk, condition)
    if body is not None:
        _block(walk, body)
    walk.loop -= 1
    for clause in node.children_by_field_name("alternative"):
        _children(walk, clause)


def _comprehension(walk: Walk, node: Node) -> None:
    parts = _parts(node)
    opened = 0
    for clause in parts[1:]:
        if clause.type == "for_in_clause":
            left = clause.child_by_field_name("left")
            right = clause.child_by_field_name("right")
            if left is None or right is None:
                continue
            _iterated(walk, right)
            visit(walk, right)
            if walk.where == "function":
                _bind_loop(walk, left, right)
            walk.loop += 1
            opened += 1
        else:
            for condition in clause.named_children:
                _truth(walk, condition)
                visit(walk, condition)
    if parts:
        visit(walk, parts[0])
    walk.loop -= opened


def _with(walk: Walk, node: Node) -> None:
    walk.reading.looks.add("with")
    _children(walk, node)


def _with_item(walk: Walk, node: Node) -> None:
    for value in node.named_children:
        target = None
        if value.type == "as_pattern":
            parts = value.named_children
            value, target = parts[0], parts[-1]
        if value.type == "call":
            _call_as(walk, value, "new-scope")
        else:
            visit(walk, value)
        if target is not None and walk.where == "function":
            _bind(walk, target, True)


def _try(walk: Walk, node: Node) -> None:
    for part in node.named_children:
        if part.type in ("except_clause", "except_group_clause"):
            _cold(walk, [part])
        else:
            visit(walk, part)


def _raise(walk: Walk, node: Node) -> None:
    _cold(walk, node.named_children)


def _assert(walk: Walk, node: Node) -> None:
    parts = _parts(node)
    if parts:
        _truth(walk, parts[0])
        visit(walk, parts[0])
        _cold(walk, parts[1:])


def _return(walk: Walk, node: Node) -> None:
    reading = walk.reading
    parts = _parts(node)
    value = parts[0] if parts else None
    reading.returns.append(value)
    if value is not None:
        for name in _returned_names(walk, value):
            _note_call(walk, name, "returned", value)
        visit(walk, value)


def _returned_names(walk: Walk, value: Node) -> list[str]:
    """The names a return statement hands out, by themselves or wrapped: ``return wraps(fn)(wrapper)``."""
    if value.type == "identifier":
        return [text(walk.source, value)]
    if value.type == "conditional_expression":
        parts = _parts(value)
        return [name for part in (parts[0], parts[-1]) for name in _returned_names(walk, part)]
    if value.type in ("expression_list", "tuple"):
        return [text(walk.source, p) for p in value.named_children if p.type == "identifier"]
    if value.type == "call":
        arguments = value.named_children[-1]
        return [text(walk.source, a) for a in arguments.named_children if a.type == "identifier"]
    return []


def _conditional(walk: Walk, node: Node) -> None:
    parts = _parts(node)
    if len(parts) != 3:
        _children(walk, node)
        return
    body, condition, orelse = parts
    _truth(walk, condition)
    visit(walk, condition)
    written = text(walk.source, condition)
    body_cold, else_cold = guards.cold_branches(written)
    for part, cold in ((body, body_cold), (orelse, else_cold)):
        if cold:
            _cold(walk, [part])
        else:
            visit(walk, part)


def _boolean(walk: Walk, node: Node) -> None:
    for operand in node.named_children:
        _truth(walk, operand)
        visit(walk, operand)


def _comparison(walk: Walk, node: Node) -> None:
    walk.reading.looks.add("comparison")
    _children(walk, node)


def _lambda(walk: Walk, node: Node) -> None:
    reading = walk.reading
    reading.looks.add("lambda")
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


def _string(walk: Walk, node: Node) -> None:
    if node.named_child_count <= 3 and all(c.type != "interpolation" for c in node.named_children):
        return
    for child in node.named_children:
        if child.type == "interpolation":
            walk.reading.looks.add("fstring")
            _children(walk, child)


def _keyword(walk: Walk, node: Node) -> None:
    visit(walk, node.named_children[-1])


def _splat(walk: Walk, node: Node) -> None:
    if node.named_child_count:
        _iterated(walk, node.named_children[-1])
    _children(walk, node)


def _yield(walk: Walk, node: Node) -> None:
    walk.reading.yields = True
    _children(walk, node)


def _global(walk: Walk, node: Node) -> None:
    walk.reading.globals.update(text(walk.source, name) for name in node.named_children)


# --- imports ---------------------------------------------------------------------------------------------


def _add_import(walk: Walk, name: str, target: str) -> None:
    entry = (name, target)
    if entry not in walk.facts.imports:
        walk.facts.imports.append(entry)
    if name != "*":
        walk.imports.setdefault(name, target)


def _import(walk: Walk, node: Node) -> None:
    if walk.where == "function":
        walk.reading.looks.add("import")
    for part in _parts(node):
        if part.type == "aliased_import":
            name, alias = part.named_children[0], part.named_children[-1]
            _add_import(walk, text(walk.source, alias), text(walk.source, name))
        elif part.type == "dotted_name":
            root = text(walk.source, part).partition(".")[0]
            _add_import(walk, root, root)


def _absolute(walk: Walk, written: str) -> str:
    """The dotted name that a relative import means."""
    rest = written.lstrip(".")
    up = len(written) - len(rest) - (1 if walk.is_package else 0)
    package = walk.module.split(".")
    package = package[: max(0, len(package) - up)]
    return ".".join([*package, rest] if rest else package)


def _import_from(walk: Walk, node: Node) -> None:
    if walk.where == "function":
        walk.reading.looks.add("import")
    parts = _parts(node)
    if not parts:
        return
    written = "".join(text(walk.source, parts[0]).split())
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


# --- definitions -----------------------------------------------------------------------------------------


def _decorated(walk: Walk, node: Node) -> None:
    names: list[str] = []
    definition: Node | None = None
    for part in node.named_children:
        if part.type == "decorator":
            expression = _parts(part)[0]
            called = expression.named_children[0] if expression.type == "call" else expression
            name = dotted(walk.source, called)
            names.append(name or "?")
            if name and walk.where == "function":
                _note_call(walk, name, "decorated", part)
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
    if declared is not None:
        shown = annotation_text(text(walk.source, declared), walk.imports)
        found.append(f"ann:{shown}")
        if shown in _HOST_ANNOTATIONS:
            reading.hosts.add(name)
    if default is not None:
        literal = values(walk.source, default, walk.imports)
        if literal[0] in ("int", "float", "bool", "str"):
            reading.hosts.add(name)
            if declared is None:
                found.extend(literal)
        elif literal == ["none"]:
            found.extend(["none"] if declared is not None else ["none", "unknown"])
        else:
            found.append("unknown")
    reading.param_values[name] = found or ["unknown"]


def _function_as(walk: Walk, node: Node, decorators: list[str], whole: Node) -> None:
    source = walk.source
    name_node = node.child_by_field_name("name")
    body = node.child_by_field_name("body")
    if name_node is None or body is None:
        return
    name = text(source, name_node)
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
        static = "staticmethod" in decorators
        first = fact.params[0] if fact.params and not static else ""
        reading.self_name = "" if first.startswith("*") else first
    elif reading.self_name in reading.params:
        reading.self_name = ""
    reading.looks.add(f"name:{name}")
    declared = node.child_by_field_name("return_type")
    if declared is not None:
        fact.returns = annotation(source, declared, walk.imports)
    if not is_method:
        outer.nested.add(name)
        if walk.where == "function":
            outer.looks.add("def")
            outer.bindings.setdefault(name, []).append(False)
    kept = (walk.where, walk.prefix, walk.loop)
    walk.reading, walk.where, walk.loop = reading, "function", 0
    walk.prefix = f"{fact.name}.<locals>."
    walk.facts.functions.append(fact)
    walk.readings.append(reading)
    _block(walk, body)
    walk.reading = outer
    walk.where, walk.prefix, walk.loop = kept
    settle(walk, reading, declared is not None)
    if outer.fact is not None:
        # What a nested function holds, its outer one holds too.
        outer.looks |= {token for token in reading.looks if not token.startswith("name:")}
        for token, attributes in reading.pending_self.items():
            outer.pending_self.setdefault(token, set()).update(attributes)


def _class_as(walk: Walk, node: Node, decorators: list[str], whole: Node) -> None:
    name_node = node.child_by_field_name("name")
    body = node.child_by_field_name("body")
    if name_node is None or body is None:
        return
    name = text(walk.source, name_node)
    bases: list[str] = []
    superclasses = node.child_by_field_name("superclasses")
    if superclasses is not None:
        for base in _parts(superclasses):
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
        walk.reading.bindings.setdefault(name, []).append(False)
    kept = (walk.where, walk.prefix, walk.class_, walk.loop)
    walk.where, walk.class_, walk.loop = "class", fact, 0
    walk.prefix = f"{fact.name}."
    _block(walk, body)
    walk.where, walk.prefix, walk.class_, walk.loop = kept


# --- when a function, or the file, has been read ---------------------------------------------------------


def _may_be_tensor(walk: Walk, reading: Reading, name: str, token: str, seen: set[str]) -> bool:
    """Whether a name may stand for a tensor, by all that is bound to it in the function."""
    if name in seen or name == reading.self_name:
        return False
    seen.add(name)
    bound = reading.bindings.get(name)
    if bound is None:
        if name in reading.params:
            return name not in reading.hosts
        return not name.isupper()
    if name in reading.params and name not in reading.hosts:
        return True
    for value in bound:
        if isinstance(value, bool):
            if value:
                return True
            continue
        names: set[str] = set()
        attributes: set[str] = set()
        if _doubt(walk, value, names, attributes):
            return True
        if any(_may_be_tensor(walk, reading, other, token, seen) for other in names):
            return True
        if attributes:
            reading.pending_self.setdefault(token, set()).update(attributes)
    return False


def settle(walk: Walk, reading: Reading, declared: bool) -> None:
    """Decides what could not be decided before the whole function was read."""
    fact = reading.fact
    assert fact is not None
    outer, walk.reading = walk.reading, reading
    for token, names in reading.pending.items():
        if token not in reading.looks:
            seen: set[str] = set()
            if any(_may_be_tensor(walk, reading, name, token, seen) for name in sorted(names)):
                reading.looks.add(token)
    fact.tensors = _tensors(reading)
    fact.yields = reading.yields
    fact.training_loop = reading.backward and reading.step
    fact.returns_function = any(
        (how == "returned" and name in reading.nested) for name, how in reading.calls
    ) or any(node is not None and node.type == "lambda" for node in reading.returns)
    if not declared and not reading.yields:
        fact.returns = _agreed_return(walk, reading)
    walk.reading = outer
    _keep_calls(walk, reading)


def _tensors(reading: Reading) -> list[str]:
    """The names that the function uses as only a tensor can be used."""
    found = []
    for name in reading.tensor_uses:
        if (
            name in reading.tested
            or name in (reading.self_name, "self", "cls")
            or name in reading.hosts
        ):
            continue
        if any(part in words.NOT_RECEIVERS for part in name.lower().split("_")):
            continue
        bound = reading.bindings.get(name)
        if name not in reading.params and (bound is None or len(bound) != 1 or bound[0] is False):
            continue
        found.append(name)
    return sorted(found)


def _agreed_return(walk: Walk, reading: Reading) -> Value:
    agreed: list[Value] = []
    for node in reading.returns:
        new = ["none"] if node is None else _local_values(walk, node)
        if new == ["unknown"] or len(new) > 1:
            return "unknown"
        agreed.extend(v for v in new if v not in agreed)
        if len(agreed) > 1:
            return "unknown"
    if not agreed:
        return "none"
    return agreed[0]


def _binding_values(walk: Walk, reading: Reading, name: str) -> list[Value]:
    """What a local at the root of a call may stand for, where that can lead to a function."""
    found: list[Value] = []
    bound = reading.bindings.get(name)
    if bound is None:
        return [v for v in reading.param_values.get(name, ()) if v.startswith("ann:")]
    local = (
        frozenset(reading.params | reading.bindings.keys()) - reading.nested - {reading.self_name}
    )
    for value in bound:
        if isinstance(value, bool):
            continue
        if value.type == "call":
            arguments = value.named_children[-1].named_children
            callee = resolved(dotted(walk.source, value.named_children[0]), walk.imports)
            if callee in ("functools.partial", "torch.compile") and arguments:
                value = arguments[0]
        for word in values(walk.source, value, walk.imports, local):
            if word.startswith(("call:", "name:")) and word not in found:
                found.append(word)
    return found[:4]


def _keep_calls(walk: Walk, reading: Reading) -> None:
    """Keeps of all calls, reads and names passed on those that can lead to a function of the project."""
    fact = reading.fact
    assert fact is not None
    kept: list[CallFact] = []
    own_package = walk.module.partition(".")[0]
    for (name, how), call in reading.calls.items():
        root, dot, rest = name.partition(".")
        if how == "returned":
            if root in reading.nested:
                kept.append(call)
            continue
        if _leads_on(walk, reading, root, rest.rpartition(".")[2] if dot else "", own_package):
            kept.append(call)
    called = {call.name for call in kept}
    for name, call in reading.passed.items():
        root, dot, _ = name.partition(".")
        if root == reading.self_name or root in reading.nested:
            kept.append(call)
        elif root in reading.params or root in reading.bindings:
            if not dot and _binding_values(walk, reading, root):
                fact.locals[root] = _binding_values(walk, reading, root)
                kept.append(call)
        elif (root in walk.imports and walk.imports[root].partition(".")[0] not in words.EXTERNAL) or (root not in walk.imports and root not in words.BUILTINS):
            kept.append(call)
    for name, call in reading.reads.items():
        if name not in called and (name not in reading.passed):
            kept.append(call)
    kept.extend(reading.hooks)
    fact.calls = kept


def _leads_on(walk: Walk, reading: Reading, root: str, last: str, own_package: str) -> bool:
    fact = reading.fact
    assert fact is not None
    if root in ("super()", reading.self_name) or root in reading.nested:
        return True
    if root in reading.params or root in reading.bindings:
        bound = _binding_values(walk, reading, root)
        if bound:
            fact.locals[root] = bound
            return True
        return len(last) > 8 and "_" in last.strip("_")
    target = walk.imports.get(root)
    if target is not None:
        top = target.partition(".")[0]
        return top == own_package or top not in words.EXTERNAL
    return True


def finish(walk: Walk) -> FileFacts:
    """The facts of the file, when all of it has been walked."""
    facts = walk.facts
    own = (
        set(walk.reading.nested)
        | set(facts.assigns)
        | {c.name for c in facts.classes}
        | set(walk.imports)
    )
    methods: dict[str, set[str]] = {}
    for function in facts.functions:
        owner, _, name = function.name.rpartition(".")
        methods.setdefault(owner, set()).add(name)
    has_torch = any(target.partition(".")[0] == "torch" for target in walk.imports.values())
    has_torch = has_torch or any(
        n == "*" and t.partition(".")[0] == "torch" for n, t in facts.imports
    )
    for reading in walk.readings:
        fact = reading.fact
        assert fact is not None
        if not has_torch:
            fact.tensors = []
        stars = any(name == "*" for name, _ in facts.imports)
        attributes = reading.owner.attrs if reading.owner is not None else {}
        defined = methods.get(reading.owner.name, set()) if reading.owner is not None else set()
        prefix = f"{reading.self_name}."
        kept: list[CallFact] = []
        for call in fact.calls:
            root = call.name.partition(".")[0]
            if call.how == "hook":
                kept.append(call)
                continue
            if (
                root in words.BUILTINS
                and root not in own
                and root not in reading.nested
                and not stars
            ):
                continue
            if call.how in ("read", "passed") and call.name.startswith(prefix):
                attribute = call.name[len(prefix) :].partition(".")[0]
                if attribute in attributes and attribute not in defined:
                    continue
            kept.append(call)
        fact.calls = kept
        for token, names in reading.pending_self.items():
            if token not in reading.looks and any(
                _tensor_attribute(attributes, n, token) for n in names
            ):
                reading.looks.add(token)
        fact.looks = sorted(reading.looks)
    return facts


def _tensor_attribute(attributes: dict[str, list[Value]], name: str, token: str) -> bool:
    """Whether an attribute of self may be a tensor (or, where it is sliced, a list of modules)."""
    for value in attributes.get(name, ()):
        if value in ("param", "buffer"):
            return True
        if value.startswith("ann:") and "Tensor" in value:
            return True
        if value.startswith("call:torch."):
            if token == "subscript":
                return True
            if not value.startswith(("call:torch.nn.", "call:torch.device", "call:torch.jit")):
                return True
        if value.startswith("call:") and token == "subscript" and "ModuleList" in value:
            return True
    return False


def _skip(walk: Walk, node: Node) -> None:
    """Nothing in it runs, or nothing in it is looked for."""


_HANDLERS: dict[str, Handler] = {
    "assert_statement": _assert,
    "assignment": _assignment,
    "attribute": _attribute,
    "augmented_assignment": _augmented,
    "block": _block,
    "boolean_operator": _boolean,
    "call": _call,
    "class_definition": _class,
    "comparison_operator": _comparison,
    "conditional_expression": _conditional,
    "decorated_definition": _decorated,
    "dictionary_comprehension": _comprehension,
    "elif_clause": _elif,
    "for_statement": _for,
    "function_definition": _function,
    "generator_expression": _comprehension,
    "global_statement": _global,
    "if_statement": _if,
    "import_from_statement": _import_from,
    "import_statement": _import,
    "keyword_argument": _keyword,
    "lambda": _lambda,
    "list_comprehension": _comprehension,
    "list_splat": _splat,
    "module": _block,
    "named_expression": _named_expression,
    "not_operator": _boolean,
    "raise_statement": _raise,
    "return_statement": _return,
    "set_comprehension": _comprehension,
    "string": _string,
    "subscript": _subscript,
    "try_statement": _try,
    "while_statement": _while,
    "with_item": _with_item,
    "with_statement": _with,
    "yield": _yield,
}
_SKIPPED = frozenset(
    """identifier ellipsis integer float true false none comment line_continuation string_start string_end
    escape_sequence string_content type_conversion type future_import_statement pass_statement break_statement
    continue_statement nonlocal_statement type_alias_statement type_parameter dotted_name import_prefix
    parameters lambda_parameters""".split()
)


def _table() -> list[Handler | None]:
    table: list[Handler | None] = []
    for kind in range(LANGUAGE.node_kind_count):
        name = LANGUAGE.node_kind_for_id(kind) or ""
        if name in _SKIPPED or not LANGUAGE.node_kind_is_named(kind):
            table.append(None)
        else:
            table.append(_HANDLERS.get(name, _children))
    return table


_TABLE: Final = _table()
