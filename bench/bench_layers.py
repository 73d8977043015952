"""Whether the layers of a call add up to the call, and come out the same twice.

    python bench/bench_layers.py [--venvs FOLDER]

Calls of many kinds (views, reductions, products, operations with many arguments, layers, Keras,
torchmetrics, compiled code) are taken apart twice each by `dispatchguard layers`, in processes of their
own. The sum of the layers is held against the whole, which is measured directly; what is less than nothing,
and so left out, counts as not attributed. The shares of layers are held against those of the second run: do
their intervals meet.
Written to bench/results/layers.json and layers.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from bench_ghost import clean, environment, published, wishes
from bench_lint import BenchError, machine

RESULTS = Path(__file__).resolve().parent / "results" / "layers.json"
LIBRARIES = ("numpy", "keras==3.15.1", "torchmetrics==1.8.2")
NEAR = 0.05
"""What the parts may be off by."""

TORCH = "import torch; torch.set_num_threads(1); torch.manual_seed(0); nn = torch.nn; F = nn.functional; "
SQUARE = TORCH + "x = torch.rand(8, 8); "
IMAGE = TORCH + "x = torch.rand(1, 3, 16, 16); "
WEIGHTS = "w = torch.rand(4, 3, 3, 3); b = torch.rand(4)"
LINEAR = "nn.Linear(8, 8).requires_grad_(False)"
KERAS = "import os; os.environ['KERAS_BACKEND'] = 'torch'; " + SQUARE + "import keras; "
METRICS = TORCH + "import torchmetrics; p = torch.rand(32); t = torch.randint(2, (32,)); "
CALLS: tuple[tuple[str, str, str], ...] = (
    ("addition", "torch.add(x, x)", SQUARE),
    ("addition, large", "torch.add(x, x)", TORCH + "x = torch.rand(500, 500)"),
    ("addition, recorded", "torch.add(x, x)", SQUARE + "x.requires_grad_()"),
    ("view", "x.view(4, 16)", SQUARE),
    ("transposed", "x.permute(1, 0)", SQUARE),
    ("an element of it", "torch.Tensor.__getitem__(x, 0)", SQUARE),
    ("sum", "torch.sum(x)", SQUARE),
    ("greatest by row", "torch.max(x, 1)", SQUARE),
    ("product of matrices", "torch.matmul(x, x)", SQUARE),
    ("concatenation", "torch.cat([x, x], 0)", SQUARE),
    ("in place", "x.mul_(1.0)", SQUARE),
    ("choice by a mask", "torch.where(m, x, y)", SQUARE + "m = x > 0.5; y = -x"),
    ("softmax, functional", "F.softmax(x, -1)", SQUARE),
    (
        "normalisation, five arguments",
        "F.layer_norm(x, (8,), w, w, 1e-5)",
        f"{SQUARE}w = torch.ones(8)",
    ),
    ("convolution, seven arguments", "torch.conv2d(x, w, b, 1, 1, 1, 1)", IMAGE + WEIGHTS),
    ("embedding", "F.embedding(i, w)", TORCH + "w = torch.rand(99, 8); i = torch.arange(9)"),
    ("layer: linear", "f(x)", SQUARE + "f = torch.nn.Linear(8, 8)"),
    ("layers: normalised product", "f(x)", f"{SQUARE}f = nn.Sequential({LINEAR}, nn.LayerNorm(8))"),
    ("Keras: addition", "keras.ops.add(x, x)", KERAS),
    ("Keras: softmax", "keras.ops.softmax(x)", KERAS),
    ("Keras: a dense layer", "f(x)", KERAS + "f = keras.layers.Dense(8); f(x)"),
    ("torchmetrics: accuracy", "torchmetrics.functional.accuracy(p, t, 'binary')", METRICS),
    ("torchmetrics: a mean that is kept", "f.update(p)", METRICS + "f = torchmetrics.MeanMetric()"),
    ("compiled: addition", "f(x)", SQUARE + "f = torch.compile(lambda x: x + 1)"),
    (
        "compiled: two layers",
        "f(x)",
        f"{SQUARE}f = torch.compile(nn.Sequential({LINEAR}, {LINEAR}))",
    ),
)


class Taken(NamedTuple):
    """One call, taken apart twice."""

    name: str
    whole_us: tuple[float, float]
    parts: int
    off: tuple[float, float]
    """What the parts are off by, as a part of the whole, in either run."""
    compared: int
    """Layers that both runs have."""
    unlike: tuple[str, ...]
    """Those of which the second run says something else than the first, intervals and all."""
    notes: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    return published("bench_layers", wishes(__doc__, RESULTS).parse_args(arguments), measure)


def measure(options: argparse.Namespace, scratch: Path) -> tuple[dict[str, Any], str]:
    """All calls, as numbers and as a page."""
    python, versions = environment((options.venvs or scratch) / "layers", LIBRARIES)
    taken = []
    for name, target, setup in CALLS:
        print(f"{name}: {target}", file=sys.stderr)
        first, second = (apart(python, scratch, target, setup) for _ in range(2))
        compared, unlike = meeting(first, second)
        off = (unattributed(first), unattributed(second))
        notes = tuple(dict.fromkeys((*first["notes"], *second["notes"])))
        value = (first["whole_us"]["value"], second["whole_us"]["value"])
        taken.append(Taken(name, value, len(first["layers"]), off, compared, unlike, notes))
    rows = [one._asdict() for one in taken]
    return {"machine": machine(), "versions": versions, "calls": rows}, page(taken, versions)


def apart(python: Path, scratch: Path, target: str, setup: str) -> dict[str, Any]:
    """One call, by a process of its own."""
    command = [str(python), "-m", "pytest_dispatchguard", "layers", target]
    command += ["--setup", setup, "--format", "json", "--seconds", "1.5"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=scratch, env=clean())
    if done.returncode != 0:
        raise BenchError(f"{target}: {done.stderr.strip() or 'it could not be taken apart'}")
    (call,) = json.loads(done.stdout)["calls"]
    found: dict[str, Any] = call
    return found


def unattributed(call: Mapping[str, Any]) -> float:
    """What the parts are off by. What is told as less than nothing is no part: others say too much by it."""
    parts = sum(max(layer["us"]["value"], 0.0) for layer in call["layers"])
    return float(parts / call["whole_us"]["value"] - 1)


def meeting(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
    """How many layers of a call there are in two runs, and those whose shares of it differ, both intervals
    taken into account."""
    here, there = (
        {key(layer, call): shares(layer, call) for layer in call["layers"]} for call in (one, other)
    )
    pairs = [(key[0], here[key], there[key]) for key in here if key in there]
    return len(pairs), tuple(
        f"{name}: {a[0]:.1%} to {a[1]:.1%} and {b[0]:.1%} to {b[1]:.1%}"
        for name, a, b in pairs
        if a[0] > b[1] or b[0] > a[1]
    )


def key(layer: Mapping[str, Any], call: Mapping[str, Any]) -> tuple[Any, ...]:
    """What makes it the same layer: a function of which another part is told apart is another one."""
    after = call["layers"][call["layers"].index(layer) + 1 :]
    below = takewhile(lambda other: other["line"] and other["depth"] > layer["depth"], after)
    within = tuple(other["name"] for other in below if other["depth"] == layer["depth"] + 1)
    return layer["name"], layer["kind"], layer["depth"], layer["line"], within


def shares(layer: Mapping[str, Any], call: Mapping[str, Any]) -> tuple[float, float]:
    """What a layer takes of the whole, at least and at most."""
    whole = call["whole_us"]["value"]
    low, high = layer["us"]["low"], layer["us"]["high"]
    return (float("-inf") if low is None else low) / whole, (
        float("inf") if high is None else high
    ) / whole


def page(taken: Sequence[Taken], versions: Mapping[str, str]) -> str:
    """The numbers for people."""
    within = sum(max(map(abs, one.off)) <= NEAR for one in taken)
    steady = [one for one in taken if max(one.whole_us) <= (1 + NEAR) * min(one.whole_us)]
    others = [one for one in taken if one not in steady]
    agreed = (
        f"Of calls that took the same in both runs, within {NEAR:.0%}, {_met(steady)} have the same share in "
        f"both within their intervals; of those that did not, {_met(others)}: where the processor goes at "
        "another pace, not all layers slow down alike."
    )
    about = ", ".join(f"{name} {number}" for name, number in versions.items())
    lines = [
        "# Layers of calls, twice each",
        "",
        f"{about}; {machine()}",
        "",
        f"The parts come to within {NEAR:.0%} of the whole in both runs for {within} of {len(taken)} calls.",
        agreed,
        "",
        "| call | whole | parts | off by | layers that agree |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for one in taken:
        off = " and ".join(f"{part:+.1%}" for part in one.off)
        lines.append(
            f"| {one.name} | {one.whole_us[0]:.2f} and {one.whole_us[1]:.2f} µs | {one.parts} | {off} "
            f"| {one.compared - len(one.unlike)} of {one.compared} |"
        )
    unlike = [f"- {one.name}: {said}" for one in taken for said in one.unlike]
    told = [f"- {one.name}: {note}" for one in taken for note in one.notes]
    lines += (
        ["", "Shares of the call that the two runs tell differently:", "", *unlike]
        if unlike
        else []
    )
    lines += ["", "What was not told apart:", "", *told] if told else []
    return "\n".join(lines) + "\n"


def _met(taken: Sequence[Taken]) -> str:
    compared = sum(one.compared for one in taken)
    met = compared - sum(len(one.unlike) for one in taken)
    return f"{met} of {compared} layers"


if __name__ == "__main__":
    sys.exit(main())
