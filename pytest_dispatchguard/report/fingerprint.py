"""An identifier for each finding that stays the same when lines above it are added or removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

from pytest_dispatchguard.model.findings import Finding


def fingerprints(findings: Sequence[Finding]) -> list[str]:
    """One per finding, in order, all different.

    Made from rule, path, function and source text. If all four are equal, findings are numbered, so they
    must be sorted by position.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    names = []
    for finding in findings:
        text = " ".join(finding.source.split()) or finding.message
        key = (finding.code, finding.path, finding.function, text)
        parts = (*key, str(seen[key]))
        seen[key] += 1
        names.append(sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32])
    return names
