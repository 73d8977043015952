"""Python that the grammar of tree-sitter does not know."""

from __future__ import annotations

import ast
import sys
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_sitter import Parser

from pytest_dispatchguard.lint.results.suppressions import read
from pytest_dispatchguard.lint.scout.scan import scan
from pytest_dispatchguard.lint.syntax.grammar import LANGUAGE, tree_of
from pytest_dispatchguard.lint.syntax.unsupported import bridged, read_whole

STARS = [
    "return x, *([None] * 5)",
    "return *[None] * 3, *x, *[None] * y",
    "return x, *(y)",
    "return (x), *(y)",
    "return *(x), y",
    "return x, *(i for i in y), z",
    "return x, *-y",
    "yield x, *(y or z)",
    "x, *rest = y, *[]",
    "x = *[],",
    "x = *(y.shape[:-1]), -1",
    "x += y, *(z)",
    "for i in x, *(y): pass",
    pytest.param(
        "x[y, *(z)] = 1",
        marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="no Python before 3.11"),
    ),
    "x = 'größer', *[1], 'länger'",
]
COMMENTS = [
    "x = (a if b\n#  z\n         else c)",
    "x = (a if b\n\n# größer\n\n         else c if d\n # two\n         else e)",
    "x = f(a not\n# z\n     in b)",
]


def mended(text: str) -> bytes:
    source = text.encode()
    assert Parser(LANGUAGE).parse(source).root_node.has_error, "the grammar knows it by now"
    bridge = bridged(source)
    assert bridge is not None
    assert [len(line) for line in bridge.split(b"\n")] == [
        len(line) for line in source.split(b"\n")
    ]
    return bridge


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("statement", STARS + COMMENTS)
def test_what_the_grammar_does_not_know_is_read(statement: str, mark: str) -> None:
    text = (
        "def f(x, y, z):\n" + textwrap.indent(statement, "    ", lambda line: line[0] != "#") + "\n"
    )
    assert not Parser(LANGUAGE).parse(mended(mark + text)).root_node.has_error
    assert not tree_of((mark + text).encode()).root_node.has_error
    before = mark + "class A:\n    def g(self, x): return h(x)\n" + text
    facts = scan(before + "def last(x): return x\n", "m", False)
    assert facts.error is None
    assert [function.name for function in facts.functions] == ["A.g", "f", "last"]


def test_a_first_line_after_a_mark() -> None:
    assert mended("\ufeffx = 1, *(y), *z\n") == "\ufeffx = 1, +(y), +z\n".encode()


def test_lines_that_end_with_a_carriage_return_alone() -> None:
    source = b"x = 1\ry = x, *(x)\r\nz = 2\r"
    assert bridged(source) == b"x = 1\ny = x, +(x)\r\nz = 2\n"
    assert not tree_of(source).root_node.has_error


def test_stars_elsewhere_stay() -> None:
    text = "x, *y = f(*a, **b), [*c], *(d), e * 2, lambda *g: 0\n"
    assert mended(text).decode() == text.replace("*(d)", "+(d)")


def test_comments_for_linters_stay() -> None:
    text = """def f(a, b, c):
    x = (a if b
# one
# noqa: DG401
    # Dispatchguard: ignore[DG401]
         else c)  # end
"""
    assert mended(text).decode() == text.replace("# one", "     ")


def test_what_python_cannot_read_either_is_left() -> None:
    for text in ("def f(:\n", "x = (\n", "return *\n", "x\0y(\n", "\ud800 = (\n"):
        assert bridged(text.encode("utf-8", "surrogatepass")) is None


def test_a_suppression_beside_it_counts() -> None:
    text = "def f(x):\n    return x.item(), *(None, None)  # dispatchguard: ignore[DG411] -- for tests\n"
    assert [unit.end_line for unit in read(text).units if unit.start[0] == 2] == [2]


@pytest.mark.parametrize("name", ["forward", "extra_repr"])
def test_what_remains_unknown_is_passed_over(name: str) -> None:
    text = f"""
class A:
    def {name}(self, x):
        y = g(x, lambda z: 1 if z
 else 2)
        return h(y)

    def other(self, x):
        return x

def last(x):
    return x
    # the end
"""
    ast.parse(text)
    assert tree_of(text.encode()).root_node.has_error, "the grammar knows it by now"
    facts = scan(text, "m", False)
    assert facts.error is None
    assert {function.name for function in facts.functions} <= {"A.other", "last"}


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_functions_as_python_reads_them(mark: str) -> None:
    text = (
        mark
        + "def f(): return 'ö'\nclass A:\n  if x:\n    def g(self):\n      async def h(): pass\n"
    )
    ends = read_whole(text.encode())
    assert {name: text.encode()[:end].decode() for name, end in ends.items()} == {
        ("f", 1): text[: text.index("\n")],
        ("A.g", 4): text[:-1],
        ("A.g.<locals>.h", 5): text[:-1],
    }
    assert read_whole(b"def f(:") == {}


VALUES = st.recursive(
    st.sampled_from(["x", "x.y", "f(x)", "x[0]", "[x]", "(x)", "-x", "'s'", "x * 2", "x | y"]),
    lambda inner: st.lists(
        st.builds(lambda star, value: star + value, st.sampled_from(["", "*", "* "]), inner),
        min_size=1,
        max_size=3,
    ).map(lambda values: f"({', '.join(values)},)"),
    max_leaves=5,
)


@settings(max_examples=80, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=4), st.sampled_from(["return ", "y = ", "yield "]))
def test_tuples_of_all_kinds_are_read(values: list[str], start: str) -> None:
    statement = start + ", ".join(f"*{value}" for value in values) + ","
    text = f"def f(x):\n    {statement}\n"
    ast.parse(text)
    assert not tree_of(text.encode()).root_node.has_error
