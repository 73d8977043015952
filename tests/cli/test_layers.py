"""`dispatchguard layers`: real runs of the command."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SETUP = "def f(n):\n    return g(n) + g(n)\ndef g(n):\n    return sum(range(n))"
QUICK = ("--seconds", "0.1")


@pytest.fixture
def layers(python: Run) -> Run:
    def layers(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return python("pytest_dispatchguard", "layers", *words, folder=folder)

    return layers


def test_a_call_is_taken_apart(tmp_path: Path, layers: Run) -> None:
    result = layers(tmp_path, "f(300)", "--setup", SETUP, *QUICK)
    assert result.returncode == 0, result.stderr
    first, *rows = result.stdout.splitlines()
    assert first.startswith("f(300)  ") and first.endswith(" µs a call")
    assert any("g (2 times)" in row and "█" in row for row in rows)
    assert any("the whole call" in row and "100%" in row for row in rows)


def test_json_markdown_and_a_drawing_say_the_same(tmp_path: Path, layers: Run) -> None:
    told = layers(tmp_path, "f(300)", "--setup", SETUP, "--format", "json", *QUICK)
    (call,) = json.loads(told.stdout)["calls"]
    assert [layer["name"] for layer in call["layers"]] == ["f", "g"]
    markdown = layers(tmp_path, "f(300)", "--setup", SETUP, "--format", "markdown", *QUICK)
    assert "| `f` |" in markdown.stdout
    out = tmp_path / "f.svg"
    drawn = layers(
        tmp_path, "f(300)", "--setup", SETUP, "--format", "svg", "--output", str(out), *QUICK
    )
    assert (drawn.returncode, drawn.stdout) == (0, "")
    assert "g (2 times)" in "".join(ET.fromstring(out.read_text()).itertext())


def test_a_flame_graph_comes_beside(tmp_path: Path, layers: Run) -> None:
    words = ("f(300)", "--setup", SETUP, "--flame", "f.speedscope.json", *QUICK)
    result = layers(tmp_path, *words)
    assert result.returncode == 0, result.stderr
    assert "the whole call" in result.stdout
    told = json.loads((tmp_path / "f.speedscope.json").read_text())
    assert [frame["name"] for frame in told["shared"]["frames"]] == ["f(300)", "f", "g (2 times)"]
    for more, said in (
        (
            ("--flame", "no/such/file"),
            "no/such/file: the directory does not exist; create it first",
        ),
        (("--sizes", "1,2,3"), "--flame cannot be combined with --sizes"),
    ):
        result = layers(tmp_path, *words, *more)
        assert (result.returncode, result.stdout) == (2, "")
        assert said in result.stderr and result.stderr.count("\n") == 1


def test_sizes_tell_what_grows(tmp_path: Path, layers: Run) -> None:
    words = ("f(n)", "--setup", SETUP, "--sizes", "10,100,10000", *QUICK)
    result = layers(tmp_path, *words, "--against", "g(n)")
    assert result.returncode == 0, result.stderr
    assert "kernels cannot be separated from what surrounds them" in result.stdout
    assert "ratio" in result.stdout.splitlines()[1]
    drawn = layers(tmp_path, *words, "--format", "svg")
    assert ET.fromstring(drawn.stdout).tag.endswith("svg")


def test_a_test_says_itself_what_is_called(tmp_path: Path, layers: Run) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\ndef work(n):\n    return sum(range(n))\n\n"
        "def test_work(overhead):\n    overhead(work, 300)\n\n"
        "def test_none():\n    pass\n\n"
        "def test_fails(overhead):\n    assert 1 == 2\n"
    )
    result = layers(tmp_path, "test_it.py::test_work", *QUICK)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("test_it.py::test_work (work)  ")
    for test, said in (
        ("test_none", "it never calls overhead(...)"),
        ("test_gone", "there is no such test"),
        ("test_fails", "assert 1 == 2"),
    ):
        result = layers(tmp_path, f"test_it.py::{test}", *QUICK)
        assert (result.returncode, result.stdout) == (2, "")
        assert said in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["f("], "TARGET must be an expression"),
        (["f(1)"], "NameError: name 'f' is not defined"),
        (["f(1)", "--setup", "1/0"], "--setup: ZeroDivisionError"),
        (["f(1)", "--setup", "def"], "--setup must be Python code"),
        (["f(1)", "--sizes", "1,2"], "dispatchguard: --sizes needs 3 sizes at least"),
        (["f(1)", "--sizes", "1,x"], "'x' is not a positive whole number"),
        (["f(1)", "--seconds", "0"], "not a number of seconds"),
        (["f(1)", "--against", "g(1)"], "--against requires --sizes"),
        (["t.py::test_a", "--setup", "1"], "require an expression"),
        (
            ["f(1)", "--output", "no/such/file", "--setup", "f = abs"],
            "the directory does not exist",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    tmp_path: Path, words: list[str], said: str, layers: Run
) -> None:
    result = layers(tmp_path, *words, *([] if "--seconds" in words else QUICK))
    assert (result.returncode, result.stdout) == (2, "")
    assert said in result.stderr and result.stderr.count("\n") == 1


def test_what_a_test_imports_from_the_working_folder_is_found(tmp_path: Path, layers: Run) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tmp_path / "library.py").write_text("def work(n):\n    return sum(range(n))\n")
    (tests / "test_it.py").write_text(
        "from library import work\ndef test_work(overhead):\n    overhead(work, 100)\n"
    )
    result = layers(tmp_path, "tests/test_it.py::test_work", *QUICK)
    assert result.returncode == 0, result.stderr
    assert "(work)" in result.stdout
