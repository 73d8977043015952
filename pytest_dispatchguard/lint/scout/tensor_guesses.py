"""Whether an expression can be a tensor, by its syntax: only then rules need to look at it."""

from __future__ import annotations

import re

from tree_sitter import Node

from pytest_dispatchguard.lint.facts import PART, Value
from pytest_dispatchguard.lint.knowledge import tensor_words as words
from pytest_dispatchguard.lint.scout.state import (
    Hinges,
    Reading,
    Walk,
    is_self_attribute,
    parts_of,
)
from pytest_dispatchguard.lint.scout.values import dotted, resolved, text

_HOLDS_TENSORS = re.compile(
    r"ann:(?:[\w.]+\.)?(?!\w*(?:Arg(?:ument)?s|Config\w*|Dict|Enum|Iter\w*|List|Mapping|Mode|Namespace|Options?|"
    r"Params|Path|Sequence|Settings|Size|Spec|State|Tensor|Tuple|Type)$)[A-Z][a-z]\w+"
)
"""An annotation with a class whose instances may have attributes that are tensors."""


def doubt(walk: Walk, node: Node, hinges: Hinges) -> bool:
    """Whether an expression may be a tensor whatever stands in it is; else it may be one only if one of the
    `hinges` is, which are added to."""
    kind = node.type
    if kind == "identifier":
        hinges.names.add(text(walk.source, node))
        return False
    if kind == "attribute":
        parts = node.named_children
        attribute = text(walk.source, parts[-1])
        if attribute in words.READABLE_TENSOR_ATTRIBUTES or words.TENSOR_NAMES.fullmatch(attribute):
            return True
        if parts[0].type != "identifier":
            return False
        owner = text(walk.source, parts[0])
        if owner == walk.reading.self_name:
            hinges.attributes.add(attribute)
            return False
        return any(map(_HOLDS_TENSORS.fullmatch, walk.reading.param_values.get(owner, ())))
    if kind == "call":
        return _doubt_of_call(walk, node, hinges)
    if kind == "comparison_operator":
        return _doubt_of_comparison(walk, node, hinges)
    if kind in (
        "parenthesized_expression",
        "unary_operator",
        "binary_operator",
        "boolean_operator",
        "await",
    ):
        found = False
        for child in node.named_children:
            found = doubt(walk, child, hinges) or found
        return found
    if kind == "conditional_expression":
        parts = parts_of(node)
        first = doubt(walk, parts[0], hinges)
        return doubt(walk, parts[-1], hinges) or first
    if kind == "subscript":
        return doubt(walk, node.named_children[0], hinges)
    if kind == "named_expression":
        return doubt(walk, node.named_children[-1], hinges)
    return kind in ("yield", "ERROR")


_ARRAYS = frozenset(
    "cupy dask jax mlx numpy openvino paddle pandas polars pyarrow scipy sklearn tensorflow xarray".split()
)
REDUCTIONS = frozenset("all amax amin any max mean min norm sum".split())


def knows_other_arrays(walk: Walk) -> bool:
    """Whether a file imports a package whose arrays have methods that tensors have."""
    return not _ARRAYS.isdisjoint(target.partition(".")[0] for target in walk.imports.values())


def _doubt_of_call(walk: Walk, node: Node, hinges: Hinges) -> bool:
    callee = node.named_children[0]
    kind = callee.type
    if kind not in ("identifier", "attribute"):
        return True
    if kind == "attribute" and callee.named_children[0].type in ("list", "tuple"):
        return False
    last = text(walk.source, callee if kind == "identifier" else callee.named_children[-1])
    host = words.HOST_FUNCTIONS if kind == "identifier" else words.HOST_METHODS
    if last in host or last.startswith(words.HOST_PREFIXES):
        return False
    name = dotted(walk.source, callee)
    root = name.partition(".")[0]
    package = walk.imports.get(root, "").partition(".")[0]
    foreign = package != walk.module.partition(".")[0]
    if foreign and package in words.HOST_PACKAGES:
        return False
    if not name or (foreign and package in words.EXTERNAL):
        return True
    reading = walk.reading
    if root in (reading.self_name, "super()") and reading.owner is not None:
        hinges.calls.add(f"{reading.owner.name}.{name}")
    elif root not in reading.params and root not in reading.bindings:
        hinges.calls.add(name)
    elif (
        root == name
        or last in words.CONTAINER_METHODS
        or (last in REDUCTIONS and not knows_other_arrays(walk))
    ):
        return True
    else:
        hinges.receivers.add(root)
    return False


