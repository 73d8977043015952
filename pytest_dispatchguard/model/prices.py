"""Measured prices of rules' patterns, from their specimens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_dispatchguard.model.findings import Price
from pytest_dispatchguard.model.measurements import Interval


@dataclass(frozen=True, slots=True)
class Priced:
    """One specimen, measured."""

    code: str
    specimen: str
    """The name of its file: `specimen_pair`."""
    bad_us: Interval | None = None
    """A call of the bad form; None where it was not timed."""
    saves_us: Interval | None = None
    """What the good form takes less."""
    waits: tuple[int, int] = (0, 0)
    """How often a call of either form makes the host wait for the device."""
    note: str = ""
    """Why something is missing, in words."""
    places: int = 1
    """In the bad form; all of them together make the difference."""

    @property
    def waiting(self) -> bool:
        """Whether the bad form makes the host wait more often."""
        return self.waits[0] > self.waits[1]

    @property
    def proven(self) -> bool:
        """Whether the good form surely costs less: on the host, or in waits."""
        cheaper = self.saves_us is not None and self.saves_us.low > 0
        return cheaper or self.waiting


@dataclass(frozen=True, slots=True)
class PriceTable:
    """All that was measured on one machine."""

    machine: Mapping[str, str]
    specimens: tuple[Priced, ...] = ()

    def prices(self) -> dict[str, Price]:
        """What each rule's pattern costs, by code."""
        found: dict[str, list[Priced]] = {}
        for one in self.specimens:
            found.setdefault(one.code, []).append(one)
        priced = {code: _price(forms, self._in_short) for code, forms in found.items()}
        return {code: price for code, price in sorted(priced.items()) if price is not None}

    @property
    def shown(self) -> str:
        """The machine in one line."""
        about = [
            f"{name} {self.machine[name]}" for name in ("python", "torch") if name in self.machine
        ]
        return ", ".join(filter(None, [self._in_short, *about]))

    @property
    def _in_short(self) -> str:
        return self.machine.get("cpu", "")


def _price(forms: Sequence[Priced], machine: str) -> Price | None:
    """One price of several forms of a pattern; None where no form is surely dearer than its good form."""
    dry = _on_host([one for one in forms if not one.waiting], machine)
    if any(one.waiting for one in forms):
        # A specimen may hold several places; each of them waits once whenever it runs, at least.
        return Price(None, machine=machine, waits=1, dry=dry)
    return dry


def _on_host(forms: Sequence[Priced], machine: str) -> Price | None:
    """What one place of such forms takes of the host's time."""
    saves = [
        one.saves_us.times(1 / one.places)
        for one in forms
        if one.saves_us is not None and one.proven
    ]
    if not saves:
        return None
    usual = sorted(one.value for one in saves)[(len(saves) - 1) // 2]
    return Price(
        usual,
        min(one.low for one in saves),
        max(one.high for one in saves),
        machine,
    )
