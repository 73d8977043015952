"""Suppressions: what they cover, which are unused, and what taking them out leaves."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dispatchguard.edits import split_lines
from pytest_dispatchguard.lint.results.suppressions import NONE, Applied, read
from pytest_dispatchguard.model.findings import Edit, Finding, Span

KNOWN = {
    "DG001": True,
    "DG002": True,
    "DG101": True,
    "DG401": True,
    "DG402": True,
    "DG601": True,
    "DG602": False,
}
RAN = tuple(code for code, default in KNOWN.items() if default)


def finding(line: int, column: int = 1, code: str = "DG401") -> Finding:
    span = Span(line, column, line, column + 1)
    return Finding(code=code, rule="r", path="a.py", span=span, function="f", message="m")


def apply(text: str, *findings: Finding, ran: Collection[str] = RAN) -> Applied:
    return read(text).apply(findings, path="a.py", ran=ran, known=KNOWN)


def covered(text: str, code: str = "DG401") -> list[int]:
    """The lines of a text on which a finding at the first character of code is suppressed."""
    lines = split_lines(text, keepends=False)
    findings = [
        finding(number, len(line) - len(line.lstrip()) + 1, code)
        for number, line in enumerate(lines, 1)
    ]
    return [f.span.line for f in apply(text, *findings).suppressed if f.code == code]


def edited(text: str, *edits: Edit) -> str:
    lines = split_lines(text)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + column - 1

    for edit in sorted(edits, key=lambda e: e.span, reverse=True):
        start = offset(edit.span.line, edit.span.column)
        end = offset(edit.span.end_line, edit.span.end_column)
        text = text[:start] + edit.replacement + text[end:]
    return text


def mended(text: str, *findings: Finding) -> str:
    """The text after fixing unused suppressions as often as it takes, one fix at a time."""
    for _ in range(300):
        fixes = [f.fix for f in apply(text, *findings).unused if f.fix is not None]
        if not fixes:
            return text
        assert fixes[0].safety == "safe"
        text = edited(text, *fixes[0].edits)
    raise AssertionError("fixes do not come to an end")


def dedent(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


def test_no_comments_is_quick_and_empty() -> None:
    assert read("x = 1\n") is NONE
    assert read("") is NONE


@pytest.mark.parametrize(
    "comment",
    [
        "# dispatchguard: ignore[DG401]",
        "# dispatchguard: ignore[DG401] -- the loss is read once",
        "# dispatchguard: ignore[DG4]",
        "# dispatchguard: ignore[DG101, DG401]",
        "# dispatchguard: ignore[DG101,DG401,]",
        "# dispatchguard: ignore",
        "# dispatchguard: ignore -- why not",
        "#dispatchguard:ignore[dg401]",
        "# Dispatchguard: ignore [DG401]",
        "# type: ignore  # dispatchguard: ignore[DG401]",
        "# dispatchguard: ignore[DG401] -- see #12  # noqa: E501",
        "# noqa: DG401",
        "# NOQA:DG401",
        "# noqa: E501,DG401",
        "# noqa: DG401 E501 because",
    ],
)
def test_forms(comment: str) -> None:
    assert covered(f"x = 1\ny = x.item()  {comment}\nz = 1\n") == [2]


@pytest.mark.parametrize(
    "comment",
    [
        "# dispatchguard: ignore[DG402]",
        "# dispatchguard: ignore[DG401",
        "# dispatchguard: ignore DG401",
        "# dispatchguard: ignore[]",
        "# dispatchguard: hot",
        "# dispatchguard: ingore[DG401]",
        "# noqa",
        "# noqa: E501",
        "# noqa: DG4012",
        "# ruff: noqa: DG401",
        "# write '# dispatchguard: ignore[DG401]' here",
    ],
)
def test_forms_that_suppress_nothing(comment: str) -> None:
    assert covered(f"y = x.item()  {comment}\n") == []


def test_strings_are_no_comments() -> None:
    text = 'x = "# dispatchguard: ignore[DG401]"\ny = """\n# dispatchguard: ignore\n"""\n'
    assert covered(text) == []
    assert apply(text).unused == ()


