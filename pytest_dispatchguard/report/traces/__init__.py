"""Traces, as they are told; one module a format, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from pytest_dispatchguard.model.trace_changes import TraceComparison
from pytest_dispatchguard.model.traces import Told
from pytest_dispatchguard.report.traces.options import Options

FORMATS = {"text": "text", "json": "json_", "markdown": "markdown", "html": "html"}
"""The name of a format -> the module here that writes it."""


class Format(Protocol):
    """What each module of a format offers."""

    def render(
        self, told: Sequence[Told], comparison: TraceComparison | None, options: Options
    ) -> str:
        """The traces as text that ends in a newline."""
        ...


def render(
    told: Sequence[Told], comparison: TraceComparison | None, format: str, options: Options
) -> str:
    """Writes traces, and what two of them differ in, in one of `FORMATS`."""
    module = cast(Format, import_module(f".{FORMATS[format]}", __name__))
    return module.render(told, comparison, options)
