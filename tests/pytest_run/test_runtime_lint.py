"""`--overhead-lint` and `--overhead-ghost` in real pytest runs."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

LIBRARY = """\
import contextlib, copy
import torch


@contextlib.contextmanager
def scope():
    yield


class Gate(torch.nn.Module):
    def forward(self, x):
        with scope():
            return self.masked(x)

    def masked(self, x):
        if x.any():
            x = -x
        return x

    def extra_repr(self):
        return str(copy.deepcopy("cold"))
"""
SUITE = """\
import torch
from library import Gate, scope

def test_gate():
    for _ in range(3):
        Gate()(torch.ones(3))
    repr(Gate())
    with scope():  # a test may
        pass

def test_device():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    assert Gate().to(device)(torch.ones(3, device=device)).sum().item() == -3
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyprojecttoml("[tool.dispatchguard]\n")
    pytester.makepyfile(library=LIBRARY, test_gate=SUITE)
    return pytester


def told(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if " DG" in line or line.startswith("note: ")]


def test_hot_code_that_wastes_is_told_and_fails_the_run(
    suite: pytest.Pytester, run_pytest: Any
) -> None:
    result = run_pytest("--overhead-lint")
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    first, *rest = told(result)
    said = r"library\.py:12:9 DG201 `scope` ran 4 times \(\d+ instructions a call on this line\): "
    assert re.match(said, first)
    assert rest == ["note: 1 more in code that is not hot"]
    result.stdout.fnmatch_lines(["*hot: forward of a torch.nn.Module: library.Gate.forward*"])


def test_the_ghost_is_there_for_all_tests(suite: pytest.Pytester, run_pytest: Any) -> None:
    result = run_pytest("--overhead-lint", "--overhead-ghost")
    result.assert_outcomes(passed=2)
    wait, context, *notes = told(result)  # the dearest first
    assert "DG201" in context and "instructions" not in context
    assert re.match(
        r"library\.py:16:\d+ DG401 `.*x\.any\(\).*` \(its truth value\) made the host wait once",
        wait,
    )
    assert notes == [
        "note: 1 more in code that is not hot",
        "note: 1 more wait outside this project's code, or in its tests",
    ]
    run_pytest("--overhead-ghost").assert_outcomes(passed=2)


CONFTEST = """\
import pytest
import torch

HERE = torch.cuda.is_available()

@pytest.fixture(params=[pytest.param("cuda", marks=pytest.mark.skipif(not HERE, reason="no GPU"))])
def device(request):
    return request.param
"""


@pytest.mark.thorough
@pytest.mark.parametrize("words", [(), ("-n", "1"), ("-n", "0")])
@pytest.mark.parametrize("setting", [False, True])
def test_the_ghost_is_there_before_conftest_files_ask(
    suite: pytest.Pytester, run_pytest: Any, words: tuple[str, ...], setting: bool
) -> None:
    if words:
        pytest.importorskip("xdist", reason="shares tests among processes")
    suite.makeconftest(CONFTEST)
    suite.makepyfile(
        test_gate="import torch\ndef test_it(device):\n    assert torch.ones(1, device=device).is_cuda\n"
    )
    if setting:
        (suite.path / "pytest.ini").write_text("[pytest]\noverhead_ghost = true\n")
        run_pytest(*words).assert_outcomes(passed=1)
        run_pytest("--overhead-budget=count", *words).assert_outcomes(skipped=1)
    else:
        run_pytest(*words).assert_outcomes(skipped=1)
        run_pytest("--overhead-ghost", *words).assert_outcomes(passed=1)


@pytest.mark.thorough
def test_processes_of_xdist_hand_over_what_they_saw(
    suite: pytest.Pytester, run_pytest: Any
) -> None:
    pytest.importorskip("xdist", reason="shares tests among processes")
    alone = run_pytest("--overhead-lint", "--overhead-ghost")
    shared = run_pytest("--overhead-lint", "--overhead-ghost", "-n", "2")
    assert told(shared) == told(alone) and len(told(alone)) == 4
    assert shared.ret == alone.ret


