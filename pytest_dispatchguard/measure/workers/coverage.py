"""What coverage.py sees in a forked child, handed to the process that writes the report."""

from __future__ import annotations

import base64
import sys
from typing import Any


def begin_anew() -> None:
    """In a child: has what runs from now on kept in memory, and not in the files of the other process."""
    collector = _collector()
    if collector is None:
        return
    from coverage import CoverageData

    context = collector.covdata._current_context
    collector.covdata = CoverageData(no_disk=True)
    collector.covdata.set_context(context)


def handed() -> str:
    """In a child: what ran, as text."""
    collector = _collector()
    if collector is None:
        return ""
    collector.flush_data()
    return base64.b64encode(collector.covdata.dumps()).decode()


def take(text: str) -> None:
    """Adds what a child ran."""
    collector = _collector()
    if collector is None or not text:
        return
    from coverage import CoverageData

    found = CoverageData(no_disk=True)
    found.loads(base64.b64decode(text))
    collector.flush_data()
    collector.covdata.update(found)


def _collector() -> Any:
    """What coverage.py keeps what runs in; None where it does not run, or is not as it was known."""
    coverage = sys.modules.get("coverage")
    current = None if coverage is None else coverage.Coverage.current()
    collector = getattr(current, "_collector", None)
    return collector if hasattr(collector, "covdata") else None
