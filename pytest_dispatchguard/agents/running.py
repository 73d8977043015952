"""Runs tests and budgets of a scratch copy in a process of their own, with a deadline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_dispatchguard.agents.answers import cut
from pytest_dispatchguard.agents.parameters import inside
from pytest_dispatchguard.agents.workplace import Call
from pytest_dispatchguard.config.project_root import nested_roots
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.verdicts import Verdict
from pytest_dispatchguard.report.budgets.read_json import load
from pytest_dispatchguard.visible import visible

_LOOK_SECONDS = 0.1
_TAIL = 3_000
"""Bytes of output that are told."""
_PASSED, _FAILED, _NONE_COLLECTED = 0, 1, 5


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a run of pytest."""

    status: int
    output: str
    """Its end."""

    @property
    def outcome(self) -> str:
        """In a word or two."""
        known = {_PASSED: "passed", _FAILED: "failed", _NONE_COLLECTED: "no tests found"}
        return known.get(self.status, "error")

    @property
    def last(self) -> str:
        """The last line of the output: how many tests passed and failed."""
        lines = [line for line in self.output.splitlines() if line.strip()]
        return cut(lines[-1].strip("= ")) if lines else ""


def node_ids(root: Path, tests: Sequence[str]) -> list[str]:
    """Node ids of tests whose files are in the project."""
    found = []
    for test in tests:
        file, separator, name = test.partition("::")
        if file.startswith(("-", "@")) or "\n" in test or "\r" in test:
            raise UserError(
                f"test {file[:80]!r}: name a file of the project, tests/test_x.py::test_y"
            )
        path = inside(root, file, "test")
        found.append(f"{path.relative_to(root).as_posix()}{separator}{name}")
    return found


def run_tests(tree: Path, tests: Sequence[str], call: Call) -> Ran:
    """Run tests of a copy."""
    return _pytest(tree, ["-q", "--no-header", "-x", *_files(tree, tests)], call)


def run_budgets(
    tree: Path, tests: Sequence[str], call: Call, *, timed: bool = False, against: str = ""
) -> list[Verdict]:
    """Run the budgets of tests of a copy, of all marked tests where none is named; `against` a revision."""
    with tempfile.TemporaryDirectory(prefix="dispatchguard-agent-") as folder:
        file = Path(folder) / "verdicts.json"
        words = ["-q", "--no-header", "--overhead-budget" if timed else "--overhead-budget=count"]
        words += [f"--overhead-json={file}"]
        words += [f"--overhead-against={against}"] if against else []
        words += _files(tree, tests) if tests else ["-m", "overhead_budget"]
        ran = _pytest(tree, words, call)
        if ran.status == _NONE_COLLECTED:
            return []
        if ran.status not in (_PASSED, _FAILED) or not file.exists():
            raise UserError(f"pytest could not run the budgets: {_why(ran)}")
        found, _ = load(file)
    # The last result of a test counts.
    return list({(one.node_id, one.subject): one for one in found}.values())


def _why(ran: Ran) -> str:
    lines = [line for line in ran.output.splitlines() if line.strip()]
    error = next((line for line in lines if line.startswith(("ERROR", "E  "))), "")
    return cut(error or (lines[-1] if lines else f"it ended with {ran.status}"))


def _files(tree: Path, tests: Sequence[str]) -> list[str]:
    # By their full paths, none of which is an option.
    return [str(tree / test) for test in tests]


def _pytest(tree: Path, words: Sequence[str], call: Call) -> Ran:
    call.check()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no", *words]
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                cwd=tree,
                env=_environment(tree),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=os.name == "posix",
            )
        except OSError as error:
            raise UserError(f"pytest cannot be started: {error.strerror or error}") from None
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_SECONDS)
                    break
                call.check()
        finally:
            _end(process)
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - _TAIL))
        told = output.read().decode("utf-8", "replace")
    return Ran(process.returncode, visible(told))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, and all that it started."""
    if os.name == "posix":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _environment(tree: Path) -> dict[str, str]:
    """The environment for a copy: its own packages come before those that are installed, and nothing that is
    named a token is passed on."""
    roots = [tree, tree / "src", *(tree / rel for rel in nested_roots(tree))]
    given = os.environ.get("PYTHONPATH", "")
    path = [*(str(one) for one in roots if one.is_dir()), *filter(None, given.split(os.pathsep))]
    kept = {name: value for name, value in os.environ.items() if "TOKEN" not in name.upper()}
    return {**kept, "PYTHONPATH": os.pathsep.join(path)}
