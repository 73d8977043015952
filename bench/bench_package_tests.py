"""Do packages pass their own tests as before once every fix is made?

    python bench/bench_package_tests.py [MIRRORS] [--venvs FOLDER] [--package NAME]...

Packages of PyPI whose source archives carry their tests, and, where MIRRORS is a folder with
`<owner>+<name>/repo`, a git directory, for each of them, repositories at fixed commits. Their dependencies
are installed into an environment of their own. Of each package a part of the tests runs three times, in
copies of its source: as it is, with all safe fixes, and with all safe and unsafe ones. Tests that end
otherwise run again: some differ from run to run. For the others, halves of the fixed files are tried until it
is known which files they are about; these are listed with the messages of their fixes, which are to warn of
it.

A fix counts as run where the tests run a line of its finding.

Written to bench/results/package_tests.json and package_tests.md; with --package, the rows of other packages
stay as they are.
"""

from __future__ import annotations

import argparse
import difflib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench_ghost import clean, libraries_in, versions_in
from bench_lint import BenchError, machine
from bench_recall import archived
from bench_runtime import unpacked
from publishing import RESULTS, publish, save, table

from pytest_dispatchguard import UserError
from pytest_dispatchguard.lint.check import Checked, check
from pytest_dispatchguard.lint.request import FixMode, Request

NEEDED = (
    *("numpy", "scipy", "scikit-learn", "pandas", "pytest", "coverage", "parameterized"),
    *("setuptools", "setuptools-scm", "hatchling", "wheel"),  # of source archives
    *("jaxtyping", "mpmath", "linear_operator", "lightning-utilities", "kornia-rs", "cloudpickle"),
    *("cachier==4.2.0", "aiohttp", "fsspec", "jinja2", "psutil", "pyparsing", "requests", "tqdm"),
    "xxhash",
)
RCFILE = f"--rcfile={os.devnull}"
"""In place of the package's own settings of coverage."""
MOST = 10
"""Tests that the page names of those that one file is about."""
KINDS: tuple[FixMode, ...] = ("safe", "unsafe")


@dataclass(frozen=True, slots=True)
class Package:
    """Where a package's source is from, what of it is fixed, and which tests run."""

    name: str
    version: str
    """Of PyPI; of a mirror the commit."""
    code: str
    """The folder that is fixed."""
    tests: tuple[str, ...]
    mirror: str = ""
    """The repository; empty for what comes from PyPI."""
    paths: tuple[str, ...] = (".",)
    """What Python imports from."""
    words: tuple[str, ...] = ()
    """More words for pytest."""


PACKAGES = (
    Package(
        "gpytorch",
        "1.15.2",
        "gpytorch",
        ("test/kernels", "test/variational", "test/functions", "test/priors", "test/models"),
    ),
    Package(
        "linear_operator",
        "0.6.1",
        "linear_operator",
        ("test/functions", "test/utils", "test/operators"),
    ),
    Package(
        "pytorch_optimizer",
        "4.1.0",
        "pytorch_optimizer",
        (
            "tests/test_loss_functions.py",
            "tests/test_optimizer_variants.py",
            "tests/test_optimizers.py",
            "tests/test_wrapper_optimizers.py",
            "tests/utils",
        ),
    ),
    Package(
        "kornia",
        "b4f5a78a13891c7ac4c1cd9695941380273e981d",
        "kornia",
        (
            *("tests/augmentation", "tests/filters", "tests/enhance", "tests/losses"),
            *("tests/metrics", "tests/geometry"),
        ),
        "kornia/kornia",
    ),
    Package(
        "torchmetrics",
        "dab033394560ab3ce05e3d14c13f32e4cde6b351",
        "src/torchmetrics",
        (
            "tests/unittests/regression/test_kendall.py",
            "tests/unittests/regression/test_log_cosh_error.py",
            "tests/unittests/regression/test_tweedie_deviance.py",
            "tests/unittests/clustering/test_calinski_harabasz_score.py",
            "tests/unittests/clustering/test_adjusted_mutual_info_score.py",
            "tests/unittests/nominal/test_tschuprows.py",
        ),
        "Lightning-AI/torchmetrics",
        ("src", "tests"),
        ("-k", "not ddp"),
    ),
    Package(
        "torch_geometric",
        "5c6461b2305ad068a6d61165b3c55852a11aaa41",
        "torch_geometric",
        ("test/nn", "test/utils", "test/metrics", "test/explain"),
        "pyg-team/pytorch_geometric",
    ),
)


@dataclass(frozen=True, slots=True)
class Ended:
    """How one test ended."""

    outcome: str
    node: str
    """What names it on pytest's command line."""
    said: str = ""
    """The first line of what failed."""


