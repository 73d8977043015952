"""Runs on a machine with a GPU what is skipped on others: `make gpu`, ten minutes at most.

    python bench/bench_gpu.py                   # all steps
    python bench/bench_gpu.py --dry             # the same programme on a machine without a GPU, in little
    python bench/bench_gpu.py --only waits      # this step; may be repeated

Needs this project with its `dev` extra and a torch with CUDA. The Keras step needs two releases of Keras and
what they need: it takes them from the folder that `--keras` names, `build/keras` by default. Without internet
on that machine, fill the folder on another with `python bench/bench_keras.py build/keras --fetch`.

Each step runs in a process of its own, with a share of the time that is left; whatever takes longer is ended
with all that it started. Results are in bench/results/gpu: those of each step, what it said in its .log, and
the whole in gpu.json and gpu.md, written anew after each step. A dry run writes to build/gpu-dry.

Exit status: 0 if all that could run held, 1 if something failed, 2 if the command is wrong or there is no
GPU. Steps that were skipped are told with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench_keras import VERSIONS
from bench_lint import HOME
from publishing import RESULTS, save, table, whole

from pytest_dispatchguard.report.progress import progress

BENCH = Path(__file__).resolve().parent
MINUTES = 10.0
GRACE = 5.0
"""Seconds between asking a step to end and ending it."""
Process = tuple[int, str]
"""Its number, and when it began."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the programme: a script in this folder, which takes `--output`."""

    name: str
    about: str
    share: float
    """Of the time, beside the shares of the other steps: about the seconds that it takes."""
    script: str
    words: tuple[str, ...] = ()
    dry: tuple[str, ...] = ("--dry",)
    """The words instead where there is no GPU."""


SHORT_REVISIONS = ("--conditions", "quiet", "--no-peers", "--runs", "1")
SHORT_NOISE = ("--conditions", "quiet", "--no-peers", "--targets", "1", "--repeats", "1")
STEPS = (
    Step("tests", "the tests that need CUDA", 60, "gpu/cuda_tests.py"),
    Step("waits", "whether the GPU waits where the ghost does", 60, "bench_waits.py"),
    Step("prices", "what waits cost, idle and behind a queue", 60, "gpu/wait_prices.py"),
    Step("trace", "a traced training, and the waits planted in it", 30, "gpu/trace_training.py"),
    Step(
        "keras",
        "Keras over eager torch",
        180,
        "bench_keras.py",
        # What the host does is the same for both sizes.
        ("{keras}", "--device", "cuda", "--rounds", "1", "--no-compare", "--tests", "4"),
        ("{keras}", "--dry"),
    ),
    Step(
        "noise",
        "false alarms, and a slowdown of 1%",
        200,
        "bench_noise.py",
        (
            *("--device", "cuda", "--verdicts", "20", "--planted", "10", "--chunk", "15"),
            *("--sizing-seconds", "2", *SHORT_NOISE),
        ),
        ("--verdicts", "1", "--planted", "1", "--sizing-seconds", "0.1", *SHORT_NOISE),
    ),
    Step(
        "revisions",
        "two revisions of calls on the GPU told apart",
        180,
        "bench_revisions.py",
        (
            *("--device", "cuda", "--sizing-seconds", "1", "--sizings", "1", "--copies", "3"),
            *("--kinds", "wrapper", "stack", *SHORT_REVISIONS),
        ),
        (
            *("--sizing-seconds", "0.1", "--sizings", "1", "--copies", "1"),
            *("--kinds", "wrapper", *SHORT_REVISIONS),
        ),
    ),
)


@dataclass(slots=True)
class Came:
    """What came of a step."""

    step: str
    about: str
    status: str = "not run"
    """Or: held, failed, skipped, stopped."""
    reason: str = ""
    wrong: tuple[str, ...] = ()
    limit: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Programme:
    """What is to be run, and where its results go."""

    steps: tuple[Step, ...]
    dry: bool
    seconds: float
    keras: Path
    output: Path

    def command(self, step: Step) -> list[str]:
        words = [word.format(keras=self.keras) for word in (step.dry if self.dry else step.words)]
        return [
            sys.executable,
            str(BENCH / step.script),
            *words,
            "--output",
            str(self.result(step)),
        ]

    def result(self, step: Step) -> Path:
        return self.output / f"{step.name}.json"


