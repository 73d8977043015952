"""An identifier for each finding that stays the same when lines above it are added or removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from pytest_dispatchguard.model.findings import Finding


def fingerprints(findings: Sequence[Finding]) -> list[str]:
    """One per finding, in order, all different.

    Made from rule, path, function and source text. If all four are equal, findings are numbered, so they
    must be sorted by position.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    # A generated line may have thousands of findings.
    texts: dict[str, str] = {}
    begun: dict[tuple[str, ...], Any] = {}
    names = []
    for finding in findings:
        source = finding.source
        if source not in texts:
            texts[source] = " ".join(source.split())
        key = (finding.code, finding.path, finding.function, texts[source] or finding.message)
        if key not in begun:
            begun[key] = sha256("\0".join((*key, "")).encode("utf-8", "surrogatepass"))
        digest = begun[key].copy()
        digest.update(str(seen[key]).encode())
        seen[key] += 1
        names.append(digest.hexdigest()[:32])
    return names
