"""The state of a project that was solved last, as the cache keeps it beside the briefs: what tells of another
state whether the same is hot there."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from pytest_dispatchguard.config import PROFILE, Config
from pytest_dispatchguard.lint.cache import Cache
from pytest_dispatchguard.lint.catalog import Catalog
from pytest_dispatchguard.lint.facts import FileFacts, FunctionFact
from pytest_dispatchguard.lint.kept import Index, index_of
from pytest_dispatchguard.lint.nowhere import Around, Body, leads_as_before
from pytest_dispatchguard.lint.packing import pack_brief, unpack_brief
from pytest_dispatchguard.lint.project import OwnMethods, mro
from pytest_dispatchguard.lint.survey import Survey, facts_before, facts_of, sha
from pytest_dispatchguard.lint.unmoved import (
    About,
    Change,
    Matters,
    Stays,
    asked_methods,
    is_unnoticed,
    own_methods,
    remade,
    unnoticed_change,
    words_in,
    words_of,
)

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.heat import Heat
    from pytest_dispatchguard.lint.project import Project

_MOST_CHANGED = 24
"""Files: what is hot of more is found out anew."""
_MOST_MORE = 400
"""Words beside most of them: of more all are written anew."""


class Read(NamedTuple):
    """What was read of a project to find out what is hot: by path, what `About` says of a file."""

    walked: Mapping[str, Mapping[str, Sequence[str]]]
    lines: Mapping[str, Mapping[str, Sequence[str]]]
    below: Mapping[str, Sequence[str]]
    digest: str = ""
    """As the cache knows it; empty until it is kept."""


class Words(NamedTuple):
    """All that the facts of files hold, and perhaps some that they held before."""

    most: frozenset[str]
    digest: str = ""
    """Of these, as the cache knows them; empty until they are kept."""
    more: frozenset[str] = frozenset()

    def hold(self, word: str) -> bool:
        """Whether a word is among them."""
        return word in self.most or word in self.more

    def all(self) -> frozenset[str]:
        """All of them."""
        return self.most | self.more

    def plus(self, words: Iterable[str]) -> Words:
        """These and others, perhaps some of them again."""
        new = frozenset(word for word in words if not self.hold(word))
        return self._replace(more=self.more | new) if new else self


class State(NamedTuple):
    """A state of a project that was solved."""

    key: str
    settings: str
    """What hotness depends on beside files."""
    files: Mapping[str, tuple[str, str, str]]
    """By path: the digest of its text, its shape, its module."""
    read: Read

    def about(self, rel: str) -> About:
        """What is known of one file."""
        return About(
            self.files[rel][2],
            self.read.walked.get(rel, {}),
            self.read.lines.get(rel, {}),
            frozenset(self.read.below.get(rel, ())),
        )


class Known(NamedTuple):
    """The state solved last, as the cache has it."""

    state: State
    words: Words
    found: Index


def recall(cache: Cache) -> Known | None:
    """The state solved last; None where the cache has none."""
    row = cache.get_many("solved", ["state"]).get("state")
    if row is None:
        return None
    key, settings, files, digest, most, more = json.loads(row)
    read = cache.get_many("read", [digest]).get(digest)
    words = cache.get_many("words", [most]).get(most)
    found = index_of(cache, key)
    if read is None or words is None or found is None:
        return None
    return Known(
        State(key, settings, files, Read(*json.loads(read))._replace(digest=digest)),
        Words(frozenset(words.split()), most, frozenset(more)),
        found,
    )


def keep(cache: Cache, state: State, words: Words) -> None:
    """Puts a state in the place of the one before, with as much of that as stays."""
    *read, digest = state.read
    if not digest or digest not in cache.keys("read"):
        digest = _replace(cache, "read", json.dumps(read, separators=(",", ":")))
    known, more = words.digest, words.more
    if not known or len(more) > _MOST_MORE or known not in cache.keys("words"):
        known, more = _replace(cache, "words", " ".join(sorted(words.all()))), frozenset()
    row = [state.key, state.settings, state.files, digest, known, sorted(more)]
    cache.put_many("solved", {"state": json.dumps(row, separators=(",", ":"))})


def _replace(cache: Cache, namespace: str, text: str) -> str:
    digest = sha(text.encode())
    cache.put_many(namespace, {digest: text})
    cache.prune(namespace, (digest,))
    return digest


def state_of(key: str, settings: str, survey: Survey, project: Project, heat: Heat) -> State:
    """The state that a project was solved in."""
    files = {
        rel: (one.digest, one.shape, project.module_of[rel]) for rel, one in survey.scouted.items()
    }
    return State(key, settings, files, read_for(project, heat))


def read_for(project: Project, heat: Heat) -> Read:
    """What was read of a solved project."""
    walked: dict[str, dict[str, list[str]]] = {}
    for function_id in heat.hot.keys() | heat.edges.keys():
        module, _, name = function_id.partition(":")
        ways = (*heat.edges.get(function_id, ()), *heat.basis.ways.get(function_id, ()))
        leads = {re.split(r"[.:]", edge.target)[-1] for edge in ways}
        walked.setdefault(project.modules[module], {})[name] = sorted(leads)
    hot = {project.modules[function_id.partition(":")[0]] for function_id in heat.hot}
    lines: dict[str, dict[str, list[str]]] = {}
    below: dict[str, set[str]] = {}
    for class_id in project.classes:
        module, _, name = class_id.partition(":")
        path = project.modules[module]
        above = [base for base in mro(project, class_id)[1:] if base in project.classes]
        if path in hot and above:
            lines.setdefault(path, {})[name] = above
            for base in above:
                home, _, name = base.partition(":")
                if home != module:
                    below.setdefault(project.modules[home], set()).add(name)
    return Read(walked, lines, {r: sorted(found) for r, found in below.items()})


def words_after(config: Config, survey: Survey, before: Known | None, cache: Cache) -> Words:
    """The words that the facts of all files hold, with those of before where most files are as they were."""
    if before is not None:
        changed = _other_facts(before.state, shapes_of(survey))
        if len(changed) <= _MOST_CHANGED:
            return before.words.plus(words_in(facts_of(config, survey, changed, cache).values()))
    return Words(frozenset(words_in(survey.facts[rel] for rel in survey.scouted)))


def shapes_of(survey: Survey) -> dict[str, str]:
    """What tells the facts of files from others, by path."""
    return {rel: one.shape for rel, one in survey.scouted.items()}


def changed_since(state: State, settings: str, shapes: Mapping[str, str]) -> list[str] | None:
    """The files that have other facts than in a state; None where these are many, or not all that differs."""
    if state.settings != settings or state.files.keys() != shapes.keys():
        return None
    changed = _other_facts(state, shapes)
    return changed if len(changed) <= _MOST_CHANGED else None


def _other_facts(state: State, shapes: Mapping[str, str]) -> list[str]:
    """The files of now that have other facts than in a state, or are not there."""
    nothing = ("", "", "")
    return [rel for rel, shape in shapes.items() if state.files.get(rel, nothing)[1] != shape]


class Same(NamedTuple):
    """A state in which the same is hot as in another."""

    state: State
    words: Words
    briefs: Mapping[str, str]
    """The briefs that are other than there all the same, as text, by path."""


def matters_in(
    known: Known,
    config: Config,
    library_roots: Mapping[str, Iterable[str]],
    words: Words,
) -> Matters:
    """What makes it matter in a project that there is a function of some name; these words are mentioned."""
    modules = (module for _, _, module in known.state.files.values())
    named = words_of([*modules, *config.tensor_types])
    return Matters(
        lambda word: words.hold(word) or word in named,
        asked_methods(library_roots),
        [p for p in (*config.hot_roots, *config.cold) if not p.startswith("@")],
        bool(known.found.idle),
    )


def unmoved(
    key: str,
    settings: str,
    config: Config,
    survey: Survey,
    catalog: Catalog,
    cache: Cache,
    before: Known,
) -> Same | None:
    """The state of now, if it is certain that what is hot has not moved since that of `before`."""
    state, index = before.state, before.found
    if (config.root / PROFILE).exists():
        return None  # what was recorded knows functions by their text
    changed = changed_since(state, settings, shapes_of(survey))
    if changed is None:
        return None
    old = facts_before(config, {rel: state.files[rel][0] for rel in changed}, cache)
    if len(old) < len(changed):
        return None
    new = facts_of(config, survey, changed, cache)
    words = before.words.plus(words_in(new.values()))
    matters = matters_in(before, config, catalog.hot_roots, words)
    changes: dict[str, Change] = {}
    for rel in changed:
        about = state.about(rel)
        unnoticed = partial(is_unnoticed, about=about, matters=matters)
        stays = _stays(rel, old[rel], new[rel], state, words)
        change = unnoticed_change(old[rel], new[rel], about.walked, unnoticed, stays)
        if change is None:
            return None
        changes[rel] = change
    moved = {r: c for r, c in changes.items() if any(c) and r in index.keys}
    rows = cache.get_many("brief", [index.keys[rel] for rel in moved])
    if len(rows) < len(moved):
        return None
    home = {module: rel for rel, (_, _, module) in state.files.items()}

    def own(class_id: str) -> OwnMethods:
        rel = home[class_id.partition(":")[0]]
        return own_methods(facts_of(config, survey, [rel], cache)[rel], class_id)

    briefs = {}
    for rel, change in moved.items():
        brief = unpack_brief(rows[index.keys[rel]])
        briefs[rel] = pack_brief(remade(brief, change, new[rel], state.about(rel), own))
    files = dict(state.files)
    for rel in changed:
        one = survey.scouted[rel]
        files[rel] = (one.digest, one.shape, state.files[rel][2])
    return Same(state._replace(key=key, files=files), words, briefs)


def _packages(state: State) -> frozenset[str]:
    """The names of all modules of a project, and of the packages above them."""
    found = set()
    for _, _, module in state.files.values():
        while module and module not in found:
            found.add(module)
            module = module.rpartition(".")[0]
    return frozenset(found)


def _stays(rel: str, old: FileFacts, new: FileFacts, state: State, words: Words) -> Stays:
    """What tells of functions of a file whether they lead where they led."""
    about = state.about(rel)

    @functools.cache
    def bodies() -> tuple[Body, Body]:
        around = Around(_packages(state), lambda name: words.hold(f".{name}"))
        return Body(rel, old, about.module, around), Body(rel, new, about.module, around)

    def stays(before: FunctionFact, now: FunctionFact) -> bool:
        return leads_as_before(*bodies(), before, now, frozenset(about.walked[now.name]))

    return stays
