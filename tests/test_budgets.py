"""The `overhead` fixture and `--overhead-budget=count`, in real pytest runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec
from typing import Any

import pytest

SUITE = """
import pytest
from subjects import plain, wrapped

@pytest.mark.overhead_budget(instructions=20, py_calls=1)
def test_plain(overhead):
    overhead(plain, 2).against(plain, 2)

@pytest.mark.overhead_budget(instructions=20, py_calls=1)
def test_wrapped(overhead):
    overhead(wrapped, 2).against(plain, 2)
"""
SUBJECTS = """
def plain(x):
    return x + 1

def wrapped(x):
    parts = [x for _ in range(5)]
    for part in parts:
        result = plain(part)
    return result
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_suite=SUITE, subjects=SUBJECTS)
    return pytester


@pytest.fixture
def run(pytester: pytest.Pytester, plugin_flags: tuple[str, ...]) -> Any:
    def started(*words: str) -> pytest.RunResult:
        flags = ("-p", "no:cacheprovider", "--overhead-max-time=0.3")
        return pytester.runpytest_subprocess(*plugin_flags, *flags, *words)

    return started


needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


def test_without_the_option_nothing_is_counted(suite: pytest.Pytester, run: Any) -> None:
    result = run()
    result.assert_outcomes(passed=2)
    result.stdout.no_fnmatch_line("*overhead budgets*")


def test_a_failing_budget_explains_itself(suite: pytest.Pytester, run: Any) -> None:
    result = run("--overhead-budget=count")
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "wrapped costs more than its budget allows",
            "  instructions: *, allowed 20",
            "  py_calls: *, allowed 1",
            "  most of its instructions run here:",
            "*subjects.py:*  *",
            "* overhead budgets *",
            "test *instructions*verdict",
            "test_suite.py::test_wrapped *fail",
            "test_suite.py::test_plain *pass",
        ]
    )


def test_a_disagreement_is_a_failure_that_shows_both(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        def test_differs(overhead):
            overhead(abs, -3).against(len, "ab")

        def test_need_not_agree(overhead):
            overhead(abs, -3).against(len, "ab").unchecked()

        def test_structures(overhead):
            overhead(sorted, "ba").against(list, "ab").named("sorting")
        """
    )
    result = run()
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["abs and its reference disagree: result: *", "*subject:   3", "*reference: 2"]
    )


def test_settings_override_the_marker(suite: pytest.Pytester, run: Any) -> None:
    suite.makepyprojecttoml(
        """
        [tool.dispatchguard.budgets]
        "*::test_wrapped" = { instructions = 1000, py_calls = [1, 20] }
        """
    )
    run("--overhead-budget=count").assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        (
            "instruction=1",
            'overhead_budget: unknown limit "instruction"; did you mean "instructions"?',
        ),
        ("instructions='1'", "overhead_budget: instructions must be a number*"),
        ("7", "overhead_budget: limits are given by name*"),
    ],
)
def test_wrong_limits_are_one_line(
    pytester: pytest.Pytester, run: Any, marker: str, said: str
) -> None:
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.overhead_budget({marker})
        def test_one(overhead):
            overhead(len, "abc")
        """
    )
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([said])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_budget_without_a_subject_is_told(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.overhead_budget(instructions=1)
        def test_one(overhead):
            pass
        """
    )
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*never calls overhead(*"])


def test_what_a_subject_raises_is_the_failure(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        def test_one(overhead):
            overhead(int, "x")

        def test_two(overhead):
            overhead(len, "x")

        def test_three(overhead):
            assert False

        def test_four(overhead):
            overhead(3)
        """
    )
    result = run("--overhead-budget=count")
    result.assert_outcomes(failed=3, passed=1)
    result.stdout.fnmatch_lines(["*ValueError: invalid literal*", "*needs something to call*"])


