"""Files that are damaged, made up or made to do harm: each is told in one line, in bounded memory."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.traces import Trace
from pytest_dispatchguard.traces import timeline
from pytest_dispatchguard.traces.analysis import analyzed

from .generating import SPELLINGS, Maker, Run

EVENT = {
    "ph": "X",
    "cat": "cuda_runtime",
    "name": "cudaStreamSynchronize",
    "pid": 1,
    "tid": 1,
    "ts": 100,
    "dur": 7,
    "args": {"correlation": 1},
}
TEXT = json.dumps(EVENT)
STEP = {**EVENT, "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 50, "dur": 500}
MIB = 1024 * 1024


def told(folder: Path, content: str | bytes, name: str = "trace.json") -> Trace:
    """What is told of a file."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return analyzed(path)


def refused(folder: Path, content: str | bytes) -> str:
    """What is said of a file of which nothing can be told."""
    with pytest.raises(UserError) as error:
        told(folder, content)
    (line,) = str(error.value).splitlines()
    return line


def of(*events: Any) -> str:
    return json.dumps({"traceEvents": [STEP, *events]})


def waits(trace: Trace) -> int:
    return sum(wait.times for wait in trace.waits)


# -- cut off -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole() -> tuple[str, int]:
    """A small trace, and where its first event ends."""
    spelling = SPELLINGS["cuda"]
    run = Run(spelling, "frames").run(Maker(random.Random(3), sorted(spelling.waits)).program(1))
    events = [{**event, "name": f"{event['name']}é\n\\ü"} for event in run.events[:8]]
    text = json.dumps({"schemaVersion": 1, "traceEvents": events, "end": [1.5e3]})
    return text, text.index("}}") + 2


def test_cut_anywhere(tmp_path: Path, whole: tuple[str, int]) -> None:
    text, first = whole
    for cut in range(len(text)):
        if cut < first:
            line = refused(tmp_path, text[:cut])
            assert "is no profiler trace (it is " in line
            continue
        trace = told(tmp_path, text[:cut])
        assert trace.damage.startswith("it is cut off after ") and trace.events >= 1
        assert trace.host_bound is None


@pytest.mark.parametrize("seed", range(60))
def test_cut_anywhere_while_packed(tmp_path: Path, whole: tuple[str, int], seed: int) -> None:
    packed = gzip.compress(whole[0].encode())
    cut = random.Random(seed).randrange(len(packed) - 8)
    try:
        trace = told(tmp_path, packed[:cut])
    except UserError as error:
        assert "\n" not in str(error) and "is no profiler trace (it " in str(error)
    else:
        assert trace.damage.startswith("it breaks off") or trace.events == 8


@pytest.mark.parametrize("seed", range(60))
def test_bytes_that_flipped(tmp_path: Path, whole: tuple[str, int], seed: int) -> None:
    chance = random.Random(seed)
    content = bytearray(whole[0].encode())
    if seed % 2:
        content = bytearray(gzip.compress(content))
    for _ in range(chance.randint(1, 4)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    try:
        trace = told(tmp_path, bytes(content))
    except UserError as error:
        assert "\n" not in str(error)
    else:
        assert "\n" not in trace.damage


# -- what no profiler writes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        *("1e400", "-1e400", "NaN", "Infinity", "-Infinity", "-5", '"soon"', '"nan"', "null"),
        *("true", "[]", "{}", "1e18", "1" + "0" * 400),
    ],
)
@pytest.mark.parametrize("key", ["ts", "dur"])
def test_numbers_that_are_no_times(tmp_path: Path, key: str, value: str) -> None:
    odd = TEXT.replace(f'"{key}": {EVENT[key]}', f'"{key}": {value}')
    assert odd != TEXT
    trace = told(tmp_path, f'{{"traceEvents": [{json.dumps(STEP)}, {odd}, {TEXT}]}}')
    assert (waits(trace), trace.damage, trace.us) == (1, "", 500)


