"""The table in colour, and the line that says how far measuring has come."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

from pytest_dispatchguard.model.measurements import Interval, Measurement
from pytest_dispatchguard.model.verdicts import Verdict
from pytest_dispatchguard.report.budgets.terminal import ProgressLine, fits, show
from pytest_dispatchguard.report.budgets.verdicts import table_of

MEASURED = Measurement(Interval(2.0, 1.9, 2.1), Interval(1.0, 0.9, 1.1), Interval(2.0, 1.98, 2.02))
VERDICTS = [
    Verdict(
        "tests/test_ops.py::test_add[some-long-name-of-a-case]", "f", "pass", {}, measured=MEASURED
    ),
    Verdict(
        "tests/test_ops.py::test_mul", "g", "undecided", {}, (), "too close", measured=MEASURED
    ),
]


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_the_table_keeps_every_verdict_and_the_width() -> None:
    table, file = table_of(VERDICTS), io.StringIO()
    assert fits(table, 80)
    show(table, file, 80)
    lines = plain(file.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(lines)
    assert "undecided" in text and "pass" in text and "too close" in text
    assert text.count("2.000 ±0.020") == 2
    assert "\x1b[33m" in file.getvalue()


def test_a_narrow_terminal_is_no_place_for_it() -> None:
    assert not fits(table_of(VERDICTS), 40)


def test_progress_is_cut_to_the_room_there_is_and_taken_back() -> None:
    file = io.StringIO()
    writer = SimpleNamespace(_file=file, fullwidth=40, width_of_current_line=10)
    line = ProgressLine(writer)
    line.tell("test_of_some_length", 0, 7)
    shown = re.sub(r"\x1b[78]|\x1b\[K", "", file.getvalue())
    assert shown.startswith("  measuring 1 of 7: test_of") and len(shown) <= 28
    file.truncate(0)
    file.seek(0)
    line.tell("", 1, 7)
    assert re.sub(r"\x1b[78]|\x1b\[K", "", file.getvalue()) == ""
    line.tell("t", 3, 7)
    assert "measuring 4 of 7, about" in file.getvalue()
