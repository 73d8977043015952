"""How the linter's time grows with the size of valid code that is made to be slow: ``python size_sweeps.py``.

Each case is a file of one hot place, made larger and larger. Its exponent is fitted over the sizes: 1.0 where
twice the size takes twice the time. Calls of Python functions are counted as well, in runs of their own: they
are the same on every machine, but leave out what native code does. `sweep` gives the figures as data.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from pytest_dispatchguard.lint.check import Checked, check
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.report import render

HEAD = "import torch\nfrom torch import nn\n\n\n"
MANY = (200, 400, 800, 1600)
MODEL = f"{HEAD}class M(nn.Module):\n    def forward(self, x: torch.Tensor):\n"


def returned(expression: str) -> str:
    return f"{MODEL}        return {expression}\n"


def _parameters(n: int) -> str:
    names = [f"a{i}" for i in range(n)]
    given = ", ".join(f"{name}: torch.Tensor" for name in names)
    total = " + ".join(f"{name}.item()" for name in names)
    return f"{HEAD}class M(nn.Module):\n    def forward(self, {given}):\n        return {total}\n"


def _subclasses(n: int) -> str:
    first = f"{HEAD}class M0(nn.Module):\n    def forward(self, x: torch.Tensor):\n        return x.item()\n"
    rest = (
        f"\n\nclass M{i}(M{i - 1}):\n    def forward(self, x):\n        return super().forward(x)\n"
        for i in range(1, n)
    )
    return first + "".join(rest)


def _all_of(*bodies: str) -> str:
    return "".join(f"\n\n{body}" for body in bodies)


_MADE = "    def __init__(self):\n        super().__init__()\n"
_HELD = f"{_MADE}        self.w = nn.Parameter(torch.ones(3))\n\n"


def _siblings(n: int) -> str:
    base = "class B(nn.Module):\n    def forward(self, x):\n        return self.step(x)\n"
    step = "    def step(self, x):\n        return self.w.sum().item()\n"
    classes = (f"class S{i}(B):\n{_HELD}{step}" for i in range(n))
    made = "".join(f"        self.s{i} = S{i}()\n" for i in range(n))
    calls = "".join(f"        x = self.s{i}.step(x)\n" for i in range(n))
    forward = f"    def forward(self, x):\n{calls}        return x\n"
    whole = f"class All(B):\n{_MADE}{made}\n{forward}"
    return HEAD + _all_of(base, *classes, whole)


def _same_names(n: int) -> str:
    forward = "    def forward(self, x):\n        return self.helper(x)\n\n"
    helper = "    def helper(self, x):\n        return self.w.sum().item() + x.item()\n"
    return HEAD + _all_of(*(f"class C{i}(nn.Module):\n{_HELD}{forward}{helper}" for i in range(n)))


def _methods(n: int) -> str:
    calls = "".join(f"        x = self.m{i}(x)\n" for i in range(n))
    rest = (
        f"    def m{i}(self, x):\n        return self.m{(i + 1) % n}(x) + self.m{7 * i % n}(x).item()\n\n"
        for i in range(n)
    )
    return f"{MODEL}{calls}        return x\n\n{''.join(rest)}"


def _nested(n: int) -> str:
    inner = "".join(f"        def f{i}(y):\n            return y.item()\n" for i in range(n))
    calls = "".join(f"        x = f{i}(x)\n" for i in range(n))
    return f"{MODEL}{inner}{calls}        return x\n"


def _decorators(n: int) -> str:
    made = (
        f"def d{i}(f):\n    def inner(*a):\n        return f(*a).item()\n\n    return inner\n"
        for i in range(n)
    )
    above = "".join(f"    @d{i}\n" for i in range(n))
    return HEAD + _all_of(
        *made, f"class M(nn.Module):\n{above}    def forward(self, x):\n        return x\n"
    )


def _table(n: int) -> str:
    made = (f"def f{i}(x):\n    return x.item()\n" for i in range(n))
    table = "".join(f"    {i}: f{i},\n" for i in range(n))
    forward = "    def forward(self, x, k):\n        return TABLE[k](x)\n"
    return HEAD + _all_of(*made, f"TABLE = {{\n{table}}}\n", f"class M(nn.Module):\n{forward}")


def _one_line(n: int) -> str:
    hot = "# dispatchguard: hot\ndef f{}(x: torch.Tensor): return x.item()\n"
    return HEAD + _all_of(*map(hot.format, range(n)))


def _aliases(n: int) -> str:
    names = "".join(f"a{i} = a{i - 1}\n" for i in range(1, n))
    call = f"class M(nn.Module):\n    def forward(self, x):\n        return a{n - 1}(x)\n"
    return f"{HEAD}def a0(x):\n    return x.item()\n\n\n{names}\n\n{call}"


def _unpacked(n: int) -> str:
    lines = "".join(f"        a{i}, b{i} = b{i - 1}, a{i - 1}\n" for i in range(1, n))
    start = "class M(nn.Module):\n    def forward(self, x, y):\n        a0, b0 = x, y\n"
    return f"{HEAD}{start}{lines}        return 1 if a{n - 1} else 2\n"


CASES: dict[str, tuple[Callable[[int], str], tuple[int, ...]]] = {
    "tensor parameters": (_parameters, (30, 60, 120, 240)),
    "conjunction": (
        lambda n: f"{MODEL}        if {' and '.join(['x.any()'] * n)}:\n            return x\n",
        (65, 130, 260, 520),
    ),
    "list": (lambda n: returned(f"[{', '.join(['x.item()'] * n)}]"), (500, 1000, 2000, 4000)),
    "sum": (lambda n: returned(" + ".join(["x.item()"] * n)), (60, 120, 240, 480)),
    "calls": (lambda n: returned("x" + ".a()" * n + ".item()"), (30, 60, 120, 240)),
    "subscripts": (lambda n: returned("x" + "[0]" * n + ".item()"), (30, 60, 120, 240)),
    "attributes": (lambda n: returned("x" + ".a" * n + ".item()"), (60, 120, 240, 480)),
    "signs": (lambda n: returned("-" * n + "x.item()"), (60, 120, 240, 480)),
    "ternaries": (lambda n: returned("x if x.any() else " * n + "x"), (30, 60, 120, 240)),
    "statements": (
        lambda n: MODEL + "        y = x.item()\n" * n + "        return y\n",
        (100, 200, 400, 800),
    ),
    "branches": (
        lambda n: MODEL + "        if x.any():\n            return x\n" * n,
        (100, 200, 400, 800),
    ),
    "subclasses": (_subclasses, (400, 800, 1600, 3200)),
    "siblings": (_siblings, MANY),
    "same names": (_same_names, MANY),
    "methods": (_methods, MANY),
    "nested functions": (_nested, MANY),
    "decorators": (_decorators, MANY),
    "table of functions": (_table, MANY),
    "one line each": (_one_line, MANY),
    "aliases": (_aliases, (180, 360, 720, 1440)),
    # Beyond what is judged: told, and soon.
    "unpacked": (_unpacked, (500, 1000, 2000, 4000)),
    "deep numbers": (
        lambda n: returned("int(" * n + "x.item()" + ")" * n),
        (1500, 3000, 6000, 12_000),
    ),
    "deep lambdas": (
        lambda n: returned("self.own(lambda: " * n + "self.item()" + ")" * n),
        (750, 1500, 3000, 6000),
    ),
    "deep brackets": (
        lambda n: returned("(" * n + "x.item()" + ")" * n),
        (1500, 3000, 6000, 12_000),
    ),
    "deep attributes": (
        lambda n: returned("x" + ".a" * n + ".item()"),
        (5000, 10_000, 20_000, 40_000),
    ),
}


@dataclass(frozen=True)
class Sweep:
    """One case, over its sizes."""

    case: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    calls: tuple[int, ...]
    time_exponent: float
    call_exponent: float
    problems: tuple[str, ...]
    """What the linter says that it failed at."""


def run(text: str) -> Checked:
    """Lints one file, with nothing known of it, and reports what is found, as `check` does."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "pyproject.toml").write_text("[tool.dispatchguard]\n")
        (root / "m.py").write_text(text)
        checked = check(Request(paths=(), cwd=root, cache=False))
        render(checked.report, "text", sources=checked.reader)
        return checked


