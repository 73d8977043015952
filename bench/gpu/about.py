"""Says what machine this is: a process of its own asks, as a step is to find the GPU asleep."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench_lint import machine, version_of


def about() -> dict[str, object]:
    found: dict[str, object] = {
        **machine(),
        **{name: version_of(name) for name in ("torch", "pytest", "numpy")},
        "torch_cuda": torch.version.cuda,
        "gpu": None,
    }
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found["gpu"] = properties.name
        found["gpus"] = torch.cuda.device_count()
        found["gpu_gib"] = round(properties.total_memory / 2**30, 1)
        found["capability"] = f"{properties.major}.{properties.minor}"
        found["driver"] = driver()
    return found


def driver() -> str:
    """The driver's version, as NVIDIA's own program tells it; empty where that is not there."""
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0].strip()


if __name__ == "__main__":
    print(json.dumps(about()))
