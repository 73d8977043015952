"""Two processes that take turns."""

from __future__ import annotations

import math
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from pytest_dispatchguard.measure.timing import lockstep
from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.measure.timing.intervals import median_interval
from pytest_dispatchguard.measure.timing.lockstep import (
    DONE,
    GO,
    HELLO,
    LOST,
    STOP,
    WARM,
    Ends,
    Partner,
    Turns,
    _change,
    _in_both,
    follow,
    lead,
    turns_of,
)
from pytest_dispatchguard.measure.workers.lockstep import Pipes
from pytest_dispatchguard.model.errors import UserError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


@contextmanager
def pipes() -> Iterator[tuple[Ends, Ends]]:
    with closing(Pipes()) as made:
        yield made.of(0, base=False), made.of(0, base=True)


def in_child(work: Callable[[], object]) -> int:
    """Has work done in a child; its process id."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def some(times: int) -> Call:
    return Call(lambda: sum(range(times)))


def compared(here: Call, there: Call, meeting: int = 1, seconds: float = 0.3) -> float:
    with pipes() as (mine, theirs):
        child = in_child(
            lambda: follow(turns_of(there, None), Partner(theirs, meeting, 20.0), 0.99)
        )
        found = lead(turns_of(here, some(100)), Partner(mine, meeting, 20.0), seconds, 0.99)
        assert ended(child) == 0
    assert found.change is not None
    assert found.change.low <= found.change.value <= found.change.high
    assert found.pairs >= 25
    assert found.reference_us is not None and found.ratio is not None
    return found.change.value


def test_the_same_call_takes_as_long_there() -> None:
    assert 0.8 < compared(some(200), some(200)) < 1.25


def test_how_many_times_dearer_it_is_here() -> None:
    assert 1.5 < compared(some(2000), some(1000)) < 2.5
    assert 0.4 < compared(some(1000), some(2000)) < 0.7


def test_what_is_never_sure_is_left_to_other_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockstep, "is_fine", lambda change: False)
    monkeypatch.setattr(lockstep, "_MOST_ROUNDS", 60)
    with pipes() as (mine, theirs):
        child = in_child(lambda: follow(turns_of(some(10), None), Partner(theirs, 1, 20.0), 0.99))
        found = lead(turns_of(some(10), None), Partner(mine, 1, 20.0), 60.0, 0.99)
        assert ended(child) == 0
    assert 60 <= found.pairs < 6000  # and a tenth of a second


def test_disturbed_blocks_say_nothing() -> None:
    rng = random.Random(3)

    def blocks(call: float) -> list[float]:
        return [call * (1 + abs(rng.gauss(0, 0.2)) + rng.gauss(0, 0.002)) for _ in range(400)]

    for dearer in (1.0, 1.02, 1.1):
        here, there = blocks(300 * dearer), blocks(300.0)
        found = _change(here, there)
        by_all = median_interval(
            [one / two for one, two in zip(here, there, strict=True)], 0.683, 1, 1
        )
        assert abs(found.value / dearer - 1) < 0.01
        assert by_all is not None
        assert found.high - found.low < 0.7 * (by_all.high - by_all.low)


def test_what_only_slower_blocks_tell_is_not_overlooked() -> None:
    rng = random.Random(4)
    there = [rng.gauss(300, 1) for _ in range(400)]
    own = [one * (1.1 if number % 10 < 7 else 1) for number, one in enumerate(there)]
    assert _change(own, there).value > 1.09


def test_the_standard_error_is_what_answers_differ_by() -> None:
    rng = random.Random(5)
    errors, values = [], []
    for _ in range(200):
        own, there = ([300 + rng.expovariate(1 / 30) for _ in range(200)] for _ in range(2))
        found = _change(own, there)
        values.append(math.log(found.value))
        errors.append((found.high - found.low) / 2)
    assert 0.7 < statistics.mean(errors) / statistics.stdev(values) < 1.6


@pytest.mark.parametrize("rounds", [1, 2, 39])
def test_few_rounds_count_by_their_median(rounds: int) -> None:
    own = [float(2 * number) for number in range(1, rounds + 1)]
    assert _change(own, [number / 2 for number in own]).value == 2.0


def test_both_make_blocks_of_the_same_number_of_calls() -> None:
    with pipes() as (mine, theirs), pipes() as (answers, _):
        sent = _.writing

        def followed() -> None:
            found = follow(turns_of(some(3000), None), Partner(theirs, 1, 20.0), 0.99)
            os.write(sent, str(found.loops[0]).encode())

        child = in_child(followed)
        found = lead(turns_of(some(10), None), Partner(mine, 1, 20.0), 0.1, 0.99)
        assert ended(child) == 0
        assert int(os.read(answers.reading, 64)) == found.loops[0]


@pytest.mark.parametrize("own", [(1, 0), (5, 2), (1, 2)])
def test_both_lead_their_blocks_alike(
    own: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever each of them found: near a limit one may find that a call is led, and the other that it is
    not, and a call that is not led can be a seventh slower."""
    with pipes() as (mine, theirs), pipes() as (answers, sending):

        def followed() -> None:
            monkeypatch.setattr(Turns, "calibrate", lambda self: (1, 1))
            turns = turns_of(some(3000), None)
            follow(turns, Partner(theirs, 1, 20.0), 0.99)
            os.write(sending.writing, f"{turns.loops} {turns.warm}".encode())

        child = in_child(followed)
        monkeypatch.setattr(Turns, "calibrate", lambda self: own)
        turns = turns_of(some(3000), None)
        lead(turns, Partner(mine, 1, 20.0), 0.1, 0.99)
        assert ended(child) == 0
        there = os.read(answers.reading, 64).decode()
    assert there == f"{turns.loops} {turns.warm}" == f"{own[0]} {min(1, own[1])}"