@pytest.mark.parametrize("key", ["pid", "tid", "args", "ph", "cat", "name"])
@pytest.mark.parametrize(
    "value", [None, [], {}, {"a": [1]}, 1.5, True, 10**400, "\ud800", "x" * 9999]
)
def test_values_of_other_kinds(tmp_path: Path, key: str, value: Any) -> None:
    trace = told(tmp_path, of({**EVENT, key: value}, {**EVENT, "ts": 120}))
    assert 1 <= waits(trace) <= 2 and trace.damage == ""
    json.dumps([wait.call for wait in trace.waits]).encode()


@pytest.mark.parametrize("key", ["correlation", "device", "Call stack"])
@pytest.mark.parametrize("value", [None, [], {}, -1, 2.5, "7", 2**64, 10**400, "\udfff;\x00"])
def test_arguments_of_other_kinds(tmp_path: Path, key: str, value: Any) -> None:
    odd = {**EVENT, "args": {key: value}}
    others = [{**odd, "cat": "kernel", "name": "k"}, {**odd, "cat": "cpu_op", "name": "aten::to"}]
    trace = told(tmp_path, of(odd, *others, {**EVENT, "ts": 120}))
    assert waits(trace) == 2 and trace.damage == ""


@pytest.mark.parametrize("odd", ["1", "null", "[1, [2]]", '"text"', "true", "-1.5e3", "{}"])
def test_events_that_are_no_objects(tmp_path: Path, odd: str) -> None:
    trace = told(tmp_path, f"[{odd}, {TEXT}, {odd}, {odd}]")
    assert waits(trace) == 1 and trace.damage == ""


def test_an_event_that_is_no_json(tmp_path: Path) -> None:
    trace = told(tmp_path, f"[{TEXT}, {{oops}}, {TEXT}]")
    assert waits(trace) == 1
    assert trace.damage == f"what begins at character {len(TEXT) + 3} is no event"


def test_a_number_of_5000_digits(tmp_path: Path) -> None:
    trace = told(tmp_path, f"[{TEXT}, {TEXT.replace('100', '1' * 5000)}]")
    assert waits(trace) == 1
    if hasattr(sys, "get_int_max_str_digits"):  # where Python refuses to read it
        assert "is no event" in trace.damage


@pytest.mark.parametrize("opened", ["[", '{"a":', '{"args":['])
def test_nested_200_000_deep(tmp_path: Path, opened: str) -> None:
    trace = told(tmp_path, f"[{TEXT}, {opened * 200_000}")
    assert waits(trace) == 1 and "is no event" in trace.damage


def test_names_that_are_no_text_for_a_terminal(tmp_path: Path) -> None:
    names = ("\x1b[31mred\x1b[0m", "\ud800\udc00 \ud800", "a\nb\r\tc\x00", "\u202eabc", "<b>&amp;")
    annotations = [
        {**STEP, "name": name, "ts": 60 + 30 * n, "dur": 20} for n, name in enumerate(names)
    ]
    events = [{**EVENT, "ts": 61 + 30 * n} for n in range(len(names))]
    trace = told(tmp_path, of(*annotations, *events))
    assert waits(trace) == len(names)
    for wait in trace.waits:
        wait.annotation.encode()


def test_python_frames_that_are_none(tmp_path: Path) -> None:
    frames = ("(): ", "a.py(1)", "a.py(99999999999999999999): f", "(1): x", "\ud800(1): \ud800", "")
    events = [{**EVENT, "cat": "python_function", "name": name, "ts": 90} for name in frames]
    trace = told(tmp_path, of(*events, EVENT))
    assert waits(trace) == 1
    json.dumps([wait.line.shown for wait in trace.waits]).encode()


