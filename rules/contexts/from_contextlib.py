"""DG201 to DG205: context managers built with `contextlib` on every call."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Place, Rule, With, weaker

from ..certainty import layer_certainty, path_certainty
from .entering import WATCHING, around_a_loop, entered, guarded

_NULL = "contextlib.nullcontext"
_GENERATORS = ("contextlib.contextmanager",)
_META = re.compile(r"\bmeta\b")


def _is_null(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression is a null context, made here or shared by the module."""
    if isinstance(node, cst.Call):
        return place.name(node) == _NULL
    return isinstance(node, cst.Name) and f"call:{_NULL}" in place.global_values(node.value)


def _may_do_nothing(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a context that is entered does nothing, depending on a flag."""
    if isinstance(node, cst.Name):
        value = place.value_of(node)
        return isinstance(value, cst.IfExp) and _may_do_nothing(value, place)
    return isinstance(node, cst.IfExp) and (
        _is_null(node.body, place) or _is_null(node.orelse, place)
    )


def _stack(node: cst.With) -> list[cst.BaseExpression]:
    """What a with statement enters, and those that stand directly inside it."""
    found = [item.item for item in node.items]
    body = node.body.body
    if len(body) == 1 and isinstance(body[0], cst.With):
        found += _stack(body[0])
    return found


def _directly_inside(node: cst.With, place: Place) -> bool:
    """Whether the with statement is all that another one holds."""
    outer = place.withs[-1] if place.withs else None
    return outer is not None and len(outer.body.body) == 1 and outer.body.body[0] is node


class GeneratorContextPerCall(Rule):
    """A `@contextmanager` function is entered on every call.

    ## What it does
    Flags `with f():` and `stack.enter_context(f())` in hot functions where `f` is a function of the
    project that `contextlib.contextmanager` decorates, and the body is no loop.

    ## Why it costs
    Each entry makes a generator and a helper object, runs both through several Python frames, and
    closes them again. A class with `__enter__` and `__exit__` does the same for about a quarter of
    the host time.

    ## Example
    ```python
    @contextlib.contextmanager
    def scope(name):
        stack.append(name)
        try:
            yield
        finally:
            stack.pop()

    def call(self, x):
        with scope(self.name):
            return self.op(x)
    ```

    ## Instead
    ```python
    class scope:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            stack.append(self.name)

        def __exit__(self, *exc):
            stack.pop()
    ```

    ## Fix safety
    No fix: a class has to store what the generator kept in local variables, and a shared object must not be
    entered twice at the same time.
    """

    code = "DG201"
    name = "generator-context-per-call"
    also_compiled = False
    origin = "TransformerEngine#2957"
    looks_for = (With(), Call("enter_context"))

    def judge(self, node: cst.With | cst.Call, place: Place) -> Iterator[Finding]:
        """Flags entered generator contexts."""
        if not place.per_call or guarded(place, WATCHING):
            return
        if isinstance(node, cst.With):
            calls = [] if around_a_loop(node) and not place.loops else list(entered(node))
        else:
            given = node.args[0].value if len(node.args) == 1 else None
            calls = [given] if isinstance(given, cst.Call) else []
        for call in calls:
            if not place.decorated_with(call, *_GENERATORS):
                continue
            yield place.finding(
                call,
                f"`{place.text(call.func)}` is a generator context manager: each entry makes a "
                "generator and a helper object and runs them through several Python frames on "
                "the host. Write it as a class with `__enter__` and `__exit__`, or skip it "
                "when it would do nothing",
                certainty=path_certainty(place),
            )


class ExitStackPerCall(Rule):
    """An `ExitStack` is built to enter a fixed set of contexts.

    ## What it does
    Flags `with ExitStack() as stack:` in hot functions where the stack is used for nothing but
    `stack.enter_context(...)`, none of them in a loop: the contexts are known when the code is
    written.

    ## Why it costs
    The stack makes a deque, looks up `__enter__` and `__exit__` of each context by hand, binds them
    to methods, and unwinds them in a Python loop: more than a microsecond of host time before
    anything is entered.

    ## Example
    ```python
    with contextlib.ExitStack() as stack:
        if self.scope is not None:
            stack.enter_context(self.scope)
        return self.op(x)
    ```

    ## Instead
    ```python
    with self.scope if self.scope is not None else _NOTHING:  # _NOTHING = contextlib.nullcontext(), made once
        return self.op(x)
    ```

    ## Fix safety
    No fix: only the author knows which contexts may be left out, and in what order.
    """

    code = "DG202"
    name = "exit-stack-per-call"
    also_compiled = False
    origin = "cpython#77446"
    looks_for = With()

    def judge(self, node: cst.With, place: Place) -> Finding | None:
        """Flags stacks of contexts that are known in advance."""
        if not place.per_call or around_a_loop(node):
            return None
        for item in node.items:
            call, name = item.item, item.asname.name if item.asname is not None else None
            if not (isinstance(call, cst.Call) and place.name(call) == "contextlib.ExitStack"):
                continue
            if not isinstance(name, cst.Name):
                continue
            entries = [
                scene
                for entry, scene in place.calls("enter_context")
                if place.dotted(entry.func) == f"{name.value}.enter_context"
            ]
            if (
                not entries
                or len(entries) != place.uses(name.value)
                or place.assignments(name.value) != 1
            ):
                continue
            if any(len(scene.loops) > len(place.loops) for scene in entries):
                continue
            return place.finding(
                call,
                f"`{place.text(call)}` is built on every call for contexts that are known in "
                "advance: it looks up their methods by hand and unwinds them in a Python loop on "
                "the host. Write `with a, b:` directly, and use a shared `nullcontext()` if the "
                "condition of one is false",
            )
        return None


class NullContextPerCall(Rule):
    """A `nullcontext()` is built on every call.

    ## What it does
    Flags `nullcontext()` without an argument in hot functions, mostly as the other side of
    `with ctx if condition else nullcontext():`.

    ## Why it costs
    The object does nothing, and a new one is made each time. One object is enough: it has no state and can
    be entered any number of times, even nested.

    ## Example
    ```python
    def forward(self, x):
        with self.lock if self.shared else contextlib.nullcontext():
            return self.table[x]
    ```

    ## Instead
    ```python
    _NULL_CONTEXT = contextlib.nullcontext()

    def forward(self, x):
        with self.lock if self.shared else _NULL_CONTEXT:
            return self.table[x]
    ```

    ## Fix safety
    Safe: the object keeps nothing, and entering it again while it is entered is allowed. None is offered
    where `contextlib` is imported inside a function.
    """

    code = "DG203"
    name = "nullcontext-per-call"
    also_compiled = False
    origin = "TransformerEngine#2957"
    looks_for = Call("nullcontext")
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags null contexts that hold nothing."""
        if place.name(node) != _NULL or node.args or not place.per_call:
            return None
        if guarded(place, _META):
            return None
        return place.finding(
            node,
            f"`{place.text(node)}` builds a context that does nothing on every call. Build one at "
            "module level and use it everywhere (it keeps no state), or call without `with` if "
            "there is nothing to enter",
            certainty=weaker(layer_certainty(place), path_certainty(place)),
            fix=place.replace(
                node,
                "_NULL_CONTEXT",
                safety="safe",
                message="Enter one null context that the module keeps",
                definitions=(f"_NULL_CONTEXT = {place.text(node)}",),
            )
            if not node.lpar and "\n" not in place.text(node)
            else None,
        )


class SuppressPerCall(Rule):
    """`contextlib.suppress` is entered on every call.

    ## What it does
    Flags `with contextlib.suppress(...)` in hot functions.

    ## Why it costs
    An object is made, entered and left through Python frames, also when nothing is raised. `try`
    costs nothing until something is raised. (ruff's SIM105 asks for the opposite; on hot paths turn
    it off.)

    ## Example
    ```python
    with contextlib.suppress(KeyError):
        return self.memo[key]
    ```

    ## Instead
    ```python
    try:
        return self.memo[key]
    except KeyError:
        pass
    ```

    ## Fix safety
    Safe. It is offered where `suppress` stands alone in its `with` and is given builtin exceptions by name.
    (Since Python 3.12 `suppress` also looks inside exception groups; the fix is not offered where the code
    mentions one.)
    """

    code = "DG204"
    name = "suppress-per-call"
    also_compiled = False
    origin = "flake8-simplify#91"
    looks_for = With()
    fixes = "safe"

    def judge(self, node: cst.With, place: Place) -> Finding | None:
        """Flags entered suppress objects."""
        if not place.per_call or (around_a_loop(node) and not place.loops):
            return None
        for call in entered(node):
            if place.name(call) == "contextlib.suppress" and call.args:
                return place.finding(
                    call,
                    f"`{place.text(call)}` makes and enters an object on every call, though "
                    "normally nothing is raised. `try: … except …: pass` costs the host nothing "
                    "until something is raised",
                    fix=_as_try(node, call, place),
                )
        return None


def _as_try(node: cst.With, call: cst.Call, place: Place) -> Fix | None:
    if len(node.items) != 1 or node.items[0].asname is not None:
        return None
    if isinstance(node.lpar, cst.LeftParen) or call.lpar:
        return None
    names = []
    for arg in call.args:
        if arg.star or arg.keyword is not None or not isinstance(arg.value, cst.Name):
            return None
        name = place.name(arg.value)
        if not name or "." in name or not name[0].isupper():
            return None
        names.append(name)
    if "Group" in place.text(node):
        return None
    caught = names[0] if len(names) == 1 else f"({', '.join(names)})"
    indent = place.indent(node)
    if "\t" in indent:
        return None
    end = _last_line(node.body)
    tail = f"\n{indent}except {caught}:\n{indent}    pass"
    return place.edits(
        [],
        safety="safe",
        message="use try and except",
        more=[place.head_edit(node, "try"), place.after(end, tail)],
    )


def _last_line(body: cst.BaseSuite) -> cst.CSTNode:
    """The last thing written in a block: its last small statement, or the comment behind it."""
    last: cst.CSTNode = body
    while True:
        if isinstance(last, cst.IndentedBlock):
            last = last.body[-1]
        elif isinstance(last, cst.Try | cst.TryStar):
            last = (last.finalbody or last.orelse or last.handlers[-1]).body
        elif isinstance(last, cst.If | cst.For | cst.While):
            last = last.orelse if last.orelse is not None else last.body
        elif isinstance(last, cst.Match):
            last = last.cases[-1]
        elif isinstance(last, cst.SimpleStatementLine | cst.SimpleStatementSuite):
            comment = last.trailing_whitespace.comment
            return comment if comment is not None else last.body[-1]
        else:
            last = last.body  # type: ignore[attr-defined]  # With, FunctionDef, ClassDef, Else, MatchCase


class IdleContextsPerCall(Rule):
    """Several nested contexts that may all do nothing are entered on every call.

    ## What it does
    Flags `with` statements in hot functions (and those directly inside them) that enter two or more
    contexts of which each may do nothing: `ctx if flag else nullcontext()`.

    ## Why it costs
    With all flags off, the usual case, every one of them is still made, entered and left on the
    host.

    ## Example
    ```python
    with self.scope if self.scoped else _NOTHING, self.lock if self.shared else _NOTHING:
        return self.op(x)
    ```

    ## Instead
    ```python
    if not (self.scoped or self.shared):
        return self.op(x)
    with self.scope if self.scoped else _NOTHING, self.lock if self.shared else _NOTHING:
        return self.op(x)
    ```

    ## Fix safety
    No fix: the body has to be written twice, or moved to a function of its own.
    """

    code = "DG205"
    name = "idle-contexts-per-call"
    also_compiled = False
    origin = "TransformerEngine#2957"
    looks_for = With()

    def judge(self, node: cst.With, place: Place) -> Finding | None:
        """Flags stacks of contexts that may be idle."""
        if not place.per_call or around_a_loop(node) or _directly_inside(node, place):
            return None
        idle = [c for c in _stack(node) if _may_do_nothing(c, place)]
        if len(idle) < 2:
            return None
        return place.finding(
            node,
            f"these {len(idle)} contexts may all do nothing, yet each is entered and left on every call. "
            "Test their conditions together first, "
            "and run the body without `with` when none holds",
        )