WHERE = "# dispatchguard: ignore[DG401]"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"f(\n    a,  {WHERE}\n    b,\n)\nc\n", [1, 2, 3, 4]),
        (f"f(\n    a,\n    {WHERE}\n    b,\n)\nc\n", [1, 2, 3, 4, 5]),
        (f"f(\n    a,\n)  {WHERE}\nc\n", [1, 2, 3]),
        (f'x = """\na\n"""  {WHERE}\nc\n', [1, 2, 3]),
        (f"x = 1 + \\\n    y  {WHERE}\nc\n", [1, 2]),
        (f"a\n{WHERE}\nf(\n    b,\n)\nc\n", [2, 3, 4, 5]),
        (f"a\n{WHERE}\n# why\nf()\nc\n", [2, 4]),
        (f"a\n{WHERE}\n\nf()\n", [2]),
        (f"a\nf()\n{WHERE}\n", [3]),
        (f"if a:  {WHERE}\n    b\n    c\nelif d:\n    e\n", [1]),
        (f"if a:\n    b\nelif d:  {WHERE}\n    e\nelse:\n    f\n", [3]),
        (f"if a:\n    b\n{WHERE}\nelif d:\n    e\n", [3, 4]),
        (f"if (\n    a  {WHERE}\n):\n    b\n", [1, 2, 3]),
        (f"{WHERE}\nfor a in b:\n    c\n", [1, 2]),
        (f"with a, \\\n    b:  {WHERE}\n    c\n", [1, 2]),
        (f"def f(\n    a,  {WHERE}\n) -> int:\n    b\n", [1, 2, 3]),
        (f"{WHERE}\n@d\n@e\ndef f(a):\n    b\n", [1, 2, 3, 4]),
        (f"@d\n{WHERE}\ndef f(a):\n    b\n", [1, 2, 3]),
        (f"@d\nasync def f(a):  {WHERE}\n    b\n", [1, 2]),
        (f"class A(B):  {WHERE}\n    b = 1\n", [1]),
        (f"while a:  {WHERE}\n    b\n", [1]),
        (f"try:\n    a\nexcept E:  {WHERE}\n    b\n", [3]),
        (f"match a:\n    case 1 if b:  {WHERE}\n        c\n", [2]),
        (f"def f():\n    {WHERE}\n    a\n    b\n", [2, 3]),
        (f"if a: b  {WHERE}\nc\n", [1]),
        (f"a; b  {WHERE}\nc\n", [1]),
    ],
)
def test_the_whole_statement_is_covered(text: str, lines: list[int]) -> None:
    assert covered(text) == lines
    assert covered(text.replace("\n", "\r\n")) == lines
    assert covered(text.replace("\n", "\r")) == lines


def test_statements_that_share_a_line_are_told_apart() -> None:
    text = f"f(\n    a,  {WHERE}\n); g(\n    b,\n)\n"
    inside, beside = finding(3, 1), finding(3, 4)
    result = apply(text, inside, beside)
    assert (result.suppressed, result.kept) == ((inside,), (beside,))


def test_columns_count_characters() -> None:
    text = f's = "ünï😀"; f(\n    a,  {WHERE}\n)\n'
    before, inside = finding(1, 1), finding(1, 13)
    result = apply(text, before, inside)
    assert (result.suppressed, result.kept) == ((inside,), (before,))


def test_a_finding_that_spans_the_body_belongs_to_the_header() -> None:
    text = f"for a in b:  {WHERE}\n    c\n    d\n"
    whole = Finding("DG401", "r", "a.py", Span(1, 1, 3, 6), "f", "m")
    assert apply(text, whole).suppressed == (whole,)


def test_only_breaks_that_python_knows_are_lines() -> None:
    text = f"s = '\x0b\x1c\u2028\x85'\n\x0cy = x.item()  {WHERE}\nz\n"
    assert covered(text) == [2]


def test_ignore_file() -> None:
    text = "x = 1\n# dispatchguard: ignore-file[DG4] -- generated\ny = 1\n"
    assert covered(text) == [1, 2, 3]
    assert covered(text, "DG101") == []


