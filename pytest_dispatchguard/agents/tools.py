"""The tools for coding agents: what each takes, and the function that answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_dispatchguard.agents import checking, explaining, running, verifying
from pytest_dispatchguard.agents.answers import (
    MOST_LISTED,
    USUAL,
    Answer,
    plain,
)
from pytest_dispatchguard.agents.parameters import Parameter, read, schema_of
from pytest_dispatchguard.agents.workplace import Call, Workplace, begin

MOST_OF_A_PATCH = 200_000
READING_SECONDS = 300
"""The time limit of tools that only read."""
LONGEST_SECONDS = 600
_USUAL_SECONDS = 180

Run = Callable[[Workplace, Call, dict[str, Any]], Answer]


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool."""

    name: str
    title: str
    about: str
    """For the agent: what it does and when to use it."""
    parameters: tuple[Parameter, ...]
    run: Run
    runs_code: bool = False
    """Whether it runs code of the project."""
    writes: bool = False
    """Whether it writes to the project."""

    @property
    def schema(self) -> dict[str, Any]:
        """Of its arguments."""
        return schema_of(self.parameters)


ANSWER_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"summary": {"type": "string", "description": "the answer in one line"}},
    "required": ["summary"],
}
"""Of every answer."""

_LIMIT = Parameter(
    "limit", "integer", "the most items to list", default=USUAL, least=1, most=MOST_LISTED
)
_OFFSET = Parameter(
    "offset",
    "integer",
    "items to pass over: `next.offset` of the last answer",
    default=0,
    most=10**6,
)
_LEVEL = Parameter(
    "level",
    "string",
    "sure: what fails a run; note: also costs that the author has to decide about; maybe: also what "
    "is uncertain",
    default="note",
    choices=checking.LEVELS,
)
_SELECT = Parameter(
    "select", "strings", "only these codes or prefixes, such as DG4", least=1, most=20
)
_PATH = Parameter(
    "path", "string", "a file or folder, relative to the root", required=True, least=1
)
_DIFF = Parameter(
    "diff",
    "string",
    "a unified diff (as of `git diff`), paths relative to the root",
    required=True,
    least=1,
    most=MOST_OF_A_PATCH,
)
_TIMEOUT = Parameter(
    "timeout",
    "integer",
    "seconds until it is given up",
    default=_USUAL_SECONDS,
    least=1,
    most=LONGEST_SECONDS,
)

_TIMES = Parameter("times", "boolean", "also measure times, which takes longer", default=False)


def _tests(name: str, about: str) -> Parameter:
    return Parameter(name, "strings", about, least=1)


TOOLS = (
    Tool(
        "check",
        "Check files",
        "Find host-side overhead in hot PyTorch code: device syncs, work repeated per call. Reads code, "
        "never runs it. Each finding has its exact place, why the place is hot, what it costs, and the fix "
        "if there is one.",
        (
            Parameter(
                "paths",
                "strings",
                "files and folders, relative to the root (default: all)",
                least=1,
            ),
            _LEVEL,
            _SELECT,
            _LIMIT,
            _OFFSET,
        ),
        checking.check_paths,
    ),
    Tool(
        "check_diff",
        "Check a change",
        "What a change adds to the findings of the project and takes from them, also where it makes other "
        "code hot. Give `base` for the work tree against a revision, or `diff` for a patch that is not "
        "applied yet.",
        (
            Parameter("base", "string", "a git revision, such as origin/main", least=1, most=200),
            Parameter("diff", "string", _DIFF.about, least=1, most=MOST_OF_A_PATCH),
            _LEVEL,
            _LIMIT,
            _OFFSET,
        ),
        checking.check_change,
    ),
    Tool(
        "explain_rule",
        "Explain a rule",
        "What a rule is about, why the pattern costs, what to write instead, how safe the fix is, and a "
        "specimen: `bad` and `good` code that do the same.",
        (
            Parameter(
                "code", "string", "DG401, or the rule's name", required=True, least=1, most=80
            ),
        ),
        explaining.explain_rule,
    ),
    Tool(
        "why_hot",
        "Why a line is hot",
        "By which calls from which entry point a function is hot, and what the findings in it cost.",
        (
            _PATH,
            Parameter("line", "integer", "a line in it", required=True, least=1, most=10**7),
        ),
        checking.why_hot,
    ),
    Tool(
        "propose_fix",
        "Propose fixes",
        "The linter's own fixes of a path as a unified diff. Nothing is written: verify it with "
        "verify_patch.",
        (
            _PATH,
            _SELECT,
            Parameter(
                "unsafe", "boolean", "also fixes that may change unusual results", default=False
            ),
        ),
        checking.propose_fix,
    ),
    Tool(
        "run_budget",
        "Run budgets",
        "Run tests that are marked overhead_budget in a copy of the project: exact counters per call "
        "(instructions, dispatches, syncs), held against their limits; with `times`, also measured times.",
        (
            _tests(
                "tests", "node ids, such as tests/test_x.py::test_y (default: all with a budget)"
            ),
            _TIMES,
            _TIMEOUT,
            _LIMIT,
            _OFFSET,
        ),
        running.run_budget,
        runs_code=True,
    ),
    Tool(
        "read_trace",
        "Read a profiler trace",
        "Where the host waits for the device in a trace of PyTorch's profiler, by line, with the findings "
        "there, and what keeps the device idle.",
        (_PATH, _LIMIT, _OFFSET),
        explaining.read_trace,
    ),
    Tool(
        "verify_patch",
        "Verify a patch",
        "Apply a diff to a copy of the project and say whether it holds: no new finding, the named tests "
        "come out as without it, and the named budgets surely cost less. The project itself is not touched.",
        (
            _DIFF,
            _tests(
                "tests",
                "node ids of tests that hold the behavior; without any, nothing is verified",
            ),
            _tests(
                "budgets",
                "node ids of tests with budgets, which must cost less than in the project as it is",
            ),
            _TIMES,
            _TIMEOUT,
        ),
        verifying.verify_patch,
        runs_code=True,
    ),
    Tool(
        "apply_patch",
        "Apply a patch",
        "Write a diff to the project. Verify it first with verify_patch.",
        (_DIFF,),
        verifying.apply_patch,
        writes=True,
    ),
)


def offered(workplace: Workplace) -> dict[str, Tool]:
    """The tools that a server has, by name: those that write only where that is allowed."""
    return {tool.name: tool for tool in TOOLS if workplace.edits or not tool.writes}


def answer(
    tool: Tool, workplace: Workplace, given: Mapping[str, Any], stop: threading.Event
) -> Answer:
    """What a tool answers; raises UserError with one line where it cannot."""
    arguments = read(tool.parameters, given)
    seconds = arguments.get("timeout", READING_SECONDS)
    told: Answer = plain(tool.run(workplace, begin(stop, seconds), arguments))
    return told
