"""Fixes of one file compose: whole or not at all, never a broken file, nothing changed beside them."""

from __future__ import annotations

import libcst
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.lint.results.fixes import fix
from pytest_dispatchguard.model.findings import Edit, Finding, Fix, Safety, Span

PATH = "a.py"


def finding(*edits: tuple[int, int, int, int, str], safety: Safety = "safe") -> Finding:
    made = tuple(Edit(PATH, Span(*e[:4]), e[4]) for e in edits)
    return Finding("DG101", "r", PATH, made[0].span, "f", "m", fix=Fix(safety, "do it", made))


def test_fixes_that_do_not_touch_are_made_together() -> None:
    text = "a = 1  # one\nb = 2\n"
    done = fix(text, [finding((1, 5, 1, 6, "10")), finding((2, 5, 2, 6, "20"))], ("safe",))
    assert done.text == "a = 10  # one\nb = 20\n"
    assert len(done.made) == 2


def test_an_overlapping_fix_waits() -> None:
    text = "a = f(g(1))\n"
    outer, inner = finding((1, 5, 1, 12, "h(1)")), finding((1, 7, 1, 11, "1"))
    done = fix(text, [outer, inner], ("safe",))
    assert done.text == "a = h(1)\n"
    assert done.made == (outer,)


def test_a_fix_of_several_edits_is_made_whole_or_not_at_all() -> None:
    text = "a = 1\nb = 2\n"
    first = finding((1, 5, 1, 6, "3"))
    second = finding((2, 1, 2, 2, "c"), (1, 5, 1, 6, "4"))
    done = fix(text, [first, second], ("safe",))
    assert done.text == "a = 3\nb = 2\n"
    assert done.made == (first,)


def test_the_same_import_is_added_once() -> None:
    text = "a = 1\nb = 2\n"
    new = (1, 1, 1, 1, "import itertools\n")
    done = fix(text, [finding((1, 5, 1, 6, "x"), new), finding((2, 5, 2, 6, "y"), new)], ("safe",))
    assert done.text == "import itertools\na = x\nb = y\n"


def test_a_fix_that_breaks_the_file_is_not_made_and_the_others_are() -> None:
    text = "a = 1\nb = 2\n"
    broken, good = finding((1, 5, 1, 6, "(")), finding((2, 5, 2, 6, "20"))
    done = fix(text, [broken, good], ("safe",))
    assert done.text == "a = 1\nb = 20\n"
    assert done.made == (good,)


def test_unsafe_fixes_are_made_only_when_asked_for() -> None:
    text = "a = 1\n"
    unsafe = finding((1, 5, 1, 6, "2"), safety="unsafe")
    assert fix(text, [unsafe], ("safe",)).text == text
    assert fix(text, [unsafe], ("safe", "unsafe")).text == "a = 2\n"


def test_new_lines_end_as_those_of_the_file_do() -> None:
    done = fix("a = 1\r\n", [finding((1, 1, 1, 1, "b = 2\nc = 3\r\n"))], ("safe",))
    assert done.text == "b = 2\r\nc = 3\r\na = 1\r\n"


_VALUES = st.sampled_from(
    ["1", "'ü'", "x", "[1,\n 2]", "f(a)", "(", "", "\f2", "lambda: 0", "'''a\nb'''"]
)


@given(
    st.lists(st.sampled_from(["1", "'é🎉'", "x.y", "f( 1 )"]), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), _VALUES), max_size=6),
    st.sampled_from(["\n", "\r\n"]),
)
def test_the_result_parses_and_only_the_places_of_fixes_change(
    values: list[str], changes: list[tuple[int, str]], newline: str
) -> None:
    lines = [f"v{i} = {v}  # keep {i}" for i, v in enumerate(values)]
    text = newline.join(lines) + newline
    findings = []
    for at, new in changes:
        if at < len(values):
            start = len(f"v{at} = ") + 1
            findings.append(finding((at + 1, start, at + 1, start + len(values[at]), new)))
    done = fix(text, findings, ("safe",))
    libcst.parse_module(done.text)
    for i in range(len(values)):
        assert f"  # keep {i}{newline}" in done.text
    touched = {f.span.line for f in done.made}
    for i, line in enumerate(lines, 1):
        if i not in touched:
            assert line + newline in done.text
    again = fix(done.text, [], ("safe",))
    assert again.text == done.text
