"""`pytest --overhead-budget`: times, workers and what can befall them, in real pytest runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_dispatchguard.report.budgets.read_json import unpacked
from pytest_dispatchguard.report.budgets.verdicts import as_json

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "dispatchguard-verdicts.json").read_text())

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="times are not measured on Windows"),
    pytest.mark.without_torch,
]

SUBJECTS = """
def quick(x):
    return x

def slow(x):
    for _ in range(50):
        x = x
    return x
"""
# So much slower that no noise of a busy machine hides it.
MUCH_SLOWER = SUBJECTS.replace("range(50)", "range(5000)")
SUITE = """
import pytest
from subjects import quick, slow

@pytest.mark.overhead_budget(ratio=3.0)
def test_same(overhead):
    overhead(quick, 2).against(quick, 2)

@pytest.mark.overhead_budget(ratio=3.0)
def test_slower(overhead):
    overhead(slow, 2).against(quick, 2)
"""


@pytest.fixture
def run(pytester: pytest.Pytester, plugin_flags: tuple[str, ...]) -> Any:
    def started(*words: str) -> pytest.RunResult:
        return pytester.runpytest_subprocess(
            *plugin_flags, "-p", "no:cacheprovider", "--overhead-max-time=1", *words
        )

    return started


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_suite=SUITE, subjects=SUBJECTS)
    return pytester


def told(pytester: pytest.Pytester, name: str = "out.json") -> dict[str, Any]:
    whole = json.loads((pytester.path / name).read_text())
    jsonschema.validate(whole, SCHEMA)
    rows = whole["tests"]
    return {row["nodeid"].rpartition("::")[2]: row for row in rows}


def test_a_slow_subject_fails_and_says_how_slow(suite: pytest.Pytester, run: Any) -> None:
    result = run("--overhead-budget", "--overhead-json=out.json")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "slow costs more than its budget allows",
            "  ratio: * (* to *), allowed 3",
            "  a call takes * µs, its reference * µs: medians of * blocks each in * process*",
            "  most of its instructions run here:",
            "*subjects.py:*",
            "test *reference *subject *ratio *allowed *verdict",
            "test_suite.py::test_slower * µs * fail",
            "test_suite.py::test_same * µs * pass",
        ]
    )
    rows = told(suite)
    assert rows["test_slower"]["ratio"]["low"] > 3 > rows["test_same"]["ratio"]["high"]
    assert rows["test_same"]["subject_us"] > 0 and rows["test_same"]["pairs"] > 25


def test_what_befalls_a_test_stays_with_it(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        import os, signal, sys, time
        import pytest

        kept = []

        def test_leaves(overhead):
            overhead(os._exit, 3)

        def test_is_killed(overhead):
            overhead(os.kill, 0, signal.SIGKILL).unchecked()
            os.kill(os.getpid(), signal.SIGSEGV)

        def test_raises(overhead):
            overhead(int, "x")

        def test_hangs(overhead):
            time.sleep(600)

        def test_changes_a_global(overhead):
            kept.append(1)
            overhead(len, kept)

        def test_does_not_see_it(overhead):
            assert not kept
            overhead(len, kept)

        def test_prints(overhead):
            print("garbage")
            os.write(1, b"more garbage")
            overhead(len, "abc")

        @pytest.mark.skip(reason="not now")
        @pytest.mark.overhead_budget(ratio=1)
        def test_skipped(overhead):
            pass

        @pytest.mark.xfail(reason="known", strict=True)
        def test_known(overhead):
            overhead(int, "x")

        def test_without_a_subject():
            pass
        """
    )
    result = run("--overhead-budget", "--overhead-timeout=2", "--overhead-json=out.json")
    result.assert_outcomes(passed=4, failed=4, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "test_leaves could not be measured: *ended by itself with status 3",
            "test_is_killed could not be measured: *was killed by SIGSEGV",
            "*ValueError: invalid literal*",
            "test_hangs could not be measured: *was given up after * s without an answer*",
        ],
        consecutive=False,
    )
    rows = told(pytester)
    assert rows["test_leaves"]["verdict"] == "error" and rows["test_prints"]["verdict"] == "pass"
    assert (rows["test_skipped"]["verdict"], rows["test_skipped"]["reason"]) == (
        "skipped",
        "not now",
    )
    assert rows["test_known"]["verdict"] == "skipped"
    assert rows["test_known"]["reason"].startswith("expected to fail: known; ValueError: ")


