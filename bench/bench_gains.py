"""What fixes gain where they were found, beside what they promised.

    python bench/bench_gains.py [FOLDER]      # packages are kept in FOLDER, and taken from there
    python bench/bench_gains.py --draw        # measure nothing: page and plot of the last run

Packages of PyPI are installed into an environment of their own and linted. Every finding and note that has a
fix is a place; its function is timed with and without the fix, on arguments caught from a call of one of the
package's own layers (`gains_of_package.py` says how). Each package is measured by three processes, one after
the other: the interval of a place takes in how far these are apart. A place's promise is its price times how
often its line ran in the call; what makes the host wait promises no time, as there is no device to wait for,
and is listed with what the fix gains on the CPU.

A rule's promise is judged where five places or more can say something of it: those whose interval is no wider
than the promise, or lies wholly beyond twice or below half of it. Of the others the call around the line is
too long. They are listed all the same.

Written to bench/results/gains.json, gains.md and gains.svg.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_lint import BenchError, machine, version_of
from publishing import RESULTS, publish, table
from sample_findings import lint

from pytest_dispatchguard.edits import apply_edits
from pytest_dispatchguard.model.findings import Finding

PACKAGES = (
    "spandrel==0.4.2",
    "lpips==0.1.4",
    "timm==1.0.31",
    "pytorch-metric-learning==2.9.0",
    "kornia==0.9.0",
    "gpytorch==1.15.2",
    "neuraloperator==2.0.0",
    "pytorchcv==0.0.74",
    "torch-geometric==2.8.1",
    "deepinv==0.5.0",
    "speechbrain==1.1.2",
)
BESIDE = ("torchvision", "torchaudio", "einops")
"""What some of them need and do not ask for."""
PROCESSES = 3
SECONDS = 20.0
"""For each layer."""
PLACES, LEAST, OFF = 60, 5, 2.0
"""Places to be measured at least; of a rule, to be judged; how many times a rule's promise may be off."""
_T = 4.303
"""Student's t of 95%, both sides, for the mean of three."""

Place = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, help="has the packages, or takes them")
    parser.add_argument("--packages", nargs="+", default=PACKAGES, metavar="NAME==VERSION")
    parser.add_argument("--draw", action="store_true", help="measure nothing, draw what is there")
    parser.add_argument("--output", type=Path, default=RESULTS / "gains.json")
    options = parser.parse_args(arguments)
    try:
        if options.draw:
            results = json.loads(options.output.read_text("utf-8"))
        else:
            with tempfile.TemporaryDirectory(prefix="bench-gains-") as scratch:
                folder = options.folder or Path(scratch) / "packages"
                results = measure(folder.resolve(), Path(scratch), options.packages)
        publish(options.output, results, page(results), plot(results))
    except (BenchError, OSError) as error:
        print(f"bench_gains: {error}", file=sys.stderr)
        return 2
    return 0


# -- measuring --------------------------------------------------------------------------------------


def measure(folder: Path, scratch: Path, packages: Sequence[str]) -> dict[str, Any]:
    """All places of all packages, and what became of each."""
    python = environment(folder, packages)
    found: list[Place] = []
    for package in packages:
        places = places_of(package, python)
        first = run(places, python, scratch / "0")
        again = [
            {**place, "layer": first[place["id"]]["layer"]}
            for place in places
            if "gained_us" in first.get(place["id"], {})
        ]
        more = (run(again, python, scratch / f"{number}") for number in range(1, PROCESSES))
        runs = [first, *({**first, **one} for one in more)]
        told = [merged(package, place, runs) for place in places]
        found += told
        measured = sum("gained_us" in place for place in told)
        print(f"bench_gains: {package}: {measured} of {len(places)} places", file=sys.stderr)
    about = {**machine(), "torch": version_of("torch")}
    return {"machine": about, "packages": list(packages), "places": found}


