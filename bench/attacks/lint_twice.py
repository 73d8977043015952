"""Lints a folder in this process: without a cache, with a new one, with that one warm, and for its fixes.

    python bench/attacks/lint_twice.py FOLDER

Prints a line for everything that is not as promised: an exception, a function that could not be judged,
another report than before, a fix after which a file does not parse. Ends with 0 if there is none, and with 1
if there is.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pytest_dispatchguard.lint.check import Checked, check
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.report import render


def wrong_of(folder: Path) -> Iterator[str]:
    """What went wrong with it."""
    plain = Request((Path(),), folder, settings={"pedantic": True}, cache=False)
    warm = replace(plain, cache=True)
    expected = None
    for name, request in (("without a cache", plain), ("with a new cache", warm), ("warm", warm)):
        try:
            checked = check(request)
        except Exception as error:  # noqa: BLE001 - whatever comes of it is told
            yield f"{name}: {error!r}"
            return
        for problem in checked.problems:
            yield f"{name}: {problem}"
        told = render(checked.report, "json")
        expected = expected or told
        if told != expected:
            yield f"{name}: told something else than without a cache"
    try:
        fixed = check(replace(warm, fix="unsafe", write=False))
    except Exception as error:  # noqa: BLE001 - as above
        yield f"with fixes: {error!r}"
        return
    yield from (f"with fixes: {problem}" for problem in fixed.problems)
    yield from _broken(fixed)


def _broken(fixed: Checked) -> Iterator[str]:
    for rel, text in fixed.after.items():
        if _parses(fixed.before[rel]) and not _parses(text):
            yield f"with fixes: {rel} does not parse any more"


def _parses(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def main() -> int:
    found = list(wrong_of(Path(sys.argv[1]).resolve()))
    for line in found:
        print(ascii(line)[1:-1])
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
