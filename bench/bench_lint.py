"""Measures the linter against its peers on one tree, in one run, side by side.

    python bench/bench_lint.py            # downloads keras==3.15.1 into a temporary folder
    python bench/bench_lint.py FOLDER     # or takes a package that lies there

Tests are left out of the tree. Every Python tool gets an environment of its own, installed as its users
install it; `ruff` comes from this environment. The table goes to stdout, the same numbers with the machine
they are from to bench/results/lint.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results" / "lint.json"
KERAS = "keras==3.15.1"
HOME = Path(__file__).resolve().parent.parent
PEERS = {"torchfix": "TorchFix", "fixit": "fixit"}
GOALS = {
    "cold against ruff": 3.0,
    "times faster a line than peers": 30.0,
    "warm s": 0.25,
    "peak MiB": 400.0,
}


class BenchError(Exception):
    """Something is missing that the measurement needs; the message says what."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Files to lint, in a folder that is a project of its own."""

    root: Path
    files: tuple[Path, ...]
    lines: int


@dataclass(slots=True)
class Series:
    """The same command, run several times."""

    name: str
    lines: int
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def lines_per_second(self) -> float:
        return self.lines / self.median


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "package", nargs="?", type=Path, help=f"a package folder (default: {KERAS})"
    )
    parser.add_argument(
        "--repeats", type=int, default=9, help="runs of the fast commands (default: 9)"
    )
    parser.add_argument("--peer-repeats", type=int, default=1, help="runs of the slow ones")
    parser.add_argument("--no-peers", action="store_true", help="leave TorchFix and Fixit out")
    parser.add_argument("--venvs", type=Path, help="keep the environments in this folder")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--seed", type=int, default=0, help="of the order of runs")
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-lint-") as scratch:
            results = measure(options, Path(scratch))
    except BenchError as error:
        print(f"bench_lint: {error}", file=sys.stderr)
        return 2
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))
    return 0


def measure(options: argparse.Namespace, scratch: Path) -> dict[str, object]:
    """All measurements, in an order that favours nobody."""
    package, label = options.package, "a given package"
    if package is None:
        package, label = download(scratch / "download"), KERAS
    elif not package.is_dir():
        raise BenchError(f"{package} is no folder")
    else:
        label = package.name
    rng = random.Random(options.seed)
    home = options.venvs or scratch / "venvs"
    linter = (
        str(installed(home / "dispatchguard", "dispatchguard", str(HOME))),
        "check",
        "--exit-zero",
    )
    tree = copied(package, library_files(package), scratch / "tree")
    say(f"{label}: {len(tree.files)} files, {tree.lines:,} lines, tests left out")
    same = same_findings(tree, linter)
    cold = interleaved(
        {
            "dispatchguard, cold": (tree, lambda: run((*linter, "--no-cache", "."), tree.root)),
            "ruff --select ALL, cold": (tree, lambda: run(ruff(), tree.root)),
        },
        options.repeats,
        rng,
    )
    warm = warm_runs(tree, linter, options.repeats, rng)
    peak = peak_memory((*linter, "--no-cache", "."), tree.root)
    peers: dict[str, Series] = {}
    if not options.no_peers:
        peers = peer_runs(tree, options, home, rng)
    return report(label, tree, same, cold, warm, peak, peers, options)


# -- what is linted ---------------------------------------------------------------------------------


