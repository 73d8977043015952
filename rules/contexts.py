"""DG2xx: context managers that are made, entered and left on every call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from pytest_dispatchguard import (
    Call,
    Certainty,
    Finding,
    Fix,
    Place,
    Rule,
    With,
    nodes,
    weaker,
)

_NULL = "contextlib.nullcontext"
_GENERATORS = ("contextlib.contextmanager",)
_NO_GRAD = frozenset(
    {"torch.no_grad", "torch.autograd.no_grad", "torch.autograd.grad_mode.no_grad"}
)
_INFERENCE = frozenset(
    {
        "torch.inference_mode",
        "torch.autograd.inference_mode",
        "torch.autograd.grad_mode.inference_mode",
    }
)
_ENABLE = frozenset(
    {
        "torch.enable_grad",
        "torch.set_grad_enabled",
        "torch.autograd.enable_grad",
        "torch.autograd.set_grad_enabled",
        "torch.autograd.grad_mode.enable_grad",
        "torch.autograd.grad_mode.set_grad_enabled",
    }
)
_AUTOCAST = {
    "torch.autocast": 2,
    "torch.amp.autocast": 2,
    "torch.amp.autocast_mode.autocast": 2,
    "torch.cuda.amp.autocast": 0,
    "torch.cuda.amp.autocast_mode.autocast": 0,
    "torch.cpu.amp.autocast": 0,
}
_RANGES = frozenset(
    {
        "torch.profiler.record_function",
        "torch.profiler.profiler.record_function",
        "torch.autograd.profiler.record_function",
        "torch.cuda.nvtx.range",
        "torch.cuda.nvtx.range_push",
        "torch.profiler.itt.range",
        "torch.profiler.itt.range_push",
        "nvtx.annotate",
    }
)
_DEVICES = frozenset({"torch.cuda.device", "torch.cuda.device_of", "torch.xpu.device"})
_ATTENTION_BACKENDS = frozenset(
    {"torch.nn.attention.sdpa_kernel", "torch.backends.cuda.sdp_kernel"}
)
_WATCHING = re.compile(
    r"prof|nvtx|trac|debug|record|annotat|instrument|verbose|timing", re.IGNORECASE
)
_ASKS_DEVICE = re.compile(r"current_device|device_count|num_gpus|n_gpu|index")
_ASKS_AUTOCAST = re.compile(r"autocast|\bamp\b|fp16|mixed_precision")
_META = re.compile(r"\bmeta\b")
_PLAIN_ITERATORS = frozenset(
    {"range", "enumerate", "zip", "reversed", "len", "list", "tuple", "sorted"}
)


# -- what several rules ask ------------------------------------------------------------------------


def entered(node: cst.With) -> Iterator[cst.Call]:
    """The calls whose results a with statement enters as they are."""
    if node.asynchronous is None:
        for item in node.items:
            if isinstance(item.item, cst.Call):
                yield item.item


def around_a_loop(node: cst.With) -> bool:
    """Whether the body of a with statement loops: to be entered once for all rounds is its point."""
    inside = nodes.walk(node.body, without=(cst.FunctionDef,))
    return any(type(n) is cst.For or type(n) is cst.While for n in inside)


def whole_body_of(node: cst.With, place: Place) -> cst.For | None:
    """The for loop whose body is this with statement and nothing else, where entering it around the loop
    instead would give the same: the context does not change between rounds, and what is iterated
    computes nothing."""
    loop = place.loops[-1] if place.loops else None
    if not isinstance(loop, cst.For) or loop.asynchronous is not None or loop.orelse is not None:
        return None
    if not isinstance(loop.body, cst.IndentedBlock) or list(loop.body.body) != [node]:
        return None
    if any(item.asname is not None or not place.invariant(item.item, loop) for item in node.items):
        return None
    return loop if _computes_nothing(loop.iter, place) else None


def _computes_nothing(node: cst.BaseExpression, place: Place) -> bool:
    if isinstance(node, cst.Name | cst.Attribute | cst.Integer | cst.SimpleString):
        return True
    if isinstance(node, cst.Tuple | cst.List):
        return all(_computes_nothing(e.value, place) for e in node.elements)
    if isinstance(node, cst.Call):
        plain = place.name(node) in _PLAIN_ITERATORS
        view = place.last_name(node) in ("items", "values", "keys") and not node.args
        return (plain or view) and all(_computes_nothing(a.value, place) for a in node.args)
    return False


def guarded(place: Place, words: re.Pattern[str]) -> bool:
    """Whether a condition around the place, or one that returns before it, speaks of such a thing."""
    asked = [test for test, _ in place.conditions]
    asked.extend(
        statement.test
        for statement in place.block
        if isinstance(statement, cst.If) and _returns(statement.body)
    )
    return any(words.search(place.text(test)) for test in asked)


def _returns(body: cst.BaseSuite) -> bool:
    last = body.body[-1]
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return isinstance(last, cst.Return)


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


def _is_false(node: cst.BaseExpression | None) -> bool:
    return isinstance(node, cst.Name) and node.value == "False"


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


# -- the rules -------------------------------------------------------------------------------------


def _by_layer(place: Place) -> Certainty:
    """Whether a place surely runs in layers, not once in a step or generation: there a microsecond counts."""
    often = place.in_module or place.hot.loop or bool(place.loops)
    return "sure" if often else "note"


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
    No automatic fix: a class must keep by itself what the generator kept in local names, and an
    object that is kept and entered again must not be entered while it is entered.
    """

    code = "DG201"
    name = "generator-context-per-call"
    also_compiled = False
    origin = "TransformerEngine#2957"
    looks_for = (With(), Call("enter_context"))

    def judge(self, node: cst.With | cst.Call, place: Place) -> Iterator[Finding]:
        """Flags entered generator contexts."""
        if not place.per_call or guarded(place, _WATCHING):
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
                "the host. Write it as a class with `__enter__` and `__exit__`, or test first "
                "whether there is anything to enter",
                certainty="sure" if len(place.hot.path) <= 5 else "maybe",
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
    No automatic fix: which contexts may be left out, and in what order, is for a reader to decide.
    """

    code = "DG202"
    name = "exit-stack-per-call"
    also_compiled = False
    origin = "cpython#77446"
    looks_for = With()

    def judge(self, node: cst.With, place: Place) -> Finding | None:
        """Flags stacks of contexts that are known beforehand."""
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
                f"`{place.text(call)}` is built on every call for contexts that are known "
                "beforehand: it looks up their methods by hand and unwinds them in a Python loop "
                "on the host. Enter them in the `with` itself, and put one shared "
                "`nullcontext()` where a condition fails",
            )
        return None


class NullContextPerCall(Rule):
    """A `nullcontext()` is made anew on every call.

    ## What it does
    Flags `nullcontext()` without an argument in hot functions, mostly as the other side of
    `with ctx if condition else nullcontext():`.

    ## Why it costs
    The object does nothing, and a new one is made each time. One object does for all: it keeps no
    state and may be entered as often as one likes, also while it is entered.

    ## Example
    ```python
    def forward(self, x):
        with self.lock if self.shared else contextlib.nullcontext():
            return self.table[x]
    ```

    ## Instead
    ```python
    _NOTHING = contextlib.nullcontext()

    def forward(self, x):
        with self.lock if self.shared else _NOTHING:
            return self.table[x]
    ```

    ## Fix safety
    No automatic fix: the shared object needs a name and a place in the module.
    """

    code = "DG203"
    name = "nullcontext-per-call"
    also_compiled = False
    origin = "TransformerEngine#2957"
    looks_for = Call("nullcontext")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags null contexts that hold nothing."""
        if place.name(node) != _NULL or node.args or not place.per_call:
            return None
        if guarded(place, _META):
            return None
        return place.finding(
            node,
            f"`{place.text(node)}` makes a context that does nothing, anew on every call. Make "
            "one at module level and use it everywhere (it keeps no state), or call without "
            "`with` where there is nothing to enter",
            certainty=weaker(_by_layer(place), "sure" if len(place.hot.path) <= 5 else "maybe"),
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
    Safe. It is offered where `suppress` stands alone in its `with` and is given builtin exceptions
    by name. (Since Python 3.12 `suppress` also looks inside exception groups; the fix is not
    offered where one is in sight.)
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
                    "nothing is raised as a rule. `try: … except …: pass` costs the host nothing "
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
    """Several contexts that may all do nothing are entered one inside the other on every call.

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
    No automatic fix: the body has to be written twice, or moved to a function of its own.
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
            f"{len(idle)} contexts are entered here that may all do nothing; each is still "
            "entered and left by the host on every call. Test their conditions together first, "
            "and run the body without `with` when none holds",
        )


class RangeAlwaysRecorded(Rule):
    """A profiler range is opened on every call, whether a profiler runs or not.

    ## What it does
    Flags `with record_function(...)`, `torch.cuda.nvtx.range(...)` and `range_push(...)` in hot
    functions that no condition guards.

    ## Why it costs
    Without a profiler the range still goes through Python and the dispatcher twice: several
    microseconds of host time, as much as the operation it names.

    ## Example
    ```python
    def forward(self, x):
        with torch.profiler.record_function("attention"):
            return self.attend(x)
    ```

    ## Instead
    ```python
    def forward(self, x):
        if not torch.autograd._profiler_enabled():
            return self.attend(x)
        with torch.profiler.record_function("attention"):
            return self.attend(x)
    ```

    ## Fix safety
    No automatic fix: what switches profiling on is for the project to say.
    """

    code = "DG206"
    name = "range-always-recorded"
    also_compiled = False
    origin = "TransformerEngine#2377"
    looks_for = (With(), Call("range_push"))

    def judge(self, node: cst.With | cst.Call, place: Place) -> Iterator[Finding]:
        """Flags ranges that nothing guards."""
        if not place.per_call or guarded(place, _WATCHING):
            return
        for call in entered(node) if isinstance(node, cst.With) else [node]:
            if place.name(call) in _RANGES:
                yield place.finding(
                    call,
                    f"`{place.text(call.func)}` opens a range on every call, several microseconds "
                    "on the host, also when no profiler runs. Open it only behind a flag that "
                    "says that profiling is on",
                    certainty="note",
                )


class GradModeHoistable(Rule):
    """A grad mode is entered again in every round of a loop, or where it holds already.

    ## What it does
    Flags `with torch.no_grad():` (`inference_mode`, `enable_grad`, `set_grad_enabled`) that is the
    whole body of a loop, and `no_grad` inside another `no_grad`, in hot functions.
    `no_grad` entered per call in the forward of a module is a note.

    ## Why it costs
    Each entry makes an object and switches a mode on and off: one to two microseconds of host time.

    ## Example
    ```python
    for p, q in zip(params, shadow):
        with torch.no_grad():
            q.lerp_(p, 0.1)
    ```

    ## Instead
    ```python
    with torch.no_grad():
        for p, q in zip(params, shadow):
            q.lerp_(p, 0.1)
    ```

    ## Fix safety
    No automatic fix: the block must be indented anew.
    """

    code = "DG207"
    name = "grad-mode-hoistable"
    also_compiled = False
    origin = "pytorch#128182"
    looks_for = With()

    def judge(self, node: cst.With, place: Place) -> Finding | None:
        """Flags grad modes that could be entered further out."""
        if not place.per_call:
            return None
        for call in entered(node):
            name = place.name(call)
            if name not in _NO_GRAD | _INFERENCE | _ENABLE:
                continue
            shown = f"`{place.text(call)}`"
            if name in _NO_GRAD and _already_off(call, node, place):
                return place.finding(
                    call,
                    f"Gradients are off here already: {shown} makes an object and switches the "
                    "mode for nothing, a microsecond or two on the host. Drop it",
                )
            if len(node.items) == 1 and whole_body_of(node, place) is not None:
                return place.finding(
                    call,
                    f"{shown} is entered and left in every round of the loop, a microsecond or "
                    "two on the host each. Put it around the loop",
                )
            if place.in_module and place.function.name.value == "forward" and place.hot.loop:
                return place.finding(
                    call,
                    f"{shown} is entered on every call of this module, a microsecond or two on "
                    "the host. Where all callers can enter it once for all layers, enter it there",
                    certainty="note",
                )
        return None


def _already_off(call: cst.Call, node: cst.With, place: Place) -> bool:
    """Whether the innermost grad mode around a context of a with statement is no_grad or "
    "inference_mode."""
    before = [item.item for item in node.items]
    around = [item.item for outer in place.withs for item in outer.items]
    for entered_first in reversed([*around, *before[: before.index(call)]]):
        if not isinstance(entered_first, cst.Call):
            return False
        name = place.name(entered_first)
        if name in _NO_GRAD | _INFERENCE | _ENABLE:
            return name not in _ENABLE and not entered_first.args
    for decorator in place.function.decorators:
        mode = decorator.decorator
        given = mode.args if isinstance(mode, cst.Call) else ()
        name = place.dotted(mode.func if isinstance(mode, cst.Call) else mode)
        if name.removeprefix("torch.") in ("no_grad", "inference_mode"):
            return not given
    return False


class AutocastOffPerCall(Rule):
    """Autocast is switched off on every call, though it is seldom on.

    ## What it does
    Flags `with torch.autocast(..., enabled=False):` in hot functions, where no condition asks first
    whether autocast is on; and any autocast that is the whole body of a loop.

    ## Why it costs
    `torch.autocast` resolves the device, asks several backends for their state, and sets and resets
    the mode: four microseconds of host time and more, to no effect while autocast is off.

    ## Example
    ```python
    with torch.autocast(x.device.type, enabled=False):
        freqs = self.inv_freq * x.float()
    ```

    ## Instead
    ```python
    _NOTHING = contextlib.nullcontext()

    def without_autocast(device_type):
        if torch.is_autocast_enabled(device_type):
            return torch.autocast(device_type, enabled=False)
        return _NOTHING

    with without_autocast(x.device.type):
        freqs = self.inv_freq * x.float()
    ```

    ## Fix safety
    No automatic fix: the shared object needs a name and a place in the module.
    """

    code = "DG208"
    name = "autocast-off-per-call"
    also_compiled = False
    origin = "TransformerEngine#1191"
    looks_for = With()

    def judge(self, node: cst.With, place: Place) -> Finding | None:
        """Flags autocast switched off unasked, and autocast that could be entered around the "
        "loop."""
        if not place.per_call or guarded(place, _ASKS_AUTOCAST):
            return None
        for call in entered(node):
            name = place.name(call)
            if name not in _AUTOCAST:
                continue
            if len(node.items) == 1 and whole_body_of(node, place) is not None:
                return place.finding(
                    call,
                    f"`{place.text(call.func)}` is entered and left in every round of the loop, "
                    "several microseconds on the host each. Put it around the loop",
                )
            if _is_false(place.argument(call, _AUTOCAST[name], "enabled")) and not around_a_loop(
                node
            ):
                return place.finding(
                    call,
                    f"`{place.text(call)}` costs the host several microseconds on every call, to "
                    "no effect while autocast is off. Enter it only when "
                    "`torch.is_autocast_enabled(...)` says that it is on, and else a "
                    "`nullcontext()` made once",
                    certainty="note",
                )
        return None


class DeviceGuardPerCall(Rule):
    """The current device is set and reset on every call.

    ## What it does
    Flags `with torch.cuda.device(...)` and `device_of(...)` that is the whole body of a loop in hot
    functions; with `--pedantic` any that is entered per call, unless a condition asks for the
    current device or the number of devices first.

    ## Why it costs
    The device is parsed, asked for and set, and reset at the end, also when it is the current one
    already, as it is on every machine with one device.

    ## Example
    ```python
    for x in xs:
        with torch.cuda.device(device):
            launch(x)
    ```

    ## Instead
    ```python
    with torch.cuda.device(device):
        for x in xs:
            launch(x)
    ```

    ## Fix safety
    No automatic fix: whether the callers have set the device is not to be seen from here.
    """

    code = "DG209"
    name = "device-guard-per-call"
    also_compiled = False
    origin = "pytorch#91045"
    looks_for = With()

    def judge(self, node: cst.With, place: Place) -> Finding | None:
        """Flags device guards entered per call."""
        if not place.per_call or guarded(place, _ASKS_DEVICE):
            return None
        if around_a_loop(node) and not place.loops:
            return None
        for call in entered(node):
            if place.name(call) not in _DEVICES:
                continue
            around_loop = len(node.items) == 1 and whole_body_of(node, place) is not None
            advice = (
                "Put it around the loop"
                if around_loop
                else "Enter it once around the whole pass, or only when the device is not the current one"
            )
            return place.finding(
                call,
                f"`{place.text(call)}` asks for, sets and resets the current device on every call, a "
                f"microsecond or more on the host, also when it is current already. {advice}",
                certainty="sure" if around_loop else "note",
            )
        return None


class DeviceModePerCall(Rule):
    """`with torch.device(...)` puts a Python layer under every torch call of a hot function.

    ## What it does
    Flags `torch.device(...)` entered as a context in hot functions.

    ## Why it costs
    As a context, `torch.device` is a torch function mode: entering it costs several microseconds of
    host time, and while it lasts *every* torch call, not only factories, first runs a Python
    function.

    ## Example
    ```python
    with torch.device(x.device):
        mask = torch.ones(x.shape[:2])
        return self.attend(x, mask)
    ```

    ## Instead
    ```python
    mask = torch.ones(x.shape[:2], device=x.device)
    return self.attend(x, mask)
    ```

    ## Fix safety
    No automatic fix: which factories are called underneath is not to be seen from here.
    """

    code = "DG210"
    name = "device-mode-per-call"
    also_compiled = False
    origin = "pytorch#92701"
    looks_for = With()
    torch = ">=2.0"

    def judge(self, node: cst.With, place: Place) -> Finding | None:
        """Flags devices entered as contexts."""
        if not place.per_call:
            return None
        for item in node.items:
            for side in _sides(item.item):
                if isinstance(side, cst.Call) and place.name(side) == "torch.device":
                    return place.finding(
                        side,
                        f"Inside `with {place.text(side)}` every torch call first runs a Python "
                        "function, and entering it costs the host several microseconds. Give "
                        "`device=` to the calls that make tensors",
                        certainty="sure" if self._makes_tensors(node, place) else "note",
                    )
        return None

    @staticmethod
    def _makes_tensors(node: cst.With, place: Place) -> bool:
        """Whether the body calls torch itself: there `device=` can be given."""
        return any(
            place.name(call).startswith("torch.") and node in scene.withs
            for call, scene in place.calls()
        )


def _sides(node: cst.BaseExpression) -> Sequence[cst.BaseExpression]:
    return (node.body, node.orelse) if isinstance(node, cst.IfExp) else (node,)


class AttentionBackendPerCall(Rule):
    """The backend of attention is chosen and put back on every call.

    ## What it does
    Flags `with sdpa_kernel(...)` (and the older `sdp_kernel`) in hot functions.

    ## Why it costs
    The context reads the switches of all backends, and their order, through Python, sets them one
    by one, and sets them all again at the end: tens of microseconds of host time, as much as the
    attention of a small model itself.

    ## Example
    ```python
    def forward(self, q, k, v):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v)
    ```

    ## Instead
    ```python
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # once, around all layers
        for layer in self.layers:
            x = layer(x)
    ```

    ## Fix safety
    No automatic fix: where the whole pass begins is for a reader to say.
    """

    code = "DG211"
    name = "attention-backend-per-call"
    also_compiled = False
    origin = "pytorch#85984"
    looks_for = With()

    def judge(self, node: cst.With, place: Place) -> Finding | None:
        """Flags backends chosen in hot functions."""
        if not place.per_call or (around_a_loop(node) and not place.loops):
            return None
        for call in entered(node):
            if place.name(call) in _ATTENTION_BACKENDS:
                return place.finding(
                    call,
                    f"`{place.text(call.func)}` reads, sets and puts back the switches of all attention "
                    "backends on every call, tens of microseconds on the host. Enter it once, around the "
                    "whole pass",
                )
        return None
