"""Ignore comments: whatever the statement, the comment suppresses the finding and changes no code."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.edits import apply_edits, split_lines
from pytest_dispatchguard.lint.results.ignore_comments import ignore_comment
from pytest_dispatchguard.lint.results.suppressions import read
from pytest_dispatchguard.model.findings import Finding, Span

STATEMENTS = (
    "x.item()",
    "x.item()  # why",
    "x.item()  # noqa: E501",
    "x.item()   ",
    "y = f(\n        x,\n        z,\n    )",
    "y = 1 + \\\n        x",
    'y = f"""a\n    b {x}\n"""',
    "if x.any():\n        pass",
    "for i in x:\n        pass",
    "with f(x), \\\n            g(x):\n        pass",
    "x.item()  # dispatchguard: ignore[DG101]",
    "x.item()  # dispatchguard: ignore[DG101, DG102] -- why",
    "# alone\n    x.item()",
)


def found(line: int, column: int) -> Finding:
    span = Span(line, column, line, column + 1)
    return Finding("DG401", "rule", "a.py", span, "f", "m")


def commented(text: str, finding: Finding) -> str:
    edit = ignore_comment(text, finding)
    assert edit is not None
    return apply_edits(text, [edit])


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("x.item()", "x.item()  # dispatchguard: ignore[DG401]"),
        ("x.item()  # why", "x.item()  # why  # dispatchguard: ignore[DG401]"),
        (
            "x.item()  # dispatchguard: ignore[DG101] -- so",
            "x.item()  # dispatchguard: ignore[DG101, DG401] -- so",
        ),
    ],
)
def test_where_the_comment_goes(line: str, after: str) -> None:
    text = f"def f(x):\n    {line}\n"
    assert commented(text, found(2, 5)) == f"def f(x):\n    {after}\n"


def test_a_line_of_its_own_ends_as_the_others_do() -> None:
    text = 'def f(x):\r\n    y = f"""a\r\n    b {x}\r\n    """ + \\\r\n        x\r\n'
    after = commented(text, found(3, 8))
    assert after.count("\r\n") == after.count("\n")


@given(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=5), st.data())
def test_whatever_the_statement(statements: list[str], data: st.DataObject) -> None:
    text = "def f(x):\n" + "".join(f"    {statement}\n" for statement in statements)
    lines = split_lines(text, keepends=False)
    at = data.draw(st.sampled_from([n for n, line in enumerate(lines, 1) if "x" in line]))
    finding = found(at, lines[at - 1].index("x") + 1)
    after = commented(text, finding)
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(text))
    moved = len(split_lines(after)) - len(lines)
    assert moved in (0, 1)
    known = {"DG401": True}
    place = found(at + moved, finding.span.column)
    applied = read(after).apply([place], path="a.py", ran=known, known=known)
    assert [f.code for f in applied.suppressed] == ["DG401"]
