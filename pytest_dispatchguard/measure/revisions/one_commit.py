"""Counts one test in the commit that is checked out, in a process of its own, as the project may be
dispatchguard itself."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LONGEST = 1800
"""Seconds that one test may take."""


def counted(plan: Mapping[str, Any]) -> tuple[dict[str, dict[str, int]], str]:
    """The counters of the test's subjects by name, and the reason if there are none."""
    with tempfile.TemporaryDirectory(prefix="dispatchguard-count-") as folder:
        file = Path(folder, "verdicts.json")
        try:
            done = subprocess.run(
                [*plan["command"], f"--overhead-json={file}"],
                cwd=plan["folder"],
                env=plan["environment"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=_LONGEST,
            )
        except subprocess.TimeoutExpired:
            return {}, f"pytest was not done after {_LONGEST // 60} minutes"
        try:
            rows = json.loads(file.read_text(encoding="utf-8"))["tests"]
        except (OSError, ValueError, KeyError):
            rows = []
    found = {
        row["subject"]: row["counters"]
        for row in rows
        if row["nodeid"] == plan["nodeid"] and row["counters"]
    }
    return found, "" if found else _why(rows, done)


def _why(rows: list[Any], done: subprocess.CompletedProcess[bytes]) -> str:
    others = sorted({row["nodeid"] for row in rows if row["counters"]})
    if others:
        return f"there it is {', '.join(others[:3])}{' …' if len(others) > 3 else ''}"
    reasons = [row["reason"].splitlines()[0] for row in rows if row["reason"]]
    out, err = (
        text.decode(errors="replace").strip().splitlines() for text in (done.stdout, done.stderr)
    )
    errors = [line for line in out + err if line.startswith(("ERROR", "E  ", "FAILED"))]
    # The last line of stdout comes before that of stderr, which may be a warning.
    told = [*reasons, *errors, *out[-1:], *err[-1:]]
    return told[0].strip() if told else f"pytest ended with {done.returncode}"
