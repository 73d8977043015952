"""What libcst would die of is known before it reads it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_dispatchguard.lint.syntax.nesting import too_deep

NESTED: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: "(" * n + "x" + ")" * n,
    "lists": lambda n: "[" * n + "x" + "]" * n,
    "tables": lambda n: "{1: " * n + "x" + "}" * n,
    "arguments": lambda n: "f(" * n + "x" + ")" * n,
    "indices": lambda n: "x[" * n + "0" + "]" * n,
    "awaits": lambda n: "(await " * n + "x" + ")" * n,
    "yields": lambda n: "(yield " * n + "x" + ")" * n,
    "generators": lambda n: "(y for y in " * n + "x" + ")" * n,
    "f-strings": lambda n: "f'{" * n + "x" + "}'" * n,
    "defaults": lambda n: "lambda a=" * n + "x" + ": x" * n,
}
CHAINED: dict[str, Callable[[int], str]] = {
    "attributes": lambda n: "x" + ".a" * n,
    "calls": lambda n: "x" + "()" * n,
    "subscripts": lambda n: "x" + "[0]" * (n // 2),
    "sums": lambda n: "x" + " + x" * n,
    "powers": lambda n: "x" + "**x" * n,
    "signs": lambda n: "-" * n + "x",
    "nots": lambda n: "not " * n + "x",
    "ands": lambda n: "x" + " and x" * n,
    "ternaries": lambda n: "x if x else " * n + "x",
    "lambdas": lambda n: "lambda: " * n + "x",
    "strings": lambda n: "'a'" + " 'a'" * 3 * n,
    "clauses": lambda n: "[x" + " for x in x" * n + "]",
}
FLAT: dict[str, Callable[[int], str]] = {
    "elements": lambda n: "[" + "x, " * n + "]",
    "arguments": lambda n: "f(" + "x, " * n + ")",
    "comparisons": lambda n: "x" + " < x" * n,
    "brackets side by side": lambda n: "[" + "(x), " * n + "]",
}


def function(expression: str) -> str:
    return f"async def f(x):\n    return {expression}\n"


@pytest.mark.parametrize("kind", NESTED)
def test_brackets_in_brackets(kind: str) -> None:
    assert not too_deep(function(NESTED[kind](95)))
    assert too_deep(function(NESTED[kind](230)))


@pytest.mark.parametrize("kind", CHAINED)
def test_long_chains(kind: str) -> None:
    assert not too_deep(function(CHAINED[kind](400)))
    assert too_deep(function(CHAINED[kind](700)))


@pytest.mark.parametrize("kind", FLAT)
def test_what_is_long_is_not_deep(kind: str) -> None:
    assert not too_deep(function(FLAT[kind](20_000)))


def test_one_kind_within_another() -> None:
    chain = CHAINED["sums"](450)
    assert not too_deep(function(f"({chain})"))
    assert too_deep(function("(" * 80 + chain + ")" * 80))


def test_brackets_in_text_hide_nothing() -> None:
    assert too_deep(function("f(')', " * 230 + "x" + ")" * 230))
    assert not too_deep(function("'" + "(" * 500 + "'"))


def test_branches_in_a_row() -> None:
    branches = "".join("    elif x:\n        pass\n" for _ in range(700))
    assert too_deep(f"def f(x):\n    if x:\n        pass\n{branches}")


@pytest.mark.parametrize(
    ("begin", "end", "most"), [("[", "]", 12), ("A(b=", ")", 12), ("{1: ", "}", 6)]
)
def test_patterns_each_level_of_which_doubles_the_time(begin: str, end: str, most: int) -> None:
    def match(levels: int) -> str:
        pattern = begin * levels + "y" + end * levels
        return f"def f(x):\n    match x:\n        case {pattern}:\n            pass\n"

    assert not too_deep(match(most))
    assert too_deep(match(most + 1))


def test_what_tree_sitter_cannot_read_is_measured_by_python() -> None:
    odd = "def f(x):\n    print >>x, 1\n    return "
    assert too_deep(odd + NESTED["parentheses"](230))
    assert not too_deep("def f(x):\n    ((a, b)) = x,\n    return " + "(x), " * 200)
