"""What an HTML page is put together from: elements that escape what they are given, code in prose, JSON
inside a script, the hashes by which a policy knows its own scripts and styles."""

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

# Letters that are no text: controls, halves of pairs, and those that turn the direction of what follows, with
# which a name can look like another.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_EMPTY = frozenset({"input", "meta"})


class Html(str):
    """Text that is HTML already: what is none is escaped where it is put in."""

    __slots__ = ()


def el(name: str, /, *content: str, **attributes: str | int | bool | None) -> Html:
    """An element. An attribute is left out where it is None or False, and is only named where it is True; a
    trailing underscore is not part of its name, and others stand for hyphens."""
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
    """Pieces one after the other."""
    return Html("".join(one if isinstance(one, Html) else text(one) for one in content))


def text(words: str) -> Html:
    """Words as they are, whatever is in them; letters that cannot be seen are shown to be there."""
    if not words.isprintable():
        words = _UNSEEN.sub("\ufffd", words)
    return Html(escape(words))


def prose(words: str) -> Html:
    """A message: on one line, what is in backticks as code."""
    line = " ".join(words.split())
    out: list[str] = []
    done = 0
    for match in CODE.finditer(line):
        out += line[done : match.start()], el("code", match.group()[1:-1])
        done = match.end()
    return joined(*out, line[done:])


def link(address: str, *content: str) -> Html:
    """A link that says nothing of this page to where it leads."""
    return el("a", *content, href=address, rel="noreferrer")


def wide(label: str, content: Html) -> Html:
    """What may be wider than the page, and is moved by itself, by keys too."""
    return el("div", content, class_="wide", role="region", aria_label=label, tabindex=0)


def diff(finding: Finding, sources: Sources) -> Html:
    """What the fix of a finding changes; nothing where there is none, or the file is another by now."""
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
    """JSON for inside a script element: no text in it ends the element, begins a comment, breaks a line."""
    told = json.dumps(value, allow_nan=False, separators=(",", ":"))  # in ASCII
    return told.replace("<", "\\u003c")


@cache
def asset(name: str) -> str:
    """The text of a file that lies beside this module."""
    return (files(__package__) / name).read_text(encoding="utf-8")


def hashed(content: str) -> str:
    """By what a policy knows a script or a style."""
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
