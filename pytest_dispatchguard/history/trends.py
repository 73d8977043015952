"""What is done with the history of budgets: runs kept in it, shards merged, tests shown from run to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from pytest_dispatchguard.config.project_root import find_root
from pytest_dispatchguard.history import store
from pytest_dispatchguard.history.checkouts import checkout_of
from pytest_dispatchguard.history.databases import Database
from pytest_dispatchguard.history.pytest_ini import setting
from pytest_dispatchguard.history.shards import Shard, joined
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.history import Checkout, Kept, Point, Run, Trend
from pytest_dispatchguard.model.verdicts import Verdict
from pytest_dispatchguard.project_folder import made
from pytest_dispatchguard.report.budgets import history as report
from pytest_dispatchguard.report.budgets import read_json
from pytest_dispatchguard.spelling import did_you_mean, nearest

Format = Literal["text", "json"]

SETTING = "overhead_history"
"""Of pytest, which names the place for every run."""
_DRAWN = 30
"""Runs that a page draws of a test."""
_USUAL = "instructions"
"""The counter that every subject has."""


@dataclass(frozen=True, slots=True)
class Began:
    """When a run began, and at which state of the code."""

    at: str
    checkout: Checkout

    @classmethod
    def now(cls, folder: Path) -> Began:
        """Here and now."""
        moment = datetime.now(timezone.utc)
        return cls(moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), checkout_of(folder))


def place_of(word: str | None, folder: Path) -> str:
    """The URL or file that people name in a folder; where they name none, what pytest's settings name, else
    the project's own history."""
    if not word:
        said = setting(SETTING, folder)
        if said is None:
            return str(find_root([folder]) / store.FILE)
        word, folder = said.value, said.folder
    path = store.path_in(word)
    return word if store.is_url(path) else str(folder / path)


def keep(verdicts: Iterable[Verdict], machine: Mapping[str, str], began: Began, place: str) -> None:
    """Keeps verdicts as one run of the history."""
    file = Path(place)
    if file.parts[-2:] == store.FILE.parts:
        try:
            with made(file.parent):
                pass
        except OSError as error:
            raise UserError(
                f"{file.parent}: cannot be created: {error.strerror or error}"
            ) from None
    run = Run(began.at, dict(machine), began.checkout)
    store.add(store.database_at(place), run, [_kept(verdict) for verdict in verdicts])


def _kept(verdict: Verdict) -> Kept:
    said = verdict.node_id, verdict.subject, verdict.verdict, verdict.counters, verdict.reason
    measured = verdict.measured
    if measured is None:
        return Kept(*said)
    reference = measured.reference_us
    return Kept(
        *said,
        ratio=measured.ratio,
        host_us=measured.subject_us,
        extra_us=measured.extra_us,
        device_us=measured.device_us,
        reference_us=None if reference is None else reference.value,
    )


def merged(files: Sequence[Path], folder: Path) -> tuple[list[Verdict], dict[str, str]]:
    """What files of `--overhead-json` hold, as one run."""
    return joined([Shard(str(file), *read_json.load(folder / file)) for file in files])


def kept_at(place: str) -> Database:
    """A history that is there to be read."""
    if not store.is_url(place) and not Path(place).exists():
        raise UserError(
            f"{place}: no history yet; `pytest --overhead-budget=count --overhead-history` starts one"
        )
    return store.database_at(place)


def told(place: str, test: str | None, last: int, form: Format, *, color: bool, width: int) -> str:
    """All tests, or one from run to run, as text or JSON."""
    database = kept_at(place)
    if test is None:
        known = store.newest(database)
        return (
            report.tests_as_json(known)
            if form == "json"
            else report.tests_as_text(known, color=color)
        )
    found = trends_of(database, test, last)
    if form == "json":
        return report.trends_as_json(found)
    return report.trends_as_text(found, color=color, width=width)


def earlier(
    history: str | None, tests: Iterable[str], folder: Path
) -> dict[tuple[str, str], list[float]]:
    """What the subjects of tests came to in earlier runs, the oldest first: their ratios, or the instructions
    of those that were never timed. Without a place named, nothing where the project has no history."""
    place = place_of(history, folder)
    if history is None and not store.is_url(place) and not Path(place).exists():
        return {}
    wanted = list(dict.fromkeys(tests))
    found: dict[tuple[str, str], list[float]] = {}
    for trend in store.trends_of_all(kept_at(place), wanted, _DRAWN) if wanted else ():
        points = [point.kept for point in trend.points]
        ratios = [kept.ratio.value for kept in points if kept.ratio is not None]
        counted = [float(k.counters[_USUAL]) for k in points if _USUAL in k.counters]
        figures = ratios if len(ratios) > 1 else counted
        if len(figures) > 1:
            found[trend.node_id, trend.subject] = figures
    return found


def trends_of(database: Database, test: str, last: int) -> list[Trend]:
    """The subjects that people mean by a test's name or a part of it, with or without one in parentheses."""
    node_id, subject = split(test)
    found = store.trends(database, node_id, last)
    if not found:
        points = [point for point, _ in store.newest(database)]
        found = [
            trend
            for near in _having(points, node_id)
            for trend in store.trends(database, near, last)
        ]
    chosen = [trend for trend in found if subject in ("", trend.subject)]
    if chosen:
        return chosen
    if found:
        advice = did_you_mean(subject, [trend.subject for trend in found])
        raise UserError(f"no subject {subject!r} of {node_id} is in the history; {advice}")
    near = nearest(test, {point.kept.node_id for point in points})
    advice = f'did you mean "{near}"?' if near else "`dispatchguard history` lists all"
    raise UserError(f"no test {test!r} is in the history; {advice}")


def _having(points: Sequence[Point], part: str) -> list[str]:
    return list(dict.fromkeys(p.kept.node_id for p in points if part in p.kept.node_id))


def split(test: str) -> tuple[str, str]:
    """A test, and the subject that stands in parentheses behind it; empty where none does."""
    node_id, space, subject = test.rpartition(" (")
    return (node_id, subject[:-1]) if space and test.endswith(")") else (test, "")
