"""What is said of a mistake of this program, or of a pack of rules."""

from __future__ import annotations

import os


def mistake(what: str, error: BaseException) -> str:
    """One line about it; the trace goes to standard error where that is asked for."""
    if os.environ.get("DISPATCHGUARD_TRACEBACK"):
        import traceback  # hardly ever needed

        traceback.print_exception(error)
    said = " ".join(str(error).split())
    return (
        f"{what}: {type(error).__name__}: {said} "
        "(set DISPATCHGUARD_TRACEBACK=1 for the trace, and please report it)"
    )