def test_a_worker_that_cannot_start_is_told_once(suite: pytest.Pytester, run: Any) -> None:
    suite.makeconftest(
        """
        import os, sys
        if "DISPATCHGUARD_PAD" in os.environ:
            print("no room left", file=sys.stderr)
            os._exit(7)
        """
    )
    start = time.monotonic()
    result = run("--overhead-budget")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*could not be measured: the worker ended with status 7*"])
    assert time.monotonic() - start < 60


def test_a_subject_that_gets_slower_is_told(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        subjects="""
        kept = []

        def grows():
            kept.append(1)
            return sum(range(300 + len(kept) // 10))

        def steady():
            return sum(range(300))
        """,
        test_suite="""
        from subjects import grows, steady

        def test_grows(overhead):
            overhead(grows).against(steady).unchecked()
        """,
    )
    result = run("--overhead-budget", "--overhead-json=out.json")
    assert "gets slower call by call" in told(pytester)["test_grows"]["reason"]
    result.stdout.fnmatch_lines(["*gets slower call by call: *% while it was measured*"])


@pytest.mark.thorough
def test_close_to_the_limit_is_undecided(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        subjects=SUBJECTS,
        test_suite="""
        import pytest
        from subjects import quick

        @pytest.mark.overhead_budget(ratio=1.0)
        def test_same(overhead):
            overhead(quick, 2).against(quick, 2)
        """,
    )
    result = run("--overhead-budget", "--overhead-json=out.json")
    result.assert_outcomes(passed=1)
    row = told(pytester)["test_same"]
    assert row["verdict"] == "undecided" and row["processes"] > 1
    result.stdout.fnmatch_lines(["*undecided", "    ratio: * allowed 1*"])
    run("--overhead-budget", "--overhead-undecided=fail").assert_outcomes(failed=1)
    pytester.makeini("[pytest]\noverhead_undecided = fail\n")
    run("--overhead-budget").assert_outcomes(failed=1)
    run("--overhead-budget", "--overhead-undecided=pass").assert_outcomes(passed=1)


@pytest.mark.thorough
def test_other_plugins_and_options_keep_working(suite: pytest.Pytester, run: Any) -> None:
    result = run("--overhead-budget", "-x", "-k", "slower", "--junitxml=junit.xml", "-vv")
    result.assert_outcomes(failed=1, deselected=1)
    assert 'name="overhead slow ratio"' in (suite.path / "junit.xml").read_text()
    pytest.importorskip("xdist", reason="runs tests in several processes")
    # Where so many processes share a machine it may be too noisy to tell by time.
    suite.makepyprojecttoml(
        """
        [tool.dispatchguard.budgets]
        "*::test_slower" = { instructions = 10 }
        """
    )
    result = run("--overhead-budget", "-n", "2", "--overhead-json=out.json")
    result.assert_outcomes(passed=1, failed=1)
    rows = told(suite)
    assert rows["test_same"]["ratio"] is not None
    assert rows["test_slower"]["ratio"]["low"] > 3


def test_fixtures_of_other_tests_live_as_long_as_they_should(
    pytester: pytest.Pytester, run: Any
) -> None:
    module = """
        import pytest

        @pytest.fixture(scope="module")
        def thing():
            yield 1
            print("torn down", __name__)

        def test_first(thing):
            pass

        def test_measured(overhead, thing, tmp_path):
            assert tmp_path.is_dir()
            overhead(len, "abc")
        """
    pytester.makepyfile(test_a=module, test_b=module)
    run("--overhead-budget").assert_outcomes(passed=4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--overhead-budget", "--overhead-confidence=2"), "*'2' is not a level such as 0.999*"),
        (("--overhead-budget", "--overhead-workers=0"), "*'0' is not a whole number from 1 to 64*"),
        (("--overhead-budget", "--overhead-compare=none"), "*no file and no run is called 'none'*"),
        (("--overhead-budget", "--overhead-save=a/b"), "*a run is named by letters*"),
        (("--overhead-budget=count", "--overhead-save=a"), "*count measures no times*"),
        (("--overhead-budget", "--overhead-against=HEAD"), "*is not in a git work tree*"),
        (("--overhead-against=HEAD",), "*--overhead-against needs --overhead-budget*"),
        (
            ("--overhead-budget", "--overhead-against=HEAD", "--overhead-compare=a"),
            "*name one base, not two",
        ),
    ],
)
def test_options_that_cannot_be_are_one_line(
    suite: pytest.Pytester, run: Any, words: tuple[str, ...], said: str
) -> None:
    result = run(*words)
    assert result.ret == 4
    result.stderr.fnmatch_lines([said])
    result.stderr.no_fnmatch_line("*Traceback*")


