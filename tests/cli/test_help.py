"""The help of every command and of pytest's options: written alike, and in step with the docs."""

from __future__ import annotations

import argparse
import re
from importlib import import_module
from pathlib import Path

import pytest

from pytest_dispatchguard.commands import COMMANDS, module_of
from pytest_dispatchguard.pytest_run import options

DOCS = Path(__file__).resolve().parents[2] / "docs"


def parser_of(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"dispatchguard {name}")
    import_module(module_of(name)).add(parser)
    return parser


def section_of(name: str) -> str:
    """What docs/commands.md has on a command."""
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", page, flags=re.MULTILINE)
    (found,) = [s for s in sections if re.match(rf".*`dispatchguard {name}[` ]", s.splitlines()[0])]
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_docs_have_every_option(name: str) -> None:
    section = section_of(name)
    for action in parser_of(name)._actions:
        for flag in action.option_strings:
            if flag in ("-h", "--help", "--output-format"):
                continue
            told = re.search(rf"{flag}(?![\w-])", section)
            assert told, f"docs/commands.md: dispatchguard {name} has no {flag}"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_docs_have_no_other_options(name: str) -> None:
    known = {flag for action in parser_of(name)._actions for flag in action.option_strings}
    rows = re.findall(r"^\| (`--.*?) \|", section_of(name), re.MULTILINE)
    told = [flag for row in rows for flag in re.findall(r"--[\w-]+", row)]
    assert [flag for flag in told if flag not in known] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_written_alike(name: str) -> None:
    parser = parser_of(name)
    assert parser.description, "says what the command does"
    assert re.match(r"[A-Z][a-z]+ ", parser.description), "begins with a verb"
    assert not parser.description.split()[0].endswith("s"), "in the imperative"
    assert parser.description.endswith((".", ")", '"'))
    for action in parser._actions:
        help = action.help or ""
        assert help, f"{action.dest} has no help"
        assert not help.endswith("."), help
        assert help[0].islower() or help.startswith(("Python", "LSP")), help
    assert COMMANDS[name][0].islower()


def test_the_docs_have_every_option_of_the_plugin() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    for option in options._ALL:
        assert f"--overhead-{option.name}" in pages
        assert not option.help.endswith("."), option.help
        assert option.help[0].islower()
