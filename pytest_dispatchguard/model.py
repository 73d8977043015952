"""The words of the project as frozen dataclasses: findings, fixes, prices, heat. Imports nothing of ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Certainty = Literal["sure", "note", "maybe"]
"""How a finding is told. ``sure``: hot, certain, and known how to avoid. ``note``: certainly a cost where
it stands, but what to do is the author's to decide, or only users of the library make the place hot.
``maybe``: what a value is could not be told."""
_LEVELS: Mapping[Certainty, int] = {"sure": 0, "note": 1, "maybe": 2}
Safety = Literal["safe", "unsafe"]
Outcome = Literal["pass", "fail", "undecided", "skipped", "error"]

LayerKind = Literal[
    "python",
    "override",
    "context",
    "binding",
    "autograd",
    "tracking",
    "dispatcher",
    "allocation",
    "kernel",
    "frame",
    "guards",
    "wrapper",
    "compiled",
]
"""What a part of a call is made of."""

ROUNDS = 10
"""What a loop counts for where nobody saw how many rounds it has."""
_WAIT_US = 1e6

SCHEMA = 1
"""The number of the JSON layout that findings are written in. Fields are added, never renamed."""


class UserError(Exception):
    """Something the user can mend: shown as one line on stderr, exit status 2. The message says what to
    do."""


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
    """Whether only users of the library call the root, so far as the project tells."""


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
        anything on the host."""
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


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers under a report."""

    files: int = 0
    functions: int = 0
    hot_functions: int = 0
    suppressed: int = 0
    baselined: int = 0
    fixed: int = 0
    unheard: int = 0
    """What is only maybe so, and told with `--pedantic`."""
    unnoted: int = 0
    """Notes that are not told, because nobody wants notes."""
    cheap: int = 0
    """What costs less than is asked for."""


@dataclass(frozen=True, slots=True)
class OperationsAt:
    """What a line of code asked of torch's dispatcher while it was watched."""

    path: str
    line: int
    function: str
    """Qualified; empty for a module's own code."""
    calls: int
    """Of the function."""
    operations: Mapping[str, int]
    """How often each ran, in all calls."""
    seen: tuple[str, ...] = ()
    """What else was seen of the line."""
    backward: int = 0
    """Operations of a backward pass that the line began."""
    results: int = 0
    """Results whose end was awaited."""
    dropped: int = 0
    """Of these, those that nobody used."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What there is to say of the line."""
        backward = [f"{self.backward} of them in the backward pass"] if self.backward else []
        unused = bool(self.results) and self.dropped == self.results
        return (*backward, *(["the result is dropped unused"] if unused else []), *self.seen)

    @property
    def total(self) -> int:
        """All operations, in all calls."""
        return sum(self.operations.values())

    @property
    def sort_key(self) -> tuple[int, str, int]:
        """Those that ask most come first."""
        return -self.total, self.path, self.line

    def joined(self, other: OperationsAt) -> OperationsAt:
        """What both saw of one line."""
        names = (*self.operations, *other.operations)
        return OperationsAt(
            self.path,
            self.line,
            self.function,
            self.calls + other.calls,
            {n: self.operations.get(n, 0) + other.operations.get(n, 0) for n in names},
            tuple(dict.fromkeys((*self.seen, *other.seen))),
            self.backward + other.backward,
            self.results + other.results,
            self.dropped + other.dropped,
        )


def together(seen: Iterable[OperationsAt]) -> list[OperationsAt]:
    """One for each line, those that ask most first."""
    found: dict[tuple[str, int, str], OperationsAt] = {}
    for at in seen:
        key = (at.path, at.line, at.function)
        found[key] = found[key].joined(at) if key in found else at
    return sorted(found.values(), key=lambda at: at.sort_key)