# -- no files, no traces -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "it is empty"),
        ("   \n", "it is cut off after 0 events"),
        ("hello", "it is no JSON"),
        ("\x7fELF\x02", "it is no JSON"),
        ("3", "it is no JSON"),
        ("{}", "it has no `traceEvents`"),
        ("[]", "it has no `traceEvents`"),
        ('{"traceEvents": 5}', "it has no `traceEvents`"),
        (gzip.compress(b"", mtime=0), "it is empty"),
        (b"\x1f\x8b", "it breaks off"),
        (b"\x1f\x8b\x08\x00garbage garbage", "it breaks off"),
        ("{}".encode("utf-16"), "it is no JSON"),
        (bytes(range(256)) * 10, "it is no JSON"),
    ],
)
def test_no_traces(tmp_path: Path, content: str | bytes, reason: str) -> None:
    assert f"is no profiler trace ({reason}" in refused(tmp_path, content)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        analyzed(tmp_path / "none.json")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        analyzed(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names there")
def test_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="it is no file; write it to one first"):
        analyzed(tmp_path / "pipe")


def test_a_byte_order_mark(tmp_path: Path) -> None:
    assert waits(told(tmp_path, f"\ufeff[{TEXT}]")) == 1


def test_a_full_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no device here that is always full")
    monkeypatch.setattr(timeline.tempfile, "TemporaryFile", lambda: open("/dev/full", "r+b", 0))  # noqa: SIM115, PTH123 - as the function does
    monkeypatch.setattr(timeline, "_IN_MEMORY", 3)
    monkeypatch.setattr(timeline.Timeline.__init__, "__defaults__", (3,))
    with pytest.raises(UserError, match="No space left on device; set TMPDIR"):
        told(tmp_path, of(*[EVENT] * 10))


# -- too much ----------------------------------------------------------------------------------------

CHILD = """\
import json, resource, sys, time
from pathlib import Path
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.traces.analysis import analyzed

resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
try:
    trace = analyzed(Path(sys.argv[1]))
    told = {"events": trace.events, "damage": trace.damage, "waits": sum(w.times for w in trace.waits)}
    told["places"] = len(trace.waits)
except UserError as error:
    told = {"error": str(error)}
status = Path("/proc/self/status")
if status.exists():  # what getrusage says begins with the memory of the process that started this one
    peak = next(int(line.split()[1]) for line in status.open() if line.startswith("VmHWM:"))
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
print(json.dumps({**told, "mib": peak / 1024}))
"""
needs_limits = pytest.mark.skipif(os.name == "nt", reason="memory is measured as POSIX does")


