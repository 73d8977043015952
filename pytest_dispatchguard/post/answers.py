"""What a host answered, read with care: anything can be in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_dispatchguard.model.errors import UserError


class OddAnswerError(UserError):
    """An answer that is no answer to what was asked."""


@dataclass(frozen=True, slots=True)
class Part:
    """An answer, or a part of one."""

    value: Any
    place: str
    """Whose answer to what, for errors."""

    def text(self, name: str) -> str:
        """A field that is text; empty where it is missing or null."""
        found = self._field(name)
        if found is None:
            return ""
        if not isinstance(found, str):
            raise self._odd(f'"{name}" is no text')
        return found

    def number(self, name: str) -> int:
        """A field that is a number."""
        found = self._field(name)
        if not isinstance(found, int) or isinstance(found, bool):
            raise self._odd(f'"{name}" is no number')
        return found

    def object(self, name: str) -> Part:
        """A field that is an object; empty where it is missing or null."""
        found = self._field(name)
        if found is not None and not isinstance(found, dict):
            raise self._odd(f'"{name}" is no object')
        return Part(found or {}, self.place)

    def objects(self, name: str) -> list[Part]:
        """A field that is a list of objects; empty where it is missing or null."""
        found = self._field(name)
        return [] if found is None else Part(found, self.place).each()

    def each(self) -> list[Part]:
        """The objects that this is a list of."""
        if not isinstance(self.value, list) or not all(isinstance(v, dict) for v in self.value):
            raise self._odd("there is no list of objects")
        return [Part(value, self.place) for value in self.value]

    def _field(self, name: str) -> Any:
        if not isinstance(self.value, dict):
            raise self._odd("there is no object")
        return self.value.get(name)

    def _odd(self, what: str) -> OddAnswerError:
        return OddAnswerError(f"{self.place} oddly: {what}; check the address of the API")
