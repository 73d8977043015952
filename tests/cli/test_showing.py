"""`check --show-files`, `check --show-settings` and `dispatchguard config`: what is read, and how."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from .conftest import Run, one_line

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = """\
[project]
requires-python = ">=3.10"

[tool.dispatchguard]
select = ["DG4", "ALL"]
exclude = ["pkg/b.py"]
per-file-ignores = { "pkg/\\"odd\\".py" = ["DG5"] }
budgets = { "tests/*" = { ratio = 1.5, dispatches = [2, 1] } }
baseline = "base.json"
strict = true
"""


def test_the_files_of_a_check(project: Path, run: Run) -> None:
    done = run("check", "--show-files")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines() == ["pkg/__init__.py", "pkg/a.py", "pkg/b.py"]
    assert run("check", ".", "--show-files", cwd=project / "pkg").out.splitlines() == [
        "__init__.py",
        "a.py",
        "b.py",
    ]
    (project / "pyproject.toml").write_text(TABLE)
    assert "b.py" not in run("check", "--show-files").out
    assert run("check", "pkg/b.py", "--show-files").out == ""
    assert "no such file" in one_line(run("check", "none.py", "--show-files"))


def test_the_settings_in_effect_can_be_read_back(project: Path, run: Run) -> None:
    (project / "pyproject.toml").write_text(TABLE)
    done = run("check", "pkg", "--show-settings", "--ignore", "DG402", "--pedantic")
    assert (done.status, done.err) == (0, "")
    shown = tomllib.loads(done.out)["tool"]["dispatchguard"]
    given = tomllib.loads(TABLE)["tool"]["dispatchguard"]
    for key, value in given.items():
        assert shown[key] == (str(project / value) if key == "baseline" else value), key
    assert (shown["ignore"], shown["pedantic"]) == (["DG402"], True)
    assert "notes" not in shown
    assert f"# Configuration file: {project / 'pyproject.toml'}" in done.out
    assert "# requires-python: >=3.10" in done.out
    (project / "pyproject.toml").write_text(done.out)
    again = run("check", "pkg", "--show-settings")
    assert tomllib.loads(again.out) == tomllib.loads(done.out)


def test_both_at_once_are_refused(project: Path, run: Run) -> None:
    assert "cannot be combined" in one_line(run("check", "--show-files", "--show-settings"))


def test_the_settings_there_are(run: Run) -> None:
    listed = run("config")
    assert listed.status == 0
    assert "per-file-ignores  (table of globs to lists of codes)" in listed.out
    one = run("config", "ignore")
    assert 'ignore = ["DG402"]' in one.out
    rows = json.loads(run("config", "--format", "json").out)["settings"]
    assert {"select", "strict"} < {row["key"] for row in rows}
    assert all(row["description"] and row["type"] for row in rows)
    assert [
        r["key"] for r in json.loads(run("config", "src", "--format", "json").out)["settings"]
    ] == ["src"]
    assert 'did you mean "select"?' in one_line(run("config", "selct"))
    assert "leave KEY out" in one_line(run("config", "src", "--format", "schema"))


def test_the_schema_that_is_printed_is_the_one_that_is_shipped(run: Run) -> None:
    import pytest_dispatchguard

    shipped = Path(pytest_dispatchguard.__file__).with_name("dispatchguard.schema.json")
    assert run("config", "--format", "schema").out == shipped.read_text(encoding="utf-8")


@pytest.mark.parametrize("option", ["--select", "--extend-select"])
def test_all_rules(project: Path, run: Run, option: str) -> None:
    done = run("check", option, "ALL", "--format", "json")
    assert done.status == 1
    assert set(run("check", "--format", "json").places) <= set(done.places)
    ignored = run("check", option, "ALL", "--ignore", "DG5", "--format", "json").places
    assert ignored == [place for place in done.places if not place[2].startswith("DG5")]
    assert ignored != done.places


def test_ruffs_spelling_of_the_format(project: Path, run: Run) -> None:
    for words in (["check"], ["hot"], ["rules"]):
        plain = run(*words, "--format", "json")
        assert run(*words, "--output-format", "json").out == plain.out
        assert json.loads(plain.out)
    assert 'did you mean "json"?' in one_line(run("check", "--output-format", "jsn"))
