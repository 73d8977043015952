"""Which tests `make test-quick` chooses, by what changed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def quick() -> Any:
    spec = importlib.util.spec_from_file_location("quick", Path(__file__).with_name("quick.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["quick"] = module  # its dataclass looks its module up
    spec.loader.exec_module(module)
    return module


HOUSE = {
    "pytest_dispatchguard/config.py": "",
    "pytest_dispatchguard/lint/hotness/cold.py": "",
    "pytest_dispatchguard/lint/hotness/roots.py": "",
    "pytest_dispatchguard/lint/hotness/patterns.py": "",
    "pytest_dispatchguard/commands/linting/check.py": "",
    "pytest_dispatchguard/report/html/badge.py": "",
    "rules/trees.py": 'class A:\n    code = "DG101"\n\n\nclass B:\n    code = "DG102"\n',
    "rules/syncs/truth/branches.py": 'from ..tests import one\n\n\nclass C:\n    code = "DG401"\n',
    "rules/syncs/tests.py": "from ..waits import wait\n\none = wait\n",
    "rules/waits.py": "wait = 1\n",
    "fixtures/DG101/specimen.py": "",
    "tests/runner.py": "",
    "tests/test_action.py": "from .runner import run\n",
    "tests/test_config.py": "",
    "tests/test_check.py": "",
    "tests/test_house.py": "",
    "tests/test_rules.py": "",
    "tests/cli/test_help.py": "",
    "tests/lint/test_check.py": "",
    "tests/lint/hotness/test_cold.py": "",
    "tests/lint/hotness/test_reachability.py": "",
    "tests/report/test_diff.py": "",
}


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def house(tmp_path: Path) -> Path:
    write(tmp_path, HOUSE)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "paths", "codes"),
    [
        (
            ["pytest_dispatchguard/lint/hotness/cold.py"],
            ["tests/lint/hotness/test_cold.py", "tests/lint/hotness", "tests/test_house.py"],
            [],
        ),
        (["pytest_dispatchguard/config.py"], ["tests/test_config.py", "tests/test_house.py"], []),
        (
            ["pytest_dispatchguard/report/html/badge.py"],
            ["tests/report", "tests/test_house.py"],
            [],
        ),
        (
            ["pytest_dispatchguard/commands/linting/check.py"],
            ["tests/lint/test_check.py", "tests/test_check.py", "tests/cli", "tests/test_house.py"],
            [],
        ),
        (["rules/trees.py"], ["tests/test_rules.py", "tests/test_house.py"], ["DG101", "DG102"]),
        (["rules/waits.py"], ["tests/test_rules.py", "tests/test_house.py"], ["DG401"]),
        (["fixtures/DG101/specimen.py"], ["tests/test_rules.py"], ["DG101"]),
        (["tests/test_action.py"], ["tests/test_action.py"], []),
        (["tests/runner.py"], ["tests/test_action.py"], []),
    ],
)
def test_tests_of_what_changed(
    files: list[str], paths: list[str], codes: list[str], house: Path, quick: Any
) -> None:
    chosen = quick.choose(files, house)
    assert (sorted(chosen.paths), list(chosen.codes)) == (sorted(paths), codes)
    assert chosen.paths[0] == paths[0]


def test_the_nearest_come_first(house: Path, quick: Any) -> None:
    files = [f"pytest_dispatchguard/{name}" for name in ("lint/hotness/roots.py", "config.py")]
    chosen = quick.choose(files, house)
    assert chosen.paths == ("tests/test_config.py", "tests/lint/hotness", "tests/test_house.py")


def test_each_file_is_run_once(house: Path, quick: Any) -> None:
    words = quick.choose(["pytest_dispatchguard/lint/hotness/cold.py", "rules/trees.py"], house)
    assert words.words(house) == [
        "tests/test_rules.py",
        "tests/lint/hotness/test_cold.py",
        "tests/lint/hotness/test_reachability.py",
        "tests/test_house.py",
        "-k",
        "not test_rules.py or DG101 or DG102",
    ]


def test_where_nothing_changed_it_runs_the_quick_ones(quick: Any) -> None:
    chosen = quick.choose([], ROOT)
    assert chosen == quick.choose(["LICENSE"], ROOT)
    assert chosen.paths == quick.QUICK
    named = {*quick.QUICK, *quick.DOCS, *(test for tests in quick.ALSO.values() for test in tests)}
    assert [test for test in named if not (ROOT / test).exists()] == []


def test_what_changed_is_held_against_where_the_branch_left_main(
    tmp_path: Path, quick: Any
) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True)

    def commit(name: str) -> None:
        write(tmp_path, {name: name})
        git("add", name)
        git("commit", "-q", "-m", name)

    git("init", "-q", "-b", "main")
    commit("old.py")
    assert quick.changed(tmp_path) == []
    git("checkout", "-q", "-b", "work")
    commit("committed.py")
    write(tmp_path, {"old.py": "edited", "new.py": ""})
    git("checkout", "-q", "main")
    commit("meanwhile.py")
    git("checkout", "-q", "work")
    assert quick.changed(tmp_path) == ["committed.py", "new.py", "old.py"]
