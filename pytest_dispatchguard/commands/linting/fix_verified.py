"""Does the work of `dispatchguard fix --verify`: tries fixes or patches, reports, and writes what is kept."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_dispatchguard.commands import CLEAN, FAILED, FOUND
from pytest_dispatchguard.commands.options import working_folder
from pytest_dispatchguard.commands.output import colored, expect, put, say
from pytest_dispatchguard.lint.fixing import Fixable, fixable
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.measure.budgets.machine import installed_versions
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.reviews import Verification, Verified
from pytest_dispatchguard.report.diff import heading_of
from pytest_dispatchguard.report.progress import progress
from pytest_dispatchguard.report.verified import render
from pytest_dispatchguard.verify.scratch import Files, Scratch
from pytest_dispatchguard.verify.trying import (
    Change,
    Proof,
    Trials,
    folders_of,
    merged,
    of_patches,
    top_of,
)
from pytest_dispatchguard.verify.writing import write_back

_ALL = "all kept together"


@dataclass(frozen=True, slots=True)
class _Tried:
    """All changes, and what the kept ones make of files together."""

    verification: Verification
    files: Files


def verify(arguments: argparse.Namespace, request: Request, form: str) -> int:
    """Run the command, and tell in a format what was found; return the exit status."""
    if os.name != "posix":
        raise UserError("--verify needs pipes and locks that Windows does not have")
    proof = Proof(arguments.test, arguments.budget, arguments.call, arguments.setup)
    proof.require()
    expect(arguments.output)
    gc.enable()  # as the code that runs expects it
    patches = [(str(file), _read(file)) for file in arguments.patch]
    problems: tuple[str, ...] = ()
    with progress() as tell:
        heard = tell or (lambda what, done, of: None)
        start = _Start(proof, request.jobs, heard)
        if patches:
            found = _patches(patches, start, apply=arguments.apply)
        else:
            with fixable(request) as project:
                problems = project.problems
                found = _fixes(project, start, apply=arguments.apply)
    for problem in problems:
        say(problem)
    color = arguments.output is None and colored(arguments.color)
    put(arguments, render(found, form, installed_versions(), color=color), sys.stdout)
    changes = [*found.changes, *([found.together] if found.together else [])]
    if problems:
        return FAILED
    return CLEAN if all(change.kept for change in changes) else FOUND


@dataclass(frozen=True, slots=True)
class _Start:
    """What all trials begin with."""

    proof: Proof
    jobs: int
    tell: Callable[[str, int, int], object]

    def trials(self, scratch: Scratch) -> Trials:
        """Trials in copies in a temporary folder."""
        here = working_folder().resolve()
        if not here.is_relative_to(scratch.top):
            raise UserError(
                f"--verify runs tests and calls in the current directory: change to {scratch.top}"
            )
        return Trials(scratch, here, self.proof, self.jobs, self.tell)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror or error}") from None


def _patches(patches: Sequence[tuple[str, bytes]], start: _Start, *, apply: bool) -> Verification:
    here = working_folder().resolve()
    top = top_of(here)
    with Scratch(top) as scratch:
        trials = start.trials(scratch)
        folders = folders_of(here, top)
        changes = of_patches(trials, patches, folders)

        def together(kept: Sequence[int]) -> Change:
            return merged(trials, _ALL, [patches[number] for number in kept], folders)

        return _concluded(trials, changes, together, apply=apply)


def _fixes(project: Fixable, start: _Start, *, apply: bool) -> Verification:
    if not project.fixes:
        return Verification((), notes=(_nothing(project),), applied=() if apply else None)
    root = project.config.root.resolve()
    top = top_of(root)
    with Scratch(top) as scratch:
        trials = start.trials(scratch)

        def files(texts: Mapping[str, str]) -> Files:
            return {
                _below(top, root, rel): project.encode(rel, text) for rel, text in texts.items()
            }

        _require_same(project, scratch, root)

        def together(kept: Sequence[int]) -> Change:
            return Change(_ALL, files(project.together([project.fixes[n] for n in kept])))

        changes = [_change(project, fix, files) for fix in project.fixes]
        return _concluded(trials, changes, together, apply=apply)


def _nothing(project: Fixable) -> str:
    number = len(project.findings)
    told = f"{number} finding{'' if number == 1 else 's'}"
    return f"no fix is selected, of {told}; --unsafe-fixes includes unsafe ones, --patch takes your own"


def _below(top: Path, root: Path, rel: str) -> str:
    """The path of a file of the project relative to the work tree."""
    return (root / rel).relative_to(top).as_posix()


def _require_same(project: Fixable, scratch: Scratch, root: Path) -> None:
    """The files as they were linted are those that were copied."""
    for rel in dict.fromkeys(fix.path for fix in project.fixes):
        text = project.read(rel)
        copied = scratch.first.read(_below(scratch.top, root, rel))
        if copied is None:
            raise UserError(
                f"{rel}: git ignores it, so a copy of the work tree lacks it; add it to git"
            )
        if text is None or project.encode(rel, text) != copied:
            raise UserError(f"{rel}: changed while it was being read; run again")


def _change(
    project: Fixable, finding: Finding, files: Callable[[Mapping[str, str]], Files]
) -> Change:
    name = heading_of(finding).removeprefix("# ").partition(" [")[0]
    text = project.fixed(finding)
    if text is None:
        return Change(name, wrong="the fix does not apply by itself")
    texts = {finding.path: text}
    if not project.is_gone(finding, texts):
        return Change(name, wrong="the finding is still there after the fix")
    return Change(name, files(texts))


def _concluded(
    trials: Trials,
    changes: Sequence[Change],
    together: Callable[[Sequence[int]], Change],
    *,
    apply: bool,
) -> Verification:
    found = trials.tried(changes)
    kept = [number for number, one in enumerate(found) if one.kept]
    files: Files = {}
    last: Verified | None = None
    if len(kept) == 1:
        files = changes[kept[0]].files
    elif kept:
        whole = together(kept)
        last = trials.tried([whole])[0]
        files = whole.files if last.kept else {}
    skipped = trials.scratch.skipped
    note = f"{skipped} link{'' if skipped == 1 else 's'} out of the work tree not copied"
    verification = Verification(tuple(found), last, (note,) if skipped else ())
    if apply:
        write_back(trials.scratch, files)
        verification = replace(verification, applied=tuple(sorted(files)))
    return verification
