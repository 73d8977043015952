"""Where heat begins and where it ends: the functions that are hot by themselves, and those that are cold
whatever calls them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from pytest_dispatchguard.lint.calls import scope_of, things_called
from pytest_dispatchguard.lint.facts import FunctionFact
from pytest_dispatchguard.lint.libraries import (
    COLD_DECORATORS,
    COLD_METHODS,
    COLD_PATHS,
    HOT_ANYWHERE,
    HOT_DECORATORS,
    LIBRARY_ROOTS,
    Known,
    canonical,
    family,
)
from pytest_dispatchguard.lint.project import (
    Project,
    class_of,
    dotted_id,
    method_owner,
    mro,
    resolve,
)

_CONFIG_CLASS = re.compile(
    r"\w*(?:Config|Configuration|Arguments|Args|Options|Exception|Error|Warning)"
)
_EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Exception|Error|Warning)")


class Root(NamedTuple):
    """A function that is hot by itself."""

    target: str
    reason: str
    per: str = "call"
    only_loops: bool = False


def _matches(pattern: str, name: str) -> bool:
    """Whether a pattern of the configuration means a dotted name: the name itself, what stands inside it, a glob."""
    return name == pattern or name.startswith(pattern + ".") or fnmatchcase(name, pattern)


class Patterns(NamedTuple):
    """What the user names: dotted names and globs, and decorators."""

    names: tuple[str, ...]
    decorators: tuple[str, ...]


def patterns(given: Iterable[str]) -> Patterns:
    """The configuration's patterns, names and decorators apart."""
    given = list(given)
    names = [p for p in given if not p.startswith("@")]
    return Patterns(tuple(names), tuple(p[1:] for p in given if p.startswith("@")))


def _decorator_names(project: Project, function_id: str, fact: FunctionFact) -> list[str]:
    module = function_id.partition(":")[0]
    found: list[str] = []
    for decorator in fact.decorators:
        found.append(decorator)
        found.extend(dotted_id(thing.id) for thing in resolve(project, module, decorator))
    return found


def _picked(
    project: Project, function_id: str, patterns: Patterns, facts: Sequence[FunctionFact]
) -> str:
    """The pattern that picks the function, or empty."""
    if patterns.names:
        name = dotted_id(function_id)
        for pattern in patterns.names:
            if _matches(pattern, name):
                return pattern
    if patterns.decorators:
        for fact in facts:
            for decorator in _decorator_names(project, function_id, fact):
                for pattern in patterns.decorators:
                    if fnmatchcase(decorator, pattern) or decorator.endswith("." + pattern):
                        return "@" + pattern
    return ""


def _families(
    project: Project, class_id: str, extra: Mapping[str, Known]
) -> list[tuple[str, Known]]:
    """The known library classes among a class and its ancestors, nearest first."""
    found: dict[str, Known] = {}
    for base in mro(project, class_id):
        name = canonical(dotted_id(base))
        if name in extra:
            found.setdefault(name, extra[name])
        known = family(name) if (":" not in base or name in LIBRARY_ROOTS) else ""
        if known:
            found.setdefault(known, LIBRARY_ROOTS[known])
    return list(found.items())


def is_module(project: Project, class_id: str) -> bool:
    """Whether a class is a module, layer or metric: a known library class' descendant, or, where its bases
    are out of reach, one that looks like nothing else."""
    return any(known.module for _, known in _families(project, class_id, {})) or _looks_like_module(
        project, class_id
    )


def _looks_like_module(project: Project, class_id: str) -> bool:
    """A class with an unknown library base, a `forward`, and torch modules or parameters of its own."""
    line = mro(project, class_id)
    if not any(":" not in base and not _plain(base) for base in line):
        return False
    if not method_owner(project, class_id, "forward"):
        return False
    for base in line:
        class_ = project.classes.get(base)
        if class_ is None:
            continue
        for values in class_.attrs.values():
            if any(v in ("param", "buffer") or v.startswith("call:torch.nn.") for v in values):
                return True
    return False


def _plain(base: str) -> bool:
    """Whether a base from outside the project tells nothing of modules."""
    return base.partition(".")[0] in (
        "object", "abc", "ABC", "typing", "Generic", "Protocol", "enum", "Enum", "dict", "list", "tuple", "collections",
    )  # fmt: skip