def _doubt_of_comparison(walk: Walk, node: Node, hinges: Hinges) -> bool:
    for child in node.children:
        if not child.is_named and child.type in ("is", "is not", "in", "not in"):
            sides = parts_of(node)
            if not child.type.endswith("in") or len(sides) != 2:
                return False
            if sides[0].type in ("integer", "float"):
                return doubt(walk, sides[1], hinges)  # a number, perhaps in a tensor
            if sides[0].type in ("subscript", "call"):
                return doubt(walk, sides[0], hinges)  # or the other way round
            return False
    operands = parts_of(node)
    for operand in operands:
        if operand.type in (
            "string",
            "none",
            "list",
            "tuple",
            "concatenated_string",
            "dictionary",
            "set",
        ):
            return False
    for operand in operands:
        if operand.type == "attribute" and not is_self_attribute(walk, operand):
            attribute = text(walk.source, operand.named_children[-1])
            if attribute in ("shape", "ndim", "dtype", "device", "name", "__class__", "layout"):
                return False
    found = False
    for operand in operands:
        found = doubt(walk, operand, hinges) or found
    return found


def ask(walk: Walk, node: Node, token: str) -> None:
    """Sets the token if the expression may be a tensor, now or when the names in it are known."""
    reading = walk.reading
    if token in reading.looks:
        return
    if doubt(walk, node, reading.hinges(token)):
        reading.looks.add(token)


def ask_truth(walk: Walk, node: Node) -> None:
    """Notes that the truth of an expression is asked."""
    kind = node.type
    if kind == "parenthesized_expression":
        for child in node.named_children:
            ask_truth(walk, child)
    elif kind not in ("boolean_operator", "not_operator"):  # they ask for their operands themselves
        ask(walk, node, "truth")


def ask_number(walk: Walk, node: Node, token: str) -> None:
    """Notes that Python needs the number of an expression. What is looked up by an index may be a tensor
    whatever holds it."""
    if node.type in ("identifier", "attribute"):
        ask(walk, node, token)
    elif is_long(node) or _LOOKED_UP.search(text(walk.source, node)):
        walk.reading.looks.add(token)
    else:
        ask(walk, node, token)


_LONG = 400


def is_long(node: Node) -> bool:
    """Whether an expression is too long for its text to be searched: of those in one another each would be
    searched again."""
    return node.end_byte - node.start_byte > _LONG


_LOOKED_UP = re.compile(r"(?<!shape)(?<!size\(\))(?<!stride)(?<!stride\(\))(?<!kernel_size)\[")
"""An index, but of what holds numbers of Python."""


def _last(walk: Walk, callee: Node) -> str:
    """The last name of what is called."""
    return text(walk.source, callee.named_children[-1] if callee.type == "attribute" else callee)


def _full(walk: Walk, callee: Node) -> str:
    """The whole name of what is called."""
    return resolved(dotted(walk.source, callee), walk.imports)


def ask_iterated(walk: Walk, node: Node, token: str = "iterate") -> None:
    """Notes that an expression is iterated or unpacked."""
    if node.type == "call":
        last = _last(walk, node.named_children[0])
        if last in words.SEQUENCE_CALLS or last in words.ITERATING_CALLS or last == "range":
            return
    ask(walk, node, token)


_HANDS_ON = frozenset(
    "enumerate itertools.chain itertools.groupby itertools.islice reversed zip".split()
)
"""Functions that give a loop the elements of what they are given."""


