"""Findings as text for people and programs; one module per format, imported when needed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Protocol, cast

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.report.options import Options, Sources

FORMATS: dict[str, str] = {
    "text": "formats.text",
    "json": "formats.json_",
    "sarif": "formats.sarif",
    "github": "formats.github",
    "gitlab": "formats.gitlab",
    "rdjson": "formats.rdjson",
    "markdown": "formats.markdown",
    "prompt": "formats.prompt",
    "html": "html.page",
}
"""The name of a format, and the module that writes it."""


class Format(Protocol):
    """The interface of a format module."""

    def render(self, report: Report, options: Options) -> str:
        """The report as text that ends in a newline, or nothing at all."""
        ...


def load(format: str) -> Format:
    """Import the module that writes a format."""
    try:
        module = FORMATS[format]
    except KeyError:
        raise UserError(f"unknown format {format!r}: choose one of {', '.join(FORMATS)}") from None
    return cast(Format, import_module(f".{module}", __name__))


def render(
    report: Report,
    format: str,
    *,
    color: bool = False,
    width: int = 100,
    sources: Sources | None = None,
    shown: Callable[[str], str] = str,
) -> str:
    """Write a report in one of ``FORMATS``; the same report gives the same text.

    ``sources`` returns the text of a file by its path, for source lines under findings, diffs of fixes
    and byte columns. ``shown`` says how the text for people names a file.
    """
    return load(format).render(report, Options(color, width, sources, shown))
