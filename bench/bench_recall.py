"""How much of what maintainers removed because it cost host time does the linter tell, and what beside it?

    python bench/bench_recall.py MIRRORS [--command DISPATCHGUARD] [--repo NAME]
    python bench/bench_recall.py MIRRORS --set unseen --set unseen-2 … (one for each such set)

MIRRORS is a folder with `<owner>+<name>/repo`, a git directory with history, for each repository of
`bench/recall/*.json`. These hold labels of lines of real commits, and no code:

- `positive`: a line that the commit removed or changed for its cost, as it stood in `parent`; `static`
  says that the project's text is enough to tell.
- `negative`: a line nearby in `parent` that looks alike and is fine.
- `fixed`: a line of `commit` that replaced a positive one.

`given.json` is what others labelled, `own.json` what we did. The ten `unseen` sets were labelled by readers
who knew no rule, each once all rules of its time were there: what is told of them "before" is told of commits
that nobody had looked at. They are scored where `--set` asks for them, and have results of their own.
`left_out.json` names cases whose label is wrong, with the reason; `reasons.json` says
why a positive line is not told.

Each revision is laid out as a git work tree, and linted. A positive counts where something is told
anywhere in the statement that holds its line. A negative or fixed line counts where a finding, or a note,
stands on it.

Written to bench/results/recall.json and recall.md, or recall-unseen.json and recall-unseen.md.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LABELS = HERE / "recall"
RESULTS = HERE / "results" / "recall.json"
SETS = ("given", "own")
UNSEEN = ("unseen", *(f"unseen-{n}" for n in range(2, 12)))
LEVELS = ("sure", "note", "maybe", "silent, hot", "silent, not hot")
_KINDS = (("*.py", "*.toml", "*.cfg"), ("*.py", "*.toml"), ("*.py", "*.cfg"), ("*.py",))

Row = dict[str, Any]


def archived(git: Path, revision: str) -> bytes:
    """The Python files of a revision, and what configures them, as a tar archive."""
    for names in _KINDS:  # git archive refuses patterns that match nothing
        globs = [f":(glob)**/{name}" for name in names]
        command = ["git", f"--git-dir={git}", "archive", revision, "--", *globs]
        ran = subprocess.run(command, capture_output=True, check=False)
        if ran.returncode == 0:
            return ran.stdout
    raise SystemExit(f"{git} {revision}: {ran.stderr.decode()[-300:]}")


def lay_out(git: Path, revision: str, folder: str) -> None:
    """The same as files of a git repository."""
    with tarfile.open(fileobj=io.BytesIO(archived(git, revision))) as tar:
        tar.extractall(folder, [m for m in tar.getmembers() if m.isfile()], filter="data")
    subprocess.run(["git", "init", "-q", folder], check=True)


_TYPE_PARAMETERS = re.compile(
    r"^(\s*(?:async\s+def|def|class)\s+\w+)\[[^\n]*?\](?=[(:])", re.MULTILINE
)


def parsed(text: str) -> ast.Module:
    """The tree of a file, though this Python may be older than type parameters."""
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.parse(_TYPE_PARAMETERS.sub(r"\1", text))


def statements(text: str) -> list[tuple[int, int]]:
    """First and last line of every statement; of compound ones the header."""
    found = []
    for node in ast.walk(parsed(text)):
        if not isinstance(node, ast.stmt | ast.ExceptHandler):
            continue
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        last = node.end_lineno or first
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inside = getattr(node, name, None)
            if isinstance(inside, list) and inside:
                begins = getattr(inside[0], "lineno", None) or inside[0].pattern.lineno
                last = max(first, min(last, begins - 1))
        if isinstance(node, ast.If | ast.While):
            last = max(node.test.end_lineno or first, min(last, node.test.end_lineno or first))
        found.append((first, last))
    return found


def lines_of(case: Row, line: int, around: Sequence[tuple[int, int]]) -> set[int]:
    """The lines on which something has to be told for a line of a case to count."""
    if case["kind"] != "positive":
        return {line}
    holding = [span for span in around if span[0] <= line <= span[1]]
    low, high = min(holding, key=lambda span: span[1] - span[0], default=(line, line))
    also = re.search(r"accept also ([\d, ]+)", case["note"] or "")
    return {*range(low, high + 1), *(map(int, re.findall(r"\d+", also[1])) if also else ())}


@dataclass(frozen=True, slots=True)
class Job:
    """The cases of one revision."""

    set: str
    repo: str
    revision: str
    cases: Sequence[Row]


def scored(job: Job, mirrors: Path, command: str) -> list[Row]:
    """The rows of a revision; none where there is no mirror of its repository."""
    git = mirrors / job.repo.replace("/", "+") / "repo"
    if not git.exists():
        print(f"no mirror of {job.repo}", file=sys.stderr)
        return []
    return score(job.cases, git, job.revision, command)


def score(group: Sequence[Row], git: Path, revision: str, command: str) -> list[Row]:
    """The rows of the cases of one revision."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        lay_out(git, revision, folder)
        paths = sorted({case["path"] for case in group})

        def run(*words: str) -> Any:
            ran = subprocess.run(
                [command, *words, *paths], cwd=folder, capture_output=True, text=True, check=False
            )
            if ran.returncode > 1:
                raise SystemExit(f"{git} {revision}: {ran.stderr[-500:]}")
            return json.loads(ran.stdout)

        told = run("check", "--format", "json", "--pedantic", "--no-cache", "--jobs", "1")[
            "findings"
        ]
        hot = {
            (f["path"], f["function"].replace(".<locals>", ""))  # as labels name them
            for f in run("hot", "--format", "json", "--jobs", "1")["functions"]
        }
        for case in group:
            text = (Path(folder) / case["path"]).read_text("utf-8", "replace")
            around = statements(text)
            here = [
                f for f in told if f["path"] == case["path"] and not f["code"].startswith("DG0")
            ]
            for line in case["lines"]:
                counted = lines_of(case, line, around)
                found = sorted({(f["certainty"], f["code"]) for f in here if f["line"] in counted})
                keys = ("id", "repo", "path", "kind", "class", "static", "function")
                row = {key: case[key] for key in keys}
                is_hot = (case["path"], case["function"]) in hot
                rows.append(
                    row | {"line": line, "told": found, "hot": is_hot, "revision": revision}
                )
    return rows


