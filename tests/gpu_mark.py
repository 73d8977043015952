"""The mark `gpu`: tests with it need CUDA, and `make gpu` runs them."""

from __future__ import annotations

from collections.abc import Generator
from functools import cache

import pytest

NO_CUDA = "no cuda device here"


def skip_without_cuda(item: pytest.Item) -> None:
    """Skips a test with the mark where there is no CUDA."""
    if item.get_closest_marker("gpu") is not None and not _has_cuda():
        pytest.skip(NO_CUDA)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """`make gpu` finds the tests that need CUDA by their mark: none may skip for its want without."""
    report = yield
    marked = item.get_closest_marker("gpu") is not None
    if report.skipped and NO_CUDA in str(report.longrepr) and not marked:
        report.outcome = "failed"
        report.longrepr = f"skipped for want of CUDA: mark it gpu, for `make gpu` ({item.nodeid})"
    return report


@cache
def _has_cuda() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())
