"""Saves and loads runs as files of pyperf, so that its commands can read them, with verdicts in their
metadata."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_dispatchguard.measure.budgets.budget_file import version_of
from pytest_dispatchguard.measure.budgets.machine import (
    installed_versions,
    processor,
    processor_in,
)
from pytest_dispatchguard.measure.budgets.messages import (
    pack_verdicts,
    unpack_samples,
    unpack_verdicts,
)
from pytest_dispatchguard.measure.budgets.session import keyed
from pytest_dispatchguard.measure.timing.intervals import median
from pytest_dispatchguard.measure.timing.timing import Sample
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.measurements import Beside
from pytest_dispatchguard.model.verdicts import Base, Verdict

FOLDER = Path(".dispatchguard", "runs")
_OURS = "dispatchguard"
"""The metadata key of a verdict."""
_CONTROL = "control_"
"""How metadata keys of control calls begin: `control_tree_us`."""
_LEAST = 1e-12
"""Seconds: pyperf rejects zero."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The results of one subject in a run."""

    key: str
    verdict: Verdict
    samples: Sequence[Sample]
    metadata: Sequence[Mapping[str, Any]]
    """pyperf's metadata of each process that measured."""


def path_of(root: Path, name: str) -> Path:
    """The file of a run with that name."""
    if not re.fullmatch(r"[\w][\w.+-]*", name):
        raise UserError(
            f"--overhead-save: a run is named by letters, digits, dots and dashes, not {name!r}"
        )
    return root / FOLDER / f"{name}.json"


def found(root: Path, folder: Path, name: str) -> Path:
    """The file for `--overhead-compare`: a path, or the name of a run."""
    file = folder / name
    if file.is_file():
        return file
    named = root / FOLDER / f"{name}.json"
    if named.is_file():
        return named
    known = sorted(path.stem for path in (root / FOLDER).glob("*.json"))
    there = f"there is {', '.join(known)}" if known else "none is saved yet (--overhead-save=NAME)"
    raise UserError(f"--overhead-compare: no file and no run is called {name!r}; {there}")


def taken(verdicts: Sequence[Verdict], told: str) -> list[Taken]:
    """The results of subjects, from the report of a test."""
    data = json.loads(told)
    samples = unpack_samples(data["samples"])
    return [
        Taken(key, verdict, samples.get(i, ()), data["metadata"])
        for i, (key, verdict) in enumerate(keyed(verdicts))
    ]


def as_text(run: Sequence[Taken]) -> str:
    """A run as text of a pyperf file: two benchmarks for each subject, a pyperf run for each process."""
    import pyperf

    benchmarks = []
    for one in run:
        measured = one.verdict.measured and replace(one.verdict.measured, beside=())
        plain = replace(one.verdict, lines=(), base=None, measured=measured)
        row = json.dumps({**json.loads(pack_verdicts([plain]))[0], "versions": _versions()})
        for side, suffix in ((0, ""), (1, " (reference)")):
            runs = [
                _run(
                    pyperf,
                    one.key + suffix,
                    sample,
                    side,
                    {**about, **({} if side else {_OURS: row, **_controls(sample)})},
                )
                # A process in which the subject failed has no sample.
                for sample, about in zip(one.samples, one.metadata, strict=False)
                if sample.values[side]
            ]
            if runs:
                benchmarks.append(pyperf.Benchmark(runs))
    if not benchmarks:
        return ""
    text = io.StringIO()
    pyperf.BenchmarkSuite(benchmarks).dump(text)
    return text.getvalue()


def _controls(sample: Sample) -> dict[str, float]:
    return {f"{_CONTROL}{name}_us": us for name, us in sample.controls.items()}


def _beside(benchmark: Any) -> tuple[Beside, ...]:
    """What each process of a run took; nothing if it was saved without control calls."""
    found = []
    for run in benchmark.get_runs():
        controls = {
            key.removeprefix(_CONTROL).removesuffix("_us"): float(us)
            for key, us in run.get_metadata().items()
            if key.startswith(_CONTROL) and isinstance(us, (int, float))
        }
        if controls and run.values:
            found.append(Beside(median(sorted(run.values)) * 1e6, controls))
    return tuple(found)


def _other(*pairs: tuple[str, str]) -> tuple[str, ...]:
    """What of an earlier run, as far as it is known, is not the same here."""
    return tuple(f"{before}, now {now}" for before, now in pairs if before and before != now)


def _run(pyperf: Any, name: str, sample: Sample, side: int, about: Mapping[str, Any]) -> Any:
    values = [max(us / 1e6, _LEAST) for us in sample.values[side]]
    metadata = {**about, "name": name, "loops": sample.loops[side], "unit": "second"}
    return pyperf.Run(values, metadata=metadata, collect_metadata=False)


def load(path: Path, name: str) -> dict[str, Base]:
    """The subjects of a saved run, by key."""
    import pyperf

    try:
        suite = pyperf.BenchmarkSuite.load(str(path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"--overhead-compare: {path.name} is no file of pyperf: {said}") from None
    bases, here = {}, processor()
    for benchmark in suite:
        row = benchmark.get_metadata().get(_OURS)
        found = json.loads(row) if row is not None else {}
        versions = found.pop("versions", "")
        for verdict in unpack_verdicts(json.dumps([found])):
            # Counters hold for one Python and one torch.
            alike = versions == _versions()
            counters = verdict.counters if alike else {}
            shown = name if alike else f"{name} ({versions})"
            facts = verdict.compiled if alike else None
            measured = verdict.measured and replace(verdict.measured, beside=_beside(benchmark))
            there = processor_in(benchmark.get_metadata())
            other = _other((there, here), (versions, _versions()))
            bases[benchmark.get_name()] = Base(
                shown, counters, measured, compiled=facts, earlier=True, other=other
            )
    if not bases:
        raise UserError(
            f"--overhead-compare: {path.name} holds no run that --overhead-save has written"
        )
    return bases


def _versions() -> str:
    return version_of(installed_versions())
