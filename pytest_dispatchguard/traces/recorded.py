"""What a trace file recorded, short enough to be sorted: its events as numbers, and the names that these
mean."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.traces import Line
from pytest_dispatchguard.traces import timeline as kinds
from pytest_dispatchguard.traces.frames import Files, of_stack, parsed
from pytest_dispatchguard.traces.stream import Header, Tell, events
from pytest_dispatchguard.traces.timeline import Timeline
from pytest_dispatchguard.traces.vocabulary import OPTIMIZER, STEP, Place, place_of

_MOST_NAMES, _MOST_STEPS, _MOST_THREADS, _MOST_DEVICES = 100_000, 20_000, 10_000, 64
_MOST_CALLS = 110_000
"""Names, with those of calls of the runtime that come when all others have their number."""
_LONGEST_NAME = 300
_LONGEST_KEY, _LONGEST_ID = 2_000, 64
_LATEST = 1e17
"""Microseconds: the year 5138. What says that it began later is no time."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_RANK = re.compile(r"rank[-_]?(\d{1,6})")
_KINDS: Mapping[Place, int] = {
    "annotation": kinds.ANNOTATION,
    "python": kinds.PYTHON,
    "operator": kinds.OPERATOR,
    "runtime": kinds.RUNTIME,
    "driver": kinds.DRIVER,
    "device": kinds.DEVICE,
}