@pytest.mark.parametrize(
    "text",
    [
        "x = 1  # dispatchguard: ignore-file[DG4]\n",
        "if x:\n    # dispatchguard: ignore-file[DG4]\n    y\n",
        "f(\n# dispatchguard: ignore-file[DG4]\n)\n",
    ],
)
def test_ignore_file_elsewhere_is_told(text: str) -> None:
    assert covered(text) == []
    (told,) = apply(text).unused
    assert "without indentation" in told.message
    assert told.fix is None


def test_broken_code_keeps_its_suppressions() -> None:
    text = f"def f(:\n    x =\n    y = x.item()  {WHERE}\n    z = [\n"
    assert 3 in covered(text)


def test_unused_is_reported_with_place_and_fix() -> None:
    text = "x = 1\ny = 2  # dispatchguard: ignore[DG401, DG402] -- reason\n"
    (unused,) = apply(text).unused
    assert (unused.code, unused.rule, unused.path) == ("DG002", "unused-suppression", "a.py")
    assert unused.span == Span(2, 8, 2, 55)
    assert "DG401, DG402" in unused.message
    assert unused.source.startswith("y = 2")
    assert mended(text) == "x = 1\ny = 2\n"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("y  # dispatchguard: ignore[DG401]\n", "y\n"),
        ("y # dispatchguard: ignore\n", "y\n"),
        ("y  # dispatchguard: ignore[DG401]", "y"),
        ("y\n# dispatchguard: ignore[DG401]\nz\n", "y\nz\n"),
        ("y\r\n# dispatchguard: ignore[DG401]\r\nz\r\n", "y\r\nz\r\n"),
        ("y\r\n# dispatchguard: ignore[DG401]\r\n", "y\r\n"),
        ("y\n# dispatchguard: ignore[DG401]", "y"),
        ("# dispatchguard: ignore-file[DG401]", ""),
        ("y  # type: ignore  # dispatchguard: ignore[DG401]\n", "y  # type: ignore\n"),
        ("y  # dispatchguard: ignore[DG401]  # type: ignore\n", "y  # type: ignore\n"),
        ("y  # dispatchguard: ignore[DG1] -- see #4  # noqa: E501\n", "y  # noqa: E501\n"),
        ("y  # noqa: DG401,E501\n", "y  # noqa: E501\n"),
        ("y  # noqa: E501, DG401, F401\n", "y  # noqa: E501, F401\n"),
        ("y  # noqa: DG401 E501 why\n", "y  # noqa: E501 why\n"),
        ("y  # noqa: DG401 why\n", "y\n"),
        ("y  # noqa: DG401  # dispatchguard: ignore[DG402]\n", "y\n"),
        ("y = 1 \\\n# dispatchguard: ignore[DG4]\nz = 1\n", None),
        ("# dispatchguard: ignore-file[DG4]\n#\n# coding: latin-1\n", None),
        ("# dispatchguard: ignore-file[DG4] -- coding: latin-1\n", None),
    ],
)
def test_taking_unused_ones_out(text: str, after: str | None) -> None:
    assert apply(text).unused != ()
    assert mended(text) == (text if after is None else after)


def test_only_the_unused_codes_go() -> None:
    text = "y = x.item()  # dispatchguard: ignore[DG101, DG401, DG402] -- why\n"
    (unused,) = apply(text, finding(1)).unused
    assert "DG101, DG402" in unused.message
    assert mended(text, finding(1)) == "y = x.item()  # dispatchguard: ignore[DG401] -- why\n"


@pytest.mark.parametrize(
    ("comment", "ran", "unused"),
    [
        ("ignore[DG401]", ["DG401"], True),
        ("ignore[DG401]", ["DG402"], False),
        ("ignore[DG4]", ["DG401"], False),
        ("ignore[DG4]", ["DG401", "DG402"], True),
        ("ignore[DG6]", ["DG601"], True),
        ("ignore[DG602]", ["DG601"], False),
        ("ignore", RAN, True),
        ("ignore", RAN[:-1], False),
        ("ignore[DG002]", RAN, False),
    ],
)
def test_only_what_was_judged_is_unused(comment: str, ran: list[str], unused: bool) -> None:
    found = apply(f"x = 1  # dispatchguard: {comment}\n", ran=ran).unused
    assert bool(found) is unused


