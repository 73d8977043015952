"""`--overhead-against`: two revisions of a real git repository side by side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "dispatchguard-verdicts.json").read_text())

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="times are not measured on Windows"),
    pytest.mark.without_torch,
]

LIBRARY = """
def work(x):
    return x + 1

def entry(x):
    return work(x)
"""
WRAPPED = """
def work(x):
    return x + 1

def entry(x):
    def called(*args, **kwargs):
        return work(*args, **kwargs)
    return called(x)
"""
SURE = "--overhead-max-time=1"
"""For what times decide."""
TESTS = """
from library import entry

def test_entry(overhead):
    overhead(entry, 1).against(lambda: 2)
"""


class Repository:
    """A git repository with a library and its tests, in a `src` layout or flat."""

    def __init__(self, path: Path, layout: str) -> None:
        self.path = path
        self.source = path / layout / "library.py"
        self.source.parent.mkdir(exist_ok=True, parents=True)
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.email", "a@example.org")
        self.git("config", "user.name", "A")
        (path / "tests").mkdir()
        (path / "tests" / "test_library.py").write_text(TESTS)
        (path / "pytest.ini").write_text(f"[pytest]\npythonpath = {layout or '.'}\n")
        (path / ".gitignore").write_text("__pycache__\n*.json\nrunpytest*\nstdout\nstderr\n")
        self.source.write_text(LIBRARY)
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "base")

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=self.path, capture_output=True, text=True, check=True
        )
        return done.stdout

    def state(self) -> list[str]:
        """All that a user would miss: files, index, stash, branches, worktrees."""
        asked = (
            "status --short",
            "stash list",
            "branch --all",
            "worktree list",
            "log -3",
        )
        return [self.git(*words.split()) for words in asked]


@pytest.fixture
def repository(request: pytest.FixtureRequest, pytester: pytest.Pytester) -> Repository:
    return Repository(pytester.path, getattr(request, "param", ""))


@pytest.fixture
def run(pytester: pytest.Pytester, plugin_flags: tuple[str, ...]) -> Any:
    def started(*words: str, against: str = "HEAD") -> pytest.RunResult:
        return pytester.runpytest_subprocess(
            *plugin_flags,
            *("-p", "no:cacheprovider", "--overhead-max-time=0.3", "--overhead-json=out.json"),
            *("--overhead-budget", f"--overhead-against={against}", *words),
        )

    return started


def row(repository: Repository) -> dict[str, Any]:
    whole = json.loads((repository.path / "out.json").read_text())
    jsonschema.validate(whole, SCHEMA)
    found = whole["tests"]
    assert len(found) == 1
    only: dict[str, Any] = found[0]
    return only


@pytest.mark.parametrize(
    "repository", ["", pytest.param("src", marks=pytest.mark.thorough)], indirect=True
)
def test_a_wrapper_closure_fails(repository: Repository, run: Any) -> None:
    repository.source.write_text(WRAPPED)
    (repository.path / "untracked.txt").write_text("mine")
    before = repository.state()
    result = run(SURE)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "entry costs more than its budget allows",
            "  instructions: *, in HEAD *",
            "  py_calls: 3, in HEAD 2",
            "  regression: * times HEAD (* to *), allowed 1.05*",  # an unfit machine adds a word
            "  most of the extra instructions run here:",
            "* +*  *library.py:*  *",
        ]
    )
    told = row(repository)
    assert told["base"]["counters"]["py_calls"] == 2 and told["base"]["change"]["low"] > 1.05
    (repository.path / "out.json").unlink()
    assert repository.state() == before


@pytest.mark.thorough
def test_a_change_is_told_as_precisely_as_was_asked(repository: Repository, run: Any) -> None:
    repository.source.write_text(LIBRARY.replace("def entry", "# a comment\n\ndef entry"))
    within = run("--overhead-precision=20%")
    within.assert_outcomes(passed=1)
    within.stdout.no_fnmatch_line("*less precisely*")
    change = row(repository)["base"]["change"]
    assert (change["high"] - change["low"]) / 2 < 0.2 * change["value"]
    repository.source.write_text(WRAPPED)
    wide = run("--overhead-precision=0.1")  # no machine tells that
    wide.assert_outcomes(failed=1)
    wide.stdout.fnmatch_lines(
        ["warning: a change is known less precisely than ±0.1%: raise --overhead-max-time"]
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--overhead-precision=2%"], "*--overhead-precision needs --overhead-budget=check and *"),
        (["--overhead-precision=wide"], "*'wide' is not a percentage such as 2%, more than 0*"),
        (["--overhead-precision=0", "--overhead-against=HEAD"], "*'0' is not a percentage*"),
    ],
)
def test_a_precision_of_nothing_is_refused(
    pytester: pytest.Pytester, plugin_flags: tuple[str, ...], words: list[str], said: str
) -> None:
    result = pytester.runpytest_subprocess(*plugin_flags, "--overhead-budget", *words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([said])


def test_a_comment_passes_by_counters_alone(repository: Repository, run: Any) -> None:
    repository.source.write_text(LIBRARY.replace("def entry", "# a comment\n\ndef entry"))
    run().assert_outcomes(passed=1)
    told = row(repository)
    assert told["verdict"] == "pass" and told["base"]["subject_us"] is None
    assert told["base"]["counters"] == told["counters"]


@pytest.mark.thorough
def test_getting_cheaper_is_no_failure(repository: Repository, run: Any) -> None:
    repository.source.write_text(WRAPPED)
    repository.git("commit", "--quiet", "-am", "wrapped")
    repository.source.write_text(LIBRARY)
    run(SURE).assert_outcomes(passed=1)
    assert row(repository)["base"]["change"]["high"] < 1


@pytest.mark.thorough
def test_a_base_that_cannot_tell_is_told(repository: Repository, run: Any) -> None:
    repository.source.write_text("import no_such_module\n")
    repository.git("commit", "--quiet", "-am", "broken")
    repository.source.write_text(LIBRARY)
    result = run()
    result.assert_outcomes(passed=1)
    reason = row(repository)["base"]["reason"]
    assert reason.startswith("HEAD: tests/test_library.py cannot be collected there: ")
    assert "no_such_module" in reason
    result.stdout.fnmatch_lines(["*HEAD: tests/test_library.py cannot be collected there*"])
    for text, said in (
        (TESTS.replace("test_entry", "test_other"), "there is no such test"),
        (TESTS.replace("    overhead(", "    assert False\n    overhead("), "the test fails there"),
        (TESTS.replace("2)", "3)"), "disagree"),
    ):
        (repository.path / "tests" / "test_library.py").write_text(text)
        repository.source.write_text(LIBRARY)
        repository.git("commit", "--quiet", "-am", "another")
        (repository.path / "tests" / "test_library.py").write_text(TESTS)
        run().assert_outcomes(passed=1)
        assert said in row(repository)["base"]["reason"]


@pytest.mark.thorough
def test_limits_by_hand_win_over_the_base(repository: Repository, run: Any) -> None:
    repository.source.write_text(WRAPPED)
    test = repository.path / "tests" / "test_library.py"
    limits = "regression=100, instructions=100, py_calls=9, c_calls=9"
    marked = TESTS.replace("def test", f"@pytest.mark.overhead_budget({limits})\ndef test")
    test.write_text(f"import pytest\n{marked}")
    run(SURE).assert_outcomes(passed=1)
    assert row(repository)["base"]["change"]["value"] > 1


def test_an_unknown_revision_is_one_line(repository: Repository, run: Any) -> None:
    result = run(against="no-such")
    assert result.ret == 4
    result.stderr.fnmatch_lines(['ERROR: --overhead-against: git knows no revision "no-such"*'])
    assert repository.git("worktree", "list").count("\n") == 1


def test_a_base_that_must_be_built_says_when_it_cannot(repository: Repository, run: Any) -> None:
    (repository.path / ".gitignore").write_text("*.so\n*.json\n__pycache__\n")
    (repository.path / "library_fast.so").write_bytes(b"")
    run().assert_outcomes(passed=1)
    assert "must be built, and `pip install` failed" in row(repository)["base"]["reason"]


def test_code_of_the_work_tree_is_never_taken_for_the_base(
    repository: Repository, run: Any
) -> None:
    (repository.path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(repository.path / 'other')!r})\nimport helper\n"
    )
    (repository.path / "other").mkdir()
    (repository.path / "other" / "helper.py").write_text("")
    repository.git("add", ".")
    repository.git("commit", "--quiet", "-m", "helper")
    run().assert_outcomes(passed=1)
    assert "with helper of the work tree" in row(repository)["base"]["reason"]


def test_outcomes_other_than_passed_are_left_alone(repository: Repository, run: Any) -> None:
    (repository.path / "tests" / "test_library.py").write_text(
        """
