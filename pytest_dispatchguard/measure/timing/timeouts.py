"""What is said when `--overhead-timeout` has run out."""

from __future__ import annotations

_REMEDY = "(--overhead-timeout allows longer)"


def gave_no_answer(seconds: float) -> str:
    """Of a process that was given up."""
    return f"was given up after {seconds:g} s without an answer {_REMEDY}"


def said_nothing(who: str, seconds: float) -> str:
    """Of one that another waited for."""
    return f"{who} said nothing for {seconds:g} s {_REMEDY}"
