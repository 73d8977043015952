"""What benches of timing share: runs of this project's plugin and of the tools beside it, and a busy core.

A suite for the peers is a pytest file with one test, `test_call`, that takes its names from the variable
NAMES, and a script `arm.py` for pyperf that takes its one from NAME. `CLOCK` is the conftest file beside
them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from bench_lint import BenchError, version_of

PEERS = ("pytest-benchmark", "pytest-codspeed", "pyperf")
LONGER = ("--benchmark-max-time=20",)
"""pytest-benchmark plans its rounds from one call, the first and slowest, and so ends long before its time
is up; with this it takes about what a verdict takes here."""

# The seconds of every test, as the run that waits for them sees them; workers write none.
CLOCK = """\
import json
import os
import time

STARTED = {}


def pytest_runtest_logstart(nodeid, location):
    STARTED[nodeid] = time.monotonic()


def pytest_runtest_logfinish(nodeid, location):
    with open(os.environ["SECONDS"], "a") as file:
        print(json.dumps([nodeid, time.monotonic() - STARTED[nodeid]]), file=file)
"""

BUSY = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def busy_core(*, wanted: bool) -> Iterator[None]:
    """Keeps one core busy; the process ends with the block, and by itself where this one is killed."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
        if process.poll() is not None:
            raise BenchError("the busy process ended before its time")
    finally:
        process.kill()
        process.wait()


def own_rows(
    folder: Path, *flags: str, limit: float | None = None
) -> tuple[dict[str, dict[str, Any]], dict[str, float]]:
    """By node id, what a run of `pytest --overhead-budget` says of each test, and the seconds it took."""
    (folder / "seconds").unlink(missing_ok=True)
    (folder / "out.json").unlink(missing_ok=True)
    here = entry_points(group="pytest11", name="dispatchguard")
    known = () if here else ("-p", "pytest_dispatchguard.plugin")
    command = [sys.executable, "-m", "pytest", *known, "-q", "-p", "no:cacheprovider"]
    command += ["-p", "no:randomly", "--overhead-budget=check", "--overhead-json=out.json", *flags]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(SECONDS="seconds"),
        capture_output=True,
        text=True,
        timeout=limit,
    )
    if done.returncode not in (0, 1) or not (folder / "out.json").exists():
        raise BenchError(
            f"pytest exited with {done.returncode}: {(done.stdout + done.stderr)[-800:]}"
        )
    rows = {row["nodeid"]: row for row in json.loads((folder / "out.json").read_text())["tests"]}
    return rows, read_seconds(folder / "seconds")


def read_seconds(path: Path) -> dict[str, float]:
    """What the suites' conftest wrote."""
    return dict(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


def environment(**more: str) -> dict[str, str]:
    """The variables of this process, but those that keep Python from using what it has compiled, and with
    the project's own folder where it runs from its checkout."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON") or k == "PYTHONPATH"}
    return {**kept, **more}


@dataclass(frozen=True, slots=True)
class Peer:
    """A tool beside this one."""

    name: str
    run: Callable[[list[str]], Mapping[str, Any]]
    """A run: by name, what it says of a call, and the seconds it took."""
    compare: Callable[[Mapping[str, Any], Mapping[str, Any], float], tuple[str, float | None]]
    """What two such runs say together, and how many times dearer the second is; the number is the limit,
    for tools that know one."""


def peers(python: Path, folder: Path, suite: str) -> list[Peer]:
    """The peers, for the suite of that name in that folder."""
    benchmark = partial(_benchmark_run, python, folder, suite)
    return [
        Peer("pytest-benchmark", benchmark, _grown),
        Peer("pytest-benchmark, given as long", partial(benchmark, flags=LONGER), _grown),
        Peer("pytest-codspeed", partial(_codspeed_run, python, folder, suite), _grown),
        Peer("pyperf", partial(_pyperf_run, python, folder), partial(_pyperf_compared, python)),
    ]


def peer_python(home: Path, versions: MutableMapping[str, Any]) -> Path:
    """The Python of an environment that has the peers and the same torch; their versions are noted."""
    folder = home / "timing-peers"
    python = folder / "bin" / "python"
    torch = version_of("torch").partition("+")[0]
    if not (folder / "made").exists():
        print("installing the peers", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, symlinks=True)
        pip = [str(python), "-m", "pip", "install", "-q", *PEERS, f"torch=={torch}"]
        if subprocess.run(pip, check=False, env=_peer_environment()).returncode != 0:
            raise BenchError("the peers could not be installed; --no-peers leaves them out")
        (folder / "made").touch()
    asked = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    said = subprocess.run(
        [str(python), "-c", asked, *PEERS], check=True, capture_output=True, text=True
    )
    versions.update(zip(PEERS, said.stdout.split(), strict=True))
    return python


def plain_environment() -> dict[str, str]:
    """The variables of this process, but those that change what Python does."""
    return {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}


def _peer_environment(**more: str) -> dict[str, str]:
    """Of the peers: nothing of this project's."""
    return {**plain_environment(), "OMP_NUM_THREADS": "1", **more}


def _grown(
    before: Mapping[str, float], after: Mapping[str, float], limit: float
) -> tuple[str, float]:
    ratio = after["value"] / before["value"]
    return ("fail" if ratio > limit else "pass"), ratio


def _peer_pytest(
    python: Path, folder: Path, suite: str, names: list[str], *flags: str
) -> dict[str, float]:
    """One run of a peer's pytest plugin: the seconds of its tests."""
    (folder / "seconds").unlink(missing_ok=True)
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *flags, suite],
        cwd=folder,
        env=_peer_environment(NAMES=json.dumps(names), SECONDS="seconds"),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise BenchError(
            f"a peer exited with {done.returncode}: {(done.stdout + done.stderr)[-800:]}"
        )
    return read_seconds(folder / "seconds")


