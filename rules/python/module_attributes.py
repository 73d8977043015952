"""DG607, DG608: attributes of torch modules that are read or written through Python methods."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Place, Rule, SelfWrite

from ..certainty import may_return_before

_NOT_MODULES = ("torchmetrics.", "keras.Metric", "keras.Loss", "lightning.", "keras.Optimizer")


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


def is_self(node: cst.CSTNode, place: Place) -> bool:
    """Whether a node is the name of the instance, `self`."""
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


class HasattrOfModule(Rule):
    """A module asks itself on every call whether it has an attribute.

    ## What it does
    Flags `hasattr(self, "x")` and `getattr(self, "x", default)` in hot methods of torch modules,
    where no method of the class sets `x` as a plain attribute. `getattr` of what no method sets is a note:
    it costs nothing where other code sets a plain attribute.

    ## Why it costs
    Anything but a plain attribute is looked up by `Module.__getattr__`, in Python, among parameters,
    buffers and submodules; a missing attribute costs an exception as well: about a microsecond of host
    time.

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

    Or ask the table that holds it: `"adapter" in self._modules`.

    ## Fix safety
    Unsafe: the fix asks one table alone, `self._modules` for an attribute that the class only ever sets to
    modules of torch, `self._buffers` likewise, and `self.__dict__` for one that it never sets. What other
    code puts elsewhere under that name is no longer found. None is offered for attributes that hold now
    this, now that, and for parameters, which replicas and sharded modules keep as plain attributes.
    """

    code = "DG607"
    name = "hasattr-of-module"
    origin = "TransformerEngine#1191"
    looks_for = Call("hasattr", "getattr", place="self")
    fixes = "unsafe"

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
        # Where other code sets it as a plain attribute, it is found at once.
        outside = not values and place.last_name(node) == "getattr"
        # What others add by `add_module` must not be there as anything else.
        none = "" if values else f' (`register_module("{attribute}", None)` if it is a submodule)'
        return place.finding(
            node,
            f"`{place.text(node)}` goes through `Module.__getattr__`, Python code that takes "
            f"about a microsecond per call. Always define `self.{attribute}` in `__init__`, as None when "
            f"unused{none}; then read it into a local once and test the local",
            certainty="maybe"
            if _foreign_bases(place)
            else "note"
            if registered or outside
            else "sure",
            fix=_asking_one_table(node, attribute, values, place),
        )

    @staticmethod
    def _asked(node: cst.Call, place: Place) -> str:
        """The attribute asked for, where it is not surely a plain one, which is found at once."""
        asked = place.last_name(node)
        if not isinstance(node.func, cst.Name) or place.cls is None:
            return ""
        if len(node.args) != (2 if asked == "hasattr" else 3) or not is_self(
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


def _asking_one_table(
    node: cst.Call, attribute: str, values: Sequence[str], place: Place
) -> Fix | None:
    """`"x" in self._modules` for `hasattr(self, "x")`, where all that the class makes of `x` is in that
    table."""
    tables = {_table(value) for value in values} or {"__dict__"}
    table = tables.pop()
    if tables or not table:
        return None
    owner, name = place.self_name, place.text(node.args[1].value)
    where = f"{owner}.{table}"
    if place.last_name(node) == "hasattr":
        new: str = f"{name} in {where}"
        inside = place.parent(node)
        if isinstance(inside, cst.UnaryOperation) and isinstance(inside.operator, cst.Not):
            node_or_not: cst.BaseExpression = inside
            new = f"{name} not in {where}"
        else:
            node_or_not = node
            if inside is not None and not isinstance(inside, cst.BooleanOperation | cst.IfExp):
                new = f"({new})"
    else:
        node_or_not, new = node, f"{where}.get({name}, {place.text(node.args[2].value)})"
    if node_or_not.lpar or "\n" in new:
        return None
    return place.replace(
        node_or_not,
        new,
        safety="unsafe",
        message=f"look only in `{where}`; misses `{attribute}` if other code keeps it elsewhere",
    )


_MODULE = re.compile(r"call:torch\.nn\.(?:\w+\.)*[A-Z]\w*")


def _table(value: str) -> str:
    """Where a module keeps what is assigned to an attribute; empty where that is not known. Replicas and
    sharded modules hold their parameters as plain attributes."""
    if _MODULE.fullmatch(value):
        return "_modules"
    return "_buffers" if value == "buffer" else ""


_MODULE_ATTRIBUTES = frozenset(
    """training forward call_super_init dump_patches _parameters _buffers _modules _backward_hooks
    _forward_hooks _forward_pre_hooks _state_dict_hooks _non_persistent_buffers_set""".split()
)


class ModuleAttributeWrite(Rule):
    """A module sets a plain attribute of its own on every call.

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

    Where other code reads the attribute afterwards: `self.__dict__["scale"] = scale`, which does not search.

    ## Fix safety
    Unsafe: the fix writes to `self.__dict__`, so that the attribute is read as before; `__setattr__` of a
    subclass is not called for it, and a parameter or module would no longer be registered. It is offered for
    values that are surely neither.
    """

    code = "DG608"
    name = "module-attribute-write"
    origin = "TransformerEngine#1191"
    looks_for = SelfWrite()
    fixes = "unsafe"

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
            if not isinstance(target, cst.Attribute) or not is_self(target.value, place):
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
            if _keeps(name, place):
                continue
            yield place.finding(
                node,
                f"`self.{name} = …` goes through `Module.__setattr__`, a Python method that takes "
                "more than a microsecond. Use a local variable; what must outlive the call can be an "
                "attribute of a plain object (no module) that `__init__` creates",
                certainty="sure"
                if self._for_this_call(name, node.value, place)
                and not _may_be_module(node.value, place)
                else "note",
                fix=_written_past_setattr(node, target, place),
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
            or may_return_before(place)
            or _foreign_bases(place)
        ):
            return False
        if not place.once(("computes", id(place.function)), lambda: _computes(place)):
            return False
        return not re.search(rf"\b{place.self_name}\.{name}\b", place.text(value))


def _computes(place: Place) -> bool:
    """Whether a function calls torch, or gives or takes a tensor: others may be no part of a model at all."""
    return any(
        place.name(call).startswith("torch.")
        or place.kind(call.func).what in ("module", "modules")
        or any(place.kind(n).maybe_tensor for n in (call, *(a.value for a in call.args)))
        for call, _ in place.calls()
    )


def _keeps(name: str, place: Place) -> bool:
    """Whether an attribute is written only where what it holds will not do: a cache is filled, or grows."""
    asked = re.compile(rf"\b{place.self_name}\.{name}\b")
    return any(asked.search(place.text(test)) for test, _ in place.conditions)


def _may_be_module(value: cst.BaseExpression, place: Place) -> bool:
    """Whether a value is what the call was given, of which nothing says that it is no module."""
    given = isinstance(value, cst.Name) and place.value_of(value) is None
    kind = place.kind(value)
    return given and (kind.what == "unknown" or not kind.sure)


def _written_past_setattr(
    node: cst.Assign | cst.AnnAssign | cst.AugAssign, target: cst.Attribute, place: Place
) -> Fix | None:
    """`self.__dict__["x"] = value` for `self.x = value`, where the value is no parameter and no module."""
    if not isinstance(node, cst.Assign) or target.lpar or not _is_plain(node.value, place):
        return None
    return place.replace(
        target,
        f'{place.text(target.value)}.__dict__["{target.attr.value}"]',
        safety="unsafe",
        message="Write to `__dict__`; a subclass's own `__setattr__` is not called",
    )


def _is_plain(value: cst.BaseExpression, place: Place) -> bool:
    """Whether a value is surely neither a parameter nor a module: a number, a text, a collection, or what a
    tensor operation gives."""
    kind = place.kind(value)
    if kind.sure and kind.what in ("scalar", "text", "nested"):
        return True
    if isinstance(value, cst.Name):
        held = place.value_of(value)
        return held is not None and not isinstance(held, cst.Name) and _is_plain(held, place)
    made = (
        cst.Call, cst.BinaryOperation, cst.UnaryOperation, cst.Comparison, cst.Subscript, cst.List, cst.Dict,
        cst.Tuple,
    )  # fmt: skip
    if isinstance(value, cst.List | cst.Dict | cst.Tuple):
        return True
    return isinstance(value, made) and kind.is_tensor
