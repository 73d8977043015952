"""SVG text for charts: colors for light and dark pages, text that fits, the page of a chart."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from math import fsum
from typing import Any

WIDTH, MARGIN = 760.0, 24.0
ROOM = WIDTH - 2 * MARGIN
TITLE, TEXT, SMALL = 23.0, 17.0, 15.0
"""Font sizes; a phone shows them at half."""

SERIES = ("blue", "vermilion", "teal", "amber", "plum", "sky")
"""Colors that are distinguishable with color blindness, on both backgrounds."""
COLOURS = {
    "surface": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "muted": ("#59636e", "#9198a1"),
    "line": ("#dfe4ea", "#2a313b"),
    "whole": ("#424a53", "#c9d1d9"),
    "grey": ("#7d8590", "#7d8590"),
    "blue": ("#1b55b5", "#4b87ff"),
    "vermilion": ("#c2410c", "#fb6a33"),
    "teal": ("#1f8a80", "#23e3bd"),
    "amber": ("#c48900", "#ffc62e"),
    "plum": ("#86206a", "#bb72a4"),
    "sky": ("#2493f0", "#a3beff"),
    "on-dark": ("#ffffff", "#000000"),
    "on-bright": ("#000000", "#000000"),
}
"""For light pages, and for dark ones."""
DEEP = ("blue", "vermilion", "plum")
"""Colors of series behind light text on a light page."""

_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
# Light colors are attributes, which every SVG viewer supports; browsers support more.
_DARK = "".join(
    f".dg-f-{name}{{fill:{dark}}}.dg-s-{name}{{stroke:{dark}}}"
    for name, (_, dark) in COLOURS.items()
)
_STYLE = (
    "@media screen{.dg-chart{max-width:100%;height:auto}}"
    f"@media (prefers-color-scheme:dark){{{_DARK}}}"
)
_WIDTHS = {0.33: " .,:;!|'/\\-ijlI", 0.41: 'ftr()[]{}`"*', 1.0: "mwMW@%&…+=<>~^#\u00d7\u2212±≈"}
_LETTERS = {letter: wide for wide, letters in _WIDTHS.items() for letter in letters}
_BOLD = 600

Look = dict[str, Any]
"""Attributes of an element."""


@dataclass(frozen=True, slots=True)
class Caption:
    """The text around a chart; the subtitle names the machine and the versions."""

    title: str
    subtitle: str = ""
    note: str = ""


def shape(
    name: str, content: str = "", *, fill: str = "", stroke: str = "", kind: str = "", **more: Any
) -> str:
    """One SVG element, with its content as it is, in colors that follow the page's theme."""
    named = {"dg": kind, "dg-f": fill, "dg-s": stroke}
    more["class"] = " ".join(f"{prefix}-{word}" for prefix, word in named.items() if word)
    if fill or stroke:
        more["fill"] = COLOURS[fill][0] if fill else "none"
        more["stroke"] = COLOURS[stroke][0] if stroke else ""
    told = "".join(
        f' {key.replace("_", "-")}="{value if isinstance(value, str) else place(value)}"'
        for key, value in more.items()
        if value != ""
    )
    return f"<{name}{told}>{content}</{name}>" if content else f"<{name}{told}/>"


def place(value: float) -> str:
    """A coordinate, to a hundredth."""
    words = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if words == "-0" else words


def path(*points: tuple[float, float]) -> str:
    """A line through points."""
    return "M" + " L".join(f"{place(x)} {place(y)}" for x, y in points)


def line(stroke: str, *points: tuple[float, float], **more: Any) -> str:
    """A line through points, as an element."""
    return shape("path", stroke=stroke, d=path(*points), **more)


def series_colour(at: int) -> str:
    """The color of a series; colors repeat if there are many."""
    return SERIES[at % len(SERIES)]


def clean(words: str) -> str:
    """The text on one line, without characters that XML does not allow."""
    if words.isprintable():
        return words
    line = " ".join(words.splitlines()).replace("\t", " ")
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cs", "Cn") else c for c in line)


def width(words: str, size: float, weight: int = 0) -> float:
    """The approximate width of a text, in a rather wide font."""
    return size * (1.12 if weight else 1) * fsum(map(_wide, clean(words)))


