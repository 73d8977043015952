"""Definitions of an application that nothing in it uses: what is found there is a note. A library has them
for its users, but an application itself calls everything that it runs."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pytest_dispatchguard.lint.knowledge.cold_names import TEST_PATHS
from pytest_dispatchguard.model.findings import Finding

_STATEMENT = (
    r"(?m)^(?:(?:async\s+)?(?:def|class)\s+(?P<name>\w+)|(?P<word>from|import|@)|[^\s#)\]}])"
)
"""Where a statement at the top level begins. What looks like one, in a string perhaps, ends the definition
before it, and then what follows counts as code that runs."""
_GUARD = r"(?m)^if\s+__name__\s*==\s*['\"]__main__['\"]"
_FINDS_CLASSES = r"__subclasses__|__init_subclass__|\bgetmembers\b|\binspect\.isclass\b"
"""With one of these in a project, code that nothing names may be used."""
_SEARCHED = r"\bgetattr\(\s*(?:\w+\.)*(\w+)\s*,|\b(?:\w+\.)*(\w+)\.__dict__\[|\bvars\(\s*(?:\w+\.)*(\w+)\s*\)"
"""What is searched for a name that is computed."""
_SEARCHES_ITSELF = r"\bglobals\(\)|\blocals\(\)|(?<![.\w])(?:eval|exec)\("
_IMPORTS_BY_NAME = r"\b(?:import_module|__import__|spec_from_file_location|run_path|run_module)\b"
_TOLD = r"(?:its class is )?marked hot|matches .* in hot-roots|.* of a trace"
"""Reasons that come from the user, or from a run."""
_RUN_BY_OTHERS = r"(?:^|/)(?:hubconf|conftest)\.py$|\.ipynb$"

_CONFIGURES = (".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".gin", ".sh")
_LARGEST = 64 * 1024
"""Bytes of a file with a configuration; larger ones are data."""
_MOST = 4000
"""Files with configurations that are read."""


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement at the top level of a file."""

    start: int
    defines: str
    """The name of the function or class; empty for other statements."""
    imports: bool
    decorated: bool


@dataclass(frozen=True)
class _Text:
    """The text of one file."""

    rel: str
    text: str

    @cached_property
    def _statements(self) -> Sequence[_Statement]:
        found: list[_Statement] = []
        decorated = False
        for match in re.finditer(_STATEMENT, self.text):
            word = match["word"]
            imports = word in ("from", "import")
            found.append(_Statement(match.start(), match["name"] or "", imports, decorated))
            decorated = word == "@"
        return found

    @cached_property
    def _starts(self) -> Sequence[int]:
        return [statement.start for statement in self._statements]

    def users(self, name: str) -> Iterator[str]:
        """The definitions that use a name; an empty string for code that surely runs."""
        if name not in self.text:
            return
        for match in re.finditer(rf"(?<!\w){name}(?!\w)", self.text):
            at = bisect_right(self._starts, match.start()) - 1
            statement = self._statements[at] if at >= 0 else None
            begin = self.text.rfind("\n", 0, match.start()) + 1
            if statement is None or "#" in self.text[begin : match.start()]:
                continue
            if statement.imports:
                # The use is told where it stands, but for one by another name, or in another project.
                renamed = re.match(r"\s+as\s", self.text[match.end() : match.end() + 9])
                if renamed or self.rel.endswith("__init__.py"):
                    yield ""
            elif statement.decorated:
                yield ""  # registered, perhaps
            elif statement.defines != name:
                yield "" if re.search(_RUN_BY_OTHERS, self.rel) else statement.defines

    def has(self, pattern: str) -> bool:
        """Whether a pattern occurs."""
        return re.search(pattern, self.text) is not None


