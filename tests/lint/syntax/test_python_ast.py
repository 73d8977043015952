"""A text as Python itself reads it."""

from __future__ import annotations

import ast
import warnings

import pytest

from pytest_dispatchguard.lint.syntax.python_ast import parsed, with_newlines


def test_lines_end_as_they_do_for_python() -> None:
    assert with_newlines("a\rb\r\nc\n\rd") == "a\nb\r\nc\n\nd"


def test_a_mark_and_odd_escapes_are_no_matter() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ast.unparse(parsed("\ufeffx = '\\d'\n")) == "x = '\\\\d'"


@pytest.mark.parametrize("text", ["x = (", "x\0", "\ud800 = 1"])
def test_what_is_no_python_raises(text: str) -> None:
    with pytest.raises((SyntaxError, ValueError)):
        parsed(text)
