"""Runs of Python in processes that find modules imported: most of what hundreds of short runs would take is
the import of libraries, the same ones each time.

What is run is a process of its own, and imports everything of ours anew. `imported.py` says how.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

LIBRARIES = ("libcst", "libcst.helpers", "libcst.metadata", "pluggy", "tree_sitter_python")
"""What the command imports of others once it has something to judge."""


class Started:
    """A process that has modules imported, and runs others like it."""

    def __init__(self, *modules: str) -> None:
        self._environment = _telling(os.environ)
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("imported.py"), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def runs(self, words: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Whether it can run what these words start, and that would be no other for it."""
        return (
            words[0] == sys.executable
            and _module(words) is not None
            and _telling(environment) == self._environment
        )

    def run(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        out: str,
        err: str,
        given: str = os.devnull,
    ) -> int:
        """Runs `python [-W ignore] -m MODULE WORDS` between three files; its exit status."""
        request = {
            "words": _module(words),
            "quiet": words[1] == "-W",
            "folder": str(folder),
            "environment": dict(environment),
            "in": given,
            "out": out,
            "err": err,
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def end(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _module(words: Sequence[str]) -> list[str] | None:
    """The module that Python is to run, and the words for it; None where it is to do something else."""
    _, *rest = words
    if rest[:2] == ["-W", "ignore"]:
        rest = rest[2:]
    flag, *rest = rest
    return [*filter(None, [flag[2:]]), *rest] if flag.startswith("-m") else None


def _telling(environment: Mapping[str, str]) -> dict[str, str]:
    """What Python and torch read of the environment when they begin."""
    told = ("PYTHON", "OMP_", "MKL_", "TORCH", "CUDA", "LD_", "LANG", "LC_")
    later = ("PYTHONPATH", "TORCHINDUCTOR_CACHE_DIR")
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(told) and name not in later
    }


@cache
def having(*modules: str) -> Started:
    """The process that has these modules imported, started when it is first needed."""
    made = Started(*modules)
    _ALL.append(made)
    return made


_ALL: list[Started] = []


def end() -> None:
    """Ends all processes that were started."""
    while _ALL:
        _ALL.pop().end()
    having.cache_clear()


def run(
    ready: Started | None,
    words: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    stdin: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    """Runs what these words start, in a child of the process if it can."""
    if ready is None or not ready.runs(words, environment):
        return subprocess.run(
            words, cwd=folder, env=environment, input=stdin, capture_output=True, timeout=300
        )
    with tempfile.TemporaryDirectory() as said:
        files = [Path(said, name) for name in ("out", "err", "in")]
        files[2].write_bytes(stdin)
        status = ready.run(words, folder, environment, *map(str, files))
        return subprocess.CompletedProcess(
            words, status, files[0].read_bytes(), files[1].read_bytes()
        )


def dispatchguard(
    folder: Path, *words: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own, which finds its libraries imported; what it said, as text."""
    done = in_bytes(folder, *words, environment=environment)
    told = (said.decode() for said in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, *told)


def in_bytes(
    folder: Path,
    *words: str,
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    fresh: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """As above, in bytes; from a fresh Python where a test is about what is imported."""
    ready = None if fresh or not hasattr(os, "fork") else having(*LIBRARIES)
    command = [sys.executable, "-m", "pytest_dispatchguard", *words]
    return run(ready, command, folder, {**os.environ, **(environment or {})}, stdin)
