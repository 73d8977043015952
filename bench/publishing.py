"""What benches do with results: numbers as JSON, tables for people, a plot, and where they are from."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench_lint import BenchError, machine, version_of

from pytest_dispatchguard.model.measurements import Interval

RESULTS = Path(__file__).resolve().parent / "results"


def whole(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def save(output: Path, results: Mapping[str, Any]) -> None:
    """Writes the numbers."""
    whole(output, json.dumps(results, indent=1) + "\n")


def publish(output: Path, results: Mapping[str, Any], text: str, plot: str = "") -> None:
    """Writes the numbers, the page beside them and the plot, where there is one; prints the page."""
    save(output, results)
    whole(output.with_suffix(".md"), text)
    if plot:
        output.with_suffix(".svg").write_text(plot, encoding="utf-8")
    print(text)


def study(
    name: str,
    about: str | None,
    arguments: Sequence[str] | None,
    measure: Callable[[], dict[str, Any]],
    page: Callable[[Mapping[str, Any]], str],
    plot: Callable[[Mapping[str, Any]], str],
) -> int:
    """Runs a study of torch in this process, and publishes it; the exit status. ``--draw`` publishes
    anew what its last run measured."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=RESULTS / f"{name}.json")
    parser.add_argument("--draw", action="store_true", help="measure nothing, draw what is there")
    options = parser.parse_args(arguments)
    try:
        if options.draw:
            results = json.loads(options.output.read_text(encoding="utf-8"))
        else:
            with _surroundings() as around:
                measured = measure()
            results = {**around, **measured}
            save(options.output, results)
    except (BenchError, OSError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    publish(options.output, results, page(results), plot(results))
    return 0


@contextmanager
def _surroundings() -> Iterator[dict[str, Any]]:
    """The machine, what it is busy with before and after, and how long all takes; torch in one thread."""
    try:
        import torch
    except ImportError:
        raise BenchError("torch is not installed here") from None
    torch.set_num_threads(1)
    started, load = time.monotonic(), [round(os.getloadavg()[0], 2)]
    about = {**machine(), "torch": version_of("torch"), "load_before_and_after": load}
    found: dict[str, Any] = {"machine": about}
    yield found
    load.append(round(os.getloadavg()[0], 2))
    found["seconds"] = round(time.monotonic() - started)


def written_by(target: str, results: Mapping[str, Any]) -> str:
    """The sentence that says where a study's numbers are from."""
    about = results["machine"]
    loads = " and ".join(map(str, about["load_before_and_after"]))
    return (
        f"Written by `make {target}` in {results['seconds']} s: {about['cpu']}, {about['cores']} cores, "
        f"Python {about['python']}, torch {about['torch']}, one thread; load {loads} before and after."
    )


def where(results: Mapping[str, Any]) -> str:
    """The machine in few words, for a plot."""
    about = results["machine"]
    return (
        f"{about['cpu']}, {about['cores']} cores, Python {about['python']}, torch {about['torch']}"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table in Markdown."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def checked_page(title: str, said: str, body: Sequence[str], wrong: Sequence[str]) -> str:
    """The page of a bench that also checks something: what it says, its table, and what was wrong."""
    return "\n".join(
        [f"# {title}", "", said, "", *body, "", *(f"- wrong: {one}" for one in wrong), ""]
    )


def figures(interval: Interval) -> dict[str, float | None]:
    """A figure with its interval; ends that nobody knows are null."""
    found = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {name: round(end, 4) if math.isfinite(end) else None for name, end in found.items()}


def interval(figures: Mapping[str, float | None]) -> Interval:
    """The same read back, as it can be drawn."""
    value, low, high = (figures[end] for end in ("value", "low", "high"))
    assert value is not None
    return Interval(value, value if low is None else low, value if high is None else high)


def shown(figures: Mapping[str, float | None], digits: int = 1) -> str:
    """A figure with its interval, where it has one."""
    value, low, high = (figures[end] for end in ("value", "low", "high"))
    said = f"{value:,.{digits}f}"
    return (
        said if low is None or high is None else f"{said} ({low:,.{digits}f} to {high:,.{digits}f})"
    )
