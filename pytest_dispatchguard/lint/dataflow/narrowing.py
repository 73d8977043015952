"""What conditions say about names: narrowing by tests for None, types and devices."""

from __future__ import annotations

import re
from dataclasses import replace

import libcst as cst

from pytest_dispatchguard.lint.callgraph import constant_conditions
from pytest_dispatchguard.lint.dataflow.reader import Reader
from pytest_dispatchguard.lint.kinds.annotations import annotation_kind
from pytest_dispatchguard.lint.kinds.kinds import NONE, OTHER, TENSOR, UNKNOWN, Kind, join
from pytest_dispatchguard.lint.syntax.spelling import dotted, text

_ON_GPU = re.compile(
    r"(?:\w+\.)*(?:use_?(?:cuda|gpus?)|on_gpu|(?:cuda|gpu)_available)|(?:self\.)?_?(?:args|opts?|options)\.cuda"
)
"""Flags that say whether there is a GPU to work on, by their names."""
_CPU = frozenset({"'cpu'", '"cpu"'})
_WHERE_IT_WORKS = re.compile(
    r"(?:\w+\.)*(?:accelerator|backend|device|device_(?:name|type)|device\.type|mode|platform)"
)
"""What says where all is worked on, by its name: not where something is kept, made or sent to."""


def decided(reader: Reader, condition: cst.BaseExpression) -> bool | None:
    """What a condition is always found to be: by the literals that hot callers pass, or by types. None where
    it may be both."""
    if type(condition) is cst.UnaryOperation and type(condition.operator) is cst.Not:
        inner = decided(reader, condition.expression)
        return None if inner is None else not inner
    answer = (
        constant_conditions.truth(text(condition), reader.literals) if reader.literals else None
    )
    if answer is None and type(condition) is cst.Call:
        return _isinstance_decided(reader, condition)
    if answer is None and type(condition) is cst.Comparison:
        return _is_still_none(reader, condition)
    return answer


def _is_still_none(reader: Reader, test: cst.Comparison) -> bool | None:
    """For ``x is not None`` after ``x = None`` in the same function, with nothing between that gives it
    anything else: False."""
    part = test.comparisons[0]
    if not isinstance(part.operator, cst.Is | cst.IsNot) or not _says_none(part.comparator):
        return None
    if type(test.left) is not cst.Name or len(test.comparisons) > 1:
        return None
    name = test.left.value
    last = reader.last_values.get(name)
    elsewhere = name in reader.globals or name in reader.nonlocals or name in reader.names.imports
    surely = last is not None and _says_none(last) and not elsewhere
    if surely and reader.names.kinds.get(name) == NONE:
        return isinstance(part.operator, cst.Is)
    return None


def _says_none(node: cst.BaseExpression) -> bool:
    return type(node) is cst.Name and node.value == "None"


def _isinstance_decided(reader: Reader, test: cst.Call) -> bool | None:
    """For ``isinstance(width, torch.Tensor)``: False where the name surely holds something else, True where
    it surely holds a tensor."""
    subject = dotted(test.args[0].value) if test.args else None
    asked = _tested_kind(reader, test) if subject else None
    if subject is None or asked is None or asked.what not in ("tensor", "scalar", "text"):
        return None
    known = reader.lookup(subject)
    if known.what == asked.what == "tensor" and known.sure and not known.optional:
        return True if asked == TENSOR else None
    surely_other = known.sure and known.what in ("tensor", "scalar", "text", "nested")
    return False if surely_other and known.what != asked.what and asked.sure else None


def narrow(reader: Reader, test: cst.BaseExpression, holds: bool) -> None:
    """Refine what names hold, given that a condition holds, or that it does not."""
    if type(test) is cst.BooleanOperation:
        if (type(test.operator) is cst.And) == holds:
            narrow(reader, test.left, holds)
            narrow(reader, test.right, holds)
        return
    if type(test) is cst.UnaryOperation and type(test.operator) is cst.Not:
        narrow(reader, test.expression, not holds)
        return
    if type(test) is cst.NamedExpr:
        test = test.target
    if type(test) is cst.Comparison and len(test.comparisons) == 1:
        _narrow_by_comparison(reader, test, holds)
    elif type(test) is cst.Call:
        _narrow_by_call(reader, test, holds)
    elif isinstance(test, cst.Name | cst.Attribute):
        name = dotted(test)
        held = reader.names.values.get(name or "")
        if isinstance(held, cst.Comparison | cst.Attribute):
            narrow(reader, held, holds)  # `on_cpu = x.device.type == "cpu"`
        if name and holds and name in reader.names.kinds:
            reader.hold(name, replace(reader.names.kinds[name], optional=False))
        elif holds and name and name.endswith(".is_cuda"):
            return
        elif not holds and name and name.endswith(".is_cuda"):
            _mark_on_cpu(reader, name.rpartition(".")[0])
        elif not holds and name and _ON_GPU.fullmatch(name):
            _all_on_cpu(reader)