def test_limits_that_times_cannot_keep_are_one_line(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.overhead_budget(ratio=2)
        def test_alone(overhead):
            overhead(len, "abc")

        @pytest.mark.overhead_budget(device_us=2)
        def test_device(overhead):
            overhead(len, "abc")

        @pytest.mark.overhead_budget(host_us=1000)
        def test_host(overhead):
            overhead(len, "abc")

        @pytest.mark.overhead_budget(extra_us=1000)
        def test_extra(overhead):
            overhead(sorted, "abc").against(list, "abc")
        """
    )
    result = run("--overhead-budget")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["len: ratio needs a reference to compare with*"])
    result.stdout.fnmatch_lines(["len: device_us needs an accelerator*"])


@pytest.mark.thorough
def test_update_records_a_ratio_and_check_holds_it(suite: pytest.Pytester, run: Any) -> None:
    (suite.path / "test_suite.py").write_text(SUITE.replace("@pytest.mark.overhead_budget", "# "))
    run("--overhead-budget=update").assert_outcomes(passed=2)
    file = suite.path / "overhead-budgets.toml"
    text = file.read_text()
    assert text.count("ratio = ") == 2 and text.count("instructions = ") == 2
    run("--overhead-budget=check").assert_outcomes(passed=2)
    run("--overhead-budget=count").assert_outcomes(passed=2)
    (suite.path / "subjects.py").write_text(MUCH_SLOWER)
    result = run("--overhead-budget=check")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["  instructions: *, recorded *", "  ratio: *, recorded *"])


@pytest.mark.thorough
def test_saved_runs_are_pyperf_files_and_compare(suite: pytest.Pytester, run: Any) -> None:
    (suite.path / "test_suite.py").write_text(SUITE.replace("@pytest.mark.overhead_budget", "# "))
    run("--overhead-budget", "--overhead-save=before").assert_outcomes(passed=2)
    file = suite.path / ".dispatchguard" / "runs" / "before.json"
    for command in (["stats"], ["hist"], ["check"], ["metadata"], ["compare_to", str(file)]):
        words = [sys.executable, "-m", "pyperf", *command, str(file)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert "test_suite.py::test_same" in done.stdout, (command, done)
        assert "Traceback" not in done.stderr
    run("--overhead-budget", "--overhead-compare=before").assert_outcomes(passed=2)
    (suite.path / "subjects.py").write_text(MUCH_SLOWER)
    result = run("--overhead-budget", f"--overhead-compare={file}", "--overhead-json=out.json")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["  instructions: *, in * *", "  regression: * times *"])
    base = told(suite)["test_slower"]["base"]
    assert base["counters"]["instructions"] > 100 and base["change"]["low"] > 2
    file.write_text("{}")
    result = run("--overhead-budget", f"--overhead-compare={file}")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*before.json is no file of pyperf*"])


TWO_SPEEDS = """
    import pathlib

    turns = pathlib.Path(__file__).with_name("turns")

    def work(n):
        total = 0
        for i in range(n):
            total += i
        return total

    def reference(n):
        return work(n * pace())

    def subject(n):
        work(n)
        return reference(n)

    def pace(known=[]):
        if not known:
            with turns.open("a") as file:
                file.write("x")
            known.append(1 if turns.stat().st_size % 2 else 4)
        return known[0]
    """


@pytest.mark.thorough
def test_saved_runs_are_held_against_each_other_by_several_processes(
    pytester: pytest.Pytester, run: Any
) -> None:
    """A reference that is four times as slow in every other process says little about two runs."""
    pytester.makepyfile(subjects=TWO_SPEEDS)
    pytester.makepyfile(
        """
        import subjects

        def test_two_speeds(overhead):
            overhead(subjects.subject, 40).against(subjects.reference, 40)
        """
    )
    run("--overhead-budget", "--overhead-save=before").assert_outcomes(passed=1)
    module = pytester.path / "subjects.py"
    module.write_text(module.read_text().replace("        work(n)\n", "        work(n + 1 - 2)\n"))
    result = run("--overhead-budget", "--overhead-compare=before", "--overhead-json=out.json")
    base = told(pytester)["test_two_speeds"]["base"]
    assert base["counters"]["instructions"] > 100
    assert base["change"]["high"] / base["change"]["low"] > 2
    assert "regression" not in result.stdout.str() or "too uncertain" in result.stdout.str()


@pytest.mark.slow
def test_ctrl_c_leaves_no_process_and_keeps_what_is_done(
    pytester: pytest.Pytester, plugin_flags: tuple[str, ...]
) -> None:
    pytester.makepyfile(
        """
        import os, pathlib, time

        def test_one(overhead):
            overhead(len, "abc").against(len, "abc")

        def test_two(overhead):
            pathlib.Path("child").write_text(str(os.getpid()))
            time.sleep(600)
        """
    )
    words = ["--overhead-budget", "--overhead-save=cut", "-p", "no:cacheprovider"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *plugin_flags, *words],
        cwd=pytester.path,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )
    written = pytester.path / "child"
    end = time.monotonic() + 60
    while not (written.exists() and written.read_text()) and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 2
    assert gone(int(written.read_text()))
    suite = json.loads((pytester.path / ".dispatchguard" / "runs" / "cut.json").read_text())
    assert len(suite["benchmarks"]) == 2


def gone(pid: int) -> bool:
    """Whether a process ends, given some time."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").exists():
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "Z":
                return True
        time.sleep(0.05)
    return False