Tests = dict[str, Ended]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mirrors", nargs="?", type=Path, help="has the git directories")
    parser.add_argument("--venvs", type=Path, help="keep the environment in this folder")
    parser.add_argument(
        "--package", action="append", choices=[p.name for p in PACKAGES], help="only this one"
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "package_tests.json")
    options = parser.parse_args(arguments)
    results: dict[str, Any] = {}
    try:
        for results in measure(options):
            save(options.output, results)
    except (BenchError, UserError, OSError) as error:
        print(f"bench_package_tests: {error}", file=sys.stderr)
        return 2
    if results:
        publish(options.output, results, page(results))
    return 0


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rows of all packages that can be had, with one more each time."""
    kept = json.loads(options.output.read_text("utf-8")) if options.output.exists() else {}
    rows: dict[str, Any] = dict(kept.get("packages", {}))
    with tempfile.TemporaryDirectory(prefix="bench-package-tests-") as temporary:
        scratch = Path(temporary).resolve()
        python = libraries_in((options.venvs or scratch) / "package-tests", NEEDED)
        about = {"machine": machine(), "torch": versions_in(python, ("torch",))["torch"]}
        for package in PACKAGES:
            if options.package and package.name not in options.package:
                continue
            if package.mirror and not _git(options.mirrors, package.mirror):
                say(f"{package.name} is left out: no mirror of {package.mirror}")
                continue
            rows[package.name] = asked(package, options.mirrors, python, scratch / package.name)
            shutil.rmtree(scratch / package.name)
            yield {**about, "packages": {p.name: rows[p.name] for p in PACKAGES if p.name in rows}}


def asked(package: Package, mirrors: Path | None, python: Path, scratch: Path) -> dict[str, Any]:
    """All of one package: its fixes, its tests, and what differs."""
    say(f"{package.name}: its source")
    source = laid_out(package, mirrors, python, scratch)
    fixes: dict[str, Checked] = {}
    trees = {"plain": source, "trial": scratch / "trial", **{k: scratch / k for k in KINDS}}
    for name in ("trial", *KINDS):
        shutil.copytree(source, trees[name], symlinks=True)
    for kind in KINDS:
        say(f"{package.name}: {kind} fixes")
        code = trees[kind] / package.code
        settings = {"select": ("DG",)}
        request = Request((code,), trees[kind], settings=settings, fix=kind)
        fixes[kind] = check(request)
    fixed = sorted(_path(fixes["unsafe"], trees["unsafe"], path) for path in fixes["unsafe"].after)
    bench = Bench(package, python, trees, fixed)
    say(f"{package.name}: its tests")
    start = time.monotonic()
    plain = bench.run("plain", package.tests)
    seconds = time.monotonic() - start
    lines = bench.lines_run()
    row: dict[str, Any] = {
        "version": package.version,
        "tests": package.tests,
        "seconds": round(seconds),
        "outcomes": Counter(e.outcome for e in plain.values()),
    }
    for kind in KINDS:
        say(f"{package.name}: its tests with {kind} fixes")
        after = bench.run(kind, package.tests)
        made = list(told(fixes[kind], trees[kind], lines))
        differ = [n for n in {**plain, **after} if _outcome(plain, n) != _outcome(after, n)]
        say(f"{package.name}: {len(made)} fixes with --fix={kind}, {len(differ)} tests differ")
        row[kind] = {"fixes": made, **bench.explained(kind, plain, after, differ, made)}
    return row


def laid_out(package: Package, mirrors: Path | None, python: Path, scratch: Path) -> Path:
    """The source of a package, in a folder of its own."""
    plain = scratch / "plain"
    plain.mkdir(parents=True)
    git = _git(mirrors, package.mirror) if package.mirror else None
    if git is not None:
        with tarfile.open(fileobj=io.BytesIO(archived(git, package.version))) as tar:
            tar.extractall(plain, [m for m in tar.getmembers() if m.isfile()], filter="data")
        return plain
    archive = scratch / "archive"
    archive.mkdir()
    return unpacked(python, archive, package.name, package.version).replace(plain)


def _git(mirrors: Path | None, repository: str) -> Path | None:
    git = mirrors / repository.replace("/", "+") / "repo" if mirrors else None
    return git if git and git.exists() else None


def _path(checked: Checked, tree: Path, path: str) -> str:
    """The path of a file in a copy; the linter's own is relative to what it takes for the project."""
    return (checked.config.root / path).relative_to(tree).as_posix()