def download(folder: Path) -> Path:
    """The published wheel, unpacked."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", str(folder), KERAS]
    if subprocess.run(command, check=False).returncode != 0:
        raise BenchError(f"{KERAS} could not be downloaded; name a folder that has it")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder / "keras"


def library_files(package: Path) -> list[Path]:
    """The Python files of a package that are no tests."""

    def is_test(path: Path) -> bool:
        named = (
            path.stem.startswith("test_") or path.stem.endswith("_test") or path.stem == "conftest"
        )
        return named or bool(
            {"tests", "testing", "test"} & set(path.relative_to(package).parts[:-1])
        )

    return sorted(p for p in package.rglob("*.py") if not is_test(p))


def copied(package: Path, files: Sequence[Path], root: Path) -> Tree:
    """A project of these files alone, so that all linters see the same."""
    made = []
    lines = 0
    for file in files:
        place = root / package.name / file.relative_to(package)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
        lines += file.read_bytes().count(b"\n")
        made.append(place)
    (root / "pyproject.toml").write_text('[project]\nname = "linted"\n', encoding="utf-8")
    return Tree(root, tuple(made), lines)


# -- running ----------------------------------------------------------------------------------------


def run(command: Sequence[str], cwd: Path) -> float:
    """Seconds of a whole process; findings are no failure, anything else is."""
    start = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=cwd,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    seconds = time.perf_counter() - start
    if done.returncode not in (0, 1):
        raise BenchError(
            f"{Path(command[0]).name} exited with {done.returncode}: {done.stderr[-500:]}"
        )
    return seconds


def environment() -> dict[str, str]:
    """The variables of this process, but those that keep Python from using what it has compiled."""
    return {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}


def ruff() -> tuple[str, ...]:
    """The command of the ruff in this environment, or on PATH."""
    beside = Path(sys.executable).with_name("ruff")
    found = str(beside) if beside.exists() else shutil.which("ruff")
    if found is None:
        raise BenchError("ruff is not installed: pip install ruff")
    return (found, "check", "--isolated", "--select", "ALL", "--no-cache", "--exit-zero", "-q", ".")


def interleaved(
    commands: Mapping[str, tuple[Tree, Callable[[], float]]], repeats: int, rng: random.Random
) -> dict[str, Series]:
    """Every command once a round, in random order: a busy minute hits all alike."""
    series = {name: Series(name, tree.lines) for name, (tree, _) in commands.items()}
    for round_ in range(repeats):
        order = list(commands)
        rng.shuffle(order)
        for name in order:
            say(f"{name}, run {round_ + 1} of {repeats}")
            series[name].seconds.append(commands[name][1]())
    return series


EDITED = "    def __call__(self, *args, **kwargs):\n"
"""The beginning of a hot method of the file that is edited."""
IMPORTED = "import warnings\n"
"""An import of that file."""
CALLED = "count_params"
"""A method beside it that it does not call."""


def warm_runs(
    tree: Tree, linter: Sequence[str], repeats: int, rng: random.Random
) -> dict[str, Series]:
    """The whole process with a filled cache, by itself and asking a daemon: nothing changed; a comment put
    in, which moves all lines of a file; a statement changed in a hot function; a function added; a call
    added to a hot function, of what there is not, of what there is and was not hot, and of what is added as
    well; an import added. Each edit is one of the file as it was, which is linted in between."""
    file = max(tree.files, key=lambda p: (p.name == "layer.py", p.as_posix()))
    before = file.read_bytes()
    comment = b"# edited %d\n"
    start = EDITED.encode()
    edits: dict[str, Callable[[int], bytes]] = {
        "nothing changed": lambda i: before,
        "lines of one file moved": lambda i: comment % i + before,
        "a statement changed": lambda i: before.replace(start, start + b"        assert %d\n" % i),
        "a function added": lambda i: before + b"\n\ndef added_%d():\n    return %d\n" % (i, i),
        "a call added that leads nowhere": lambda i: before.replace(
            start, start + b"        self.added_%d()\n" % i
        ),
        "a call added that leads on": lambda i: before.replace(
            start, start + b"        self.%s(%d)\n" % (CALLED.encode(), i)
        ),
        "a function added, and called": lambda i: (
            before.replace(start, start + b"        added_%d(self)\n" % i)
            + b"\n\ndef added_%d(layer):\n    return layer.%s()\n" % (i, CALLED.encode())
        ),
        "an import added": lambda i: before.replace(
            IMPORTED.encode(), b"%simport math  # %d\n" % (IMPORTED.encode(), i), 1
        ),
    }
    ways = {"": (*linter, "."), "asking a daemon, ": (*linter, "--daemon", ".")}
    out = {}
    with daemon(linter, tree) as served:
        for name, edit in edits.items():
            series = {way: Series(f"dispatchguard, warm, {way}{name}", tree.lines) for way in ways}
            for _ in range(repeats):
                for way in rng.sample(list(ways), len(ways)):
                    file.write_bytes(before)
                    run(ways[way], tree.root)
                    file.write_bytes(edit(rng.randrange(1, 10**9)))
                    series[way].seconds.append(run(ways[way], tree.root))
            for one in series.values():
                say(f"{one.name}: {one.median:.2f} s")
                out[one.name] = one
        if served() != 2 * len(edits) * repeats:
            raise BenchError(
                "not all runs were done by the daemon; was something installed meanwhile?"
            )
    file.write_bytes(before)
    return out


@contextmanager
def daemon(linter: Sequence[str], tree: Tree) -> Iterator[Callable[[], int]]:
    """A daemon that waits for commands, as one does after the first of them; of this bench alone. Gives how
    many it has done."""

    def served() -> int:
        told = subprocess.run(tell, check=False, capture_output=True, text=True, env=environment())
        found = re.search(r"runs so far: (\d+)", told.stdout)
        return -1 if found is None else int(found[1])

    tell = (linter[0], "daemon")
    old = os.environ.get("XDG_RUNTIME_DIR")
    with tempfile.TemporaryDirectory(prefix="bl-") as folder:  # part of a socket's path: short
        os.environ["XDG_RUNTIME_DIR"] = folder
        try:
            time.sleep(1.5)  # what was installed just now may have been imported before
            run((*linter, "--daemon", "."), tree.root)
            until = time.monotonic() + 60
            while served() < 0:
                if time.monotonic() > until:
                    raise BenchError("the daemon does not begin; see `dispatchguard daemon`")
                time.sleep(0.1)
            yield served
        finally:
            run((*tell, "--stop"), tree.root)
            if old is None:
                del os.environ["XDG_RUNTIME_DIR"]
            else:
                os.environ["XDG_RUNTIME_DIR"] = old


def same_findings(tree: Tree, linter: Sequence[str]) -> dict[str, object]:
    """Whether one process, two, a cold cache and a warm one say the same, byte by byte."""
    outputs = {}
    ways = {
        "jobs 1": ("--no-cache", "--jobs", "1"),
        "jobs 2": ("--no-cache", "--jobs", "2"),
        "cache, cold": ("--jobs", "2"),
        "cache, warm": ("--jobs", "2"),
    }
    for name, extra in ways.items():
        say(f"findings with {name}")
        command = (*linter, "--format", "json", *extra, ".")
        done = subprocess.run(
            command, cwd=tree.root, check=False, capture_output=True, env=environment()
        )
        if done.returncode != 0:
            raise BenchError(
                f"dispatchguard exited with {done.returncode}: {done.stderr.decode()[-500:]}"
            )
        outputs[name] = done.stdout
    count = len(json.loads(outputs["jobs 1"])["findings"])
    return {"same": len(set(outputs.values())) == 1, "ways": list(ways), "findings": count}


# -- memory -----------------------------------------------------------------------------------------


def peak_memory(command: Sequence[str], cwd: Path) -> dict[str, object]:
    """The most memory that the process and its children hold at one time, in MiB. Pages that processes
    share are counted once where the system says how many share them (Linux)."""
    say("peak memory")
    process = subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    )
    if not Path("/proc/self/smaps_rollup").exists():
        import resource

        process.wait()
        unit = 1 if sys.platform == "darwin" else 1024
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
        return {"mib": round(largest / 2**20, 1), "of": "the largest process"}
    peak = 0
    stop = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not stop.wait(0.02):
            peak = max(peak, sum(proportional_kib(pid) for pid in family(process.pid)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.wait()
    stop.set()
    watcher.join()
    return {"mib": round(peak / 1024, 1), "of": "all processes together (PSS)"}


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    out = [pid]
    for parent in out:
        try:
            for children in Path(f"/proc/{parent}/task").glob("*/children"):
                out.extend(int(c) for c in children.read_text().split())
        except OSError:
            continue
    return out


def proportional_kib(pid: int) -> int:
    """What a process holds, shared pages divided among those who share them."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


