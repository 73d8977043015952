"""Passes the data of coverage.py from a forked child to the process that writes the report."""

from __future__ import annotations

import base64
import sys
from typing import Any


def begin_anew() -> None:
    """In a child: collects data in memory from now on, not in the files of the parent."""
    collector = _collector()
    if collector is None:
        return
    from coverage import CoverageData

    context = collector.covdata._current_context
    collector.covdata = CoverageData(no_disk=True)
    collector.covdata.set_context(context)


def handed() -> str:
    """In a child: returns the data as text."""
    collector = _collector()
    if collector is None:
        return ""
    collector.flush_data()
    return base64.b64encode(collector.covdata.dumps()).decode()


def take(text: str) -> None:
    """Adds the data of a child."""
    collector = _collector()
    if collector is None or not text:
        return
    from coverage import CoverageData

    found = CoverageData(no_disk=True)
    found.loads(base64.b64decode(text))
    collector.flush_data()
    collector.covdata.update(found)


def _collector() -> Any:
    """The collector of coverage.py; None if it does not run, or has other internals."""
    coverage = sys.modules.get("coverage")
    current = None if coverage is None else coverage.Coverage.current()
    collector = getattr(current, "_collector", None)
    return collector if hasattr(collector, "covdata") else None
