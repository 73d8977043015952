"""What a repository says steers no terminal, ends no line, and is no command of a CI log, in any text."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unicodedata import category

import pytest

from pytest_dispatchguard.model.findings import (
    Edit,
    Finding,
    Fix,
    Hot,
    HotPlace,
    RuleInfo,
    Span,
    Traced,
)
from pytest_dispatchguard.model.history import Culprit
from pytest_dispatchguard.model.measurements import CostlyLine
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.model.reviews import Remark, Review, Stretch
from pytest_dispatchguard.model.verdicts import Verdict
from pytest_dispatchguard.report import hot, render, rules
from pytest_dispatchguard.report.budgets import history, terminal, verdicts
from pytest_dispatchguard.report.budgets.markdown import as_markdown
from pytest_dispatchguard.report.diff import unified
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.report.review import markdown
from pytest_dispatchguard.report.review import text as terminal_review
from pytest_dispatchguard.report.statistics import statistics

from .. import started

NASTY = "a\x1b[2J\r\n::error::b\x9b\x07\u202ec\u2028\x00"
COLORS = re.compile(r"\x1b\[[0-9;]*m")


def steering(text: str) -> set[str]:
    """What is left of what steers a terminal, our own colours aside."""
    left = {c for c in COLORS.sub("", text) if category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    return left - {"\n"}


def commands(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.lstrip().startswith("::error::b")]


@pytest.fixture
def nasty(report_of: Callable[..., Report]) -> Report:
    """A report in which every word is hostile."""
    fix = Fix("unsafe", NASTY, (Edit(NASTY, Span(1, 1, 1, 2), NASTY),))
    told = [
        Finding(
            *("DG1", NASTY, NASTY, Span(1, 1, 1, 3), NASTY, NASTY),
            certainty=level,
            hot=Hot(NASTY, (NASTY, NASTY), NASTY),
            fix=fix,
            source=NASTY,
            traced=Traced(1.0, 1.0, 0.5, NASTY, 3),
        )
        for level in ("sure", "note", "maybe")
    ]
    return report_of(*told, notes=(NASTY,))


@pytest.mark.parametrize("form", ["text", "github", "markdown"])
@pytest.mark.parametrize("color", [False, True])
def test_reports_show_it(nasty: Report, form: str, color: bool) -> None:
    text = render(nasty, form, color=color, sources=lambda path: f"x = {NASTY}\n")
    assert steering(text) == set()
    assert commands(text) == []
    assert "\\x1b[2J" in text.replace("\\\\", "\\").replace("\\[", "[")


@pytest.mark.parametrize("form", ["json", "sarif", "rdjson"])
def test_machine_formats_are_exact(nasty: Report, form: str) -> None:
    text = render(nasty, form, sources=lambda path: "x\n")
    assert json.dumps(NASTY)[1:-1] in text


def test_reviews_show_it(nasty: Report) -> None:
    found = nasty.findings[0]
    remark = Remark(found, 1, 1, Stretch(1, 1, NASTY, {}))
    page = Review(NASTY, (remark,), (found,), (found,), notes=(NASTY,))
    options = Options(sources=lambda path: "x\n")
    for told in (markdown.render(page, options), terminal_review.render(page, options)):
        assert steering(told) == set() and commands(told) == []


def test_lists_show_it(nasty: Report) -> None:
    place = HotPlace(NASTY, 1, NASTY, Hot(NASTY, (NASTY, NASTY), NASTY))
    rule = RuleInfo("DG1", NASTY, NASTY, f"one\n\n{NASTY.replace(chr(10), '')}", "none", NASTY)
    found = Culprit(NASTY, NASTY, NASTY, 1, 2, "c" * 40, NASTY, NASTY, NASTY)
    for text in (
        hot.listing([place], "text"),
        statistics(nasty, "text"),
        rules.listing([rule], "text"),
        rules.page(rule, color=False, width=80),
        history.culprit_as_text(found),
    ):
        assert "\\x1b[2J" in text
        assert steering(text) == set()
    assert commands(hot.listing([place], "text") + statistics(nasty, "text")) == []


def test_verdicts_show_it() -> None:
    one = Verdict(
        *(NASTY, NASTY, "fail", {"instructions": 3}),
        reason=NASTY,
        lines=(CostlyLine(NASTY, 1, NASTY, 3),),
    )
    table = verdicts.table_of([one])
    shown = io.StringIO()
    terminal.show(table, shown, 200)
    for text in (
        "\n".join(verdicts.plain_lines(table)),
        verdicts.explained(one),
        as_markdown([one], {}),
        shown.getvalue(),
    ):
        assert "x1b" in text
        assert steering(text) == set()


def test_a_progress_line_shows_it() -> None:
    class Writer:
        fullwidth, width_of_current_line = 200, 0
        _file = io.StringIO()

    terminal.ProgressLine(Writer).tell(NASTY, 0, 3)
    told = re.sub(r"\x1b[78]|\x1b\[K", "", Writer._file.getvalue())
    assert steering(told) == set() and "\\x1b[2J" in told


@pytest.mark.parametrize(
    "name", ["a\nb.py", 'a"\x1b\\.py', "a\tb c.py", "plain.py", "with space.py"]
)
def test_git_applies_a_diff_of_an_odd_path(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x = 1\r\ny\x1b = 2\r\n")
    diff = unified(name, "x = 1\r\ny\x1b = 2\r\n", "x = 3\r\ny\x1b = 2\r\n")
    assert all(not set(line) & set("\x1b\r") for line in diff.splitlines()[:2])
    subprocess.run(["git", "apply"], input=diff.encode(), cwd=tmp_path, check=True)
    assert (tmp_path / name).read_bytes() == b"x = 3\r\ny\x1b = 2\r\n"


# -- the command -----------------------------------------------------------------------------------

NET = """\
import torch

