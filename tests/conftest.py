"""What all tests share: pytester, and the flags that load the plugin."""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test may fail because a machine is slow.
settings.register_profile("any pace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any pace")

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> None:
    """What tests are made of, and what they imported up to here, is no garbage: nobody need look through it
    again and again."""
    gc.collect()
    gc.freeze()


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


@pytest.fixture
def run_pytest(
    pytester: pytest.Pytester, plugin_flags: tuple[str, ...]
) -> Callable[..., pytest.RunResult]:
    """Runs pytest with the plugin, in a process of its own."""
    return lambda *words: pytester.runpytest_subprocess(
        *plugin_flags, "-p", "no:cacheprovider", *words
    )
