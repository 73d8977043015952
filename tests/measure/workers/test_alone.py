"""One process of a run measures at a time, and nothing is left of what sees to that."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from pytest_dispatchguard.measure.workers.alone import alone

pytestmark = pytest.mark.skipif(
    os.name == "nt", reason="processes do not wait for each other there"
)


def _take_turns(lock: Path, inside: Path) -> None:
    for _ in range(50):
        with alone(lock):
            inside.touch(exist_ok=False)
            time.sleep(0.0005)
            inside.unlink()


def test_one_at_a_time(tmp_path: Path) -> None:
    lock, inside = tmp_path / "run.lock", tmp_path / "inside"
    context = multiprocessing.get_context("fork")
    runs = [context.Process(target=_take_turns, args=(lock, inside)) for _ in range(4)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(60)
        assert run.exitcode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), alone(tmp_path / "run.lock"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_several_processes_leaves_nothing(
    pytester: pytest.Pytester,
    plugin_flags: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    pytest.importorskip("xdist", reason="runs tests in several processes")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.overhead_budget(ratio=1000)
        def test_sum(overhead):
            overhead(sum, [1, 2]).against(sum, [1, 2])
        """
    )
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    flags = ("--overhead-budget", "--overhead-max-time=0.3", "-n", "2", "-p", "xdist")
    result = pytester.runpytest_subprocess(*plugin_flags, *flags)
    result.assert_outcomes(passed=1)
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".lock")] == []
