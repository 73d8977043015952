"""The arrows of the house: which part may import which, and that modules say what they are for."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "pytest_dispatchguard"

# `edits` is text and places in it, on the level of the model: the linter writes with it, reports show.
# `profile` is what running code leaves for reading it.
# `project_folder` is where any part may leave a file.
# `paths` and `spelling` are for any part: careful checks of paths, and suggestions for misspelled words.
BASE = frozenset({"config", "edits", "git", "model", "paths", "profile", "project_folder"})
BASE |= {"spelling", "visible"}
PARTS = frozenset({"lint", "measure", "report", "runtime"})

# What each part may import of ours, beside itself. A part that is not named may import BASE.
ARROWS = {
    "__init__": BASE | PARTS | {"hookspecs"},
    "__main__": frozenset({"start"}),
    "agents": BASE | {"", "lint", "report", "traced", "verify"},
    "cli": frozenset({"", "commands", "model", "spelling", "visible"}),
    "commands": BASE
    | PARTS
    | {
        "",
        "agents",
        "daemon",
        "history",
        "post",
        "prices",
        "pytest_run",
        "server",
        "traced",
        "traces",
        "verify",
    },
    "config": frozenset({"model", "paths", "spelling"}),
    "daemon": frozenset({"", "startup"}),
    "edits": frozenset({"model"}),
    "git": frozenset(),
    "history": BASE | {"", "measure", "report"},
    "hookspecs": BASE | {"lint"},
    "lint": BASE | {"", "hookspecs", "prices", "startup"},
    "measure": BASE | {"", "hookspecs", "runtime"},
    "model": frozenset(),
    "plugin": BASE | PARTS | {"", "hookspecs", "pytest_run"},
    "post": frozenset({"model", "report", "visible"}),
    "prices": frozenset({"model", "project_folder"}),
    "profile": frozenset({"config", "model", "project_folder"}),
    "project_folder": frozenset({"model"}),
    "pytest_run": BASE | PARTS | {"", "history", "traced", "traces"},
    "report": frozenset({"edits", "model", "visible"}),
    "runtime": BASE | {"", "hookspecs"},
    "server": BASE | {"", "lint", "report"},
    # It hands itself to the daemon, and tells the daemon what to import.
    "start": BASE | {"cli", "commands", "daemon", "lint", "report", "startup"},
    "paths": frozenset(),
    "spelling": frozenset(),
    "startup": frozenset(),
    "traced": BASE | {"", "lint", "prices", "traces"},
    "traces": frozenset({"model", "visible"}),
    "verify": BASE | {"", "lint", "measure", "prices", "report"},
    "visible": frozenset(),
}

# The floors of each part, lowest first. A module or folder may import what stands on a floor below its own.
FLOORS = {
    "lint": (
        ("facts", "internal_errors", "processes"),
        ("sources", "syntax"),
        ("knowledge",),
        ("scout", "callgraph", "store"),
        ("kinds",),
        ("dataflow",),
        ("hotness",),
        ("judge", "results"),
        ("pipeline",),
        ("incremental", "request", "session"),
        ("engine",),
        ("newly_hot", "passes"),
        ("check",),
        ("fixing", "hot", "known_hot", "observed", "review", "resident"),
    ),
    "measure": (
        ("processes", "timing"),
        ("layers",),
        ("budgets",),
        ("workers",),
        ("revisions", "specimens", "trials"),
    ),
    "traces": (
        ("stream", "frames", "vocabulary", "timeline", "idle", "operators"),
        ("recorded", "joining", "comparing", "rewriting"),
        ("replay",),
        ("analysis", "marking"),
    ),
    "report": (
        ("diff", "figures", "fingerprint", "hot", "lines", "markdown_text", "options", "progress"),
        ("placed", "statistics", "suggestions", "wording"),
        ("charts", "prices", "rules"),
        ("budgets",),
        ("formats",),
        ("html", "review", "verified"),
        ("traces",),
    ),
    "runtime": (
        ("code", "program", "torch_private"),
        ("hooks", "syncs"),
        ("compiled", "ghost"),
        ("counters", "watch"),
        ("aten_loops", "recorder", "target"),
    ),
}

MOST_MODULES = 14
MOST_LINES = 600
MOST_LINES_OF_A_FUNCTION = 60
GENERATED = frozenset({"torch_classes.py"})

MAY_IMPORT_TORCH = ("measure", "runtime")


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
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
    for node in ast.walk(parsed(path)):
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


def test_every_module_says_what_it_is_for() -> None:
    assert [shown(path) for path in modules() if not ast.get_docstring(parsed(path))] == []


def test_imports_point_one_way() -> None:
    wrong = [
        f"{shown(path)}:{line}: {part(path)} imports {name}"
        for path in sorted((ROOT / PACKAGE).rglob("*.py"))
        for name, line in imports(path)
        if (to := target(name)) is not None
        and to != part(path)
        and to not in ARROWS.get(part(path), BASE)
    ]
    assert not wrong, "\n".join(wrong)


def place(path: Path) -> str:
    """The module or folder of its part that a module belongs to: ``sources``, ``check``."""
    parts = path.relative_to(ROOT / PACKAGE).parts
    return parts[1].removesuffix(".py") if len(parts) > 1 else ""


@pytest.mark.parametrize("name", FLOORS)
def test_every_module_has_its_floor(name: str) -> None:
    there = {place(path) for path in (ROOT / PACKAGE / name).rglob("*.py")} - {"__init__"}
    assert there == {one for floor in FLOORS[name] for one in floor}


@pytest.mark.parametrize("name", FLOORS)
def test_imports_lead_down(name: str) -> None:
    floors = {one: number for number, floor in enumerate(FLOORS[name]) for one in floor}
    wrong = []
    for path in sorted((ROOT / PACKAGE / name).rglob("*.py")):
        here = place(path)
        for imported, line in imports(path):
            parts = imported.split(".")
            if here == "__init__" or parts[:2] != [PACKAGE, name] or len(parts) < 3:
                continue
            to = parts[2]
            if to in floors and to != here and floors[to] >= floors[here]:
                wrong.append(f"{shown(path)}:{line}: {here} imports {to}")
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_by_others() -> None:
    """Imports inside functions and for type checkers count."""
    paths = {module_name(path): path for path in modules()}
    waiting = {
        name: {known for imported, _ in imports(path) if (known := module_in(imported, paths))}
        - {name}
        for name, path in paths.items()
    }
    while True:
        free = {name for name, needed in waiting.items() if not needed & waiting.keys()}
        if not free:
            break
        waiting = {name: needed for name, needed in waiting.items() if name not in free}
    ways = {name: sorted(needed & waiting.keys()) for name, needed in waiting.items()}
    assert not circle(ways), f"each imports the next: {', '.join(circle(ways))}"


def module_name(path: Path) -> str:
    """The dotted name of a module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] == "rules":
        parts = ("dispatchguard_rules", *parts[1:])
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def module_in(name: str, paths: dict[str, Path]) -> str:
    """The module of ours that an imported name is, or lies in. The package itself gives its names lazily."""
    while name and name not in paths:
        name = name.rpartition(".")[0]
    return "" if name == PACKAGE else name


