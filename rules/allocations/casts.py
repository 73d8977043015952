"""DG519: new tensors that are cast at once."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Place, Rule

from ..syntax import method_call
from .data import CASTS, LIKE
from .devices import move_target

_SAME = {"float32": "float", "float64": "double", "float16": "half"} | {
    "int32": "int",
    "int64": "long",
    "int16": "short",
}
"""Other names of these dtypes."""
_FILLED = frozenset({"empty", "eye", "ones", "zeros"})
_LIKE_ANOTHER = frozenset({"empty_like", "full_like", "ones_like", "zeros_like"})
_OF_ANOTHER = frozenset({"new_empty", "new_full", "new_ones", "new_zeros"})
_CLASSES = {
    "bool": "bool",
    **dict.fromkeys(("bfloat16", "double", "float", "half"), "float"),
}
"""What kind of number a dtype has, where it is no integer."""
_EXACT = frozenset({"double", "float", "int", "long", "short", "uint8"})
"""Dtypes in which a range of whole numbers has those that it is cast to."""


class FactoryThenCast(Rule):
    """A tensor is made in one dtype and cast to another at once.

    ## What it does

    Finds `torch.zeros(n).long()`, `torch.arange(n).float()`, `torch.ones_like(x).bool()`,
    `x.new_zeros(n).to(torch.int32)` and their like in hot code. It is a note where the tensor may have the
    dtype already. Left alone are factories that are given a `dtype`, and casts to what the factory makes
    anyway. What is also moved to a device is DG504.

    ## Why it costs

    The cast is a call of its own, allocates a second tensor and launches a second kernel. Every factory takes
    `dtype=`.

    ## Example

    ```python
    mask = torch.zeros(x.shape[0], device=x.device).bool()
    ```

    ## Instead

    ```python
    mask = torch.zeros(x.shape[0], device=x.device, dtype=torch.bool)
    ```

    ## Fix safety

    Safe: the factory makes the same numbers. None is offered where it may round them differently, or refuse
    them.
    """

    code = "DG519"
    name = "factory-then-cast"
    also_compiled = False
    origin = "mmdetection3d#c6d4e8f0"
    looks_for = Call(*CASTS, "to", "type", place="torch")
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A factory under a cast, with nothing between."""
        factory = place.receiver(node)
        if not isinstance(factory, cst.Call) or any(a.star for a in factory.args):
            return None
        dtype = _cast_to(node, place)
        given = {a.keyword.value for a in factory.args if a.keyword is not None}
        if not dtype or given & {"dtype", "out", "requires_grad"}:
            return None
        made = _made_in(factory, dtype, place)
        if made is None or made == dtype:
            return None
        outer = method_call(node, place)
        if outer is not None and move_target(outer, place) is not None and "device" not in given:
            return None
        return place.finding(
            node,
            f"`{place.short(factory)}` makes a tensor that `.{place.last_name(node)}(…)` casts at once, with "
            f"a second allocation and a second kernel{'' if made else ' unless it has that dtype already'}; "
            f"pass `dtype=` to `{place.last_name(factory)}`",
            certainty="sure" if made else "note",
            fix=self._fix(node, factory, dtype, made, place),
        )

    def _fix(
        self, node: cst.Call, factory: cst.Call, dtype: str, made: str, place: Place
    ) -> Fix | None:
        """The dtype as an argument of the factory."""
        last = place.last_name(factory)
        whole = made == "long" and dtype in _EXACT
        if last == "arange" and not whole and (made or dtype != "float"):
            return None  # rounded once, or twice
        if last in ("full", "full_like", "new_full"):
            return None  # it may refuse the number
        spelled, written = place.spelling(f"torch.{dtype}"), place.text(factory)
        if not spelled or not factory.args or factory.lpar or "\n" in place.text(node):
            return None
        head = written[:-1].rstrip().removesuffix(",")
        return place.replace(
            node,
            f"{head}, dtype={spelled})",
            safety="safe",
            message="make it in the dtype that it is cast to",
        )


