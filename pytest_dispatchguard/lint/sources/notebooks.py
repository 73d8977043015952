"""A Jupyter notebook as the text of one module: its code cells in order, with every line of code on the line
of the file that holds it. So a position in the text is also a position in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from json import decoder, scanner
from typing import Any

from pytest_dispatchguard.edits import split_lines
from pytest_dispatchguard.model.findings import Cell

SUFFIX = ".ipynb"


class NotebookError(ValueError):
    """What is wrong with a notebook, and on which line."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


def as_module(text: str) -> str:
    """The code of a notebook. Raises NotebookError if the text is not a notebook, or one for another
    language."""
    notebook = _read(text)
    language = _at(notebook, "metadata", "kernelspec", "language") or _at(
        notebook, "metadata", "language_info", "name"
    )
    if isinstance(language, str) and language.lower() not in ("python", "ipython"):
        raise NotebookError(f"a notebook in {language}, not in Python")
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        raise NotebookError("not a notebook of format 4: save it with a current Jupyter")
    lines: list[str] = []
    at = before = 0  # how far lines of the file are counted, and how many there are
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source")
        given = source if isinstance(source, list) else [source]
        pieces = [piece for piece in given if isinstance(piece, _Placed)]
        if not pieces or len(pieces) < len(given):
            continue
        code = split_lines("".join(pieces), keepends=False)
        # The mark takes the line above the code; in a file of few long lines what is left is put below.
        before += text.count("\n", at, pieces[0].offset)
        at = pieces[0].offset
        lines += [""] * (before - 1 - len(lines))
        lines.append(f"# In[{number}]:")
        lines += _python(code)
    return "".join(f"{line}\n" for line in lines)


def cell_of(module: str, line: int) -> Cell | None:
    """The cell of a line in a notebook's text; None before the first cell."""
    lines = split_lines(module, keepends=False)
    for above in range(min(line, len(lines)) - 1, -1, -1):
        mark = _MARK.fullmatch(lines[above])
        if mark is not None:
            return Cell(int(mark[1]), max(line - above - 1, 1))
    return None


_MARK = re.compile(r"# In\[(\d+)\]:")


class _Placed(str):
    """A string in a JSON text, with its position."""

    offset: int


def _read(text: str) -> dict[str, Any]:
    """The object in a JSON text, its strings with their positions."""
    reader = json.JSONDecoder()

    def placed(string: str, start: int, strict: bool) -> tuple[_Placed, int]:
        value, end = decoder.scanstring(string, start, strict)  # type: ignore[attr-defined]  # as below
        found = _Placed(value)
        found.offset = start
        return found, end

    reader.parse_string = placed  # type: ignore[attr-defined]  # the scanner asks for it, the stubs do not know
    reader.scan_once = scanner.py_make_scanner(reader)  # type: ignore[attr-defined]  # as above
    try:
        notebook = reader.decode(text)
    except json.JSONDecodeError as error:
        raise NotebookError(f"not a notebook: not valid JSON: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError):
        raise NotebookError(
            "not a notebook: JSON nested too deeply, or with too long a number"
        ) from None
    if not isinstance(notebook, dict):
        raise NotebookError("not a notebook: not a JSON object")
    return notebook


def _at(data: object, *keys: str) -> object:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


_CELL_MAGIC = re.compile(r"\s*%%(\w+)")
_OF_PYTHON = frozenset(
    {"capture", "debug", "ipytest", "prun", "pypy", "python", "python3", "time", "timeit"}
)
"""Cell magics whose other lines are still Python."""
_COMMAND = re.compile(
    r"(?P<indent>\s*)(?:"
    r"(?P<target>[\w.,\s\[\]]+=\s*)(?:%[A-Za-z]|!).*"  # files = !ls
    r"|%{1,2}[A-Za-z].*|!.*"  # %matplotlib inline, !pip install
    r"|\?{1,2}[\w.*]+|[\w.]+\?{1,2}"  # ?help, help??
    r")\s*"
)


def _python(lines: Sequence[str]) -> Iterator[str]:
    """The lines of a cell, without anything that only IPython understands."""
    first = next((line for line in lines if line.strip()), "")
    magic = _CELL_MAGIC.match(first)
    if magic is not None and magic[1] not in _OF_PYTHON:
        yield from [""] * len(lines)
        return
    goes_on = False
    for line in lines:
        if goes_on:
            goes_on = line.endswith("\\")
            yield ""
            continue
        command = _COMMAND.fullmatch(line)
        if command is None:
            yield line
            continue
        goes_on = line.endswith("\\")
        target = command["target"]
        yield command["indent"] + ("pass" if target is None else f"{target.rstrip()} None")
