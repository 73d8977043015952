"""Writes a trace again with marks on its timeline, in memory that does not grow with it."""

from __future__ import annotations

import gzip
import io
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.trace_marks import Mark
from pytest_dispatchguard.model.traces import Told
from pytest_dispatchguard.report.traces.perfetto import marked
from pytest_dispatchguard.traces.rewriting import rewritten

Progress = Callable[[str, int, int], None]

_LEVEL = 3
"""Of gzip: higher ones take several times as long for a tenth less."""


def written(
    told: Told, marks: Sequence[Mark], source: Path, output: Path, tell: Progress | None
) -> None:
    """Writes the trace of a source to an output, whole or not at all; packed where its name ends in .gz."""
    about = None
    if tell is not None:
        told_by = tell

        def about(done: int, size: int) -> None:
            told_by(f"writing {output.name}, MB", done // 10**6, size // 10**6)

    with _whole(output) as file, _text(file, packed=output.suffix == ".gz") as text:
        rewritten(source, marked(told, marks), text, about)


@contextmanager
def _whole(output: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of another when all is written; devices and pipes are written to."""
    target = Path(os.path.realpath(output))
    temporary = target.with_name(f"{target.name}.{os.urandom(4).hex()}.tmp")
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                yield file
            return
        try:
            with temporary.open("xb") as file:
                yield file
            if target.exists():
                shutil.copymode(target, temporary)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{output}: cannot be written: {error.strerror or error}") from None


@contextmanager
def _text(file: BinaryIO, *, packed: bool) -> Iterator[TextIO]:
    """What is written to goes into a file, packed perhaps; the file stays open."""
    if not packed:
        text = io.TextIOWrapper(file, encoding="ascii")
        yield text
        text.detach()
        return
    # Without a name and a time in it, the same trace gives the same bytes.
    with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as inside:
        text = io.TextIOWrapper(cast(BinaryIO, inside), encoding="ascii")
        yield text
        text.detach()
