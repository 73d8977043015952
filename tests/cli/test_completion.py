"""Completion: what bash offers when it runs its script; the others' scripts, where their shells are here."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_dispatchguard.commands import COMMANDS

from .conftest import Run, one_line

Offered = Callable[..., "list[str]"]

COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_dispatchguard
printf '%s\\n' "${COMPREPLY[@]}"
complete -p dispatchguard >&2
"""


@pytest.fixture
def offered(run: Run, tmp_path: Path) -> Offered:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash here")
    script = tmp_path / "completion.bash"
    script.write_text(run("completion", "bash").out)

    def offered(*words: str) -> list[str]:
        done = subprocess.run(
            ["bash", "--norc", "-c", COMPLETE, "bash", str(script), "dispatchguard", *words],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "-F _dispatchguard dispatchguard" in done.stderr
        return done.stdout.split()

    return offered


def test_bash_offers_commands(offered: Offered) -> None:
    assert offered("") == [*COMMANDS, "--help", "--version"]
    assert offered("ch") == ["check"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("check", "--unsafe"), ["--unsafe-fixes"]),
        (("check", "--show-"), ["--show-files", "--show-settings"]),
        (
            ("check", "--format", ""),
            "text json sarif github gitlab rdjson markdown prompt html".split(),
        ),
        (("check", "--output-format", "js"), ["json"]),
        (("check", "--format", "=", "ma"), ["markdown"]),
        (
            ("check", "--format", "="),
            "text json sarif github gitlab rdjson markdown prompt html".split(),
        ),
        (("review", "--format", "git"), ["github", "gitlab"]),
        (("trace", "--format", ""), ["text", "json", "markdown", "html", "perfetto"]),
        (("trace", "--no-"), ["--no-lint", "--no-compare", "--no-cache"]),
        (("check", "src"), []),
        (("check", "--config", "py"), []),
        (("check", "--fix", "--diff-b"), ["--diff-base"]),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("nothing", "--x"), []),
    ],
)
def test_bash_offers_what_fits(offered: Offered, words: tuple[str, ...], found: list[str]) -> None:
    assert offered(*words) == found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_of_their_shells(run: Run, tmp_path: Path, shell: str) -> None:
    done = run("completion", shell)
    assert (done.status, done.err) == (0, "")
    assert "--format" in done.out or "-l format" in done.out
    assert all(name in done.out for name in COMMANDS)
    assert "%%" not in done.out
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    script = tmp_path / "script"
    script.write_text(done.out)
    subprocess.run([shell, "-n", str(script)], check=True)


def test_help_is_quoted(run: Run) -> None:
    zsh = run("completion", "zsh").out
    assert r"output format\: text" in zsh
    assert "pytest'\\''s overhead_history" in zsh
    assert "pytest'\\''s overhead_history" in run("completion", "fish").out


def test_a_shell_that_is_not_known(run: Run) -> None:
    assert "'tcsh' is not a valid choice" in one_line(run("completion", "tcsh"))
