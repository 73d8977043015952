"""Notebooks linted: found in folders, told by cell and line, silenced by comments, never rewritten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..lint.sources.test_notebooks import code, notebook, text
from .conftest import Run, Write

CELLS = (
    text("# A model"),
    code("%pip install torch", "import torch", "import os"),
    code(
        "class Model(torch.nn.Module):",
        "    def forward(self, x: torch.Tensor):",
        "        return torch.zeros(3).to(x.device)",
    ),
    code(
        "!ls",
        "class More(Model):",
        "    def forward(self, x):",
        "        return os.environ.get('A')",
    ),
)


@pytest.fixture
def book(write: Write) -> Path:
    root = write(
        {
            "pyproject.toml": "[tool.dispatchguard]\n",
            "nb/book.ipynb": notebook(*CELLS),
            "nb/.ipynb_checkpoints/book-checkpoint.ipynb": notebook(*CELLS),
        }
    )
    return root / "nb" / "book.ipynb"


def test_places_are_told_by_cell_and_line(book: Path, run: Run) -> None:
    for words in ((), ("nb",), ("nb/book.ipynb",)):
        done = run("check", *words)
        assert done.status == 1
        assert "nb/book.ipynb:cell 3:3:16 DG504 " in done.out
        assert "nb/book.ipynb:cell 4:4:16 DG603 " in done.out
        assert "torch.zeros(3).to(x.device)" in done.out
        assert "1 file" in done.out


def test_machines_are_told_the_line_of_the_file_as_well(book: Path, run: Run) -> None:
    first, second = run("check", "--format", "json").findings
    rows = book.read_text().splitlines()
    assert "torch.zeros(3).to(x.device)" in rows[first["line"] - 1]
    assert "os.environ.get" in rows[second["line"] - 1]
    assert [f["cell"] for f in (first, second)] == [
        {"number": 3, "line": 3},
        {"number": 4, "line": 4},
    ]
    assert f"file=nb/book.ipynb,line={first['line']}," in run("check", "--format", "github").out


def test_a_notebook_is_never_rewritten(book: Path, run: Run) -> None:
    before = book.read_bytes()
    assert all(f["fix"] is None for f in run("check", "--format", "json").findings)
    for options in (["--fix"], ["--fix", "--unsafe-fixes"], ["--add-ignore"]):
        assert run("check", *options).status == 1
        assert book.read_bytes() == before
    assert run("check", "--diff").out == ""


def test_comments_and_baselines_hold_in_notebooks(book: Path, run: Run) -> None:
    silenced = notebook(*CELLS).replace(
        "torch.zeros(3).to(x.device)", "torch.zeros(3).to(x.device)  # dispatchguard: ignore[DG504]"
    )
    book.write_text(silenced)
    assert [f["code"] for f in run("check", "--format", "json").findings] == ["DG603"]
    run("check", "--baseline", "b.json", "--write-baseline")
    assert run("check", "--baseline", "b.json").status == 0
    moved = json.loads(silenced)
    moved["cells"].insert(0, text("more", "lines"))
    book.write_text(json.dumps(moved, indent=1))
    assert run("check", "--baseline", "b.json").status == 0


def test_a_broken_notebook_is_a_finding(book: Path, run: Run) -> None:
    book.write_text('{"cells":\n [}')
    done = run("check", "--format", "json")
    assert [(f["code"], f["line"]) for f in done.findings] == [("DG001", 2)]
    book.write_text(notebook(code("x = 1"), code("y = 1", "def f(:")))
    done = run("check")
    assert done.status == 1
    assert "book.ipynb:cell 2:2:7 DG001" in done.out


def test_a_second_run_says_the_same(book: Path, run: Run) -> None:
    cold = run("check", "--format", "json").out
    assert run("check", "--format", "json").out == cold
    assert run("check", "--format", "json", "--no-cache").out == cold
    assert "Model.forward" in run("hot").out


def test_the_loop_of_a_notebook_that_trains_is_hot(write: Write, run: Run) -> None:
    loop = code(
        "for batch in loader:",
        "    loss = model(batch)",
        "    loss.backward()",
        "    opt.step()",
        "    total += loss.item()",
    )
    cells = (code("import torch", "from torch import nn"), code("model = nn.Linear(3, 3)"), loop)
    write({"pyproject.toml": "[tool.dispatchguard]\n", "train.ipynb": notebook(*cells)})
    done = run("check")
    assert done.status == 1
    assert "train.ipynb:cell 3:5:14 DG411 `loss.item()`" in done.out
    assert "a training loop: train.ipynb.<module> (in a loop, once per step)" in done.out