@pytest.mark.parametrize(
    "comment", ["# noqa", "# noqa: E501", "# noqa: F401,E501", "# noqa: X DG1"]
)
def test_what_other_tools_read_is_never_unused(comment: str) -> None:
    assert apply(f"x = 1  {comment}\n").unused == ()


@pytest.mark.parametrize(
    ("comment", "parts"),
    [
        ("ignore[DG4O1]", ['unknown code "DG4O1"', 'did you mean "DG401"?']),
        ("ignore[DG401, DG9]", ['unknown code "DG9"', "did you mean"]),
        ("ingore[DG401]", ['unknown directive "ingore"', 'did you mean "ignore"?']),
        ("ignore_file", ['unknown directive "ignore_file"', 'did you mean "ignore-file"?']),
        ("hott", ['did you mean "hot"?']),
        ("disable=DG431", ['unknown directive "disable"; write `ignore[DG431]`']),
        ("cold", ["`cold` has no effect here"]),
        ("hot -- every step", ["`hot` has no effect here"]),
        ("ignore[DG401", ["write `ignore[CODE, ...] -- reason`"]),
        ("ignore DG401", ["write `ignore[CODE, ...] -- reason`"]),
        ("ignore[]", ["names no code"]),
    ],
)
def test_mistakes_are_told(comment: str, parts: list[str]) -> None:
    (told,) = apply(f"x = 1  # dispatchguard: {comment}\n", finding(1), ran=["DG402"]).unused
    assert told.code == "DG002"
    assert told.fix is None
    for part in parts:
        assert part in told.message


@pytest.mark.parametrize(
    "comment",
    [
        "dispatchguard: the linter we use",
        "dispatchguard:",
        "dispatcher: ignore it",
        "dispatch_guard: what we use",
        "dispatchguard: hot functions only",
        "distributed: ignore[DG401]",
    ],
)
def test_prose_and_marks_are_left_alone(comment: str) -> None:
    assert apply(f"x = 1  # {comment}\n").unused == ()


@pytest.mark.parametrize(
    "name", ["dispatchgaurd", "dispatch-guard", "dispachguard", "Dispatchgard"]
)
def test_our_name_misspelt_is_told(name: str) -> None:
    (told,) = apply(f"x = 1  # {name}: ignore[DG401]\n").unused
    assert f'"{name}" is not recognized; write "dispatchguard:"' in told.message


@pytest.mark.parametrize(
    "text",
    [
        "def f(): pass  # dispatchguard: hot\n",
        "# dispatchguard: cold\ndef f():\n    pass\n",
        "# dispatchguard: cold -- why\n@d\nclass A:\n    pass\n",
        "@d  # dispatchguard: hot\ndef f(\n    a,\n):\n    pass\n",
        "def f(\n    a,  # dispatchguard: hot\n):\n    pass\n",
        "class A:\n    async def f(self):  # dispatchguard: cold\n        pass\n",
    ],
)
def test_marks_where_they_count_are_left_alone(text: str) -> None:
    assert apply(text).unused == ()


@pytest.mark.parametrize(
    "text",
    [
        "# dispatchguard: cold\n\ndef f():\n    pass\n",
        "def f():\n    # dispatchguard: cold\n    pass\n",
        "@d\n# dispatchguard: hot\ndef f():\n    pass\n",
        "for x in y:  # dispatchguard: hot\n    pass\n",
    ],
)
def test_marks_elsewhere_are_told(text: str) -> None:
    (told,) = apply(text).unused
    assert "has no effect here" in told.message


def test_unknown_code_in_noqa() -> None:
    (told,) = apply("x = 1  # noqa: DG499\n").unused
    assert 'unknown code "DG499"' in told.message


def test_unused_reports_can_be_silenced() -> None:
    text = "x = 1  # dispatchguard: ignore[DG401, DG002] -- only on GPU\n"
    result = apply(text)
    assert result.unused == ()
    assert [f.code for f in result.suppressed] == ["DG002"]
    assert apply("# dispatchguard: ignore-file[DG002]\nx  # noqa: DG401\n").unused == ()


