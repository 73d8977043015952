"""`skills/`: what the rule pages say, in the format that agents read."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest


def script(root: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, root / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    return (root / "skills/host-side-waits/SKILL.md").read_text(encoding="utf-8")


def test_the_file_is_what_the_generator_writes(root: Path, text: str) -> None:
    made = script(root, "gen_skills").skill(script(root, "gen_rules").rules())
    assert text == made, "the rule pages changed: run `make skills`"


def test_it_is_in_the_open_format(text: str) -> None:
    opening, front, body = text.split("---\n", 2)
    assert opening == ""
    fields = dict(line.split(": ", 1) for line in front.splitlines())
    assert fields["name"] == "host-side-waits"
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fields["name"])
    assert 0 < len(fields["description"]) <= 1024
    assert len(fields["compatibility"]) <= 500
    assert set(fields) <= {"name", "description", "license", "compatibility", "metadata"}
    assert len(body.splitlines()) < 500  # as the format advises


def test_a_description_with_a_colon_would_be_no_yaml(text: str) -> None:
    front = text.split("---\n", 2)[1]
    for line in front.splitlines():
        assert ": " not in line.split(": ", 1)[1], line


def test_every_rule_about_waits_is_in_it(root: Path, text: str) -> None:
    for rule in script(root, "gen_rules").rules():
        price = rule["price"] or {}
        if rule["code"].startswith("DG4") or price.get("waits"):
            assert f"[{rule['code']}]" in text
    assert "[DG301]" not in text
