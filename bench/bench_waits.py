"""Does a real GPU wait where the ghost says so?

    python bench/bench_waits.py

Runs every case of sync_cases.py on the GPU that is here, once each, under
`torch.cuda.set_sync_debug_mode("error")`, and compares with what the ghost does. Of some waits that mode says
nothing; they are marked. Written to bench/results/waits.json and waits.md. Exit status: 0 where all agree, 1
where some do not, 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_lint import machine
from sync_cases import GOES_ON, UNTOLD, WAITS, Given

RESULTS = Path(__file__).resolve().parent / "results" / "waits.json"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("bench_waits: there is no GPU here", file=sys.stderr)
        return 2
    said = {case: waited(case) for case in (*WAITS, *GOES_ON)}
    results = {
        "machine": {**machine(), "gpu": torch.cuda.get_device_name()},
        "torch": torch.__version__,
        "waited": said,
        "untold": sorted(UNTOLD),
    }
    options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    text = table(said)
    options.output.with_suffix(".md").write_text(
        f"# Waits of a GPU\n\n{torch.cuda.get_device_name()}, torch {torch.__version__}\n\n{text}",
        encoding="utf-8",
    )
    print(text)
    return 1 if "differs" in text else 0


def waited(case: str) -> bool:
    """Whether torch says that the host waits for the GPU in a case."""
    given = Given()
    run = WAITS.get(case) or GOES_ON[case]
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run(given)
    except RuntimeError as error:
        if "synchronizing" not in str(error):
            raise
        return True
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return False


def table(said: dict[str, bool]) -> str:
    """The cases, one a line."""
    rows = ["| case | the ghost | the GPU | |", "| --- | --- | --- | --- |"]
    words = {True: "waits", False: "goes on"}
    for case, waits in said.items():
        ghost = case in WAITS
        note = "the debug mode does not tell" if case in UNTOLD else ""
        rows.append(
            f"| {case} | {words[ghost]} | {words[waits]} | {note or ('' if ghost == waits else 'differs')} |"
        )
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.exit(main())
