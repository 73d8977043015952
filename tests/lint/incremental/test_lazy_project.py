"""A project of which files are read as they are asked for says the same as one that was read as a whole."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

import pyperf
import pytest
import rich

from pytest_dispatchguard.lint.callgraph.build import build
from pytest_dispatchguard.lint.callgraph.calls import edges
from pytest_dispatchguard.lint.callgraph.families import is_module
from pytest_dispatchguard.lint.callgraph.name_resolution import lookup
from pytest_dispatchguard.lint.callgraph.project import Project, class_of
from pytest_dispatchguard.lint.facts import FileFacts
from pytest_dispatchguard.lint.incremental.lazy_project import (
    families_of,
    pack_families,
    project_on_demand,
    unpack_families,
)
from pytest_dispatchguard.lint.scout import scan
from pytest_dispatchguard.lint.sources.module_names import module_name

from ..relinted import demo

OURS = Path(__file__).resolve().parents[3] / "pytest_dispatchguard"


def scanned(texts: Mapping[str, str]) -> dict[str, FileFacts]:
    return {
        rel: scan.scan(textwrap.dedent(text), module_name(rel, ()), rel.endswith("__init__.py"))
        for rel, text in texts.items()
    }


def folder(top: Path) -> dict[str, str]:
    """The files of an installed package."""
    return {
        path.relative_to(top.parent).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(top.rglob("*.py"))
    }


def on_demand(whole: Project, read: list[str] | None = None) -> Project:
    """The same project, of which nothing is read yet."""

    def facts(rel: str) -> FileFacts:
        if read is not None:
            read.append(rel)
        return whole.files[rel]

    families = unpack_families(pack_families(families_of(whole)))
    return project_on_demand(whole.modules, families, facts)


OUR_OWN = pytest.param(folder(OURS), marks=pytest.mark.thorough)


@pytest.mark.parametrize(
    "texts",
    [demo(), *(folder(Path(str(m.__file__)).parent) for m in (rich, pyperf)), OUR_OWN],
    ids=["demo", "rich", "pyperf", "ours"],
)
def test_says_the_same_whatever_is_asked_first(texts: dict[str, str]) -> None:
    whole = build(scanned(texts))
    asked = sorted(whole.functions)
    for order in (asked, asked[::-1]):
        partly = on_demand(whole)
        for function_id in order:
            assert edges(partly, function_id) == edges(whole, function_id)
            assert class_of(partly, function_id) == class_of(whole, function_id)
    partly = on_demand(whole)
    for module in sorted(whole.modules, reverse=True):
        for name in whole.bound[module]:
            assert lookup(partly, module, name) == lookup(whole, module, name)
    for class_id in whole.classes:
        assert is_module(partly, class_id) == is_module(whole, class_id)


def test_reads_only_what_is_asked_for() -> None:
    whole = build(scanned(demo()))
    read: list[str] = []
    partly = on_demand(whole, read)
    assert "pkg.layers:Layer" in partly.classes
    assert "pkg.layers:Layer.hook_point" in partly.functions
    assert "pkg.layers:Layer.nothing" not in partly.functions
    assert "torch.nn:Module" not in partly.classes
    assert partly.functions.get("torch.nn:Module.forward") is None
    assert read == []
    assert partly.functions["pkg.helpers:clip"] == whole.functions["pkg.helpers:clip"]
    assert "pkg.helpers:nothing" not in partly.functions
    assert read == ["pkg/helpers.py"]
    with pytest.raises(KeyError):
        partly.functions["pkg.helpers:nothing"]
    with pytest.raises(KeyError):
        partly.functions["nowhere:nothing"]
    assert read == ["pkg/helpers.py"]