def main(arguments: Sequence[str] | None = None) -> int:
    began = time.monotonic()
    programme = parsed(arguments)
    facts = about()
    if isinstance(facts, str):
        print(f"bench_gpu: {facts}", file=sys.stderr)
        return 2
    if not programme.dry and facts["gpu"] is None:
        print(
            "bench_gpu: there is no GPU here: --dry (make gpu DRY=1) does without", file=sys.stderr
        )
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what has run is kept
    came = run(programme, facts, began + programme.seconds)
    print("\n" + page(facts, came, programme))
    if any(one.status == "stopped" for one in came):
        return 130
    return 1 if any(one.status == "failed" for one in came) else 0


def parsed(arguments: Sequence[str] | None) -> Programme:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dry", action="store_true", help="without a GPU")
    parser.add_argument("--only", choices=[step.name for step in STEPS], action="append")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all (default: 10)")
    parser.add_argument("--keras", type=Path, default=HOME / "build" / "keras", metavar="FOLDER")
    parser.add_argument("--output", type=Path, metavar="FOLDER")
    options = parser.parse_args(arguments)
    if not options.minutes > 0:
        parser.error("--minutes: no time is left for anything")
    output = options.output or (HOME / "build" / "gpu-dry" if options.dry else RESULTS / "gpu")
    steps = tuple(step for step in STEPS if not options.only or step.name in options.only)
    return Programme(
        steps, options.dry, 60 * options.minutes, options.keras.absolute(), output.absolute()
    )


