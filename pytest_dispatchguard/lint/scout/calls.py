"""The scout at calls, attributes and subscripts."""

from __future__ import annotations

import re

from tree_sitter import Node

from pytest_dispatchguard.lint.facts import (
    COMPARING_CALLS,
    COPYING_CALLS,
    NUMBER_CALLS,
    SIZED_CALLS,
    SIZED_METHODS,
    UNNAMED,
    CallFact,
    is_distinctive,
)
from pytest_dispatchguard.lint.knowledge import tensor_words as words
from pytest_dispatchguard.lint.knowledge.entry_points import FORWARDS, NO_OPERATIONS, OPERATIONS
from pytest_dispatchguard.lint.scout.state import (
    Handler,
    Reading,
    Walk,
    add_values,
    is_self_attribute,
    local_values,
    note,
    note_call,
    visit,
    visit_children,
)
from pytest_dispatchguard.lint.scout.tensor_guesses import (
    REDUCTIONS,
    ask,
    ask_comprehended,
    ask_index,
    ask_iterated,
    ask_number,
    ask_truth,
    is_long,
    knows_other_arrays,
)
from pytest_dispatchguard.lint.scout.values import dotted, resolved, text

_TORCH_ROOTS = ("torch", "torch.nn.functional", "torch.special", "torch.linalg", "torch.functional")


_OPTIMIZER = re.compile(r"opt|scaler", re.IGNORECASE)
"""What takes a step with each batch, other than a schedule."""


_CONSTANT = re.compile(r"\b(?:_*[A-Z][A-Z0-9_]*|__\w+__)\b")
"""A name that is written as those of constants are."""


_SENDS = re.compile(
    r"remote|\w*_rpc|rpc_(?:sync|async)|(?:call|execute|foreach|invoke|run)_"
    r"\w*(?:actor|all|each|method|rank|worker)\w*"
)
"""What has a method run elsewhere, by the name that it is given: `workers.run_all("train_on_batch", x)`."""


def _call(walk: Walk, node: Node) -> None:
    call_as(walk, node, "call")


def call_as(walk: Walk, node: Node, how: str) -> None:
    """Read a call, and note it with that `how` of `CallFact`."""
    looks = walk.reading.looks
    parts = node.named_children
    callee, arguments = parts[0], parts[-1]
    last = _callee(walk, node, callee, arguments, how)
    looks.add("call")
    if last:
        looks.add(f"call:{last}")
        if walk.loop:
            looks.add(f"loop:{last}")
    if arguments.type != "argument_list":
        if last in words.ITERATING_CALLS and callee.type == "identifier":
            ask_comprehended(walk, arguments, last)
        visit(walk, arguments)
        return
    given = arguments.named_children
    if given and given[0].type == "string" and _SENDS.fullmatch(last):
        method = text(walk.source, given[0]).strip("\"'")
        if method.isidentifier() and is_distinctive(method):
            note_call(walk, f"{UNNAMED}.{method}", "call", node)
    if given and last in _ASKED_CALLS:
        _ask_given(walk, last, callee, given)
    if last and len(given) < 4:
        looks.add(f"call{len(given)}:{last}")
    if last in SIZED_CALLS and "sized" not in looks:
        _ask_sizes(walk, last, callee, given)
    if last in _CALLS_OF_NOTE or (given and last in words.TORCH_OPS):
        call_of_note(walk, last, callee, given)
    if (
        given
        and given[0].type == "identifier"
        and text(walk.source, given[0]) == walk.reading.self_name
    ):
        looks.add(f"self:{last}")
    for argument in given:
        _argument(walk, argument)


