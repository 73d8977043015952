"""What a project's cache tells after each change, held against a run without one, byte for byte: commits of a
repository replayed one after another, and edits at random."""

from __future__ import annotations

import ast
import io
import random
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bench_recall import archived

from pytest_dispatchguard.lint.check import check
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.report import render

# The script: `python -m` would import what lies in the working folder, which is code of the repository.
COMMAND = str(Path(sys.executable).with_name("dispatchguard"))
CHECK = (COMMAND, "check", "--format", "json", "--pedantic")
LIMIT = 180.0
"""Seconds that a run may take: that of a large repository takes ten, where nobody else is at work."""

Files = Mapping[str, bytes]


# -- commits -----------------------------------------------------------------------------------------


def git_folder_of(folder: Path) -> Path:
    """The git directory of a bare repository, or of one with a work tree."""
    inside = folder / ".git"
    return inside if inside.exists() else folder


def commits_of(git: Path, number: int, seed: int) -> list[str]:
    """A commit and those after it, oldest first, each of which changes Python files."""
    asked = (
        "log",
        "--first-parent",
        "--no-merges",
        "--format=%H",
        "-n",
        "200",
        "HEAD",
        "--",
        "*.py",
    )
    ran = subprocess.run(
        ["git", f"--git-dir={git}", *asked], capture_output=True, text=True, check=False
    )
    found = ran.stdout.split()[::-1]
    first = random.Random(seed).randrange(max(1, len(found) - number))
    return found[first : first + number + 1]


def files_of(git: Path, revision: str) -> dict[str, bytes]:
    """The Python files of a revision, and what configures them."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archived(git, revision))) as tar:
        for member in tar.getmembers():
            data = tar.extractfile(member) if member.isfile() else None
            if data is not None:
                found[member.name] = data.read()
    return found


def lay_out(root: Path, before: Files, after: Files) -> None:
    """Makes one state of the other; files that are the same are left alone."""
    for name in before.keys() - after.keys():
        (root / name).unlink()
        for folder in (root / name).relative_to(root).parents[:-1]:
            if not any((root / folder).iterdir()):  # a file may come in its place
                (root / folder).rmdir()
    for name, data in after.items():
        if before.get(name) != data:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def replay(git: Path, number: int, seed: int, *, daemon: bool) -> Iterator[str]:
    """Lints a commit and those after it: a line for each run with a cache, and for each of a daemon, that is
    empty where it says what a run without a cache says."""
    commits = commits_of(git, number, seed)
    ways = (("warm", ()), *([("the daemon", ("--daemon",))] if daemon else ()))
    with tempfile.TemporaryDirectory(prefix="replays-") as scratch:
        folders = {name: Path(scratch, str(n), "project") for n, (name, _) in enumerate(ways)}
        before: Files = {}
        for folder in folders.values():
            subprocess.run(["git", "init", "-q", folder], check=True)
        for revision in commits:
            try:
                files = files_of(git, revision)
            except SystemExit:  # a mirror may lack what it lists
                continue
            for folder in folders.values():
                lay_out(folder, before, files)
            before = files
            cold = _run(folders["warm"], "--no-cache")
            for name, words in ways:
                where = f"{git.parent.name} {revision[:10]}, {name}"
                yield _difference(where, cold, _run(folders[name], *words))


def _run(folder: Path, *words: str) -> tuple[int, bytes, str]:
    try:
        done = subprocess.run(
            [*CHECK, *words], cwd=folder, capture_output=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return -1, b"", f"gave no answer within {LIMIT:g} s"
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")[-300:]


def _difference(where: str, cold: tuple[int, bytes, str], said: tuple[int, bytes, str]) -> str:
    for name, (status, _, told) in (("without a cache", cold), ("as asked", said)):
        if status not in (0, 1):
            return f"{where}: {name}: ended with {status}: {told.strip()}"
    return "" if said == cold else f"{where}: told something else than without a cache"


def end_daemons() -> None:
    """Ends those that were begun, in the folder that the environment names."""
    subprocess.run([COMMAND, "daemon", "--stop"], capture_output=True, check=False)


# -- edits -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Edit:
    """One file's text, and how it came to be."""

    name: str
    text: str
    made: str


