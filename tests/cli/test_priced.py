"""What findings cost: told, ranked, added up, and what is too cheap left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.prices import Priced, PriceTable
from pytest_dispatchguard.prices import NAME, packed

NET = """\
import inspect, os, torch


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        if os.environ.get("FAST"):
            return x
        for part in (x, x):
            inspect.signature(self.forward)
        return torch.zeros(3).to(x.device)
"""


@pytest.fixture
def project(write: Any, tmp_path: Path) -> Path:
    write({"pyproject.toml": "[tool.dispatchguard]\n", "net.py": NET})
    (tmp_path / NAME).parent.mkdir()
    table = PriceTable(
        {"cpu": "here"},
        tuple(
            Priced(code, "specimen", None, Interval(us, us - 0.01, us + 0.01))
            for code, us in (("DG601", 40.0), ("DG603", 0.5), ("DG504", 6.0))
        ),
    )
    (tmp_path / NAME).write_text(packed(table), encoding="utf-8")
    return tmp_path


def test_what_costs_most_comes_first_and_is_added_up(project: Path, run: Any) -> None:
    done = run("check")
    lines = done.out.splitlines()
    told = [line.split()[1].strip("[*]") for line in lines if line.startswith("net.py:")]
    costs = [line.strip() for line in lines if line.startswith("  ≈")]
    assert told == ["DG601", "DG504", "DG603"]
    assert costs == [f"≈ {us} µs per call on this machine" for us in ("40", "6.0", "0.50")]
    assert lines[-2:] == [
        "What the flagged lines cost in one call of",
        "  net.Net.forward: at least ≈ 46 µs (3 findings)",
    ]


def test_machines_are_told_by_place(project: Path, run: Any) -> None:
    found = run("check", "--format", "json").findings
    assert [f["line"] for f in found] == sorted(f["line"] for f in found)
    prices = {f["code"]: f["price"] for f in found}
    assert prices["DG603"] == {"us": 0.5, "low": 0.49, "high": 0.51, "waits": 0, "machine": None}
    assert {f["code"]: f["price_us"] for f in found} == {"DG601": 40, "DG504": 6, "DG603": 0.5}


@pytest.mark.parametrize(
    ("least", "codes"),
    [
        ("0.4us", {"DG601", "DG504", "DG603"}),
        ("1us", {"DG601", "DG504"}),
        ("0.007ms", {"DG601"}),
        ("1ms", set()),
    ],
)
def test_what_costs_less_is_left_out(project: Path, run: Any, least: str, codes: set[str]) -> None:
    done = run("check", "--format", "json", "--min-cost", least)
    assert {f["code"] for f in done.findings} == codes
    assert done.status == bool(codes)
    assert f'"cheap": {3 - len(codes)}' in done.out
    if codes != {"DG601", "DG504", "DG603"}:
        assert f"{3 - len(codes)} cheaper than --min-cost" in run("check", "--min-cost", least).out


def test_a_loop_counts_for_several_rounds(project: Path, run: Any) -> None:
    """Of 40 µs a round."""
    assert run("check", "--min-cost", "399us", "--format", "json").status == 1
    assert run("check", "--min-cost", "401us", "--format", "json").status == 0


def test_cheap_findings_keep_their_entries_in_the_baseline(project: Path, run: Any) -> None:
    words = ("check", "--baseline", "accepted.json")
    run(*words, "--write-baseline")
    before = (project / "accepted.json").read_text()
    run(*words, "--write-baseline", "--min-cost", "1us")
    assert (project / "accepted.json").read_text() == before
    assert run(*words).status == 0


@pytest.mark.parametrize("text", ["", "us", "-1us", "1 fortnight", "nan", "1e99"])
def test_a_time_that_is_none(project: Path, run: Any, text: str) -> None:
    done = run("check", f"--min-cost={text}")
    assert done.status == 2
    assert "is not a time; write it as 1us" in done.err


def test_a_table_that_is_none_is_one_line(project: Path, run: Any) -> None:
    (project / NAME).write_text("{")
    done = run("check")
    assert (done.status, done.out) == (2, "")
    assert "is no price table" in done.err and len(done.err.splitlines()) == 1
