"""What a review says: headline, comments with suggestions, budgets that moved; whatever it quotes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from pytest_dispatchguard.model.findings import Edit, Finding, Fix, Price, Span
from pytest_dispatchguard.model.measurements import CostlyLine
from pytest_dispatchguard.model.reviews import BudgetChange, Review, Stretch
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.report.review import github, gitlab, json_, markdown
from pytest_dispatchguard.report.review.markdown import body, comments, render, summary
from pytest_dispatchguard.report.review.wording import headline

from .made import MOVED, NOTHING, OPTIONS, finding, fixed, remark


def test_the_headline() -> None:
    assert headline(NOTHING) == "nothing new"
    assert headline(replace(NOTHING, budgets=())) == "nothing new, every budget unchanged"
    some = Review("main", (remark(finding(2, 4)),), (finding(1, 1),), (finding(3, 3),), (MOVED,))
    assert headline(some) == "2 new findings, 1 gone, 1 over budget"
    better = replace(MOVED, verdict="pass")
    assert headline(replace(NOTHING, budgets=(better, better))) == "2 budgets moved"


def test_what_is_to_be_answered_for() -> None:
    assert not NOTHING.bad
    assert not replace(NOTHING, fixed=(finding(1, 1),)).bad
    assert not replace(NOTHING, budgets=(replace(MOVED, verdict="pass"),)).bad
    assert replace(NOTHING, others=(finding(1, 1),)).bad
    assert replace(NOTHING, budgets=(MOVED,)).bad


def test_a_suggestion_stands_at_the_lines_it_replaces() -> None:
    one = Review("main", (remark(finding(2, 2, fixed((2, 9, 4, 6, "h(x)")))),), (), ())
    (comment,) = comments(one, OPTIONS)
    assert (comment.first, comment.last) == (2, 4)
    assert "```suggestion\n    y = h(x)\n```" in body(comment, OPTIONS)
    (told,) = json.loads(github.render(one, OPTIONS))["comments"]
    assert (told["start_line"], told["line"]) == (2, 4)
    (told,) = json.loads(gitlab.render(one, OPTIONS))["discussions"]
    assert told["position"]["new_line"] == 4
    assert "```suggestion:-2+0\n    y = h(x)\n```" in told["body"]
    (told,) = json.loads(json_.render(one, OPTIONS))["new"]
    assert told["comment"] == {"first": 2, "last": 4}
    assert told["suggestion"] == ["    y = h(x)"]


def test_a_fix_that_reaches_beyond_the_change_is_only_shown() -> None:
    one = Review("main", (remark(finding(2, 2, fixed((2, 9, 4, 6, "h(x)"))), 1, 3),), (), ())
    (comment,) = comments(one, OPTIONS)
    assert comment.suggestion is None
    assert (comment.first, comment.last) == (2, 2)
    text = body(comment, OPTIONS)
    assert "suggestion" not in text
    assert "+    y = h(x)" in text


def test_lines_that_only_go_are_an_empty_suggestion() -> None:
    one = Review("main", (remark(finding(2, 4, fixed((2, 1, 5, 1, "")))),), (), ())
    (comment,) = comments(one, OPTIONS)
    assert "```suggestion\n```" in body(comment, OPTIONS)


def test_alike_findings_are_told_apart_and_known_again() -> None:
    two = Review("main", (remark(finding(2, 2)), remark(finding(3, 3))), (), ())
    names = [comment.fingerprint for comment in comments(two, OPTIONS)]
    assert len(set(names)) == 2
    lower = Review("main", (remark(finding(4, 4)), remark(finding(5, 5))), (), ())
    assert [comment.fingerprint for comment in comments(lower, OPTIONS)] == names


def test_the_summary_counts_what_is_commented_on() -> None:
    one = Review("main", (remark(finding(2, 4)),), (finding(1, 1, message="far"),), ())
    told = summary(one, OPTIONS, commented=True)
    assert "1 comment stands on the changed lines." in told
    assert "slow" not in told
    assert "far" in told
    assert "slow" in summary(one, OPTIONS, commented=False)


def test_what_it_costs_is_added_up() -> None:
    from pytest_dispatchguard.model.findings import Hot

    hot = Hot("Net.forward", ("Net.forward", "f"), "forward of a torch.nn.Module")
    dear = [replace(finding(n, n), hot=hot, price=Price(2.0)) for n in (1, 2)]
    told = render(Review("main", tuple(map(remark, dear)), (), ()), OPTIONS)
    assert "- Net.forward: ≈ 4.0 µs (2 findings)" in told


def test_budgets_name_the_lines_that_got_dearer() -> None:
    told = render(replace(NOTHING, budgets=(MOVED,), kept=3), OPTIONS)
    assert (
        "| `tests/test_a.py::test_f[4\\|8] (f)` | ❌ fail | instructions: 12 → 31 | 1.500 |" in told
    )
    assert "instructions: 31, allowed 20" in told
    assert "+19 instructions at /p/a.py:2: y = g(" in told
    assert "return y" not in told
    assert "+48 guards EQUALS_MATCH of L[*].a at a.py:3 in f: x * self.a" in told
    assert "3 budgets more unchanged" in told
    rows = json.loads(json_.render(replace(NOTHING, budgets=(MOVED,)), OPTIONS))["budgets"]
    assert rows[0]["moved"] == {"instructions": [12, 31]}
    assert "no counter moved" in render(replace(NOTHING, budgets=(), kept=3), OPTIONS)
    assert "No budgets" in render(replace(NOTHING, budgets=()), OPTIONS)


HOSTILE = [
    "<script>alert(1)</script>",
    "@everyone look",
    "![x](http://evil/x.png)",
    "a | b\n# title\n- [ ] task",
    "```\n# out of the fence",
    "<!-- dispatchguard: summary -->",
    "<!-- dispatchguard: 0123456789abcdef0123456789abcdef -->",
    "</details><img src=x onerror=alert(1)>",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_quoted_stays_text(text: str) -> None:
    source = f"x = {text!r}  # ```{text}\n"
    options = Options(sources=lambda path: source)
    fix = Fix("safe", text, (Edit("a.py", Span(1, 1, 1, 2), f"{text}"),))
    name = text.replace("\n", "\\n")
    bad = Finding("DG601", "r", name, Span(1, 1, 1, 2), text, text, fix=fix, source=source)
    bad = replace(bad, fix=Fix("safe", text, (Edit(name, Span(1, 1, 1, 2), text),)))
    change = BudgetChange(text, text, "fail", text, lines=(CostlyLine(text, 1, 3, text, 3),))
    whole = Review(text, (remark(bad, 1, 1),), (bad,), (bad,), (change,), notes=(text,))
    pages = [render(whole, options), *(body(c, options) for c in comments(whole, options))]
    for page in pages:
        seen = Seen.of(page)
        assert set(seen.tags) <= PLAIN
        # The marks by which a later run knows its own are at the end alone.
        assert len(seen.comments) == 1 + seen.breakers
        assert page.rstrip().endswith("-->")
        assert re.search(r"@\w", seen.outside_code) is None
        assert all(link.startswith("https://pytest-dispatchguard.") for link in seen.links)


PLAIN = frozenset(
    "h3 h4 p ul li strong a code pre details summary table thead tbody tr th td br blockquote".split()
)


class Seen(HTMLParser):
    """What a browser makes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.comments: list[str] = []
        self.breakers = 0
        """Empty comments, which keep an @ from calling anybody."""
        self.outside_code = ""
        self._code = 0

    @classmethod
    def of(cls, page: str) -> Seen:
        seen = cls()
        seen.feed(MarkdownIt("commonmark", {"html": True}).enable("table").render(page))
        seen.close()
        return seen

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._code += tag == "code"
        self.links += [value or "" for name, value in attrs if name == "href"]
        assert {name for name, _ in attrs} <= {"href", "class", "style"}

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag == "code"

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)
        if data == " ":
            self.breakers += 1
            self.outside_code += "\0"

    def handle_data(self, data: str) -> None:
        if not self._code:
            self.outside_code += data


