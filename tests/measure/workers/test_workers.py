"""What processes share that take turns: where their stacks begin, and the seed of where objects lie."""

from __future__ import annotations

import os
from importlib.util import find_spec

from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.measure.workers.workers import alike


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
        return alike(["python"], {}, seed, number, torch_first=False)["DISPATCHGUARD_SCATTER"]

    assert seeds(5, 1) == seeds(5, 1)
    assert len({seeds(5, 1), seeds(5, 2), seeds(6, 1)}) == 3


def test_torch_comes_first_only_where_it_is_asked_for() -> None:
    asked = alike(["python"], {}, 5, 1, torch_first=True)["DISPATCHGUARD_TORCH"]
    assert asked == ("1" if find_spec("torch") else "")
    assert alike(["python"], {}, 5, 1, torch_first=False)["DISPATCHGUARD_TORCH"] == ""
