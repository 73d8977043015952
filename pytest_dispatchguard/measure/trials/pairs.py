"""Has one call measured in two source trees, by pairs of processes that take turns."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from pytest_dispatchguard.measure.budgets.messages import unpack_samples
from pytest_dispatchguard.measure.processes.launching import Launch, start
from pytest_dispatchguard.measure.timing.lockstep import LOST, Ends, Partner
from pytest_dispatchguard.measure.timing.measurements import measurement
from pytest_dispatchguard.measure.timing.pairs import LEAST_PAIRS, inverse, over_pairs
from pytest_dispatchguard.measure.timing.timing import Sample
from pytest_dispatchguard.measure.workers.lockstep import Pipes
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.reviews import Gain

CONFIDENCE = 0.999
_MOST_PAIRS = 6
"""Each has processes of its own, which import all that the call needs."""
_SECONDS = 1.5
"""That a pair measures, at most."""
_PATIENCE = 60.0
"""Seconds without a word after which a call is given up."""
_BEGIN = 600.0
"""The same while the setup runs, which may import for long."""
_END = 2.0
_MOST_SAID = 200
_MEETINGS = count(1)
_RUN = (
    "from pytest_dispatchguard.measure.trials.serving import serve; serve(*map(int, sys.argv[1:]))"
)

Answer = dict[str, Any]
Tell = Callable[[], object]


class CallError(UserError):
    """The call fails with the change, and not before."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The call to measure."""

    call: str
    setup: str = ""


