"""Paths that run only after an error, or where there is nothing to work on, by how they are written."""

from __future__ import annotations

import re

_COMPLAINS = re.compile(
    r"(?:[\w.()]+\.)?_*(?:\w+_)?log(?:ger|ging)?\.(?:warn|warning|error|exception|critical|fatal)",
    re.IGNORECASE,
)
_MISSING = re.compile(r"ImportError|ModuleNotFoundError")
_SWALLOWS = re.compile(r"_?(?:ignore|suppress|swallow|catch|tolerate)(?:_\w+|s|ing)?")
MAKES_OF_NUMBERS = frozenset({"tensor", "as_tensor", "full", "full_like", "new_tensor", "new_full"})
"""The last names of what makes a tensor of numbers that it is given."""
_NOT_A_NUMBER = re.compile(
    rf"(?:return\s+|[\w.\[\]'\"]+\s*=\s*)?(?:\w+\.)*(?:{'|'.join(sorted(MAKES_OF_NUMBERS))})"
    r"\([^#]*\bnan\b[^#]*\)",
    re.IGNORECASE,
)
_SHORT = 200


def is_rare(exceptions: str) -> bool:
    """Whether exceptions, as they are written behind `except`, are raised now and then: not in all calls, as
    where a package is missing."""
    return _MISSING.search(exceptions) is None


def swallows(called: str) -> bool:
    """Whether a context, by its name, keeps errors to itself: what follows a block of it that leaves runs
    only after an error."""
    return _SWALLOWS.fullmatch(called.rpartition(".")[2]) is not None


def gives_nan(written: str) -> bool:
    """Whether an expression, or a statement, gives a tensor that is not a number: what there is where there
    is nothing to work on."""
    if len(written) > _SHORT or "nan" not in written.lower():
        return False
    return _NOT_A_NUMBER.fullmatch(written.strip()) is not None


ENDS_THE_PROGRAM = frozenset({"exit", "quit", "sys.exit", "os._exit", "os.abort"})
"""Functions that do not return."""
_NEVER_HOLDS = re.compile(r"assert[\s(]+(?:False|0)\b(?!\s*[!=<>])")


def fails(statement: str) -> bool:
    """Whether a statement, as written, is an assertion that never holds, or ends the program."""
    if statement.startswith("assert"):
        return _NEVER_HOLDS.match(statement) is not None
    return statement.partition("(")[0].strip() in ENDS_THE_PROGRAM


def complains(called: str) -> bool:
    """Whether a call, by the dotted name of what is called, logs that something is wrong. A branch that does
    and then leaves is an error path."""
    return _COMPLAINS.fullmatch(called) is not None
