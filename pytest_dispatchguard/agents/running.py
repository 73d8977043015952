"""The tool that runs budgets, and tests as the client names them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_dispatchguard.agents.answers import Answer, page, verdict_answer
from pytest_dispatchguard.agents.copies import copied
from pytest_dispatchguard.agents.parameters import inside
from pytest_dispatchguard.agents.workplace import Call, Workplace
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.verify.budgets import run_budgets


def node_ids(root: Path, tests: Sequence[str]) -> list[str]:
    """Node ids of tests whose files are in the project: by full paths, none of which is an option."""
    found = []
    for test in tests:
        file, separator, name = test.partition("::")
        if file.startswith(("-", "@")) or "\n" in test or "\r" in test:
            raise UserError(
                f"test {file[:80]!r}: name a file of the project, tests/test_x.py::test_y"
            )
        found.append(f"{inside(root, file, 'test')}{separator}{name}")
    return found


def run_budget(workplace: Workplace, call: Call, arguments: dict[str, Any]) -> Answer:
    """What tests with budgets come to."""
    root = workplace.root
    tests = node_ids(root, arguments["tests"] or ()) or ["-m", "overhead_budget"]
    with copied(root, call) as scratch:
        verdicts = run_budgets(scratch.first, root, tests, timed=arguments["times"])
    by_outcome = {
        one: sum(v.verdict == one for v in verdicts) for one in {v.verdict for v in verdicts}
    }
    counted = ", ".join(f"{number} {outcome}" for outcome, number in sorted(by_outcome.items()))
    worst = sorted(verdicts, key=lambda v: v.verdict not in ("fail", "error"))
    return {
        "summary": f"budgets: {counted}" if verdicts else "no test with a budget was found",
        **page(map(verdict_answer, worst), arguments["offset"], arguments["limit"], "budgets"),
    }
