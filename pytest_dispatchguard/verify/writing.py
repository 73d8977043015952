"""Writes what was tried in copies to the work tree itself."""

from __future__ import annotations

from pytest_dispatchguard.lint.sources.files import write_source
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.verify.scratch import Files, Scratch


def write_back(scratch: Scratch, files: Files) -> None:
    """Writes files to the work tree: all, or none if one of them is not what it was when it was copied."""
    for path in files:
        file = scratch.top / path
        if not scratch.is_inside(path):
            raise UserError(f"{path}: a link leads out of the work tree, so nothing was applied")
        if (file.read_bytes() if file.is_file() else None) != scratch.first.read(path):
            raise UserError(f"{path}: changed meanwhile, so nothing was applied; run again")
    for path, data in files.items():
        file = scratch.top / path
        try:
            if data is None:
                file.unlink()
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            write_source(file, data)
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror or error}") from None
