"""Traces in every format: what is stored, what is promised, and text of others that steers nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unicodedata import category

import jsonschema
import pytest

from pytest_dispatchguard.model.traces import Line, Told
from pytest_dispatchguard.report.formats.markdown import LIMIT
from pytest_dispatchguard.report.traces import FORMATS, render
from pytest_dispatchguard.report.traces.options import Options
from pytest_dispatchguard.traces.comparing import compared

from .conftest import ITEM, STEP, told, trace, wait

SUFFIXES = {"text": "txt", "json": "json", "markdown": "md"}
NASTY = "a\x1b[2J\r\n::error::b\x9b\x07\u202ec\u2028\x00<script>alert(1)</script>|`x`"
COLORS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("form", SUFFIXES)
def test_one_trace(form: str, one: Told, options: Options, snapshot: Callable[..., None]) -> None:
    snapshot(f"trace.{form}.{SUFFIXES[form]}", render([one], None, form, options))


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_ranks(
    form: str, ranks: list[Told], options: Options, snapshot: Callable[..., None]
) -> None:
    snapshot(f"ranks.{form}.{SUFFIXES[form]}", render(ranks, None, form, options))


@pytest.mark.parametrize("form", SUFFIXES)
def test_two_compared(
    form: str, before_and_after: list[Told], options: Options, snapshot: Callable[..., None]
) -> None:
    comparison = compared(before_and_after[0].trace, before_and_after[1].trace)
    text = render(before_and_after, comparison, form, options)
    snapshot(f"compared.{form}.{SUFFIXES[form]}", text)


def test_colour_changes_no_word(one: Told, options: Options) -> None:
    plain = render([one], None, "text", options)
    colored = render([one], None, "text", replace(options, color=True))
    assert COLORS.sub("", colored) == plain and colored != plain


def test_the_json_keeps_the_promise(
    one: Told,
    ranks: list[Told],
    before_and_after: list[Told],
    options: Options,
    schemas: Path,
) -> None:
    schema = json.loads((schemas / "dispatchguard-traces.json").read_text(encoding="utf-8"))
    check = jsonschema.Draft202012Validator(schema).validate
    comparison = compared(before_and_after[0].trace, before_and_after[1].trace)
    alone = compared(trace(steps=trace().steps[:1], waits=()), trace())
    bare = Told(trace(devices=(), stacks=False, steps=(), waits=(), functions=None, lead_us=None))
    for traces, changes in (
        ([one], None),
        (ranks, None),
        (before_and_after, comparison),
        (before_and_after, alone),
        ([bare], None),
    ):
        check(json.loads(render(traces, changes, "json", options)))


def test_the_json_tells_what_the_linter_does_not_know(one: Told, options: Options) -> None:
    def unknown(options: Options) -> list[str]:
        (found,) = json.loads(render([one], None, "json", options))["traces"]
        return [wait["place"]["file"] for wait in found["waits"] if wait["unknown"]]

    assert unknown(options) == ["net/loss.py"]
    assert unknown(replace(options, linted=False)) == []


class Page(HTMLParser):
    """The elements of a page, which must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.words = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data

    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.seen if "id" in attributes]


def test_the_page_has_charts_and_tables(one: Told, options: Options) -> None:
    page = Page(render([one], None, "html", options))
    assert [name for name, _ in page.seen].count("svg") == 2
    assert {"summary", "device", "waits", "overhead"} <= set(page.ids())
    assert (
        "The device is idle 50% of a step: 30% behind waits at 2 places (20% at train.py:44 in step), "
        "15% behind" in page.words
    )
    assert "train.py:44 in step" in page.words and "DG402" in page.words
    assert "Waits that the linter does not know" in page.words
    bars = [
        attributes
        for name, attributes in page.seen
        if name == "rect" and "dg-bar" in attributes.get("class", "")
    ]
    assert len(bars) == 3 * 4  # busy, waits, late, queued: nothing stands behind a data loader


