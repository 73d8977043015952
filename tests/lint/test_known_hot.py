"""What the rules say of lines that a test ran."""

from __future__ import annotations

from pathlib import Path

from pytest_dispatchguard.lint.known_hot import findings_on

SOURCE = """import inspect


def checked(x):
    inspect.signature(len)
    return x


def other(x):
    inspect.signature(max)
    return x
"""


def test_only_the_lines_that_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "subjects.py"
    path.write_text(SOURCE)
    found = findings_on([(str(path), 5), (str(path), 6)])
    assert [(finding.path, finding.span.line) for finding in found] == [(str(path), 5)]
    assert found[0].code.startswith("DG6")


def test_what_cannot_be_read_has_nothing_to_say(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    (tmp_path / "text.txt").write_text(SOURCE)
    asked = [(str(tmp_path / name), 1) for name in ("gone.py", "text.txt")]
    assert findings_on([*asked, ("<string>", 1)]) == []
    assert all(f.code == "DG001" for f in findings_on([(str(broken), 1)]))
