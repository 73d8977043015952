"""Globs as in a .gitignore."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache(maxsize=1024)
def glob_pattern(glob: str) -> re.Pattern[str]:
    """A .gitignore-like glob as a pattern for the full relative path of a file.

    Without a slash it matches a name at any depth, with one it starts at the root. Everything in a matched
    folder matches too. With a slash at its end it matches only folders.
    """
    text = glob.strip().removeprefix("./")
    only_folders = text.endswith("/")
    anchored = "/" in text.rstrip("/")
    text = text.strip("/")
    parts = [] if anchored else ["(?:.*/)?"]
    at = 0
    while at < len(text):
        if text.startswith("**/", at) and (at == 0 or text[at - 1] == "/"):
            parts.append("(?:.*/)?")
            at += 3
        elif text.startswith("**", at):
            parts.append(".*")
            at += 2
        elif text[at] == "*":
            parts.append("[^/]*")
            at += 1
        elif text[at] == "?":
            parts.append("[^/]")
            at += 1
        elif text[at] == "[" and (end := text.find("]", at + 2)) > 0:
            inside = text[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            negated = inside[0] in "!^"
            parts.append(f"[^/{inside[1:]}]" if negated else f"[{inside}]")
            at = end + 1
        else:
            parts.append(re.escape(text[at]))
            at += 1
    parts.append("/.*" if only_folders else "(?:/.*)?")
    return re.compile("".join(parts), re.DOTALL)
