"""DG609, DG610: slices of module lists, and walks over the tree of modules."""

from __future__ import annotations

import re

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Getitem, Place, Rule, nodes

from ..certainty import may_return_before, path_certainty
from ..syntax import MODULE_NAMES, clauses
from .module_attributes import is_self

_WALKS = (
    "parameters",
    "named_parameters",
    "modules",
    "named_modules",
    "buffers",
    "named_buffers",
    "state_dict",
)


_MODES = ("train", "eval")
_STEP = re.compile(r"step|batch|micro", re.IGNORECASE)
_ASKS_MODE = re.compile(r"\btraining\b|\bmode\b|is_(?:train|eval)")


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
            f"every call, which takes over a microsecond per submodule. {_unsliced(node, part, place)}",
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
        return f"Use `len({base})` to count them, or use {plain}"
    if all(b is None or _not_negative(b, place) for b in (part.lower, part.upper, part.step)):
        return f"Iterate over `{_islice(base, part, place)}` instead, or over {plain}"
    return f"Iterate over {plain} instead (negative indices behave the same)"


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
        return how if any(c.iter is inner for c in clauses(parent)) else ""
    statement = place.statement
    if parent is None and isinstance(statement, cst.For) and statement.iter is inner:
        return how
    return ""


def _is_attribute_of_self(node: cst.BaseExpression, place: Place) -> bool:
    name = place.dotted(node)
    return bool(place.self_name) and name.startswith(f"{place.self_name}.")


_CONSUMERS = frozenset(
    "all any dict enumerate filter frozenset list map max min next set sorted sum tuple zip".split()
)


def _begins_rounds(place: Place) -> bool:
    """Whether a place stands before the loop of a function that is no step: of a whole evaluation, say."""
    if place.loops or _STEP.search(place.function.name.value):
        return False
    return any(isinstance(node, cst.For | cst.While) for node in nodes.walk(place.function))


def _handed_on(node: cst.Call, place: Place) -> bool:
    """Whether a walk is handed to a function of which nobody knows whether it walks: what makes it is a
    generator."""
    taker = place.parent(node)
    if not isinstance(taker, cst.Call) or taker.func is node:
        return False
    name = place.name(taker)
    return name not in _CONSUMERS and not name.startswith("torch.")


