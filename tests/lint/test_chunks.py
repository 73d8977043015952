from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.lint.chunks import import_line, module_imports


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


@pytest.mark.parametrize(
    "text",
    [
        '"""Doc."""\n\nx = 1\n',
        '"""Doc."""\nimport torch\n\nx = 1\n',
        "# a comment\n# another\nx = 1\n",
        "from __future__ import annotations\nx = 1\n",
        "x = 1\n",
        "",
    ],
)
def test_an_import_put_at_the_import_line_is_one_of_the_module(text: str) -> None:
    line, blank = import_line(text)
    lines = text.splitlines(keepends=True)
    new = "import itertools\n" + ("\n" if blank else "")
    after = "".join([*lines[: line - 1], new, *lines[line - 1 :]])
    assert module_imports(after)["itertools"] == "itertools"
    assert ast.get_docstring(ast.parse(after)) == ast.get_docstring(ast.parse(text))


@given(
    st.lists(
        st.sampled_from(["import a", "import b.c", "from d import e", "x = 1", "def f(): import g"])
    )
)
def test_every_import_of_a_module_is_found(statements: list[str]) -> None:
    found = module_imports("\n".join(statements))
    expected = {"import a": "a", "import b.c": "b", "from d import e": "e"}
    assert set(found) == {expected[s] for s in statements if s in expected}
