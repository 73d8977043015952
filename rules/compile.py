"""DG7xx: what dispatch and the compiler are made to do again on every call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from pytest_dispatchguard import Call, Decorated, Def, Finding, Fix, Function, Place, Rule, nodes

_CTYPES = (
    "CDLL PyDLL WinDLL LoadLibrary byref pointer POINTER addressof memmove memset string_at "
    "create_string_buffer CFUNCTYPE PYFUNCTYPE c_void_p c_char_p c_int c_uint c_int8 c_uint8 c_int16 "
    "c_uint16 c_int32 c_uint32 c_int64 c_uint64 c_long c_ulong c_longlong c_ulonglong c_size_t c_ssize_t "
    "c_float c_double c_bool c_char c_byte"
).split()
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
_TREE_FUNCTIONS = ("tree_map", "tree_map_only", "tree_flatten", "map_structure")
_INDEX_NAME = re.compile(r"(?:.*_)?(?:idx|index|layer_id|block_id|layer_number|layer_num|depth_id)")


# -- what several rules ask ------------------------------------------------------------------------


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
    parent = place.parent(node)
    if isinstance(parent, cst.Call):
        return parent.func is node
    if not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
        return False
    target = parent.targets[0].target
    if not isinstance(target, cst.Name) or place.assignments(target.value) != 1:
        return False
    reads = [
        n for n in nodes.names_in(place.function) if n.value == target.value and n is not target
    ]
    callers = [place.parent(n) for n in reads]
    return bool(reads) and all(
        isinstance(c, cst.Call) and c.func is n for n, c in zip(reads, callers, strict=True)
    )


def shown(node: cst.CSTNode, place: Place, limit: int = 50) -> str:
    """The source of a node on one line, cut where it is long."""
    source = " ".join(place.text(node).split())
    return source if len(source) <= limit else source[: limit - 1] + "…"


# -- rules -----------------------------------------------------------------------------------------


class CtypesInHotCode(Rule):
    """ctypes converts arguments, or looks a library up, on every call.

    ## What it does

    Finds calls of `ctypes` in hot code: `c_void_p(x.data_ptr())`, `byref`, `cast`, `CDLL` and the like. One
    finding for each statement.

    ## Why it costs

    Every ctypes object is built in Python, and a foreign call converts its arguments one by one and
    releases the GIL around them: the host pays more than most kernel launches take. A loaded library and
    unchanging arguments can be kept; the call itself is cheaper from a compiled extension.

    ## Example

    ```python
    def forward(self, x):
        return lib.scale(ctypes.c_double(self.factor))
    ```

    ## Instead

    ```python
    def __init__(self):
        self.c_factor = ctypes.c_double(self.factor)

    def forward(self, x):
        return lib.scale(self.c_factor)
    ```

    ## Fix safety

    No fix: a compiled binding, or what may be kept, is the author's choice.
    """

    code = "DG701"
    name = "ctypes-in-hot-code"
    origin = "pytorch#167"
    looks_for = Call(*_CTYPES)

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """The first ctypes call of a statement."""
        if not place.name(node).startswith("ctypes."):
            return None
        for other, scene in place.calls(*_CTYPES):
            if scene.statement is place.statement and place.name(other).startswith("ctypes."):
                if other is not node:
                    return None
                break
        return place.finding(
            node,
            f"`{shown(node, place)}` goes through ctypes, in Python, on every call; keep what does not "
            "change, and call hot functions through a compiled extension (a torch custom op, or a C++ "
            "binding)",
        )


class CompiledPerCall(Rule):
    """A function is handed to a compiler anew on every call.

    ## What it does

    Finds `torch.compile(f)(x)`, `torch.jit.script(f)(x)` and the like in hot code, also through a local
    name that is only called, and functions inside hot functions that are decorated with them.

    ## Why it costs

    Each call makes a new wrapper and looks up, or fills, the compiler's caches again; where the function is
    made anew as well, it may be compiled again until the recompile limit is met.

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

    No fix: where the compiled function should live is for the author to say.
    """

    code = "DG702"
    name = "compiled-per-call"
    origin = "pytorch#118493"
    looks_for = (Call("compile", "script", "trace", "optimize"), Def())

    def judge(self, node: cst.Call | cst.FunctionDef, place: Place) -> Finding | None:
        """A compiler's wrapper that does not outlive the call."""
        if isinstance(node, cst.FunctionDef):
            return self._decorated(node, place)
        name = place.name(node)
        if name not in _COMPILERS or not node.args:
            return None
        wrapped = node
        if node.args[0].keyword is not None:  # torch.compile(mode=…)(f)
            outer = place.parent(node)
            if not isinstance(outer, cst.Call) or outer.func is not node:
                return None
            wrapped = outer
        if not is_only_called(wrapped, place):
            return None
        return place.finding(
            node,
            f"`{shown(node, place)}` hands the function to the compiler anew on every call; do it once, "
            "in `__init__` or at module level, and keep the result",
        )

    def _decorated(self, node: cst.FunctionDef, place: Place) -> Finding | None:
        for decorator in node.decorators:
            inner = decorator.decorator
            name = place.name(inner.func if isinstance(inner, cst.Call) else inner)
            if name in _COMPILERS and self._only_called(node, place):
                return place.finding(
                    node,
                    f"`{node.name.value}` is made and handed to `{name}` anew on every call; define it "
                    "once, at module level, and pass it what it needs",
                )
        return None

    def _only_called(self, node: cst.FunctionDef, place: Place) -> bool:
        name = node.name.value
        reads = [
            n for n in nodes.names_in(place.function) if n.value == name and n is not node.name
        ]
        calls = (place.parent(n) for n in reads)
        return bool(reads) and all(
            isinstance(c, cst.Call) and c.func is n for n, c in zip(reads, calls, strict=True)
        )


