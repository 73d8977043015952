"""The pool gives results in order, in this process or in others, and ends its workers."""

from __future__ import annotations

import os
import time

import pytest

from pytest_dispatchguard.lint.processes.workers import Pool, default_jobs
from pytest_dispatchguard.model.errors import UserError


def twice(number: int) -> int:
    return number * 2


def where(_: int) -> int:
    time.sleep(0.002)
    return os.getpid()


def fail(number: int) -> int:
    if number == 30:
        raise ValueError("thirty")
    return number


def die(number: int) -> int:
    if number == 3:
        os._exit(7)
    return number


@pytest.mark.parametrize("jobs", [1, 2, pytest.param(10_000, marks=pytest.mark.thorough)])
def test_results_come_in_order(jobs: int) -> None:
    with Pool(jobs) as pool:
        for _ in range(2):
            assert list(pool.map(twice, iter(range(50)), worth=2, most=50)) == list(
                range(0, 100, 2)
            )


def test_few_items_are_not_worth_a_process() -> None:
    with Pool(2) as pool:
        assert set(pool.map(where, [1, 2], worth=3, most=5)) == {os.getpid()}
        assert os.getpid() not in set(pool.map(where, list(range(40)), worth=3, most=40))


def test_an_error_in_a_worker_is_raised_here() -> None:
    with Pool(2) as pool, pytest.raises(ValueError, match="thirty"):
        list(pool.map(fail, iter(range(50)), worth=2, most=50))


def test_a_worker_that_dies_is_told() -> None:
    with Pool(2) as pool, pytest.raises(UserError, match="worker process died"):
        list(pool.map(die, iter(range(50)), worth=2, most=50))


def test_there_is_a_processor() -> None:
    assert default_jobs() >= 1


def test_a_process_with_threads_is_not_forked() -> None:
    words = ["a" * number for number in range(50)]
    with Pool(2, threads=True) as pool:
        assert list(pool.map(len, words, worth=2, most=50)) == list(range(50))
        assert pool.works
