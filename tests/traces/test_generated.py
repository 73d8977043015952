"""Traces of a device that is not there: all that happened is told, and nothing else."""

from __future__ import annotations

import gzip
import random
from collections import defaultdict
from pathlib import Path

import pytest

from pytest_dispatchguard.model.traces import Trace
from pytest_dispatchguard.traces.analysis import analyzed
from pytest_dispatchguard.traces.frames import Files

from .generating import OURS, SPELLINGS, Gap, Made, Maker, Run, Truth, Waited, made, written

FILES = Files.of(OURS)
SEEDS = [range(start, start + 20) for start in range(0, 200, 20)]


def told_of(trace: Made) -> Trace:
    return analyzed(trace.path, FILES if trace.files else None)


def wait_of(gap: Gap, truth: Truth) -> Waited | None:
    """The wait in which a gap begins."""
    return next((wait for wait in truth.waits if wait.start <= gap.start <= wait.end), None)


def has_stacks(path: Path) -> bool:
    """Whether a file has any: one that asks for call stacks of operators may have no operator."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return b'"Call stack"' in text or b"python_function" in text


def check(seed: int, folder: Path) -> int:
    """Compares one trace with the truth; how many waits there are."""
    trace = made(seed, folder)
    told, truth = told_of(trace), trace.truth
    assert (told.damage, told.rank, told.marked) == ("", trace.rank, True)
    assert told.stacks == has_stacks(trace.path)
    check_waits(told, truth)
    assert [step.us for step in told.steps] == [end - start for start, end in truth.steps]
    for number, step in enumerate(told.steps):
        assert step.waits == sum(wait.step == number for wait in truth.waits)
        if truth.kernels:
            assert step.idle_us == truth.idle(number)
            assert step.waits_us + step.late_us + step.input_us <= step.idle_us
    assert (
        told.queued_us
        == sum(
            end - start
            for gap in truth.gaps()
            if gap.after is not None and truth.kernels[gap.after].launched[1] <= gap.start
            for start, end in inside(gap, truth)
        )
        or not truth.kernels
    )
    return len(truth.waits)


def inside(gap: Gap, truth: Truth) -> list[tuple[int, int]]:
    """The parts of a gap in steps."""
    cut = [(max(gap.start, start), min(gap.end, end)) for start, end in truth.steps]
    return [(start, end) for start, end in cut if start < end]


def check_waits(told: Trace, truth: Truth) -> None:
    expected: dict[tuple[object, ...], list[Waited]] = defaultdict(list)
    for wait in truth.waits:
        expected[(wait.place, wait.call, wait.kind, wait.operator, wait.annotation)].append(wait)
    found = {
        (
            (one.line.file, one.line.line, one.line.function),
            one.call,
            one.kind,
            one.operator,
            one.annotation,
        ): one
        for one in told.waits
    }
    assert found.keys() == expected.keys()
    gaps: dict[int, int] = defaultdict(int)
    for gap in truth.gaps() if truth.kernels else ():
        if begins := wait_of(gap, truth):
            gaps[begins.number] += gap.end - gap.start
    for key, waits in expected.items():
        one = found[key]
        assert one.times == len(waits)
        assert one.us == sum(wait.us for wait in waits)
        assert one.longest_us == max(wait.us for wait in waits)
        for number in range(len(truth.steps)):
            own = [wait.us for wait in waits if wait.step == number]
            assert (one.step_times[number], one.step_us[number]) == (len(own), sum(own))
        assert one.gap_us == sum(gaps[wait.number] for wait in waits)
        assert one.idle_us <= one.us


@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_all_waits_are_told_and_none_else(seeds: range, tmp_path: Path) -> None:
    assert sum(check(seed, tmp_path) for seed in seeds) > len(seeds)


@pytest.mark.thorough
def test_all_waits_of_many_traces(tmp_path: Path) -> None:
    for seed in range(1_000, 5_000):
        check(seed, tmp_path)


@pytest.mark.parametrize("seed", range(40))
def test_what_a_wait_costs_is_what_goes_without_it(seed: int, tmp_path: Path) -> None:
    """The same program runs with one of its waits, and with none."""
    chance = random.Random(seed)
    spelling = SPELLINGS[chance.choice(("cuda", "rocm", "xpu"))]
    maker = Maker(chance, sorted(spelling.waits))
    program = maker.program(2)
    everything = range(1, maker.number + 1)
    none = Run(spelling, "frames", left_out=everything).run(program)
    assert not none.truth.waits
    for kept in everything:
        one = Run(spelling, "frames", left_out={*everything} - {kept}).run(program)
        told = analyzed(written(tmp_path / "one.json", one.events, 0, chance))
        (wait,) = told.waits
        known = one.truth.waits[0]
        closed = 0
        for gap in one.truth.gaps():
            touches = gap.start <= known.end and gap.end >= known.start
            if touches and gap.after is not None and gap.after > 0:
                before, after = none.truth.kernels[gap.after - 1 : gap.after + 1]
                closed += gap.end - gap.start - (after.start - before.end)
            elif touches:
                break  # before the first kernel or after the last, where steps begin and end elsewhere
        else:
            assert wait.idle_us == closed
