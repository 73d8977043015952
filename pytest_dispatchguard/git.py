"""How git is asked: without what hooks set around us, and without running what a repository configures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

# A git hook runs with these pointing at its own repository, relative to another folder than ours.
_LOCATION = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")

# What the configuration of a repository may have git run; whoever lints code need not trust it.
_NOTHING_RUNS = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")


def run_git(
    folder: Path, *arguments: str, given: bytes | None = None
) -> subprocess.CompletedProcess[bytes] | None:
    """Ask git in a folder, with what is `given` on its standard input; None where git cannot be started
    there."""
    environment = {key: value for key, value in os.environ.items() if key not in _LOCATION}
    environment |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    import subprocess  # takes milliseconds, which most runs need not spend

    try:
        return subprocess.run(
            ["git", "-c", "core.quotePath=false", *_NOTHING_RUNS, *arguments],
            cwd=folder,
            env=environment,
            input=given or b"",
            capture_output=True,
            check=False,
        )
    except OSError:
        return None
