"""Findings as part of an HTML page: rows grouped by file, and device waits by root.

Further rows are passed to the page's script as data, which shows them on demand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby

from pytest_dispatchguard.edits import excerpt
from pytest_dispatchguard.model.findings import Certainty, Finding, Hot
from pytest_dispatchguard.report.html.elements import (
    Html,
    diff,
    el,
    embedded,
    joined,
    link,
    prose,
)
from pytest_dispatchguard.report.options import Sources
from pytest_dispatchguard.report.wording import (
    cost,
    costs,
    count,
    dearest_files_first,
    docs_url,
    heat_notes,
    in_trace,
    microseconds,
    remedy,
)

SHOWN = 200
"""How many rows are in the page itself; more would make it slow to open."""
_MOST_SHOWN = 500
"""The most characters of a source line that are shown before, in and after what a finding is about."""
_MOST_PLACES = 500
"""How many waits are listed."""
_MAYBE, _FIX, _UNSAFE, _WAITS, _NOTE = 1, 2, 4, 8, 16
_OF_LEVEL: Mapping[Certainty, int] = {"sure": 0, "note": _NOTE, "maybe": _MAYBE}
"""What the page's script filters by."""


def waits(finding: Finding) -> bool:
    """Whether it waits for the device, or copies to it."""
    return finding.code.startswith("DG4") or (finding.price is not None and finding.price.waits > 0)


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """The order of rows, and of their numbers."""
    return dearest_files_first(findings)


def section(findings: Sequence[Finding], sources: Sources) -> Html:
    """The rows of findings in order, with the filters."""
    shown = enumerate(findings[:SHOWN])
    groups = [
        _group(path, [_row(number, finding, sources) for number, finding in pairs])
        for path, pairs in groupby(shown, key=lambda pair: pair[1].path)
    ]
    left = len(findings) - SHOWN
    more = f"The other {left} are shown by a script, which does not run here."
    return el(
        "section",
        el("h2", "Findings", id="findings-title"),
        _controls(findings) if findings else el("p", "Nothing was found."),
        el("div", *groups, id="rows", class_="by-file"),
        el("noscript", el("p", more)) if left > 0 else "",
        el("p", el("button", "Show more", type="button", id="more"), hidden=True),
        id="findings",
        aria_labelledby="findings-title",
    )


def data(findings: Sequence[Finding], sources: Sources) -> str:
    """The data of rows for the page's script: position, cost and kind of each, and the HTML of those not
    shown yet."""
    return embedded(
        [
            [
                finding.path,
                finding.span.line,
                finding.code,
                round(finding.rank, 3),
                _flags(finding),
                0 if number < SHOWN else _row(number, finding, sources),
            ]
            for number, finding in enumerate(findings)
        ]
    )


def _flags(finding: Finding) -> int:
    fix = 0 if finding.fix is None else _FIX if finding.fix.safety == "safe" else _FIX | _UNSAFE
    return _OF_LEVEL[finding.certainty] | fix | (_WAITS if waits(finding) else 0)


def _group(path: str, rows: Sequence[Html]) -> Html:
    return el("section", el("h3", path), el("ol", *rows), class_="group")


def _controls(findings: Sequence[Finding]) -> Html:
    """The filters; they work only with the script."""
    codes = sorted({(finding.code, finding.rule) for finding in findings})
    files = sorted({finding.path for finding in findings})
    sorts = (
        ("file", "files, most expensive first"),
        ("cost", "cost"),
        ("place", "place"),
        ("code", "code"),
    )
    sure = ("", "all"), ("sure", "findings"), ("note", "notes"), ("maybe", "maybes")
    return el(
        "form",
        el("label", "Text ", el("input", type="search", id="text", autocomplete="off")),
        _choice("Rule", "code", [("", "all"), *((code, f"{code} {rule}") for code, rule in codes)]),
        _choice("File", "file", [("", "all"), *((path, path) for path in files)]),
        _choice("Certainty", "certainty", sure),
        el("label", el("input", type="checkbox", id="fix"), " has a fix"),
        el("label", el("input", type="checkbox", id="wait"), " device waits and copies"),
        _choice("Order by", "order", sorts),
        el("p", id="told", role="status"),
        _keys(),
        id="filter",
        role="search",
        aria_label="Filter findings",
        hidden=True,
    )


def _keys() -> Html:
    return el(
        "p",
        *("Keys: ", el("kbd", "/"), " to this filter, ", el("kbd", "j"), " and ", el("kbd", "k")),
        *(" or arrows from row to row, ", el("kbd", "Enter"), " unfolds. "),
        el("label", el("input", type="checkbox", id="keys", checked=True), " listen to them"),
    )


def _choice(label: str, name: str, options: Sequence[tuple[str, str]]) -> Html:
    made = [el("option", told, value=value) for value, told in options]
    return el("label", f"{label} ", el("select", *made, id=name))


