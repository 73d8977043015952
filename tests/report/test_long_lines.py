"""Of a line as much is shown as anybody reads, and what is left out is marked."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.edits import excerpt
from pytest_dispatchguard.model.findings import Finding, Span
from pytest_dispatchguard.model.reports import Report, Summary
from pytest_dispatchguard.report import FORMATS, render
from pytest_dispatchguard.report.fingerprint import fingerprints

LINES = st.text(st.characters(exclude_characters="\r\n…", codec="utf-8"), max_size=60)


@given(LINES, st.integers(1, 70), st.integers(0, 70), st.integers(1, 2), st.integers(1, 80))
def test_the_three_parts_are_the_line_but_for_what_is_marked(
    line: str, column: int, length: int, lines: int, most: int
) -> None:
    span = Span(1, column, lines, column + length)
    parts = excerpt(line, span, most)
    bare = [part.strip("…") for part in parts]
    assert all(len(part) <= most for part in bare)
    assert "".join(bare) in line or any("…" in part for part in parts)
    if len(line) <= most:
        assert "".join(parts) == line
    start = min(column - 1, len(line))
    assert line[:start].endswith(bare[0])
    assert line[start:].startswith(bare[1])
    assert parts[0].startswith("…") is (start > most)
    if "…" not in parts[1]:
        assert line[start + len(bare[1]) :].startswith(bare[2])
        assert parts[2].endswith("…") is (len(line) - start - len(bare[1]) > most)


def _finding(column: int, source: str) -> Finding:
    span = Span(1, column, 1, column + 8)
    return Finding("DG401", "r", "m.py", span, "f", f"m {column}", source=source)


def test_reports_of_one_long_line_grow_as_its_findings_do() -> None:
    def size(form: str, number: int) -> int:
        line = "x = [" + "x.item(), " * number + "]"
        found = tuple(_finding(6 + 10 * i, line) for i in range(number))
        report = Report(found, Summary(1, 1, 1), (), "0")
        return len(render(report, form, sources={"m.py": line}.get))

    for form in FORMATS:
        assert size(form, 800) < 2.5 * size(form, 400)


@given(st.lists(st.tuples(st.integers(1, 3), LINES), max_size=8))
def test_fingerprints_are_those_of_code_path_function_text_and_number(
    given: list[tuple[int, str]],
) -> None:
    findings = [_finding(column, source) for column, source in given]
    seen: list[tuple[str, ...]] = []
    expected = []
    for finding in findings:
        text = " ".join(finding.source.split()) or finding.message
        key = (finding.code, finding.path, finding.function, text)
        whole = "\0".join((*key, str(seen.count(key)))).encode("utf-8", "surrogatepass")
        expected.append(sha256(whole).hexdigest()[:32])
        seen.append(key)
    assert fingerprints(findings) == expected
