"""The dotted module name of a file. A module of its own, so that a scan need not import the call graph."""

from __future__ import annotations

from collections.abc import Sequence


def module_name(path: str, roots: Sequence[str] = ()) -> str:
    """The dotted name of the file at `path`, relative to the longest source root that contains it."""
    best = ""
    for root in roots:
        root = root.strip("/").removeprefix("./")
        if root not in ("", ".") and path.startswith(root + "/") and len(root) > len(best):
            best = root
    inner = path[len(best) :].strip("/") if best else path
    for suffix in (".py", ".pyi"):
        inner = inner.removesuffix(suffix)
    inner = inner.removesuffix("/__init__") if inner != "__init__" else "__init__"
    # A colon ends the module in ids of functions. Its replacement, a slash, is never in a part of a path.
    return inner.replace("/", ".").replace(":", "/")
