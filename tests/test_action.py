"""The composite action and the workflows that the docs show: valid by their published schemas, and the
action's own scripts run as GitHub would run them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .recipes import blocks
from .runner import SHELLS, Ran, environment, run
from .test_review import git, repository  # noqa: F401 - a fixture of theirs

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = [
    block
    for page in ("recipes.md", "review.md")
    for block in blocks(page, "yaml")
    if "\njobs:" in block or "merge_request_event" in block
]


def valid(schema: str, file: Path) -> None:
    pytest.importorskip("check_jsonschema", reason="needs check-jsonschema, which has the schemas")
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_action_is_valid() -> None:
    valid("vendor.github-actions", ROOT / "action.yml")


@pytest.mark.parametrize("number", range(len(WORKFLOWS)))
def test_workflows_are_valid(number: int, tmp_path: Path) -> None:
    file = tmp_path / "workflow.yml"
    file.write_text(WORKFLOWS[number], encoding="utf-8")
    schema = "vendor.github-workflows" if "\njobs:" in WORKFLOWS[number] else "vendor.gitlab-ci"
    valid(schema, file)


def test_there_are_workflows_for_each_host() -> None:
    assert ["\njobs:" in block for block in WORKFLOWS] == [True, True, False, True]


def steps() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="needs a reader of YAML")
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    return {step["name"]: step for step in action["runs"]["steps"]}


def test_nothing_of_a_pull_request_is_pasted_into_a_script() -> None:
    for step in steps().values():
        assert "${{" not in step.get("run", ""), "a branch's name can be a command"


needs_bash = pytest.mark.skipif(
    shutil.which("bash") is None, reason="runs the action's bash scripts"
)


def started(step: str, folder: Path, out: Path, **more: str) -> Ran:
    """Runs a script of the action as GitHub does, with the command of this environment."""
    told = {
        "RUNNER_TEMP": str(out),
        "GITHUB_OUTPUT": str(out / "output"),
        "GITHUB_STEP_SUMMARY": str(out / "summary"),
        "GITHUB_BASE_REF": "",
        **more,
    }
    return run((*SHELLS["bash"], steps()[step]["run"]), folder, environment(out, told))


@needs_bash
def test_the_base_is_fetched_into_a_shallow_clone(repository: Path, tmp_path: Path) -> None:  # noqa: F811 - theirs
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=1", "-b", "sync", repository.as_uri(), str(clone))
    done = started("Find the base", clone, tmp_path, BASE="", BRANCH="main")
    assert done.status == 0, done.err
    assert (tmp_path / "output").read_text() == "base=origin/main\n"
    assert git(clone, "merge-base", "origin/main", "HEAD").strip()
    again = started("Find the base", clone, tmp_path, BASE="HEAD~1", BRANCH="")
    assert again.status == 0, again.err
    assert (tmp_path / "output").read_text().endswith("base=HEAD~1\n")


@needs_bash
def test_a_review_is_kept_and_decides(repository: Path, tmp_path: Path) -> None:  # noqa: F811 - theirs
    git(repository, "checkout", "-q", "sync")
    given = {"BASE": "main", "BUDGETS": "false", "POST": "true", "FAIL": "true"}
    done = started("Review the change", repository, tmp_path, **given)
    assert done.status == 1, done.err
    assert "1 new finding" in (tmp_path / "summary").read_text()
    (line,) = (tmp_path / "output").read_text().splitlines()
    assert Path(line.removeprefix("review=")).is_file()
    assert (
        started("Review the change", repository, tmp_path, **{**given, "FAIL": "false"}).status == 0
    )
    assert (
        started("Review the change", repository, tmp_path, **{**given, "BASE": "none"}).status == 2
    )
