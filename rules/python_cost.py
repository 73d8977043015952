"""DG6xx: Python that is dear and says the same on every call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from pytest_dispatchguard import (
    Attribute,
    Call,
    Certainty,
    Finding,
    Fix,
    Getitem,
    Import,
    Place,
    Rule,
    SelfWrite,
    nodes,
    weaker,
)

_INSPECTED = {
    "inspect.signature": "reads and checks a signature",
    "inspect.Signature.from_callable": "reads and checks a signature",
    "inspect.getfullargspec": "reads and checks a signature",
    "inspect.getmembers": "walks all attributes of an object",
    "inspect.getsource": "reads source code from disk",
    "inspect.getframeinfo": "reads the source of a frame from disk",
    "traceback.extract_stack": "reads the source of every frame on the stack",
    "traceback.format_stack": "reads the source of every frame on the stack",
    "inspect.stack": "reads the source of every frame on the stack",
    "typing.get_type_hints": "evaluates annotations",
}
_LOADED_WITH_TORCH = re.compile(
    r"torch(?:\.(?:nn|nn\.functional|autograd|cuda|backends|overrides))?"
)
_STDLIB = frozenset(
    """abc ast base64 bisect collections contextlib copy ctypes dataclasses datetime decimal enum errno
    fractions functools gc glob hashlib heapq importlib inspect io itertools json logging math
    numbers operator os pathlib pickle platform queue random re shutil signal statistics string
    struct sys
    tempfile textwrap threading time traceback types typing uuid warnings weakref zlib""".split()
)
_WARNS_BY_NAME = re.compile(r"warn|deprecat|^__init__$", re.IGNORECASE)
_COPIES_BY_NAME = re.compile(r"copy|clone|^reset|^make_|build|init|prepare|setup|^_?start")
_LEVELS = ("debug", "info")
_LOGGERS = frozenset({"logger", "_logger", "log", "_log"})
_GETTERS = ("getLogger", "get_logger", "_get_logger")
_FLOAT_SPEC = re.compile(r"\.\d+[feg]")
_ENVIRONMENT_WRITE = re.compile(
    r"environ\[[^\]]+\]\s*=[^=]|environ\.(?:pop|update|setdefault|clear)|del os\.environ|putenv"
)
_WALKS = (
    "parameters",
    "named_parameters",
    "modules",
    "named_modules",
    "buffers",
    "named_buffers",
    "state_dict",
)
_DEVICE_FACTS = frozenset(
    {
        *(
            f"torch.cuda.{name}"
            for name in (
                "get_device_properties",
                "get_device_capability",
                "get_device_name",
                "device_count",
                "is_available",
                "is_bf16_supported",
                "get_arch_list",
            )
        ),
        "torch.xpu.is_available",
        "torch.xpu.device_count",
        "torch.xpu.get_device_properties",
        "torch.mps.is_available",
        "torch.mps.device_count",
        "torch.backends.mps.is_available",
    }
)
_MEMORY_FACTS = frozenset(
    f"torch.cuda.{name}"
    for name in (
        "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats",
        "memory_summary", "mem_get_info", "memory_usage", "utilization",
    )
)  # fmt: skip
"""What changes, and is gathered from all of the allocator, or from the driver, each time."""
_WATCHES = re.compile(r"mem|stat|monitor|report|log|profil|track|summar", re.IGNORECASE)
"""What is there to ask."""
_NOT_MODULES = ("torchmetrics.", "keras.Metric", "keras.Loss", "lightning.", "keras.Optimizer")


# -- what several rules ask ------------------------------------------------------------------------


def _certainty(place: Place) -> Certainty:
    """Long ways from a root pass through methods that may be another class's: less is sure there."""
    return "sure" if len(place.hot.path) <= 5 else "maybe"


def _package(place: Place) -> str:
    """The top-level package that the function belongs to."""
    return place.hot.path[-1].partition(".")[0]


def _in_torch_module(place: Place) -> bool:
    """Whether the function is a method of a torch module whose attributes torch alone looks "
    "after."""
    cls = place.cls
    if cls is None or not cls.is_module or not place.self_name:
        return False
    if any(a.startswith(_NOT_MODULES) for a in cls.ancestors):
        return False
    if not any(a.startswith("torch.nn.") for a in cls.ancestors):
        return False
    return not place.defines("__setattr__", "__getattr__")


def _foreign_bases(place: Place) -> bool:
    """Whether the class inherits from library classes other than torch's: what they define is "
    "unknown."""
    mine = _package(place)
    known = (mine, "torch", "abc", "typing", "object", "builtins", "collections", "enum")
    return place.cls is not None and any(
        a.partition(".")[0] not in known for a in place.cls.ancestors
    )


def _is_self(node: cst.CSTNode, place: Place) -> bool:
    return isinstance(node, cst.Name) and node.value == place.self_name != ""


def _string(node: cst.BaseExpression | None) -> str | None:
    """The value of a plain string literal."""
    if isinstance(node, cst.SimpleString):
        value = node.evaluated_value
        return value if isinstance(value, str) else None
    return None


def _holds_modules(values: Sequence[str]) -> bool:
    """Whether an attribute is a parameter, buffer or submodule: found by `Module.__getattr__` "
    "only."""
    return any(v in ("param", "buffer") or v.startswith("call:torch.nn.") for v in values)


