"""The fix of DG604: a log call that leaves formatting to the logger."""

from __future__ import annotations

import re

import libcst as cst

from pytest_dispatchguard import Fix, Place

_GETTERS = ("getLogger", "get_logger", "_get_logger")
_FLOAT_SPEC = re.compile(r"\.\d+[feg]")


def values_in(node: cst.BaseExpression) -> list[cst.FormattedStringExpression]:
    """The expressions that an f-string formats."""
    if not isinstance(node, cst.FormattedString):
        return []
    return [p for p in node.parts if isinstance(p, cst.FormattedStringExpression)]


def literals(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The single literals of an implicitly concatenated string."""
    if isinstance(node, cst.ConcatenatedString):
        return [*literals(node.left), *literals(node.right)]
    return [node]


def lazy_call(node: cst.Call, place: Place) -> Fix | None:
    """The same call with `%s` and the values behind the text; None where that is not exact "
    "enough."""
    receiver = place.receiver(node)
    if not isinstance(receiver, cst.Name):
        return None
    values = place.global_values(receiver.value)
    standard = any(v.rpartition(".")[2] in _GETTERS for v in values if v.startswith("call:"))
    if not (standard or place.name(node).startswith("logging.")):
        return None
    if any(a.keyword is None or a.star for a in node.args[1:]):
        return None
    message = node.args[0].value
    if isinstance(message, cst.BinaryOperation):
        return _lazy_modulo(message, place)
    edits: list[tuple[cst.CSTNode, str]] = []
    given: list[str] = []
    for part in literals(message):
        if isinstance(part, cst.FormattedString):
            converted = _percent(part, place, given)
            if converted is None:
                return None
            edits.append((part, converted))
        elif isinstance(part, cst.SimpleString):
            if "b" in part.prefix.lower():
                return None
            if "%" in part.raw_value:
                text = part.prefix + part.quote + part.raw_value.replace("%", "%%") + part.quote
                edits.append((part, text))
        else:
            return None
    if not given or message.lpar:
        return None
    last_part, last_text = edits[-1]
    end = literals(message)[-1]
    values_text = "".join(f", {g}" for g in given)
    if last_part is end:
        edits[-1] = (last_part, last_text + values_text)
    else:
        edits.append((end, place.text(end) + values_text))
    return place.edits(
        edits,
        safety="unsafe",
        message="let the logger format the text and report format errors",
    )


def _percent(node: cst.FormattedString, place: Place, given: list[str]) -> str | None:
    """An f-string as a string with `%` in the places of its values, which go into `given`."""
    out = []
    for part in node.parts:
        if isinstance(part, cst.FormattedStringText):
            out.append(part.value.replace("{{", "{").replace("}}", "}").replace("%", "%%"))
            continue
        assert isinstance(part, cst.FormattedStringExpression)
        simple = cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.BinaryOperation
        if part.equal is not None or not isinstance(part.expression, simple):
            return None
        spec = ""
        if part.format_spec is not None:
            pieces = list(part.format_spec)
            if len(pieces) != 1 or not isinstance(pieces[0], cst.FormattedStringText):
                return None
            spec = pieces[0].value
        if part.conversion is not None:
            if spec or part.conversion not in ("r", "s", "a"):
                return None
            out.append(f"%{part.conversion}")
        elif not spec:
            out.append("%s")
        elif _FLOAT_SPEC.fullmatch(spec):
            out.append(f"%{spec}")
        else:
            return None
        given.append(place.text(part.expression))
    prefix = node.start.rstrip("\"'").replace("f", "").replace("F", "")
    quote = node.end
    return prefix + quote + "".join(out) + quote


def _lazy_modulo(node: cst.BinaryOperation, place: Place) -> Fix | None:
    right = node.right
    if not isinstance(right, cst.Tuple) or node.lpar or not right.elements:
        return None
    if any(isinstance(e, cst.StarredElement) for e in right.elements):
        return None
    values = "".join(f", {place.text(e.value)}" for e in right.elements)
    return place.replace(
        node,
        place.text(node.left) + values,
        safety="unsafe",
        message="let the logger format the text and report format errors",
    )