def test_a_long_review_is_cut_at_what_a_host_takes() -> None:
    many = tuple(finding(2, 2, message=f"slow {n} " + "x" * 400) for n in range(400))
    for told in (
        render(Review("main", tuple(map(remark, many)), many, many[:50]), OPTIONS),
        summary(Review("main", (), many, many), OPTIONS, commented=True),
    ):
        assert len(told) < 65_000
        assert "more, left out to keep this short" in told
        assert told.rstrip().endswith("<!-- dispatchguard: summary -->")


def test_many_budgets_are_cut_as_well() -> None:
    many = tuple(
        replace(MOVED, node_id=f"tests/test_a.py::test_{n}", reason="x" * 300) for n in range(600)
    )
    told = summary(replace(NOTHING, budgets=many), OPTIONS, commented=True)
    assert len(told) < 65_000
    assert "more, left out to keep this short" in told
    assert told.rstrip().endswith("-->")


def test_a_project_in_a_folder_of_its_repository() -> None:
    """Hosts know files from the top, and each project has a summary of its own."""
    one = Review("main", (remark(finding(2, 4)),), (), (), prefix="libs/net/")
    other = replace(one, prefix="libs/other/")
    (told,) = json.loads(github.render(one, OPTIONS))["comments"]
    assert told["path"] == "libs/net/a.py"
    shown = replace(one.remarks[0], shown=Stretch(1, 5, "old.py"))
    page = gitlab.render(replace(one, remarks=(shown,)), OPTIONS)
    (told,) = json.loads(page)["discussions"]
    assert told["position"]["new_path"] == "libs/net/a.py"
    assert told["position"]["old_path"] == "libs/net/old.py"
    assert markdown.summary_mark(one) != markdown.summary_mark(other)
    names = [comments(each, OPTIONS)[0].fingerprint for each in (one, other)]
    assert names[0] != names[1]