class TransformBuiltPerCall(Rule):
    """A function transform (`vmap`, `grad`, `jacrev` …) is applied anew on every call.

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
            f"`{shown(node, place)}` builds the same wrapper on every call; build it once, in `__init__` "
            "or at module level, and keep it",
        )


@dataclass(frozen=True, slots=True)
class _Functional:
    """The function that does what a module without parameters does."""

    name: str
    """Dotted."""
    inputs: int
    """How many tensors the module is called with."""
    params: tuple[str, ...] = ()
    """What its constructor takes, in order, and the function takes by the same name."""
    needs: tuple[str, ...] = ()
    """Of these, what must be given for the two to be the same."""
    added: str = ""
    """Given to the function where the constructor's default differs from the function's."""


def _functionals() -> dict[str, _Functional]:
    old = ("size_average", "reduce", "reduction")
    f = "torch.nn.functional."
    pool = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
    max_pool = ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")
    out = {
        "CrossEntropyLoss": _Functional(
            f + "cross_entropy", 2,
            ("weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing"),
        ),
        "NLLLoss": _Functional(
            f + "nll_loss", 2, ("weight", "size_average", "ignore_index", "reduce", "reduction")
        ),
        "MSELoss": _Functional(f + "mse_loss", 2, old),
        "L1Loss": _Functional(f + "l1_loss", 2, old),
        "SmoothL1Loss": _Functional(f + "smooth_l1_loss", 2, (*old, "beta")),
        "HuberLoss": _Functional(f + "huber_loss", 2, ("reduction", "delta")),
        "BCELoss": _Functional(f + "binary_cross_entropy", 2, ("weight", *old)),
        "BCEWithLogitsLoss": _Functional(
            f + "binary_cross_entropy_with_logits", 2, ("weight", *old, "pos_weight")
        ),
        "KLDivLoss": _Functional(f + "kl_div", 2, (*old, "log_target")),
        "SoftMarginLoss": _Functional(f + "soft_margin_loss", 2, old),
        "CosineEmbeddingLoss": _Functional(f + "cosine_embedding_loss", 3, ("margin", *old)),
        "MarginRankingLoss": _Functional(f + "margin_ranking_loss", 3, ("margin", *old)),
        "TripletMarginLoss": _Functional(
            f + "triplet_margin_loss", 3, ("margin", "p", "eps", "swap", *old)
        ),
        "CTCLoss": _Functional(f + "ctc_loss", 4, ("blank", "reduction", "zero_infinity")),
        "Softmax": _Functional(f + "softmax", 1, ("dim",), ("dim",)),
        "LogSoftmax": _Functional(f + "log_softmax", 1, ("dim",), ("dim",)),
        "GELU": _Functional(f + "gelu", 1, ("approximate",)),
        "LeakyReLU": _Functional(f + "leaky_relu", 1, ("negative_slope", "inplace")),
        "ELU": _Functional(f + "elu", 1, ("alpha", "inplace")),
        "Softplus": _Functional(f + "softplus", 1, ("beta", "threshold")),
        "GLU": _Functional(f + "glu", 1, ("dim",)),
        "Dropout": _Functional(f + "dropout", 1, ("p", "inplace")),
        "Sigmoid": _Functional("torch.sigmoid", 1),
        "Tanh": _Functional("torch.tanh", 1),
        "LogSigmoid": _Functional(f + "logsigmoid", 1),
        "Flatten": _Functional("torch.flatten", 1, ("start_dim", "end_dim"), added="start_dim=1"),
        "CosineSimilarity": _Functional(
            f + "cosine_similarity", 2, ("dim", "eps")
        ),
        "PixelShuffle": _Functional(f + "pixel_shuffle", 1, ("upscale_factor",)),
        "AvgPool1d": _Functional(f + "avg_pool1d", 1, pool),
        "AvgPool2d": _Functional(f + "avg_pool2d", 1, (*pool, "divisor_override")),
        "AvgPool3d": _Functional(f + "avg_pool3d", 1, (*pool, "divisor_override")),
        "Upsample": _Functional(
            f + "interpolate", 1, ("size", "scale_factor", "mode", "align_corners")
        ),
    }  # fmt: skip
    for cls in ("ReLU", "ReLU6", "SiLU", "Mish", "SELU", "Hardswish", "Hardsigmoid"):
        out[cls] = _Functional(f + cls.lower(), 1, ("inplace",))
    for n in (1, 2, 3):
        out[f"MaxPool{n}d"] = _Functional(f"{f}max_pool{n}d", 1, max_pool)
        out[f"AdaptiveAvgPool{n}d"] = _Functional(f"{f}adaptive_avg_pool{n}d", 1, ("output_size",))
    return out


_FUNCTIONALS = _functionals()
_NO_FIX = frozenset({"Upsample"})
"""The constructor converts what it is given, so that the function is not quite the same."""


class ModuleBuiltPerCall(Rule):
    """A loss or another module without parameters is built on every call, to be called once.

    ## What it does

    Finds `nn.CrossEntropyLoss()(x, y)`, `nn.Softmax(dim=-1)(x)` and the like in hot code, also through a
    local name that is only called.

    ## Why it costs

    Building a module sets up a dozen dictionaries for parameters, buffers and hooks, and calling it goes
    through them all. The function in `torch.nn.functional` does the same work without.

    ## Example

    ```python
    def training_step(self, x, y):
        return nn.CrossEntropyLoss()(x, y)
    ```

    ## Instead

    ```python
    def training_step(self, x, y):
        return F.cross_entropy(x, y)
    ```

    Or build the module once, in `__init__`.

    ## Fix safety

    Safe: the module's own `forward` makes this very call with these arguments; only hooks registered for
    all modules no longer see it. None is offered for a module held by a name, for `Softmax` without a
    dimension and for `Upsample`, which converts its arguments.
    """

    code = "DG704"
    name = "module-built-per-call"
    origin = "pytorch#27064"
    looks_for = Call(*_FUNCTIONALS)
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A module of torch's own that only serves one call."""
        name = place.name(node)
        cls = name.rpartition(".")[2]
        if (
            not name.startswith("torch.nn.")
            or cls not in _FUNCTIONALS
            or not is_only_called(node, place)
        ):
            return None
        function = _FUNCTIONALS[cls]
        fix = self._fix(node, function, place) if cls not in _NO_FIX else None
        return place.finding(
            node,
            f"`{shown(node, place)}` builds a module on every call only to call it; use "
            f"`{function.name}`, or build it once in `__init__`",
            fix=fix,
        )

    def _fix(self, node: cst.Call, function: _Functional, place: Place) -> Fix | None:
        outer = place.parent(node)
        if not isinstance(outer, cst.Call) or outer.func is not node:
            return None
        plain = all(a.keyword is None and not a.star for a in outer.args)
        given = self._keywords(node.args, function, place)
        if not plain or len(outer.args) != function.inputs or given is None:
            return None
        if "#" in place.text(outer):
            return None
        written = place.spelling(function.name)
        imports: tuple[str, ...] = ()
        if not written:
            if place.is_taken("F"):
                return None
            written = "F." + function.name.rpartition(".")[2]
            imports = ("import torch.nn.functional as F",)
        inputs = [place.text(a.value) for a in outer.args]
        return place.replace(
            outer,
            f"{written}({', '.join([*inputs, *given])})",
            safety="safe",
            message=f"call {function.name} itself",
            imports=imports,
        )

    def _keywords(
        self, args: Sequence[cst.Arg], function: _Functional, place: Place
    ) -> list[str] | None:
        """The constructor's arguments as keywords of the function."""
        out: dict[str, str] = {}
        for i, arg in enumerate(args):
            if arg.star:
                return None
            if arg.keyword is None and i >= len(function.params):
                return None
            name = function.params[i] if arg.keyword is None else arg.keyword.value
            if name not in function.params:
                return None
            out[name] = place.text(arg.value)
        if any(n not in out for n in function.needs):
            return None
        added = function.added.partition("=")
        if added[0] and added[0] not in out:
            out = {added[0]: added[2], **out}
        return [f"{name}={value}" for name, value in out.items()]


