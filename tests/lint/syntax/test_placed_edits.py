"""Definitions that fixes put at module level: where they go, and where no fix is offered for want of a
place."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.lint.syntax.placed_edits import (
    File,
    always_sets,
    definition_place,
    module_imports,
    placed,
)
from pytest_dispatchguard.model.findings import (
    DEFINITIONS,
    IMPORTS,
    Edit,
    Finding,
    Fix,
    Span,
)

HEAD = '"""Doc."""\n\nimport contextlib\n\nSIZE = 3\n\n\n'
BODY = "# about f\n@contextlib.contextmanager\ndef f():\n    yield _NULL\n"


def added(text: str, definition: str) -> str | None:
    found = definition_place(File(text), definition)
    if found is None:
        return None
    line, new = found
    lines = text.splitlines(keepends=True)
    return "".join([*lines[: line - 1], new, *lines[line - 1 :]])


def test_a_definition_goes_before_the_first_function_and_its_comment() -> None:
    text = HEAD + BODY.replace("_NULL", "None")
    after = added(text, "_NULL = contextlib.nullcontext()")
    assert after == HEAD + "_NULL = contextlib.nullcontext()\n\n\n" + BODY.replace("_NULL", "None")


def test_a_definition_that_is_there_is_not_added_again() -> None:
    text = HEAD + "_NULL = contextlib.nullcontext()\n\n\n" + BODY
    assert added(text, "_NULL = contextlib.nullcontext()") == text


@pytest.mark.parametrize(
    ("text", "definition"),
    [
        (HEAD + BODY, "_NULL = contextlib.nullcontext()"),  # the name means something else
        (HEAD + "def f():\n    pass\n", "_A = torch.tensor(1)"),  # torch is not there
        (HEAD + "def f():\n    pass\n\n\nimport torch\n", "_A = torch.tensor(1)"),  # too late
        (HEAD + "def f(_A):\n    pass\n", "_A = SIZE"),  # hidden by a parameter
        (HEAD + "def f(é, \uff21):\n    pass\n", "A = SIZE"),  # the same, in letters of full width
        (HEAD + "def f(A\uff3f):\n    pass\n", "A_ = SIZE"),  # its underscore too
        (HEAD + "x = 1\n", "_A = SIZE"),  # no function to stand before
        (HEAD + "def f():\n    pass\n", "def _g(x: Later):\n    return x"),
        (HEAD + "def f():\n    pass\n", "class _A(Base):\n    x: int = 1"),
    ],
)
def test_no_place_where_it_would_not_work(text: str, definition: str) -> None:
    assert added(text, definition) is None


@pytest.mark.parametrize(
    "definition",
    [
        "_A = SIZE + len('x')",
        "def _g(x):\n    return later(x)",
        "class _A:\n    x = 1\n    y = x",
    ],
)
def test_what_it_needs_is_there(definition: str) -> None:
    text = HEAD + "def f():\n    pass\n"
    after = added(text, definition)
    assert after is not None
    assert ast.unparse(ast.parse(after)).startswith('"""Doc."""')
    namespace: dict[str, object] = {}
    exec(after, namespace)
    assert "f" in namespace


def test_annotations_are_not_needed_where_they_are_not_worked_out() -> None:
    text = "from __future__ import annotations\n\n\ndef f():\n    pass\n"
    assert added(text, "def _g(x: Later):\n    return x") is not None


def finding(*edits: Edit) -> Finding:
    return Finding("DG203", "x", "a.py", Span(9, 1, 9, 2), "f", "…", fix=Fix("safe", "…", edits))


def test_a_definition_may_need_what_the_fix_imports() -> None:
    text = "import torch\n\n\ndef f():\n    return torch\n"
    edits = (
        Edit("a.py", DEFINITIONS, "_K = functools.lru_cache(torch.cuda.is_available)\n"),
        Edit("a.py", IMPORTS, "import functools\n"),
    )
    (found,) = placed([finding(*edits)], text)
    assert found.fix is not None
    assert [e.span.line for e in found.fix.edits] == [1, 4]


def test_a_fix_goes_whose_definition_has_no_place() -> None:
    text = "def f():\n    return _K\n"
    (found,) = placed([finding(Edit("a.py", DEFINITIONS, "_K = 1\n"))], text)
    assert found.fix is None


CLASS = """
class A:
    class B:
        def __init__(self, deep):
            self.x = self.y = 1
            self.z: int = 2
            self.late: int
            if deep:
                self.maybe = 3
"""


@pytest.mark.parametrize(
    ("attribute", "sure"),
    [
        ("A.B.x", True),
        ("A.B.y", True),
        ("A.B.z", True),
        ("A.B.late", False),
        ("A.B.maybe", False),
        ("A.x", False),
        ("C.x", False),
    ],
)
def test_what_a_class_always_sets(attribute: str, sure: bool) -> None:
    assert always_sets(ast.parse(CLASS), attribute) is sure


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("import itertools\n", {"itertools": "itertools"}),
        ("import numpy as np, os.path\n", {"np": "numpy", "os": "os"}),
        ("from torch import nn as layers\n", {"layers": "torch.nn"}),
        ("from . import tree\n", {"tree": "..tree"}),
        ("try:\n    import triton\nexcept ImportError:\n    triton = None\n", {"triton": "triton"}),
        ("if True:\n    import json\n", {"json": "json"}),
        ("def f():\n    import itertools\n", {}),
        ("class A:\n    import itertools\n", {}),
        ("", {}),
    ],
)
def test_only_imports_outside_functions_and_classes_count(text: str, bound: dict[str, str]) -> None:
    assert module_imports(text) == bound


@given(
    st.lists(
        st.sampled_from(["import a", "import b.c", "from d import e", "x = 1", "def f(): import g"])
    )
)
def test_every_import_of_a_module_is_found(statements: list[str]) -> None:
    found = module_imports("\n".join(statements))
    expected = {"import a": "a", "import b.c": "b", "from d import e": "e"}
    assert set(found) == {expected[s] for s in statements if s in expected}


@pytest.mark.parametrize(
    "text",
    [
        "def f(x\ufeff):\n    pass\n",
        '"\\N{DASH}"\n',
        "def f():\n    return 1\\\r",
        "x = (" * 300,
        "\0",
    ],
)
def test_where_python_reads_nothing_only_fixes_in_place_are_left(text: str) -> None:
    here = Edit("m.py", Span(1, 1, 1, 2), "y")
    there = Edit("m.py", IMPORTS, "import itertools\n")
    found = placed([finding(here), finding(here, there), finding()], text)
    assert [one.fix is not None for one in found] == [True, False, True]