def test_the_page_shows_what_a_fix_changes(one: Told, options: Options) -> None:
    source = "\n" * 43 + "        total += loss.item()\n"
    there = replace(options, sources=lambda path: source if path == "train.py" else None)
    page = Page(render([one], None, "html", there))
    assert "-        total += loss.item()" in page.words
    assert [name for name, _ in page.seen].count("ins") == 1
    assert "ins" not in [name for name, _ in Page(render([one], None, "html", options)).seen]


def test_the_page_of_a_comparison_begins_with_it(
    before_and_after: list[Told], options: Options
) -> None:
    comparison = compared(before_and_after[0].trace, before_and_after[1].trace)
    page = Page(render(before_and_after, comparison, "html", options))
    assert page.ids()[3:5] != [] and page.ids().index("changes") < page.ids().index("device")
    assert "before.json → after.json: 1 wait came, 1 wait went away" in page.words


def test_many_steps_are_drawn_together(options: Options) -> None:
    steps = tuple(replace(trace().steps[0], name=f"ProfilerStep#{n}") for n in range(1000))
    page = render([Told(trace(steps=steps, waits=()))], None, "html", options)
    assert page.count('class="dg-bar ') == 12 * 4
    assert "ProfilerStep#0 to ProfilerStep#83, the mean" in page


@pytest.fixture
def nasty() -> list[Told]:
    """Every name in two traces is hostile."""
    line = Line(NASTY, 1, NASTY, ours=True)
    finding = replace(ITEM, path=NASTY, message=NASTY, code="DG1")
    waits = (wait(line, (1.0, 1.0, 1.0), call=NASTY, operator=NASTY, annotation=NASTY),)
    costs = (replace(trace().overheads[0], line=line),)
    names = tuple(replace(one, name=NASTY) for one in trace().steps)
    device = replace(trace().devices[0], name=NASTY)
    made = trace(path=NASTY, waits=waits, overheads=costs, steps=names, devices=(device,))
    joined = (replace(told(trace()).joined[0], line=line, waits=waits, findings=(finding,)),)
    return [Told(made, joined), Told(replace(made, rank=1, damage=NASTY, waits=()), joined)]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("changes", [False, True])
def test_names_steer_nothing(nasty: list[Told], form: str, changes: bool, options: Options) -> None:
    comparison = compared(nasty[0].trace, nasty[1].trace) if changes else None
    for traces in (nasty, nasty[:1], nasty[::-1]):
        text = render(traces, comparison, form, replace(options, color=True))
        plain = COLORS.sub("", text)
        left = {c for c in plain if category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n", "\t"}
        if form == "html":
            assert not left & set("\x1b\x9b\x07\u202e\x00") and "<script>alert" not in plain
        else:
            assert left == set()
            assert not any(line.lstrip().startswith("::error") for line in plain.splitlines())


def test_markdown_stays_short_enough_for_a_comment(options: Options) -> None:
    waits = tuple(
        wait(Line(f"a/{'long' * 20}{n}.py", n, "f" * 80, exact=True, ours=True), (1.0, 1.0, 1.0))
        for n in range(2000)
    )
    text = render([Told(trace(waits=waits))], None, "markdown", replace(options, top=10_000))
    assert len(text) < LIMIT
    assert "left out here for their length" in text


def test_bars_end_no_cell(options: Options) -> None:
    finding = replace(ITEM, message="`a | b` or a | b \\| c")
    one = told(trace())
    joined = (replace(one.joined[0], findings=(finding,)), *one.joined[1:])
    text = render([replace(one, joined=joined)], None, "markdown", options)
    (row,) = [line for line in text.splitlines() if "DG402" in line]
    head = text.splitlines()[text.splitlines().index(row) - 2]
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == head.count("|")


def test_a_place_is_told_once(options: Options) -> None:
    two = (
        wait(STEP, (200.0, 210.0, 190.0)),
        wait(STEP, (20.0, 21.0, 19.0), operator="aten::nonzero"),
    )
    text = render([told(trace(waits=two))], None, "text", options)
    assert text.count("DG402") == 1
    assert "2 a step, 220 µs a step at 1 place" in text