def _callee(walk: Walk, node: Node, callee: Node, arguments: Node, how: str) -> str:
    """Read what is called; the last part of its name, empty where it has none."""
    source, reading = walk.source, walk.reading
    kind = callee.type
    if kind == "identifier":
        name = text(source, callee)
        reading.looks.add(f"bare:{name}")
        _note_origin(walk, name, name)
        note_call(walk, name, how, node)
        reading.arguments.setdefault(name, []).append(arguments)
        return name
    if kind == "attribute":
        named = callee.named_children
        owner = named[0]
        last = text(source, named[-1])
        name = dotted(source, callee)
        _note_origin(walk, name.partition(".")[0], last, method=True)
        if name:
            note_call(walk, name, how, node)
            reading.arguments.setdefault(name, []).append(arguments)
        elif is_distinctive(last) and last not in words.TENSOR_METHODS:
            note_call(walk, f"{UNNAMED}.{last}", how, node)
        if owner.type == "identifier":
            if name.startswith("math."):
                for argument in arguments.named_children:
                    ask_number(walk, argument, "math-call")
            if last in words.TENSOR_METHODS:
                _note_tensor_method(walk, text(source, owner), last, arguments)
            elif last in words.ARRAY_METHODS and (
                _is_forward(reading) or _names_a_dimension(walk, arguments)
            ):
                note_tensor_use(walk, text(source, owner))
            elif last in words.NO_TENSOR_METHODS:
                reading.no_tensors.add(text(source, owner))
        else:
            if owner.type == "attribute":
                _note_tensor_of_param(walk, dotted(source, owner), last)
            visit(walk, owner)
        return last
    if kind in ("call", "parenthesized_expression"):
        reading.looks.add("made-call")
    if kind == "subscript":  # of a table of functions
        table = dotted(source, callee.named_children[0])
        if table:
            note_call(walk, table, how, node)
    elif kind == "call":
        _note_made_name(walk, callee, how)
    visit(walk, callee)
    return ""


def _note_origin(walk: Walk, root: str, last: str, *, method: bool = False) -> None:
    """Notes whether a call may be one of something imported, and whether it may be torch's or a method of a
    value: where all names of a module are imported, or a name of the file is assigned, it may be either."""
    reading = walk.reading
    if walk.star or root in walk.facts.assigns:
        reading.looks.update((f"imported:{last}", f"torch:{last}"))
    elif root in walk.imports and root not in reading.bindings and root not in reading.params:
        reading.looks.add(f"imported:{last}")
        if root in walk.torch_names:
            reading.looks.add(f"torch:{last}")
    elif method:
        reading.looks.add(f"torch:{last}")


def _argument(walk: Walk, argument: Node) -> None:
    passed = walk.reading.passed
    kind = argument.type
    if kind == "keyword_argument":
        argument = argument.named_children[-1]
        kind = argument.type
    elif kind == "list_splat":
        ask_iterated(walk, argument.named_children[-1])
    if kind == "identifier":
        note(passed, text(walk.source, argument), "passed", argument, walk.loop > 0)
    elif kind == "attribute":
        name = dotted(walk.source, argument)
        if name:
            note(passed, name, "passed", argument, walk.loop > 0)
        _attribute(walk, argument)
    else:
        visit(walk, argument)


def _note_made_name(walk: Walk, callee: Node, how: str) -> None:
    """Notes a call of ``getattr(self, f"forward_{mode}")(…)``, by the beginning of the name, and of
    ``getattr(self, "forward_" + mode)(…)``."""
    parts = callee.named_children
    given = parts[-1].named_children if parts[-1].type == "argument_list" else []
    if text(walk.source, parts[0]) != "getattr" or len(given) < 2:
        return
    name = given[1]
    while name.type == "binary_operator":
        name = name.named_children[0]
    owner, inside = dotted(walk.source, given[0]), name.named_children
    if owner != walk.reading.self_name or name.type != "string" or len(inside) < 2:
        return
    begins = text(walk.source, inside[1]) if inside[1].type == "string_content" else ""
    made = name is not given[1] or len(inside) > 3
    if made and len(begins) > 2 and begins.isidentifier():
        note_call(walk, f"{owner}.{begins}*", how, callee)


_REGISTRATIONS = frozenset(
    {"register_buffer", "register_parameter", "add_module", "register_module", "setattr"}
)
REMEMBERED = _REGISTRATIONS | words.HOOKS
"""Calls that leave something behind, which other functions meet."""

_CALLS_OF_NOTE = (
    words.TYPE_TESTS
    | words.ITERATING_CALLS
    | {"bool", "backward", "remove", "step"}
    | REMEMBERED
    | words.REGISTERING
)


_PLAIN_TYPES = re.compile(
    r"[\s(]*(?:(?:int|float|complex|bool|str|bytes|list|tuple|dict|set|frozenset|range|slice)\b[\s(),|]*)+"
)
"""The second argument of `isinstance` that asks for plain values and containers of Python alone."""
_ASKED_CALLS = NUMBER_CALLS | COMPARING_CALLS | {"any", "all", "prod"}


