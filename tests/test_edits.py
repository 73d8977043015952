"""Lines of a text end where Python says; edits are tested with the diffs they make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.edits import split_lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\n\n", ["a", ""]),
        ("a\r\nb\rc\nd", ["a", "b", "c", "d"]),
        ("a\n\rb", ["a", "", "b"]),
        ("a\x0cb\x0b\x1c\x1d\x1e\x85\u2028\u2029c", ["a\x0cb\x0b\x1c\x1d\x1e\x85\u2028\u2029c"]),
    ],
)
def test_split_lines(text: str, lines: list[str]) -> None:
    assert split_lines(text, keepends=False) == lines


@given(st.text(alphabet="ab\r\n\x0c\u2028", max_size=30))
def test_split_lines_agrees_with_bytes(text: str) -> None:
    # bytes.splitlines knows exactly Python's three line ends.
    expected = [line.decode() for line in text.encode().splitlines(keepends=True)]
    assert split_lines(text, keepends=True) == expected
    assert split_lines(text, keepends=False) == [line.rstrip("\r\n") for line in expected]