def about() -> dict[str, Any] | str:
    """What machine this is, or why torch does not tell."""
    command = [sys.executable, str(BENCH / "gpu" / "about.py")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "torch does not start within two minutes"
    if done.returncode != 0:
        return last_line(done.stderr)
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


# -- the programme -----------------------------------------------------------------------------------


def run(programme: Programme, facts: Mapping[str, Any], end: float) -> list[Came]:
    """Runs all steps that can be run; what came of them is written after each."""
    programme.output.mkdir(parents=True, exist_ok=True)
    came = [Came(step.name, step.about) for step in programme.steps]
    before = earlier(programme, facts)
    todo = list(zip(programme.steps, came, strict=True))
    try:
        for step, one in todo:
            one.reason = missing(step, programme, end)
            if one.reason:
                one.status = "skipped"
                say(f"{step.name} is skipped: {one.reason}")
        todo = [(step, one) for step, one in todo if one.status != "skipped"]
        for number, (step, one) in enumerate(todo):
            left = max(0.0, end - time.monotonic())
            ahead = sum(other.share for other, _ in todo[number:])
            one.limit = round(max(0.0, left - GRACE) * step.share / ahead, 1)
            title = f"[{number + 1}/{len(todo)}] {step.name}: {step.about}"
            say(f"{title}; at most {one.limit:.0f} s, {left:.0f} s left")
            ran(step, programme, one, end)
            said = f"{one.status}: {one.reason}" if one.reason else one.status
            say(f"    {said} ({one.seconds:.0f} s)")
            write(programme, facts, [*before, *came])
    except KeyboardInterrupt:
        for one in came:
            if one.status == "not run":
                one.status = "stopped"
                break
    write(programme, facts, [*before, *came])
    return came


def earlier(programme: Programme, facts: Mapping[str, Any]) -> list[Came]:
    """What came of other steps in a run before, on the same machine."""
    try:
        found = json.loads((programme.output / "gpu.json").read_text(encoding="utf-8"))
        if found["machine"] != dict(facts) or found["dry"] != programme.dry:
            return []
        now = {step.name for step in programme.steps}
        return [Came(**row) for row in found["steps"] if row["step"] not in now]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def missing(step: Step, programme: Programme, end: float) -> str:
    """Why a step cannot be run; empty where it can."""
    if "{keras}" not in step.words:
        return ""
    absent = [name for name in KERAS_PARTS if not (programme.keras / name).is_dir()]
    if not absent or (not programme.dry and fetched(programme, end)):
        return ""
    how = f"python bench/bench_keras.py {programme.keras} --fetch gets it"
    return f"Keras is missing, {', '.join(absent)}: {how}"


KERAS_PARTS = (*(f"keras-{version}" for version in VERSIONS), "dependencies")


def fetched(programme: Programme, end: float) -> bool:
    """Has Keras fetched, within a tenth of the time; whether it is there then."""
    say(f"fetching Keras into {programme.keras}")
    command = [sys.executable, str(BENCH / "bench_keras.py"), str(programme.keras), "--fetch"]
    limit = min(end - time.monotonic(), programme.seconds / 10)
    status, _ = ended(command, programme.output / "fetch.log", limit, lambda: None)
    return status == 0


def ran(step: Step, programme: Programme, one: Came, end: float) -> None:
    """Runs a step, and says what came of it."""
    result, log = programme.result(step), programme.output / f"{step.name}.log"
    for file in (result, result.with_suffix(".md")):
        file.unlink(missing_ok=True)  # of a run before
    start = time.monotonic()
    with progress() as tell:

        def tick() -> None:
            now = time.monotonic()
            if tell is not None:
                tell(
                    f"{step.name}, {max(0, round(end - now))} s left",
                    int(now - start),
                    int(one.limit),
                )

        try:
            status, in_time = ended(programme.command(step), log, one.limit, tick)
        finally:
            one.seconds = round(time.monotonic() - start, 1)
    text = log.read_text(encoding="utf-8", errors="replace")
    try:
        results = json.loads(result.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        results = {}
    one.wrong = tuple(wrong(results, programme.dry))
    if not in_time:
        one.status, one.reason = "failed", f"took longer than {one.limit:.0f} s"
    elif status not in (0, 1):
        one.status, one.reason = "failed", f"ended with {status}: {last_line(text)}"
    elif one.wrong or status == 1:
        said = f"{len(one.wrong)} wrong" if one.wrong else f"ended with 1: {last_line(text)}"
        one.status, one.reason = "failed", said
    else:
        one.status = "held"


def wrong(results: Mapping[str, Any], dry: bool) -> list[str]:
    """What a step's results say is wrong, and which of its goals it missed: not in a dry run, which measures
    nothing."""
    goals = {} if dry else results.get("met", {})
    return [*results.get("wrong", ()), *(f"missed: {name}" for name in goals if not goals[name])]


def ended(
    command: Sequence[str], log: Path, limit: float, tick: Callable[[], None]
) -> tuple[int, bool]:
    """Runs a command until it ends, or its time: its status, and whether it was in time. Nothing of what it
    started stays."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=BENCH, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        deadline = time.monotonic() + limit
        started: set[Process] = set()
        try:
            while True:
                started |= descendants(process.pid)
                try:
                    return process.wait(timeout=0.25), True
                except subprocess.TimeoutExpired:
                    tick()
                if time.monotonic() > deadline:
                    return end_of(process), False
        except KeyboardInterrupt:
            end_of(process)
            raise
        finally:
            kill(process.pid, started)
            process.wait()


def end_of(process: subprocess.Popen[bytes]) -> int:
    """Asks a process to end, and gives it the time to write what it has."""
    process.terminate()
    try:
        return process.wait(timeout=GRACE)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL


def descendants(pid: int) -> set[Process]:
    """What a process started, and what that did, as far as Linux tells: some have a group of their own."""
    found: set[Process] = set()
    todo = [pid]
    while todo:
        for file in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            try:
                children = [(child, born(child)) for child in map(int, file.read_text().split())]
            except OSError:  # it has ended
                continue
            todo += [child for child, _ in children]
            found |= set(children)
    return found


def born(pid: int) -> str:
    """When a process began, as Linux tells it: numbers of processes are used again."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def kill(group: int, started: Iterable[Process]) -> None:
    """Ends what is left of a group of processes, and of others."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    for pid, when in started:
        if when and born(pid) == when:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# -- results -----------------------------------------------------------------------------------------


def write(programme: Programme, facts: Mapping[str, Any], came: Sequence[Came]) -> None:
    """Writes what is known by now."""
    results = {
        "machine": dict(facts),
        "dry": programme.dry,
        "budget_seconds": programme.seconds,
        "complete": all(one.status in ("held", "failed") for one in came),
        "steps": [asdict(one) for one in came],
    }
    save(programme.output / "gpu.json", results)
    whole(programme.output / "gpu.md", page(facts, came, programme))


def page(facts: Mapping[str, Any], came: Sequence[Came], programme: Programme) -> str:
    """The programme for people; what is wrong comes last."""
    rows = [
        (one.step, one.about, one.status, f"{one.seconds:.0f} of {one.limit:.0f} s", one.reason)
        for one in came
    ]
    lines = ["# What runs on a GPU", ""]
    if programme.dry:
        lines += ["A dry run, without a GPU: its figures mean nothing.", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items() if value is not None]
    lines += ["", *table(("step", "about", "status", "took", "reason"), rows), ""]
    for one in came:
        if one.status in ("failed", "skipped", "stopped") or one.wrong:
            lines += [f"## {one.step} {one.status}", ""]
            lines += [f"- {line}" for line in (*filter(None, [one.reason]), *one.wrong)]
            lines += ["", f"What it said: {one.step}.log", ""] if one.status == "failed" else [""]
    return "\n".join(lines)


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


def say(text: str) -> None:
    """Progress, apart from the page."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
