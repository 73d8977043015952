"""What torch.compile takes of a call that does next to nothing, layer by layer, on today's torch.

    python bench/compile_overhead.py [--draw]

A note on the fixed overhead of torch.compile took `add1`, x + 1 on a small tensor of the CPU, from 24.4 µs to
10.3 µs, with 4.5 µs of eager torch beside it: kernels called by real bindings, not by ctypes; one guard made
cheap; context managers that do nothing taken away; a cheaper allocation. Here the same call runs on its whole
way and from further and further within: without Dynamo's way in, from AOTAutograd's wrapper on, from
Inductor's, the generated code alone, with its output made before, the kernel alone. All take turns in short
blocks, each after calls that are not timed: layers are paired differences that add up by their making.

What the note changed is measured as it would be today: the kernel by ctypes, torch.empty_strided, guards in
Python, context managers that do nothing. Once more with a tensor that requires a gradient. Written to
bench/results/compile.json, compile.md and compile.svg, which the docs show.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from bench_lint import BenchError
from publishing import figures, interval, shown, study, table, where, written_by
from warming import warmed

from pytest_dispatchguard.measure.timing.interleaved import Arm, InterleavedTimes, time_interleaved

ELEMENTS = 10
SECONDS = 40.0
"""For each case."""
CLOCK = time.perf_counter_ns
CASES = {"no gradient": False, "requires_grad": True}

WHOLE, EAGER, SKIPPED = "compiled", "eager", "compiled, guards skipped"
REWRITTEN, AOT, APPLY = (
    "from the rewritten code on",
    "from AOTAutograd on",
    "from Function.apply on",
)
INDUCTOR, CODE = "from Inductor's wrapper on", "generated code"
CODE_GIVEN, KERNEL = "generated code, output made before", "kernel, output made before"
WAYS = {
    EAGER: "as users write it",
    WHOLE: "torch.compile with its defaults",
    SKIPPED: "torch.compiler.set_stance(skip_guard_eval_unsafe=True)",
    REWRITTEN: "without torch.compile's Python wrapper: guards, and what Dynamo made of the function",
    AOT: "what the rewritten code calls",
    APPLY: "the autograd function that AOTAutograd made, where a gradient is required",
    INDUCTOR: "what AOTAutograd calls",
    CODE: "the function that Inductor wrote",
    CODE_GIVEN: "the same, with a function in place of the allocation that returns one tensor",
    KERNEL: "the C++ kernel by its binding",
}
MARKS, NOTHINGS = "marks of the profiler", "context managers that do nothing"
PYTHON_GUARDS, ALLOCATION = "guards written in Python", "allocation"
BY_CTYPES, PLAIN_ALLOCATION = "kernel by ctypes", "torch.empty_strided"
CHAIN = (REWRITTEN, AOT, APPLY, INDUCTOR, CODE)
"""Ways that begin further and further within."""
OWN = {
    REWRITTEN: "Dynamo's rewritten code",
    AOT: "AOTAutograd's wrapper",
    APPLY: "autograd's Function",
    INDUCTOR: "Inductor's wrapper",
    CODE: "generated code",
}
"""What a way has that the next one has not."""
SAVED = {
    "binding": {BY_CTYPES: 1.0, KERNEL: -1.0},
    "allocation": {PLAIN_ALLOCATION: 1.0, ALLOCATION: -1.0},
    "output made before": {CODE: 1.0, CODE_GIVEN: -1.0},
}
"""What the note changed, as it would be today: sums of ways times factors."""
LAYERS_ARE = (
    "Layers are differences of the ways below, and add up to the whole by their making. Parts that run "
    "alone find more in the caches than within the call: what they gain by it stands with what is around "
    "them."
)
NOTE = {"before": 24.4, "after": 10.3, "eager": 4.5}

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    return study("compile", __doc__, arguments, measure, page, plot)


# -- what is measured --------------------------------------------------------------------------------


def measure() -> dict[str, Any]:
    """Both cases."""
    cases = {name: measured(name, gradient) for name, gradient in CASES.items()}
    return {"note_us": NOTE, "ways": WAYS, "elements": ELEMENTS, "cases": cases}


def measured(name: str, gradient: bool) -> Row:
    """One case: what Python runs, and all ways by turns."""
    import torch

    from pytest_dispatchguard.measure.timing.calling import Call
    from pytest_dispatchguard.runtime.hooks.call_tree import CallTree

    say(name)
    torch.compiler.reset()
    x = torch.ones(ELEMENTS, requires_grad=gradient)
    call = Call(torch.compile(add1), (x,))
    for _ in range(3):
        call.once()()
    tree = CallTree()
    tree.record(call.once())
    arms = {EAGER: warmed(Arm(Call(add1, (x,)).block(CLOCK))), **ways(call, tree.calls)}
    found = time_interleaved({WHOLE: arms.pop(WHOLE), **arms}, seconds=SECONDS)
    layers = {layer: figures(found.us(sums)) for layer, sums in layers_of(found).items()}
    return {
        "rounds": found.rounds,
        "us": {way: figures(found.us({way: 1})) for way in found.times}
        | {WHOLE: figures(found.alone(WHOLE))},
        "times eager": {way: figures(found.ratio(way, EAGER)) for way in found.times},
        "layers_us": layers,
        "saved_us": {step: figures(found.us(sums)) for step, sums in SAVED.items()},
        "guards_alone_us": guards_alone(gradient),
        "python functions": functions(tree.calls),
    }


def add1(x: Any) -> Any:
    return x + 1


def ways(call: Any, calls: Sequence[Any]) -> dict[str, Arm]:
    """Every way to run a compiled call, and parts of it alone."""
    from pytest_dispatchguard.measure.layers.functions import again
    from pytest_dispatchguard.measure.layers.statements import Statement, statements_arm
    from pytest_dispatchguard.runtime.compiled import calls as compiled
    from pytest_dispatchguard.runtime.torch_private.compiler import only_compiled_code

    def alone(
        *chosen: Any, around: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> Arm:
        statements = [Statement(*again(one, "{0}")) for one in chosen]
        return warmed(statements_arm(statements, CLOCK, around))

    def stated(text: str, *values: Any) -> Arm:
        return warmed(statements_arm([Statement(text, values)], CLOCK, compiled.unrecorded))

    path = path_to_code(calls)
    rewritten = next(one for one in path if compiled.is_rewritten(one))
    code = path[-1]
    below = path[path.index(rewritten) + 1 :]
    first = {compiled.role(one): one for one in reversed(below)}
    by_name = {role.name: one for role, one in first.items() if role is not None}
    applied = [one for one in below if one.code.co_name == "apply"]
    made = {one.kind: one for one in compiled.made_by(code)}
    allocated, kernel = made["allocation"], made["kernel"]
    block = call.block(CLOCK)
    found = {
        WHOLE: warmed(Arm(block)),
        SKIPPED: warmed(Arm(block, compiled.guards_skipped)),
        REWRITTEN: alone(rewritten, around=only_compiled_code),
        AOT: alone(by_name["AOTAutograd's wrapper"]),
        INDUCTOR: alone(by_name["Inductor's wrapper"], around=compiled.unrecorded),
        CODE: alone(code, around=compiled.unrecorded),
        CODE_GIVEN: alone(code, around=lambda: allocation_replaced(code, allocated)),
        KERNEL: stated("{0}({1}, {2})", kernel.function, *kernel.args),
        ALLOCATION: stated("{0}({1}, {2}, {3})", allocated.function, *allocated.args),
        PLAIN_ALLOCATION: plain_allocation(stated, allocated),
        BY_CTYPES: by_ctypes(stated, kernel),
        NOTHINGS: stated(
            "\n            ".join(["with {0}(): pass"] * nothings(calls)), nullcontext
        ),
    }
    if applied:
        found[APPLY] = alone(applied[0])
    marks = [
        one
        for one in calls
        if one.parent == rewritten.number
        and one not in path
        and named(one, "torch._dynamo.disable")
    ]
    checks = [one for one in calls if named(one, PYTHON_GUARDS)]
    within = {one.number for one in checks}
    checks = [one for one in checks if one.parent not in within]
    found |= {MARKS: alone(*marks)} if marks else {}
    found |= {PYTHON_GUARDS: alone(*checks)} if checks else {}
    return found


def path_to_code(calls: Sequence[Any]) -> list[Any]:
    """From torch.compile's wrapper to the generated code, each called by the one before."""
    from pytest_dispatchguard.runtime.compiled.calls import is_generated

    found = [one for one in calls if is_generated(one)]
    if len(found) != 1:
        raise BenchError(f"one piece of generated code should run, {len(found)} do")
    while found[0].parent >= 0:
        found.insert(0, calls[found[0].parent])
    return found


