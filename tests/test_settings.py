"""The settings: what is read, what the docs tell and what editors are offered are the same."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.config.config import DEFAULT_SRC, Config
from pytest_dispatchguard.config.load import load_config
from pytest_dispatchguard.config.settings import KINDS, SETTINGS, schema
from pytest_dispatchguard.model.errors import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
CODES = ("DG001", "DG101", "DG401", "DG402", "DG601")


def table(text: str) -> dict[str, Any]:
    return tomllib.loads(text)


def refusal(data: dict[str, Any]) -> str:
    jsonschema = pytest.importorskip("jsonschema", reason="the schema is held by it")
    errors = jsonschema.Draft7Validator(schema()).iter_errors(data)
    return "; ".join(error.message for error in errors)


def complaint(folder: Path, text: str) -> str:
    (folder / "pyproject.toml").write_text(f"[tool.dispatchguard]\n{text}\n", encoding="utf-8")
    try:
        load_config([Path()], cwd=folder, known_codes=CODES)
    except UserError as error:
        return str(error)
    return ""


def test_the_schema_is_one() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="the schema is held by it")
    jsonschema.Draft7Validator.check_schema(schema())
    assert schema()["properties"].keys() == {setting.key for setting in SETTINGS}


def test_the_shipped_schema_is_what_the_settings_give() -> None:
    """If not: dispatchguard config --format schema > pytest_dispatchguard/dispatchguard.schema.json"""
    shipped = ROOT / "pytest_dispatchguard" / "dispatchguard.schema.json"
    assert json.loads(shipped.read_text(encoding="utf-8")) == schema()


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_examples_are_taken_by_both(setting: Any, tmp_path: Path) -> None:
    example = table(setting.example)
    assert list(example) == [setting.key]
    assert refusal(example) == ""
    assert complaint(tmp_path, setting.example) == ""


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_defaults_are_those_of_the_configuration(setting: Any) -> None:
    config = Config(root=ROOT)
    used = getattr(config, setting.key.replace("-", "_"))
    if not setting.default:
        assert used is None
        return
    said = table(f"value = {setting.default}")["value"]
    if isinstance(said, bool):
        assert used is said
    else:
        assert list(used) == list(said)
    if setting.key == "src":
        assert tuple(said) == DEFAULT_SRC


@pytest.mark.parametrize(
    "wrong",
    [
        'selct = ["DG4"]',
        'select = "DG4"',
        "select = [4]",
        'select = [""]',
        "per-file-ignores = ['a']",
        "per-file-ignores = { 'a.py' = 'DG4' }",
        "exclude = ['!a']",
        "exclude = ['./']",
        "hot-roots = ['']",
        "tensor-types = ['a b']",
        "tree-modules = ['a.']",
        "baseline = ''",
        "pedantic = 1",
        "notes = 'yes'",
        "budgets = 3",
        "budgets = { a = 3 }",
        "trace = 3",
        "trace = { waits = 3 }",
        "trace = { waits_per_step = -1 }",
        "trace = { waits_per_step = 'few' }",
        "trace = { waits_per_step = true }",
        "trace = { idle_share = 1.1 }",
    ],
)
def test_what_the_configuration_refuses_the_schema_refuses(wrong: str, tmp_path: Path) -> None:
    assert complaint(tmp_path, wrong)
    assert refusal(table(wrong))


def test_limits_that_no_test_may_have_are_refused() -> None:
    for wrong in ("'x'", "true", "-1", "[1]", "[1, 2, 3]"):
        assert refusal(table(f"budgets = {{ a = {{ ratio = {wrong} }} }}")), wrong
    assert not refusal(table("budgets = { a = { ratio = [400, 10] } }"))


def test_the_docs_tell_of_the_same_settings() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| ([^|]+?) \|", page, re.MULTILINE)
    assert rows == [(setting.key, KINDS[setting.kind]) for setting in SETTINGS]
