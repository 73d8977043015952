"""Control calls: what is timed beside a subject, and how long that takes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pytest_dispatchguard.measure.timing import controls
from pytest_dispatchguard.measure.timing.timing import sample

if TYPE_CHECKING:
    from conftest import World


def test_they_run_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    found = controls.calls()
    assert sorted(found) == ["arguments", "attributes", "objects", "tree"]
    assert [call.once()() for call in found.values()] == [
        25,
        32,
        {f"{i}.weight": (i, str(i)) for i in range(6)},
        [1, 2, 3, 4, 5, 6],
    ]


def test_torch_counts_once_it_is_imported() -> None:
    torch = pytest.importorskip("torch", reason="one of the calls is of torch")
    assert controls.calls()["torch"].once()().tolist() == torch.tensor([2.0] * 4).tolist()


def test_they_take_their_share_of_the_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = 0

    def control(ns: int) -> object:
        def took() -> float:
            nonlocal spent
            spent += ns
            return ns

        return world.call(took)

    monkeypatch.setattr(controls, "calls", lambda: {"one": control(400), "other": control(2000)})
    beside = controls.Controls(world.clock)
    start = world.now
    found = sample(
        *(world.call(lambda: 1000), None),
        enough=lambda found: False,
        seconds=1.0,
        confidence=0.999,
        clock=world.clock,
        beside=beside.beside,
    )
    assert beside.found_us() == {"one": 0.4, "other": 2.0}
    assert found.subject_us.value == pytest.approx(1.0)
    assert 0.03 < spent / (world.now - start) < 0.2


def test_a_slow_subject_leaves_time_for_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls, "calls", lambda: {"one": world.call(lambda: 400)})
    beside = controls.Controls(world.clock)
    sample(
        *(world.call(lambda: 3e8), None),
        enough=lambda found: False,
        seconds=1.0,
        confidence=0.999,
        clock=world.clock,
        beside=beside.beside,
    )
    assert len(beside._ns["one"]) >= 8
    assert beside.found_us() == {"one": 0.4}