def test_a_subject_that_keeps_something_is_told(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        import pytest

        kept = []

        def grows():
            kept.append(1)
            return sum(1 for _ in kept)

        @pytest.mark.overhead_budget(instructions=1)
        def test_one(overhead):
            overhead(grows)
        """
    )
    result = run("--overhead-budget=count")
    result.stdout.fnmatch_lines(["*instructions differ from call to call, at most *"])


def test_json_and_junit(suite: pytest.Pytester, run: Any) -> None:
    run("--overhead-budget=count", "--overhead-json=out.json", "--junitxml=junit.xml")
    told = json.loads((suite.path / "out.json").read_text())
    assert told["schema"] == 1 and "python" in told["machine"]
    plain, wrapped = told["tests"]
    assert (plain["nodeid"], plain["verdict"]) == ("test_suite.py::test_plain", "pass")
    assert (wrapped["subject"], wrapped["verdict"]) == ("wrapped", "fail")
    assert wrapped["counters"]["py_calls"] > plain["counters"]["py_calls"] == 1
    assert wrapped["limits"] == {"instructions": 20, "py_calls": 1}
    assert "allowed 20" in wrapped["reason"]
    properties = ElementTree.parse(suite.path / "junit.xml").iter("property")
    assert any(p.get("name") == "overhead wrapped verdict" for p in properties)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--overhead-budget=count", "--overhead-json=no/such/out.json"),
            "*the directory does not exist; create it first",
        ),
        (("--overhead-json=out.json",), "*--overhead-json needs --overhead-budget*"),
        (
            ("--overhead-budget=weigh",),
            "*--overhead-budget: 'weigh' is neither a mode (check, update, count) nor a path*",
        ),
    ],
)
def test_options_that_cannot_be_are_one_line(
    suite: pytest.Pytester, run: Any, words: tuple[str, ...], said: str
) -> None:
    result = run(*words)
    assert result.ret == 4
    result.stderr.fnmatch_lines([said])


def test_a_device_is_written_to_and_never_replaced(suite: pytest.Pytester, run: Any) -> None:
    pipe = suite.path / "pipe"
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs named pipes")
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    run("--overhead-budget=count", f"--overhead-json={pipe}")
    told, _ = reader.communicate(timeout=60)
    assert json.loads(told)["schema"] == 1
    assert pipe.is_fifo()


def test_counts_are_the_same_under_xdist(suite: pytest.Pytester, run: Any) -> None:
    pytest.importorskip("xdist", reason="runs tests in several processes")
    run("--overhead-budget=count", "--overhead-json=alone.json")
    result = run("--overhead-budget=count", "--overhead-json=many.json", "-n", "2")
    result.stdout.fnmatch_lines(["* overhead budgets *", "test_suite.py::test_wrapped *fail"])
    alone, many = (json.loads((suite.path / f"{n}.json").read_text()) for n in ("alone", "many"))
    assert alone == many


@pytest.mark.parametrize("mode", ["count", "check"])
@pytest.mark.thorough
def test_counts_are_the_same_under_coverage(suite: pytest.Pytester, run: Any, mode: str) -> None:
    pytest.importorskip("pytest_cov", reason="measures the coverage of tests")
    found = []
    for words in ((), ("--cov=.", "--cov-branch", "--cov-report=json")):
        flags = (f"--overhead-budget={mode}", "--overhead-max-time=1", "--overhead-json=out.json")
        run(*flags, *words).assert_outcomes(passed=1, failed=1)
        rows = json.loads((suite.path / "out.json").read_text())["tests"]
        found.append([(row["verdict"], row["counters"]) for row in rows])
    assert found[0] == found[1]
    covered = json.loads((suite.path / "coverage.json").read_text())["totals"]
    # Tests that are timed run in workers, where nothing watches.
    assert covered["percent_covered"] > (50 if mode == "count" else 20)


def test_blocks_are_counted_where_a_limit_asks(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        import pytest

        def pair(a, b):
            return [a, b]

        @pytest.mark.overhead_budget(py_allocations=2)
        def test_kept(overhead):
            overhead(pair, 1, 2)

        @pytest.mark.overhead_budget(py_allocations=1)
        def test_exceeded(overhead):
            overhead(pair, 1, 2)

        def test_not_asked(overhead):
            overhead(pair, 1, 2)
        """
    )
    result = run("--overhead-budget=count", "--overhead-json=out.json")
    rows = json.loads((pytester.path / "out.json").read_text())["tests"]
    assert "py_allocations" not in rows[2]["counters"]
    if sys.version_info < (3, 11):
        result.assert_outcomes(passed=3)
        assert rows[1]["reason"] == "py_allocations is not counted before Python 3.11"
        return
    result.assert_outcomes(passed=2, failed=1)
    assert [row["counters"]["py_allocations"] for row in rows[:2]] == [2, 2]
    result.stdout.fnmatch_lines(["  py_allocations: 2, allowed 1"])


