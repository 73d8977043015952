"""Fixes as whole lines: what an applier makes of them is what the fix makes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.edits import apply_edits, split_lines
from pytest_dispatchguard.model.findings import Edit, Finding, Fix, Span
from pytest_dispatchguard.report.suggestions import FARTHEST, Lines, in_words, whole_lines


def made(*edits: Edit) -> Finding:
    return Finding("DG1", "r", "x.py", Span(1, 1, 1, 1), "", "m", fix=Fix("safe", "f", edits))


def edit(first: int, column: int, last: int, end: int, new: str) -> Edit:
    return Edit("x.py", Span(first, column, last, end), new)


def applied(text: str, lines: Lines, end: str) -> str:
    """As a code host does it: whole lines out, whole lines in, with the file's own line ends."""
    old = split_lines(text)
    new = [line + end for line in lines.text]
    if new and lines.last == len(old) and not old[-1].endswith("\n"):
        new[-1] = new[-1].removesuffix(end)
    return "".join([*old[: lines.first - 1], *new, *old[lines.last :]])


TEXT = "a = 1\nb = f(a)\nc = 3\n"


def test_a_word_of_a_line() -> None:
    finding = made(edit(2, 5, 2, 6, "g"))
    assert whole_lines(finding, TEXT) == Lines(2, 2, ("b = g(a)",))
    assert in_words(finding, TEXT) == ["replace line 2 with:", "b = g(a)"]


def test_lines_that_go() -> None:
    finding = made(edit(2, 1, 3, 1, ""))
    assert whole_lines(finding, TEXT) == Lines(2, 2, ())
    assert in_words(finding, TEXT) == ["remove line 2"]


def test_lines_that_come() -> None:
    assert whole_lines(made(edit(1, 1, 1, 1, "import x\n")), TEXT) == Lines(
        1, 1, ("import x", "a = 1")
    )
    assert whole_lines(made(edit(4, 1, 4, 1, "d = 4\n")), TEXT) == Lines(3, 3, ("c = 3", "d = 4"))


def test_several_edits_are_one() -> None:
    finding = made(edit(1, 1, 1, 1, "import x\n"), edit(2, 5, 2, 6, "x.g"))
    assert whole_lines(finding, TEXT) == Lines(1, 2, ("import x", "a = 1", "b = x.g(a)"))


def test_a_line_that_joins_the_next() -> None:
    found = whole_lines(made(edit(1, 1, 2, 1, "if c: ")), TEXT)
    assert found == Lines(1, 2, ("if c: b = f(a)",))


def test_what_is_no_lines_of_one_file_is_no_suggestion() -> None:
    assert whole_lines(made(), TEXT) is None
    assert whole_lines(Finding("DG1", "r", "x.py", Span(1, 1, 1, 1), "", "m"), TEXT) is None
    assert whole_lines(made(Edit("y.py", Span(1, 1, 1, 2), "b")), TEXT) is None
    assert whole_lines(made(edit(1, 1, 1, 2, "b")), None) is None
    assert whole_lines(made(edit(9, 1, 9, 2, "b")), TEXT) is None
    far = "x = 1\n" * (FARTHEST + 2)
    assert whole_lines(made(edit(1, 1, FARTHEST + 1, 2, "b")), far) is None
    # No line says whether the last one is ended.
    assert whole_lines(made(edit(1, 1, 1, 2, "b\n")), "a") is None
    assert in_words(made(edit(9, 1, 9, 2, "b")), TEXT) == []


@given(
    st.lists(st.text("ab é名𐐀\t", max_size=5), min_size=1, max_size=6),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.data(),
)
def test_lines_do_what_the_fix_does(
    lines: list[str], end: str, ended: bool, data: st.DataObject
) -> None:
    text = end.join(lines) + (end if ended else "")
    places = [
        (n, column)
        for n, line in enumerate(split_lines(text, keepends=False), 1)
        for column in range(1, len(line) + 2)
    ]
    if len(places) < 2:
        return
    picked = st.lists(st.sampled_from(places), min_size=2, max_size=2)
    first, last = sorted(data.draw(picked))
    new = end.join(data.draw(st.lists(st.text("xyé", max_size=3), min_size=1, max_size=3)))
    finding = made(edit(*first, *last, new))
    found = whole_lines(finding, text)
    assert finding.fix is not None
    after = apply_edits(text, finding.fix.edits)
    if found is None:
        assert text.endswith("\n") != after.endswith("\n") or not after
        return
    assert applied(text, found, end) == after
