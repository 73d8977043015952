"""Finds the first commit at which something changed, between two that git knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytest_dispatchguard.git import complaint, run_git
from pytest_dispatchguard.model.errors import UserError

OPTION = "--bisect"
_CHECKOUT = ("checkout", "--quiet", "--force", "--detach")
"""By force: the worktree is ours, and tests may write to files that git knows."""
_MOST_NAMED = 20

Look = Callable[[str], "bool | None"]
"""Whether a commit has the change; None where nobody can say."""
Unclear = Callable[[str], str]
"""Why nobody can say of a commit."""


def first_changed(tree: Path, look: Look, good: str, bad: str, unclear: Unclear) -> str:
    """The first commit that has the change. Git only says which commit is halfway: `git bisect` runs the
    hooks of a repository, whatever it is told."""
    unchanged, unknown = [good], set[str]()
    for base in git(tree, "merge-base", "--all", good, bad).split():
        if base != good and look(base):
            raise UserError(
                f"{OPTION}: it had already moved at the merge base {base[:12]}; name an earlier "
                "commit as --good"
            )
    while True:
        between = (bad, *(f"^{commit}" for commit in unchanged))
        if not unknown:
            halfway = git(tree, "rev-list", "--bisect", *between).strip()
        else:
            listed = git(tree, "rev-list", "--bisect-all", *between).splitlines()
            left = [row.split()[0] for row in listed]
            halfway = next((commit for commit in left if commit not in {bad, *unknown}), bad)
            passed = unknown.intersection(left)
            if halfway == bad and passed:
                raise UserError(_several(tree, between, unclear(min(passed, key=left.index))))
        if halfway in (bad, ""):
            return bad
        changed = look(halfway)
        if changed is None:
            unknown.add(halfway)
        elif changed:
            bad = halfway
        else:
            unchanged.append(halfway)


def _several(tree: Path, between: tuple[str, ...], why: str) -> str:
    candidates = git(tree, "rev-list", "--topo-order", "--reverse", *between).split()
    more = len(candidates) - _MOST_NAMED
    named = ", ".join(commit[:12] for commit in candidates[:_MOST_NAMED])
    return (
        f"{OPTION}: the commit cannot be narrowed down: {why}; it is one of "
        f"{named}{f' and {more} more' if more > 0 else ''}; pass --good and --bad on one side of them"
    )


def check_out(tree: Path, commit: str) -> None:
    """Puts a worktree of ours at a commit."""
    git(tree, *_CHECKOUT, commit)


def git(tree: Path, *words: str) -> str:
    """What git says; a `UserError` where it fails."""
    answer = run_git(tree, *words)
    if answer is None or answer.returncode:
        raise UserError(f"{OPTION}: git {words[0]} failed: {complaint(answer)}")
    return answer.stdout.decode("utf-8", "replace")