def _benchmark_run(
    python: Path, folder: Path, suite: str, names: list[str], flags: Sequence[str] = ()
) -> dict[str, Any]:
    """By name, the mean that pytest-benchmark saves."""
    common = ("-p", "no:codspeed", "--benchmark-json=saved.json")
    seconds = _peer_pytest(python, folder, suite, names, *common, *flags)
    rows = json.loads((folder / "saved.json").read_text(encoding="utf-8"))["benchmarks"]
    return {
        row["params"]["name"]: {
            "value": row["stats"]["mean"],
            "seconds": seconds[f"{suite}::{row['name']}"],
        }
        for row in rows
    }


def _codspeed_run(python: Path, folder: Path, suite: str, names: list[str]) -> dict[str, Any]:
    """By name, the median that pytest-codspeed writes."""
    for old in (folder / ".codspeed").glob("*.json"):
        old.unlink()
    flags = ("-p", "no:benchmark", "--codspeed", "--codspeed-mode=walltime")
    seconds = _peer_pytest(python, folder, suite, names, *flags)
    (written,) = (folder / ".codspeed").glob("*.json")
    rows = json.loads(written.read_text(encoding="utf-8"))["benchmarks"]
    out = {}
    for row in rows:
        name = row["name"].partition("[")[2].removesuffix("]")
        node = f"{suite}::test_call[{name}]"
        out[name] = {"value": row["stats"]["median_ns"], "seconds": seconds[node]}
    return out


def _pyperf_run(python: Path, folder: Path, names: list[str]) -> dict[str, Any]:
    """By name, the file that pyperf writes."""
    out = {}
    for name in names:
        number = len(list(folder.glob("pyperf-*.json")))
        path = folder / f"pyperf-{number}.json"
        start = time.monotonic()
        done = subprocess.run(
            [
                str(python),
                "arm.py",
                "-q",
                "-o",
                path.name,
                "--inherit-environ=NAME,OMP_NUM_THREADS",
            ],
            cwd=folder,
            env=_peer_environment(NAME=name),
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise BenchError(f"pyperf exited with {done.returncode}: {done.stderr[-800:]}")
        out[name] = {"value": str(path), "seconds": time.monotonic() - start}
    return out


def _pyperf_compared(
    python: Path, before: Mapping[str, Any], after: Mapping[str, Any], limit: float
) -> tuple[str, float | None]:
    """What `compare_to` says at its defaults: it knows of no limit."""
    command = [str(python), "-m", "pyperf", "compare_to", before["value"], after["value"]]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=_peer_environment()
    )
    said = done.stdout
    found = re.search(r"(\d+\.\d+)x (slower|faster)", said)
    ratio = None if found is None else float(found[1])
    if found is not None and ratio is not None and found[2] == "faster":
        ratio = 1 / ratio
    slower = "slower" in said and "not significant" not in said.lower()
    return ("fail" if slower else "pass"), ratio
