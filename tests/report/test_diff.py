"""Edits and diffs: right to the byte, also for odd line ends, and taken by ``git apply``."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.edits import apply_edits, offsets, split_lines
from pytest_dispatchguard.model.findings import Edit, Span
from pytest_dispatchguard.report.diff import diff_of_edits, lines_changed_by, unified

TEXTS = st.text(alphabet="ab é名\f\x1c\u2028\t\n\r", max_size=60)


def test_lines_end_where_python_says() -> None:
    assert split_lines("a\fb\x1cc\u2028d\r\ne\rf\n\ng") == [
        "a\fb\x1cc\u2028d\r\n",
        "e\r",
        "f\n",
        "\n",
        "g",
    ]
    assert split_lines("") == []


@given(TEXTS)
def test_lines_are_the_text(text: str) -> None:
    assert "".join(split_lines(text)) == text


def test_edits_are_all_made_at_places_of_the_text_before() -> None:
    text = "x = a\r\ny = b\r\n"
    edits = [
        Edit("f.py", Span(2, 5, 2, 6), "long"),
        Edit("f.py", Span(1, 5, 1, 6), "né"),
        Edit("f.py", Span(3, 1, 3, 1), "z\r\n"),
        Edit("f.py", Span(1, 1, 1, 1), "# "),
    ]
    assert apply_edits(text, edits) == "# x = né\r\ny = long\r\nz\r\n"
    assert apply_edits(text, [edits[0], edits[0]]) == "x = a\r\ny = long\r\n"
    assert apply_edits("", [Edit("f.py", Span(1, 1, 1, 1), "a")]) == "a"


@pytest.mark.parametrize(
    "spans",
    [
        [(1, 1, 1, 3), (1, 2, 1, 4)],
        [(1, 1, 2, 2), (2, 1, 2, 2)],
        [(1, 2, 1, 1)],
        [(1, 1, 1, 9)],
        [(3, 1, 3, 1)],
        [(0, 1, 1, 1)],
        [(1, 0, 1, 1)],
    ],
)
def test_edits_that_cannot_be_made_are_errors(spans: list[tuple[int, int, int, int]]) -> None:
    edits = [Edit("f.py", Span(*span), str(n)) for n, span in enumerate(spans)]
    with pytest.raises(ValueError, match=r"overlap|no line"):
        apply_edits("abc\ndef", edits)


def test_two_different_insertions_at_one_place_overlap() -> None:
    edits = [Edit("f.py", Span(1, 1, 1, 1), text) for text in "ab"]
    with pytest.raises(ValueError, match="edits overlap at line 1, column 1"):
        apply_edits("x\n", edits)


@given(TEXTS, st.data())
def test_an_edit_is_a_slice(text: str, data: st.DataObject) -> None:
    lines = split_lines(text)
    line = data.draw(st.integers(1, max(len(lines), 1)))
    width = len(lines[line - 1]) if lines else 0
    left, right = sorted(data.draw(st.tuples(*[st.integers(1, width + 1)] * 2)))
    span = Span(line, left, line, right)
    start, end = offsets(text, span)
    assert apply_edits(text, [Edit("f", span, "NEW")]) == text[:start] + "NEW" + text[end:]
    assert text[start:end] == (lines[line - 1] if lines else "")[left - 1 : right - 1]


def test_a_diff_of_the_edits_of_one_file() -> None:
    text = "".join(f"line {n}\n" for n in range(1, 21))
    edits = [Edit("a b.py", Span(10, 1, 10, 5), "LINE"), Edit("other.py", Span(1, 1, 1, 1), "x")]
    assert diff_of_edits("a b.py", text, edits, context=1) == (
        "--- a/a b.py\t\n+++ b/a b.py\t\n@@ -9,3 +9,3 @@\n line 9\n-line 10\n+LINE 10\n line 11\n"
    )
    assert diff_of_edits("a b.py", text, []) == ""


def test_a_missing_last_line_end_is_told() -> None:
    assert unified("a.py", "x", "y\n") == (
        "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+y\n"
    )


def test_changed_lines_have_the_numbers_of_their_own_text() -> None:
    lines = split_lines("a\nb\nc\r\nd")
    edits = [Edit("f.py", Span(2, 1, 3, 1), ""), Edit("f.py", Span(4, 1, 4, 2), "x\nd\n")]
    assert lines_changed_by(lines, edits) == [
        ("-", 2, "b"),
        ("-", 4, "d"),
        ("+", 3, "x"),
        ("+", 4, "d"),
    ]
    assert lines_changed_by(lines, []) == []
    with pytest.raises(ValueError, match="no lines 2 to 9 in a text of 4 lines"):
        lines_changed_by(lines, [Edit("f.py", Span(2, 1, 9, 1), "")])


@given(st.text(alphabet="ab\n", max_size=40), st.data())
def test_changed_lines_make_the_text_after_of_the_text_before(
    text: str, data: st.DataObject
) -> None:
    lines = split_lines(text)
    places = [(n, c) for n, line in enumerate(lines, 1) for c in range(1, len(line) + 1)]
    if not places:
        return
    start, end = sorted(data.draw(st.tuples(st.sampled_from(places), st.sampled_from(places))))
    edit = Edit("f.py", Span(*start, *end), data.draw(st.text(alphabet="ab\n", max_size=5)))
    rows = lines_changed_by(lines, [edit])
    assert {lines[n - 1].rstrip("\n") == line for sign, n, line in rows if sign == "-"} <= {True}
    gone = {n for sign, n, _ in rows if sign == "-"}
    come = {n: line for sign, n, line in rows if sign == "+"}
    kept = iter(line.rstrip("\n") for n, line in enumerate(lines, 1) if n not in gone)
    after = [line.rstrip("\n") for line in split_lines(apply_edits(text, [edit]))]
    made = [come[n] if n in come else next(kept) for n in range(1, len(after) + 1)]
    assert made == after
    assert next(kept, None) is None


def test_a_long_file_is_quick() -> None:
    text = "".join(f"x = {n % 7}\n" for n in range(200_000))
    changed = text.replace("x = 3\n", "y = 3\n", 1)
    before = time.process_time()
    assert "@@ -1,7 +1,7 @@" in unified("a.py", text, changed)
    assert time.process_time() - before < 5


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("path", ["a.py", "with space/größe.py"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("a\nb\nc", "a\nb\nC"),
        ("a\nb\nc\n", "a\nb\nc"),
        ("a\r\nb\r\n", "a\r\nB\r\n"),
        ("a\rb\fc\n\x1cd\u2028e\n", "a\rB\fc\n\x1cd\u2028e\n"),
        ("", "a\n"),
        ("".join(f"{n}\n" for n in range(99)), "".join(f"{n}\n" for n in range(99) if n % 20)),
        ("x\n" * 50 + "y\n", "x\n" * 53 + "y\n"),
    ],
)
def test_git_applies_it(tmp_path: Path, path: str, before: str, after: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(before.encode())
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"],
        cwd=tmp_path,
        input=unified(path, before, after).encode(),
        check=True,
    )
    assert file.read_bytes() == after.encode()
