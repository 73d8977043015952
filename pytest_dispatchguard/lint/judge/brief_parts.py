"""What judging one function can read of the brief of its file: a finding of it stays true as long as its text
and this part stay, whatever else becomes of the brief."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, TypeVar

from pytest_dispatchguard.lint.facts import Brief, ClassBrief

_WORDS = re.compile(r"\w+", re.ASCII)
_RUNS = re.compile(r"[^\x00-/:-@\[-^`{-\x7f]+")
"""Identifiers, whatever letters they are of: all that no sign of Python parts."""
_PARTED = re.compile(r"\w+")
"""Names in annotations that are text, as the reader parts them."""


def words_of(source: str) -> set[str]:
    """All that may be a name in a source."""
    if source.isascii():
        return set(_WORDS.findall(source))
    return {*_RUNS.findall(source), *_PARTED.findall(source)}


class Parts:
    """A brief, cut to what judging one of its functions can read."""

    __slots__ = ("_brief", "_callees", "_functions")

    def __init__(self, brief: Brief) -> None:
        self._brief = brief
        self._callees: dict[str, list[str]] = {}
        for key in brief.callees:
            self._callees.setdefault(key.rpartition(".")[2], []).append(key)
        self._functions: dict[str, set[str]] = {}
        for table in (brief.hot, brief.tensors, brief.given, brief.on_cpu, brief.seen):
            for name in table:
                self._functions.setdefault(name.partition(".<locals>.")[0], set()).add(name)

    def of(self, name: str, source: str) -> Brief:
        """The part for an outermost function by its name and its source. Names, and what is called, are
        looked up as they are written there; what is said of functions, by the names of it and of those
        inside it; of classes its own, with what the source names of its methods."""
        brief = self._brief
        words = words_of(source)
        owner = name.rpartition(".")[0]
        functions = self._functions.get(name, set())
        called = [key for word in words & self._callees.keys() for key in self._callees[word]]
        return Brief(
            path=brief.path,
            module=brief.module,
            names=_cut(brief.names, words),
            globals=_cut(brief.globals, words),
            hot=_cut(brief.hot, functions),
            classes={k: _named(c, words) for k, c in _cut(brief.classes, {owner}).items()},
            callees=_cut(brief.callees, called),
            tensors=_cut(brief.tensors, functions),
            given=_cut(brief.given, functions),
            on_cpu=_cut(brief.on_cpu, functions),
            seen=_cut(brief.seen, functions),
            fields={k: held for k, f in sorted(brief.fields.items()) if (held := _cut(f, words))},
            imports=brief.imports,
        )


def _named(class_: ClassBrief, words: AbstractSet[str]) -> ClassBrief:
    """A class with those of its methods that are named."""
    return replace(
        class_,
        methods=_cut(class_.methods, words),
        properties=[name for name in class_.properties if name in words],
    )


def _cut(table: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The entries of a table with one of the keys, in an order that only they decide."""
    return {key: table[key] for key in sorted(table.keys() & keys)}


# -- beyond the part -------------------------------------------------------------------------------

Answer = bool | list[str] | list[list[str]]
"""As JSON has it."""
_Answer = TypeVar("_Answer", bool, list[str], list[list[str]])


def _taken(brief: Brief, name: str) -> bool:
    """Whether the file has a module-level name."""
    return name in brief.names or name in brief.globals


def _values(brief: Brief, name: str) -> list[str]:
    """What the file assigns to it."""
    return brief.globals.get(name, [])


def _defines(brief: Brief, name: str) -> bool:
    """Whether a class of the file has a method or a property."""
    owner, _, last = name.rpartition(".")
    class_ = brief.classes.get(owner)
    return class_ is not None and (last in class_.methods or last in class_.properties)


def _spelled(brief: Brief, name: str) -> list[list[str]]:
    """How the file can write a dotted name: the module-level names that lead to it, each with the whole."""
    found = []
    for local, targets in brief.names.items():
        if targets and (name == targets[0] or name.startswith(targets[0] + ".")):
            found.append([local, local + name[len(targets[0]) :]])
    return sorted(found)


_QUESTIONS: Mapping[str, Callable[[Brief, str], Answer]] = {
    "taken": _taken,
    "values": _values,
    "spelled": _spelled,
    "defines": _defines,
}


class Asked:
    """Answers what rules ask of a file whatever its function holds, and keeps what was asked: findings stay
    true only as long as the answers do."""

    __slots__ = ("_brief", "answers")

    def __init__(self, brief: Brief) -> None:
        self._brief = brief
        self.answers: dict[str, Answer] = {}
        """By question."""

    def taken(self, name: str) -> bool:
        """Whether a module-level name stands for something."""
        return self._noted("taken", name, _taken(self._brief, name))

    def values(self, name: str) -> list[str]:
        """What is assigned to it, as `facts.Value` words."""
        return self._noted("values", name, _values(self._brief, name))

    def defines(self, name: str) -> bool:
        """Whether a class, whose name stands before the last dot, has a method or a property."""
        return self._noted("defines", name, _defines(self._brief, name))

    def spelled(self, name: str) -> list[list[str]]:
        """Pairs of a module-level name that leads to a dotted name, and of how that is written with it."""
        return self._noted("spelled", name, _spelled(self._brief, name))

    def _noted(self, word: str, name: str, answer: _Answer) -> _Answer:
        self.answers[f"{word} {name}"] = answer
        return answer


def still_so(brief: Brief, answers: Mapping[str, Answer]) -> bool:
    """Whether a brief answers what was asked of one of before as that did."""
    return all(
        _QUESTIONS[word](brief, name) == answer
        for question, answer in answers.items()
        for word, _, name in [question.partition(" ")]
    )
