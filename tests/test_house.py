"""The arrows of the house: which part may import which, and that modules say what they are for."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "pytest_dispatchguard"

# `edits` is text and places in it, on the level of the model: the linter writes with it, reports show.
# `profile` is what running code leaves for reading it.
# `project_folder` is where any part may leave a file.
BASE = frozenset({"config", "edits", "git", "model", "profile", "project_folder", "visible"})
PARTS = frozenset({"lint", "measure", "report", "runtime"})

# What each part may import of ours, beside itself. A part that is not named may import BASE.
ARROWS = {
    "__init__": BASE | PARTS | {"hookspecs"},
    "__main__": frozenset({"start"}),
    # `progress` is what the command line shows while it works; editors show the same, by `working`.
    "apart": BASE | PARTS,
    "bisecting": BASE | PARTS | {"", "trends"},
    "cli": frozenset({"", "commands", "config", "model", "visible"}),
    "commands": BASE
    | PARTS
    | {
        "",
        "apart",
        "bisecting",
        "completions",
        "daemon",
        "pricing",
        "progress",
        "reporting",
        "reviewing",
    }
    | {"running", "server", "setting_up", "settings", "trends"},
    "completions": frozenset(),
    "config": frozenset({"model", "settings"}),
    "daemon": frozenset({"", "own_folder"}),
    "edits": frozenset({"model"}),
    "git": frozenset(),
    "history": frozenset({"git", "model", "project_folder"}),
    "hookspecs": BASE | {"lint"},
    "lint": BASE | {"", "hookspecs", "precompiled", "prices"},
    "measure": BASE | {"", "hookspecs", "runtime"},
    "model": frozenset(),
    "visible": frozenset(),
    # Two parts of the plugin: what may be asked of it, and what it tells.
    "options": frozenset({"measure", "report"}),
    "own_folder": frozenset(),
    "post": frozenset({"model", "report", "visible"}),
    "gathering": BASE | PARTS | {"", "losses", "options", "trends"},
    "precompiled": frozenset({"own_folder"}),
    "prices": frozenset({"model", "project_folder"}),
    "pytest_ini": frozenset({"config", "model"}),
    "pricing": BASE | PARTS | {"prices"},
    "profile": frozenset({"config", "model", "project_folder"}),
    "project_folder": frozenset({"model"}),
    "recording": BASE | PARTS | {"losses"},
    "linting": BASE | PARTS | {"losses"},
    "losses": frozenset({"model"}),
    "plugin": BASE | PARTS | {"", "gathering", "hookspecs", "linting", "options", "recording"},
    "progress": frozenset({"visible"}),
    "report": frozenset({"edits", "model", "visible"}),
    "reviewing": BASE | PARTS | {"post"},
    "reporting": BASE | PARTS | {"", "trends"},
    "running": BASE | PARTS | {"recording"},
    "runtime": BASE | {"", "hookspecs"},
    # Where the command begins: it hands itself to the daemon, and tells the daemon what to import.
    "start": BASE | {"cli", "commands", "daemon", "lint", "precompiled", "progress", "report"},
    "trends": BASE | PARTS | {"history", "pytest_ini"},
    "server": BASE | {"", "lint", "report", "working"},
    "setting_up": BASE | {"", "lint", "templates"},
    "settings": frozenset(),
    "templates": frozenset({""}),
    "working": frozenset({"", "progress"}),
}

MAY_IMPORT_TORCH = ("measure", "runtime")


def modules() -> list[Path]:
    """Every module of the package and of the rule pack."""
    return sorted([*(ROOT / PACKAGE).rglob("*.py"), *(ROOT / "rules").rglob("*.py")])


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def part(path: Path) -> str:
    """The part of the house that a module of the package belongs to: ``lint``, ``cli``."""
    first = path.relative_to(ROOT / PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Absolute names that a module imports, with lines; names under TYPE_CHECKING count too."""
    home = path.relative_to(ROOT).with_suffix("").parts[:-1]
    if home and home[0] == "rules":
        home = ("dispatchguard_rules", *home[1:])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            above = home[: len(home) - node.level + 1] if node.level else ()
            base = ".".join((*above, *((node.module,) if node.module else ())))
            for alias in node.names:
                yield f"{base}.{alias.name}", node.lineno


