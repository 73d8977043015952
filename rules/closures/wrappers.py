"""DG303, DG305, DG306: wrappers and decorators applied on every call."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from pytest_dispatchguard import Call, Def, Finding, MadeCall, Place, Rule, Scene, nodes

from ..syntax import call_of
from .captures import COMPILERS, captures_local, is_negligible, not_run_by_torch

_KERNELS = frozenset({"jit", "njit", "lazy_jit", "autotune"})
_CACHES = ("cache", "lru_cache", "cached", "memoize", "memoise")


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
        """Flags calls of the factory."""
        made = _made(node, place, several=True)
        # A function that is given nothing is a handle to wait on or to read later, not a wrapper.
        if made is None or not node.args or is_negligible(place):
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
            f"`{factory}(…)` builds a function{more} that is used for one call and thrown away; build it "
            "once, in `__init__` or at module level, or inline its body here"
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
    calls = [call for n in uses if (call := call_of(n, place)) is not None]
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


def _either(calls: list[cst.Call], place: Place) -> bool:
    """Whether of two calls only one is made."""
    around = [place.parent(c) for c in calls]
    return len(around) == 2 and isinstance(around[0], cst.IfExp) and around[0] is around[1]


def _uses_of_value(name: str, value: cst.BaseExpression, place: Place) -> list[cst.Name]:
    """Where a name is read while it holds just this value."""
    mentions = (n for n in nodes.names_in(place.function) if n.value == name)
    return [n for n in mentions if place.value_of(n) is value]


class WrapsPerCall(Rule):
    """`functools.wraps` is applied on every call.

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
    looks_for = (Def("decorated"), Call("update_wrapper", "wraps"))

    def judge(self, node: cst.FunctionDef | cst.Call, place: Place) -> Finding | None:
        """Flags the call that copies the attributes."""
        if is_negligible(place):
            return None
        at: cst.CSTNode = node
        if isinstance(node, cst.Call):
            name = place.name(node)
            applied = call_of(node, place) is not None
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

    No fix: the decorator's work has to be written without it.
    """

    code = "DG306"
    name = "decorated-per-call"
    also_compiled = False
    origin = "keras#23183"
    looks_for = Def("decorated")

    def judge(self, node: cst.FunctionDef, place: Place) -> Finding | None:
        """Flags decorators of nested functions."""
        if not_run_by_torch(place):
            return None
        for decorator in node.decorators:
            name = place.name(decorator.decorator)
            last = name.rpartition(".")[2]
            if (
                name == "functools.wraps"
                or name in COMPILERS
                or last in ("compile", "jit", "script", "vmap")
            ):
                return None
        if not node.decorators:
            return None
        shown = " ".join(place.text(node.decorators[0].decorator).split())
        given = ", and pass what it needs as arguments," if captures_local(node, place) else ","
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
