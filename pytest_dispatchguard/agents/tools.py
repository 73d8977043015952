"""The tools for coding agents: what each takes, and the function that answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_dispatchguard.agents import checking, explaining
from pytest_dispatchguard.agents.answers import (
    MOST_LISTED,
    USUAL,
    Answer,
    block,
    brief,
    cut,
    names,
    page,
    plain,
    verdict_answer,
)
from pytest_dispatchguard.agents.parameters import Parameter, read, schema_of
from pytest_dispatchguard.agents.running import Ran, node_ids, run_budgets
from pytest_dispatchguard.agents.scratch import apply, scratch, write_back
from pytest_dispatchguard.agents.verifying import Patch, counters_moved, verify
from pytest_dispatchguard.agents.workplace import Call, Workplace, begin
from pytest_dispatchguard.report.wording import count

MOST_OF_A_PATCH = 200_000
READING_SECONDS = 300
"""The time limit of tools that only read."""
LONGEST_SECONDS = 600
_USUAL_SECONDS = 180
_MOST_OF_OUTPUT = 2_000

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


def _tests(name: str, about: str) -> Parameter:
    return Parameter(name, "strings", about, least=1)


def _run_budget(workplace: Workplace, call: Call, arguments: dict[str, Any]) -> Answer:
    tests = node_ids(workplace.root, arguments["tests"] or ())
    with scratch(workplace.root, call) as made:
        verdicts = run_budgets(made.tree, tests, call, timed=arguments["times"])
    by_outcome = {
        one: sum(v.verdict == one for v in verdicts) for one in {v.verdict for v in verdicts}
    }
    counted = ", ".join(f"{number} {outcome}" for outcome, number in sorted(by_outcome.items()))
    worst = sorted(verdicts, key=lambda v: v.verdict not in ("fail", "error"))
    return {
        "summary": f"budgets: {counted}" if verdicts else "no test with a budget was found",
        **page(map(verdict_answer, worst), arguments["offset"], arguments["limit"], "budgets"),
    }


def _verify_patch(workplace: Workplace, call: Call, arguments: dict[str, Any]) -> Answer:
    patch = Patch(
        arguments["diff"],
        node_ids(workplace.root, arguments["tests"] or ()),
        node_ids(workplace.root, arguments["budgets"] or ()),
        checking.settings("note"),
    )
    found = verify(workplace.root, patch, call)
    problems = [cut(line) for line in found.problems]
    said = "verified" if found.verified else f"not verified: {names(problems, 2)}"
    return {
        "summary": cut(f"{said} ({count(len(found.gone), 'finding')} gone, {len(found.new)} new)"),
        "verified": found.verified,
        "problems": problems[:20],
        "files": list(found.files[:100]),
        "new": [brief(finding) for finding in found.new[:10]],
        "new_total": len(found.new),
        "gone": [brief(finding) for finding in found.gone[:10]],
        "gone_total": len(found.gone),
        "tests": _ran(found.tests),
        "tests_without_the_patch": _ran(found.before),
        "budgets": [
            {
                "test": one.node_id,
                "verdict": one.verdict,
                "reason": block(one.reason, 400),
                "moved": counters_moved(found).get(one.node_id, {}),
            }
            for one in found.budgets[:20]
        ],
    }


def _ran(ran: Ran | None) -> Answer | None:
    if ran is None:
        return None
    output = "" if not ran.status else ran.output[-_MOST_OF_OUTPUT:]
    return {"outcome": ran.outcome, "told": ran.last, "output": output}


def _apply_patch(workplace: Workplace, call: Call, arguments: dict[str, Any]) -> Answer:
    with scratch(workplace.root, call) as made:
        changes = apply(made, arguments["diff"])
        call.check()
        write_back(made, changes)
    files = [change.rel for change in changes]
    return {"summary": f"written: {names(files)}", "files": files[:100]}


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
            Parameter("times", "boolean", "also measure times, which takes longer", default=False),
            _TIMEOUT,
            _LIMIT,
            _OFFSET,
        ),
        _run_budget,
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
        "Apply a diff to a copy of the project and say whether it holds: no new findings, the named tests "
        "pass, the counters of the named budgets before and after. The project itself is not touched.",
        (
            _DIFF,
            _tests(
                "tests",
                "node ids of tests that hold the behavior; without any, nothing is verified",
            ),
            _tests("budgets", "node ids of tests with budgets, compared with the project as it is"),
            _TIMEOUT,
        ),
        _verify_patch,
        runs_code=True,
    ),
    Tool(
        "apply_patch",
        "Apply a patch",
        "Write a diff to the project. Verify it first with verify_patch.",
        (_DIFF,),
        _apply_patch,
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
