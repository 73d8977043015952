"""Groups the Python functions of a call into parts that are worth measuring on their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import GeneratorType
from typing import Any

from pytest_dispatchguard.measure.layers.statements import Statement
from pytest_dispatchguard.measure.timing.calling import spelt
from pytest_dispatchguard.model.layers import LayerKind
from pytest_dispatchguard.runtime.compiled.calls import Role
from pytest_dispatchguard.runtime.hooks.call_tree import PythonCall

_LEAST = 0.03
"""A function with a smaller share of the whole is measured with its caller."""
_MOST = 16
"""The most functions that are measured on their own."""
_ENDS = ("__enter__", "__exit__")


@dataclass(slots=True)
class Part:
    """A function, in all calls that another part makes of it."""

    name: str
    kind: LayerKind
    path: str
    line: int
    depth: int
    parent: int
    """The number of the part that calls it; -1 for the whole."""
    statements: list[Statement] = field(default_factory=list)
    calls: set[int] = field(default_factory=set)
    """The numbers of its calls."""
    role: Role | None = None
    ns: int = 0
    first: PythonCall | None = None

    @property
    def state(self) -> tuple[bool, bool]:
        """Whether grad mode is on in it, and inference mode."""
        return self.first.state if self.first is not None else (True, False)


def parts_of(
    calls: Sequence[PythonCall], role: Callable[[PythonCall], Role | None] = lambda call: None
) -> list[Part]:
    """The parts of a call, callers first; the first is the whole. The only function that the whole calls, if
    there is but one, is the whole. None where nothing of it is Python. Functions of one role that call each
    other are one part. Where there are more than are told, those that take longest are: what calls them does
    too, and so is among them."""
    if not calls:
        return []
    children: dict[int, list[PythonCall]] = {}
    for call in calls:
        children.setdefault(call.parent, []).append(call)
    top = children.get(-1, [])
    if len(top) == 1:
        whole = _part(top[0], _kind(top[0]), 0, -1, role(top[0]))
        whole.calls = {top[0].number}
    else:
        whole = Part("the call itself", "python", "", 0, 0, -1, ns=sum(c.ns for c in top))
        whole.calls = {-1}
    found: list[Part] = []
    waiting = [whole]
    while waiting and len(found) < _MOST:
        part = max(waiting, key=lambda one: one.ns)
        waiting.remove(part)
        found.append(part)
        if part is whole or part.kind != "context":
            # Entering or leaving a context cannot be repeated alone.
            below = list(_below(part, sorted(part.calls), children, role))
            made = _grouped(below, len(found) - 1, part.depth + 1, role)
            waiting += (one for one in made if one.ns >= _LEAST * whole.ns)
    return _in_order(found)


def _below(
    part: Part,
    numbers: Sequence[int],
    children: Mapping[int, Sequence[PythonCall]],
    role: Callable[[PythonCall], Role | None],
) -> Iterator[PythonCall]:
    """What the calls of a part call. Those of its own role belong to it, as do those that cannot be made
    again; what they call is its own."""
    for number in numbers:
        for call in children.get(number, ()):
            within = part.role is not None and role(call) == part.role
            if within or call.function is None:
                part.calls.add(call.number)
                yield from _below(part, [call.number], children, role)
            else:
                yield call


def _grouped(
    calls: Sequence[PythonCall],
    parent: int,
    depth: int,
    role: Callable[[PythonCall], Role | None],
) -> Iterable[Part]:
    """The calls of a part, grouped by callee."""
    groups: dict[object, Part] = {}
    for statement, kind, members in _units(calls):
        made = _part(members[0], kind, depth, parent, role(members[0]))
        part = groups.setdefault((kind, made.name, made.path, made.line, made.state), made)
        part.ns = 0 if part is made else part.ns
        part.statements.append(statement)
        part.calls |= {call.number for call in members}
        part.ns += sum(call.ns for call in members)
    return groups.values()


def _units(
    calls: Sequence[PythonCall],
) -> Iterable[tuple[Statement, LayerKind, list[PythonCall]]]:
    """What can be repeated on its own: a call, or a context from entering to leaving."""
    taken: set[int] = set()
    for begin, end in _entered_and_left(calls):
        makers = [c for c in calls if c.number < begin.number and c.number not in taken]
        made = [c for c in makers if _makes(c, begin.owner)]
        maker = next((c for c in reversed(made) if c.code.co_name != "__new__"), None)
        if maker is None or maker.function is None:
            statement = Statement("with {0}: pass", [begin.owner])
        elif maker.code.co_name == "__init__":
            text, values = again(maker, "type({1})", skip=1)
            statement = Statement(f"with {text}: pass", values)
        else:
            text, values = again(maker, "{0}")
            statement = Statement(f"with {text}: pass", values)
        taken |= {c.number for c in (*made, begin, end)}
        yield statement, "context", [begin, end, *made]
    for call in calls:
        if call.number in taken or call.function is None or call.code.co_name in _ENDS:
            continue
        text, values = again(call, "{0}")
        yield Statement(text, values), _kind(call), [call]


def _entered_and_left(calls: Sequence[PythonCall]) -> Iterator[tuple[PythonCall, PythonCall]]:
    """Contexts that are entered and left, in order of entering."""
    left: set[int] = set()
    for begin in calls:
        if begin.code.co_name != "__enter__":
            continue
        for end in calls:
            later = end.number > begin.number and end.number not in left
            if later and end.code.co_name == "__exit__" and end.owner is begin.owner:
                left.add(end.number)
                yield begin, end
                break


def _makes(call: PythonCall, made: object) -> bool:
    """Whether a call makes an object, as its constructor or as its result."""
    if call.code.co_name in _ENDS:
        return False
    return (call.owner if call.code.co_name == "__init__" else call.result) is made


def _kind(call: PythonCall) -> LayerKind:
    return "override" if call.code.co_name == "__torch_function__" else "python"


def again(call: PythonCall, function: str, skip: int = 0) -> tuple[str, Sequence[Any]]:
    """A call as source, with its values; the function is the first of them."""
    given = [
        f"[*{{{i + 1}}}]" if type(call.args[i]) is list else f"{{{i + 1}}}"
        for i in range(skip, len(call.args))
    ]
    words, values = spelt(given, call.kwargs, 1 + len(call.args))
    return f"{function}({words})", [call.function, *call.args, *values]


def _part(call: PythonCall, kind: LayerKind, depth: int, parent: int, role: Role | None) -> Part:
    code, name = call.code, name_of(call)
    if kind == "context":
        inside = getattr(call.owner, "gen", None)
        name = type(call.owner).__qualname__
        if isinstance(inside, GeneratorType):
            code, name = inside.gi_code, inside.__qualname__
    if role is not None:
        name, kind = role.name, role.kind
    place = code.co_filename, code.co_firstlineno
    return Part(name, kind, *place, depth, parent, role=role, ns=call.ns, first=call)


def name_of(call: PythonCall) -> str:
    """The qualified name of the function that was called."""
    qualified = getattr(call.code, "co_qualname", call.code.co_name)
    owner = call.owner
    if "." in qualified or owner is None or call.code.co_varnames[:1] not in (("self",), ("cls",)):
        return str(qualified)
    kind = owner if isinstance(owner, type) else type(owner)  # before Python 3.11
    return f"{kind.__qualname__}.{qualified}"


def _in_order(parts: Sequence[Part]) -> list[Part]:
    """The parts in depth-first order."""
    below: Mapping[int, list[int]] = {
        i: [j for j, p in enumerate(parts) if j and p.parent == i] for i in range(len(parts))
    }
    order: list[int] = []
    waiting = [0]
    while waiting:
        number = waiting.pop()
        order.append(number)
        waiting += reversed(below[number])
    new = {old: i for i, old in enumerate(order)}
    found = [parts[i] for i in order]
    for part in found[1:]:
        part.parent = new[part.parent]
    return found
