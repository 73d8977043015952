"""Fixes as each format carries them, applied by appliers that know nothing of ours, over all specimens: they
give what `--fix` gives, byte by byte."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.lint.check import Checked, check
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.model.reviews import Remark, Review, Stretch
from pytest_dispatchguard.report import render
from pytest_dispatchguard.report.options import Options
from pytest_dispatchguard.report.review.github import as_object
from pytest_dispatchguard.report.review.gitlab import render as gitlab

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


@pytest.fixture(scope="module")
def specimens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of all specimens."""
    folder = tmp_path_factory.mktemp("specimens")
    for path in sorted(FIXTURES.glob("DG*")):
        shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pyproject.toml").write_text("[tool.dispatchguard]\nexclude = []\n")
    return folder


@pytest.fixture(scope="module")
def checked(specimens: Path) -> Checked:
    return run(specimens)


def run(folder: Path, **more: Any) -> Checked:
    return check(Request((folder,), folder, cache=False, **more))


Made = dict[str, list[tuple[int, str]]]
"""By path: the line of a finding, and the text that its fix alone makes of the file."""


def expected(checked: Checked) -> dict[str, list[tuple[int, str, Finding]]]:
    """What the linter itself makes of a file with each fix alone."""
    from pytest_dispatchguard.lint.results.fixes import fix

    found: dict[str, list[tuple[int, str, Finding]]] = {}
    for finding in checked.report.findings:
        if finding.fix is None:
            continue
        text = checked.reader(finding.path)
        assert text is not None
        done = fix(text, [finding], ("safe", "unsafe"))
        if done.made:
            found.setdefault(finding.path, []).append((finding.span.line, done.text, finding))
    return found


def test_there_are_many(checked: Checked) -> None:
    assert isinstance(checked.config, Config)
    assert sum(len(made) for made in expected(checked).values()) > 60


def test_sarif(checked: Checked) -> None:
    """Regions count characters from 1; the end is exclusive."""
    log = json.loads(render(checked.report, "sarif", sources=checked.reader))
    made: Made = {}
    for result in log["runs"][0]["results"]:
        for fix in result.get("fixes", ()):
            (change,) = fix["artifactChanges"]
            path = unquote(change["artifactLocation"]["uri"])
            lines = keep_ends(checked.reader(path) or "")
            text = "".join(lines)
            for r in sorted(change["replacements"], key=backwards):
                region = r["deletedRegion"]
                start = at(lines, region["startLine"], region["startColumn"])
                end = at(lines, region["endLine"], region["endColumn"])
                text = text[:start] + r["insertedContent"]["text"] + text[end:]
            line = result["locations"][0]["physicalLocation"]["region"]["startLine"]
            made.setdefault(path, []).append((line, text))
    same_as_ours(made, checked, least=1.0)


def test_rdjson(checked: Checked) -> None:
    """Columns count bytes from 1; the end is exclusive."""
    made: Made = {}
    for one in json.loads(render(checked.report, "rdjson", sources=checked.reader))["diagnostics"]:
        path = one["location"]["path"]
        for told in one.get("suggestions", ()):
            raw = (checked.reader(path) or "").encode()
            lines = raw.split(b"\n")
            ends = [told["range"][side] for side in ("start", "end")]
            start, end = (
                sum(len(line) + 1 for line in lines[: e["line"] - 1]) + e["column"] - 1
                for e in ends
            )
            text = (raw[:start] + told["text"].encode() + raw[end:]).decode()
            made.setdefault(path, []).append((one["location"]["range"]["start"]["line"], text))
    # A fix that needs an import far above is more than a reviewer sees in one box.
    same_as_ours(made, checked, least=0.9)


def review_of(checked: Checked, findings: Sequence[Finding]) -> Review:
    """As if everything were new, and all lines were shown."""
    remarks = tuple(Remark(f, f.span.line, f.span.end_line, Stretch(1, 10**6)) for f in findings)
    return Review("main", remarks, (), ())


def test_github(checked: Checked) -> None:
    """A suggestion takes the place of the lines that are commented on."""
    told = as_object(review_of(checked, checked.report.findings), Options(sources=checked.reader))
    made: Made = {}
    for finding, comment in zip(checked.report.findings, told["comments"], strict=True):
        block = suggested(comment["body"], "suggestion")
        if block is not None:
            first = comment.get("start_line", comment["line"])
            text = with_lines(checked.reader, comment["path"], first, comment["line"], block)
            made.setdefault(comment["path"], []).append((finding.span.line, text))
    same_as_ours(made, checked, least=0.9)


def test_gitlab(checked: Checked) -> None:
    """A suggestion says how many lines above and below its own it takes the place of."""
    review = review_of(checked, checked.report.findings)
    told = json.loads(gitlab(review, Options(sources=checked.reader)))["discussions"]
    made: Made = {}
    for finding, one in zip(checked.report.findings, told, strict=True):
        offsets = re.search(r"suggestion:-(\d+)\+(\d+)", one["body"])
        if offsets is not None:
            block = suggested(one["body"], offsets[0])
            assert block is not None
            path, line = one["position"]["new_path"], one["position"]["new_line"]
            first, last = line - int(offsets[1]), line + int(offsets[2])
            text = with_lines(checked.reader, path, first, last, block)
            made.setdefault(path, []).append((finding.span.line, text))
    same_as_ours(made, checked, least=0.9)


@pytest.mark.thorough
def test_one_fix_of_a_file_is_what_fix_makes_of_it(specimens: Path, tmp_path: Path) -> None:
    """`--fix --unsafe-fixes` on disk, of files in which nothing else is to be fixed."""
    copy = tmp_path / "copy"
    shutil.copytree(specimens, copy)
    before = run(copy)
    single = {path: made[0] for path, made in expected(before).items() if len(made) == 1}
    assert len(single) > 15
    run(copy, fix="unsafe")
    for path, (_, text, _) in single.items():
        assert (copy / path).read_text("utf-8") == text, path


def same_as_ours(made: Made, checked: Checked, least: float) -> None:
    ours = expected(checked)
    number = 0
    for path, texts in made.items():
        told = [(line, text) for line, text, _ in ours[path]]
        for one in texts:
            assert one in told, path
            number += 1
    assert number >= least * sum(map(len, ours.values()))


def backwards(replacement: Any) -> tuple[int, int]:
    region = replacement["deletedRegion"]
    return -region["startLine"], -region["startColumn"]


def keep_ends(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+\Z", text)


def at(lines: Sequence[str], line: int, column: int) -> int:
    return sum(map(len, lines[: line - 1])) + column - 1


def suggested(body: str, opening: str) -> str | None:
    block = re.search(rf"(?m)^(`{{3,}}){re.escape(opening)}\n(.*?)^\1$", body, re.DOTALL)
    return None if block is None else block[2]


def with_lines(
    read: Callable[[str], str | None], path: str, first: int, last: int, block: str
) -> str:
    lines = keep_ends(read(path) or "")
    lines[first - 1 : last] = [block]
    return "".join(lines)
