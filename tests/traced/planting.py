"""Traces of programs that run here, on a CPU, with the waits of a device planted into their operators."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from .written import DEVICE

READS = frozenset({"aten::_local_scalar_dense", "aten::nonzero"})
"""Operators in which a device is waited for, however they come to be called."""
_LAUNCHES = frozenset({"aten::addmm", "aten::mm", "aten::relu", "aten::mean"})
_KERNEL_US = 2.0


def run(folder: Path, script: str, *words: str) -> None:
    """Runs a program that writes a trace."""
    done = subprocess.run(
        [sys.executable, script, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def plant(path: Path, into: Collection[str] = READS) -> None:
    """Has a device wait in these operators, and work in others."""
    packed = path.suffix == ".gz"
    data = path.read_bytes()
    found = json.loads(gzip.decompress(data) if packed else data)
    operators = [e for e in found["traceEvents"] if e.get("cat") == "cpu_op"]
    operators.sort(key=lambda event: event["ts"])
    planted: list[dict[str, Any]] = []
    free = 0.0
    for number, operator in enumerate(operators, 1):
        start, us = operator["ts"], operator["dur"]
        args = {"correlation": 1_000_000 + number, "device": 0}
        place = {"ph": "X", "pid": operator["pid"], "tid": operator["tid"], "args": args}
        call = {**place, "cat": "cuda_runtime", "ts": start + us / 4, "dur": us / 2}
        if operator["name"] in into:
            planted.append({**call, "name": "cudaStreamSynchronize"})
        elif operator["name"] in _LAUNCHES:
            free = max(free, start + us) + 0.1
            kernel = {**place, "cat": "kernel", "name": "gemm", "ts": free, "dur": _KERNEL_US}
            free += _KERNEL_US
            planted += [{**call, "name": "cudaLaunchKernel"}, {**kernel, "pid": 0, "tid": 7}]
    found["traceEvents"] += planted
    found["deviceProperties"] = [{"id": 0, "name": DEVICE}]
    text = json.dumps(found).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
