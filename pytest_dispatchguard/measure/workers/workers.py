"""Starts, asks and ends workers, from the main run."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_dispatchguard.measure.budgets.messages import Request
from pytest_dispatchguard.measure.processes.launching import Launch, start
from pytest_dispatchguard.measure.timing.lockstep import Ends
from pytest_dispatchguard.measure.workers.children import fate
from pytest_dispatchguard.model.errors import UserError

PREFIX = "dispatchguard-worker-"
"""Of the folder that a worker has for what is temporary; the process that asks it follows."""
CHILD = "child"
"""A file in that folder: the process that the worker has forked last."""
_START_TIMEOUT = 600.0
GRACE = 30.0
"""Extra seconds for a worker to report that a test was given up."""
_PATIENCE = 2.0
"""Seconds a worker has to end by itself."""
_TICK = 0.2
_MOST_SAID = 12
"""Lines of a broken worker's output that are shown."""

_RUN = "import pytest; raise SystemExit(pytest.main(sys.argv[1:]))"


class Worker:
    """One running worker."""

    def __init__(self, launch: Launch, number: int, turns: Ends | None = None) -> None:
        """`turns` are the ends of pipes to a worker of another revision."""
        try:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
            self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        except OSError as error:
            raise UserError(f"a worker cannot have temporary files: {error}") from None
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        given = (requests, replies, *((turns.reading, turns.writing) if turns else ()))
        words = [
            *launch.arguments,
            f"--basetemp={self._folder / 'pytest'}",
            f"--overhead-worker={','.join(map(str, given))}",
        ]
        try:
            self._process = start(
                launch, number, _RUN, words, given=given, output=self._log, turns=turns is not None
            )
        except UserError:
            self._close()
            raise
        finally:
            os.close(requests)
            os.close(replies)
        self._heard = b""
        self.forks: bool | None = None
        """Whether it measures each test in a forked child; None before it is ready, or if it cannot measure
        at all."""

    def wait(self, tick: Callable[[], None]) -> None:
        """Waits until it has imported and collected. `tick` is called now and then."""
        if self.forks is None:
            ready = self._answer(_START_TIMEOUT, tick)
            self._refuse_strays(ready)
            self.forks = bool(ready["forks"])

    def ask(self, request: Request, tick: Callable[[], None]) -> dict[str, Any]:
        """The answer to a request. `tick` is called now and then while waiting."""
        self.send(request, tick)
        return self.receive(request, tick)

    def send(self, request: Request, tick: Callable[[], None]) -> None:
        """Sends a request, once the worker is ready."""
        self.wait(tick)
        data = request.packed().encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._requests, data) :]
        except BrokenPipeError:
            self._gone()

    def receive(self, request: Request, tick: Callable[[], None]) -> dict[str, Any]:
        """The answer to the request that was sent."""
        answer = self._answer(request.timeout + GRACE, tick)
        self._refuse_strays(answer)
        return answer

    def fileno(self) -> int:
        """What becomes readable when it answers, or is gone."""
        return self._replies

    def _refuse_strays(self, answer: Mapping[str, Any]) -> None:
        if answer.get("strays"):
            self.forks = None
            self.end()
            raise UserError(
                f"the base would be measured with {answer['strays'][0]} of the work tree: "
                "it is imported from there whatever the path says"
            )

    def _answer(self, timeout: float, tick: Callable[[], None]) -> dict[str, Any]:
        give_up = time.monotonic() + timeout
        while b"\n" not in self._heard:
            if time.monotonic() > give_up:
                self.end()
                raise UserError(f"the worker said nothing for {timeout:g} s and was ended")
            if not select.select([self._replies], [], [], _TICK)[0]:
                tick()
                continue
            read = os.read(self._replies, 1 << 16)
            if not read:
                self._gone()
            self._heard += read
        line, _, self._heard = self._heard.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _gone(self) -> None:
        status = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        if status == -signal.SIGKILL:
            lines = []  # from outside, of which it knew nothing
        said = "".join(f"\n    {line}" for line in lines[-_MOST_SAID:] if line.strip())
        self.end()
        how = fate(status) if status < 0 else f"ended with status {status}"
        raise UserError(f"the worker {how}{said and '; it said:'}{said}")

    def let_go(self) -> None:
        """Tells the worker to end, without waiting for it."""
        if self._requests >= 0:
            os.close(self._requests)
            self._requests = -1

    def end(self) -> None:
        """Ends the worker and the processes that it started; kills them if needed."""
        if self._log.closed:
            return
        self.let_go()
        try:
            # Before it is ready it measures nothing, and may import for minutes.
            self._process.wait(0 if self.forks is None else _PATIENCE)
        except subprocess.TimeoutExpired:
            pass
        for group in (self._process.pid, self._child()):
            try:
                if group:
                    os.killpg(group, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass  # it is gone already
        self._process.wait()
        self._close()

    def _child(self) -> int:
        """The group of the last process that the worker has forked; 0 for none."""
        try:
            child = int((self._folder / CHILD).read_text())
            return child if os.getsid(child) == self._process.pid else 0
        except ProcessLookupError:
            return child  # others of its group may be there
        except (OSError, ValueError):
            return 0

    def _close(self) -> None:
        for end in (self._requests, self._replies):
            if end >= 0:
                os.close(end)
        self._requests = -1
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)
