"""Reads the guard trees of compiled code: each guard, what it checks, and the user's line that caused it."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath
from types import CodeType
from typing import Any, Literal

from pytest_dispatchguard.model.compiled import Guards
from pytest_dispatchguard.runtime.torch_private import guard_trees

# torch writes the line that caused a guard behind it: `x == 1  # y = x + 1  # net.py:3 in forward`.
_PLACE = re.compile(
    r"#\s*(?:(?P<text>[^\n]*?)\s+#\s*)?(?P<place>[^#\n]+:\d+ in [^#\n]+?)\s*(?:\(HINT[^\n]*)?$"
)
_HELD = re.compile(r"\._(?:modules|parameters|buffers)\[(['\"])([^'\"]*)\1\]")
_LOCAL = re.compile(r"[LG]\['[^']*'\]")
_INDEX = re.compile(r"\[\d+\]|\d+(?=\])|(?<=\.)\d+")
_ROOT = re.compile(r"([LG])\['([^']*)'\]")
_CONSTANTS = (bool, int, float, complex, str, bytes, type(None))
_COUNTER = re.compile(r"(?<=_)\d+(?=')|\b\d{6,}\b")


@dataclass(frozen=True, slots=True)
class Cause:
    """What in user code causes a guard."""

    kind: Literal["attribute", "tensors", "structure", "argument", "global", "library", "ambient"]
    name: str = ""
    """``L['self'].layers[*].scale``, a module, an argument, a global; empty for the last two."""


def cause_of(source: str, kind: type, modules: Collection[str]) -> Cause:
    """The cause of a guard, from its source and the type of the value. `modules` are the variables that hold
    modules."""
    root = _ROOT.search(source)
    if root is None:
        return Cause("ambient")
    scope, name = root.groups()
    if scope == "G":
        return Cause("library") if name.startswith("__") else Cause("global", name)
    if name not in modules:
        return Cause("argument", name)
    if issubclass(kind, _CONSTANTS) and "dict.keys(" not in source:
        return Cause("attribute", alike(readable(source)))
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(kind, torch.Tensor):
        return Cause("tensors", name)
    return Cause("structure", name)


@dataclass(frozen=True, slots=True)
class Guard:
    """A leaf guard."""

    kind: str
    source: str
    place: str
    text: str
    expression: str
    """The check, as torch writes it."""
    manager: Any
    """Its node in the guard tree."""

    def cause(self, modules: Collection[str]) -> Cause:
        """Its cause."""
        raw = self.manager.get_source()
        return cause_of(
            raw if _ROOT.search(raw) else self.source,
            guard_trees.guarded_type(self.manager),
            modules,
        )


def guards_of(codes: Iterable[CodeType]) -> list[Guard]:
    """All guards of the compiled forms of code."""
    return [
        guard
        for code in codes
        for entry in guard_trees.cache_entries(code)
        for guard in guards_in(guard_trees.guard_tree(entry))
    ]


def guards_in(root: Any) -> Iterator[Guard]:
    """All guards of a guard tree."""
    for manager in guard_trees.managers(root):
        source = "" if manager is root else readable(manager.get_source())
        for leaf in guard_trees.leaf_guards(manager):
            yield _guard(type(leaf).__name__, source, leaf.verbose_code_parts(), manager)


def _guard(kind: str, source: str, parts: list[str], manager: Any) -> Guard:
    whole = parts[0] if parts else ""
    found = _PLACE.search(whole)
    expression = whole[: found.start()].strip() if found else whole.strip()
    if not source:
        # Relations between sizes are checked at the root.
        about = _LOCAL.search(expression)
        source = about[0] if about else ""
    place = found["place"].strip() if found and source else ""
    text = (found["text"] or "").strip() if found and source else ""
    return Guard(kind, source, _short(place), text, expression, manager)


def _short(place: str) -> str:
    """A place with only the file's name and folder, as torch shows it."""
    path, colon, rest = place.rpartition(":")
    return f"{PurePath(*PurePath(path).parts[-2:])}{colon}{rest}" if colon else place


def readable(source: str) -> str:
    """A source as the user would write it: ``L['self'].layers[3].scale``, not through ``_modules``."""

    def attribute(found: re.Match[str]) -> str:
        name = found[2]
        return f"[{name}]" if name.isdecimal() else f".{name}" if name.isidentifier() else found[0]

    return _HELD.sub(attribute, source)


def alike(source: str) -> str:
    """A pattern for sources that differ in an index alone."""
    return _COUNTER.sub("*", _INDEX.sub(lambda found: re.sub(r"\d+", "*", found[0]), source))


def grouped(guards: Iterable[Guard]) -> tuple[Guards, ...]:
    """Groups guards of one kind and line whose sources differ in an index alone; largest groups first."""
    found: dict[tuple[str, str, str], Guards] = {}
    for guard in guards:
        pattern = alike(guard.source)
        key = (guard.kind, pattern, guard.place)
        before = found.get(key)
        if before is None:
            found[key] = Guards(guard.kind, guard.source, pattern, 1, guard.place, guard.text)
            continue
        last = guard.source if guard.source != before.source else before.last
        found[key] = replace(before, number=before.number + 1, last=last)
    return tuple(sorted(found.values(), key=_most))


def _most(one: Guards) -> tuple[int, bool, str, str]:
    """The sort key: largest first, then guards on values, which users can change."""
    return -one.number, one.kind != "EQUALS_MATCH", one.source, one.kind
