"""Which findings are reported, and which of them fail a run, by how certain they are."""

from __future__ import annotations

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.model.findings import Finding


def is_shown(config: Config, finding: Finding) -> bool:
    """Whether the settings let a finding be shown: a "maybe" with `pedantic`, a note unless notes are off."""
    if finding.certainty == "note":
        return config.notes is not False
    return config.pedantic or finding.certainty == "sure"


def is_failure(config: Config, finding: Finding) -> bool:
    """Whether a finding fails a run; notes do so with `strict`."""
    return config.strict or finding.certainty != "note"
