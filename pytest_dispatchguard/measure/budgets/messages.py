"""Messages between the processes of a run, as JSON: requests, samples, verdicts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pytest_dispatchguard.measure.timing.timing import Sample
from pytest_dispatchguard.model.compiled import Compiled, CompileEvent, Guards
from pytest_dispatchguard.model.layers import Layer, Layers
from pytest_dispatchguard.model.measurements import Beside, CostlyLine, Interval, Measurement, Pace
from pytest_dispatchguard.model.verdicts import Base, Limit, Verdict

Samples = Mapping[int, Sequence[Sample]]
"""The samples of each subject of a test, by its position."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to measure one test."""

    node_id: str
    seconds: float
    """For all its subjects."""
    confidence: float
    timeout: float
    """Seconds without an answer after which the test is given up."""
    known: Samples = field(default_factory=dict)
    """The samples of other processes."""
    fully: bool = False
    """Whether ratios are to be as sure as one process can make them."""
    controls: bool = False
    """Whether control calls are timed beside each subject."""
    layers: float = 0.0
    """Seconds for measuring the layers of each call; 0 for none."""
    lockstep: Literal["", "lead", "follow"] = ""
    """Whether to take turns with a worker of another revision, and in which part."""
    meeting: int = 0
    """The number of the meeting, the same for both."""
    subjects: Sequence[str] = ()
    """The names of the subjects that take turns, in order."""
    native: str = ""
    """What counts native instructions, and nothing else: `perf_event_open`, or the folder that callgrind
    writes to. Empty if they are not asked for."""

    @property
    def is_of_one_thing(self) -> bool:
        """Whether it asks for layers or native instructions, and nothing else."""
        return bool(self.layers or self.native)

    def packed(self) -> str:
        """The request as one line."""
        return json.dumps({**asdict(self), "known": pack_samples(self.known)})


def unpack_request(line: str) -> Request:
    """A request from its line."""
    data = json.loads(line)
    subjects = tuple(data["subjects"])
    return Request(**{**data, "known": unpack_samples(data["known"]), "subjects": subjects})


def pack_samples(samples: Samples) -> Any:
    """Samples as JSON values."""
    return {str(i): [asdict(sample) for sample in found] for i, found in samples.items()}


def unpack_samples(data: Mapping[str, Any]) -> dict[int, list[Sample]]:
    """Samples from JSON values."""
    return {int(i): [_sample(row) for row in rows] for i, rows in data.items()}


def _sample(row: Mapping[str, Any]) -> Sample:
    return Sample(
        **{
            **row,
            **_intervals(row),
            "loops": tuple(row["loops"]),
            "values": tuple(row["values"]),
            "change": _interval(row.get("change")),
        }
    )


def _intervals(row: Mapping[str, Any]) -> dict[str, Interval | None]:
    """The fields that samples and measurements share."""
    names = ("subject_us", "reference_us", "ratio", "extra_us", "device_us")
    return {name: _interval(row[name]) for name in names}


def _interval(row: Mapping[str, float] | None) -> Interval | None:
    return None if row is None else Interval(**row)


def pack_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Verdicts as the property of a test's report."""
    return json.dumps([asdict(verdict) for verdict in verdicts])


def unpack_verdicts(text: str) -> list[Verdict]:
    """Verdicts from a report's property; none if a test wrote something else there."""
    try:
        return [_verdict(row) for row in json.loads(text)]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []


def _verdict(row: Mapping[str, Any]) -> Verdict:
    base = row["base"]
    if base is not None:
        measured, change = _measurement(base["measured"]), _interval(base["change"])
        rest = {
            "lines": _lines(base),
            "layers": _layers(base.get("layers")),
            "compiled": _compiled(base.get("compiled")),
            "implied_us": _interval(base.get("implied_us")),
            "pace": _pace(base.get("pace")),
            "other": tuple(base.get("other", ())),
        }
        base = Base(**{**base, **rest, "measured": measured, "change": change})
    return Verdict(
        **{
            **row,
            "limits": tuple(Limit(**limit) for limit in row["limits"]),
            "lines": _lines(row),
            "varying": tuple(row["varying"]),
            "measured": _measurement(row["measured"]),
            "base": base,
            "layers": _layers(row.get("layers")),
            "reference_layers": _layers(row.get("reference_layers")),
            "compiled": _compiled(row.get("compiled")),  # absent from older runs
        }
    )


def _layers(row: Mapping[str, Any] | None) -> Layers | None:
    if row is None:
        return None
    parts = tuple(Layer(**{**one, "us": Interval(**one["us"])}) for one in row["layers"])
    whole = Interval(**row["whole_us"])
    return Layers(
        **{
            **row,
            "whole_us": whole,
            "layers": parts,
            "notes": tuple(row["notes"]),
            "functions": tuple(row["functions"]),
        }
    )


def _compiled(row: Mapping[str, Any] | None) -> Compiled | None:
    if row is None:
        return None
    events = {
        name: tuple(CompileEvent(**event) for event in row[name])
        for name in ("breaks", "recompiles")
    }
    guard_us = _interval(row.get("guard_us"))
    return Compiled(
        tuple(Guards(**one) for one in row["guards"]),
        **events,
        compile_s=row["compile_s"],
        guard_us=guard_us,
    )


def _lines(row: Mapping[str, Any]) -> tuple[CostlyLine, ...]:
    return tuple(CostlyLine(**line) for line in row["lines"])


def _measurement(row: Mapping[str, Any] | None) -> Measurement | None:
    if row is None:
        return None
    beside = tuple(Beside(**one) for one in row.get("beside", ()))  # absent from older runs
    return Measurement(**{**row, **_intervals(row), "beside": beside})


def _pace(row: Mapping[str, Any] | None) -> Pace | None:
    if row is None:
        return None
    return Pace(
        **{**row, "change": Interval(**row["change"]), "subject": _interval(row["subject"])}
    )