def test_operations_by_line(suite: pytest.Pytester, run_pytest: Any) -> None:
    result = run_pytest("--overhead-ops")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "*DG201*",
            "12 operations from 2 lines of the project",
            "  per call  calls  place          function     operations",
            "         2      4  library.py:16  Gate.masked  _local_scalar_dense, any",
            "         1      4  library.py:17  Gate.masked  neg",
        ]
    )
    written = ("--overhead-lint=json", "--overhead-lint-output=seen.json", "--overhead-ops")
    run_pytest(*written)
    alone = json.loads((suite.path / "seen.json").read_text())["operations"]
    assert [(at["line"], at["calls"], at["operations"]) for at in alone] == [
        (16, 4, {"any": 4, "_local_scalar_dense": 4}),
        (17, 4, {"neg": 4}),
    ]
    pytest.importorskip("xdist", reason="shares tests among processes")
    run_pytest(*written, "-n", "2")
    assert json.loads((suite.path / "seen.json").read_text())["operations"] == alone


def test_all_that_watch_go_together(suite: pytest.Pytester, run_pytest: Any) -> None:
    result = run_pytest("--overhead-ops", "--overhead-record", "--overhead-ghost")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*DG201*", "*operations from*", "*now has 6 functions*"])


def test_a_broken_profile_is_one_line(suite: pytest.Pytester, run_pytest: Any) -> None:
    folder = suite.mkdir(".dispatchguard")
    (folder / "profile.json").write_text("{")
    result = run_pytest("--overhead-lint")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *is no profile that this version has written*"])
    (folder / "profile.json").unlink()
    (suite.path / "conftest.py").write_text(
        "from pathlib import Path\n"
        "def pytest_runtest_teardown():\n"
        "    Path('.dispatchguard/profile.json').write_text('{')\n"
    )
    result = run_pytest("--overhead-lint")
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["ERROR: *is no profile that this version has written*"])


def test_settings_that_wait_for_their_runs(suite: pytest.Pytester, run_pytest: Any) -> None:
    (suite.path / "pytest.ini").write_text("[pytest]\noverhead_ghost = true\n")
    run_pytest("--overhead-budget=count").assert_outcomes(passed=2)
    result = run_pytest("--overhead-budget=count", "--overhead-ghost")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_suppressions_selection_formats_and_files(suite: pytest.Pytester, run_pytest: Any) -> None:
    result = run_pytest("--overhead-lint=json", "--overhead-lint-output=seen.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (finding,) = json.loads((suite.path / "seen.json").read_text())["findings"]
    assert (finding["code"], finding["function"]) == ("DG201", "Gate.forward")
    assert finding["hot"]["path"] == ["library.Gate.forward"]
    library = suite.path / "library.py"
    library.write_text(LIBRARY.replace("scope():\n     ", "scope():  # noqa: DG201\n     "))
    assert run_pytest("--overhead-lint").ret == pytest.ExitCode.OK
    library.write_text(LIBRARY)
    suite.makepyprojecttoml('[tool.dispatchguard]\nignore = ["DG2"]\n')
    assert run_pytest("--overhead-lint").ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--overhead-lint=xml",), "*'xml' is neither a mode (text, json, *"),
        (
            ("--overhead-lint", "tex"),
            "*--overhead-lint: 'tex' is neither a mode (text, *) nor a path*",
        ),
        (("--overhead-lint-output=a.txt",), "*--overhead-lint-output needs --overhead-lint*"),
        (("--overhead-lint", "--overhead-lint-output=no/a.txt"), "*the directory does not exist*"),
        (("--overhead-ghost", "--overhead-budget=count"), "*cannot be combined with*"),
    ],
)
def test_options_that_cannot_be_are_one_line(
    suite: pytest.Pytester, run_pytest: Any, words: tuple[str, ...], said: str
) -> None:
    result = run_pytest(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([said])
    result.stderr.no_fnmatch_line("*Traceback*")


def test_settings_that_are_wrong_are_told_before_tests_run(
    suite: pytest.Pytester, run_pytest: Any
) -> None:
    suite.makepyprojecttoml('[tool.dispatchguard]\nselect = ["DG999"]\n')
    result = run_pytest("--overhead-lint")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*unknown code*DG999*"])


def test_a_failing_test_fails_as_ever(suite: pytest.Pytester, run_pytest: Any) -> None:
    suite.makepyfile(test_bad="def test_bad():\n    assert 0\n")
    result = run_pytest("--overhead-lint", "--overhead-ghost", "-k", "bad")
    result.assert_outcomes(failed=1, deselected=2)
    assert told(result) == []