def edited(root: Path, number: int, seed: int) -> Iterator[str]:
    """Makes so many edits, one after another, some of which are taken back: a line for each, empty where
    a run with the cache says what one without it says."""
    rng = random.Random(seed)
    texts = {
        str(p.relative_to(root)): p.read_text(encoding="utf-8") for p in sorted(root.rglob("*.py"))
    }
    whole = dict(texts)
    warm = Request((Path(),), root, settings={"pedantic": True})
    made: list[str] = []
    for _ in range(number):
        edit = random_edit(rng, texts, whole)
        texts[edit.name] = edit.text
        (root / edit.name).write_text(edit.text, encoding="utf-8")
        made.append(f"{edit.name}: {edit.made}")
        try:
            told, expected = (
                render(check(request).report, "json")
                for request in (warm, replace(warm, cache=False))
            )
        except Exception as error:  # noqa: BLE001 - whatever comes of it is told
            yield f"edit {len(made)} ({made[-1]}): {error!r}"
            continue
        same = told == expected
        yield (
            ""
            if same
            else f"edit {len(made)} ({made[-1]}): told something else than without a cache"
        )


def random_edit(rng: random.Random, texts: Mapping[str, str], whole: Mapping[str, str]) -> Edit:
    """Some edit of some file."""
    while True:
        name = rng.choice(sorted(texts))
        if texts[name] != whole[name] and rng.random() < 0.3:
            return Edit(name, whole[name], "taken back")
        change = rng.choice(CHANGES)
        try:
            found = change(rng, texts[name])
        except SyntaxError:  # files that do not parse are edited by nobody here
            continue
        if found != texts[name]:
            return Edit(name, found, change.__name__)


def _nodes(text: str, *kinds: type[ast.AST]) -> list[ast.AST]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]


def _cut(text: str, node: ast.AST, put: str) -> str:
    """A text with something in place of a node."""
    lines = text.splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno - 1  # type: ignore[attr-defined]  # statements have it
    head = lines[first].encode()[: node.col_offset].decode()  # type: ignore[attr-defined]  # as above
    tail = lines[last].encode()[node.end_col_offset :].decode()  # type: ignore[attr-defined]  # as above
    return "".join([*lines[:first], head + put + tail, *lines[last + 1 :]])


def delete_statement(rng: random.Random, text: str) -> str:
    found = _nodes(text, ast.stmt)
    return _cut(text, rng.choice(found), "pass") if found else text


def rename_call(rng: random.Random, text: str) -> str:
    found = [n.func for n in _nodes(text, ast.Call) if isinstance(n, ast.Call)]
    named = [node for node in found if isinstance(node, ast.Name | ast.Attribute)]
    if not named:
        return text
    node = rng.choice(named)
    others = [one.id if isinstance(one, ast.Name) else one.attr for one in named]
    name = rng.choice([*others, "item", "renamed"])
    return _cut(
        text, node, name if isinstance(node, ast.Name) else f"{ast.unparse(node.value)}.{name}"
    )


def remove_decorator(rng: random.Random, text: str) -> str:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = [d for n in _nodes(text, *kinds) for d in n.decorator_list]  # type: ignore[attr-defined]  # definitions
    if not found:
        return text
    gone = rng.choice(found)
    lines = text.splitlines(keepends=True)
    return "".join([*lines[: gone.lineno - 1], *lines[gone.end_lineno :]])


def add_function(rng: random.Random, text: str) -> str:
    name = rng.choice(("added", "forward", "step", "__call__"))
    functions = [node.func for node in _nodes(text, ast.Call) if isinstance(node, ast.Call)]
    called = rng.choice([*(f.id for f in functions if isinstance(f, ast.Name)), "len"])
    base = rng.choice(("object", "torch.nn.Module"))
    return (
        f"{text.rstrip()}\n\n\nimport torch\n\n\nclass Added({base}):\n"
        f"    def {name}(self, x: torch.Tensor):\n        if x.any():\n            return {called}(x)\n"
        "        return x.item()\n"
    )


def move_lines(rng: random.Random, text: str) -> str:
    found = _nodes(text, ast.FunctionDef, ast.ClassDef)
    if not found:
        return text
    line = rng.choice(found).lineno - 1  # type: ignore[attr-defined]  # statements have it
    lines = text.splitlines(keepends=True)
    blank = line > 0 and not lines[line - 1].lstrip().startswith("@")
    return "".join([*lines[:line], "\n" * rng.choice((1, 3)), *lines[line:]]) if blank else text


CHANGES = (delete_statement, rename_call, remove_decorator, add_function, move_lines)
