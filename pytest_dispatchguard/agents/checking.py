"""Tools that read code: check paths or a change, propose fixes, say why a function is hot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_dispatchguard.agents.answers import (
    Answer,
    Source,
    brief,
    cut,
    finding_answer,
    important,
    page,
)
from pytest_dispatchguard.agents.copies import copied, review_of
from pytest_dispatchguard.agents.parameters import inside, shown, within
from pytest_dispatchguard.agents.workplace import Call, Workplace
from pytest_dispatchguard.lint.check import Checked, check
from pytest_dispatchguard.lint.hot import hot_lines
from pytest_dispatchguard.lint.request import FixMode, Request
from pytest_dispatchguard.lint.review import Asked, Reviewed, reviewed
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.report.diff import unified
from pytest_dispatchguard.report.placed import placed, sources_of
from pytest_dispatchguard.report.wording import bill, count, headline, heat

MOST_OF_A_DIFF = 30_000
_MOST_GONE = 10
_MOST_NOTES = 5
LEVELS = ("sure", "note", "maybe")


def settings(level: str, select: Sequence[str] = ()) -> dict[str, Any]:
    """Fields of Config that have findings down to a level told."""
    given: dict[str, Any] = {"notes": level != "sure", "pedantic": level == "maybe"}
    if select:
        given["select"] = tuple(select)
    return given


def check_paths(workplace: Workplace, call: Call, arguments: dict[str, Any]) -> Answer:
    """The findings in files and folders."""
    given = settings(arguments["level"], arguments["select"] or ())
    checked = _checked(workplace, call, arguments["paths"] or ["."], given)
    findings, source = _told(workplace, checked)
    return {
        "summary": headline(replace(checked.report, findings=tuple(findings))),
        **_page(findings, source, arguments),
        "notes": _notes((*checked.problems, *checked.report.notes)),
    }


def _checked(
    workplace: Workplace,
    call: Call,
    paths: Sequence[str],
    given: dict[str, Any],
    fix: FixMode = "no",
) -> Checked:
    places = tuple(inside(workplace.root, path) for path in paths)
    request = Request(
        paths=places,
        cwd=workplace.root,
        settings=given,
        fix=fix,
        write=False,
        cache=False,
        kept=workplace.cache,
        progress=call.progress,
    )
    return check(request)


def _told(workplace: Workplace, checked: Checked) -> tuple[list[Finding], Source]:
    """The findings by their paths from the root of the server, and the texts of these files. What a link
    brought in from outside is left out."""
    above = _above(workplace.root, checked.config.root)
    report, source = placed(checked.report, above), sources_of(checked.reader, above)
    return important(_inside(workplace.root, report.findings)), source


def _above(root: Path, project: Path) -> str:
    rel = project.resolve().relative_to(root).as_posix()
    return "" if rel == "." else f"{rel}/"


def _inside(root: Path, findings: Iterable[Finding]) -> list[Finding]:
    found = list(findings)
    outside = {path for path in {f.path for f in found} if not within(root, root / path)}
    return [finding for finding in found if finding.path not in outside]


def _page(findings: Sequence[Finding], source: Source, arguments: dict[str, Any]) -> Answer:
    told = (finding_answer(finding, source) for finding in findings)
    return page(told, arguments["offset"], arguments["limit"], "findings")


def _notes(notes: Iterable[str]) -> list[str]:
    return [cut(note) for note in list(notes)[:_MOST_NOTES]]


def check_change(workplace: Workplace, call: Call, arguments: dict[str, Any]) -> Answer:
    """What a change adds to the findings, and takes from them."""
    base, diff = arguments["base"], arguments["diff"]
    if (base is None) == (diff is None):
        raise UserError("name either base (a revision) or diff (a patch that is not yet applied)")
    given = settings(arguments["level"])
    if diff is None:
        asked = Asked(base, workplace.root, None, given, jobs=1, cache=False, kept=workplace.cache)
        found = reviewed(replace(asked, progress=call.progress))
        return _change_answer(found, workplace.root, arguments, f"compared with {base}", ())
    with copied(workplace.root, call) as scratch:
        files, tree, found = review_of(scratch, diff, given, call)
        return _change_answer(found, tree, arguments, "by the diff", list(files))


def _change_answer(
    found: Reviewed, root: Path, arguments: dict[str, Any], what: str, files: Sequence[str]
) -> Answer:
    new = important(_inside(root, found.review.new))
    gone = found.review.fixed
    sure = sum(finding.certainty == "sure" for finding in new)
    counted = [count(sure, "new finding"), count(len(new) - sure, "new note"), f"{len(gone)} gone"]
    summary = f"{', '.join(counted)} ({cut(what, 100)})"
    return {
        "summary": summary,
        **_page(new, found.sources, arguments),
        "gone": [brief(finding) for finding in gone[:_MOST_GONE]],
        "gone_total": len(gone),
        "files": list(files[:100]),
        "notes": _notes((*found.problems, *found.review.notes)),
    }


def propose_fix(workplace: Workplace, call: Call, arguments: dict[str, Any]) -> Answer:
    """The linter's own fixes of a path, as a diff that nobody applied."""
    given = settings("note", arguments["select"] or ())
    mode: FixMode = "unsafe" if arguments["unsafe"] else "safe"
    checked = _checked(workplace, call, [arguments["path"]], given, fix=mode)
    above = _above(workplace.root, checked.config.root)
    paths = [
        path for path in sorted(checked.after) if within(workplace.root, checked.config.root / path)
    ]
    diff = "".join(
        unified(above + path, checked.before[path], checked.after[path]) for path in paths
    )
    if len(diff) > MOST_OF_A_DIFF:
        raise UserError(
            f"the fixes are a diff of {len(diff)} characters; name a smaller path, or codes to select"
        )
    left, _ = _told(workplace, checked)
    safe = "" if arguments["unsafe"] else "; unsafe ones are made with unsafe: true"
    summary = (
        f"fixes in {count(len(paths), 'file')}; {count(len(left), 'finding')} left, notes included"
        if diff
        else f"nothing to fix{safe}"
    )
    return {
        "summary": summary,
        "diff": diff,
        "files": [above + path for path in paths],
        "left": [brief(finding) for finding in left[:_MOST_GONE]],
        "left_total": len(left),
    }


