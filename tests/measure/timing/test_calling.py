"""Calls have the exact form that the test wrote."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.measure.timing.calling import Call

KEYWORDS = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(
    lambda word: not __import__("keyword").iskeyword(word)
)


@given(st.lists(st.integers(), max_size=12), st.dictionaries(KEYWORDS, st.integers(), max_size=8))
def test_all_arguments_arrive(args: list[int], kwargs: dict[str, int]) -> None:
    def echo(*a: Any, **k: Any) -> Any:
        return a, k

    assert Call(echo, args, kwargs).once()() == (tuple(args), kwargs)


def test_names_of_ours_are_no_trouble() -> None:
    def echo(f: int, a0: int, k0: int, run: int, make: int) -> tuple[int, ...]:
        return f, a0, k0, run, make

    assert Call(echo, [1], {"a0": 2, "k0": 3, "run": 4, "make": 5}).once()() == (1, 2, 3, 4, 5)


def test_no_star_stands_between() -> None:
    run = Call(max, [1, 2], {"key": abs}).once()
    assert "CALL_FUNCTION_EX" not in [i.opname for i in __import__("dis").get_instructions(run)]
