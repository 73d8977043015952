"""The recorded profile: which functions of a project ran, what they called, and what they were given. Written
where code runs, read where code is read; plain JSON, merged over runs."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_dispatchguard import project_folder
from pytest_dispatchguard.model.errors import UserError

SCHEMA = 1
MOST_CALLEES, MOST_KINDS = 60, 8
"""What is kept of one function: callees, and kinds of one parameter. More say nothing of a usual call."""

Name = tuple[str, str]
"""A function: the path of its file, relative to the project root, and its qualified name."""


@dataclass(slots=True)
class Seen:
    """What was seen of one function."""

    digest: str
    """Of its text: what was seen holds for that alone."""
    calls: int = 0
    callees: Counter[Name] = field(default_factory=Counter)
    """Functions of the project that it called, by itself or through code of others."""
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    """Of each parameter: kinds of values (`tensor`, `module`, else the name of the type), and how often each
    was met among the calls that were looked at."""
    per_step: float = 0.0
    """Calls in one step of a training, in the trace where there were most; 0 where no trace tells."""
    loops: bool = False
    """Whether its loops ran in every step of a trace, though it was called once for many."""

    def add(self, other: Seen) -> None:
        """Adds what was seen in another run."""
        self.calls += other.calls
        self.callees.update(other.callees)
        self.per_step = max(self.per_step, other.per_step)
        self.loops = self.loops or other.loops
        for name, kinds in other.kinds.items():
            self.kinds.setdefault(name, Counter()).update(kinds)


@dataclass(slots=True)
class Profile:
    """What was seen of a project."""

    functions: dict[Name, Seen] = field(default_factory=dict)
    texts: dict[str, dict[str, str]] = field(default_factory=dict, compare=False)
    """Of files that were read for it: the functions there are, and the digest of each. Not kept."""

    def merge(self, newer: Profile) -> None:
        """Adds what a newer run saw. Of a function that has changed since, the newer alone counts; one that
        is no longer there is forgotten."""
        for old in list(self.functions):
            there = newer.texts.get(old[0])
            if there is not None and there.get(old[1]) != self.functions[old].digest:
                del self.functions[old]
        for name, seen in newer.functions.items():
            known = self.functions.get(name)
            if known is not None and known.digest == seen.digest:
                known.add(seen)
            else:
                self.functions[name] = seen


def digest(lines: Iterable[str]) -> str:
    """Of the lines of a function, its decorators' among them; blanks at their ends do not count."""
    text = "\n".join(line.rstrip() for line in lines)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def packed(profile: Profile) -> str:
    """A profile as JSON: the same profile gives the same text."""
    files: dict[str, dict[str, Any]] = {}
    for (path, name), seen in sorted(profile.functions.items()):
        callees: dict[str, dict[str, int]] = {}
        for (file, callee), times in sorted(seen.callees.most_common(MOST_CALLEES)):
            callees.setdefault(file, {})[callee] = times
        files.setdefault(path, {})[name] = {
            "digest": seen.digest,
            "calls": seen.calls,
            "callees": callees,
            "kinds": {
                parameter: dict(kinds.most_common(MOST_KINDS))
                for parameter, kinds in sorted(seen.kinds.items())
            },
            **({"per_step": seen.per_step} if seen.per_step else {}),
            **({"loops": True} if seen.loops else {}),
        }
    return json.dumps({"dispatchguard-profile": SCHEMA, "files": files}, indent=0) + "\n"


def load(path: Path) -> Profile | None:
    """The profile that lies there; None where none does."""
    try:
        data = project_folder.read(path)
        if data is None:
            return None
        text = data.decode()
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(f"{path}: the profile cannot be read: {said}; {_REMEDY}") from None
    try:
        return _unpacked(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UserError(f"{path} is no profile that this version has written; {_REMEDY}") from None


_REMEDY = "delete it, and record anew with `pytest --overhead-record`"


def _unpacked(data: Mapping[str, Any]) -> Profile:
    if data["dispatchguard-profile"] != SCHEMA:
        raise ValueError("another schema")
    profile = Profile()
    for path, functions in data["files"].items():
        for name, row in functions.items():
            callees = {
                (file, callee): int(times)
                for file, named in row["callees"].items()
                for callee, times in named.items()
            }
            kinds = {
                parameter: Counter({str(k): int(n) for k, n in found.items()})
                for parameter, found in row["kinds"].items()
            }
            profile.functions[path, name] = Seen(
                str(row["digest"]),
                int(row["calls"]),
                Counter(callees),
                kinds,
                float(row.get("per_step", 0.0)),
                bool(row.get("loops", False)),
            )
    return profile
