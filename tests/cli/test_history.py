"""`dispatchguard history` and `dispatchguard merge`, and pytest runs that keep one: real runs, real git."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_dispatchguard.history import store
from pytest_dispatchguard.model.history import Checkout, Kept, Run
from pytest_dispatchguard.model.verdicts import Verdict
from pytest_dispatchguard.report.budgets.verdicts import as_json

pytestmark = pytest.mark.without_torch

Started = Callable[..., Any]

SCHEMAS = Path(__file__).parents[1] / "schemas"
SUITE = """
import pytest
from library import entry

@pytest.mark.overhead_budget(instructions=100)
@pytest.mark.parametrize("n", [1, 2])
def test_entry(overhead, n):
    overhead(entry, n).named("call")
"""
SHORT = "def entry(x):\n    return x + 1\n"
LONG = "def entry(x):\n    y = x\n    return y + 1\n"
LONGER = "def entry(x):\n    y = x\n    z = y\n    return z + 1\n"
BROKEN = "def entry(x:\n"
TEST = "tests/test_library.py::test_entry[1]"


class Repository:
    """A git repository with a library and a budget of it; one commit for each text of the library."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.git("init", "--quiet", "--initial-branch=main")
        (path / "tests").mkdir()
        (path / "tests" / "test_library.py").write_text(SUITE)
        (path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
        (path / ".gitignore").write_text("__pycache__\n*.json\nrunpytest*\nstdout\nstderr\n")

    def git(self, *words: str) -> str:
        said = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ["git", *said, *words], cwd=self.path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self, library: str, title: str) -> str:
        (self.path / "library.py").write_text(f"{library}\n# {title}\n")
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", title)
        return self.git("rev-parse", "HEAD")

    def state(self) -> list[str]:
        """All that a user would miss."""
        asked = ("status --short", "stash list", "branch --all", "worktree list", "for-each-ref")
        files = [p.read_text() for p in sorted(self.path.glob("*.py"))]
        return [
            *(self.git(*words.split()) for words in asked),
            self.git("rev-parse", "HEAD"),
            *files,
        ]


@pytest.fixture
def repository(pytester: pytest.Pytester) -> Repository:
    return Repository(pytester.path)


COUNT = ("--overhead-budget=count", "--overhead-history")


def test_runs_are_kept_and_told(
    repository: Repository, run_pytest: Started, run: Started, pytester: pytest.Pytester
) -> None:
    first = repository.commit(SHORT, "short")
    run_pytest(*COUNT).assert_outcomes(passed=2)
    second = repository.commit(LONG, "long")
    run_pytest(*COUNT).assert_outcomes(passed=2)
    (repository.path / "library.py").write_text(LONGER)
    run_pytest(*COUNT).assert_outcomes(passed=2)
    assert repository.git("status", "--short") == "M library.py"  # the history itself is ignored
    listed = run("history", cwd=pytester.path)
    assert listed.status == 0
    assert listed.out.splitlines()[1].split()[:2] == [TEST, "3"]
    whole = json.loads(run("history", TEST, "--format", "json", cwd=pytester.path).out)
    (test,) = whole["tests"]
    seen = [(one["revision"], one["branch"], one["dirty"]) for one in test["runs"]]
    assert seen == [(first, "main", False), (second, "main", False), (second, "main", True)]
    counted = [one["counters"]["instructions"] for one in test["runs"]]
    assert counted[0] < counted[1] < counted[2]
    assert test["runs"][1]["moved"] == {"instructions": counted[:2]}
    assert set(test["runs"][0]["machine"]) >= {"cpu", "python"}
    told = run("history", TEST, "--last", "2", cwd=pytester.path)
    assert "in 2 runs" in told.out
    assert f"  ▲ instructions {counted[1]} → {counted[2]} at {second[:9]} and what" in told.out


