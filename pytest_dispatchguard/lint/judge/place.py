"""What a rule sees: one node, the code around it, the possible values of expressions, and ways to answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import TypeVar

import libcst as cst

from pytest_dispatchguard.lint.dataflow.options import left_out_by_default
from pytest_dispatchguard.lint.dataflow.reader import Reader
from pytest_dispatchguard.lint.dataflow.scene import Scene
from pytest_dispatchguard.lint.facts import CalleeBrief, ClassBrief, HotFact
from pytest_dispatchguard.lint.judge.brief_parts import Asked
from pytest_dispatchguard.lint.judge.target import Target, is_needed, overlaps
from pytest_dispatchguard.lint.kinds.kinds import UNKNOWN, Kind
from pytest_dispatchguard.lint.knowledge import cold_branches
from pytest_dispatchguard.lint.syntax import nodes
from pytest_dispatchguard.lint.syntax.spelling import dotted, text
from pytest_dispatchguard.model.findings import (
    ATTRIBUTES,
    DEFINITIONS,
    IMPORTS,
    Certainty,
    Edit,
    Finding,
    Fix,
    Hot,
    Safety,
    Span,
    weaker,
)

Answer = TypeVar("Answer")
_number = itemgetter(0)


def remember_text(reader: Reader, node: cst.CSTNode, source: str) -> None:
    """Says how a node is written, where that is known: to write a whole function takes long."""
    reader.memo[_text_key(node)] = (node, source.strip())


def _text_key(node: cst.CSTNode) -> tuple[str, int]:
    return "text", id(node)


class Place:
    """One node shown to a rule. Questions about nodes (`kind`, `name`, `text` …) work for every
    expression of the hot function; `finding` and `replace` make the answer."""

    def __init__(
        self,
        reader: Reader,
        asked: Asked,
        scene: Scene,
        node: cst.CSTNode,
        rule: tuple[str, str],
        target: Target,
        head: Callable[[cst.CSTNode], Span],
        span: Callable[[cst.CSTNode], Span],
        source: Callable[[Span], str],
    ) -> None:
        self._reader = reader
        self._asked = asked
        self.scene = scene
        self.node = node
        self._rule = rule
        self.target = target
        self._head = head
        self._span = span
        self._source = source

    # -- values -----------------------------------------------------------------------

    def kind(self, node: cst.CSTNode) -> Kind:
        """What the expression can be at this point of the program."""
        return self._reader.kinds.get(id(node), UNKNOWN)

    def is_tensor(self, node: cst.CSTNode) -> bool:
        """Surely a tensor, on whatever device."""
        return self.kind(node).is_tensor

    def on_device(self, node: cst.CSTNode) -> bool:
        """Surely a tensor, and not known to be on the CPU: reading its value may wait for the device."""
        return self.kind(node).on_device

    def certainty(self, *nodes: cst.CSTNode) -> Certainty | None:
        """For rules about tensors: "sure" if one of the nodes is surely a tensor that may be on a device,
        "maybe" if one may be, None if none can be (or all are on the CPU)."""
        kinds = [self.kind(n) for n in nodes]
        if any(k.on_device for k in kinds):
            return "sure"
        if any(k.maybe_tensor and not k.host for k in kinds):
            return "maybe"
        return None

    # -- names ------------------------------------------------------------------------

    def name(self, node: cst.CSTNode) -> str:
        """The dotted name that a chain of names and attributes refers to, with imports resolved:
        ``F.relu`` is ``torch.nn.functional.relu``, a builtin is ``len``, an attribute of self is
        ``self.x``. Empty for local values and anything else. For a call, the name of its function."""
        if isinstance(node, cst.Call):
            node = node.func
        found = self._reader.dotted_names.get(id(node))
        return found if found is not None else ""

    def last_name(self, call: cst.Call) -> str:
        """The last name of the called function: ``item`` for ``x.sum().item()``."""
        func = call.func
        if isinstance(func, cst.Attribute):
            return func.attr.value
        return func.value if isinstance(func, cst.Name) else ""

    def is_torch(self, call: cst.Call, *names: str) -> bool:
        """Whether a call is ``torch.NAME(...)`` for one of the names."""
        return self.name(call) in {f"torch.{n}" for n in names}

    def spelling(self, name: str) -> str:
        """How the file writes a dotted name with its existing imports: ``F.relu`` for
        ``torch.nn.functional.relu``. Empty if no import leads to it, or a local name hides it."""
        known = self._asked.spelled(name)
        found = [spelled for local, spelled in known if local not in self._reader.assigned]
        return min(found, key=lambda f: (len(f), f), default="")

    def is_taken(self, name: str) -> bool:
        """Whether a plain name is already bound in the file or the function."""
        return name in self._reader.assigned or self._asked.taken(name)

    def receiver(self, call: cst.Call) -> cst.BaseExpression | None:
        """``x`` of ``x.item()``; None for calls of plain names."""
        return call.func.value if isinstance(call.func, cst.Attribute) else None

    def argument(
        self, call: cst.Call, position: int | None, keyword: str = ""
    ) -> cst.BaseExpression | None:
        """The argument given at a position or by keyword; None if it is not given (or hidden by * and **)."""
        index = 0
        for arg in call.args:
            if arg.star:
                return None if not keyword else self._keyword(call, keyword)
            if arg.keyword is not None:
                if keyword and arg.keyword.value == keyword:
                    return arg.value
            else:
                if position is not None and index == position:
                    return arg.value
                index += 1
        return None

    def _keyword(self, call: cst.Call, keyword: str) -> cst.BaseExpression | None:
        return next(
            (a.value for a in call.args if a.keyword is not None and a.keyword.value == keyword),
            None,
        )

    def value_of(self, name: cst.CSTNode) -> cst.BaseExpression | None:
        """The expression that a name surely refers to here: the value of the only assignment that reaches
        it."""
        return self._reader.values.get(id(name))

    def callee(self, call: cst.Call) -> CalleeBrief | None:
        """What is known about the project function that a call runs."""
        return self._reader.brief.callees.get(self._reader.callee_key(call.func))

    def decorated_with(self, call: cst.Call, *names: str) -> bool:
        """Whether a call runs a project function that has one of these (dotted) decorators."""
        callee = self.callee(call)
        return callee is not None and any(d in names for d in callee.decorators)

    def is_tree_call(self, call: cst.Call, *functions: str) -> bool:
        """Whether a call is one of these functions of a tree library (`torch.utils._pytree`, optree,
        dm-tree, jax.tree_util, keras.tree, or one named in the configuration)."""
        name = self.name(call)
        module, _, last = name.rpartition(".")
        return last in functions and module in (*_TREE_MODULES, *self.target.tree_modules)

    # -- context ---------------------------------------------------------------------------

    @property
    def function(self) -> cst.FunctionDef:
        """The innermost function around the node."""
        return self.scene.function

    @property
    def qualname(self) -> str:
        """Its qualified name: ``Dense.call``."""
        return self.scene.qualname

    @property
    def statement(self) -> cst.CSTNode:
        """The statement that contains the node (for compound statements: if the node is in their header)."""
        return self.scene.statement

    @property
    def block(self) -> tuple[cst.CSTNode, ...]:
        """The statements of the block that contains the statement, in order."""
        return self.scene.block

    @property
    def loops(self) -> tuple[cst.CSTNode, ...]:
        """Loops and comprehensions around the node in its own function, outermost first."""
        return self.scene.loops

    @property
    def conditions(self) -> tuple[tuple[cst.BaseExpression, bool], ...]:
        """Conditions of the ifs around the node, outermost first, and whether they are true at the node."""
        return self.scene.conditions

    def usual(self, test: cst.BaseExpression) -> bool | None:
        """The value that a test has on nearly all calls: False for ``not self._initialized`` and
        ``is_tracing()``; None if unknown."""
        rare, rare_else = cold_branches.cold_branches(text(test))
        return None if rare == rare_else else rare_else

    @property
    def withs(self) -> tuple[cst.With, ...]:
        """With statements around the node."""
        return self.scene.withs

    @property
    def hot(self) -> HotFact:
        """Why the function is hot."""
        return self._reader.brief.hot[self.scene.qualname]

    @property
    def per_call(self) -> bool:
        """Whether the function runs once per operation or call. False if it runs once per step of a
        training or sampling loop, where a microsecond of Python does not matter, or if only users of the
        library call it, nobody knows how often."""
        return self.hot.per == "call" and not self.hot.only_loops and not self.hot.users

    @property
    def cls(self) -> ClassBrief | None:
        """The class of the method, with what it inherits; None in plain functions. It has only the
        methods that the function names; `defines` knows all."""
        return self._reader.cls

    def defines(self, *names: str) -> bool:
        """Whether the class of the method has a method or property with one of these names, its own or
        inherited from classes of the project."""
        return self._reader.cls is not None and any(
            self._asked.defines(f"{self.class_name}.{name}") for name in names
        )

    @property
    def class_name(self) -> str:
        """Its name, empty in plain functions."""
        return self._reader.class_name

    @property
    def self_name(self) -> str:
        """What the method calls ``self``; empty in plain functions."""
        return self._reader.self_name

    @property
    def in_module(self) -> bool:
        """Whether the function is a method of a module (torch.nn.Module, Keras layer, metric …)."""
        return self._reader.cls is not None and self._reader.cls.is_module

    @property
    def module(self) -> str:
        """The dotted name of the file's module."""
        return self._reader.brief.module

    @property
    def imports(self) -> Sequence[str]:
        """Top-level packages the file imports."""
        return self._reader.brief.imports

    def attribute_values(self, name: str) -> Sequence[str]:
        """What the class assigns to ``self.NAME``, as `facts.Value` words."""
        return self._reader.cls.attrs.get(name, ()) if self._reader.cls else ()

    def global_values(self, name: str) -> Sequence[str]:
        """What the file assigns to a module-level name, as `facts.Value` words."""
        return self._asked.values(name)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The expression or simple statement around an expression; None if the expression is in the
        header of a compound statement."""
        return self._reader.parents.get(id(node))

    def uses(self, name: str) -> int:
        """How often the outermost function reads a local name."""
        return self._reader.used.get(name, 0)

    def assignments(self, name: str) -> int:
        """How often the outermost function binds a local name (a parameter counts once)."""
        return self._reader.assigned.get(name, 0)

    def calls(self, *names: str) -> Iterator[tuple[cst.Call, Scene]]:
        """All calls with one of these last names in the outermost function, in reading order, including
        cold ones."""
        by_name = self.once(("calls",), self._calls_by_name)
        found = [by_name[name] for name in (set(names) if names else by_name) if name in by_name]
        for _, call, scene in found[0] if len(found) == 1 else sorted(chain(*found), key=_number):
            yield call, scene

    def _calls_by_name(self) -> dict[str, list[tuple[int, cst.Call, Scene]]]:
        """All calls by their last names, each with its number in reading order."""
        found: dict[str, list[tuple[int, cst.Call, Scene]]] = {}
        for number, seen in enumerate(self._reader.events):
            if seen.event == "call":
                assert isinstance(seen.node, cst.Call)
                found.setdefault(seen.name, []).append((number, seen.node, seen.scene))
        return found

    def once(self, key: object, make: Callable[[], Answer]) -> Answer:
        """The result of `make`, computed once per outermost function, whichever rule asks first. The key
        is the rule's own: ``("reads", id(function))``."""
        memo = self._reader.memo
        if key not in memo:
            memo[key] = make()
        answer: Answer = memo[key]
        return answer

    def subscripts(self) -> Iterator[tuple[cst.Subscript, Scene]]:
        """All subscripts that are read in the outermost function, in reading order, including cold ones."""
        for seen in self._reader.events:
            if seen.event == "getitem":
                assert isinstance(seen.node, cst.Subscript)
                yield seen.node, seen.scene

    def invariant(self, node: cst.CSTNode, loop: cst.CSTNode) -> bool:
        """Whether an expression has the same value in every iteration of a loop, judged by its names:
        none of them is bound in the loop, and none is a tensor or object that the loop changes in place."""
        changed = self.once(("changed in", id(loop)), lambda: _changed_in(loop))
        names = _names_in(node)
        lambdas = self.once(("lambdas in", id(loop)), lambda: _lambdas_in(loop))
        given = (taken for taken, inside in lambdas if id(node) in inside)
        return not names & changed.union(*given)

    # -- source text ------------------------------------------------------------------------------

    def text(self, node: cst.CSTNode) -> str:
        """The source of a node."""
        # Keep the node, so that no later node gets its id.
        return self.once(_text_key(node), lambda: (node, text(node)))[1]

    def short(self, node: cst.CSTNode, limit: int = 48) -> str:
        """The source of a node for messages: on one line, without enclosing brackets, shortened if it is
        long."""
        shown = " ".join(self.text(node).split())
        while _is_bracketed(shown):
            shown = shown[1:-1].strip()
        return shown if len(shown) <= limit else shown[: limit - 1].rstrip() + "…"

    def same(self, a: cst.CSTNode, b: cst.CSTNode) -> bool:
        """Whether two expressions have the same source."""
        return a is b or self.text(a) == self.text(b)

    def dotted(self, node: cst.CSTNode) -> str:
        """``a.b.c`` as written, empty if the node is not a chain of names."""
        return dotted(node) or ""

    # -- answers ----------------------------------------------------------------------------

    def finding(
        self,
        node: cst.CSTNode,
        message: str,
        *,
        certainty: Certainty = "sure",
        fix: Fix | None = None,
        dry: bool | None = False,
    ) -> Finding:
        """A finding at this node.

        A `note` surely costs something, but what to do is for the author to decide. `maybe` findings are
        shown only with --pedantic. If only users of the library make a place hot, or the default of an option
        leaves it out, it is at most a note.
        `dry` is for rules whose places usually wait for the device: True if this one surely does not,
        which has another price; None if that is unknown, and then it has no price.
        """
        code, rule = self._rule
        fact = self.hot
        span = self._head(node)
        left_out = left_out_by_default(self._reader, self.scene)
        said = message.removesuffix(".")
        if left_out is not None:
            condition, holds = left_out
            where = f"`{self.short(condition)}`" + ("" if holds else " does not hold")
            said += f". It runs only where {where}, which is not the default"
        hot = Hot(
            root=fact.root,
            path=tuple(fact.path),
            reason=fact.reason,
            loop=fact.loop or bool(self.loops),
            per="step" if fact.per == "step" else "call",
            seen=fact.seen,
            users=fact.users,
        )
        return Finding(
            code=code,
            rule=rule,
            path=self._reader.brief.path,
            span=span,
            function=self.qualname,
            message=said,
            certainty=certainty
            if left_out is None and not fact.users
            else weaker(certainty, "note"),
            hot=hot,
            fix=fix,
            source=self._source(span),
            dry=dry,
        )

    def replace(
        self,
        old: cst.CSTNode,
        new: cst.CSTNode | str,
        *,
        safety: Safety,
        message: str,
        imports: Iterable[str] = (),
        definitions: Iterable[str] = (),
        attributes: Iterable[str] = (),
    ) -> Fix:
        """A fix that replaces a node (or its source text) by another. `imports` are whole statements
        (``import itertools``) that the file needs for it, `definitions` assignments and functions that it
        needs at module level; existing ones are not added again. No fix is offered where the file uses a
        defined name for something else, or where the class of the method may be without one of the
        `attributes` of self."""
        return self.edits(
            [(old, new)],
            safety=safety,
            message=message,
            imports=imports,
            definitions=definitions,
            attributes=attributes,
        )

    def edits(
        self,
        pairs: Iterable[tuple[cst.CSTNode, cst.CSTNode | str]],
        *,
        safety: Safety,
        message: str,
        imports: Iterable[str] = (),
        definitions: Iterable[str] = (),
        attributes: Iterable[str] = (),
        more: Iterable[Edit] = (),
    ) -> Fix:
        """A fix of several replacements, made together or not at all. Statements are replaced without
        their indentation and trailing comment: further lines of the new text need the statement's
        indentation (`indent`). `more` are edits made by `head_edit` and `after`."""
        path = self._reader.brief.path
        edits = [
            Edit(path, self._span(old), new if isinstance(new, str) else text(new))
            for old, new in pairs
        ]
        edits.extend(more)
        edits.extend(self._elsewhere(IMPORTS, imports))
        edits.extend(self._elsewhere(DEFINITIONS, definitions))
        owned = (f"{self.class_name}.{name}" for name in attributes)
        edits.extend(self._elsewhere(ATTRIBUTES, owned))
        return Fix(safety, message, tuple(edits))

    def head_edit(self, statement: cst.CSTNode, new: str) -> Edit:
        """Replace the header of a compound statement, up to its colon."""
        return Edit(self._reader.brief.path, self._head(statement), new)

    def after(self, node: cst.CSTNode, new: str) -> Edit:
        """Insert text after a node."""
        end = self._span(node)
        at = Span(end.end_line, end.end_column, end.end_line, end.end_column)
        return Edit(self._reader.brief.path, at, new)

    def before(self, node: cst.CSTNode, new: str) -> Edit:
        """Insert text before a node."""
        start = self._span(node)
        at = Span(start.line, start.column, start.line, start.column)
        return Edit(self._reader.brief.path, at, new)

    def without(self, statement: cst.CSTNode) -> Edit | None:
        """Remove a statement with its lines, but for a comment behind a simple one; None where other
        statements stand on its line. What is all of a block becomes `pass`."""
        simple = isinstance(statement, cst.SimpleStatementLine)
        alone = len(statement.body) == 1 if isinstance(statement, cst.SimpleStatementLine) else True
        if not alone or not any(one is statement for one in self.block):
            return None
        span, path = self._span(statement), self._reader.brief.path
        if len(self.block) == 1:
            return Edit(path, span, "pass")
        if not simple or span.line != span.end_line:
            return Edit(path, Span(span.line, 1, span.end_line + 1, 1), "")
        behind = self._source(span)[span.end_column - 1 :]
        if not behind.strip():
            return Edit(path, Span(span.line, 1, span.line + 1, 1), "")
        if not behind.lstrip().startswith("#"):
            return None
        comment = span.end_column + len(behind) - len(behind.lstrip())
        return Edit(path, Span(span.line, span.column, span.line, comment), "")

    def indent(self, node: cst.CSTNode) -> str:
        """The indentation of the line on which a node starts."""
        line = self._source(self._span(node))
        return line[: len(line) - len(line.lstrip())]

    def _elsewhere(self, at: Span, statements: Iterable[str]) -> Iterator[Edit]:
        """Edits whose place is found later, when the whole text of the file is available."""
        for statement in statements:
            yield Edit(self._reader.brief.path, at, statement + "\n")

    # -- the project ---------------------------------------------------------------------------

    def supports_python(self, specifier: str) -> bool:
        """Whether the linted project supports a Python release in the specifier (``>=3.11``)."""
        return overlaps(self.target.python, specifier)

    def needs_torch(self, specifier: str) -> bool:
        """Whether every torch release that the linted project allows satisfies the specifier (``>=2.1``)."""
        return is_needed(self.target.torch, specifier)


