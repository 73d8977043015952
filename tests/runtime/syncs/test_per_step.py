"""Which waits come in each step, in each round of a loop, or once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_dispatchguard.model.findings import Ran
from pytest_dispatchguard.runtime.code.loops import loop_around
from pytest_dispatchguard.runtime.syncs.per_step import ran
from pytest_dispatchguard.runtime.syncs.syncs import Frame, Sync

SOURCE = """\
class Net:
    def forward(self, x):
        for layer in self.layers:
            layer(x)

def main():
    setup()
    for epoch in epochs:
        for batch in batches:
            net.forward(batch)
            optimizer.step()
        else:
            done()
        evaluate(net)

def evaluate(net):
    for batch in batches:
        net.forward(batch)
        hooks = lambda: (
            late(),
        )
        def later():
            late()

while True:
    main()
"""
FORWARD, IN_LAYERS, SETUP, TRAIN, STEP, ELSE, EVALUATION, IN_EVALUATION, LATER, MAIN = (
    *(3, 4, 7, 10, 11, 13, 14, 18, 23, 26),
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text(SOURCE)
    return str(tmp_path / "train.py")


@pytest.mark.parametrize(
    ("line", "loop"),
    [
        (FORWARD, 3),
        (SETUP, None),
        (TRAIN, 9),
        (ELSE, 8),
        (EVALUATION, 8),
        (IN_EVALUATION, 17),
        (LATER, None),
        (MAIN, 25),
    ],
)
def test_the_innermost_loop_of_a_line(path: str, line: int, loop: int | None) -> None:
    found = loop_around(path, line)
    assert (None if found is None else found.line) == loop


def test_what_does_not_parse_has_no_loops(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("for x in (:\n    pass\n")
    assert loop_around(str(tmp_path / "broken.py"), 2) is None
    assert loop_around("/no/such/file.py", 2) is None


Ways = Mapping[tuple[tuple[str, int], ...], int]
"""How often something came, by the functions and lines on the way to it."""


def told(path: str, waits: Ways, steps: Ways) -> list[Ran]:
    def way(places: tuple[tuple[str, int], ...]) -> tuple[Frame, ...]:
        return tuple(Frame(path, line, name) for name, line in places)

    syncs = {Sync("item", "why", "DG411", way(places)): n for places, n in waits.items()}
    seen = {way(places): n for places, n in steps.items()}
    found = ran(syncs, seen, lambda file: Path(file).name)
    return [found[sync] for sync in syncs]


def test_steps_are_told_from_evaluations_and_from_what_runs_once(path: str) -> None:
    waits: Ways = {
        (("Net.forward", IN_LAYERS), ("main", TRAIN)): 60,
        (("main", TRAIN),): 20,
        (("evaluate", IN_EVALUATION), ("main", EVALUATION)): 6,
        (("Net.forward", IN_LAYERS), ("evaluate", IN_EVALUATION), ("main", EVALUATION)): 18,
        (("main", EVALUATION),): 2,
        (("main", SETUP),): 1,
    }
    # Two optimizers that step one after the other make one step.
    steps: Ways = {(("main", STEP),): 20, (("other", STEP), ("main", STEP)): 20}
    assert told(path, waits, steps) == [
        Ran(60, 20, "train.py:9", steps=True),
        Ran(20, 20, "train.py:9", steps=True),
        Ran(6, 6, "train.py:17"),
        Ran(18, 6, "train.py:17"),
        Ran(2, 2, "train.py:8"),
        Ran(1),
    ]


def test_rounds_that_nothing_counts_are_not_known(path: str) -> None:
    waits: Ways = {(("Net.forward", IN_LAYERS), ("evaluate", IN_EVALUATION)): 18}
    assert told(path, waits, {}) == [Ran(18, 0, "train.py:17")]
