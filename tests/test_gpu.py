"""`make gpu` on a machine without a GPU: the programme that runs its steps, and each step in little."""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "bench"
FACTS = {"gpu": "none of these", "torch": "2.13.0"}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Modules of the folder bench, which are no part of the package."""
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module


@pytest.fixture
def on_torch(bench: Any) -> Any:
    """The same, of what imports torch."""
    pytest.importorskip("torch", reason="the steps run code on torch")
    return bench


@pytest.fixture
def on_the_ghost(on_torch: Any) -> Any:
    """The same, of what needs the ghost."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a real GPU here")
    return on_torch


@pytest.fixture
def gpu(bench: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The command, which takes this machine for one with a GPU."""
    module: ModuleType = bench("bench_gpu")
    monkeypatch.setattr(module, "about", lambda: FACTS)
    monkeypatch.setattr(module, "GRACE", 1.0)
    return module


WRITES = """\
import json, sys
json.dump({results}, open(sys.argv[sys.argv.index("--output") + 1], "w"))
print("it is done")
sys.exit({status})
"""


@pytest.fixture
def steps(gpu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Makes the programme one of these scripts."""
    monkeypatch.setattr(gpu, "BENCH", tmp_path)

    def set_(share: float = 10, **scripts: str) -> None:
        for name, text in scripts.items():
            (tmp_path / f"{name}.py").write_text(text)
        made = tuple(gpu.Step(name, f"about {name}", share, f"{name}.py") for name in scripts)
        monkeypatch.setattr(gpu, "STEPS", made)

    return set_


def results(folder: Path) -> dict[str, Any]:
    """By step, what came of it."""
    found = json.loads((folder / "gpu.json").read_text(encoding="utf-8"))
    return {step["step"]: step for step in found["steps"]}


# -- the programme -----------------------------------------------------------------------------------


def test_steps_that_hold_end_with_0(gpu: Any, steps: Any, tmp_path: Path, capsys: Any) -> None:
    steps(one=WRITES.format(results={}, status=0), two=WRITES.format(results={}, status=0))
    assert gpu.main(["--output", str(tmp_path / "out")]) == 0
    assert {one["status"] for one in results(tmp_path / "out").values()} == {"held"}
    told = capsys.readouterr()
    assert "[1/2] one: about one; at most " in told.err and "s left" in told.err
    assert "- gpu: none of these" in told.out
    assert (tmp_path / "out" / "one.log").read_text() == "it is done\n"
    assert json.loads((tmp_path / "out" / "gpu.json").read_text())["complete"]


@pytest.mark.parametrize(
    ("script", "reason", "wrong"),
    [
        (
            WRITES.format(results={"wrong": ["item: goes on"]}, status=1),
            "1 wrong",
            ["item: goes on"],
        ),
        (
            WRITES.format(results={"met": {"found: 1%": False, "seconds": True}}, status=0),
            "1 wrong",
            ["missed: found: 1%"],
        ),
        (WRITES.format(results={}, status=1), "ended with 1: it is done", []),
        ("raise SystemExit('no such thing')", "ended with 1: no such thing", []),
        ("import sys; print('odd'); sys.exit(2)", "ended with 2: odd", []),
        ("import os; os.abort()", "ended with -6: it said nothing", []),
    ],
)
def test_what_failed_is_told_and_the_next_step_runs(
    gpu: Any,
    steps: Any,
    tmp_path: Path,
    capsys: Any,
    script: str,
    reason: str,
    wrong: Sequence[str],
) -> None:
    steps(one=script, two=WRITES.format(results={}, status=0))
    assert gpu.main(["--output", str(tmp_path)]) == 1
    found = results(tmp_path)
    assert (found["one"]["status"], found["one"]["reason"]) == ("failed", reason)
    assert found["one"]["wrong"] == wrong and found["two"]["status"] == "held"
    text = (tmp_path / "gpu.md").read_text()
    assert "## one failed" in text and all(f"- {line}" in text for line in wrong)
    assert text in capsys.readouterr().out


def test_goals_are_for_runs_that_measure(gpu: Any, steps: Any, tmp_path: Path) -> None:
    steps(one=WRITES.format(results={"met": {"found: 1%": False}}, status=0))
    assert gpu.main(["--dry", "--output", str(tmp_path)]) == 0


CHILD = """\
import subprocess, sys, time
code = "import time; time.sleep(60)"
children = [subprocess.Popen([sys.executable, "-c", code], start_new_session=new) for new in (False, True)]
print(*(child.pid for child in children), flush=True)
{then}
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc")
@pytest.mark.parametrize(
    ("then", "status"),
    [
        pytest.param("time.sleep(60)", "failed", marks=pytest.mark.thorough),
        pytest.param(
            "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)",
            "failed",
            marks=pytest.mark.thorough,
        ),
        ("time.sleep(1)", "held"),
    ],
)
def test_nothing_of_a_step_is_left(
    gpu: Any, steps: Any, tmp_path: Path, then: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps(one=CHILD.format(then=then))
    seconds = 600 if status == "held" else 4
    assert gpu.main(["--output", str(tmp_path), f"--minutes={seconds / 60}"]) == (
        status == "failed"
    )
    found = results(tmp_path)["one"]
    assert found["status"] == status
    assert status == "held" or found["reason"].startswith("took longer than ")
    for pid in (tmp_path / "one.log").read_text().split():
        assert ended(int(pid))


def ended(pid: int) -> bool:
    """Whether a process is gone, or about to be: nobody need have waited for it."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


def test_time_that_a_step_leaves_is_the_others(gpu: Any, steps: Any, tmp_path: Path) -> None:
    quick = WRITES.format(results={}, status=0)
    steps(one=quick, two=quick, three=quick)
    assert gpu.main(["--output", str(tmp_path), "--minutes=60"]) == 0
    first, second, third = (one["limit"] for one in results(tmp_path).values())
    assert first == pytest.approx(3600 / 3, rel=0.05)
    assert first < second < third < 3600


def test_an_interrupted_run_keeps_what_it_has(
    gpu: Any, steps: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps(one=WRITES.format(results={}, status=0), two="", three="")
    real = gpu.ended

    def interrupted(command: Sequence[str], *rest: Any) -> Any:
        if "two.py" in command[1]:
            written = results(tmp_path)  # already
            assert [one["status"] for one in written.values()] == ["held", "not run", "not run"]
            raise KeyboardInterrupt
        return real(command, *rest)

    monkeypatch.setattr(gpu, "ended", interrupted)
    assert gpu.main(["--output", str(tmp_path)]) == 130
    assert [one["status"] for one in results(tmp_path).values()] == ["held", "stopped", "not run"]
    assert not json.loads((tmp_path / "gpu.json").read_text())["complete"]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"gpu": None}, "there is no GPU here: --dry (make gpu DRY=1) does without"),
        ("No module named 'torch'", "No module named 'torch'"),
    ],
)
def test_without_a_gpu_nothing_runs(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, facts: Any, said: str
) -> None:
    monkeypatch.setattr(gpu, "about", lambda: facts)
    assert gpu.main(["--output", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"bench_gpu: {said}\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words", [["--only", "dance"], ["--minutes", "0"], ["--minutes", "nan"], ["x"]]
)
def test_wrong_words_end_with_2(gpu: Any, words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        gpu.main(words)
    assert ended.value.code == 2


def test_keras_is_skipped_where_it_is_not(gpu: Any, tmp_path: Path, capsys: Any) -> None:
    output = tmp_path / "out"
    (tmp_path / "dependencies").mkdir()
    words = ["--dry", "--only", "keras", "--keras", str(tmp_path), "--output", str(output)]
    assert gpu.main(words) == 0
    found = results(output)["keras"]
    assert found["status"] == "skipped"
    how = f"python bench/bench_keras.py {tmp_path} --fetch gets it"
    assert found["reason"] == f"Keras is missing, keras-3.12.0, keras-3.15.1: {how}"
    assert f"- {found['reason']}" in capsys.readouterr().out


FETCHES = """\
import pathlib, sys
if "--fetch" in sys.argv:
    sys.exit(pathlib.Path("offline").exists())
"""


@pytest.mark.parametrize("offline", [False, True])
def test_keras_is_fetched_first_of_all(
    gpu: Any,
    steps: Any,
    tmp_path: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
    offline: bool,
) -> None:
    steps(one="", bench_keras=FETCHES)
    one, keras = gpu.STEPS
    monkeypatch.setattr(gpu, "STEPS", (one, dataclasses.replace(keras, words=("{keras}",))))
    if offline:
        (tmp_path / "offline").touch()
    output = tmp_path / "out"
    assert gpu.main(["--keras", str(tmp_path), "--output", str(output)]) == 0
    assert results(output)["bench_keras"]["status"] == ("skipped" if offline else "held")
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first == f"fetching Keras into {tmp_path}"
    assert second.startswith("bench_keras is skipped: Keras is missing" if offline else "[1/2] one")


def test_steps_that_are_not_run_again_are_kept(
    gpu: Any, steps: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps(one=WRITES.format(results={}, status=0), two=WRITES.format(results={}, status=1))
    assert gpu.main(["--output", str(tmp_path)]) == 1
    (tmp_path / "two.py").write_text(WRITES.format(results={}, status=0))
    again = ["--output", str(tmp_path), "--only", "two"]
    assert gpu.main(again) == 0
    found = results(tmp_path)
    assert {name: one["status"] for name, one in found.items()} == {"one": "held", "two": "held"}
    monkeypatch.setattr(gpu, "about", lambda: {**FACTS, "gpu": "another"})
    assert gpu.main(again) == 0
    assert list(results(tmp_path)) == ["two"]


def test_the_facts_of_this_machine(bench: Any) -> None:
    pytest.importorskip("torch", reason="it is asked about the GPU")
    facts = bench("bench_gpu").about()
    assert facts["torch"] and facts["cores"] and {"torch_cuda", "gpu"} <= set(facts)


class Parsed(Exception):  # noqa: N818 - no error
    """The words were understood."""


def test_the_words_of_every_step_are_understood(
    gpu: Any, on_torch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = argparse.ArgumentParser.parse_args

    def parse(self: argparse.ArgumentParser, words: Sequence[str]) -> None:
        real(self, words)
        raise Parsed

    for step in gpu.STEPS:
        module = on_torch(step.script.removesuffix(".py").replace("/", "."))
        for dry in (False, True):
            programme = gpu.Programme(gpu.STEPS, dry, 600.0, tmp_path, tmp_path)
            words = programme.command(step)[2:]
            assert words[-2:] == ["--output", str(tmp_path / f"{step.name}.json")]
            with monkeypatch.context() as patch, pytest.raises(Parsed):
                patch.setattr(argparse.ArgumentParser, "parse_args", parse)
                module.main(words)
            if step.name == "noise":
                assert module.parsed(words).targets == (0.01,)


def test_the_makefile_passes_its_words_on() -> None:
    words = ["make", "-n", "gpu", "DRY=1", "KERAS=here", "VENV=nowhere"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "nowhere/bin/python bench/bench_gpu.py --dry --keras here\n" in done.stdout


# -- tests that need CUDA ----------------------------------------------------------------------------

SKIPPING = """\
import pytest

{mark}
def test_it():
    pytest.skip("no cuda device here")

def test_other():
    pytest.skip("something else is missing")
"""


@pytest.mark.parametrize("mark", ["", "@pytest.mark.gpu"])
def test_no_test_skips_for_want_of_cuda_without_the_mark(
    pytester: pytest.Pytester, run_pytest: Any, mark: str
) -> None:
    pytester.makeconftest((ROOT / "tests" / "gpu_mark.py").read_text(encoding="utf-8"))
    pytester.makepyfile(SKIPPING.format(mark=mark))
    pytester.makeini("[pytest]\nmarkers = gpu: needs CUDA\n")
    result = run_pytest()
    result.assert_outcomes(skipped=1 + bool(mark), failed=not mark)
    if not mark:
        result.stdout.fnmatch_lines(["*skipped for want of CUDA: mark it gpu, for `make gpu`*"])


def test_every_outcome_but_the_wanted_one_is_wrong(bench: Any, tmp_path: Path) -> None:
    for wanted, right in (("passed", "a"), ("skipped", "c")):
        outcomes = bench("gpu.cuda_tests").Outcomes(tmp_path / "tests.json", wanted)
        for name, outcome, said in (
            ("a", "passed", ""),
            ("b", "failed", "def test():\nE   AssertionError: no\nE   more"),
            ("c", "skipped", ("file", 1, "Skipped: no cuda device here")),
            ("d", "skipped", ("file", 1, "Skipped: too late")),
        ):
            text = said if isinstance(said, str) else ""
            report = {"nodeid": name, "outcome": outcome, "longrepr": said, "longreprtext": text}
            outcomes.pytest_runtest_logreport(
                SimpleNamespace(when="call", passed=outcome == "passed", **report)
            )
        told = json.loads((tmp_path / "tests.json").read_text())
        assert [line[0] for line in told["wrong"]] == sorted({*"abcd"} - {right})
        assert "b: failed: E AssertionError: no" in told["wrong"]
        assert told["skipped"] == 2 and told["outcomes"]["b"] == "failed"


# -- waits and their prices --------------------------------------------------------------------------


def test_every_case_is_asked_on_the_ghost(
    on_the_ghost: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = on_the_ghost("bench_waits")
    output = tmp_path / "gpu" / "waits.json"
    assert waits.main(["--dry", "--output", str(output)]) == 0
    told = json.loads(output.read_text())
    assert told["waited"]["item"] and not told["waited"]["shape"] and not told["wrong"]
    assert "| item | waits | waits | waits |" in output.with_suffix(".md").read_text()

    def lies(case: str) -> bool:
        if case == "equal":
            raise RuntimeError("misaligned")
        return case in waits.WAITS and case != "item"

    monkeypatch.setattr(waits, "waits_on_the_ghost", lies)
    assert waits.main(["--dry", "--output", str(output)]) == 1
    told = json.loads(output.read_text())
    assert told["wrong"] == [
        "equal: RuntimeError('misaligned')",
        "item: the ghost waits, the GPU goes on",
        "item: the ghost waits, the GPU held back goes on",
    ]


def test_what_a_held_device_says(on_torch: Any) -> None:
    """A call has waited if the mark behind the hold has passed."""
    waited_for = on_torch("gpu.holding").waited_for
    log: list[str] = []

    def queue(*, passed: bool, holds: bool = True) -> Any:
        def hold(nanoseconds: float) -> bool:
            log.append(f"held for {nanoseconds / 1e6:.0f} ms")
            return holds

        return SimpleNamespace(hold=hold, mark=lambda: SimpleNamespace(passed=lambda: passed))

    for queue_, said in (
        (queue(passed=True), True),
        (queue(passed=False), False),
        (queue(passed=True, holds=False), None),
        (None, None),
    ):
        device = SimpleNamespace(wait=lambda: log.append("waited"), queue=queue_)
        assert waited_for(lambda: log.append("called"), device) is said
    assert log[:4] == ["waited", "held for 50 ms", "called", "waited"]


@pytest.mark.parametrize(
    ("told", "held", "agrees"),
    [
        ((1, 0), (True, False), True),
        ((0, 0), (True, False), True),
        ((0, 0), (False, False), False),
        ((0, 0), (None, None), False),
        ((2, 0), (True, False), False),
        ((1, 1), (True, True), False),
    ],
)
def test_where_torch_tells_of_no_wait_the_gpu_is_asked(
    on_torch: Any, told: tuple[int, int], held: Any, agrees: bool
) -> None:
    prices = on_torch("gpu.wait_prices")
    row = prices.Row("DG431/specimen", told, held, (0.0, 0.0), (0.0, 0.0))
    assert prices.agrees(row, (1, 0)) is agrees


def test_waits_are_priced_and_counted(
    on_the_ghost: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = on_the_ghost("gpu.wait_prices")
    chosen = prices.specimens({})
    assert {path.parent.name[:3] for path in chosen} == {"DG4"} and len(chosen) > 40
    files = [ROOT / "fixtures" / code / "specimen.py" for code in ("DG401", "DG415")]
    (tmp_path / "DG499").mkdir()
    (tmp_path / "DG499" / "specimen.py").write_text("def bad(): 1 / 0\ngood, inputs = bad, tuple\n")
    monkeypatch.setattr(
        prices, "specimens", lambda known: [*files, tmp_path / "DG499" / "specimen.py"]
    )
    assert prices.main(["--dry", "--output", str(tmp_path / "prices.json")]) == 1
    told = json.loads((tmp_path / "prices.json").read_text())
    (broken,) = told["wrong"]
    assert broken.startswith("DG499/specimen: ZeroDivisionError")
    assert [(row["specimen"], row["waits"]) for row in told["specimens"]] == [
        ("DG401/specimen", [1, 0]),
        ("DG415/specimen", [1, 0]),
    ]
    monkeypatch.setattr(prices, "specimens", lambda known: files)
    monkeypatch.setattr(prices, "waits", lambda form, module, device: 2)
    assert prices.main(["--dry", "--output", str(tmp_path / "prices.json")]) == 1
    told = json.loads((tmp_path / "prices.json").read_text())
    assert told["wrong"][0] == "DG401/specimen: the ghost waits 1 → 0 times, the GPU 2 → 2"


# -- the traced training -----------------------------------------------------------------------------


def with_waits(file: Path, functions: Sequence[str]) -> None:
    """Adds to each call of these functions a wait for a kernel, as a GPU's trace has them."""
    trace = json.loads(gzip.decompress(file.read_bytes()))
    added: list[dict[str, Any]] = []
    for event in trace["traceEvents"]:
        for function in functions:
            if str(event.get("name")).endswith(f"training.py({event_line(event)}): {function}"):
                number = 10_000 + len(added)
                share = event["dur"] / 10
                common = {"ph": "X", "args": {"correlation": number}}
                host = {**common, "cat": "cuda_runtime", "pid": event["pid"], "tid": event["tid"]}
                kernel = {**common, "cat": "kernel", "pid": 0, "tid": 7, "name": "add"}
                kernel["args"] = {"correlation": number, "device": 0, "stream": 7}
                start = event["ts"]
                added += [
                    {**host, "name": "cudaLaunchKernel", "ts": start + share, "dur": share},
                    {**kernel, "ts": start + 3 * share, "dur": share},
                    {
                        **host,
                        "name": "cudaStreamSynchronize",
                        "ts": start + 2.5 * share,
                        "dur": 3 * share,
                    },
                ]
    trace["traceEvents"] += added
    file.write_bytes(gzip.compress(json.dumps(trace).encode()))


def event_line(event: dict[str, Any]) -> str:
    return str(event.get("name")).rpartition("(")[2].partition(")")[0]


@pytest.mark.slow
def test_planted_waits_are_held_against_the_trace(
    on_torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    tracing = on_torch("gpu.trace_training")
    monkeypatch.setattr(tracing.training, "PLANTED", {"batch_moved": 1, "logged": 1, "kept": 1})
    monkeypatch.setattr(tracing.training, "WIDTH", 8)
    file = tmp_path / "trace.json.gz"
    tracing.traced(torch.device("cpu"), file)
    bare = file.read_bytes()

    def judged(*functions: str) -> list[str]:
        file.write_bytes(bare)
        with_waits(file, functions)
        trace = tracing.analyzed(file, tracing.Files.of(["bench/gpu/training.py"]))
        assert tracing.wrong_functions(trace) == []
        return list(tracing.wrong_waits(trace, torch.device("cuda")))

    assert judged("batch_moved", "logged", "kept") == []
    assert judged("batch_moved", "logged", "kept", "hardest") == [
        "hardest: 0 waits are planted, 5 told"
    ]
    assert judged("logged", "kept") == ["batch_moved: 5 waits are planted, 0 told"]
    monkeypatch.setattr(tracing, "STEPS", 6)
    trace = tracing.analyzed(file, tracing.Files())
    assert tracing.wrong_functions(trace)[0] == "5 steps are told, 6 were traced"


# -- all of it ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "only",
    [
        ("trace",),
        pytest.param((), marks=pytest.mark.thorough),
    ],
)
def test_a_dry_run(on_the_ghost: Any, tmp_path: Path, only: Sequence[str]) -> None:
    command = [sys.executable, str(BENCH / "bench_gpu.py"), "--dry", "--output", str(tmp_path)]
    chosen = [word for name in only for word in ("--only", name)]
    done = subprocess.run(
        [*command, *chosen], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = results(tmp_path)
    assert tuple(found) == (only or ("tests", "waits", "prices", "trace", "keras", "noise"))
    for name, one in found.items():
        assert one["status"] in (("held", "skipped") if name == "keras" else ("held",))
    if not only:
        told = json.loads((tmp_path / "tests.json").read_text())
        assert told["skipped"] == told["collected"] > 100
