"""Tries changes in copies of the work tree, and keeps those that tests and measurements prove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_dispatchguard.verify.trying import verified as verified


def __getattr__(name: str) -> Any:
    # A run of pytest in a copy imports a plugin from here, and nothing else.
    if name == "verified":
        from pytest_dispatchguard.verify.trying import verified

        return verified
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
