"""Draws findings at random from real packages for a reader to judge, and renders what was judged.

    python bench/sample_findings.py draw --seed 1 --sheet sheet.json PACKAGE_DIR...
    python bench/sample_findings.py render sheet.json

A reader fills in `verdict` (right or wrong) and `reason` of each entry between the two. A finding is right
when its place runs per call or step, its value is what the rule says, and its advice is sound.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_dispatchguard import Finding, UserError
from pytest_dispatchguard.lint.check import check
from pytest_dispatchguard.lint.request import Request

RESULTS = Path(__file__).resolve().parent / "results"
BEFORE, AFTER = 7, 4
VERDICTS = ("right", "wrong")
WORDS = {
    "sure": (
        "findings",
        "the place runs per call or per step, the value is what the rule says, and the advice is sound",
    ),
    "note": ("notes", "the place runs per call or per step, and the cost is real where it stands"),
}
"""What a level is called, and when one of it is right."""


@dataclass(frozen=True, slots=True)
class Package:
    """One package that was linted."""

    name: str
    version: str
    findings: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One finding on the sheet."""

    number: int
    package: str
    version: str
    path: str
    line: int
    code: str
    rule: str
    function: str
    message: str
    root: str
    hot_path: tuple[str, ...]
    hot_reason: str
    loop: bool
    source: tuple[str, ...]
    verdict: str = ""
    reason: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw", help="lint packages and write a judging sheet")
    drawing.add_argument("packages", nargs="+", type=Path, metavar="PACKAGE_DIR")
    drawing.add_argument("--seed", type=int, required=True)
    drawing.add_argument("--number", type=int, default=100, help="findings to draw (default: 100)")
    drawing.add_argument("--most", type=int, help="findings of one package (default: any number)")
    drawing.add_argument("--select", default="DG", help="codes and prefixes, with commas")
    drawing.add_argument("--level", choices=("sure", "note"), default="sure")
    drawing.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    drawing.add_argument("--sheet", type=Path, required=True)
    rendering = commands.add_parser("render", help="write bench/results/judged-SEED.md")
    rendering.add_argument("sheet", type=Path)
    rendering.add_argument("--output", type=Path, help="in place of bench/results/judged-SEED.md")
    options = parser.parse_args(arguments)
    try:
        if options.command == "draw":
            draw(options)
        else:
            render(options.sheet, options.output)
    except UserError as error:
        print(f"sample_findings: {error}", file=sys.stderr)
        return 2
    return 0


# -- drawing ----------------------------------------------------------------------------------------


def draw(options: argparse.Namespace) -> None:
    """Lints the packages and writes the sheet."""
    packages: list[Package] = []
    found: list[tuple[Package, Path, Finding]] = []
    for folder in options.packages:
        if not folder.is_dir():
            raise UserError(
                f"{folder} is no folder: name the folders that packages were unpacked into"
            )
        root, findings = lint(folder.resolve(), tuple(options.select.split(",")), options.jobs)
        findings = [f for f in findings if f.certainty == options.level]
        name, version = identify(folder.resolve())
        package = Package(name, version, len(findings))
        packages.append(package)
        found.extend((package, root, f) for f in findings)
        print(f"{name} {version}: {len(findings)} findings", file=sys.stderr)
    drawn = draw_at_most(found, options)
    drawn.sort(key=lambda d: (d[0].name, d[2].sort_key))
    sheet = {
        "seed": options.seed,
        "select": options.select,
        "level": options.level,
        "most": options.most,
        "packages": [asdict(p) for p in packages],
        "rules": dict(Counter(f.code for _, _, f in found)),
        "findings": [asdict(entry(i, *d)) for i, d in enumerate(drawn, 1)],
    }
    write(options.sheet, json.dumps(sheet, indent=1, ensure_ascii=False) + "\n")
    print(
        f"{len(drawn)} of {len(found)} findings in {options.sheet}: fill in `verdict` and `reason`"
    )


def draw_at_most(
    found: Sequence[tuple[Package, Path, Finding]], options: argparse.Namespace
) -> list[tuple[Package, Path, Finding]]:
    """As many at random as are wanted, and no more of one package than `--most`."""
    chance = random.Random(options.seed)
    if options.most is None:
        return chance.sample(found, min(options.number, len(found)))
    drawn: list[tuple[Package, Path, Finding]] = []
    by_package: Counter[str] = Counter()
    for one in chance.sample(found, len(found)):
        name = one[0].name
        if len(drawn) < options.number and by_package[name] < options.most:
            by_package[name] += 1
            drawn.append(one)
    return drawn


def lint(folder: Path, select: tuple[str, ...], jobs: int) -> tuple[Path, list[Finding]]:
    """The findings of one package's rules, and the folder that their paths are relative to."""
    request = Request((folder,), folder, settings={"select": select}, jobs=jobs, cache=False)
    checked = check(request)
    for problem in checked.problems:
        print(f"sample_findings: {problem}", file=sys.stderr)
    return checked.config.root, [f for f in checked.report.findings if f.hot is not None]