@dataclass(slots=True)
class Table:
    """Things by number. What comes when it is full gets the number of `other`, 0."""

    other: Any
    most: int
    items: list[Any] = field(default_factory=list)
    numbers: dict[Any, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.number(self.other)

    def number(self, item: Any, most: int = 0) -> int:
        """The number of a thing. Some are given more room than others."""
        found = self.numbers.get(item)
        if found is not None:
            return found
        if len(self.items) >= max(self.most, most):
            return 0
        self.numbers[item] = len(self.items)
        self.items.append(item)
        return len(self.items) - 1


@dataclass(slots=True)
class Recorded:
    """One file, read."""

    path: Path
    header: Header
    timeline: Timeline
    names: Table = field(default_factory=lambda: Table("(other)", _MOST_NAMES))
    lines: Table = field(default_factory=lambda: Table(None, _MOST_NAMES))
    """Places in the user's code: of Python frames, and of the stacks of operators."""
    threads: Table = field(default_factory=lambda: Table(("", ""), _MOST_THREADS))
    devices: Table = field(default_factory=lambda: Table(-1, _MOST_DEVICES))
    steps: list[tuple[float, float, str]] = field(default_factory=list)
    """Marked steps: begin, end, name."""
    optimized: list[float] = field(default_factory=list)
    """When steps of an optimizer ended."""
    first: float = math.inf
    last: float = -math.inf
    stacks: bool = False

    @property
    def rank(self) -> int | None:
        """Which of several processes wrote it; None where it does not say."""
        info = self.header.values.get("distributedInfo")
        rank = info.get("rank") if isinstance(info, dict) else None
        if isinstance(rank, int):
            return rank
        found = _RANK.search(self.path.name)
        return int(found[1]) if found else None

    def device_name(self, number: int) -> str:
        """What the file calls a device."""
        for key in ("deviceProperties", "computeProperties"):
            listed = self.header.values.get(key)
            for one in listed if isinstance(listed, list) else ():
                if isinstance(one, dict) and one.get("id") == number:
                    return clean(str(one.get("name", "")))
        return ""


def read(path: Path, timeline: Timeline, files: Files, tell: Tell | None = None) -> Recorded:
    """Reads a file into a timeline, which the caller closes."""
    recorded = Recorded(path, Header(), timeline)
    reader = _Reader(recorded, files)
    try:
        for event in events(path, recorded.header, tell):
            # Names, arrows and counters have other phases; B and E are not written by the profiler.
            if event.get("ph") == "X":
                place = place_of(event.get("cat"))
                if place is not None:
                    reader.add(event, place)
    except OSError as error:  # of the temporary file: what the trace itself raises is told already
        reason = error.strerror or str(error)
        raise UserError(
            f"the trace cannot be sorted in a temporary file: {reason}; set TMPDIR to a folder with room"
        ) from None
    return recorded


def clean(name: str) -> str:
    """A name without what differs from run to run, and not too long."""
    if "\\" in repr(name):
        name = name.encode("utf-8", "replace").decode("utf-8", "replace")
    return _ADDRESS.sub("", name[:_LONGEST_NAME])


class _Reader:
    def __init__(self, recorded: Recorded, files: Files) -> None:
        self._recorded = recorded
        self._files = files
        self._known: dict[str, int] = {}
        self._threads: dict[tuple[Any, Any], int] = {}
        self._frames: dict[str | int, int] = {}
        """By what a trace has; stacks, which are long, by their hash."""

    def add(self, event: dict[str, Any], place: Place) -> None:
        """Adds an event that lasts for some time."""
        start, us = event.get("ts"), event.get("dur", 0)
        if type(start) is not float and type(start) is not int:
            start = _number(start)
        if type(us) is not float and type(us) is not int:
            us = _number(us)
        name = event.get("name")
        # The comparisons are false for what is not a number.
        if not (0 <= start < _LATEST and 0 <= us < _LATEST) or not isinstance(name, str):
            return
        start, us = float(start), float(us)
        recorded = self._recorded
        args = event.get("args")
        if not isinstance(args, dict):
            args = {}
        kind = _KINDS[place]
        link = 0
        if place == "device":
            lane = self._device(event, args)
            link = _integer(args.get("correlation"))
        else:
            lane = self._thread(event.get("pid"), event.get("tid"))
            if place in ("runtime", "driver"):
                link = _integer(args.get("correlation"))
            elif place == "python":
                recorded.stacks = True
                link = self._frame(name)
                if not link:
                    return  # of a library: time in it is time of whoever called it
            else:
                if name.startswith((STEP, OPTIMIZER)):
                    self._step(name, start, us)
                    kind = kinds.ANNOTATION
                elif place == "operator":
                    link = self._stack(args, event["cat"] == "Operator")
        if start < recorded.first:
            recorded.first = start
        if start + us > recorded.last:
            recorded.last = start + us
        known = self._known.get(name)
        if known is None:
            known = self._name(name, _MOST_CALLS if place in ("runtime", "driver") else 0)
        recorded.timeline.add((start, -us, kind, lane, known, link))

    def _thread(self, process: object, thread: object) -> int:
        if type(process) is not int or type(thread) not in (int, str):
            return self._recorded.threads.number((_id(process), _id(thread)))
        known = self._threads.get((process, thread))
        if known is None:
            known = self._recorded.threads.number((_id(process), _id(thread)))
            if len(self._threads) < _MOST_THREADS and len(_id(thread)) < _LONGEST_ID:
                self._threads[process, thread] = known
        return known

    def _name(self, name: str, most: int) -> int:
        known = self._recorded.names.number(clean(name), most)
        if known and len(name) <= _LONGEST_KEY:
            self._known[name] = known
        return known

    def _frame(self, name: str) -> int:
        known = self._frames.get(name)
        if known is None:
            line = parsed(name[:4096], self._files, exact=False)
            known = self._recorded.lines.number(_clean_line(line))
            if len(self._frames) < _MOST_NAMES and len(name) <= _LONGEST_KEY:
                self._frames[name] = known
        return known

    def _stack(self, args: Mapping[str, Any], old: bool) -> int:
        stack = args.get("Call stack")
        if not stack or not isinstance(stack, str):
            return 0
        self._recorded.stacks = True
        key = hash(stack)
        known = self._frames.get(key)
        if known is None:
            line = of_stack(stack, self._files, exact=old)
            known = self._recorded.lines.number(_clean_line(line))
            if len(self._frames) < _MOST_NAMES:
                self._frames[key] = known
        return known

    def _device(self, event: Mapping[str, Any], args: Mapping[str, Any]) -> int:
        number = args.get("device", event.get("pid"))
        return self._recorded.devices.number(_integer(number))

    def _step(self, name: str, start: float, us: float) -> None:
        recorded = self._recorded
        if name.startswith(STEP):
            if len(recorded.steps) < _MOST_STEPS:
                recorded.steps.append((start, start + us, clean(name)))
        elif len(recorded.optimized) < _MOST_STEPS:
            recorded.optimized.append(start + us)


def _clean_line(line: Line | None) -> Line | None:
    if line is None:
        return None
    return Line(clean(line.file), line.line, clean(line.function), line.exact, line.ours)


def _id(value: object) -> str:
    """What a process or a thread is called; not all of it where it is no name."""
    return str(value)[:_LONGEST_ID]


def _number(value: object) -> float:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    return math.nan


def _integer(value: object) -> int:
    """A whole number that fits where it is kept; 0 for all else."""
    return value if isinstance(value, int) and -(2**62) < value < 2**62 else 0
