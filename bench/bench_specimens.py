"""Runs the specimens of every rule, bad against good: what each form costs on the host, and on a GPU how
often it waits for the device.

    python bench/bench_specimens.py [--device cuda] [CODE...]

Needs torch alone. Times are compared as ratios within one run: short blocks of calls of either form take
turns in random order, and the median over the blocks counts. On a GPU a call's time is until it returns, and
waits are the warnings of `torch.cuda.set_sync_debug_mode`.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import platform
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
BLOCK_S = 0.004
"""What a block takes, about: many calls of a cheap form, few of a dear one."""
MOST_CALLS = 200
"""In a block: fewer than a GPU's launch queue holds."""


@dataclass(frozen=True, slots=True)
class Row:
    """One specimen."""

    specimen: str
    bad_us: float
    good_us: float
    ratio: float
    low: float
    """The lower quartile of the ratios of neighbouring blocks."""
    high: float
    bad_waits: int | None
    good_waits: int | None
    note: str = ""


def specimens(codes: list[str]) -> Iterator[Path]:
    for path in sorted((ROOT / "fixtures").glob("DG*/specimen*.py")):
        if not codes or any(path.parent.name.startswith(code) for code in codes):
            yield path


def load(path: Path) -> ModuleType:
    name = f"{path.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # specimens with dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def moved(value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor | torch.nn.Module):
        return value.to(device)
    if isinstance(value, dict):
        return {key: moved(inner, device) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(moved(inner, device) for inner in value)
    return value


class Form:
    """One of the two functions of a specimen, with what it is given."""

    def __init__(self, module: ModuleType, name: str, device: str) -> None:
        self.call: Callable[..., Any] = moved(getattr(module, name), device)
        self._module, self._device = module, device

    def given(self) -> Any:
        return moved(self._module.inputs(), self._device)

    def waits(self) -> int | None:
        """How often one call waits for the device; None where there is none to wait for."""
        if self._device == "cpu":
            return None
        given = self.given()
        torch.cuda.synchronize()
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                self.call(*given)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        return sum("synchroniz" in str(warning.message) for warning in heard)

    def block(self, calls: int) -> float:
        """Seconds a call of a block takes on the host."""
        given, call = self.given(), self.call
        if self._device != "cpu":
            torch.cuda.synchronize()
        rounds = range(calls)
        start = time.perf_counter()
        for _ in rounds:
            call(*given)
        return (time.perf_counter() - start) / calls


def measured(path: Path, device: str, blocks: int) -> Row:
    module = load(path)
    torch.manual_seed(0)
    bad, good = Form(module, "bad", device), Form(module, "good", device)
    for form in (bad, good):
        form.call(*form.given())  # lazy set-up
        form.call(*form.given())
    waits = bad.waits(), good.waits()
    calls = [max(1, min(MOST_CALLS, int(BLOCK_S / form.block(3)))) for form in (bad, good)]
    times: tuple[list[float], list[float]] = ([], [])
    gc.collect()
    gc.disable()
    try:
        for _ in range(blocks):
            for i in random.sample((0, 1), 2):
                times[i].append((bad, good)[i].block(calls[i]))
    finally:
        gc.enable()
    ratios = [b / g for b, g in zip(*times, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return Row(
        f"{path.parent.name}/{path.stem}",
        round(statistics.median(times[0]) * 1e6, 2),
        round(statistics.median(times[1]) * 1e6, 2),
        round(middle, 2),
        round(low, 2),
        round(high, 2),
        *waits,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("codes", nargs="*", metavar="CODE", help="codes or prefixes; all without")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--blocks", type=int, default=25)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    rows: list[Row] = []
    print(
        f"{'specimen':<28}{'bad us':>10}{'good us':>10}{'ratio':>8}{'quartiles':>15}{'waits':>10}"
    )
    for path in specimens(options.codes):
        name = f"{path.parent.name}/{path.stem}"
        try:
            row = measured(path, options.device, options.blocks)
        except Exception as error:  # noqa: BLE001 - told in its row, the others go on
            told = f"{type(error).__name__}: {error}".splitlines()[0][:100]
            row = Row(name, 0, 0, 0, 0, 0, None, None, told)
        rows.append(row)
        waits = "" if row.bad_waits is None else f"{row.bad_waits} -> {row.good_waits}"
        quartiles = f"{row.low:.2f}-{row.high:.2f}"
        print(
            f"{name:<28}{row.bad_us:>10.2f}{row.good_us:>10.2f}{row.ratio:>8.2f}{quartiles:>15}{waits:>10}"
            f"  {row.note}",
            flush=True,
        )
    machine = torch.cuda.get_device_name() if options.device == "cuda" else platform.machine()
    about = {"device": machine, "python": platform.python_version(), "torch": torch.__version__}
    output = options.output or RESULTS / f"specimens-{options.device}.json"
    output.write_text(
        json.dumps({**about, "specimens": [asdict(row) for row in rows]}, indent=1) + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