def test_a_failure_shows_what_the_linter_knows_of_its_lines(
    pytester: pytest.Pytester, run: Any
) -> None:
    pytester.makepyfile(
        subjects="""
        import inspect

        def checked(x):
            inspect.signature(len)
            return x
        """,
        test_suite="""
        import pytest
        from subjects import checked

        @pytest.mark.overhead_budget(instructions=5)
        def test_checked(overhead):
            overhead(checked, 1)
        """,
    )
    for mode in ("count", "check"):
        result = run(f"--overhead-budget={mode}")
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(
            ["*What the linter says of these lines*", "*subjects.py:*: DG6*"]
        )


def test_a_subject_that_changes_its_inputs_is_told(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        def grow(values):
            values.append(1)
            return len(values)

        def grow_one_more(values):
            values.append(1)
            return len(values) - 1

        def test_told(overhead):
            overhead(grow, [])

        def test_why_they_disagree(overhead):
            values = []
            overhead(grow, values).against(grow, values)

        def test_fresh(overhead):
            values = []
            overhead(grow, values).against(grow, values).setup(values.clear)
        """
    )
    result = run("--overhead-budget=count")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "grow and its reference disagree: *",
            "grow changes its argument 0, so that later calls see what earlier ones left: .setup(fn)*",
            "*::test_told *pass",
            "    grow changes its argument 0*",
        ]
    )


@pytest.mark.thorough
def test_a_report_in_markdown_and_settings_in_place_of_options(
    suite: pytest.Pytester, run: Any
) -> None:
    suite.makeini(
        "[pytest]\noverhead_budget = count\noverhead_report = out.md\noverhead_confidence = 0.99\n"
    )
    run().assert_outcomes(passed=2)
    assert "✅ pass" in (suite.path / "out.md").read_text()
    run("--overhead-budget=check").assert_outcomes(passed=1, failed=1)
    text = (suite.path / "out.md").read_text()
    assert "❌ fail" in text and "allowed 3" in text
    suite.makeini("[pytest]\noverhead_workers = many\n")
    result = run()
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*overhead_workers: 'many' is not a whole number from 1 to 64*"])


@pytest.mark.thorough
def test_a_report_is_a_page_where_its_name_says_so(suite: pytest.Pytester, run: Any) -> None:
    words = ("--overhead-json=out.json", "--overhead-report=out.html")
    run("--overhead-budget=check", *words).assert_outcomes(passed=1, failed=1)
    page = (suite.path / "out.html").read_text()
    assert page.startswith("<!doctype html>") and "✗ fail" in page and "✓ pass" in page
    assert "dispatchguard: 2 budgets" in page and "test_suite.py::test_slower" in page
    assert "Most of its instructions run here" in page and "subjects.py:" in page
    # What was written of a real run is read as it was.
    text = (suite.path / "out.json").read_text()
    assert as_json(*unpacked(text)) == text


def test_a_run_is_saved_whatever_becomes_of_its_tests(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        import pytest

        def test_fine(overhead):
            overhead(len, "ab").against(len, "ab")

        def test_disagrees(overhead):
            overhead(abs, -3).against(len, "ab")

        def test_raises(overhead):
            overhead(int, "x")

        def test_skips(overhead):
            overhead(pytest.skip, "not here")

        def test_one_of_two(overhead):
            overhead(abs, -3).against(len, "ab")
            overhead(len, "ab").against(len, "ab")
        """
    )
    result = run("--overhead-budget", "--overhead-save=all", "--overhead-json=out.json")
    result.assert_outcomes(passed=1, failed=3, skipped=1)
    text = (pytester.path / ".dispatchguard" / "runs" / "all.json").read_text()
    assert len(json.loads(text)["benchmarks"]) == 4
    assert told(pytester)["test_skips"]["verdict"] == "skipped"


