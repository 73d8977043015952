"""The recipes of docs/recipes.md, taken from the page and run as they stand, on a library that is as it
should be and on one that got slower. (The recipe for pre-commit is run in test_precommit.py.)"""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from .post.conftest import TOKEN, Host, host  # noqa: F401 - a fixture of theirs
from .recipes import blocks
from .runner import PullRequest, Ran, Runner, environment, filled, gitlab_job, run
from .test_review import commit, git, write

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="the recipes are for bash"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="the recipes are for bash"),
]
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

LIBRARY = """\
import torch


def add(x, y):
    return torch.add(x, y)


class Block(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return add(x, x)
"""
SLOWER = """\
import torch
from torch.utils import _pytree as pytree


def add(x, y):
    leaves, _ = pytree.tree_flatten((x, y))
    return torch.add(*leaves)


class Block(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = torch.ones(3).to(x.device)
        if (x < 0).any():
            x = x + one
        return add(x, x)
"""
COSTLY = "leaves, _ = pytree.tree_flatten((x, y))"
OTHERWISE = LIBRARY.replace("class Block", "# Blocks follow.\n\n\nclass Block")
"""Another text that costs the same."""
CHANGED = set(range(1, 17))
"""Lines of the slower library that a change shows."""


def workflow(heading: str) -> Any:
    yaml = pytest.importorskip("yaml", reason="needs a reader of YAML")
    return yaml.safe_load(blocks("recipes.md", "yaml", heading)[0])


@pytest.fixture
def lib(tmp_path: Path) -> Path:
    """The library, with the test that the README has for it, and two branches: one makes it slower, one
    changes what costs nothing."""
    (test,) = blocks("../README.md", "python")
    folder = tmp_path / "origin"
    write(
        folder,
        {
            "pyproject.toml": '[project]\nname = "mylib"\nversion = "1"\n\n'
            '[tool.pytest.ini_options]\npythonpath = ["."]\n',
            "mylib.py": LIBRARY,
            "tests/test_mylib.py": f"import mylib\nimport pytest\nimport torch\n\n\n{test}",
        },
    )
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "all")
    for name, text in {"slower": SLOWER, "otherwise": OTHERWISE}.items():
        git(folder, "checkout", "-q", "-b", name, "main")
        write(folder, {"mylib.py": text})
        commit(folder, name)
    git(folder, "checkout", "-q", "main")
    return folder


# -- by hand ---------------------------------------------------------------------------------------


def by_hand(folder: Path, out: Path, wanted: str = "") -> list[Ran]:
    """Runs the lines of the recipe that have a word in them."""
    (block,) = blocks("recipes.md", "sh", "By hand")
    told = environment(out, {})
    lines = [line for line in block.splitlines() if wanted in line]
    return [run(("bash", "-c", line), folder, told) for line in lines]


@needs_torch
@pytest.mark.thorough
def test_by_hand(lib: Path, tmp_path: Path) -> None:
    git(lib, "checkout", "-q", "slower")
    pip, check, rule, diff, fix, count, timed = by_hand(lib, tmp_path)
    assert pip.status == rule.status == 0
    assert "pytest-dispatchguard" in (tmp_path / "bin" / "installed").read_text()
    assert check.status == 1
    assert "mylib.py:13:" in check.out and "DG401" in check.out and "DG504" in check.out
    assert rule.out.startswith("# DG401 ")
    assert diff.status == 1
    assert "+        one = torch.ones(3, device=x.device)\n" in diff.out
    assert fix.status == 1
    assert "torch.ones(3, device=x.device)" in (lib / "mylib.py").read_text()
    assert "DG401" in fix.out and "DG504" not in fix.out
    for ran in (count, timed):
        assert ran.status == 1
        assert "add costs more than its budget allows" in ran.out
        assert f"mylib.py:6  {COSTLY}" in ran.out
    assert "ratio" not in count.out
    assert "  ratio  allowed" in timed.out


@needs_torch
def test_by_hand_where_all_is_well(lib: Path, tmp_path: Path) -> None:
    ran = by_hand(lib, tmp_path, "check") + by_hand(lib, tmp_path, "=count")
    assert [(one.status, one.err) for one in ran] == [(0, "")] * 4
    assert git(lib, "status", "--porcelain", "--untracked-files=no") == ""


# -- GitHub ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Requests:
    """Makes pull requests of branches."""

    origin: Path
    folder: Path
    host: Host

    def of(self, branch: str, **more: Any) -> PullRequest:
        git(self.origin, "checkout", "-q", "--detach", "main")
        git(self.origin, "merge", "-q", "--no-ff", "-m", "merged", branch)
        merge = git(self.origin, "rev-parse", "HEAD").strip()
        git(self.origin, "update-ref", "refs/pull/7/merge", merge)
        self.host.head = git(self.origin, "rev-parse", branch).strip()
        self.host.shown = {"mylib.py": CHANGED}
        told = PullRequest(self.origin, branch, self.host.head, merge)
        return replace(told, api=self.host.address, token=TOKEN, **more)

    def run(self, heading: str, job: str, *branches: str) -> list[Runner]:
        """Runs the job of a recipe for each branch: at once, as most of the time torch is being imported."""
        whole = workflow(heading)
        runners = [Runner(self.of(branch), self.folder / branch) for branch in branches]
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda runner: runner.job(whole, job), runners))
        return runners


