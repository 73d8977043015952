"""Where the `dispatchguard` command begins: a check that a daemon can do is handed to it before anything is
imported here; all else is the command line's."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


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
    from pytest_dispatchguard import cli

    cli.command()


def interrupted() -> NoReturn:
    """Ends a process whose user pressed Ctrl-C before it had begun."""
    os.write(2, b"dispatchguard: interrupted; nothing was half-written\n")
    os._exit(130)


def _asks_daemon(words: list[str]) -> bool:
    """Whether these are the words of a check that may be done by a daemon."""
    if words[1:2] != ["check"] or "--daemon" not in words:
        return False
    return "--" not in words or words.index("--daemon") < words.index("--")


def stand_by() -> None:
    """Is the daemon that checks are handed to, until nobody asks any more."""
    from pytest_dispatchguard import cli
    from pytest_dispatchguard.daemon.serving import serve

    serve(cli.command, interrupted)
