"""DG501, DG503: tensors made from a single number."""

from __future__ import annotations

import math
from dataclasses import dataclass

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Place, Rule, nodes

from ..syntax import assigned_once, is_word, method_call
from .data import Safety, data_argument, is_constant, is_number
from .devices import device_of, follows_a_tensor, is_device, moved_by
from .uses import bare, is_for_nothing, is_kept, is_no_tensor_here, loads


class ScalarTensorOnDevice(Rule):
    """One Python number is copied to the device as a tensor, and the host waits for the copy.

    ## What it does

    Finds `torch.tensor(number, device=…)`, `torch.as_tensor(number, device=…)`,
    `torch.tensor(number).to(device)` and `x.new_tensor(number)` in hot code. It is a note where the place is
    there for callers who have no tensor (`if not torch.is_tensor(t):`).

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

    Safe for literal numbers and for sizes: both calls choose the same dtype and value. Unsafe for other
    values: a float too large for the dtype becomes infinite in `torch.tensor` and is an error in
    `torch.full`, and a NumPy scalar brings its own dtype to `torch.tensor`.
    """

    code = "DG501"
    name = "scalar-tensor-on-device"
    also_compiled = False
    origin = "kornia#3221"
    looks_for = Call("tensor", "as_tensor", "asarray", "new_tensor", place="torch")
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A number and a device."""
        new = place.last_name(node) == "new_tensor"
        data = place.argument(node, 0, "data") if new else data_argument(node, place)
        if data is None or not is_number(data, place) or is_kept(node, place):
            return None
        if _may_be_given_a_tensor(node, data, place):
            return None
        if is_for_nothing(place):
            return None
        if new:
            source = place.receiver(node)
            if source is None or not place.on_device(source):
                return None
        elif device_of(node, place) is None and not follows_a_tensor(node, place):
            return None
        elif (
            is_plain_operand(node, place, arithmetic_partner(node, place))
            or _bounded(node, data, place) is not None
        ):
            return None  # DG503 says more
        elif only_in_arithmetic(node, place) or _plainly_used(node, data, place) is not None:
            return None
        call = f"{place.text(node.func)}({place.text(data)})"
        better = "new_full((), …)" if new else "torch.full((), …, device=…)"
        return place.finding(
            node,
            f"`{call}` copies one number to the device and makes the host wait for the copy; "
            f"`{better}` creates it there without waiting",
            certainty="note" if is_no_tensor_here(data, place) else "sure",
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
        differs = "" if safety == "safe" else ", which raises if the number does not fit the dtype"
        return place.edits(
            [change, (data, f"(), {place.text(data)}")],
            safety=safety,
            message=f"fill with `{'new_full' if new else 'torch.full'}`{differs}",
        )

    def _safety(self, data: cst.BaseExpression, place: Place) -> Safety:
        if is_word(data, "True", "False"):
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


def _may_be_given_a_tensor(node: cst.Call, data: cst.BaseExpression, place: Place) -> bool:
    """Whether `as_tensor` is there for callers who give a tensor: of a parameter, of which only its default
    says that it is a number."""
    if place.last_name(node) == "tensor" or not isinstance(data, cst.Name):
        return False
    return place.value_of(data) is None and any(
        param.name.value == data.value and param.annotation is None and param.default is not None
        for param in (*place.function.params.params, *place.function.params.kwonly_params)
    )


def _worked_on(
    call: cst.Call, operand: cst.BaseExpression, place: Place
) -> cst.BaseExpression | None:
    """The tensor of `x.pow(operand)` or `torch.pow(x, operand)`: a function that takes a number as well."""
    if place.last_name(call).rstrip("_") not in _TAKE_NUMBERS:
        return None
    of_torch = place.is_torch(call, place.last_name(call))
    given = [a.value for a in call.args if a.keyword is None or a.keyword.value in _BOUNDS]
    others = given[1:] if of_torch else given
    if others != [operand]:
        return None  # `clamp` takes two numbers or two tensors
    return given[0] if of_torch else place.receiver(call)


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
    elif isinstance(parent, cst.Call):
        other = _worked_on(parent, node, place)
    if other is None or not place.is_tensor(other) or place.kind(other).built:
        return None
    return other


def is_plain_operand(
    node: cst.BaseExpression, place: Place, partner: cst.BaseExpression | None
) -> bool:
    """Whether a number in place of a tensor of one leaves the dtype of the result alone: no dtype is named,
    or that of the other operand."""
    dtype = place.argument(node, None, "dtype") if isinstance(node, cst.Call) else None
    if partner is None or dtype is None:
        return partner is not None
    return place.text(dtype) == f"{place.text(partner)}.dtype"


def only_in_arithmetic(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a call's result is held by a name that is only ever an operand beside tensors."""
    name = assigned_once(node, place)
    if name is None:
        return False
    found = loads(name.value, place.function)
    uses = [n for n in found.reads if n is not name]
    if not uses or found.written:
        return False
    return all(
        place.value_of(n) is node and is_plain_operand(node, place, arithmetic_partner(n, place))
        for n in uses
    )


