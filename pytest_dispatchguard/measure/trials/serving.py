"""A process that counts and times one call of a source tree, on request: a line of JSON each."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_dispatchguard.measure.budgets.messages import pack_samples
from pytest_dispatchguard.measure.layers.targets import call_of
from pytest_dispatchguard.measure.processes.work_tree import strays_here
from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.measure.timing.devices import here
from pytest_dispatchguard.measure.timing.lockstep import Ends, Partner, follow, lead, turns_of
from pytest_dispatchguard.measure.trials.lifeline import hold
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.runtime.compiled.counts import failure
from pytest_dispatchguard.runtime.counters import counters
from pytest_dispatchguard.runtime.target import names_after, reporting_errors

_WARM_UPS = 2
_SEED = 0
"""Both trees are to draw the same numbers; torch has a fixed seed of its own."""

Answer = dict[str, Any]


class Served:
    """One call, and the pipes to the process that takes turns with this one."""

    def __init__(self, turns: Ends) -> None:
        self._turns = turns
        self._call: Call | None = None
        self._asked = ("", "")

    def begin(self, request: Answer) -> Answer:
        """Runs the setup, and makes the call."""
        self._asked = request["call"], request["setup"]
        self._call = self._made()
        return {"strays": strays_here()}

    def _made(self) -> Call:
        call, setup = self._asked
        random.seed(_SEED)
        return call_of(call, names_after(setup, Path.cwd()), Path.cwd())

    def count(self, request: Answer) -> Answer:
        """The counters of one call."""
        assert self._call is not None
        with reporting_errors("--call", Path.cwd()):
            found = counters.count(self._call.once())
        return {"counters": dict(found.values), "varying": found.varying, "strays": strays_here()}

    def time(self, request: Answer) -> Answer:
        """Times the call, by turns with the other process."""
        assert self._call is not None
        partner = Partner(self._turns, request["meeting"], request["patience"])
        turns = turns_of(self._call, None, device=here(None))
        confidence = request["confidence"]
        with reporting_errors("--call", Path.cwd()):
            if request["part"] == "lead":
                found = lead(turns, partner, request["seconds"], confidence)
            else:
                found = follow(turns, partner, confidence)
        return {"samples": pack_samples({0: [found]})}

    def waits(self, request: Answer) -> Answer:
        """How often the call waits for the device, on the ghost: the setup runs once more, with the ghost as
        the default device."""
        if "torch" not in sys.modules:
            return {"waits": None}
        import torch

        from pytest_dispatchguard.runtime.ghost.ghost import ghost
        from pytest_dispatchguard.runtime.syncs.syncs import recording

        with ghost():
            torch.set_default_device("cuda")
            run = self._made().once()
            with reporting_errors("--call", Path.cwd()):
                for _ in range(_WARM_UPS):
                    run()
                with recording() as seen:
                    run()
        return {"waits": sum(times for sync, times in seen.times.items() if sync.waits)}


def serve(requests: int, replies: int, alive: int, reading: int, writing: int) -> None:
    """Answers until the pipe of requests is closed, and ends the process."""
    hold(alive)
    for end in (requests, replies, reading, writing):
        os.set_inheritable(end, False)
    sys.path.insert(0, str(Path.cwd()))
    served = Served(Ends(reading, writing))
    asked: dict[str, Callable[[Answer], Answer]] = {
        "begin": served.begin,
        "count": served.count,
        "time": served.time,
        "waits": served.waits,
    }
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            request = json.loads(line)
            try:
                answer = asked[request["ask"]](request)
            except UserError as error:
                answer = {"error": str(error)}
            except Exception as error:  # noqa: BLE001 - whatever the user's code raises is told
                known = failure(error)
                answer = {"error": str(known) if known else f"{type(error).__name__}: {error}"}
            data = json.dumps(answer).encode() + b"\n"
            while data:
                data = data[os.write(replies, data) :]
    os._exit(0)
