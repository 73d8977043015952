"""DG5xx: tensors made from Python data, moved or grown anew on every call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeGuard

import libcst as cst

from pytest_dispatchguard import (
    Call,
    Edit,
    Finding,
    Fix,
    Kind,
    Loop,
    Place,
    Rule,
    SelfWrite,
    Span,
    nodes,
)

from ._syncs import on_host_by_trade

_FROM_DATA = frozenset({"torch.tensor", "torch.as_tensor", "torch.asarray"})
_LEGACY_CLASSES = {
    "HalfTensor": "float16",
    "BFloat16Tensor": "bfloat16",
    "FloatTensor": "float32",
    "DoubleTensor": "float64",
    "ByteTensor": "uint8",
    "CharTensor": "int8",
    "ShortTensor": "int16",
    "IntTensor": "int32",
    "LongTensor": "int64",
    "BoolTensor": "bool",
}
_FILLED = frozenset({"zeros", "ones", "empty", "eye", "full"})
"""Factories that give the same on every device, in every dtype."""
_COMPUTED = frozenset(
    "arange linspace logspace tril_indices triu_indices hann_window hamming_window blackman_window".split()
)
_RANDOM = frozenset({"rand", "randn", "randint", "randperm", "normal"})
_FACTORIES = frozenset(f"torch.{n}" for n in _FILLED | _COMPUTED | _RANDOM)
_RESHAPING = frozenset(
    "view reshape unsqueeze squeeze expand permute transpose t contiguous flatten repeat".split()
)
"""Methods that change a tensor's layout and none of its numbers."""
_CASTS = frozenset("long int short byte bool float half double bfloat16".split())
_CATS = frozenset(
    f"torch.{n}" for n in ("cat", "concat", "concatenate", "hstack", "vstack", "dstack")
)
_NUMBERS = (cst.Integer, cst.Float)
_STATEMENT_LOOPS = (cst.For, cst.While)

_COUNTS = re.compile(r"(?:^|[._])(?:len|numel|nelement|size|sum|num|count|total)(?:$|[_s(])")
"""What counts elements, by its name."""

Safety = Literal["safe", "unsafe"]


# -- what several rules ask ------------------------------------------------------------------------


def _uncast(node: cst.BaseExpression) -> cst.BaseExpression:
    """What casts are applied to: `torch.zeros(n)` of `torch.zeros(n).long()`."""
    while (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value in _CASTS
        and not node.args
    ):
        node = node.func.value
    return node


def is_constant(node: cst.BaseExpression) -> bool:
    """Whether an expression is a number written down, or computed from such."""
    if isinstance(node, cst.UnaryOperation):
        return is_constant(node.expression)
    if isinstance(node, cst.BinaryOperation):
        return is_constant(node.left) and is_constant(node.right)
    if isinstance(node, cst.Name):
        return node.value in ("True", "False")
    if isinstance(node, cst.Attribute):
        return isinstance(node.value, cst.Name) and node.value.value == "math"
    if (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Name)
        and node.func.value == "float"
    ):
        return all(isinstance(a.value, cst.SimpleString) for a in node.args)
    return isinstance(node, _NUMBERS)


def is_constant_table(node: cst.BaseExpression) -> bool:
    """Whether an expression is a list or tuple of numbers written down, nested or not."""
    if not isinstance(node, cst.List | cst.Tuple) or not node.elements:
        return False
    return all(
        isinstance(e, cst.Element) and (is_constant(e.value) or is_constant_table(e.value))
        for e in node.elements
    )