_TAKE_NUMBERS = frozenset(
    "add clamp clamp_max clamp_min div eq floor_divide fmod ge gt le lt mul ne pow remainder sub".split()
)
_BOUNDS = frozenset({"exponent", "max", "min", "other"})


_MATH = frozenset(
    "acos asin atan cos cosh exp expm1 log log10 log1p log2 sin sinh sqrt tan tanh".split()
)
"""Functions that `math` has by the same name."""
_SINGLE = frozenset({"torch.float", "torch.float32"})


_MOVES = frozenset({"cuda", "float", "to", "type_as"})
"""Methods after which a tensor of one number is just as needless."""


@dataclass(frozen=True, slots=True)
class _WorkedOut:
    """What a function works out of a tensor of one number."""

    function: str
    whole: cst.Call
    """The call of the function, and what moves its result: `torch.sqrt(torch.tensor(n)).to(x)`."""
    like: tuple[cst.BaseExpression, ...]
    """The tensors whose device and dtype it gets."""


def _moved(node: cst.Call, place: Place) -> tuple[cst.Call, list[cst.BaseExpression]] | None:
    """What casts and moves make of a tensor: `torch.tensor(n).float().to(x)` of `torch.tensor(n)`; with the
    tensors that it is made like. None where a number may be rounded on the way."""
    like: list[cst.BaseExpression] = []
    while (outer := method_call(node, place)) is not None and place.last_name(outer) in _MOVES:
        given = [a.value for a in outer.args]
        if len(given) > 1 or any(a.star or a.keyword is not None for a in outer.args):
            return None
        if given and place.name(given[0]) not in _SINGLE and not is_device(given[0], place):
            if not place.is_tensor(given[0]):
                return None
            like.append(given[0])
        node = outer
    return node, like


def _worked_out(node: cst.Call, place: Place) -> _WorkedOut | None:
    """The function that works out another number of a tensor of one: `torch.sqrt(torch.tensor(n))`,
    `torch.tensor(n).float().sqrt()`."""
    made = _moved(node, place)
    if made is None:
        return None
    outer = method_call(made[0], place)
    if outer is None:
        parent = place.parent(made[0])
        outer = parent if isinstance(parent, cst.Call) and len(parent.args) == 1 else None
        if outer is None or not place.is_torch(outer, *_MATH):
            return None
    elif outer.args or place.last_name(outer) not in _MATH:
        return None
    whole = _moved(outer, place)
    if whole is None:
        return None
    return _WorkedOut(place.last_name(outer), whole[0], (*made[1], *whole[1]))


def _has_a_result(function: str, data: cst.BaseExpression) -> bool:
    """Whether `math` has a result for a number, as far as that is written down."""
    if any(isinstance(part, cst.Imaginary) for part in nodes.walk(data)):
        return False
    negative = isinstance(data, cst.UnaryOperation) and isinstance(data.operator, cst.Minus)
    number = data.expression if isinstance(data, cst.UnaryOperation) else data
    if not isinstance(number, cst.Integer | cst.Float):
        return True
    try:
        getattr(math, function)(-number.evaluated_value if negative else number.evaluated_value)
    except (OverflowError, ValueError):
        return False
    return True


def _plainly_used(node: cst.Call, data: cst.BaseExpression, place: Place) -> _WorkedOut | None:
    """The same, where a number would do in place of what it gives."""
    found = _worked_out(node, place)
    if found is None or not _has_a_result(found.function, data):
        return None
    dtype = place.argument(node, None, "dtype")
    if dtype is not None and place.name(dtype) not in _SINGLE:
        return None
    used = _with_numbers(found.whole, place)
    partner = arithmetic_partner(used, place)
    if partner is None:
        return found if not found.like and only_in_arithmetic(used, place) else None
    return found if all(place.same(one, partner) for one in found.like) else None


def _with_numbers(node: cst.BaseExpression, place: Place) -> cst.BaseExpression:
    """What is worked out of a value and numbers alone: `-(value / 2)`."""
    while True:
        parent = place.parent(node)
        if isinstance(parent, cst.BinaryOperation):
            other = parent.right if parent.left is node else parent.left
            if not is_number(other, place):
                return node
        elif not isinstance(parent, cst.UnaryOperation):
            return node
        node = parent


