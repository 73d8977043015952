"""Runs `python -m MODULE` in children of a process that has libraries imported already, torch for one.

Hundreds of tests start Python with them, and their import takes longer than most of what they do. Started
as a script by `started.py`, once for each process that runs tests: a request is one line on standard input,
the end of the child's life one line on standard output. What the child runs is a process of its own like any
other, but for the modules that are there before it begins, which it does not take down one by one at its end.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import sys
import threading
import warnings
from typing import Any, NoReturn


def main() -> None:
    """Answers requests until nobody asks any more."""
    for name in sys.argv[1:]:
        importlib.import_module(name)
    if "pytest" in sys.argv:
        _import_what_pytest_imports()
    gc.collect()
    gc.freeze()
    here = list(sys.path[1:])  # without the folder of this file
    replies = os.fdopen(os.dup(1), "w")
    os.set_inheritable(replies.fileno(), False)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            replies.close()
            _end(_run(request, here))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=replies, flush=True)


def _import_what_pytest_imports() -> None:
    """Its own plugins, and what the plugins that are installed beside it import. Not those themselves: pytest
    warns of plugins that are there before it could rewrite their assertions."""
    from _pytest.config import default_plugins

    others = ("execnet", "coverage", "pygments.lexers.python", "pygments.formatters.terminal")
    for name in (*(f"_pytest.{plugin}" for plugin in default_plugins), *others):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _run(request: dict[str, Any], path: list[str]) -> int:
    """The life of a child: as `python -m MODULE WORDS` would have it. Its exit status."""
    for number, (file, flags) in enumerate(
        [
            (request["in"], os.O_RDONLY),
            (request["out"], os.O_WRONLY | os.O_CREAT),
            (request["err"], os.O_WRONLY | os.O_CREAT),
        ]
    ):
        end = os.open(file, flags)
        os.dup2(end, number)
        os.close(end)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [request["folder"], *filter(None, given), *path]
    importlib.invalidate_caches()
    if request["quiet"]:
        sys.warnoptions.append("ignore")
        warnings.simplefilter("ignore")
    module, *words = request["words"]
    sys.argv = [module, *words]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as error:
        if isinstance(error.code, str):
            raise
        return int(error.code or 0)
    return 0


def _end(status: int) -> NoReturn:
    """Ends as Python does, but for the modules: taking down those of torch takes longer than most runs."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