def ask_looped(walk: Walk, node: Node) -> None:
    """Notes that a loop or comprehension runs over an expression, or over what hands on its elements."""
    if node.type == "call" and _full(walk, node.named_children[0]) in _HANDS_ON:
        arguments = node.named_children[-1]
        for argument in arguments.named_children if arguments.type == "argument_list" else ():
            if argument.type != "keyword_argument":
                ask_iterated(walk, argument, "looped")
    else:
        ask_iterated(walk, node, "looped")


_SELECTING = ("narrow", "select")
_PIECE = re.compile(
    r"\[[^\[\]]{0,60}?(?:[a-z_]\w{0,40}(?:[^\w\[\],\"'][^\[\],\"']{0,30})?:|:[^\[\],\"']{0,30}[a-z_])"
)
"""Brackets around a piece whose beginning or end has a name: ``x[start:end]``, ``x[:, :n]``."""
_TAKEN_APART = re.compile(r"(?:\b|_)(?:split|unbind)\(")


def ask_counted(walk: Walk, left: Node, right: Node, start: int, end: int) -> None:
    """Notes that what runs in each round of a loop, from `start` to `end`, may take an element by the number
    of the round, or a piece of something, or compare something with that number."""
    looks = walk.reading.looks
    if "counted" in looks:
        return
    written = walk.source[start:end].decode("utf-8", "replace")
    if _PIECE.search(written) or _TAKEN_APART.search(text(walk.source, right)):
        looks.add("counted")
        return
    over = text(walk.source, right.named_children[0]) if right.type == "call" else ""
    if over == "enumerate" and left.named_child_count == 2:
        left = left.named_children[0]
    elif over != "range":
        return
    if any(word in written for word in _SELECTING) or left.type != "identifier":
        looks.add("counted")
        return
    counter = re.escape(text(walk.source, left))
    if re.search(rf"[\w\])]\s*(?:[=!<>]=|[<>])\s*{counter}\b(?!\s*[\[(.])", written):
        looks.add("counted")
        return
    number = re.compile(rf"\b{counter}\b")
    if not number.search(written.partition("[")[2]):
        return
    for found in _SUBSCRIPT.finditer(written):
        base, index = found.groups()
        if number.search(index):
            owner, dot, last = base.rpartition(".")
            if last.endswith(_OF_NUMBERS):
                continue
            if base in ")]" or (dot and owner != walk.reading.self_name):
                looks.add("counted")
                return
            hinges = walk.reading.hinges("counted")
            (hinges.attributes if dot else hinges.names).add(last)
    if number.search(_SUBSCRIPT.sub("", written).partition("[")[2]):
        looks.add("counted")


_OF_NUMBERS = ("shape", "stride", "kernel_size")
"""Ends of the names of what holds numbers of Python."""
_SUBSCRIPT = re.compile(r"((?<![\w.])[\w.]+|[)\]])\[((?:[^\[\]]|\[[^\[\]]*\])*)\]")
"""What is indexed, and by what, with one pair of brackets in it at most."""


def ask_index(walk: Walk, node: Node, token: str) -> None:
    """Sets the token if one of the indices may be a tensor."""
    for index in node.named_children[1:]:
        kind = index.type
        if kind in ("integer", "string", "ellipsis", "none", "true", "false", "comment"):
            continue
        named = kind in ("identifier", "attribute") and _MASK.search(text(walk.source, index)[-64:])
        if named or (kind == "unary_operator" and index.children[0].type == "~"):
            walk.reading.looks.add(token)
        elif kind in ("slice", "tuple", "list", "expression_list"):
            _index_parts(walk, index, token)
        else:
            ask(walk, index, token)


_MASK = re.compile(r"(?:^|[._])(?:masks?|is_[a-z_]+|valid)$")
"""The name of a mask, whatever is known of it."""


def _index_parts(walk: Walk, index: Node, token: str) -> None:
    for part in index.named_children:
        if part.type in ("slice", "tuple"):
            _index_parts(walk, part, token)
        else:
            ask(walk, part, token)


def ask_comprehended(walk: Walk, generator: Node, last: str) -> None:
    """``any(x > 0 for x in …)`` asks the truth of every element."""
    if last in ("any", "all") and generator.named_child_count:
        ask_truth(walk, generator.named_children[0])


