"""What processes share that take turns: where their stacks begin, and the seed of where objects lie."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.measure.workers.workers import ALIKE, alike


@given(
    st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), max_size=5),
    st.integers(0, 7),
)
def test_processes_of_one_number_begin_their_stack_at_the_same_place(
    words: list[str], number: int
) -> None:
    def size(folder: str) -> int:
        command = ["python", "-c", "pass", folder, *words]
        found = alike(command, {"HOME": folder, "PYTHONPATH": folder}, 5, number, torch_first=True)
        strings = [*command, *(f"{name}={value}" for name, value in found.items())]
        return sum(len(os.fsencode(one)) + 9 for one in strings) % 4096

    assert size("/a") == size("/a/much/longer/path") == 97 * number


def test_a_seed_and_a_number_are_what_processes_share() -> None:
    def seeds(seed: int, number: int) -> str:
        return alike(["python"], {}, seed, number, torch_first=True)["DISPATCHGUARD_SCATTER"]

    assert seeds(5, 1) == seeds(5, 1)
    assert len({seeds(5, 1), seeds(5, 2), seeds(6, 1)}) == 3


@pytest.mark.parametrize("needed", [True, False])
def test_torch_comes_first_where_it_is_needed(*, needed: bool) -> None:
    found = alike(["python"], {}, 5, 1, torch_first=needed)
    assert bool(found["DISPATCHGUARD_TORCH"]) is needed


def kept_with(seed: str, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The small objects that a process of a seed begins with."""
    monkeypatch.setenv("DISPATCHGUARD_SCATTER", seed)
    names: dict[str, list[bytes]] = {}
    exec(ALIKE, names)
    return names["kept"]


def test_small_objects_of_every_size_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = kept_with("one", monkeypatch)
    assert len({sys.getsizeof(one) for one in kept}) > 20
    assert len({len(kept_with(str(seed), monkeypatch)) for seed in range(5)}) > 1
    assert kept == kept_with("one", monkeypatch)