def _self_reads(self_name: str, body: cst.CSTNode) -> dict[str, cst.Attribute]:
    """Where each attribute of self is first read."""
    found: dict[str, cst.Attribute] = {}
    for node in nodes.walk(body):
        of_self = isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name)
        if of_self and node.value.value == self_name:
            found.setdefault(node.attr.value, node)
    return found


class NumberGuardInCompiledForward(Rule):
    """A compiled method reads a number that differs between instances: each instance is compiled anew.

    ## What it does

    Finds methods decorated with `torch.compile` that read an index of the instance (`self.layer_idx`), set
    in `__init__` from an argument. With `--pedantic`, any number set from an argument.

    ## Why it costs

    The compiled code is shared by all instances and guarded on the number: each new value means another
    compilation, every call walks the guards of the entries before its own, and beyond the recompile limit
    the method runs uncompiled.

    ## Example

    ```python
    class Block(nn.Module):
        def __init__(self, layer_idx: int):
            super().__init__()
            self.layer_idx = layer_idx

        @torch.compile
        def forward(self, x, cache):
            return x + cache[self.layer_idx]
    ```

    ## Instead

    ```python
    class Block(nn.Module):
        @torch.compile
        def forward(self, x, entry):
            return x + entry
    ```

    Look up what depends on the number outside, and pass it in; or hold the number in a buffer.

    ## Fix safety

    No fix: the callers change too.
    """

    code = "DG705"
    name = "number-guard-in-compiled-forward"
    origin = "pytorch#171598"
    looks_for = Decorated("compile")

    def judge(self, node: cst.FunctionDef, place: Place) -> Iterator[Finding]:
        """Numbers of self in a method decorated with torch.compile."""
        decorators = (d.decorator for d in node.decorators)
        written = (place.dotted(d.func if isinstance(d, cst.Call) else d) for d in decorators)
        if not place.self_name or not any(w == "torch.compile" for w in written):
            return
        for name, read in _self_reads(place.self_name, node.body).items():
            values = place.attribute_values(name)
            if not values or not all(v in ("ann:int", "ann:float") for v in values):
                continue
            sure = _INDEX_NAME.fullmatch(name) is not None and set(values) == {"ann:int"}
            yield place.finding(
                read,
                f"`{place.text(read)}` is a number that instances differ in, read in a compiled method: "
                "its guard makes the compiler compile anew for each value; look up what depends on it "
                "outside, and pass that in",
                certainty="sure" if sure else "maybe",
            )


