"""The source of what a frame runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from pytest_dispatchguard.runtime.code.source_text import Place, columns, place_in, shown, text_at

needs_columns = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python keeps no columns")


class Value:
    """Keeps where it was asked for something."""

    def __init__(self) -> None:
        self.place: Place | None = None

    def ask(self) -> Value:
        self._note(sys._getframe(1))
        return self

    def __bool__(self) -> bool:
        self._note(sys._getframe(1))
        return True

    def _note(self, frame: FrameType) -> None:
        self.place = place_in(frame)


def calls(value: Value) -> None:
    other = [1, value.ask(), "ä"]
    assert other


def asks_a_call(value: Value) -> None:
    if value is not None and value.ask():
        pass


def asks_a_name(value: Value) -> None:
    while value:
        break


def asserts(value: Value) -> None:
    assert value, "never"


def either(value: Value) -> object:
    return value or None


def spread(value: Value) -> None:
    first, second = "ä", value.ask(
    )  # fmt: skip
    assert first and second is value


@needs_columns
@pytest.mark.parametrize(
    ("run", "text"),
    [
        (calls, "value.ask()"),
        (asks_a_call, "value.ask()"),
        (asks_a_name, "value"),
        (asserts, "value"),
        (either, "value"),
        (spread, "value.ask( )"),
    ],
)
def test_the_expression_that_runs_is_known(run: Callable[[Value], object], text: str) -> None:
    value = Value()
    run(value)
    assert value.place is not None
    assert shown(__file__, value.place) == text


@needs_columns
def test_columns_are_of_characters() -> None:
    value = Value()
    spread(value)
    assert value.place is not None
    assert columns(__file__, value.place) == (26, 6)
    assert text_at(__file__, value.place) == "value.ask(\n    )"


def test_the_line_serves_where_no_columns_are_known() -> None:
    line = calls.__code__.co_firstlineno + 1
    assert shown(__file__, Place(line)) == 'other = [1, value.ask(), "ä"]'
    assert columns(__file__, Place(line)) is None
    assert shown("/no/such/file.py", Place(3)) == ""


def test_a_long_expression_is_cut_in_its_middle(tmp_path: object) -> None:
    told = shown(
        __file__, Place(test_a_long_expression_is_cut_in_its_middle.__code__.co_firstlineno)
    )
    assert len(told) <= 60
    assert told.startswith("def test_a_long_expression") and "…" in told
