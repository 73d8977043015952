"""Reads one function in the order in which it runs: what every expression can be, and where rules may look.

The reader is a small abstract interpreter over libcst nodes. It follows assignments, narrowing and early
returns, knows which regions are cold, and lists the places (events) that rules ask for.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

import libcst as cst

from pytest_dispatchguard.lint.callgraph import constant_conditions
from pytest_dispatchguard.lint.facts import Brief, ClassBrief
from pytest_dispatchguard.lint.kinds import signatures
from pytest_dispatchguard.lint.kinds.events import Event
from pytest_dispatchguard.lint.kinds.kinds import (
    DICT,
    EMPTY,
    EMPTY_DICT,
    FUNCTION,
    MODULE,
    NONE,
    OTHER,
    SCALAR,
    TENSOR,
    TEXT,
    UNKNOWN,
    Kind,
    filled,
    join,
)
from pytest_dispatchguard.lint.kinds.recorded_types import with_recorded_types
from pytest_dispatchguard.lint.knowledge import cold_branches
from pytest_dispatchguard.lint.syntax.positions import source_of

_NEEDS_TEXT = signatures.FACTORIES | signatures.LIKE | {"device", "to", "type"}
_ITERATING = frozenset(
    {
        "list",
        "tuple",
        "set",
        "sorted",
        "enumerate",
        "zip",
        "sum",
        "max",
        "min",
        "any",
        "all",
        "reversed",
        "map",
    }
)
_BUILTINS = frozenset(dir(builtins))


_NO_TENSOR_NAME = re.compile(
    r"(?:^|_)(?:shape|shapes|size|sizes)(?:_|$)|^(?:use|is|do|has|return)_|^output_(?:attentions|hidden_states)$"
)
_PUTS_IN = frozenset({"append", "appendleft", "add"})
"""Methods that put what they are given into a list or set."""
_GATHERS_OBJECTS = frozenset({"all_gather_object", "gather_object", "broadcast_object_list"})
"""They fill the list that they are given with what other processes have."""
_HOST_NAME = re.compile(r"[a-z0-9]_(?:host|cpu)$|(?:^|\.)(?:cpu|host)_[a-z]\w*$")
"""Names that say that what they hold is on the CPU."""


def text(node: cst.CSTNode) -> str:
    """The source of a node."""
    if type(node) is cst.Name and not node.lpar:
        return node.value
    return source_of(node).strip()


def dotted(node: cst.CSTNode) -> str | None:
    """``a.b.c`` for a chain of names and attributes, None for anything else."""
    parts: list[str] = []
    # Exact types, as libcst makes them: `isinstance` with abstract base classes is slow, and this is asked
    # of every expression.
    if type(node) is cst.Name:
        return node.value
    while type(node) is cst.Attribute:
        parts.append(node.attr.value)
        node = node.value
    if type(node) is cst.Name:
        parts.append(node.value)
    elif type(node) is cst.Call and type(node.func) is cst.Name and node.func.value == "super":
        parts.append("super()")
    else:
        return None
    parts.reverse()
    return ".".join(parts)


@dataclass(frozen=True, slots=True)
class Scene:
    """What surrounds a place."""

    function: cst.FunctionDef
    qualname: str
    statement: cst.CSTNode
    loops: tuple[cst.CSTNode, ...] = ()
    """For and while statements and comprehensions around it in its own function, outermost first."""
    cold: bool = False
    conditions: tuple[tuple[cst.BaseExpression, bool], ...] = ()
    """Conditions of the enclosing ifs, and whether the place is where they hold."""
    withs: tuple[cst.With, ...] = ()
    tries: tuple[cst.Try | cst.TryStar, ...] = ()
    block: tuple[cst.CSTNode, ...] = ()
    """The statements of the block that holds the statement."""
    deferred: bool = False
    """Inside a lambda."""

    def at(self, statement: cst.CSTNode, block: tuple[cst.CSTNode, ...]) -> Scene:
        """The same surroundings at a statement of a block."""
        return Scene(
            self.function, self.qualname, statement, self.loops, self.cold, self.conditions, self.withs,
            self.tries, block, self.deferred,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """One event: a node that a rule may ask for."""

    event: Event
    node: cst.CSTNode
    scene: Scene
    name: str = ""


@dataclass(slots=True)
class Names:
    """What the names of a scope stand for, at one point."""

    kinds: dict[str, Kind] = field(default_factory=dict)
    values: dict[str, cst.BaseExpression] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)

    def copy(self) -> Names:
        """The same names, to be changed on their own."""
        return Names(dict(self.kinds), dict(self.values), dict(self.imports))


class Reader:
    """Reads one outermost function (with the functions inside it) for one file's brief."""

    def __init__(self, brief: Brief, qualname: str, tensor_types: tuple[str, ...] = ()) -> None:
        self.brief = brief
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
        self._bound_last: dict[str, cst.BaseExpression | None] = {}
        """What names of the function were given last, in the order of the text."""
        self._emptied: set[str] = set()
        """Names that were given None at some time."""
        self.used: dict[str, int] = {}
        self.scene: Scene
        self.qualname = qualname
        self._known: frozenset[str] = frozenset()
        self._unseen = False
        self._given: dict[str, list[str]] = {}
        """Parameters that hold one of a few literals, until something is bound to them."""
        self.globals: set[str] = set()
        self._readers = {key for key, callee in brief.callees.items() if callee.reads}
        """Calls of helpers that read what they are given."""
        self.memo: dict[object, Any] = {}
        """What rules compute once for the whole function."""

    # -- functions ---------------------------------------------------------------------------

    def read(self, function: cst.FunctionDef) -> None:
        """Reads the function and all inside it."""
        self.scene = Scene(function, self.qualname, function)
        decorators = {dotted(d.decorator) for d in function.decorators}
        params = [*function.params.posonly_params, *function.params.params]
        if self.class_name and params and "staticmethod" not in decorators:
            self.self_name = params[0].name.value
        self._function(function, self.qualname)

    def _function(self, function: cst.FunctionDef, qualname: str) -> None:
        hot = self.brief.hot.get(qualname)
        outer, outer_names, outer_known = self.scene, self.names, self._known
        outer_given, outer_bound = self._given, (self._bound_last, self._emptied)
        self._bound_last, self._emptied = {}, set()
        self.names = outer_names.copy()
        self._known = outer_known | frozenset(self.brief.tensors.get(qualname, ()))
        self.scene = Scene(function, qualname, function, cold=hot is None)
        self._emit("function", function, function.name.value)
        self._given = dict(outer_given)
        self._parameters(function.params, function.name.value)
        self._settle(self.brief.seen.get(qualname, {}))
        self._given.update(self.brief.given.get(qualname, {}))
        for name in self.brief.on_cpu.get(qualname, ()):
            kind = self.names.kinds.get(name, UNKNOWN)
            self.names.kinds[name] = signatures.on_cpu(kind)
        self._suite(function.body)
        self.scene, self.names, self._known = outer, outer_names, outer_known
        self._given = outer_given
        self._bound_last, self._emptied = outer_bound

    def _holds(self, condition: cst.BaseExpression) -> bool | None:
        """Whether what is known of names decides a condition, and how: what hot callers give, and types."""
        if type(condition) is cst.UnaryOperation and type(condition.operator) is cst.Not:
            inner = self._holds(condition.expression)
            return None if inner is None else not inner
        decided = constant_conditions.truth(text(condition), self._given) if self._given else None
        if decided is None and type(condition) is cst.Call:
            return self._is_instance(condition)
        return decided

    def _is_instance(self, test: cst.Call) -> bool | None:
        """Of ``isinstance(width, torch.Tensor)``: False where the name is surely something else."""
        subject = dotted(test.args[0].value) if test.args else None
        asked = self._type_asked_for(test) if subject else None
        if subject is None or asked is None or asked.what not in ("tensor", "scalar", "text"):
            return None
        known = self._lookup(subject)
        surely_other = known.sure and known.what in ("tensor", "scalar", "text", "nested")
        return False if surely_other and known.what != asked.what and asked.sure else None

    def _parameters(self, params: cst.Parameters, function: str) -> None:
        plain = [*params.posonly_params, *params.params]
        is_module = self.cls is not None and self.cls.is_module
        for i, p in enumerate([*plain, *params.kwonly_params]):
            name = p.name.value
            if name == self.self_name and i == 0:
                continue
            kind = UNKNOWN
            if p.annotation is not None:
                kind = self.annotation(p.annotation.annotation)
                if kind.what == "tensor" and _NO_TENSOR_NAME.search(name):
                    kind = kind.maybe()  # a shape or a flag, whatever its annotation says
                if kind.cls == "dict" and kind.element is not None:
                    # A table also holds settings and counts that nobody moves to a device.
                    kind = replace(kind, element=kind.element.maybe())
            default = p.default
            guessed = (
                p.annotation is None
                and is_module
                and function == "forward"
                and name not in self._known
            )
            if default is not None:
                given = self.ev(default)
                if given.what == "none":
                    if guessed and not _NO_TENSOR_NAME.search(name):
                        kind = TENSOR.maybe()
                    kind = replace(kind, optional=True)
                elif kind.what == "unknown" and not kind.cls and given.what in ("scalar", "text"):
                    kind = given
                elif kind.what == "tensor" and given.what in ("scalar", "text"):
                    kind = kind.maybe()
            elif guessed:
                kind = TENSOR.maybe()
            self._bind_name(name, kind)
        if isinstance(params.star_arg, cst.Param):
            star = params.star_arg
            inner = self.annotation(star.annotation.annotation) if star.annotation else UNKNOWN
            self._bind_name(star.name.value, Kind("nested", element=inner))
        if params.star_kwarg is not None:
            self._bind_name(
                params.star_kwarg.name.value, Kind("nested", element=UNKNOWN, cls="dict")
            )

    def _settle(self, seen: Mapping[str, Sequence[str]]) -> None:
        """What parameters were seen with when code was recorded settles what reading leaves open."""
        for name, words in seen.items():
            kind = self.names.kinds.get(name)
            if kind is None or name == self.self_name:
                continue
            now = with_recorded_types(kind, words)
            self.names.kinds[name] = now
            if name in self._known and not now.maybe_tensor:
                self._known -= {name}

    def annotation(self, node: cst.BaseExpression) -> Kind:
        """The kind that an annotation promises."""
        source = text(node)
        if source[:1] in "\"'":
            source = source.strip("\"'")
        return signatures.annotation_kind(self._resolved_words(source), self.tensor_types)

    def _resolved_words(self, source: str) -> str:
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

    # -- statements --------------------------------------------------------------------------

    def _block(self, statements: Sequence[cst.BaseStatement]) -> bool:
        """Reads statements in order; True when the end of the block is not reached."""
        block = tuple(statements)
        before = self.scene
        ended = False
        for i, statement in enumerate(block):
            self.scene = self.scene.at(statement, block)
            if type(statement) is cst.SimpleStatementLine:
                ended = self._simple(statement) or ended
            elif type(statement) is cst.If:
                ended = self._if(statement, block[i + 1 :]) or ended
            elif isinstance(statement, cst.Try | cst.TryStar):
                self._try(statement)
                if _only_failing_goes_on(statement):
                    self.scene = replace(self.scene, cold=True)
            else:
                handler = _STATEMENTS.get(type(statement))
                if handler is not None:
                    handler(self, statement)
                if type(statement) is cst.With and _swallows(statement):
                    self.scene = replace(self.scene, cold=True)
        self.scene = before
        return ended

    def _simple(self, line: cst.SimpleStatementLine | cst.SimpleStatementSuite) -> bool:
        ended = False
        for small in line.body:
            self.parents[id(small)] = line
            handler = _SMALL.get(type(small))
            if handler is not None:
                handler(self, small)
            ended = ended or type(small) in _ENDING
        return ended

    def _suite(self, body: cst.BaseSuite) -> bool:
        if isinstance(body, cst.IndentedBlock):
            return self._block(body.body)
        assert isinstance(body, cst.SimpleStatementSuite)
        return self._simple(body)

    def _if(self, node: cst.If, rest: Sequence[cst.CSTNode]) -> bool:
        before_scene = self.scene
        self._truth(node.test)
        body_cold, else_cold, rest_cold = self._cold_branches(node, rest)
        start = self.names
        self.names = start.copy()
        self._narrow(node.test, True)
        self.scene = replace(
            before_scene,
            cold=before_scene.cold or body_cold,
            conditions=(*before_scene.conditions, (node.test, True)),
        )
        body_ended = self._suite(node.body)
        after_body = self.names
        self.names = start.copy()
        self._narrow(node.test, False)
        else_ended = False
        self.scene = replace(
            before_scene,
            cold=before_scene.cold or else_cold,
            conditions=(*before_scene.conditions, (node.test, False)),
        )
        if type(node.orelse) is cst.If:
            self.parents[id(node.orelse)] = node
            else_ended = self._if(node.orelse, rest)
        elif type(node.orelse) is cst.Else:
            else_ended = self._suite(node.orelse.body)
        after_else = self.names
        self.scene = before_scene
        if body_ended and not else_ended:
            self.names = after_else
        elif else_ended and not body_ended:
            self.names = after_body
        else:
            self.names = _joined(after_body, after_else)
        if body_ended and not else_ended and rest_cold:
            self.scene = replace(self.scene, cold=True)
        return body_ended and else_ended and node.orelse is not None

    def _cold_branches(self, node: cst.If, rest: Sequence[cst.CSTNode]) -> tuple[bool, bool, bool]:
        """Whether the body, the else and what follows the statement are cold."""
        condition = text(node.test)
        body = _statements(node.body)
        orelse = _statements(node.orelse.body) if isinstance(node.orelse, cst.Else) else ()
        returns = _returns(body)
        filled = origins = filled_else = filled_after = frozenset[str]()
        if cold_branches.worth_asking(condition):  # of no other does it matter what is filled
            origins = self._looked_up(condition)
            filled, filled_else = self._filled(body), self._filled(orelse)
            filled_after = self._filled(rest) if returns else filled_after
        body_cold, else_cold = cold_branches.cold_branches(
            condition,
            body_assigns=filled | origins,
            orelse_assigns=filled_else | origins if orelse else (),
            body_raises=_raises(body)
            or _gives_up(body)
            or cold_branches.of_the_past(condition, _called(body)),
            orelse_raises=_raises(orelse),
        )
        rest_cold = cold_branches.rest_is_cold(
            condition, body_returns=returns, following_assigns=filled_after | origins
        )
        holds = self._holds(node.test)
        return body_cold or holds is False, else_cold or holds is True, rest_cold or holds is True

    def _filled(self, statements: Sequence[cst.CSTNode]) -> frozenset[str]:
        """The names that statements assign, as `guards` wants them."""
        names = _assigned_names(statements, self.globals)
        return frozenset(names | {f"global {name}" for name in names & self.globals})

    def _looked_up(self, condition: str) -> frozenset[str]:
        """What the names of a condition were looked up in last, where that outlives the call, and no other
        way leaves them empty."""
        found = set()
        for name in cold_branches.names_in(condition):
            value = None if name in self._emptied else self._bound_last.get(name)
            container: cst.BaseExpression | None = None
            if type(value) is cst.Subscript:
                container = value.value
            elif type(value) is cst.Call and type(value.func) is cst.Attribute:
                container = value.func.value if value.func.attr.value == "get" else None
            kept = dotted(container) if container is not None else None
            own = kept in self.names.kinds or kept == self.self_name
            if kept and ("." in kept or not own):
                found.add(cold_branches.looked_up(name, kept))
        return frozenset(found)

    def _global(self, node: cst.Global) -> None:
        self.globals.update(item.name.value for item in node.names)

    def _for(self, node: cst.For) -> None:
        iterated = self.ev(node.iter)
        self._iterates(node.iter)
        self._emit("loop", node)
        outer = self.scene
        self.scene = replace(outer, loops=(*outer.loops, node))

        def one_round() -> None:
            self._bind(node.target, signatures.element_of(iterated), None)
            self._suite(node.body)

        self._rounds(one_round)
        self.scene = outer
        if node.orelse is not None:
            self._suite(node.orelse.body)

    def _while(self, node: cst.While) -> None:
        outer = self.scene
        self.scene = replace(outer, loops=(*outer.loops, node))

        def one_round() -> None:
            self._truth(node.test)
            self._emit("loop", node)
            self._narrow(node.test, True)
            self._suite(node.body)

        self._rounds(one_round)
        self.scene = outer
        if node.orelse is not None:
            self._suite(node.orelse.body)

    def _rounds(self, one_round: Callable[[], None]) -> None:
        """Reads a loop's body: once unseen, to learn what its names hold when the second round begins, then
        for good. Loops inside an unseen body are read once."""
        before = self.names.copy()
        if not self._unseen:
            events, assigned, used = len(self.events), dict(self.assigned), dict(self.used)
            values, dotted_names = dict(self.values), dict(self.dotted_names)
            bound_last, scene = dict(self._bound_last), self.scene
            self._unseen = True
            one_round()
            self._unseen = False
            del self.events[events:]
            self.assigned, self.used, self.scene = assigned, used, scene
            self.values, self.dotted_names = values, dotted_names
            self._bound_last = bound_last
            self.names = _joined(before, self.names)
        one_round()
        self.names = _joined(before, self.names)

    def _with(self, node: cst.With) -> None:
        outer = self.scene
        for item in node.items:
            kind = self.ev(item.item)
            self.parents[id(item.item)] = node
            if item.asname is not None:
                target = item.asname.name
                if isinstance(target, cst.Name | cst.Attribute | cst.Tuple | cst.List):
                    self._bind(target, UNKNOWN if kind.what != "tensor" else kind, None)
        self._emit("with", node)
        self.scene = replace(outer, withs=(*outer.withs, node))
        self._suite(node.body)
        self.scene = outer

    def _try(self, node: cst.Try | cst.TryStar) -> None:
        outer = self.scene
        before = self.names.copy()
        self.scene = replace(outer, tries=(*outer.tries, node))
        self._suite(node.body)
        after = self.names
        for handler in node.handlers:
            self.names = _joined(before, after)
            self.scene = replace(outer, cold=True)
            self._suite(handler.body)
        self.names = after
        self.scene = outer
        if node.orelse is not None:
            self._suite(node.orelse.body)
        if node.finalbody is not None:
            self._suite(node.finalbody.body)

    def _def(self, node: cst.FunctionDef) -> None:
        for decorator in node.decorators:
            self.ev(decorator.decorator)
            self.parents[id(decorator.decorator)] = node
        self._emit("def", node, node.name.value)
        self._function(node, f"{self.scene.qualname}.<locals>.{node.name.value}")
        self._bind_name(node.name.value, FUNCTION)

    def _class(self, node: cst.ClassDef) -> None:
        self._emit("class", node, node.name.value)
        self._bind_name(node.name.value, OTHER)

    def _match(self, node: cst.Match) -> None:
        self.ev(node.subject)
        before = self.names
        merged: Names | None = None
        for case in node.cases:
            self.names = before.copy()
            if case.guard is not None:
                self._truth(case.guard)
            ended = self._suite(case.body)
            if not ended:
                merged = self.names if merged is None else _joined(merged, self.names)
        self.names = _joined(before, merged) if merged is not None else before

    def _expr(self, node: cst.Expr) -> None:
        self.ev(node.value)
        self.parents[id(node.value)] = node

    def _assign(self, node: cst.Assign) -> None:
        kind = self.ev(node.value)
        self.parents[id(node.value)] = node
        self._emit("assign", node)
        for target in node.targets:
            self._target_event(target.target, node)
            self._bind(target.target, kind, node.value)

    def _ann_assign(self, node: cst.AnnAssign) -> None:
        kind = self.annotation(node.annotation.annotation)
        if node.value is not None:
            value = self.ev(node.value)
            self.parents[id(node.value)] = node
            if value.what != "unknown" or kind.what == "unknown":
                kind = value if not (value.what == "none" and kind.what != "unknown") else kind
            self._emit("assign", node)
            self._target_event(node.target, node)
            self._bind(node.target, kind, node.value)
        else:
            self._bind(node.target, kind, None)

    def _aug_assign(self, node: cst.AugAssign) -> None:
        old = self.ev(node.target)
        value = self.ev(node.value)
        self.parents[id(node.value)] = node
        self._emit("assign", node)
        self._target_event(node.target, node)
        kind = old if old.what == "tensor" else _arithmetic(old, value)
        if isinstance(node.target, cst.Name | cst.Attribute):
            self._bind(node.target, kind, None)

    def _target_event(self, target: cst.BaseExpression, statement: cst.CSTNode) -> None:
        if type(target) is cst.Subscript:
            base = self.ev(target.value)
            self.parents[id(target.value)] = target
            self._indices(target)
            self.kinds[id(target)] = signatures.element_of(base)
            self._emit("setitem", statement)
        elif type(target) is cst.Attribute:
            self.ev(target.value)
            if (
                type(target.value) is cst.Name
                and target.value.value == self.self_name
                and self.self_name
            ):
                self._emit("attribute-write", statement, target.attr.value)
        elif isinstance(target, cst.Tuple | cst.List):
            for element in target.elements:
                self._target_event(element.value, statement)

    def _return(self, node: cst.Return) -> None:
        if node.value is not None:
            self.ev(node.value)
            self.parents[id(node.value)] = node

    def _raise(self, node: cst.Raise) -> None:
        outer = self.scene
        self.scene = replace(outer, cold=True)
        if node.exc is not None:
            self.ev(node.exc)
        self.scene = outer

    def _assert(self, node: cst.Assert) -> None:
        self._truth(node.test)
        outer = self.scene
        self.scene = replace(outer, cold=True)
        if node.msg is not None:
            self.ev(node.msg)
        self.scene = outer
        self._narrow(node.test, True)

    def _del(self, node: cst.Del) -> None:
        if isinstance(node.target, cst.Name):
            self.names.kinds.pop(node.target.value, None)
        elif isinstance(node.target, cst.Subscript):
            self.ev(node.target.value)

    def _import(self, node: cst.Import | cst.ImportFrom) -> None:
        self._emit("import", node)
        if isinstance(node.names, cst.ImportStar):
            return
        prefix = ""
        if isinstance(node, cst.ImportFrom):
            module = dotted(node.module) if node.module is not None else ""
            if node.relative:
                package = self.brief.module.split(".")
                package = (
                    package[: len(package) - len(node.relative)]
                    if len(node.relative) <= len(package)
                    else []
                )
                module = ".".join([*package, *([module] if module else [])])
            prefix = f"{module}." if module else ""
        for alias in node.names:
            target = dotted(alias.name) or ""
            if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
                local = alias.asname.name.value
            elif prefix:
                local = target
            else:
                local = target = target.partition(".")[0]
            self.names.imports[local] = prefix + target
            self.names.kinds.pop(local, None)

    # -- names -------------------------------------------------------------------------------

    def _bind(
        self, target: cst.BaseExpression, kind: Kind, value: cst.BaseExpression | None
    ) -> None:
        if type(target) is cst.Name:
            self._bind_name(target.value, kind, value)
            self.kinds[id(target)] = kind
        elif type(target) is cst.Attribute:
            name = dotted(target)
            if name:
                self._bind_name(name, kind, value)
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
                self._iterates(value)
            for i, element in enumerate(elements):
                if type(element) is cst.StarredElement:
                    self._bind(
                        element.value, Kind("nested", element=signatures.element_of(kind)), None
                    )
                    continue
                part = kind.items[i] if exact and kind.items else signatures.element_of(kind)
                self._bind(element.value, part, parts[i].value if parts else None)

    def _bind_name(self, name: str, kind: Kind, value: cst.BaseExpression | None = None) -> None:
        prefix = name + "."
        for table in (self.names.kinds, self.names.values):
            # Most names have no dot, and to ask for one takes less time than a call.
            for key in [k for k in table if "." in k and k.startswith(prefix)]:
                del table[key]
        if kind.what in ("tensor", "unknown") and not kind.cls and _HOST_NAME.search(name):
            kind = Kind("tensor", sure=kind.what == "tensor" and kind.sure, host=True)
        self.names.kinds[name] = kind
        self.names.imports.pop(name, None)
        self._given.pop(name, None)
        self.assigned[name] = self.assigned.get(name, 0) + 1
        self._bound_last[name] = value
        if type(value) is cst.Name and value.value == "None":
            self._emptied.add(name)
        if value is not None:
            self.names.values[name] = value
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

    # -- truth and narrowing -----------------------------------------------------------------

    def _truth(self, node: cst.BaseExpression) -> Kind:
        """Reads an expression whose truth is asked."""
        if type(node) is cst.BooleanOperation:
            return self._boolean(node, asked=True)
        if type(node) is cst.UnaryOperation and type(node.operator) is cst.Not:
            self._truth(node.expression)
            self.parents[id(node.expression)] = node
            self.kinds[id(node)] = SCALAR
            return SCALAR
        if type(node) is cst.NamedExpr:
            kind = self.ev(node)
            self._emit("truth", node.value)
            return kind
        kind = self.ev(node)
        self._emit("truth", node)
        return kind

    def _boolean(self, node: cst.BooleanOperation, asked: bool) -> Kind:
        """Reads a chain of `and`, or of `or`, operand by operand, however long it is."""
        conjunction = isinstance(node.operator, cst.And)
        chain = [node]
        while (
            isinstance(left := chain[-1].left, cst.BooleanOperation)
            and isinstance(left.operator, cst.And) is conjunction
        ):
            chain.append(left)
        chain.reverse()
        before: cst.BaseExpression = chain[0].left
        kind = self._truth(before)
        saved, scene = self.names, self.scene
        self.names = saved.copy()
        for one in chain:
            self._narrow(before, conjunction)
            if self._holds(before) is (not conjunction):
                self.scene = replace(scene, cold=True)  # never asked for
            before = one.right
            right = self._truth(before) if asked or one is not node else self.ev(before)
            self.parents[id(one.left)] = self.parents[id(one.right)] = one
            self.kinds[id(one)] = kind = join(kind, right)
        self.names, self.scene = saved, scene
        return kind

    def _narrow(self, test: cst.BaseExpression, holds: bool) -> None:
        """Takes a condition as known to hold, or not to hold."""
        if type(test) is cst.BooleanOperation:
            if (type(test.operator) is cst.And) == holds:
                self._narrow(test.left, holds)
                self._narrow(test.right, holds)
            return
        if type(test) is cst.UnaryOperation and type(test.operator) is cst.Not:
            self._narrow(test.expression, not holds)
            return
        if type(test) is cst.NamedExpr:
            test = test.target
        if type(test) is cst.Comparison and len(test.comparisons) == 1:
            self._narrow_comparison(test, holds)
        elif type(test) is cst.Call:
            self._narrow_call(test, holds)
        elif isinstance(test, cst.Name | cst.Attribute):
            name = dotted(test)
            held = self.names.values.get(name or "")
            if isinstance(held, cst.Comparison | cst.Attribute):
                self._narrow(held, holds)  # `on_cpu = x.device.type == "cpu"`
            if name and holds and name in self.names.kinds:
                self.names.kinds[name] = replace(self.names.kinds[name], optional=False)
            elif holds and name and name.endswith(".is_cuda"):
                return
            elif not holds and name and name.endswith(".is_cuda"):
                self._on_host(name.rpartition(".")[0])

    def _on_host(self, name: str) -> None:
        """One tensor that is on the CPU has only such for company."""
        kind = self.names.kinds.get(name, UNKNOWN)
        if kind.what in ("tensor", "unknown"):
            self.names.kinds[name] = Kind("tensor", host=True)
        for other, known in self.names.kinds.items():
            if known.what == "tensor" and not known.host:
                self.names.kinds[other] = replace(known, host=True)

    def _narrow_comparison(self, test: cst.Comparison, holds: bool) -> None:
        part = test.comparisons[0]
        name = dotted(test.left)
        if name is None:
            return
        if isinstance(part.comparator, cst.Name) and part.comparator.value == "None":
            is_none = holds == isinstance(part.operator, cst.Is | cst.Equal)
            if is_none:
                self.names.kinds[name] = NONE
            else:
                known = self._lookup(name)
                if known.what == "none":
                    self.names.kinds.pop(name, None)
                else:
                    self.names.kinds[name] = replace(known, optional=False)
        elif name.endswith((".device.type", ".device")) and (
            isinstance(part.comparator, cst.SimpleString)
            or (
                isinstance(part.comparator, cst.Call)
                and self.resolve(part.comparator.func) == "torch.device"
            )
        ):
            # Told to be on the CPU, or not to be on CUDA, where nothing else is expected.
            word = text(part.comparator)
            wanted = True if "cpu" in word else False if "cuda" in word else None
            if wanted is not None and (holds == isinstance(part.operator, cst.Equal)) == wanted:
                self._on_host(name.partition(".device")[0])

    def _narrow_call(self, test: cst.Call, holds: bool) -> None:
        subject = dotted(test.args[0].value) if test.args else None
        kind = self._type_asked_for(test)
        if subject is None or kind is None:
            return
        known = self._lookup(subject)
        if holds:
            if kind.what == "tensor" and known.what == "tensor":
                kind = replace(known, sure=True, optional=False)
            self.names.kinds[subject] = kind
        elif known.what == kind.what and kind.what in ("tensor", "scalar", "text", "nested"):
            self.names.kinds[subject] = OTHER if not known.optional else UNKNOWN
        elif kind.what == "tensor":
            self.names.kinds[subject] = OTHER

    def _type_asked_for(self, test: cst.Call) -> Kind | None:
        """What the first argument is where the call says yes; None of calls that ask for no type."""
        name = self.resolve(test.func)
        if name == "isinstance" and len(test.args) == 2:
            return self._class_kind(test.args[1].value)
        if name is not None and name.rpartition(".")[2] in ("is_tensor", "is_torch_tensor"):
            return TENSOR
        return None

    def _class_kind(self, node: cst.BaseExpression) -> Kind | None:
        if isinstance(node, cst.Tuple):
            kinds = [self._class_kind(e.value) for e in node.elements]
            out = kinds[0] if kinds else None
            for kind in kinds[1:]:
                out = None if out is None or kind is None else join(out, kind)
            return out if out is not None and out.what != "unknown" else Kind("unknown", cls="?")
        if isinstance(node, cst.BinaryOperation):
            return None
        name = self.resolve(node)
        if name is None:
            return Kind("unknown", cls="?")
        kind = signatures.annotation_kind(name, self.tensor_types)
        return kind if kind.what != "unknown" else Kind("unknown", cls=name)

    def _lookup(self, name: str) -> Kind:
        """The kind of a dotted name at this point."""
        known = self.names.kinds.get(name)
        if known is not None and (known.what != "unknown" or known.cls):
            if not known.sure and name in self._known:
                return replace(known, sure=True)
            return known
        if name in self._known:
            return replace(TENSOR, optional=known.optional if known else False)
        if known is not None:
            return known
        head, _, rest = name.partition(".")
        if head == self.self_name and rest and "." not in rest and self.cls is not None:
            values = self.cls.attrs.get(rest)
            if values:
                return signatures.values_kind(tuple(values), self.tensor_types)
            return signatures.inherited_kind(rest, tuple(self.cls.ancestors))
        if not rest and name in self.brief.globals and name not in self.names.imports:
            return signatures.values_kind(tuple(self.brief.globals[name]), self.tensor_types)
        return UNKNOWN

    # -- expressions -------------------------------------------------------------------------

    def ev(self, node: cst.BaseExpression) -> Kind:
        """Reads an expression: its kind, remembered for the rules; events on the way."""
        handler = _EXPRESSIONS.get(type(node))
        kind = handler(self, node) if handler is not None else UNKNOWN
        self.kinds[id(node)] = kind
        return kind

    def _name(self, node: cst.Name) -> Kind:
        name = node.value
        self.used[name] = self.used.get(name, 0) + 1
        value = self.names.values.get(name)
        if value is not None:
            self.values[id(node)] = value
        resolved = self.resolve(node)
        if resolved is not None:
            self.dotted_names[id(node)] = resolved
        if name in ("True", "False"):
            return Kind("scalar", dtype="bool")
        if name == "None":
            return NONE
        return self._lookup(name)

    def _attribute(self, node: cst.Attribute) -> Kind:
        base = self.ev(node.value)
        self.parents[id(node.value)] = node
        self._emit("attribute", node, node.attr.value)
        return self._attribute_kind(node, base)

    def _attribute_kind(self, node: cst.Attribute, base: Kind) -> Kind:
        name = dotted(node)
        resolved = self.resolve(node)
        if resolved is not None:
            self.dotted_names[id(node)] = resolved
        if name is not None:
            value = self.names.values.get(name)
            if value is not None:
                self.values[id(node)] = value
            kind = self._lookup(name)
            if kind.what != "unknown" or kind.cls:
                if kind.what == "tensor" and _HOST_NAME.search(name):
                    return replace(kind, host=True)
                return kind
        if resolved is not None and resolved.startswith("torch."):
            if resolved in ("torch.inf", "torch.pi", "torch.nan", "torch.e"):
                return SCALAR
            return OTHER
        if resolved in ("math.pi", "math.e", "math.inf", "math.nan", "math.tau"):
            return SCALAR
        held = self.brief.fields.get(base.cls, {}).get(node.attr.value) if base.cls else None
        if held:
            return signatures.values_kind(tuple(held), self.tensor_types)
        found = signatures.attribute_kind(base, node.attr.value)
        return found if found is not None else UNKNOWN

    def _call(self, node: cst.Call) -> Kind:
        func = node.func
        self.parents[id(func)] = node
        receiver = UNKNOWN
        if type(func) is cst.Attribute:
            receiver = self.ev(func.value)
            self.parents[id(func.value)] = func
            self.kinds[id(func)] = self._attribute_kind(func, receiver)
            last = func.attr.value
        else:
            self.kinds[id(func)] = self.ev(func)
            last = func.value if type(func) is cst.Name else ""
        name = self.resolve(func)
        if name is not None:
            self.dotted_names[id(func)] = name
        args, keywords, texts = self._arguments(node, last, name)
        self._emit("call", node, last)
        if self._readers and self.callee_key(func) in self._readers:
            self._emit("helper-call", node, last)
        if last in _PUTS_IN and len(args) == 1 and isinstance(func, cst.Attribute):
            self._put_in(func.value, args[0])
        if last in _GATHERS_OBJECTS and node.args:
            self._bind(node.args[0].value, Kind("nested", element=UNKNOWN), None)
        return self._call_kind(node, func, name, last, receiver, args, keywords, texts)

    def _put_in(self, holder: cst.BaseExpression, value: Kind) -> None:
        """Has a list hold one more value: ``xs``, ``lists[key]`` or ``lists.setdefault(key, [])``."""
        whole = holder.value if isinstance(holder, cst.Subscript) else holder
        if isinstance(holder, cst.Call) and isinstance(holder.func, cst.Attribute):
            if holder.func.attr.value != "setdefault":
                return
            whole = holder.func.value
        known = self.names.kinds.get(whole.value) if isinstance(whole, cst.Name) else None
        if not isinstance(whole, cst.Name) or known is None or known.what != "nested":
            return
        if whole is not holder:
            value = filled(known.element or EMPTY, value)
            known = replace(known, element=None, items=())
        self.names.kinds[whole.value] = filled(known, value)

    def _arguments(
        self, node: cst.Call, last: str, name: str | None
    ) -> tuple[list[Kind], dict[str, Kind], dict[str, str]]:
        args: list[Kind] = []
        keywords: dict[str, Kind] = {}
        texts: dict[str, str] = {}
        wants_text = last in _NEEDS_TEXT
        truth = name == "bool"
        iterates = name in _ITERATING
        for i, arg in enumerate(node.args):
            value = arg.value
            self.parents[id(value)] = node
            if name in ("any", "all") and isinstance(value, cst.GeneratorExp | cst.ListComp):
                kind = self._comprehension(value, truth_of_element=True)
                self.kinds[id(value)] = kind
            else:
                kind = self._truth(value) if truth else self.ev(value)
            if arg.star == "*":
                self._iterates(value)
                args.append(Kind("unknown"))
            elif arg.star == "**":
                keywords["**"] = kind
            elif arg.keyword is not None:
                keywords[arg.keyword.value] = kind
                if wants_text:
                    texts[arg.keyword.value] = self._text_of_device(value)
            else:
                args.append(kind)
                if wants_text:
                    texts[str(i)] = self._text_of_device(value)
                if iterates and (len(node.args) == 1 or name in ("zip", "enumerate", "sum", "map")):
                    self._iterates(value)
        return args, keywords, texts

    def _text_of_device(self, value: cst.BaseExpression) -> str:
        """The source of an argument; of a name that surely holds a literal or a `torch.device`, that."""
        if isinstance(value, cst.Name):
            held = self.names.values.get(value.value)
            if isinstance(held, cst.SimpleString) or (
                isinstance(held, cst.Call) and self.resolve(held.func) == "torch.device"
            ):
                return text(held)
        return text(value)

    def _call_kind(
        self,
        node: cst.Call,
        func: cst.BaseExpression,
        name: str | None,
        last: str,
        receiver: Kind,
        args: list[Kind],
        keywords: dict[str, Kind],
        texts: dict[str, str],
    ) -> Kind:
        if "return_tensors" in keywords:
            # What a tokenizer or an image processor gives is on the CPU until it is moved.
            return Kind("nested", element=Kind("tensor", sure=False, host=True), cls="dict")
        if name is not None:
            if name in self.tensor_types:
                return TENSOR
            if name == "collections.defaultdict" and args:
                return replace(DICT, element=self._made_of(node.args[0].value))
            kind = signatures.function_kind(name, args, keywords, texts)
            if kind is not None:
                return kind
        of_own = name is not None and name.startswith("self.") and name.count(".") > 1
        if isinstance(func, cst.Attribute) and _is_untold(receiver) and (name is None or of_own):
            chained = (
                isinstance(func.value, cst.Call)
                and isinstance(func.value.func, cst.Attribute)
                and signatures.is_cast(func.value.func.attr.value)
            )
            kind = signatures.untold_method_kind(last, args, keywords, texts, chained)
            if kind is not None:
                return kind
        if isinstance(func, cst.Attribute):
            kind = signatures.method_kind(receiver, last, args, keywords, texts)
            if kind is not None:
                return kind
        callee = self.brief.callees.get(self.callee_key(func))
        if callee is not None:
            kind = signatures.value_kind(callee.returns, self.tensor_types)
            kind = signatures.on_cpu(kind) if callee.on_cpu else kind
            if kind.what != "unknown" or kind.cls:
                return signatures.followed(kind, [*args, *keywords.values()])
            if callee.returns_function:
                return FUNCTION
        called = self.kinds.get(id(func), UNKNOWN)
        if called.what in ("module", "modules"):
            kind = signatures.module_call_kind(called.cls)
            return kind if kind is not None else TENSOR.maybe()
        if called.cls in self.tensor_types and called.cls:
            return TENSOR
        return UNKNOWN

    def _made_of(self, factory: cst.BaseExpression) -> Kind:
        """What a table holds that has it made by a factory."""
        return EMPTY if self.resolve(factory) in ("list", "set") else UNKNOWN

    def callee_key(self, func: cst.BaseExpression) -> str:
        """The key of a callee in the brief."""
        name = dotted(func) or ""
        if self.self_name and name.startswith(self.self_name + "."):
            return f"{self.class_name}.self.{name[len(self.self_name) + 1 :]}"
        return name

    def _subscript(self, node: cst.Subscript) -> Kind:
        base = self.ev(node.value)
        self.parents[id(node.value)] = node
        indices = self._indices(node)
        self._emit("getitem", node)
        name = dotted(node.value)
        if name is not None and name.endswith(".shape"):
            return SCALAR if indices and indices[0] is not None else base
        if base.what == "nested":
            if len(indices) == 1 and isinstance(node.slice[0].slice, cst.Slice):
                return Kind("nested", element=base.element)
            if base.items is not None and len(node.slice) == 1:
                index = node.slice[0].slice
                if isinstance(index, cst.Index):
                    at = _integer(index.value)
                    if at is not None and -len(base.items) <= at < len(base.items):
                        return base.items[at]
            if base.element is not None:
                return base.element
            return UNKNOWN
        if base.what == "tensor":
            one = len(indices) == 1 and indices[0] is not None and indices[0].what == "scalar"
            return replace(base, ndim=0 if one and base.ndim == 1 else None, optional=False)
        if base.what == "modules":
            return base if isinstance(node.slice[0].slice, cst.Slice) else MODULE
        if base.what == "unknown" and not base.cls and any(i and _is_mask(i) for i in indices):
            return TENSOR  # nothing else is picked from by a mask on a device
        return UNKNOWN if base.what != "text" else TEXT

    def _indices(self, node: cst.Subscript) -> list[Kind | None]:
        out: list[Kind | None] = []
        for element in node.slice:
            part = element.slice
            if isinstance(part, cst.Index):
                out.append(self.ev(part.value))
                self.parents[id(part.value)] = node
            else:
                assert isinstance(part, cst.Slice)
                for bound in (part.lower, part.upper, part.step):
                    if bound is not None:
                        self.ev(bound)
                        self.parents[id(bound)] = node
                out.append(None)
        return out

    def _binary(self, node: cst.BinaryOperation) -> Kind:
        left = self.ev(node.left)
        right = self.ev(node.right)
        self.parents[id(node.left)] = self.parents[id(node.right)] = node
        bitwise = isinstance(node.operator, cst.BitAnd | cst.BitOr | cst.BitXor)
        kind = _arithmetic(left, right)
        if kind.what == "tensor" and bitwise and "bool" in (left.dtype, right.dtype):
            return replace(kind, dtype="bool")
        if type(node.operator) is cst.Multiply and left.dtype == right.dtype == "bool":
            return replace(kind, dtype="bool")
        if left.what == "text":
            return TEXT
        return kind

    def _unary(self, node: cst.UnaryOperation) -> Kind:
        if isinstance(node.operator, cst.Not):
            return self._truth(node)
        kind = self.ev(node.expression)
        self.parents[id(node.expression)] = node
        return kind if kind.what in ("tensor", "scalar") else UNKNOWN

    def _comparison(self, node: cst.Comparison) -> Kind:
        kinds = [self.ev(node.left)]
        self.parents[id(node.left)] = node
        identity = False
        for part in node.comparisons:
            kinds.append(self.ev(part.comparator))
            self.parents[id(part.comparator)] = node
            identity = identity or isinstance(
                part.operator, cst.Is | cst.IsNot | cst.In | cst.NotIn
            )
        self._emit("comparison", node)
        if identity:
            return SCALAR
        tensors = [k for k in kinds if k.what == "tensor"]
        if not tensors:
            whats = {k.what for k in kinds}
            return (
                SCALAR
                if whats <= {"scalar", "text", "none"} or "text" in whats or "other" in whats
                else UNKNOWN
            )
        if any(k.what in ("none", "text") for k in kinds):
            return SCALAR
        surest = any(k.sure for k in tensors)
        ndim = 0 if all(k.what == "scalar" or k.ndim == 0 for k in kinds) else None
        return signatures.placed(Kind("tensor", sure=surest, dtype="bool", ndim=ndim), kinds)

    def _ternary(self, node: cst.IfExp) -> Kind:
        self._truth(node.test)
        saved = self.names
        self.names = saved.copy()
        self._narrow(node.test, True)
        scene, holds = self.scene, self._holds(node.test)
        body_cold, else_cold = cold_branches.cold_branches(text(node.test))
        self.scene = replace(scene, cold=scene.cold or body_cold or holds is False)
        body = self.ev(node.body)
        self.names = saved.copy()
        self._narrow(node.test, False)
        self.scene = replace(scene, cold=scene.cold or else_cold or holds is True)
        orelse = self.ev(node.orelse)
        self.names, self.scene = saved, scene
        self.parents[id(node.test)] = self.parents[id(node.body)] = self.parents[
            id(node.orelse)
        ] = node
        return join(body, orelse)

    def _boolop(self, node: cst.BooleanOperation) -> Kind:
        return self._boolean(node, asked=False)

    def _sequence(self, node: cst.Tuple | cst.List | cst.Set) -> Kind:
        kinds: list[Kind] = []
        exact = True
        for element in node.elements:
            kind = self.ev(element.value)
            self.parents[id(element.value)] = node
            if type(element) is cst.StarredElement:
                exact = False
                self._iterates(element.value)
                kind = signatures.element_of(kind)
            kinds.append(kind)
        element_kind = UNKNOWN
        if not node.elements and isinstance(node, cst.List):
            return EMPTY
        if kinds:
            element_kind = kinds[0]
            for kind in kinds[1:]:
                element_kind = join(element_kind, kind)
        items = tuple(kinds) if exact and type(node) is cst.Tuple else None
        return Kind("nested", element=element_kind, items=items)

    def _dict(self, node: cst.Dict) -> Kind:
        element_kind: Kind | None = None
        for element in node.elements:
            if isinstance(element, cst.DictElement):
                self.ev(element.key)
                self.parents[id(element.key)] = node
            kind = self.ev(element.value)
            self.parents[id(element.value)] = node
            if isinstance(element, cst.StarredDictElement):
                kind = kind.element or UNKNOWN
            element_kind = kind if element_kind is None else join(element_kind, kind)
        if element_kind is None:
            return EMPTY_DICT
        return Kind("nested", element=element_kind, cls="dict")

    def _comp(self, node: cst.BaseComp) -> Kind:
        return self._comprehension(node)

    def _comprehension(self, node: cst.BaseComp, truth_of_element: bool = False) -> Kind:
        self._emit("comprehension", node)
        saved, outer = self.names, self.scene
        self.names = saved.copy()
        clause: cst.CompFor | None = node.for_in
        while clause is not None:
            iterated = self.ev(clause.iter)
            self.parents[id(clause.iter)] = node
            self._iterates(clause.iter)
            self.scene = replace(self.scene, loops=(*self.scene.loops, node))
            self._bind(clause.target, signatures.element_of(iterated), None)
            for condition in clause.ifs:
                self._truth(condition.test)
                self.parents[id(condition.test)] = node
                self._narrow(condition.test, True)
            clause = clause.inner_for_in
        if isinstance(node, cst.DictComp):
            self.ev(node.key)
            self.parents[id(node.key)] = node
            element = self.ev(node.value)
            self.parents[id(node.value)] = node
            cls = "dict"
        else:
            elt: cst.BaseExpression = node.elt  # type: ignore[attr-defined]  # the rest have it
            element = self._truth(elt) if truth_of_element else self.ev(elt)
            self.parents[id(elt)] = node
            cls = ""
        self.names, self.scene = saved, outer
        return Kind("nested", element=element, cls=cls)

    def _lambda(self, node: cst.Lambda) -> Kind:
        self._emit("lambda", node)
        saved, outer, bound = self.names, self.scene, self._bound_last
        self.names, self._bound_last = saved.copy(), {}
        self.scene = replace(outer, deferred=True)
        for p in [*node.params.posonly_params, *node.params.params, *node.params.kwonly_params]:
            if p.default is not None:
                self.ev(p.default)
            self._bind_name(p.name.value, UNKNOWN)
        self.ev(node.body)
        self.parents[id(node.body)] = node
        self.names, self.scene, self._bound_last = saved, outer, bound
        return FUNCTION

    def _named(self, node: cst.NamedExpr) -> Kind:
        kind = self.ev(node.value)
        self.parents[id(node.value)] = node
        self._bind(node.target, kind, node.value)
        return kind

    def _fstring(self, node: cst.FormattedString) -> Kind:
        for part in node.parts:
            if isinstance(part, cst.FormattedStringExpression):
                self.ev(part.expression)
                self.parents[id(part.expression)] = node
        self._emit("fstring", node)
        return TEXT

    def _concatenated(self, node: cst.ConcatenatedString) -> Kind:
        self.ev(node.left)
        self.ev(node.right)
        self.parents[id(node.left)] = self.parents[id(node.right)] = node
        return TEXT

    def _await(self, node: cst.Await) -> Kind:
        self.ev(node.expression)
        self.parents[id(node.expression)] = node
        return UNKNOWN

    def _yield(self, node: cst.Yield) -> Kind:
        value = node.value
        inner = value.item if isinstance(value, cst.From) else value
        if inner is not None:
            self.ev(inner)
            self.parents[id(inner)] = node
        return UNKNOWN

    def _iterates(self, node: cst.BaseExpression) -> None:
        self._emit("iterate", node)

    def _emit(self, event: Event, node: cst.CSTNode, name: str = "") -> None:
        self.events.append(Seen(event, node, self.scene, name))


