"""`check --watch`: checks again in the same process, with everything imported and the cache filled,
whenever a file of the project changes."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pytest_dispatchguard.commands import CLEAN
from pytest_dispatchguard.commands.output import say
from pytest_dispatchguard.lint.request import Request, inputs
from pytest_dispatchguard.lint.session import settings_only
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.project_folder import PROFILE

INTERVAL = 0.5
"""Seconds between looks at the files."""


def watch(request: Request, run: Callable[[], object]) -> int:
    """Check now, and again after every change, until Ctrl-C. An error of the user (such as a
    configuration that is being edited) is reported, and the next change awaited."""
    seen: object = None
    try:
        while True:
            now = _state(request)
            if now != seen:
                seen = now
                _again(run)
            time.sleep(INTERVAL)
    except KeyboardInterrupt:
        return CLEAN


def _again(run: Callable[[], object]) -> None:
    if sys.stdout is not None and sys.stdout.isatty():
        sys.stdout.write("\x1b[2J\x1b[H")
    try:
        run()
    except UserError as error:
        say(str(error))
    say("watching for changes; press Ctrl-C to stop")
    gc.collect()  # a check turns it off, and this process may run all day


def _state(request: Request) -> object:
    """Changes whenever a check may find something else: from files, their sizes and times, or the error."""
    try:
        config = settings_only(
            request.paths, request.cwd, request.config_file, request.settings, request.cache
        )
        discovery, _ = inputs(request, config)
    except UserError as error:
        return str(error)
    beside = [f for f in (config.file, config.baseline, config.root / PROFILE) if f is not None]
    return discovery.targets, discovery.project, [_stamp(file) for file in beside]


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