def _registered(values: Sequence[str]) -> bool:
    """Whether an attribute is a parameter or buffer."""
    return any(v in ("param", "buffer") for v in values)


# -- the rules -------------------------------------------------------------------------------------


class SignatureInspectedPerCall(Rule):
    """A function is inspected on every call.

    ## What it does
    Flags `inspect.signature`, `getfullargspec`, `getmembers`, `getsource`, `getframeinfo`, `stack`,
    `traceback.extract_stack`,
    `typing.get_type_hints`, and `bind` of a signature in hot functions.

    ## Why it costs
    A signature is built from scratch each time, in Python, parameter by parameter: five
    microseconds of host time for a small function, more for one with many parameters. Binding
    arguments to it costs about half of that again.

    ## Example
    ```python
    def __call__(self, *args, **kwargs):
        if "training" in inspect.signature(self.call).parameters:
            kwargs["training"] = self.training
        return self.call(*args, **kwargs)
    ```

    ## Instead
    ```python
    def __init__(self):
        self._takes_training = "training" in inspect.signature(self.call).parameters

    def __call__(self, *args, **kwargs):
        if self._takes_training:
            kwargs["training"] = self.training
        return self.call(*args, **kwargs)
    ```

    ## Fix safety
    No automatic fix: where the function becomes known is for a reader to say.
    """

    code = "DG601"
    name = "signature-inspected-per-call"
    origin = "keras-core#606"
    looks_for = (
        Call("signature", "from_callable", "getfullargspec", "getmembers", "getsource"),
        Call("get_type_hints", "bind", "bind_partial"),
        Call("getframeinfo", "extract_stack", "format_stack"),
        Call("stack", arguments=0),
    )

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags inspection, and binding to what is a signature."""
        if place.hot.only_loops:
            return None
        does = _INSPECTED.get(place.name(node))
        if does is not None:
            return place.finding(
                node,
                f"`{place.text(node.func)}` {does} in Python on every call, microseconds on the "
                "host. Ask once, where the function becomes known, and keep the answer (or put "
                "the question behind `functools.lru_cache`)",
                certainty=_certainty(place),
            )
        if place.last_name(node) in ("bind", "bind_partial") and self._on_signature(node, place):
            return place.finding(
                node,
                f"`{place.text(node.func)}` sorts arguments into parameters in Python on every "
                "call, microseconds on the host. Handle the usual call (positional arguments "
                "only) without it",
                certainty=_certainty(place),
            )
        return None

    @staticmethod
    def _on_signature(node: cst.Call, place: Place) -> bool:
        receiver = place.receiver(node)
        if receiver is None:
            return False
        value = place.value_of(receiver) or receiver
        if isinstance(value, cst.Call) and place.name(value) in _INSPECTED:
            return True
        return re.search(r"(?:^|[._])(?:sig|signature)$", place.dotted(receiver)) is not None


class ImportPerCall(Rule):
    """A module is imported inside a hot function.

    ## What it does
    Flags imports of the standard library, and of what comes with `import torch` in methods of torch
    modules, inside hot functions. With `--pedantic` also relative imports. Imports inside `try` and
    of optional packages are left alone. Behind a condition it is a note: whether that branch runs often is
    for the author to say.

    ## Why it costs
    The import statement looks the module up, checks that it is whole, and binds its names again on
    every call: a part of a microsecond each, where a global name costs nothing.

    ## Example
    ```python
    def forward(self, x):
        import math

        return x * math.sqrt(self.dim)
    ```

    ## Instead
    ```python
    import math

    def forward(self, x):
        return x * math.sqrt(self.dim)
    ```

    ## Fix safety
    No automatic fix: a module's global names may be taken.
    """

    code = "DG602"
    name = "import-per-call"
    origin = "TransformerEngine#1191"
    looks_for = Import()

    def judge(self, node: cst.Import | cst.ImportFrom, place: Place) -> Finding | None:
        """Flags imports that can stand at the top of the file as well."""
        if not place.per_call or place.scene.tries:
            return None
        relative = isinstance(node, cst.ImportFrom) and bool(node.relative)
        if relative:
            if place.conditions:
                return None
        elif not all(self._can_move(name, place) for name in self._modules(node, place)):
            return None
        return place.finding(
            node,
            f"`{place.text(node)}` runs on every call: it looks the module up and binds its names "
            "again. Import it at the top of the file"
            + (", if no import cycle forbids it" if relative else ""),
            certainty=weaker(_certainty(place), "note")
            if relative or place.conditions
            else _certainty(place),
        )

    @staticmethod
    def _modules(node: cst.Import | cst.ImportFrom, place: Place) -> list[str]:
        if isinstance(node, cst.ImportFrom):
            return [place.dotted(node.module)] if node.module is not None else [""]
        return [place.dotted(alias.name) for alias in node.names]

    @staticmethod
    def _can_move(module: str, place: Place) -> bool:
        if module.partition(".")[0] in _STDLIB:
            return True
        bases = place.cls.ancestors if place.cls is not None else ()
        return _LOADED_WITH_TORCH.fullmatch(module) is not None and any(
            base.startswith("torch.") for base in bases
        )


class EnvironmentReadPerCall(Rule):
    """An environment variable is read on every call.

    ## What it does
    Flags `os.getenv(...)`, `os.environ.get(...)`, `os.environ[...]` and `... in os.environ` in hot
    functions.

    ## Why it costs
    The name is encoded, looked up through Python methods, and the value decoded, on every call.

    ## Example
    ```python
    def forward(self, x):
        if os.environ.get("MYLIB_FUSED") == "1":
            return self.fused(x)
        return self.plain(x)
    ```

    ## Instead
    ```python
    _FUSED = os.environ.get("MYLIB_FUSED") == "1"

    def forward(self, x):
        if _FUSED:
            return self.fused(x)
        return self.plain(x)
    ```

    ## Fix safety
    No automatic fix: from then on, changes of the variable while the program runs are not seen.
    """

    code = "DG603"
    name = "environment-read-per-call"
    origin = "vllm#17067"
    looks_for = (Attribute("environ"), Call("getenv"))

    def judge(self, node: cst.Attribute | cst.Call, place: Place) -> Finding | None:
        """Flags reads of the environment."""
        if not place.per_call:
            return None
        if isinstance(node, cst.Call):
            read: cst.CSTNode | None = node if place.name(node) == "os.getenv" else None
        else:
            read = self._read(node, place) if place.name(node) == "os.environ" else None
        if read is None or not self._fixed_name(read, place):
            return None
        if _ENVIRONMENT_WRITE.search(place.text(place.function)):
            return None
        return place.finding(
            read,
            f"`{place.text(read)}` encodes a name, looks it up through Python methods and decodes "
            "the value on every call. Read it once, at import or in `__init__`",
            certainty=_certainty(place),
        )

    @staticmethod
    def _fixed_name(read: cst.CSTNode, place: Place) -> bool:
        """Whether the variable's name is the same on every call."""
        if isinstance(read, cst.Call):
            name: cst.CSTNode | None = place.argument(read, 0, "key")
        elif isinstance(read, cst.Comparison):
            name = read.left
        else:
            assert isinstance(read, cst.Subscript)
            part = read.slice[0].slice
            name = part.value if isinstance(part, cst.Index) else None
        if isinstance(name, cst.SimpleString):
            return True
        return isinstance(name, cst.Name) and bool(place.global_values(name.value))

    @staticmethod
    def _read(node: cst.Attribute, place: Place) -> cst.CSTNode | None:
        parent = place.parent(node)
        if isinstance(parent, cst.Attribute):
            call = place.parent(parent)
            return call if isinstance(call, cst.Call) and parent.attr.value == "get" else None
        if isinstance(parent, cst.Comparison):
            tests = [p.comparator for p in parent.comparisons]
            return parent if len(tests) == 1 and tests[0] is node else None
        if isinstance(parent, cst.Subscript) and not _written(parent, place.statement):
            return parent
        return None


