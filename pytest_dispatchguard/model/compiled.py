"""What torch.compile made of a call: guards, graph breaks and recompiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_dispatchguard.model.measurements import Interval


@dataclass(frozen=True, slots=True)
class Guards:
    """Checks before compiled code is run, of one kind and one line, that differ in an index alone."""

    kind: str
    """As torch calls it: ``EQUALS_MATCH``."""
    source: str
    """What the first of them checks: ``L['self'].layers[0].scale``; empty for the ambient state, such as grad
    mode."""
    pattern: str
    """The same with stars for the indices."""
    number: int = 1
    place: str = ""
    """The line that made torch check it, ``net.py:12 in forward``; empty where torch does not say."""
    text: str = ""
    """Of that line."""
    last: str = ""
    """What the last of them checks; empty where there is one."""
    extra: int | None = None
    """How many of them its base does not have; None where there is no base."""


@dataclass(frozen=True, slots=True)
class CompileEvent:
    """A graph break or a recompile: where, and why, as torch has it."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """What torch made of a subject that runs compiled code."""

    guards: tuple[Guards, ...] = ()
    """The most numerous first."""
    breaks: tuple[CompileEvent, ...] = ()
    recompiles: tuple[CompileEvent, ...] = ()
    compile_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds by part of the compiler."""
    guard_us: Interval | None = None
    """What checking the guards takes; None where that was not measured."""


@dataclass(frozen=True, slots=True)
class GuardGroup:
    """Guards that one thing of the user's makes, and what checking them takes."""

    cause: str
    """In words: ``module attribute``, ``argument``."""
    name: str
    """Which: ``L['self'].layers[*].scale``; empty where there is one of the kind."""
    number: int
    kinds: Mapping[str, int]
    places: tuple[str, ...] = ()
    """Lines that made torch check them."""
    cost_us: Interval | None = None
    """What they add to a check of all guards, by turns with one without them; None where that was not
    measured."""
    advice: tuple[str, ...] = ()
    """Changes that would remove them."""


@dataclass(frozen=True, slots=True)
class GuardFilter:
    """A filter that torch offers, applied."""

    name: str
    left: int
    """Guards that it keeps."""
    saves_us: Interval | None
    unseen: str
    """What may then change without notice."""


@dataclass(frozen=True, slots=True)
class GuardedCode:
    """A compiled function, and what is checked before its compiled code is run."""

    function: str
    path: str
    line: int
    number: int
    """Of guards."""
    cost_us: Interval | None
    """What checking all of them takes."""
    groups: tuple[GuardGroup, ...]
    filters: tuple[GuardFilter, ...]
    note: str = ""
    """Why nothing was measured; empty where it was."""