def may_be_tensor_attribute(attributes: dict[str, list[Value]], name: str, token: str) -> bool:
    """Whether an attribute of self may be a tensor (or, where it is sliced, a list of modules)."""
    for value in attributes.get(name, ()):
        if value in ("param", "buffer", "built", "tensor"):
            return True
        if value.startswith("ann:") and "Tensor" in value:
            return True
        if value.startswith("call:torch."):
            if token == "subscript":
                return True
            if not value.startswith(("call:torch.nn.", "call:torch.device", "call:torch.jit")):
                return True
        if value.startswith("call:") and token == "subscript" and "ModuleList" in value:
            return True
    return False


def _given_tensor(reading: Reading, name: str, sized: bool) -> bool:
    """Whether a parameter may be known to be a tensor: by its annotation, by its use or by a test, or because
    `forward` is given tensors. Of the others nobody will say so."""
    declared = [v for v in reading.param_values.get(name, ()) if v.startswith("ann:")]
    if sized:  # given as a size it is a number, unless it says that it is not
        return any("Tensor" in value for value in declared)
    fact = reading.fact
    at_forward = fact is not None and fact.name.rpartition(".")[2] == "forward"
    told = (
        words.TENSOR_NAMES.fullmatch(name) is not None
        or name in reading.tensor_uses
        or name in reading.tested_open
        or name in said_to_be_tensors(reading)
    )
    return bool(declared) or at_forward or told


_DOCUMENTED_PARAMETER = re.compile(
    r"^[ \t]*(?::param[ \t]+)?[`*]{0,2}(\w+)[`*]{0,2}[ \t]*(?:[(:]|[ \t]-)[ \t]*:?(?:class:|obj:)?[`~]{0,3}"
    r"(?:torch\.)?(?:Float|Long|Bool|Int|Half|cuda\.)?(?:Float)?Tensor\b(?![ \t]*(?:or|\||,[ "
    r"\t]*(?:list|int|float)))",
    re.MULTILINE,
)


def said_to_be_tensors(reading: Reading) -> frozenset[str]:
    """The parameters that the documentation of a function says are tensors."""
    if reading.documented is None:
        found = _DOCUMENTED_PARAMETER.findall(reading.document)
        reading.documented = frozenset(found) & reading.params
    return reading.documented


def counts(walk: Walk, reading: Reading, token: str) -> bool:
    """Whether a token counts for what is bound to the names it hinges on; what else it hinges on for them is
    added to its hinges."""
    hinges = reading.pending[token]
    return _any_may_be(walk, reading, hinges, hinges, token == "sized", set()) or any(
        _is_local(reading, call) for call in hinges.calls
    )


_Asked = set[tuple[str, bool]]


def _any_may_be(
    walk: Walk, reading: Reading, those: Hinges, hinges: Hinges, sized: bool, asked: _Asked
) -> bool:
    return any(
        _may_be(walk, reading, name, hinges, sized, asked) for name in sorted(those.names)
    ) or any(_may_be(walk, reading, name, hinges, False, asked) for name in sorted(those.receivers))


def _may_be(
    walk: Walk, reading: Reading, name: str, hinges: Hinges, sized: bool, asked: _Asked
) -> bool:
    """Whether a name may stand for a tensor, by all that is bound to it in the function."""
    if (name, sized) in asked or name == reading.self_name:
        return False
    asked.add((name, sized))
    bound = reading.bindings.get(name)
    in_params = name in reading.params
    if in_params and name not in reading.hosts and _given_tensor(reading, name, sized):
        return True
    if bound is None:
        return not (sized or in_params) and _is_plain_global(walk, name)
    told = name in reading.tensor_uses or name in reading.tested_open or name in reading.declared
    if _parts_may_be(walk, reading, name, bound, hinges, asked):
        return True
    for value in bound:
        if isinstance(value, bool):
            continue
        inner = Hinges()
        if doubt(walk, value, inner):
            return True
        if told and (inner.names or inner.receivers or inner.calls):
            return True
        if _any_may_be(walk, reading, inner, hinges, sized, asked):
            return True
        hinges.attributes |= inner.attributes
        hinges.calls |= inner.calls
    return False


