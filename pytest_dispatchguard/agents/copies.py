"""Copies of the project for tools: to check a patch in, to verify it, and to run budgets."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_dispatchguard.agents.workplace import Call
from pytest_dispatchguard.lint.review import Asked, Reviewed, reviewed
from pytest_dispatchguard.lint.store.cache import Cache
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.verify.budgets import make_base
from pytest_dispatchguard.verify.patches import applied
from pytest_dispatchguard.verify.scratch import Conditions, Copy, Files, Scratch

MOST_FILES = 20_000
MOST_BYTES = 500_000_000


def copied(root: Path, call: Call) -> Scratch:
    """Copies of a project, until the call must end. Nothing that is named a token is passed on."""
    kept = {name: value for name, value in os.environ.items() if "TOKEN" not in name.upper()}
    return Scratch(root, Conditions(kept, call.check, MOST_FILES, MOST_BYTES))


def patched(scratch: Scratch, copy: Copy, diff: str) -> Files:
    """Applies a diff of the client's to a copy; the files that it changes. Its paths are relative to the
    root."""
    try:
        return applied(scratch, copy, diff.encode("utf-8", "surrogateescape"), (scratch.top,))
    except UserError as error:
        raise UserError(f"the diff: {error}") from None


def review_of(
    scratch: Scratch, diff: str, settings: dict[str, bool], call: Call
) -> tuple[Files, Path, Reviewed]:
    """The files that a diff changes, and what it adds to the findings of a copy and takes from them."""
    copy = scratch.copy()
    make_base(copy)
    files = patched(scratch, copy, diff)
    memory = Cache.in_memory()
    asked = Asked(
        "HEAD",
        copy.tree,
        None,
        settings,
        jobs=1,
        cache=False,
        kept=lambda _: memory,
        progress=call.progress,
    )
    try:
        return files, copy.tree, reviewed(asked)
    finally:
        memory.close()
