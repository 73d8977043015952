"""What is left over stays where the process is about to end, and nowhere else."""

from __future__ import annotations

import weakref

import pytest

from pytest_dispatchguard.startup import left_over


class Large:
    """Something that would be taken apart."""


def test_nothing_is_kept_in_a_process_that_lives_on() -> None:
    thing = Large()
    known = weakref.ref(thing)
    left_over.leave(thing)
    del thing
    assert known() is None


def test_what_is_left_stays_where_the_process_is_about_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(left_over, "_left", None)
    left_over.leave_all()
    thing = Large()
    known = weakref.ref(thing)
    left_over.leave(thing)
    del thing
    assert known() is not None