def _ask_given(walk: Walk, last: str, callee: Node, given: list[Node]) -> None:
    """Notes what is given to a builtin that reads numbers, where that may be a tensor, and to a product."""
    first, looks = given[0], walk.reading.looks
    if last == "prod":
        if len(given) == 1 and (is_long(first) or _SHAPE.search(text(walk.source, first))):
            looks.add("shape-product")
    elif callee.type != "identifier":
        return
    elif last in NUMBER_CALLS:
        if len(given) == 1:
            ask_number(walk, first, "number")
    elif last in COMPARING_CALLS:
        if len(given) > 1:
            for argument in given:
                ask_number(walk, argument, "compared")
        else:
            looks.add("compared")
    elif first.type != "list_comprehension":
        looks.add(f"whole:{last}")


_SHAPE = re.compile(r"\bshape\b|\bsize\b")


_NO_SIZES = frozenset("device dtype layout requires_grad out generator pin_memory".split())
"""Keywords of calls that take sizes, for something else."""


def _ask_sizes(walk: Walk, last: str, callee: Node, given: list[Node]) -> None:
    """Notes that a size or bound may be a tensor."""
    bare = callee.type == "identifier"
    if last == "range":
        if not bare:
            return
    else:
        root = dotted(walk.source, callee).partition(".")[0]
        imported = root in walk.imports
        # Methods of values, and functions of torch: `torch.reshape(x, …)` takes the tensor first.
        if (
            (bare or imported)
            if last in SIZED_METHODS
            else imported and root not in walk.torch_names
        ):
            return
    for argument in given[last == "pad" :]:  # what is padded is no size
        if argument.type == "keyword_argument":
            if text(walk.source, argument.named_children[0]) in _NO_SIZES:
                continue
            argument = argument.named_children[-1]
        parts = argument.named_children if argument.type in ("tuple", "list") else [argument]
        for part in parts:
            ask(walk, part, "sized")


def call_of_note(walk: Walk, last: str, callee: Node, given: list[Node]) -> None:
    """Reads a call that tells something by its name."""
    reading = walk.reading
    bare = callee.type == "identifier"
    if last == "backward" or (last == "step" and _OPTIMIZER.search(text(walk.source, callee))):
        reading.trains.add(last)
    if last in ("backward", "step") and walk.loop:
        if last == "backward":
            reading.backward = True
        else:
            reading.step = True
        if walk.rounds and (last == "backward" or _OPTIMIZER.search(text(walk.source, callee))):
            reading.step_rounds.setdefault(walk.rounds, set()).add(last)
    if not given:
        if last == "remove":
            reading.removes = True
        return
    first = given[0]
    if last in words.REGISTERING and first.type == "string":
        values = [a.named_children[-1] if a.type == "keyword_argument" else a for a in given]
        texts = [text(walk.source, value) for value in values]
        if (last == "impl" or "::" in texts[0]) and not any(
            map(words.NEVER_TIMED.fullmatch, texts)
        ):
            named = zip(values, texts, strict=True)
            walk.operations.update(name for value, name in named if value.type == "identifier")
    if last in words.HOOKS:
        for handed in given if last == "saved_tensors_hooks" else given[:1]:
            _note_hook(walk, handed)
    if last == "step" and _OPTIMIZER.search(text(walk.source, callee)):
        closure = first.named_children[-1] if first.type == "keyword_argument" else first
        if closure.type == "identifier" and text(walk.source, closure) in reading.nested:
            _note_hook(walk, closure, "hook-closure")
    if last in words.TYPE_TESTS and first.type in ("identifier", "attribute"):
        name = dotted(walk.source, first)
        reading.tested.add(name)
        if last != "isinstance" or not _PLAIN_TYPES.fullmatch(text(walk.source, given[-1])):
            reading.tested_open.add(name)
    if bare and last in COPYING_CALLS and "constant-copy" not in reading.looks:
        written = walk.source[first.start_byte : given[-1].end_byte]
        if _CONSTANT.search(written.decode("utf-8", "replace")):
            reading.looks.add("constant-copy")
    if bare and last in words.ITERATING_CALLS:
        for argument in given:
            if argument.type in ("identifier", "call", "subscript", "attribute", "binary_operator"):
                ask_iterated(walk, argument)
            elif argument.type in ("generator_expression", "list_comprehension"):
                ask_comprehended(walk, argument, last)
    elif bare and last == "bool":
        ask_truth(walk, first)
    elif last in _REGISTRATIONS:
        _note_registration(walk, last, callee, given)
    if last in words.TORCH_OPS and first.type in ("identifier", "attribute"):
        root = resolved(dotted(walk.source, callee), walk.imports).rpartition(".")[0]
        if root in _TORCH_ROOTS:
            _note_given_to_torch(walk, first)


