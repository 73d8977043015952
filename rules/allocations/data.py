"""What tensors are made from: constants, numbers and other host data."""

from __future__ import annotations

from typing import Literal

import libcst as cst

from pytest_dispatchguard import Place

from ..syntax import is_word

FROM_DATA = frozenset({"torch.tensor", "torch.as_tensor", "torch.asarray"})
LEGACY_CLASSES = {
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
FILLED = frozenset({"zeros", "ones", "empty", "eye", "full"})
"""Factories that give the same on every device, in every dtype."""
COMPUTED = frozenset(
    "arange linspace logspace tril_indices triu_indices hann_window hamming_window blackman_window".split()
)
"""Factories that compute numbers."""
RANDOM = frozenset({"rand", "randn", "randint", "randperm", "normal"})
FACTORIES = frozenset(f"torch.{n}" for n in FILLED | COMPUTED | RANDOM)
LIKE = frozenset(f"torch.{n}_like" for n in ("zeros", "ones", "empty", "full", *RANDOM))
"""Factories that follow another tensor."""
COMPUTES = frozenset(
    "abs arange argmax argmin argsort bmm cat clamp cos cumprod cumsum diag einsum exp eye linspace log "
    "log_softmax logsumexp matmul max mean min mm norm normalize outer pow prod reciprocal "
    "repeat_interleave rsqrt "
    "sigmoid sin softmax sort sqrt stack std sum tanh topk tril triu var where".split()
)
"""Functions and methods that launch something, and always give the same for the same."""
LEARNS = frozenset(
    "backward clip_grad_norm_ clip_grad_value_ grad load_state_dict manual_backward replay step unscale_ "
    "update vjp zero_grad".split()
)
"""What is called where tensors, parameters and gradients above all, change without being named, or where each
iteration of a loop needs a graph of its own."""
CASTS = {
    **{name: name for name in "bfloat16 bool double float half int long short".split()},
    "byte": "uint8",
}
"""Methods that cast, and the dtypes of torch that they cast to."""
_NUMBERS = (cst.Integer, cst.Float)
Safety = Literal["safe", "unsafe"]


def without_casts(node: cst.BaseExpression) -> cst.BaseExpression:
    """What casts are applied to: `torch.zeros(n)` of `torch.zeros(n).long()`."""
    while (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value in CASTS
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
        return is_word(node, "True", "False")
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
    return place.argument(call, 0, "data") if place.name(call) in FROM_DATA else None


COPIED = frozenset(
    {"torch.from_numpy", "torch.Tensor", *(f"torch.{name}" for name in LEGACY_CLASSES)}
)


def is_legacy_of_sizes(call: cst.Call, place: Place) -> bool:
    """Whether a call makes a tensor on the CPU of given sizes, with whatever numbers were in its memory:
    `torch.FloatTensor(8, 4)`."""
    sizes = [a.value for a in call.args if a.keyword is None and not a.star]
    return (
        place.name(call) in COPIED - {"torch.from_numpy"}
        and 0 < len(sizes) == len(call.args)
        and not any(isinstance(one, cst.List | cst.Tuple | cst.ListComp) for one in sizes)
        and (len(sizes) > 1 or is_number(sizes[0], place))
    )
