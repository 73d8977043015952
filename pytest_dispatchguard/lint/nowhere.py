"""Whether what is written in a function leads to nothing of the project, whatever the rest of that is: told
from the facts of its file alone. In doubt it may lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from pytest_dispatchguard.lint.calls import DEEPEST, is_telling, scope_of
from pytest_dispatchguard.lint.facts import CallFact, FileFacts, FunctionFact, Value
from pytest_dispatchguard.lint.packing import frame, packed_call
from pytest_dispatchguard.lint.project import DOTTED, build, names_bound

_OUTSIDE, _PERHAPS, _UNKNOWN = 0, 1, 2
"""Where a name leads, the less is known the greater: to a library's things; to such, or to nothing; perhaps
to something of the project."""


class Around(NamedTuple):
    """What is known of a project without reading its files."""

    packages: Container[str]
    """The names of its modules, and of the packages above them."""
    defined: Callable[[str], bool]
    """Whether a function, a class or an attribute may have that name, in whatever file."""


class Body:
    """The calls of the functions of one file."""

    def __init__(self, rel: str, facts: FileFacts, module: str, around: Around) -> None:
        self._project = build({rel: facts})  # for what a method's own class is called, and its self
        (self._own,) = self._project.modules
        self._module = module
        self._bound = names_bound(facts, module)
        self._starred = any(name == "*" for name, _ in facts.imports)
        self._around = around

    def leading(self, fact: FunctionFact, but: AbstractSet[str]) -> list[object]:
        """The calls of a function that may lead to something of the project, or that have one of these names,
        and what the names in them stand for; to be compared."""
        kept = [
            call
            for call in fact.calls
            if call.name.rpartition(".")[2] in but or not self._nowhere(fact, call)
        ]
        roots = {call.name.partition(".")[0] for call in kept}
        known: dict[str, Sequence[Value] | None] = {}
        while roots:
            root = roots.pop()
            known[root] = fact.locals.get(root)
            written = (value.partition(":")[2] for value in known[root] or ())
            named = {name for text in written for name in re.findall(r"\w+", text)}
            roots |= named - known.keys()
        return [[packed_call(call) for call in kept], known]

    def _nowhere(self, fact: FunctionFact, call: CallFact) -> bool:
        if call.how not in ("call", "new-scope", "passed", "read"):
            return False
        where = self._written(fact, call.name, 0)
        if where == _PERHAPS and is_telling(call.name):
            return not self._around.defined(call.name.rpartition(".")[2])
        return where != _UNKNOWN

    def _written(self, fact: FunctionFact, name: str, depth: int) -> int:
        """Where a dotted name leads that is written in a function."""
        if depth > DEEPEST:
            return _PERHAPS
        scope = scope_of(self._project, f"{self._own}:{fact.name}")
        root, _, rest = name.partition(".")
        first = rest.partition(".")[0]
        if root == "super()" or (root == scope.self_name and scope.class_id):
            return _UNKNOWN if not first or self._around.defined(first) else _PERHAPS
        if root in fact.locals:
            found = [self._local(fact, root, value, depth) for value in fact.locals[root]]
            return max(found, default=_PERHAPS)
        inner = fact.name
        while inner:
            nested = f"{self._own}:{inner}.<locals>.{root}"
            if nested in self._project.functions or nested in self._project.classes:
                return _UNKNOWN
            inner = inner.rpartition(".<locals>.")[0]
        return self._global(name, depth)

    def _local(self, fact: FunctionFact, root: str, value: Value, depth: int) -> int:
        word, _, written = value.partition(":")
        if word == "name" and written != root:
            return max(_PERHAPS, self._written(fact, written, depth + 1))
        found = self._value(value, depth)
        if word == "call":
            found = max(found, self._written(fact, written, depth + 1))
        return max(_PERHAPS, found)

    def _value(self, value: Value, depth: int) -> int:
        """Where what is assigned leads, as the module understands it."""
        word, _, written = value.partition(":")
        if word in ("name", "call"):
            return self._global(written, depth + 1)
        if word == "ann":
            names = DOTTED.findall(written)
            return max([_PERHAPS, *(self._global(name, depth + 1) for name in names)])
        return _PERHAPS

    def _global(self, name: str, depth: int) -> int:
        """Where a dotted name leads that is written at the top of the module."""
        if depth > DEEPEST:
            return _UNKNOWN
        root = name.partition(".")[0]
        packages = self._around.packages
        if root in self._bound:
            found = [self._entry(entry, depth) for entry in self._bound[root]]
            # What leads to nothing may stand in the place of a module of that name.
            if found and max(found) != _PERHAPS:
                return max(found)
        if self._starred or root in packages or f"{self._module}.{root}" in packages:
            return _UNKNOWN
        return _PERHAPS

    def _entry(self, entry: str, depth: int) -> int:
        """Where a name of the module leads, by one of the entries that `names_bound` has of it."""
        if entry[0] == "=":
            return _UNKNOWN
        if entry[0] == "@":
            return max(_PERHAPS, self._value(entry[1:], depth))
        return _UNKNOWN if entry.partition(".")[0] in self._around.packages else _OUTSIDE


def leads_as_before(
    old: Body, new: Body, before: FunctionFact, now: FunctionFact, leads: AbstractSet[str]
) -> bool:
    """Whether all that hotness is made of is as it was in a function, which led to functions of these names,
    but for calls that led nowhere, and lead nowhere."""
    if frame(before, whole=False) != frame(now, whole=False):
        return False
    return old.leading(before, leads) == new.leading(now, leads)