def _note_given_to_torch(walk: Walk, node: Node) -> None:
    """Notes that a name, or an attribute of a parameter, is what only a tensor can be."""
    name = dotted(walk.source, node)
    if node.type == "identifier":
        note_tensor_use(walk, name)
    elif _is_of_param(walk, name):
        walk.reading.tensor_uses.add(name)


def _note_hook(walk: Walk, handed: Node, how: str = "hook") -> None:
    """Notes what is handed to torch to be called back: a function, ``partial(function, …)``, or what a call
    gives."""
    if handed.type == "call":
        callee, arguments = handed.named_children[0], handed.named_children[-1]
        parts = arguments.named_children if arguments.type == "argument_list" else []
        if dotted(walk.source, callee).rpartition(".")[2] == "partial" and parts:
            handed = parts[0]
        else:
            handed, how = callee, "hook-factory"
    name = dotted(walk.source, handed)
    if name and walk.reading.fact is not None:
        walk.reading.hooks.append(CallFact(name, handed.start_point[0] + 1, False, how))


def note_patch(walk: Walk, target: Node, value: Node) -> None:
    """Notes a function that is put in place of an operation, by its name, of a module or class that is
    imported, or of a `forward`."""
    owner, _, last = dotted(walk.source, target).rpartition(".")
    if walk.reading.fact is None or not owner:
        return
    imported = owner.partition(".")[0] in walk.imports
    computes = OPERATIONS.search(last) and not NO_OPERATIONS.search(last)
    if not FORWARDS.fullmatch(last) and not (imported and computes):
        return
    if value.type == "call":
        callee, arguments = value.named_children[0], value.named_children[-1]
        given = arguments.named_children if arguments.type == "argument_list" else []
        wraps = dotted(walk.source, callee).rpartition(".")[2] in ("MethodType", "partial")
        if not wraps or not given:
            return
        value = given[0]
    name = dotted(walk.source, value)
    if name:
        place = value.start_point[0] + 1
        walk.reading.hooks.append(CallFact(name, place, False, "hook-patch"))


def _note_registration(walk: Walk, last: str, callee: Node, given: list[Node]) -> None:
    owner, reading = walk.reading.owner, walk.reading
    if owner is None:
        return
    if last == "setattr":
        if len(given) < 3 or text(walk.source, given[0]) != reading.self_name:
            return
        given = given[1:]
    elif not dotted(walk.source, callee).startswith(f"{reading.self_name}."):
        return
    if given[0].type != "string":
        return
    name = "".join(
        text(walk.source, part) for part in given[0].named_children if part.type == "string_content"
    )
    if not name.isidentifier():
        return
    value = given[1] if len(given) > 1 else None
    if value is not None and value.type == "keyword_argument":
        value = value.named_children[-1]
    if value is not None and value.type == "none":
        add_values(owner.attrs, name, ["none"])
    elif last == "register_buffer":
        add_values(owner.attrs, name, ["buffer"])
    elif last == "register_parameter":
        add_values(owner.attrs, name, ["param"])
    else:
        add_values(
            owner.attrs, name, local_values(walk, value) if value is not None else ["unknown"]
        )


def _is_forward(reading: Reading) -> bool:
    """Whether a method is the `forward` of a class: arrays there are tensors, in a file that uses torch."""
    return (
        reading.owner is not None
        and reading.fact is not None
        and (reading.fact.name == f"{reading.owner.name}.forward")
    )


def _names_a_dimension(walk: Walk, arguments: Node) -> bool:
    """Whether a method is told its dimension by the word that only torch has for it, and by a number."""
    return any(
        argument.type == "keyword_argument"
        and text(walk.source, argument.named_children[0]) in ("dim", "keepdim")
        and argument.named_children[-1].type != "string"
        for argument in arguments.named_children
    )


def _note_tensor_method(walk: Walk, name: str, method: str, arguments: Node) -> None:
    if method == "backward" and arguments.named_child_count:
        return
    if method == "view" and arguments.named_child_count == 1:
        # `array.view(np.uint8)` is NumPy's, `x.view(-1)` and `x.view(shape)` are tensors'.
        only = arguments.named_children[0]
        if only.type == "attribute" and text(walk.source, only).startswith(
            ("np.", "numpy.", "jnp.")
        ):
            return
    note_tensor_use(walk, name)


