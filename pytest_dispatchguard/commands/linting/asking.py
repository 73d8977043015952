"""Shows the fixes of a project on a terminal one by one, and asks which to make."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from pytest_dispatchguard.lint.fixing import fixable
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.lint.results.selection import Selection
from pytest_dispatchguard.model.findings import Finding
from pytest_dispatchguard.report.diff import by_finding
from pytest_dispatchguard.visible import visible

_HELP = "y: make this fix; n: do not; a: make this and all that follow; q: make none of the rest"
_Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The fixes to make. When some are made, the others have other places, so those are not compared."""

    keys: frozenset[_Key]

    def __call__(self, finding: Finding) -> bool:
        return _key(finding) in self.keys


def asked(request: Request) -> Selection | None:
    """The fixes that the user wants made; None if there are none to ask about."""
    with fixable(request) as project:
        fixes = [f for f in project.fixes if project.read(f.path) is not None]
        if not fixes:
            return None
        chosen = _ask(fixes, lambda f: by_finding(f.path, project.read(f.path) or "", [f]))
    return replace(request.only or Selection(), chosen=_Chosen(frozenset(map(_key, chosen))))


def _key(finding: Finding) -> _Key:
    return finding.path, finding.code, finding.function, finding.source.strip()


def _ask(fixes: Iterable[Finding], diff: Callable[[Finding], str]) -> list[Finding]:
    """The fixes that are answered with yes."""
    chosen: list[Finding] = []
    every = False
    for finding in fixes:
        if every:
            chosen.append(finding)
            continue
        print(visible(diff(finding).replace("\r\n", "\n")), end="")
        answer = _answer()
        if answer == "q":
            break
        every = answer == "a"
        if answer in ("y", "a"):
            chosen.append(finding)
    return chosen


def _answer() -> str:
    while True:
        try:
            said = input("Make this fix? [y,n,a,q] ").strip().lower()
        except EOFError:
            return "q"
        if said in ("y", "n", "a", "q"):
            return said
        print(_HELP)