@pytest.mark.skipif(sys.platform == "win32", reason="times are not measured on Windows")
def test_times_are_kept_too(
    repository: Repository, run_pytest: Started, run: Started, pytester: pytest.Pytester
) -> None:
    repository.commit(SHORT, "short")
    suite = SUITE.replace('.named("call")', ".against(lambda n: n + 1, n)")
    (repository.path / "tests" / "test_library.py").write_text(suite)
    words = ("--overhead-budget", "--overhead-history=figures.sqlite", "--overhead-max-time=0.3")
    run_pytest(*words, "--overhead-workers=1", "-k", "1").assert_outcomes(passed=1)
    words = ("history", "test_entry", "--history", "figures.sqlite")
    (test,) = json.loads(run(*words, "--format", "json", cwd=pytester.path).out)["tests"]
    (one,) = test["runs"]
    assert one["ratio"]["value"] > 0 and one["host_us"]["value"] > 0 and one["reference_us"] > 0
    assert "ratio " in run(*words, cwd=pytester.path).out


def test_a_setting_keeps_them_too_and_nothing_is_kept_without_budgets(
    repository: Repository, run_pytest: Started, run: Started, pytester: pytest.Pytester
) -> None:
    repository.commit(SHORT, "short")
    (pytester.path / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\noverhead_history = .dispatchguard/history.sqlite\n"
    )
    run_pytest().assert_outcomes(passed=2)
    assert not (pytester.path / ".dispatchguard").exists()
    run_pytest("--overhead-budget=count", "--rootdir=.", "tests").assert_outcomes(passed=2)
    assert run("history", cwd=pytester.path / "tests").status == 0
    assert (pytester.path / ".dispatchguard" / ".gitignore").read_text() == "*\n"


def test_what_pytest_s_settings_name_is_read_as_well(
    repository: Repository,
    run_pytest: Started,
    run: Started,
    start: Started,
    pytester: pytest.Pytester,
) -> None:
    repository.commit(SHORT, "short")
    (pytester.path / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\noverhead_history = sqlite:///team.sqlite\n"
    )
    # Named by nobody on the command line, it is where the settings say.
    run_pytest(*COUNT, "--overhead-json=found.json").assert_outcomes(passed=2)
    assert not (pytester.path / ".dispatchguard" / "history.sqlite").exists()
    (pytester.path / "conftest.py").write_text("raise SystemExit('nobody imports tests')\n")
    folder = pytester.path / "tests"
    assert run("history", cwd=folder).out.splitlines()[1].split()[:2] == [TEST, "1"]
    merged = run("merge", "../found.json", "--history", cwd=folder)
    assert (merged.status, merged.out) == (0, "")
    assert run("history", cwd=folder).out.splitlines()[1].split()[:2] == [TEST, "2"]
    other = run("history", "--history", "other.sqlite", cwd=folder)
    assert other.status == 2
    assert "other.sqlite: no history yet" in other.err
    assert start("report", "--output", "page.html", cwd=folder).status == 0


def test_no_password_of_the_settings_is_told(run: Started, tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="a URL needs SQLAlchemy")
    verdicts = tmp_path / "found.json"
    verdicts.write_text(as_json([Verdict("tests/test_a.py::test_f", "f", "pass", {})], {}))
    for url in (
        "postgresql+psycopg://ci:hunter2@127.0.0.1:1/overhead?connect_timeout=1",
        "postgresql+psycopg://ci:hunter2@127.0.0.1:port/overhead",
        "nonsense://ci:hunter2@127.0.0.1/overhead",
    ):
        (tmp_path / "pytest.ini").write_text(f"[pytest]\noverhead_history = {url}\n")
        for words in (
            ("history",),
            ("merge", "found.json", "--history"),
            ("report", "--budgets", "found.json", "--output", "page.html"),
        ):
            done = run(*words, cwd=tmp_path)
            assert done.status == 2
            assert len(done.err.splitlines()) == 1
            assert "hunter2" not in done.out + done.err
        assert (tmp_path / "page.html").exists()  # all else is in it


