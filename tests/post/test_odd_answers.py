"""Whatever a host answers, posting ends in a comment or in one clear line, in time: the attack suite's table
against a real server, a few random answers, and the command as a job runs it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.post.answers import Part

from .. import started

ROOT = Path(__file__).resolve().parents[2]


def _attack() -> Any:
    file = ROOT / "bench/attacks/odd_answers.py"
    spec = importlib.util.spec_from_file_location("odd_answers", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


odd_answers = _attack()
BOTH = [
    pytest.param(kind, odd, marks=[pytest.mark.thorough] * (not odd.kind and (at + number) % 2))
    for at, kind in enumerate(odd_answers.KINDS)
    for number, odd in enumerate(odd_answers.TABLE)
    if odd.kind in ("", kind)
]
"""Of what both kinds of hosts may answer, each is mostly asked of one of them."""


@pytest.mark.parametrize(
    ("kind", "odd"),
    BOTH,
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_an_odd_answer_ends_in_one_line(kind: str, odd: Any) -> None:
    outcome = odd_answers.attempt(kind, odd, 0.5)
    assert outcome.fine, outcome
    if odd.drip:
        assert "took longer than 0.5 s in all (--post-timeout)" in outcome.said


@pytest.mark.thorough
def test_random_answers_do_too() -> None:
    found = [
        outcome
        for kind in odd_answers.KINDS
        for outcome in (
            odd_answers.attempt(kind, odd_answers.random_odd(odd_answers.random.Random(n), n), 0.3)
            for n in range(40)
        )
    ]
    assert [outcome for outcome in found if not outcome.fine] == []


def test_a_good_host_is_posted_to() -> None:
    """Else the table would hold nothing."""
    good = odd_answers.Odd("good", b"", asked="DELETE /nothing")
    for kind in odd_answers.KINDS:
        outcome = odd_answers.attempt(kind, good)
        assert outcome.ended == "posted" and outcome.said.startswith("https://")


def test_what_is_judged_is_seen() -> None:
    assert odd_answers._wrong("told", "--post: a\x1b[2J", 0, 1) == "controls are told raw"
    assert odd_answers._wrong("told", f"--post: {odd_answers.TOKEN}", 0, 1) == "the token is told"
    assert odd_answers._wrong("posted", "https://x", 9, 1) == "it took too long"


def test_the_line_says_what_was_asked_and_what_is_odd() -> None:
    part = Part({"head": None, "body": 7, "n": True, "all": [1]}, "--post: x answers GET pulls/7")
    assert part.object("head").text("sha") == ""
    with pytest.raises(UserError, match=r'answers GET pulls/7 oddly: "body" is no text; check'):
        part.text("body")
    with pytest.raises(UserError, match='"n" is no number'):
        part.number("n")
    with pytest.raises(UserError, match="there is no list of objects"):
        part.objects("all")
    with pytest.raises(UserError, match="there is no object"):
        Part([], "x").text("a")


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for words in ("init -q -b main", "commit -q --allow-empty -m one"):
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words.split()], cwd=tmp_path, check=True)
    (tmp_path / "net.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x: torch.Tensor):\n"
        "        return x.item()\n"
    )
    return tmp_path


def review(repository: Path, odd: Any, *words: str) -> subprocess.CompletedProcess[str]:
    with odd_answers.serving(odd_answers.Server("github", odd)) as server:
        told = odd_answers.environment("github", server.address)
        line = ("review", "--base", "HEAD", "--post", *words)
        return started.dispatchguard(repository, *line, environment=told)


def named(name: str) -> Any:
    return next(odd for odd in odd_answers.TABLE if odd.name == name)


def test_an_address_of_two_lines_is_no_command(repository: Path) -> None:
    done = review(repository, named("an address of two lines"), "--exit-zero")
    assert done.returncode == 0, done.stderr
    assert "summary: https://x/1 ::error::owned" in done.stderr
    assert not any(line.startswith("::") for line in (done.stdout + done.stderr).splitlines())


def test_an_odd_answer_ends_the_command_with_2(repository: Path) -> None:
    done = review(repository, named("nested deep"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "with what is no JSON; check the address" in done.stderr


def test_a_host_that_drips_is_left_at_the_deadline(repository: Path) -> None:
    began = time.monotonic()
    done = review(repository, named("a header that drips"), "--post-timeout", "1")
    assert done.returncode == 2 and time.monotonic() - began < 30
    assert (
        done.stderr.count("\n") == 1
        and "took longer than 1 s in all (--post-timeout)" in done.stderr
    )


def test_a_deadline_goes_with_posting(repository: Path) -> None:
    for words, said in (
        (("--post-timeout", "3"), "--post-timeout requires --post"),
        (("--post", "--post-timeout", "nan"), "'nan' is not a number of seconds"),
    ):
        done = started.dispatchguard(repository, "review", "--base", "HEAD", *words)
        assert done.returncode == 2 and said in done.stderr