class TreeMapInTensorHandler(Rule):
    """A tensor subclass maps over trees of arguments in every operation, where nearly all are flat.

    ## What it does

    Finds `__torch_dispatch__` and `__torch_function__` that call `tree_map` (or `tree_flatten`) on what
    they are given, with no path around it.

    ## Why it costs

    The handler runs for every operation on the subclass. A tree map walks and rebuilds tuples, lists and
    dicts in Python, several microseconds each time, while nearly every operation has flat arguments and no
    keywords.

    ## Example

    ```python
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = tree_map(unwrap, (args, kwargs or {}))
        return wrap(func(*args, **kwargs))
    ```

    ## Instead

    ```python
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if not kwargs and not any(type(a) in (list, tuple, dict) for a in args):
            return wrap(func(*[unwrap(a) for a in args]))
        args, kwargs = tree_map(unwrap, (args, kwargs or {}))
        return wrap(func(*args, **kwargs))
    ```

    ## Fix safety

    No fix: which arguments an operation can have is for the author to say.
    """

    code = "DG706"
    name = "tree-map-in-tensor-handler"
    origin = "pytorch#110132"
    looks_for = Function("__torch_dispatch__", "__torch_function__")

    def judge(self, node: cst.FunctionDef, place: Place) -> Finding | None:
        """The first tree map that every call reaches."""
        if place.cls is None or any(a.endswith("Mode") for a in place.cls.ancestors):
            return None
        for call, scene in place.calls(*_TREE_FUNCTIONS):
            if scene.function is not node or scene.cold or scene.conditions or scene.deferred:
                continue
            if not place.is_tree_call(call, *_TREE_FUNCTIONS) or self._way_around(
                node, scene.statement
            ):
                continue
            return place.finding(
                call,
                f"`{shown(call, place)}` walks and rebuilds the arguments of every operation on "
                f"`{place.class_name.rpartition('.')[2]}`; handle flat arguments first, and map over trees "
                "only where there are any",
            )
        return None

    def _way_around(self, node: cst.FunctionDef, last: cst.CSTNode) -> bool:
        """Whether some calls return before a statement."""
        for statement in node.body.body:
            if statement is last:
                return False
            compound = isinstance(statement, cst.If | cst.With | cst.Try | cst.For | cst.Match)
            if compound and _returns(statement):
                return True
        return False


