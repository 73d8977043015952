"""The guards of compiled code as text and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_dispatchguard.model.compiled import GuardedCode, GuardGroup
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.visible import one_line

SCHEMA = 1
"""The number of the JSON layout. Fields are added, never renamed."""
_MOST_GROUPS = 20


def as_text(target: str, codes: Sequence[GuardedCode]) -> str:
    """The guards of each piece of compiled code, the largest groups first."""
    total = sum(code.number for code in codes)
    functions = "1 compiled function" if len(codes) == 1 else f"{len(codes)} compiled functions"
    lines = [f"{target}: {_guards(total)} of {functions} are checked at every call"]
    for code in codes:
        lines += ["", *_code(code)]
    return "\n".join(map(one_line, lines)) + "\n"


def _code(code: GuardedCode) -> list[str]:
    took = "" if code.cost_us is None else f"; checking them takes {_cost(code.cost_us)}"
    lines = [f"{code.function} ({_place(code.path)}:{code.line}): {_guards(code.number)}{took}"]
    lines += [f"  {code.note}"] if code.note else []
    for group in code.groups[:_MOST_GROUPS]:
        lines += _group(group)
    left = code.groups[_MOST_GROUPS:]
    if left:
        lines.append(f"  {sum(g.number for g in left):>5}  in {len(left)} smaller groups")
    if code.filters:
        lines.append(
            '  filters that torch offers, as options={"guard_filter_fn": torch.compiler.…}:'
        )
    for one in code.filters:
        saves = "" if one.saves_us is None else f", saves {_cost(one.saves_us)}"
        lines.append(f"    {one.name}: {_guards(one.left)} left{saves}")
        lines.append(f"      unsafe: may change unseen: {one.unseen}")
    return lines


def _group(group: GuardGroup) -> list[str]:
    cost = "" if group.cost_us is None else f": {_cost(group.cost_us)}"
    name = f" {group.name}" if group.name else ""
    kinds = ", ".join(f"{number} {kind}" for kind, number in group.kinds.items())
    return [
        f"  {group.number:>5}  {group.cause}{name}{cost}",
        f"         {kinds}",
        *(f"         at {place}" for place in group.places),
        *(f"         fewer: {advice}" for advice in group.advice),
    ]


def _guards(number: int) -> str:
    return "1 guard" if number == 1 else f"{number} guards"


def _cost(interval: Interval) -> str:
    if interval.low <= 0 or not math.isfinite(interval.high - interval.low):
        return "too small to tell"
    return f"{interval.value:.2f} µs ({interval.low:.2f} to {interval.high:.2f})"


def _place(path: str) -> str:
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


def as_json(target: str, codes: Sequence[GuardedCode]) -> str:
    """The same as one object."""
    rows: list[dict[str, Any]] = [asdict(code) for code in codes]
    text = json.dumps({"schema": SCHEMA, "target": target, "functions": _finite(rows)}, indent=1)
    return text + "\n"


def _finite(value: Any) -> Any:
    """An unknown end of an interval is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value
