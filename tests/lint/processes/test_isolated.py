"""A process that dies of a function costs that function, and no other."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.lint.check import check
from pytest_dispatchguard.lint.judge import judge
from pytest_dispatchguard.lint.pipeline import judge_files
from pytest_dispatchguard.lint.processes.isolated import one_by_one
from pytest_dispatchguard.lint.request import Request

LAYER = """\
import torch


class {name}(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        if x.sum() > 0:
            return self.{other}(x)
        return self.plain(x)

    def {other}(self, x: torch.Tensor):
        return torch.zeros(3).to(x.device) + x

    def plain(self, x: torch.Tensor):
        return torch.ones(3).to(x.device) + x
"""


def _squared(numbers: tuple[int, ...]) -> list[int]:
    if 13 in numbers:
        os.kill(os.getpid(), signal.SIGKILL)
    return [number**2 for number in numbers]


@pytest.mark.parametrize(
    ("items", "results"),
    [
        ([(1, 2), (3,)], [[1, 4], [9]]),
        ([(1, 13, 2), (3,)], [[1], [-13], [4], [9]]),
        ([(13,), (13, 3)], [[-13], [-13], [9]]),
        ([], []),
    ],
)
def test_a_death_costs_the_part_it_came_of(
    items: list[tuple[int, ...]], results: list[list[int]]
) -> None:
    def parts(numbers: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [(number,) for number in numbers]

    def died(numbers: tuple[int, ...]) -> list[int]:
        return [-number for number in numbers]

    assert list(one_by_one(_squared, items, parts, died, threads=False)) == results


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers that know of the patches are forked")
def test_a_function_that_kills_its_judge_is_told_and_the_others_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = judge._judge_chunks

    def judge_chunks(lines: Any, outlines: Sequence[Any], *rest: Any) -> list[judge.Judged]:
        if any(outline.name == "L3.deadly" for outline in outlines):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(lines, outlines, *rest)

    monkeypatch.setattr(judge, "_judge_chunks", judge_chunks)
    monkeypatch.setattr(judge_files, "WORTH_A_PROCESS", 1)
    for i in range(8):
        other = "deadly" if i == 3 else "other"
        (tmp_path / f"m{i}.py").write_text(LAYER.format(name=f"L{i}", other=other))
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'deadly'\n")

    found = check(Request((tmp_path,), tmp_path, settings={"select": ("DG504",)}, jobs=2))
    told = [(f.path, f.function) for f in found.report.findings if f.code == "DG001"]
    assert told == [("m3.py", "L3.deadly")]
    assert sum(f.code == "DG504" for f in found.report.findings) == 15
    (message,) = [f.message for f in found.report.findings if f.code == "DG001"]
    assert "crashes the process that checks it" in message
    monkeypatch.setattr(judge, "_judge_chunks", real)
    again = check(Request((tmp_path,), tmp_path, settings={"select": ("DG504",)}, jobs=2))
    assert [f.code for f in again.report.findings] == ["DG504"] * 16  # a death is not remembered