def find_roots(
    project: Project, hot: Patterns, extra: Mapping[str, Known], is_cold: Cold
) -> tuple[list[Root], set[str]]:
    """All roots in a fixed order, and the ids of those that were named by the user."""
    named: set[str] = set()
    roots: dict[str, Root] = {}
    for function_id, facts in project.functions.items():
        exact = False
        if any(fact.mark == "hot" for fact in facts):
            roots[function_id] = Root(function_id, "marked hot")
            exact = True
        else:
            owner = class_of(project, function_id)
            if owner and project.classes[owner].mark == "hot" and function_id.startswith(owner):
                roots[function_id] = Root(function_id, "its class is marked hot")
        picked = _picked(project, function_id, hot, facts)
        if picked:
            roots.setdefault(function_id, Root(function_id, f"hot-roots: {picked}"))
            exact = exact or picked == dotted_id(function_id) or picked.startswith("@")
        if exact:
            named.add(function_id)
    for class_id in project.classes:
        for name, known in _families(project, class_id, extra):
            for method in sorted(known.methods):
                owner = method_owner(project, class_id, method)
                target = f"{owner}.{method}"
                if owner and target not in roots:
                    per = "step" if method in known.per_step else "call"
                    reason = f"{method} of {known.article} {name}"
                    roots[target] = Root(target, reason, per, method in known.only_loops)
        if f"{class_id}.forward" in project.functions and f"{class_id}.forward" not in roots:
            if _looks_like_module(project, class_id):
                roots[f"{class_id}.forward"] = Root(
                    f"{class_id}.forward", "forward of a class with modules or parameters"
                )
    for function_id, facts in project.functions.items():
        if function_id in roots:
            continue
        everywhere = HOT_ANYWHERE.get(function_id.rpartition(".")[2])
        if everywhere and class_of(project, function_id):
            roots[function_id] = Root(function_id, everywhere)
            continue
        for fact in facts:
            if fact.decorators:
                for name in _decorator_names(project, function_id, fact):
                    if name in HOT_DECORATORS:
                        roots[function_id] = Root(function_id, HOT_DECORATORS[name])
            if fact.training_loop and function_id not in roots:
                roots[function_id] = Root(function_id, "a training loop", "step", True)
    for function_id, facts in project.functions.items():
        for fact in facts:
            for call in fact.calls:
                if call.how == "hook" and not is_cold(function_id, named, False, hooks=True):
                    for thing in things_called(
                        project, scope_of(project, function_id), fact, call.name
                    ):
                        if thing.kind == "function" and thing.id not in roots:
                            roots[thing.id] = Root(thing.id, "a hook that torch calls")
    return [roots[target] for target in sorted(roots)], named


class Cold:
    """Answers whether a function is cold, by the user's word or by default; remembers what was decided."""

    def __init__(self, project: Project, patterns: Patterns) -> None:
        self.project = project
        self.patterns = patterns
        self.known: dict[str, tuple[bool, bool]] = {}
        self.set_up: dict[str, bool] = {}

    def __call__(
        self, function_id: str, named: set[str], instance: bool, *, hooks: bool = False
    ) -> bool:
        decided = self.known.get(function_id)
        if decided is None:
            decided = self.known[function_id] = (
                self._by_word(function_id),
                self._by_default(function_id),
            )
        by_word, by_default = decided
        if by_word:
            return True
        if hooks:
            return COLD_PATHS.search(self._path(function_id)) is not None
        if function_id in named:
            return False
        return by_default or self._set_up(function_id, instance)

    def _path(self, function_id: str) -> str:
        return self.project.modules[function_id.partition(":")[0]]

    def _by_word(self, function_id: str) -> bool:
        facts = self.project.functions[function_id]
        if any(fact.mark == "cold" for fact in facts):
            return True
        owner = class_of(self.project, function_id)
        if (
            owner
            and self.project.classes[owner].mark == "cold"
            and all(f.mark != "hot" for f in facts)
        ):
            return True
        return bool(_picked(self.project, function_id, self.patterns, facts))

    def _by_default(self, function_id: str) -> bool:
        name = function_id.partition(":")[2]
        last = name.rpartition(".")[2]
        if COLD_METHODS.fullmatch(last) or COLD_PATHS.search(self._path(function_id)):
            return True
        facts = self.project.functions[function_id]
        for fact in facts:
            for decorator in fact.decorators:
                if decorator.endswith((".setter", ".deleter")) and len(facts) == 1:
                    return True
                if decorator in ("property", "staticmethod", "classmethod"):
                    continue
                if decorator in ("lru_cache", "cache", "cached_property"):
                    return True
                module = function_id.partition(":")[0]
                for thing in resolve(self.project, module, decorator):
                    if thing.id in COLD_DECORATORS:
                        return True
        outer = name.partition(".<locals>.")[0]
        # A method of a class nested in a cold function is as cold as it; so is a function nested in one.
        if outer != name:
            head = outer.rpartition(".")[2]
            if head == "main":
                return True
        return False

    def _set_up(self, function_id: str, instance: bool) -> bool:
        """Whether it sets up something that lasts: a module, an optimizer, a configuration, an exception."""
        owner, _, last = function_id.rpartition(".")
        if (
            last not in ("__init__", "__new__", "__post_init__")
            or owner not in self.project.classes
        ):
            return False
        known = self.set_up.get(owner)
        if known is None:
            line = mro(self.project, owner)
            lasting = bool(_families(self.project, owner, {})) or _looks_like_module(
                self.project, owner
            )
            known = (
                lasting
                or any(_EXCEPTION.fullmatch(base.rpartition(":")[2]) for base in line)
                or _CONFIG_CLASS.fullmatch(owner.rpartition(":")[2].rpartition(".")[2]) is not None
            )
            self.set_up[owner] = known
        return known
