"""Parameters of tools: their JSON schema, and how arguments are read. What does not fit is refused in one
line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any, Literal

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.spelling import nearest
from pytest_dispatchguard.visible import one_line

Kind = Literal["string", "strings", "integer", "boolean"]

_MOST_OF_A_PATH = 1000
_TYPES: Mapping[Kind, str] = {
    "string": "a string",
    "strings": "a list of strings",
    "integer": "an integer",
    "boolean": "true or false",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a tool. Without a default it may be left out unless it is `required`, and is None."""

    name: str
    kind: Kind
    about: str
    default: Any = None
    required: bool = False
    least: int = 0
    """The smallest number, or the fewest characters."""
    most: int = 1000
    """The largest number, or the most characters of a string."""
    items: int = 50
    """The most strings of a list."""
    choices: Sequence[str] = ()

    @property
    def schema(self) -> dict[str, Any]:
        """As JSON schema."""
        text: dict[str, Any] = {"type": "string", "minLength": self.least, "maxLength": self.most}
        if self.choices:
            text = {"type": "string", "enum": list(self.choices)}
        made: dict[Kind, dict[str, Any]] = {
            "string": text,
            "strings": {"type": "array", "items": text, "maxItems": self.items},
            "integer": {"type": "integer", "minimum": self.least, "maximum": self.most},
            "boolean": {"type": "boolean"},
        }
        told = {**made[self.kind], "description": self.about}
        return told if self.default is None else {**told, "default": self.default}

    def read(self, value: Any) -> Any:
        """An argument that fits."""
        kinds = {"string": str, "strings": list, "integer": int, "boolean": bool}
        fits = isinstance(value, kinds[self.kind])
        if self.kind == "integer":
            fits = fits and not isinstance(value, bool)
        if self.kind == "strings":
            fits = fits and all(isinstance(one, str) for one in value)
        if not fits:
            raise UserError(f"{self.name} must be {_TYPES[self.kind]}")
        if self.kind == "integer" and not self.least <= value <= self.most:
            raise UserError(f"{self.name} must be from {self.least} to {self.most}")
        if self.kind == "strings" and len(value) > self.items:
            raise UserError(f"{self.name} has {len(value)} items; name {self.items} at most")
        for text in value if self.kind == "strings" else [value] if self.kind == "string" else []:
            self._text(text)
        return value

    def _text(self, text: str) -> None:
        if self.choices and text not in self.choices:
            raise UserError(f"{self.name} must be one of {', '.join(self.choices)}")
        if len(text) < self.least:
            raise UserError(f"{self.name} must not be empty")
        if len(text) > self.most:
            raise UserError(
                f"{self.name} has {len(text)} characters; at most {self.most} are taken"
            )
        if "\0" in text or (not text.isascii() and _lone(text)):
            raise UserError(f"{self.name} must be text without NUL characters")


def _lone(text: str) -> bool:
    """Whether a text has half of a surrogate pair, which no file or process takes."""
    return any("\ud800" <= char <= "\udfff" for char in text)


def schema_of(parameters: Sequence[Parameter]) -> dict[str, Any]:
    """The JSON schema of the arguments of a tool."""
    return {
        "type": "object",
        "properties": {one.name: one.schema for one in parameters},
        "required": [one.name for one in parameters if one.required],
        "additionalProperties": False,
    }


def read(parameters: Sequence[Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, all of them."""
    known = {one.name: one for one in parameters}
    for name in given:
        if name not in known:
            near = nearest(str(name)[:60], list(known))
            told = f"; the nearest is {near}" if near else ""
            raise UserError(f"unknown argument {shown(str(name))}{told}")
    found = {}
    for name, one in known.items():
        if given.get(name) is not None:
            found[name] = one.read(given[name])
        elif one.required:
            raise UserError(f"the argument {name} is missing")
        else:
            found[name] = one.default
    return found


def shown(text: str, most: int = 80) -> str:
    """A text of the client's in an error."""
    return repr(one_line(text if len(text) <= most else f"{text[:most]}…"))


def inside(root: Path, text: str, what: str = "path") -> Path:
    """A path that exists below the root, which is resolved. Absolute paths, paths with `..` and links that
    lead out are refused."""
    if len(text) > _MOST_OF_A_PATH:
        raise UserError(f"{what} has {len(text)} characters; at most {_MOST_OF_A_PATH} are taken")
    windows = PureWindowsPath(text)
    if text.startswith(("/", "\\", "~")) or windows.drive or windows.is_absolute():
        raise UserError(f"{what} {shown(text)}: name it relative to the root of the project")
    if ".." in windows.parts:
        raise UserError(f"{what} {shown(text)}: paths outside the root are refused")
    path = root / text
    if not within(root, path):
        raise UserError(f"{what} {shown(text)}: a link leads outside the root, which is refused")
    if not os.path.lexists(path):
        raise UserError(f"{what} {shown(text)}: there is no such file or folder")
    return path


def within(root: Path, path: Path) -> bool:
    """Whether a path is really below the root, which is resolved."""
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError, ValueError):  # links in a circle, or no path at all
        return False
