"""The briefs of a project: for each file with hot functions, what judging it needs to know of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.lint.pipeline.survey import sha
from pytest_dispatchguard.lint.store.packing import pack_brief, unpack_brief

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.callgraph.project import Project
    from pytest_dispatchguard.lint.facts import Brief
    from pytest_dispatchguard.lint.hotness.solve import Heat


class Briefs:
    """The briefs of all files that have hot functions, and how many functions are hot."""

    def __init__(
        self,
        hot: Mapping[str, int],
        idle: Sequence[str],
        make: Callable[[str], str],
        keys: Mapping[str, str] | None = None,
        unpacked: Callable[[str], Brief] | None = None,
    ) -> None:
        self.hot = hot
        """The number of hot functions by file; files without any are left out."""
        self.idle = idle
        """A line for each setting that matches nothing, and for a profile that is out of date."""
        self._make = make
        self._keys = dict(keys or {})
        self._unpacked = unpacked
        """Gives briefs as objects; None where only their JSON is known."""

    def text(self, rel: str) -> str:
        """The brief of one file, as JSON."""
        return self._make(rel)

    def brief(self, rel: str) -> Brief:
        """The brief of one file; callers must not change it."""
        return unpack_brief(self.text(rel)) if self._unpacked is None else self._unpacked(rel)

    def key(self, rel: str) -> str:
        """A hash of the brief of one file."""
        if rel not in self._keys:
            self._keys[rel] = sha(self.text(rel).encode())
        return self._keys[rel]


def briefs_of(config: Config, project: Project, heat: Heat) -> Briefs:
    """The briefs of a solved project. Each is made when it is asked for, while other files are judged."""
    from pytest_dispatchguard.lint.judge.briefs import Briefer
    from pytest_dispatchguard.lint.results.unused_settings import idle_names

    briefer = Briefer(project, heat)
    brief = lru_cache(maxsize=1)(briefer.brief)  # asked for twice in a row: as object and as JSON
    return Briefs(
        {rel: len(functions) for rel, functions in briefer.hot.items()},
        [*idle_names(config, project), *filter(None, [heat.observed.note])],
        lambda rel: pack_brief(brief(rel)),
        unpacked=brief,
    )