_TREE_MODULES = (
    "torch.utils._pytree",
    "torch.utils.pytree",
    "torch.utils._cxx_pytree",
    "optree",
    "tree",
    "jax.tree_util",
    "jax.tree",
    "keras.tree",
    "keras.src.tree",
    "keras.src.tree.tree_api",
    "tensorflow.nest",
    "tf.nest",
)


def _is_bracketed(source: str) -> bool:
    """Whether round brackets enclose the whole expression: the last one closes the first."""
    depth = 0
    for i, c in enumerate(source):
        depth += (c in "([{") - (c in ")]}")
        if depth == 0:
            return i == len(source) - 1 > 1 and c == ")"
    return False


def _names_in(node: cst.CSTNode) -> set[str]:
    """The names in a node; for dotted names, all prefixes: `a`, `a.b` and `a.b.c`."""
    found: set[str] = set()
    for inner in nodes.walk(node):
        if isinstance(inner, cst.Name):
            found.add(inner.value)
        elif isinstance(inner, cst.Attribute):
            name = dotted(inner)
            if name is not None:
                found.add(name)
    return found


def _lambdas_in(loop: cst.CSTNode) -> list[tuple[frozenset[str], frozenset[int]]]:
    """The parameters of the lambdas in a loop, which differ call by call, and what stands inside each."""
    found = [node for node in nodes.walk(loop) if isinstance(node, cst.Lambda)]
    return [
        (
            frozenset(_taken_by(f.params)),
            frozenset(map(id, nodes.walk(f.body))),
        )
        for f in found
    ]


def _taken_by(given: cst.Parameters) -> Iterator[str]:
    """The names of all parameters."""
    stars = (star for star in (given.star_arg, given.star_kwarg) if isinstance(star, cst.Param))
    for param in (*given.posonly_params, *given.params, *given.kwonly_params, *stars):
        yield param.name.value


def _changed_in(loop: cst.CSTNode) -> set[str]:
    """Names that a loop binds, writes through, or on which it calls methods that change them."""
    found: set[str] = set()
    written: set[str] = set()
    rows: list[tuple[set[str], str]] = []
    for node in nodes.walk(loop):
        found |= _dotted_of(nodes.changed_by(node))
        written |= _dotted_of(nodes.written_by(node))
        if isinstance(node, cst.For | cst.CompFor):
            rows += [(_names_in(node.target), whole) for whole in _dotted_of([node.iter])]
    # Who writes into rows writes into the tensor that they are taken from.
    return found | {whole for names, whole in rows if names & written}


def _dotted_of(changed: Iterable[cst.BaseExpression]) -> set[str]:
    """The dotted names of tensors and other things, without what only takes a part of them."""
    return {name for one in changed if (name := dotted(nodes.whole_of(one)))}