def counted(text: str) -> int:
    """How many functions of Python are called meanwhile."""
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    threading.setprofile(count)  # deep code is judged in a thread with room for it
    try:
        run(text)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # as its documentation has it
    return calls


def exponent(sizes: Sequence[int], figures: Sequence[float]) -> float:
    """The slope of the line through the figures, both axes by their logarithms."""
    xs = [math.log(size) for size in sizes]
    ys = [math.log(max(figure, 1e-6)) for figure in figures]
    x0, y0 = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - x0) * (y - y0) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - x0) ** 2 for x in xs)


def sweep(case: str, sizes: Sequence[int] | None = None, *, times: int = 3) -> Sweep:
    """The figures of a case: the best of some times each, less what a file of nothing takes."""
    make, usual = CASES[case]
    chosen = tuple(sizes or usual)
    run(make(chosen[0]))  # all that is imported only once

    def best(text: str) -> float:
        taken = []
        for _ in range(times):
            begun = time.perf_counter()
            run(text)
            taken.append(time.perf_counter() - begun)
        return min(taken)

    nothing, quiet = best(returned("x")), counted(returned("x"))
    seconds = tuple(max(best(make(n)) - nothing, 1e-4) for n in chosen)
    calls = tuple(max(counted(make(n)) - quiet, 1) for n in chosen)
    return Sweep(
        case,
        chosen,
        seconds,
        calls,
        exponent(chosen, seconds),
        exponent(chosen, calls),
        run(make(chosen[-1])).problems,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", help=f"some of: {', '.join(CASES)}")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    given = parser.parse_args()
    unknown = [case for case in given.cases if case not in CASES]
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}")
    found = []
    print("| case | sizes | seconds | exponent | calls | exponent |")
    print("| --- | --- | --- | ---: | --- | ---: |")
    for case in given.cases or CASES:
        one = sweep(case)
        found.append(one)
        sizes, calls = (" ".join(map(str, row)) for row in (one.sizes, one.calls))
        seconds = " ".join(f"{s:.2f}" for s in one.seconds)
        figures = f"{one.time_exponent:.2f} | {calls} | {one.call_exponent:.2f}"
        print(f"| {case} | {sizes} | {seconds} | {figures} |", flush=True)
        for problem in one.problems:
            print(f"  {problem}", file=sys.stderr)
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    return int(any(one.problems for one in found))


if __name__ == "__main__":
    sys.exit(main())