def _is_untold(kind: Kind) -> bool:
    """Whether nothing is known of a value, or only that it may be a tensor."""
    return (kind.what == "unknown" and not kind.cls) or (kind.maybe_tensor and not kind.sure)


def _is_mask(kind: Kind) -> bool:
    return kind.on_device and kind.dtype == "bool"


def _integer(node: cst.BaseExpression) -> int | None:
    if isinstance(node, cst.Integer):
        return int(node.evaluated_value)
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        inner = _integer(node.expression)
        return None if inner is None else -inner
    return None


def _arithmetic(left: Kind, right: Kind) -> Kind:
    """The kind of `left + right` and the like."""
    tensors = [k for k in (left, right) if k.what == "tensor"]
    if tensors:
        if any(k.what in ("nested", "text", "none") for k in (left, right)):
            return UNKNOWN if any(k.what == "text" for k in (left, right)) else tensors[0].maybe()
        sure = any(k.sure for k in tensors)
        zero = all(k.what == "scalar" or k.ndim == 0 for k in (left, right))
        whole = Kind("tensor", sure=sure, ndim=0 if zero else None)
        return signatures.placed(whole, (left, right))
    if left.what == right.what == "scalar":
        return SCALAR
    if left.what == "nested" and right.what in ("nested", "scalar"):
        return Kind("nested", element=left.element)
    if left.cls == "numpy" or right.cls == "numpy":
        return Kind("other", cls="numpy")
    return UNKNOWN