def _written(node: cst.Subscript, statement: cst.CSTNode) -> bool:
    """Whether a statement assigns to or deletes a subscript."""
    for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
        if isinstance(small, cst.Assign) and any(t.target is node for t in small.targets):
            return True
        if isinstance(small, cst.AugAssign | cst.AnnAssign | cst.Del) and small.target is node:
            return True
    return False


class EagerLogText(Rule):
    """The text of a log call is made before the logger says whether anybody reads it.

    ## What it does
    Flags f-strings, `%` and `str.format` as the message of `logger.debug` and `logger.info` in hot
    functions.

    ## Why it costs
    The text is made on every call, and thrown away when the level is off. Formatting a tensor takes
    more than a hundred microseconds, and waits for the device.

    ## Example
    ```python
    logger.debug(f"mask {mask} of {x.shape}")
    ```

    ## Instead
    ```python
    logger.debug("mask %s of %s", mask, x.shape)
    ```

    ## Fix safety
    Unsafe: `%s` is `str(x)` where an f-string asks `format(x, "")`, and errors in formatting are
    reported by logging instead of raised. Offered for loggers of the `logging` module.
    """

    code = "DG604"
    name = "eager-log-text"
    origin = "Emerging-Optimizers#255"
    looks_for = Call(*_LEVELS)
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags messages that are made at once."""
        if not place.per_call or not node.args:
            return None
        first = node.args[0]
        if first.keyword is not None or first.star or not _is_logger(node, place):
            return None
        how = _made_at_once(first.value, place)
        if not how:
            return None
        return place.finding(
            node,
            f"{how} makes the text on every call, also while `{place.text(node.func)}` is off. "
            "Give the logger the values and let it make the text when somebody reads it",
            certainty="note" if place.conditions else "sure",
            fix=_lazy(node, place),
            dry=_is_dry(_shown(first.value), place),
        )


def _is_logger(node: cst.Call, place: Place) -> bool:
    name = place.name(node)
    if name.startswith(("loguru.", "structlog.")):
        return False
    receiver = place.receiver(node)
    if receiver is None:
        return False
    if name in ("logging.debug", "logging.info"):
        return True
    return place.dotted(receiver).rpartition(".")[2].lower() in _LOGGERS


def _made_at_once(node: cst.BaseExpression, place: Place) -> str:
    if isinstance(node, cst.FormattedString) and _expressions(node):
        return "The f-string"
    if isinstance(node, cst.ConcatenatedString):
        return "The f-string" if any(_expressions(p) for p in _parts(node)) else ""
    strings = cst.SimpleString | cst.ConcatenatedString
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo):
        return "`%`" if isinstance(node.left, strings) else ""
    if isinstance(node, cst.Call) and place.last_name(node) == "format":
        return "`str.format`" if isinstance(place.receiver(node), strings) else ""
    return ""


def _expressions(node: cst.BaseExpression) -> list[cst.FormattedStringExpression]:
    if not isinstance(node, cst.FormattedString):
        return []
    return [p for p in node.parts if isinstance(p, cst.FormattedStringExpression)]


def _is_dry(values: Sequence[cst.BaseExpression], place: Place) -> bool | None:
    """Whether showing values waits for nothing: none of them is a tensor; None where nobody knows."""
    if any(place.on_device(value) for value in values):
        return False
    return all(_is_plain(value, place) for value in values) or None


def _is_plain(value: cst.BaseExpression, place: Place) -> bool:
    if isinstance(value, cst.Attribute) and value.attr.value in ("__name__", "__qualname__"):
        return True
    kind = place.kind(value)
    inside = kind.element if kind.what == "nested" else kind
    return inside is not None and inside.not_tensor and inside.what != "nested"


def _shown(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The values that a message made at once shows."""
    if isinstance(node, cst.Call):
        return [argument.value for argument in node.args]
    if isinstance(node, cst.BinaryOperation):
        right = node.right
        return [e.value for e in right.elements] if isinstance(right, cst.Tuple) else [right]
    return [e.expression for part in _parts(node) for e in _expressions(part)]


