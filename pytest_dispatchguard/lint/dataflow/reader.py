"""The state of the analysis of one function.

The reader is a small abstract interpreter over libcst nodes: it runs through a function once, knows at each
point what the names stand for, and notes the kind of every expression and the places that rules may ask for.
How each type of node is read is said in the modules beside this one.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import libcst as cst

from pytest_dispatchguard.lint.dataflow.scene import Event, Scene, Seen
from pytest_dispatchguard.lint.facts import Brief, ClassBrief
from pytest_dispatchguard.lint.kinds.annotations import annotation_kind
from pytest_dispatchguard.lint.kinds.classes import inherited_kind
from pytest_dispatchguard.lint.kinds.fact_values import values_kind
from pytest_dispatchguard.lint.kinds.kinds import TENSOR, UNKNOWN, Kind, element_of, join
from pytest_dispatchguard.lint.knowledge.tensor_words import TENSOR_NAMES
from pytest_dispatchguard.lint.syntax.spelling import dotted, text

_BUILTINS = frozenset(dir(builtins))
Handler = Callable[["Reader", Any], Any]
"""How one type of node is read."""
CPU_NAME = re.compile(r"[a-z0-9]_(?:host|cpu)$|(?:^|\.)(?:cpu|host)_[a-z]\w*$")
"""Names that say that they hold a CPU tensor."""


class Moves(NamedTuple):
    """What a function moves to a device."""

    later: frozenset[str]
    """The names whose values it moves, or what it computes from them: they are somewhere until then."""
    plain: frozenset[str]
    """The names that it moves themselves: `x` of `x.to(device)`."""


NOTHING_MOVES = Moves(frozenset(), frozenset())


@dataclass(slots=True)
class Names:
    """What the names of a scope stand for at one point."""

    kinds: dict[str, Kind] = field(default_factory=dict)
    values: dict[str, cst.BaseExpression] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)

    def copy(self) -> Names:
        """The same names, to be changed separately."""
        return Names(dict(self.kinds), dict(self.values), dict(self.imports))


def merged(a: Names, b: Names) -> Names:
    """What names stand for where two branches meet."""
    kinds: dict[str, Kind] = {}
    for name in a.kinds.keys() | b.kinds.keys():
        left, right = a.kinds.get(name), b.kinds.get(name)
        if left is None or right is None:
            # An attribute that one branch alone knows about may hold anything after the other.
            if "." not in name:
                kinds[name] = left or right or UNKNOWN
        else:
            kinds[name] = join(left, right)
    values = {n: v for n, v in a.values.items() if b.values.get(n) is v}
    return Names(kinds, values, {**a.imports, **b.imports})


class Reader:
    """Reads one outermost function, with the functions inside it; made by `statements.read_function`."""

    def __init__(
        self,
        brief: Brief,
        qualname: str,
        tensor_types: tuple[str, ...],
        expressions: Mapping[type, Handler],
        moves: Moves = NOTHING_MOVES,
    ) -> None:
        self.brief = brief
        self.moves = moves
        self._expressions = expressions
        self.tensor_types = tensor_types
        self.class_name = qualname.rpartition(".")[0] if "." in qualname else ""
        self.cls: ClassBrief | None = brief.classes.get(self.class_name)
        self.kinds: dict[int, Kind] = {}
        self.values: dict[int, cst.BaseExpression] = {}
        self.parents: dict[int, cst.CSTNode] = {}
        self.dotted_names: dict[int, str] = {}
        self.events: list[Seen] = []
        self.self_name = ""
        self.names = Names()
        self.assigned: dict[str, int] = {}
        self.last_values: dict[str, cst.BaseExpression | None] = {}
        """The value that each name was given last, in the order of the text."""
        self.held: dict[str, set[str]] = {}
        """The dotted names that ever stood for something, by their first part."""
        self.set_to_none: set[str] = set()
        """Names that were given None anywhere so far."""
        self.bound: dict[str, list[cst.BaseExpression]] = {}
        """All values that each name was given."""
        self.moved: list[cst.BaseExpression] = []
        """What is moved to a device (see `moves`)."""
        self.used: dict[str, int] = {}
        self.scene: Scene
        self.known_tensors: frozenset[str] = frozenset()
        self.rehearsing = False
        """A loop's body is being read for what its names hold when the second round begins."""
        self.literals: dict[str, list[str]] = {}
        """Parameters to which hot callers pass these literals only, until something else is bound to them."""
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.failing: set[int] = set()
        """Statements of functions, by id, from which on these get to a `raise` at their end."""
        self.reading_callees = {key for key, callee in brief.callees.items() if callee.reads}
        """Keys of helpers that read values of the tensors they are given."""
        self.memo: dict[object, Any] = {}
        """Answers that rules compute once for the whole function (see `Place.once`)."""

    def annotation(self, node: cst.BaseExpression) -> Kind:
        """The kind that an annotation promises."""
        source = text(node)
        if source[:1] in "\"'":
            source = source.strip("\"'")
        return self.instance(annotation_kind(self._resolve_words(source), self.tensor_types))

    def _resolve_words(self, source: str) -> str:
        out, word = [], ""
        for c in source + " ":
            if c.isalnum() or c in "_.":
                word += c
            else:
                if word:
                    out.append(self._expand(word))
                    word = ""
                out.append(c)
        return "".join(out).strip()

    def _expand(self, name: str) -> str:
        head, dot, rest = name.partition(".")
        target = self.names.imports.get(head)
        if target is None:
            known = self.brief.names.get(head)
            target = known[0] if known else head
        return target + dot + rest

    def bind(
        self, target: cst.BaseExpression, kind: Kind, value: cst.BaseExpression | None
    ) -> None:
        """Give a new value to what stands on the left of an assignment."""
        if type(target) is cst.Name:
            self.bind_name(target.value, kind, value)
            self.kinds[id(target)] = kind
        elif type(target) is cst.Attribute:
            name = dotted(target)
            if name:
                self.bind_name(name, kind, value)
        elif isinstance(target, cst.Tuple | cst.List):
            elements = target.elements
            starred = any(type(e) is cst.StarredElement for e in elements)
            exact = (
                kind.what == "nested"
                and kind.items is not None
                and not starred
                and len(kind.items) == len(elements)
            )
            parts = (
                value.elements
                if type(value) is cst.Tuple and len(value.elements) == len(elements)
                else None
            )
            if kind.what == "tensor" and value is not None:
                self.emit("iterate", value)
            for i, element in enumerate(elements):
                if type(element) is cst.StarredElement:
                    self.bind(element.value, Kind("nested", element=element_of(kind)), None)
                    continue
                part = kind.items[i] if exact and kind.items else element_of(kind)
                self.bind(element.value, part, parts[i].value if parts else None)

    def hold(self, name: str, kind: Kind) -> None:
        """Say what a plain or dotted name stands for from here on."""
        self.names.kinds[name] = kind
        head, dot, _ = name.partition(".")
        if dot:
            self.held.setdefault(head, set()).add(name)

    def bind_name(self, name: str, kind: Kind, value: cst.BaseExpression | None = None) -> None:
        """Give a new value to a plain or dotted name."""
        held = self.held.get(name.partition(".")[0])
        if held:
            prefix = name + "."
            for key in held:
                if key.startswith(prefix):
                    self.names.kinds.pop(key, None)
                    self.names.values.pop(key, None)
        if kind.what in ("tensor", "unknown") and not kind.cls and CPU_NAME.search(name):
            kind = Kind("tensor", sure=kind.what == "tensor" and kind.sure, host=True)
        self.hold(name, kind)
        self.names.imports.pop(name, None)
        if not (
            _is_cast_of(value, name) and all(map(_NUMBER.fullmatch, self.literals.get(name, ())))
        ):
            self.literals.pop(name, None)
        self.assigned[name] = self.assigned.get(name, 0) + 1
        self.last_values[name] = value
        if type(value) is cst.Name and value.value == "None":
            self.set_to_none.add(name)
        if value is not None:
            self.names.values[name] = value
            self.bound.setdefault(name, []).append(value)
        else:
            self.names.values.pop(name, None)

    def resolve(self, node: cst.CSTNode) -> str | None:
        """The dotted name that a chain of names and attributes stands for: `F.relu` is
        ``torch.nn.functional.relu``; None when its head is a local value."""
        name = dotted(node)
        if name is None:
            return None
        head, dot, rest = name.partition(".")
        if head == self.self_name and head:
            return "self" + dot + rest
        if head in self.names.imports:
            return self.names.imports[head] + dot + rest
        if head in self.names.kinds:
            return None
        known = self.brief.names.get(head)
        if known:
            return known[0] + dot + rest
        if head in _BUILTINS:
            return name
        return None

    def lookup(self, name: str) -> Kind:
        """The kind of a dotted name at this point."""
        known = self.names.kinds.get(name)
        if known is not None and (known.what != "unknown" or known.cls):
            if not known.sure and name in self.known_tensors:
                return replace(known, sure=True)
            if name not in self.known_tensors or not _of_a_function(known):
                return known
        if name in self.known_tensors:
            return replace(TENSOR, optional=known.optional if known else False)
        if known is not None:
            return replace(TENSOR, optional=known.optional) if _names_a_tensor(name) else known
        head, _, rest = name.partition(".")
        if head == self.self_name and rest and "." not in rest and self.cls is not None:
            values = self.cls.attrs.get(rest)
            if values:
                return self.instance(values_kind(tuple(values), self.tensor_types))
            return inherited_kind(rest, tuple(self.cls.ancestors))
        if not rest and name in self.brief.globals and name not in self.names.imports:
            return self.instance(values_kind(tuple(self.brief.globals[name]), self.tensor_types))
        return TENSOR if _names_a_tensor(name) else UNKNOWN

    def instance(self, kind: Kind) -> Kind:
        """The same, where the class of a value is known: a module, if that is one."""
        is_module = kind.what == "unknown" and kind.cls in self.brief.modules
        return replace(kind, what="module") if is_module else kind

    def read(self, node: cst.BaseExpression, parent: cst.CSTNode | None = None) -> Kind:
        """Read an expression: note its kind and its parent, and emit events for what it holds."""
        handler = self._expressions.get(type(node))
        kind: Kind = handler(self, node) if handler is not None else UNKNOWN
        self.kinds[id(node)] = kind
        if parent is not None:
            self.parents[id(node)] = parent
        return kind

    def callee_key(self, func: cst.BaseExpression) -> str:
        """The key of a callee in the brief."""
        name = dotted(func) or ""
        if self.self_name and name.startswith(self.self_name + "."):
            return f"{self.class_name}.self.{name[len(self.self_name) + 1 :]}"
        if name.partition(".")[0] in self.names.kinds:
            local = f"{self.scene.qualname}.{name}"
            return local if local in self.brief.callees else name
        return name

    def emit(self, event: Event, node: cst.CSTNode, name: str = "") -> None:
        """Note a node that rules may ask for, where it stands."""
        self.events.append(Seen(event, node, self.scene, name))


def _names_a_tensor(name: str) -> bool:
    """Whether a name is one of tensors alone."""
    return "len" in name and TENSOR_NAMES.fullmatch(name.rpartition(".")[2]) is not None


def _of_a_function(kind: Kind) -> bool:
    """Whether nothing is known of a value but the function that gave it, by how that is written."""
    last = kind.cls.rpartition(".")[2].lstrip("_")
    return kind.what == "unknown" and last[:1].islower()


_NUMBER = re.compile(r"[-+]?\d[\d_.]*(?:e[-+]?\d+)?", re.IGNORECASE)


def _is_cast_of(value: cst.BaseExpression | None, name: str) -> bool:
    """Whether a value is ``float(name)``: a number compares as before."""
    return (
        isinstance(value, cst.Call)
        and isinstance(value.func, cst.Name)
        and value.func.value == "float"
        and len(value.args) == 1
        and isinstance(value.args[0].value, cst.Name)
        and value.args[0].value.value == name
    )