# -- peers ------------------------------------------------------------------------------------------


def peer_runs(
    tree: Tree, options: argparse.Namespace, home: Path, rng: random.Random
) -> dict[str, Series]:
    """TorchFix and Fixit on the whole tree, as they come, all processors theirs. TorchFix passes over files
    that do not mention torch, so only the lines of the others count for it."""
    top = tree.files[0].relative_to(tree.root).parts[0]
    commands: dict[str, tuple[Tree, Callable[[], float]]] = {}
    for name, requirement in PEERS.items():
        tool = installed(home / name, name, requirement)
        line = (str(tool), "lint", top) if name == "fixit" else (str(tool), top)
        read = mentioning_torch(tree) if name == "torchfix" else tree
        commands[f"{requirement} {peer_version(tool)}"] = (read, partial(run, line, tree.root))
    return interleaved(commands, options.peer_repeats, rng)


def mentioning_torch(tree: Tree) -> Tree:
    """The part of a tree that TorchFix reads."""
    files = tuple(f for f in tree.files if b"torch" in f.read_bytes())
    return Tree(tree.root, files, sum(f.read_bytes().count(b"\n") for f in files))


def installed(folder: Path, tool: str, requirement: str) -> Path:
    """A tool's command, in an environment of its own, made where it is not there yet."""
    command = folder / "bin" / tool
    if not command.exists() or requirement == str(HOME):
        say(f"installing {tool}")
        venv.create(folder, with_pip=True, symlinks=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", requirement]
        if subprocess.run(pip, check=False).returncode != 0:
            raise BenchError(
                f"{tool} could not be installed; peers can be left out with --no-peers"
            )
    return command


def peer_version(tool: Path) -> str:
    """What a peer says its version is."""
    done = subprocess.run([tool, "--version"], check=False, capture_output=True, text=True)
    found = re.search(r"\d+(?:\.\d+)+", done.stdout + done.stderr)
    return found.group() if found else ""


# -- results ----------------------------------------------------------------------------------------


def report(
    label: str,
    tree: Tree,
    same: dict[str, object],
    cold: dict[str, Series],
    warm: dict[str, Series],
    peak: dict[str, object],
    peers: dict[str, Series],
    options: argparse.Namespace,
) -> dict[str, object]:
    """Everything measured, as JSON, without a path of this machine in it."""
    mine, theirs = cold["dispatchguard, cold"], cold["ruff --select ALL, cold"]
    rates = {
        name: round(mine.lines_per_second / s.lines_per_second, 1) for name, s in peers.items()
    }
    met = {
        "cold against ruff": mine.median / theirs.median <= GOALS["cold against ruff"],
        **{name: s.median <= GOALS["warm s"] for name, s in warm.items()},
        "peak memory": float(str(peak["mib"])) <= GOALS["peak MiB"],
        "same findings": bool(same["same"]),
        **{
            f"against {name}": rate >= GOALS["times faster a line than peers"]
            for name, rate in rates.items()
        },
    }
    return {
        "machine": machine(),
        "tree": {
            "package": label,
            "files": len(tree.files),
            "lines": tree.lines,
            "tests": "left out",
        },
        "versions": {
            "dispatchguard": version_of("pytest-dispatchguard"),
            "ruff": version_of("ruff"),
            "libcst": version_of("libcst"),
        },
        "seed": options.seed,
        "series": [
            {**asdict(s), "median": s.median, "lines_per_second": round(s.lines_per_second)}
            for s in (*cold.values(), *warm.values(), *peers.values())
        ],
        "ratio_to_ruff": round(mine.median / theirs.median, 2),
        "times_faster_a_line": rates,
        "peak_memory": peak,
        "same_findings": same,
        "goals": GOALS,
        "met": met,
    }


def machine() -> dict[str, object]:
    """Where the numbers are from."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def version_of(package: str) -> str:
    """An installed version; empty for what runs from its checkout."""
    try:
        return version(package)
    except ImportError:
        return ""


def table(results: dict[str, object]) -> str:
    """The numbers for people."""
    series = results["series"]
    assert isinstance(series, list)
    width = max(len(s["name"]) for s in series)
    lines = [
        f"{'':{width}}  {'median s':>9}  {'min s':>7}  {'max s':>7}  {'lines':>8}  {'lines/s':>10}"
    ]
    lines += [
        f"{s['name']:{width}}  {s['median']:9.3f}  {min(s['seconds']):7.3f}  {max(s['seconds']):7.3f}  "
        f"{s['lines']:8,}  {s['lines_per_second']:10,}"
        for s in series
    ]
    lines.append("")
    lines.append(f"cold against ruff: {results['ratio_to_ruff']} times its time")
    faster = results["times_faster_a_line"]
    assert isinstance(faster, dict)
    lines += [f"{rate} times faster a line than {name}" for name, rate in faster.items()]
    peak, same = results["peak_memory"], results["same_findings"]
    assert isinstance(peak, dict) and isinstance(same, dict)
    lines.append(f"peak memory: {peak['mib']} MiB, {peak['of']}")
    verdict = "the same" if same["same"] else "NOT the same"
    lines.append(f"{same['findings']} findings, {verdict} with {', '.join(same['ways'])}")
    met = results["met"]
    assert isinstance(met, dict)
    lines += [f"goal {'met' if ok else 'MISSED'}: {name}" for name, ok in met.items()]
    return "\n".join(lines)


def say(text: str) -> None:
    """Progress, apart from the table."""
    print(f"bench_lint: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
