"""Parameters that a function moves to a device itself: until it does, they may be on the CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from pytest_dispatchguard.lint.dataflow.reader import Moves, Reader
from pytest_dispatchguard.lint.kinds import torch_ops
from pytest_dispatchguard.lint.syntax import nodes
from pytest_dispatchguard.lint.syntax.spelling import dotted, text

MOVING = frozenset({"to", "cuda"})
"""The methods that move a tensor."""
_DEVICE = re.compile(r"\w*device(?:_?id)?|_?(?:gpu(?:_?id)?|(?:local_)?rank)")
"""What devices are called, and their numbers."""
_JOINING = frozenset("cat concat concatenate stack hstack vstack where".split())
"""Functions of torch that put together what they are given."""
_DEEPEST = 12


def note_move(reader: Reader, call: cst.Call) -> None:
    """Note what a call moves to a device that no other tensor names."""
    assert isinstance(call.func, cst.Attribute)
    last = call.func.attr.value
    there = _is_class_there if last == "type" else _is_device
    if last == "cuda" or any(there(reader, arg) for arg in call.args[:1]):
        reader.moved.append(call.func.value)


def _is_class_there(reader: Reader, arg: cst.Arg) -> bool:
    """Whether `type` is given the class of tensors on a device: `torch.cuda.HalfTensor`, or a name for it."""
    held = reader.names.values.get(dotted(arg.value) or "", arg.value)
    return "cuda." in text(held)


def _is_device(reader: Reader, arg: cst.Arg) -> bool:
    if arg.star or (arg.keyword is not None and arg.keyword.value != "device"):
        return False
    if isinstance(arg.value, cst.SimpleString):
        return str(arg.value.evaluated_value).startswith("cuda")
    owner, dot, last = (dotted(arg.value) or "").rpartition(".")
    if _DEVICE.fullmatch(last.lower()) is None:
        return False
    return not dot or (owner == reader.self_name and bool(owner))


def moves_of(reader: Reader) -> Moves:
    """What a function moves to a device."""
    plain = frozenset(node.value for node in reader.moved if isinstance(node, cst.Name))
    return Moves(_moved_later(reader), plain)


def left_behind(reader: Reader, loop: cst.For) -> frozenset[str]:
    """Of the names that a loop binds together, those that stay on the CPU: others are moved to a device, and
    these never."""
    if not reader.moves.plain or not isinstance(loop.target, cst.Tuple | cst.List):
        return frozenset()
    names = frozenset(one.value for one in nodes.bound_by(loop) if isinstance(one, cst.Name))
    return names - reader.moves.plain if names & reader.moves.plain else frozenset()


def _moved_later(reader: Reader) -> frozenset[str]:
    """The names whose values a function moves to a device, or what it computes from them."""
    found: set[str] = set()
    waiting = [name for node in reader.moved for name in _made_of(node, 0)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [n for value in reader.bound.get(name, ()) for n in _made_of(value, 0)]
    return frozenset(found)


def _made_of(node: cst.BaseExpression, depth: int) -> Iterator[str]:
    """The names of the tensors that a value is made of, and lies where they lie."""
    parts: list[cst.BaseExpression] = []
    if isinstance(node, cst.Name):
        yield node.value
    elif isinstance(node, cst.Subscript):
        parts = [node.value]
    elif isinstance(node, cst.BinaryOperation):
        parts = [node.left, node.right]
    elif isinstance(node, cst.UnaryOperation):
        parts = [node.expression]
    elif isinstance(node, cst.IfExp):
        parts = [node.body, node.orelse]
    elif isinstance(node, cst.List | cst.Tuple):
        parts = [element.value for element in node.elements]
    elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        last, given = node.func.attr.value, node.args[:1]
        if dotted(node.func.value) == "torch":
            parts = [arg.value for arg in (node.args if last == "where" else given)]
            parts = parts if last in _JOINING else []
        elif last in torch_ops.METHODS and not last.startswith("new_"):
            parts = [node.func.value]
    if depth < _DEEPEST:
        for part in parts:
            yield from _made_of(part, depth + 1)
