"""What a third party can add, as pluggy hooks: packs of rules, and knowledge about libraries.

A pack is a pip package with an entry point in the group ``dispatchguard`` that names a module (or object)
with implementations of these hooks, each marked with `hookimpl`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.judge.rule import Rule

PROJECT = "dispatchguard"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def dispatchguard_rules() -> Iterable[type[Rule]]:  # type: ignore[empty-body]  # a spec has no body
    """The rule classes of this pack."""


@hookspec
def dispatchguard_hot_roots() -> Mapping[str, Iterable[str]]:  # type: ignore[empty-body]  # a spec has no body
    """Hot methods by dotted base class: ``{"mylib.Layer": ["run"]}``. Subclasses inherit them."""


@hookspec
def dispatchguard_specimens() -> Path:  # type: ignore[empty-body]  # a spec has no body
    """The folder of the pack's specimens, ``CODE/specimen*.py`` in it, for `dispatchguard price`."""


@hookspec
def dispatchguard_prices() -> Path:  # type: ignore[empty-body]  # a spec has no body
    """What the patterns of the pack's rules cost: a file that `dispatchguard price` has written."""
