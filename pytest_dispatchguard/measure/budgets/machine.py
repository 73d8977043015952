"""Facts about this machine that results depend on: versions, the processor, what pyperf records."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def installed_versions() -> dict[str, str]:
    """The versions of Python and torch, which counters depend on."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    torch = _installed("torch")
    return {**found, "torch": torch} if torch else found


@cache
def _installed(name: str) -> str:
    """The version of a package, which is read from files; empty where it is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def processor() -> str:
    """The model name of this machine's processor."""
    other = platform.processor() or platform.machine()
    return processor_in({"cpu_model_name": other, **pyperf_metadata()})


def processor_in(metadata: Mapping[str, Any]) -> str:
    """The model name of the processor in pyperf's metadata; empty if there is none."""
    said = str(metadata.get("cpu_model_name") or "")
    for sign in ("(R)", "(TM)", "@"):
        said = said.replace(sign, "")
    return " ".join(said.split())


def pyperf_metadata() -> dict[str, Any]:
    """What pyperf records about this machine and process."""
    import pyperf

    known: dict[str, Any] = pyperf.Run([1.0], collect_metadata=True).get_metadata()
    return {k: v for k, v in known.items() if k not in ("name", "unit", "loops")}
