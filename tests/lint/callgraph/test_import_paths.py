"""From where files import."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.lint.callgraph.build import build
from pytest_dispatchguard.lint.callgraph.import_paths import located
from pytest_dispatchguard.lint.callgraph.project import Project
from pytest_dispatchguard.lint.facts import FileFacts


def project_of(*paths: str) -> Project:
    return build({path: FileFacts() for path in paths})


@pytest.mark.parametrize(
    ("module", "dotted", "expected"),
    [
        ("first.train", "helpers.measured", "first.helpers.measured"),
        ("first.models.net", "base.Base", "first.base.Base"),
        ("first.train", "models.net", "first.models.net"),
        ("second.train", "helpers.measured", "helpers.measured"),
        ("second.train", "models.net", "models.net"),
        ("main", "helpers.measured", "helpers.measured"),
        ("pkg.inner", "other.f", "other.f"),
        ("first.train", "torch.nn", "torch.nn"),
        ("first.train", "unknown.f", "unknown.f"),
    ],
)
def test_scripts_see_what_stands_beside_them(module: str, dotted: str, expected: str) -> None:
    project = project_of(
        "main.py",
        "helpers/__init__.py",
        "first/train.py",
        "first/helpers.py",
        "first/base.py",
        "first/torch.py",
        "first/models/net.py",
        "second/train.py",
        "pkg/__init__.py",
        "pkg/inner.py",
        "pkg/other.py",
    )
    assert located(project, module, dotted) == expected


def test_what_stands_nearest_is_meant() -> None:
    project = project_of("a/utils.py", "a/b/utils.py", "a/b/train.py", "a/b/c/train.py")
    assert located(project, "a.b.train", "utils.f") == "a.b.utils.f"
    assert located(project, "a.b.c.train", "utils.f") == "a.b.utils.f"


def test_a_module_called_like_its_folder_hides_nothing() -> None:
    project = project_of("model/model.py", "model/blocks.py", "model/trainer.py")
    assert located(project, "model.trainer", "model.blocks.block") == "model.blocks.block"