def _parts(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The single literals of an implicitly concatenated string."""
    if isinstance(node, cst.ConcatenatedString):
        return [*_parts(node.left), *_parts(node.right)]
    return [node]


def _lazy(node: cst.Call, place: Place) -> Fix | None:
    """The same call with `%s` and the values behind the text; None where that is not exact "
    "enough."""
    receiver = place.receiver(node)
    if not isinstance(receiver, cst.Name):
        return None
    values = place.global_values(receiver.value)
    standard = any(v.rpartition(".")[2] in _GETTERS for v in values if v.startswith("call:"))
    if not (standard or place.name(node).startswith("logging.")):
        return None
    if any(a.keyword is None or a.star for a in node.args[1:]):
        return None
    message = node.args[0].value
    if isinstance(message, cst.BinaryOperation):
        return _lazy_modulo(message, place)
    edits: list[tuple[cst.CSTNode, str]] = []
    given: list[str] = []
    for part in _parts(message):
        if isinstance(part, cst.FormattedString):
            converted = _percent(part, place, given)
            if converted is None:
                return None
            edits.append((part, converted))
        elif isinstance(part, cst.SimpleString):
            if "b" in part.prefix.lower():
                return None
            if "%" in part.raw_value:
                text = part.prefix + part.quote + part.raw_value.replace("%", "%%") + part.quote
                edits.append((part, text))
        else:
            return None
    if not given or message.lpar:
        return None
    last_part, last_text = edits[-1]
    end = _parts(message)[-1]
    values_text = "".join(f", {g}" for g in given)
    if last_part is end:
        edits[-1] = (last_part, last_text + values_text)
    else:
        edits.append((end, place.text(end) + values_text))
    return place.edits(
        edits, safety="unsafe", message="let the logger make the text, and report mistakes in it"
    )


def _percent(node: cst.FormattedString, place: Place, given: list[str]) -> str | None:
    """An f-string as a string with `%` in the places of its values, which go into `given`."""
    out = []
    for part in node.parts:
        if isinstance(part, cst.FormattedStringText):
            out.append(part.value.replace("{{", "{").replace("}}", "}").replace("%", "%%"))
            continue
        assert isinstance(part, cst.FormattedStringExpression)
        simple = cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.BinaryOperation
        if part.equal is not None or not isinstance(part.expression, simple):
            return None
        spec = ""
        if part.format_spec is not None:
            pieces = list(part.format_spec)
            if len(pieces) != 1 or not isinstance(pieces[0], cst.FormattedStringText):
                return None
            spec = pieces[0].value
        if part.conversion is not None:
            if spec or part.conversion not in ("r", "s", "a"):
                return None
            out.append(f"%{part.conversion}")
        elif not spec:
            out.append("%s")
        elif _FLOAT_SPEC.fullmatch(spec):
            out.append(f"%{spec}")
        else:
            return None
        given.append(place.text(part.expression))
    prefix = node.start.rstrip("\"'").replace("f", "").replace("F", "")
    quote = node.end
    return prefix + quote + "".join(out) + quote


def _lazy_modulo(node: cst.BinaryOperation, place: Place) -> Fix | None:
    right = node.right
    if not isinstance(right, cst.Tuple) or node.lpar or not right.elements:
        return None
    if any(isinstance(e, cst.StarredElement) for e in right.elements):
        return None
    values = "".join(f", {place.text(e.value)}" for e in right.elements)
    return place.replace(
        node,
        place.text(node.left) + values,
        safety="unsafe",
        message="let the logger make the text, and report mistakes in it",
    )


class WarningPerCall(Rule):
    """A hot function warns on every call.

    ## What it does
    Flags `warnings.warn(...)` that no condition guards in hot functions.

    ## Why it costs
    Whether the warning was shown before is found out anew each time: the caller's frame is looked
    up, its registry searched, and the filters are matched one after the other.

    ## Example
    ```python
    def scale(x, factor):
        warnings.warn("scale() goes away; multiply", DeprecationWarning, stacklevel=2)
        return x * factor
    ```

    ## Instead
    ```python
    _warned = False

    def scale(x, factor):
        global _warned
        if not _warned:
            _warned = True
            warnings.warn("scale() goes away; multiply", DeprecationWarning, stacklevel=2)
        return x * factor
    ```

    ## Fix safety
    No automatic fix: the flag needs a name and a place, and a warning per caller becomes one for
    all.
    """

    code = "DG605"
    name = "warning-per-call"
    origin = "pytorch#76952"
    looks_for = Call("warn")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags warnings that every call passes."""
        often = place.per_call or place.hot.users
        if place.name(node) != "warnings.warn" or not often or place.conditions:
            return None
        if place.scene.tries or place.scene.deferred or _may_return_before(place):
            return None
        if _WARNS_BY_NAME.search(place.function.name.value) or _stands_in(place):
            return None
        return place.finding(
            node,
            "`warnings.warn` looks up frames, registries and filters on every call, also when "
            "the warning is not shown again. Warn once, behind a flag, or where the object is "
            "made",
        )


def _stands_in(place: Place) -> bool:
    """Whether the function is defined under an `if` or `try` of the module, deeper than its scopes alone
    would put it: what stands in for a package that is missing says so when it is used."""
    body = place.function.body
    if not isinstance(body, cst.IndentedBlock) or not body.body:
        return False
    deep, deeper = len(place.indent(place.function)), len(place.indent(body.body[0]))
    scopes = place.qualname.replace(".<locals>", "").count(".")
    return deep > scopes * (deeper - deep)


def _may_return_before(place: Place) -> bool:
    """Whether a statement before the place's may end the function: the place is conditional "
    "then."""
    blocks = [place.block]
    if isinstance(place.function.body, cst.IndentedBlock):
        blocks.append(tuple(place.function.body.body))
    for block in blocks:
        for statement in block:
            if statement is place.statement:
                break
            inside = nodes.walk(statement, without=(cst.FunctionDef,))
            if any(isinstance(n, cst.Return | cst.Continue) for n in inside):
                return True
    return False


class DeepcopyPerCall(Rule):
    """Something is copied through and through on every call.

    ## What it does
    Flags `copy.deepcopy(...)` in hot functions.

    ## Why it costs
    Every object underneath is visited, looked up by type, and remembered in a table, in Python;
    tensors are cloned.

    ## Example
    ```python
    def forward(self, x, **overrides):
        options = copy.deepcopy(self.options)
        options.update(overrides)
        return self.op(x, **options)
    ```

    ## Instead
    ```python
    def forward(self, x, **overrides):
        options = {**self.options, **overrides} if overrides else self.options
        return self.op(x, **options)
    ```

    ## Fix safety
    No automatic fix: what is changed afterwards, and how deep, is for a reader to say.
    """

    code = "DG606"
    name = "deepcopy-per-call"
    origin = "kornia#3819"
    looks_for = Call("deepcopy")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags deep copies."""
        if place.name(node) != "copy.deepcopy" or not place.per_call:
            return None
        if _COPIES_BY_NAME.search(place.function.name.value) or _remembers(place):
            return None
        near = len(place.hot.path) <= 2 and not place.conditions and not _may_return_before(place)
        return place.finding(
            node,
            f"`{place.text(node)}` visits every object underneath in Python, and clones tensors, "
            "on every call. Copy only what is changed afterwards, and only when it is",
            certainty="sure" if near or self._changed_flat(node, place) else "note",
        )

    @staticmethod
    def _changed_flat(node: cst.Call, place: Place) -> bool:
        """Whether only the copy's own entries are changed in what follows: a flat copy does."""
        parent = place.parent(node)
        if not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
            return False
        name = place.dotted(parent.targets[0].target)
        following = list(place.block[place.block.index(place.statement) + 1 :])
        return bool(name) and f"{name}.update" in {_called(s, place) for s in following}


def _called(statement: cst.CSTNode, place: Place) -> str:
    """What a statement that is one call calls."""
    if isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Expr):
        value = statement.body[0].value
        return place.dotted(value.func) if isinstance(value, cst.Call) else ""
    return ""