def apart(path: Path) -> dict[str, Any]:
    """What a process of its own tells of a file, and the memory that takes."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, timeout=3000
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["mib"] < 300, result
    return result


def repeated(text: bytes, mib: int) -> Iterator[bytes]:
    """Some text, again and again."""
    block = text * (MIB // len(text))
    return (block for _ in range(mib))


def packed(path: Path, blocks: Iterable[bytes]) -> Path:
    """Writes what unpacks to these."""
    with gzip.open(path, "wb", compresslevel=1 if path.suffix != ".gz" else 9) as file:
        for block in blocks:
            file.write(block)
    return path


@needs_limits
@pytest.mark.parametrize(
    ("start", "again", "reason"),
    [
        (f"[{TEXT},", " ", "times its size"),
        (f"[{TEXT},", "{},", "are no events"),
        (f'[{TEXT},"', "a", "is no event"),
        (f'[{TEXT},{{"name": "', "a", "is no event"),
        (f"[{TEXT},", "[", "is no event"),
        ("", " ", "no profiler trace"),
        *(
            pytest.param(*bomb, marks=pytest.mark.thorough)
            for bomb in [
                (f'{{"traceEvents": [{TEXT}], "x": "', "a", "is no event"),
                (f"[{TEXT},", "1,", "are no events"),
                (f"[{TEXT},", "1", "is no event"),
                ('"', "a", "no profiler trace"),
            ]
        ),
    ],
    ids=lambda text: text[-12:].strip() or "blanks",
)
def test_bombs(tmp_path: Path, start: str, again: str, reason: str) -> None:
    blocks = repeated(again.encode(), 80)
    path = packed(tmp_path / "bomb.json.gz", (start.encode(), *blocks))
    assert path.stat().st_size < MIB
    result = apart(path)
    assert reason in result.get("damage", "") + result.get("error", "")


def many(path: Path, number: int, event: Callable[[int], str]) -> Path:
    """Writes a file with many events."""
    with path.open("w", encoding="utf-8") as file:
        file.write(f"[{json.dumps(STEP)}")
        for n in range(number):
            file.write(f",\n{event(n)}")
        file.write("]")
    return path


def same(n: int) -> str:
    return TEXT.replace("100", str(100 + 10 * n))


def nested(n: int) -> str:
    return TEXT.replace('"ts": 100, "dur": 7', f'"ts": {100 + n}, "dur": 1000000000').replace(
        '"cuda_runtime", "name": "cudaStreamSynchronize"', '"cpu_op", "name": "aten::to"'
    )


def other_names(n: int) -> str:
    return same(n).replace("runtime", "op").replace("cuda_op", "cpu_op").replace("Sync", f"{n}")


def other_calls(n: int) -> str:
    return same(n).replace('Synchronize"', f'Synchronize{n}"')


def other_annotations(n: int) -> str:
    wait = same(n)
    mark = json.dumps({**STEP, "name": f"mark {n} {'x' * 200}", "ts": 100 + 10 * n, "dur": 9})
    return f"{mark},{wait}"


def other_stacks(n: int) -> str:
    stack = ";".join(f"/a/{n}/net{m}.py({m}): forward" for m in range(20))
    op = {**EVENT, "cat": "cpu_op", "name": "aten::to", "args": {"Call stack": stack}}
    return json.dumps({**op, "ts": 100 + 10 * n}) + "," + same(n)


def long_names(n: int) -> str:
    return json.dumps({**EVENT, "cat": "cpu_op", "name": f"{n}{'x' * 100_000}"})


def other_threads(n: int) -> str:
    return same(n).replace('"tid": 1', f'"tid": {n}')


def other_steps(n: int) -> str:
    return json.dumps({**STEP, "ts": 1000 + 10 * n, "dur": 10}) + "," + other_calls(n)


def other_devices(n: int) -> str:
    kernel = {**EVENT, "cat": "kernel", "name": "k", "ts": 90 + n, "args": {"device": n}}
    return json.dumps(kernel) + "," + json.dumps({**STEP, "ts": 1000 + 10 * n, "dur": 10})


KINDS = {
    same: 1,
    nested: 1,
    other_names: 1,
    other_calls: 1,
    other_annotations: 2,
    other_stacks: 4,
    long_names: 500,
    other_threads: 1,
    other_steps: 2,
    other_devices: 2,
}
"""Events to write, and how much larger each is than the first."""


@needs_limits
@pytest.mark.parametrize("event", KINDS, ids=lambda event: event.__name__)
def test_many_events(tmp_path: Path, event: Callable[[int], str]) -> None:
    number = (100_000 if event is same else 10_000) // KINDS[event]
    result = apart(many(tmp_path / "many.json", number, event))
    assert result["damage"] == "" and result["events"] >= number
    if event in (same, other_annotations, other_threads):
        assert result["waits"] == number


@needs_limits
@pytest.mark.thorough
@pytest.mark.parametrize("event", KINDS, ids=lambda event: event.__name__)
def test_ten_million_events(tmp_path: Path, event: Callable[[int], str]) -> None:
    number = 10_000_000 // KINDS[event]
    path = many(tmp_path / "many.json", number, event)
    try:
        result = apart(path)
    finally:
        path.unlink()
    assert result["damage"] == "" and result["events"] >= number