def named(call: Any, name: str) -> bool:
    from pytest_dispatchguard.runtime.compiled.calls import role

    found = role(call)
    return found is not None and found.name == name


@contextmanager
def allocation_replaced(code: Any, allocated: Any) -> Iterator[None]:
    """The generated code is given one and the same output."""
    import torch

    space, output = code.function.__globals__, allocated.function(*allocated.args)
    space[allocated.name] = lambda *shape: output
    try:
        with torch.no_grad():
            yield
    finally:
        space[allocated.name] = allocated.function


def plain_allocation(stated: Callable[..., Arm], allocated: Any) -> Arm:
    """The allocation as everybody makes it."""
    import torch

    size, stride, dtype = allocated.args
    text = "{0}({1}, {2}, dtype={3}, device={4})"
    return stated(text, torch.empty_strided, size, stride, dtype, "cpu")


def by_ctypes(stated: Callable[..., Arm], kernel: Any) -> Arm:
    """The very kernel as it was called before it had a binding."""
    function = ctypes.CDLL(kernel.function.__self__.__file__).kernel
    text = "{0}({1}({2}.data_ptr()), {1}({3}.data_ptr()))"
    return stated(text, function, ctypes.c_void_p, *kernel.args)


def nothings(calls: Sequence[Any]) -> int:
    """How many times a call enters a nullcontext."""
    return sum(one.code is nullcontext.__enter__.__code__ for one in calls)