def note_tensor_use(walk: Walk, name: str) -> None:
    """Notes that a name is used as only a tensor can be."""
    reading = walk.reading
    if name in reading.params:
        if name not in reading.bindings:
            reading.tensor_uses.add(name)
    elif name in reading.bindings:
        reading.tensor_uses.add(name)


_NO_TENSORS = re.compile(
    r"(?:\w*_)?(?:args|cfg|conf|config|df|frame|opt|opts|options|settings|table)\d?"
)
"""Parameters whose attributes are no tensors, or columns of a table, by their names."""


def _is_of_param(walk: Walk, name: str) -> bool:
    """Whether a name is that of an attribute of a parameter which may hold tensors."""
    root, _, attribute = name.partition(".")
    if not attribute or "." in attribute or root not in walk.reading.params:
        return False
    return root != walk.reading.self_name and _NO_TENSORS.fullmatch(root) is None


def _note_tensor_of_param(walk: Walk, name: str, method: str) -> None:
    """Notes that `data.natoms` of a parameter is used as only a tensor can be: `data.natoms.max()`, where a
    file knows no other arrays."""
    if not _is_of_param(walk, name):
        return
    reduces = method in REDUCTIONS | {"cumsum"} and not knows_other_arrays(walk)
    if method in words.TENSOR_METHODS or reduces:
        walk.reading.tensor_uses.add(name)


def _attribute(walk: Walk, node: Node) -> None:
    source, reading = walk.source, walk.reading
    parts = node.named_children
    owner = parts[0]
    attribute = text(source, parts[-1])
    reading.looks.add(f"attr:{attribute}")
    if owner.type == "identifier":
        name = text(source, owner)
        if name == reading.self_name:
            note(reading.reads, f"{name}.{attribute}", "read", node, walk.loop > 0)
        elif attribute in words.TENSOR_ATTRIBUTES:
            note_tensor_use(walk, name)
        elif attribute in words.TENSOR_PAIR:
            reading.pairs.add((name, attribute))
            if all((name, one) in reading.pairs for one in words.TENSOR_PAIR):
                note_tensor_use(walk, name)
    else:
        visit(walk, owner)


def _subscript(walk: Walk, node: Node) -> None:
    reading = walk.reading
    base = node.named_children[0]
    by_axes = base.type == "identifier" and _is_by_axes(node)
    if by_axes and (_is_forward(reading) or not knows_other_arrays(walk)):
        note_tensor_use(walk, text(walk.source, base))
    if any(may_be_list(walk, part) for part in node.named_children[1:]):
        reading.looks.add("list-index")
    if "subscript" not in reading.looks:
        parts = node.named_children
        ask_index(walk, node, "subscript")
        if (
            parts[-1].type == "slice"
            and parts[0].type == "attribute"
            and is_self_attribute(walk, parts[0])
        ):
            # A slice of a ModuleList builds a new one.
            sliced = text(walk.source, parts[0].named_children[-1])
            reading.hinges("subscript").attributes.add(sliced)
    visit_children(walk, node)


def _is_by_axes(node: Node) -> bool:
    """Whether several axes are indexed, with a whole piece of one: `x[:, 0]`, `x[..., None]`."""
    indices = node.named_children[1:]
    return len(indices) > 1 and any(index.type in ("slice", "ellipsis") for index in indices)


def may_be_list(walk: Walk, index: Node) -> bool:
    """Whether an index is a list or an array, or a name that may hold one."""
    reading = walk.reading
    if index.type != "identifier":
        return index.type == "list" or _is_array(walk, index)
    name = text(walk.source, index)
    if any(_LIST.match(value) for value in reading.param_values.get(name, ())):
        return True
    return any(
        not isinstance(value, bool)
        and (value.type in ("list", "list_comprehension") or _is_array(walk, value))
        for value in reading.bindings.get(name, ())
    )


def _is_array(walk: Walk, node: Node) -> bool:
    """Whether an expression is a call of NumPy."""
    if node.type != "call":
        return False
    root = dotted(walk.source, node.named_children[0]).partition(".")[0]
    return walk.imports.get(root, "").partition(".")[0] == "numpy"


_LIST = re.compile(r"ann:(?:(?:typing\.)?[Ll]ist|(?:np|numpy)\.ndarray)\b")


HANDLERS: dict[str, Handler] = {
    "attribute": _attribute,
    "call": _call,
    "subscript": _subscript,
}
