"""What hot code gives to the functions it calls: parameters that only ever hold one of a few literals, their
default among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pytest_dispatchguard.lint.calls import Edge
from pytest_dispatchguard.lint.facts import CPU, SOMETHING, CallFact, FunctionFact, HotFact
from pytest_dispatchguard.lint.fixed import truth
from pytest_dispatchguard.lint.project import Project, class_of

Given = dict[str, list[str]]
"""Of one function: parameter to the literals that hot code gives it."""

_MOST_LITERALS = 3
_DEEPEST = 6
"""Functions through which a parameter is handed on."""


@dataclass(frozen=True, slots=True)
class Table:
    """What was read of functions, whatever is hot; kept, so that who asks again need not read it again."""

    forms: dict[str, dict[str, list[str] | None]] = field(default_factory=dict)
    """The arguments that one function gives another; None where they are not to be seen."""
    positions: dict[str, dict[str, int]] = field(default_factory=dict)
    """Of a function's parameters, which of the arguments given by position they take; -1 for none."""


class Arguments:
    """Answers what the hot callers of a function give it."""

    def __init__(
        self,
        project: Project,
        hot: Mapping[str, HotFact],
        edges: Mapping[str, Iterable[Edge]],
        table: Table,
    ) -> None:
        self._project = project
        self._hot = hot
        self._table = table
        self._callers: dict[str, list[str]] = {}
        for source, ways in edges.items():
            for edge in ways:
                if edge.target in hot:
                    self._callers.setdefault(edge.target, []).append(source)

    def of(self, function_id: str) -> Given:
        """The parameters of a function that hot code gives, or leaves, few literals."""
        facts = self._project.functions[function_id]
        if len(facts) > 1 or not facts[0].defaults or self._given_by_anyone(function_id):
            return {}
        found: Given = {}
        for name in facts[0].defaults:
            literals = self._literals(function_id, name, ())
            if literals:
                found[name] = sorted(literals)
        return found

    def on_cpu(self) -> dict[str, list[str]]:
        """Of all hot functions, the parameters that hot code gives tensors on the CPU, and nothing else but
        literals."""
        forms: dict[str, list[tuple[str, str]]] = {}
        unseen: set[str] = set()
        for target, sources in self._callers.items():
            if self._given_by_anyone(target) or len(self._project.functions[target]) > 1:
                continue
            for source in sources:
                seen = self._forms(source, target)
                if seen is None:
                    unseen.add(target)
                    break
                forms.setdefault(target, []).extend((source, form) for form in seen)
        if not any(CPU in form for given in forms.values() for _, form in given):
            return {}
        found: set[tuple[str, str]] = set()
        for _ in range(_DEEPEST):
            more = {
                (target, name)
                for target, given in forms.items()
                if target not in unseen and any(CPU in f or "=" in f or "~" in f for _, f in given)
                for name in self._project.functions[target][0].params
                if (target, name) not in found and self._only_cpu(target, name, given, found)
            }
            if not more:
                break
            found |= more
        result: dict[str, list[str]] = {}
        for target, name in sorted(found):
            result.setdefault(target, []).append(name)
        return result

    def _only_cpu(
        self,
        target: str,
        name: str,
        given: list[tuple[str, str]],
        known: set[tuple[str, str]],
    ) -> bool:
        position = self._position(target, self._project.functions[target][0], name)
        some = False
        for source, form in given:
            word = _argument(form, position, name)
            if word is None:
                continue  # its default is no tensor on a device
            if word == CPU or (word[0] in "=~" and (source, word[1:]) in known):
                some = True
            elif word[0] in "=~?*":
                return False
        return some

    def _given_by_anyone(self, function_id: str) -> bool:
        """Whether users call it themselves, with whatever they like."""
        fact = self._hot.get(function_id)
        return fact is None or len(fact.path) == 1

    def _literals(self, function_id: str, name: str, way: tuple[str, ...]) -> set[str] | None:
        """What the parameter may hold, None where that can be anything."""
        key = f"{function_id} {name}"
        if key in way:
            return set()
        facts = self._project.functions[function_id]
        if len(way) > _DEEPEST or len(facts) > 1 or self._given_by_anyone(function_id):
            return None
        default = facts[0].defaults.get(name)
        if default is None:
            return None
        found: set[str] = set()
        for source in self._callers.get(function_id, ()):
            forms = self._forms(source, function_id)
            if forms is None:
                return None
            for form in forms:
                word = _argument(form, self._position(function_id, facts[0], name), name)
                if word is None:
                    found.add(default)
                elif word.startswith("="):
                    handed_on = self._literals(source, word[1:], (*way, key))
                    if handed_on is None:
                        return None
                    found |= handed_on
                elif word == CPU:
                    found.add(SOMETHING)  # a tensor, at any rate
                elif word in ("?", "*") or word.startswith("~"):
                    return None
                else:
                    found.add(word)
        return found if len(found) <= _MOST_LITERALS else None

    def _forms(self, source: str, target: str) -> list[str] | None:
        known = self._table.forms.setdefault(source, {})
        if target not in known:
            known[target] = self._read_forms(source, target)
        return known[target]

    def _read_forms(self, source: str, target: str) -> list[str] | None:
        last = target.rpartition(":")[2].rpartition(".")[2]
        found: list[str] = []
        for fact in self._project.functions[source]:
            for call in fact.calls:
                if not call.name.endswith(last):
                    continue
                owner, _, called = call.name.rpartition(".")
                if called != last:
                    continue
                by_class = owner.rpartition(".")[2][:1].isupper() and class_of(
                    self._project, target
                )
                if call.how not in ("call", "new-scope") or not call.given or by_class:
                    return None
                found.extend(call.given)
        return found or None

    def _position(self, function_id: str, fact: FunctionFact, name: str) -> int:
        known = self._table.positions.setdefault(function_id, {})
        if name not in known:
            known[name] = self._read_position(function_id, fact, name)
        return known[name]

    def _read_position(self, function_id: str, fact: FunctionFact, name: str) -> int:
        params = fact.params
        index = params.index(name)
        if any(param.startswith("*") for param in params[:index]):
            return -1
        owner = class_of(self._project, function_id)
        method = owner and "." not in function_id[len(owner) + 1 :]
        return index - 1 if method and "staticmethod" not in fact.decorators else index


def _argument(form: str, position: int, name: str) -> str | None:
    """The word that a form of a call has for a parameter; None where it is left at its default."""
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
    """Whether a call stands under a condition that never holds for these arguments."""
    return any(truth(under[1:], given) is (under[0] == "-") for under in call.under)
