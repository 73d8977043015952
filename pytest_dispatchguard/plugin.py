"""The pytest hooks and nothing else: every pytest run loads this module, so it imports nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_MARKER = (
    "overhead_budget(**limits): what a call may cost on the host, against a reference "
    "(ratio, microseconds) and in exact counters."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Open the group that the project's options are listed under in ``pytest --help``."""
    parser.getgroup("dispatchguard", "host overhead of PyTorch code (dispatchguard)")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, so that ``--strict-markers`` accepts it."""
    config.addinivalue_line("markers", _MARKER)
