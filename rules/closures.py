"""DG3xx: functions, wrappers, partials and classes that are built anew on every call of hot code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import libcst as cst

from pytest_dispatchguard import (
    Call,
    Certainty,
    Class,
    Def,
    Finding,
    Fix,
    Lambda,
    MadeCall,
    Place,
    Rule,
    Scene,
    nodes,
)

from ._backends import runs_elsewhere

_KERNELS = frozenset({"jit", "njit", "lazy_jit", "autotune"})
_CACHES = ("cache", "lru_cache", "cached", "memoize", "memoise")
_COMPILERS = (
    "torch.compile",
    "torch.jit.script",
    "torch.jit.trace",
    "triton.jit",
    "torch.func.vmap",
    "torch.vmap",
)


def _too_small(place: Place) -> bool:
    """Whether a function more or less is nothing here: once beside a step of training, or elsewhere."""
    once_a_step = not place.per_call and not (place.hot.loop or place.loops)
    return once_a_step or _elsewhere(place)


def _elsewhere(place: Place) -> bool:
    """Whether the function runs under another backend than torch, or only while torch compiles it."""
    return runs_elsewhere(place) or any(
        place.name(d.decorator) in _COMPILERS for d in place.function.decorators
    )


@dataclass(slots=True)
class _Scope:
    """The names that a function reads, and those that it binds itself."""

    read: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    shares: bool = False
    """Whether it writes to names of the function around it."""


def _scope(node: cst.CSTNode) -> _Scope:
    scope = _Scope()
    for inner in nodes.walk(node):
        kind = type(inner)
        if kind is cst.Name:
            scope.read.add(inner.value)
        elif kind is cst.Param or kind is cst.FunctionDef:
            scope.bound.add(inner.name.value)
        elif kind is cst.ImportAlias:
            scope.bound.add(_imported(inner))
        elif kind is cst.Nonlocal:
            scope.shares = True
        else:
            scope.bound.update(t.value for t in nodes.bound_by(inner) if type(t) is cst.Name)
    return scope


def _imported(alias: cst.ImportAlias) -> str:
    """The name that an import binds."""
    bound: cst.CSTNode = alias.asname.name if alias.asname is not None else alias.name
    while isinstance(bound, cst.Attribute):
        bound = bound.value
    return bound.value if isinstance(bound, cst.Name) else ""


def _needs_the_call(node: cst.ClassDef | cst.Call, place: Place) -> bool:
    """Whether a class made in a function uses values of this very call, in its bases or its body: it cannot
    be defined elsewhere."""
    if isinstance(node, cst.Call):
        return any(place.assignments(n.value) for a in node.args for n in nodes.names_in(a.value))
    scope = _scope(node)
    local = {n for n in scope.read - scope.bound if place.assignments(n)}
    return scope.shares or bool(local - {node.name.value})


def _captures(node: cst.FunctionDef | cst.Lambda, place: Place) -> bool:
    """Whether a function made inside another needs anything of this very call."""
    scope = _scope(node)
    # Defaults are computed around the function, where a parameter of the same name is not meant.
    params = (*node.params.posonly_params, *node.params.params, *node.params.kwonly_params)
    defaults = {n.value for p in params if p.default is not None for n in nodes.names_in(p.default)}
    own = {node.name.value} if isinstance(node, cst.FunctionDef) else set()
    if scope.shares or scope.read & {"super", "__class__", place.self_name}:
        return True
    needed = (scope.read - scope.bound - own) | defaults
    return any(place.assignments(name) for name in needed) or bool(
        needed & _local_imports(place.function)
    )


@lru_cache(maxsize=4)
def _local_imports(function: cst.FunctionDef) -> frozenset[str]:
    found: set[str] = set()
    for node in nodes.walk(function):
        kind = type(node)
        if kind is cst.ImportAlias:
            found.add(_imported(node))
        elif kind is cst.ExceptHandler and node.name is not None:
            found.update(n.value for n in nodes.names_in(node.name))
    return frozenset(found)


def _called_once(name: str, place: Place) -> bool:
    """Whether a local function is used for nothing but one call, in the function and loop that made it."""
    if place.uses(name) != 1 or place.assignments(name) != 1:
        return False
    for call, scene in place.calls(name):
        if isinstance(call.func, cst.Name):
            same = scene.function is place.function and scene.loops == place.loops
            return same and not scene.deferred and not scene.cold
    return False


def _assigned_name(node: cst.CSTNode, place: Place) -> str:
    """`f` of the statement ``f = node``; else empty."""
    around = place.parent(node)
    if isinstance(around, cst.Assign) and around.value is node and len(around.targets) == 1:
        target = around.targets[0].target
        return target.value if isinstance(target, cst.Name) else ""
    return ""


class _Put(cst.CSTTransformer):
    """Puts expressions in place of names."""

    def __init__(self, given: Mapping[str, cst.BaseExpression]) -> None:
        self.given = given

    def visit_Attribute_attr(self, node: cst.Attribute) -> None:
        pass

    def visit_Arg_keyword(self, node: cst.Arg) -> None:
        pass

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self.given.get(original_node.value, updated_node)


def _by_layer(place: Place) -> Certainty:
    """Whether a place surely runs in layers, not once in a step or generation: there a closure counts."""
    often = place.in_module or place.hot.loop or bool(place.loops)
    return "sure" if often else "note"


class FunctionBuiltForOneCall(Rule):
    """A function is built on every call, to be called once.

    ## What it does

    Flags in hot code a lambda that is called where it stands, and a nested `def` (or a lambda with a name)
    that needs values of the call around it and is used for one call only.

    ## Why it costs

    Python makes a function object and cells for what it captures, then a frame for the call, and drops all
    of it. The same statements in place need none of this.

    ## Example

    ```python
    scale = (lambda: x.shape[-1] ** -0.5)()
    ```

    ## Instead

    ```python
    scale = x.shape[-1] ** -0.5
    ```

    ## Fix safety

    Safe where offered: for a lambda that is called at once with plain names or literals, or with nothing. A
    nested `def` is the author's to dissolve.
    """

    code = "DG301"
    name = "function-built-for-one-call"
    also_compiled = False
    origin = "keras#23183"
    looks_for = (Lambda(), Def())
    fixes = "safe"

    def judge(self, node: cst.Lambda | cst.FunctionDef, place: Place) -> Finding | None:
        """Speaks where the function can dissolve into the place of its one call."""
        if _too_small(place):
            return None
        around = place.parent(node)
        if isinstance(node, cst.Lambda) and isinstance(around, cst.Call) and around.func is node:
            message = (
                "this lambda is built on every call to be called once, right here; "
                "write its body in place"
            )
            fix = self._fix(node, around, place)
            return place.finding(node, message, certainty=_by_layer(place), fix=fix)
        if isinstance(node, cst.FunctionDef):
            name = "" if node.decorators or node.asynchronous else node.name.value
        else:
            name = _assigned_name(node, place)
        if not name or _stays(node) or not _called_once(name, place) or not _captures(node, place):
            return None
        message = (
            f"`{name}` and the cells for what it captures are built on every call, for one call "
            "further down; write its body there, or make it a function of its own that is given what it needs"
        )
        return place.finding(node, message, certainty=_by_layer(place))

    def _fix(self, node: cst.Lambda, call: cst.Call, place: Place) -> Fix | None:
        params = node.params
        others = (*params.posonly_params, *params.kwonly_params)
        stars = isinstance(params.star_arg, cst.Param) or params.star_kwarg is not None
        if others or stars or len(params.params) != len(call.args) or _nested_scope(node.body):
            return None
        given: dict[str, cst.BaseExpression] = {}
        for param, arg in zip(params.params, call.args, strict=True):
            plain = isinstance(arg.value, cst.Name | cst.Integer | cst.Float | cst.SimpleString)
            if arg.star or arg.keyword is not None or not plain:
                return None
            given[param.name.value] = arg.value
        if given and _renames(node.body, given):
            return None
        body = node.body.visit(_Put(given)) if given else node.body
        assert isinstance(body, cst.BaseExpression)
        shown = place.text(body)
        simple = isinstance(body, cst.Name | cst.Call | cst.Attribute | cst.Subscript) or body.lpar
        return place.replace(
            call,
            shown if simple else f"({shown})",
            safety="safe",
            message="Write the lambda's body in place",
        )


@dataclass(slots=True)
class _Inner:
    """What an expression or a function's body holds that ties it to its place."""

    scopes: bool = False
    yields: bool = False
    makes: bool = False
    labels: set[str] = field(default_factory=set)


