"""`dispatchguard review` of pull requests replayed from git: what it says of each, and what its suggestions
make of the tree."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.edits import split_lines

from . import started

BASE = {
    "pyproject.toml": "[tool.dispatchguard]\n",
    ".gitignore": ".dispatchguard\n__pycache__\n",
    "net/__init__.py": "",
    "net/ops.py": """\
import inspect

import torch


def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


def describe(function):
    return str(inspect.signature(function))


def clip(x: torch.Tensor, low: float) -> torch.Tensor:
    return x.clamp(low)
""",
    "net/layers.py": """\
import torch
from torch import nn

from net.ops import clip, scale


class Block(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.ReLU()(x)
        y = scale(x, self.factor)
        return clip(y, 0.0)
""",
}

SYNC = (
    "        y = scale(x, self.factor)\n",
    "        y = scale(x, self.factor)\n        if y.sum() > 0:\n            y = y + 1\n",
)
WRAPPER = (
    "        y = scale(x, self.factor)\n",
    """\
        name = describe(scale)
        y = nn.Softmax(
            dim=-1
        )(x)
        y = scale(y, self.factor) if name else y
""",
)
FASTER = ("        x = nn.ReLU()(x)\n", "        x = torch.relu(x)\n")


def git(folder: Path, *words: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A project, and three branches: one adds a wait, one a wrapper, one makes it faster."""
    folder = tmp_path / "repo"
    write(folder, BASE)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "all")
    for name, (old, new) in {"sync": SYNC, "wrapper": WRAPPER, "faster": FASTER}.items():
        git(folder, "checkout", "-q", "-b", name, "main")
        text = BASE["net/layers.py"].replace(old, new)
        write(folder, {"net/layers.py": text.replace("clip, scale", "clip, describe, scale")})
        commit(folder, name)
    git(folder, "checkout", "-q", "main")
    write(folder, {"net/later.py": "import torch\n"})
    commit(folder, "others went on")
    return folder


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)