def told(
    checked: Checked, tree: Path, lines: Mapping[str, Collection[int]]
) -> Iterator[dict[str, Any]]:
    """The fixes that were made, and whether the tests run a line of what each is about."""
    for one in checked.rounds:
        first = checked.before[one.path].split("\n")
        places = dict(_places(first, one.before.split("\n")))
        path = _path(checked, tree, one.path)
        ran = lines.get(path, ())
        for finding in one.made:
            assert finding.fix is not None
            span = finding.span
            here = [places.get(n) for n in range(span.line, span.end_line + 1)]
            yield {
                "path": path,
                "line": here[0] or span.line,
                "code": f"{finding.code} {finding.rule}",
                "safety": finding.fix.safety,
                "message": finding.fix.message,
                "run": any(n in ran for n in here),
            }


def _places(first: Sequence[str], now: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Lines of a file in a later pass, and where they were at first."""
    for block in difflib.SequenceMatcher(None, first, now, autojunk=False).get_matching_blocks():
        yield from ((block.b + n + 1, block.a + n + 1) for n in range(block.size))


# -- running ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bench:
    """Copies of a package's source, and what runs its tests there."""

    package: Package
    python: Path
    trees: Mapping[str, Path]
    fixed: Sequence[str]
    """The files that any fix changes."""

    def run(self, name: str, tests: Sequence[str]) -> Tests:
        """How each test ends in one of the copies."""
        tree = self.trees[name]
        report = tree / "junit.xml"
        report.unlink(missing_ok=True)
        include = ",".join(str(tree / path) for path in self.fixed)
        command = [
            str(self.python),
            "-m",
            "coverage",
            "run",
            RCFILE,
            f"--include={include}",
            "-m",
            "pytest",
        ]
        # The options of the package's own settings name plugins that are not here.
        command += ["-q", "-p", "no:cacheprovider", "-o", "addopts=", f"--rootdir={tree}"]
        command += ["-o", "junit_family=xunit1", f"--junitxml={report}"]
        command += ["--continue-on-collection-errors", *self.package.words, "--", *tests]
        paths = os.pathsep.join(str(tree / path) for path in self.package.paths)
        done = subprocess.run(
            command,
            cwd=tree,
            env={**clean(), "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            check=False,
            capture_output=True,
            text=True,
        )
        if not report.exists() or done.returncode not in (0, 1):
            raise BenchError(
                f"the tests of {self.package.name} did not run: {(done.stdout + done.stderr)[-2000:]}"
            )
        return ended(report)

    def lines_run(self) -> dict[str, set[int]]:
        """The lines of the fixed files that the last run of the plain tests ran."""
        if not self.fixed:
            return {}
        tree = self.trees["plain"]
        command = [str(self.python), "-m", "coverage", "json", RCFILE, "-q", "-i"]
        command += ["-o", "lines.json"]
        subprocess.run(command, cwd=tree, env=clean(), check=False, capture_output=True)
        if not (tree / "lines.json").exists():
            return {}
        files = json.loads((tree / "lines.json").read_text("utf-8"))["files"]
        return {
            Path(tree / path).relative_to(tree).as_posix(): set(file["executed_lines"])
            for path, file in files.items()
        }

    def explained(
        self,
        kind: str,
        plain: Tests,
        after: Tests,
        differ: Sequence[str],
        made: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Which tests differ because of which fixes, and which differ by themselves."""
        if not differ:
            return {"unsteady": [], "otherwise": []}
        again = self.otherwise(kind, (), plain, differ)
        files = sorted({fix["path"] for fix in made})
        asked = [name for name in differ if name not in again]
        found = list(self.culprits(kind, files, plain, asked))
        steady = {name for _, names in found for name in names}
        return {
            "unsteady": [name for name in differ if name not in steady],
            "otherwise": [
                {
                    "files": guilty,
                    "tests": {
                        name: {"plain": _outcome(plain, name), **asdict(after[name])}
                        if name in after
                        else {"plain": _outcome(plain, name), "outcome": "absent"}
                        for name in names
                    },
                    "fixes": [fix for fix in made if fix["path"] in guilty],
                }
                for guilty, names in found
            ],
        }

    def culprits(
        self, kind: str, files: Sequence[str], plain: Tests, names: Sequence[str]
    ) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """The files whose fixes change how tests end, with these tests."""
        still = self.otherwise(kind, files, plain, names) if names else []
        if not still:
            return
        if len(files) == 1:
            yield files, still
            return
        left = set(still)
        for half in (files[: len(files) // 2], files[len(files) // 2 :]):
            for guilty, tests in self.culprits(kind, half, plain, still):
                left.difference_update(tests)
                yield guilty, tests
        if left:
            yield files, sorted(left)

    def otherwise(
        self, kind: str, files: Sequence[str], plain: Tests, names: Sequence[str]
    ) -> list[str]:
        """Which of these tests end otherwise where only these files are fixed."""
        say(f"{self.package.name}: {len(names)} tests again, with {len(files)} files fixed")
        for path in files:
            shutil.copy2(self.trees[kind] / path, self.trees["trial"] / path)
        where = {plain[name].node for name in names if name in plain and plain[name].node}
        try:
            tests = self.run("trial", sorted(where) or self.package.tests)
        finally:
            for path in files:
                shutil.copy2(self.trees["plain"] / path, self.trees["trial"] / path)
        return [name for name in names if _outcome(plain, name) != _outcome(tests, name)]


def ended(report: Path) -> Tests:
    """How each test ended, as pytest wrote it."""
    found: Tests = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        bad = [child for child in case if child.tag in ("failure", "error", "skipped")]
        said = (bad[0].get("message") or "").strip().split("\n")[0][:200] if bad else ""
        found[name] = Ended(bad[0].tag if bad else "passed", _node(case), said)
    return found


def _node(case: ET.Element) -> str:
    file, name = case.get("file") or "", case.get("name") or ""
    module = file.removesuffix(".py").replace("/", ".")
    classes = (case.get("classname") or "").removeprefix(module).strip(".")
    return "::".join([file, *(classes.split(".") if classes else ()), name]) if file else ""


def _outcome(tests: Tests, name: str) -> str:
    return tests[name].outcome if name in tests else "absent"


# -- the page ---------------------------------------------------------------------------------------


def page(results: Mapping[str, Any]) -> str:
    """The tables, and what differs."""
    about, rows = results["machine"], results["packages"]
    lines = [
        "# Packages' own tests with every fix made",
        "",
        (
            f"Written by `make bench-package-tests`: {about['cpu']}, {about['cores']} cores, Python "
            f"{about['python']}, torch {results['torch']}. A part of each package's own tests, as it is, "
            "with all safe fixes, and with all safe and unsafe ones. A fix is run where the tests run a "
            "line of its finding; unsteady tests differ without a fix too."
        ),
        "",
    ]
    head = ["package", "tests passed", "s"]
    for words in ("safe fixes", "all fixes"):
        head += [words, "of them run", "tests that differ", "unsteady"]
    body = []
    for name, row in rows.items():
        cells = [f"{name} {row['version'][:10]}", str(row["outcomes"].get("passed", 0))]
        cells.append(str(row["seconds"]))
        for kind in KINDS:
            made = row[kind]["fixes"]
            cells += [str(len(made)), str(sum(fix["run"] for fix in made))]
            cells.append(str(sum(len(one["tests"]) for one in row[kind]["otherwise"])))
            cells.append(str(len(row[kind]["unsteady"])))
        body.append(cells)
    lines += [*table(head, body), "", *_by_rule(rows)]
    for kind, title in zip(KINDS, ("safe", "all"), strict=True):
        lines += [f"## Tests that differ with {title} fixes", ""]
        found = [(n, one) for n, row in rows.items() for one in row[kind]["otherwise"]]
        for name, one in found:
            lines += _differing(name, one)
        lines += [] if found else ["None.", ""]
    return "\n".join(lines)


def _by_rule(rows: Mapping[str, Any]) -> list[str]:
    made = [fix for row in rows.values() for fix in row["unsafe"]["fixes"]]
    count = Counter((fix["code"], fix["safety"]) for fix in made)
    ran = Counter((fix["code"], fix["safety"]) for fix in made if fix["run"])
    body = [[*key, str(number), str(ran[key])] for key, number in sorted(count.items())]
    return ["## By rule", "", *table(["rule", "fix", "made", "run by the tests"], body), ""]


def _differing(package: str, one: Mapping[str, Any]) -> list[str]:
    lines = [f"### {package}: {', '.join(one['files'])}", ""]
    for name, how in list(one["tests"].items())[:MOST]:
        said = f": {how['said']}" if how.get("said") else ""
        lines.append(f"- `{name}`: {how['plain']}, then {how['outcome']}{said}")
    if len(one["tests"]) > MOST:
        lines.append(f"- and {len(one['tests']) - MOST} more")
    lines += ["", "Fixes there:", ""]
    for fix in one["fixes"]:
        where = f"line {fix['line']}{'' if fix['run'] else ', not run'}"
        lines.append(f"- {where}: {fix['code']} ({fix['safety']}): {fix['message']}")
    return [*lines, ""]


def say(text: str) -> None:
    print(f"bench_package_tests: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