def _parts_may_be(
    walk: Walk,
    reading: Reading,
    name: str,
    bound: list[Node | bool],
    hinges: Hinges,
    asked: _Asked,
) -> bool:
    """Whether one of the unknown values of a name may be a tensor: parts of something else, where that is
    known."""
    taken = reading.taken.get(name, ())
    unknown = sum(value is True for value in bound)
    return unknown > len(taken) or any(
        _part_may_be(walk, reading, whole, hinges, asked) for whole in taken
    )


def _part_may_be(walk: Walk, reading: Reading, whole: Node, hinges: Hinges, asked: _Asked) -> bool:
    """Whether a part of an expression may be a tensor: an element, or one of an element."""
    kind, parts = whole.type, whole.named_children
    if kind == "identifier":
        return _element_may_be(walk, reading, text(walk.source, whole), hinges, asked)
    if kind == "attribute":
        return not text(walk.source, parts[-1]).endswith(_OF_NUMBERS)
    if kind == "call":
        return _part_of_call_may_be(walk, reading, whole, hinges, asked)
    if kind in ("subscript", "parenthesized_expression"):
        return _part_may_be(walk, reading, parts[0], hinges, asked)
    if kind in ("binary_operator", "conditional_expression"):
        return any(_part_may_be(walk, reading, part, hinges, asked) for part in parts)
    if kind in ("tuple", "list", "expression_list"):
        inner = Hinges()
        surely = [doubt(walk, part, inner) for part in parts]
        hinges.attributes |= inner.attributes
        hinges.calls |= inner.calls
        return any(surely) or _any_may_be(walk, reading, inner, hinges, False, asked)
    return kind not in ("integer", "float", "string", "none", "true", "false")


_GIVES_ELEMENTS = frozenset("list tuple sorted reversed enumerate zip".split())


def _part_of_call_may_be(
    walk: Walk, reading: Reading, call: Node, hinges: Hinges, asked: _Asked
) -> bool:
    """Whether a part of what a call gives may be a tensor: an element of an argument, or what the function
    says that it returns."""
    callee, arguments = call.named_children[0], call.named_children[-1]
    if callee.type == "identifier" and text(walk.source, callee) in _GIVES_ELEMENTS:
        given = arguments.named_children if arguments.type == "argument_list" else ()
        return any(_part_may_be(walk, reading, one, hinges, asked) for one in given)
    inner = Hinges()
    if _doubt_of_call(walk, call, inner):
        return True
    hinges.calls |= {f"{name}{PART}" for name in inner.calls}
    return any(_may_be(walk, reading, name, hinges, False, asked) for name in inner.receivers)


_FILLING = ("append", "extend", "insert")


def _element_may_be(walk: Walk, reading: Reading, name: str, hinges: Hinges, asked: _Asked) -> bool:
    """Whether an element of what a name stands for may be a tensor."""
    key = (f"{name}[]", False)
    if key in asked:
        return False
    asked.add(key)
    bound = reading.bindings.get(name)
    in_params = name in reading.params
    if in_params and (name in reading.hosts or _given_tensor(reading, name, False)):
        return name not in reading.hosts
    if bound is None:
        return not in_params and _is_plain_global(walk, name)
    if any((f"{name}.{method}", "call") in reading.calls for method in _FILLING):
        return True
    return _parts_may_be(walk, reading, name, bound, hinges, asked) or any(
        _part_may_be(walk, reading, value, hinges, asked)
        for value in bound
        if not isinstance(value, bool)
    )


def _is_plain_global(walk: Walk, name: str) -> bool:
    """Whether a name of the file may be bound to a tensor there: it is neither imported nor written as
    constants are."""
    return not name.isupper() and (name not in walk.imports or name in walk.facts.assigns)


def _is_local(reading: Reading, call: str) -> bool:
    """Whether what is called belongs to the function alone, so that the project says nothing of it."""
    root = call.partition(".")[0]
    return root in reading.params or root in reading.bindings
