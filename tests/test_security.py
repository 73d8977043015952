"""SECURITY.md: each promise names tests that are there, and two of the promises that no other test holds."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from pytest_dispatchguard.config.config import Config

READERS = ("lint", "report", "post", "history", "daemon", "config")
SINGLE = ("git", "prices", "profile", "project_folder", "commands/linting/review_change")
RUNS_CODE = {"pickle", "_pickle", "cPickle", "shelve", "dill", "cloudpickle", "joblib", "runpy"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
PIPES = {"lint/processes/ready_process.py"}
"""Pickles that a process hands to the one it forked, and that never lie in a file."""


def promised(root: Path) -> list[tuple[str, str]]:
    text = (root / "SECURITY.md").read_text(encoding="utf-8")
    return re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)


def test_the_tests_it_names_are_there(root: Path) -> None:
    found = promised(root)
    assert len(found) > 25
    for file, name in found:
        tree = ast.parse((root / file).read_text(encoding="utf-8"))
        assert name in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}, (file, name)


def test_each_promise_names_one(root: Path) -> None:
    text = (root / "SECURITY.md").read_text(encoding="utf-8")
    promises = re.findall(r"^- .*?(?=^- |^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(promises) > 12
    assert [one for one in promises if "`tests/" not in one] == []


@pytest.mark.parametrize("page", ["README.md", "mkdocs.yml"])
def test_it_is_linked(root: Path, page: str) -> None:
    name = "SECURITY.md" if page == "README.md" else "security.md"
    assert name in (root / page).read_text(encoding="utf-8")


def test_what_is_read_cannot_run(root: Path) -> None:
    package = root / "pytest_dispatchguard"
    files = [file for part in READERS for file in sorted((package / part).rglob("*.py"))]
    files += [package / f"{name}.py" for name in SINGLE]
    assert len(files) > 100
    told = []
    for file in files:
        rel = file.relative_to(package).as_posix()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {getattr(node, "module", None) or "", *(one.name for one in node.names)}
                if names & RUNS_CODE and rel not in PIPES:
                    told.append(f"{rel}:{node.lineno}")
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                told += [f"{rel}:{node.lineno}"] if node.func.id in BUILTINS else []
    assert told == []


def test_settings_name_no_code() -> None:
    """A new setting is looked at here before it is read from a repository."""
    known = """
        root file nested torch_requirement requires_python
        select extend_select ignore per_file_ignores exclude src hot_roots cold tensor_types tree_modules
        baseline budgets pedantic notes strict trace
    """.split()
    assert {one.name for one in dataclasses.fields(Config)} == set(known)