def identify(folder: Path) -> tuple[str, str]:
    """Name and version: of the metadata beside the package, else of the folder's name."""
    beside = sorted(folder.parent.glob("*.dist-info/METADATA"))
    for metadata in sorted(folder.glob("*.dist-info/METADATA")) or beside[: len(beside) == 1]:
        text = metadata.read_text(encoding="utf-8")
        fields = dict(
            re.findall(r"^(Name|Version): (.+)$", text.partition("\n\n")[0], re.MULTILINE)
        )
        return fields.get("Name", folder.name), fields.get("Version", "")
    name, _, version = folder.name.partition("-")
    return name, version


def entry(number: int, package: Package, root: Path, finding: Finding) -> Entry:
    """A finding as the sheet shows it, with its source around it."""
    lines = (root / finding.path).read_text(encoding="utf-8", errors="replace").split("\n")
    first = max(1, finding.span.line - BEFORE)
    shown = range(first, min(len(lines), finding.span.line + AFTER) + 1)
    assert finding.hot is not None
    return Entry(
        number=number,
        package=package.name,
        version=package.version,
        path=finding.path,
        line=finding.span.line,
        code=finding.code,
        rule=finding.rule,
        function=finding.function,
        message=finding.message,
        root=finding.hot.root,
        hot_path=finding.hot.path,
        hot_reason=finding.hot.reason,
        loop=finding.hot.loop,
        source=tuple(
            f"{'>' if n == finding.span.line else ' '}{n:6} {lines[n - 1]}" for n in shown
        ),
    )


# -- rendering --------------------------------------------------------------------------------------


def render(path: Path, output: Path | None) -> None:
    """Writes the judged list, with the share of right findings by rule."""
    try:
        sheet = json.loads(path.read_text(encoding="utf-8"))
        entries = [Entry(**{**e, "source": tuple(e["source"])}) for e in sheet["findings"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no sheet of this script ({error}); draw one first") from error
    open_ = [e.number for e in entries if e.verdict not in VERDICTS or not e.reason.strip()]
    if open_:
        numbers = ", ".join(map(str, open_[:10])) + (" …" if len(open_) > 10 else "")
        raise UserError(
            f"entries {numbers} of {path} need a verdict ({' or '.join(VERDICTS)}) and a reason"
        )
    notes = "-notes" if sheet.get("level") == "note" else ""
    output = output or RESULTS / f"judged-{sheet['seed']}{notes}.md"
    write(
        output,
        "\n".join([*head(sheet, entries), *rule_table(entries), *judged_list(entries)]) + "\n",
    )
    print(f"written: {output}")


def head(sheet: dict[str, Any], entries: Sequence[Entry]) -> Iterable[str]:
    """What was drawn from what, and how much of it was right."""
    right = sum(e.verdict == "right" for e in entries)
    total = sum(p["findings"] for p in sheet["packages"])
    word, means = WORDS[sheet.get("level", "sure")]
    yield f"# {word.capitalize()} judged by hand, seed {sheet['seed']}"
    yield ""
    most = (
        f"at most {sheet['most']} of one package"
        if sheet.get("most")
        else "each as likely as any other"
    )
    yield (
        f"{len(entries)} {word} drawn at random, {most}, from the {total} that "
        f"`dispatchguard check --select {sheet['select']}` has for these packages; read in their source "
        f"one by one. Right means: {means}."
    )
    yield ""
    yield f"**Right: {right} of {len(entries)} ({share(right, len(entries))}).**"
    if "agreement" in sheet:
        same, both = sheet["agreement"]
        yield ""
        yield (
            f"Two readers, who have not seen each other's verdicts; {both} were read by both, and they "
            f"agree on {same} of these. Where they differ it counts as wrong."
        )
    yield ""
    yield "| package | version | findings | drawn | right |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for package in sheet["packages"]:
        mine = [
            e for e in entries if e.package == package["name"] and e.version == package["version"]
        ]
        good = sum(e.verdict == "right" for e in mine)
        yield (
            f"| {package['name']} | {package['version']} | {package['findings']} | {len(mine)} | {good} |"
        )
    yield ""


def rule_table(entries: Sequence[Entry]) -> Iterable[str]:
    """Precision by rule."""
    yield "## By rule"
    yield ""
    yield "| rule | | drawn | right | share |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for code, rule in sorted({(e.code, e.rule) for e in entries}):
        mine = [e for e in entries if e.code == code]
        right = sum(e.verdict == "right" for e in mine)
        yield f"| {code} | {rule} | {len(mine)} | {right} | {share(right, len(mine))} |"
    yield ""


def judged_list(entries: Sequence[Entry]) -> Iterable[str]:
    """Every finding with its verdict and the reason for it."""
    yield "## One by one"
    yield ""
    yield "| | verdict | finding | place | reason |"
    yield "| ---: | --- | --- | --- | --- |"
    for e in entries:
        reason = " ".join(e.reason.split()).replace("|", "\\|")
        yield f"| {e.number} | {e.verdict} | {e.code} | {e.package} `{e.path}:{e.line}` | {reason} |"


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else "-"


def write(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