def _joined(a: Names, b: Names) -> Names:
    kinds: dict[str, Kind] = {}
    for name in a.kinds.keys() | b.kinds.keys():
        left, right = a.kinds.get(name), b.kinds.get(name)
        if left is None or right is None:
            # Dotted names and names of one branch only: what is known of the one is not sure of both.
            if "." not in name:
                kinds[name] = left or right or UNKNOWN
        else:
            kinds[name] = join(left, right)
    values = {n: v for n, v in a.values.items() if b.values.get(n) is v}
    return Names(kinds, values, {**a.imports, **b.imports})


def _statements(body: cst.BaseSuite) -> Sequence[cst.CSTNode]:
    if isinstance(body, cst.IndentedBlock):
        return body.body
    return [body]


_LINES = frozenset({cst.SimpleStatementLine, cst.SimpleStatementSuite})


def _smalls(statements: Iterable[cst.CSTNode]) -> Iterable[cst.CSTNode]:
    for statement in statements:
        if type(statement) in _LINES:
            yield from statement.body  # type: ignore[attr-defined]  # both have one
        else:
            yield statement


_HOLDING = frozenset({cst.With, cst.Try, cst.TryStar})
"""Statements whose body runs whatever they find."""


def _assigned_names(statements: Iterable[cst.CSTNode], declared: AbstractSet[str]) -> set[str]:
    """The lasting names that statements assign, whatever they find: attributes, what has items, and what is
    declared global."""
    found: set[str] = set()
    for small in _smalls(statements):
        targets: list[cst.BaseExpression] = []
        if type(small) is cst.Assign:
            targets = [t.target for t in small.targets]
        elif type(small) is cst.AnnAssign or type(small) is cst.AugAssign:
            targets = [small.target]
        elif type(small) is cst.If:
            found |= _assigned_in_all(small, declared)
        elif type(small) in _HOLDING:
            found |= _assigned_names(_statements(small.body), declared)  # type: ignore[attr-defined]  # all have one
        for target in targets:
            whole = target
            while type(target) is cst.Subscript:
                target = target.value
            name = dotted(target) or ""
            if "." in name or name in declared or (name and target is not whole):
                found.add(name)
    return found


