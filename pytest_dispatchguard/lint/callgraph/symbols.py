"""What names stand for."""

from __future__ import annotations

from typing import NamedTuple


class Symbol(NamedTuple):
    """What a name stands for.

    `kind` is ``function``, ``class`` or ``instance`` (of a class), with an id of the project such as
    ``pkg.module:Class.method``; ``module``, ``external`` (of a library) or ``external-instance``, with a
    dotted name, the last one with that of its class.
    """

    kind: str
    id: str
    virtual: bool = False
    """Whether an instance may belong to a subclass."""


Symbols = tuple[Symbol, ...]
Name = tuple[str, str]
"""A module and a name in it, or a dotted name and the module that imports it."""