_EXTREMA = {"max": "min", "maximum": "min", "min": "max", "minimum": "max"}
"""Functions that choose between two tensors, and which bound of `clamp` does the same."""


@dataclass(frozen=True, slots=True)
class _Bounded:
    """A call that only bounds a tensor by a number: `torch.maximum(x, torch.tensor(0.0))`."""

    whole: cst.Call
    better: str


def _bounded(node: cst.Call, data: cst.BaseExpression, place: Place) -> _Bounded | None:
    """What a call of `clamp` does as well, where a tensor of one number is a bound."""
    call = place.parent(node)
    if not isinstance(call, cst.Call) or len(call.args) != 2 or not place.is_torch(call, *_EXTREMA):
        return None
    values = [a.value for a in call.args]
    if node not in values or any(a.keyword is not None or a.star for a in call.args):
        return None
    other = values[1] if values[0] is node else values[0]
    if not isinstance(other, cst.Name | cst.Attribute | cst.Call | cst.Subscript) or other.lpar:
        return None
    if not place.is_tensor(other) or place.kind(other).built:
        return None
    if not is_plain_operand(node, place, other):
        return None
    bound = _EXTREMA[place.last_name(call)]
    return _Bounded(call, f"{place.text(other)}.clamp({bound}={place.text(data)})")


def _clamp(bounded: _Bounded, place: Place) -> Fix | None:
    if "#" in place.text(bounded.whole):
        return None
    message = "bound by the number itself; where both are equal, all of the gradient passes, not half of it"
    return place.replace(bounded.whole, bounded.better, safety="unsafe", message=message)


class ScalarTensorInArithmetic(Rule):
    """A number is wrapped in a tensor only to take part in arithmetic, which takes the number itself.

    ## What it does

    Finds `torch.tensor(number)` as an operand beside a tensor, in a comparison with one, as what `x.pow(…)`,
    `x.clamp(…)` and the like take, or as a branch of `torch.where`, written there or held by a name that is
    used for nothing else. So is one of which `torch.sqrt`, `log`, `exp` or the like works out such an
    operand: `math` has these for numbers. `torch.maximum(x, torch.tensor(0.0))` is `x.clamp(min=0.0)`.

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
    Where the tensor would become NaN or infinite, as the logarithm of zero does, `math` raises. Where both
    are equal, `torch.maximum` gives half of the gradient, and `clamp` all of it.
    """

    code = "DG503"
    name = "scalar-tensor-in-arithmetic"
    also_compiled = False
    origin = "torchvision#5515"
    looks_for = Call("tensor", "as_tensor", "asarray", place="torch")
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A number, and nothing but operators around it."""
        data = data_argument(node, place)
        if data is None or not is_number(data, place):
            return None
        if place.argument(node, None, "requires_grad") is not None or place.kind(data).host:
            return None
        outer = _plainly_used(node, data, place)
        bounded = _bounded(node, data, place)
        if (
            outer is None
            and bounded is None
            and not only_in_arithmetic(node, place)
            and not is_plain_operand(node, place, arithmetic_partner(node, place))
        ):
            return None
        copied = device_of(node, place) is not None
        waits = " and waits for its copy to the device" if copied else ""
        built = f"`{place.text(node.func)}({place.text(data)})` builds a tensor{waits} only to"
        if bounded is not None:
            return place.finding(
                node,
                f"{built} bound another by it; use `{bounded.better}`",
                fix=_clamp(bounded, place),
                dry=not copied,
            )
        shown = place.text(data)
        if outer is not None:
            shown = f"math.{outer.function}({shown})"
        return place.finding(
            node,
            f"{built} use it as an operand; use `{shown}` itself",
            fix=self._fix(node, data, outer, place),
            dry=not copied,
        )

    def _fix(
        self,
        node: cst.Call,
        data: cst.BaseExpression,
        outer: _WorkedOut | None,
        place: Place,
    ) -> Fix | None:
        if outer is not None:
            function, replaced = place.spelling(f"math.{outer.function}"), outer.whole
            text = f"{function}({place.text(data)})"
            if not function or "#" in place.text(replaced):
                return None
        elif moved_by(node, place) is not None:
            return None
        else:
            operand = isinstance(place.parent(node), cst.BinaryOperation | cst.Comparison)
            text, replaced = bare(data, place) if operand else place.text(data), node
        return place.replace(
            replaced,
            text,
            safety="unsafe",
            message="use the number itself; the result may differ in its last digits, or its dtype",
        )
