"""Whether an expression can be a tensor, by its syntax: only then rules need to look at it."""

from __future__ import annotations

from tree_sitter import Node

from pytest_dispatchguard.lint import scout_words as words
from pytest_dispatchguard.lint.facts import Value
from pytest_dispatchguard.lint.scout_state import Reading, Walk, is_self_attribute, parts_of
from pytest_dispatchguard.lint.scout_values import text


def doubt(walk: Walk, node: Node, names: set[str], attributes: set[str]) -> bool:
    """Whether an expression may be a tensor whatever its names are; else it may be one only if one
    of the `names`, or of the `attributes` of self, is, which are added to."""
    kind = node.type
    if kind == "identifier":
        names.add(text(walk.source, node))
        return False
    if kind == "attribute":
        parts = node.named_children
        attribute = text(walk.source, parts[-1])
        if attribute in words.READABLE_TENSOR_ATTRIBUTES:
            return True
        if parts[0].type == "identifier" and text(walk.source, parts[0]) == walk.reading.self_name:
            attributes.add(attribute)
        return False
    if kind == "call":
        return _doubt_of_call(walk, node, names, attributes)
    if kind == "comparison_operator":
        return _doubt_of_comparison(walk, node, names, attributes)
    if kind in (
        "parenthesized_expression",
        "unary_operator",
        "binary_operator",
        "boolean_operator",
        "await",
    ):
        found = False
        for child in node.named_children:
            found = doubt(walk, child, names, attributes) or found
        return found
    if kind == "conditional_expression":
        parts = parts_of(node)
        first = doubt(walk, parts[0], names, attributes)
        return doubt(walk, parts[-1], names, attributes) or first
    if kind == "subscript":
        return doubt(walk, node.named_children[0], names, attributes)
    if kind == "named_expression":
        return doubt(walk, node.named_children[-1], names, attributes)
    return kind in ("yield", "ERROR")


def _doubt_of_call(walk: Walk, node: Node, names: set[str], attributes: set[str]) -> bool:
    callee = node.named_children[0]
    kind = callee.type
    if kind == "identifier":
        name = text(walk.source, callee)
        return not (name in words.HOST_FUNCTIONS or name.startswith(words.HOST_PREFIXES))
    if kind == "attribute":
        parts = callee.named_children
        name = text(walk.source, parts[-1])
        if name in words.HOST_METHODS or name.startswith(words.HOST_PREFIXES):
            return False
        root = parts[0]
        if root.type == "identifier":
            imported = walk.imports.get(text(walk.source, root))
            return imported is None or imported.partition(".")[0] not in words.HOST_PACKAGES
    return True


def _doubt_of_comparison(walk: Walk, node: Node, names: set[str], attributes: set[str]) -> bool:
    for child in node.children:
        if not child.is_named and child.type in ("is", "is not", "in", "not in"):
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
        found = doubt(walk, operand, names, attributes) or found
    return found


def ask(walk: Walk, node: Node, token: str) -> None:
    """Sets the token if the expression may be a tensor, now or when the names in it are known."""
    reading = walk.reading
    if token in reading.looks:
        return
    names: set[str] = set()
    attributes: set[str] = set()
    if doubt(walk, node, names, attributes):
        reading.looks.add(token)
        return
    if names:
        reading.pending.setdefault(token, set()).update(names)
    if attributes:
        reading.pending_self.setdefault(token, set()).update(attributes)


def ask_truth(walk: Walk, node: Node) -> None:
    """Notes that the truth of an expression is asked."""
    kind = node.type
    if kind == "parenthesized_expression":
        for child in node.named_children:
            ask_truth(walk, child)
    elif kind not in ("boolean_operator", "not_operator"):  # they ask for their operands themselves
        ask(walk, node, "truth")


def ask_iterated(walk: Walk, node: Node) -> None:
    """Notes that an expression is iterated or unpacked."""
    if node.type == "call":
        callee = node.named_children[0]
        last = text(
            walk.source, callee.named_children[-1] if callee.type == "attribute" else callee
        )
        if last in words.SEQUENCE_CALLS or last in words.ITERATING_CALLS or last == "range":
            return
    ask(walk, node, "iterate")


def ask_index(walk: Walk, node: Node, token: str) -> None:
    """Sets the token if one of the indices may be a tensor."""
    for index in node.named_children[1:]:
        kind = index.type
        if kind in ("integer", "string", "ellipsis", "none", "true", "false", "comment"):
            continue
        if kind == "unary_operator" and index.children[0].type == "~":
            walk.reading.looks.add(token)
        elif kind in ("slice", "tuple", "list", "expression_list"):
            _index_parts(walk, index, token)
        else:
            ask(walk, index, token)


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
        if value in ("param", "buffer"):
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


def _given_tensor(reading: Reading, name: str, token: str) -> bool:
    """Whether a parameter may be known to be a tensor: by its annotation, by its use, or because `forward` is
    given tensors. Of the others nobody will say so."""
    declared = [v for v in reading.param_values.get(name, ()) if v.startswith("ann:")]
    if token == "sized":  # given as a size it is a number, unless it says that it is not
        return any("Tensor" in value for value in declared)
    fact = reading.fact
    at_forward = fact is not None and fact.name.rpartition(".")[2] == "forward"
    return bool(declared) or at_forward or name in reading.tensor_uses


def may_be_tensor(walk: Walk, reading: Reading, name: str, token: str, seen: set[str]) -> bool:
    """Whether a name may stand for a tensor, by all that is bound to it in the function."""
    if name in seen or name == reading.self_name:
        return False
    seen.add(name)
    bound = reading.bindings.get(name)
    if name in reading.params and name not in reading.hosts and _given_tensor(reading, name, token):
        return True
    if bound is None:
        return token != "sized" and name not in reading.params and not name.isupper()
    for value in bound:
        if isinstance(value, bool):
            if value:
                return True
            continue
        names: set[str] = set()
        attributes: set[str] = set()
        if doubt(walk, value, names, attributes):
            return True
        if any(may_be_tensor(walk, reading, other, token, seen) for other in names):
            return True
        if attributes:
            reading.pending_self.setdefault(token, set()).update(attributes)
    return False
