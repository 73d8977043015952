"""The baseline: what it accepts, what it outlives, and how a broken one is told."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.lint.results.baseline import (
    Baseline,
    from_findings,
    load,
    match,
    pruned,
    standing,
    write,
)
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.findings import Finding, Span


def finding(
    line: int = 1,
    *,
    code: str = "DG401",
    path: str = "a.py",
    function: str = "Net.forward",
    source: str = "if mask.any():",
) -> Finding:
    return Finding(
        code=code,
        rule="r",
        path=path,
        span=Span(line, 1, line, 5),
        function=function,
        message="m",
        source=source,
    )


FINDINGS = [
    finding(3),
    finding(7),
    finding(9, code="DG101", source="tree.flatten(x)"),
    finding(1, path="b.py", function="", source='print("ünï")'),
]


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "deep/baseline.json"
    write(path, from_findings(FINDINGS))
    assert load(path) == from_findings(FINDINGS)
    assert not list(path.parent.glob("*.tmp"))


def test_file_is_made_for_review(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    write(path, from_findings(FINDINGS))
    lines = path.read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line.strip().rstrip(",")) for line in lines if '"path"' in line]
    assert [(e["path"], e["code"], e["count"], e["text"]) for e in entries] == [
        ("a.py", "DG101", 1, "tree.flatten(x)"),
        ("a.py", "DG401", 2, "if mask.any():"),
        ("b.py", "DG401", 1, 'print("ünï")'),
    ]
    again = tmp_path / "again.json"
    write(again, from_findings(FINDINGS[::-1]))
    assert again.read_bytes() == path.read_bytes()


def test_empty_baseline(tmp_path: Path) -> None:
    write(tmp_path / "b.json", Baseline())
    assert load(tmp_path / "b.json") == Baseline()


def test_undecodable_names_survive(tmp_path: Path) -> None:
    accepted = from_findings([finding(path="\udce9.py")])
    write(tmp_path / "b.json", accepted)
    assert load(tmp_path / "b.json") == accepted


def test_moved_and_reindented_lines_still_match() -> None:
    moved = [
        replace(f, span=Span(f.span.line + 40, 9, f.span.line + 40, 12), source="    " + f.source)
        for f in FINDINGS
    ]
    result = match(moved, from_findings(FINDINGS), checked={"a.py", "b.py"})
    assert result.new == ()
    assert len(result.matched) == 4
    assert result.stale == ()


def test_duplicates_are_counted_and_the_last_is_new() -> None:
    result = match([finding(9), *FINDINGS], from_findings(FINDINGS), checked={"a.py"})
    assert len(result.matched) == 4
    assert result.new == (finding(9),)


def test_renamed_function_still_matches() -> None:
    result = match([finding(3, function="Net.call")], from_findings([finding(3)]), checked={"a.py"})
    assert (len(result.matched), result.new, result.stale) == (1, (), ())


def test_same_function_is_preferred_over_a_renamed_one() -> None:
    accepted = from_findings([finding(9)])
    result = match([finding(1, function="other"), finding(9)], accepted, checked=())
    assert result.new == (finding(1, function="other"),)


@pytest.mark.parametrize(
    "other",
    [finding(code="DG402"), finding(path="b.py"), finding(source="if mask.all():")],
)
def test_other_findings_are_new(other: Finding) -> None:
    result = match([other], from_findings([finding()]), checked={"a.py"})
    assert result.new == (other,)
    assert [entry.count for entry in result.stale] == [1]


def test_stale_only_where_the_run_looked(tmp_path: Path) -> None:
    accepted = from_findings(FINDINGS)
    assert match([], accepted, checked=()).stale == ()
    assert {e.path for e in match([], accepted, checked={"b.py"}).stale} == {"b.py"}
    only = match([], accepted, checked={"a.py"}, ran={"DG101"}).stale
    assert [e.code for e in only] == ["DG101"]
    (tmp_path / "a.py").touch()
    assert {e.path for e in match([], accepted, checked=(), root=tmp_path).stale} == {"b.py"}


def test_prune_takes_away_what_is_stale() -> None:
    accepted = from_findings(FINDINGS)
    left = [finding(7), *FINDINGS[2:3]]
    result = match(left, accepted, checked={"a.py", "b.py"})
    assert sum(entry.count for entry in result.stale) == 2
    assert pruned(accepted, result.stale) == from_findings(left)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "no such baseline; create it with --write-baseline"),
        ("{", "not valid JSON (line 1)"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "not a dispatchguard baseline"),
        ('{"version": "2.1.0", "runs": []}', "not a dispatchguard baseline"),
        ('{"tool": "dispatchguard", "schema": 99}', "baseline schema 99, this version reads 1"),
        ('{"tool": "dispatchguard", "schema": 0}', "write it again with --write-baseline"),
        ('{"tool": "dispatchguard", "schema": 1}', "baseline without entries"),
        ('{"tool": "dispatchguard", "schema": 1, "entries": [{}]}', "entry 1 is not"),
        ('{"tool": "dispatchguard", "schema": 1, "entries": [3]}', "entry 1 is not"),
    ],
)
def test_broken_files(tmp_path: Path, content: str | None, part: str) -> None:
    path = tmp_path / "b.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load(path)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(UserError, match="not a dispatchguard baseline"):
        load(tmp_path / "b.json")


@pytest.mark.parametrize(
    "content",
    [
        None,
        "",
        "\n",
        '{\n  "tool": "dispatchguard",\n  "schema": 1,\n  "entries": [',
        '<<<<<<< HEAD\n{\n  "tool": "dispatchguard",\n=======\n',
        '{"tool": "dispatchguard", "schema": 0, "entries": []}',
        '{"tool": "dispatchguard", "schema": 1}',
        '{"tool": "dispatchguard", "schema": 1, "entries": [3]}',
    ],
)
def test_a_new_baseline_may_stand_where_there_was_none_or_a_broken_one(
    tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "b.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    assert standing(path) == Baseline()


@pytest.mark.parametrize(
    "content",
    [
        "# README\n",
        "{]",
        "[]",
        '{"version": "2.1.0", "runs": []}',
        'Say "tool": "dispatchguard"',
        '{"tool": "dispatchguard", "schema": 99, "entries": []}',
    ],
)
def test_nothing_else_is_written_over(tmp_path: Path, content: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError):
        standing(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes")
def test_a_pipe_is_no_baseline(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for read in (load, standing):
        with pytest.raises(UserError, match="not a file"):
            read(tmp_path / "pipe")


MANY = st.lists(
    st.builds(
        finding,
        st.integers(1, 9),
        code=st.sampled_from(["DG1", "DG2"]),
        path=st.sampled_from(["a", "b"]),
        function=st.sampled_from(["f", "g"]),
        source=st.sampled_from(["x", "y"]),
    ),
    max_size=12,
)


@given(MANY, MANY)
def test_counts_add_up(before: list[Finding], now: list[Finding]) -> None:
    accepted = from_findings(before)
    result = match(now, accepted, checked={"a", "b"})
    assert len(result.new) + len(result.matched) == len(now)
    assert sum(e.count for e in result.stale) == len(before) - len(result.matched)
    kept = pruned(accepted, result.stale)
    assert sum(e.count for e in kept.entries) == len(result.matched)
    assert match(result.matched, kept, checked={"a", "b"}).new == ()
    assert match(before, accepted, checked={"a", "b"}).stale == ()
