"""What all tests share: pytester, and the flags that load the plugin."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def plugin_flags() -> tuple[str, ...]:
    """How pytest comes to know the plugin: by itself where it is installed, by ``-p`` where not."""
    if any(point.name == "dispatchguard" for point in entry_points(group="pytest11")):
        return ()
    return ("-p", "pytest_dispatchguard.plugin")
