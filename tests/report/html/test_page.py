"""``--format html``: one page that holds all, asks nothing of a network, and shows what it quotes."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.model.findings import Finding, Hot, Price
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.model.reports import Report
from pytest_dispatchguard.model.verdicts import Limit, Verdict
from pytest_dispatchguard.report import render
from pytest_dispatchguard.report.charts.svg import COLOURS
from pytest_dispatchguard.report.html.budgets import sparkline
from pytest_dispatchguard.report.html.elements import Html, asset, el, embedded, prose, text
from pytest_dispatchguard.report.html.findings import SHOWN
from pytest_dispatchguard.report.html.page import Known, page

html5lib = pytest.importorskip("html5lib", reason="reads pages as browsers do")

KnownOf = Callable[..., Known]
UNSEEN = re.compile("[\x00\x1b\u202e\udc80]")


def parsed(markup: str) -> Any:
    """A page as a tree; what is no HTML is an error."""
    return bare(html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(markup))


def fragment(markup: str) -> Any:
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    return bare(parser.parseFragment(markup, container="ol"))


def bare(tree: Any) -> Any:
    """With the names of drawings' elements like all others."""
    for element in tree.iter():
        element.tag = element.tag.rpartition("}")[2]
    return tree


def words(tree: Any) -> str:
    """What a tree shows, on one line."""
    return " ".join("".join(tree.itertext()).split())


def data(tree: Any) -> list[list[Any]]:
    (told,) = (e for e in tree.iter("script") if e.get("type") == "application/json")
    rows: list[list[Any]] = json.loads(told.text)
    return rows