def _remembers(place: Place) -> bool:
    """Whether a decorator of the function remembers its results."""
    return any(
        "cache" in place.text(d.decorator) or "memo" in place.text(d.decorator)
        for d in place.function.decorators
    )


class HasattrOfModule(Rule):
    """A module asks itself on every call whether it has an attribute.

    ## What it does
    Flags `hasattr(self, "x")` and `getattr(self, "x", default)` in hot methods of torch modules,
    where no method of the class sets `x` as a plain attribute.

    ## Why it costs
    What is no plain attribute is looked up by `Module.__getattr__`, in Python, among parameters,
    buffers and submodules; what is not there costs an exception as well: about a microsecond of
    host time.

    ## Example
    ```python
    def forward(self, x):
        if hasattr(self, "adapter"):
            x = self.adapter(x)
        return x
    ```

    ## Instead
    ```python
    def __init__(self):
        super().__init__()
        self.adapter = None

    def forward(self, x):
        if self.adapter is not None:
            x = self.adapter(x)
        return x
    ```

    ## Fix safety
    No automatic fix: the attribute needs a default in `__init__`. A default in the class body would hide a
    submodule of that name. Where the attribute is there and is a submodule, reading it costs the same
    search: read it once into a local name.
    """

    code = "DG607"
    name = "hasattr-of-module"
    origin = "TransformerEngine#1191"
    looks_for = Call("hasattr", "getattr", place="self")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags questions that `Module.__getattr__` answers, the first of each statement."""
        attribute = self._asked(node, place)
        if not attribute or not place.per_call or not _in_torch_module(place):
            return None
        for other, scene in place.calls("hasattr", "getattr"):
            if other is node:
                break
            if scene.statement is place.statement and self._asked(other, place):
                return None
        values = place.attribute_values(attribute)
        registered = _registered(values)
        # What others add by `add_module` must not be there as anything else.
        none = (
            "to None"
            if values
            else f'to None (`register_module("{attribute}", None)` for a module)'
        )
        return place.finding(
            node,
            f"`{place.text(node)}` is answered by `Module.__getattr__`, in Python, about a "
            f"microsecond on every call. Set `self.{attribute}` {none} in `__init__` where there "
            "is none, and test that, read once into a local name",
            certainty="maybe" if _foreign_bases(place) else "note" if registered else "sure",
        )

    @staticmethod
    def _asked(node: cst.Call, place: Place) -> str:
        """The attribute asked for, where it is not surely a plain one, which is found at once."""
        asked = place.last_name(node)
        if not isinstance(node.func, cst.Name) or place.cls is None:
            return ""
        if len(node.args) != (2 if asked == "hasattr" else 3) or not _is_self(
            node.args[0].value, place
        ):
            return ""
        attribute = _string(node.args[1].value)
        if not attribute or attribute.startswith("__") or attribute in _MODULE_ATTRIBUTES:
            return ""
        if place.defines(attribute):
            return ""
        values = place.attribute_values(attribute)
        return "" if values and not _holds_modules(values) else attribute


_MODULE_ATTRIBUTES = frozenset(
    """training forward call_super_init dump_patches _parameters _buffers _modules _backward_hooks
    _forward_hooks _forward_pre_hooks _state_dict_hooks _non_persistent_buffers_set""".split()
)


class ModuleAttributeWrite(Rule):
    """A module keeps a plain value as its attribute on every call.

    ## What it does
    Flags `self.x = value` in hot methods of torch modules, outside conditions, where `x` is neither
    a parameter, buffer nor submodule.

    ## Why it costs
    `Module.__setattr__` is a Python method that looks for parameters, buffers and submodules of
    that name first: more than a microsecond of host time, where a local name costs nothing.

    ## Example
    ```python
    def forward(self, x):
        self.scale = x.shape[-1] ** -0.5
        return x * self.scale
    ```

    ## Instead
    ```python
    def forward(self, x):
        scale = x.shape[-1] ** -0.5
        return x * scale
    ```

    ## Fix safety
    No automatic fix: whether others read the attribute afterwards is not to be seen from here.
    """

    code = "DG608"
    name = "module-attribute-write"
    origin = "TransformerEngine#1191"
    looks_for = SelfWrite()

    def judge(
        self, node: cst.Assign | cst.AnnAssign | cst.AugAssign, place: Place
    ) -> Iterator[Finding]:
        """Flags plain values written to self."""
        if not place.per_call or not _in_torch_module(place) or place.cls is None:
            return
        if node.value is None or place.kind(node.value).what in ("module", "modules"):
            return
        targets = (
            [t.target for t in node.targets] if isinstance(node, cst.Assign) else [node.target]
        )
        for target in targets:
            if not isinstance(target, cst.Attribute) or not _is_self(target.value, place):
                continue
            name = target.attr.value
            if name in place.cls.properties or name in _MODULE_ATTRIBUTES:
                continue
            values = place.attribute_values(name)
            if _holds_modules(values) or any(
                v.startswith("call:") and "Param" in v for v in values
            ):
                continue
            if isinstance(node, cst.AugAssign) or any(
                ".setter" in place.text(d.decorator) for d in place.function.decorators
            ):
                continue
            yield place.finding(
                node,
                f"`self.{name} = …` goes through `Module.__setattr__`, a Python method, more than "
                "a microsecond on every call. Use a local name; what must outlive the call can "
                "live in a plain object that `__init__` makes",
                certainty="sure" if self._for_this_call(name, node.value, place) else "note",
            )

    @staticmethod
    def _for_this_call(name: str, value: cst.BaseExpression, place: Place) -> bool:
        """Whether the value looks made for this call: not kept under a condition, not made from "
        "itself."""
        if place.function.name.value not in ("forward", "call", "__call__"):
            return False
        if (
            place.conditions
            or place.scene.tries
            or _may_return_before(place)
            or _foreign_bases(place)
        ):
            return False
        return not re.search(rf"\b{place.self_name}\.{name}\b", place.text(value))


