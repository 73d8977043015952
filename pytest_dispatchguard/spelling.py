"""Suggestions for misspelled words in error messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """The valid word closest to a misspelled one, ignoring case; None if none is close."""
    # It takes milliseconds to import, and only errors need it.
    import difflib

    by_fold = {option.casefold(): option for option in sorted(valid, reverse=True)}
    close = difflib.get_close_matches(word.casefold(), by_fold, n=1, cutoff=0.5)
    return by_fold[close[0]] if close else None


def did_you_mean(word: str, valid: Collection[str]) -> str:
    """The end of an error message: the closest valid word, or all of them."""
    near = nearest(word, valid)
    if near is not None:
        return f'did you mean "{near}"?'
    return f"choose from: {', '.join(sorted(valid))}" if valid else "there are none"