class Done:
    """What a run of the command said."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        assert "Traceback" not in self.err, self.err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(folder: Path, *words: str, **environment: str) -> Done:
    return Done(started.dispatchguard(folder, *words, environment=environment))


def review(folder: Path, branch: str, *words: str, **environment: str) -> Done:
    git(folder, "checkout", "-q", branch)
    return run(folder, "review", "--base", "main", *words, **environment)


def test_a_wait_that_a_change_adds(repository: Path) -> None:
    done = review(repository, "sync")
    assert done.status == 1
    assert done.out.startswith("### dispatchguard: 1 new finding\n")
    assert "**[DG401]" in done.out
    assert "waits for the device" in done.out
    assert "forward of a torch.nn.Module" in done.out
    (told,) = review(repository, "sync", "--format", "github").json["comments"]
    assert (told["path"], told["side"]) == ("net/layers.py", "RIGHT")
    assert (told["start_line"], told["line"]) == (15, 16), "what its fix replaces"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such terminals")
def test_at_a_terminal_it_is_text(repository: Path) -> None:
    git(repository, "checkout", "-q", "sync")
    words = (sys.executable, "-m", "pytest_dispatchguard", "review", "--base", "main")
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as screen:
        with os.fdopen(theirs, "wb") as out:
            told = subprocess.Popen(
                words,
                cwd=repository,
                stdout=out,
                stderr=subprocess.PIPE,
                env={**os.environ, "COLUMNS": "200", "TERM": "dumb"},
            )
        shown = b""
        with suppress(OSError):  # at the end, on Linux
            while more := screen.read(4096):
                shown += more
    _, complaints = told.communicate()
    assert told.returncode == 1, complaints
    first, *_, last = shown.decode().split("\r\n\r\n")
    assert re.match(r"net/layers\.py:15:\d+ DG401 ", first)
    assert last.startswith("1 new finding (compared with main)")


def test_a_wrapper_and_what_it_makes_hot(repository: Path) -> None:
    done = review(repository, "wrapper", "--format", "json")
    assert done.status == 1
    found = {one["code"]: one for one in done.json["new"]}
    assert set(found) == {"DG601", "DG704"}
    hot = found["DG601"]
    assert (hot["path"], hot["line"]) == ("net/layers.py", 14)
    assert (hot["elsewhere"]["path"], hot["elsewhere"]["line"]) == ("net/ops.py", 11)
    # Of the two modules built per call only one is new, and its fix takes three lines.
    assert found["DG704"]["comment"] == {"first": 15, "last": 17}
    assert found["DG704"]["price_us"] is not None
    assert done.json["gone"] == []


def test_a_change_that_makes_things_faster_is_thanked_for(repository: Path) -> None:
    done = review(repository, "faster")
    assert done.status == 0
    assert done.out.startswith("### dispatchguard: 1 gone\n")
    assert "Resolved" in done.out
    assert "**[DG704]" in done.out
    (gone,) = review(repository, "faster", "--format", "json").json["gone"]
    assert (gone["path"], gone["line"]) == ("net/layers.py", 13)


def applied(text: str, comments: list[dict[str, Any]]) -> str:
    """What a tree holds after all suggestions were applied, as the API's documentation has it: the lines
    commented on are replaced by those of the block."""
    lines = split_lines(text)
    for told in sorted(comments, key=lambda told: -told["line"]):
        block = re.search(r"```suggestion\n(.*?)```", told["body"], re.DOTALL)
        if block is not None:
            first = told.get("start_line", told["line"])
            lines[first - 1 : told["line"]] = [block[1]]
    return "".join(lines)


def test_suggestions_that_are_applied_leave_nothing_to_suggest(repository: Path) -> None:
    told = review(repository, "wrapper", "--format", "github").json["comments"]
    layers = repository / "net" / "layers.py"
    text = applied(layers.read_text(), told)
    assert "nn.functional.softmax(x, dim=-1)" in text
    layers.write_text(text)
    commit(repository, "as suggested")
    left = review(repository, "wrapper", "--format", "json").json["new"]
    assert [one["code"] for one in left] == ["DG601"]
    # What the linter would have made of the same lines, byte by byte.
    git(repository, "reset", "-q", "--hard", "HEAD~1")
    run(repository, "check", "--fix", "--diff-base", "main")
    assert layers.read_text() == text


def test_the_diffs_of_a_page_are_taken_by_git(repository: Path) -> None:
    done = review(repository, "wrapper")
    blocks = re.findall(r"```diff\n(.*?)\n\s*```", done.out, re.DOTALL)
    (patch,) = ["".join(f"{line.removeprefix('  ')}\n" for line in b.split("\n")) for b in blocks]
    subprocess.run(["git", "apply", "-"], cwd=repository, input=patch, text=True, check=True)
    commit(repository, "applied")
    left = review(repository, "wrapper", "--format", "json").json["new"]
    assert [one["code"] for one in left] == ["DG601"]


def test_a_file_that_moved_brings_nothing_new(repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", "moved", "main")
    git(repository, "mv", "net/layers.py", "net/blocks.py")
    commit(repository, "moved")
    done = review(repository, "moved")
    assert (done.status, done.out.splitlines()[0]) == (0, "### dispatchguard: nothing new")


def test_code_that_moved_to_another_file_is_neither_new_nor_gone(repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", "split", "main")
    head, _, body = BASE["net/layers.py"].partition("\n\nclass Block")
    write(repository, {"net/blocks.py": f"{head}\n\nclass Block{body}", "net/layers.py": ""})
    commit(repository, "split")
    done = review(repository, "split", "--format", "json")
    assert (done.json["new"], done.json["gone"]) == ([], [])


def test_what_others_did_meanwhile_is_not_this_changes_doing(repository: Path) -> None:
    git(repository, "checkout", "-q", "main")
    write(repository, {"net/layers.py": BASE["net/layers.py"].replace(*SYNC)})
    commit(repository, "theirs")
    assert review(repository, "faster").out.startswith("### dispatchguard: 1 gone\n")


def test_a_file_that_does_not_parse_is_told(repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", "broken", "main")
    write(repository, {"net/layers.py": "def f(:\n"})
    commit(repository, "broken")
    done = review(repository, "broken", "--format", "json")
    assert done.status == 1
    assert [one["code"] for one in done.json["new"]] == ["DG001"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("review",), "--base"),
        (("review", "--base", "nowhere"), '--base: git knows no revision "nowhere"'),
        (("review", "--base", "main", "--select", "DG999"), "DG999"),
        (("review", "--base", "main", "--format", "xml"), "'xml' is not a valid choice"),
        (("review", "--base", "main", "--post"), "--post needs a job of GitHub Actions"),
        (("review", "--base", "main", "--baseline", "none.json"), "no such baseline"),
    ],
)
def test_what_a_user_gets_wrong(repository: Path, words: tuple[str, ...], said: str) -> None:
    none = dict.fromkeys(("GITHUB_ACTIONS", "GITHUB_REPOSITORY", "GITLAB_CI", "CI_API_V4_URL"), "")
    done = run(repository, *words, **none)
    assert done.status == 2
    assert said in done.err.splitlines()[-1]


def test_outside_of_a_repository(tmp_path: Path) -> None:
    write(tmp_path, BASE)
    done = run(tmp_path, "review", "--base", "main", GIT_CEILING_DIRECTORIES=str(tmp_path.parent))
    assert done.status == 2
    assert "is not in a git work tree" in done.err


# -- budgets ---------------------------------------------------------------------------------------

LIBRARY = """\
def work(x):
    return x + 1


