"""Where the scout is in a file, and what it has gathered: of the function, the class and the file
it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from tree_sitter import Node

from pytest_dispatchguard.lint.facts import CallFact, ClassFact, FileFacts, FunctionFact, Value
from pytest_dispatchguard.lint.scout.values import (
    dotted,
    resolved,
    table_read,
    text,
    values,
    word_of_all,
)


class Hinges:
    """What it hinges on whether an expression is a tensor: one of these has to be one."""

    __slots__ = ("attributes", "calls", "names", "receivers")

    def __init__(self) -> None:
        self.names: set[str] = set()
        """Of the function or the module."""
        self.receivers: set[str] = set()
        """Names whose methods are called."""
        self.attributes: set[str] = set()
        """Of self."""
        self.calls: set[str] = set()
        """Calls that may lead to the project's own functions, as `Brief.callees` names them."""


class Reading:
    """A function (or the module's own level) while it is being read."""

    __slots__ = (
        "arguments",
        "backward",
        "binding_memo",
        "bindings",
        "calls",
        "capturing",
        "declared",
        "document",
        "documented",
        "fact",
        "globals",
        "hooks",
        "hosts",
        "known_locals",
        "looks",
        "nested",
        "no_tensors",
        "outer",
        "owner",
        "pairs",
        "param_values",
        "params",
        "passed",
        "pending",
        "reads",
        "removes",
        "returns",
        "rounds",
        "self_name",
        "step",
        "step_rounds",
        "taken",
        "tensor_uses",
        "tested",
        "tested_open",
        "trains",
        "yields",
    )  # fmt: skip

    def __init__(self, fact: FunctionFact | None, owner: ClassFact | None, self_name: str) -> None:
        self.fact = fact
        self.owner = owner
        self.self_name = self_name
        self.params: set[str] = set()
        self.outer: Reading | None = None
        """Of the function around it."""
        self.param_values: dict[str, list[Value]] = {}
        self.hosts: set[str] = set()
        self.no_tensors: set[str] = set()
        """What has methods that tensors have not: arrays, tables and lists."""
        self.bindings: dict[str, list[Node | bool]] = {}
        """Of each local: the expressions bound to it; True for an unknown value, False for a host
        value."""
        self.taken: dict[str, list[Node]] = {}
        """Of locals that hold a part of something, taken by unpacking or by a loop: of what, in order."""
        self.looks: set[str] = set()
        self.calls: dict[tuple[str, str], CallFact] = {}
        self.arguments: dict[str, list[Node]] = {}
        """Of each name called: the lists of arguments."""
        self.passed: dict[str, CallFact] = {}
        self.reads: dict[str, CallFact] = {}
        self.pending: dict[str, Hinges] = {}
        """Token to what it hinges on whether it counts."""
        self.declared: set[str] = set()
        """The locals with an annotation."""
        self.tested: set[str] = set()
        """The names of which the function asks what they are."""
        self.tested_open: set[str] = set()
        """Those of which it does not only ask whether they are plain values or containers of Python."""
        self.tensor_uses: set[str] = set()
        self.pairs: set[tuple[str, str]] = set()
        """Names, and those of `words.TENSOR_PAIR` that they were asked for."""
        self.nested: set[str] = set()
        self.capturing: set[str] = set()
        """The functions defined in it that need something of it."""
        self.globals: set[str] = set()
        self.hooks: list[CallFact] = []
        self.removes = False
        """Whether it takes its hooks away again: they measure or record something once."""
        self.binding_memo: dict[str, list[Value]] = {}
        self.known_locals: frozenset[str] | None = None
        self.returns: list[Node | None] = []
        self.yields = False
        self.document = ""
        self.documented: frozenset[str] | None = None
        """The parameters that it says are tensors, once somebody has asked."""
        self.backward = False
        self.step = False
        self.trains: set[str] = set()
        """Which of `backward` and an optimizer's `step` it calls, in a loop or not."""
        self.step_rounds: dict[tuple[int, ...], set[str]] = {}
        """The loops whose rounds are steps of a training."""
        self.rounds: dict[tuple[str, str], set[tuple[int, ...]]] = {}
        """Of each call in a loop: the loops around it, outermost first."""

    def hinges(self, token: str) -> Hinges:
        """What a token hinges on, to be added to."""
        known = self.pending.get(token)
        if known is None:
            known = self.pending[token] = Hinges()
        return known