def layers_of(found: InterleavedTimes) -> dict[str, dict[str, float]]:
    """The layers of the whole: sums of ways times factors."""
    chain = [way for way in CHAIN if way in found.times]
    guards = {WHOLE: 1.0, SKIPPED: -1.0}
    layers: dict[str, dict[str, float]] = {
        "Dynamo's way in": {WHOLE: 1.0, REWRITTEN: -1.0},
        "guards": guards,
    }
    for way, within in zip(chain, [*chain[1:], None], strict=True):
        own = {way: 1.0} | ({} if within is None else {within: -1.0})
        if way == REWRITTEN:
            own |= {WHOLE: -1.0, SKIPPED: 1.0}
            if MARKS in found.times:
                own[MARKS] = -1.0
        if way == CODE:
            own |= {ALLOCATION: -1.0, KERNEL: -1.0}
        layers[OWN[way]] = own
        if way == REWRITTEN and MARKS in found.times:
            layers[MARKS] = {MARKS: 1.0}
    return {**layers, "allocation": {ALLOCATION: 1.0}, "kernel": {KERNEL: 1.0}}


def guards_alone(gradient: bool) -> list[dict[str, float | None]]:
    """What `dispatchguard guards` says of checking them."""
    from pytest_dispatchguard.measure.layers.guards import guarded

    setup = (
        "import torch; f = torch.compile(lambda x: x + 1); "
        f"x = torch.ones({ELEMENTS}, requires_grad={gradient})"
    )
    with tempfile.TemporaryDirectory() as folder:
        codes = guarded("f(x)", setup, Path(folder))
    return [figures(code.cost_us) for code in codes if code.cost_us is not None]


def functions(calls: Sequence[Any]) -> dict[str, int]:
    """Python functions that one call runs, by what they are there for."""
    from pytest_dispatchguard.runtime.compiled.calls import role

    roles = (role(one) for one in calls)
    return dict(Counter("other" if found is None else found.name for found in roles))


# -- results -----------------------------------------------------------------------------------------


def page(results: Mapping[str, Any]) -> str:
    """The tables, for people."""
    cases = results["cases"]
    return "\n".join(
        [
            "# The fixed overhead of torch.compile",
            "",
            written_by("bench-compile", results)
            + f" `add1` is x + 1 on {results['elements']} elements (float32), Inductor. All ways take "
            "turns in short blocks, each after calls that are not timed; in brackets intervals of 99.9%.",
            "",
            "## The layers of a compiled call, in µs",
            "",
            *table(["layer", *cases], layer_rows(cases)),
            "",
            LAYERS_ARE,
            "",
            "## Beside the note",
            "",
            "Machines differ: each is also told as times the eager call of the same machine.",
            "",
            *table(["", "the note, µs", "times eager", *heads(cases)], note_rows(cases)),
            "",
            "## The ways",
            "",
            *table(["way", *heads(cases)], way_rows(cases)),
            "",
            *(f"- {name}: {about}" for name, about in results["ways"].items()),
            "",
            "## Python functions that one call runs",
            "",
            *table(["of", *cases], function_rows(cases)),
            "",
        ]
    )