def _returns(node: cst.CSTNode) -> bool:
    inside = nodes.walk(node, without=(cst.FunctionDef,))
    return any(isinstance(n, cst.Return) for n in inside)


_TENSORS = frozenset({"torch.Tensor", "torch.nn.Parameter", "torch.nn.parameter.Parameter"})


def _only_raises(node: cst.FunctionDef) -> bool:
    """Whether a function is only there to be overridden."""
    first = node.body.body[0] if node.body.body else None
    return isinstance(first, cst.SimpleStatementLine) and isinstance(first.body[0], cst.Raise)


class DeviceThroughHandler(Rule):
    """A tensor subclass answers every read of `.device` by running its `__torch_function__`.

    ## What it does

    Finds subclasses of `torch.Tensor` with a `__torch_function__` of their own and no `device` property,
    and `dispatch_device=True` given to `_make_wrapper_subclass` in classes without one.

    ## Why it costs

    On such a class, `.device` is an operation like any other: torch packs its arguments, calls the handler
    in Python, and often enters a context in it, for an answer that never changes; with
    `dispatch_device=True` it goes through the dispatcher and `__torch_dispatch__`. Devices are asked for
    before nearly every operation. A property answers directly. The same holds of `.shape` and `.dtype`.

    ## Example

    ```python
    class Wrapped(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None): ...
    ```

    ## Instead

    ```python
    class Wrapped(torch.Tensor):
        @property
        def device(self):
            return self.inner.device

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None): ...
    ```

    A subclass that holds no other tensor asks `super().device` inside
    `torch._C.DisableTorchFunctionSubclass()`.

    ## Fix safety

    No fix: which tensor knows the device is for the author to say.
    """

    code = "DG707"
    name = "device-through-handler"
    origin = "torchvision#6681"
    looks_for = (Function("__torch_function__"), Call("_make_wrapper_subclass"))

    def judge(self, node: cst.FunctionDef | cst.Call, place: Place) -> Finding | None:
        """The handler of a tensor class, or the call that makes its instances."""
        if place.cls is None or place.defines("device"):
            return None
        name = place.class_name.rpartition(".")[2]
        if isinstance(node, cst.Call):
            asked = place.argument(node, None, "dispatch_device")
            if not isinstance(asked, cst.Name) or asked.value != "True":
                return None
            return place.finding(
                node,
                f"`dispatch_device=True` sends each `.device` of a `{name}` through the dispatcher and "
                "`__torch_dispatch__`; define a `device` property that asks the inner tensor",
            )
        if _TENSORS.isdisjoint(place.cls.ancestors) or _only_raises(node):
            return None
        return place.finding(
            node,
            f"Every read of `.device` on a `{name}` runs this handler in Python; define a `device` property "
            "in the class, so that the read needs no handler",
        )