def _inner(node: cst.CSTNode) -> _Inner:
    found = _Inner()
    for inner in nodes.walk(node):
        kind = type(inner)
        if kind is cst.Attribute:
            found.labels.add(inner.attr.value)
        elif kind is cst.Arg:
            if inner.keyword is not None:
                found.labels.add(inner.keyword.value)
        elif kind is cst.Lambda or kind is cst.FunctionDef:
            found.scopes = found.makes = True
        elif kind is cst.CompFor or kind is cst.NamedExpr:
            found.scopes = True
        elif kind is cst.Yield or kind is cst.Await:
            found.yields = True
    return found


def _nested_scope(node: cst.CSTNode) -> bool:
    """Whether an expression makes names of its own, or waits: it cannot move without care."""
    found = _inner(node)
    return found.scopes or found.yields


def _stays(node: cst.FunctionDef | cst.Lambda) -> bool:
    """Whether a function has to be one: a generator, or a factory of functions that are passed on."""
    found = _inner(node.body)
    return found.yields or found.makes


def _renames(body: cst.CSTNode, given: Iterable[str]) -> bool:
    """Whether a parameter's name is also an attribute or keyword in the body, which must not be replaced."""
    return bool(_inner(body).labels & set(given))


class FunctionWithoutCaptures(Rule):
    """A function that needs nothing of the call is built again on every call.

    ## What it does

    Flags in hot code a nested `def`, or a lambda with a name, that captures no local value of the function
    around it: it could stand in the module. Lambdas passed on as arguments are shown with `--pedantic`.

    ## Why it costs

    Each call makes a function object that is the same as the last one. Defined in the module, or as a static
    method, it is made once.

    ## Example

    ```python
    def forward(self, state):
        def double(x):
            return x * 2

        return [double(x) for x in state]
    ```

    ## Instead

    ```python
    def double(x):
        return x * 2


    def forward(self, state):
        return [double(x) for x in state]
    ```

    ## Fix safety

    No fix: where the function should stand and what it should be called there is the author's choice.
    """

    code = "DG302"
    name = "function-without-captures"
    also_compiled = False
    origin = "keras#23183"
    looks_for = (Lambda(), Def())

    def judge(self, node: cst.Lambda | cst.FunctionDef, place: Place) -> Finding | None:
        """Speaks where the function could be a function of the module."""
        if _too_small(place) or (isinstance(node, cst.FunctionDef) and node.decorators):
            return None
        around = place.parent(node)
        if isinstance(node, cst.Lambda) and isinstance(around, cst.Call) and around.func is node:
            return None
        if place.scene.deferred or _captures(node, place):
            return None
        name = node.name.value if isinstance(node, cst.FunctionDef) else _assigned_name(node, place)
        shown = f"`{name}`" if name else "this lambda"
        message = (
            f"{shown} captures nothing of this call, yet is built again each time; "
            "define it once, in the module"
        )
        return place.finding(node, message, certainty=_by_layer(place) if name else "maybe")


