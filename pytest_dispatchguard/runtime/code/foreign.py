"""Which code belongs to Python or torch, and so is not for the readers of a report to change."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

_PYTHON_HOME = sysconfig.get_paths()["stdlib"] + os.sep
_OUR_HOME = str(Path(__file__).parents[2]) + os.sep
_WATCHING = str(Path(__file__).parents[1]) + os.sep


def is_foreign(code: CodeType) -> bool:
    """Whether code belongs to Python or torch, or has no file."""
    return is_foreign_file(code.co_filename)


def is_foreign_file(path: str) -> bool:
    """The same for a file."""
    homes = getattr(sys.modules.get("torch"), "__path__", ())
    return _of_others(path, tuple(homes))


def is_ours(code: CodeType) -> bool:
    """Whether code belongs to this package."""
    return code.co_filename.startswith(_OUR_HOME)


def is_user_s(code: CodeType) -> bool:
    """Whether code belongs neither to Python, nor to torch, nor to this package."""
    return not (is_foreign(code) or is_ours(code))


def own_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame and its callers, innermost first, without foreign code. Stops at the frame of this package
    or of pytest that runs the watched code."""
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_OUR_HOME):
            if not path.startswith(_WATCHING):
                return
        elif str(frame.f_globals.get("__name__")).startswith("_pytest."):
            return
        elif not is_foreign(frame.f_code):
            yield frame
        frame = frame.f_back


@cache
def _of_others(path: str, torch_homes: tuple[str, ...]) -> bool:
    return (
        path.startswith("<")
        or (path.startswith(_PYTHON_HOME) and "site-packages" not in path)
        or any(path.startswith(home + os.sep) for home in torch_homes)
    )
