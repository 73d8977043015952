"""Writes fixed files to disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_dispatchguard.lint.sources.files import (
    Discovery,
    Source,
    leads_out,
    read_source,
    write_source,
)
from pytest_dispatchguard.model.errors import UserError


def write_fixes(
    root: Path, discovery: Discovery, before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, str]:
    """Write fixed files, each whole or not at all. Return a line for each that could not be written."""
    files = {f.rel: f for f in discovery.targets}
    failed: dict[str, str] = {}
    for rel, text in after.items():
        source = read_source(files[rel].path, rel)
        if not isinstance(source, Source) or source.text != before[rel]:
            failed[rel] = f"{rel}: changed while it was being fixed, so not written; run again"
            continue
        if leads_out(files[rel], root):
            failed[rel] = (
                f"{rel}: a link that leads out of the project, so not written; fix the file there"
            )
            continue
        try:
            write_source(files[rel].path, source.encode(text))
        except UserError as error:
            failed[rel] = str(error)
    return failed
