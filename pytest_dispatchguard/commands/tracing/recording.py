"""Keeps which functions of a project ran in traces, for the linter to read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pytest_dispatchguard.commands.options import working_folder
from pytest_dispatchguard.model.traces import Trace


def record(traces: Iterable[Trace], project: Path, config_file: Path | None = None) -> str:
    """Adds what ran to the recorded profile of the project around a place, as `pytest --overhead-record`
    does. Gives what there is to say of it."""
    from pytest_dispatchguard.lint.observed import read_config
    from pytest_dispatchguard.lint.sources.files import Source, read_source
    from pytest_dispatchguard.pytest_run.recording import keep, said
    from pytest_dispatchguard.traced.ran import profile_of

    root = read_config(project, working_folder(), config_file).root

    def text_of(rel: str) -> str | None:
        found = read_source(root / rel, rel)
        return found.text if isinstance(found, Source) else None

    keep(root, profile_of(traces, text_of))
    return said(root)
