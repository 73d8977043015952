"""What `check` makes of a request, beyond what the tests of the command see."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.lint.check import check
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.lint.sources.git_diff import carried
from pytest_dispatchguard.lint.store.cache import Cache, cache_path
from pytest_dispatchguard.lint.store.staleness import fingerprint
from pytest_dispatchguard.model.errors import UserError

TEXT = """\
import torch

class M(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        a = torch.zeros(3).to(x.device)
        return a, x.item()
"""


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "a.py").write_text(TEXT)
    return Request(paths=(Path(),), cwd=tmp_path)


def test_texts_before_and_after_a_fix(request_: Request) -> None:
    shown = check(replace(request_, fix="safe", write=False))
    assert shown.before == {"a.py": TEXT}
    assert shown.after["a.py"] == TEXT.replace("zeros(3).to(x.device)", "zeros(3, device=x.device)")
    assert (request_.cwd / "a.py").read_text() == TEXT
    assert shown.report.summary.fixed == 0
    done = check(replace(request_, fix="safe"))
    assert done.report.summary.fixed == 1
    assert done.reader("a.py") == (request_.cwd / "a.py").read_text() == shown.after["a.py"]


def test_the_report_names_the_rules_that_ran(request_: Request) -> None:
    report = check(replace(request_, settings={"select": ("DG411",)})).report
    assert [r.code for r in report.rules] == ["DG001", "DG411"]


def test_an_error_that_is_not_the_cache_s_is_raised(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_dispatchguard.lint.pipeline import survey

    good = check(request_)

    def broken(*_: object) -> object:
        raise IndexError("no such row")

    monkeypatch.setattr(survey, "_scouted", broken)
    with pytest.raises(IndexError):
        check(replace(request_, cache=False))
    with pytest.raises(IndexError):
        check(request_)
    monkeypatch.undo()
    assert check(request_).report.findings == good.report.findings


def test_a_file_that_the_scout_fails_at_is_told_and_hides_nothing(
    request_: Request, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pytest_dispatchguard.lint.scout import scan as scout

    (request_.cwd / "b.py").write_text(TEXT + "# odd\n")
    scan = scout.scan

    def broken(text: str, *rest: Any) -> Any:
        if "# odd" in text:
            raise IndexError("no such\nnode")
        return scan(text, *rest)

    monkeypatch.setattr(scout, "scan", broken)
    monkeypatch.setenv("DISPATCHGUARD_TRACEBACK", "1")
    found = check(request_).report.findings
    assert {f.path for f in found if f.code != "DG001"} == {"a.py"}
    (odd,) = [f for f in found if f.code == "DG001"]
    assert odd.path == "b.py"
    assert odd.message.startswith("the file could not be read: IndexError: no such node (set")
    assert "in broken" in capsys.readouterr().err
    monkeypatch.undo()
    again = check(request_).report.findings
    assert {f.path for f in again} == {"a.py", "b.py"}, "nothing of it was kept"
    assert all(f.code != "DG001" for f in again)


def test_a_baseline_must_be_named(request_: Request) -> None:
    with pytest.raises(UserError, match="no baseline given"):
        check(replace(request_, prune_baseline=True))


@pytest.mark.parametrize(
    ("ranges", "before", "after", "expected"),
    [
        (((2, 2),), "a\nb\nc\n", "a\nb\nc\n", {2}),
        (((2, 2),), "a\nb\nc\n", "new\na\nb\nc\n", {1, 3}),
        (((2, 3),), "a\nb\nc\n", "b\nc\n", {1, 2}),
        (((2, 2),), "a\nb\nc\n", "a\nB\nc\n", {2}),
        ((), "a\nb\nc\n", "a\nc\n", set()),
        ((), "a\nb\nc\n", "a\nb\nnew\nc\n", {3}),
        (((1, 10**9),), "a\nb\n", "x\na\nb\n", {1, 2, 3, 4}),
    ],
)
def test_changed_lines_are_carried_over_further_changes(
    ranges: tuple[tuple[int, int], ...], before: str, after: str, expected: set[int]
) -> None:
    got = carried(ranges, before, after)
    assert {n for low, high in got for n in range(low, high + 1)} == expected


def test_a_broken_row_of_the_cache_is_dropped_with_a_note(request_: Request) -> None:
    import sqlite3

    good = check(request_)
    path = cache_path(request_.cwd)
    with closing(sqlite3.connect(path)) as connection:
        judged = connection.execute("SELECT key FROM rows WHERE namespace = 'judged'").fetchall()
    with closing(Cache.open(path, fingerprint())) as own:
        own.put_many("judged", {key: "[[]]" for (key,) in judged})
    mended = check(request_)
    assert mended.report.findings == good.report.findings
    assert [n for n in mended.report.notes if "the cache was broken and has been deleted" in n]
    assert check(request_).report == good.report


@pytest.mark.parametrize("value", ["'[]'", "'{}'", "''", "x'00ff'", "NULLIF(seal, value)"])
@pytest.mark.parametrize("namespaces", ["judged", "chunks", "all but facts", "all"])
def test_rows_that_no_run_wrote_change_nothing(
    request_: Request, namespaces: str, value: str
) -> None:
    import sqlite3

    good = check(request_)
    chosen = {"all": "1", "all but facts": "namespace NOT IN ('facts', 'scouted')"}
    which = chosen.get(namespaces, f"namespace = '{namespaces}'")
    with closing(sqlite3.connect(cache_path(request_.cwd))) as connection:
        assert connection.execute(f"UPDATE rows SET value = {value} WHERE {which}").rowcount
        connection.commit()
    assert check(request_).report == good.report
    assert check(request_).report == good.report


def test_a_brief_that_is_lost_is_made_again(request_: Request) -> None:
    import sqlite3

    def lose(*namespaces: str) -> None:
        with closing(sqlite3.connect(cache_path(request_.cwd))) as connection:
            for namespace in namespaces:
                done = connection.execute("DELETE FROM rows WHERE namespace = ?", (namespace,))
                assert done.rowcount
            connection.commit()

    good = check(request_)
    lose("brief", "judged", "chunks")
    assert check(request_).report == good.report
    lose("brief", "judged")  # it was kept again
    assert check(request_).report == good.report


def test_the_cache_forgets_files_that_are_gone(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sqlite3

    from pytest_dispatchguard.lint.store import cache

    monkeypatch.setattr(cache, "_RACY_NS", -(10**12))  # what was written just now is kept too

    def stamped() -> list[str]:
        connection = sqlite3.connect(request_.cwd / ".dispatchguard" / "cache.sqlite")
        rows = connection.execute("SELECT path FROM stamps ORDER BY path").fetchall()
        connection.close()
        return [path for (path,) in rows]

    (request_.cwd / "b.py").write_text(TEXT)
    check(request_)
    assert stamped() == ["a.py", "b.py"]
    check(replace(request_, paths=(Path("a.py"),), stdin=b"x = 1\n"))
    assert stamped() == ["a.py", "b.py"]
    (request_.cwd / "b.py").unlink()
    (request_.cwd / "a.py").write_text("y = 1\n")
    check(request_)
    assert stamped() == ["a.py"]