def test_subjects_of_one_name_are_told_apart(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        def test_two(overhead):
            overhead(sum, [1])
            overhead(sum, [1, 2])
        """
    )
    run("--overhead-budget=update").assert_outcomes(passed=1)
    text = (pytester.path / "overhead-budgets.toml").read_text()
    assert '["test_subjects_of_one_name_are_told_apart.py::test_two (sum #2)"]' in text
    run("--overhead-budget=count").assert_outcomes(passed=1)


def test_what_a_subject_leaves_running_is_ended(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        import pathlib, subprocess

        def test_leaves_a_process(overhead):
            child = subprocess.Popen(["sleep", "600"], close_fds=False)
            pathlib.Path("child").write_text(str(child.pid))
            overhead(len, "ab")
        """
    )
    start = time.monotonic()
    run("--overhead-budget", "--overhead-timeout=30").assert_outcomes(passed=1)
    assert time.monotonic() - start < 25
    assert gone(int((pytester.path / "child").read_text()))


def test_a_fixture_that_cannot_be_torn_down_is_an_error(
    pytester: pytest.Pytester, run: Any
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="module")
        def thing():
            yield 1
            raise RuntimeError("cannot let go")

        def test_first(thing):
            pass

        def test_measured(overhead):
            overhead(len, "ab")
        """
    )
    result = run("--overhead-budget")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*RuntimeError: cannot let go*"])


@pytest.mark.thorough
def test_a_slow_subject_is_undecided_and_recorded_without_a_ratio(
    pytester: pytest.Pytester, run: Any
) -> None:
    pytester.makepyfile(
        """
        import time
        import pytest

        @pytest.mark.overhead_budget(ratio=1.5)
        def test_slow(overhead):
            overhead(time.sleep, 0.05).against(time.sleep, 0.05)
        """
    )
    run("--overhead-budget=update").assert_outcomes(passed=1)
    text = (pytester.path / "overhead-budgets.toml").read_text()
    assert "instructions = " in text and "ratio = " not in text
    result = run("--overhead-budget", "--overhead-json=out.json")
    assert "raise --overhead-max-time" in told(pytester)["test_slow"]["reason"]
    result.assert_outcomes(passed=1)


def test_groups_of_xdist_do_not_hide_tests(pytester: pytest.Pytester, run: Any) -> None:
    pytest.importorskip("xdist", reason="runs tests in several processes")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.xdist_group("one")
        def test_grouped(overhead):
            overhead(len, "ab")
        """
    )
    words = ("-n", "2", "--dist", "loadgroup", "--overhead-json=out.json")
    run("--overhead-budget", *words).assert_outcomes(passed=1)
    assert list(told(pytester)) == ["test_grouped"]


def test_a_file_that_cannot_be_written_does_not_hide_the_table(
    suite: pytest.Pytester, run: Any
) -> None:
    if os.geteuid() == 0:
        (suite.path / "out.json").mkdir()
    else:
        (suite.path / "out.json").write_text("")
        (suite.path / "out.json").chmod(0o444)
    result = run("--overhead-budget=count", "--overhead-json=out.json")
    assert result.ret == 4
    result.stdout.fnmatch_lines(["ERROR: *out.json*", "* overhead budgets *"])


@pytest.mark.thorough
def test_a_histogram_shows_how_times_are_spread(suite: pytest.Pytester, run: Any) -> None:
    result = run("--overhead-budget", "--overhead-histogram=times.svg")
    result.assert_outcomes(passed=1, failed=1)
    drawn = ElementTree.fromstring((suite.path / "times.svg").read_text())
    words = "".join(drawn.itertext())
    assert "Times of a call, block by block" in words
    for test in ("test_same", "test_slower"):
        assert f"test_suite.py::{test}: subject " in words
    assert not (suite.path / ".dispatchguard" / "runs").exists()
