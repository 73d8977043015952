"""`dispatchguard fix`: what is selected, by code, by place, or asked for on a terminal; diffs by finding."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import Run, Write, one_line

HEAD = "import inspect, torch\n\n\nclass M(torch.nn.Module):\n    def forward(self, x: torch.Tensor):\n"
TWO = (
    HEAD
    + "        a = torch.zeros(3).to(x.device)\n"
    + "        b = torch.ones(4).to(x.device)\n"
    + "        return a.sum() + b.sum()\n"
)
ZEROS = TWO.replace("torch.zeros(3).to(x.device)", "torch.zeros(3, device=x.device)")
BOTH = ZEROS.replace("torch.ones(4).to(x.device)", "torch.ones(4, device=x.device)")
UNSAFE = HEAD + "        return torch.rand(x.shape).to(x.device)\n"


@pytest.fixture
def two(write: Write) -> Path:
    """A project with two findings that have a fix."""
    return write({"pyproject.toml": "[tool.dispatchguard]\n", "pkg/a.py": TWO})


def code_at(run: Run, line: int) -> str:
    """The code of the finding at a line."""
    (code,) = [c for _, at, c in run("check", "--format", "json").places if at == line]
    return code


def test_all_safe_fixes_are_made_and_told(two: Path, run: Run) -> None:
    done = run("fix")
    assert (done.status, done.err) == (0, "")
    assert (two / "pkg" / "a.py").read_text() == BOTH
    lines = done.out.splitlines()
    assert re.match(r"pkg/a\.py:6:13 DG\d+ \[\*\] ", lines[0])
    assert re.match(r"pkg/a\.py:7:13 DG\d+ \[\*\] ", lines[1])
    assert lines[2:] == ["2 fixes made in 1 file"]
    assert (run("fix").out, run("fix").status) == ("no fixes made: nothing was found\n", 0)


def test_fixes_are_selected_by_place(two: Path, run: Run) -> None:
    assert run("fix", "--select", "pkg/a.py:6").status == 0
    assert (two / "pkg" / "a.py").read_text() == ZEROS
    assert run("fix", "--select", "a.py:7", cwd=two / "pkg").status == 0
    assert (two / "pkg" / "a.py").read_text() == BOTH


def test_fixes_are_selected_by_code(two: Path, run: Run) -> None:
    code = code_at(run, 6)
    other = "DG4" if not code.startswith("DG4") else "DG5"
    assert run("fix", "--select", other).out == "no fixes made: nothing was found\n"
    assert run("fix", "--select", f"{other},{code[:3]}").status == 0
    assert (two / "pkg" / "a.py").read_text() == BOTH


def test_where_no_fix_is_made_it_says_why(write: Write, run: Run) -> None:
    write({"pyproject.toml": "[tool.dispatchguard]\n", "a.py": UNSAFE})
    assert run("fix").out == "no fixes made: none is safe; --unsafe-fixes has 1\n"
    write({"a.py": HEAD + "        return x.sum().item()\n"})
    assert run("fix").out == "no fixes made: there is none for 1 note\n"


COMMENTED = """\
import torch


class M(torch.nn.Module):
    def forward(self, x):
        y = x + 1

        # Doubles it,
        # and no more.
        def twice(a):
            return a * 2

        return twice(y) + twice(x)
