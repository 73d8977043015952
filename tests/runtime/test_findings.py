"""What was seen, as findings: merged by line, the dearest first."""

from __future__ import annotations

from pathlib import Path

from pytest_dispatchguard.runtime.findings import observed
from pytest_dispatchguard.runtime.syncs import Frame, Sync

RULES = {"DG201": "generator-context-per-call", "DG411": "item-read"}


def seen(code: str, line: int, *, path: str = "/here/own.py", waits: bool = False) -> Sync:
    return Sync(code.lower(), "why", code, (Frame(path, line, "f"), Frame(path, 90, "main")), waits)


def rel(path: str) -> str | None:
    return Path(path).name if path.startswith("/here/") else None


def test_the_dearest_come_first() -> None:
    times = {
        seen("DG201", 1): 100,
        seen("DG201", 2): 10,
        seen("DG201", 3): 100,
        seen("DG411", 4, waits=True): 1,
        seen("DG411", 5, waits=True): 2,
    }
    found, elsewhere = observed(times, rel, RULES, {("/here/own.py", 2): 5000})
    assert [finding.span.line for finding in found] == [5, 4, 2, 1, 3]
    assert elsewhere == 0


def test_instructions_are_told_where_they_say_something() -> None:
    lines = {("/here/own.py", 1): 1234, ("/here/own.py", 2): 5}
    found, _ = observed({seen("DG201", line): 2 for line in (1, 2, 3)}, rel, RULES, lines)
    by_line = {finding.span.line: finding.message for finding in found}
    assert "`dg201` ran 2 times (1,234 instructions a call on this line): why" in by_line[1]
    assert "instructions" not in by_line[2] and "instructions" not in by_line[3]


def test_what_a_library_wastes_is_not_told_but_where_it_waits_is() -> None:
    others = Frame("/lib/x.py", 7, "inner")
    own = Frame("/here/own.py", 3, "f")
    times = {
        Sync("a", "why", "DG201", (others, own), False): 5,
        Sync("b", "why", "DG411", (others, own)): 4,
        Sync("c", "why", "DG411", (others,)): 3,
    }
    (finding,), elsewhere = observed(times, rel, RULES)
    assert (finding.path, finding.span.line, finding.function) == ("own.py", 3, "f")
    assert finding.message == "`b` made the host wait 4 times, in x.py:7: why"
    assert elsewhere == 3