def _assigned_in_all(node: cst.If, declared: AbstractSet[str]) -> set[str]:
    """The lasting names that each branch of an `if` assigns."""
    found = _assigned_names(_statements(node.body), declared)
    if isinstance(node.orelse, cst.If):
        return found & _assigned_in_all(node.orelse, declared)
    if node.orelse is None:
        return set()
    return found & _assigned_names(_statements(node.orelse.body), declared)


def _last(statements: Sequence[cst.CSTNode]) -> cst.CSTNode | None:
    """The last of them, of several on one line too."""
    smalls = list(_smalls(statements[-1:]))
    return smalls[-1] if smalls else None


def _raises(statements: Sequence[cst.CSTNode]) -> bool:
    return type(_last(statements)) is cst.Raise


def _gives_up(statements: Sequence[cst.CSTNode]) -> bool:
    """Whether a block logs that something is wrong, and leaves."""
    return _leaves(statements) and any(map(cold_branches.complains, _called(statements)))


def _called(statements: Sequence[cst.CSTNode]) -> list[str]:
    """The names of what statements call for nothing but what it does."""
    said = [small.value for small in _smalls(statements) if isinstance(small, cst.Expr)]
    return [dotted(one.func) or "" for one in said if isinstance(one, cst.Call)]


def _only_failing_goes_on(node: cst.Try | cst.TryStar) -> bool:
    """Whether what follows a `try` in its block runs only where that failed: ``try: return CACHE[key]``."""
    return (
        bool(node.handlers)
        and _leaves(_statements(node.body))
        and node.orelse is None
        and node.finalbody is None
        and all(h.type is None or cold_branches.is_rare(text(h.type)) for h in node.handlers)
    )


