"""Selects fixes: by code, by place, or one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_dispatchguard.lint.sources.files import rel_in
from pytest_dispatchguard.lint.sources.git_diff import Ranges, carried, touches
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.findings import Finding, Safety
from pytest_dispatchguard.paths import absolute

Read = Callable[[str], "str | None"]


def _any(finding: Finding) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Selection:
    """Which fixes are made, as a user names them."""

    codes: tuple[str, ...] = ()
    """Codes or prefixes."""
    places: tuple[tuple[Path, int], ...] = ()
    """Files, relative to the current directory, and lines."""
    chosen: Callable[[Finding], bool] = _any
    """Whether a finding that the others select is fixed."""

    def resolved(self, root: Path, cwd: Path, read: Read) -> Selected:
        """The same for files of the project, whose texts before any fix `read` gives."""
        paths = [rel_in(root, absolute(cwd / path)) for path, _ in self.places]
        lines: dict[str, Ranges] = {}
        for rel, (_, line) in zip(paths, self.places, strict=True):
            lines[rel] = (*lines.get(rel, ()), (line, line))
        return Selected(self, paths, lines, read)


@dataclass(frozen=True, slots=True)
class Selected:
    """A selection in the files of a project."""

    selection: Selection
    paths: Sequence[str]
    """Of the selected places, in order, relative to the project root."""
    lines: Mapping[str, Ranges]
    read: Read

    def among(self, findings: Iterable[Finding], texts: Mapping[str, str]) -> list[Finding]:
        """The findings that are to be fixed. `texts` are those of files that were fixed since."""
        selection = self.selection
        if selection.codes or selection.places:
            lines = {rel: self._now(rel, texts) for rel in self.lines}
            findings = [
                f
                for f in findings
                if f.code.startswith(selection.codes)
                or touches(lines, f.path, f.span.line, f.span.line)
            ]
        return [f for f in findings if selection.chosen(f)]

    def _now(self, rel: str, texts: Mapping[str, str]) -> Ranges:
        """The selected lines of a file, where they are now."""
        before, after = self.read(rel), texts.get(rel)
        if before is None or after is None or before == after:
            return self.lines[rel]
        return carried(self.lines[rel], before, after)

    def require(self, findings: Sequence[Finding], safeties: Collection[Safety]) -> None:
        """Check that there is something to fix at every place; `findings` are those before any fix."""
        for (path, line), rel in zip(self.selection.places, self.paths, strict=True):
            here = [f for f in findings if f.path == rel and f.span.line == line]
            if any(f.fix is not None and f.fix.safety in safeties for f in here):
                continue
            why = "there is no finding" if not here else f"{_codes(here)} has no fix"
            unsafe = [f for f in here if f.fix is not None]
            if unsafe:
                why = f"the fix of {_codes(unsafe)} is unsafe; add --unsafe-fixes"
            raise UserError(f"--select {path}:{line}: {why}")


def _codes(findings: Iterable[Finding]) -> str:
    return ", ".join(dict.fromkeys(f.code for f in findings))
