"""Which arguments hot code passes: parameters that only ever receive one of a few literals, defaults
included."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from pytest_dispatchguard.lint.callgraph.calls import Edge
from pytest_dispatchguard.lint.callgraph.constant_conditions import truth
from pytest_dispatchguard.lint.callgraph.project import Project, class_of
from pytest_dispatchguard.lint.facts import (
    CPU,
    REQUIRED,
    SOMETHING,
    CallFact,
    FunctionFact,
    HotFact,
)

Given = dict[str, list[str]]
"""Parameters of a function, and the literals that hot code passes for them."""

_MOST_LITERALS = 3
_DEEPEST = 6
"""How many functions may pass a parameter on before it is given up."""


def callers(
    hot: Container[str], edges: Mapping[str, Iterable[Edge]]
) -> Mapping[str, Sequence[str]]:
    """The callers of hot functions."""
    found: dict[str, list[str]] = {}
    for source, ways in edges.items():
        for edge in ways:
            if edge.target in hot:
                found.setdefault(edge.target, []).append(source)
    return found


class Arguments:
    """The arguments that the hot callers of a function pass."""

    def __init__(
        self,
        project: Project,
        hot: Callable[[str], HotFact | None],
        callers: Callable[[str], Iterable[str]],
    ) -> None:
        self._project = project
        self._hot = hot
        self._all_callers = callers
        self._forms: dict[tuple[str, str, bool], list[str] | None] = {}
        self._calls: dict[str, dict[str, list[tuple[str, CallFact]]]] = {}
        self._positions: dict[tuple[str, str], int] = {}

    def of(self, function_id: str) -> Given:
        """The parameters of a function for which hot code passes only a few literals."""
        facts = self._project.functions[function_id]
        if len(facts) > 1 or not facts[0].defaults or self._given_by_anyone(function_id):
            return {}
        found: Given = {}
        for name in facts[0].defaults:
            literals = self._literals(function_id, name, ())
            if literals:
                found[name] = sorted(literals)
        return found

    def on_cpu(self, called: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """The parameters of functions, given with their callers, for which hot code passes only tensors on
        the CPU and literals."""
        found: set[tuple[str, str]] = set()
        givers = {source for source in set().union(*called.values()) if self._gives_cpu(source)}
        for _ in range(_DEEPEST):
            # Only those that are given something new may have become such.
            more = {
                (target, name)
                for target, sources in called.items()
                if not givers.isdisjoint(sources) and (forms := self._all_forms(target))
                for name in self._project.functions[target][0].params
                if (target, name) not in found and self._only_cpu(target, name, forms, found)
            }
            if not more:
                break
            found |= more
            givers = {target for target, _ in more}
        result: dict[str, list[str]] = {}
        for target, name in sorted(found):
            result.setdefault(target, []).append(name)
        return result

    def _gives_cpu(self, source: str) -> bool:
        """Whether a function passes a tensor that is surely on the CPU."""
        calls = (call for fact in self._project.functions[source] for call in fact.calls)
        return any(CPU in form for call in calls for form in call.given)

    def is_on_cpu(self, target: str, known: Container[tuple[str, str]]) -> bool:
        """Whether a function has such parameters, if those of others are `known`."""
        given = self._all_forms(target)
        return any(
            self._only_cpu(target, name, given, known)
            for name in (self._project.functions[target][0].params if given else ())
        )

    def _callers(self, target: str) -> Iterable[str]:
        """The callers that count: if the project itself makes a function hot, not those that only users
        call."""
        sources = self._all_callers(target)
        hot = self._hot(target)
        if hot is None or hot.users:
            return sources
        return [s for s in sources if (fact := self._hot(s)) is None or not fact.users]

    def _all_forms(self, target: str) -> list[tuple[str, str]]:
        """The calling functions with the arguments that they pass; empty if they are not all known."""
        if self._given_by_anyone(target) or len(self._project.functions[target]) > 1:
            return []
        found: list[tuple[str, str]] = []
        for source in self._callers(target):
            seen = self.forms(source, target)
            if seen is None:
                return []
            found.extend((source, form) for form in seen)
        return found

    def _only_cpu(
        self,
        target: str,
        name: str,
        given: list[tuple[str, str]],
        known: Container[tuple[str, str]],
    ) -> bool:
        position = self._position(target, self._project.functions[target][0], name)
        some = False
        for source, form in given:
            word = _argument(form, position, name)
            if word is None:
                continue  # its default is not a tensor on a device
            if word == CPU or (word[0] in "=~" and (source, word[1:]) in known):
                some = True
            elif word[0] in "=~?*":
                return False
        return some

    def _given_by_anyone(self, function_id: str) -> bool:
        """Whether users call it themselves, with any arguments."""
        fact = self._hot(function_id)
        return fact is None or len(fact.path) == 1

    def _literals(self, function_id: str, name: str, way: tuple[str, ...]) -> set[str] | None:
        """The literals that the parameter may hold; None if it may hold anything."""
        key = f"{function_id} {name}"
        if key in way:
            return set()
        facts = self._project.functions[function_id]
        default = facts[0].defaults.get(name)
        if default == SOMETHING and len(facts) == 1:
            return {default}
        if len(way) > _DEEPEST or len(facts) > 1 or self._given_by_anyone(function_id):
            return None
        if default is None:
            return None
        found: set[str] = set()
        for source in self._callers(function_id):
            handed = self.forms(source, function_id)
            if handed is None:
                return None
            for form in handed:
                word = _argument(form, self._position(function_id, facts[0], name), name)
                if word is None and default == REQUIRED:
                    return None
                if word is None:
                    found.add(default)
                elif word.startswith("="):
                    handed_on = self._literals(source, word[1:], (*way, key))
                    if handed_on is None:
                        return None
                    found |= handed_on
                elif word == CPU:
                    found.add(SOMETHING)  # certainly a tensor
                elif word in ("?", "*") or word.startswith("~"):
                    return None
                else:
                    found.add(word)
        return found if len(found) <= _MOST_LITERALS else None

    def forms(self, source: str, target: str) -> list[str] | None:
        """The arguments that one function passes to another; None if unknown."""
        last, in_class = _looked_for(self._project, target)
        key = (source, last, in_class)
        if key not in self._forms:
            if source not in self._calls:
                self._calls[source] = _by_last_name(self._project.functions[source])
            self._forms[key] = _forms(self._calls[source].get(last, ()), in_class)
        return self._forms[key]

    def _position(self, function_id: str, fact: FunctionFact, name: str) -> int:
        """The index of a parameter among positional arguments; -1 if it has none."""
        key = (function_id, name)
        if key not in self._positions:
            self._positions[key] = self._read_position(function_id, fact, name)
        return self._positions[key]

    def _read_position(self, function_id: str, fact: FunctionFact, name: str) -> int:
        params = fact.params
        index = params.index(name)
        if any(param.startswith("*") for param in params[:index]):
            return -1
        owner = class_of(self._project, function_id)
        method = owner and "." not in function_id[len(owner) + 1 :]
        return index - 1 if method and "staticmethod" not in fact.decorators else index


def forms(project: Project, facts: Iterable[FunctionFact], target: str) -> list[str] | None:
    """The arguments that a function passes to another, each once; None if unknown."""
    last, in_class = _looked_for(project, target)
    return _forms(_by_last_name(facts).get(last, ()), in_class)


def _looked_for(project: Project, target: str) -> tuple[str, bool]:
    """The last name of a function, and whether it is in a class."""
    return target.rpartition(":")[2].rpartition(".")[2], bool(class_of(project, target))


def _by_last_name(facts: Iterable[FunctionFact]) -> dict[str, list[tuple[str, CallFact]]]:
    """The calls of a function by the last name of what they call, each with the name before that."""
    found: dict[str, list[tuple[str, CallFact]]] = {}
    for fact in facts:
        for call in fact.calls:
            owner, _, called = call.name.rpartition(".")
            found.setdefault(called, []).append((owner, call))
    return found


def _forms(calls: Iterable[tuple[str, CallFact]], in_class: bool) -> list[str] | None:
    found: dict[str, None] = {}
    for owner, call in calls:
        by_class = owner.rpartition(".")[2][:1].isupper() and in_class
        if call.how not in ("call", "new-scope") or not call.given or by_class:
            return None
        found.update(dict.fromkeys(call.given))
    return list(found) or None


def _argument(form: str, position: int, name: str) -> str | None:
    """The word for a parameter in `CallFact.given`; None if the call leaves it at its default."""
    words = form.split(",") if form else []
    by_position = [word for word in words if "=" not in word or word.startswith("=")]
    for word in words:
        if word.startswith(f"{name}="):
            return word[len(name) + 1 :]
    if "*" in words:
        return "*"
    if 0 <= position < len(by_position):
        return by_position[position]
    return None


def ruled_out(call: CallFact, given: Given) -> bool:
    """Whether a call is under a condition that never holds for these arguments."""
    return any(truth(under[1:], given) is (under[0] == "-") for under in call.under)


def rules_out(facts: Iterable[FunctionFact], given: Given) -> bool:
    """Whether any call of a function is ruled out for these arguments."""
    return any(call.under and ruled_out(call, given) for fact in facts for call in fact.calls)
