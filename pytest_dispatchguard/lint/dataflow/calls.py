"""Calls: what they return, and what they do to their arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import libcst as cst

from pytest_dispatchguard.lint.dataflow.conditions import read_condition
from pytest_dispatchguard.lint.dataflow.containers import read_comprehension
from pytest_dispatchguard.lint.dataflow.lookups import kind_of_attribute
from pytest_dispatchguard.lint.dataflow.moves import MOVING, note_move
from pytest_dispatchguard.lint.dataflow.reader import Reader
from pytest_dispatchguard.lint.kinds.classes import module_call_kind
from pytest_dispatchguard.lint.kinds.fact_values import value_kind
from pytest_dispatchguard.lint.kinds.functions import function_kind
from pytest_dispatchguard.lint.kinds.kinds import (
    DICT,
    EMPTY,
    FUNCTION,
    MODULE,
    OUTPUT,
    TENSOR,
    UNKNOWN,
    Kind,
    filled,
)
from pytest_dispatchguard.lint.kinds.methods import (
    METHODS_OF_TENSORS,
    method_kind,
    method_kind_by_name,
    returns_tensor,
)
from pytest_dispatchguard.lint.kinds.placement import CPU, followed, on_cpu
from pytest_dispatchguard.lint.kinds.torch_functions import FACTORIES, LIKE
from pytest_dispatchguard.lint.knowledge import error_paths
from pytest_dispatchguard.lint.knowledge.entry_points import NO_MODEL
from pytest_dispatchguard.lint.syntax.spelling import dotted, text

_NEEDS_TEXT = FACTORIES | LIKE | {"device", "to", "type"}
_ITERATING = frozenset(
    "list tuple set sorted enumerate zip sum max min any all reversed map "
    "itertools.chain itertools.groupby itertools.islice".split()
)
"""Functions that iterate over their argument."""
_OVER_ALL = frozenset({"zip", "enumerate", "sum", "map", "itertools.chain"})
"""Those of them that iterate over each of several."""
_ADDING = frozenset({"append", "appendleft", "add"})
"""Methods that add their argument to a list or set."""
_ASKS_MODULES = frozenset({"eval", "named_modules", "named_parameters", "parameters"})
"""Methods of modules that nothing else has without arguments."""
_MODEL = re.compile(
    rf"(?:self\.)?(?!{NO_MODEL})_?(?:\w+_)?(?:model|net|network|unet|transformer|module|backbone|vae)"
)
"""What is called so, and called, is a module in a file that works with torch."""
_WARNING = frozenset({"critical", "error", "exception", "fatal", "warn", "warning"})
"""How functions and methods are called that give warnings."""
_GATHERS = frozenset("all_gather gather gather_for_metrics pad_across_processes reduce".split())
_OF_PROCESSES = re.compile(r"(?:\w+\.)*(?:_?accelerator|_?fabric|trainer\.strategy)")
"""What gathers tensors of all processes, of Accelerate and Lightning, by the names of these methods and of
what has them."""
_GATHERS_OBJECTS = frozenset({"all_gather_object", "gather_object", "broadcast_object_list"})
"""Collectives that fill the list they are given with the objects of other processes."""


def read_call(reader: Reader, node: cst.Call) -> Kind:
    """Read a call: its function, its arguments, what it returns, and what it adds to a container."""
    func = node.func
    reader.parents[id(func)] = node
    receiver = UNKNOWN
    if type(func) is cst.Attribute:
        receiver = reader.read(func.value, func)
        if receiver.either is not None and func.attr.value in METHODS_OF_TENSORS:
            reader.kinds[id(func.value)] = receiver = receiver.used()
        reader.kinds[id(func)] = kind_of_attribute(reader, func, receiver)
        last = func.attr.value
    else:
        reader.kinds[id(func)] = reader.read(func)
        last = func.value if type(func) is cst.Name else ""
    name = reader.resolve(func)
    if name is not None:
        reader.dotted_names[id(func)] = name
    scene = reader.scene
    if last in _WARNING and scene.conditions and _warns(func, name):
        reader.scene = replace(scene, cold=True)  # what a warning says is made when it is given
    args, keywords, texts = _read_arguments(reader, node, last, name)
    reader.scene = scene
    reader.emit("call", node, last)
    if (last in MOVING or last == "type") and type(func) is cst.Attribute:
        note_move(reader, node)
    if reader.reading_callees and reader.callee_key(func) in reader.reading_callees:
        reader.emit("helper-call", node, last)
    if last == "backward" and not node.args:
        _note_tensor(reader, func, receiver)
    if last in _ASKS_MODULES and not node.args:
        _note_module(reader, func, receiver)
    if last in _ADDING and len(args) == 1 and isinstance(func, cst.Attribute):
        _add_element(reader, func.value, args[0])
    if last in _GATHERS_OBJECTS and node.args:
        reader.bind(node.args[0].value, Kind("nested", element=UNKNOWN), None)
    return _call_kind(reader, node, func, name, last, receiver, args, keywords, texts)


def _note_tensor(reader: Reader, func: cst.BaseExpression, receiver: Kind) -> None:
    """Notes that what is differentiated is a tensor."""
    if isinstance(func, cst.Attribute) and _is_undetermined(receiver):
        name = dotted(func.value)
        if name and name != reader.self_name:
            reader.hold(name, replace(TENSOR, host=receiver.host))


def _note_module(reader: Reader, func: cst.BaseExpression, receiver: Kind) -> None:
    """Notes that what is asked for its parameters, or set to evaluate, is a module."""
    if isinstance(func, cst.Attribute) and _is_undetermined(receiver):
        name = dotted(func.value)
        if name and name != reader.self_name:
            reader.hold(name, replace(MODULE, cls=receiver.cls))


def _warns(func: cst.BaseExpression, name: str | None) -> bool:
    return name == "warnings.warn" or error_paths.complains(dotted(func) or "")


def _add_element(reader: Reader, holder: cst.BaseExpression, value: Kind) -> None:
    """Record that a list holds one more value: ``xs``, ``lists[key]`` or ``lists.setdefault(key, [])``."""
    whole = holder.value if isinstance(holder, cst.Subscript) else holder
    if isinstance(holder, cst.Call) and isinstance(holder.func, cst.Attribute):
        if holder.func.attr.value != "setdefault":
            return
        whole = holder.func.value
    known = reader.names.kinds.get(whole.value) if isinstance(whole, cst.Name) else None
    if not isinstance(whole, cst.Name) or known is None or known.what != "nested":
        return
    if whole is not holder:
        value = filled(known.element or EMPTY, value)
        known = replace(known, element=None, items=())
    reader.names.kinds[whole.value] = filled(known, value)


def _read_arguments(
    reader: Reader, node: cst.Call, last: str, name: str | None
) -> tuple[list[Kind], dict[str, Kind], dict[str, str]]:
    args: list[Kind] = []
    keywords: dict[str, Kind] = {}
    texts: dict[str, str] = {}
    wants_text = last in _NEEDS_TEXT
    truth = name == "bool"
    iterates = name in _ITERATING
    for i, arg in enumerate(node.args):
        value = arg.value
        reader.parents[id(value)] = node
        if name in ("any", "all") and isinstance(value, cst.GeneratorExp | cst.ListComp):
            kind = read_comprehension(reader, value, truth_of_element=True)
            reader.kinds[id(value)] = kind
        else:
            kind = read_condition(reader, value) if truth else reader.read(value)
        if arg.star == "*":
            reader.emit("iterate", value)
            args.append(Kind("unknown"))
        elif arg.star == "**":
            keywords["**"] = kind
        elif arg.keyword is not None:
            keywords[arg.keyword.value] = kind
            if wants_text:
                texts[arg.keyword.value] = _device_text(reader, value)
        else:
            args.append(kind)
            if wants_text:
                texts[str(i)] = _device_text(reader, value)
            if iterates and (len(node.args) == 1 or name in _OVER_ALL or _is_first(i, name)):
                reader.emit("iterate", value)
    return args, keywords, texts


def _is_first(number: int, name: str | None) -> bool:
    """Whether an argument is the one that a function of itertools iterates over."""
    return number == 0 and name is not None and name.startswith("itertools.")


def _device_text(reader: Reader, value: cst.BaseExpression) -> str:
    """The source of an argument, or of the literal or `torch.device` that a name is known to hold. Where that
    is the CPU only under a condition, the source of the other."""
    if isinstance(value, cst.Name):
        held = reader.names.values.get(value.value)
        if isinstance(held, cst.SimpleString | cst.IfExp) or (
            isinstance(held, cst.Call) and reader.resolve(held.func) == "torch.device"
        ):
            value = held
    return _device_of(reader, value)


def _device_of(reader: Reader, value: cst.BaseExpression) -> str:
    """The source of a device; of those that a condition chooses from, one that is not the CPU."""
    if isinstance(value, cst.Call) and value.args and reader.resolve(value.func) == "torch.device":
        return _device_of(reader, value.args[0].value)
    if isinstance(value, cst.IfExp):
        ways = [value.body, value.orelse]
    elif isinstance(value, cst.BooleanOperation):
        ways = [value.left, value.right]
    else:
        return text(value)
    either = [_device_of(reader, way) for way in ways]
    return next((way for way in either if CPU.search(way) is None), either[0])


def _call_kind(
    reader: Reader,
    node: cst.Call,
    func: cst.BaseExpression,
    name: str | None,
    last: str,
    receiver: Kind,
    args: list[Kind],
    keywords: dict[str, Kind],
    texts: dict[str, str],
) -> Kind:
    if "return_tensors" in keywords:
        # Tokenizers and image processors return CPU tensors.
        return Kind("nested", element=Kind("tensor", sure=False, host=True), cls="dict")
    if last == "get_rng_state" or (last == "get_state" and _is_a_generator(func)):
        return on_cpu(TENSOR)  # also of a generator on a device
    if name is not None:
        if name in reader.tensor_types:
            return TENSOR
        if name == "collections.defaultdict" and args:
            return replace(DICT, element=_default_kind(reader, node.args[0].value))
        kind = function_kind(name, args, keywords, texts)
        if kind is not None:
            return kind
    own_attribute = name is not None and name.startswith("self.") and name.count(".") > 1
    if (
        isinstance(func, cst.Attribute)
        and _is_undetermined(receiver)
        and (name is None or own_attribute)
    ):
        chained = (
            isinstance(func.value, cst.Call)
            and isinstance(func.value.func, cst.Attribute)
            and returns_tensor(func.value.func.attr.value)
        )
        kind = method_kind_by_name(last, args, keywords, texts, chained)
        if kind is not None:
            return _of_the_unknown(kind, func.value, receiver, last)
    if isinstance(func, cst.Attribute):
        kind = method_kind(receiver, last, args, keywords, texts)
        if kind is not None:
            return kind
    callee = reader.brief.callees.get(reader.callee_key(func))
    if callee is not None:
        kind = value_kind(callee.returns, reader.tensor_types)
        kind = on_cpu(kind) if callee.on_cpu else kind
        if kind.what != "unknown" or kind.cls:
            return followed(kind, [*args, *keywords.values()])
        if callee.returns_function:
            return FUNCTION
    kind = _of_instance(reader, func, [*args, *keywords.values()])
    if kind is not None:
        return kind
    if last in _GATHERS and args and args[0].what in ("tensor", "nested") and _gathers(func, last):
        return replace(args[0], ndim=None)  # a tuple of tensors, too
    if _brings_to_the_cpu(func, last, args, texts) and _is_undetermined(receiver):
        return on_cpu(UNKNOWN)
    if name and (name in reader.brief.fields or name in reader.brief.modules):
        return reader.instance(Kind("unknown", cls=name))
    return UNKNOWN


def _of_instance(reader: Reader, func: cst.BaseExpression, given: Sequence[Kind]) -> Kind | None:
    """What calling a value gives: a module, what takes tensors, or, by its name, a model."""
    called = reader.kinds.get(id(func), UNKNOWN)
    if called.what in ("module", "modules"):
        kind = module_call_kind(called.cls)
        return kind if kind is not None else _given_by(reader, called.cls, given)
    if called.cls in reader.tensor_types and called.cls:
        return TENSOR
    if _is_undetermined(called) and "torch" in reader.brief.imports:
        written = dotted(func)
        if written and _MODEL.fullmatch(written):
            return OUTPUT
    return None


def _gathers(func: cst.BaseExpression, last: str) -> bool:
    """Whether a method of no class of the project gives tensors of what each process gave it."""
    owner = (dotted(func.value) if isinstance(func, cst.Attribute) else None) or ""
    # Of a LightningModule, too.
    return (owner == "self" and last == "all_gather") or _OF_PROCESSES.fullmatch(owner) is not None


def _given_by(reader: Reader, cls: str, args: Sequence[Kind]) -> Kind:
    """What calling an instance of a module of the project gives."""
    kind = value_kind(reader.brief.modules.get(cls, "unknown"), reader.tensor_types)
    known = kind.what != "unknown" or kind.cls
    return followed(kind, args) if known else OUTPUT


def _of_the_unknown(kind: Kind, owner: cst.BaseExpression, receiver: Kind, last: str) -> Kind:
    """What a method gives of a receiver of which little is known."""
    if last not in MOVING:
        return on_cpu(kind) if receiver.host else kind
    # What a batch has under a key, and is moved, is a tensor.
    return replace(kind, sure=True) if _is_under_a_key(owner) else kind


def _brings_to_the_cpu(
    func: cst.BaseExpression, last: str, args: Sequence[Kind], texts: Mapping[str, str]
) -> bool:
    """Whether ``f(x).cpu()`` or ``x[0].to("cpu")`` is called: what has no name is hardly a module."""
    if not isinstance(func, cst.Attribute) or not isinstance(func.value, cst.Call | cst.Subscript):
        return False
    if last == "cpu":
        return not args
    return last == "to" and CPU.search(texts.get("0", texts.get("device", ""))) is not None


def _is_a_generator(func: cst.BaseExpression) -> bool:
    """Whether a method is called on what is named as a generator of random numbers."""
    owner = dotted(func.value) if isinstance(func, cst.Attribute) else None
    return _GENERATOR.fullmatch((owner or "").rpartition(".")[2]) is not None


_GENERATOR = re.compile(r"_?(?:\w+_)?(?:generator|gen|rng)")


def _default_kind(reader: Reader, factory: cst.BaseExpression) -> Kind:
    """What the factory of a `defaultdict` makes."""
    return EMPTY if reader.resolve(factory) in ("list", "set") else UNKNOWN


_NO_TENSOR = re.compile(
    r"model|net|module|encod|decod|critic|actor|policy|vae|student|teacher|token|inputs|graph|batch|\benc(?:_|\b)",
    re.IGNORECASE,
)
"""What is under a key and has parts of its own, by the key, or is held by what holds models."""


def _is_under_a_key(node: cst.BaseExpression) -> bool:
    """Whether an expression is ``batch["x"]``, one tensor of a batch by its key."""
    if not isinstance(node, cst.Subscript) or len(node.slice) != 1:
        return False
    index = node.slice[0].slice
    if not isinstance(index, cst.Index) or not isinstance(index.value, cst.SimpleString):
        return False
    owner = (dotted(node.value) or "").rpartition(".")[2]
    return _NO_TENSOR.search(index.value.raw_value) is None and "model" not in owner.lower()


def _is_undetermined(kind: Kind) -> bool:
    """Whether nothing is known about a value, or only that it may be a tensor."""
    return (kind.what == "unknown" and not kind.cls) or (kind.maybe_tensor and not kind.sure)
