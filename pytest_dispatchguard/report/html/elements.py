"""Building blocks of an HTML page: elements that escape their content, code in prose, JSON inside a
script, and the hashes by which the content security policy recognizes the page's scripts and styles."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files

from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.report.diff import diff_of_edits
from pytest_dispatchguard.report.markdown_text import CODE
from pytest_dispatchguard.report.options import Sources

# Characters that are not text: controls, lone surrogates, and those that change the text direction, by
# which a name can look like another one.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_EMPTY = frozenset({"input", "meta"})


class Html(str):
    """Text that is already HTML; anything else is escaped when it is inserted."""

    __slots__ = ()


def el(name: str, /, *content: str, **attributes: str | int | bool | None) -> Html:
    """An element. An attribute is omitted if it is None or False, and has no value if it is True; a
    trailing underscore is dropped from its name, and other underscores become hyphens."""
    told = "".join(
        f" {_attribute(key)}" if value is True else f' {_attribute(key)}="{text(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _EMPTY:
        return Html(f"<{name}{told}>")
    return Html(f"<{name}{told}>{joined(*content)}</{name}>")


@cache
def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def joined(*content: str) -> Html:
    """Pieces in sequence."""
    return Html("".join(one if isinstance(one, Html) else text(one) for one in content))


def text(words: str) -> Html:
    """Text as it is; invisible characters are made visible."""
    if not words.isprintable():
        words = _UNSEEN.sub("\ufffd", words)
    return Html(escape(words))


def prose(words: str) -> Html:
    """A message: on one line, with text in backticks as code."""
    line = " ".join(words.split())
    out: list[str] = []
    done = 0
    for match in CODE.finditer(line):
        out += line[done : match.start()], el("code", match.group()[1:-1])
        done = match.end()
    return joined(*out, line[done:])


def link(address: str, *content: str) -> Html:
    """A link that does not tell its target where the reader comes from."""
    return el("a", *content, href=address, rel="noreferrer")


def wide(label: str, content: Html) -> Html:
    """Content that may be wider than the page and scrolls separately, also with the keyboard."""
    return el("div", content, class_="wide", role="region", aria_label=label, tabindex=0)


def diff(finding: Finding, sources: Sources) -> Html:
    """What the fix of a finding changes; nothing if there is no fix, or the file has changed since."""
    source = None if finding.fix is None else sources(finding.path)
    if finding.fix is None or source is None:
        return Html()
    try:
        told = diff_of_edits(finding.path, source, finding.fix.edits, context=1)
    except ValueError:
        return Html()
    rows = told.replace("\r\n", "\n").split("\n")[2:]
    return el("pre", *(_row(row) for row in rows if row), class_="diff") if rows else Html()


def _row(row: str) -> Html:
    kinds = {"+": "ins", "-": "del", "@": "i"}
    kind = kinds.get(row[0])
    return joined(el(kind, row) if kind else row, "\n")


def embedded(value: object) -> str:
    """JSON for a script element: no text in it ends the element, begins a comment or breaks a line."""
    told = json.dumps(value, allow_nan=False, separators=(",", ":"))  # in ASCII
    return told.replace("<", "\\u003c")


@cache
def asset(name: str) -> str:
    """The text of a file beside this module."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def hashed(content: str) -> str:
    """The hash by which the policy recognizes a script or style."""
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