def circle(ways: dict[str, list[str]]) -> list[str]:
    """Modules of which each imports the next; none where there is no circle."""
    if not ways:
        return []
    seen = [min(ways)]
    while ways[seen[-1]][0] not in seen:
        seen.append(ways[seen[-1]][0])
    return seen[seen.index(ways[seen[-1]][0]) :]


def test_circles_are_found() -> None:
    assert circle({}) == []
    assert circle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c"]


@pytest.mark.parametrize(
    "folder", sorted({p.parent for p in modules()}), ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_a_folder_has_few_modules(folder: Path) -> None:
    assert len([p for p in folder.glob("*.py") if p.name != "__init__.py"]) <= MOST_MODULES


def test_modules_and_functions_are_short() -> None:
    written = [path for path in modules() if path.name not in GENERATED]
    long = [
        shown(path) for path in written if path.read_text(encoding="utf-8").count("\n") > MOST_LINES
    ]
    long += [
        f"{shown(path)}: {node.name}: {node.end_lineno - node.lineno + 1} lines"
        for path in written
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= MOST_LINES_OF_A_FUNCTION
    ]
    assert not long, "\n".join(long)


def test_torch_is_imported_only_where_code_runs() -> None:
    wrong = [
        f"{shown(path)}:{line}"
        for path in sorted((ROOT / PACKAGE).rglob("*.py"))
        if part(path) not in MAY_IMPORT_TORCH
        for name, line in imports(path)
        if name.partition(".")[0] == "torch"
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_imports_the_matchers_of_libcst() -> None:
    """They take a fifth of a second to import, three times what the rest of libcst takes, in every process
    that judges; `lint/syntax/nodes.py` has what is needed of them."""
    wrong = [
        f"{shown(path)}:{line}"
        for path in modules()
        for name, line in imports(path)
        if name.startswith("libcst.matchers")
    ]
    assert not wrong, "\n".join(wrong)


def test_rules_import_only_public_names() -> None:
    fine = {*sys.stdlib_module_names, "libcst", "dispatchguard_rules"}
    wrong = [
        f"{shown(path)}:{line}: {name}"
        for path in sorted((ROOT / "rules").rglob("*.py"))
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
    visible = list(imports(ROOT / PACKAGE / "visible.py"))
    assert visible and all(target(name) is None for name, _ in visible)


# The ghost stands in for torch: what it replaces is private more often than not.
KNOWS_TORCH = tuple(ROOT / PACKAGE / "runtime" / name for name in ("torch_private", "ghost"))


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


def test_private_names_of_torch_are_in_one_place() -> None:
    """So that a torch that has renamed one is met there."""
    public = {"torch.utils._python_dispatch", "torch.utils._pytree"}
    found = [
        (shown(path), name, line)
        for path in modules()
        if not any(map(path.is_relative_to, KNOWS_TORCH))
        for name, line in private_names_of_torch(parsed(path))
        if not any(name.startswith(known) for known in public)
    ]
    assert not found


def test_private_names_are_found() -> None:
    text = "import torch._dynamo\nfrom torch._C import x\ntorch._C.y()\ntorch.add.__name__\ntorch.ones(1)"
    assert [line for _, line in private_names_of_torch(ast.parse(text))] == [1, 2, 3, 3]