def _is_module(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression is a module: the one that the method is of, or one that it holds."""
    return place.kind(node).what in ("module", "modules") or (
        place.in_module and is_self(node, place)
    )


def _may_be_module(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression, of which nothing else is known, is a module by its name."""
    last = place.dotted(node).rpartition(".")[2]
    return place.kind(node).what == "unknown" and MODULE_NAMES.search(last) is not None


_MODELS = frozenset(
    {"model", "net", "network", "unet", "vae", "text_encoder", "encoder", "decoder", "policy"}
)
_DEVICES = re.compile(r"device|cuda", re.IGNORECASE)
_CONVERTING = frozenset({"bfloat16", "cuda", "float", "half", "to"})
_ON_PURPOSE = re.compile(r"load|move|onto|place|sleep|swap|wake|(?:^|_)to(?:_|$)", re.IGNORECASE)
"""Functions that are there to move modules, by their names."""
_ASKS_PLACE = re.compile(r"device|dtype|cpu|cuda|offload|low_?mem|first|init", re.IGNORECASE)


class ModuleTreeWalk(Rule):
    """The tree of modules is walked on every call.

    ## What it does
    Flags `parameters()`, `modules()`, `buffers()`, their named forms and `state_dict()` of modules
    in hot functions, `next(self.parameters()).dtype` among them. A loop over them once per step is a
    note, and so is a walk over an attribute of which nothing but that call says that it is a module.
    `model.train()` and `model.eval()`, which walk it to set a flag everywhere, are notes, and so are
    `self.proj.to(x.device)`, `.cuda()`, `.half()` and the like of modules, but where a condition asks for the
    device or dtype, or the function is named for moving things.

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
    Unsafe: for `next(self.parameters())` whose dtype or device is asked, the fix asks a parameter that the
    class always has by name; where parameters are not all alike it may give another answer. None is
    offered for lists of parameters or modules: only the author knows when these are out of date.
    """

    code = "DG610"
    name = "module-tree-walk"
    origin = "diffusers#9520"
    looks_for = Call(*_WALKS, *_MODES, *_CONVERTING)
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags walks over a module's tree."""
        receiver = place.receiver(node)
        if receiver is None or place.function.name.value in _WALKS:
            return None
        if place.last_name(node) in _MODES:
            return self._mode(node, receiver, place)
        if place.last_name(node) in _CONVERTING:
            return self._moved(node, receiver, place)
        if not place.per_call:
            return self._looped(node, receiver, "in every step", place)
        if place.last_name(node).endswith("buffers") and (
            may_return_before(place) or isinstance(place.parent(node), cst.Call)
        ):
            # What is asked when there are no parameters.
            return None
        of_self = is_self(receiver, place) and place.in_module
        if not of_self and place.kind(receiver).what not in ("module", "modules"):
            unknown = place.kind(receiver).what == "unknown" and place.callee(node) is None
            return self._looped(node, receiver, "on every call", place) if unknown else None
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
                f"`next({shown})` starts a walk over the module tree on every call, which takes "
                "several microseconds on the host. Use the input's, or that of a parameter you know "
                "by name",
                certainty=path_certainty(place),
                fix=_by_name(node, receiver, place),
            )
        return place.finding(
            node,
            f"`{shown}` walks the module tree in Python on every call, about a microsecond per "
            "module. Build a list of what you need once, and rebuild it when submodules are added",
            certainty="maybe" if _handed_on(node, place) else path_certainty(place),
        )

    def _mode(self, node: cst.Call, receiver: cst.BaseExpression, place: Place) -> Finding | None:
        """The mode of a model, which is usually the one that it is in already."""
        model = _is_module(receiver, place) or _may_be_module(receiver, place)
        asked = any(_ASKS_MODE.search(place.text(test)) for test, _ in place.conditions)
        if not model or asked or len(node.args) > 1 or _begins_rounds(place):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` sets a flag in every submodule in Python, a microsecond or so for each; "
            f"do it where the mode changes, or only if `{place.short(receiver)}.training` is another",
            certainty="note",
        )

    def _moved(self, node: cst.Call, receiver: cst.BaseExpression, place: Place) -> Finding | None:
        """A module that is moved or converted, and is there already as a rule."""
        held = place.value_of(receiver) if isinstance(receiver, cst.Name) else receiver
        if isinstance(held, cst.Call) or _begins_rounds(place):
            return None  # what is made here has to get there
        if not _is_module(receiver, place) and not self._is_model_by_name(node, receiver, place):
            return None
        if _ON_PURPOSE.search(place.function.name.value):
            return None
        if any(_ASKS_PLACE.search(place.text(test)) for test, _ in place.conditions):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` visits every parameter and buffer in Python, a microsecond or so for "
            "each, also where none has to move or change; do it once, where the device or dtype is chosen",
            certainty="note",
        )

    @staticmethod
    def _is_model_by_name(node: cst.Call, receiver: cst.BaseExpression, place: Place) -> bool:
        """Whether what is moved is a model by its name, and is moved to a device."""
        moves = place.last_name(node) == "cuda" or any(
            _DEVICES.search(place.text(arg.value)) for arg in node.args
        )
        last = place.dotted(receiver).rpartition(".")[2]
        return moves and last in _MODELS and _may_be_module(receiver, place)

    def _looped(
        self, node: cst.Call, receiver: cst.BaseExpression, when: str, place: Place
    ) -> Finding | None:
        """A loop over all modules of what an object holds: once per step it is little beside the step, and
        grows with the model; per call, what the object holds may be anything."""
        looped = isinstance(place.statement, cst.For) and place.statement.iter is node
        held = place.in_module and is_self(receiver, place)
        if not looped or not (held or _is_attribute_of_self(receiver, place)):
            return None
        walked = ("modules", "named_modules", "parameters")
        if place.hot.only_loops or place.last_name(node) not in walked:
            return None
        return place.finding(
            node,
            f"`{place.text(node)}` walks the module tree in Python {when}, about a "
            "microsecond per module. Keep a list of the modules or parameters that the loop changes",
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


_WITH_WEIGHT = re.compile(r"call:torch\.nn\.(?:Linear|Embedding|Bilinear|Conv(?:Transpose)?[123]d)")


def _by_name(node: cst.Call, receiver: cst.BaseExpression, place: Place) -> Fix | None:
    """`self.proj.weight` for `next(self.parameters())`, whose dtype or device is asked."""
    first = place.parent(node)
    asked = place.parent(first) if first is not None else None
    if not isinstance(first, cst.Call) or place.name(first) != "next" or len(first.args) != 1:
        return None
    if not isinstance(asked, cst.Attribute) or asked.attr.value not in ("dtype", "device"):
        return None
    if place.last_name(node) != "parameters" or node.args or not is_self(receiver, place):
        return None
    known = place.cls.attrs if place.cls is not None else {}
    for name, values in known.items():
        weight = ".weight" if all(map(_WITH_WEIGHT.fullmatch, values)) else ""
        if values and (weight or set(values) == {"param"}):
            return place.replace(
                first,
                f"{place.self_name}.{name}{weight}",
                safety="unsafe",
                message="Ask a parameter by its name; others may have another dtype or device",
                attributes=(name,),
            )
    return None