import pytest
from library import entry

@pytest.mark.xfail(strict=True, reason="known")
def test_passes_against_all_hope(overhead):
    overhead(entry, 1)

@pytest.mark.xfail(reason="known")
def test_known(overhead):
    overhead(int, "x")

def test_skips(overhead):
    overhead(pytest.skip, "not here")
"""
    )
    repository.git("commit", "--quiet", "-am", "tests")
    result = run()
    result.assert_outcomes(failed=1, xfailed=1, skipped=1)
    result.stdout.fnmatch_lines(["*XPASS(strict)*known*"])


@pytest.mark.thorough
def test_files_that_are_new_do_not_cost_the_others_their_base(
    repository: Repository, run: Any
) -> None:
    (repository.path / "tests" / "test_new.py").write_text(TESTS.replace("test_entry", "test_new"))
    repository.source.write_text(WRAPPED)
    result = run("tests/test_library.py::test_entry", "tests/test_new.py")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*HEAD: there is no such test*"])
    result = run("tests/test_new.py")
    result.assert_outcomes(passed=1)
    assert "it has none of the files that are tested" in row(repository)["base"]["reason"]


def test_a_regression_without_a_base_is_told(
    repository: Repository, pytester: pytest.Pytester, plugin_flags: tuple[str, ...]
) -> None:
    test = repository.path / "tests" / "test_library.py"
    marked = TESTS.replace("def test", "@pytest.mark.overhead_budget(regression=2)\ndef test")
    test.write_text(f"import pytest\n{marked}")
    result = pytester.runpytest_subprocess(*plugin_flags, "--overhead-budget")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*regression needs a base: --overhead-against or*"])


def test_other_worktrees_are_left_alone(repository: Repository, run: Any) -> None:
    other = repository.path.parent / f"{repository.path.name}-other"
    repository.git("worktree", "add", "--quiet", str(other))
    other.rename(f"{other}-away")  # as on a disk that is not there
    before = repository.git("worktree", "list")
    run().assert_outcomes(passed=1)
    assert repository.git("worktree", "list") == before


def test_worktrees_of_runs_that_were_killed_are_taken_away(
    repository: Repository, run: Any, tmp_path: Path
) -> None:
    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
    )
    left = tmp_path / f"dispatchguard-base-{int(gone.stdout)}-abc" / "tree"
    kept = tmp_path / f"dispatchguard-base-{os.getpid()}-abc" / "tree"
    for tree in (left, kept):
        repository.git("worktree", "add", "--quiet", "--detach", str(tree))
    run("--overhead-against=HEAD").assert_outcomes(passed=1)
    assert not left.parent.exists() and kept.exists()
    assert str(left) not in repository.git("worktree", "list")


def test_counters_alone_against_a_base(repository: Repository, run: Any) -> None:
    flags = ("--overhead-budget=count", "--overhead-against=HEAD", "--overhead-json=out.json")
    run(*flags).assert_outcomes(passed=1)
    assert row(repository)["verdict"] == "pass" and row(repository)["ratio"] is None
    repository.source.write_text(WRAPPED)
    result = run(*flags)
    result.assert_outcomes(failed=1)
    found = row(repository)
    assert found["subject_us"] is None and found["base"]["counters"] != found["counters"]
    assert "py_calls: 3, in HEAD 2" in found["reason"]
    result.stdout.fnmatch_lines(["*library.py:*called(x)*"])


SLOWER = """
def work(x):
    return x + 1

