"""Prices of specimens: how much longer the bad form of each takes than the good form, measured like budgets,
by several workers in turn."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_dispatchguard.measure.budgets.messages import Request
from pytest_dispatchguard.measure.processes.launching import Launch
from pytest_dispatchguard.measure.timing.intervals import PROCESSES
from pytest_dispatchguard.measure.workers.reports import Found
from pytest_dispatchguard.measure.workers.sources import Source
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.prices import Priced

_TESTS = Path(__file__).with_name("tests.py")
_NAMES = "DISPATCHGUARD_SPECIMENS"
"""The environment variable that passes the files to the tests."""
_CONFIDENCE = 0.999
_TIMEOUT = 60.0
_WORKERS = 3
_MOST_SAID = 200

Tell = Callable[[str, int, int], object]


def measured(specimens: Sequence[Path], seconds: float, tell: Tell) -> list[Priced]:
    """Measures the specimens whose forms differ, each by as many processes as it takes to know which form
    costs less, within `seconds`."""
    specimens = [path for path in specimens if _differ(path)]
    source = Source(lambda: _launch(specimens), _WORKERS)
    found = []
    try:
        for number, path in enumerate(specimens):
            name = f"{path.parent.name}/{path.stem}"

            def tick(name: str = name, number: int = number) -> None:
                tell(name, number, len(specimens))

            tick()
            found.append(_priced(source, number, path, seconds, tick))
    finally:
        source.end()
    return found


def _priced(
    source: Source, number: int, path: Path, seconds: float, tick: Callable[[], None]
) -> Priced:
    waits, said = _waits(source, number, tick)
    code = path.parent.name
    priced = Priced(code, path.stem, waits=waits, note=said, places=_places(path, code))
    found, share = Found(), seconds / _WORKERS
    for processes in range(1, PROCESSES + 1):
        request = Request(
            f"{_TESTS.name}::test_price[{number}]",
            share,
            _CONFIDENCE,
            _TIMEOUT + share,
            found.samples,
            fully=True,
        )
        source.ask(found, request, tick)
        verdict = None if found.broken or not found.verdicts else found.verdicts[0]
        if verdict is None or verdict.measured is None:
            why = verdict.reason if verdict is not None else found.broken or _failure(found)
            return replace(priced, note="; ".join(filter(None, (said, why))))
        saves = verdict.measured.extra_us
        bad_us, saves_us = (_rounded(us) for us in (verdict.measured.subject_us, saves))
        priced = replace(priced, bad_us=bad_us, saves_us=saves_us)
        if processes >= _WORKERS and saves is not None and not saves.low <= 0 <= saves.high:
            break
    if priced.bad_us is None or priced.saves_us is None:
        short = f"{seconds:g} s are too short to tell; give it more by --seconds"
        return replace(priced, note="; ".join(filter(None, (said, short))))
    return priced


def _differ(path: Path) -> bool:
    """Whether the forms of a specimen differ. They are alike where it shows a finding without a fix."""
    forms = {name: list(map(ast.dump, form.body)) for name, form in _forms(path).items()}
    return "bad" not in forms or forms["bad"] != forms.get("good")


def _places(path: Path, code: str) -> int:
    """How many findings of a specimen its good form does without; at least one."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    good = _forms(path).get("good")
    kept = [] if good is None else lines[good.lineno - 1 : good.end_lineno]
    return max(1, _expected(lines, code) - 2 * _expected(kept, code))


def _expected(lines: Sequence[str], code: str) -> int:
    """How many findings of a rule the comments of these lines expect."""
    said = (line.partition("expect:")[2] for line in lines if re.search(r"#\s*expect:", line))
    return sum(re.findall(r"\w+", codes).count(code) for codes in said)


def _forms(path: Path) -> dict[str, ast.FunctionDef | ast.ClassDef]:
    """The definitions of a specimen by their names in small letters: `bad`, `good`, and their helpers. There
    are none in what is no Python, as measuring it will tell."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError):
        return {}
    definitions = (part for part in body if isinstance(part, ast.FunctionDef | ast.ClassDef))
    return {part.name.lower(): part for part in definitions}


def _rounded(us: Interval | None) -> Interval | None:
    """Rounds to tenths of nanoseconds, for readable tables. None if the interval is infinite."""
    if us is None or not math.isfinite(us.high - us.low):
        return None
    return Interval(round(us.value, 4), round(us.low, 4), round(us.high, 4))


def _waits(source: Source, number: int, tick: Callable[[], None]) -> tuple[tuple[int, int], str]:
    """How often each form waits for a device, and the reason if that is unknown."""
    found = Found()
    node_id = f"{_TESTS.name}::test_waits[{number}]"
    source.ask(found, Request(node_id, 0.0, _CONFIDENCE, _TIMEOUT), tick)
    for report in found.reports:
        for name, value in report.user_properties:
            if name == "waits" and isinstance(value, list):
                return (int(value[0]), int(value[1])), ""
    return (0, 0), f"waits are not known: {found.broken or _failure(found)}"


def _failure(found: Found) -> str:
    for report in found.reports:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = report.longreprtext if crash is None else crash.message
            return " ".join(said.split())[:_MOST_SAID]
    return "it was skipped"


def _launch(specimens: Sequence[Path]) -> Launch:
    """Starts workers without a project: no settings, no conftest, no other plugin."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    environment[_NAMES] = json.dumps(list(map(str, specimens)))
    words = ["-p", "pytest_dispatchguard.plugin", "-p", "no:cacheprovider", "-c", os.devnull]
    words += ["--rootdir", str(_TESTS.parent), "--noconftest", "--import-mode=importlib"]
    return Launch(
        [*words, "--overhead-budget=check", str(_TESTS)], _TESTS.parent, sys.path, environment
    )
