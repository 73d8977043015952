"""Which dotted name a file is imported by; apart from the project, so that a scan needs none of it."""

from __future__ import annotations

from collections.abc import Sequence


def module_name(path: str, roots: Sequence[str] = ()) -> str:
    """The dotted name of the file at `path`, seen from the longest of the source roots that holds
    it."""
    best = ""
    for root in roots:
        root = root.strip("/").removeprefix("./")
        if root not in ("", ".") and path.startswith(root + "/") and len(root) > len(best):
            best = root
    inner = path[len(best) :].strip("/") if best else path
    for suffix in (".py", ".pyi"):
        inner = inner.removesuffix(suffix)
    inner = inner.removesuffix("/__init__") if inner != "__init__" else "__init__"
    # A colon ends the module in the ids of functions; no part of a path holds the slash put in its place.
    return inner.replace("/", ".").replace(":", "/")
