"""A process is given other luck: its memory and versions of its classes, and nothing that code can see."""

from __future__ import annotations

import gc
import sys

import pytest

from pytest_dispatchguard.runtime.counters import luck
from pytest_dispatchguard.runtime.counters.luck import Luck


class Base:
    kind = "base"

    def ask(self) -> str:
        return self.kind


class Derived(Base):
    pass


def test_attributes_are_found_as_before() -> None:
    subject = Derived()
    assert [subject.ask() for _ in range(300)] == ["base"] * 300
    Luck().renew_classes()
    assert [subject.ask() for _ in range(300)] == ["base"] * 300
    Base.kind = "other"
    try:
        assert subject.ask() == "other"
    finally:
        Base.kind = "base"


def test_every_class_gets_a_new_version(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed: list[type] = []
    monkeypatch.setattr(luck, "_modified", renewed.append)
    monkeypatch.setattr(luck, "_versions", 0)
    local = type("Local", (dict,), {})  # below a class of the interpreter's own
    meta = type("Meta", (type,), {})
    Luck().renew_classes()
    assert {Base, local, meta} <= set(renewed)
    assert Derived not in renewed  # with its base
    assert dict not in renewed
    assert object not in renewed
    assert len(renewed) == len(set(renewed))


def test_versions_do_not_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed: list[type] = []
    monkeypatch.setattr(luck, "_modified", renewed.append)
    monkeypatch.setattr(luck, "_versions", luck._MOST_VERSIONS - 1)
    Luck().renew_classes()
    each = len(renewed)
    Luck().renew_classes()
    assert len(renewed) == each > 0


def test_what_memory_is_held_is_bounded_and_given_back() -> None:
    one, sizes = Luck(), []
    for _ in range(50):
        one.move_memory()
        sizes.append(sum(map(sys.getsizeof, one._pads)))
    assert max(sizes) < 1_000_000
    assert len(set(sizes)) > 25  # each its own layout
    again = Luck()
    for _ in range(50):
        again.move_memory()
    assert [len(pad) for pad in again._pads] == [len(pad) for pad in one._pads]  # the same draws
    del one, again
    gc.collect()
