"""The project before a change: files that differ from the base revision as in git, all others as on disk."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.lint.sources.files import (
    FOUND,
    Discovery,
    File,
    Source,
    decode_source,
    is_excluded,
)
from pytest_dispatchguard.lint.sources.git_diff import Changes, texts_at


def before(
    config: Config, discovery: Discovery, changes: Changes
) -> tuple[Discovery, Mapping[str, str]]:
    """The files of the project at the base revision, all of them targets, and the texts of those that differ
    from the ones on disk."""
    now = {f.rel: f for f in discovery.project}
    wanted = [old for new, old in changes.before.items() if new in now]
    gone = (rel for rel in changes.gone if rel.endswith(FOUND))
    wanted += [rel for rel in gone if not is_excluded(rel, config)]
    texts: dict[str, str] = {}
    for rel, data in texts_at(config.root, changes.base, wanted).items():
        source = decode_source(data, rel)
        if isinstance(source, Source):
            texts[rel] = source.text
    differ = {*changes.before, *changes.new}
    files = [f for rel, f in now.items() if rel not in differ]
    files += [File(str(config.root / rel), rel, len(text), 0, 0, 0) for rel, text in texts.items()]
    project = tuple(sorted(files, key=lambda f: f.rel))
    return Discovery(project, project), texts
