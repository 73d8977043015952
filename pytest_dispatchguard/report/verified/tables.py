"""Verified changes as a table, for terminals and for pull requests."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_dispatchguard.model.reviews import Gain, Verification, Verified
from pytest_dispatchguard.report.markdown_text import escape
from pytest_dispatchguard.visible import one_line

_SHOWN = {"instructions": "instruction", "dispatches": "dispatch"}
_BOLD, _GREEN, _RED, _PLAIN = "\x1b[1m", "\x1b[32m", "\x1b[31m", "\x1b[0m"
_MINUS = "\u2212"
_TOGETHER = "all kept together"


def as_text(found: Verification, *, color: bool = False) -> str:
    """A line for each change, and one for all that are kept."""
    rows = _rows(found)
    width = max((len(name) for name, _, _ in rows), default=0)
    lines = [
        f"{'kept' if kept else 'not kept':<8}  {name:<{width}}  {said}" for name, kept, said in rows
    ]
    if color:
        lines = [_colored(line, kept) for line, (_, kept, _) in zip(lines, rows, strict=True)]
    notes = [f"note: {one_line(note)}" for note in found.notes]
    return "".join(f"{line}\n" for line in [*lines, *notes, *_written(found), _summary(found)])


def as_markdown(found: Verification, machine: Mapping[str, str]) -> str:
    """The same as a table for a pull request."""
    about = ", ".join(f"{name} {number}" for name, number in machine.items())
    out = f"### {_summary(found)}\n\n{escape(about)}\n\n| change | | what it does |\n| --- | --- | --- |\n"
    for name, kept, said in _rows(found):
        out += f"| {escape(name)} | {'kept' if kept else 'not kept'} | {escape(said)} |\n"
    lines = [*found.notes, *_written(found)]
    return out + "".join(f"\n{escape(line)}\n" for line in lines)


def _rows(found: Verification) -> list[tuple[str, bool, str]]:
    changes = [*found.changes, *([found.together] if found.together else [])]
    return [
        (_TOGETHER if one is found.together else one_line(one.name), one.kept, one_line(told(one)))
        for one in changes
    ]


def _colored(line: str, kept: bool) -> str:
    return f"{_GREEN if kept else _RED}{line[:8]}{_PLAIN}{line[8:]}"


def _summary(found: Verification) -> str:
    kept = sum(one.kept for one in found.changes)
    number = len(found.changes)
    return f"{kept} of {number} change{'' if number == 1 else 's'} kept"


def _written(found: Verification) -> list[str]:
    if found.applied is None:
        return []
    if not found.applied:
        return ["nothing was applied"]
    return [f"applied to {', '.join(map(one_line, found.applied))}"]


def told(change: Verified) -> str:
    """What a change does, or why it is not kept."""
    several = len(change.gains) > 1
    gains = [f"{gain.name}: {gained(gain)}" if several else gained(gain) for gain in change.gains]
    parts = [change.reason, *gains]
    if change.kept or (change.tests is not None and change.gains):
        parts.append("tests as before" if change.tests is not None else "no tests were named")
    return "; ".join(filter(None, parts))


def gained(gain: Gain) -> str:
    """What a change makes of one call."""
    said = [_counted(gain, name, word) for name, word in _SHOWN.items()]
    if gain.moved_us is not None and gain.us is not None:
        moved = gain.moved_us
        wide = (moved.high - moved.low) / 2
        digits = 0 if wide >= 3 else 1 if wide >= 0.1 else 2
        sign = _MINUS if moved.value < 0 else "+"
        unsure = "" if moved.high < 0 or moved.low > 0 else " (undecided)"
        amount = f"{sign}{abs(moved.value):,.{digits}f} µs ±{wide:,.{digits}f}"
        said.append(f"{amount} of {_rounded(gain.us)} µs{unsure}")
    waits = gain.moved("syncs")
    if waits:
        said.append(_number(abs(waits), "wait") + (" fewer" if waits < 0 else " more"))
    elif gain.before.get("syncs"):
        said.append(f"{_number(gain.before['syncs'], 'wait')} as before")
    if gain.note:
        said.append(f"({gain.note})")
    return ", ".join(filter(None, said)) or "nothing changed"


def _counted(gain: Gain, name: str, word: str) -> str:
    if name in gain.varying:
        return f"{name} vary"
    moved = gain.moved(name)
    return "" if not moved else f"{_MINUS if moved < 0 else '+'}{_number(abs(moved), word)}"


def _number(count: int, word: str) -> str:
    plural = "es" if word.endswith("h") else "s"
    return f"{count:,} {word}{'' if count == 1 else plural}"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
