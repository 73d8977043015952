"""A name for each finding that stays the same when lines above it come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

from pytest_dispatchguard.model.findings import Finding


def fingerprints(findings: Sequence[Finding]) -> list[str]:
    """One for each finding, in their order, no two alike.

    Made from rule, path, function and source text; what is alike in all four is told apart by
    which of them comes first, so the findings are to be in the order of their places.
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
