"""Where new imports go: what import sorters and Python make of it."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys

import pytest

from pytest_dispatchguard.lint.syntax.import_position import import_place
from pytest_dispatchguard.lint.syntax.placed_edits import module_imports

BODY = "\n\ndef f():\n    return itertools, torch\n"


def added(text: str, statement: str) -> str:
    line, new = import_place(text, statement)
    lines = text.splitlines(keepends=True)
    return "".join([*lines[: line - 1], new, *lines[line - 1 :]])


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
def test_an_import_put_there_is_one_of_the_module(text: str) -> None:
    after = added(text, "import itertools")
    assert module_imports(after)["itertools"] == "itertools"
    assert ast.get_docstring(ast.parse(after)) == ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import torch\n", "import itertools\n\nimport torch\n"),
        ("import os\n\nimport torch\n", "import itertools\nimport os\n\nimport torch\n"),
        (
            "import ast\nfrom os import path\n",
            "import ast\nimport itertools\nfrom os import path\n",
        ),
        ("import ast\n\nfrom . import a\n", "import ast\nimport itertools\n\nfrom . import a\n"),
        (
            "from __future__ import annotations\n\nimport torch\n",
            "from __future__ import annotations\n\nimport itertools\n\nimport torch\n",
        ),
        (
            "# Copyright\n\nfrom os import (\n    path,\n)\n\nimport torch\n",
            "# Copyright\n\nimport itertools\nfrom os import (\n    path,\n)\n\nimport torch\n",
        ),
        (
            "import ast\n# why\nimport sys\n",
            "import ast\nimport itertools\n# why\nimport sys\n",
        ),
        ("import torch\nimport os\n", "import torch\nimport os\nimport itertools\n"),
        ("import ast; import torch\n", "import ast; import torch\nimport itertools\n"),
        ('"""Doc."""\n\nimport torch\n', '"""Doc."""\n\nimport itertools\n\nimport torch\n'),
    ],
)
def test_sections_and_their_order_are_kept(before: str, after: str) -> None:
    assert added(before, "import itertools") == after


@pytest.mark.parametrize("statement", ["import itertools", "import torch"])
@pytest.mark.parametrize(
    "head",
    [
        "import ast\nimport os\n",
        "import ast\nimport os\n\nimport numpy as np\nimport yaml\n",
        "from collections import abc\n\nimport numpy\nfrom numpy import (\n    array,\n)\n",
        '"""Doc."""\n\nfrom __future__ import annotations\n\nimport sys\n\nfrom . import a\n',
        "#!/usr/bin/env python\n# Copyright\n\nfrom __future__ import annotations\n",
        "from __future__ import annotations\n\nfrom typing import Any\n",
    ],
)
def test_import_sorters_agree(head: str, statement: str) -> None:
    if importlib.util.find_spec("ruff") is None:
        pytest.skip("ruff is not installed")

    def complaints(text: str) -> str:
        words = ["-m", "ruff", "check", "--isolated", "--select", "I001", "--no-cache", "-"]
        return subprocess.run(
            [sys.executable, *words], input=text, capture_output=True, text=True, check=False
        ).stdout

    assert "All checks passed" in complaints(head + BODY)
    assert "All checks passed" in complaints(added(head + BODY, statement))
