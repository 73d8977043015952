"""Conditions on the version of torch, which the releases of today decide."""

from __future__ import annotations

import ast
import re

from pytest_dispatchguard.lint.knowledge.counters import dotted

_OLDEST = (2, 1)
"""The oldest release that counts: what runs with older ones only is cold."""
_TORCH_VERSION = re.compile(r"_*(?:py)?torch_?version_?|_*version_?(?:py)?torch", re.IGNORECASE)
_NUMBER = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.\w+)*")


def runs_with_old_torch(left: ast.expr, op: ast.cmpop, right: ast.expr) -> tuple[bool, bool]:
    """Of ``version.parse(torch.__version__) >= version.parse("1.8")``: whether what runs when it is true, and
    when it is false, runs with releases of torch only that nobody has any more."""
    if not _is_version_of_torch(left):
        return False, False
    asked = _version(right)
    if asked is None or asked > _OLDEST:
        return False, False
    if isinstance(op, (ast.Lt, ast.LtE)):
        return asked < _OLDEST or isinstance(op, ast.Lt), False
    if isinstance(op, (ast.Gt, ast.GtE)):
        return False, asked < _OLDEST or isinstance(op, ast.GtE)
    return False, False


def _is_version_of_torch(node: ast.expr) -> bool:
    """``torch.__version__``, as it is, parsed, or split into numbers."""
    while True:
        if (
            isinstance(node, ast.Call)
            and len(node.args) == 1
            and not isinstance(node.func, ast.Attribute)
        ):
            node = node.args[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.args[0] if len(node.args) == 1 and _parses(node.func) else node.func.value
        elif isinstance(node, ast.Subscript):
            node = node.value
        else:
            break
    name = dotted(node)
    if name in ("torch.__version__", "torch.version.__version__"):
        return True
    return _TORCH_VERSION.fullmatch(name.rpartition(".")[2]) is not None


def _parses(function: ast.Attribute) -> bool:
    return function.attr.lower() in ("parse", "version", "looseversion", "strictversion")


def _version(node: ast.expr) -> tuple[int, int] | None:
    """The first two numbers of a version that is written down; None for anything else."""
    if isinstance(node, ast.Call) and len(node.args) == 1:
        return _version(node.args[0])
    if isinstance(node, (ast.Tuple, ast.List)):
        numbers = [e.value for e in node.elts if isinstance(e, ast.Constant)]
        if len(numbers) < len(node.elts) or not numbers:
            return None
        text = ".".join(str(number) for number in numbers)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (str, float)):
        text = str(node.value)
    else:
        return None
    found = _NUMBER.fullmatch(text)
    return (int(found[1]), int(found[2] or 0)) if found is not None else None
