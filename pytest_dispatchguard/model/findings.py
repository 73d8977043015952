"""What the linter finds: places, why they are hot, what they cost, and fixes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Certainty = Literal["sure", "note", "maybe"]
"""How a finding is told. ``sure``: hot, certain, and known how to avoid. ``note``: certainly a cost where
it stands, but what to do is the author's to decide, or only users of the library make the place hot.
``maybe``: what a value is could not be told."""
_LEVELS: Mapping[Certainty, int] = {"sure": 0, "note": 1, "maybe": 2}
Safety = Literal["safe", "unsafe"]
ROUNDS = 10
"""What a loop counts for where nobody saw how many rounds it has."""
_WAIT_US = 1e6
_TRACED_US = 1e12
SCHEMA = 1
"""The number of the JSON layout that findings are written in. Fields are added, never renamed."""


def weaker(a: Certainty, b: Certainty) -> Certainty:
    """The level of what is no more certain than either."""
    return max(a, b, key=_LEVELS.__getitem__)


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A piece of a file: lines and columns count from 1, columns count characters, the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int

    def overlaps(self, other: Span) -> bool:
        """Whether two spans share a character, or insert at the same place."""
        if self == other:
            return True
        return (self.line, self.column) < (other.end_line, other.end_column) and (
            other.line,
            other.column,
        ) < (self.end_line, self.end_column)


IMPORTS = Span(0, 1, 0, 1)
"""Stands for a file's place for imports in an edit, until that is known."""
DEFINITIONS = Span(0, 2, 0, 2)
"""The same for definitions at module level: before the first function or class."""
ATTRIBUTES = Span(0, 3, 0, 3)
"""Stands for no place: an attribute, ``Class.name``, that a class always sets when it is made, or there is no
fix."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement of text in one file."""

    path: str
    span: Span
    replacement: str


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that belong together: all are made, or none."""

    safety: Safety
    message: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Price:
    """What a pattern costs over its fix at each call, and where that was measured."""

    us: float | None
    """Microseconds on the host, of the usual form; None where it waits for a device, and there was none to
    time."""
    low: float | None = None
    """Of the cheapest form that was measured, at least."""
    high: float | None = None
    """Of the dearest, at most."""
    machine: str = ""
    """Empty for the one that runs."""
    waits: int = 0
    """How often it makes the host wait for the device."""
    dry: Price | None = None
    """What it costs in places that wait for nothing, where it waits in others; None where that was not
    measured."""


@dataclass(frozen=True, slots=True)
class Hot:
    """Why a place is hot: the root that reaches it, and the functions on the way (root first, the place
    last)."""

    root: str
    path: tuple[str, ...]
    reason: str
    """What makes the root a root, in words: ``forward of a torch.nn.Module``."""
    loop: bool = False
    """Whether the place runs in a loop of a hot function, or the way to it passes through one."""
    per: Literal["call", "step"] = "call"
    seen: float | None = None
    """Calls per call of the root, from a recorded profile."""
    users: bool = False
    """Whether nothing hot in the project calls the root: users of the library do, or a decorator tells."""


@dataclass(frozen=True, slots=True)
class HotPlace:
    """A hot function, and why it is hot."""

    path: str
    line: int
    function: str
    hot: Hot
    only_loops: bool = False
    """Only the loops inside it are hot."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How often a place was seen to wait while a program ran, in one of its loops."""

    times: int
    rounds: int = 0
    """Of the loop; 0 where these are not known, and outside of loops."""
    loop: str = ""
    """Where it begins, ``train.py:21``; empty outside of loops."""
    steps: bool = False
    """Whether the rounds are steps of an optimizer."""


@dataclass(frozen=True, slots=True)
class Traced:
    """How long the host waited at a place while a trace was recorded."""

    us: float
    """In a step, the mean."""
    times: float
    """Waits in a step, the mean."""
    idle_us: float
    """For how much of a step the device was idle because of it."""
    device: str = ""
    """What was waited for: ``NVIDIA A100-SXM4-80GB``; empty where the trace does not say."""
    steps: int = 0
    """Of the trace; 0 where it has none, and the figures are those of the whole trace."""
    shared: int = 1
    """Findings that the trace cannot tell apart: one of them made the host wait so long, or all together."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Where a pattern stands, when it is told at the call that made its function hot."""

    path: str
    span: Span
    function: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A place in a notebook, as those who have it open see it."""

    number: int
    """From 1, all kinds of cells counted."""
    line: int
    """In the cell, from 1."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A place, what is wrong there, why it is hot, what it costs, and perhaps a fix."""

    code: str
    rule: str
    path: str
    """Relative to the project root, forward slashes."""
    span: Span
    function: str
    """Qualified name inside the file, ``Dense.call``; empty where there is none."""
    message: str
    certainty: Certainty = "sure"
    hot: Hot | None = None
    price: Price | None = None
    fix: Fix | None = None
    source: str = ""
    """The text of the first line of the place, for reports and baselines."""
    elsewhere: Elsewhere | None = None
    """Where the pattern is; None where it is at the place itself."""
    dry: bool | None = False
    """Whether the host waits for nothing here, though the pattern can make it wait; None where that is not
    known."""
    ran: tuple[Ran, ...] = ()
    """Where it waited while a program ran, loop by loop; empty for what was read, or ran in tests."""
    cell: Cell | None = None
    """Where in a notebook; None in all other files."""
    traced: Traced | None = None
    """How long it took in a trace; None where no trace tells."""

    @property
    def sort_key(self) -> tuple[str, int, int, str, str]:
        """Findings are told in this order, unless they are ranked."""
        return (self.path, self.span.line, self.span.column, self.code, self.message)

    @property
    def times(self) -> float:
        """How often the place runs in one call of its root, as far as is known: a loop has one round at
        least."""
        return 1.0 if self.hot is None or not self.hot.seen else self.hot.seen

    @property
    def rank(self) -> float:
        """By what those that cost most come first. Loops count for `ROUNDS` rounds, and waits for more than
        anything on the host; what was measured in a trace comes before all that was not."""
        return self.us if self.traced is None else _TRACED_US + self.us

    @property
    def us(self) -> float:
        """What it costs, in microseconds: measured in a trace, else estimated."""
        if self.traced is not None:
            return self.traced.us
        if self.price is None:
            return 0.0
        rounds = ROUNDS if self.hot is not None and self.hot.loop and not self.hot.seen else 1
        us = _WAIT_US * self.price.waits + (self.price.us or 0.0)
        return us * self.times * rounds


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """What reports tell of a rule: enough for SARIF's rule table, no code."""

    code: str
    name: str
    summary: str
    """One line."""
    help: str
    """Markdown, the rule's whole page."""
    fix: Literal["safe", "unsafe", "none"]
    origin: str
    default: bool = True
    """False for rules that speak only when selected by their code."""
    running: bool = False
    """Whether only running code tells."""
    price: Price | None = None
    """What the pattern costs, as its pack says; None where that was not measured."""


def tally(findings: Iterable[Finding]) -> str:
    """How many there are: ``10 findings and 1 note``."""
    levels = ["note" if finding.certainty == "note" else "finding" for finding in findings]
    counted = [
        f"{levels.count(word)} {word}{'' if levels.count(word) == 1 else 's'}"
        for word in ("finding", "note")
        if word in levels
    ]
    return " and ".join(counted) or "0 findings"
