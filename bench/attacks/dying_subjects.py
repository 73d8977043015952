"""Subjects that end, kill or never leave the process that measures them, and what is to be told of each."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass


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
