"""Fixes of checks of values: `torch._assert_async` checks on the device."""

from __future__ import annotations

import json

import libcst as cst

from pytest_dispatchguard import Fix, Place

from ...syntax import head_comment, small_statements
from ..waits import Asked
from .device_conditions import host_before, operand, truth_on_device

_CHECK = "torch._assert_async"


def checked_on_device(who: Asked, place: Place) -> Fix | None:
    """The check as an assertion on the device; None where a part of its condition or of what it says has to
    stay on the host."""
    if place.scene.tries:
        return None  # what fails later is not caught there
    if isinstance(who.by, cst.Assert):
        holds = truth_on_device(who.by.test, False, place)
        said = _literal(who.by.msg, place)
        if holds is None or said is None or "\n" in holds:
            return None
        return _fix([(who.by, _call(holds, said))], place)
    if isinstance(who.by, cst.If) and who.by is place.statement:
        return _of_branch(who.by, place)
    return None


def _of_branch(branch: cst.If, place: Place) -> Fix | None:
    """The same of `if wrong: raise …`; what the host asks first, it goes on to ask."""
    inside = list(small_statements(branch.body))
    if branch.orelse is not None or len(inside) != 1 or not isinstance(inside[0], cst.Raise):
        return None
    raised = inside[0].exc
    given = raised.args if isinstance(raised, cst.Call) else ()
    if len(given) > 1 or any(a.star or a.keyword for a in given):
        return None
    said = _literal(given[0].value if given else None, place)
    host, asked = host_before(branch.test, place)
    holds = [truth_on_device(part, True, place) for part in asked]
    known = [text for text in holds if text is not None]
    if said is None or len(known) != len(holds) or any("\n" in text for text in known):
        return None
    together = known[0] if len(known) == 1 else " | ".join(map(operand, known))
    call = _call(together, said)
    if host is None:
        comment = head_comment(branch)
        if place.text(branch).count("#") > comment.count("#"):
            return None
        return _fix([(branch, f"{call}  {comment}".rstrip())], place)
    return _fix([(branch.test, place.text(host)), (inside[0], call)], place)


def _fix(pairs: list[tuple[cst.CSTNode, str]], place: Place) -> Fix:
    return place.edits(
        pairs,
        safety="unsafe",
        message="Check on the device; fails later, as a RuntimeError without values in its text, after which "
        "CUDA works no more",
        imports=("import torch",),
    )


def _call(holds: str, said: str) -> str:
    return f"{_CHECK}({holds}, {said})" if said else f"{_CHECK}({holds})"


def _literal(node: cst.BaseExpression | None, place: Place) -> str | None:
    """What a check says, without asking any value for it: empty where it says nothing, None where all it says
    is worked out."""
    if node is None:
        return ""
    if isinstance(node, cst.SimpleString):
        return place.text(node) if isinstance(node.evaluated_value, str) else None
    if isinstance(node, cst.FormattedString | cst.ConcatenatedString):
        text = _written(node, place)
        return None if text is None else json.dumps(text, ensure_ascii=False)
    return None


def _written(node: cst.BaseExpression, place: Place) -> str | None:
    """The text of a literal, with dots for what an f-string would fill in."""
    if isinstance(node, cst.SimpleString):
        value = node.evaluated_value
        return value if isinstance(value, str) else None
    if isinstance(node, cst.ConcatenatedString):
        parts = (_written(node.left, place), _written(node.right, place))
        return None if None in parts else "".join(part or "" for part in parts)
    if not isinstance(node, cst.FormattedString) or "r" in node.start.lower():
        return None
    found = ""
    for part in node.parts:
        if isinstance(part, cst.FormattedStringText):
            if "\\" in part.value:
                return None
            found += part.value.replace("{{", "{").replace("}}", "}")
        elif isinstance(part, cst.FormattedStringExpression):
            found += "…"
    return found
