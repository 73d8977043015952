"""What one line of a project did in torch, and the remarks that follow from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

LOOKED_AT = 64
"""Calls of a function whose operations are examined; later ones are only counted."""


@dataclass
class Tally:
    """Counts for one line."""

    names: Counter[str] = field(default_factory=Counter)
    backward: int = 0
    """Operations of backward passes that the line started."""
    results: int = 0
    """Results that were followed until they were freed."""
    dropped: int = 0
    """Of these, those that were freed unused while the function still ran."""
    again: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Operations that had run before in the same call: the name, and the line of the first time."""
    constants: dict[Any, list[tuple[int, int]]] = field(default_factory=dict)
    """Constants, by what they are made from: the memory of each, and its number of writes by then."""
    chains: Counter[tuple[int, int, tuple[int, ...]]] = field(default_factory=Counter)
    """Chains of pointwise operations, each on the result of the last: length, last line, shape."""
    rows: Counter[tuple[str, int]] = field(default_factory=Counter)
    """One operation on tensor after tensor: the `foreach` function that does it at once, and how many."""

    def remarks(self, line: int, calls: int, *, same_constants: bool) -> Iterator[str]:
        """Advice about the line, in words."""
        for (name, where), times in self.again.most_common():
            if 2 * times >= min(calls, LOOKED_AT):
                at = "on this line" if where == line else f"at line {where}"
                yield f"`{name}` of the same tensors ran already {at} in the same call"
        if same_constants:
            yield "the same constant is made again and again: keep it"
        for (length, end, shape), _ in self.chains.most_common(1):
            to = "on this line" if end == line else f"to line {end}"
            size = "x".join(map(str, shape)) or "one number"
            chain = f"{length} small operations one on the other's result {to}, over {size}"
            yield f"{chain}: fusing makes them one"
        for (function, length), _ in self.rows.most_common(1):
            yield f"{length} of a kind in a row, each on tensors of its own: `{function}` takes them at once"