def level(row: Row) -> str:
    """The best level at which something is told of a line."""
    levels = {certainty for certainty, _ in row["told"]}
    for best in ("sure", "note", "maybe"):
        if best in levels:
            return best
    return "silent, hot" if row["hot"] else "silent, not hot"


def decidable(rows: Iterable[Row]) -> list[Row]:
    """The positive lines that the project's text decides."""
    return [row for row in rows if row["kind"] == "positive" and row["static"]]


def figures(rows: Sequence[Row]) -> Row:
    """What there is to say of a set."""
    positive = decidable(rows)
    counts = Counter(map(level, positive))
    others = [row for row in rows if row["kind"] != "positive"]
    return {
        "positive": len(positive),
        "commits": len({(row["repo"], row["id"].rpartition("-")[0]) for row in rows}),
        "repositories": len({row["repo"] for row in rows}),
        **{name: counts[name] for name in LEVELS},
        "told": round((counts["sure"] + counts["note"]) / max(len(positive), 1), 3),
        "findings": round(counts["sure"] / max(len(positive), 1), 3),
        "others": len(others),
        "findings_on_others": sum(level(row) == "sure" for row in others),
        "notes_on_others": sum(level(row) == "note" for row in others),
    }


def table(found: dict[str, list[Row]]) -> str:
    """The figures of the sets, as Markdown."""
    head = ["set", "repositories", "commits", "positive lines", "told", "as findings"]
    head += [*LEVELS, "look-alike and fixed lines", "findings on them", "notes on them"]
    out = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    for name, rows in found.items():
        f = figures(rows)
        cells = [name, f["repositories"], f["commits"], f["positive"], f"{f['told']:.0%}"]
        cells += [f"{f['findings']:.0%}", *(f[one] for one in LEVELS), f["others"]]
        cells += [f["findings_on_others"], f["notes_on_others"]]
        out.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(out) + "\n"


def by_class(rows: Sequence[Row]) -> str:
    """Levels by class of pattern, as Markdown."""
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for row in decidable(rows):
        groups[row["class"]][level(row)] += 1
    out = [f"| class | lines | {' | '.join(LEVELS)} |", f"| --- |{' ---: |' * (len(LEVELS) + 1)}"]
    for name, counts in sorted(groups.items(), key=lambda item: (-item[1].total(), item[0])):
        cells = [name, counts.total(), *(counts[one] for one in LEVELS)]
        out.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(out) + "\n"


