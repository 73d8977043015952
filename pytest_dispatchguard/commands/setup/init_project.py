"""Does the work of `dispatchguard init`: plans the files that a project needs, and writes them."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_dispatchguard.commands.setup import templates
from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.config.project_root import MARKERS, find_root
from pytest_dispatchguard.config.toml_file import read_toml
from pytest_dispatchguard.lint.hot import hot_functions
from pytest_dispatchguard.lint.session import settings_only
from pytest_dispatchguard.lint.sources.files import Source, discover, read_source, write_source
from pytest_dispatchguard.lint.sources.module_names import module_name
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.paths import exists, is_folder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]  # there before 3.11 only

PYPROJECT, HOOKS = "pyproject.toml", ".pre-commit-config.yaml"
WORKFLOW, PIPELINE = ".github/workflows/overhead.yml", ".gitlab-ci.yml"
CI = ("github", "gitlab", "none")


@dataclass(frozen=True, slots=True)
class Wishes:
    """What to set up besides the configuration."""

    hook: bool
    ci: str
    """One of `CI`."""
    test: bool
    subject: str | None = None
    """The dotted name of the test's subject; None to find one."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One file."""

    path: str
    """Relative to the root, with forward slashes."""
    before: bytes | None
    """None if there is no file."""
    after: bytes | None
    """None if it stays unchanged."""
    said: str = ""
    """Why it stays unchanged."""
    by_hand: str = ""
    """What to add to it by hand."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A function that takes only tensors, or a class whose instances do."""

    module: str
    name: str
    tensors: tuple[str, ...]
    makes: bool


def plan(root: Path, wishes: Wishes) -> list[Planned]:
    """The files to write, and existing ones that stay. Nothing is written yet."""
    around = find_root([root])
    if around != root and not any(exists(root / marker) for marker in MARKERS):
        raise UserError(f"this directory is inside the project {around}: run it there")
    planned = [_configuration(root)]
    if wishes.hook:
        planned.append(_new(root, HOOKS, templates.HOOK))
    test = _test(root, wishes.subject) if wishes.test else None
    if wishes.ci == "github":
        budgets = test is not None and (test.after is not None or test.before is not None)
        planned.append(_new(root, WORKFLOW, templates.github(budgets=budgets)))
    elif wishes.ci == "gitlab":
        planned.append(_new(root, PIPELINE, templates.GITLAB))
    return planned if test is None else [*planned, test]


def write(root: Path, planned: Sequence[Planned]) -> None:
    """Write the planned files, each completely or not at all, and none that was created meanwhile."""
    for file in planned:
        if file.after is None:
            continue
        place = root / file.path
        if file.before is None and os.path.lexists(place):
            raise UserError(f"{file.path}: was created meanwhile, so not written; run again")
        if file.before is not None and place.read_bytes() != file.before:
            raise UserError(f"{file.path}: changed meanwhile, so not written; run again")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{file.path}: cannot be written: {error.strerror or error}") from None
        write_source(place, file.after)


def usual_ci(root: Path) -> str:
    """The CI that a project uses, judged by its files."""
    return "gitlab" if exists(root / PIPELINE) or exists(root / ".gitlab") else "github"


def _configuration(root: Path) -> Planned:
    place = root / PYPROJECT
    if not os.path.lexists(place):
        return Planned(PYPROJECT, None, templates.TABLE.encode())
    table = read_toml(place, PYPROJECT)
    tool = table.get("tool")
    before = place.read_bytes()
    if isinstance(tool, dict) and "dispatchguard" in tool:
        return Planned(PYPROJECT, before, None, "has [tool.dispatchguard] already")
    newline = b"\r\n" if b"\r\n" in before else b"\n"
    gap = b"" if not before.strip() else newline if before.endswith(b"\n") else newline * 2
    after = before + gap + templates.TABLE.encode().replace(b"\n", newline)
    if not _is_toml(after):  # an inline table, `tool = {…}`, cannot be extended
        said = "cannot be extended: its `tool` table is inline"
        return Planned(PYPROJECT, before, None, said, templates.TABLE)
    return Planned(PYPROJECT, before, after)