def _cast_to(node: cst.Call, place: Place) -> str:
    """The dtype that a call casts to, by its name in torch; empty for what does more, or something else."""
    last = place.last_name(node)
    if last in CASTS:
        return "" if node.args else CASTS[last]
    if len(node.args) != 1 or node.args[0].star:
        return ""
    keyword = node.args[0].keyword
    if keyword is not None and keyword.value != "dtype":
        return ""
    torch, _, dtype = place.name(node.args[0].value).rpartition(".")
    dtype = _SAME.get(dtype, dtype)
    return dtype if torch == "torch" and dtype in CASTS.values() else ""


def _made_in(factory: cst.Call, dtype: str, place: Place) -> str | None:
    """The dtype of what a factory makes where it is given none; empty where it is not known, and may be the
    one that it is cast to; None for what is no factory."""
    last = place.last_name(factory)
    if place.is_torch(factory, *_FILLED):
        return "float"
    if place.is_torch(factory, "arange"):
        ends = [a.value for a in factory.args if a.keyword is None or a.keyword.value in _ENDS]
        if any(isinstance(end, cst.Float) for end in ends):
            return "float"
        # Hardly anybody counts in floats.
        whole = ends and all(_is_whole(end, place) for end in ends)
        return "long" if whole or dtype == "long" else ""
    if place.is_torch(factory, "full"):
        value = place.argument(factory, 1, "fill_value")
        return "long" if value is None or dtype == "long" else _of_literal(value)
    like = place.name(factory) in LIKE and last in _LIKE_ANOTHER
    source = place.argument(factory, 0, "input") if like else place.receiver(factory)
    if source is None or not (like or (last in _OF_ANOTHER and place.is_tensor(source))):
        return None
    if _is_cast_to(source, dtype, place):
        return dtype
    known = place.kind(source).dtype
    return known if known and known != _CLASSES.get(dtype, "int") else ""


def _is_cast_to(node: cst.BaseExpression, dtype: str, place: Place) -> bool:
    """Whether a tensor has a dtype for sure: it, or what it was moved or cut from, was cast to it."""
    for _ in range(_LONGEST):
        if isinstance(node, cst.Subscript):
            node = node.value
        elif isinstance(node, cst.Call) and _cast_to(node, place) == dtype:
            return True
        elif isinstance(node, cst.Call) and _keeps_dtype(node, place):
            node = place.receiver(node) or node
        else:
            known = place.value_of(node)
            if known is None:
                return False
            node = known
    return False


def _keeps_dtype(call: cst.Call, place: Place) -> bool:
    last = place.last_name(call)
    return last in _KEEPING or (last == "to" and move_target(call, place) is not None)


_KEEPING = frozenset("clone contiguous cpu cuda detach".split())
_LONGEST = 8
"""Steps back from a tensor to where it was cast."""
_ENDS = frozenset({"end", "start", "step"})
_WHOLE = (cst.Add, cst.FloorDivide, cst.Modulo, cst.Multiply, cst.Subtract)


def _is_whole(node: cst.BaseExpression, place: Place, depth: int = 4) -> bool:
    """Whether an expression is surely an integer: written down, a size, or worked out of such."""
    if isinstance(node, cst.UnaryOperation):
        return _is_whole(node.expression, place, depth)
    if isinstance(node, cst.BinaryOperation):
        sides = (node.left, node.right)
        return isinstance(node.operator, _WHOLE) and all(
            _is_whole(one, place, depth) for one in sides
        )
    held = place.value_of(node) if isinstance(node, cst.Name) and depth else None
    if held is not None:
        return _is_whole(held, place, depth - 1)
    if isinstance(node, cst.Subscript):
        return isinstance(node.value, cst.Attribute) and node.value.attr.value == "shape"
    if isinstance(node, cst.Call):
        owner = place.receiver(node)
        asked = owner is not None and place.last_name(node) in ("numel", "size")
        return place.name(node) == "len" or (asked and owner is not None and place.is_tensor(owner))
    kind = place.kind(node)
    return isinstance(node, cst.Integer) or (kind.what == "scalar" and kind.dtype == "int")


def _of_literal(node: cst.BaseExpression) -> str:
    """The dtype that a number gives a tensor; empty for what is not written down."""
    if isinstance(node, cst.UnaryOperation):
        return _of_literal(node.expression)
    if isinstance(node, cst.Integer):
        return "long"
    if isinstance(node, cst.Name):
        return "bool" if node.value in ("True", "False") else ""
    return "float" if isinstance(node, cst.Float) else ""
