"""What a wait for the GPU costs: with nothing queued, and behind a queue of kernels.

    python bench/gpu/wait_prices.py
    python bench/gpu/wait_prices.py --dry       # on the ghost, whose times mean nothing

Runs the specimens of rules about waits on the GPU. Times a call of both forms when the GPU is idle, and right
after launching kernels that take it milliseconds: a wait then waits for all of them. Also counts the waits of
both forms by torch's debug mode, and compares with the prices that ship, which were counted on the ghost. If
torch tells of none, the GPU itself is asked.

Exit status: 0 if the counts agree, 1 if some do not, 2 if there is no GPU.
"""

from __future__ import annotations

import argparse
import io
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench_lint import HOME, machine
from gpu.holding import waited_for
from gpu.stand_in import stand_in
from publishing import RESULTS, checked_page, publish, save, table

from pytest_dispatchguard import prices
from pytest_dispatchguard.measure.specimens.forms import loaded, moved, waits
from pytest_dispatchguard.measure.timing.devices import Device, here
from pytest_dispatchguard.model.prices import Priced

CUDA = torch.device("cuda")
FAMILY = "DG4"
Form = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Queue:
    """Kernels that keep the GPU busy, so many of this size, and how often each call is timed."""

    kernels: int = 100
    """Fewer than a stream can hold, some 1,000."""
    numbers: int = 1 << 24
    """64 MiB to read and to write: tens of microseconds, longer than a launch."""
    idle_calls: int = 30
    queued_calls: int = 7


DRY = Queue(kernels=2, numbers=4, idle_calls=1, queued_calls=1)


@dataclass(frozen=True, slots=True)
class Row:
    """One specimen. What the bad form has, and the good one."""

    specimen: str
    waits: tuple[int, int]
    """As torch tells them."""
    held: tuple[bool | None, bool | None]
    """Whether the GPU, held back, tells of any."""
    idle_us: tuple[float, float]
    queued_us: tuple[float, float]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dry", action="store_true", help="on the ghost, and little of it")
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu" / "prices.json")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        if options.dry:
            stack.enter_context(stand_in())
        elif not torch.cuda.is_available():
            print("wait_prices: there is no GPU here", file=sys.stderr)
            return 2
        results = measured(DRY if options.dry else Queue(), options.output)
    publish(options.output, results, page(results))
    return 1 if results["wrong"] else 0


def measured(queue: Queue, output: Path) -> dict[str, Any]:
    """All specimens; what is known is written after each."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    output.parent.mkdir(parents=True, exist_ok=True)
    load = torch.ones(queue.numbers, device=CUDA)
    known = {
        f"{one.code}/{one.specimen}": one
        for one in prices.load(HOME / "rules/prices.json").specimens
    }
    results: dict[str, Any] = {
        "machine": {**machine(), "torch": torch.__version__, "gpu": torch.cuda.get_device_name()},
        "queue": {"kernels": queue.kernels, "us": duration(load, queue)},
        "specimens": [],
        "wrong": [],
    }
    for path in specimens(known):
        name = f"{path.parent.name}/{path.stem}"
        try:
            row = priced(name, loaded(str(path)), load, queue)
        except Exception as error:  # noqa: BLE001 - the others are priced all the same
            results["wrong"].append(f"{name}: {' '.join(repr(error).split())[:300]}")
            continue
        results["specimens"].append(asdict(row))
        if name in known and not agrees(row, known[name].waits):
            ghost, gpu = (f"{bad} → {good}" for bad, good in (known[name].waits, row.waits))
            results["wrong"].append(f"{name}: the ghost waits {ghost} times, the GPU {gpu}")
        save(output, results)
    return results


def agrees(row: Row, ghost: tuple[int, int]) -> bool:
    """Whether a GPU waits as often as the ghost; torch does not tell of all waits."""
    return all(
        told == waits or (told == 0 and held is (waits > 0))
        for told, held, waits in zip(row.waits, row.held, ghost, strict=True)
    )


def specimens(known: Mapping[str, Priced]) -> list[Path]:
    """Those of rules about waits, and others that wait."""
    return [
        path
        for path in sorted((HOME / "fixtures").glob("DG*/specimen*.py"))
        if path.parent.name.startswith(FAMILY)
        or ((one := known.get(f"{path.parent.name}/{path.stem}")) is not None and one.waiting)
    ]


def duration(load: torch.Tensor, queue: Queue) -> float:
    """How long the GPU works on the queue; the second time, when it is awake."""
    for _ in range(2):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        launch(load, queue)
        last.record()
        torch.cuda.synchronize()
    return round(1000 * first.elapsed_time(last), 1)


def launch(load: torch.Tensor, queue: Queue) -> None:
    for _ in range(queue.kernels):
        load.mul_(1.0)


def priced(name: str, module: ModuleType, load: torch.Tensor, queue: Queue) -> Row:
    """Times and counts both forms."""
    torch.manual_seed(0)
    device = here("cuda")
    told, held, idle, queued = [], [], [], []
    with redirect_stdout(io.StringIO()):
        for form in (module.bad, module.good):
            told.append(waits(form, module, CUDA))
            held.append(held_back(form, module, device))
            idle.append(timed(form, module, queue.idle_calls, lambda: None))
            queued.append(timed(form, module, queue.queued_calls, lambda: launch(load, queue)))
    return Row(
        name, (told[0], told[1]), (held[0], held[1]), (idle[0], idle[1]), (queued[0], queued[1])
    )


def held_back(form: Form, module: ModuleType, device: Device) -> bool | None:
    """Whether the GPU itself says that a call waits."""
    call = moved(form, CUDA)
    call(*moved(module.inputs(), CUDA))  # one-time setup
    return waited_for(partial(call, *moved(module.inputs(), CUDA)), device)


def timed(form: Form, module: ModuleType, calls: int, before: Callable[[], None]) -> float:
    """Microseconds that a call keeps the host, the median."""
    call = moved(form, CUDA)
    call(*moved(module.inputs(), CUDA))  # one-time setup
    took = []
    for _ in range(calls):
        given = moved(module.inputs(), CUDA)
        torch.cuda.synchronize()
        before()
        start = time.perf_counter_ns()
        call(*given)
        took.append((time.perf_counter_ns() - start) / 1000)
    torch.cuda.synchronize()
    return round(statistics.median(took), 2)


def page(results: Mapping[str, Any]) -> str:
    """The table for people."""
    about, queue = results["machine"], results["queue"]
    rows = []
    for one in results["specimens"]:
        rows.append((one["specimen"], "{} → {}".format(*one["waits"])))
        for bad, good in (one["idle_us"], one["queued_us"]):
            rows[-1] += (f"{bad:,.1f}", f"{good:,.1f}", f"{bad - good:,.1f}")
    head = ("specimen", "waits", "idle: bad", "good", "costs", "queued: bad", "good", "costs")
    said = (
        f"{about['gpu']}, torch {about['torch']}. Microseconds that a call keeps the host, medians: "
        f"with the GPU idle, and behind {queue['kernels']} kernels that take it {queue['us']:,.0f} µs."
    )
    body = table(head, rows)
    return checked_page("Prices of waits", said, body, results["wrong"])


if __name__ == "__main__":
    sys.exit(main())