"""


def test_a_definition_takes_its_comment_along(write: Write, run: Run) -> None:
    project = write({"pyproject.toml": "[tool.dispatchguard]\n", "a.py": COMMENTED})
    assert "1 fix made" in run("fix").out
    fixed = (project / "a.py").read_text()
    assert "# Doubles it,\n# and no more.\ndef _twice(a):\n    return a * 2\n" in fixed
    assert fixed.count("Doubles") == 1 and "return _twice(y) + _twice(x)" in fixed


@pytest.mark.parametrize(
    ("above", "stays"),
    [
        ("        # -- helpers ----", True),
        ("        # fmt: off", True),
        ("    # of the branch above", True),
        ("        # Doubles it.", False),
    ],
)
def test_comments_that_are_not_of_a_definition_stay(
    write: Write, run: Run, above: str, stays: bool
) -> None:
    text = COMMENTED.replace("        # Doubles it,\n        # and no more.", above)
    project = write({"pyproject.toml": "[tool.dispatchguard]\n", "a.py": text})
    assert "1 fix made" in run("fix").out
    fixed = (project / "a.py").read_text()
    assert fixed.count(above.strip()) == 1 and (above in fixed) == stays


def test_a_comment_is_not_copied_from_a_block_of_its_own(write: Write, run: Run) -> None:
    body = "        with torch.no_grad():\n            # Doubles it.\n            def twice(a):\n"
    text = COMMENTED.partition("        # Doubles")[0] + body + "                return a * 2\n\n"
    text += "        return twice(y) + twice(x)\n"
    project = write({"pyproject.toml": "[tool.dispatchguard]\n", "a.py": text})
    run("fix")
    assert (project / "a.py").read_text().count("Doubles it.") == 1


def test_a_code_and_a_place_add_up(two: Path, run: Run) -> None:
    other = "DG4" if not code_at(run, 6).startswith("DG4") else "DG5"
    assert run("fix", "--select", other, "--select", "pkg/a.py:6").status == 0
    assert (two / "pkg" / "a.py").read_text() == ZEROS


@pytest.mark.parametrize(
    "words",
    [
        ("check", "--fix", "pkg/a.py:6"),
        ("check", "--fix", "--select", "pkg/a.py:6"),
        ("check", "pkg/a.py:6"),
        ("fix", "pkg/a.py:6"),
    ],
)
def test_a_place_given_elsewhere_leads_to_the_option(
    two: Path, run: Run, words: tuple[str, ...]
) -> None:
    said = one_line(run(*words))
    assert said.endswith("; to fix that line, use dispatchguard fix --select pkg/a.py:6") or (
        "; to fix that line, use dispatchguard fix --select pkg/a.py:6;" in said
    )
    assert (two / "pkg" / "a.py").read_text() == TWO


def test_check_fixes_the_rules_that_are_selected(two: Path, run: Run) -> None:
    code = code_at(run, 6)
    other = "DG4" if not code.startswith("DG4") else "DG5"
    run("check", "--fix", "--select", other)
    assert (two / "pkg" / "a.py").read_text() == TWO
    assert run("check", "--fix", "--select", code).status == 0
    assert (two / "pkg" / "a.py").read_text() == BOTH


def test_a_place_without_a_fix_is_an_error(write: Write, run: Run) -> None:
    write({"pkg/a.py": TWO, "pkg/b.py": UNSAFE})
    assert "--select pkg/a.py:1: there is no finding" in one_line(
        run("fix", "--select", "pkg/a.py:1")
    )
    said = one_line(run("fix", "--select", "pkg/b.py:6"))
    assert re.search(r"--select pkg/b\.py:6: the fix of DG\d+ is unsafe; add --unsafe-fixes", said)
    assert run("fix", "--select", "pkg/b.py:6", "--unsafe-fixes").status == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--select", "a b"], "--select a b: neither a code such as DG609 nor a place"),
        (["--apply"], "--apply requires --verify"),
        (["--test", "tests"], "--test requires --verify"),
        (["--verify", "--ask"], "--verify cannot be combined with --ask or --diff"),
        (
            ["--verify", "--call", "f()", "--patch", "x", "--select", "DG1"],
            "--patch cannot be combined",
        ),
        (["--ask", "--diff"], "--ask cannot be combined with --diff"),
        (["--ask"], "--ask requires a terminal"),
        (
            ["--verify"],
            "--verify has nothing to verify with: name tests (--test tests), and a call",
        ),
        (["--verify", "--test", "tests"], "--verify has nothing to measure: name a call"),
        (["--verify", "--call", "f()", "--patch", "gone"], "gone: cannot be read: No such file"),
        (["-"], "use `dispatchguard check - --fix`"),
    ],
)
def test_what_makes_no_sense_is_refused(two: Path, run: Run, words: list[str], said: str) -> None:
    assert said in one_line(run("fix", *words))
    assert (two / "pkg" / "a.py").read_text() == TWO


@pytest.mark.parametrize("command", ["fix", "check"])
def test_a_diff_has_a_part_for_each_finding(two: Path, run: Run, command: str) -> None:
    done = run(command, "--diff")
    assert done.status == 1
    assert (two / "pkg" / "a.py").read_text() == TWO
    parts = re.split(r"^(?=# )", done.out, flags=re.MULTILINE)[1:]
    assert [part.count("\n@@ ") for part in parts] == [1, 1]
    assert all(
        re.match(r"# pkg/a\.py:[67]:13 DG\d+ \[\*\] .+\n--- a/pkg/a\.py\n", p) for p in parts
    )
    assert "+        a = torch.zeros(3, device=x.device)\n" in parts[0]
    assert "\n         a = torch.zeros(3, device=x.device)\n" in f"\n{parts[1]}".replace(
        "\n ", "\n "
    )


@pytest.mark.parametrize("tool", [["git", "apply"], ["patch", "-p1", "--quiet"]])
def test_tools_take_the_whole_diff_and_each_part(
    two: Path, run: Run, tmp_path: Path, tool: list[str]
) -> None:
    if shutil.which(tool[0]) is None:
        pytest.skip(f"{tool[0]} is not installed")
    diff = run("fix", "--diff").out
    first, second = re.split(r"^(?=# )", diff, flags=re.MULTILINE)[1:]
    for texts, expected in (((diff,), BOTH), ((first, second), BOTH), ((first,), ZEROS)):
        copy = tmp_path / f"copy{len(texts)}{len(texts[0])}"
        shutil.copytree(two / "pkg", copy / "pkg")
        for text in texts:
            done = subprocess.run(
                tool, cwd=copy, input=text.encode(), check=False, capture_output=True
            )
            assert done.returncode == 0, done.stderr
        assert (copy / "pkg" / "a.py").read_text() == expected


def on_terminal(folder: Path, answers: str) -> str:
    """What `fix --ask` shows on a terminal where these answers are typed, one at each question."""
    master, slave = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest_dispatchguard", "fix", "--ask", "--no-cache"],
        cwd=folder,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        close_fds=True,
    )
    os.close(slave)
    said, typed = "", 0
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if not select.select([master], [], [], 1)[0]:
            continue
        try:
            read = os.read(master, 4096)
        except OSError:  # the other end is closed
            break
        if not read:
            break
        said += read.decode()
        if said.count("[y,n,a,q]") > typed and typed < len(answers):
            os.write(master, f"{answers[typed]}\n".encode())
            typed += 1
    os.close(master)
    assert process.wait(30) == 0, said
    return said.replace("\r\n", "\n")


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals of that kind here")
@pytest.mark.parametrize(
    ("answers", "expected", "made"),
    [
        ("yy", BOTH, "2 fixes"),
        ("yn", ZEROS, "1 fix"),
        pytest.param("yq", ZEROS, "1 fix", marks=pytest.mark.thorough),
        ("a", BOTH, "2 fixes"),
        pytest.param("q", TWO, "no fixes", marks=pytest.mark.thorough),
        ("?nn", TWO, "no fixes"),
    ],
)
def test_fixes_are_asked_for_on_a_terminal(
    two: Path, answers: str, expected: str, made: str
) -> None:
    said = on_terminal(two, answers)
    assert (two / "pkg" / "a.py").read_text() == expected
    assert "+        a = torch.zeros(3, device=x.device)\n" in said
    assert f"{made} made" in said
    assert ("q: make none of the rest" in said) == ("?" in answers)