@pytest.fixture
def requests(lib: Path, tmp_path: Path, host: Host) -> Requests:  # noqa: F811 - theirs
    git(lib, "config", "uploadpack.allowAnySHA1InWant", "true")
    return Requests(lib, tmp_path, host)


@needs_torch
@pytest.mark.thorough
def test_ci(requests: Requests) -> None:
    write(requests.origin, {"old.py": SLOWER})
    commit(requests.origin, "what was there before")
    slower, well = requests.run("In CI", "regressions", "slower", "otherwise")
    *_, check, budgets = slower.ran
    assert "pytest-dispatchguard" in slower.installed
    assert [ran.status for ran in slower.ran] == [0, 0, 1, 1]
    assert "::warning file=mylib.py,line=13," in check.out and "DG401" in check.out
    assert "old.py" not in check.out
    assert "add costs more than its budget allows" in budgets.out
    assert "| `tests/test_mylib.py::test_add`" in budgets.summary
    assert COSTLY in budgets.summary

    *_, check, budgets = well.ran
    assert [ran.status for ran in well.ran] == [0, 0, 0, 0]
    assert check.out == ""
    assert "| `tests/test_mylib.py::test_add`" in budgets.summary


@needs_torch
@pytest.mark.thorough
def test_a_review(requests: Requests) -> None:
    (slower,) = requests.run("In review", "dispatchguard", "slower")
    assert [ran.status for ran in slower.ran] == [0, 0, 0, 0, 1]
    told = {comment["line"]: comment["body"] for comment in requests.host.comments}
    assert set(told) == {12, 14}
    assert "**[DG401]" in told[14]
    assert "```suggestion\n        one = torch.ones(3, device=x.device)\n```" in told[12]
    (note,) = requests.host.notes
    assert "tests/test_mylib.py::test_add" in note["body"]
    assert COSTLY in note["body"]
    assert note["body"].splitlines()[0] in slower.ran[-1].summary
    assert requests.host.authorized == {f"Bearer {TOKEN}"}


def test_a_review_of_a_change_that_costs_nothing(requests: Requests) -> None:
    for branch in ("otherwise", "main"):  # without budgets, of which others here tell
        git(requests.origin, "checkout", "-q", branch)
        git(requests.origin, "rm", "-q", "tests/test_mylib.py")
        commit(requests.origin, "no budgets yet")
    (job,) = requests.run("In review", "dispatchguard", "otherwise")
    assert [ran.status for ran in job.ran] == [0] * 5
    assert "nothing new" in job.ran[-1].summary
    assert requests.host.comments == requests.host.notes == []


def test_a_review_of_a_fork_is_not_posted(requests: Requests) -> None:
    *_, action = workflow("In review")["jobs"]["dispatchguard"]["steps"]
    for fork, post in ((False, "true"), (True, "false")):
        contexts = {"github": requests.of("slower", fork=fork).context}
        assert filled(action["with"]["post"], contexts) == post


# -- GitLab ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("branch", "status"), [("slower", 1), ("otherwise", 0)])
def test_a_review_is_posted_on_gitlab(
    requests: Requests, tmp_path: Path, branch: str, status: int
) -> None:
    yaml = pytest.importorskip("yaml", reason="needs a reader of YAML")
    job = yaml.safe_load(blocks("recipes.md", "yaml", "In review")[1])["dispatchguard"]
    pull = requests.of(branch)
    clone = tmp_path / "lib"
    git(tmp_path, "clone", "-q", "--no-checkout", requests.origin.as_uri(), str(clone))
    git(clone, "checkout", "-q", pull.head)
    told = {
        "GITLAB_CI": "true",
        "GITLAB_TOKEN": TOKEN,
        "CI_API_V4_URL": requests.host.address,
        "CI_PIPELINE_SOURCE": "merge_request_event",
        "CI_PROJECT_ID": "me/lib",
        "CI_PROJECT_URL": "https://gitlab.example/me/lib",
        "CI_MERGE_REQUEST_IID": "7",
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
    }
    *before, review = gitlab_job(job, tmp_path, told)
    assert [ran.status for ran in before] == [0, 0, 0]
    assert review.status == status, review.err
    report = clone / job["artifacts"]["reports"]["codequality"]
    assert ("DG401" in report.read_text()) == bool(status)
    lines = [comment["position"]["new_line"] for comment in requests.host.comments]
    assert sorted(lines) == ([12, 14] if status else [])  # at the end of what a fix replaces
    assert len(requests.host.notes) == status