class WrapperBuiltPerCall(Rule):
    """A wrapper is built on every call, called once, and thrown away.

    ## What it does

    Flags in hot code `make(fn)(x)` and `fn = make(fn)`, `fn(x)`, where `make` is a function of the project
    that returns a function it has made, and the result is only called, and not kept.

    ## Why it costs

    Each call runs the factory, makes a function object with its cells (and with `functools.wraps` copies
    name, docstring and attributes), and then goes through the wrapper's `*args, **kwargs` as well.

    ## Example

    ```python
    def __call__(self, *args):
        fn = add_info(self.call, name=self.name)
        return fn(*args)
    ```

    ## Instead

    ```python
    def __call__(self, *args):
        try:
            return self.call(*args)
        except Exception as error:
            raise with_info(error, self.name, args) from None
    ```

    ## Fix safety

    No fix: the wrapper's work has to move into the caller, or the wrapping to where the object is made.
    """

    code = "DG303"
    name = "wrapper-built-per-call"
    also_compiled = False
    origin = "keras#23183"
    looks_for = MadeCall()

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Speaks at the call of the factory."""
        made = _made(node, place, several=True)
        # A function that is given nothing is a handle to wait on or to read later, not a wrapper.
        if made is None or not node.args or _too_small(place):
            return None
        callee = place.callee(made)
        if callee is None or not callee.returns_function or _cached(callee.decorators):
            return None
        factory = place.text(made.func)
        alike = [call for call, scene in place.calls() if _wraps_alike(call, scene, made, place)]
        if any(call is not node for call in alike[:1]):
            return None
        more = f" (and {len(alike) - 1} more in this function)" if len(alike) > 1 else ""
        message = (
            f"`{factory}(…)` builds a function on every call{more}, which is called once and thrown away; "
            "wrap once, where the object is made, or do the wrapper's work here without building it"
        )
        return place.finding(made, message)


def _wraps_alike(call: cst.Call, scene: Scene, made: cst.Call, place: Place) -> bool:
    """Whether a call of the same function calls what the same factory has made for it."""
    if scene.function is not place.scene.function or scene.cold or not call.args:
        return False
    other = _made(call, place, several=True, scene=scene)
    return other is not None and place.same(other.func, made.func)


def _cached(decorators: Iterable[str]) -> bool:
    """Whether what a decorated function gives is looked up after the first call: by a cache, or because it
    is a kernel that is compiled once."""
    names = [d.rpartition(".")[2].lower() for d in decorators]
    return any(name in _KERNELS or any(word in name for word in _CACHES) for name in names)


def _made(
    node: cst.Call, place: Place, *, several: bool = False, scene: Scene | None = None
) -> cst.Call | None:
    """The call whose result this call calls, where it is used for nothing else; with `several`, the
    two branches of one condition may each call it."""
    if isinstance(node.func, cst.Call):
        return node.func
    if not isinstance(node.func, cst.Name):
        return None
    made = place.value_of(node.func)
    if not isinstance(made, cst.Call):
        return None
    uses = _uses_of_value(node.func.value, made, place)
    calls = [parent for n in uses if _is_function_of(parent := place.parent(n), n)]
    if len(uses) != len(calls) or calls[0] is not node:
        return None
    if len(calls) > 1 and not (several and _either(calls, place)):
        return None
    here = scene if scene is not None else place.scene
    for call, at in place.calls():
        if call is made:
            same = at.function is here.function and at.loops == here.loops
            return made if same and not at.cold else None
    return None


def _either(calls: list[cst.CSTNode | None], place: Place) -> bool:
    """Whether of two calls only one is made."""
    around = [place.parent(c) for c in calls if c is not None]
    return len(around) == 2 and isinstance(around[0], cst.IfExp) and around[0] is around[1]


def _is_function_of(call: cst.CSTNode | None, name: cst.Name) -> bool:
    return isinstance(call, cst.Call) and call.func is name


def _uses_of_value(name: str, value: cst.BaseExpression, place: Place) -> list[cst.Name]:
    """Where a name is read while it holds just this value."""
    mentions = (n for n in nodes.names_in(place.function) if n.value == name)
    return [n for n in mentions if place.value_of(n) is value]


class PartialBuiltPerCall(Rule):
    """A `functools.partial` is built on every call though none is needed.

    ## What it does

    Flags in hot code a `functools.partial` that is called where it stands or once further down, and one that
    binds only constants and names of the module.

    ## Why it costs

    A partial is an object with a tuple and a dict of its own, and its call merges them with the arguments
    given. Calling the function with all arguments needs none of this; a partial that is the same each time
    can be made once.

    ## Example

    ```python
    y = functools.partial(torch.add, x, alpha=2)(other)
    ```

    ## Instead

    ```python
    y = torch.add(x, other, alpha=2)
    ```

    ## Fix safety

    Safe where offered: for a partial that is called where it stands, no keyword given twice, and nothing
    in the arguments that could tell in which order they are computed.
    """

    code = "DG304"
    name = "partial-built-per-call"
    also_compiled = False
    origin = "transformer-engine#1191"
    looks_for = Call("partial")
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Speaks where the partial is called at once, called once, or the same each time."""
        if (
            place.name(node) != "functools.partial"
            or not node.args
            or node.args[0].star
            or _too_small(place)
        ):
            return None
        function = place.text(node.args[0].value)
        around = place.parent(node)
        if isinstance(around, cst.Call) and around.func is node:
            message = (
                f"a partial of `{function}` is built to be called at once; "
                f"call `{function}` with all arguments"
            )
            return place.finding(node, message, fix=self._fix(node, around, place))
        name = _assigned_name(node, place)
        if name and _called_once(name, place):
            message = (
                f"`{name}` is built on every call and called once; "
                f"call `{function}` with all arguments instead"
            )
            return place.finding(node, message)
        if place.scene.deferred or not all(_same_each_time(a.value, place) for a in node.args):
            return None
        message = (
            f"this partial of `{function}` binds nothing of this call, yet is built again each time; "
            "build it once, in the module"
        )
        return place.finding(node, message)

    def _fix(self, node: cst.Call, call: cst.Call, place: Place) -> Fix | None:
        inner, outer = node.args[1:], call.args
        if any(a.star for a in (*inner, *outer)):
            return None
        keywords = [a.keyword.value for a in (*inner, *outer) if a.keyword is not None]
        moves = any(a.keyword is not None for a in inner) and any(a.keyword is None for a in outer)
        if len(set(keywords)) != len(keywords) or (
            moves and not all(_plain(a.value) for a in (*inner, *outer))
        ):
            return None
        args = sorted((*inner, *outer), key=lambda a: a.keyword is not None)
        shown = ", ".join(
            f"{a.keyword.value}={place.text(a.value)}"
            if a.keyword is not None
            else place.text(a.value)
            for a in args
        )
        function = place.text(node.args[0].value)
        if not isinstance(node.args[0].value, cst.Name | cst.Attribute):
            return None
        return place.replace(
            call, f"{function}({shown})", safety="safe", message=f"Call `{function}` directly"
        )


