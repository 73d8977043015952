"""A process takes up what the cache has of a project, and nothing of it lasts longer than it should."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from pytest_dispatchguard.lint import learning, remembered

from .relinted import PROJECT, Edit, Remembering, demo, edited

Start = Callable[..., Remembering]

_CLIP = "    return guard_low(x, low)"
_NAMED: Edit = ("pkg/helpers.py", _CLIP, f"    zq_late(x)\n{_CLIP}")
_HOTTER: Edit = ("pkg/helpers.py", _CLIP, f"    log_line(x)\n{_CLIP}")
_IMPORTS: Edit = ("pkg/helpers.py", "import torch", "import torch\nimport math")
_DEFINED: Edit = (
    "pkg/helpers.py", "class Store", "def zq_late(x):\n    return x.item()\n\nclass Store"
)  # fmt: skip


def test_a_state_is_learned_from_the_one_before(remembering: Start) -> None:
    project = remembering(demo())
    steps = project.steps
    assert steps > len(demo())
    assert project.proved(edited(demo(), _HOTTER))
    project.learn()
    assert project.steps == steps, "nothing took long enough for others to have a turn"
    assert not project.proved(edited(demo(), _IMPORTS))
    project.learn()
    assert project.steps > steps


def test_only_the_projects_asked_for_last_are_remembered(remembering: Start) -> None:
    first, second, third = (remembering(PROJECT).config.root for _ in range(3))
    assert list(remembered.projects) == [second, third]
    learning.learn(second, lambda: None)
    assert list(remembered.projects) == [third, second]
    assert first not in remembered.projects


def test_what_is_too_large_is_not_remembered(
    remembering: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = remembering(PROJECT).config.root
    monkeypatch.setattr(learning, "_MOST_TEXT", 1000)
    remembered.projects.clear()
    learning.learn(root, lambda: None)
    assert not remembered.projects


def test_without_a_cache_nothing_is_remembered(remembering: Start) -> None:
    project = remembering(PROJECT)
    project.cache.prune("facts", ())
    remembered.projects.clear()
    learning.learn(project.config.root, lambda: None)
    project.cache.prune("solved", ())
    learning.learn(project.config.root, lambda: None)
    assert not remembered.projects


def test_what_was_looked_up_counts_though_the_cache_began_anew(remembering: Start) -> None:
    """In memory is what names stand for that the cache need not know of."""
    project = remembering(edited(PROJECT, _NAMED))
    before = dict(remembered.projects)
    project.forget()
    for kind in ("solved", "heat", "brief", "read", "words"):
        project.cache.prune(kind, ())
    assert not project.proved(PROJECT)
    remembered.projects.update(before)
    project.learn()
    project.proved(edited(edited(PROJECT, _NAMED), _DEFINED))


def test_a_folder_that_is_gone_stays_gone(remembering: Start) -> None:
    project = remembering(PROJECT)
    root = project.config.root
    project.cache.close()
    shutil.rmtree(root)
    learning.learn(root, lambda: None)
    assert not root.exists()
    assert root not in remembered.projects and root in remembered.declined