def heads(cases: Mapping[str, Row]) -> list[str]:
    return [f"{name}, {unit}" for name in cases for unit in ("µs", "times eager")]


def layer_rows(cases: Mapping[str, Row]) -> list[list[str]]:
    names = dict.fromkeys(name for row in reversed(cases.values()) for name in row["layers_us"])
    rows = [[name, *(cell(row["layers_us"].get(name)) for row in cases.values())] for name in names]
    return [*rows, ["the whole", *(cell(row["us"][WHOLE]) for row in cases.values())]]


def note_rows(cases: Mapping[str, Row]) -> list[list[str]]:
    def of(said: str, theirs: float | None, find: Callable[[Row], Any]) -> list[str]:
        cells = [said, *(["", ""] if theirs is None else [str(theirs), times(theirs, NOTE[EAGER])])]
        for row in cases.values():
            found = find(row)
            us = found and times(found["value"], row["us"][EAGER]["value"])
            cells += [cell(found), us or ""]
        return cells

    return [
        of("eager", NOTE[EAGER], lambda row: row["us"][EAGER]),
        of("compiled, before the note's work", NOTE["before"], lambda row: None),
        of("compiled, after it", NOTE["after"], lambda row: row["us"][WHOLE]),
        of("saved by a binding instead of ctypes", 1.9, lambda row: row["saved_us"]["binding"]),
        of("saved on one guard; guards in Python", 4.4, lambda row: row["us"].get(PYTHON_GUARDS)),
        of("saved on no-op contexts; the profiler's marks", 5.9, lambda row: row["us"].get(MARKS)),
        of("nullcontexts, entered and left", None, lambda row: row["us"][NOTHINGS]),
        of("saved by a cheaper allocation", 1.7, lambda row: row["saved_us"]["allocation"]),
        of("left: guards, by skipping them", 2.5, lambda row: row["layers_us"]["guards"]),
        of("left: guards, checked alone", None, lambda row: first(row["guards_alone_us"])),
        of("left: allocation", 1.2, lambda row: row["us"][ALLOCATION]),
        of("an output made before saves", None, lambda row: row["saved_us"]["output made before"]),
    ]


def times(us: float, eager: float) -> str:
    return f"{us / eager:.2f}"


def way_rows(cases: Mapping[str, Row]) -> list[list[str]]:
    keys = ("us", "times eager")
    return [
        [way, *(cell(row[key].get(way)) for row in cases.values() for key in keys)] for way in WAYS
    ]


def function_rows(cases: Mapping[str, Row]) -> list[list[str]]:
    found = [row["python functions"] for row in cases.values()]
    names = dict.fromkeys(name for one in reversed(found) for name in one)
    rows = [[name, *(str(one.get(name, 0)) for one in found)] for name in names]
    return [*rows, ["all", *(str(sum(one.values())) for one in found)]]


def cell(figures: Mapping[str, float | None] | None) -> str:
    return "" if figures is None else shown(figures, 2)


def first(found: Sequence[Any]) -> Any:
    return found[0] if found else None


def plot(results: Mapping[str, Any]) -> str:
    """The layers of the call without a gradient."""
    from pytest_dispatchguard.report.charts.charts import Caption, Layer, waterfall

    row = next(iter(results["cases"].values()))
    whole, eager = row["us"][WHOLE], row["us"][EAGER]
    caption = Caption(
        f"Where {whole['value']:.1f} µs of a compiled x + 1 go; eager takes {eager['value']:.1f} µs",
        f"{results['elements']} elements; the note: {NOTE['before']} µs before, {NOTE['after']} µs after, "
        f"eager {NOTE['eager']} µs; {where(results)}",
    )
    layers = [Layer(name, interval(us)) for name, us in row["layers_us"].items()]
    return waterfall(caption, layers, Layer("the whole call", interval(whole)))


def say(text: str) -> None:
    print(f"compile_overhead: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
