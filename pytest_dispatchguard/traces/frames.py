"""Frames of Python stacks as the profiler writes them, and which of them are the user's own code."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from pytest_dispatchguard.model.traces import Line

_FRAME = re.compile(r"(?P<file>.+?)\((?P<line>\d{1,9})\): (?P<function>.*)", re.DOTALL)
_INSTALLED = ("site-packages", "dist-packages")
_OF_PYTHON = re.compile(r"/lib/python\d[.\d]*/")
# PyTorch cuts off the folder that a module was found in: what is left begins with the package.
_LIBRARIES = frozenset({"torch", "functorch", "torchgen", "triton", "pytest_dispatchguard"})
_LIBRARIES |= frozenset(sys.stdlib_module_names)


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a project, and where a trace has them."""

    paths: frozenset[str] = frozenset()
    """Relative to the project root."""
    moved: tuple[tuple[str, str], ...] = ()
    """From the beginning of a path in the trace to that of one here."""
    _by_name: dict[str, list[PurePosixPath]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, paths: Iterable[str], moved: Sequence[tuple[str, str]] = ()) -> Files:
        """The files at these paths."""
        files = cls(frozenset(paths), tuple(moved))
        for path in files.paths:
            pure = PurePosixPath(path)
            files._by_name.setdefault(pure.name, []).append(pure)
        return files

    def find(self, path: str) -> str | None:
        """The file of the project that a path in a trace means: of one path the other must be the end. None
        where there is none, or more than one."""
        path = path.replace("\\", "/")
        for before, after in self.moved:
            if path.startswith(before):
                path = after + path[len(before) :]
                break
        if path in self.paths:
            return path
        parts = PurePosixPath(path).parts
        installed = max((i for i, part in enumerate(parts) if part in _INSTALLED), default=-1)
        parts = parts[installed + 1 :]
        if not parts or (installed >= 0 and len(parts) < 2):
            return None
        best: list[str] = []
        most = 0
        for one in self._by_name.get(parts[-1], ()):
            shared = min(len(one.parts), len(parts))
            if one.parts[-shared:] != parts[-shared:] or shared < most:
                continue
            if installed >= 0 and shared < len(parts):
                continue  # the end of an installed file's path alone is no reason
            if shared > most:
                best, most = [], shared
            best.append(str(one))
        return best[0] if len(best) == 1 else None


def is_library(path: str) -> bool:
    """Whether a file is surely not the user's: installed, Python's own, or none at all."""
    path = path.replace("\\", "/")
    if path.startswith("<") or any(f"/{folder}/" in path for folder in _INSTALLED):
        return True
    if path.startswith("/") or path[1:2] == ":":
        return _OF_PYTHON.search(path) is not None
    return path.split("/", 1)[0].removesuffix(".py") in _LIBRARIES


def parsed(frame: str, files: Files, *, exact: bool) -> Line | None:
    """A frame of the user's own code; None for libraries, built-in functions and modules."""
    found = _FRAME.fullmatch(frame)
    if found is None:
        return None
    path = found["file"]
    line = int(found["line"])
    ours = files.find(path)
    if ours is not None:
        return Line(ours, line, found["function"], exact, ours=True)
    if is_library(path):
        return None
    return Line(path, line, found["function"], exact)


def of_stack(stack: str, files: Files, *, exact: bool) -> Line | None:
    """The place in a whole stack, innermost frame first, that its maker can change: the innermost frame of
    the project, else the innermost that is of no library."""
    first: Line | None = None
    for frame in stack.split(";"):
        line = parsed(frame.strip(), files, exact=exact)
        if line is not None:
            if line.ours or not files.paths:
                return line
            first = first or line
    return first