def with_remarks(
    lines: Iterable[OperationsAt], remarks: Iterable[OperationsAt]
) -> list[OperationsAt]:
    """Lines with what else is said of them, and those of which nothing but that is known."""
    found = {(at.path, at.line, at.function): at for at in lines}
    calls = {(at.path, at.function): at.calls for at in found.values()}
    for said in remarks:
        key = (said.path, said.line, said.function)
        known = found.get(key)
        if known is None:
            often = calls.get((said.path, said.function), said.calls)
            found[key] = replace(said, calls=often)
        else:
            found[key] = replace(known, seen=(*known.seen, *said.seen))
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Missing:
    """A process that ran tests and ended before it could tell of them."""

    worker: str
    tests: int
    """Of which there is no record."""

    def said(self) -> str:
        """In a line."""
        tests = "1 test" if self.tests == 1 else f"{self.tests} tests"
        return f"{self.worker} ended before it could tell: {tests} that ran there left no record"


@dataclass(frozen=True, slots=True)
class Report:
    """All that a lint run has to tell: what every report format is made from."""

    findings: tuple[Finding, ...]
    summary: Summary
    rules: tuple[RuleInfo, ...]
    version: str
    notes: tuple[str, ...] = field(default=())
    """Lines for people that are no findings: stale baseline entries, files passed over."""
    operations: tuple[OperationsAt, ...] | None = None
    """What lines asked of the dispatcher; None where nobody wanted to know."""
    ranked: bool = False
    """Whether the findings are in the order of what they cost, the dearest first."""
    most_notes: int | None = None
    """How many notes a page for people shows; None for all."""
    missing: tuple[Missing, ...] = ()
    """What of a run that was watched is not in it."""

    def of(self, *levels: Certainty) -> tuple[Finding, ...]:
        """The findings of some levels, in order."""
        return tuple(f for f in self.findings if f.certainty in levels)


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a call may cost, in one figure."""

    name: str
    value: float
    tolerance: float = 0
    recorded: bool = False
    """Whether the budget file says so, and no marker or setting."""

    @property
    def said(self) -> str:
        """The limit in words."""
        return f"{'recorded' if self.recorded else 'allowed'} {self.shown}"

    @property
    def most(self) -> float:
        """What is just allowed."""
        return self.value + self.tolerance

    @property
    def shown(self) -> str:
        """The limit as people write it."""
        parts = (self.value, self.tolerance) if self.tolerance else (self.value,)
        return " + ".join(str(int(p)) if p == int(p) else f"{p:g}" for p in parts)


@dataclass(frozen=True, slots=True)
class Interval:
    """A measured figure, and what it lies between as surely as was asked."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Interval:
        """So many times the figure; the factor is above 0."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class Priced:
    """One specimen, measured."""

    code: str
    specimen: str
    """The name of its file: `specimen_pair`."""
    bad_us: Interval | None = None
    """A call of the bad form; None where it was not timed."""
    saves_us: Interval | None = None
    """What the good form takes less."""
    waits: tuple[int, int] = (0, 0)
    """How often a call of either form makes the host wait for the device."""
    note: str = ""
    """Why something is missing, in words."""
    places: int = 1
    """In the bad form; all of them together make the difference."""

    @property
    def waiting(self) -> bool:
        """Whether the bad form makes the host wait more often."""
        return self.waits[0] > self.waits[1]

    @property
    def proven(self) -> bool:
        """Whether the good form surely costs less: on the host, or in waits."""
        cheaper = self.saves_us is not None and self.saves_us.low > 0
        return cheaper or self.waiting


@dataclass(frozen=True, slots=True)
class PriceTable:
    """All that was measured on one machine."""

    machine: Mapping[str, str]
    specimens: tuple[Priced, ...] = ()

    def prices(self) -> dict[str, Price]:
        """What each rule's pattern costs, by code."""
        found: dict[str, list[Priced]] = {}
        for one in self.specimens:
            found.setdefault(one.code, []).append(one)
        priced = {code: _price(forms, self._in_short) for code, forms in found.items()}
        return {code: price for code, price in sorted(priced.items()) if price is not None}

    @property
    def shown(self) -> str:
        """The machine in one line."""
        about = [
            f"{name} {self.machine[name]}" for name in ("python", "torch") if name in self.machine
        ]
        return ", ".join(filter(None, [self._in_short, *about]))

    @property
    def _in_short(self) -> str:
        return self.machine.get("cpu", "")


