"""What a process takes up of a project from its cache, and keeps in memory for its copies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytest_dispatchguard.config import PROFILE
from pytest_dispatchguard.lint import kept, solved
from pytest_dispatchguard.lint.briefs import Briefer
from pytest_dispatchguard.lint.cache import Cache, cache_path
from pytest_dispatchguard.lint.carried import Solution, carry
from pytest_dispatchguard.lint.catalog import fingerprint
from pytest_dispatchguard.lint.facts import FileFacts
from pytest_dispatchguard.lint.following import unnoticed_by
from pytest_dispatchguard.lint.heat import solve
from pytest_dispatchguard.lint.packing import unpack_facts
from pytest_dispatchguard.lint.project import build
from pytest_dispatchguard.lint.remembered import Remembered, declined, projects
from pytest_dispatchguard.lint.survey import facts_before, facts_rows

_MOST_PROJECTS = 2
_MOST_TEXT = 12_000_000
"""Characters of facts: a project with so many takes some 270 MiB."""

Step = Callable[[], object]


def learn(root: Path, step: Step) -> None:
    """Takes up the state of a project that the cache has. A `step` is taken every now and then, in which
    copies may be made of the process."""
    declined.discard(root)
    learned = _learned(root, projects.pop(root, None), step)
    if learned is None:
        declined.add(root)
        return
    projects[root] = learned
    for oldest in list(projects)[:-_MOST_PROJECTS]:
        del projects[oldest]


def _learned(root: Path, before: Remembered | None, step: Step) -> Remembered | None:
    cache = Cache.there(cache_path(root), fingerprint())
    try:
        known = solved.recall(cache)
        if known is None or (root / PROFILE).exists():
            return None
        config, library_roots = kept.read_settings(root, known.state.settings)
        digests = {rel: digest for rel, (digest, _, _) in known.state.files.items()}
        if before is not None:
            shapes = {rel: shape for rel, (_, shape, _) in known.state.files.items()}
            changed = solved.changed_since(before.known.state, known.state.settings, shapes)
            if changed is not None:
                new = facts_before(config, {rel: digests[rel] for rel in changed}, cache)
                carried = None
                if len(new) == len(changed):
                    carried = carry(before.solution, new, unnoticed_by(root, before.known))
                if carried is not None:
                    # What was looked up in memory, the cache need not know of: it may have begun anew.
                    words = known.words.plus(before.known.words.all())
                    return Remembered(known._replace(words=words), carried.solution)
        rows = facts_rows(config, digests, cache)
    finally:
        cache.close()  # no copy may be made while it is open
    if len(rows) < len(digests) or sum(map(len, rows.values())) > _MOST_TEXT:
        return None
    facts: dict[str, FileFacts] = {}
    for rel in sorted(rows):
        step()
        facts[rel] = unpack_facts(rows[rel])
    project = build(facts, config.src)
    step()
    heat = solve(project, config.hot_roots, config.cold, library_roots, step=step)
    return Remembered(known, Solution(project, heat, Briefer(project, heat)))