@cache
def _wide(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF" or ord(letter) > 0xFFFF:
        return 1.4
    return _LETTERS.get(letter, 0.72 if letter.isupper() or ord(letter) > 0x2FF else 0.62)


def cut(words: str, room: float, size: float, weight: int = 0) -> str:
    """The text, shortened in its middle to fit."""
    if width(words, size, weight) <= room + 0.01:
        return words
    shown = "…"
    for kept in range(1, len(words)):
        longer = f"{words[: (kept + 1) // 2]}…{words[len(words) - kept // 2 :]}"
        if width(longer, size, weight) > room:
            break
        shown = longer
    return shown


def text(
    x: float,
    y: float,
    words: str,
    room: float = ROOM,
    *,
    size: float = SMALL,
    fill: str = "ink",
    weight: int = 0,
    anchor: str = "start",
    patch: bool = False,
    kind: str = "",
) -> str:
    """A text centered vertically at ``y``, optionally on a patch without lines; a shortened text is
    complete in the tooltip."""
    if not (whole := clean(words)):
        return ""
    shown = cut(whole, room, size, weight)
    content = escape(shown, quote=False) + (_title(whole) if shown != whole else "")
    look: Look = {"font_size": size, "font_weight": str(weight or ""), "text_anchor": anchor}
    drawn = shape("text", content, fill=fill, kind=kind, x=x, y=y + size * 0.35, **look)
    if patch:
        wide = width(shown, size, weight)
        left = x - 3 - wide * ("start", "middle", "end").index(anchor) / 2
        box: Look = {"x": left, "y": y - size * 0.6, "width": wide + 6, "height": size * 1.2}
        drawn = shape("rect", fill="surface", **box) + drawn
    return drawn


def titled(words: str, *shapes: str) -> str:
    """Shapes that belong together, with a tooltip."""
    return shape("g", _title(clean(words)) + "".join(shapes))


def _title(words: str) -> str:
    return f"<title>{escape(words, quote=False)}</title>"


def heading(caption: Caption) -> tuple[list[str], float]:
    """The title, the text below it, and where the chart may begin."""
    drawn, y = _paragraph(caption.title, MARGIN, 2, size=TITLE, weight=_BOLD)
    more, y = _paragraph(caption.subtitle, y + 4, 2, fill="muted")
    return drawn + more, y + 14


def _paragraph(
    words: str, y: float, most: int, *, size: float = SMALL, weight: int = 0, fill: str = "ink"
) -> tuple[list[str], float]:
    """The text in up to ``most`` lines, and its lower end."""
    lines: list[str] = []
    for word in clean(words).split():
        fits = lines and width(f"{lines[-1]} {word}", size, weight) <= ROOM
        if fits or len(lines) == most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    tall = size * 1.35
    drawn = [
        text(MARGIN, y + (at + 0.5) * tall, line, size=size, weight=weight, fill=fill)
        for at, line in enumerate(lines)
    ]
    return drawn, y + len(lines) * tall


def inside(drawing: str) -> str:
    """A chart for inside a page: without dark colors of its own, which come from `themes` there."""
    return drawing.replace(f"<style>{_STYLE}</style>\n", "")


def themes() -> str:
    """Styles of a page whose charts use the colors of its theme, which other elements can use by name.
    The theme is that of the system, unless the page's root names another."""
    light, dark = (
        "".join(f"--{name}:{pair[at]};" for name, pair in COLOURS.items()) for at in (0, 1)
    )
    drawn = "".join(
        f".dg-f-{name}{{fill:var(--{name})}}.dg-s-{name}{{stroke:var(--{name})}}"
        for name in COLOURS
    )
    return (
        f":root{{color-scheme:light;{light}}}"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}"
        f"{drawn}.dg-chart{{max-width:100%;height:auto}}\n"
    )


def page(caption: Caption, told: Sequence[str], drawn: Sequence[str], bottom: float) -> str:
    """The chart with its caption, as a separate file that also describes in words what it shows."""
    note = caption.note if told else f"Nothing was measured. {caption.note}"
    foot, bottom = _paragraph(note, bottom + 12, 9, fill="muted")
    wide, high = place(WIDTH), place(bottom + MARGIN / 2)
    size = f'viewBox="0 0 {wide} {high}" width="{wide}" height="{high}"'
    look = f'class="dg-chart" role="img" font-family="{_FONTS}"'
    words = ". ".join(part for part in (caption.subtitle, *told, note) if part)
    lines = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {look}>',
        _title(clean(caption.title)),
        f"<desc>{escape(clean(words), quote=False)}</desc>",
        f"<style>{_STYLE}</style>",
        shape("rect", fill="surface", width=wide, height=high, rx=8),
        *drawn,
        *foot,
        "</svg>\n",
    )
    return "\n".join(filter(None, lines))
