"""Starts, asks and ends workers, from the main run."""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_dispatchguard.measure.budgets.messages import Request
from pytest_dispatchguard.measure.timing.lockstep import Ends
from pytest_dispatchguard.measure.workers.children import fate
from pytest_dispatchguard.model.errors import UserError

PREFIX = "dispatchguard-worker-"
"""Of the folder that a worker has for what is temporary; the process that asks it follows."""
CHILD = "child"
"""A file in that folder: the process that the worker has forked last."""
SCATTER = "DISPATCHGUARD_SCATTER"
"""A variable of the environment of workers that take turns: the seed of where objects lie."""
_START_TIMEOUT = 600.0
_GRACE = 30.0
"""Extra seconds for a worker to report that a test was given up."""
_PATIENCE = 2.0
"""Seconds a worker has to end by itself."""
_TICK = 0.2
_PAD = "DISPATCHGUARD_PAD"
"""A variable that makes the environment larger."""
_PAGE, _OF_A_WORD, _APART = 4096, 9, 97
"""Bytes: what sizes of environments are multiples of, where they are made alike; what a word takes beside its
own; and by how much workers differ."""
_MOST_SAID = 12
"""Lines of a broken worker's output that are shown."""

# Workers that are compared have their memory at the same addresses, where the system lets them: where a
# process happens to lie moves a call by 1 to 2%, more than all other differences together (`make
# bench-luck`). Only a process that is started anew can have that.
FIXED_LAYOUT = """
import os, sys
if os.environ.pop("DISPATCHGUARD_FIXED_LAYOUT", "") and sys.platform == "linux":
    import ctypes
    personality = getattr(ctypes.CDLL(None), "personality", None)
    known = personality(0xFFFFFFFF) if personality else -1
    if known != -1 and not known & 0x40000 and personality(known | 0x40000) != -1:
        os.execv(sys.executable, sys.orig_argv)
"""
# While it imports, it does not see that the run which started it was killed.
END_WITH_RUN = """
import sys
if sys.platform == "linux":
    try:
        import ctypes
        ctypes.CDLL(None).prctl(1, 9)
    except (ImportError, AttributeError):
        pass
"""
# Where torch's own objects lie can slow all of its operations by 3%. That depends on what was allocated
# before, and so on the folder, and on whether modules were compiled or read. Processes that take turns import
# torch before any of that, among small objects of the same seed.
ALIKE = """
import os
if "DISPATCHGUARD_SCATTER" in os.environ:
    import random
    chance = random.Random(os.environ["DISPATCHGUARD_SCATTER"])
    kept = [bytes(size) for size in range(15, 480, 16) for _ in range(chance.randrange(300))]
    if os.environ.pop("DISPATCHGUARD_TORCH", ""):
        import torch
"""
# The path is set before pytest is found, so that a worker imports what the run that asks it imports.
_START = (
    FIXED_LAYOUT
    + END_WITH_RUN
    + "import json, os, sys; sys.path[:] = json.loads(os.environ.pop('DISPATCHGUARD_PATH'))"
    + ALIKE
    + "import pytest; raise SystemExit(pytest.main(sys.argv[1:]))"
)


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start the workers of a source tree."""

    arguments: Sequence[str]
    """The arguments of the main run."""
    folder: Path
    path: Sequence[str]
    """`sys.path`."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    command: Sequence[str] = ()
    """What runs Python, such as valgrind; empty if nothing does."""
    fixed: bool = False
    """Whether all of its workers have one hash seed and one address layout."""
    seed: int = field(default_factory=lambda: random.SystemRandom().getrandbits(32))
    """Of where objects lie, with the number of the worker. A revision has that of the work tree: workers that
    take turns are alike in all that the code does not decide."""


class Worker:
    """One running worker."""

    def __init__(self, launch: Launch, number: int, turns: Ends | None = None) -> None:
        """`turns` are the ends of pipes to a worker of another revision."""
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # multiprocessing's own way
        command = [*launch.command, sys.executable, *flags, "-c", _START]
        environment = environment_of(launch, number)
        if launch.fixed and not launch.command:
            environment["DISPATCHGUARD_FIXED_LAYOUT"] = "1"
        try:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
            self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        except OSError as error:
            raise UserError(f"a worker cannot have temporary files: {error}") from None
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        given = (requests, replies, *((turns.reading, turns.writing) if turns else ()))
        command += [
            *launch.arguments,
            f"--basetemp={self._folder / 'pytest'}",
            f"--overhead-worker={','.join(map(str, given))}",
        ]
        if turns is not None:
            needed = "torch" in sys.modules
            environment = alike(command, environment, launch.seed, number, torch_first=needed)
        try:
            self._process = subprocess.Popen(
                command,
                cwd=launch.folder,
                env=environment,
                pass_fds=given,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # ended as a group, and not by Ctrl-C in the terminal
            )
        except OSError as error:
            self._close()
            raise UserError(f"a worker cannot be started in {launch.folder}: {error}") from None
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
        answer = self._answer(request.timeout + _GRACE, tick)
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


def environment_of(launch: Launch, number: int) -> dict[str, str]:
    """The environment of the main run, with one thread by default. Every worker gets another hash seed and
    size of the environment, as both change times a little."""
    found = {
        name: value
        for name, value in launch.environment.items()
        if not name.startswith(("PYTEST_XDIST_", "PYTEST_CURRENT_TEST", "COV_CORE_"))
    }
    if not found.get("TORCH_LOGS", "-"):
        del found["TORCH_LOGS"]  # torch cannot be imported where it is empty
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        found.setdefault(name, "1")
    if launch.fixed:
        found["PYTHONHASHSEED"] = "0"
    elif number or "PYTHONHASHSEED" not in found:
        found["PYTHONHASHSEED"] = str(1 + number)
    found[_PAD] = "." * (_APART * number)
    found["DISPATCHGUARD_PATH"] = json.dumps([os.fspath(path) for path in launch.path])
    return found


def alike(
    command: Sequence[str],
    environment: Mapping[str, str],
    seed: int,
    number: int,
    *,
    torch_first: bool,
) -> dict[str, str]:
    """An environment in which a process is like those of the same seed and number in all that the code does
    not decide, also where folders and their names differ: with addresses that are not random, with torch
    imported first if it needs that, and with a stack that begins at the same place."""
    found = {
        **environment,
        "DISPATCHGUARD_FIXED_LAYOUT": "1",
        "DISPATCHGUARD_TORCH": "1" if torch_first else "",
        SCATTER: f"{seed:010d}{number:04d}",
        _PAD: "",
    }
    words = [*command, *(f"{name}={value}" for name, value in found.items())]
    used = sum(len(os.fsencode(word)) + _OF_A_WORD for word in words)
    return {**found, _PAD: "." * (-used % _PAGE + _APART * number)}
