"""Runs the tests that matter at one's desk, for at most a minute: `make test-quick`.

It runs the tests of the files that changed since the branch left main, nearest first; where nothing changed,
a fixed choice of quick ones. CONTRIBUTING.md has the rules. Words after the command go to pytest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "pytest_dispatchguard"
SECONDS = 40
"""After these no further test starts: the minute has room for the last one, and for starting and ending."""

QUICK = (
    "tests/test_house.py",
    "tests/test_settings.py",
    "tests/lint/scout",
    "tests/lint/callgraph",
    "tests/lint/hotness",
    "tests/lint/kinds",
    "tests/report/formats",
    "tests/measure/timing/test_intervals.py",
)
"""What runs where nothing changed: milliseconds a test, and every part of the linter."""
DOCS = ("tests/test_internals.py", "tests/test_settings.py", "tests/cli/test_help.py")
ALSO = {
    "commands": ("tests/cli",),
    "bench/bench_gpu.py": ("tests/test_gpu.py",),
    "bench/bench_package_tests.py": ("tests/test_package_tests.py",),
    "bench/gpu": ("tests/test_gpu.py",),
    "docs": DOCS,
    "README.md": ("tests/test_readme.py",),
    "SECURITY.md": ("tests/test_security.py",),
    "pyproject.toml": ("tests/test_packaging.py",),
    "Makefile": ("tests/test_quick.py",),
    "action.yml": ("tests/test_action.py",),
    "plugin.py": ("tests/test_plugin.py",),
    "config": ("tests/test_settings.py",),
    "fixtures/demo": ("tests/test_demo.py",),
    "fixtures/roots": ("tests/test_roots.py",),
}
"""Tests that do not mirror what they are about, by a folder or file."""


@dataclass(frozen=True)
class Choice:
    """Test files and folders, the nearest to the changes first; which rules test_rules.py is about."""

    paths: tuple[str, ...]
    codes: tuple[str, ...] = ()

    def words(self, root: Path) -> list[str]:
        """The arguments of pytest: each test file once, as a folder may hold one that is named before it."""
        files = [test for path in self.paths for test in _files(root / path)]
        only = " or ".join(("not test_rules.py", *self.codes))
        return [
            *dict.fromkeys(file.relative_to(root).as_posix() for file in files),
            *(["-k", only] if self.codes else []),
        ]


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("test_*.py")) if path.is_dir() else [path] if path.exists() else []


def changed(root: Path) -> list[str]:
    """Files that differ from where the branch left main, committed or not."""
    base = "HEAD"
    for main in ("origin/main", "main"):
        if found := _git(root, "merge-base", "HEAD", main):
            base = found[0]
            break
    differing = _git(root, "diff", "--name-only", "--no-renames", base)
    return sorted({*differing, *_git(root, "ls-files", "--others", "--exclude-standard")})


def _git(root: Path, *words: str) -> list[str]:
    done = subprocess.run(
        ["git", *words], cwd=root, capture_output=True, encoding="utf-8", check=False
    )
    return done.stdout.splitlines() if done.returncode == 0 else []


def choose(files: Iterable[str], root: Path) -> Choice:
    """The tests of these files, else the quick ones."""
    files = list(files)
    codes = sorted({code for file in files for code in rules_of(file, root)})
    paths = ["tests/test_rules.py"] if codes else []
    for nearest in (tests_named_after, tests_beside, tests_about):
        paths += [test for file in files for test in nearest(file, root)]
    return Choice(tuple(dict.fromkeys(paths or QUICK)), tuple(codes))


def tests_named_after(file: str, root: Path) -> Iterator[str]:
    """A changed test itself; `tests/**/test_NAME.py` of a changed module NAME."""
    path = Path(file)
    if path.suffix != ".py" or not (root / file).exists():
        return
    if path.parts[0] == "tests" and path.name.startswith("test_"):
        yield file
    elif path.parts[0] == PACKAGE:
        mirrored = f"tests/{'/'.join(path.parts[1:-1])}/test_{path.name}".replace("//", "/")
        found = sorted((root / "tests").rglob(f"test_{path.name}"))
        named = [test.relative_to(root).as_posix() for test in found]
        yield from [mirrored] if mirrored in named else named


def tests_beside(file: str, root: Path) -> Iterator[str]:
    """The folder of tests that mirrors the folder of a module, or the nearest above that has one."""
    parts = Path(file).parts
    if parts[0] == "tests" and parts[-1] == "conftest.py":
        yield "/".join(parts[:-1])
    if parts[0] == PACKAGE:
        for length in range(len(parts) - 1, 1, -1):
            folder = "/".join(("tests", *parts[1:length]))
            if (root / folder).is_dir():
                yield folder
                break


def tests_about(file: str, root: Path) -> Iterator[str]:
    """Tests that stand elsewhere, and for any change of the package those of its arrows."""
    short = file.removeprefix(f"{PACKAGE}/")
    for place, tests in ALSO.items():
        if f"{short}/".startswith(f"{place}/"):
            yield from tests
    if file.startswith("tests/") and (helper := re.fullmatch(r"tests/(\w+)\.py", file)):
        for test in sorted((root / "tests").rglob("test_*.py")):
            if re.search(rf"^from \.+{helper[1]} import", test.read_text(encoding="utf-8"), re.M):
                yield test.relative_to(root).as_posix()
    if file.startswith((PACKAGE, "rules/")):
        yield "tests/test_house.py"


def rules_of(file: str, root: Path) -> set[str]:
    """The codes that a module of rules defines, or whose specimen a file is."""
    if specimen := re.match(r"fixtures/(DG\d+)/", file):
        return {specimen[1]}
    path = root / file
    if not (file.startswith("rules/") and path.suffix == ".py" and path.exists()):
        return set()
    own = _codes_in(path)
    if own or path.stem == "__init__":
        return own
    # A helper: the rules of what imports it, directly or through other helpers.
    texts = {other: other.read_text(encoding="utf-8") for other in (root / "rules").rglob("*.py")}
    helpers, seen = [path], {path}
    while helpers:
        name = helpers.pop().stem
        users = re.compile(
            rf"^from \.+(?:\w+\.)*{name} import|^from \.+\w* import .*\b{name}\b", re.M
        )
        for other, text in texts.items():
            if other not in seen and users.search(text):
                seen.add(other)
                own |= _codes_in(other)
                if not _codes_in(other) and other.stem != "__init__":
                    helpers.append(other)
    return own


def _codes_in(path: Path) -> set[str]:
    return set(re.findall(r'^    code = "(DG\d+)"', path.read_text(encoding="utf-8"), re.M))


def main(words: list[str]) -> int:
    """Choose, say what was chosen, and run pytest."""
    files = changed(ROOT)
    choice = choose(files, ROOT)
    print(f"{len(files)} changed files: " if files else "nothing changed: ", end="")
    print(*choice.paths, *choice.codes, flush=True)
    environment = {**os.environ, "DISPATCHGUARD_TESTS_UNTIL": str(time.time() + SECONDS)}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow and not thorough"]
    return subprocess.run(
        [*command, *choice.words(ROOT), *words], cwd=ROOT, env=environment, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
