"""Lone surrogates, which editors give and files cannot hold, on their way through native code that takes
UTF-8."""

from __future__ import annotations

import re
from dataclasses import replace

from pytest_dispatchguard.model.findings import Finding

_ONE = re.compile("[\ud800-\udfff]")
_STAND_IN = {code: code + 0x102000 for code in range(0xD800, 0xE000)}
"""For each a character of the last private use area, which has room for all of them."""
_BACK = {after: before for before, after in _STAND_IN.items()}


def has_surrogates(text: str) -> bool:
    """Whether a text cannot be encoded."""
    return not text.isascii() and _ONE.search(text) is not None


def without(text: str) -> str:
    """The text, of the same length, with characters in place of its surrogates that can be encoded."""
    return text.translate(_STAND_IN)


def put_back(finding: Finding) -> Finding:
    """A finding on a text without its surrogates, with them."""
    fix = finding.fix
    if fix is not None:
        edits = tuple(replace(e, replacement=e.replacement.translate(_BACK)) for e in fix.edits)
        fix = replace(fix, message=fix.message.translate(_BACK), edits=edits)
    return replace(finding, message=finding.message.translate(_BACK), fix=fix)
