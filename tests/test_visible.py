"""Controls and what turns text around, made visible."""

from __future__ import annotations

import sys
from unicodedata import category

import pytest

from pytest_dispatchguard.visible import one_line, visible, without_commands


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢 🙂", "plain é 漢 🙂"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\rb", "a\\rb"),
        ("\x9b2J", "\\x9b2J"),
        ("x\u202eexe.py", "x\\u202eexe.py"),
        ("\u2066a\u2069\u200f\ufeff", "\\u2066a\\u2069\\u200f\\ufeff"),
        ("\u2028\x85\x0b", "\\u2028\\x85\\x0b"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("\x7f\x00", "\\x7f\\x00"),
        ("👩\u200d👧 می\u200cروم", "👩\u200d👧 می\u200cروم"),
        ("a\nb\tc", "a\nb\tc"),
    ],
)
def test_each_is_written_as_python_would(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert one_line(text) == shown.replace("\n", "\\n").replace("\t", "\\t")


def test_nothing_that_steers_is_left() -> None:
    whole = "".join(map(chr, range(sys.maxunicode + 1)))
    left = {char for char in visible(whole) if category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert left == set("\n\t\u200c\u200d")
    assert visible(visible(whole)) == visible(whole)


def test_no_line_is_a_command() -> None:
    text = "::error::a\n  ::warning::b\na::b\n:c\n\n\t::d"
    assert without_commands(text) == "\\x3a:error::a\n  \\x3a:warning::b\na::b\n:c\n\n\t\\x3a:d"
