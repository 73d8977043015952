"""Notebooks as modules: every line of code where the file has it, nothing that only IPython reads."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.lint.sources.files import Source, Unreadable, decode_source
from pytest_dispatchguard.lint.sources.notebooks import NotebookError, as_module, cell_of
from pytest_dispatchguard.model.findings import Cell


def code(*lines: str) -> dict[str, Any]:
    source = [f"{line}\n" for line in lines[:-1]] + list(lines[-1:])
    return {"cell_type": "code", "metadata": {}, "outputs": [], "source": source}


def text(*lines: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": [f"{line}\n" for line in lines]}


def notebook(*cells: dict[str, Any], indent: int | None = 1, **more: Any) -> str:
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, **more}, indent=indent)


def test_code_stands_where_the_file_has_it() -> None:
    file = notebook(
        text("# Title"), code("import torch", 'x = "ü"'), code("def f():", "    return x")
    )
    module = as_module(file)
    ast.parse(module)
    assert [line for line in module.splitlines() if line] == [
        "# In[2]:",
        "import torch",
        'x = "ü"',
        "# In[3]:",
        "def f():",
        "    return x",
    ]
    for number, line in enumerate(module.splitlines()):
        if line and not line.startswith("#"):
            assert json.dumps(line)[1:-1] in file.splitlines()[number]


def test_cells_are_counted_as_jupyter_does() -> None:
    module = as_module(notebook(text("a"), code("x = 1", "", "y = 2"), text("b"), code("z = 3")))
    at = {line: n for n, line in enumerate(module.splitlines(), 1) if line}
    assert cell_of(module, at["y = 2"]) == Cell(2, 3)
    assert cell_of(module, at["z = 3"]) == Cell(4, 1)
    assert cell_of(module, 1) is None


@pytest.mark.parametrize("indent", [None, 0, 1, 4])
def test_however_the_file_is_written(indent: int | None) -> None:
    whole = {**code("pass"), "source": "if True:\n    a = 1 + \\\n        2\n\nb = '''\n\n'''"}
    module = as_module(notebook(code("x = (", "  1)"), whole, code("y = 2"), indent=indent))
    assert ast.unparse(ast.parse(module)) == ("x = 1\nif True:\n    a = 1 + 2\nb = '\\n\\n'\ny = 2")


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        (["%matplotlib inline", "x = 1"], "pass\nx = 1"),
        (["!pip install torch", "x = 1"], "pass\nx = 1"),
        (["!pip install \\", "  torch", "x = 1"], "pass\nx = 1"),
        (["files = !ls", "a, b = %sx ls"], "files = None\n(a, b) = None"),
        (["if x:", "    !ls", "else:", "    %time f()"], "if x:\n    pass\nelse:\n    pass"),
        (["%%time", "x = 1"], "pass\nx = 1"),
        (["", "%%timeit -n 3", "x = 1"], "pass\nx = 1"),
        (["%%bash", "for i in *; do echo; done"], ""),
        (["%%html", "<b>"], ""),
        (["x?", "?x", "x.y??", "y = 1"], "pass\npass\npass\ny = 1"),
        (["x = a % b", "y = (a", "  % b)", "z = '!x'"], "x = a % b\ny = a % b\nz = '!x'"),
        (["x != y", "await f()"], "x != y\nawait f()"),
    ],
)
def test_what_only_ipython_reads_is_left_out(lines: list[str], left: str) -> None:
    module = as_module(notebook(code(*lines)))
    assert ast.dump(ast.parse(module)) == ast.dump(ast.parse(left))


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("", "not valid JSON"),
        ('{"cells":\n [', "not valid JSON"),
        ("[]", "not a JSON object"),
        ("{}", "format 4"),
        ('{"worksheets": []}', "format 4"),
        ("[" * 100_000, "nested too deeply"),
        (notebook(metadata={"kernelspec": {"language": "R"}}), "a notebook in R"),
        (notebook(metadata={"language_info": {"name": "julia"}}), "a notebook in julia"),
    ],
)
def test_what_is_no_notebook_is_told(file: str, told: str) -> None:
    with pytest.raises(NotebookError, match=told):
        as_module(file)
    read = decode_source(file.encode(), "a.ipynb")
    assert isinstance(read, Unreadable)
    assert told in read.message


@pytest.mark.parametrize(
    "bad", [None, 3, "x", {"cell_type": "code"}, {"cell_type": 3, "source": []}]
)
def test_cells_that_are_none_are_passed_over(bad: Any) -> None:
    assert "x = 1" in as_module(notebook(bad, {"cell_type": "code", "source": [3]}, code("x = 1")))


def test_it_is_utf_8() -> None:
    assert isinstance(
        decode_source(b"\xef\xbb\xbf" + notebook(code("x")).encode(), "a.ipynb"), Source
    )
    read = decode_source(b'{"cells": "\xff"}', "a.ipynb")
    assert isinstance(read, Unreadable)
    assert "not UTF-8" in read.message


@given(st.lists(st.lists(st.sampled_from(["x = 1", "%m", "!ls", "", "# In[9]:"]), min_size=1)))
def test_lines_keep_their_order_and_place(cells: list[list[str]]) -> None:
    file = notebook(*(code(*lines) for lines in cells))
    module = as_module(file).splitlines()
    rows = file.splitlines()
    for number, line in enumerate(module):
        if line == "x = 1":
            assert '"x = 1' in rows[number]
    assert sum(line == "x = 1" for line in module) == sum(c.count("x = 1") for c in cells)