def _swallows(node: cst.With) -> bool:
    """Whether what follows a `with` in its block runs only where that failed: ``with ignore_oom(): return
    …``."""
    entered = [item.item for item in node.items]
    return _leaves(_statements(node.body)) and any(
        isinstance(one, cst.Call) and cold_branches.swallows(dotted(one.func) or "")
        for one in entered
    )


def _leaves(statements: Sequence[cst.CSTNode]) -> bool:
    """Whether the end of a block is not reached, as far as its last statement tells."""
    last = _last(statements)
    while isinstance(last, cst.If):
        if last.orelse is None or not _leaves(_statements(last.body)):
            return False
        if isinstance(last.orelse, cst.Else):
            return _leaves(_statements(last.orelse.body))
        last = last.orelse
    return isinstance(last, cst.Return | cst.Continue | cst.Break)


def _returns(statements: Sequence[cst.CSTNode]) -> bool:
    return type(_last(statements)) is cst.Return


_ENDING = frozenset({cst.Return, cst.Raise, cst.Continue, cst.Break})
_Handler = Callable[[Reader, Any], Any]

_STATEMENTS: dict[type, _Handler] = {
    cst.For: Reader._for,
    cst.While: Reader._while,
    cst.With: Reader._with,
    cst.Try: Reader._try,
    cst.TryStar: Reader._try,
    cst.FunctionDef: Reader._def,
    cst.ClassDef: Reader._class,
    cst.Match: Reader._match,
}
_SMALL: dict[type, _Handler] = {
    cst.Expr: Reader._expr,
    cst.Assign: Reader._assign,
    cst.AnnAssign: Reader._ann_assign,
    cst.AugAssign: Reader._aug_assign,
    cst.Return: Reader._return,
    cst.Raise: Reader._raise,
    cst.Assert: Reader._assert,
    cst.Del: Reader._del,
    cst.Global: Reader._global,
    cst.Import: Reader._import,
    cst.ImportFrom: Reader._import,
}


