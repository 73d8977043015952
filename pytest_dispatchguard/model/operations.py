"""Torch operations that ran, by the source line that asked for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class OperationsAt:
    """What a line of code asked of torch's dispatcher while it was watched."""

    path: str
    line: int
    function: str
    """Qualified; empty for a module's own code."""
    calls: int
    """Of the function."""
    operations: Mapping[str, int]
    """How often each ran, in all calls."""
    seen: tuple[str, ...] = ()
    """What else was seen of the line."""
    backward: int = 0
    """Operations of a backward pass that the line began."""
    results: int = 0
    """Results whose end was awaited."""
    dropped: int = 0
    """Of these, those that nobody used."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What there is to say of the line."""
        backward = [f"{self.backward} of them in the backward pass"] if self.backward else []
        unused = bool(self.results) and self.dropped == self.results
        return (*backward, *(["the result is dropped unused"] if unused else []), *self.seen)

    @property
    def total(self) -> int:
        """All operations, in all calls."""
        return sum(self.operations.values())

    @property
    def sort_key(self) -> tuple[int, str, int]:
        """Those that ask most come first."""
        return -self.total, self.path, self.line

    def joined(self, other: OperationsAt) -> OperationsAt:
        """What both saw of one line."""
        names = (*self.operations, *other.operations)
        return OperationsAt(
            self.path,
            self.line,
            self.function,
            self.calls + other.calls,
            {n: self.operations.get(n, 0) + other.operations.get(n, 0) for n in names},
            tuple(dict.fromkeys((*self.seen, *other.seen))),
            self.backward + other.backward,
            self.results + other.results,
            self.dropped + other.dropped,
        )


def together(seen: Iterable[OperationsAt]) -> list[OperationsAt]:
    """One for each line, those that ask most first."""
    found: dict[tuple[str, int, str], OperationsAt] = {}
    for at in seen:
        key = (at.path, at.line, at.function)
        found[key] = found[key].joined(at) if key in found else at
    return sorted(found.values(), key=lambda at: at.sort_key)


def with_remarks(
    lines: Iterable[OperationsAt], remarks: Iterable[OperationsAt]
) -> list[OperationsAt]:
    """Lines with what else is said of them, and those of which nothing but that is known."""
    found = {(at.path, at.line, at.function): at for at in lines}
    calls = {(at.path, at.function): at.calls for at in found.values()}
    for said in remarks:
        key = (said.path, said.line, said.function)
        known = found.get(key)
        if known is None:
            often = calls.get((said.path, said.function), said.calls)
            found[key] = replace(said, calls=often)
        else:
            found[key] = replace(known, seen=(*known.seen, *said.seen))
    return list(found.values())
