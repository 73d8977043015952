"""Turns an expression that is given on the command line into a call to take apart."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, TypeGuard

from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.runtime.target import compiled, reporting_errors


def call_of(expression: str, names: dict[str, Any], folder: Path) -> Call:
    """The call that an expression makes. The function and arguments of a plain call, ``f(x, axis=-1)``, are
    evaluated once, beforehand; other expressions, ``x + y`` or ``f(g(x))``, are evaluated whole every
    time."""
    expression = expression.strip()
    compiled(expression, "TARGET", "eval")
    tree = ast.parse(expression, mode="eval").body
    with reporting_errors(expression, folder):
        call = _made(tree, names) if _is_plain(tree) else _evaluating(expression, names)
        call.once()()
    return call


def _is_plain(tree: ast.expr) -> TypeGuard[ast.Call]:
    """Whether an expression is a single call with names and constants."""
    if not isinstance(tree, ast.Call):
        return False
    given = [tree.func, *tree.args, *(keyword.value for keyword in tree.keywords)]
    return all(isinstance(node, _PLAIN) for value in given for node in ast.walk(value))


_PLAIN = (
    *(ast.Name, ast.Attribute, ast.Constant, ast.Starred, ast.expr_context),
    *(ast.Tuple, ast.List, ast.Dict, ast.UnaryOp, ast.unaryop),
)


def _made(tree: ast.Call, names: dict[str, Any]) -> Call:
    def value(node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "<target>", "eval"), names)

    args: list[Any] = []
    for node in tree.args:
        if isinstance(node, ast.Starred):
            args += value(node.value)
        else:
            args.append(value(node))
    kwargs: dict[str, Any] = {}
    for keyword in tree.keywords:
        kwargs |= (
            value(keyword.value) if keyword.arg is None else {keyword.arg: value(keyword.value)}
        )
    return Call(value(tree.func), tuple(args), kwargs)


def _evaluating(expression: str, names: dict[str, Any]) -> Call:
    scope = dict(names)
    exec(
        compile(f"def expression():\n    return ({expression}\n)", "<target>", "exec"),
        scope,
    )
    return Call(scope["expression"])
