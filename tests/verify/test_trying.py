"""Changes are tried end to end: tests before and after, costs before and after, on a real repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.verify import verified

from .conftest import CALL, FAST, SLOW, TESTS, WRONG, git

Patch = Callable[[str], str]

UNPARSABLE = """\
--- a/mylib.py
+++ b/mylib.py
@@ -1,2 +1,2 @@
-def total(numbers):
+def total(numbers:
     found = 0
"""
LINK = """\
diff --git a/l b/l
new file mode 120000
--- /dev/null
+++ b/l
@@ -0,0 +1 @@
+/tmp
\\ No newline at end of file
"""

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("briefly")]


def test_what_is_cheaper_and_passes_is_kept(
    repository: Path, patch: Patch, temporary: Path
) -> None:
    found = verified(repository, patch(FAST), ["test_mylib.py"], *CALL)
    assert (found.kept, found.reason, found.tests) == (True, "", 2)
    assert found.files == ("mylib.py",)
    (gain,) = found.gains
    assert gain.moved("instructions") < -500
    assert gain.moved_us is not None and gain.moved_us.high < 0
    assert (repository / "mylib.py").read_text() == SLOW
    assert git(repository, "status", "--porcelain") == ""
    assert not list(temporary.iterdir())


def test_what_fails_a_test_is_not_measured(repository: Path, patch: Patch) -> None:
    found = verified(repository, patch(WRONG), ["test_mylib.py"], *CALL)
    assert not found.kept
    assert found.reason == "test_mylib.py::test_total failed, passed before"
    assert found.gains == ()


def test_what_costs_more_or_the_same_is_not_kept(repository: Path, patch: Patch) -> None:
    dearer = SLOW.replace("found + number", "found + number + 0 * len(numbers)")
    found = verified(repository, patch(dearer), [], *CALL)
    assert (found.kept, found.reason) == (False, "dearer")
    same = SLOW.replace("number * 2", "2 * number")
    found = verified(repository, patch(same), [], *CALL)
    assert (found.kept, found.reason) == (False, "not measurably cheaper")


def test_what_the_call_dies_of_is_told(repository: Path, patch: Patch) -> None:
    raising = SLOW.replace("found = 0", "raise ValueError('no')")
    found = verified(repository, patch(raising), [], *CALL)
    assert (found.kept, found.reason) == (False, "the call fails: total(numbers): ValueError: no")
    dying = SLOW.replace(
        "    found = 0", "    import os, signal\n    os.kill(os.getpid(), signal.SIGSEGV)"
    )
    found = verified(repository, patch(dying), [], *CALL)
    assert found.reason == "the call fails: crashed: killed by SIGSEGV"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no diff\n", "it does not apply: "),
        ("", "it is empty"),
        ("--- a/gone.py\n+++ b/gone.py\n@@ -1 +1 @@\n-a\n+b\n", "it does not apply: gone.py"),
        ("--- a/../x\n+++ b/../x\n@@ -0,0 +1 @@\n+b\n", "it does not apply: "),
        (
            LINK,
            "it makes a link, l",
        ),
        (
            UNPARSABLE,
            "mylib.py does not parse: ",
        ),
    ],
)
def test_a_diff_that_cannot_be_tried_says_why(repository: Path, text: str, reason: str) -> None:
    found = verified(repository, text, [], *CALL)
    assert not found.kept
    assert found.reason.startswith(reason)
    assert "\n" not in found.reason
    assert not (repository.parent / "x").exists()


def test_new_and_deleted_files_are_tried(repository: Path) -> None:
    (repository / "mylib.py").write_text("from fast import total\n")
    (repository / "fast.py").write_text(FAST)
    git(repository, "add", "--intent-to-add", "fast.py")
    diff = git(repository, "diff")
    git(repository, "reset", "--quiet")
    (repository / "fast.py").unlink()
    (repository / "mylib.py").write_text(SLOW)
    found = verified(repository, diff, ["test_mylib.py"], *CALL)
    assert found.kept
    assert found.files == ("fast.py", "mylib.py")


def test_what_does_not_run_without_the_change_is_an_error(repository: Path, patch: Patch) -> None:
    with pytest.raises(
        UserError, match="--call: in a copy of the work tree, without any fix: --setup"
    ):
        verified(repository, patch(FAST), [], "total(1)", "import nothing_of_the_kind")
    with pytest.raises(
        UserError, match=r"--test: in a copy of the work tree, without any fix: .*gone\.py"
    ):
        verified(repository, patch(FAST), ["gone.py"], *CALL)
    with pytest.raises(UserError, match="nothing to verify with"):
        verified(repository, patch(FAST))
    with pytest.raises(UserError, match="nothing to measure"):
        verified(repository, patch(FAST), ["test_mylib.py"])


def test_tests_that_fail_anyway_may_go_on_failing(repository: Path, patch: Patch) -> None:
    (repository / "test_mylib.py").write_text(TESTS + "\n\ndef test_broken():\n    assert 0\n")
    assert verified(repository, patch(FAST), ["."], *CALL).kept


def test_what_is_imported_is_the_copy(
    repository: Path, patch: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the work tree is on the path, as an editable install has it."""
    monkeypatch.setenv("PYTHONPATH", str(repository))
    assert verified(repository, patch(FAST), ["test_mylib.py"], *CALL).kept
    insists = f"import sys; sys.path.insert(0, {str(repository)!r}); "
    with pytest.raises(UserError, match="mylib is imported from the work tree, not from the copy"):
        verified(repository, patch(FAST), [], CALL[0], insists + CALL[1])


def test_a_folder_of_the_work_tree_may_be_the_current_one(repository: Path) -> None:
    below = repository / "below"
    below.mkdir()
    for name in ("mylib.py", "test_mylib.py"):
        (repository / name).rename(below / name)
    diff = "--- a/mylib.py\n+++ b/mylib.py\n@@ -1,8 +1,5 @@\n def total(numbers):\n"
    diff += "".join(f"-{line}\n" for line in SLOW.splitlines()[1:5])
    diff += "+    return sum(numbers)\n \n \n def double(number):\n"
    assert verified(below, diff, ["test_mylib.py"], *CALL).kept
    assert verified(below, diff.replace("/mylib", "/below/mylib"), [], *CALL).kept


BUDGETS = """\
import pytest

import mylib


@pytest.mark.overhead_budget(instructions=5)
def test_total(overhead):
    overhead(mylib.total, list(range(200)))
"""


@pytest.mark.thorough
def test_budgets_are_held_against_what_was(repository: Path, patch: Patch) -> None:
    (repository / "test_budgets.py").write_text(BUDGETS)
    found = verified(repository, patch(FAST), budget_tests=["test_budgets.py"])
    assert (found.kept, found.reason) == (True, "")
    (gain,) = found.gains
    assert gain.name == "test_total"
    assert gain.moved("instructions") < -500
    wrong = verified(
        repository, patch("import nothing_of_the_kind\n"), budget_tests=["test_budgets.py"]
    )
    assert not wrong.kept
    assert "nothing_of_the_kind" in wrong.reason
