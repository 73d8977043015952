"""The one way that git is asked: it runs nothing that a repository configures, and fetches nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

# A git hook runs with these pointing at its own repository, relative to another folder than ours.
_LOCATION = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")

# What the configuration of a repository may have git run; whoever lints code need not trust it.
_WORDS = (
    *("git", "--no-pager", "-c", "core.quotePath=false"),
    *("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}"),
    # Submodules are repositories of their own, with configurations of their own.
    *("-c", "submodule.recurse=false"),
    # A folder in the work tree can look like a bare repository, configuration and all.
    *("-c", "safe.bareRepository=explicit"),
    # gpg.program is run for commits that say that they are signed.
    *("-c", "log.showSignature=false"),
)
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    # A partial clone fetches what it lacks by core.sshCommand, remote helpers and credential helpers. The
    # first is for git 2.44 and newer; the second, a list that is empty, for all.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
}

# These read neither files of the work tree nor write any, so no filter is asked for.
_FILTER_NOTHING = frozenset(
    {
        "cat-file",
        "check-ignore",
        "config",
        "ls-files",
        "merge-base",
        "rev-list",
        "rev-parse",
        "show",
        "symbolic-ref",
    }
)


def run_git(
    folder: Path, *arguments: str, given: bytes | None = None, ceiling: Path | None = None
) -> subprocess.CompletedProcess[bytes] | None:
    """Ask git in a folder, with what is `given` on its standard input; None where git cannot be started
    there. A repository is not looked for in the `ceiling`, nor above it."""
    if arguments[0] in _FILTER_NOTHING:
        return _run(folder, [*_WORDS, *arguments], given, ceiling)
    # Drivers can have any name, so they are looked up; no command line turns all of them off.
    listed = _run(
        folder,
        [*_WORDS, *("config", "--null", "--name-only", "--get-regexp", r"^(filter|hook)\.")],
        ceiling=ceiling,
    )
    if listed is None:
        return None
    off = [word for setting in _off(listed.stdout) for word in ("-c", setting)]
    if any(word.count("=") > 1 for word in off):
        # `-c` takes a name to end at its first "=".
        listed.returncode, listed.stdout = 128, b""
        listed.stderr = b'a filter with "=" in its name cannot be turned off; rename it'
        return listed
    return _run(folder, [*_WORDS, *off, *arguments], given, ceiling)


def complaint(answer: subprocess.CompletedProcess[bytes] | None) -> str:
    """Why git failed, in one line."""
    if answer is None:
        return "git cannot be started; install it"
    if b"promisor remote" in answer.stderr or b"lazy fetching" in answer.stderr:
        return (
            "this is a partial clone, and missing objects are not fetched; clone without --filter"
        )
    lines = answer.stderr.decode("utf-8", "replace").strip().splitlines()
    fatal = [line for line in lines if line.startswith("fatal: ")]
    return (fatal or lines or [f"git ended with {answer.returncode}"])[0]


def _off(names: bytes) -> list[str]:
    """The settings that turn filters and configured hooks off, given the names of all settings of theirs."""
    drivers = {
        tuple(os.fsdecode(name).rpartition(".")[0].split(".", 1)) for name in names.split(b"\0")
    }
    settings: list[str] = []
    for kind, name in sorted(driver for driver in drivers if len(driver) == 2):
        if kind == "filter":
            settings += (f"filter.{name}.{key}=" for key in ("clean", "smudge", "process"))
            settings.append(f"filter.{name}.required=false")
        else:
            settings.append(f"hook.{name}.enabled=false")
    return settings


def _run(
    folder: Path, words: list[str], given: bytes | None = None, ceiling: Path | None = None
) -> subprocess.CompletedProcess[bytes] | None:
    environment = {key: value for key, value in os.environ.items() if key not in _LOCATION}
    if ceiling is not None:
        environment["GIT_CEILING_DIRECTORIES"] = str(ceiling)
    import subprocess  # takes milliseconds, which most runs need not spend

    try:
        return subprocess.run(
            words,
            cwd=folder,
            env=environment | _ENVIRONMENT,
            input=given or b"",
            capture_output=True,
            check=False,
        )
    except OSError:
        return None