class Walk:
    """Where the walk is, and what it has gathered of the file."""

    __slots__ = (
        "asks_devices", "class_", "cold", "done", "early_exit", "facts", "foreign", "imports", "is_package",
        "loop", "marks", "module", "operations", "prefix", "reading", "readings", "rounds", "source", "star",
        "table", "tables", "tensors_here", "torch_names", "under", "uneven", "where",
    )  # fmt: skip

    def __init__(
        self,
        source: bytes,
        module: str,
        is_package: bool,
        marks: dict[int, str],
        tables: Tables,
        cold: Callable[[str], bool],
    ) -> None:
        self.tables = tables
        self.table = tables.hot
        self.cold = cold
        """Whether functions of a name are cold, whatever calls them."""
        self.source = source
        self.module = module
        self.is_package = is_package
        self.marks = marks
        self.facts = FileFacts()
        self.imports: dict[str, str] = {}
        self.torch_names: set[str] = set()
        """The names of `imports` that stand for something of torch, perhaps under a condition."""
        self.star = False
        """Whether all names of some module are imported, whatever they are."""
        self.reading = Reading(None, None, "")
        self.readings: list[Reading] = []
        self.operations: set[str] = set()
        """The functions that are registered as operations by a call, not by a decorator."""
        self.class_: ClassFact | None = None
        self.prefix = ""
        self.where = "module"
        self.loop = 0
        self.rounds: tuple[int, ...] = ()
        """The loops around, as statements, outermost first."""
        self.early_exit: tuple[str, set[str]] | None = None
        self.done: frozenset[str] = frozenset()
        """What is set to True right after the `if` at hand."""
        self.foreign = False
        self.uneven = False
        self.tensors_here = b"torch" in source or b"cpu" in source
        """Whether the file says where tensors are."""
        self.asks_devices = (
            b".is_cuda" in source or b".device.type" in source or b".is_cpu" in source
        )
        self.under: tuple[str, ...] = ()
        """The conditions on parameters with defaults around the place, as in `CallFact`."""


Handler = Callable[[Walk, Node], None]


class Tables(NamedTuple):
    """The handler of each kind of node, by the kind's number."""

    hot: list[Handler | None]
    cold: list[Handler | None]
    """For functions that are cold."""
    script: list[Handler | None]
    """For what a module does itself, where its definitions and imports have been read."""


def visit(walk: Walk, node: Node) -> None:
    """Hands a node to its handler."""
    handler = walk.table[node.kind_id]
    if handler is not None:
        handler(walk, node)


def visit_children(walk: Walk, node: Node) -> None:
    """Hands the named children of a node to their handlers."""
    table = walk.table
    for child in node.named_children:
        handler = table[child.kind_id]
        if handler is not None:
            handler(walk, child)


def parts_of(node: Node) -> list[Node]:
    """The named children, comments apart."""
    return [c for c in node.named_children if not c.is_extra]


def visit_cold(walk: Walk, nodes: Iterable[Node]) -> None:
    """Reads what lies in a cold region: definitions and attributes count, calls and looks do
    not."""
    reading = walk.reading
    kept = (
        reading.looks,
        reading.calls,
        reading.passed,
        reading.reads,
        reading.pending,
    )
    reading.looks, reading.calls, reading.passed, reading.reads = set(), {}, {}, {}
    reading.pending = {}
    for node in nodes:
        visit(walk, node)
    (
        reading.looks,
        reading.calls,
        reading.passed,
        reading.reads,
        reading.pending,
    ) = kept


def is_self_attribute(walk: Walk, node: Node) -> bool:
    """Whether an attribute is one of the method's own object."""
    owner = node.named_children[0]
    return owner.type == "identifier" and text(walk.source, owner) == walk.reading.self_name