def target(name: str) -> str | None:
    """The part of the package that an imported name lies in; empty for a public name of the top."""
    first, _, rest = name.partition(".")
    if first != PACKAGE:
        return None
    head = rest.partition(".")[0]
    folder = ROOT / PACKAGE / head
    return head if head and (folder.is_dir() or folder.with_suffix(".py").exists()) else ""


@pytest.mark.parametrize("path", modules(), ids=shown)
def test_a_module_says_what_it_is_for(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring, f"{shown(path)} has no docstring"


@pytest.mark.parametrize("path", sorted((ROOT / PACKAGE).rglob("*.py")), ids=shown)
def test_imports_point_one_way(path: Path) -> None:
    here = part(path)
    allowed = ARROWS.get(here, BASE)
    wrong = [
        f"{shown(path)}:{line}: {here} imports {name}"
        for name, line in imports(path)
        if (to := target(name)) is not None and to != here and to not in allowed
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "path",
    [p for p in sorted((ROOT / PACKAGE).rglob("*.py")) if part(p) not in MAY_IMPORT_TORCH],
    ids=shown,
)
def test_torch_is_imported_only_where_code_runs(path: Path) -> None:
    wrong = [
        f"{shown(path)}:{line}" for name, line in imports(path) if name.partition(".")[0] == "torch"
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", sorted((ROOT / "rules").rglob("*.py")), ids=shown)
def test_rules_import_only_public_names(path: Path) -> None:
    fine = {*sys.stdlib_module_names, "libcst", "dispatchguard_rules"}
    wrong = [
        f"{shown(path)}:{line}: {name}"
        for name, line in imports(path)
        if name.partition(".")[0] not in fine and target(name) != ""
    ]
    assert not wrong, "\n".join(wrong)


def test_the_arrows_are_read_as_they_are_written() -> None:
    """The readers above see relative imports, aliases and submodules alike."""
    assert target("pytest_dispatchguard.model.Finding") == "model"
    assert target("pytest_dispatchguard.Rule") == ""
    assert target("pytest_dispatchguard") == ""
    assert target("libcst") is None
    model = list(imports(ROOT / PACKAGE / "model.py"))
    assert all(target(name) is None for name, _ in model)


# The ghost stands in for torch: what it replaces is private more often than not.
KNOWS_TORCH = frozenset({"torch_private", "ghost", "ghost_marks", "ghost_modes", "ghost_names"})


def root_of(node: ast.expr) -> str:
    """The name that a chain of attributes begins with."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def private_names_of_torch(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Names under `torch` that begin with an underscore, with lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = [alias.name for alias in node.names]
            module = getattr(node, "module", None)
            found = [f"{module}.{name}" if module else name for name in names]
        elif isinstance(node, ast.Attribute) and root_of(node) == "torch":
            found = [ast.unparse(node)]
        else:
            continue
        for name in found:
            parts = name.split(".")
            private = any(p.startswith("_") and not p.startswith("__") for p in parts[1:])
            if parts[0] == "torch" and private:
                yield name, node.lineno


@pytest.mark.parametrize("path", [p for p in modules() if p.stem not in KNOWS_TORCH], ids=shown)
def test_private_names_of_torch_are_in_one_place(path: Path) -> None:
    """So that a torch that has renamed one is met there."""
    public = {"torch.utils._python_dispatch", "torch.utils._pytree"}
    found = [
        (name, line)
        for name, line in private_names_of_torch(ast.parse(path.read_text(encoding="utf-8")))
        if not any(name.startswith(known) for known in public)
    ]
    assert not found


def test_private_names_are_found() -> None:
    text = "import torch._dynamo\nfrom torch._C import x\ntorch._C.y()\ntorch.add.__name__\ntorch.ones(1)"
    assert [line for _, line in private_names_of_torch(ast.parse(text))] == [1, 2, 3, 3]