def environment(folder: Path, packages: Sequence[str]) -> Path:
    """The Python of an environment that has the packages."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True, symlinks=True)
    torch = f"torch=={version_of('torch').partition('+')[0]}"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, *packages, *BESIDE, torch], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise BenchError(f"the packages cannot be installed: {done.stderr.strip()[-400:]}")
    return python


_TOPS = """
import json, sys, sysconfig
from importlib.metadata import files
tops = sorted({f.parts[0] for f in files(sys.argv[1]) or () if f.parts[1:] == ("__init__.py",)})
print(json.dumps([sysconfig.get_path("purelib"), tops]))
"""


def places_of(package: str, python: Path) -> list[Place]:
    """The findings and notes of a package that have a fix within their file."""
    name = package.partition("==")[0]
    asked = [str(python), "-c", _TOPS, name]
    said = subprocess.run(asked, check=False, capture_output=True, text=True)
    if said.returncode:
        raise BenchError(f"{package} is not there: {said.stderr.strip()[-200:]}")
    site, tops = json.loads(said.stdout)
    found: list[Place] = []
    for top in tops:
        root, findings = lint(Path(site) / top, ("DG",), 2)
        for finding in findings:
            place = _place(finding, root, Path(site))
            if place is not None:
                found.append({**place, "id": f"{name}:{len(found)}"})
    return found


def _place(finding: Finding, root: Path, site: Path) -> Place | None:
    fix, price, hot = finding.fix, finding.price, finding.hot
    if fix is None or hot is None or finding.certainty == "maybe" or not finding.function:
        return None
    if {edit.path for edit in fix.edits} != {finding.path}:
        return None
    path = (root / finding.path).resolve().relative_to(site.resolve())
    before = (site / path).read_text("utf-8")
    return {
        "module": ".".join(path.with_suffix("").parts).removesuffix(".__init__"),
        "roots": sorted(_modules(hot.path)),
        "function": finding.function,
        "path": path.as_posix(),
        "line": finding.span.line,
        "code": finding.code,
        "rule": finding.rule,
        "certainty": finding.certainty,
        "safety": fix.safety,
        "price_us": None if price is None else [price.us, price.low, price.high],
        "waits": 0 if price is None else price.waits,
        "before": before,
        "after": apply_edits(before, fix.edits),
    }


def _modules(functions: Iterable[str]) -> set[str]:
    """The modules, perhaps, of functions on the way to a place; what is none of them cannot be imported."""
    return {
        ".".join(parts[:end])
        for parts in (one.split(".") for one in functions)
        for end in (len(parts) - 1, len(parts) - 2)
        if end > 0
    }


def run(places: Sequence[Place], python: Path, scratch: Path) -> dict[str, Mapping[str, Any]]:
    """What one process says of each place."""
    if not places:
        return {}
    scratch.mkdir(exist_ok=True)
    asked, output = scratch / "places.json", scratch / "gains.jsonl"
    asked.write_text(json.dumps(places), "utf-8")
    output.unlink(missing_ok=True)
    script = Path(__file__).with_name("gains_of_package.py")
    command = [str(python), str(script), str(asked), str(output), str(SECONDS)]
    with subprocess.Popen(command, cwd=scratch) as process:
        process.wait()
    found: dict[str, Mapping[str, Any]] = {}
    for line in output.read_text("utf-8").splitlines() if output.exists() else ():
        row = json.loads(line)
        if "id" in row and (row["id"] not in found or "why" in found[row["id"]]):
            found[row["id"]] = row
    return found


def merged(package: str, place: Place, runs: Sequence[Mapping[str, Mapping[str, Any]]]) -> Place:
    """A place with what all processes say of it."""
    kept = {k: v for k, v in place.items() if k not in ("before", "after", "roots", "id")}
    told = {"package": package, **kept}
    rows = [of_run.get(place["id"], {"why": "no layer of it could be built"}) for of_run in runs]
    if any(row.get("differs") for row in rows):
        return {**told, "differs": True, "layer": rows[0].get("layer", "")}
    if not all("gained_us" in row for row in rows):
        return {**told, "why": next(row["why"] for row in rows if "why" in row)}
    gains = [row["gained_us"] for row in rows]
    value = statistics.fmean(gains)
    half = _T * statistics.stdev(gains) / math.sqrt(len(gains))
    return {
        **told,
        "layer": rows[0]["layer"],
        "rounds": rows[0]["rounds"],
        "call_us": round(statistics.median(row["call_us"] for row in rows), 3),
        "gained_us": [round(end, 4) for end in (value, value - half, value + half)],
    }


# -- what it says -----------------------------------------------------------------------------------


def promised(place: Place) -> list[float] | None:
    """What a place promises to gain in the call that was timed: the usual price, the lowest, the highest."""
    prices = place["price_us"]
    if prices is None or prices[0] is None or "gained_us" not in place:
        return None
    ends = [prices[0] if price is None else price for price in prices]
    return [place["rounds"] * end for end in ends]


def tells(place: Place) -> bool:
    """Whether a place can say something of its promise."""
    promise = promised(place)
    if promise is None:
        return False
    _, low, high = place["gained_us"]
    return bool(high - low <= promise[0] or low > OFF * promise[0] or high < promise[0] / OFF)


def judged(places: Iterable[Place]) -> dict[str, tuple[list[Place], float]]:
    """By rule, the places that tell something, and the median of gained over promised."""
    by_rule: dict[str, list[Place]] = {}
    for place in places:
        if tells(place):
            by_rule.setdefault(f"{place['code']} {place['rule']}", []).append(place)
    return {
        rule: (of_rule, statistics.median(_kept_share(place) for place in of_rule))
        for rule, of_rule in sorted(by_rule.items())
    }


def _kept_share(place: Place) -> float:
    promise = promised(place)
    assert promise is not None
    return float(place["gained_us"][0] / promise[0])


def page(results: Mapping[str, Any]) -> str:
    """The page: by rule, then place by place."""
    places: Sequence[Place] = results["places"]
    about = results["machine"]
    measured = [place for place in places if "gained_us" in place]
    rules = judged(places)
    off = [r for r, (of, m) in rules.items() if len(of) >= LEAST and not 1 / OFF <= m <= OFF]
    differ = [place for place in places if place.get("differs")]
    lines = [
        "# What fixes gain, beside what they promise",
        "",
        (
            f"Written by `make bench-gains`: {about['cpu']}, {about['cores']} cores, Python "
            f"{about['python']}, torch {about['torch']}, one thread. {len(measured)} of {len(places)} places "
            f"in {len(results['packages'])} packages were measured: "
            f"{sum(promised(p) is not None for p in measured)} that promise time, "
            f"{sum(promised(p) is None for p in measured)} that promise a wait less. "
            "How: `bench/bench_gains.py`."
        ),
        "",
        "![Promised and gained microseconds, place by place](gains.svg)",
        "",
        "## By rule",
        "",
        (
            f"Judged are rules with {LEAST} places or more that can tell; the median is to lie between "
            f"{1 / OFF:g} and {OFF:g}."
        ),
        "",
        *table(
            ["rule", "places that tell", "gained / promised, median", "judged"],
            [
                [rule, str(len(of)), f"{median:.2f}", _verdict(len(of), median)]
                for rule, (of, median) in rules.items()
            ],
        ),
        "",
        *(f"- off: {rule}" for rule in off),
        *(f"- gives another result: {p['code']} {p['path']}:{p['line']}" for p in differ),
        "",
        "## Place by place",
        "",
        *table(
            ["package", "place", "code", "layer", "rounds", "call us", "promised us", "gained us"],
            [_row(place) for place in measured],
        ),
        "",
        "## What was not measured",
        "",
        *table(
            ["why", "places"],
            [
                [why, str(n)]
                for why, n in Counter(_why(p) for p in places if "why" in p).most_common()
            ],
        ),
        "",
    ]
    return "\n".join(lines)


def _why(place: Place) -> str:
    known = ("no layer", "not called", "its function", "the fix changes", "a call takes")
    why = str(place["why"])
    return (
        why
        if why.startswith(known[:4])
        else "a call takes too long"
        if why.startswith(known[4])
        else "an error in the call"
    )


def _verdict(places: int, median: float) -> str:
    if places < LEAST:
        return "too few"
    return "holds" if 1 / OFF <= median <= OFF else "OFF"


def _row(place: Place) -> list[str]:
    promise = promised(place)
    said = f"{place['waits']} wait" if promise is None else _figures(promise)
    return [
        place["package"],
        f"{place['path']}:{place['line']}",
        place["code"],
        place["layer"],
        str(place["rounds"]),
        f"{place['call_us']:,.1f}",
        said if promise is None or tells(place) else f"{said} (cannot tell)",
        _figures(place["gained_us"]),
    ]


def _figures(ends: Sequence[float]) -> str:
    value, low, high = ends
    return f"{value:,.2f} ({low:,.2f} to {high:,.2f})"


# -- the plot ---------------------------------------------------------------------------------------

_SIDE, _EDGE = 560, 60
_FROM, _TO = 0.03, 1000.0
"""Microseconds at the ends of both axes."""


def plot(results: Mapping[str, Any]) -> str:
    """Promised on x, gained on y, with intervals, both logarithmic; what gains nothing lies on the axis."""
    marks = [_mark(place) for place in results["places"] if tells(place)]
    ticks = [0.1, 1.0, 10.0, 100.0, 1000.0]
    low, high = _at(_FROM), _at(_TO)
    size = _SIDE + 2 * _EDGE
    text = 'font-family="sans-serif" font-size="12" fill="#444"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" role="img">',
        "<title>Promised and gained microseconds of fixes</title>",
        f'<rect width="{size}" height="{size}" fill="white"/>',
        _line(low, low, high, high, "#888"),
        *(
            _line(_at(a), _at(b), _at(c), _at(d), "#ccc", "4 4")
            for a, b, c, d in (
                (_FROM, _FROM * OFF, _TO / OFF, _TO),
                (_FROM * OFF, _FROM, _TO, _TO / OFF),
            )
        ),
        _line(low, low, high, low, "#444"),
        _line(low, low, low, high, "#444"),
        *(
            f'<text x="{_at(t):.0f}" y="{size - _EDGE + 18}" text-anchor="middle" {text}>{t:g}</text>'
            f'<text x="{_EDGE - 8}" y="{size - _at(t) + 4:.0f}" text-anchor="end" {text}>{t:g}</text>'
            for t in ticks
        ),
        f'<text x="{size / 2}" y="{size - 14}" text-anchor="middle" {text}>promised, us a call</text>',
        (
            f'<text x="16" y="{size / 2}" text-anchor="middle" '
            f'transform="rotate(-90 16 {size / 2})" {text}>gained, us a call</text>'
        ),
        *marks,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _at(us: float) -> float:
    """Where a number of microseconds lies on an axis."""
    share = math.log(max(us, _FROM) / _FROM) / math.log(_TO / _FROM)
    return _EDGE + _SIDE * min(share, 1.0)


def _line(x1: float, y1: float, x2: float, y2: float, color: str, dashes: str = "") -> str:
    size = _SIDE + 2 * _EDGE
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x1:.1f}" y1="{size - y1:.1f}" x2="{x2:.1f}" y2="{size - y2:.1f}" '
        f'stroke="{color}"{dashed}/>'
    )


def _mark(place: Place) -> str:
    promise = promised(place)
    assert promise is not None
    (x, left, right), (y, bottom, top) = (
        [_at(end) for end in ends] for ends in (promise, place["gained_us"])
    )
    said = f"{place['code']} {place['path']}:{place['line']}"
    return (
        f'<g stroke-opacity="0.5"><title>{said}</title>'
        f"{_line(left, y, right, y, '#1565c0')}{_line(x, bottom, x, top, '#1565c0')}"
        f'<circle cx="{x:.1f}" cy="{_SIDE + 2 * _EDGE - y:.1f}" r="4" fill="#1565c0"/></g>'
    )


if __name__ == "__main__":
    sys.exit(main())