def _mark_on_cpu(reader: Reader, name: str) -> None:
    """Take all tensors for CPU tensors: where one of them is, the others are as a rule."""
    kind = reader.names.kinds.get(name, UNKNOWN)
    if kind.what in ("tensor", "unknown"):
        reader.hold(name, Kind("tensor", host=True))
    _all_on_cpu(reader)


def _all_on_cpu(reader: Reader) -> None:
    """Takes tensors, and what may be some, to be on the CPU."""
    for other, known in reader.names.kinds.items():
        if known.what in ("tensor", "unknown") and not known.host and not known.cls:
            reader.hold(other, replace(known, host=True))


def _narrow_by_comparison(reader: Reader, test: cst.Comparison, holds: bool) -> None:
    part = test.comparisons[0]
    name = dotted(test.left)
    if name is None:
        _narrow_by_type(reader, test.left, part, holds)
        return
    if _says_none(part.comparator):
        is_none = holds == isinstance(part.operator, cst.Is | cst.Equal)
        if is_none:
            reader.hold(name, NONE)
        else:
            known = reader.lookup(name)
            if known.what == "none":
                reader.names.kinds.pop(name, None)
            else:
                reader.hold(name, replace(known, optional=False))
    elif name.endswith((".device.type", ".device")) and (
        isinstance(part.comparator, cst.SimpleString)
        or (
            isinstance(part.comparator, cst.Call)
            and reader.resolve(part.comparator.func) == "torch.device"
        )
    ):
        # "On the CPU", or "not on CUDA", which means the CPU in most code.
        word = text(part.comparator)
        wanted = True if "cpu" in word else False if "cuda" in word else None
        if wanted is not None and (holds == isinstance(part.operator, cst.Equal)) == wanted:
            _mark_on_cpu(reader, name.partition(".device")[0])
    elif (
        text(part.comparator) in _CPU
        and isinstance(part.operator, cst.Equal if holds else cst.NotEqual)
        and _WHERE_IT_WORKS.fullmatch(name)
    ):
        _all_on_cpu(reader)  # `if mode == "cpu":`


def _narrow_by_type(
    reader: Reader, asked: cst.BaseExpression, part: cst.ComparisonTarget, holds: bool
) -> None:
    """The same of ``type(x) == tuple``, and where ``type(x) != tuple`` does not hold."""
    if type(asked) is not cst.Call or len(asked.args) != 1 or reader.resolve(asked.func) != "type":
        return
    if not isinstance(part.operator, (cst.Equal, cst.Is) if holds else (cst.NotEqual, cst.IsNot)):
        return
    subject, kind = dotted(asked.args[0].value), _class_kind(reader, part.comparator)
    if subject is not None and kind is not None:
        reader.hold(subject, kind)


def _narrow_by_call(reader: Reader, test: cst.Call, holds: bool) -> None:
    subject = dotted(test.args[0].value) if test.args else None
    kind = _tested_kind(reader, test)
    if subject is None or kind is None:
        return
    known = reader.lookup(subject)
    if holds:
        if kind.what == "tensor" and known.what == "tensor":
            kind = replace(known, sure=True, optional=False)
        reader.hold(subject, kind)
    elif kind == TENSOR and known.what == "tensor" and known.either is not None:
        reader.hold(subject, replace(known.either, optional=known.optional))
    elif known.what == kind.what and kind.what in ("tensor", "scalar", "text", "nested"):
        reader.hold(subject, OTHER if not known.optional else UNKNOWN)
    elif kind.what == "tensor":
        reader.hold(subject, OTHER)
    elif known.either is not None and _covers(kind, known.either):
        reader.hold(subject, replace(known, sure=True, either=None))


def _covers(tested: Kind, kind: Kind) -> bool:
    """Whether a test for one kind holds for every value of another."""
    same = (tested.what, tested.cls) == (kind.what, kind.cls) and tested.what != "unknown"
    return same and tested.dtype in ("", kind.dtype)


def _tested_kind(reader: Reader, test: cst.Call) -> Kind | None:
    """The kind of the first argument where the call returns True; None for calls that test no type."""
    name = reader.resolve(test.func)
    if name == "isinstance" and len(test.args) == 2:
        return _class_kind(reader, test.args[1].value)
    if name is not None and name.rpartition(".")[2] in ("is_tensor", "is_torch_tensor"):
        return TENSOR
    return None


def _class_kind(reader: Reader, node: cst.BaseExpression) -> Kind | None:
    if isinstance(node, cst.Tuple):
        kinds = [_class_kind(reader, e.value) for e in node.elements]
        out = kinds[0] if kinds else None
        for kind in kinds[1:]:
            out = None if out is None or kind is None else join(out, kind)
        return out if out is not None and out.what != "unknown" else Kind("unknown", cls="?")
    if isinstance(node, cst.BinaryOperation):
        return None
    name = reader.resolve(node)
    if name is None:
        return Kind("unknown", cls="?")
    kind = annotation_kind(name, reader.tensor_types)
    return kind if kind.what != "unknown" else Kind("unknown", cls=name)
