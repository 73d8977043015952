"""How processes of a source tree are started, and what those have in common that are compared."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from pytest_dispatchguard.measure.processes.work_tree import is_installed
from pytest_dispatchguard.model.errors import UserError

SCATTER = "DISPATCHGUARD_SCATTER"
"""A variable of the environment of processes that take turns: the seed of where objects lie."""
_PAD = "DISPATCHGUARD_PAD"
"""A variable that makes the environment larger."""
_PAGE, _OF_A_WORD, _APART = 4096, 9, 97
"""Bytes: what sizes of environments are multiples of, where they are made alike; what a word takes beside its
own; and by how much workers differ."""
_OF_THE_TREE = ("PYTHONPATH", "DISPATCHGUARD_NOT_FROM")
"""Variables that differ between source trees."""

# Processes that are compared have their memory at the same addresses, where the system lets them: where a
# process happens to lie moves a call by 1 to 2%, more than all other differences together (`make
# bench-luck`). Only a process that is started anew can have that.
_FIXED_LAYOUT = """
import os, sys
if os.environ.pop("DISPATCHGUARD_FIXED_LAYOUT", "") and sys.platform == "linux":
    import ctypes
    personality = getattr(ctypes.CDLL(None), "personality", None)
    known = personality(0xFFFFFFFF) if personality else -1
    if known != -1 and not known & 0x40000 and personality(known | 0x40000) != -1:
        os.execv(sys.executable, sys.orig_argv)
"""
# While it imports, it does not see that the run which started it was killed.
_END_WITH_RUN = """
if sys.platform == "linux":
    try:
        import ctypes
        ctypes.CDLL(None).prctl(1, 9)
    except (ImportError, AttributeError):
        pass
"""
# Where torch's own objects lie can slow all of its operations by 3%. That depends on all that was allocated
# before. Processes that take turns import torch first, among small objects of the same seed, and from folders
# that they have in common.
ALIKE = """
import json, os, sys
if "DISPATCHGUARD_SCATTER" in os.environ:
    import random
    chance = random.Random(os.environ["DISPATCHGUARD_SCATTER"])
    kept = [bytes(size) for size in range(15, 480, 16) for _ in range(chance.randrange(300))]
    packages = os.environ.pop("DISPATCHGUARD_PACKAGES", "")
    if packages:
        sys.path[:] = json.loads(packages)
        try:
            import torch
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
"""
# Only then they read of which source tree they are, and so what they do until then is the same.
_TOLD = """
with open(0, "rb", closefd=False) as told:
    told = json.loads(told.read())
nothing = os.open(os.devnull, os.O_RDONLY)
os.dup2(nothing, 0)
os.close(nothing)
os.environ.update(told["environment"])
os.chdir(told["folder"])
sys.path[:] = told["path"]
sys.argv[1:] = told["words"]
"""
_START = _FIXED_LAYOUT + _END_WITH_RUN + ALIKE + _TOLD


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start the processes of a source tree."""

    arguments: Sequence[str]
    """The arguments of the main run."""
    folder: Path
    path: Sequence[str]
    """`sys.path`."""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    packages: Sequence[str] = ()
    """Those of `path` that are none of the project, and so the same in all of its revisions."""
    command: Sequence[str] = ()
    """What runs Python, such as valgrind; empty if nothing does."""
    fixed: bool = False
    """Whether all of its processes have one hash seed and one address layout, in which objects lie by their
    number."""
    seed: int = field(default_factory=lambda: random.SystemRandom().getrandbits(32))
    """Of where objects lie, with the number of the process. A revision has that of the work tree: processes
    that take turns are alike in all that the code does not decide."""


def start(
    launch: Launch,
    number: int,
    code: str,
    words: Sequence[str],
    *,
    given: Sequence[int],
    output: IO[bytes],
    turns: bool,
) -> subprocess.Popen[bytes]:
    """A process that runs code of Python with words as arguments, and with open files that it is given.
    `turns` says whether it takes turns with a process of another source tree and of the same number."""
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # multiprocessing's own way
    command = [*launch.command, sys.executable, *flags, "-c", _START + code]
    environment = environment_of(launch, number)
    own: dict[str, str] = {}
    if turns:
        own = {name: environment.pop(name) for name in _OF_THE_TREE if name in environment}
        packages = launch.packages if "torch" in sys.modules else ()
        environment = alike(command, environment, launch.seed, number, packages)
    elif launch.fixed and not launch.command:
        environment["DISPATCHGUARD_FIXED_LAYOUT"] = "1"
    told = {
        "folder": os.fspath(launch.folder),
        "path": [os.fspath(path) for path in launch.path],
        "environment": own,
        "words": list(words),
    }
    try:
        (launch.folder / ".").stat()
        with tempfile.TemporaryFile() as note:
            note.write(json.dumps(told).encode())
            note.seek(0)
            return subprocess.Popen(
                command,
                cwd="/",  # Python looks there for what it imports first
                env=environment,
                pass_fds=given,
                stdin=note,
                stdout=output,
                stderr=output,
                start_new_session=True,  # ended as a group, and not by Ctrl-C in the terminal
            )
    except OSError as error:
        raise UserError(f"a worker cannot be started in {launch.folder}: {error}") from None


def packages_of(path: Sequence[str], top: Path) -> list[str]:
    """Which folders that Python imports from are none of a project. Python itself may lie in it."""
    pythons = [Path(one) for one in (sys.prefix, sys.base_prefix) if Path(one).is_relative_to(top)]

    def is_ours(place: Path) -> bool:
        inside = place.is_relative_to(top) and not is_installed(place, top)
        return inside and not any(map(place.is_relative_to, pythons))

    return [one for one in path if Path(one).is_absolute() and not is_ours(Path(one))]


def environment_of(launch: Launch, number: int) -> dict[str, str]:
    """The environment of the main run, with one thread by default. Every worker gets another hash seed and
    size of the environment, as both change times a little."""
    found = {
        name: value
        for name, value in launch.environment.items()
        if not name.startswith(("PYTEST_XDIST_", "PYTEST_CURRENT_TEST", "COV_CORE_"))
    }
    if not found.get("TORCH_LOGS", "-"):
        del found["TORCH_LOGS"]  # torch cannot be imported where it is empty
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        found.setdefault(name, "1")
    if launch.fixed:
        found["PYTHONHASHSEED"] = "0"
        found[SCATTER] = str(number)  # small objects, and so all others, lie elsewhere in each
    elif number or "PYTHONHASHSEED" not in found:
        found["PYTHONHASHSEED"] = str(1 + number)
    found[_PAD] = "." * (_APART * number)
    return found


def alike(
    command: Sequence[str],
    environment: Mapping[str, str],
    seed: int,
    number: int,
    packages: Sequence[str],
) -> dict[str, str]:
    """An environment in which a process is like those of the same seed and number in all that the code does
    not decide, also where folders and their names differ: with addresses that are not random, with torch
    imported first if packages are given, and with a stack that begins at the same place."""
    found = {
        **environment,
        "DISPATCHGUARD_FIXED_LAYOUT": "1",
        "DISPATCHGUARD_PACKAGES": json.dumps(packages) if packages else "",
        SCATTER: f"{seed:010d}{number:04d}",
        _PAD: "",
    }
    words = [*command, *(f"{name}={value}" for name, value in found.items())]
    used = sum(len(os.fsencode(word)) + _OF_A_WORD for word in words)
    return {**found, _PAD: "." * (-used % _PAGE + _APART * number)}