def _constant(kind: Kind) -> _Handler:
    return lambda reader, node: kind


_EXPRESSIONS: dict[type, _Handler] = {
    cst.Name: Reader._name,
    cst.Attribute: Reader._attribute,
    cst.Call: Reader._call,
    cst.Subscript: Reader._subscript,
    cst.BinaryOperation: Reader._binary,
    cst.UnaryOperation: Reader._unary,
    cst.Comparison: Reader._comparison,
    cst.BooleanOperation: Reader._boolop,
    cst.IfExp: Reader._ternary,
    cst.Tuple: Reader._sequence,
    cst.List: Reader._sequence,
    cst.Set: Reader._sequence,
    cst.Dict: Reader._dict,
    cst.ListComp: Reader._comp,
    cst.SetComp: Reader._comp,
    cst.GeneratorExp: Reader._comp,
    cst.DictComp: Reader._comp,
    cst.Lambda: Reader._lambda,
    cst.NamedExpr: Reader._named,
    cst.FormattedString: Reader._fstring,
    cst.ConcatenatedString: Reader._concatenated,
    cst.Await: Reader._await,
    cst.Yield: Reader._yield,
    cst.Integer: _constant(Kind("scalar", dtype="int")),
    cst.Float: _constant(Kind("scalar", dtype="float")),
    cst.Imaginary: _constant(SCALAR),
    cst.SimpleString: _constant(TEXT),
    cst.Ellipsis: _constant(OTHER),
}