def why_hot(workplace: Workplace, call: Call, arguments: dict[str, Any]) -> Answer:
    """Why a line is hot, and what the function around it costs."""
    path = inside(workplace.root, arguments["path"])
    if not path.is_file():
        raise UserError(f"path {shown(arguments['path'])}: name a file")
    checked = _checked(workplace, call, [arguments["path"]], settings("maybe"))
    call.check()
    above = _above(workplace.root, checked.config.root)
    rel = path.relative_to(workplace.root).as_posix()
    lines = hot_lines(path, workplace.root, kept=workplace.cache)
    found = lines.at(rel.removeprefix(above), arguments["line"])
    findings, source = _told(workplace, checked)
    if found is None:
        return {
            "summary": f"{rel}:{arguments['line']} is not hot: no known entry point reaches a function there",
            "hot": None,
            "function": None,
            "costs": [],
            "findings": [],
            "how_to_make_hot": "write `# dispatchguard: hot` above the function, or record what runs",
        }
    name, hot = found
    there = [finding for finding in findings if finding.function == name and finding.path == rel]
    return {
        "summary": cut(f"{name} is hot: {heat(hot)}"),
        "hot": {
            "reason": cut(hot.reason),
            "root": hot.root,
            "path": [cut(one, 200) for one in hot.path[:50]],
            "loop": hot.loop,
            "per": hot.per,
            "seen": hot.seen,
            "users": hot.users,
        },
        "function": name,
        "costs": [cut(line) for line in bill(there)],
        "findings": [finding_answer(finding, source) for finding in there[:10]],
        "findings_total": len(there),
    }
