"""DG702, DG703: compilers and function transforms applied on every call."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Call, Def, Finding, Place, Rule, nodes

from ..syntax import assigned_once, call_of, only_called

_COMPILERS = frozenset(
    {"torch.compile", "torch.jit.script", "torch.jit.trace", "torch._dynamo.optimize"}
)
_TRANSFORM_NAMES = (
    "vmap",
    "grad",
    "grad_and_value",
    "jacrev",
    "jacfwd",
    "hessian",
    "functionalize",
)
_TRANSFORMS = frozenset(
    [f"{m}.{n}" for m in ("torch.func", "functorch") for n in _TRANSFORM_NAMES] + ["torch.vmap"]
)


def is_lasting(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression means the same in every call: it is made of globals, attributes of self and
    constants, or is a lambda of such."""
    own: set[str] = set()
    if isinstance(node, cst.Lambda):
        params = node.params
        own = {
            p.name.value for p in (*params.posonly_params, *params.params, *params.kwonly_params)
        }
        if params.star_kwarg is not None or isinstance(params.star_arg, cst.Param):
            return False
    constants = ("None", "True", "False", place.self_name)
    names = (n for n in nodes.names_in(node) if n.value not in own and n.value not in constants)
    return all(place.name(n) != "" for n in names)


def is_only_called(node: cst.Call, place: Place) -> bool:
    """Whether what a call makes is called at once, or held by a local name that is only ever called."""
    if isinstance(place.parent(node), cst.Call):
        return call_of(node, place) is not None
    name = assigned_once(node, place)
    return name is not None and only_called(name, place)


class CompiledPerCall(Rule):
    """A function is passed to a compiler on every call.

    ## What it does

    Finds `torch.compile(f)(x)`, `torch.jit.script(f)(x)` and the like in hot code, also through a local
    name that is only called, and functions inside hot functions that are decorated with them.

    ## Why it costs

    Each call makes a new wrapper and looks up, or fills, the compiler's caches again; where the function is
    built on every call as well, it may be recompiled until the recompile limit is reached.

    ## Example

    ```python
    def forward(self, x):
        return torch.compile(self.block)(x)
    ```

    ## Instead

    ```python
    def __init__(self):
        super().__init__()
        self.compiled = torch.compile(self.block)

    def forward(self, x):
        return self.compiled(x)
    ```

    ## Fix safety

    No fix: only the author knows where the compiled function should live.
    """

    code = "DG702"
    name = "compiled-per-call"
    origin = "pytorch#118493"
    looks_for = (Call("compile", "script", "trace", "optimize"), Def("decorated"))

    def judge(self, node: cst.Call | cst.FunctionDef, place: Place) -> Finding | None:
        """A compiler's wrapper that does not outlive the call."""
        if isinstance(node, cst.FunctionDef):
            return self._decorated(node, place)
        name = place.name(node)
        if name not in _COMPILERS or not node.args:
            return None
        wrapped = node
        if node.args[0].keyword is not None:  # torch.compile(mode=…)(f)
            outer = call_of(node, place)
            if outer is None:
                return None
            wrapped = outer
        if not is_only_called(wrapped, place):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` passes the function to the compiler on every call; do it once, "
            "in `__init__` or at module level, and keep the result",
        )

    def _decorated(self, node: cst.FunctionDef, place: Place) -> Finding | None:
        for decorator in node.decorators:
            inner = decorator.decorator
            name = place.name(inner.func if isinstance(inner, cst.Call) else inner)
            if name in _COMPILERS and only_called(node.name, place):
                return place.finding(
                    node,
                    f"`{node.name.value}` is built and passed to `{name}` on every call; define it "
                    "once, at module level, and pass it what it needs",
                )
        return None


class TransformBuiltPerCall(Rule):
    """A function transform (`vmap`, `grad`, `jacrev` …) is applied on every call.

    ## What it does

    Finds `torch.vmap(f)(x)` and the transforms of `torch.func` in hot code, where the function and all
    other arguments are the same in every call, and the result is only called.

    ## Why it costs

    The transform checks its arguments and builds a wrapper with `functools.wraps`, which is then thrown
    away.

    ## Example

    ```python
    def forward(self, x):
        return torch.vmap(torch.sum)(x)
    ```

    ## Instead

    ```python
    batched_sum = torch.vmap(torch.sum)

    def forward(self, x):
        return batched_sum(x)
    ```

    ## Fix safety

    No fix: it needs a name and a place for the wrapper.
    """

    code = "DG703"
    name = "transform-built-per-call"
    origin = "keras#23183"
    looks_for = Call(*_TRANSFORM_NAMES)

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A transform of what does not change."""
        if place.name(node) not in _TRANSFORMS or not node.args or not is_only_called(node, place):
            return None
        if any(a.star or not is_lasting(a.value, place) for a in node.args):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` builds the same wrapper on every call; build it once, in `__init__` "
            "or at module level, and keep it",
        )
