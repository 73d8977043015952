"""Gives the fixes of a project one by one, and lints what each of them leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.lint.check import prepared, safeties_of, selected
from pytest_dispatchguard.lint.passes import one_pass
from pytest_dispatchguard.lint.pipeline.survey import Texts
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.lint.results.fixes import fix, repair
from pytest_dispatchguard.lint.session import open_session
from pytest_dispatchguard.lint.sources.files import Source, leads_out, read_source, require
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.findings import Finding, Safety


@dataclass(frozen=True, slots=True)
class Fixable:
    """An open project and its fixes."""

    config: Config
    findings: tuple[Finding, ...]
    """All that are reported."""
    fixes: tuple[Finding, ...]
    """Those that are selected and have a fix of the requested kinds."""
    problems: tuple[str, ...]
    read: Callable[[str], str | None]
    encode: Callable[[str, str], bytes]
    """The bytes of a file, by its path, with another text."""
    lint: Callable[[Mapping[str, str]], Sequence[Finding]]
    """The findings with these texts in place of those on disk."""
    safeties: tuple[Safety, ...]

    def fixed(self, finding: Finding) -> str | None:
        """The text of its file after one fix alone; None if the file would be no Python any more."""
        text = self.read(finding.path)
        if text is None:
            return None
        done = fix(text, [finding], self.safeties)
        return done.text if done.made and done.text != text else None

    def is_gone(self, finding: Finding, texts: Mapping[str, str]) -> bool:
        """Whether there is one such finding less with these texts."""
        after = Counter(map(_key, self.lint(texts)))
        return after[_key(finding)] < Counter(map(_key, self.findings))[_key(finding)]

    def together(self, findings: Sequence[Finding]) -> Mapping[str, str]:
        """The texts of files after several fixes, as many as go together."""
        keys = set(map(_key, findings))

        def again(texts: Mapping[str, str]) -> list[Finding]:
            return [f for f in self.lint(texts) if _key(f) in keys]

        return repair(findings, self.read, again, self.safeties).after


def _key(finding: Finding) -> tuple[str, str, str, str]:
    """What stays the same of a finding when lines above it change."""
    return finding.path, finding.code, finding.function, finding.message


@contextmanager
def fixable(request: Request) -> Iterator[Fixable]:
    """Open a project, and lint it once."""
    require(request.paths, request.cwd)
    with open_session(
        request.paths,
        request.cwd,
        request.config_file,
        request.settings,
        cached=request.cache,
        jobs=request.jobs,
    ) as session:
        check = prepared(request, session)
        first = one_pass(check, check.texts)
        read = Texts(check.discovery, check.texts)
        safeties = safeties_of(request)
        wanted = selected(check, read)
        begin: Sequence[Finding] = first.findings
        if wanted is not None:
            wanted.require(begin, safeties)
            begin = wanted.among(begin, {})
        files = {file.rel: file for file in check.discovery.project}

        def encode(rel: str, text: str) -> bytes:
            source = read_source(files[rel].path, rel)
            if not isinstance(source, Source):
                raise UserError(f"{rel}: {source.message}")
            return source.encode(text)

        yield Fixable(
            session.config,
            first.findings,
            tuple(
                f
                for f in begin
                if f.fix is not None
                and f.fix.safety in safeties
                and not leads_out(files[f.path], session.config.root)
            ),
            first.outcome.problems,
            read,
            encode,
            lambda texts: one_pass(check, texts).findings,
            safeties,
        )