class ModuleListSlice(Rule):
    """A `ModuleList` or `Sequential` is sliced on every call.

    ## What it does
    Flags `self.layers[a:b]` in hot functions where `layers` is a `ModuleList` or `Sequential`.

    ## Why it costs
    The slice is a new module: its `__init__` sets up a dozen tables for hooks and parameters, and
    every submodule is registered with it, one by one, in Python: over a microsecond of host time
    each.

    ## Example
    ```python
    for layer in self.layers[: self.depth]:
        x = layer(x)
    ```

    ## Instead
    ```python
    for layer in itertools.islice(self.layers, self.depth):
        x = layer(x)
    ```

    ## Fix safety
    Safe where the slice is only iterated: `itertools.islice` where no bound can be negative, else a
    slice of a plain list. No fix where the slice is called, kept or passed on. TorchScript compiles
    neither; leave modules that are still scripted as they are.
    """

    code = "DG609"
    name = "module-list-slice"
    origin = "vllm#19497"
    looks_for = Getitem()
    fixes = "safe"

    def judge(self, node: cst.Subscript, place: Place) -> Finding | None:
        """Flags slices of module lists."""
        kind = place.kind(node.value)
        if kind.what != "modules" or not kind.sure or len(node.slice) != 1:
            return None
        part = node.slice[0].slice
        if not isinstance(part, cst.Slice) or not place.per_call:
            return None
        return place.finding(
            node,
            f"`{place.text(node)}` builds a new module and registers every submodule with it on "
            f"every call, over a microsecond each on the host. {_unsliced(node, part, place)}",
            fix=_sliced(node, part, place),
        )


