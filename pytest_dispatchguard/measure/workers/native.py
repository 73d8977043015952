"""Has native instructions counted by workers of their own: each with hash seed 0 and a fixed address layout,
where the system lets hardware counters be read, else under valgrind."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pytest_dispatchguard.measure.budgets.messages import Request
from pytest_dispatchguard.measure.budgets.native import Counted, is_asked, with_native
from pytest_dispatchguard.measure.processes.launching import Launch
from pytest_dispatchguard.measure.workers.items import node_id_of
from pytest_dispatchguard.measure.workers.reports import Found
from pytest_dispatchguard.measure.workers.sources import Source
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.verdicts import Verdict
from pytest_dispatchguard.runtime.counters import native

_SLOWER = 10
"""How much longer a test may take under valgrind before it is given up."""
_PROCESSES = 3
_APART = 1.001
"""Where two processes differ by more, the third one is asked. In one process of fifteen or so a call of a
layer of torch takes a percent more, in all blocks: two attributes share a slot in the interpreter's cache."""


class Native:
    """Adds native instructions to the verdicts of tests that ask for them."""

    def __init__(
        self,
        launch: Callable[[], Launch],
        base: Callable[[], Launch] | None,
        timeout: float,
        *,
        everywhere: bool,
    ) -> None:
        """`base` starts workers of another revision. `everywhere` asks for all subjects, not only for those
        with a limit."""
        self._launches = [launch] if base is None else [launch, base]
        self._timeout = timeout * _SLOWER
        self._everywhere = everywhere
        self._sources: list[Source] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        """Where callgrind writes."""
        self._way = self._missing = ""

    def added(
        self, item: pytest.Item, verdicts: Sequence[Verdict], tick: Callable[[], None]
    ) -> list[Verdict]:
        """The verdicts of a test, with native instructions where they are asked for."""
        asked = [is_asked(verdict, self._everywhere) for verdict in verdicts]
        if not any(asked):
            return list(verdicts)
        self._begin()
        compared = any(v.base is not None and not v.base.note for v in verdicts)
        found = [
            self._counted(source, item, tick) for source in self._sources[: 2 if compared else 1]
        ]
        told = []
        for verdict, wanted in zip(verdicts, asked, strict=True):
            both = [self._of(one, verdict.subject) for one in found] or [
                Counted(None, self._missing)
            ]
            noted = verdict.base is None or bool(verdict.base.note)
            there = None if noted or len(both) < 2 else both[1]
            told.append(with_native(verdict, both[0], there) if wanted else verdict)
        return told

    def _begin(self) -> None:
        """Starts the workers, all at once; or finds out why there can be none."""
        if self._sources or self._missing:
            return
        command: list[str] = []
        no_events = native.why_no_events()
        self._way = native.EVENTS
        if no_events:
            self._folder = tempfile.TemporaryDirectory(prefix="dispatchguard-native-")
            self._way = self._folder.name
            try:
                command = native.under_callgrind(Path(self._way))
            except UserError as error:
                self._missing = f"{no_events}, and {error}"
                return
        for launch in self._launches:
            source = Source(partial(_fixed, launch, command), _PROCESSES)
            source.start()
            self._sources.append(source)

    def _counted(
        self, source: Source, item: pytest.Item, tick: Callable[[], None]
    ) -> tuple[Found, dict[str, int]]:
        """What the last process said, and the fewest instructions of each subject in any of them."""
        found, least = Found(), dict[str, int]()
        request = Request(node_id_of(item), 0.0, 0.5, self._timeout, native=self._way)
        for number in range(_PROCESSES):
            source.ask(found, request, tick)
            if found.broken:
                break
            apart = False
            for verdict in found.verdicts:
                told = verdict.counters.get(native.NAME)
                if told is not None:
                    known = least.setdefault(verdict.subject, told)
                    apart = apart or max(told, known) > _APART * min(told, known)
                    least[verdict.subject] = min(told, known)
            if not least or (number and not apart):
                break
        return found, least

    def _of(self, counted: tuple[Found, dict[str, int]], subject: str) -> Counted:
        found, least = counted
        if not found.broken and subject in least:
            return Counted(least[subject])
        verdict = next((v for v in found.verdicts if v.subject == subject), None)
        failing = next((report.longreprtext for report in found.reports if report.failed), "")
        why = found.broken or (verdict.reason if verdict else failing) or "there is no such subject"
        return Counted(None, why.strip().splitlines()[-1].strip())

    def end(self) -> None:
        """Ends the workers."""
        for source in self._sources:
            source.end()
        self._sources.clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _fixed(launch: Callable[[], Launch], command: Sequence[str]) -> Launch:
    return replace(launch(), command=command, fixed=True)