class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        s = "\x1b[2J\u202e"; y = torch.zeros(3).to(x.device)
        return y, s
"""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    (tmp_path / "n\x1b[2J\n::error::x.py").write_text(NET)
    (tmp_path / "broken\x1b]0;x\x07.py").write_text("def (\x1b[2J:\n")
    (tmp_path / "pyproject.toml").write_text("[tool.dispatchguard]\n")
    return tmp_path


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    return started.in_bytes(folder, *words)


@pytest.mark.parametrize(
    "words",
    [
        ("check",),
        ("check", "--format", "github"),
        ("check", "--format", "markdown"),
        ("check", "--statistics"),
        ("hot",),
        ("check", "--select", "\x1b[2J\n::error::b"),
        ("check", "\x1b[2J\n::error::b"),
        ("check", "--\x1b[2J"),
        ("history", "\x1b[2J\n::error::b"),
    ],
    ids=" ".join,
)
def test_the_command_shows_it(hostile: Path, words: tuple[str, ...]) -> None:
    done = command(hostile, *words)
    assert done.returncode in (0, 1, 2)
    said = (done.stdout + done.stderr).decode()
    assert said and steering(said) == set()
    assert not any(line.startswith("::error::") for line in said.splitlines())


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals to be had")
def test_a_diff_is_shown_at_a_terminal_and_exact_elsewhere(hostile: Path) -> None:
    piped = command(hostile, "check", "--diff", "--unsafe-fixes").stdout
    assert b"\x1b[2J" in piped and b"\n::error::" not in piped
    subprocess.run(["git", "apply", "--check"], input=piped, cwd=hostile, check=True)
    ours, theirs = os.openpty()
    words = [sys.executable, "-m", "pytest_dispatchguard", "check", "--diff", "--unsafe-fixes"]
    with subprocess.Popen(words, cwd=hostile, stdout=theirs, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        told = b""
        while True:
            try:
                more = os.read(ours, 65536)
            except OSError:
                break
            if not more:
                break
            told += more
        process.wait(60)
    os.close(ours)
    text = told.decode().replace("\r\n", "\n")
    assert "\\x1b[2J\\u202e" in text and steering(text) == set()
