"""What guards take of many small modules with constants of their own, and which changes remove them.

    python bench/guards_study.py [--draw]

A tutorial compiled 100 modules, each of which multiplies by its own Python float: 10,000 calls took 0.7 s,
and 0.05 s once guards were skipped. Here the same modules, 10, 30 and 100 of them, run eager, compiled, with
guards skipped, and in forms that a user may give them: a buffer in each module, all constants in one tuple or
one buffer of the whole, and filters of guards. All take turns in short blocks, each after calls that are not
timed; ratios are paired, with intervals. Once more 100 modules run with other work between their calls.

Guards are counted, and those of the largest are told as `dispatchguard guards` tells them. Written to
bench/results/guards.json, guards.md and guards.svg, which the docs show.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from bench_lint import BenchError
from publishing import figures, interval, shown, study, table, where, written_by
from warming import WARMING, warmed

from pytest_dispatchguard.measure.timing.interleaved import Arm, InterleavedTimes, time_interleaved

HERE = Path(__file__).resolve().parent
FORMS_FILE = HERE / "guarded_modules.py"
SIZES = (10, 30, 100)
SECONDS = 10.0
"""For each size."""
TUTORIAL = {"compiled": 0.7e6 / 10_000, "compiled, guards skipped": 0.05e6 / 10_000}
"""Microseconds of a call of 100 modules."""
ATTRIBUTE = '{"guard_filter_fn": lambda gs: [not g.name.endswith(".factor") for g in gs]}'
HELPER = '{"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}'
FORMS: Mapping[str, tuple[str, str]] = {
    "compiled": ("constants", "{}"),
    "a buffer in each module": ("buffers", "{}"),
    "one tuple in the whole": ("one_tuple", "{}"),
    "one buffer in the whole": ("one_buffer", "{}"),
    "filter: the attribute": ("constants", ATTRIBUTE),
    "filter: all modules": ("constants", HELPER),
}
"""What is compiled, and with which options."""
ONE_TUPLE = "one tuple in the whole"
SAFE = ("compiled", "a buffer in each module", "one tuple in the whole", "one buffer in the whole")
EAGER, WHOLE, SKIPPED = "eager", "compiled", ", guards skipped"
TOLD = ("compiled", "a buffer in each module", "one tuple in the whole")
"""Forms whose guards are told as `dispatchguard guards` tells them."""
CLOCK = time.perf_counter_ns
MEGABYTES = 32
"""What the work between calls reads and writes: more than the caches close to a core hold."""


def main(arguments: Sequence[str] | None = None) -> int:
    return study("guards", __doc__, arguments, measure, page, plot)


# -- what is measured --------------------------------------------------------------------------------


def measure() -> dict[str, Any]:
    """All sizes by turns, the largest also with other work between calls, and what its guards are."""
    import torch

    with torch.no_grad():
        sizes = [measured(number) for number in SIZES]
    told = {name: guards_told(name) for name in TOLD}
    return {
        "tutorial_us": TUTORIAL,
        "forms": {n: {"made by": maker, "options": o} for n, (maker, o) in FORMS.items()},
        "sizes": sizes,
        "told": told,
    }


def measured(number: int) -> dict[str, Any]:
    """So many modules in every form: guards, and times by turns."""
    import torch

    x = torch.ones(8)
    eager = fresh_forms().constants(number)
    expected = eager(x)
    calls: dict[str, Callable[[], Any]] = {EAGER: partial(eager, x)}
    guards = {}
    for name in FORMS:
        say(f"{number} modules: {name}")
        calls[name], guards[name] = compiled(name, number, x, expected)
    arms = {name: arm(call) for name, call in calls.items()}
    arms |= {skipped(name): arm(calls[name], skipping=True) for name in SAFE}
    say(f"{number} modules by turns")
    row: dict[str, Any] = {"modules": number, "guards": guards}
    row |= told(time_interleaved(arms, seconds=SECONDS))
    if number == max(SIZES):
        say("the same with other work between calls")
        work = torch.ones(MEGABYTES * 2**18)
        between = {
            name: arm(calls[name.removesuffix(SKIPPED)], skipping=name.endswith(SKIPPED), work=work)
            for name in (WHOLE, skipped(WHOLE), *SAFE[1:])
        }
        row["with work between"] = told(time_interleaved(between, seconds=SECONDS))
    return row


def skipped(name: str) -> str:
    return name + SKIPPED


def compiled(name: str, number: int, x: Any, expected: Any) -> tuple[Callable[[], Any], int]:
    """One form, compiled, and how many guards it has."""
    import torch

    from pytest_dispatchguard.runtime.compiled.guards import guards_of
    from pytest_dispatchguard.runtime.torch_private import compiler

    maker, options = FORMS[name]
    model = getattr(fresh_forms(), maker)(number)
    function = torch.compile(model, options=eval(options, {"torch": torch}))
    with compiler.compiled_codes() as codes:
        found = function(x)
    if not torch.allclose(found, expected, rtol=1e-4):
        raise BenchError(f"{name} computes something else")
    return partial(function, x), len(guards_of(dict.fromkeys(codes)))


def fresh_forms() -> Any:
    """The forms with code of their own: compiled code is kept by the code that it was made of, and forms that
    shared it would be told apart at each call."""
    spec = importlib.util.spec_from_file_location("guarded_modules", FORMS_FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arm(call: Any, *, skipping: bool = False, work: Any = None) -> Arm:
    """A form that takes its turn: in a loop, or after other work before each call."""
    from pytest_dispatchguard.measure.timing.calling import Call
    from pytest_dispatchguard.runtime.compiled.calls import guards_skipped

    function, args = call.func, call.args
    block = Call(function, args).block(CLOCK)

    def after_work(times: Iterable[None]) -> int:
        took = 0
        for _ in times:
            work.add_(1.0)
            start = CLOCK()
            function(*args)
            took += CLOCK() - start
        return took

    around = guards_skipped if skipping else nullcontext
    return warmed(Arm(block if work is None else after_work, around), block)


def told(found: InterleavedTimes) -> dict[str, Any]:
    """What the turns say: microseconds, times the compiled form, and what skipping guards saves."""
    names = list(found.times)
    both = [name for name in names if skipped(name) in names]
    return {
        "rounds": found.rounds,
        "us": {name: figures(found.alone(name)) for name in names},
        "times compiled": {name: figures(found.ratio(name, WHOLE)) for name in names},
        "times one tuple": {name: figures(found.ratio(name, ONE_TUPLE)) for name in names},
        "guards_us": {name: figures(found.us({name: 1, skipped(name): -1})) for name in both},
        "times skipped": {name: figures(found.ratio(name, skipped(name))) for name in both},
    }


def guards_told(name: str) -> dict[str, Any]:
    """The guards of the largest, as the command tells them."""
    from pytest_dispatchguard.measure.layers.guards import guarded
    from pytest_dispatchguard.report.budgets.guards import as_text

    say(f"dispatchguard guards: {name}")
    maker, options = FORMS[name]
    setup = (
        f"import torch; from guarded_modules import {maker}; "
        f"f = torch.compile({maker}({max(SIZES)}), options={options}); x = torch.ones(8)"
    )
    codes = guarded("f(x)", setup, HERE)
    return {
        "command": f"dispatchguard guards 'f(x)' --setup '{setup}'",
        "guards": sum(code.number for code in codes),
        "checking_us": [figures(code.cost_us) for code in codes if code.cost_us is not None],
        "text": as_text("f(x)", codes),
    }


# -- results -----------------------------------------------------------------------------------------


def page(results: Mapping[str, Any]) -> str:
    """The tables, for people."""
    largest = results["sizes"][-1]
    lines = [
        "# Guards of many small modules",
        "",
        written_by("bench-guards", results)
        + " Modules that multiply a tensor of 8 elements by a constant of their own, Inductor, no gradients. "
        "All forms take turns in short blocks; in brackets intervals of 99.9%.",
        "",
        f"## {largest['modules']} modules, beside the tutorial",
        "",
        f"In a loop: {WARMING} calls before each block are not timed.",
        "",
        *table(
            ["form", "guards", "µs a call", "times compiled", "the tutorial, µs a call"],
            form_rows(largest),
        ),
        "",
        f"With other work between calls, on {MEGABYTES} MB: what a call finds in a program that does more.",
        "",
        *table(
            ["form", "guards", "µs a call", "times compiled", "the tutorial, µs a call"],
            form_rows({**largest, **largest["with work between"]}),
        ),
        "",
        "## What skipping guards saves, by number of modules",
        "",
        *table(
            ["modules", "form", "guards", "saves, µs a call", "times skipped"], saved_rows(results)
        ),
        "",
        "## What `dispatchguard guards` says",
        "",
    ]
    for name, said in results["told"].items():
        lines += [f"{name}: `{said['command']}`", "", "```text", said["text"].rstrip(), "```", ""]
    return "\n".join(lines)


def form_rows(row: Mapping[str, Any]) -> list[list[str]]:
    """One line for each form that was timed."""
    found = []
    for name, us in row["us"].items():
        guards = row["guards"].get(name)
        theirs = TUTORIAL.get(name)
        found.append(
            [
                name,
                "" if guards is None else str(guards),
                shown(us),
                shown(row["times compiled"][name], 2),
                "" if theirs is None else f"{theirs:.0f}",
            ]
        )
    return found


def saved_rows(results: Mapping[str, Any]) -> list[list[str]]:
    found = []
    for row in results["sizes"]:
        for way, part in (("in a loop", row), ("work between", row.get("with work between"))):
            for name, saved in (part or {}).get("guards_us", {}).items():
                cells = [shown(saved), shown(part["times skipped"][name], 2)]
                about = f"{name}, {way}"
                found.append([str(row["modules"]), about, str(row["guards"][name]), *cells])
    return found


def plot(results: Mapping[str, Any]) -> str:
    """How much dearer each form is than the one with hardly any guards, over the number of modules."""
    from pytest_dispatchguard.report.charts.charts import Caption, Mark, Series, lines

    labels = {WHOLE: "a constant in each module", skipped(WHOLE): "constants, guards skipped"}
    names = [SAFE[1], WHOLE, "filter: the attribute", skipped(WHOLE), "filter: all modules"]
    series = [
        Series(
            labels.get(name, name),
            tuple(
                (float(row["modules"]), interval(row["times one tuple"][name]))
                for row in results["sizes"]
            ),
        )
        for name in names
    ]
    caption = Caption(
        "What guards take of many small modules",
        f"compiled calls, each module multiplies by a constant of its own; {where(results)}",
    )
    return lines(
        caption,
        series,
        log_x=True,
        log_y=True,
        levels=[Mark("all in one tuple", 1.0)],
        x_label="modules",
        y_label="times the call with all constants in one tuple",
    )


def say(text: str) -> None:
    print(f"guards_study: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