def note(table: dict[str, CallFact], name: str, how: str, node: Node, loop: bool) -> None:
    """Notes a name passed on or read; in a loop, if it ever is."""
    known = table.get(name)
    if known is None:
        table[name] = CallFact(name, node.start_point[0] + 1, loop, how)
    elif loop:
        known.loop = True


def note_call(walk: Walk, name: str, how: str, node: Node) -> None:
    """Notes a call of the function being read."""
    calls = walk.reading.calls
    known = calls.get((name, how))
    if known is None:
        known = CallFact(name, node.start_point[0] + 1, walk.loop > 0, how, [], list(walk.under))
        calls[name, how] = known
    else:
        if walk.loop:
            known.loop = True
        if known.under:
            known.under = [condition for condition in known.under if condition in walk.under]
    if walk.rounds:
        walk.reading.rounds.setdefault((name, how), set()).add(walk.rounds)


def add_values(table: dict[str, list[Value]], name: str, new: list[Value]) -> None:
    """Adds values to those known of a name, each once."""
    known = table.setdefault(name, [])
    for value in new:
        if value not in known:
            known.append(value)


def local_values(walk: Walk, node: Node) -> list[Value]:
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
            node = only
    local = frozenset(reading.params | reading.bindings.keys())
    return values(walk.source, node, walk.imports, local, partial(_held, reading))


def _held(reading: Reading, name: str) -> Node | Value:
    """The only expression that a local was given, or the word for all that an attribute of self was."""
    owner, dot, attribute = name.rpartition(".")
    if dot:
        of_self = reading.owner is not None and owner == reading.self_name
        return (
            word_of_all(reading.owner.attrs.get(attribute, ())) if reading.owner and of_self else ""
        )
    bound = reading.bindings.get(name, ())
    only = bound[0] if len(bound) == 1 else ""
    return "" if isinstance(only, bool) else only


def _is_a_table(walk: Walk, node: Node) -> bool:
    """Whether a name of the file stands for a dict that is written down: what else has `get`, may give
    anything."""
    return "dict" in walk.facts.assigns.get(text(walk.source, node), ())


_NAMES_FUNCTIONS = frozenset(
    "await attribute boolean_operator call conditional_expression identifier".split()
)
"""Kinds of expressions that may be a function, or an object that is called."""


def binding_values(walk: Walk, reading: Reading, name: str) -> list[Value]:
    """What a local at the root of a call may stand for, where that can lead to a function. For functions that
    have been read to the end."""
    known = reading.binding_memo.get(name)
    if known is not None:
        return known
    found: list[Value] = []
    reading.binding_memo[name] = found
    bound = reading.bindings.get(name)
    if bound is None:
        found.extend(v for v in reading.param_values.get(name, ()) if v.startswith("ann:"))
        return found
    for value in bound:
        if isinstance(value, bool):
            continue
        table = table_read(walk.source, value)
        if table is not None and (value.type == "subscript" or _is_a_table(walk, table)):
            value = table
        kind = value.type
        if kind not in _NAMES_FUNCTIONS and kind != "dictionary":
            continue
        if kind == "call":
            callee = resolved(dotted(walk.source, value.named_children[0]), walk.imports)
            if callee in ("functools.partial", "torch.compile"):
                arguments = value.named_children[-1].named_children
                value = arguments[0] if arguments else value
        if reading.known_locals is None:
            names = reading.params | reading.bindings.keys()
            reading.known_locals = frozenset(names) - reading.nested - {reading.self_name}
        if kind == "dictionary":  # a table of functions, one of which is called
            words = values(walk.source, value, walk.imports, reading.known_locals)
            found += [f"name:{word[5:]}" for word in words if word.startswith("item:")]
            continue
        for word in values(walk.source, value, walk.imports, reading.known_locals):
            if word.startswith(("call:", "name:")) and word not in found and len(found) < 4:
                found.append(word)
    return found
