"""The verdict on a trace in one sentence, and what else every format says in the same words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_dispatchguard.model.traces import NOWHERE, Depth, Device, Line, Told, Trace
from pytest_dispatchguard.report.traces.rows import sentence, stragglers, waits_of
from pytest_dispatchguard.report.traces.wording import (
    duration,
    hints,
    lead,
    percent,
    place,
    verdict,
)

from .conftest import ITEM, LOSS, STEP, step, told, trace, wait


def of_steps(**idle: float) -> Trace:
    return trace(steps=tuple(step(n, **idle) for n in range(2)))


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (
            of_steps(),
            (
                "the device is idle 50% of a step: 30% behind waits, 15% behind "
                "launches that come too late, 5% though the next kernel is queued; work on the "
                "waits first, then on host overhead"
            ),
        ),
        (
            of_steps(idle_us=480, waits_us=20, late_us=460),
            (
                "the device is idle 48% of a step: 46% behind launches that come too late, 2% "
                "behind waits; host overhead is what to work on"
            ),
        ),
        (
            of_steps(idle_us=340, waits_us=0, late_us=0, input_us=340),
            (
                "the device is idle 34% of a step: 34% behind the data loader; the data loader is "
                "what to work on"
            ),
        ),
        (
            of_steps(idle_us=310, waits_us=310, late_us=0),
            "the device is idle 31% of a step: 31% behind waits; the waits are what to work on",
        ),
        (
            of_steps(idle_us=30, waits_us=10, late_us=5),
            "the device is busy 97% of a step: nothing on the host will make a step much shorter",
        ),
        (
            of_steps(idle_us=640, waits_us=0, late_us=0),
            (
                "the device is idle 64% of a step though the next kernel is queued: it waits for "
                "other streams, other ranks or its driver, not for this host"
            ),
        ),
        (
            of_steps(idle_us=640, waits_us=20, late_us=30),
            (
                "the device is idle 64% of a step, 59% though the next kernel is queued: it waits "
                "for other streams, other ranks or its driver, not for this host; 5% stands behind "
                "the host"
            ),
        ),
        (
            trace(marked=False, steps=(step(0, idle_us=30, waits_us=10, late_us=5),)),
            "the device is busy 97% of the trace: nothing on the host will make the trace much shorter",
        ),
        (
            trace(damage="it is cut off after 400 events"),
            (
                "the file is damaged: it is cut off after 400 events; idle times cannot be told "
                "from a part, and what follows is of the part that could be read"
            ),
        ),
        (trace(steps=()), "nothing in this trace takes time"),
    ],
)
def test_the_verdict(one: Trace, said: str) -> None:
    assert verdict(one) == said


def test_a_trace_without_a_device() -> None:
    assert verdict(trace(devices=())).startswith("no device in this trace: ")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (replace(LOSS, exact=True), "behind waits at net/loss.py:12 in loss,"),
        (replace(LOSS, exact=False), "behind waits in loss (net/loss.py:12),"),
        (NOWHERE, "behind waits in cudaStreamSynchronize in aten::item,"),
    ],
)
def test_the_one_place_that_keeps_the_device_idle_is_named(line: Line, named: str) -> None:
    one = Told(trace(waits=(wait(line, (1.0, 1.0, 1.0), 900.0),)))
    assert named in sentence(one, waits_of([one], linted=False))


def test_of_several_places_the_worst_is_named() -> None:
    two = (
        wait(LOSS, (1.0, 1.0, 1.0), 300.0),
        wait(LOSS, (1.0, 1.0, 1.0), 300.0, operator="aten::to"),
        wait(STEP, (1.0, 1.0, 1.0), 300.0),
    )
    one = Told(trace(waits=two))
    told_of = sentence(one, waits_of([one], linted=False))
    assert "behind waits at 2 places (20% at net/loss.py:12 in loss)," in told_of


def test_a_function_is_not_taken_for_its_line() -> None:
    assert place(STEP) == "in step (train.py:40)"
    assert place(STEP, [ITEM]) == "train.py:44 in step"
    other = replace(ITEM, span=replace(ITEM.span, line=50))
    assert place(STEP, [ITEM, other]) == "in step (train.py:40)"
    assert place(LOSS, [ITEM]) == "net/loss.py:12 in loss"
    assert place(LOSS, (), lambda path: f"../{path}") == "../net/loss.py:12 in loss"
    assert place(NOWHERE) == ""


@pytest.mark.parametrize(
    ("us", "told"),
    [
        (0.0, "0 µs"),
        (0.01, "0 µs"),
        (0.83, "0.83 µs"),
        (91.83, "91.8 µs"),
        (999.4, "999 µs"),
        (999.9, "1.00 ms"),
        (1840.0, "1.84 ms"),
        (1_050_000.0, "1.05 s"),
    ],
)
def test_times(us: float, told: str) -> None:
    assert duration(us) == told


@pytest.mark.parametrize(
    ("share", "told"),
    [(0.0, "0%"), (0.004, "<1%"), (0.48, "48%"), (0.993, "99%"), (0.997, ">99%"), (1.0, "100%")],
)
def test_shares(share: float, told: str) -> None:
    assert percent(share) == told


def test_how_far_the_host_runs_ahead() -> None:
    assert lead(trace()) == (
        "the host runs 412 µs ahead of the device (from a launch to the start of its "
        "kernel, the median), with 4 launches queued, 9 at most"
    )
    assert lead(trace(depths=(Depth(0.0, 0),))).endswith(", and nothing is ever queued")
    assert lead(trace(lead_us=None)) == ""


def test_hints_say_how_to_get_the_rest() -> None:
    assert hints([trace()], "/p", linted=True) == []
    (stacks,) = hints([trace(stacks=False)], "/p", linted=True)
    assert "`profile(with_stack=True, ...)`" in stacks
    assert "`experimental_config=torch._C._profiler._ExperimentalConfig(verbose=True)`" in stacks
    (steps,) = hints([trace(marked=False)], "/p", linted=True)
    assert "`prof.step()`" in steps
    strange = trace(waits=(wait(Line("x.py", 1, "f"), (1.0,)),), overheads=())
    (project,) = hints([strange], "/p", linted=True)
    assert "--map FROM=TO" in project and "/p" in project
    assert hints([strange], "/p", linted=False) == []


def test_stragglers() -> None:
    usual = [told(trace(rank=n)) for n in range(3)]
    assert stragglers(usual) == []
    slow = told(trace(rank=3, steps=tuple(step(n, 1100.0) for n in range(3))))
    assert stragglers([*usual, slow]) == [
        "rank 3 is slower than the others: 1.10 ms a step, and the median is 1.00 ms"
    ]
    busy = told(trace(rank=4, steps=tuple(step(n, idle_us=600, late_us=290) for n in range(3))))
    assert stragglers([*usual, busy]) == [
        (
            "rank 4 keeps the others waiting: its host leaves the device idle 59% of a step, "
            "and the median is 45%"
        )
    ]
    assert stragglers([told(trace()), told(trace(damage="cut"))]) == []


def test_waits_of_ranks_are_means() -> None:
    without = told(trace(rank=1, waits=()))
    (known,) = waits_of([told(trace(rank=0)), without], linted=True).known
    assert (known.times, known.us, known.traces) == (0.5, 100.0, 1)
    assert known.idle == pytest.approx(600 / 3000 / 2)


def test_a_second_device_is_told() -> None:
    from pytest_dispatchguard.report.traces.wording import about

    two = (Device(1, "", 3, 9.0), Device(0, "A100", 2, 3.0))
    assert about(trace(devices=two, rank=4)) == (
        "rank 4: 3 steps of 1.00 ms on device 1 (the busiest of 2 devices)"
    )
