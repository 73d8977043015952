"""Whether a patch does what it is for: in a scratch copy, what it does to findings, tests and budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_dispatchguard.agents.answers import moved
from pytest_dispatchguard.agents.running import Ran, run_budgets, run_tests
from pytest_dispatchguard.agents.scratch import Scratch, apply, scratch
from pytest_dispatchguard.agents.workplace import Call
from pytest_dispatchguard.lint.review import Asked, Reviewed, reviewed
from pytest_dispatchguard.lint.store.cache import Cache
from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.verdicts import Verdict


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found out about a patch."""

    files: tuple[str, ...]
    """That it changes."""
    new: tuple[Finding, ...]
    gone: tuple[Finding, ...]
    tests: Ran | None = None
    """None where none were named."""
    before: Ran | None = None
    """The same tests without the patch; None where they pass with it."""
    budgets: tuple[Verdict, ...] = ()
    """Of the named tests, each against the project without the patch."""
    problems: tuple[str, ...] = ()
    """Why it is not verified, a line each; none if it is."""

    @property
    def verified(self) -> bool:
        """Whether nothing speaks against it: no new finding, tests that pass, budgets that hold."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class Patch:
    """What is to be verified, and by what."""

    diff: str
    tests: Sequence[str] = ()
    """Node ids of tests that hold the behavior."""
    budgets: Sequence[str] = ()
    """Node ids of tests with budgets."""
    settings: dict[str, bool] = field(default_factory=dict)
    """Fields of Config."""


def verify(root: Path, patch: Patch, call: Call) -> Verification:
    """Apply a patch to a copy of a project, check both, and run the named tests and budgets there. The
    project itself is not touched."""
    with scratch(root, call) as made:
        changes = apply(made, patch.diff)
        found = review_of(made, patch.settings, call)
        tests = run_tests(made.tree, patch.tests, call) if patch.tests else None
        budgets: list[Verdict] = []
        if patch.budgets and (tests is None or not tests.status):
            budgets = run_budgets(made.tree, patch.budgets, call, against="HEAD")
    before = None
    if tests is not None and tests.status:
        with scratch(root, call) as made:
            before = run_tests(made.tree, patch.tests, call)
    review = found.review
    result = Verification(
        tuple(change.rel for change in changes),
        review.new,
        review.fixed,
        tests,
        before,
        tuple(budgets),
    )
    problems = (*found.problems, *_problems(result, patch))
    return Verification(
        result.files, result.new, result.gone, tests, before, result.budgets, problems
    )


def review_of(made: Scratch, settings: dict[str, bool], call: Call) -> Reviewed:
    """What a patch that was applied to a copy adds to the findings, and takes from them."""
    memory = Cache.in_memory()
    try:
        return reviewed(
            Asked(
                "HEAD",
                made.tree,
                None,
                settings,
                jobs=1,
                cache=False,
                kept=lambda _: memory,
                progress=call.progress,
            )
        )
    finally:
        memory.close()


def _problems(found: Verification, patch: Patch) -> list[str]:
    told = []
    worse = [finding for finding in found.new if finding.certainty == "sure"]
    if worse:
        one = worse[0]
        more = f", and {len(worse) - 1} more" if len(worse) > 1 else ""
        told.append(f"a new finding: {one.code} at {one.path}:{one.span.line}{more}")
    if found.tests is None:
        told.append("no tests were named, so nothing shows that the behavior stays the same")
    elif found.tests.status:
        was = "" if found.before is None else f"; without the patch: {found.before.outcome}"
        told.append(f"tests: {found.tests.outcome}{was}")
    for verdict in found.budgets:
        if verdict.verdict in ("fail", "error"):
            reason = (verdict.reason.splitlines() or [""])[0]
            told.append(f"budget of {verdict.node_id}: {verdict.verdict}: {reason}")
        elif verdict.base is None or verdict.base.note:
            why = "" if verdict.base is None else f": {verdict.base.note}"
            told.append(f"budget of {verdict.node_id}: nothing to compare with{why}")
    if patch.budgets and not found.budgets and not (found.tests and found.tests.status):
        told.append("the named tests have no budgets")
    return told


def counters_moved(found: Verification) -> dict[str, dict[str, list[int]]]:
    """The counters of each budget that the patch moves: before and after."""
    return {one.node_id: moved(one) for one in found.budgets if moved(one)}
