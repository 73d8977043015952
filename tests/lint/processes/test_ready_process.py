"""A process that is made ready ahead does its work, or leaves it to the one that began it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_dispatchguard.lint.processes import ready_process
from pytest_dispatchguard.lint.processes.ready_process import Ahead
from pytest_dispatchguard.lint.processes.workers import Pool

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

HERE = os.getpid()


def where(number: int) -> tuple[int, bool]:
    return number, os.getpid() == HERE


def dies(number: int) -> int:
    if os.getpid() != HERE:
        os._exit(1)
    return number


def refuses(number: int) -> int:
    raise ValueError(number)


def cannot_be_sent(number: int) -> Callable[[], int]:
    return lambda: number


Begin = Callable[..., Ahead]


@pytest.fixture
def begin() -> Iterator[Begin]:
    made: list[Ahead] = []

    def start(prepare: Callable[[], object] = lambda: None) -> Ahead:
        one = Ahead.begin(prepare)
        assert one is not None
        made.append(one)
        return one

    yield start
    for one in made:
        one.close()


def test_does_the_work_in_order_again_and_again(begin: Begin) -> None:
    ahead = begin()
    assert list(ahead.map(where, [3, 1, 2])) == [(3, False), (1, False), (2, False)]
    assert list(ahead.map(where, range(1000)))[-1] == (999, False)
    assert list(ahead.map(where, [])) == []


def test_is_prepared_first(begin: Begin, tmp_path: Path) -> None:
    ahead = begin((tmp_path / "there").touch)
    assert list(ahead.map(os.path.exists, [str(tmp_path / "there")])) == [True]


def test_what_it_cannot_do_is_done_here(begin: Begin) -> None:
    assert list(begin().map(dies, [1, 2])) == [1, 2]
    assert list(begin(lambda: 1 / 0).map(where, [1])) == [(1, True)]
    assert [made() for made in begin().map(cannot_be_sent, [4])] == [4]
    with pytest.raises(ValueError, match="5"):
        list(begin().map(refuses, [5]))


def test_what_cannot_be_sent_to_it_is_done_here(begin: Begin) -> None:
    ahead = begin()
    assert list(ahead.map(lambda one: one + 1, [1])) == [2]


def test_ends_at_once_whatever_it_does() -> None:
    ahead = Ahead.begin(lambda: time.sleep(600))
    assert ahead is not None
    began = time.monotonic()
    ahead.close()
    assert os.waitstatus_to_exitcode(os.waitpid(ahead._pid, 0)[1]) == -signal.SIGKILL
    assert time.monotonic() - began < 60


def test_those_that_have_ended_are_forgotten_when_the_next_begins() -> None:
    first = Ahead.begin(lambda: None)
    assert first is not None
    first.close()
    deadline = time.monotonic() + 60
    while first._pid in ready_process._KILLED and time.monotonic() < deadline:
        following = Ahead.begin(lambda: None)
        assert following is not None
        following.close()
        time.sleep(0.01)
    with pytest.raises(ChildProcessError):
        os.waitpid(first._pid, os.WNOHANG)


def test_ends_with_the_process_that_began_it(tmp_path: Path) -> None:
    program = f"""
import os, time
from pathlib import Path
from pytest_dispatchguard.lint.processes.ready_process import Ahead
Ahead.begin(lambda: Path({str(tmp_path / "pid")!r}).write_text(str(os.getpid())))
while not Path({str(tmp_path / "pid")!r}).exists():
    time.sleep(0.01)
os.kill(os.getpid(), {int(signal.SIGKILL)})
"""
    # Its output is open as long as anybody has it.
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGKILL


def test_what_is_written_is_written_once(tmp_path: Path) -> None:
    program = """
from pytest_dispatchguard.lint.processes.ready_process import Ahead
print("before")
ahead = Ahead.begin(lambda: None)
assert list(ahead.map(print, ["within"])) == [None]
ahead.close()
print("after")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("before\nwithin\nafter\n", "")


def test_there_is_none_where_threads_are() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert Ahead.begin(lambda: None) is None
    finally:
        stop.set()
        thread.join()


def test_a_pool_has_it_do_few_items_that_are_meant_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_dispatchguard.lint.processes.workers.default_jobs", lambda: 2)
    for jobs, ready in ((1, True), (2, False), (2, True)):
        with Pool(jobs) as pool:
            pool.get_ready(lambda: None)
            mapped = list(pool.map(where, [1, 2], worth=12, most=2, ready=ready))
        here = jobs == 1 or not ready
        assert mapped == [(1, here), (2, here)]


def test_a_pool_of_one_processor_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_dispatchguard.lint.processes.workers.default_jobs", lambda: 1)
    with Pool(2) as pool:
        pool.get_ready(lambda: None)
        assert list(pool.map(where, [1], worth=12, most=1, ready=True)) == [(1, True)]