def test_a_history_that_cannot_be_written_changes_no_verdict(
    repository: Repository, run_pytest: Started, pytester: pytest.Pytester
) -> None:
    repository.commit(SHORT, "short")
    (pytester.path / "mine.txt").write_text("not a database")
    result = run_pytest("--overhead-budget=count", "--overhead-history=mine.txt")
    result.assert_outcomes(passed=2)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["warning: the run is not in the history: *mine.txt: not a history*"]
    )
    assert (pytester.path / "mine.txt").read_text() == "not a database"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--overhead-history",), "*--overhead-history needs --overhead-budget*"),
        (("--overhead-history", "tests"), "*--overhead-history needs --overhead-budget*"),
    ],
)
def test_wrong_usage_of_the_option_is_told(
    repository: Repository, run_pytest: Started, words: tuple[str, ...], said: str
) -> None:
    repository.commit(SHORT, "short")
    result = run_pytest(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([said])


@pytest.mark.thorough
@pytest.mark.slow
def test_git_finds_the_commit_that_moved_a_counter(
    repository: Repository, run_pytest: Started, run: Started, pytester: pytest.Pytester
) -> None:
    repository.commit(SHORT, "one")
    run_pytest(*COUNT).assert_outcomes(passed=2)
    repository.commit(SHORT, "two")
    repository.commit(BROKEN, "cannot be imported")
    repository.commit(SHORT, "three")
    culprit = repository.commit(LONG, "four: \x1b[1mslower")
    repository.commit(LONG, "five")
    repository.commit(LONGER, "six")
    repository.commit(LONGER, "seven")
    # The runs of a bisection are not kept.
    (pytester.path / "pytest.ini").write_text(
        f"[pytest]\npythonpath = .\noverhead_history = {pytester.path}/.dispatchguard/history.sqlite\n"
    )
    repository.git("commit", "--quiet", "--all", "-m", "settings")
    run_pytest("--overhead-budget=count").assert_outcomes(passed=2)
    (repository.path / "library.py").write_text("# the user's own, unsaved work\n")
    (repository.path / "untracked.txt").write_text("mine")
    repository.git("bisect", "start")  # the user's own
    before = repository.state()
    found = run("history", "--bisect", TEST, "--format", "json", cwd=pytester.path)
    assert found.status == 0, found.err
    told = json.loads(found.out)["culprit"]
    assert (told["commit"], told["counter"]) == (culprit, "instructions")
    assert (
        told["title"] == "four: ?[1mslower" and told["author"] == "A" and told["subject"] == "call"
    )
    numbers = {row["commit"]: row["number"] for row in told["tried"]}
    assert numbers[culprit] == told["now"] > told["before"]
    assert repository.state() == before
    assert repository.git("bisect", "log").startswith("git bisect start")
    kept = json.loads(run("history", TEST, "--format", "json", cwd=pytester.path).out)
    assert len(kept["tests"][0]["runs"]) == 2


@pytest.mark.slow
@pytest.mark.thorough
def test_what_git_cannot_find_is_one_line(
    repository: Repository, run: Started, pytester: pytest.Pytester
) -> None:
    repository.commit(SHORT, "one")
    repository.commit(BROKEN, "two")
    repository.commit(LONG, "three")

    def bisect(test: str, *words: str) -> str:
        done = run("history", "--bisect", test, *words, cwd=pytester.path)
        assert done.status == 2 and done.err.count("\n") == 1 and not done.out
        return str(done.err)

    between = ("--good", "main~2", "--bad", "main")
    assert "cannot be narrowed down" in bisect(TEST, *between)
    assert "has no counts at main~1: " in bisect(TEST, "--good", "main~2", "--bad", "main~1")
    whole = bisect(TEST.removesuffix("[1]"), *between)  # a test that got its parameters later
    assert f"has no counts at main~2: there it is {TEST}, {TEST.replace('1', '2')}\n" in whole
    assert 'knows no revision "gone"' in bisect(TEST, "--good", "gone", "--bad", "main")
    assert "are the same commit" in bisect(TEST, "--good", "HEAD", "--bad", "main")
    assert "no history yet" in bisect(TEST)
    assert "c_calls is 0 at both" in bisect(TEST, *between, "--counter", "c_calls")
    assert repository.git("worktree", "list").count("\n") == 0
    longer = repository.commit(LONGER, "next to it")
    words = ("--good", "HEAD~1", "--bad", "HEAD", "--counter", "instructions")
    found = run("history", "--bisect", f"{TEST} (call)", *words, cwd=pytester.path)
    assert found.out.startswith(f"{longer[:12]} moved instructions of {TEST} (call): ")
    assert "measured at 2 commits:" in found.out


def test_wrong_usage_is_one_line(tmp_path: Path, run: Started) -> None:
    place = tmp_path / ".dispatchguard" / "history.sqlite"

    def told(*words: str) -> str:
        done = run(*words)
        assert done.status == 2 and done.err.count("\n") == 1 and not done.out
        return str(done.err)

    assert "no history yet" in told("history")
    assert not place.parent.exists()
    assert "--counter requires --bisect" in told("history", "x", "--counter", "x")
    assert "--last requires a test" in told("history", "--last", "3")
    assert "--bisect needs a test" in told("history", "--bisect")
    place.parent.mkdir()
    kept = [Kept("t.py::test_a", name, "pass", {"instructions": 1}) for name in ("f", "g")]
    store.add(
        store.database_at(str(place)), Run("2026-01-01T00:00:00.0Z", {}, Checkout("a" * 40)), kept
    )
    assert 'did you mean "t.py::test_a"' in told("history", "t.py::test_e")
    assert "no subject 'h' of t.py::test_a" in told("history", "t.py::test_a (h)")
    assert run("history", "test_a (g)").out.startswith("t.py::test_a  g\n")
    assert run("history", "test_").out.count("t.py::test_a") == 2


def test_bisect_needs_a_move_in_the_history_and_one_subject(
    repository: Repository, run: Started, pytester: pytest.Pytester
) -> None:
    commit = repository.commit(SHORT, "one")
    (pytester.path / ".dispatchguard").mkdir()
    database = store.database_at(str(pytester.path / ".dispatchguard" / "history.sqlite"))
    kept = [Kept("t.py::test_a", name, "pass", {"instructions": 1}) for name in ("f", "g")]
    store.add(database, Run("2026-01-01T00:00:00.0Z", {}, Checkout(commit, "", False)), kept)
    done = run("history", "--bisect", "t.py::test_a", cwd=pytester.path)
    assert done.status == 2
    assert 'matches several tests: "t.py::test_a (f)", "t.py::test_a (g)"; name one' in done.err
    done = run("history", "--bisect", "t.py::test_a (f)", cwd=pytester.path)
    assert "no counter of t.py::test_a moved from one commit to another" in done.err


# -- merge -----------------------------------------------------------------------------------------


def shard(path: Path, *names: str, instructions: int = 3) -> Path:
    verdicts = [
        Verdict(f"t.py::{name}", "f", "pass", {"instructions": instructions}) for name in names
    ]
    path.write_text(as_json(verdicts, {"python": "3.11.7"}))
    return path


def test_shards_become_one_file_and_one_run(tmp_path: Path, run: Started) -> None:
    files = [shard(tmp_path / "b.json", "test_b"), shard(tmp_path / "a.json", "test_a", "test_c")]
    done = run("merge", *files)
    assert done.status == 0
    whole = json.loads(done.out)
    jsonschema.validate(whole, json.loads((SCHEMAS / "dispatchguard-verdicts.json").read_text()))
    assert [row["nodeid"] for row in whole["tests"]] == [f"t.py::test_{c}" for c in "abc"]
    assert done.out == shard(tmp_path / "all.json", "test_a", "test_b", "test_c").read_text()
    kept = run("merge", *files, "--output", "out.json", "--history")
    assert (kept.status, kept.out) == (0, "")
    assert (tmp_path / "out.json").read_text() == done.out
    listed = json.loads(run("history", "--format", "json").out)["tests"]
    assert [row["nodeid"] for row in listed] == [f"t.py::test_{c}" for c in "abc"]
    assert len({row["last"]["at"] for row in listed}) == 1


def test_shards_that_disagree_are_one_line(tmp_path: Path, run: Started) -> None:
    files = [shard(tmp_path / f"{n}.json", "test_a", instructions=n) for n in (1, 2)]
    done = run("merge", *files, "--output", "out.json", "--history")
    assert done.status == 2 and done.err.count("\n") == 1
    assert "t.py::test_a (f) is in " in done.err and "different figures" in done.err
    assert {entry.name for entry in tmp_path.iterdir()} == {"1.json", "2.json"}
    assert "cannot be read: No such file" in run("merge", "none.json").err
    (tmp_path / "text.json").write_text("hello")
    assert "text.json: has no verdicts" in run("merge", "text.json").err
