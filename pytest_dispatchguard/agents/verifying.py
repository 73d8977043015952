"""Tools for patches: verify one, as `dispatchguard fix --verify` does, and write it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_dispatchguard.agents.answers import Answer, block, brief, cut, moved, names
from pytest_dispatchguard.agents.checking import settings
from pytest_dispatchguard.agents.copies import copied, patched, review_of
from pytest_dispatchguard.agents.running import node_ids
from pytest_dispatchguard.agents.workplace import Call, Workplace
from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.reviews import Gain, Verified
from pytest_dispatchguard.report.wording import count
from pytest_dispatchguard.verify.trying import Change, Proof, Trials
from pytest_dispatchguard.verify.writing import write_back

_MOST_OF_OUTPUT = 2_000
_UNTESTED = "no tests were named, so nothing shows that the behavior stays the same"


def verify_patch(workplace: Workplace, call: Call, arguments: dict[str, Any]) -> Answer:
    """Whether a patch adds no finding, leaves the tests as they are, and is a gain. The project is not
    touched."""
    root = workplace.root
    proof = Proof(
        node_ids(root, arguments["tests"] or ()),
        node_ids(root, arguments["budgets"] or ()),
        timed=arguments["times"],
    )
    with copied(root, call) as scratch:
        files, _, found = review_of(scratch, arguments["diff"], settings("note"), call)
        trials = Trials(scratch, root, proof, 1, call.progress)
        (tried,) = trials.tried([Change("the diff", files)])
    new, gone = found.review.new, found.review.fixed
    problems = [cut(line) for line in (*found.problems, *_problems(new, tried, proof))]
    said = f"not verified: {names(problems, 2)}" if problems else "verified"
    return {
        "summary": cut(f"{said} ({count(len(gone), 'finding')} gone, {len(new)} new)"),
        "verified": not problems,
        "problems": problems[:20],
        "files": list(tried.files[:100]),
        "new": [brief(finding) for finding in new[:10]],
        "new_total": len(new),
        "gone": [brief(finding) for finding in gone[:10]],
        "gone_total": len(gone),
        "tests": tried.tests,
        "output": block(tried.output[-_MOST_OF_OUTPUT:], _MOST_OF_OUTPUT),
        "gains": [_gain(gain) for gain in tried.gains[:20]],
    }


def _problems(new: Sequence[Finding], tried: Verified, proof: Proof) -> list[str]:
    told = []
    worse = [finding for finding in new if finding.certainty == "sure"]
    if worse:
        one = worse[0]
        more = f", and {len(worse) - 1} more" if len(worse) > 1 else ""
        told.append(f"a new finding: {one.code} at {one.path}:{one.span.line}{more}")
    if not proof.tests:
        told.append(_UNTESTED)
    if not tried.kept:
        told.append(tried.reason)
    return told


def _gain(gain: Gain) -> Answer:
    change = gain.change
    return {
        "test": gain.name,
        "moved": moved(gain.before, gain.after, gain.varying),
        "before_us": gain.us,
        "change": None if change is None else [change.value, change.low, change.high],
    }


def apply_patch(workplace: Workplace, call: Call, arguments: dict[str, Any]) -> Answer:
    """Write a patch to the project."""
    with copied(workplace.root, call) as scratch:
        files = patched(scratch, scratch.copy(), arguments["diff"])
        call.check()
        write_back(scratch, files)
    return {"summary": f"written: {names(list(files))}", "files": list(files)[:100]}