def is_number(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression is surely one Python number."""
    kind = place.kind(node)
    return is_constant(node) or (kind.what == "scalar" and kind.sure and not kind.optional)


def is_host_data(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression is surely a Python sequence of numbers, or a NumPy array."""
    kind = place.kind(node)
    if not kind.sure or kind.optional:
        return False
    if kind.cls == "numpy":
        return True
    if kind.what != "nested" or kind.cls == "dict":
        return False
    parts = kind.items or (kind.element,)
    return all(p is not None and p.what == "scalar" and p.sure for p in parts)


def data_argument(call: cst.Call, place: Place) -> cst.BaseExpression | None:
    """The data that `torch.tensor(...)` and its like are given."""
    return place.argument(call, 0, "data") if place.name(call) in _FROM_DATA else None


def names_cpu(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a device argument says `cpu`, or nothing."""
    held = place.value_of(node)
    if held is not None and held is not node:
        return names_cpu(held, place)
    if isinstance(node, cst.Call) and node.args:
        node = node.args[0].value
    if isinstance(node, cst.SimpleString):
        return str(node.evaluated_value).startswith(("cpu", "meta"))
    return isinstance(node, cst.Name) and node.value == "None"


def is_device(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression is surely a device other than the CPU."""
    if names_cpu(node, place):
        return False
    if isinstance(node, cst.SimpleString):
        return str(node.evaluated_value).partition(":")[0] in (
            "cuda",
            "xpu",
            "mps",
            "hpu",
            "npu",
            "xla",
        )
    if isinstance(node, cst.Call):
        return place.name(node) == "torch.device"
    last = place.dotted(node).rpartition(".")[2]
    return last in ("device", "_device", "dev") or last.endswith("_device")


def move_target(call: cst.Call, place: Place) -> cst.BaseExpression | Literal["cuda"] | None:
    """Where `x.to(device)`, `x.to(device=device)` or `x.cuda()` moves a tensor; None for what moves none,
    or does more than that."""
    if not isinstance(call.func, cst.Attribute):
        return None
    last = call.func.attr.value
    if last == "cuda" and not call.args:
        return "cuda"
    if last != "to" or not call.args:
        return None
    device: cst.BaseExpression | None = None
    for i, arg in enumerate(call.args):
        keyword = arg.keyword.value if arg.keyword is not None else ""
        if arg.star or keyword not in ("", "device", "non_blocking") or (not keyword and i > 0):
            return None
        if keyword != "non_blocking":
            device = arg.value
    return device if device is not None and is_device(device, place) else None


def moved_by(call: cst.Call, place: Place) -> cst.BaseExpression | Literal["cuda"] | None:
    """Where the result of a call is moved at once: the device of ``call(...).to(device)``."""
    attribute = place.parent(call)
    outer = place.parent(attribute) if isinstance(attribute, cst.Attribute) else None
    if isinstance(outer, cst.Call) and outer.func is attribute:
        return move_target(outer, place)
    return None


def device_of(call: cst.Call, place: Place) -> cst.BaseExpression | Literal["cuda"] | None:
    """The device, not the CPU, that a call puts its new tensor on: by its argument, or moved at once."""
    given = place.argument(call, None, "device")
    if given is not None:
        return None if names_cpu(given, place) else given
    return moved_by(call, place)


def follows_a_tensor(call: cst.Call, place: Place) -> bool:
    """Whether what a call makes is moved at once to where another tensor is: `torch.tensor(0).to(x)`."""
    parent = place.parent(call)
    outer = place.parent(parent) if isinstance(parent, cst.Attribute) else None
    return (
        isinstance(outer, cst.Call)
        and outer.func is parent
        and place.last_name(outer) in ("to", "type_as")
        and len(outer.args) == 1
        and place.on_device(outer.args[0].value)
    )


def is_kept(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a value outlives the call on purpose: it is assigned to an attribute, an entry, or a global."""
    parent: cst.CSTNode | None = node
    while parent is not None and not isinstance(parent, cst.Assign | cst.AnnAssign | cst.AugAssign):
        parent = place.parent(parent)
    if isinstance(parent, cst.AugAssign):
        return False  # an operand of what is kept
    if isinstance(parent, cst.AnnAssign):
        targets: Sequence[cst.BaseExpression] = [parent.target]
    elif isinstance(parent, cst.Assign):
        targets = [t.target for t in parent.targets]
    else:
        return False
    return any(not isinstance(t, cst.Name | cst.Tuple) for t in targets)


@dataclass(slots=True)
class _Loads:
    """Where a name is read, and whether something writes through it."""

    reads: list[cst.Name] = field(default_factory=list)
    written: bool = False


def loads(name: str, inside: cst.CSTNode) -> _Loads:
    """The reads of a name inside a node."""

    def meant(node: cst.CSTNode) -> bool:
        return isinstance(node, cst.Name) and node.value == name

    found = _Loads()
    bound: set[int] = set()
    for node in nodes.walk(inside):
        if isinstance(node, cst.Name):
            if node.value == name and id(node) not in bound:
                found.reads.append(node)
        elif isinstance(node, cst.Attribute):
            in_place = node.attr.value.endswith("_") and not node.attr.value.startswith("__")
            found.written |= in_place and meant(node.value)
        elif isinstance(node, cst.Call):
            found.written |= any(meant(given) for given in nodes.filled_by(node))
        elif isinstance(node, cst.AssignTarget | cst.AugAssign):
            target = node.target
            bound.add(id(target))
            if isinstance(target, cst.Subscript):
                found.written |= meant(target.value)
            elif isinstance(node, cst.AugAssign):
                found.written |= meant(target)
    return found


def is_written_to(node: cst.BaseExpression, place: Place) -> bool:
    """Whether the function changes in place the tensor that an expression gives to a name."""
    parent: cst.CSTNode | None = node
    while parent is not None and not isinstance(parent, cst.Assign):
        parent = place.parent(parent)
    if not isinstance(parent, cst.Assign):
        return False
    names = [t.target.value for t in parent.targets if isinstance(t.target, cst.Name)]
    return any(loads(n, place.function).written for n in names)


def bare(node: cst.BaseExpression, place: Place) -> str:
    """The source of an expression that may stand beside an operator."""
    plain = isinstance(
        node, cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.Integer | cst.Float
    )
    source = place.text(node)
    return source if plain or node.lpar else f"({source})"


def is_for_nothing(place: Place) -> bool:
    """Whether the place is only reached where a count, by its name, is zero: ``if total == 0``. Where an
    expression counts by what it is (``len(x) == 0``), the place is cold for every rule."""
    return any(_asks_for_nothing(test, holds, place) for test, holds in place.conditions)


def _asks_for_nothing(test: cst.BaseExpression, holds: bool, place: Place) -> bool:
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return False
    part = test.comparisons[0]
    zero = isinstance(part.comparator, cst.Integer) and part.comparator.value == "0"
    asked = isinstance(part.operator, cst.Equal if holds else cst.NotEqual | cst.GreaterThan)
    return zero and asked and _COUNTS.search(place.text(test.left)) is not None


def _end(node: cst.BaseExpression, place: Place) -> Span | None:
    """The place behind an expression and its parentheses; None where these stand apart."""
    at = place.after(node, "").span
    if any(not p.whitespace_before.empty for p in node.rpar):
        return None
    column = at.column + len(node.rpar)
    return Span(at.line, column, at.line, column)


def _only_iterated(node: cst.Call, place: Place) -> bool:
    """Whether a tensor of one dimension is used for nothing but its numbers, one by one."""
    parent = place.parent(node)
    data = node.args[0].value if node.args else node
    flat = isinstance(data, cst.List | cst.Tuple) and all(
        is_constant(e.value) for e in data.elements
    )
    if not flat or not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
        return False
    target = parent.targets[0].target
    if not isinstance(target, cst.Name) or place.assignments(target.value) != 1:
        return False
    around = place.once(("around", id(place.function)), lambda: nodes.around(place.function))
    reads = loads(target.value, place.function).reads
    return bool(reads) and all(_taken_apart(around.get(id(n)), n) for n in reads)


def _taken_apart(parent: cst.CSTNode | None, name: cst.Name) -> bool:
    """Whether a use of a name loops over what it holds, or asks for its list."""
    if isinstance(parent, cst.Attribute):
        return parent.attr.value == "tolist"
    return isinstance(parent, cst.For | cst.CompFor) and parent.iter is name


def where_to_keep(place: Place) -> str:
    """Advice on where a constant tensor can live."""
    if place.in_module and place.self_name:
        return "register it as a non-persistent buffer in `__init__`"
    return "build it once for each device and dtype, and keep it"


# -- rules -----------------------------------------------------------------------------------------


class ScalarTensorOnDevice(Rule):
    """One Python number is copied to the device as a tensor, and the copy waited for.

    ## What it does

    Finds `torch.tensor(number, device=…)`, `torch.as_tensor(number, device=…)`,
    `torch.tensor(number).to(device)` and `x.new_tensor(number)` in hot code.

    ## Why it costs

    The number becomes a tensor on the CPU first, and is then copied from pageable memory: the host waits
    until the device has worked off its queue and made the copy. `torch.full` launches a fill kernel and
    waits for nothing; on the CPU too it takes half the time.

    ## Example

    ```python
    def forward(self, x):
        limit = torch.tensor(0.5, device=x.device)
    ```

    ## Instead

    ```python
    def forward(self, x):
        limit = torch.full((), 0.5, device=x.device)
    ```

    Where the tensor only takes part in arithmetic, the Python number alone does as well.

    ## Fix safety

    Safe for numbers written down and for sizes: both calls choose the same dtype and value. Unsafe for
    other values: a float too large for the dtype becomes infinite in `torch.tensor` and is an error in
    `torch.full`, and a NumPy scalar brings its own dtype to `torch.tensor`.
    """

    code = "DG501"
    name = "scalar-tensor-on-device"
    also_compiled = False
    origin = "kornia#3221"
    looks_for = Call("tensor", "as_tensor", "asarray", "new_tensor")
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A number and a device."""
        new = place.last_name(node) == "new_tensor"
        data = place.argument(node, 0, "data") if new else data_argument(node, place)
        if data is None or not is_number(data, place) or is_kept(node, place):
            return None
        if is_for_nothing(place):
            return None
        if new:
            source = place.receiver(node)
            if source is None or not place.on_device(source):
                return None
        elif device_of(node, place) is None and not follows_a_tensor(node, place):
            return None
        elif is_plain_operand(node, place, arithmetic_partner(node, place)):
            return None  # DG503 says more
        elif only_in_arithmetic(node, place):
            return None
        call = f"{place.text(node.func)}({place.text(data)})"
        better = "new_full((), …)" if new else "torch.full((), …, device=…)"
        return place.finding(
            node,
            f"`{call}` copies one number to the device and makes the host wait for the copy; "
            f"`{better}` fills it there without waiting",
            fix=self._fix(node, data, new, place),
        )

    def _fix(self, node: cst.Call, data: cst.BaseExpression, new: bool, place: Place) -> Fix | None:
        func = node.func
        first = node.args[0]
        given = {a.keyword.value for a in node.args[1:] if a.keyword is not None}
        simple = first.value is data and first.keyword is None and not data.lpar
        if not simple or len(given) < len(node.args) - 1:
            return None
        if not given <= {"dtype", "device", "requires_grad"} or (not new and "device" not in given):
            return None
        written = "" if isinstance(func, cst.Attribute) else place.spelling("torch.full")
        if isinstance(func, cst.Attribute):
            change: tuple[cst.CSTNode, str] = (func.attr, "new_full" if new else "full")
        elif written:
            change = (func, written)
        else:
            return None
        safety = self._safety(data, place)
        differs = (
            "" if safety == "safe" else ", for which a number too large for its dtype is an error"
        )
        return place.edits(
            [change, (data, f"(), {place.text(data)}")],
            safety=safety,
            message=f"fill with `{'new_full' if new else 'torch.full'}`{differs}",
        )

    def _safety(self, data: cst.BaseExpression, place: Place) -> Safety:
        if isinstance(data, cst.Name) and data.value in ("True", "False"):
            return "safe"
        number = data.expression if isinstance(data, cst.UnaryOperation) else data
        if isinstance(number, cst.Integer):
            return "safe" if number.evaluated_value < 2**63 else "unsafe"
        if isinstance(number, cst.Float):
            return "safe" if abs(number.evaluated_value) < 1e38 else "unsafe"
        if isinstance(data, cst.Call):
            size = place.name(data) == "len" or place.last_name(data) in ("size", "numel", "dim")
            return "safe" if size or is_constant(data) else "unsafe"
        shape = isinstance(data, cst.Subscript) and place.dotted(data.value).endswith(".shape")
        return "safe" if shape else "unsafe"


class ConstantTensorBuiltPerCall(Rule):
    """A tensor of constants is built anew on every call.

    ## What it does

    Finds `torch.tensor([0.1, 0.2])` and its like in hot code, where the numbers are written down in the
    call, or stand in a tuple that never changes.

    ## Why it costs

    Every call walks the Python numbers, allocates, and, with a device, waits for a copy to it.

    ## Example

    ```python
    def forward(self, x):
        mean = torch.tensor([0.485, 0.456, 0.406], device=x.device)
        return x - mean
    ```

    ## Instead

    ```python
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]), persistent=False)

    def forward(self, x):
        return x - self.mean
    ```

    ## Fix safety

    No fix: where the constant should live is for the author to say.
    """

    code = "DG502"
    name = "constant-tensor-built-per-call"
    also_compiled = False
    origin = "diffusers#13406"
    looks_for = Call("tensor", "as_tensor", "asarray", "new_tensor", *_LEGACY_CLASSES, "Tensor")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A table of constants that nothing changes afterwards."""
        name = place.name(node)
        if place.last_name(node) == "new_tensor":
            source = place.receiver(node)
            if source is None or not place.is_tensor(source):
                return None
        elif name not in _FROM_DATA and not name.startswith("torch."):
            return None
        data = place.argument(node, 0, "data")
        if data is None or not (is_constant_table(data) or self._lasting_tuple(data, place)):
            return None
        if place.argument(node, None, "requires_grad") is not None or is_kept(node, place):
            return None
        if is_written_to(node, place) or is_for_nothing(place):
            return None
        on_device = device_of(node, place) is not None
        if on_device and (place.last_name(node) in _LEGACY_CLASSES or name == "torch.Tensor"):
            return None  # these make tensors on the CPU alone, and refuse any other device
        copied = on_device or place.last_name(node) == "new_tensor"
        cost = "and waits for the copy to the device " if copied else ""
        shown = place.text(data)
        shown = shown if len(shown) <= 40 and "\n" not in shown else "[…]"
        advice = where_to_keep(place)
        if _only_iterated(node, place):
            advice = "it is only taken apart into its numbers: keep a Python list"
        return place.finding(
            node,
            f"`{place.text(node.func)}({shown})` builds the same constant {cost}on every call; {advice}",
            dry=not copied and _stays_on_host(node, place),
        )

    def _lasting_tuple(self, data: cst.BaseExpression, place: Place) -> bool:
        if not isinstance(data, cst.Name | cst.Attribute):
            return False
        owner, _, last = place.dotted(data).rpartition(".")
        if owner and owner == place.self_name:
            return set(place.attribute_values(last)) == {"tuple"}
        constant = not owner and place.assignments(last) == 0 and last.isupper()
        return constant and set(place.global_values(last)) in ({"tuple"}, {"list"})


def _stays_on_host(node: cst.Call, place: Place) -> bool | None:
    """Whether a tensor that is made on the CPU is an operand there: with one on a device it would fail. None
    where it may be moved, or index one on a device."""
    made_there = ".cuda." in f".{place.name(node)}"
    beside = isinstance(place.parent(node), cst.BinaryOperation | cst.Comparison | cst.AugAssign)
    return (beside and not made_there) or None


def arithmetic_partner(node: cst.BaseExpression, place: Place) -> cst.BaseExpression | None:
    """The tensor that a value is added to, multiplied with or compared with, where that is all that is done
    with it, and a Python number in its place would do."""
    parent = place.parent(node)
    other: cst.BaseExpression | None = None
    if isinstance(parent, cst.BinaryOperation):
        bitwise = (
            cst.BitAnd,
            cst.BitOr,
            cst.BitXor,
            cst.MatrixMultiply,
            cst.LeftShift,
            cst.RightShift,
        )
        if not isinstance(parent.operator, bitwise):
            other = parent.right if parent.left is node else parent.left
    elif isinstance(parent, cst.Comparison) and len(parent.comparisons) == 1:
        part = parent.comparisons[0]
        if not isinstance(part.operator, cst.Is | cst.IsNot | cst.In | cst.NotIn):
            other = part.comparator if parent.left is node else parent.left
    elif isinstance(parent, cst.AugAssign):
        other = parent.target
    elif isinstance(parent, cst.Call) and place.is_torch(parent, "where") and len(parent.args) == 3:
        values = [a.value for a in parent.args[1:]]
        if node in values and all(a.keyword is None for a in parent.args):
            other = values[1] if values[0] is node else values[0]
    if other is None or not place.is_tensor(other) or place.kind(other).built:
        return None
    return other


def is_plain_operand(node: cst.Call, place: Place, partner: cst.BaseExpression | None) -> bool:
    """Whether a number in place of a tensor of one leaves the dtype of the result alone: no dtype is named,
    or that of the other operand."""
    dtype = place.argument(node, None, "dtype")
    if partner is None or dtype is None:
        return partner is not None
    return place.text(dtype) == f"{place.text(partner)}.dtype"


def only_in_arithmetic(node: cst.Call, place: Place) -> bool:
    """Whether a call's result is held by a name that is only ever an operand beside tensors."""
    parent = place.parent(node)
    if not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
        return False
    target = parent.targets[0].target
    if not isinstance(target, cst.Name) or place.assignments(target.value) != 1:
        return False
    found = loads(target.value, place.function)
    uses = [n for n in found.reads if n is not target]
    if not uses or found.written:
        return False
    return all(
        place.value_of(n) is node and is_plain_operand(node, place, arithmetic_partner(n, place))
        for n in uses
    )


class ScalarTensorInArithmetic(Rule):
    """A number is wrapped in a tensor only to take part in arithmetic, which takes the number itself.

    ## What it does

    Finds `torch.tensor(number)` as an operand beside a tensor, in a comparison with one, or as a branch of
    `torch.where`, written there or held by a name that is used for nothing else.

    ## Why it costs

    Building the tensor takes longer than most small operations, and with a device the host waits for a
    copy to it. Operators take Python numbers as they are.

    ## Example

    ```python
    def forward(self, x):
        return x * torch.tensor(0.5, device=x.device)
    ```

    ## Instead

    ```python
    def forward(self, x):
        return x * 0.5
    ```

    ## Fix safety

    Unsafe: `torch.tensor` rounds a float to the default dtype, so that results of float64 arithmetic
    differ in the last digits, and beside a tensor without dimensions it takes part in choosing the dtype.
    """

    code = "DG503"
    name = "scalar-tensor-in-arithmetic"
    also_compiled = False
    origin = "torchvision#5515"
    looks_for = Call("tensor", "as_tensor", "asarray")
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A number, and nothing but operators around it."""
        data = data_argument(node, place)
        if data is None or not is_number(data, place):
            return None
        if place.argument(node, None, "requires_grad") is not None or place.kind(data).host:
            return None
        named = only_in_arithmetic(node, place)
        if not named and not is_plain_operand(node, place, arithmetic_partner(node, place)):
            return None
        copied = device_of(node, place) is not None
        waits = " and waits for its copy to the device" if copied else ""
        fix = None
        if moved_by(node, place) is None:
            fix = place.replace(
                node,
                bare(data, place)
                if isinstance(place.parent(node), cst.BinaryOperation | cst.Comparison)
                else place.text(data),
                safety="unsafe",
                message="use the number itself; results in float64 may differ in the last digits",
            )
        shown = place.text(data)
        return place.finding(
            node,
            f"`{place.text(node.func)}({shown})` builds a tensor{waits} only to be an operand; "
            f"use `{shown}` itself",
            fix=fix,
            dry=not copied,
        )


class FactoryThenMove(Rule):
    """A tensor is made on the CPU and moved to the device at once.

    ## What it does

    Finds `torch.zeros(n).to(device)`, `torch.arange(n).cuda()`, `torch.ones(n).type_as(x)` and the same with
    a name between, when nothing else is done with the tensor on the CPU.

    ## Why it costs

    The tensor is allocated and filled on the CPU, then copied from pageable memory, and the host waits for
    that copy. Factories take `device=`, which launches one kernel and waits for nothing.

    ## Example

    ```python
    def forward(self, x):
        state = torch.zeros(x.shape[0], 8).to(x.device)
    ```

    ## Instead

    ```python
    def forward(self, x):
        state = torch.zeros(x.shape[0], 8, device=x.device)
    ```

    ## Fix safety

    Safe for `zeros`, `ones`, `full`, `empty`, `eye` and integer ranges. Unsafe for ranges of floats and
    windows, which a device may round differently, and for random factories, whose numbers come from the
    device's own generator.
    """

    code = "DG504"
    name = "factory-then-move"
    origin = "transformers#22378"
    looks_for = Call("to", "cuda", "type_as")
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A factory under the move, with nothing but reshaping between."""
        receiver = place.receiver(node)
        if receiver is None:
            return None
        moved = self._under(receiver)
        factory = self._factory(moved, place)
        if factory is None or place.argument(factory, None, "device") is not None:
            return None
        if is_for_nothing(place):
            return None
        given = {a.keyword.value for a in factory.args if a.keyword is not None}
        if given & {"out", "pin_memory"}:
            return None
        seeded = bool(given & {"generator", "requires_grad"})
        arguments = self._arguments(node, factory, place)
        if arguments is None:
            return None
        name = place.text(factory.func)
        fix = None
        if moved is factory and arguments and not seeded:
            fix = self._fix(node, receiver, factory, arguments, place)
        last = place.last_name(node)
        return place.finding(
            node,
            f"`{name}(…)` is made on the CPU and then moved by `.{last}(…)`, and the host waits for that "
            f"copy; give the factory {self._given(node, factory, place)} instead"
            + self._unless(given),
            certainty="note" if seeded else "sure",
            fix=fix,
        )

    def _unless(self, given: set[str]) -> str:
        """What has to be so for the factory to take the device."""
        if "generator" in given:
            return " where its generator is one of the device"
        return " where the tensor itself may be the leaf" if "requires_grad" in given else ""

    def _given(self, node: cst.Call, factory: cst.Call, place: Place) -> str:
        """What the factory takes in place of the move, and what becomes different by that."""
        given = "`device=`"
        if place.last_name(node) == "type_as" or self._to_tensor(node, place):
            like = node.args[0].value
            shown = place.text(like) if isinstance(like, cst.Name | cst.Attribute) else "other"
            given = f"`device={shown}.device, dtype={shown}.dtype`"
        elif place.argument(node, 1, "dtype") is not None:
            given = "`device=` and `dtype=`"
        if place.last_name(factory) in _RANDOM:
            given += (
                " (the device's own generator then draws the numbers: others for the same seed)"
            )
        return given

    def _under(self, node: cst.BaseExpression) -> cst.BaseExpression:
        while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            if node.func.attr.value not in _RESHAPING or isinstance(node.func.value, cst.Name):
                break
            node = node.func.value
        return node

    def _factory(self, node: cst.BaseExpression, place: Place) -> cst.Call | None:
        if isinstance(node, cst.Name):
            value = place.value_of(node)
            if not isinstance(value, cst.Call) or self._factory(_uncast(value), place) is None:
                return None
            reads = [
                n for n in loads(node.value, place.function).reads if place.value_of(n) is value
            ]
            made = _uncast(value)
            return made if reads == [node] and isinstance(made, cst.Call) else None
        if isinstance(node, cst.Call) and place.name(node) in _FACTORIES:
            return node
        return None

    def _arguments(self, node: cst.Call, factory: cst.Call, place: Place) -> str | None:
        """What the factory has to be given; empty where the author must say, None where nothing is wrong."""
        if place.last_name(node) == "type_as" or self._to_tensor(node, place):
            other = node.args[0].value if len(node.args) == 1 else None
            if other is None or not place.on_device(other):
                return None
            like = place.text(other)
            simple = isinstance(other, cst.Name | cst.Attribute)
            exact = place.is_torch(factory, "zeros", "ones", "empty", "eye")
            typed = place.argument(factory, None, "dtype") is not None
            return (
                f"device={like}.device, dtype={like}.dtype"
                if simple and exact and not typed
                else ""
            )
        target = move_target(node, place)
        if target is None:
            return self._with_dtype(node, factory, place)
        return 'device="cuda"' if target == "cuda" else f"device={place.text(target)}"

    def _to_tensor(self, node: cst.Call, place: Place) -> bool:
        one = place.last_name(node) == "to" and len(node.args) == 1 and node.args[0].keyword is None
        return one and place.is_tensor(node.args[0].value)

    def _with_dtype(self, node: cst.Call, factory: cst.Call, place: Place) -> str | None:
        if place.last_name(node) != "to":
            return None
        device = place.argument(node, 0, "device")
        dtype = place.argument(node, 1, "dtype")
        known = {"device", "dtype", "non_blocking"}
        if device is None or dtype is None or not is_device(device, place):
            return None
        if any(
            a.star or (a.keyword is not None and a.keyword.value not in known) for a in node.args
        ):
            return None
        exact = place.is_torch(factory, "zeros", "ones", "empty", "eye")
        if not exact or place.argument(factory, None, "dtype") is not None:
            return ""
        return f"device={place.text(device)}, dtype={place.text(dtype)}"

    def _fix(
        self,
        node: cst.Call,
        receiver: cst.BaseExpression,
        factory: cst.Call,
        arguments: str,
        place: Place,
    ) -> Fix | None:
        if not factory.args or any(a.star for a in factory.args):
            return None
        if "#" in place.text(node):
            return None
        inner, end = _end(factory.args[-1].value, place), _end(receiver, place)
        whole = place.replace(node, "", safety="safe", message="").edits[0]
        if inner is None or end is None:
            return None
        added = Edit(whole.path, inner, f", {arguments}")
        gone = Span(end.line, end.column, whole.span.end_line, whole.span.end_column)
        safety = self._safety(factory, place)
        differs = "" if safety == "safe" else ", whose numbers may differ from those of the CPU"
        return Fix(
            safety,
            f"make it on the device{differs}",
            (added, Edit(whole.path, gone, "")),
        )

    def _safety(self, factory: cst.Call, place: Place) -> Safety:
        last = place.name(factory).rpartition(".")[2]
        if last in _FILLED:
            return "safe"
        whole = last == "arange" and all(
            isinstance(a.value, cst.Integer)
            or (place.kind(a.value).dtype == "int" and is_number(a.value, place))
            for a in factory.args
        )
        return "safe" if whole or last in ("tril_indices", "triu_indices") else "unsafe"


class ConstantMovedPerCall(Rule):
    """A constant tensor that lives on the CPU is moved to the device on every call.

    ## What it does

    Finds `self.table.to(x.device)` where `self.table` is a plain attribute that was built on the CPU, no
    buffer and no parameter, and `TABLE.to(device)` where `TABLE` is a tensor at module level. What an object
    holds that the object holds (`self.space.low.to(x.device)`) is a note: nobody knows where it is.

    ## Why it costs

    `module.to(device)` does not move plain attributes, so that every call copies the same numbers from
    pageable memory, and the host waits for each copy.

    ## Example

    ```python
    def __init__(self):
        super().__init__()
        self.table = torch.arange(16)

    def forward(self, x):
        return x + self.table.to(x.device)
    ```

    ## Instead

    ```python
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(16), persistent=False)

    def forward(self, x):
        return x + self.table
    ```

    ## Fix safety

    No fix: the change is in another method, and buffers take part in `module.to(dtype)`.
    """

    code = "DG505"
    name = "constant-moved-per-call"
    origin = "diffusers#13406"
    looks_for = Call("to", "cuda")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A tensor that every call finds on the CPU again."""
        receiver = place.receiver(node)
        if not isinstance(receiver, cst.Name | cst.Attribute) or is_kept(node, place):
            return None
        if not self._moves(node, place):
            return None
        if self._of_a_plain_object(receiver, place):
            return place.finding(
                node,
                f"`{place.text(node)}` asks on every call to have moved what a plain object holds: where "
                "that is on the CPU, each call copies it, and the host waits. Keep it on the device, one "
                "for each device if there are several",
                certainty="note",
            )
        owner, _, last = place.dotted(receiver).rpartition(".")
        if owner and owner == place.self_name:
            known = place.attribute_values(last)
            if place.cls is None or place.defines("_apply", "to", "cuda"):
                return None
            advice = (
                f"register it with `register_buffer({last!r}, …, persistent=False)`"
                if place.in_module
                else "keep it on the device, one for each device if there are several"
            )
        elif not owner and place.assignments(last) == 0:
            known = place.global_values(last)
            advice = "keep one for each device, or make it a buffer of the module that uses it"
        else:
            return None
        if not known or not all(self._on_cpu(v) for v in known):
            return None
        return place.finding(
            node,
            f"`{place.text(receiver)}` is a plain tensor on the CPU: `{place.text(node)}` copies it on "
            f"every call, and the host waits for the copy; {advice}",
        )

    def _of_a_plain_object(self, receiver: cst.BaseExpression, place: Place) -> bool:
        """Whether what is moved is an attribute of an attribute, by itself or by a name, in a class that does
        not move what it holds."""
        if isinstance(receiver, cst.Name):
            held = place.value_of(receiver)
            receiver = held if held is not None else receiver
        written = place.dotted(receiver)
        return (
            bool(place.self_name)
            and written.startswith(f"{place.self_name}.")
            and written.count(".") > 1
            and place.kind(receiver).what == "unknown"
            and not place.in_module
            and not place.defines("_apply", "to", "cuda")
        )

    def _moves(self, node: cst.Call, place: Place) -> bool:
        if move_target(node, place) is not None:
            return True
        first = place.argument(node, 0, "device")
        if first is None or place.last_name(node) != "to":
            return False
        return is_device(first, place) or place.on_device(first)

    def _on_cpu(self, value: str) -> bool:
        head, _, name = value.partition(":")
        return head == "call" and (
            name in _FACTORIES or name in ("torch.tensor", "torch.from_numpy")
        )


class ConcatenationInLoop(Rule):
    """A tensor grows by concatenation in a loop: every round copies all that there is.

    ## What it does

    Finds `out = torch.cat([out, y])` in a loop that uses `out` for nothing else.

    ## Why it costs

    Each round allocates and copies the whole result so far, so that n rounds copy on the order of n² rows.
    A list of parts and one `torch.cat` after the loop copies each row once, with one call.

    ## Example

    ```python
    out = x.new_empty(0)
    for step in steps:
        out = torch.cat([out, step(x)])
    ```

    ## Instead

    ```python
    parts = []
    for step in steps:
        parts.append(step(x))
    out = torch.cat(parts)
    ```

    ## Fix safety

    No fix: it changes how the result starts, and what it is after no rounds.
    """

    code = "DG506"
    name = "concatenation-in-loop"
    origin = "keras#23305"
    looks_for = Call("cat", "concat", "concatenate", place="loop")

    def judge(self, call: cst.Call, place: Place) -> Finding | None:
        """`name = cat([name, …])`, and the loop asks for `name` nowhere else."""
        node = place.parent(call)
        if not isinstance(node, cst.Assign) or len(node.targets) != 1 or not place.loops:
            return None
        target, loop = node.targets[0].target, place.loops[-1]
        if not isinstance(target, cst.Name):
            return None
        if (
            place.name(call) not in _CATS
            or not isinstance(loop, _STATEMENT_LOOPS)
            or self._short(loop)
        ):
            return None
        parts = place.argument(call, 0, "tensors")
        if not isinstance(parts, cst.List | cst.Tuple):
            return None
        name = target.value
        if not any(isinstance(e.value, cst.Name) and e.value.value == name for e in parts.elements):
            return None
        if any(r for r in loads(name, loop).reads if not self._start(r, place, parts)):
            return None
        return place.finding(
            node,
            f"`{name} = {place.text(call.func)}([{name}, …])` copies all of `{name}` in every round of the "
            f"loop; append to a list and concatenate once after it",
        )

    def _start(self, read: cst.Name, place: Place, parts: cst.List | cst.Tuple) -> bool:
        """Whether a mention is no use of what has grown: the cat itself, an assignment, `is None`."""
        parent = place.parent(read)
        if parent is None or parent is parts:
            return True
        if isinstance(parent, cst.Comparison):
            return all(isinstance(c.operator, cst.Is | cst.IsNot) for c in parent.comparisons)
        return False

    def _short(self, loop: cst.CSTNode) -> bool:
        if not isinstance(loop, cst.For):
            return False
        if isinstance(loop.iter, cst.List | cst.Tuple):
            return len(loop.iter.elements) < 4
        call = loop.iter
        one = isinstance(call, cst.Call) and len(call.args) == 1 and isinstance(call.func, cst.Name)
        if not one or not isinstance(call, cst.Call):
            return False
        stop = call.args[0].value
        return isinstance(stop, cst.Integer) and int(stop.evaluated_value) < 4


class LegacyTensorType(Rule):
    """A tensor is converted to a legacy tensor type, which also moves it to the CPU.

    ## What it does

    Finds `x.type(torch.BoolTensor)` and its like, also by their names as text.

    ## Why it costs

    `torch.BoolTensor` means *bool, on the CPU*: a tensor on the device is copied to the host, which waits
    for it. A dtype converts it where it is.

    ## Example

    ```python
    mask = mask.type(torch.BoolTensor)
    ```

    ## Instead

    ```python
    mask = mask.type(torch.bool)
    ```

    ## Fix safety

    Safe where the tensor is surely on the CPU. Unsafe elsewhere: the result stays on the device, which is
    nearly always what was meant.
    """

    code = "DG507"
    name = "legacy-tensor-type"
    origin = "vllm#51738"
    looks_for = Call("type")
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """`.type(` with a legacy class."""
        receiver = place.receiver(node)
        if receiver is None or len(node.args) != 1 or place.kind(receiver).not_tensor:
            return None
        given = node.args[0].value
        if isinstance(given, cst.SimpleString):
            name = str(given.evaluated_value)
        else:
            name = place.name(given)
        module, _, last = name.rpartition(".")
        dtype = _LEGACY_CLASSES.get(last)
        if dtype is None or module not in ("torch", "torch.cuda"):
            return None
        where = "the CPU" if module == "torch" else "the current GPU"
        fix = None
        if module == "torch" and node.args[0].keyword is None:
            prefix = place.text(given.value) if isinstance(given, cst.Attribute) else ""
            if prefix:
                host = place.kind(receiver).is_tensor and place.kind(receiver).host
                fix = place.replace(
                    given,
                    f"{prefix}.{dtype}",
                    safety="safe" if host else "unsafe",
                    message=f"convert to torch.{dtype}, where the tensor is",
                )
        return place.finding(
            node,
            f"`{place.text(given)}` is a type on {where}, so that `{place.text(node)}` also moves the "
            f"tensor there, and the host waits for it; with `torch.{dtype}` it stays where it is",
            fix=fix,
        )


def _is_read(kind: Kind) -> bool:
    """Whether an element is a tensor on a device, or a list of such."""
    if kind.what == "nested" and kind.sure and kind.cls != "dict" and kind.element is not None:
        return _is_read(kind.element)
    return kind.on_device and not kind.optional


_HOLDERS = (cst.List, cst.Tuple, cst.ListComp, cst.Name, cst.Attribute, cst.Subscript)
"""Expressions that may stand for a list of tensors."""


class TensorOfTensors(Rule):
    """`torch.tensor` is given a list of tensors: each is read back to the host, one wait after the other.

    ## What it does

    Finds `torch.tensor([a, b])` and `torch.tensor([f(x) for x in xs])` where the elements are tensors.

    ## Why it costs

    `torch.tensor` wants Python numbers, so that it calls `item()` on every element: a wait for the device
    each, then a copy back. `torch.stack` joins them on the device.

    ## Example

    ```python
    losses = torch.tensor([a.mean(), b.mean()], device=x.device)
    ```

    ## Instead

    ```python
    losses = torch.stack([a.mean(), b.mean()])
    ```

    ## Fix safety

    Unsafe: `stack` keeps the device and the gradient history of the elements, `torch.tensor` does not.
    None is offered where no device is named, for the result is then on the CPU, or where a dtype is.
    """

    code = "DG508"
    name = "tensor-of-tensors"
    origin = "diffusers#13356"
    looks_for = Call("tensor", "as_tensor", "asarray")
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A list whose elements are surely tensors that may live on a device."""
        data = data_argument(node, place)
        if not isinstance(data, _HOLDERS):
            return None
        kind = place.kind(data)
        if kind.what != "nested" or not kind.sure or kind.cls == "dict":
            return None
        parts = kind.items or (kind.element,)
        if not parts or not all(p is not None and _is_read(p) for p in parts):
            return None
        fix = None
        keywords = [a.keyword.value for a in node.args[1:] if a.keyword is not None]
        plain = (
            isinstance(node.func, cst.Attribute) and keywords == ["device"] and len(node.args) == 2
        )
        scalars = all(p is not None and p.ndim == 0 for p in parts)
        if plain and scalars and node.args[0].keyword is None:
            assert isinstance(node.func, cst.Attribute)
            fix = place.replace(
                node,
                f"{place.text(node.func.value)}.stack({place.text(data)})",
                safety="unsafe",
                message="stack the tensors where they are",
            )
        return place.finding(
            node,
            f"`{place.text(node.func)}` reads every tensor in `{_short_text(data, place)}` back to the "
            "host, one wait for the device each; join them with `torch.stack`",
            fix=fix,
        )


class TensorOfTensor(Rule):
    """A tensor is copied by `torch.tensor`, which warns on every call.

    ## What it does

    Finds `torch.tensor(x)` where `x` is a tensor already.

    ## Why it costs

    Each call builds and raises a warning (that it should be written otherwise) before it copies; the
    warning machinery takes longer than the copy.

    ## Example

    ```python
    start = torch.tensor(x)
    ```

    ## Instead

    ```python
    start = x.detach().clone()
    ```

    Where no copy is needed, `x.detach()` or `x` alone.

    ## Fix safety

    Safe: it is what the warning recommends, and what `torch.tensor` does; only the warning is gone.
    """

    code = "DG509"
    name = "tensor-of-tensor"
    origin = "torchmetrics#3284"
    looks_for = Call("tensor")
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """`torch.tensor` of what is surely a tensor."""
        if not place.is_torch(node, "tensor"):
            return None
        data = place.argument(node, 0, "data")
        if data is None or not place.is_tensor(data) or place.kind(data).optional:
            return None
        rest = node.args[1:]
        keywords = {a.keyword.value for a in rest if a.keyword is not None}
        fix = None
        if (
            node.args[0].value is data
            and keywords <= {"dtype", "device"}
            and len(keywords) == len(rest)
        ):
            copy = "clone()"
            if rest:
                given = ", ".join(
                    place.text(a.with_changes(comma=cst.MaybeSentinel.DEFAULT)) for a in rest
                )
                copy = f"to({given}, copy=True)"
            fix = place.replace(
                node,
                f"{bare(data, place)}.detach().{copy}",
                safety="safe",
                message="copy with `detach` and `clone`",
            )
        return place.finding(
            node,
            f"`{_short_text(data, place)}` is a tensor already: `{place.text(node.func)}` of it raises a "
            "warning on every call before it copies; write `.detach().clone()`",
            fix=fix,
        )


_COPIED = frozenset(
    {"torch.from_numpy", "torch.Tensor", *(f"torch.{name}" for name in _LEGACY_CLASSES)}
)


def _of_an_accelerator(call: cst.Call, place: Place) -> bool:
    """Whether a call makes a tensor of an accelerator's own class: `torch.cuda.FloatTensor([…])`,
    `get_accelerator().ByteTensor([…])`."""
    if place.last_name(call) not in _LEGACY_CLASSES or not isinstance(call.func, cst.Attribute):
        return False
    name = place.name(call)
    return name.startswith("torch.cuda.") or (not name and isinstance(call.func.value, cst.Call))


def _written_down(data: cst.BaseExpression, place: Place) -> bool:
    """Whether data is a list that is put together here, of values of which none is surely a tensor: whatever
    they are, the host waits, for the copy or to read them."""
    if not isinstance(data, cst.List | cst.ListComp):
        return False
    kind = place.kind(data)
    element = kind.element
    return (
        element is None
        or element.what in ("unknown", "scalar", "other")
        or (element.maybe_tensor and not element.sure)
    )


class HostDataToDevice(Rule):
    """Python or NumPy data is copied to the device on every call, and the copy waited for.

    ## What it does

    Finds `torch.tensor(values, device=…)` and `torch.as_tensor(values, device=…)` of Python sequences of
    numbers and NumPy arrays, and `torch.from_numpy(array).to(device)`, in hot code. What may be other data
    on every call (arguments, computed lists) is a note.

    ## Why it costs

    The data is turned into a tensor on the CPU, and copied from pageable memory: the host waits until the
    device has worked off its queue and made the copy.

    ## Example

    ```python
    def forward(self, x):
        size = torch.tensor([x.shape[-2], x.shape[-1]], device=x.device)
        return x[..., :2] / size
    ```

    ## Instead

    ```python
    def forward(self, x):
        height, width = x.shape[-2:]
        return torch.stack((x[..., 0] / height, x[..., 1] / width), dim=-1)
    ```

    Pass single numbers to the operation as they are, keep what repeats (for each shape and device) and
    copy it once, or compute it on the device. What does change on every call can be copied from pinned
    memory with `non_blocking=True`, as long as nobody writes to that memory before the copy is done.

    ## Fix safety

    No fix: which of these is right depends on where the data comes from, and an unpinned or reused source
    with `non_blocking=True` is a race.
    """

    code = "DG510"
    name = "host-data-to-device"
    origin = "vllm#51458"
    looks_for = Call(
        "tensor",
        "as_tensor",
        "asarray",
        "from_numpy",
        "new_tensor",
        "Tensor",
        *_LEGACY_CLASSES,
    )

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Data that is surely the host's, put where the device is."""
        last = place.last_name(node)
        if last == "new_tensor":
            source = place.receiver(node)
            if source is None or not place.on_device(source):
                return None
        elif not _of_an_accelerator(node, place) and (
            place.name(node) not in _FROM_DATA | _COPIED or device_of(node, place) is None
        ):
            return None
        data = place.argument(node, 0, "data")
        if data is None or is_kept(node, place) or is_for_nothing(place):
            return None
        if isinstance(data, cst.List | cst.Tuple) and not data.elements:
            return None  # nothing to copy
        if is_constant_table(data) and not (_is_of_one(data) and is_written_to(node, place)):
            return None
        surely = is_host_data(data, place) or last == "from_numpy"
        if not surely and not _written_down(data, place):
            return None
        if last.endswith("Tensor") and not (
            isinstance(data, cst.List | cst.ListComp) or place.kind(data).cls == "numpy"
        ):
            return None
        sure, advice = self._advice(node, data, place)
        sure = sure and surely
        return place.finding(
            node,
            f"`{place.text(node.func)}({_short_text(data, place)})` copies host data to the device on "
            f"every call, and the host waits for the copy; {advice}",
            certainty="sure" if sure else "note",
        )

    def _advice(self, node: cst.Call, data: cst.BaseExpression, place: Place) -> tuple[bool, str]:
        """How to do without the copy, and whether that surely fits: what is another on every call has to be
        copied."""
        if place.loops and place.invariant(node, place.loops[-1]):
            return True, "it is the same in every round of the loop: build it before"
        if isinstance(data, cst.List | cst.Tuple) and len(data.elements) == 1:
            full = "new_full((1,), …)" if place.last_name(node) == "new_tensor" else ""
            full = full or "torch.full((1,), …, device=…)"
            return True, f"fill it there with `{full}` of the same dtype, which does not wait"
        inner = data.args[0].value if _is_list_of(data, place) else data
        if isinstance(inner, cst.Call) and place.name(inner) == "range":
            bounds = ", ".join(place.text(a.value) for a in inner.args)
            return True, f"`torch.arange({bounds}, device=…)` counts there and does not wait"
        owner = place.dotted(data).partition(".")[0]
        if isinstance(data, cst.Attribute) and owner == place.self_name != "":
            return True, "where the values stay the same, keep the tensor for each device and dtype"
        written = isinstance(data, cst.List | cst.Tuple) and all(
            is_number(e.value, place) for e in data.elements
        )
        return written, (
            "use the numbers as they are, keep the tensor where the values repeat, or compute it on "
            "the device"
            if written
            else "keep the tensor where the values repeat, or compute it on the device; what is another on "
            "every call can be copied from pinned memory"
        )


def _is_of_one(data: cst.BaseExpression) -> bool:
    return isinstance(data, cst.List | cst.Tuple) and len(data.elements) == 1


def _is_list_of(data: cst.BaseExpression, place: Place) -> TypeGuard[cst.Call]:
    """Whether an expression is `list(...)` or `tuple(...)` of one thing."""
    made = isinstance(data, cst.Call) and place.name(data) in ("list", "tuple")
    return isinstance(data, cst.Call) and made and len(data.args) == 1


class AsTensorOfTensor(Rule):
    """`torch.as_tensor` is called on what is a tensor already.

    ## What it does

    Finds `torch.as_tensor(x)` and `torch.asarray(x)`, without dtype or device, where `x` is surely a
    tensor.

    ## Why it costs

    The call parses its arguments and hands back the very object it was given.

    ## Example

    ```python
    def forward(self, x: torch.Tensor):
        x = torch.as_tensor(x)
    ```

    ## Instead

    ```python
    def forward(self, x: torch.Tensor):
        x = x
    ```

    Where `x` may be something else, ask first: `if not isinstance(x, torch.Tensor): x = torch.as_tensor(x)`.

    ## Fix safety

    Safe: the call returns its argument.
    """

    code = "DG511"
    name = "as-tensor-of-tensor"
    origin = "keras#22674"
    looks_for = Call("as_tensor", "asarray")
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Nothing is converted."""
        if not place.is_torch(node, "as_tensor", "asarray") or len(node.args) != 1:
            return None
        arg = node.args[0]
        if arg.star or not place.is_tensor(arg.value) or place.kind(arg.value).optional:
            return None
        return place.finding(
            node,
            f"`{_short_text(arg.value, place)}` is a tensor already: `{place.text(node.func)}` hands it "
            "back as it is; leave the call out",
            fix=place.replace(
                node, bare(arg.value, place), safety="safe", message="leave the conversion out"
            ),
        )


class ComputedThenMoved(Rule):
    """What a function computes on the CPU is moved to the device on every call.

    ## What it does

    Finds `.to(device)` and `.cuda()` of tensors that the function itself makes on the CPU and works on there:
    `torch.multinomial(torch.ones(n), k).to(device)`, `torch.cat(parts).to(device)` of parts on the CPU.
    It is a note: how to compute on the device is for the author to see. A factory that is moved at once
    is DG504, data of Python DG510.

    ## Why it costs

    The result is copied from pageable memory, and the host waits until the device has worked off its
    queue and made the copy.

    ## Example

    ```python
    def forward(self, x):
        weights = torch.ones(x.shape[0]).cumsum(0)
        weights[0] = 0.5
        return x * weights.to(x.device)[:, None]
    ```

    ## Instead

    ```python
    def forward(self, x):
        weights = torch.ones(x.shape[0], device=x.device).cumsum(0)
        weights[0] = 0.5
        return x * weights[:, None]
    ```

    ## Fix safety

    No fix: some of what is computed may need the CPU.
    """

    code = "DG513"
    name = "computed-then-moved"
    origin = "pyro#103b79ce"
    looks_for = Call("to", "cuda", "type_as")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A tensor on the CPU that is sent to the device."""
        receiver = place.receiver(node)
        if receiver is None or is_kept(node, place) or is_for_nothing(place):
            return None
        kind = place.kind(receiver)
        if not kind.is_tensor or not kind.host or on_host_by_trade(place):
            return None
        first = place.argument(node, 0, "device")
        to_tensor = first is not None and place.on_device(first)
        if move_target(node, place) is None and not to_tensor:
            return None
        if any(a.keyword is not None and a.keyword.value == "non_blocking" for a in node.args):
            return None
        made = _uncast(receiver)
        if isinstance(made, cst.Name):
            made = place.value_of(made) or made
        copied = isinstance(made, cst.Call) and (
            place.name(made) in _FROM_DATA | _COPIED | _FACTORIES
            or place.last_name(made) in ("cpu", "from_numpy")
        )
        if copied or _FACTORY_THEN_MOVE.judge(node, place) is not None:
            return None
        if (
            isinstance(receiver, cst.Name | cst.Attribute)
            and place.assignments(place.dotted(receiver)) == 0
        ):
            return None  # made elsewhere
        return place.finding(
            node,
            f"`{_short_text(node, place)}` copies to the device what was computed on the CPU here, "
            "and the host "
            "waits for that copy on every call; compute it on the device",
            certainty="note",
        )


_FACTORY_THEN_MOVE = FactoryThenMove()


class MovedWhereItIs(Rule):
    """A result is moved to the device of what it was computed from, where it is already.

    ## What it does

    Finds `.to(x.device)` of what torch computed from `x` in the same function, in code that runs per call.

    ## Why it costs

    Operations put their result where their inputs are. Asking for the device, and for a move that does
    nothing, takes most of a microsecond on the host.

    ## Example

    ```python
    def forward(self, x):
        index = torch.argmin(x, dim=-1).to(x.device)
        return index
    ```

    ## Instead

    ```python
    def forward(self, x):
        return torch.argmin(x, dim=-1)
    ```

    ## Fix safety

    Safe: the move gives back the tensor itself.
    """

    code = "DG514"
    name = "moved-where-it-is"
    also_compiled = False
    origin = "bitsandbytes#3343bac6"
    looks_for = Call("to")
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A move to the device of one of the tensors that a result was computed from."""
        receiver = place.receiver(node)
        if receiver is None or len(node.args) != 1 or not place.per_call:
            return None
        target = node.args[0]
        if target.star or (target.keyword is not None and target.keyword.value != "device"):
            return None
        device = target.value
        if not isinstance(device, cst.Attribute) or device.attr.value != "device":
            return None
        if not place.on_device(device.value) or not place.on_device(receiver):
            return None
        if not _computed_from(receiver, device.value, place):
            return None
        return place.finding(
            node,
            f"`{_short_text(node, place)}` moves what was computed from `{place.text(device.value)}` "
            "to where that "
            "is: it is there already, and the question costs host time on every call",
            fix=None
            if "#" in place.text(node) or isinstance(receiver, cst.Name)
            else place.replace(node, place.text(receiver), safety="safe", message="leave it there"),
        )


_KEEPS_PLACE = frozenset(
    "abs all amax amin any argmax argmin argsort bool clamp clone contiguous cos cumsum detach div "
    "exp expand "
    "flatten float floor half int log long max mean min mul neg norm permute pow prod repeat reshape "
    "round rsqrt "
    "sigmoid sign sin softmax sqrt squeeze std sub sum tanh transpose tril triu unsqueeze var view "
    "where".split()
)
"""Methods, and functions of torch, that put their result where their input is."""


def _computed_from(
    node: cst.BaseExpression, tensor: cst.BaseExpression, place: Place, depth: int = 6
) -> bool:
    """Whether torch computes a value from a tensor and nothing else that could be elsewhere."""
    if not depth:
        return False
    if place.same(node, tensor):
        return True
    if isinstance(node, cst.Name):
        held = place.value_of(node)
        return held is not None and _computed_from(held, tensor, place, depth - 1)
    if isinstance(node, cst.Call):
        if place.last_name(node) not in _KEEPS_PLACE:
            return False
        if place.name(node).startswith("torch."):
            return bool(node.args) and _computed_from(node.args[0].value, tensor, place, depth - 1)
        owner = place.receiver(node)
        return owner is not None and _computed_from(owner, tensor, place, depth - 1)
    if isinstance(node, cst.BinaryOperation):
        sides = (node.left, node.right)
        return any(_computed_from(side, tensor, place, depth - 1) for side in sides) and all(
            place.on_device(side) or place.kind(side).what == "scalar" for side in sides
        )
    if isinstance(node, cst.UnaryOperation):
        return _computed_from(node.expression, tensor, place, depth - 1)
    if isinstance(node, cst.Subscript):
        return _computed_from(node.value, tensor, place, depth - 1)
    return False


class GrownByCopy(Rule):
    """An attribute grows by a copy of all that it holds, on every call.

    ## What it does

    Finds `self.seen = torch.cat([self.seen, x])` in hot code: what is kept is copied whole to be one part
    longer. It is a note: where the parts are needed as one, only the author knows.

    ## Why it costs

    The n-th call copies n parts: all calls together copy a number that grows with the square of their number.
    Every copy is an allocation and a kernel of its own.

    ## Example

    ```python
    def update(self, scores):
        self.scores = torch.cat([self.scores, scores])
    ```

    ## Instead

    ```python
    def update(self, scores):
        self.parts.append(scores)  # one torch.cat where they are needed
    ```

    ## Fix safety

    No fix: readers of the attribute have to take the list, or a buffer that was allocated whole.
    """

    code = "DG515"
    name = "grown-by-copy"
    origin = "ignite#68452b98"
    looks_for = SelfWrite()

    def judge(self, node: cst.CSTNode, place: Place) -> Finding | None:
        """What an attribute held, joined with more, and given to the attribute again."""
        made = node.value if isinstance(node, cst.Assign) and len(node.targets) == 1 else None
        if not isinstance(node, cst.Assign) or not isinstance(made, cst.Call):
            return None
        if place.name(made) not in _CATS or not made.args:
            return None
        target, parts = node.targets[0].target, made.args[0].value
        if not isinstance(parts, cst.List | cst.Tuple):
            return None
        if not any(place.same(e.value, target) for e in parts.elements):
            return None
        kept = place.text(target)
        return place.finding(
            made,
            f"`{kept}` is copied whole on every call to grow by one part, more each time. Collect "
            "the parts in a list and join them once, or write into a tensor that was allocated for "
            "all",
            certainty="note",
        )


class ParameterLoop(Rule):
    """Every parameter is updated by operations of its own, in a Python loop.

    ## What it does

    Finds loops over `parameters()` whose body only updates tensors in place: averaging of weights,
    scaling of gradients, copies from one model to another.

    ## Why it costs

    Each operation pays Python, the dispatcher and a kernel launch for every parameter. The
    `torch._foreach_*` functions, which torch's own optimizers use, take whole lists: one call, and few
    launches.

    ## Example

    ```python
    for p, q in zip(self.average.parameters(), self.model.parameters()):
        p.mul_(0.9).add_(q, alpha=0.1)
    ```

    ## Instead

    ```python
    ps, qs = list(self.average.parameters()), list(self.model.parameters())
    torch._foreach_mul_(ps, 0.9)
    torch._foreach_add_(ps, qs, alpha=0.1)
    ```

    with the two lists made once.

    ## Fix safety

    No fix: the lists belong somewhere that lasts, and the functions want lists of one length.
    """

    code = "DG512"
    name = "parameter-loop"
    also_compiled = False
    origin = "timm#1553"
    looks_for = Loop(having=Call("parameters", "buffers"))

    def judge(self, node: cst.For | cst.While, place: Place) -> Finding | None:
        """A for loop over parameters, and one in-place update in it."""
        if not isinstance(node, cst.For) or not self._over_parameters(node.iter, place):
            return None
        names = _bound(node.target)
        update = self._update(node.body, names)
        if update is None:
            return None
        method = update.func.attr.value if isinstance(update.func, cst.Attribute) else ""
        return place.finding(
            update,
            f"`.{method}(…)` runs once for each parameter, and pays Python, dispatcher and launch each "
            f"time; collect the tensors in lists once and call `torch._foreach_{method}`",
        )

    def _over_parameters(self, node: cst.BaseExpression, place: Place) -> bool:
        if not isinstance(node, cst.Call):
            return False
        if place.name(node) == "zip" and node.args:
            return all(self._over_parameters(a.value, place) for a in node.args)
        return place.last_name(node) in ("parameters", "buffers") and not place.name(
            node
        ).startswith("torch.")

    def _update(self, body: cst.BaseSuite, names: set[str]) -> cst.Call | None:
        statements = body.body
        if len(statements) != 1:
            return None
        only = statements[0]
        if isinstance(only, cst.If) and only.orelse is None:
            return self._update(only.body, names)
        small = only.body[0] if isinstance(only, cst.SimpleStatementLine) else only
        if not isinstance(small, cst.Expr) or not isinstance(small.value, cst.Call):
            return None
        call = small.value
        func = call.func
        if not isinstance(func, cst.Attribute) or func.attr.value not in _FOREACH:
            return None
        root: cst.BaseExpression = func.value
        while isinstance(root, cst.Attribute | cst.Call):
            root = root.value if isinstance(root, cst.Attribute) else root.func
        return call if isinstance(root, cst.Name) and root.value in names else None


_FOREACH = frozenset(
    "add_ sub_ mul_ div_ lerp_ copy_ zero_ addcmul_ addcdiv_ neg_ abs_ sqrt_ clamp_min_ clamp_max_".split()
)


def _bound(target: cst.BaseExpression) -> set[str]:
    if isinstance(target, cst.Name):
        return {target.value}
    if isinstance(target, cst.Tuple):
        return {n for e in target.elements for n in _bound(e.value)}
    return set()


def _short_text(node: cst.BaseExpression, place: Place) -> str:
    source = " ".join(place.text(node).split())
    return source if len(source) <= 50 else source[:47] + "…"