def _plain(node: cst.BaseExpression) -> bool:
    """Whether an expression is computed without running anyone's code."""
    if isinstance(node, cst.UnaryOperation):
        return isinstance(node.expression, cst.BaseNumber)
    return isinstance(node, cst.Name | cst.BaseNumber | cst.SimpleString)


def _same_each_time(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression is a literal or a name of the module."""
    if isinstance(node, cst.UnaryOperation):
        node = node.expression
    if isinstance(node, cst.Tuple):
        return all(_same_each_time(e.value, place) for e in node.elements)
    if isinstance(node, cst.BaseNumber | cst.SimpleString):
        return True
    name = place.name(node) if isinstance(node, cst.Name | cst.Attribute) else ""
    if name in ("True", "False", "None"):
        return True
    root = place.dotted(node).partition(".")[0]
    return (
        bool(name)
        and name.partition(".")[0] not in ("self", place.self_name)
        and not place.assignments(root)
    )


class WrapsPerCall(Rule):
    """`functools.wraps` dresses a function up on every call.

    ## What it does

    Flags `@functools.wraps(fn)` on a function made inside hot code, and `functools.update_wrapper` in hot
    code: in a wrapper factory, say, that is called again for every layer call.

    ## Why it costs

    `wraps` builds a partial, reads half a dozen attributes of one function, sets them on the other and
    updates its `__dict__`: many times what making the wrapper itself takes.

    ## Example

    ```python
    def add_info(fn):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            return fn(*args, **kwargs)

        return wrapper
    ```

    ## Instead

    ```python
    def call_with_info(fn, *args, **kwargs):
        return fn(*args, **kwargs)
    ```

    ## Fix safety

    No fix: something may read the name or the docstring that `wraps` copies.
    """

    code = "DG305"
    name = "wraps-per-call"
    also_compiled = False
    origin = "keras#23183"
    looks_for = (Def(), Call("update_wrapper", "wraps"))

    def judge(self, node: cst.FunctionDef | cst.Call, place: Place) -> Finding | None:
        """Speaks where the copying happens."""
        if _too_small(place):
            return None
        at: cst.CSTNode = node
        if isinstance(node, cst.Call):
            name, around = place.name(node), place.parent(node)
            applied = isinstance(around, cst.Call) and around.func is node
            if name != "functools.update_wrapper" and not (name == "functools.wraps" and applied):
                return None
            shown = f"`{name}`"
        else:
            wraps = [
                d.decorator for d in node.decorators if place.name(d.decorator) == "functools.wraps"
            ]
            if not wraps:
                return None
            at = wraps[0]
            shown = f"`functools.wraps` on `{node.name.value}`"
        message = (
            f"{shown} copies name, docstring and attributes each time "
            f"`{place.function.name.value}` runs; wrap once, outside the hot path, "
            "or call the function without a wrapper"
        )
        return place.finding(at, message)


_LIBRARIES = frozenset("contextlib functools jax keras numba numpy tensorflow torch".split())
"""Packages whose decorators do the same whenever they are applied."""


class DecoratedPerCall(Rule):
    """A decorator is applied to a nested function on every call.

    ## What it does

    Flags a nested `def` with a decorator in hot code. `functools.wraps` has a rule of its own, and so have
    `torch.compile` and its like. A decorator that is not a library's may give something else from call to
    call: then it is a maybe, shown with `--pedantic`.

    ## Why it costs

    The decorator runs each time, and what it makes is thrown away: a wrapper, a context-manager class
    around a generator, the wrapper's attributes.

    ## Example

    ```python
    def step(self, x):
        @torch.no_grad()
        def measure(value):
            return value.abs().mean()

        return measure(x)
    ```

    ## Instead

    ```python
    def step(self, x):
        with torch.no_grad():
            return x.abs().mean()
    ```

    ## Fix safety

    No fix: what the decorator does must be written without it.
    """

    code = "DG306"
    name = "decorated-per-call"
    also_compiled = False
    origin = "keras#23183"
    looks_for = Def()

    def judge(self, node: cst.FunctionDef, place: Place) -> Finding | None:
        """Speaks where a decorator is applied that costs."""
        if _elsewhere(place):
            return None
        for decorator in node.decorators:
            name = place.name(decorator.decorator)
            last = name.rpartition(".")[2]
            if (
                name == "functools.wraps"
                or name in _COMPILERS
                or last in ("compile", "jit", "script", "vmap")
            ):
                return None
        if not node.decorators:
            return None
        shown = " ".join(place.text(node.decorators[0].decorator).split())
        given = ", and give it what it needs as arguments," if _captures(node, place) else ","
        message = (
            f"`@{shown}` is applied to `{node.name.value}` on every call; define the function once, "
            f"outside{given} or do without the decorator"
        )
        return place.finding(
            node.decorators[0].decorator,
            message,
            certainty="sure" if _of_library(node.decorators[0].decorator, place) else "maybe",
        )


def _of_library(decorator: cst.BaseExpression, place: Place) -> bool:
    """Whether a decorator is a library's. The project's own may give something else from call to call, as the
    state it looks at is."""
    called = decorator.func if isinstance(decorator, cst.Call) else decorator
    top, dot, _ = place.name(called).partition(".")
    return bool(dot) and top in _LIBRARIES


class ClassBuiltPerCall(Rule):
    """A class is built on every call.

    ## What it does

    Flags `class` statements in hot code whose classes use no value of the call, and calls of `namedtuple`,
    `make_dataclass` and of `type` with three arguments.

    ## Why it costs

    Building a class runs its body, its metaclass and `__init_subclass__`, and makes an object that only the
    garbage collector can free; a `NamedTuple` compiles a constructor as well. Nothing that is built per call
    costs more host time.

    ## Example

    ```python
    def forward(self, x):
        class Output(NamedTuple):
            hidden: torch.Tensor

        return Output(x.relu())
    ```

    ## Instead

    ```python
    class Output(NamedTuple):
        hidden: torch.Tensor


    def forward(self, x):
        return Output(x.relu())
    ```

    ## Fix safety

    No fix: the class may use values of the call, and then needs another form.
    """

    code = "DG307"
    name = "class-built-per-call"
    also_compiled = False
    origin = "torchvision#1452"
    looks_for = (Class(), Call("namedtuple", "make_dataclass", "type"))

    def judge(self, node: cst.ClassDef | cst.Call, place: Place) -> Finding | None:
        """Speaks where a class is made."""
        if _elsewhere(place):
            return None
        if _needs_the_call(node, place):
            return None
        if isinstance(node, cst.Call):
            name = place.name(node)
            three = name == "type" and len(node.args) == 3
            if not three and name not in ("collections.namedtuple", "dataclasses.make_dataclass"):
                return None
            shown = f"`{place.text(node.func)}(…)`"
        else:
            shown = f"class `{node.name.value}`"
        message = (
            f"{shown} builds a class on every call, which costs more host time than a kernel launch; "
            "define it once, in the module"
        )
        return place.finding(node, message)
