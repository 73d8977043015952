"""The pages about the internals: their drawings show the way that code really goes, their tables the folders
that there are, and the glossary stays short."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "pytest_dispatchguard"
PAGES = ROOT / "docs" / "internals"

NOTES = '''\
"""Notes the functions of a drawing, in the order in which they are first entered, in any process."""

import functools, importlib, os, sys

FILE, *STEPS = os.environ["DRAWN"].split()


def note(step):
    path, name = step.split(":")
    module = importlib.import_module(path.replace("/", "."))
    *owners, last = name.split(".")
    owner = functools.reduce(getattr, owners, module)
    function = getattr(owner, last)

    @functools.wraps(function)
    def noted(*args, **kwargs):
        with open(FILE, "a") as file:
            file.write(step + "\\n")
        return function(*args, **kwargs)

    setattr(owner, last, noted)
    for other in list(sys.modules.values()):
        if getattr(other, "__name__", "").startswith("pytest_dispatchguard"):
            for key in [key for key, value in vars(other).items() if value is function]:
                setattr(other, key, noted)


for step in STEPS:
    note(step)
'''

NET = """\
import torch


class Block(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x < 0).any():
            x = x.abs()
        return x
"""

BUDGET = """\
import pytest


@pytest.mark.overhead_budget(instructions=1)
def test_add(overhead):
    overhead(max, 1, 2).against(max, 1, 2)


@pytest.mark.overhead_budget(instructions=1)
def test_sum(overhead):
    overhead(lambda: sum([1, 2]))
"""


def page(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def drawn(name: str) -> list[str]:
    """The steps of the drawing of a page: `pytest_dispatchguard/lint/engine:run`, from the top down."""
    drawing = re.search(r"^```text\n(.*?)^```", page(name), re.MULTILINE | re.DOTALL)
    assert drawing is not None
    steps = re.findall(r"([\w/]+)\.py +([\w.]+)  ", drawing[1])
    return [f"pytest_dispatchguard/{path}:{function}" for path, function in steps]


def entered(name: str, folder: Path, *words: str) -> list[str]:
    """The steps of the drawing in the order in which a command enters them."""
    (folder / "notes.py").write_text(NOTES, encoding="utf-8")
    file = folder / "entered"
    path = filter(None, (str(folder), os.environ.get("PYTHONPATH")))
    environment = {
        **os.environ,
        "DRAWN": " ".join((str(file), *drawn(name))),
        "PYTHONPATH": os.pathsep.join(path),
    }
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return list(dict.fromkeys(file.read_text(encoding="utf-8").split()))


def test_a_file_goes_the_way_that_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.dispatchguard]\n", encoding="utf-8")
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    check = "import sys, notes; from pytest_dispatchguard.cli import main; sys.exit(main())"
    words = ("-c", check, "check", "net.py", "--no-cache", "--jobs", "1")
    assert entered("overview.md", tmp_path, *words) == drawn("overview.md")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="tests count where pytest runs")
@pytest.mark.thorough
def test_a_budget_goes_the_way_that_is_drawn(tmp_path: Path, plugin_flags: tuple[str, ...]) -> None:
    (tmp_path / "test_it.py").write_text(BUDGET, encoding="utf-8")
    plugins = (*plugin_flags, "-p", "notes", "-p", "no:cacheprovider")
    words = ("-m", "pytest", *plugins, "--overhead-budget=count", "test_it.py")
    assert entered("budgets.md", tmp_path, *words) == drawn("budgets.md")


def test_a_drawing_has_the_steps() -> None:
    assert len(drawn("overview.md")) > 8
    assert drawn("overview.md")[0] == "pytest_dispatchguard/lint/check:check"


def folders(name: str) -> set[str]:
    """The folders in the first column of a page's tables."""
    rows = re.findall(r"^\| (`[^|]+) \|", page(name), re.MULTILINE)
    return {folder for row in rows for folder in re.findall(r"`([\w/]+)/`", row)}


def there(part: str) -> set[str]:
    found = {path.parent for path in (PACKAGE / part).rglob("*.py")} - {PACKAGE / part}
    return {path.relative_to(PACKAGE).as_posix() for path in found}


def test_the_tables_have_the_folders_there_are() -> None:
    assert {f"lint/{name}" for name in folders("overview.md")} == there("lint")
    assert there("measure") <= folders("budgets.md")
    assert [name for name in folders("budgets.md") if not (PACKAGE / name).is_dir()] == []


def test_the_glossary_is_short_and_in_order() -> None:
    table = page("glossary.md").partition("## Old names")[0]
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", table, re.MULTILINE)
    assert 20 < len(words) <= 40
    assert words == sorted(words, key=str.lower)


def test_files_that_the_pages_name_are_there() -> None:
    missing = [
        f"{file.name}: {name}"
        for file in (*PAGES.glob("*.md"), ROOT / "CONTRIBUTING.md")
        for name in re.findall(
            r"`((?:\w+/)+(?:\w+\.\w+)?)`", file.read_text("utf-8").partition("## Old names")[0]
        )
        if "DG619" not in name  # the rule that is made up there
        and not any((base / name).exists() for base in (ROOT, PACKAGE, PACKAGE / "lint"))
    ]
    assert missing == []
