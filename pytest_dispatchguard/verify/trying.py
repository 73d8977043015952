"""Tries changes of the work tree in copies of it: tests before and after, then costs before and after."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pytest_dispatchguard.config.project_root import find_root
from pytest_dispatchguard.git import run_git
from pytest_dispatchguard.measure.trials.pairs import Asked, CallError, compared
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.reviews import Gain, Verified
from pytest_dispatchguard.verify import budgets, judging
from pytest_dispatchguard.verify.patches import applied
from pytest_dispatchguard.verify.running import Ran, differing, require, run_each, run_tests
from pytest_dispatchguard.verify.scratch import Copy, Files, Scratch

Tell = Callable[[str, int, int], object]


@dataclass(frozen=True, slots=True)
class Proof:
    """What changes are held against."""

    tests: Sequence[str] = ()
    """As pytest takes them: files, directories, node ids."""
    budgets: Sequence[str] = ()
    call: str | None = None
    setup: str = ""
    timed: bool = True
    """Whether budgets are timed, and not only counted."""

    @property
    def measures(self) -> bool:
        """Whether changes must be a gain, and not only harmless."""
        return bool(self.budgets or self.call)

    def require(self) -> None:
        """Raises if there is nothing to verify with."""
        if not (self.tests or self.measures):
            raise UserError(
                "--verify has nothing to verify with: name tests (--test tests), and a call "
                "(--call 'f(x)' --setup '…') or budgets (--budget tests/test_budgets.py)"
            )
        if not self.measures:
            raise UserError(
                "--verify has nothing to measure: name a call (--call 'f(x)' --setup '…') or budgets "
                "(--budget tests/test_budgets.py)"
            )


@dataclass(frozen=True, slots=True)
class Change:
    """A change to try."""

    name: str
    files: Files = field(default_factory=dict)
    """What it makes of files."""
    wrong: str = ""
    """Why there is nothing to try; empty where there is."""


class Trials:
    """Tries changes in copies of one work tree. Tests run side by side, measurements one at a time."""

    def __init__(self, scratch: Scratch, cwd: Path, proof: Proof, jobs: int, tell: Tell) -> None:
        self.scratch = scratch
        self._cwd = cwd
        self._proof = proof
        self._jobs = jobs
        self._tell = tell
        self._before = Ran({})
        self._has_base = False

    # The first copy stays what it is: whatever runs in a copy may write there.
    @cached_property
    def old(self) -> Copy:
        """Where the call is measured without the change."""
        return self.scratch.copy()

    @cached_property
    def new(self) -> Copy:
        """Where changes are made, measured and taken back."""
        return self.scratch.copy()

    def tried(self, changes: Sequence[Change]) -> list[Verified]:
        """What comes of each change by itself."""
        changes = [replace(c, wrong=c.wrong or _unparsable(c.files)) for c in changes]
        real = [number for number, change in enumerate(changes) if not change.wrong]
        tested: dict[int, Ran] = {}
        if self._proof.tests and real:
            runs = self._tested([changes[number] for number in real])
            tested = dict(zip(real, runs, strict=True))
        found = []
        for number, change in enumerate(changes):
            self._tell(change.name, number, len(changes))
            files = tuple(sorted(change.files))
            alone = Verified(change.name, kept=False, reason=change.wrong, files=files)
            if number in tested:
                ran = tested[number]
                wrong = differing(self._before, ran)
                printed = ran.output if wrong else ""
                alone = replace(alone, reason=wrong, tests=len(ran.tests), output=printed)
            if not (alone.reason or self._proof.measures):
                found.append(replace(alone, kept=True))
            else:
                found.append(alone if alone.reason else self._measured(alone, change.files))
        return found

    def _tested(self, changes: Sequence[Change]) -> list[Ran]:
        tests = self._proof.tests
        if not self._before.tests:
            self._tell("tests, without any fix", 0, len(changes) + 1)
            alone = self.scratch.copy()
            self._before = run_tests(alone, self._cwd, tests)
            self.scratch.drop(alone)
            require(self._before, "--test")

        def changed(number: int) -> Copy:
            self._tell(f"tests: {changes[number].name}", number, len(changes))
            copy = self.scratch.copy()
            self.scratch.write(copy, changes[number].files)
            return copy

        return run_each(len(changes), changed, self.scratch.drop, self._jobs, self._cwd, tests)

    def _measured(self, alone: Verified, files: Files) -> Verified:
        proof = self._proof
        if proof.budgets and not self._has_base:
            budgets.make_base(self.new)
            self._has_base = True
        self.scratch.write(self.new, files)
        gains: list[Gain] = []
        try:
            if proof.call is not None:
                asked = Asked(proof.call, proof.setup)
                before, after = (c.launch(self._cwd) for c in (self.old, self.new))
                gains.append(compared(asked, before, after, self.new.conditions.check))
            if proof.budgets:
                gains += self._budgets(files)
        except CallError as error:
            return replace(alone, reason=str(error))
        finally:
            self.scratch.restore(self.new, files)
        reason = judging.against(gains)
        return replace(alone, kept=not reason, reason=reason, gains=tuple(gains))

    def _budgets(self, files: Files) -> list[Gain]:
        tests, timed = self._proof.budgets, self._proof.timed
        try:
            return budgets.measured(self.new, self._cwd, tests, timed=timed)
        except UserError as error:
            wrong = str(error)
        self.scratch.restore(self.new, files)
        try:
            budgets.measured(self.new, self._cwd, tests, timed=timed)
        except UserError as error:
            said = f"--budget: in a copy of the work tree, without any fix: {error}"
            raise UserError(said) from None
        raise CallError(wrong)


def _unparsable(files: Files) -> str:
    """Which file is no Python any more; empty where all are."""
    for path, data in files.items():
        if data is not None and path.endswith((".py", ".pyw", ".pyi")):
            try:
                ast.parse(data, path)
            except (SyntaxError, ValueError) as error:
                return f"{path} does not parse: {getattr(error, 'msg', None) or error}"
    return ""


def top_of(folder: Path) -> Path:
    """The work tree around a folder; the folder itself where there is no git."""
    answer = run_git(folder, "rev-parse", "--show-toplevel")
    if answer is None or answer.returncode:
        return folder.resolve()
    return Path(os.fsdecode(answer.stdout.rstrip(b"\n"))).resolve()


def folders_of(folder: Path, top: Path) -> tuple[Path, ...]:
    """What paths of a diff may be relative to: git's are to the top, the linter's to the project."""
    here = folder.resolve()
    return top, find_root([here]), here


def of_patches(
    trials: Trials, patches: Sequence[tuple[str, bytes]], folders: Sequence[Path]
) -> list[Change]:
    """The changes that diffs make, each by itself. `folders` are those that paths may be relative to."""
    found = []
    for name, patch in patches:
        try:
            files = applied(trials.scratch, trials.new, patch, folders)
        except UserError as error:
            found.append(Change(name, wrong=str(error)))
            continue
        trials.scratch.restore(trials.new, files)
        found.append(Change(name, files))
    return found


def merged(
    trials: Trials, name: str, patches: Sequence[tuple[str, bytes]], folders: Sequence[Path]
) -> Change:
    """The change that diffs make one after the other."""
    files: dict[str, bytes | None] = {}
    wrong = ""
    for one, patch in patches:
        try:
            files.update(applied(trials.scratch, trials.new, patch, folders))
        except UserError as error:
            wrong = f"{one}: after the others, {error}"
            break
    trials.scratch.restore(trials.new, files)
    return Change(name, files, wrong)


def verified(
    root: Path,
    patch_text: str,
    tests: Sequence[str] = (),
    call: str | None = None,
    setup: str = "",
    budget_tests: Sequence[str] = (),
) -> Verified:
    """What comes of one unified diff, tried in a copy of the work tree around `root`, where tests and the
    call run. Raises `UserError` if there is nothing to verify with, or if that fails without the diff."""
    proof = Proof(tests, budget_tests, call, setup)
    proof.require()
    top = top_of(root)
    with Scratch(top) as scratch:
        trials = Trials(scratch, root.resolve(), proof, 1, lambda what, done, of: None)
        changes = of_patches(trials, [("patch", patch_text.encode())], folders_of(root, top))
        return trials.tried(changes)[0]