def _row(number: int, finding: Finding, sources: Sources) -> Html:
    tags = [el("span", tag, class_="tag") for tag in _tags(finding)]
    summary = el(
        "summary",
        el("span", el("span", f"{finding.path}:", class_="path"), _place(finding), class_="at"),
        " ",
        el("b", finding.code),
        " ",
        el("span", prose(finding.message), class_="what"),
        *(part for tag in tags for part in (" ", tag)),
    )
    return el("li", el("details", summary, *_body(finding, sources)), id=f"f{number}")


def _place(finding: Finding) -> str:
    return f"{finding.span.line}:{finding.span.column}"


def _tags(finding: Finding) -> list[str]:
    price, fix = finding.price, finding.fix
    told = [] if finding.certainty == "sure" else [str(finding.certainty)]
    if finding.traced is not None:
        told.append(in_trace(finding.traced))
    elif price is not None:
        told += [count(price.waits, "wait")] if price.waits else []
        told += [f"≈ {microseconds(price.us)} µs"] if price.us is not None else []
    if fix is not None:
        told.append("fix" if fix.safety == "safe" else "unsafe fix")
    return told


def _body(finding: Finding, sources: Sources) -> list[Html]:
    where = [" in ", el("code", finding.function)] if finding.function else []
    page = link(docs_url(finding.code), f"{finding.code} {finding.rule}")
    told = [el("p", page, *where)]
    if finding.hot is not None:
        told.append(el("p", "Hot: ", heat(finding.hot)))
    if costs(finding):
        told.append(el("p", "Costs: ", costs(finding)))
    there = finding.elsewhere
    if there is not None:
        place = f"{there.path}:{there.span.line}"
        told.append(el("p", "The pattern is at ", el("code", place)))
    line = "".join(excerpt(finding.source, finding.span, _MOST_SHOWN)).strip()
    if line:
        told.append(el("pre", line, class_="source"))
    if finding.fix is not None:
        told += el("p", "Fix: ", prose(remedy(finding.fix))), diff(finding, sources)
    return [el("div", *told)]


def heat(hot: Hot) -> Html:
    """Why a place is hot: the reason of its root, and the path from there."""
    way = _way(hot.path or (hot.root,))
    return joined(f"{hot.reason}: ", way, f" {heat_notes(hot)}".rstrip())


@cache
def _way(path: tuple[str, ...]) -> Html:
    steps = [part for name in path for part in (" → ", el("code", name))]
    return joined(*steps[1:])


def sync_map(findings: Sequence[Finding]) -> Html:
    """What findings wait for, by the root that reaches them: most waits first."""
    roots: dict[str, list[tuple[int, Finding]]] = {}
    for number, finding in enumerate(findings):
        if waits(finding):
            roots.setdefault(finding.hot.root if finding.hot else "", []).append((number, finding))
    if not roots:
        return Html()
    rows = sorted(roots.items(), key=lambda row: (-_in_all(row[1]), row[0]))
    items, room = [], _MOST_PLACES
    for root, found in rows:
        if room <= 0:
            break
        items.append(_root(root, found[:room]))
        room -= len(found)
    left = sum(len(found) for _, found in rows) - _MOST_PLACES
    more = f"… and {count(left, 'place')} more: narrow the findings down to what waits."
    return el(
        "section",
        el("h2", "Waits for the device", id="waits-title"),
        el("ul", *items, class_="roots"),
        el("p", more) if left > 0 else "",
        id="waits",
        aria_labelledby="waits-title",
    )


def _in_all(found: Sequence[tuple[int, Finding]]) -> float:
    return sum(f.times * f.price.waits for _, f in found if f.price is not None)


def _root(root: str, found: Sequence[tuple[int, Finding]]) -> Html:
    hot = found[0][1].hot
    often = _in_all(found)
    told = f", {hot.reason}" if hot is not None and hot.reason else ""
    least = any(f.hot is not None and f.hot.loop and not f.hot.seen for _, f in found)
    told += ": at least " if least else ": "
    told += f"{often:.3g} {'wait' if often == 1 else 'waits'} a {hot.per if hot else 'call'}"
    name = el("code", root) if root else "reached from no known entry point"
    places = [
        el(
            "li",
            "→ ",
            el("a", f"{finding.path}:{_place(finding)}", href=f"#f{number}"),
            *([" in ", el("code", finding.function)] if finding.function else []),
            f": {_waiting(finding)}{_loop(finding.hot)} ({finding.code})",
        )
        for number, finding in found
    ]
    return el("li", name, told, el("ul", *places))


def _waiting(finding: Finding) -> str:
    price = finding.price
    if finding.traced is not None:
        return costs(finding)
    if price is None:
        return "it is not known how often it waits"
    return f"waits {count(price.waits, 'time')}" if price.waits else cost(price)


def _loop(hot: Hot | None) -> str:
    notes = "" if hot is None else heat_notes(hot)
    return f" {notes}" if notes else ""