def entry(x):
    for _ in range(40):
        work(x)
    return work(x)
"""
DYING = """
import os, time

calls = 0

def entry(x):
    global calls
    calls += 1
    if calls > 300:
        {how}
    return x + 1
"""
"""Dies when it is timed, not while it is counted."""


@pytest.mark.thorough
def test_a_subject_may_have_another_name_in_the_base(repository: Repository, run: Any) -> None:
    repository.source.write_text(LIBRARY.replace("entry", "before"))
    test = repository.path / "tests" / "test_library.py"
    test.write_text(TESTS.replace(" entry", " before").replace("(entry", "(before"))
    repository.git("commit", "--quiet", "-am", "under another name")
    test.write_text(TESTS)
    repository.source.write_text(SLOWER)
    run()
    told = row(repository)
    assert told["base"]["change"] is not None, told["reason"]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        pytest.param(
            "os._exit(3)",
            "the process that measured it ended by itself with status 3",
            marks=pytest.mark.thorough,
        ),
        ("os.kill(os.getpid(), 9)", "the process that measured it was killed by SIGKILL"),
        ("raise KeyError('lost')", "library.py:10: KeyError: 'lost'"),
        pytest.param(
            "time.sleep(30)", "HEAD could not be timed: the process", marks=pytest.mark.thorough
        ),
    ],
    ids=["exits", "killed", "raises", "hangs"],
)
def test_a_base_that_is_lost_between_turns_is_one_line(
    repository: Repository, run: Any, how: str, said: str
) -> None:
    repository.source.write_text(DYING.format(how=how))
    repository.git("commit", "--quiet", "-am", "dies when it is timed")
    repository.source.write_text(SLOWER)
    before = repository.state()
    began = time.monotonic()
    result = run(f"--overhead-timeout={2 if 'sleep' in how else 60}")
    assert time.monotonic() - began < 50  # the other one is told, and does not wait for it
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    told = row(repository)
    assert told["base"]["change"] is None
    assert "regression: HEAD could not be timed" in told["reason"]
    assert said in told["reason"]
    # What was counted before still counts.
    assert told["verdict"] == "fail"
    assert "instructions" in told["reason"]
    assert repository.state() == before
