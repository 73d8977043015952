"""Lists hot functions, as text for people or as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import groupby

from pytest_dispatchguard.model.findings import SCHEMA, HotPlace
from pytest_dispatchguard.visible import one_line, without_commands


def listing(places: Iterable[HotPlace], format: str, shown: Callable[[str], str] = str) -> str:
    """All hot functions by file, each with its reason and the path from its root. ``shown`` says how the
    text names a file."""
    places = list(places)
    if format == "json":
        return (
            json.dumps({"schema": SCHEMA, "functions": [_entry(p) for p in places]}, indent=2)
            + "\n"
        )
    if not places:
        return "no hot functions: no known entry point reaches a function found here\n"
    lines: list[str] = []
    for path, group in groupby(places, key=lambda p: p.path):
        lines.append(shown(path))
        for place in group:
            hot = place.hot
            lines.append(
                f"  {place.line:>5}  {place.function}"
                + ("  (its loops)" if place.only_loops else "")
            )
            way = " -> ".join(hot.path) if len(hot.path) > 1 else ""
            tail = ", in a loop" if hot.loop and not place.only_loops else ""
            lines.append(f"         {hot.reason}{tail}" + (f": {way}" if way else ""))
    count = len(places)
    lines += ["", f"{count} hot function{'s' if count != 1 else ''}"]
    return without_commands("\n".join(map(one_line, lines)) + "\n")


def _entry(place: HotPlace) -> dict[str, object]:
    hot = place.hot
    return {
        "path": place.path,
        "line": place.line,
        "function": place.function,
        "only_loops": place.only_loops,
        "hot": {
            "root": hot.root,
            "path": list(hot.path),
            "loop": hot.loop,
            "seen": hot.seen,
            "reason": hot.reason,
            "per": hot.per,
        },
    }
