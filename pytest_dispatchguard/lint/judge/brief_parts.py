"""The part of a file's brief that judging one function can read. Its findings stay valid while its text
and this part stay the same, whatever else changes in the brief."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, TypeVar

from pytest_dispatchguard.lint.facts import SCRIPT, Brief, ClassBrief

_WORDS = re.compile(r"\w+", re.ASCII)
_RUNS = re.compile(r"[^\x00-/:-@\[-^`{-\x7f]+")
"""Identifiers in any script."""
_PARTED = re.compile(r"\w+")
"""Names in annotations that are strings, split as the reader splits them."""


_PLACES = frozenset({"<locals>", SCRIPT})
"""Words in the names of functions that no source spells out."""


def words_of(source: str) -> set[str]:
    """Everything in a source text that may be a name."""
    if source.isascii():
        return set(_WORDS.findall(source))
    return {*_RUNS.findall(source), *_PARTED.findall(source)}


class Parts:
    """Cuts a brief to the part that judging one of its functions can read."""

    __slots__ = ("_brief", "_callees", "_fields", "_functions")

    def __init__(self, brief: Brief) -> None:
        self._brief = brief
        self._callees = _Spelled(brief.callees)
        self._functions: dict[str, set[str]] = {}
        for table in (brief.hot, brief.tensors, brief.given, brief.on_cpu, brief.seen):
            for name in table:
                self._functions.setdefault(name.partition(".<locals>.")[0], set()).add(name)
        self._fields: dict[str, list[str]] = {}
        """Classes whose attributes are known, by the last part of their names."""
        for name in brief.fields:
            self._fields.setdefault(name.rpartition(".")[2], []).append(name)

    def of(self, name: str, source: str) -> Brief:
        """The part for an outermost function, by its name and source. Module-level names and callees are
        looked up as written in the source; information about functions covers the function and those
        inside it; of classes, its own, with the methods that the source names, and the attributes of those
        that the source or the part names."""
        brief = self._brief
        words = {*words_of(source), *_PLACES}
        owner = name.rpartition(".")[0]
        functions = self._functions.get(name, set())
        part = Brief(
            path=brief.path,
            module=brief.module,
            names=_cut(brief.names, words),
            globals=_cut(brief.globals, words),
            hot=_cut(brief.hot, functions),
            classes={k: _named(c, words) for k, c in _cut(brief.classes, {owner}).items()},
            callees=_cut(brief.callees, self._callees.within(words, owner)),
            tensors=_cut(brief.tensors, functions),
            given=_cut(brief.given, functions),
            on_cpu=_cut(brief.on_cpu, functions),
            seen=_cut(brief.seen, functions),
            imports=brief.imports,
        )
        if self._fields or brief.modules:
            named = {*words, *words_of(" ".join(_values_in(part)))}
            part.fields = self._held(words, named)
            modules = (one for one in brief.modules if one.rpartition(".")[2] in named)
            part.modules = _cut(brief.modules, modules)
        return part

    def _held(
        self, words: AbstractSet[str], named: AbstractSet[str]
    ) -> dict[str, dict[str, list[str]]]:
        """What the source names of the attributes of classes that values can be instances of: of those that
        are `named`, and of those that are held by classes found so far."""
        found: dict[str, dict[str, list[str]]] = {}
        seen: set[str] = set()
        while new := self._fields.keys() & (named - seen):
            seen |= named
            named = set()
            for name in (name for last in new for name in self._fields[last]):
                held = _cut(self._brief.fields[name], words)
                if held:
                    found[name] = held
                    named |= words_of(" ".join(v for values in held.values() for v in values))
        return dict(sorted(found.items()))


class _Spelled:
    """Dotted names, found by the words that they are written with."""

    __slots__ = ("_tree",)

    def __init__(self, names: Iterable[str]) -> None:
        self._tree: dict[str, Any] = {}
        """Part by part; a whole name stands under the empty word."""
        for name in names:
            _at(self._tree, name.split("."), make=True)[""] = name

    def within(self, words: AbstractSet[str], owner: str) -> list[str]:
        """The names that a method of a class, which is empty elsewhere, can call if its source has these
        words: those of nothing but these, and those of its `self`."""
        written = {*words, "super()"} if "super" in words else words
        found: list[str] = []
        left = [self._tree]
        if owner:
            left.append(_at(self._tree, [*owner.split("."), "self"]))
        while left:
            tree = left.pop()
            if "" in tree:
                found.append(tree[""])
            left.extend(tree[part] for part in tree.keys() & written)
        return found


def _at(tree: dict[str, Any], parts: Iterable[str], *, make: bool = False) -> dict[str, Any]:
    """What of a tree stands below some parts; an empty tree, where there is nothing."""
    for part in parts:
        tree = tree.setdefault(part, {}) if make else tree.get(part, {})
    return tree


def _values_in(part: Brief) -> Iterable[str]:
    """All values, and names that names stand for, in a part of a brief."""
    for names in part.names.values():
        yield from names
    for class_ in part.classes.values():
        for values in class_.attrs.values():
            yield from values
    for values in part.globals.values():
        yield from values
    for callee in part.callees.values():
        yield callee.returns


def _named(class_: ClassBrief, words: AbstractSet[str]) -> ClassBrief:
    """A class with only those of its methods that are named."""
    return replace(
        class_,
        methods=_cut(class_.methods, words),
        properties=[name for name in class_.properties if name in words],
    )


def _cut(table: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The entries of a table with these keys, in an order that depends only on the keys."""
    return {key: table[key] for key in sorted(table.keys() & keys)}


