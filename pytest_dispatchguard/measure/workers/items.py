"""What workers ask of pytest's tests."""

from __future__ import annotations

import pytest


def node_id_of(item: pytest.Item) -> str:
    """The node id of a test, without the group that pytest-xdist appends."""
    if not item.config.getoption("loadgroup", False):
        return item.nodeid
    node_id, at, group = item.nodeid.rpartition("@")
    mark = item.get_closest_marker("xdist_group")
    return node_id if at and mark is not None and group in map(str, _words(mark)) else item.nodeid


def _words(mark: pytest.Mark) -> tuple[object, ...]:
    return (*mark.args, *mark.kwargs.values())


def is_measured(item: pytest.Item) -> bool:
    """Whether a test may name subjects."""
    return (
        "overhead" in getattr(item, "fixturenames", ())
        or item.get_closest_marker("overhead_budget") is not None
    )


def tear_down(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Tears down fixtures of earlier tests in this process that the next test does not need."""
    call = pytest.CallInfo.from_call(
        lambda: item.session._setupstate.teardown_exact(nextitem),
        "teardown",
        reraise=(pytest.exit.Exception, KeyboardInterrupt),
    )
    if call.excinfo is not None:
        report = item.ihook.pytest_runtest_makereport(item=item, call=call)
        item.ihook.pytest_runtest_logreport(report=report)
