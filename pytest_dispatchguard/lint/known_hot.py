"""What the rules say of single lines that are known to be hot, because a test ran them."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pytest_dispatchguard.lint.check import check
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.model.findings import Finding

_ALL_HOT = '[tool.dispatchguard]\nhot-roots = ["*"]\n'


def findings_on(lines: Iterable[tuple[str, int]]) -> list[Finding]:
    """Findings on the lines of files, each file read by itself with all that it holds taken for hot. Files
    that cannot be read, or are no Python, have none."""
    wanted: defaultdict[str, set[int]] = defaultdict(set)
    for path, line in lines:
        if path.endswith(".py") and Path(path).is_file():
            wanted[path].add(line)
    found: list[Finding] = []
    for path, numbers in wanted.items():
        with tempfile.TemporaryDirectory(prefix="dispatchguard-") as folder:
            # Apart from its project, whose other files need not be read for a few lines.
            alone = Path(folder).resolve() / Path(path).name
            try:
                shutil.copyfile(path, alone)
                (alone.parent / "pyproject.toml").write_text(_ALL_HOT, encoding="utf-8")
                told = check(Request((alone,), alone.parent, cache=False)).report.findings
            except Exception:  # noqa: BLE001 - advice beside a failure is not worth a second one
                continue
        found += [
            replace(finding, path=path)
            for finding in told
            if numbers & set(range(finding.span.line, finding.span.end_line + 1))
        ]
    return found
