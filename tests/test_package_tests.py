"""A small package in place of the large ones of `make bench-package-tests`: what differs, and why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("coverage", reason="the bench runs tests under it")

BENCH = Path(__file__).resolve().parents[1] / "bench"

ONE = """\
import torch
from torch import Tensor, nn


class Checked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if (x < 0).any():
            raise ValueError("negative")
        return x
"""
TWO = """\
from torch import Tensor, nn


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[1:]:
            x = layer(x)
        return x
"""
TESTS = """\
from pathlib import Path
import pytest

HERE = Path(__file__).resolve().parent

class TestOne:
    @pytest.mark.parametrize("name", ["pkg/one.py"])
    def test_raises(self, name):
        assert "ValueError" in (HERE / name).read_text()

def test_is_there():
    assert (HERE / "pkg/two.py").exists()

def test_luck():
    ran = HERE.parent / "ran"
    ran.write_text((ran.read_text() if ran.exists() else "") + "x")
    assert len(ran.read_text()) != 3  # in the third run of all
"""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command, which is no part of the package."""
    monkeypatch.syspath_prepend(str(BENCH))
    import bench_package_tests

    return bench_package_tests


@pytest.fixture
def row(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is measured of the small package."""
    plain = tmp_path / "plain"
    (plain / "pkg").mkdir(parents=True)
    (plain / "pkg" / "one.py").write_text(ONE)
    (plain / "pkg" / "two.py").write_text(TWO)
    (plain / "test_it.py").write_text(TESTS)
    monkeypatch.setattr(bench, "laid_out", lambda *_: plain)
    package = bench.Package("small", "1", "pkg", ("test_it.py",))
    measured: dict[str, Any] = bench.asked(package, None, Path(sys.executable), tmp_path)
    return measured


@pytest.mark.slow
def test_what_differs_is_told_with_its_fix(bench: Any, row: dict[str, Any]) -> None:
    assert row["outcomes"] == {"passed": 3}
    assert [fix["code"] for fix in row["safe"]["fixes"]] == ["DG609 module-list-slice"]
    assert row["safe"]["otherwise"] == []

    (one,) = row["unsafe"]["otherwise"]
    assert one["files"] == ["pkg/one.py"]
    assert {n: how["outcome"] for n, how in one["tests"].items()} == {
        "test_it.TestOne::test_raises[pkg/one.py]": "failure"
    }
    (fix,) = one["fixes"]
    assert (fix["code"], fix["line"], fix["run"]) == ("DG402 tensor-truth-in-check", 7, False)
    assert "RuntimeError" in fix["message"]
    assert row["unsafe"]["unsteady"] == ["test_it::test_luck"]

    page = bench.page({"machine": bench.machine(), "torch": "2", "packages": {"small": row}})
    assert "| small 1 | 3 | " in page
    assert "- line 7, not run: DG402 tensor-truth-in-check (unsafe): Check on the device;" in page


def test_lines_are_those_of_the_first_text(bench: Any) -> None:
    first, later = ["a", "b", "c"], ["import new", "a", "B", "c"]
    assert dict(bench._places(first, later)) == {2: 1, 4: 3}
