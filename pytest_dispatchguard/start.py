"""Where the `dispatchguard` command begins: a check that a daemon can do is handed to it before anything is
imported here; all else is the command line's."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn


_READING = [[name] for name in ("check", "hot", "review", "rule", "rules", "server")]
"""The commands that run nobody's code but ours."""


def command() -> NoReturn:
    """Runs the command and ends the process."""
    try:
        _command()
    except KeyboardInterrupt:
        interrupted()


def _command() -> NoReturn:
    if _asks_daemon(sys.argv):
        from pytest_dispatchguard.daemon.asking import ask

        status = ask(sys.argv)
        if status is not None:
            os._exit(status)
    _plainly()


def _plainly() -> NoReturn:
    gc.disable()  # of what is imported all lasts; the command enables it again where it is one to run long
    from pytest_dispatchguard.startup import compiled, left_over

    if sys.argv[1:2] == ["check"] and "--watch" not in sys.argv:
        left_over.leave_all()
    # What other commands run is not ours.
    keep = compiled.begin() if sys.argv[1:2] in _READING else (lambda: None)
    from pytest_dispatchguard import cli

    cli.command(keep)


def interrupted() -> NoReturn:
    """Ends a process whose user pressed Ctrl-C before it had begun."""
    with suppress(OSError):
        os.write(2, b"dispatchguard: interrupted; nothing was half-written\n")
    os._exit(130)


def _asks_daemon(words: list[str]) -> bool:
    """Whether these are the words of a check that may be done by a daemon."""
    if words[1:2] != ["check"] or "--daemon" not in words:
        return False
    return "--" not in words or words.index("--daemon") < words.index("--")


def stand_by() -> None:
    """Is the daemon that checks are handed to, until nobody asks any more."""
    from pytest_dispatchguard.startup import compiled

    compiled.begin()
    from pytest_dispatchguard.daemon.serving import Work, serve

    serve(Work(_plainly, interrupted, _import_all, _stamp))


def _import_all() -> tuple[str, ...]:
    """Imports everything that a check may need; gives the files of rule packs, their prices among them."""
    from importlib import import_module
    from pkgutil import walk_packages

    from pytest_dispatchguard import lint, report
    from pytest_dispatchguard.commands.linting import check  # noqa: F401 - the same
    from pytest_dispatchguard.lint.judge import packs
    from pytest_dispatchguard.lint.judge.judge import bench
    from pytest_dispatchguard.lint.judge.target import Target
    from pytest_dispatchguard.lint.results.suppressions import read
    from pytest_dispatchguard.model.errors import UserError
    from pytest_dispatchguard.report import progress  # noqa: F401 - only to have them

    for package in (lint, report):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            with suppress(ImportError):  # of an extra that is not installed, and not asked for here
                import_module(module.name)
    read("# noqa\n")  # what it finds comments with takes milliseconds to make
    try:
        found = packs.catalog()
        bench(Target(), found.packs)
        return found.files
    except UserError:  # a pack that cannot be loaded: each run will say so
        return ()


def _stamp(files: Iterable[str]) -> str:
    from pytest_dispatchguard.lint.store.staleness import fingerprint, stamp

    return f"{fingerprint()}:{stamp(files)}"
