"""How functions became hot survives the cache, file by file."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.lint.callgraph.build import build
from pytest_dispatchguard.lint.hotness import solve
from pytest_dispatchguard.lint.incremental.hot_paths import (
    Known,
    pack_trails,
    trails_of,
    unpack_trails,
)

from ..relinted import demo
from .test_lazy_project import scanned


@pytest.mark.parametrize("hot_roots", [(), ("pkg.train.*", "pkg.helpers.Store")])
def test_trails_go_through_text_unchanged(hot_roots: tuple[str, ...]) -> None:
    project = build(scanned(demo()))
    solved = solve.solve(project, hot_roots=hot_roots)
    files = trails_of(project, solved)
    assert {rel: unpack_trails(pack_trails(found)) for rel, found in files.items()} == files
    hot = {
        function_id: trail.then.fact
        for found in files.values()
        for function_id, trail in found.trails.items()
        if trail.then is not None
    }
    assert hot == solved.hot
    assert any(trail.runs != trail.ways for f in files.values() for trail in f.trails.values())
    assert any(trail.then is None for f in files.values() for trail in f.trails.values())


def test_files_are_read_when_they_are_asked_for() -> None:
    project = build(scanned(demo()))
    files = trails_of(project, solve.solve(project))
    read: list[str] = []

    def text(rel: str) -> str | None:
        read.append(rel)
        return pack_trails(files[rel]) if rel in files else None

    known = Known(text, project.modules)
    assert known.callers("pkg.helpers:guard_low") == {"pkg.helpers:clip"}
    assert known.of("pkg.helpers:clip") == files["pkg/helpers.py"].trails["pkg.helpers:clip"]
    assert known.of("pkg.helpers:log_line") is None
    assert known.of("pkg:nothing") is None
    assert known.callers("pkg:nothing") == set()
    assert read == ["pkg/helpers.py", "pkg/__init__.py"]
