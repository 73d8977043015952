"""The layers of a call: as bars for the terminal, as Markdown, as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.layers import Layer, Layers
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.report.lines import Line, written
from pytest_dispatchguard.report.markdown_text import code, escape

SCHEMA = 1
"""The number of the JSON layout. Fields are added, never renamed."""

_STYLES = {
    "python": "yellow",
    "override": "yellow",
    "context": "yellow",
    "binding": "magenta",
    "autograd": "red",
    "tracking": "red",
    "dispatcher": "blue",
    "allocation": "cyan",
    "kernel": "green",
    "frame": "magenta",
    "guards": "red",
    "wrapper": "yellow",
    "compiled": "green",
}
_TELLABLE = 0.005
"""Differences below this share of the whole are not worth mentioning."""
_UNSURE = 0.1
"""A layer is uncertain if its interval is wider than this share of the whole."""
_NARROWEST, _WIDEST = 10, 40
"""The length of the whole call's bar, in characters."""
_LONGEST_NAME = 48
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def as_text(found: Sequence[Layers], *, color: bool = False, width: int = 100) -> str:
    """A waterfall for each call: every bar begins where the previous one ends."""
    lines: list[Line] = []
    for number, call in enumerate(found):
        if number:
            lines.append([])
        lines += waterfall(call, width)
    return written(lines, color=color)


def waterfall(call: Layers, width: int = 100) -> list[Line]:
    """One call, line by line."""
    whole = call.whole_us.value
    names = [_cut(_name(layer)) for layer in call.layers]
    wide = max([len(name) for name in names] + [len("the whole call")])
    figures = [
        _figures(layer.us, share) for layer, share in zip(call.layers, call.shares, strict=True)
    ]
    room = width - wide - len(_figures(call.whole_us, 1.0)) - 4
    drawn_us = sum(max(layer.us.value, 0.0) for layer in call.layers)
    scale = max(_NARROWEST, min(_WIDEST, room)) / max(whole, drawn_us, 1e-9)
    lines: list[Line] = [[(call.subject, "bold"), (f"  {us(whole)} a call", "")]]
    at = 0.0
    for name, figure, layer in zip(names, figures, call.layers, strict=True):
        bar = _bar(at * scale, layer.us.value * scale)
        lines.append(
            [(f"  {name:<{wide}}", ""), (f"{figure}  ", ""), (bar, _STYLES.get(layer.kind, ""))]
        )
        at += max(layer.us.value, 0.0)
    total = _figures(call.whole_us, 1.0)
    bar = _bar(0.0, whole * scale)
    lines.append([(f"  {'the whole call':<{wide}}", "bold"), (f"{total}  ", ""), (bar, "dim")])
    lines += [[(f"  {line}", "dim")] for line in remarks(call)]
    return lines


def remarks(call: Layers) -> list[str]:
    """The notes below the layers."""
    share = call.sum_us / call.whole_us.value - 1 if call.whole_us.value else 0.0
    said = [f"medians of {call.rounds} blocks of each, by turns"]
    if abs(share) > _TELLABLE:
        off = call.whole_us.value - call.sum_us
        said[0] += f"; the parts come to {1 + share:.0%} of the whole: {off:+.2f} µs not attributed"
    unsure = [layer for layer in call.layers if _wide(layer.us) > _UNSURE * call.whole_us.value]
    if unsure:
        said.append(
            f"{len(unsure)} of {len(call.layers)} layers are uncertain by more than {_UNSURE:.0%} of "
            "the call: measure longer, on a quieter machine, or with one thread"
        )
    return [*said, *call.notes]


def _wide(interval: Interval) -> float:
    return max(interval.high - interval.value, interval.value - interval.low)


def as_markdown(found: Sequence[Layers], machine: Mapping[str, str]) -> str:
    """A table for each call."""
    about = ", ".join(f"{name} {number}" for name, number in machine.items())
    out = f"### Layers\n\n{escape(about)}\n"
    for call in found:
        out += f"\n#### {code(call.subject)}: {us(call.whole_us.value)} a call\n\n"
        out += "| layer | µs | between | share | what |\n| --- | ---: | --- | ---: | --- |\n"
        for layer, share in zip(call.layers, call.shares, strict=True):
            name = "&nbsp;&nbsp;" * layer.depth + code(_name(layer).strip())
            cells = [
                name,
                f"{layer.us.value:.2f}",
                _between(layer.us),
                f"{share:.0%}",
                escape(layer.note or _place(layer)),
            ]
            out += f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
        out += "".join(f"\n{escape(line)}  " for line in remarks(call)) + "\n"
    return out


