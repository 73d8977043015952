"""Does a real GPU wait where the ghost says so?

    python bench/bench_waits.py
    python bench/bench_waits.py --dry       # asks the ghost itself, to see that this runs

Runs every case of sync_cases.py on the GPU that is here, and asks twice whether the host waited: torch, by
`torch.cuda.set_sync_debug_mode("error")`, and the GPU itself, which is held back while the case runs. If it
has gone on by the end, the host has waited for it. Of some waits torch says nothing; they are marked. Written
to bench/results/gpu/waits.json and waits.md.

Exit status: 0 if all agree, 1 if some do not, 2 if there is no GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_lint import machine
from gpu.holding import waited_for
from gpu.stand_in import stand_in
from publishing import RESULTS, publish, table
from sync_cases import GOES_ON, UNTOLD, WAITS, Given

from pytest_dispatchguard.measure.timing.devices import Device, here

WORDS = {True: "waits", False: "goes on", None: ""}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dry", action="store_true", help="ask the ghost, which agrees")
    parser.add_argument("--output", type=Path, default=RESULTS / "gpu" / "waits.json")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        if options.dry:
            stack.enter_context(stand_in())
        elif not torch.cuda.is_available():
            print("bench_waits: there is no GPU here", file=sys.stderr)
            return 2
        results = measured(options.dry)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    publish(options.output, results, page(results))
    return 1 if results["wrong"] else 0


def measured(dry: bool) -> dict[str, Any]:
    """What torch and the GPU say of each case."""
    told: dict[str, bool | None] = {}
    held: dict[str, bool | None] = {}
    wrong = []
    device, ask = here("cuda"), waits_on_the_ghost if dry else waited
    for case in (*WAITS, *GOES_ON):
        try:
            told[case], held[case] = ask(case), held_back(case, device)
        except Exception as error:  # noqa: BLE001 - the other cases are asked all the same
            told[case] = held[case] = None
            wrong.append(f"{case}: {error!r}")
    if dry:
        held = told  # the ghost is never held back
    waits = {case: held[case] if case in UNTOLD else told[case] for case in told}
    wrong += [line for case in told for line in differences(case, waits[case], held[case])]
    return {
        "machine": {**machine(), "gpu": torch.cuda.get_device_name()},
        "torch": torch.__version__,
        "waited": waits,
        "held": held,
        "untold": sorted(UNTOLD),
        "wrong": wrong,
    }


def waited(case: str) -> bool:
    """Whether torch says that the host waits for the GPU in a case."""
    run_of(case)(Given())  # one-time setup
    given = Given()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run_of(case)(given)
    except RuntimeError as error:
        if "synchronizing" not in str(error):
            raise
        return True
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return False


def held_back(case: str, device: Device) -> bool | None:
    """Whether the GPU itself says so."""
    run_of(case)(Given())
    return waited_for(partial(run_of(case), Given()), device)


def waits_on_the_ghost(case: str) -> bool:
    given = Given()
    with stand_in() as seen:
        run_of(case)(given)
    return seen.total > 0


def run_of(case: str) -> Any:
    return WAITS.get(case) or GOES_ON[case]


def differences(case: str, waits: bool | None, held: bool | None) -> list[str]:
    """How the ghost is contradicted."""
    ghost = case in WAITS
    lines = []
    if waits is not None and waits != ghost:
        lines.append(f"{case}: the ghost {WORDS[ghost]}, the GPU {WORDS[waits]}")
    if held is not None and held != ghost and case not in UNTOLD:
        lines.append(f"{case}: the ghost {WORDS[ghost]}, the GPU held back {WORDS[held]}")
    return lines


def page(results: Mapping[str, Any]) -> str:
    """The cases, one a line."""
    rows = []
    for case, waits in results["waited"].items():
        held = results["held"][case]
        notes = ["torch does not tell"] if case in results["untold"] else []
        notes += ["differs"] if differences(case, waits, held) else []
        rows.append((case, WORDS[case in WAITS], WORDS[waits], WORDS[held], ", ".join(notes)))
    head = ("case", "the ghost", "the GPU", "held back", "")
    return "\n".join(
        [
            "# Waits of a GPU",
            "",
            f"{results['machine']['gpu']}, torch {results['torch']}",
            "",
            *table(head, rows),
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