def test_an_own_fixture_of_that_name_is_left_alone(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def overhead():
            return 3

        def test_one(overhead):
            assert overhead == 3
        """
    )
    run("--overhead-budget=count").assert_outcomes(passed=1)


def test_a_budget_on_a_test_without_the_fixture_is_told(
    pytester: pytest.Pytester, run: Any
) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.overhead_budget(instructions=1)
        def test_forgotten():
            pass

        @pytest.mark.overhead_budget(instructions=1)
        def test_asked_for_late(request):
            request.getfixturevalue("overhead")(sorted, "abc", key=lambda c: c)

        @pytest.mark.overhead_budget(instructions=1)
        class TestMany:
            def test_helper(self):
                pass
        """
    )
    result = run("--overhead-budget=count")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*never calls overhead*", "*sorted costs more than its budget*"])


def test_a_property_of_our_name_is_no_trouble(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        def test_one(record_property):
            record_property("dispatchguard-verdicts", "mine")
            record_property("dispatchguard-verdicts", "[1]")
        """
    )
    run("--overhead-budget=count").assert_outcomes(passed=1)


def test_outcomes_of_subjects_are_those_of_the_test(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        import pytest

        def skips():
            pytest.skip("not here")

        def test_skips(overhead):
            overhead(skips)

        @pytest.mark.xfail(reason="known", strict=True)
        def test_known(overhead):
            overhead(int, "x")

        def test_leaves(overhead):
            overhead(exit, 3)
        """
    )
    result = run("--overhead-budget=count", "-W", "error")
    result.assert_outcomes(skipped=1, xfailed=1, failed=1)


def test_what_cannot_be_counted_is_one_line(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        import sys
        import pytest

        def parts():
            yield 1

        async def later():
            return 1

        def watched():
            sys.setprofile(None)

        def test_generator(overhead):
            overhead(parts)

        def test_coroutine(overhead):
            overhead(later)

        def test_profiler(overhead):
            overhead(watched)

        def test_none(overhead):
            overhead(len, "a").against(None)

        def test_words(overhead):
            overhead(dict, **{"class": 1, "a-b": 2}).against(lambda: {"class": 1, "a-b": 2})
        """
    )
    result = run("--overhead-budget=count", "-W", "error")
    result.assert_outcomes(failed=4, passed=1)
    result.stdout.fnmatch_lines(
        [
            "parts: the subject only makes a generator: name the subject by overhead.exhausted(f, ...)",
            "later: the subject only makes a coroutine: name the subject by overhead.awaited(f, ...)",
            "watched: the subject sets a profiler of its own, so it cannot be counted",
            "*TypeError: against() needs something to call, not None*",
        ]
    )


def test_subjects_that_disagree_are_in_the_json(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        def test_differs(overhead):
            overhead(abs, -3).against(len, "ab")

        def test_raises(overhead):
            overhead(int, "x")
        """
    )
    result = run("--overhead-budget=count", "--overhead-json=out.json")
    told = json.loads((pytester.path / "out.json").read_text())
    assert [row["verdict"] for row in told["tests"]] == ["fail", "error"]
    assert "ValueError" in told["tests"][1]["reason"]
    result.stdout.fnmatch_lines(["* overhead budgets *", "test_*::test_raises *error"])


