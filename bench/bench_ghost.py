"""Programs for a GPU on a machine without one: the same results, and where do they wait?

    python bench/bench_ghost.py [--venvs FOLDER]

Small programs that know nothing of this project (bench/ghost_programs), over torch alone, torchmetrics
and transformers, and a test script that accelerate ships. Each runs on the CPU, and by `dispatchguard run
--ghost` as for `cuda`; what they print is compared. The libraries are installed into an environment of
their own. Written to bench/results/ghost.json and ghost.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench_lint import BenchError, machine, version_of
from publishing import publish

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results" / "ghost.json"
LIBRARIES = ("numpy", "torchmetrics", "transformers", "accelerate")
PROGRAMS = ("resnet", "transformer_amp", "generation", "metrics", "transformers_library")
MODULES = ("accelerate.test_utils.scripts.test_script",)
"""Of the libraries; they find their device themselves and fail where something is wrong."""
TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one program."""

    program: str
    same: bool
    waits: int
    lines: int
    """Of the program and its libraries, where it waited."""
    dearest: Sequence[str]
    """The lines that waited most."""
    cpu_s: float
    ghost_s: float


def main(arguments: Sequence[str] | None = None) -> int:
    return published("bench_ghost", wishes(__doc__, RESULTS).parse_args(arguments), measure)


def wishes(about: str | None, results: Path) -> argparse.ArgumentParser:
    """The options of a bench that has an environment of its own."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--venvs", type=Path, help="keep the environment in this folder")
    parser.add_argument("--output", type=Path, default=results)
    return parser


def published(
    name: str,
    options: argparse.Namespace,
    measure: Callable[[argparse.Namespace, Path], tuple[dict[str, Any], str]],
) -> int:
    """Measures, prints the page, writes it and the numbers; the exit status."""
    try:
        with tempfile.TemporaryDirectory(prefix=f"{name}-") as scratch:
            results, text = measure(options, Path(scratch))
    except BenchError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    publish(options.output, results, text)
    return 0


def measure(options: argparse.Namespace, scratch: Path) -> tuple[dict[str, Any], str]:
    """All programs, as numbers and as a page."""
    python, versions = environment((options.venvs or scratch) / "ghost-programs", LIBRARIES)
    outcomes = [both(python, program, scratch) for program in (*PROGRAMS, *MODULES)]
    rows = [asdict(outcome) for outcome in outcomes]
    results = {"machine": machine(), "versions": versions, "tolerance": TOLERANCE, "programs": rows}
    return results, table(outcomes, versions)


def environment(home: Path, libraries: Sequence[str]) -> tuple[Path, dict[str, str]]:
    """The Python of an environment with torch, libraries and this project, and their versions."""
    python = libraries_in(home, libraries)
    project = [str(python), "-m", "pip", "install", "-q", str(ROOT)]
    anew = [*project, "--force-reinstall", "--no-deps"]  # of the same version, and perhaps changed
    for command in (project, anew):
        if subprocess.run(command, check=False, env=clean()).returncode != 0:
            raise BenchError("this project could not be installed beside the libraries")
    return python, versions_in(python, ("torch", *libraries))


def libraries_in(home: Path, libraries: Sequence[str]) -> Path:
    """The Python of an environment with torch and libraries."""
    python = home / "bin" / "python"
    torch = version_of("torch").partition("+")[0]
    if not torch:
        raise BenchError("torch is not installed in this environment")
    if not (home / "made").exists():
        say("installing the libraries")
        venv.create(home, with_pip=True, symlinks=True)
        pip = [str(python), "-m", "pip", "install", "-q", *libraries, f"torch=={torch}"]
        if subprocess.run(pip, check=False, env=clean()).returncode != 0:
            raise BenchError("the libraries could not be installed")
        (home / "made").touch()
    return python


def versions_in(python: Path, libraries: Sequence[str]) -> dict[str, str]:
    """The versions that an environment has of libraries."""
    asked = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    names = [library.partition("==")[0] for library in libraries]
    said = subprocess.run(
        [str(python), "-c", asked, *names], check=True, capture_output=True, text=True, env=clean()
    )
    return dict(zip(names, said.stdout.split(), strict=True))


def clean() -> dict[str, str]:
    """The variables of this process, but those that would bring its own packages."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return {**kept, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}


def both(python: Path, program: str, scratch: Path) -> Outcome:
    """Runs a program on the CPU and on the ghost."""
    say(program)
    own = program in PROGRAMS
    file = HERE / "ghost_programs" / f"{program}.py"
    report = scratch / "report.json"
    on_cpu = [str(file), "cpu"] if own else ["-m", program]
    on_ghost = [str(file), "cuda"] if own else ["-m", program]
    ghost = ["-m", "pytest_dispatchguard.cli", "run", "--ghost", "--exit-zero", "--format=json"]
    expected, cpu_s = run([str(python), *on_cpu], scratch)
    found, ghost_s = run([str(python), *ghost, "--output", str(report), *on_ghost], scratch)
    told = json.loads(report.read_text(encoding="utf-8"))
    notes = [int(note.split()[0]) for note in told["summary"]["notes"] if "more wait" in note]
    rows = sorted(told["findings"], key=lambda row: -times(row["message"]))
    return Outcome(
        program,
        alike(last(expected), last(found)) if own else True,
        sum(times(row["message"]) for row in rows) + sum(notes),
        len(rows),
        [f"{Path(row['path']).name}:{row['line']} {row['message']}" for row in rows[:5]],
        round(cpu_s, 1),
        round(ghost_s, 1),
    )


def run(command: Sequence[str], folder: Path) -> tuple[str, float]:
    """What a program says, and the seconds it takes."""
    start = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env=clean(), check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise BenchError(
            f"{command[-2:]} ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}"
        )
    return done.stdout, time.monotonic() - start


def last(said: str) -> Any:
    return json.loads(said.strip().splitlines()[-1])


def alike(one: Any, other: Any) -> bool:
    """Whether results are the same, numbers within the tolerance."""
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-6)


def times(message: str) -> int:
    """How often the host waited, as a message says it."""
    words = message.partition("made the host wait ")[2].split()
    return 1 if not words or words[0].startswith("once") else int(words[0])


def table(outcomes: Sequence[Outcome], versions: Mapping[str, str]) -> str:
    """The results for people."""
    about = machine()
    lines = [
        "# Programs for a GPU, on the ghost",
        "",
        f"`make bench-ghost` on {about['cpu']}, {about['cores']} cores, Python {about['python']}; "
        + ", ".join(f"{name} {number}" for name, number in versions.items())
        + ".",
        "",
        "| program | same as on the CPU | waits | lines | s on the CPU | s on the ghost |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {o.program} | {'yes' if o.same else 'NO'} | {o.waits} | {o.lines} | {o.cpu_s} | {o.ghost_s} |"
        for o in outcomes
    ]
    lines += ["", "Seconds are of whole processes, imports included.", ""]
    for outcome in outcomes:
        lines += [f"{outcome.program}:", "", *(f"- {text}" for text in outcome.dearest), ""]
    return "\n".join(lines)


def say(text: str) -> None:
    """Progress, apart from the table."""
    print(f"bench_ghost: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