class Application:
    """What an application uses of its own definitions, by the names in its files."""

    def __init__(self, root: Path, files: Iterable[str], read: Callable[[str], str | None]) -> None:
        self._root = root
        self._files = tuple(files)
        self._read = read
        self._users: dict[str, frozenset[str]] = {}
        self._found: dict[str, bool] = {}

    @cached_property
    def _texts(self) -> Sequence[_Text]:
        found = ((rel, self._read(rel)) for rel in self._files)
        return [_Text(rel, text) for rel, text in found if text]

    @cached_property
    def _scripts(self) -> frozenset[str]:
        """The files that are there to be run: in no package, with a guarded main part."""
        packages = {rel.rpartition("/")[0] for rel in self._files if rel.endswith("__init__.py")}
        outside = (one for one in self._texts if one.rel.rpartition("/")[0] not in packages)
        return frozenset(
            one.rel
            for one in outside
            if "__main__" in one.text and one.has(_GUARD) and not TEST_PATHS.search(one.rel)
        )

    @cached_property
    def _finds_classes(self) -> bool:
        return any(one.has(_FINDS_CLASSES) for one in self._texts)

    @cached_property
    def _searched(self) -> frozenset[str]:
        """The last names of what is searched for names that are computed, modules and packages among them."""
        found = (match for one in self._texts for match in re.finditer(_SEARCHED, one.text))
        return frozenset(match[match.lastindex or 0] for match in found)

    @cached_property
    def _configured(self) -> frozenset[str]:
        """The words in files with configurations."""
        found: set[str] = set()
        for number, path in enumerate(_configurations(self._root)):
            if number == _MOST:
                break
            try:
                if path.stat().st_size <= _LARGEST:
                    found.update(re.findall(r"\w+", path.read_text("utf-8", "replace")))
            except OSError:
                continue
        return frozenset(found)

    def uses(self, rel: str, name: str) -> bool:
        """Whether a definition at the top level of a file may be used. In doubt it is."""
        scripts = self._scripts
        if not scripts - {rel} or rel in scripts or self._finds_classes or not name.isascii():
            return True
        if rel not in self._found:
            self._found[rel] = TEST_PATHS.search(rel) is not None or self._may_find(rel)
        return self._found[rel] or self._names(name)

    def _may_find(self, rel: str) -> bool:
        """Whether something may look up definitions of a file by names that are computed."""
        folder, _, module = rel.removesuffix(".py").rpartition("/")
        if self._searched & {module, folder.rpartition("/")[2]}:
            return True
        others = [one for one in self._texts if one.rel != rel]
        if any(one.has(_SEARCHES_ITSELF) for one in self._texts if one.rel == rel):
            return True
        named = [one for one in others if module in one.text]
        module = re.escape(module)
        if any(one.has(rf"\b{module}\s+import\s+\*") for one in named):
            return True
        imported = any(one.has(rf"\b(?:from|import)\b.*\b{module}\b") for one in named)
        return not imported and any(one.has(_IMPORTS_BY_NAME) for one in others)

    def _names(self, name: str) -> bool:
        """Whether code that runs names a definition, itself or by way of other definitions."""
        known, new = {name}, [name]
        while new:
            asked = new.pop()
            if asked not in self._users:
                every = (user for one in self._texts for user in one.users(asked))
                self._users[asked] = frozenset(every)
            users = self._users[asked]
            if "" in users:
                return True
            new += sorted(users - known)
            known |= users
        return not known.isdisjoint(self._configured)


def _configurations(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(n for n in folders if not n.startswith(".") and n != "node_modules")
        for name in sorted(names):
            if name.endswith(_CONFIGURES):
                yield Path(folder, name)


def with_unused_as_notes(
    findings: Sequence[Finding], application: Application, packaged: Callable[[], Collection[str]]
) -> list[Finding]:
    """The findings, of which those in definitions that an application does not use become notes. `packaged`
    gives the folders that are made to be installed."""
    return [_as_note(f) if _is_unused(f, application, packaged) else f for f in findings]


def _is_unused(
    finding: Finding, application: Application, packaged: Callable[[], Collection[str]]
) -> bool:
    hot = finding.hot
    if finding.certainty != "sure" or hot is None or hot.seen is not None or not finding.function:
        return False
    if re.fullmatch(_TOLD, hot.reason):
        return False
    if any(not folder or finding.path.startswith(f"{folder}/") for folder in packaged()):
        return False
    return not application.uses(finding.path, _definition(finding))


def _definition(finding: Finding) -> str:
    """The name of the definition at the top level that a finding is in."""
    return finding.function.partition(".")[0]


def _as_note(finding: Finding) -> Finding:
    assert finding.hot is not None
    reason = f"{finding.hot.reason}; nothing in the project uses {_definition(finding)}"
    return replace(finding, certainty="note", hot=replace(finding.hot, reason=reason))
