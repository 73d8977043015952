"""A worker: pytest on the same selection, which measures tests on request. Each test runs in a child forked
after the imports, so that a crash, a leak or a changed global stays with its test."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.runner import runtestprotocol

from pytest_dispatchguard.measure.budgets.machine import pyperf_metadata
from pytest_dispatchguard.measure.budgets.messages import Request, pack_samples, unpack_request
from pytest_dispatchguard.measure.processes.launching import SCATTER
from pytest_dispatchguard.measure.processes.work_tree import strays_here
from pytest_dispatchguard.measure.timing.calibration import freeze_for_good
from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.measure.timing.lockstep import Ends
from pytest_dispatchguard.measure.workers.children import Child, killed_with_parent, may_fork
from pytest_dispatchguard.measure.workers.workers import CHILD
from pytest_dispatchguard.runtime.code.placement import place_anew
from pytest_dispatchguard.runtime.counters import counters

REQUEST: pytest.StashKey[Request] = pytest.StashKey()
"""The request for the running test."""
TURNS: pytest.StashKey[Ends | None] = pytest.StashKey()
"""The ends of pipes to a worker of another revision."""
SAMPLES: pytest.StashKey[Any] = pytest.StashKey()
"""The samples of a test."""


class Worker:
    """The plugin of a worker: it waits for requests instead of running the tests."""

    def __init__(
        self, config: pytest.Config, requests: int, replies: int, *turns: int, saving: bool
    ) -> None:
        """`turns` are the ends of pipes to a worker of another revision, if there is one."""
        self.config = config
        self.turns = Ends(*turns) if turns else None
        self.folder = Path(config.option.basetemp).parent
        """For what is temporary, made and removed by the run that asks."""
        self.requests = requests
        self.replies = replies
        self.saving = saving
        """Whether results are saved, with pyperf's metadata."""
        self._seed = os.environ.get(SCATTER, "")
        self.uncollected: dict[str, str] = {}
        """Files that cannot be collected, and why."""
        for end in (requests, replies, *turns):
            os.set_inheritable(end, False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> NoReturn:
        """Answers requests until the pipe is closed, and ends the process."""
        items = {item.nodeid: item for item in session.items}
        self.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # children share it
        _warm_up()
        killed_with_parent(
            0
        )  # from here on the end of the pipe is seen, and fixtures are torn down
        self._say({"ready": len(items), "forks": may_fork(), "strays": strays_here()})
        waiting = b""
        while True:
            read = os.read(self.requests, 1 << 16)
            if not read:
                # Not a normal exit: only the main run writes what plugins write at the end.
                self.config._ensure_unconfigure()
                self._leave_nothing()
            waiting += read
            while b"\n" in waiting:
                line, _, waiting = waiting.partition(b"\n")
                request = unpack_request(line.decode())
                item = items.get(request.node_id)
                self._say(
                    {"missing": self._missing(request.node_id)}
                    if item is None
                    else self._measured(item, request)
                )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Records collection errors."""
        if report.failed:
            self.uncollected[report.nodeid] = report.longreprtext.strip().splitlines()[-1].strip()

    def _missing(self, node_id: str) -> str:
        """Why a test is not there."""
        for place, said in self.uncollected.items():
            if node_id == place or node_id.startswith(place + "::"):
                return f"{place} cannot be collected there: {said}"
        return "there is no such test"

    def _say(self, message: dict[str, Any]) -> None:
        data = json.dumps(message, default=str).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self.replies, data) :]
        except BrokenPipeError:
            self._leave_nothing()

    def _measured(self, item: pytest.Item, request: Request) -> dict[str, Any]:
        def run(*_: object) -> dict[str, Any]:
            return {**self._run(item, request), "strays": strays_here()}

        if not may_fork():
            return run()
        child = Child(run, closed=(self.requests, self.replies))
        # Should this process be killed, whoever asked it ends the child and what it has started.
        self.folder.joinpath(CHILD).write_text(str(child.pid))
        answer = child.ask("", request.timeout, self.requests, self._leave_nothing)
        child.end()
        return answer

    def _leave_nothing(self) -> NoReturn:
        """Ends this process as nobody asks any more. Its folder goes too: that run may have been killed."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(0)

    def _run(self, item: pytest.Item, request: Request) -> dict[str, Any]:
        item.config.stash[REQUEST] = request
        item.config.stash[TURNS] = self.turns
        item.stash[SAMPLES] = {}
        # Without a child, this run must leave nothing for the next request.
        kept = []
        if request.lockstep and may_fork():
            kept = place_anew(item.config.rootpath, f"{self._seed}/{request.meeting}")
        before = item.user_properties, item._report_sections
        item.user_properties, item._report_sections = list(before[0]), list(before[1])
        reports: Iterable[pytest.TestReport] = runtestprotocol(item, log=False, nextitem=None)
        to_serializable = item.config.hook.pytest_report_to_serializable
        item.user_properties, item._report_sections = before
        kept.clear()
        return {
            "reports": [to_serializable(config=item.config, report=report) for report in reports],
            "samples": pack_samples(item.stash.get(SAMPLES, {})),
            "metadata": pyperf_metadata() if self.saving else {},
        }


def _warm_up() -> None:
    """Does once what every child would repeat: torch's imports at the first count, and collecting garbage of
    the imports."""
    torch = sys.modules.get("torch")
    counters.count(Call(len, ("",)).once() if torch is None else Call(torch.ones, (1,)).once())
    freeze_for_good()
