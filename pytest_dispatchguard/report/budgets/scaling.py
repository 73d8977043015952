"""How the time of a call grows with its size: for the terminal, as Markdown, as JSON, as a chart."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from pytest_dispatchguard.model.measurements import Interval, Scaling
from pytest_dispatchguard.report.budgets.layers import SCHEMA, drawn, plain, us
from pytest_dispatchguard.report.lines import Line, written
from pytest_dispatchguard.report.markdown_text import code, escape

_BAR = 30


def as_text(found: Scaling, *, color: bool = False) -> str:
    """A row for each size, with the share of time that is not kernels as a bar."""
    lines: list[Line] = [[(found.subject, "bold")]]
    lines.append(
        [(f"  {'size':>8}  {'a call':>10}  {_title(found):>14}  what is no kernel", "dim")]
    )
    for one in found.sizes:
        share = one.overhead
        bar = "" if share is None else "█" * round(share * _BAR)
        told = "" if share is None else f" {share:.0%}"
        middle = (
            _ratio(one.ratio) if one.ratio else us(one.kernels_us.value) if one.kernels_us else ""
        )
        lines.append(
            [
                (f"  {one.size:>8}  {us(one.whole_us.value):>10}  {middle:>14}  ", ""),
                (bar, "yellow"),
                (told, ""),
            ]
        )
    lines += [[(f"  {line}", "bold")] for line in conclusion(found)]
    return written(lines, color=color)


def conclusion(found: Scaling) -> list[str]:
    """What the sizes show, in words."""
    if found.fixed_us is None:
        said = [_shape(found)]
    else:
        slope = f"{found.slope_us:.3g} µs · n^{found.power:g} on top"
        said = [f"{us(found.fixed_us)} at any size, and {slope} (off by at most {found.error:.0%})"]
    if any(one.kernels_us is None for one in found.sizes):
        said.append("kernels cannot be separated from what surrounds them")
    elif found.dominates is None:
        said.append("overhead takes more than the kernels at every size measured")
    elif found.dominates <= found.sizes[0].size:
        said.append("kernels take more than the overhead at every size measured")
    else:
        at = f"size {_size(found.dominates)}"
        said.append(f"kernels take more than the overhead from about {at} on")
    return said


def _shape(found: Scaling) -> str:
    """What to say if no fixed part and slope fit."""
    times = [one.whole_us.value for one in found.sizes]
    if max(times) < 1.3 * min(times):
        return f"about {us(sum(times) / len(times))} at every size measured"
    return "a fixed part and a slope do not fit these times"


def as_markdown(found: Scaling, machine: Mapping[str, str]) -> str:
    """A table, and its conclusion."""
    about = ", ".join(f"{name} {number}" for name, number in machine.items())
    out = f"### {code(found.subject)} by size\n\n{escape(about)}\n\n"
    out += "| size | a call | kernels | ratio | what is no kernel |\n"
    out += "| ---: | ---: | ---: | ---: | ---: |\n"
    for one in found.sizes:
        share = one.overhead
        cells = [
            str(one.size),
            us(one.whole_us.value),
            us(one.kernels_us.value) if one.kernels_us else "",
            _ratio(one.ratio) if one.ratio else "",
            "" if share is None else f"{share:.0%}",
        ]
        out += f"| {' | '.join(cells)} |\n"
    return out + "".join(f"\n{escape(line)}.  " for line in conclusion(found)) + "\n"


def as_svg(found: Scaling, machine: Mapping[str, str]) -> str:
    """The ratio over the size, or without a reference the time of a call."""
    from pytest_dispatchguard.report.charts import charts

    about = ", ".join(f"{name} {number}" for name, number in machine.items())
    marks = []
    least, most = found.sizes[0].size, found.sizes[-1].size
    if found.dominates is not None and least < found.dominates < most:
        marks = [charts.Mark("kernels take more from here", found.dominates)]
    ratios = [(float(one.size), drawn(one.ratio)) for one in found.sizes if one.ratio]
    if ratios:
        return charts.lines(
            charts.Caption(f"How many times its reference {found.subject} takes", about),
            [charts.Series("ratio", tuple(ratios))],
            log_x=True,
            marks=marks,
            levels=[charts.Mark("as fast as the reference", 1.0)],
            x_label="size n",
            y_label="times the reference",
        )
    series = [
        charts.Series(
            "the whole call", tuple((one.size, drawn(one.whole_us)) for one in found.sizes)
        )
    ]
    kernels = [(float(one.size), drawn(one.kernels_us)) for one in found.sizes if one.kernels_us]
    kernels = [(size, took) for size, took in kernels if took.low > 0]
    if kernels:
        series.append(charts.Series("its kernels", tuple(kernels)))
    return charts.lines(
        charts.Caption(f"What {found.subject} takes over the size", about),
        series,
        log_x=True,
        log_y=True,
        marks=marks,
        x_label="size n",
        y_label="µs a call",
    )


def as_json(found: Scaling, machine: Mapping[str, str]) -> str:
    """The sizes as one object."""
    sizes = [
        {
            "size": one.size,
            "whole_us": plain(one.whole_us),
            "kernels_us": plain(one.kernels_us) if one.kernels_us else None,
            "ratio": plain(one.ratio) if one.ratio else None,
        }
        for one in found.sizes
    ]
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "machine": dict(machine),
        "subject": found.subject,
        "sizes": sizes,
        "fixed_us": found.fixed_us,
        "slope_us": found.slope_us,
        "power": found.power,
        "dominates": found.dominates,
        "error": found.error,
    }
    return json.dumps(data, indent=1) + "\n"


def _title(found: Scaling) -> str:
    return "ratio" if any(one.ratio for one in found.sizes) else "kernels"


def _ratio(interval: Interval) -> str:
    wide = max(interval.high - interval.value, interval.value - interval.low)
    return f"{interval.value:.2f} ±{wide:.2f}" if math.isfinite(wide) else f"{interval.value:.2f}"


def _size(size: float) -> str:
    """A size as precisely as it is known: two digits."""
    if size < 10:
        return f"{size:.1f}"
    digits = math.floor(math.log10(size)) - 1
    return f"{round(size / 10**digits) * 10**digits:,}"