def _unsliced(node: cst.Subscript, part: cst.Slice, place: Place) -> str:
    """How to do without the slice. One that is kept as an attribute would register its modules twice, in the
    state as well."""
    parent = place.parent(node)
    base = place.text(node.value)
    plain = f"`list({base}){place.text(node)[len(base) :]}`"
    if isinstance(parent, cst.Call) and parent.func is node:
        return f"Call the modules of {plain} one after the other instead"
    if isinstance(parent, cst.Call) and place.name(parent) == "len":
        return f"Count by `len({base})`, or take {plain}"
    if all(b is None or _not_negative(b, place) for b in (part.lower, part.upper, part.step)):
        return f"Iterate over `{_islice(base, part, place)}` instead, or over {plain}"
    return f"Iterate over {plain} instead, which may count from the end"


def _islice(base: str, part: cst.Slice, place: Place) -> str:
    """The slice as `itertools` makes it."""
    bounds = [part.lower, part.upper, part.step]
    given = [place.text(b) if b is not None else "None" for b in bounds]
    if part.step is None:
        given.pop()
        if part.lower is None:
            given.pop(0)
    return f"itertools.islice({base}, {', '.join(given)})"


def _sliced(node: cst.Subscript, part: cst.Slice, place: Place) -> Fix | None:
    outside = _iterated_by(node, place)
    if not outside:
        return None
    base = place.text(node.value)
    bounds = [part.lower, part.upper, part.step]
    if outside == "once" and all(b is None or _not_negative(b, place) for b in bounds):
        new, imports = _islice(base, part, place), ["import itertools"]
    else:
        new, imports = f"list({base}){place.text(node)[len(base) :]}", []
    return place.replace(
        node, new, safety="safe", message="iterate without a new module", imports=imports
    )


def _not_negative(node: cst.BaseExpression, place: Place) -> bool:
    if isinstance(node, cst.Integer):
        return True
    return isinstance(node, cst.Call) and place.name(node) == "len"


def _iterated_by(node: cst.Subscript, place: Place) -> str:
    """ "once" where a loop iterates the slice itself, "list" where something else does that "
    "needs a sequence."""
    parent = place.parent(node)
    inner: cst.BaseExpression = node
    how = "once"
    while isinstance(parent, cst.Call):
        name = place.name(parent)
        if name in ("reversed", "len"):
            how = "list"
        elif name not in ("enumerate", "zip"):
            return ""
        if name == "len":
            return how
        inner, parent = parent, place.parent(parent)
    if isinstance(parent, cst.BaseComp):
        return how if any(c.iter is inner for c in _clauses(parent)) else ""
    statement = place.statement
    if parent is None and isinstance(statement, cst.For) and statement.iter is inner:
        return how
    return ""


def _clauses(comp: cst.BaseComp) -> Iterator[cst.CompFor]:
    clause: cst.CompFor | None = comp.for_in
    while clause is not None:
        yield clause
        clause = clause.inner_for_in


def _is_attribute_of_self(node: cst.BaseExpression, place: Place) -> bool:
    name = place.dotted(node)
    return bool(place.self_name) and name.startswith(f"{place.self_name}.")