# -- the rest of the file --------------------------------------------------------------------------

Answer = bool | list[str] | list[list[str]]
"""As stored in JSON."""
_Answer = TypeVar("_Answer", bool, list[str], list[list[str]])


def _taken(brief: Brief, name: str) -> bool:
    """Whether the file binds a module-level name."""
    return name in brief.names or name in brief.globals


def _values(brief: Brief, name: str) -> list[str]:
    """What the file assigns to the name."""
    return brief.globals.get(name, [])


def _defines(brief: Brief, name: str) -> bool:
    """Whether a class of the file has a method or a property."""
    owner, _, last = name.rpartition(".")
    class_ = brief.classes.get(owner)
    return class_ is not None and (last in class_.methods or last in class_.properties)


def _spelled(brief: Brief, name: str) -> list[list[str]]:
    """How the file can write a dotted name: the module-level names that lead to it, each with the full
    expression."""
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
    """Answers questions of rules about the rest of the file, and records them: findings stay valid only
    while the answers stay the same."""

    __slots__ = ("_brief", "answers")

    def __init__(self, brief: Brief) -> None:
        self._brief = brief
        self.answers: dict[str, Answer] = {}
        """By question."""

    def taken(self, name: str) -> bool:
        """Whether a module-level name is bound."""
        return self._noted("taken", name, _taken(self._brief, name))

    def values(self, name: str) -> list[str]:
        """What is assigned to it, as `facts.Value` words."""
        return self._noted("values", name, _values(self._brief, name))

    def defines(self, name: str) -> bool:
        """Whether a class has a method or property; the name is `Class.method`."""
        return self._noted("defines", name, _defines(self._brief, name))

    def spelled(self, name: str) -> list[list[str]]:
        """Pairs of a module-level name that leads to a dotted name, and the expression that uses it."""
        return self._noted("spelled", name, _spelled(self._brief, name))

    def _noted(self, word: str, name: str, answer: _Answer) -> _Answer:
        self.answers[f"{word} {name}"] = answer
        return answer


def same_answers(brief: Brief, answers: Mapping[str, Answer]) -> bool:
    """Whether a brief gives the same answers as an earlier one did."""
    return all(
        _QUESTIONS[word](brief, name) == answer
        for question, answer in answers.items()
        for word, _, name in [question.partition(" ")]
    )
