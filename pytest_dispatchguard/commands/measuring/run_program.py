"""Runs a program and watches it: costly calls, synchronizations, and the functions it calls."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_dispatchguard.lint.hot import hot_lines
from pytest_dispatchguard.lint.observed import Sieve, own_files, read_config
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.operations import with_remarks
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.pytest_run import recording
from pytest_dispatchguard.runtime import program
from pytest_dispatchguard.runtime.compiled import program as compiling
from pytest_dispatchguard.runtime.program import Program
from pytest_dispatchguard.runtime.recorder import Recorder
from pytest_dispatchguard.runtime.syncs import gpu_warnings, per_step
from pytest_dispatchguard.runtime.syncs.syncs import Sync
from pytest_dispatchguard.runtime.watch import costly_calls, findings

Sources = Callable[[str], "str | None"]


@dataclass(frozen=True)
class Wishes:
    """What to watch for."""

    ghost: bool
    operations: bool
    record: bool
    config: Path | None
    """A configuration file to use instead of the project's."""
    given: Mapping[str, Any]
    """Settings from the command line."""
    cwd: Path

    @property
    def costs(self) -> bool:
        """Whether to report costs: not if only recording was asked for."""
        return self.ghost or self.operations or not self.record


def watched(
    asked: Program,
    wishes: Wishes,
    report: Callable[[Report, Sources, Path], None],
    note: Callable[[str], None],
) -> tuple[int, bool]:
    """Runs a program; returns its exit status and whether there were findings. Reports when the program ends,
    even if it ends this process itself."""
    program.check(asked)
    place = Path(asked.name if asked.form == "script" else ".")
    ends: list[Callable[[], bool]] = []
    found: list[bool] = []
    ended: list[int] = []

    def tell() -> None:
        while ends:
            found.append(ends.pop(0)())

    with ExitStack() as watching:
        if wishes.costs:
            ends.append(_costs(place, wishes, watching, report, ended))
        if wishes.record:
            ends.append(_calls(place, wishes, watching, note))
        gc.enable()  # as the program expects it
        status = program.run(asked, before_exit=tell)
        ended.append(status)
    tell()
    return status, any(found)


def _costs(
    place: Path,
    wishes: Wishes,
    watching: ExitStack,
    report: Callable[[Report, Sources, Path], None],
    ended: Sequence[int],
) -> Callable[[], bool]:
    """Watches for costly calls and synchronizations. Returns the function that reports them and says whether
    there were any. `ended` holds the exit status by then, unless the program ended this process itself."""
    sieve = Sieve(place, wishes.cwd, wishes.config, wishes.given)
    waits = _waits(wishes, watching)
    wasted = costly_calls.CostlyCalls(
        lambda path: sieve.rel(path) is not None, figures=not wishes.operations
    )
    watching.enter_context(wasted.watching())
    operations = None
    if wishes.operations:
        try:
            from pytest_dispatchguard.runtime.watch.operations import Operations
        except ImportError:
            raise UserError("--ops needs torch, which is not installed") from None
        operations = Operations(sieve.rel)
        watching.enter_context(operations.watching())

    def tell() -> bool:
        waited, elsewhere = findings.observed(
            waits, sieve.rel, sieve.rules, ran=per_step.ran(waits, wasted.steps, sieve.rel)
        )
        costly, _ = findings.observed(
            wasted.times,
            sieve.rel,
            sieve.rules,
            wasted.looks.lines,
        )
        others = 0
        if costly:  # finding out what is hot takes time
            costly, others = hot_lines(place, wishes.cwd, wishes.config).only(
                costly, compiling.CODES
            )
        notes = [f"{others} more in code that is not hot"] if others else []
        if any(ended):
            notes.append(
                f"the program exited with status {ended[0]}: the findings are from what ran before"
            )
        if elsewhere:
            notes.append(f"{findings.more(elsewhere)} outside this project's code")
        made = sieve.report([*waited, *costly], notes)
        if operations is not None:
            lines = with_remarks(operations.report(), wasted.looks.remarks(sieve.rel))
            made = replace(made, operations=tuple(lines))
        report(made, sieve.source(), sieve.config.root)
        return bool(made.of("sure"))

    return tell


def _waits(wishes: Wishes, watching: ExitStack) -> Counter[Sync]:
    """Watches for synchronizations: on a ghost GPU or, if there is one, on the real GPU."""
    if wishes.ghost:
        try:
            from pytest_dispatchguard.runtime.ghost.ghost import ghost
        except ImportError:
            raise UserError("--ghost needs torch, which is not installed") from None
        return watching.enter_context(ghost()).times
    if gpu_warnings.may_be_seen():
        return watching.enter_context(gpu_warnings.recording()).times
    return Counter()


def _calls(
    place: Path, wishes: Wishes, watching: ExitStack, note: Callable[[str], None]
) -> Callable[[], bool]:
    """Records the functions that run. Returns the function that saves the profile."""
    config = read_config(place, wishes.cwd, wishes.config)
    recorder = Recorder(own_files(config))
    watching.enter_context(recorder.recording())

    def keep() -> bool:
        recording.keep(config.root, recorder.profile())
        note(recording.said(config.root))
        return False

    return keep
