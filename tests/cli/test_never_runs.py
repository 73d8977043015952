"""Code that is linted is never imported or run: planted side effects do not happen."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from .conftest import A, B, Run, Write, command
from .test_old_code import git

pytestmark = pytest.mark.fresh_python

EFFECT = "import pathlib\npathlib.Path({path!r}).open('a').write(__name__ + '\\n')\n"

# Names that the linter, its libraries or Python itself import.
NAMES = (
    "setup conftest sitecustomize usercustomize torch libcst tree_sitter tree_sitter_python pluggy"
    " pytest packaging rich sqlite3 json pathlib dataclasses difflib multiprocessing concurrent"
    " dispatchguard_rules hypothesis tomllib"
).split()


@pytest.fixture
def planted(write: Write, tmp_path: Path) -> tuple[Path, Path]:
    """A project full of side effects, and the file that they would write."""
    trace = tmp_path.parent / f"{tmp_path.name}-ran.txt"
    effect = EFFECT.format(path=str(trace))
    # Decorators, defaults, class bodies and annotations run at import as well.
    body = effect + A.replace("import os, torch\n", "import os, torch\n" + effect)
    files: dict[str, str | bytes] = {f"{name}.py": effect for name in NAMES}
    files |= {
        "pyproject.toml": "[tool.dispatchguard]\nhot-roots = ['pkg.b.cold']\n",
        "pkg/__init__.py": effect,
        "pkg/a.py": body,
        "pkg/b.py": effect + B,
        "pkg/__main__.py": effect,
        "pkg/conftest.py": effect,
        "pkg/worse.py": effect
        + "def f(x=open('x', 'w'), *, y: exit() = 1):\n    return x.item()\n",
    }
    files |= {f"pkg/more{i}.py": body for i in range(30)}
    return write(files), trace


@pytest.mark.parametrize(
    "words",
    [
        ["check", "--jobs", "2"],
        ["check", "--no-cache", "--jobs", "1"],
        ["check", "--fix", "--unsafe-fixes", "--pedantic"],
        ["check", "--diff"],
        ["check", "--statistics", "--format", "json", "pkg/a.py"],
        ["hot"],
        ["rules"],
        ["rule", "DG001"],
        ["clean"],
    ],
    ids=" ".join,
)
def test_nothing_of_the_project_runs(
    planted: tuple[Path, Path], start: Run, words: list[str]
) -> None:
    root, trace = planted
    done = start(*words, cwd=root)
    assert done.status in (0, 1), done.err
    assert not trace.exists(), trace.read_text()
    assert not list(root.rglob("__pycache__"))
    assert not (root / "x").exists()


@pytest.mark.parametrize("how", ["script", "safe path", "module"])
def test_a_file_named_like_us_is_not_run_either(planted: tuple[Path, Path], how: str) -> None:
    root, trace = planted
    (root / "other" / "pytest_dispatchguard.py").parent.mkdir()
    (root / "other" / "pytest_dispatchguard.py").write_text(EFFECT.format(path=str(trace)))
    script = Path(sysconfig.get_path("scripts")) / "dispatchguard"
    if how == "script":
        if not script.exists():
            pytest.skip("the command is not installed here")
        line = [str(script)]
    elif how == "safe path":
        if sys.version_info < (3, 11):
            pytest.skip("Python has -P since 3.11")
        line = [sys.executable, "-P", "-m", "pytest_dispatchguard"]
    else:
        line = command([], root)
    # Python itself resolves `-m` from the current folder, so a module named like us can only lie beside.
    folder = root if how == "module" else root / "other"
    done = subprocess.run([*line, "check"], cwd=folder, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert not trace.exists(), trace.read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="shell scripts")
def test_what_the_repository_has_git_run_is_not_run(project: Path, start: Run) -> None:
    git(project, "init", "-q", "-b", "main")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "all")
    trace = project / "trace"
    script = project / ".git" / "planted"
    script.write_text(f"#!/bin/sh\necho ran >> '{trace}'\n")
    script.chmod(0o755)
    git(project, "config", "core.fsmonitor", str(script))
    git(project, "config", "core.hooksPath", str(script.parent))
    git(project, "status")
    assert trace.exists()  # the trap works
    trace.unlink()
    assert start("check", "--no-cache").status == 1
    assert start("check", "--no-cache", "--diff-base", "HEAD").status == 0
    assert not trace.exists()
