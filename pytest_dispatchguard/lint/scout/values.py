"""What an expression is, as the words of `facts.Value`, read off its syntax."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from tree_sitter import Node

from pytest_dispatchguard.lint.facts import CPU, DEFAULT, Value

_DOTTED = re.compile(r"(?:super\(\)\.)?[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_STRINGS = re.compile(r"""^[rbuRBU]*(['"])(.*)\1$""", re.DOTALL)

_LITERALS: dict[str, Value] = {
    "integer": "int",
    "float": "float",
    "true": "bool",
    "false": "bool",
    "none": "none",
    "string": "str",
    "concatenated_string": "str",
    "tuple": "tuple",
    "expression_list": "tuple",
    "list": "list",
    "list_comprehension": "list",
    "dictionary": "dict",
    "dictionary_comprehension": "dict",
    "lambda": "function",
    "not_operator": "bool",
}
_PARAMETERS = frozenset(
    {
        "torch.nn.Parameter",
        "torch.nn.parameter.Parameter",
        "torch.nn.UninitializedParameter",
        "torch.nn.parameter.UninitializedParameter",
    }
)
_BUFFERS = frozenset({"torch.nn.Buffer", "torch.nn.parameter.Buffer"})


def text(source: bytes, node: Node) -> str:
    """The source text of a node."""
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def dotted(source: bytes, node: Node) -> str:
    """``a.b.c`` or ``super().m`` as written, without spaces; empty for any other expression."""
    kind = node.type
    if kind == "identifier":
        return text(source, node)
    if kind != "attribute":
        return ""
    written = text(source, node)
    if _DOTTED.fullmatch(written):
        return written
    if written.startswith("super("):
        head, _, rest = written.partition(").")
        if "(" not in head[6:] and rest and _NAME.fullmatch(rest):
            return f"super().{rest}"
    if "(" in written or "[" in written or '"' in written or "'" in written or "{" in written:
        return ""
    squeezed = re.sub(r"\\\n|#[^\n]*|\s+", "", written)
    return squeezed if _DOTTED.fullmatch(squeezed) else ""


def resolved(name: str, imports: Mapping[str, str]) -> str:
    """The dotted name with its first part replaced by what it was imported as."""
    root, dot, rest = name.partition(".")
    target = imports.get(root)
    return name if target is None else target + dot + rest


def annotation(source: bytes, node: Node, imports: Mapping[str, str]) -> Value:
    """``ann:`` and the text of an annotation, quotes removed and imported names resolved."""
    return f"ann:{annotation_text(text(source, node), imports)}"


def annotation_text(written: str, imports: Mapping[str, str]) -> str:
    """The text of an annotation with quotes removed and imported names resolved."""
    quoted = _STRINGS.match(written)
    if quoted:
        written = quoted.group(2)
    elif "Literal" not in written:
        written = written.replace('"', "").replace("'", "")
    flat = " ".join(written.split())
    if "Literal[" in flat:
        return flat
    return _NAME.sub(lambda match: resolved(match.group(), imports), flat)


_PLAIN = re.compile(r"None|True|False|-?\d{1,6}(?:\.\d{1,4})?|'[\w.-]{0,24}'|\"[\w.-]{0,24}\"")


PLAIN_KINDS = frozenset("none true false integer float string unary_operator".split())
"""Kinds of nodes that may be plain literals."""
_OF_OPTIONS = frozenset("true false integer float string".split())
"""Those that the defaults of options are, but for None."""


def plain_literal(source: bytes, node: Node) -> str:
    """A short literal as written, empty for any other expression."""
    if node.end_byte - node.start_byte > 26:
        return ""
    written = text(source, node)
    return written if _PLAIN.fullmatch(written) else ""


def _call_value(
    source: bytes, node: Node, imports: Mapping[str, str], local: frozenset[str]
) -> Value:
    callee = node.child_by_field_name("function")
    name = dotted(source, callee) if callee is not None else ""
    if not name or name.partition(".")[0] in local:
        return "unknown"
    full = resolved(name, imports)
    if full in _PARAMETERS:
        return "param"
    if full in _BUFFERS:
        return "buffer"
    return f"call:{full}"


_FACTORIES = frozenset(
    """arange as_tensor asarray empty eye from_numpy full hamming_window hann_window linspace logspace ones
    rand randint randn randperm tensor tril_indices triu_indices zeros BoolTensor DoubleTensor FloatTensor
    HalfTensor IntTensor LongTensor Tensor""".split()
)
"""Functions of torch that make tensors on the CPU, unless they are told a device."""
_FACTORY = re.compile(rf"call:torch\.(?:{'|'.join(sorted(_FACTORIES))})$")
_KEEPING = frozenset(
    """abs bfloat16 bool clamp clone contiguous cos cumprod cumsum detach double exp expand flatten flip float
    half int log long mean mul neg permute pow reciprocal repeat requires_grad_ reshape round rsqrt short sin
    sqrt square squeeze sum t tanh transpose tril triu unsqueeze view""".split()
)
"""Methods whose result is where their tensor is."""
_MOVING = frozenset({"cuda", "to", "type_as"})
_DTYPE = re.compile(
    r"(?:dtype=)?torch\.(?:b?float\d*|bfloat16|bool|double|half|u?int\d*|long|short|complex\d+)"
)
_CPU = re.compile(r"""(?:device=)?(?:torch\.device\()?["']cpu["']\)?""")
BUILT, PLACED, NUMBER = "built", "tensor", "number"


_DEEPEST = 12
_HOP = 3
"""What it takes of that to follow a name: each may stand several times in what it is given."""
_MAY_BE_TENSORS = frozenset(
    "attribute binary_operator call identifier parenthesized_expression subscript unary_operator".split()
)


Held = Callable[[str], "Node | Value"]
"""What a local name, or an attribute of self, was given: an expression, or a word; an empty word where that
is not known, or more than one."""


def _nothing(name: str) -> Value:
    return ""


def _tensor_word(
    source: bytes,
    node: Node,
    imports: Mapping[str, str],
    held: Held = _nothing,
    depth: int = _DEEPEST,
) -> Value:
    """The word for what factories of torch make, and functions, methods, indices and arithmetic make of that:
    `built` on the CPU, or a `tensor` on some device; empty for anything else."""
    kind = node.type
    if kind not in _MAY_BE_TENSORS or not depth:
        return ""

    def word(part: Node) -> Value:
        return _tensor_word(source, part, imports, held, depth - 1)

    if kind in ("identifier", "attribute"):
        found = held(dotted(source, node))
        if isinstance(found, str):
            return found
        return _tensor_word(source, found, imports, held, max(0, depth - _HOP))
    if kind in ("parenthesized_expression", "unary_operator", "subscript"):
        return word(node.named_children[0]) if node.named_child_count else ""
    if kind == "binary_operator":
        return _joined(word(side) for side in node.named_children if side.type != "comment")
    if kind != "call":
        return ""
    callee = node.named_children[0]
    package, _, last = resolved(dotted(source, callee), imports).rpartition(".")
    if package == "torch":
        given = node.named_children[-1].named_children
        if last not in _FACTORIES:
            return _joined(map(word, given[:1])) if last in _KEEPING else ""
        told = [one for one in _given(source, node) if one.startswith("device=")]
        return BUILT if all(map(_CPU.match, told)) else PLACED
    if callee.type != "attribute":
        return ""
    method = text(source, callee.named_children[-1])
    if method not in _MOVING and method not in _KEEPING:
        return ""
    owner = word(callee.named_children[0])
    if method in _MOVING and owner:
        moved = _given(source, node)
        stays = method == "to" and moved and all(map(_DTYPE.fullmatch, moved))
        return owner if stays else PLACED
    return owner if method in _KEEPING else ""


def word_of_all(words: Iterable[Value]) -> Value:
    """The word for tensors that all of these words stand for; empty where one of them stands for anything
    else."""
    found = {_FACTORY.sub(BUILT, word) for word in words}
    return _joined(found) if found and found <= {BUILT, PLACED} else ""


def _joined(words: Iterable[Value]) -> Value:
    found = set(words)
    return PLACED if PLACED in found else BUILT if BUILT in found else ""


def _given(source: bytes, call: Node) -> list[str]:
    """The arguments of a call, as they are written."""
    return [text(source, argument) for argument in call.named_children[-1].named_children]


def _brings_to_cpu(source: bytes, call: Node) -> bool:
    """Whether ``x.cpu()`` or ``x.to("cpu")`` is called."""
    if b"cpu" not in source[call.start_byte : call.end_byte]:
        return False
    callee = call.named_children[0]
    if callee.type != "attribute":
        return False
    method, given = text(source, callee.named_children[-1]), _given(source, call)
    if method == "cpu":
        return not given
    return method == "to" and any(map(_CPU.fullmatch, given))


_ARRAY: Value = "ann:numpy.ndarray"


def _calls_method(source: bytes, call: Node, method: str) -> bool:
    """Whether a method is called without arguments: ``x.item()``."""
    callee, given = call.named_children[0], call.named_children[-1]
    return (
        callee.type == "attribute"
        and not given.named_child_count
        and text(source, callee.named_children[-1]) == method
    )


_ITSELF = frozenset(
    "bfloat16 cpu cuda double eval float half requires_grad_ to to_empty train".split()
)
"""Methods of modules that give the module itself."""


def _same_object(source: bytes, call: Node) -> Node | None:
    """The call of a class whose object these methods give again: `Head()` of `Head().to(device).eval()`."""
    callee = call.named_children[0]
    while callee.type == "attribute" and text(source, callee.named_children[-1]) in _ITSELF:
        call = callee.named_children[0]
        if call.type != "call":
            return None
        callee = call.named_children[0]
    name = dotted(source, callee).rpartition(".")[2]
    return call if name[:1].isupper() else None


_MOST_ENTRIES = 16


def _entries(
    source: bytes, node: Node, imports: Mapping[str, str], local: frozenset[str]
) -> list[Value]:
    """What a dict that is written down holds, where that has names: functions perhaps, to be called."""
    found: list[Value] = []
    for pair in node.named_children:
        value = pair.child_by_field_name("value") if pair.type == "pair" else None
        name = dotted(source, value) if value is not None else ""
        if name and name.partition(".")[0] not in local - {"self"}:
            found.append(f"item:{resolved(name, imports)}")
    return found[:_MOST_ENTRIES]


def table_read(source: bytes, node: Node) -> Node | None:
    """The name of what an entry is taken from, with brackets or `get`: a table of functions perhaps."""
    if node.type == "call":
        callee = node.named_children[0]
        got = callee.type == "attribute" and text(source, callee.named_children[-1]) == "get"
        table = callee.named_children[0] if got else None
    else:
        table = node.named_children[0] if node.type == "subscript" else None
    return table if table is not None and dotted(source, table) else None


def default_word(source: bytes, default: Node) -> list[Value]:
    """The word for the default of an option, if it is some text, a number or a flag."""
    literal = plain_literal(source, default) if default.type in _OF_OPTIONS else ""
    return [DEFAULT + literal] if literal else []


def _default_taken(source: bytes, call: Node, given: Sequence[Node]) -> list[Value]:
    """The default of an option that is looked up: of ``getattr(config, "kind", "mean")``, and of
    ``options.get("scale", 1.0)``."""
    if not 2 <= len(given) <= 3 or given[-2].type != "string":
        return []
    word = default_word(source, given[-1])
    callee = text(source, call.named_children[0]) if word else ""
    looks_up = callee == "getattr" if len(given) == 3 else callee.endswith(".get")
    return word if looks_up else []


def _values_of_call(
    source: bytes, node: Node, imports: Mapping[str, str], local: frozenset[str], held: Held
) -> list[Value]:
    if _calls_method(source, node, "item"):
        return [NUMBER]
    if _calls_method(source, node, "numpy"):
        return [_ARRAY]
    if _brings_to_cpu(source, node):
        return [BUILT if _tensor_word(source, node, imports, held) else CPU]
    found = _call_value(source, node, imports, local)
    given = node.named_children[-1].named_children
    name = dotted(source, given[0]) if found == "call:functools.partial" and given else ""
    if name and name.partition(".")[0] not in local - {"self"}:
        return ["function", f"item:{resolved(name, imports)}"]
    word = _tensor_word(source, node, imports, held)
    if not word and found == "unknown":
        made_by = _same_object(source, node)
        found = _call_value(source, made_by, imports, local) if made_by is not None else found
    made = found.removeprefix("call:torch.") in _FACTORIES
    said = word if word and (not made or word == PLACED) else found
    return [said, *_default_taken(source, node, given)]


def values(
    source: bytes,
    node: Node,
    imports: Mapping[str, str],
    local: frozenset[str] = frozenset(),
    held: Held = _nothing,
) -> list[Value]:
    """What the expression may be, one word for each possibility; names in `local` say nothing, but that what
    is computed of what they hold is a tensor."""
    kind = node.type
    literal = _LITERALS.get(kind)
    if literal is not None:
        return (
            [literal, *_entries(source, node, imports, local)] if literal == "dict" else [literal]
        )
    if kind == "call":
        return _values_of_call(source, node, imports, local, held)
    if kind == "subscript" and node.named_children[0].type == "dictionary":
        return ["unknown", *_entries(source, node.named_children[0], imports, local)]
    if kind in ("identifier", "attribute"):
        name = dotted(source, node)
        if name and name.partition(".")[0] not in local:
            return [f"name:{resolved(name, imports)}"]
        return ["unknown"]
    if kind in ("parenthesized_expression", "await") and node.named_child_count:
        return values(source, node.named_children[-1], imports, local, held)
    if kind == "conditional_expression":
        parts = [c for c in node.named_children if c.type != "comment"]
        if len(parts) == 3:
            return [
                *values(source, parts[0], imports, local, held),
                *values(source, parts[2], imports, local, held),
            ]
    if kind == "boolean_operator":
        operands = [c for c in node.named_children if c.type != "comment"]
        return [word for part in operands for word in values(source, part, imports, local, held)]
    if kind == "unary_operator" and node.named_child_count:
        inner = values(source, node.named_children[-1], imports, local, held)
        if inner[0] in ("int", "float"):
            return inner
    if kind == "comparison_operator":
        words = {c.type for c in node.children}
        if words & {"is", "is not", "in", "not in"}:
            return ["bool"]
    return [_tensor_word(source, node, imports, held) or "unknown"]