def _price(forms: Sequence[Priced], machine: str) -> Price | None:
    """One price of several forms of a pattern; None where no form is surely dearer than its good form."""
    dry = _on_host([one for one in forms if not one.waiting], machine)
    if any(one.waiting for one in forms):
        # A specimen may hold several places; each of them waits once whenever it runs, at least.
        return Price(None, machine=machine, waits=1, dry=dry)
    return dry


def _on_host(forms: Sequence[Priced], machine: str) -> Price | None:
    """What one place of such forms takes of the host's time."""
    saves = [
        one.saves_us.times(1 / one.places)
        for one in forms
        if one.saves_us is not None and one.proven
    ]
    if not saves:
        return None
    usual = sorted(one.value for one in saves)[(len(saves) - 1) // 2]
    return Price(
        usual,
        min(one.low for one in saves),
        max(one.high for one in saves),
        machine,
    )


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one call of a subject takes, from blocks of calls in all processes that measured it."""

    subject_us: Interval
    reference_us: Interval | None = None
    """None where the subject has no reference, as in the next three."""
    ratio: Interval | None = None
    extra_us: Interval | None = None
    device_us: Interval | None = None
    """How long the device works on it; None on the CPU."""
    control: float = 1.0
    """The reference against itself, from blocks among the others."""
    pairs: int = 0
    processes: int = 0
    grows: float = 0.0
    """By what part a call got slower while it was measured, the reference's pace taken off."""
    note: str = ""
    """What the device makes of the times, in words."""
    apart: float = 0.0
    """By how much the ratio (the time, where there is no reference) may be another in a run at another time,
    as a logarithm."""


@dataclass(frozen=True, slots=True)
class CostlyLine:
    """A line of source, and how many instructions of one call it answers for."""

    path: str
    line: int
    instructions: int
    text: str = ""
    extra: int | None = None
    """How many of them its base does not run; None where there is no base."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A part of what one call takes."""

    name: str
    """``Dense.call``, `autograd`, `kernels`."""
    kind: LayerKind
    us: Interval
    depth: int = 0
    """How deep a Python function is nested in those before it."""
    times: int = 1
    """How often it runs in one call."""
    note: str = ""
    """What it consists of."""
    path: str = ""
    line: int = 0
    """Where a Python function begins; 0 for what has no source."""

    @property
    def called(self) -> str:
        """What people call it: ``with scope``, ``Sub.__torch_function__``."""
        return f"with {self.name}" if self.kind == "context" else self.name


@dataclass(frozen=True, slots=True)
class Layers:
    """Where the time of one call goes: parts that add up to the whole."""

    subject: str
    whole_us: Interval
    layers: tuple[Layer, ...]
    rounds: int
    """Blocks of each kind that took turns."""
    notes: tuple[str, ...] = ()
    """What could not be told apart, in words."""

    form: str = ""
    """How the call is made: ``f(a0, axis=k0)``."""
    torch_calls: Mapping[str, int] = field(default_factory=dict)
    """What it asks of torch, and how often."""
    functions: tuple[str, ...] = ()
    """The Python functions that it runs, also those too short to be told apart."""

    def at_pace(self, factor: float) -> Layers:
        """The same on a machine that takes so many times as long."""
        parts = tuple(replace(layer, us=layer.us.times(factor)) for layer in self.layers)
        return replace(self, whole_us=self.whole_us.times(factor), layers=parts)

    @property
    def sum_us(self) -> float:
        """What the parts come to."""
        return sum(layer.us.value for layer in self.layers)

    @property
    def shares(self) -> tuple[float, ...]:
        """What each part takes of the whole, from 0 to 1."""
        whole = self.whole_us.value
        return tuple(min(max(p.us.value / whole, 0.0), 1.0) if whole else 0.0 for p in self.layers)


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


@dataclass(frozen=True, slots=True)
class Base:
    """The same subject in another revision, or in a run of before."""

    name: str
    """``origin/main``, or what the run is called."""
    counters: Mapping[str, int]
    measured: Measurement | None = None
    """None where it was not timed."""
    change: Interval | None = None
    """How many times dearer the subject is than there, each held against its own reference."""
    note: str = ""
    """Why there is nothing to compare with; empty where there is."""
    lines: tuple[CostlyLine, ...] = ()
    layers: Layers | None = None
    """Where its time goes; None where nobody asked."""
    compiled: Compiled | None = None
    """None where it runs no compiled code."""
    earlier: bool = False
    """Whether it was measured at another time, in another run, and not by turns with what is held against
    it."""


@dataclass(frozen=True, slots=True)
class Sized:
    """What one call takes at one size."""

    size: int
    whole_us: Interval
    kernels_us: Interval | None = None
    """None where kernels could not be told apart."""
    ratio: Interval | None = None
    """How many times what its reference takes; None where there is none."""

    @property
    def overhead(self) -> float | None:
        """What part of a call is no kernel; None where that cannot be told."""
        if self.kernels_us is None or not self.whole_us.value:
            return None
        return min(1.0, max(0.0, 1 - self.kernels_us.value / self.whole_us.value))


@dataclass(frozen=True, slots=True)
class Scaling:
    """How a call grows with its size: what it takes whatever the size, and what comes on top."""

    subject: str
    sizes: tuple[Sized, ...]
    fixed_us: float | None = None
    """None where the times fit no such form."""
    slope_us: float = 0.0
    power: float = 1.0
    """A call of size n takes ``fixed_us + slope_us * n ** power``."""
    dominates: float | None = None
    """The size from which kernels take more than all else; None where they do at none that was measured, or
    cannot be told apart."""
    error: float = 0.0
    """By what part of a time the form is off, at most."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out for one subject of one test."""

    node_id: str
    subject: str
    verdict: Outcome
    counters: Mapping[str, int]
    limits: tuple[Limit, ...] = ()
    reason: str = ""
    """Why, in words; empty where there is nothing to say."""
    recorded: Mapping[str, float] | None = None
    """What the budget file has for it; None where it has nothing."""
    lines: tuple[CostlyLine, ...] = ()
    """Where a subject that costs too much spends it, the dearest first."""
    measured: Measurement | None = None
    """What it takes; None where only counters were asked for."""
    base: Base | None = None
    """What it is compared with; None where that was not asked for."""
    varying: tuple[str, ...] = ()
    """Counters that differ from call to call."""
    form: str = ""
    """How the call is made: ``f(a0, axis=k0)``."""
    layers: Layers | None = None
    """Where its time goes; None where nobody asked, as of a subject that keeps its budget."""
    reference_layers: Layers | None = None
    """The same of its reference."""
    compiled: Compiled | None = None
    """What torch compiled of it; None where it runs no compiled code."""


@dataclass(frozen=True, slots=True)
class CounterMove:
    """A counter of a subject that is not what it was."""

    name: str
    before: int
    now: int


@dataclass(frozen=True, slots=True)
class Checkout:
    """The state of the code that was measured."""

    commit: str = ""
    """Empty where there is no git."""
    branch: str = ""
    """Empty where none is checked out."""
    dirty: bool | None = None
    """Whether files that git knows were not as they are in the commit; None where nobody knows."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run of budgets: when, of what code, on what machine."""

    at: str
    """In UTC: ``2026-01-31T12:00:00.000000Z``."""
    machine: Mapping[str, str]
    checkout: Checkout = Checkout()

    @property
    def versions(self) -> dict[str, str]:
        """What counters hold for: all that is known but the processor."""
        return {name: version for name, version in self.machine.items() if name != "cpu"}


@dataclass(frozen=True, slots=True)
class Kept:
    """What a run found of one subject, as the history keeps it."""

    node_id: str
    subject: str
    verdict: Outcome
    counters: Mapping[str, int]
    reason: str = ""
    ratio: Interval | None = None
    """None where it was not measured, as in the next four."""
    host_us: Interval | None = None
    extra_us: Interval | None = None
    device_us: Interval | None = None
    reference_us: float | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One subject in one run."""

    run: Run
    kept: Kept

    def moved(self, before: Point | None) -> tuple[CounterMove, ...]:
        """The counters that are not what they were; none where they hold for other versions of Python and
        torch."""
        if before is None or before.run.versions != self.run.versions:
            return ()
        was = before.kept.counters
        return tuple(
            CounterMove(name, was[name], now)
            for name, now in self.kept.counters.items()
            if was.get(name, now) != now
        )


@dataclass(frozen=True, slots=True)
class Trend:
    """One subject from run to run, the oldest first; at least one."""

    points: tuple[Point, ...]

    @property
    def node_id(self) -> str:
        """The test."""
        return self.points[0].kept.node_id

    @property
    def subject(self) -> str:
        """Of the test."""
        return self.points[0].kept.subject

    def moves(self) -> tuple[tuple[CounterMove, ...], ...]:
        """For each point, the counters that moved since the last one that has any, of the same versions."""
        return tuple(
            point.moved(before) for point, before in zip(self.points, self.befores(), strict=True)
        )

    def befores(self) -> tuple[Point | None, ...]:
        """For each point, the last one before it that has counters of the same versions."""
        last: dict[str, Point] = {}
        found = []
        for point in self.points:
            key = repr(sorted(point.run.versions.items()))
            found.append(last.get(key))
            if point.kept.counters:
                last[key] = point
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Culprit:
    """The commit that moved a counter."""

    node_id: str
    subject: str
    counter: str
    before: int
    now: int
    commit: str
    author: str
    date: str
    title: str
    """The first line of its message."""
    tried: tuple[tuple[str, int | None], ...] = ()
    """The commits that were measured, and what the counter was there; None where it could not be counted."""


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """What became of the budget of one subject."""

    node_id: str
    subject: str
    verdict: Outcome
    reason: str = ""
    moved: tuple[CounterMove, ...] = ()
    change: Interval | None = None
    """How many times dearer it is; None where that was not measured."""
    lines: tuple[CostlyLine, ...] = ()
    """What runs more instructions than it did, the dearest first."""
    guards: tuple[Guards, ...] = ()
    """Those that were not there."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Lines next to each other that a code host shows of a change, and takes comments on."""

    first: int
    last: int
    old_path: str = ""
    """Of the file before; empty for a new one."""
    same: Mapping[int, int] = field(default_factory=dict)
    """Of lines in it that did not change, the numbers before by the numbers now."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A finding, and the lines of the change that a comment on it stands at."""

    finding: Finding
    first: int
    last: int
    shown: Stretch


@dataclass(frozen=True, slots=True)
class Review:
    """What a change adds to the findings of a project and takes from them, and what it does to budgets."""

    base: str
    """The revision that it is held against, as it was named."""
    remarks: tuple[Remark, ...]
    """New findings at lines of the change."""
    others: tuple[Finding, ...]
    """New findings elsewhere, of which no line of the change can be named as the cause."""
    fixed: tuple[Finding, ...]
    """Findings that are gone, with their places before."""
    budgets: tuple[BudgetChange, ...] | None = None
    """Those that did not stay as they were; None where nobody asked."""
    kept: int = 0
    """How many budgets stayed as they were."""
    notes: tuple[str, ...] = ()
    prefix: str = ""
    """From the top of the repository to the project, for whoever knows files from there: empty, or with a
    slash at its end."""

    @property
    def new(self) -> tuple[Finding, ...]:
        """All new findings."""
        return (*(remark.finding for remark in self.remarks), *self.others)

    strict: bool = False
    """Whether notes are something to answer for."""

    @property
    def bad(self) -> bool:
        """Whether there is something to answer for."""
        found = any(self.strict or f.certainty != "note" for f in self.new)
        return found or any(b.verdict in ("fail", "error") for b in self.budgets or ())
