"""What came of changes that were verified, for reading and for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from pytest_dispatchguard.model.reviews import Verification
from pytest_dispatchguard.report.verified import json_, tables

FORMATS = ("text", "json", "markdown")


def render(found: Verification, form: str, machine: Mapping[str, str], *, color: bool) -> str:
    """The report in one of the formats."""
    ways: dict[str, Callable[[], str]] = {
        "text": partial(tables.as_text, found, color=color),
        "json": partial(json_.as_json, found, machine),
        "markdown": partial(tables.as_markdown, found, machine),
    }
    return ways[form]()
