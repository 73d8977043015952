"""The table of all settings of `[tool.dispatchguard]`.

The configuration is validated by it, `dispatchguard config` lists it, and the JSON schema for editors is made
from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Kind = Literal[
    "codes",
    "codes by glob",
    "globs",
    "patterns",
    "folders",
    "names",
    "file",
    "flag",
    "budgets",
    "trace",
]

ALL = "ALL"
"""Stands for every rule, where codes are listed."""

SCHEMA_URL = "https://json.schemastore.org/partial-dispatchguard.json"
DOCS_URL = "https://pytest-dispatchguard.readthedocs.io/configuration/"


class Setting(NamedTuple):
    """One key of the table. Not a dataclass, which takes ten times as long to create, in every run."""

    key: str
    kind: Kind
    default: str
    """As TOML; empty if leaving the key out has a meaning of its own, which `doc` explains."""
    example: str
    """A line of TOML."""
    doc: str


SETTINGS = (
    Setting(
        "select",
        "codes",
        "",
        'select = ["DG1", "DG4"]',
        "Rules to run, as codes or prefixes (DG4 stands for all of DG4xx, ALL for every rule). By default, "
        "every rule that is not off unless selected. DG001 (a file that cannot be read) "
        "runs unless it is ignored.",
    ),
    Setting(
        "extend-select",
        "codes",
        "[]",
        'extend-select = ["DG6"]',
        "Rules to run in addition to those, including rules that are off by default.",
    ),
    Setting(
        "ignore",
        "codes",
        "[]",
        'ignore = ["DG402"]',
        "Rules to skip. If select and ignore both match a rule, the longer prefix wins; "
        "at equal length, ignore.",
    ),
    Setting(
        "per-file-ignores",
        "codes by glob",
        "{}",
        'per-file-ignores = { "examples/**" = ["DG4"] }',
        "Rules to skip in the files that a glob matches.",
    ),
    Setting(
        "exclude",
        "globs",
        "[]",
        'exclude = ["third_party/**"]',
        "Files and directories to leave out, in addition to .git, .venv, build, node_modules and the like, "
        "and whatever git ignores. Excluded files are left out even if they are named on the command line.",
    ),
    Setting(
        "src",
        "folders",
        '[".", "src"]',
        'src = ["python"]',
        "Directories that imports start from, relative to the project root.",
    ),
    Setting(
        "hot-roots",
        "patterns",
        "[]",
        'hot-roots = ["mylib.engine.run_step", "mylib.ops.*", "@mylib.hot"]',
        "Functions, classes, modules (mylib.ops.*) and decorators (@mylib.hot) to treat as hot.",
    ),
    Setting(
        "cold",
        "patterns",
        "[]",
        'cold = ["mylib.debug.*"]',
        "Functions, classes, modules and decorators to treat as cold.",
    ),
    Setting(
        "tensor-types",
        "names",
        "[]",
        'tensor-types = ["mylib.MaskedTensor"]',
        "Classes to treat as tensors, in addition to torch.Tensor and its relatives.",
    ),
    Setting(
        "tree-modules",
        "names",
        "[]",
        'tree-modules = ["mylib.tree"]',
        "Modules whose flatten, map and so on are tree traversals, in addition to torch.utils._pytree, "
        "optree, dm-tree, jax.tree_util, keras.tree and keras.src.tree.",
    ),
    Setting(
        "baseline",
        "file",
        "",
        'baseline = "dispatchguard-baseline.json"',
        "The baseline file: findings that it lists are not reported. By default there is none.",
    ),
    Setting(
        "budgets",
        "budgets",
        "{}",
        'budgets = { "tests/test_ops.py::test_add*" = { ratio = 1.8, instructions = 130 } }',
        "Limits for tests, by test ID, in which * and ? are wildcards. The pytest plugin reads them.",
    ),
    Setting(
        "trace",
        "trace",
        "{}",
        "trace = { waits_per_step = 2, idle_share = 0.1 }",
        "Limits for the traces of `pytest --overhead-trace`: how often the host may wait for the device in a "
        "step, and for what share of the steps the device may be idle.",
    ),
    Setting(
        "pedantic",
        "flag",
        "false",
        "pedantic = true",
        "Whether to report uncertain findings.",
    ),
    Setting(
        "notes",
        "flag",
        "",
        "notes = false",
        "Whether to show all notes, or none. By default, the 20 most expensive.",
    ),
    Setting("strict", "flag", "false", "strict = true", "Whether notes fail the run."),
)

KINDS: Mapping[Kind, str] = {
    "codes": "list of codes",
    "codes by glob": "table of globs to lists of codes",
    "globs": "list of globs",
    "patterns": "list of patterns",
    "folders": "list of directories",
    "names": "list of dotted names",
    "file": "path",
    "flag": "true or false",
    "budgets": "table of test IDs to limits",
    "trace": "table of limits",
}
"""The names of the kinds, for people."""

_STRING = {"type": "string", "pattern": r"\S"}
_CODE = {"type": "string", "pattern": r"^\s*(?:[A-Za-z]+[0-9]*)\s*$"}
_GLOB = {"type": "string", "pattern": r"^(?!\s*!)(?!\s*[./]*\s*$)"}
_NAME = {"type": "string", "pattern": r"^\s*[^\W\d]\w*(?:\.[^\W\d]\w*)*\s*$"}
_LIMIT = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {
            "description": "a limit, and a tolerance that may be added to it",
            "type": "array",
            "items": {"type": "number", "minimum": 0},
            "minItems": 2,
            "maxItems": 2,
        },
    ]
}


def schema() -> dict[str, Any]:
    """The JSON schema of the table, in the form in which SchemaStore adds it to that of pyproject.toml."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": SCHEMA_URL,
        "title": "dispatchguard",
        "description": f"Settings of dispatchguard\n{DOCS_URL}",
        "type": "object",
        "additionalProperties": False,
        "properties": {setting.key: _property(setting) for setting in SETTINGS},
    }


def _property(setting: Setting) -> dict[str, Any]:
    return {"description": f"{setting.doc}\n{DOCS_URL}", **_TYPES[setting.kind]}


def _list(of: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


_TYPES: Mapping[Kind, Mapping[str, Any]] = {
    "codes": _list(_CODE),
    "codes by glob": {
        "type": "object",
        "propertyNames": _GLOB,
        "additionalProperties": _list(_CODE),
    },
    "globs": _list(_GLOB),
    "patterns": _list(_STRING),
    "folders": _list(_STRING),
    "names": _list(_NAME),
    "file": {"type": "string", "minLength": 1},
    "flag": {"type": "boolean"},
    "budgets": {
        "type": "object",
        "additionalProperties": {"type": "object", "additionalProperties": _LIMIT},
    },
    "trace": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "waits_per_step": {"type": "number", "minimum": 0},
            "idle_share": {"type": "number", "minimum": 0, "maximum": 1},
        },
    },
}