class Process:
    """One process with the call."""

    def __init__(self, launch: Launch, number: int, turns: Ends, *, base: bool) -> None:
        self.base = base
        """Whether it is of the tree before the change."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        alive, self._alive = os.pipe()
        given = (requests, replies, alive, turns.reading, turns.writing)
        words = list(map(str, given))
        try:
            self._process = start(
                launch, number, _RUN, words, given=given, output=self._log, turns=True
            )
        finally:
            for end in (requests, replies, alive):
                os.close(end)
        self._heard = b""

    def send(self, what: str, **more: Any) -> None:
        """Asks for something."""
        with suppress(BrokenPipeError):  # `receive` says why
            os.write(self._requests, json.dumps({"ask": what, **more}).encode() + b"\n")

    def receive(self, timeout: float) -> Answer:
        """The answer; what is wrong under `error`."""
        until = time.monotonic() + timeout
        while b"\n" not in self._heard:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._replies], [], [], left)[0]:
                return {"error": f"no answer within {timeout:g} s"}
            read = os.read(self._replies, 1 << 16)
            if not read:
                return {"error": f"crashed: {self._last_words()}"}
            self._heard += read
        line, _, self._heard = self._heard.partition(b"\n")
        answer: Answer = json.loads(line)
        if answer.get("strays"):
            return {
                "error": f"{answer['strays'][0]} is imported from the work tree, not from the copy"
            }
        return answer

    def fileno(self) -> int:
        """What becomes readable when it answers, or is gone."""
        return self._replies

    def _last_words(self) -> str:
        status = self._process.wait()
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f"status {status}" + (f", {lines[-1].strip()[:_MOST_SAID]}" if lines else "")

    def close(self) -> None:
        """Ends the process, and those that it started."""
        os.close(self._requests)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._alive)
        os.close(self._replies)
        self._log.close()


@dataclass(slots=True)
class _Found:
    """What all pairs found."""

    before: list[Sample] = field(default_factory=list)
    changes: list[Interval] = field(default_factory=list)
    """How many times the call takes after the change what it takes before."""


def compared(asked: Asked, before: Launch, after: Launch, tell: Tell = lambda: None) -> Gain:
    """What a call costs in two trees. Raises `CallError` if it fails after the change alone."""
    found = _Found()
    after = replace(after, seed=before.seed)
    with closing(Pipes()) as pipes:
        counted = Gain(asked.call, {}, {})
        for number in range(_MOST_PAIRS):
            tell()
            with ExitStack() as stack:
                pair = [
                    stack.enter_context(
                        closing(Process(launch, number, pipes.of(number, base=base), base=base))
                    )
                    for launch, base in ((after, False), (before, True))
                ]
                _both(pair, _BEGIN, "begin", call=asked.call, setup=asked.setup)
                if number == 0:
                    counted = _counted(asked, pair)
                ends = [pipes.of(number, base=base) for base in (False, True)]
                _time(pair, ends, found, number)
                if number == 0:
                    counted = _waited(counted, pair)
            if number + 1 >= LEAST_PAIRS and _is_sure(found):
                break
    us = measurement(found.before, CONFIDENCE).subject_us.value
    return replace(counted, us=us, change=_change(found, last=len(found.changes) >= _MOST_PAIRS))


def _change(found: _Found, *, last: bool = False) -> Interval:
    return over_pairs(found.changes, CONFIDENCE, last=last, forked=False)


def _is_sure(found: _Found) -> bool:
    change = _change(found)
    return change.high < 1 or change.low > 1


def _both(pair: Sequence[Process], timeout: float, what: str, **more: Any) -> list[Answer]:
    """The answers of both; `UserError` if one has none."""
    for process in pair:
        process.send(what, **more)
    answers = [process.receive(timeout) for process in pair]
    # What fails before the change fails after it, too.
    for process, answer in reversed(list(zip(pair, answers, strict=True))):
        if "error" in answer:
            raise _failure(process, answer)
    return answers


def _failure(process: Process, answer: Answer) -> UserError:
    if process.base:
        return UserError(f"--call: in a copy of the work tree, without any fix: {answer['error']}")
    return CallError(f"the call fails: {answer['error']}")


def _counted(asked: Asked, pair: Sequence[Process]) -> Gain:
    after, before = _both(pair, _PATIENCE, "count")
    varying = tuple(dict.fromkeys((*before["varying"], *after["varying"])))
    return Gain(asked.call, before["counters"], after["counters"], varying)


def _waited(gain: Gain, pair: Sequence[Process]) -> Gain:
    """Adds the waits for the device; says why where they are not known."""
    for process in pair:
        process.send("waits")
    after, before = (process.receive(_PATIENCE) for process in pair)
    wrong = before.get("error") or after.get("error")
    if wrong:
        return replace(gain, note=f"waits are not known: {wrong}")
    if before["waits"] is None or after["waits"] is None:
        return gain
    return replace(
        gain,
        before={**gain.before, "syncs": before["waits"]},
        after={**gain.after, "syncs": after["waits"]},
    )


def _time(pair: Sequence[Process], ends: Sequence[Ends], found: _Found, number: int) -> None:
    """Has the pair time the call. They lead by turns, as in `workers.lockstep`."""
    meeting = next(_MEETINGS)
    request = {
        "meeting": meeting,
        "seconds": _SECONDS,
        "confidence": CONFIDENCE,
        "patience": _PATIENCE,
    }
    parts = ("lead", "follow") if number % 2 == 0 else ("follow", "lead")
    for process, part in zip(pair, parts, strict=True):
        process.send("time", part=part, **request)
    answers: dict[int, Mapping[str, Any]] = {}
    while len(answers) < 2:
        waiting = [side for side in (0, 1) if side not in answers]
        if any("error" in answer for answer in answers.values()):
            for side in waiting:
                # The other is told with the ends of the one that it waits for.
                Partner(ends[1 - side], meeting, 0.0).say(LOST)
        ready, _, _ = select.select([pair[side] for side in waiting], [], [], _PATIENCE + _SECONDS)
        for side in waiting if not ready else [side for side in waiting if pair[side] in ready]:
            answers[side] = pair[side].receive(_END)
    for side, answer in answers.items():  # the first to fail comes first: the other only lost it
        if "error" in answer:
            raise _failure(pair[side], dict(answer))
    after, before = (unpack_samples(answers[side]["samples"])[0][0] for side in (0, 1))
    found.before.append(before)
    if after.change is not None:
        found.changes.append(after.change)
    elif before.change is not None:
        found.changes.append(inverse(before.change))