class Text(HTMLParser):
    """The text of a piece of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(markup: str) -> str:
    reader = Text()
    reader.feed(markup)
    reader.close()
    return reader.text


plain = st.text(st.characters(exclude_categories=["Cc", "Cf", "Cn", "Cs"]))


@given(plain, plain)
def test_text_and_attributes_are_shown_as_they_are(inside: str, told: str) -> None:
    markup = el("p", inside, title=told)
    (made,) = fragment(markup)
    assert shown(markup) == inside
    assert ("".join(made.itertext()), made.get("title")) == (inside, told)


@given(st.text())
def test_what_cannot_be_seen_leaves_a_mark(told: str) -> None:
    made = text(told)
    made.encode()
    assert len(shown(made)) == len(told)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\ud800-\udfff]", made)


def test_code_in_a_message_is_code_and_nothing_else_is() -> None:
    assert prose("`a<b` or <b>\n`c`") == ("<code>a&lt;b</code> or &lt;b&gt; <code>c</code>")
    assert isinstance(prose(""), Html)


@given(st.recursive(st.text() | st.integers() | st.none(), lambda s: st.lists(s, max_size=3)))
def test_json_in_a_script_ends_nothing(value: object) -> None:
    told = embedded(value)
    assert "<" not in told and told.isascii() and told.isprintable()
    assert json.loads(told) == value


def test_what_would_break_a_page_is_shown_in_it(
    known_of: KnownOf, hostile_words: tuple[str, ...]
) -> None:
    known = known_of(SHOWN + 100, ugly=True)
    markup = page(known)
    tree = parsed(markup)
    rows = data(tree)
    late = [fragment(row[-1]) for row in rows if row[-1]]
    assert len(rows) == SHOWN + 100 and len(late) == 100
    everything = words(tree.find("body/main"))
    for word in hostile_words:
        told = " ".join(UNSEEN.sub("\ufffd", word).split())
        assert told in everything
        assert any(told in words(row) for row in late)
    # Nothing of it has become an element, or part of one.
    for element in [*tree.iter(), *(e for row in late for e in row.iter())]:
        assert element.tag not in ("img", "iframe", "object", "link", "base", "x")
        assert not [name for name in element.attrib if name.lower().startswith("on")]
        assert "style" not in element.attrib and "src" not in element.attrib
    assert len(list(tree.iter("script"))) == 2 and len(list(tree.iter("style"))) == 1


def test_nothing_is_fetched_and_nothing_else_runs(known_of: KnownOf) -> None:
    tree = parsed(page(known_of(5, ugly=True)))
    (policy,) = (
        e.get("content")
        for e in tree.iter("meta")
        if e.get("http-equiv") == "Content-Security-Policy"
    )
    (style,) = tree.iter("style")
    (script,) = (e for e in tree.iter("script") if e.get("type") is None)
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for name, element in (("style-src", style), ("script-src", script)):
        digest = b64encode(sha256(element.text.encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    assert "url(" not in style.text and "@import" not in style.text
    ids = {e.get("id") for e in tree.iter()}
    for link in tree.iter("a"):
        where = link.get("href")
        assert where.startswith("https://") or where.removeprefix("#") in ids


def test_the_files_beside_it_hold_what_html_can_hold() -> None:
    """They are put into the page as they are."""
    assert "</" not in asset("page.js").replace("</(", "") and "<!--" not in asset("page.js")
    assert "<" not in asset("page.css")
    assert asset("page.js").isascii() and asset("page.css").isascii()


def test_all_that_is_known_is_there(known_of: KnownOf) -> None:
    tree = parsed(page(known_of(5)))
    told = words(tree.find("body/main"))
    for part in (
        "dispatchguard: 5 findings, 5 budgets",
        "torch2.13.0",
        "Note: a note for people",
        "6.663 ±0.421",
        "instructions 60 → 745",
        "✗ fail",
        "? undecided",
        "Why: instructions: 745, allowed 60",
        "most of the +10.87 µs that it takes beyond its reference",
        "691 src/ops.py:8leaves = flatten(structure)",
        "Where 12.8 µs of add go",
        "12 operations from 1 line",
        "used twice",
        "package.layers.Dense.forward, forward of a torch.nn.Module: at least 3 waits a call",
        "→ src/package/module_0.py:11:8 in pick: waits 2 times (DG401)",
        "Hot: forward of a torch.nn.Module: package.layers.Dense.forward → pick (in a loop)",
        "Costs: ≈ 0.10 to 60 µs per call on a machine",
        "Fix: choose with torch.where",
        "+ x = torch.where(mask) # src",
        "no GPU here",
    ):
        assert part in re.sub(r"\s+", " ", told), part
    drawings = {e.get("aria-label") for e in tree.iter() if e.tag == "svg"}
    assert "5 runs, from 2.1 to 6.66, between 2 and 6.66" in drawings


def test_without_a_script_the_first_findings_are_there_and_the_rest_is_told(
    known_of: KnownOf,
) -> None:
    tree = parsed(page(known_of(SHOWN + 300)))
    rows = [e for e in tree.iter("li") if re.fullmatch(r"f\d+", e.get("id") or "")]
    assert [row.get("id") for row in rows] == [f"f{n}" for n in range(SHOWN)]
    (said,) = tree.iter("noscript")
    assert words(said) == "The other 300 are shown by a script, which does not run here."
    for name in ("filter", "theme"):
        assert [e for e in tree.iter() if e.get("id") == name and "hidden" in e.attrib]


def test_those_who_see_and_point_at_nothing_find_their_way(known_of: KnownOf) -> None:
    tree = parsed(page(known_of(30)))
    assert tree.get("lang") == "en" and tree.findtext("head/title")
    levels = [int(e.tag[1]) for e in tree.iter() if re.fullmatch("h[1-6]", str(e.tag))]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [e.get("id") for e in tree.iter() if e.get("id")]
    assert len(ids) == len(set(ids))
    for landmark in ("header", "nav", "main"):
        assert len(list(tree.iter(landmark))) == 1
    labelled = [inside for label in tree.iter("label") for inside in label.iter()]
    for field in [*tree.iter("input"), *tree.iter("select")]:
        assert field in labelled
    for element in tree.iter():
        assert element.get("aria-labelledby") in (None, *ids)
    for table in tree.iter("table"):
        assert all(head.get("scope") for head in table.iter("th"))
    # The first thing to step on leads past the menu.
    first = next(e for e in tree.iter() if e.tag in ("a", "button", "input", "select", "summary"))
    assert first.get("href") == "#main"


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def mixed(colour: str, part: float, ground: str) -> str:
    pairs = [(int(c[at : at + 2], 16) for c in (colour, ground)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(a * part + b * (1 - part)):02x}" for a, b in pairs)


@pytest.mark.parametrize("theme", [0, 1])
def test_words_stand_out_from_what_is_behind_them(theme: int) -> None:
    colour = {name: pair[theme] for name, pair in COLOURS.items()}
    style = asset("page.css")
    used = set(re.findall(r"(?<![-\w])color:var\(--([\w-]+)\)", style))
    assert used == {"ink", "muted", "blue", "vermilion"}
    for name in used:
        assert contrast(colour[name], colour["surface"]) >= 4.5, name
    grounds = re.findall(
        r"background:color-mix\(in srgb,var\(--(\w+)\) (\d+)%,transparent\)", style
    )
    assert len(grounds) == 3
    for name, part in grounds:
        ground = mixed(colour[name], int(part) / 100, colour["surface"])
        for ink in ("ink", "muted") if name == "line" else ("ink",):
            assert contrast(colour[ink], ground) >= 4.5, (name, ink)


def test_a_page_of_findings_alone_and_one_of_budgets_alone(
    full: Report, clear: Report, known_of: KnownOf
) -> None:
    alone = words(parsed(render(full, "html")))
    assert "Budgets" not in alone and "Findings" in alone
    assert "Nothing was found." in words(parsed(render(clear, "html")))
    known = known_of(0)
    alone = words(parsed(page(Known("1.0", verdicts=known.verdicts))))
    assert "Findings" not in alone and "dispatchguard: 5 budgets" in alone
    assert "There are none." in words(parsed(page(Known("1.0", verdicts=[]))))
    assert "earlier runs" not in alone


def places(tree: Any) -> Iterator[tuple[str, list[str]]]:
    for section in tree.iter("section"):
        if section.get("id") == "waits":
            for root in section.find("ul"):
                yield words(root), [words(place) for place in root.iter("li")][1:]


def test_waits_are_told_by_their_root_those_that_wait_most_first(
    finding: Callable[..., Finding], report_of: Callable[..., Report]
) -> None:
    def one(code: str, line: int, root: str, waits: int | None, **more: Any) -> Finding:
        hot = Hot(root, (root, "f"), "forward of a torch.nn.Module", **more) if root else None
        price = None if waits is None else Price(None if waits else 2.0, waits=waits)
        return finding(
            code, "r", "a.py", (line, 1, line, 2), "m", hot=hot, price=price, function="f"
        )

    report = report_of(
        one("DG401", 1, "A.forward", 1),
        one("DG504", 2, "B.forward", 2, seen=4.0),
        one("DG401", 3, "B.forward", 1, per="step"),
        one("DG431", 4, "", 0),
        one("DG402", 5, "", None),
        one("DG101", 6, "A.forward", 0),
    )
    told = list(places(parsed(render(report, "html"))))
    assert [root.partition(" ")[0] for root, _ in told] == ["B.forward,", "A.forward,", "reached"]
    assert told[0][1] == [
        "→ a.py:2:1 in f: waits 2 times (seen: 4 calls per forward) (DG504)",
        "→ a.py:3:1 in f: waits 1 time (once per step) (DG401)",
    ]
    assert told[0][0].startswith("B.forward, forward of a torch.nn.Module: 9 waits a call")
    assert told[2][1] == [
        "→ a.py:4:1 in f: ≈ 2.0 µs per call on this machine (DG431)",
        "→ a.py:5:1 in f: it is not known how often it waits (DG402)",
    ]


def bars(verdict: Verdict) -> dict[str, dict[str, str]]:
    tree = parsed(page(Known("1", verdicts=[verdict])))
    drawing = next(e for e in tree.iter("svg") if e.get("class") == "small")
    return {e.tag: dict(e.attrib) for e in drawing.iter()}


def test_a_ratio_is_drawn_against_its_limit(known_of: KnownOf) -> None:
    over, within, *_ = known_of(0).verdicts or ()
    drawn = bars(over)
    limit = float(re.findall(r"[\d.]+", drawn["path"]["d"])[0])
    left = float(drawn["rect"]["x"])
    assert limit < left < float(drawn["circle"]["cx"]) < left + float(drawn["rect"]["width"]) < 120
    assert (limit / float(drawn["circle"]["cx"])) == pytest.approx(2 / 6.663, rel=1e-3)
    assert "vermilion" in drawn["rect"]["class"]
    drawn = bars(within)
    assert float(drawn["circle"]["cx"]) < float(re.findall(r"[\d.]+", drawn["path"]["d"])[0]) < 120
    recorded = replace(over, limits=(), recorded={"ratio": 3.0})
    assert bars(recorded)["path"]["d"] != bars(over)["path"]["d"]
    assert over.measured is not None
    far = replace(over.measured, ratio=Interval(1e12, 0.0, float("inf")))
    bars(replace(over, measured=far, limits=(Limit("ratio", 0),)))


def test_a_line_of_earlier_runs() -> None:
    assert sparkline([]) == "" and sparkline([float("nan")]) == ""
    assert 'aria-label="1 run, from 2 to 2, between 2 and 2"' in sparkline([2.0])
    rising = re.search(r' d="([^"]+)"', sparkline([1.0, 3.0, 2.0]))
    assert rising is not None
    numbers = [float(n) for n in re.findall(r"[\d.]+", rising[1])]
    assert numbers[1] > numbers[5] > numbers[3]


def test_a_subject_that_was_not_taken_apart_is_told_without(known_of: KnownOf) -> None:
    over = (known_of(0).verdicts or ())[0]
    told = words(parsed(page(Known("1", verdicts=[replace(over, layers=None, lines=())]))))
    assert "Why:" in told and "Where 12.8" not in told and "Most of its instructions" not in told
