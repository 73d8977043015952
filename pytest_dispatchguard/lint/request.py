"""What a user asks of `dispatchguard check`, and the files that this names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.lint.pipeline.progress import Progress
from pytest_dispatchguard.lint.sources.files import (
    Discovery,
    File,
    Source,
    Unreadable,
    decode_source,
    discover,
    is_excluded,
    rel_in,
    require_python,
)
from pytest_dispatchguard.paths import absolute, exists

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.results.selection import Selection
    from pytest_dispatchguard.lint.store.cache import Cache
    from pytest_dispatchguard.model.findings import Finding
    from pytest_dispatchguard.profile import Profile

TextOf = Callable[[str], "str | None"]
"""The text of a file, by its path relative to the root; None where it cannot be read."""


class Traces(Protocol):
    """What traces say of a project."""

    @property
    def ran(self) -> Profile:
        """The functions that ran."""

    def measured(self, findings: Sequence[Finding], text_of: TextOf) -> list[Finding]:
        """The findings, each with how long the host was seen to wait there."""


FixMode = Literal["no", "safe", "unsafe"]


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asked for."""

    paths: tuple[Path, ...]
    cwd: Path
    config_file: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of Config that the command line sets."""
    fix: FixMode = "no"
    write: bool = True
    """Whether fixes go to disk (`--fix`) or are only shown (`--diff`)."""
    only: Selection | None = None
    """Which fixes are made; None for all."""
    diff_base: str | None = None
    add_ignores: bool = False
    """Whether to write comments that silence what fails the run."""
    write_baseline: bool = False
    prune_baseline: bool = False
    jobs: int = 1
    cache: bool = True
    kept: Callable[[Path], Cache] | None = None
    """Gives the cache to use in place of the project's, by the root."""
    min_cost: float = 0.0
    """Microseconds: findings that cost less are hidden."""
    stdin: bytes | None = None
    """Text in place of the one file named in `paths`."""
    progress: Progress | None = None
    traces: Callable[[Iterable[str], TextOf, Progress | None], Traces] | None = None
    """Reads traces of the project, which is given by the paths of its files."""


def inputs(request: Request, config: Config) -> tuple[Discovery, Source | Unreadable | None]:
    """The files of the run, and standard input as it was read."""
    if request.stdin is None:
        return discover(request.paths, config, cwd=request.cwd), None
    (path,) = request.paths
    place = absolute(request.cwd / path)
    require_python(path, place, request.stdin)
    rel = rel_in(config.root, place)
    context = (
        discover((), config, cwd=config.root) if exists(place) or config.file else Discovery((), ())
    )
    target = File(str(place), rel, len(request.stdin), 0, 0, 0)
    others = tuple(f for f in context.project if f.rel != rel)
    project = tuple(sorted((*others, target), key=lambda f: f.rel))
    targets = () if is_excluded(rel, config) else (target,)
    return Discovery(targets, project, context.notes), decode_source(request.stdin, rel)