def as_svg(found: Sequence[Layers], machine: Mapping[str, str]) -> str:
    """A chart of one call."""
    from pytest_dispatchguard.report.charts import charts

    if len(found) != 1:
        raise UserError("one drawing shows one call: name a test of one subject")
    call = found[0]
    about = ", ".join(f"{name} {number}" for name, number in machine.items())
    off = call.whole_us.value - call.sum_us
    rest = None
    if abs(off) > _TELLABLE * call.whole_us.value:
        rest = charts.Layer("not attributed", Interval(off, off, off))
    return charts.waterfall(
        charts.Caption(f"Where {us(call.whole_us.value)} of {call.subject} go", about),
        [charts.Layer(_name(layer), drawn(layer.us)) for layer in call.layers],
        charts.Layer("the whole call", drawn(call.whole_us)),
        rest,
    )


def drawn(interval: Interval) -> Interval:
    """A figure as it can be drawn: without ends that are unknown."""
    known = math.isfinite(interval.high - interval.low)
    return interval if known else Interval(interval.value, interval.value, interval.value)


def as_json(found: Sequence[Layers], machine: Mapping[str, str]) -> str:
    """All calls as one object."""
    calls = [as_object(call) for call in found]
    return json.dumps({"schema": SCHEMA, "machine": dict(machine), "calls": calls}, indent=1) + "\n"


def as_object(call: Layers | None) -> dict[str, Any] | None:
    """One call as plain values; null if its layers were not measured."""
    if call is None:
        return None
    return {
        "subject": call.subject,
        "form": call.form,
        "whole_us": plain(call.whole_us),
        "sum_us": call.sum_us,
        "rounds": call.rounds,
        "layers": [
            {
                "name": layer.name,
                "kind": layer.kind,
                "us": plain(layer.us),
                "depth": layer.depth,
                "times": layer.times,
                "note": layer.note,
                "path": relative(layer.path),
                "line": layer.line,
            }
            for layer in call.layers
        ],
        "torch_calls": dict(call.torch_calls),
        "functions": list(call.functions),
        "notes": list(call.notes),
    }


def plain(interval: Interval) -> dict[str, float | None]:
    """A figure with its interval; an unknown end is null."""
    ends = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {name: number if math.isfinite(number) else None for name, number in ends.items()}


def _name(layer: Layer) -> str:
    times = f" ({layer.times} times)" if layer.times > 1 else ""
    return f"{'  ' * layer.depth}{layer.called}{times}"


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"


def _place(layer: Layer) -> str:
    return f"{relative(layer.path)}:{layer.line}" if layer.line else ""


def relative(path: str) -> str:
    """A path relative to the working directory; for files elsewhere the last parts, as if relative to a
    package's directory."""
    if not Path(path).is_absolute():
        return path  # already relative
    try:
        return Path(path).relative_to(Path.cwd()).as_posix()
    except ValueError:
        return Path(*Path(path).parts[-3:]).as_posix()


def _figures(interval: Interval, share: float) -> str:
    wide = _wide(interval)
    around = f"±{_number(wide)}" if math.isfinite(wide) else "±?"
    return f"  {us(interval.value):>9} {around:<6} {share:>4.0%}"


def _between(interval: Interval) -> str:
    if not math.isfinite(interval.high - interval.low):
        return "anything"
    return f"{interval.low:.2f} to {interval.high:.2f}"


def us(number: float) -> str:
    """Microseconds with three significant digits."""
    return f"{_number(number)} µs"


def _number(number: float) -> str:
    size = abs(number)
    return f"{number:.2f}" if size < 10 else f"{number:.1f}" if size < 100 else f"{number:.0f}"


def _bar(start: float, length: float) -> str:
    """A bar that begins at `start`, with eighths of a character at its end; a negative length has no bar."""
    before = round(start)
    eighths = max(0, round((start + length) * 8) - before * 8)
    if length > 0 and not eighths:
        eighths = 1
    whole, rest = divmod(eighths, 8)
    return " " * before + "█" * whole + (_EIGHTHS[rest] if rest else "")
