"""What processes tell each other arrives as it was sent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.measure.budgets.messages import (
    Request,
    pack_verdicts,
    unpack_request,
    unpack_verdicts,
)
from pytest_dispatchguard.measure.timing.timing import Sample
from pytest_dispatchguard.model.compiled import Compiled, CompileEvent, Guards
from pytest_dispatchguard.model.layers import Layer, Layers
from pytest_dispatchguard.model.measurements import Beside, CostlyLine, Interval, Measurement, Pace
from pytest_dispatchguard.model.verdicts import Base, Limit, Verdict

NUMBERS = st.floats(allow_nan=False)
TEXTS = st.text(max_size=20)
COUNTERS = st.dictionaries(st.sampled_from(["instructions", "dispatches"]), st.integers(0, 10**9))
INTERVALS = st.builds(Interval, NUMBERS, NUMBERS, NUMBERS)
CONTROLS = st.dictionaries(TEXTS, NUMBERS, max_size=2)
MEASURED = st.builds(
    Measurement,
    INTERVALS,
    st.none() | INTERVALS,
    st.none() | INTERVALS,
    st.none() | INTERVALS,
    st.none() | INTERVALS,
    NUMBERS,
    st.integers(0),
    st.integers(0),
    NUMBERS,
    TEXTS,
    beside=st.lists(st.builds(Beside, NUMBERS, CONTROLS), max_size=2).map(tuple),
)
LINES = st.lists(
    st.builds(CostlyLine, TEXTS, st.integers(1), st.integers(0), TEXTS, st.none() | st.integers()),
    max_size=3,
).map(tuple)
EVENTS = st.lists(st.builds(CompileEvent, TEXTS, TEXTS), max_size=2).map(tuple)
GUARDS = st.builds(
    *(Guards, TEXTS, TEXTS, TEXTS, st.integers(1), TEXTS, TEXTS, TEXTS, st.none() | st.integers(0))
)
COMPILED = st.builds(
    Compiled,
    st.lists(GUARDS, max_size=2).map(tuple),
    EVENTS,
    EVENTS,
    st.dictionaries(TEXTS, NUMBERS, max_size=2),
    st.none() | INTERVALS,
)
LAYERS = st.none() | st.builds(
    Layers,
    TEXTS,
    INTERVALS,
    st.lists(
        st.builds(Layer, TEXTS, st.sampled_from(["python", "kernel"]), INTERVALS, st.integers(0)),
        max_size=2,
    ).map(tuple),
    st.integers(0),
    st.lists(TEXTS, max_size=1).map(tuple),
    TEXTS,
    COUNTERS,
    st.lists(TEXTS, max_size=1).map(tuple),
)
BASES = st.builds(
    Base,
    TEXTS,
    COUNTERS,
    st.none() | MEASURED,
    st.none() | INTERVALS,
    TEXTS,
    untimed=TEXTS,
    implied_us=st.none() | INTERVALS,
    lines=LINES,
    layers=LAYERS,
    compiled=st.none() | COMPILED,
    pace=st.none() | st.builds(Pace, INTERVALS, CONTROLS, NUMBERS, st.none() | INTERVALS),
    other=st.lists(TEXTS, max_size=2).map(tuple),
)
VERDICTS = st.builds(
    Verdict,
    TEXTS,
    TEXTS,
    st.sampled_from(["pass", "fail", "undecided", "skipped", "error"]),
    COUNTERS,
    st.lists(st.builds(Limit, TEXTS, NUMBERS, NUMBERS, st.booleans()), max_size=3).map(tuple),
    TEXTS,
    st.none() | COUNTERS,
    LINES,
    st.none() | MEASURED,
    st.none() | BASES,
    layers=LAYERS,
    reference_layers=LAYERS,
    compiled=st.none() | COMPILED,
)
SAMPLES = st.builds(
    Sample,
    INTERVALS,
    st.none() | INTERVALS,
    st.none() | INTERVALS,
    st.none() | INTERVALS,
    NUMBERS,
    st.integers(0),
    st.tuples(st.integers(1), st.integers(1)),
    NUMBERS,
    st.tuples(st.lists(NUMBERS, max_size=3), st.lists(NUMBERS, max_size=3)),
    st.none() | INTERVALS,
    TEXTS,
    st.none() | INTERVALS,
    CONTROLS,
)


@given(st.lists(VERDICTS, max_size=3))
def test_verdicts_arrive(verdicts: list[Verdict]) -> None:
    assert unpack_verdicts(pack_verdicts(verdicts)) == verdicts


@given(st.dictionaries(st.integers(0, 5), st.lists(SAMPLES, max_size=2), max_size=2), TEXTS)
def test_requests_arrive_on_one_line(samples: dict[int, list[Sample]], name: str) -> None:
    request = Request(name, 1.5, 0.999, 60.0, samples)
    line = request.packed()
    assert "\n" not in line
    assert unpack_request(line) == request


@given(st.text())
def test_what_is_not_ours_holds_no_verdicts(text: str) -> None:
    if text not in ("[]", "{}") and not text.strip().isdigit():
        assert unpack_verdicts(text) == []
