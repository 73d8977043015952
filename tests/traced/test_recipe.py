"""The recipe of docs/traces.md, from a slow training to a pull request: its program and its commands, run as
they stand there. There is no device here, so its waits are planted into the traces."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ..recipes import blocks
from .planting import plant

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),
]
HEADING = "From a slow training to a pull request"
COMMANDS = {
    "python": [sys.executable],
    "dispatchguard": [sys.executable, "-m", "pytest_dispatchguard"],
    "pytest": [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
}


def commands(heading: str) -> list[str]:
    return [
        line.removeprefix("$ ")
        for block in blocks("traces.md", "console", heading)
        for line in block.splitlines()
    ]


def done(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    program, *words = shlex.split(command)
    ran = subprocess.run(
        [*COMMANDS[program], *words],
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if program == "python":
        assert ran.returncode == 0, ran.stderr
        plant(folder / words[-1])
    return ran


def edited(text: str) -> str:
    """The program after the change that the page shows."""
    (diff,) = blocks("traces.md", "diff", HEADING)
    before, after = diff.splitlines()
    assert (before[0], after[0]) == ("-", "+")
    assert text.count(before[1:]) == 1
    return text.replace(before[1:], after[1:])


@pytest.mark.thorough
def test_five_commands_lead_to_a_pull_request(tmp_path: Path) -> None:
    (program,) = blocks("traces.md", "python", HEADING)
    script = tmp_path / "train.py"
    script.write_text(program, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("[tool.dispatchguard]\n", encoding="utf-8")
    record, tell, check, again, compare = commands(HEADING)

    done(tmp_path, record)
    told = done(tmp_path, tell)
    assert told.returncode == 0, told.stderr
    place = "train.py:26 in train"
    assert place in told.stdout and "train.py:26 DG411" in told.stdout
    assert "the device is idle" in told.stdout.splitlines()[0]

    checked = done(tmp_path, check)
    (shown,) = blocks("traces.md", "text", HEADING)
    first, hot, price = shown.splitlines()
    found = checked.stdout.splitlines()
    assert checked.returncode == 1
    assert found[:2] == [first, hot]
    figures = re.compile(r"[\d.,]+ [mµ]?s")
    assert figures.sub("N", found[2]) == figures.sub("N", price)

    script.write_text(edited(program), encoding="utf-8")
    done(tmp_path, again)
    compared = done(tmp_path, compare)
    assert compared.returncode == 0, compared.stderr
    page = (tmp_path / "pull-request.md").read_text(encoding="utf-8")
    assert re.search(r"went.*train", page), page

    settings, limit = blocks("traces.md", "toml", "Limits in CI")[0], commands("Limits in CI")[0]
    waits_only = settings.replace("idle_share = 0.1\n", "")  # there is a CPU's idle time in it
    (tmp_path / "pyproject.toml").write_text(waits_only, encoding="utf-8")
    limited = done(tmp_path, limit)
    assert limited.returncode == 0, limited.stdout
    assert "0 waits for the device a step" in limited.stdout
    exceeding = waits_only.replace("waits_per_step = 2", "waits_per_step = 0")
    (tmp_path / "pyproject.toml").write_text(exceeding, encoding="utf-8")
    script.write_text(program, encoding="utf-8")
    failed = done(tmp_path, limit.replace("after", "before"))
    assert failed.returncode == 1
    assert f"{place}: cudaStreamSynchronize in aten::item, 1 wait a step" in failed.stdout
