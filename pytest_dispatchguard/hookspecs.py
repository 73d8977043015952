"""What a third party can add, as pluggy hooks: packs of rules, and knowledge about libraries.

A pack is a pip package with an entry point in the group ``dispatchguard`` that names a module (or object)
with implementations of these hooks, each marked with `hookimpl`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.rule import Rule

PROJECT = "dispatchguard"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def dispatchguard_rules() -> Iterable[type[Rule]]:  # type: ignore[empty-body]  # a spec has no body
    """The rule classes of this pack."""


@hookspec
def dispatchguard_hot_roots() -> Mapping[str, Iterable[str]]:  # type: ignore[empty-body]  # a spec has no body
    """Hot methods by dotted base class: ``{"mylib.Layer": ["run"]}``. Subclasses inherit them."""
