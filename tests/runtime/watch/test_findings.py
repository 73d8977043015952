"""What was seen, as findings: merged by line, the dearest first."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_dispatchguard.model.findings import Ran
from pytest_dispatchguard.runtime.syncs.syncs import Frame, Sync
from pytest_dispatchguard.runtime.watch.findings import observed

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


def test_a_wait_is_told_with_the_source_of_its_call(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def f():\n    total = x.item() + max(y.sum().item(), z.item())\n")
    places = ((12, 20), (27, 41), (43, 51))

    def wait(operation: str, *at: tuple[int, int]) -> dict[Sync, int]:
        return {
            Sync(operation, "why", "DG411", (Frame(str(file), 2, "f", 2, start, end),)): 2
            for start, end in at
        }

    (one,), _ = observed(wait("item", places[0]), lambda path: "own.py", RULES)
    assert one.message == "`x.item()` made the host wait 2 times: why"
    assert (one.span.column, one.span.end_column) == (13, 21)
    (other,), _ = observed(wait("copy to the host", places[0]), lambda path: "own.py", RULES)
    assert other.message.startswith("`x.item()` (copy to the host) made the host wait")
    (several,), _ = observed(wait("item", *places), lambda path: "own.py", RULES)
    assert several.message.startswith(
        "`x.item()` and `y.sum().item()` and 1 more made the host wait 6 times"
    )
    assert (several.span.column, several.span.end_column) == (5, 53)


@pytest.mark.parametrize(
    ("ran", "said"),
    [
        (Ran(5), ""),
        (Ran(1, 1, "a.py:2", steps=True), ""),
        (Ran(5, 5, "a.py:2", steps=True), ", in each of 5 steps"),
        (Ran(10, 5, "a.py:2", steps=True), ", twice in each of 5 steps"),
        (Ran(3, 5, "a.py:2", steps=True), ", in 5 steps"),
        (Ran(15, 5, "a.py:2"), ", 3 times in each of 5 rounds of the loop at a.py:2"),
        (Ran(15, 0, "a.py:2"), ", in the loop at a.py:2"),
    ],
)
def test_how_often_is_told_by_its_loop(ran: Ran, said: str) -> None:
    wait = seen("DG411", 1, waits=True)
    (finding,), _ = observed({wait: ran.times}, rel, RULES, ran={wait: ran})
    often = "once" if ran.times == 1 else f"{ran.times} times"
    assert finding.message == f"`dg411` made the host wait {often}{said}: why"
    assert finding.ran == (ran,)