def test_they_find_them_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(self: Turns) -> tuple[int, int]:
        times.append(time.monotonic())
        time.sleep(0.05)
        times.append(time.monotonic())
        return 1, 1

    times: list[float] = []
    monkeypatch.setattr(Turns, "calibrate", slowly)
    with pipes() as (mine, theirs), pipes() as (answers, sending):

        def followed() -> None:
            follow(turns_of(some(3000), None), Partner(theirs, 1, 20.0), 0.99)
            os.write(sending.writing, repr(times[0]).encode())

        child = in_child(followed)
        lead(turns_of(some(3000), None), Partner(mine, 1, 20.0), 0.1, 0.99)
        assert ended(child) == 0
        assert times[1] <= float(os.read(answers.reading, 64))


def test_what_was_said_in_other_meetings_is_passed_over() -> None:
    with pipes() as (mine, theirs):
        Partner(theirs, 1, 0.0).say(STOP)
        Partner(theirs, 2, 0.0).say(DONE, 7)
        assert Partner(mine, 2, 5.0).hear(DONE) == (DONE, 7)


@pytest.mark.parametrize("rest", [(lead, 0.1, 0.99), (follow, 0.99)], ids=["leads", "follows"])
def test_a_partner_that_is_lost_ends_the_meeting(rest: tuple[Callable[..., object], float]) -> None:
    with pipes() as (mine, theirs):
        Partner(theirs, 1, 0.0).say(LOST)
        with pytest.raises(UserError, match="the process of the other revision is gone"):
            rest[0](turns_of(some(10), None), Partner(mine, 1, 20.0), *rest[1:])


def test_a_partner_whose_pipe_is_closed_is_lost() -> None:
    here, there = os.pipe(), os.pipe()
    os.close(here[1])
    os.close(there[0])
    try:
        partner = Partner(Ends(here[0], there[1]), 1, 20.0)
        with pytest.raises(UserError, match="is gone"):
            partner.hear(GO)
        with pytest.raises(UserError, match="is gone"):
            partner.say(GO)
    finally:
        os.close(here[0])
        os.close(there[1])


def test_patience_ends() -> None:
    with pipes() as (mine, _), pytest.raises(UserError, match="said nothing for 0"):
        Partner(mine, 1, 0.05).hear(GO)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs affinities")
def test_both_run_on_the_same_core_meanwhile() -> None:
    before = os.sched_getaffinity(0)
    cores = []
    with pipes() as (mine, theirs):
        child = in_child(lambda: follow(turns_of(some(50), None), Partner(theirs, 1, 20.0), 0.99))
        seen = Call(lambda: cores.append(os.sched_getaffinity(0)) if len(cores) < 10 else None)
        lead(turns_of(seen, None), Partner(mine, 1, 20.0), 0.1, 0.99)
        assert ended(child) == 0
    assert {len(one) for one in cores} == {1}
    assert os.sched_getaffinity(0) == before


def test_fresh_state_is_made_before_every_block() -> None:
    """Also before the calls that warm up."""
    made = []
    with pipes() as (mine, theirs):
        other = Partner(theirs, 1, 20.0)

        def answering() -> None:
            other.hear(HELLO)
            other.hear(WARM)
            other.say(HELLO, 1)
            other.say(WARM, 2)
            while other.hear(GO, STOP)[0] == GO:
                other.say(DONE, 1000)

        thread = threading.Thread(target=answering)
        thread.start()
        turns = turns_of(some(10), None, lambda: made.append(1))
        found = lead(turns, Partner(mine, 1, 20.0), 0.1, 0.99)
        thread.join()
    assert found.loops[0] == 8  # more are not asked of one that needs one
    assert len(made) >= 2 * found.pairs


@pytest.mark.parametrize(
    ("own", "there", "both"),
    [(3, 3, 3), (1, 3, 3), (3, 1, 3), (1, 8, 8), (1, 100_000, 8), (50, 10, 50), (0, 0, 1)],
)
def test_both_make_as_many_calls_as_the_cheaper_one_needs(own: int, there: int, both: int) -> None:
    assert _in_both(own, there) == both