def entry(x):
    return work(x)


def other(x):
    return work(x)
"""
TESTS = """\
import pytest
from library import entry, other


@pytest.mark.overhead_budget(instructions=10)
def test_entry(overhead):
    overhead(entry, 1).against(lambda: 2)


@pytest.mark.overhead_budget(instructions=10)
def test_other(overhead):
    overhead(other, 1).against(lambda: 2)


def test_of_something_else():
    import os

    assert not [name for name in os.environ if "TOKEN" in name]
"""


@pytest.fixture
def budgeted(tmp_path: Path) -> Path:
    """A project with two budgets, one of which a branch goes beyond."""
    folder = tmp_path / "repo"
    write(
        folder,
        {
            **BASE,
            "library.py": LIBRARY,
            "tests/test_library.py": TESTS,
            "pytest.ini": "[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\n",
        },
    )
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "all")
    git(folder, "checkout", "-q", "-b", "wrapped")
    wrapped = LIBRARY.replace(
        "def entry(x):\n    return work(x)\n",
        "def entry(x):\n    def called(*args, **kwargs):\n        return work(*args, **kwargs)\n\n"
        "    return called(x)\n",
    )
    write(folder, {"library.py": wrapped})
    commit(folder, "wrapped")
    return folder


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="worktrees are not made on Windows")
def test_budgets_that_moved_are_told_with_the_lines_that_moved_them(budgeted: Path) -> None:
    done = review(budgeted, "wrapped", "--budgets", "--format", "json", GITHUB_TOKEN="secret")
    assert done.status == 1, done.err
    (change,) = done.json["budgets"]
    assert change["nodeid"].endswith("::test_entry")
    assert change["verdict"] == "fail"
    before, now = change["moved"]["instructions"]
    assert now > 10 >= before
    assert any("return work(*args, **kwargs)" in line["text"] for line in change["lines"])
    assert done.json["budgets_kept"] == 1
    told = review(budgeted, "wrapped", "--budgets", "tests/test_library.py").out
    assert "1 over budget" in told
    assert "instructions at " in told
    assert "1 budget more unchanged" in told


@pytest.mark.skipif(sys.platform == "win32", reason="worktrees are not made on Windows")
def test_budgets_that_stayed(budgeted: Path) -> None:
    git(budgeted, "checkout", "-q", "-b", "same", "main")
    write(budgeted, {"net/later.py": "import torch\n"})
    commit(budgeted, "something else")
    done = review(budgeted, "same", "--budgets")
    assert done.status == 0, done.err
    assert "2 budgets unchanged: no counter moved." in done.out


def test_budgets_that_cannot_be_measured(budgeted: Path) -> None:
    done = review(budgeted, "wrapped", "--budgets", "tests/none.py")
    assert done.status == 2
    assert done.out.startswith("### dispatchguard: nothing new")  # the linter's part is told
    assert (
        "--budgets: pytest exited with 4: ERROR: file or directory not found"
        in done.err.splitlines()[-1]
    )


def test_a_project_in_a_folder_of_the_repository(tmp_path: Path) -> None:
    write(tmp_path / "libs" / "one", BASE)
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, "all")
    git(tmp_path, "checkout", "-q", "-b", "sync")
    write(tmp_path / "libs" / "one", {"net/layers.py": BASE["net/layers.py"].replace(*SYNC)})
    commit(tmp_path, "sync")
    folder = tmp_path / "libs" / "one"
    (told,) = run(folder, "review", "--base", "main", "--format", "github").json["comments"]
    assert told["path"] == "libs/one/net/layers.py"
    assert run(folder, "review", "--base", "main", "--format", "json").json["new"][0]["path"] == (
        "net/layers.py"
    )


def test_a_broken_cache_is_passed_over(repository: Path) -> None:
    assert review(repository, "sync").status == 1
    (file,) = repository.rglob(".dispatchguard/*.sqlite")
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE rows SET value = '[[[1]]]'")
    assert review(repository, "sync").status == 1