@needs_torch
def test_torch_code_in_every_grad_mode(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        import pytest, torch

        @pytest.mark.overhead_budget(dispatches=1, tensor_allocations=1)
        @pytest.mark.parametrize("mode", ["grad", "no_grad", "inference"])
        def test_relu(overhead, mode):
            x = torch.ones(3, requires_grad=True)
            overhead(torch.mul, x, 2).against(torch.add, x, x).mode(mode)

        @pytest.mark.overhead_budget(dispatches=1)
        def test_fresh(overhead):
            made = []
            def fresh():
                made[:] = [torch.ones(3)]
            overhead(lambda: made[0].add_(1)).against(lambda: made[0] + 1).setup(fresh)

        @pytest.mark.xfail(reason="they disagree", strict=True)
        def test_in_place(overhead):
            x = torch.ones(3)
            overhead(lambda: x.add_(5)).against(lambda: x.add_(1)).setup(lambda: x.zero_())

        def test_tolerance(overhead):
            x = torch.ones(3)
            overhead(torch.mul, x, 1.0001).against(torch.mul, x, 1).agreeing(rtol=1e-3)

        def test_mode(overhead):
            with pytest.raises(ValueError, match="mode must be"):
                overhead(torch.relu, torch.ones(1)).mode("training")
        """
    )
    run("--overhead-budget=count").assert_outcomes(passed=6, xfailed=1)


RECORDED = """
from subjects import plain, wrapped

def test_plain(overhead):
    overhead(plain, 2)

def test_two(overhead):
    overhead(plain, 2)
    overhead(wrapped, 2).named("so called")
"""


@pytest.fixture(scope="module")
def record() -> list[str]:
    """The budget file of the suite below, once it was made."""
    return []


@pytest.fixture
def recorded(pytester: pytest.Pytester, run: Any, record: list[str]) -> pytest.Pytester:
    """A suite without limits, and a budget file that records it."""
    pytester.makepyfile(test_suite=RECORDED, subjects=SUBJECTS)
    file = pytester.path / "overhead-budgets.toml"
    if not record:
        run("--overhead-budget=update").assert_outcomes(passed=2)
        record.append(file.read_text())
    file.write_text(record[0])
    return pytester


def test_update_records_and_count_compares(recorded: pytest.Pytester, run: Any) -> None:
    file = recorded.path / "overhead-budgets.toml"
    text = file.read_text()
    for name in ("test_plain", "test_two (plain)", "test_two (so called)"):
        assert f'["test_suite.py::{name}"]' in text
    again = run("--overhead-budget=update")
    again.stdout.fnmatch_lines(["overhead-budgets.toml: nothing changed"])
    assert file.read_text() == text
    result = run("--overhead-budget=count")
    result.assert_outcomes(passed=2)
    result.stdout.no_fnmatch_line("*overhead-budgets.toml*")


def test_a_call_that_does_more_than_recorded_fails(recorded: pytest.Pytester, run: Any) -> None:
    (recorded.path / "subjects.py").write_text(SUBJECTS.replace("x + 1", "abs(x) + 1"))
    before = (recorded.path / "overhead-budgets.toml").read_text()
    result = run("--overhead-budget=count")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["  instructions: *, recorded *", "  c_calls: 1, recorded 0"])
    assert (recorded.path / "overhead-budgets.toml").read_text() == before
    updated = run("--overhead-budget=update")
    updated.assert_outcomes(passed=2)
    updated.stdout.fnmatch_lines(["overhead-budgets.toml: written"])
    run("--overhead-budget=count").assert_outcomes(passed=2)


def test_limits_set_by_hand_win_over_the_record(recorded: pytest.Pytester, run: Any) -> None:
    (recorded.path / "subjects.py").write_text(SUBJECTS.replace("x + 1", "abs(x) + 1"))
    recorded.makepyprojecttoml(
        '[tool.dispatchguard.budgets]\n"*" = { instructions = 1000, c_calls = 10 }\n'
    )
    run("--overhead-budget=count").assert_outcomes(passed=2)


def test_cheaper_and_missing_entries_are_told(recorded: pytest.Pytester, run: Any) -> None:
    (recorded.path / "subjects.py").write_text(SUBJECTS.replace("x + 1", "x"))
    suite = recorded.path / "test_suite.py"
    suite.write_text(suite.read_text() + "\ndef test_new(overhead):\n    overhead(plain, 1)\n")
    result = run("--overhead-budget=count")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "overhead-budgets.toml has no entry of this Python and torch for test_suite.py::test_new",
            "test_suite.py::test_plain does less than overhead-budgets.toml records",
            "`pytest --overhead-budget=update` records what is found",
        ]
    )


def test_update_drops_tests_that_are_gone_and_no_others(
    recorded: pytest.Pytester, run: Any
) -> None:
    file = recorded.path / "overhead-budgets.toml"
    run("--overhead-budget=update", "-k", "plain").assert_outcomes(passed=1, deselected=1)
    assert "test_two" in file.read_text()
    run("--overhead-budget=update", "test_suite.py::test_plain")
    assert "test_two" in file.read_text()
    suite = recorded.path / "test_suite.py"
    suite.write_text(suite.read_text().partition("def test_two")[0])
    file.write_text(file.read_text() + '["other.py::test"]\n"v" = { py_calls = 1 }\n')
    run("--overhead-budget=update")
    assert "test_two" not in file.read_text() and "test_plain" in file.read_text()
    assert "other.py::test" in file.read_text()


def test_a_broken_budget_file_is_one_line(recorded: pytest.Pytester, run: Any) -> None:
    (recorded.path / "overhead-budgets.toml").write_text("[a")
    for mode in ("count", "update"):
        result = run(f"--overhead-budget={mode}")
        assert result.ret == 4
        result.stderr.fnmatch_lines(["ERROR: overhead-budgets.toml: not valid TOML*"])
    assert (recorded.path / "overhead-budgets.toml").read_text() == "[a"
    run().assert_outcomes(passed=2)


def rows(result: pytest.RunResult) -> list[str]:
    """The first words of the lines of the tables, those that head a group among them."""
    lines = [
        line for line in result.outlines if line.startswith("test_suite.py::") or "=" in line[:6]
    ]
    return [line.split()[0] for line in lines if not line.startswith("==")]


MANY = """
import pytest
from subjects import plain, wrapped

@pytest.mark.parametrize("n", [4, 256])
@pytest.mark.overhead_budget(py_calls=9)
def test_b(overhead, n):
    overhead(plain, n)

@pytest.mark.parametrize("n", [4, 256])
@pytest.mark.overhead_budget(py_calls=9)
def test_a(overhead, n):
    overhead(wrapped, n)
"""


def test_the_table_is_sorted_and_grouped_as_asked(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(test_suite=MANY, subjects=SUBJECTS)
    a4, a256, b4, b256 = (f"test_suite.py::test_{name}[{n}]" for name in "ab" for n in (4, 256))
    count = "--overhead-budget=count"
    assert rows(run(count)) == [a256, a4, b256, b4]  # the dearest first
    assert rows(run(count, "--overhead-sort=name")) == [a4, a256, b4, b256]
    assert rows(run(count, "--overhead-sort=instructions", "--overhead-group-by=param")) == [
        *("param=4:", a4, b4),
        *("param=256:", a256, b256),
    ]
    grouped = run(count, "--overhead-group-by=func,subject", "-o", "overhead_sort=fullname")
    assert [line for line in grouped.outlines if line.startswith("func=")] == [
        "func=test_a subject=wrapped:",
        "func=test_b subject=plain:",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--overhead-sort=name"], "--overhead-sort needs --overhead-budget"),
        (["--overhead-group-by=func"], "--overhead-group-by needs --overhead-budget"),
        (["--overhead-histogram=h.svg"], "--overhead-histogram needs --overhead-budget"),
        (["--overhead-budget=count", "--overhead-histogram=h.svg"], "count measures no times"),
        (
            ["--overhead-budget=check", "--overhead-histogram=no/h.svg"],
            "the directory does not exist",
        ),
        (
            ["--overhead-budget=count", "--overhead-sort=mean"],
            "'mean' is none of name, fullname, ratio",
        ),
        (["--overhead-budget=count", "--overhead-group-by=func,x"], "'x' is none of name, func"),
    ],
)
def test_arrangements_that_cannot_be_are_refused(
    suite: pytest.Pytester, run: Any, words: list[str], said: str
) -> None:
    result = run(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr.str()
