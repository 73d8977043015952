"""What pairs of workers found, and what is told where one of them broke."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from pytest_dispatchguard.measure.budgets.messages import Request
from pytest_dispatchguard.measure.timing.lockstep import GO, Ends, Partner
from pytest_dispatchguard.measure.timing.pairs import (
    MOST_PAIRS,
    MOST_TIMES,
    MOST_WORKER_PAIRS,
    TIMES_LONGER,
    worker_of,
)
from pytest_dispatchguard.measure.timing.timing import Sample
from pytest_dispatchguard.measure.workers import lockstep
from pytest_dispatchguard.measure.workers.lockstep import Paired, Pipes, by_turns, meet
from pytest_dispatchguard.measure.workers.sources import Options
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.verdicts import Base, Verdict

VERDICT, BASE = Verdict("t.py::t", "f", "pass", {}), Base("HEAD", {})


def found(pairs: int, broken: str = "", *, here: bool = False) -> Paired:
    took, change = Interval(2.0, 1.9, 2.1), Interval(1.0, 0.999, 1.001)
    sample = Sample(took, None, None, None, 1.0, 9, (1, 1), 0.0, ((), ()), change=change)
    return Paired({"f": [sample] * pairs}, {"f": [sample] * pairs}, 1.0, pairs, broken, here=here)


@pytest.mark.parametrize("broken", ["", "the worker was killed by SIGKILL"])
def test_what_was_found_before_a_worker_broke_counts(broken: str) -> None:
    told = found(4, broken).told_of(VERDICT, BASE, 0.999)
    assert told.untimed == ""
    assert told.change is not None and 0.9 < told.change.low < 1 < told.change.high < 1.1


@pytest.mark.parametrize(("here", "place"), [(True, "in the work tree, "), (False, "")])
def test_too_few_pairs_say_what_broke(*, here: bool, place: str) -> None:
    told = found(1, "the worker was killed by SIGKILL", here=here).told_of(VERDICT, BASE, 0.999)
    assert told.change is None
    assert told.untimed == f"{place}the worker was killed by SIGKILL"


def test_nothing_timed_is_told() -> None:
    assert Paired().told_of(VERDICT, BASE, 0.999).untimed == "it was not timed"


@dataclass
class Side:
    """A worker that answers at once, or never."""

    answer: dict[str, Any] | None
    asked: list[Request] = field(default_factory=list)
    ended: bool = False
    pipe: tuple[int, int] = field(default_factory=os.pipe)

    def send(self, request: Request, tick: Any) -> None:
        self.asked.append(request)
        if self.answer is not None:
            os.write(self.pipe[1], b".")

    def receive(self, request: Request, tick: Any) -> dict[str, Any]:
        os.read(self.pipe[0], 1)
        assert self.answer is not None
        return self.answer

    def fileno(self) -> int:
        return self.pipe[0]

    def end(self) -> None:
        self.ended = True


def met(head: Side, base: Side, found: Paired, timeout: float = 60.0) -> tuple[list[str], Ends]:
    pipes = Pipes()
    ends = [pipes.of(0, base=False), pipes.of(0, base=True)]
    request = Request("t.py::t", 1.0, 0.999, timeout)
    return meet([head, base], ends, request, ["f"], found, lambda: None), ends[1]  # type: ignore[list-item]  # stand-ins


WAITED = {"died": "said: the other revision said nothing for 1 s"}


def test_a_worker_that_stays_silent_is_ended_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockstep, "GRACE", 0.1)
    found = Paired()
    silent = Side(None)
    gone, ends = met(Side(WAITED), silent, found, timeout=0.1)
    assert silent.ended
    assert gone == ["", "the worker said nothing for 0.2 s and was ended"]
    assert (found.broken, found.here) == (gone[1], False)
    # It was told that nobody waits for it.
    with pytest.raises(UserError, match="is gone"):
        Partner(ends, silent.asked[0].meeting, 1.0).hear(GO)


@pytest.mark.parametrize("hung_first", [True, False])
def test_who_only_waited_is_not_blamed(*, hung_first: bool) -> None:
    hung = {"died": "was given up after 60 s without an answer"}
    found = Paired()
    sides = (Side(hung), Side(WAITED)) if hung_first else (Side(WAITED), Side(hung))
    met(*sides, found)
    assert found.broken == f"the process that measured it {hung['died']}"
    assert found.here is hung_first


def test_each_pair_of_workers_is_led_by_both_sides() -> None:
    found, head, base = Paired(), Side({"missing": "m"}), Side({"missing": "m"})
    for _ in range(MOST_PAIRS):
        met(head, base, found)
    leads: dict[int, list[object]] = {}
    for pair, request in enumerate(head.asked):
        leads.setdefault(worker_of(pair), []).append(request.lockstep)
    assert len(leads) == MOST_WORKER_PAIRS
    for turns in leads.values():
        assert all(one != next_ for one, next_ in pairwise(turns))
    first = [turns[0] for turns in leads.values()]
    assert first.count("lead") == first.count("follow")


@pytest.mark.parametrize("slower", [1.0, 1.05, 3.0])
def test_a_busy_machine_makes_no_test_take_longer_than_it_may(
    slower: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def meeting(_: Any, request: Request, __: Any, paired: Paired, ___: Any) -> None:
        asked.append(request.seconds)
        paired.pairs += 1
        paired.seconds += request.seconds
        paired.by_clock += request.seconds * slower

    monkeypatch.setattr(lockstep, "_meet", meeting)
    options = Options(seconds=2.0)
    sides: Any = (None, None)
    paired = by_turns(sides, "t.py::t", ["f"], options, lambda _: False, lambda: None)
    assert paired.over
    assert paired.seconds == pytest.approx(sum(asked))
    # The last pair is given no more than is left, and may run over that.
    assert sum(asked) <= 2.0 * TIMES_LONGER
    assert paired.by_clock <= 2.0 * MOST_TIMES + asked[-1] * (slower - 1)
    measured_all = sum(asked) > 2.0 * TIMES_LONGER - 0.4
    assert measured_all == (slower < MOST_TIMES / TIMES_LONGER)
