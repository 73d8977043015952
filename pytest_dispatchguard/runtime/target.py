"""Runs what the user names on the command line: setup code, and an expression that sees its names."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import CodeType
from typing import Any

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.runtime.compiled.counts import failure
from pytest_dispatchguard.runtime.torch_private import compiler


def prepared(target: str, setup: str, folder: Path) -> tuple[CodeType, dict[str, Any]]:
    """The code of the expression, and its namespace after running the setup."""
    return compiled(target, "TARGET", "eval"), names_after(setup, folder)


def names_after(setup: str, folder: Path, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The namespace after running setup code, with the names that are given to it."""
    names: dict[str, Any] = {"__name__": "__main__", **(given or {})}
    first = compiled(setup, "--setup", "exec")
    with reporting_errors("--setup", folder):
        exec(first, names)
    return names


def run(code: CodeType, names: dict[str, Any], folder: Path) -> None:
    """Evaluates the expression."""
    with reporting_errors("TARGET", folder):
        eval(code, names)


def compiled(text: str, where: str, mode: str) -> CodeType:
    """Compiles Python code; syntax errors become one line, and so does a file where code is wanted."""
    if mode == "eval" and text.strip().endswith(".py"):
        raise UserError(
            f"{where}: {text.strip()} is a file: name an expression that calls something, such as "
            f"'f(x)', and import f in --setup"
        )
    try:
        return compile(text, f"<{where.strip('-')}>", mode)
    except (SyntaxError, ValueError) as error:
        said = getattr(error, "msg", None) or str(error)
        wanted = "an expression" if mode == "eval" else "Python code"
        raise UserError(f"{where} must be {wanted}: {said}: {text.strip()!r}") from None


@contextmanager
def reporting_errors(where: str, folder: Path) -> Iterator[None]:
    """Sends the output of user code to stderr, and turns its exceptions into one line."""
    sys.path.insert(0, str(folder))
    try:
        with redirect_stdout(sys.stderr):
            yield
    except UserError:
        raise  # its message is fine as it is
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code raises is told
        known = failure(error)
        lines = str(error).strip().splitlines()
        said = str(known) if known else f"{type(error).__name__}: {lines[0] if lines else ''}"
        raise UserError(f"{where}: {said.rstrip(': ')}") from None
    finally:
        if sys.path[:1] == [str(folder)]:
            del sys.path[0]


def need_compiler() -> None:
    """Raises if torch's compiler is missing, or too old for reading its guards."""
    try:
        found = compiler.load_compiler()
    except ImportError as error:
        raise UserError(f"guards are those of torch.compile, which is not here: {error}") from None
    if not found:
        raise UserError("guards are told apart from torch 2.8 on: install a newer torch")