def _is_toml(data: bytes) -> bool:
    try:
        tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
    except ValueError:
        return False
    return True


def _new(root: Path, path: str, text: str) -> Planned:
    """A new file of ours; an existing one stays."""
    place = root / path
    if not os.path.lexists(place):
        return Planned(path, None, text.encode())
    try:
        before = place.read_bytes()
    except OSError as error:
        return Planned(path, b"", None, f"cannot be read: {error.strerror or error}", text)
    if b"dispatchguard" in before:
        return Planned(path, before, None, "names dispatchguard already")
    return Planned(path, before, None, "exists already; add this by hand", text)


def _test(root: Path, wanted: str | None) -> Planned:
    folder = next((name for name in ("tests", "test") if is_folder(root / name)), "tests")
    path = f"{folder}/test_overhead.py"
    if os.path.lexists(root / path):
        return Planned(path, b"", None, "is there already")
    config = settings_only((root,), root, None, {}, cached=False)
    found = next(_named(config, wanted) if wanted else _found(config), None)
    if found is None and wanted:
        raise UserError(f"--subject {wanted}: no such function or class in the project's files")
    if found is None:
        said = "not written: found no function that takes only tensors; name one with --subject"
        return Planned(path, None, None, said)
    text = templates.budget_test(found.module, found.name, found.tensors, makes=found.makes)
    return Planned(path, None, text.encode())


def _found(config: Config) -> Iterator[Subject]:
    """Hot functions and classes that take only tensors: functions first, as their arguments are certain."""
    places = hot_functions(
        (config.root,),
        cwd=config.root,
        config_file=None,
        jobs=1,
        cached=False,
        progress=None,
        note=lambda line: None,
    )
    classes: list[Subject] = []
    for place in places:
        for subject in _subjects(config, place.path, place.function.removesuffix(".forward")):
            if subject.makes:
                classes.append(subject)
            else:
                yield subject
    yield from classes


def _named(config: Config, wanted: str) -> Iterator[Subject]:
    module, _, name = wanted.replace(":", ".").rpartition(".")
    for file in discover((), config, cwd=config.root).project:
        if module_name(file.rel, config.import_roots) == module:
            yield from _subjects(config, file.rel, name, asked=True)


def _subjects(config: Config, rel: str, name: str, *, asked: bool = False) -> Iterator[Subject]:
    """The function or class of that name at the top level of a file, if it takes only tensors, or was
    requested."""
    module = module_name(rel, config.import_roots)
    source = read_source(config.root / rel, rel)
    names = (*module.split("."), name)
    if not isinstance(source, Source) or not all(part.isidentifier() for part in names):
        return
    if not asked and any(part.startswith(("_", "test")) for part in names):
        return
    try:
        body = ast.parse(source.text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            tensors = _tensors(node, asked=asked)
            makes = False
        elif isinstance(node, ast.ClassDef) and node.name == name:
            methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef)}
            forward, init = methods.get("forward"), methods.get("__init__")
            if forward is None or (not asked and init is not None and len(_required(init)) > 1):
                continue
            tensors = _tensors(forward, skip=1, asked=asked)
            makes = True
        else:
            continue
        if tensors:
            yield Subject(module, name, tensors, makes)


_USUAL = frozenset("x y z a b input inputs other tensor".split())


def _tensors(node: ast.FunctionDef, *, skip: int = 0, asked: bool) -> tuple[str, ...]:
    """The required parameters, if all of them are tensors by annotation or by a usual name."""
    required = _required(node)[skip:]
    fits = all(_is_tensor(parameter) for parameter in required)
    return tuple(p.arg for p in required) if asked or fits else ()


def _required(node: ast.FunctionDef) -> list[ast.arg]:
    given = node.args
    by_place = [*given.posonlyargs, *given.args]
    by_place = by_place[: len(by_place) - len(given.defaults)]
    missing = [
        p for p, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if not default
    ]
    return [*by_place, *missing]


def _is_tensor(parameter: ast.arg) -> bool:
    if parameter.annotation is None:
        return parameter.arg in _USUAL
    return ast.unparse(parameter.annotation).rpartition(".")[2].strip("'\"") == "Tensor"
