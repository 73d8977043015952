"""Which single events get a mark."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.model.traces import Line
from pytest_dispatchguard.traces import marking
from pytest_dispatchguard.traces.idle import Part
from pytest_dispatchguard.traces.marking import Marks
from pytest_dispatchguard.traces.replay import OneWait, Waits

LINE = Line("train.py", 44, "step", ours=True)
WAIT = OneWait(10.0, 30.0, 20.0, Waits(LINE, "cudaStreamSynchronize", "stream", "aten::item", ""))


def test_waits_and_what_they_keep_idle() -> None:
    marks = Marks()
    marks.waited(WAIT, 3)
    marks.idled(Part(20.0, 28.0, "waits", WAIT), 0)
    wait, idle = marks.found
    assert (wait.kind, wait.at_us, wait.us, wait.line, wait.lane) == ("wait", 10.0, 20.0, LINE, 3)
    assert (idle.kind, idle.us, idle.what, idle.line) == ("idle", 8.0, "waits", LINE)


def test_what_lies_between_any_two_kernels_is_left_out() -> None:
    marks = Marks()
    marks.idled(Part(0.0, 0.5, "late"), 0)
    marks.idled(Part(0.0, 5.0, "queued"), 0)
    assert marks.found == []
    marks.idled(Part(0.0, 5.0, "late"), 0)
    marks.idled(Part(0.0, 50.0, "queued"), 0)
    assert [mark.what for mark in marks.found] == ["late", "queued"]


def test_calls_are_marked_in_the_project_and_not_without_end() -> None:
    marks = Marks()
    marks.called(Line("mylib.py", 1, "f"), 1.0)
    for n in range(5000):
        marks.called(LINE, float(n))
    assert len(marks.found) == 1000 and marks.left_out == 0


def test_there_is_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marking, "_MOST", 5)
    marks = Marks()
    for _ in range(8):
        marks.waited(WAIT, 0)
    assert (len(marks.found), marks.left_out) == (5, 3)