def misses(rows: Sequence[Row], reasons: dict[str, str]) -> str:
    """The positive lines that are not told, with the reason of each, as Markdown."""
    out = ["| line | class | level | why |", "| --- | --- | --- | --- |"]
    for row in decidable(rows):
        if level(row) in ("sure", "note"):
            continue
        place = f"{row['repo'].partition('/')[2]}@{row['revision'][:8]} {row['path']}:{row['line']}"
        why = reasons.get(f"{row['id']}:{row['line']}") or reasons.get(row["id"]) or _usual(row)
        out.append(f"| `{place}` | {row['class']} | {level(row)} | {why} |")
    return "\n".join(out) + "\n"


def _usual(row: Row) -> str:
    return {
        "maybe": "what the value is cannot be told here: nothing but its name says tensor",
        "silent, hot": "hot, but no rule is sure enough of the value, or there is no rule for it",
        "silent, not hot": "nothing in the project leads to the function from a known root",
    }[level(row)]


def jobs_of(name: str, repo: str, left_out: Collection[str]) -> list[Job]:
    """The revisions of a set, in order, without the cases that are left out."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for case in json.loads((LABELS / f"{name}.json").read_text()):
        if repo in case["repo"] and case["id"] not in left_out:
            revision = case["commit" if case["kind"] == "fixed" else "parent"]
            groups[case["repo"], revision].append(case)
    return [Job(name, *key, cases) for key, cases in sorted(groups.items())]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("mirrors", type=Path)
    parser.add_argument("--command", default=str(Path(sys.executable).with_name("dispatchguard")))
    parser.add_argument("--set", choices=(*SETS, *UNSEEN), action="append", dest="sets")
    parser.add_argument("--repo", default="", help="only repositories whose name holds this")
    parser.add_argument("--out", type=Path, help="all rows, as JSON, in place of the results")
    asked = parser.parse_args()
    left_out = json.loads((LABELS / "left_out.json").read_text())
    reasons = json.loads((LABELS / "reasons.json").read_text())
    found: dict[str, list[Row]] = {name: [] for name in asked.sets or SETS}
    jobs = [job for name in found for job in jobs_of(name, asked.repo, left_out)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda job: scored(job, asked.mirrors, asked.command), jobs)
        for n, (job, rows) in enumerate(zip(jobs, results, strict=True), 1):
            found[job.set] += rows
            print(f"{n} of {len(jobs)}: {job.repo} {job.revision[:10]}", file=sys.stderr)
    print(table(found))
    for name, rows in found.items():
        print(f"{name}\n\n{by_class(rows)}")
    if asked.out is not None:
        asked.out.write_text(json.dumps(found, indent=1))
    elif not asked.repo and set(found) in ({*SETS}, {*UNSEEN}):
        path = RESULTS if set(found) == {*SETS} else RESULTS.with_name("recall-unseen.json")
        write(found, reasons, left_out, path)
    else:
        print("no results written: they are of all repositories of the sets", file=sys.stderr)


def write(
    found: dict[str, list[Row]], reasons: dict[str, str], left_out: dict[str, str], path: Path
) -> None:
    """The results, for programs and for people."""
    before = json.loads((LABELS / "before.json").read_text())
    before = {name: one for name, one in before.items() if name in found}
    result = {"sets": {name: figures(rows) for name, rows in found.items()}, "before": before}
    path.write_text(json.dumps(result | {"rows": found}, indent=1) + "\n")
    parts = ["# What maintainers removed, and what is told of it\n", table(found)]
    parts.append(
        "Before, when nobody had looked at these commits:\n"
        if set(found) <= set(UNSEEN)
        else "Before this work, on the same lines:\n"
    )
    for name, one in before.items():
        parts.append(
            f"- {name}: {one['told']:.0%} told, {one['findings']:.0%} as findings, of {one['positive']}; "
            f"{one['findings_on_others']} findings on {one['others']} look-alike and fixed lines\n"
        )
    for name, rows in found.items():
        parts += [f"## The {name} set, by class\n", by_class(rows)]
    for name, rows in found.items():
        parts += [f"## What is not told of the {name} set\n", misses(rows, reasons)]
    if left_out:
        parts.append("## Left out\n")
        parts.append("".join(f"- `{case}`: {why}\n" for case, why in sorted(left_out.items())))
    path.with_suffix(".md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
