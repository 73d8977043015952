"""What people name to have it taken apart: an expression, or a test, as calls that can be made."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, TypeGuard

from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.runtime.target import compiled, told


def names_test(target: str) -> bool:
    """Whether a target is a test, ``tests/test_add.py::test_wide``, and no expression."""
    return target.partition("::")[0].endswith(".py")


def call_of(expression: str, names: dict[str, Any], folder: Path) -> Call:
    """The call that an expression makes. The function of a plain call, ``f(x, axis=-1)``, and what it is
    given are found once, beforehand; another expression, ``x + y`` or ``f(g(x))``, is evaluated whole every
    time."""
    expression = expression.strip()
    compiled(expression, "TARGET", "eval")
    tree = ast.parse(expression, mode="eval").body
    with told(expression, folder):
        call = _made(tree, names) if _is_plain(tree) else _evaluating(expression, names)
        call.once()()
    return call


def _is_plain(tree: ast.expr) -> TypeGuard[ast.Call]:
    """Whether nothing is done but a call of names and constants."""
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


class _Subjects:
    """A plugin of pytest that hands on the subjects of tests, while these stand."""

    def __init__(self, use: Callable[[str, Any], None]) -> None:
        self.use = use
        self.wrong: list[str] = []
        self.skipped: list[str] = []
        self.found = 0

    def plugin(self) -> Any:
        """The hooks; pytest is imported only for them."""
        import pytest

        from pytest_dispatchguard.measure.workers.worker import made_quiet

        said = self

        class Hooks:
            @pytest.hookimpl(tryfirst=True)
            def pytest_cmdline_main(self, config: Any) -> None:
                made_quiet(config)

            @pytest.hookimpl(hookwrapper=True)
            def pytest_runtest_call(self, item: Any) -> Any:
                outcome = yield
                if outcome.excinfo is None and "overhead" in item.fixturenames:
                    for subject in item._request.getfixturevalue("overhead").subjects:
                        said.found += 1
                        said.use(item.nodeid, subject)

            def pytest_runtest_logreport(self, report: Any) -> None:
                if report.failed:
                    said.wrong.append(f"{report.nodeid}: {_last_line(report.longreprtext)}")
                elif report.skipped:
                    said.skipped.append(report.longrepr[2].removeprefix("Skipped: "))

            def pytest_collectreport(self, report: Any) -> None:
                if report.failed:
                    said.wrong.append(f"{report.nodeid}: {_last_line(report.longreprtext)}")

        return Hooks()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line[2:].strip() for line in lines if line.startswith("E ")]
    return errors[0] if errors else lines[-1] if lines else "it fails"


def each_subject(test: str, use: Callable[[str, Any], None]) -> None:
    """Runs tests, and hands on the subjects that each names, with its name."""
    import pytest

    subjects = _Subjects(use)
    arguments = ["-p", "no:cacheprovider", test]
    environment = dict(os.environ)
    try:
        with redirect_stdout(StringIO()) as said, redirect_stderr(said):
            status = pytest.main(arguments, plugins=[subjects.plugin()])
    finally:
        os.environ.clear()
        os.environ.update(environment)
    if subjects.wrong:
        raise UserError(subjects.wrong[0])
    if subjects.found:
        return
    errors = [line for line in said.getvalue().splitlines() if line.startswith("ERROR: ")]
    if subjects.skipped:
        raise UserError(f"{test}: it is skipped: {subjects.skipped[0]}")
    if errors and "not found" not in errors[0]:
        raise UserError(f"{test}: pytest says: {errors[0].removeprefix('ERROR: ')}")
    known = "there is no such test" if status else "it names no subject: call overhead(...)"
    raise UserError(f"{test}: {known}")
