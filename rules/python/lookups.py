"""DG601, DG602, DG603, DG611: signatures, imports, environment variables, device properties."""

from __future__ import annotations

import re

import libcst as cst

from pytest_dispatchguard import Attribute, Call, Finding, Fix, Import, Place, Rule, nodes, weaker

from ..certainty import path_certainty

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
_ENVIRONMENT_WRITE = re.compile(
    r"environ\[[^\]]+\]\s*=[^=]|environ\.(?:pop|update|setdefault|clear)|del os\.environ|putenv"
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
_WATCHES = re.compile(
    r"mem|stat(?!e)|monitor|report|log(?!it|prob)|profil|track|summar", re.IGNORECASE
)
"""What is there to ask."""


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
    Unsafe: the fix keeps the signatures of the last 128 functions that were asked for, and with them these
    functions, which must be hashable. Offered for `inspect.signature` of one function; what binds arguments
    is left to the author.
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
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags inspection, and binding to what is a signature."""
        if place.hot.only_loops:
            return None
        does = _INSPECTED.get(place.name(node))
        if does is not None:
            return place.finding(
                node,
                f"`{place.text(node.func)}` {does} in Python on every call, which takes microseconds "
                "on the host. Call it once, when you get the function, and keep the result (or "
                "cache it with `functools.lru_cache`)",
                certainty=path_certainty(place),
                fix=_kept(node, "inspect.signature", "128", place),
            )
        if place.last_name(node) in ("bind", "bind_partial") and self._on_signature(node, place):
            return place.finding(
                node,
                f"`{place.text(node.func)}` binds arguments to parameters in Python on every call, "
                "which takes microseconds on the host. Handle the usual call (positional arguments "
                "only) without it",
                certainty=path_certainty(place),
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
    of optional packages are left alone. Behind a condition it is a note: only the author
    knows whether that branch runs often.

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
    No fix: a module's global names may be taken.
    """

    code = "DG602"
    name = "import-per-call"
    origin = "TransformerEngine#1191"
    looks_for = Import(".", "torch", *sorted(_STDLIB))

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
            "again. Import it at the top of the module"
            + (", unless that makes an import cycle" if relative else ""),
            certainty=weaker(path_certainty(place), "note")
            if relative or place.conditions
            else path_certainty(place),
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


_INSTALLED = {
    "importlib.import_module": "looks for a module by its name",
    "importlib.metadata.version": "reads a file of the installed package",
    "importlib.util.find_spec": "asks all folders of packages for one",
    "packaging.version.Version": "takes a version apart with a regular expression",
    "packaging.version.parse": "takes a version apart with a regular expression",
    "pkg_resources.get_distribution": "looks for an installed package",
    "pkg_resources.parse_version": "takes a version apart with a regular expression",
}
"""Functions that say what is installed, with what they do."""


def _asks_what_is_installed(node: cst.Call, place: Place) -> bool:
    """Whether a call asks for one package, or for the version of one."""
    if place.name(node) not in _INSTALLED or len(node.args) != 1:
        return False
    about = node.args[0].value
    while isinstance(about, cst.Call) and about.args:
        about = about.args[0].value  # `version.parse(metadata.version("torch"))`
    versions = isinstance(about, cst.Attribute) and about.attr.value == "__version__"
    return versions or isinstance(about, cst.SimpleString)


_SET_BY_LAUNCHERS = re.compile(
    r"[\"'](?:LOCAL_|NODE_|GROUP_)?(?:RANK|WORLD_SIZE)[\"']|MASTER_(?:ADDR|PORT)"
)


class EnvironmentReadPerCall(Rule):
    """An environment variable is read on every call, or what is installed is looked up.

    ## What it does
    Flags `os.getenv(...)`, `os.environ.get(...)`, `os.environ[...]` and `... in os.environ` in hot
    functions, and `find_spec("package")`, `metadata.version("package")`, `import_module("package")` and
    `version.parse(torch.__version__)`. What launchers set, or programs themselves once they know their rank
    (`WORLD_SIZE`), is a note.

    ## Why it costs
    The name is encoded, looked up through Python methods, and the value decoded, on every call. Looking for
    a package asks every folder of packages, its version is read from a file, and `version.parse` takes
    the text apart with a regular expression.

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
    Unsafe: the variable is read when the module is imported; changes while the program runs are not seen.
    Offered for names and defaults that are written down, where a variable that is missing raises nothing.
    """

    code = "DG603"
    name = "environment-read-per-call"
    origin = "vllm#17067"
    looks_for = (
        Attribute("environ"),
        Call("getenv"),
        Call(*{name.rpartition(".")[2] for name in _INSTALLED}, place="imported"),
    )
    fixes = "unsafe"

    def judge(self, node: cst.Attribute | cst.Call, place: Place) -> Finding | None:
        """Flags reads of the environment."""
        if not place.per_call:
            return None
        if isinstance(node, cst.Call) and _asks_what_is_installed(node, place):
            return place.finding(
                node,
                f"`{place.short(node)}` {_INSTALLED[place.name(node)]}, on every call, for what stays the "
                "same. Ask once, at import or in `__init__`",
                certainty=path_certainty(place),
            )
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
            certainty="note"
            if _SET_BY_LAUNCHERS.search(place.text(read))
            else path_certainty(place),
            fix=_read_at_import(read, place),
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


class DevicePropertyQuery(Rule):
    """A property of the hardware is queried on every call.

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
    Unsafe: the fix asks at the first call, by a function behind `functools.lru_cache`, and keeps the answer.
    Asking at import would start CUDA in some releases, which a program that forks may not want.
    """

    code = "DG611"
    name = "device-property-query"
    origin = "TransformerEngine#1722"
    looks_for = Call(*sorted({n.rpartition(".")[2] for n in _DEVICE_FACTS | _MEMORY_FACTS}))
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags questions whose answer lasts, or takes long to give."""
        asks = _WATCHES.search(place.qualname) is not None
        if place.name(node) in _MEMORY_FACTS and not asks and not _guards_a_stall(node, place):
            return place.finding(
                node,
                f"`{place.text(node)}` collects statistics of the whole allocator, or queries the "
                "driver, on every call: tens of microseconds and more. Call it only where they are logged",
                certainty="note",
            )
        if place.name(node) not in _DEVICE_FACTS or not place.per_call:
            return None
        if _asked_before(node, place) or _guards_a_stall(node, place):
            return None
        once = "Query it once, at import or in `__init__`, or cache it with `functools.lru_cache`"
        if any(not isinstance(a.value, cst.Integer | cst.SimpleString) for a in node.args):
            once = "Query it once per device, in a helper with `functools.lru_cache`"
        return place.finding(
            node,
            f"`{place.text(node)}` queries through Python wrappers on every call what never changes "
            f"while the program runs. {once}",
            certainty=path_certainty(place),
            fix=_kept(node, "", "None", place),
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
    for call, scene in place.calls("synchronize", "empty_cache"):
        inside = [test for test, _ in scene.conditions if node not in nodes.walk(test)]
        outside = [test for test, _ in place.conditions]
        if scene.function is place.function and inside == outside:
            return place.name(call).startswith("torch.")
    return False


def _kept(node: cst.Call, only: str, most: str, place: Place) -> Fix | None:
    """The call of a function that keeps its answers, made once at module level: of the function `only`, where
    one is named."""
    name, written = place.name(node), place.text(node.func)
    if (only and name != only) or any(a.star for a in node.args) or "\n" in written:
        return None
    if only and (len(node.args) != 1 or node.args[0].keyword is not None):
        return None
    own = "_" + "_".join(name.split(".")[1:])
    return place.replace(
        node.func,
        own,
        safety="unsafe",
        message="Ask once and keep the answer, also where it would change while the program runs",
        imports=("import functools",),
        definitions=(f"{own} = functools.lru_cache(maxsize={most})({written})",),
    )


def _read_at_import(read: cst.CSTNode, place: Place) -> Fix | None:
    """The value of an environment variable, read at module level."""
    if isinstance(read, cst.Call):
        name = place.argument(read, 0, "key")
        default = place.argument(read, 1, "default")
        literal = (cst.SimpleString, cst.Integer, cst.Name)
        if default is not None and not (
            isinstance(default, literal) and place.assignments(place.text(default)) == 0
        ):
            return None
        suffix = ""
    elif isinstance(read, cst.Comparison):
        name, suffix = (
            read.left,
            "_is_set" if isinstance(read.comparisons[0].operator, cst.In) else "_is_unset",
        )
    else:
        return None
    if not isinstance(name, cst.SimpleString) or not isinstance(name.evaluated_value, str):
        return None
    source = place.text(read)
    own = "_" + re.sub(r"\W+", "_", name.evaluated_value).strip("_") + suffix.upper()
    if "\n" in source or (isinstance(read, cst.BaseExpression) and read.lpar):
        return None
    return place.replace(
        read,
        own,
        safety="unsafe",
        message="Read it at import; changes while the program runs are not seen",
        definitions=(f"{own} = {source}",),
    )