def test_all_that_cover_a_finding_are_used() -> None:
    text = "# dispatchguard: ignore-file[DG4]\nx  # dispatchguard: ignore[DG401]  # noqa: DG401\n"
    result = apply(text, finding(2))
    assert result.unused == ()
    assert result.kept == ()


COMMENTS = st.sampled_from(
    [
        "# dispatchguard: ignore[DG401]",
        "# dispatchguard: ignore[DG401, DG101] -- why",
        "# dispatchguard: ignore",
        "# dispatchguard: ignore-file[DG402]",
        "# noqa: DG401, E501",
        "# noqa: DG402",
        "# plain",
        "# type: ignore[attr]  # dispatchguard: ignore[DG6]  # noqa: E501",
        "# coding: utf-8",
        "",
    ]
)
STATEMENTS = st.sampled_from(
    [
        ["x = 1{}"],
        ["x = f({}", "    a,{}", "    {}", ")  {}"],
        ["if a:{}", "    {}", "    b{}", "{}", "else:{}", "    {}", "    pass", "    {}"],
        ["{}", "@d{}", "{}", "def f(a={{1: 2}},{}", "      ):{}", "    {}", "    return a{}"],
        ['s = """ # dispatchguard: ignore', '"""{}'],
        ["x = 1 \\", "    {}"],
        ["x = 1 + \\", "    2{}"],
        ["{}"],
        ["", "{}"],
        ["\x0cx = 'ü\u2028'; y = 2{}"],
        ["class A:{}", "    {}", "    x = 1{}"],
    ]
)


@st.composite
def programs(draw: st.DrawFn) -> str:
    lines = [line for statement in draw(st.lists(STATEMENTS, max_size=6)) for line in statement]
    filled = []
    for line in lines:
        comment = draw(COMMENTS) if "{}" in line else ""
        gap = draw(st.sampled_from(["", "  ", " "])) if line.strip() != "{}" else ""
        filled.append(line.format(gap + comment).rstrip(" "))
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    return newline.join(filled) + draw(st.sampled_from([newline, ""]))


def tree(text: str) -> str | None:
    try:
        return ast.dump(ast.parse(text.encode()))
    except (SyntaxError, ValueError):
        return None


@settings(max_examples=250, deadline=None)
@given(programs(), st.lists(st.integers(1, 30), max_size=3))
def test_taking_out_never_changes_the_code(text: str, lines: list[int]) -> None:
    before = tree(text)
    findings = [finding(line) for line in lines]
    for unused in apply(text, *findings).unused:
        if unused.fix is None:
            continue
        after = edited(text, *unused.fix.edits)
        if before is not None:
            assert tree(after) == before
        assert ("\r\n" in text) or "\r" not in after
        assert not re.search(r"(?<!\r)\n", after) or "\r\n" not in text
        for kept in ("# plain", "# type: ignore[attr]", "E501", "# coding: utf-8"):
            assert after.count(kept) == text.count(kept)


@settings(max_examples=100, deadline=None)
@given(programs())
def test_taking_out_comes_to_an_end(text: str) -> None:
    once = mended(text)
    assert mended(once) == once


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="#: \n\r\f[],-DG401dispatchguard:ignore'\"\\()ü", max_size=80))
def test_any_text_can_be_read(text: str) -> None:
    text = "# dispatchguard: ignore[DG4]\n" + text
    result = apply(text, finding(1), finding(2), finding(9))
    assert len(result.kept) + sum(f.code == "DG401" for f in result.suppressed) == 3
    for unused in result.unused:
        for edit in unused.fix.edits if unused.fix else ():
            edited(text, edit)


def test_a_deep_and_a_long_file() -> None:
    deep = "x = " + "(" * 500 + "1" + ")" * 500 + f"  {WHERE}\n"
    assert covered(deep) == [1]
    assert covered("x = 1\n" * 20_000 + f"y  {WHERE}\n") == [20_001]


def test_nested_code() -> None:
    text = dedent(
        """
        class Net:
            def forward(self, x):
                # dispatchguard: ignore[DG401] -- once per epoch
                if x.any():
                    return x.item()
        """
    )
    assert covered(text) == [3, 4]
