"""Subjects that end, kill or never leave the process that measures them, and what is to be told of each."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Dying:
    """One way not to return."""

    name: str
    body: str
    """Of a function without parameters; the modules of `_HEAD` are imported."""
    told: str
    """What the reason of its verdict ends with: a regular expression."""


_GIVEN_UP = r"was given up after \S+ s without an answer \(--overhead-timeout allows longer\)"

SUBJECTS = (
    Dying("exits_as_if_fine", "os._exit(0)", "ended by itself with status 0"),
    Dying("exits_with_3", "os._exit(3)", "ended by itself with status 3"),
    Dying("exits_in_c", "ctypes.CDLL(None)._exit(0)", "ended by itself with status 0"),
    Dying("asks_to_exit", "sys.exit(0)", "SystemExit: 0"),
    Dying("asks_pytest_to_exit", "pytest.exit('enough', 0)", "ended by Exit: enough"),
    Dying("is_interrupted", "raise KeyboardInterrupt", "ended by KeyboardInterrupt: "),
    Dying("is_killed", "os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL"),
    Dying("is_terminated", "os.kill(os.getpid(), signal.SIGTERM)", "was killed by SIGTERM"),
    Dying(
        "kills_its_group",
        "assert os.getpgrp() == os.getpid(), 'not one of its own'\nos.killpg(0, signal.SIGKILL)",
        "was killed by SIGKILL",
    ),
    Dying("aborts", "os.abort()", "was killed by SIGABRT"),
    Dying("reads_nowhere", "ctypes.string_at(0)", "was killed by SIGSEGV"),
    Dying(
        "becomes_another_program",
        "os.execv(sys.executable, [sys.executable, '-c', 'pass'])",
        "ended by itself with status 0",
    ),
    Dying(
        "closes_all_files",
        "os.closerange(3, 4096)\nos._exit(0)",
        "ended by itself with status 0",
    ),
    Dying("loops", "while True:\n    pass", _GIVEN_UP),
    Dying("waits_for_nothing", "threading.Event().wait()", _GIVEN_UP),
    Dying("waits_in_c", "ctypes.CDLL(None).pause()", _GIVEN_UP),
    Dying("stops_itself", "os.kill(os.getpid(), signal.SIGSTOP)\nos._exit(0)", _GIVEN_UP),
    Dying(
        "ignores_signals",
        "for one in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):\n"
        "    signal.signal(one, signal.SIG_IGN)\n"
        "while True:\n"
        "    pass",
        _GIVEN_UP,
    ),
    Dying(
        "takes_all_memory",  # of an allowance: that of the machine is for others, too
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "before = resource.getrlimit(resource.RLIMIT_AS)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), before[1]))\n"
        "kept = []\n"
        "try:\n"
        "    while True:\n"
        "        kept.append(bytearray(1 << 20))\n"
        "finally:\n"
        "    kept.clear()\n"
        "    resource.setrlimit(resource.RLIMIT_AS, before)",
        "MemoryError: ",
    ),
)
_HEAD = "import ctypes, os, resource, signal, sys, threading\nimport pytest\n"
FINE = ("test_fine_before", "test_fine_after")
"""Tests that pass, whatever happens between them."""
MODES = (("count",), ("count", "-n", "2"), ("check",), ("update",))
"""Modes of `--overhead-budget`, each with more words of the command."""
LIMIT = 600.0
"""Seconds after which a run hangs: every subject is given up after one, in each of several processes."""


def subjects(chosen: Iterable[Dying] = SUBJECTS) -> str:
    """A module with a function for each."""
    functions = (f"def {one.name}():\n{textwrap.indent(one.body, '    ')}\n" for one in chosen)
    return "\n\n".join((_HEAD, *functions))


def suite(chosen: Iterable[Dying] = SUBJECTS, *, in_the_test: bool = False) -> str:
    """A test for each that names it as its subject, or calls it; the module of subjects is `dying`."""
    before, after = (f"def {name}(overhead):\n    overhead(len, 'abc')\n" for name in FINE)
    tests = (
        f"def test_{one.name}(overhead):\n    overhead(len, 'abc')\n    dying.{one.name}()\n"
        if in_the_test
        else f"def test_{one.name}(overhead):\n    overhead(dying.{one.name})\n"
        for one in chosen
    )
    return "\n\n".join(("import dying\n", before, *tests, after))


def flags(mode: Sequence[str]) -> list[str]:
    """What pytest is called with."""
    name, *more = mode
    return [
        *(f"--overhead-budget={name}", "--overhead-timeout=1", "--overhead-max-time=0.3"),
        *("--overhead-json=out.json", *more),
    ]


def wrong_of(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A line for each verdict that is not as it should be, of tests by name."""
    for name in FINE:
        if rows.get(name, {}).get("verdict") != "pass":
            yield f"{name}: {rows.get(name)}"
    for one in SUBJECTS:
        row = rows.get(f"test_{one.name}", {})
        reason = row.get("reason") or ""
        if row.get("verdict") != "error" or "\n" in reason or not re.search(f"{one.told}$", reason):
            yield f"{one.name}: {row.get('verdict')}: {reason}"


def attack(folder: Path, mode: Sequence[str]) -> Iterator[str]:
    """Measures all of them in one run of pytest; what is wrong with it."""
    (folder / "dying.py").write_text(subjects(), encoding="utf-8")
    (folder / "test_dying.py").write_text(suite(), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *flags(mode)]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        yield f"gave no answer within {LIMIT:g} s"
        return
    if done.returncode != 1 or not (folder / "out.json").exists():
        yield f"ended with {done.returncode}: {done.stdout[-300:]!r}"
        return
    tests = json.loads((folder / "out.json").read_text(encoding="utf-8"))["tests"]
    yield from wrong_of({row["nodeid"].rpartition("::")[2]: row for row in tests})
