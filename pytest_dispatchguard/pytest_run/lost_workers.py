"""What is lost with processes of pytest-xdist that end before they can hand over what they saw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_dispatchguard.model.reports import Missing


class Losses:
    """Keeps count of which process ran which tests, and which of them were not heard of."""

    def __init__(self) -> None:
        self._ran: dict[str, set[str]] = {}
        self._unheard: dict[str, None] = {}

    def ran(self, report: pytest.TestReport) -> None:
        """A test ran: pytest-xdist marks reports with the process that they come from."""
        node = getattr(report, "node", None)
        if node is not None:
            self._ran.setdefault(node.gateway.id, set()).add(report.nodeid)

    def crashed(self, report: pytest.TestReport) -> bool:
        """Whether this is the report that pytest-xdist makes of a test in which a process ended."""
        node = getattr(report, "node", None)
        if node is None or str(report.when) != "???":
            return False
        self.ran(report)
        self._unheard[node.gateway.id] = None
        return True

    def handed(self, node: Any, key: str) -> str | None:
        """What a process that ended hands over under a key; None where it did not come to that."""
        output: dict[str, str] = getattr(node, "workeroutput", {})
        if key not in output:
            self._unheard[node.gateway.id] = None
        return output.get(key)

    def found(self) -> tuple[Missing, ...]:
        """What is missing, by now."""
        from pytest_dispatchguard.model.reports import Missing

        return tuple(
            Missing(worker, len(self._ran[worker]))
            for worker in sorted(self._unheard)
            if worker in self._ran
        )


def fail_incomplete(session: pytest.Session, losses: Losses) -> None:
    """A run of which something is missing does not pass."""
    if losses.found() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
