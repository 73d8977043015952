"""Roots and their look-alikes: projects in `fixtures/roots` whose functions say what is hot, as
`docs/hotness.md` has it."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest

from pytest_dispatchguard.lint.facts import SCRIPT
from pytest_dispatchguard.lint.hot import hot_functions

ROOTS = Path(__file__).resolve().parents[1] / "fixtures" / "roots"
_IS = re.compile(r"#\s*is:\s*(\w+)\s*$")
PROJECTS = sorted(folder.name for folder in ROOTS.iterdir() if folder.is_dir())


def said(path: Path) -> dict[str, str]:
    """What each function of a file says of itself: hot, loops, users or cold; and what a line of its own says
    of what the file does at module level."""
    lines = path.read_text(encoding="utf-8").splitlines()
    alone = [match[1] for match in map(_IS.match, lines) if match]
    found = {SCRIPT: alone[0]} if alone else {}

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                walk(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef):
                match = _IS.search(lines[child.lineno - 1])
                if match:
                    found[prefix + child.name] = match[1]
                walk(child, f"{prefix}{child.name}.<locals>.")
            else:
                walk(child, prefix)

    walk(ast.parse("\n".join(lines)), "")
    return found


@pytest.mark.parametrize("project", PROJECTS)
def test_functions_are_as_hot_as_they_say(project: str, tmp_path: Path) -> None:
    root = tmp_path / project
    shutil.copytree(ROOTS / project, root)
    if not (root / "pyproject.toml").exists():
        (root / "pyproject.toml").write_text("[tool.dispatchguard]\n", encoding="utf-8")
    notes: list[str] = []
    places = hot_functions(
        (), cwd=root, config_file=None, jobs=1, cached=False, progress=None, note=notes.append
    )
    hot = {
        (p.path, p.function): "users" if p.hot.users else "loops" if p.only_loops else "hot"
        for p in places
    }
    told, expected = {}, {}
    for path in sorted(root.rglob("*.py")):
        rel = path.relative_to(root).as_posix()
        for name, word in said(path).items():
            expected[f"{rel}:{name}"] = word
            told[f"{rel}:{name}"] = hot.get((rel, name), "cold")
    assert len(expected) > 10 and set(expected.values()) >= {"hot", "cold"}
    assert told == expected
    assert notes == []