class ModuleTreeWalk(Rule):
    """The tree of modules is walked on every call.

    ## What it does
    Flags `parameters()`, `modules()`, `buffers()`, their named forms and `state_dict()` of modules
    in hot functions, `next(self.parameters()).dtype` among them. A loop over them once per step is a
    note.

    ## Why it costs
    The walk visits every submodule through nested Python generators and remembers what it has seen:
    several microseconds to the first parameter, and about one for every module after it.

    ## Example
    ```python
    def forward(self, x):
        return self.proj(x.to(next(self.parameters()).dtype))
    ```

    ## Instead
    ```python
    def forward(self, x):
        return self.proj(x.to(self.proj.weight.dtype))
    ```

    ## Fix safety
    No automatic fix: which parameter to ask, or when a list of them is out of date, is for a reader
    to say.
    """

    code = "DG610"
    name = "module-tree-walk"
    origin = "diffusers#9520"
    looks_for = Call(*_WALKS)

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags walks over a module's tree."""
        receiver = place.receiver(node)
        if receiver is None or place.function.name.value in _WALKS:
            return None
        if not place.per_call:
            return self._per_step(node, receiver, place)
        if place.last_name(node).endswith("buffers") and (
            _may_return_before(place) or isinstance(place.parent(node), cst.Call)
        ):
            # What is asked when there are no parameters.
            return None
        of_self = _is_self(receiver, place) and place.in_module
        if not of_self and place.kind(receiver).what not in ("module", "modules"):
            return None
        if not of_self and not _is_attribute_of_self(receiver, place):
            return None  # a module that is handed in has no owner here who could keep a list of it
        shown = place.text(node)
        if self._first_only(node, place):
            if not any(
                v in ("param", "buffer") or v.startswith("call:torch.nn.")
                for values in (place.cls.attrs.values() if place.cls else ())
                for v in values
            ):
                return None  # a mixin: no parameter is known by name
            return place.finding(
                node,
                f"`next({shown})` starts a walk over the tree of modules on every call, several "
                "microseconds on the host. Ask the input, or a parameter that is known by name",
                certainty=_certainty(place),
            )
        return place.finding(
            node,
            f"`{shown}` walks the tree of modules in Python on every call, about a microsecond "
            "for each module. Keep a list of what is needed, made once, and anew when submodules are "
            "added",
            certainty=_certainty(place),
        )

    def _per_step(
        self, node: cst.Call, receiver: cst.BaseExpression, place: Place
    ) -> Finding | None:
        """A loop over all modules of what an object holds, once per step: beside a step it is little, and
        grows with the model."""
        looped = isinstance(place.statement, cst.For) and place.statement.iter is node
        held = place.in_module and _is_self(receiver, place)
        if not looped or not (held or _is_attribute_of_self(receiver, place)):
            return None
        walked = ("modules", "named_modules", "parameters")
        if place.hot.only_loops or place.last_name(node) not in walked:
            return None
        return place.finding(
            node,
            f"`{place.text(node)}` walks the tree of modules in Python in every step, about a "
            "microsecond for each module. Keep a list of what the loop changes",
            certainty="note",
        )

    @staticmethod
    def _first_only(node: cst.Call, place: Place) -> bool:
        parent = place.parent(node)
        if isinstance(parent, cst.Call) and place.name(parent) in ("iter", "itertools.chain"):
            parent = place.parent(parent)
        if isinstance(parent, cst.Assign):
            name = parent.targets[0].target
            return any(
                place.last_name(call) == "next"
                and call.args
                and place.same(call.args[0].value, name)
                for call, _ in place.calls("next")
            )
        if isinstance(parent, cst.GeneratorExp):
            parent = place.parent(parent)
        return isinstance(parent, cst.Call) and place.name(parent) == "next"


class DevicePropertyQuery(Rule):
    """What the hardware can do is asked on every call.

    ## What it does
    Flags `torch.cuda.is_available()`, `device_count()`, `get_device_capability()`,
    `get_device_properties()` and the like in hot functions. What is free or in use
    (`memory_allocated()`, `mem_get_info()`) is a note: it changes.

    ## Why it costs
    Each asks a library through Python wrappers, up to a microsecond of host time, for what does not
    change while the program runs.

    ## Example
    ```python
    def forward(self, x):
        if torch.cuda.is_available() and x.is_cuda:
            return self.fused(x)
        return self.plain(x)
    ```

    ## Instead
    ```python
    _CUDA = torch.cuda.is_available()

    def forward(self, x):
        if _CUDA and x.is_cuda:
            return self.fused(x)
        return self.plain(x)
    ```

    ## Fix safety
    No automatic fix: asking for devices at import starts CUDA in some releases, which a program
    that forks may not want; a function behind `functools.lru_cache` asks at the first call.
    """

    code = "DG611"
    name = "device-property-query"
    origin = "TransformerEngine#1722"
    looks_for = Call(*sorted({n.rpartition(".")[2] for n in _DEVICE_FACTS | _MEMORY_FACTS}))

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags questions whose answer lasts, or takes long to give."""
        asks = _WATCHES.search(place.qualname) is not None
        if place.name(node) in _MEMORY_FACTS and not asks and not _guards_a_stall(node, place):
            return place.finding(
                node,
                f"`{place.text(node)}` gathers figures of the whole allocator, or asks the driver, on "
                "every call: "
                "tens of microseconds and more. Ask only where they are logged",
                certainty="note",
            )
        if place.name(node) not in _DEVICE_FACTS or not place.per_call:
            return None
        if _asked_before(node, place) or _guards_a_stall(node, place):
            return None
        once = "Ask once, at import, in `__init__` or behind `functools.lru_cache`"
        if any(not isinstance(a.value, cst.Integer | cst.SimpleString) for a in node.args):
            once = "Ask once for each device, in a helper behind `functools.lru_cache`"
        return place.finding(
            node,
            f"`{place.text(node)}` asks through Python wrappers on every call for what does not "
            f"change while the program runs. {once}",
            certainty=_certainty(place),
        )


def _asked_before(node: cst.Call, place: Place) -> bool:
    """Whether the function asks for such a fact before: one function gets one finding."""
    for call, scene in place.calls():
        if call is node:
            return False
        if scene.function is place.function and place.name(call) in _DEVICE_FACTS:
            return True
    return False


def _guards_a_stall(node: cst.Call, place: Place) -> bool:
    """Whether the branch that asks makes the host wait for the device anyway, which has rules of its own."""
    for call, scene in place.calls("synchronize", "empty_cache", "ipc_collect"):
        inside = [test for test, _ in scene.conditions if node not in nodes.walk(test)]
        outside = [test for test, _ in place.conditions]
        if scene.function is place.function and inside == outside:
            return place.name(call).startswith("torch.")
    return False
