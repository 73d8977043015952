"""Tools that explain: a rule with its specimen, and a profiler trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_dispatchguard.agents.answers import Answer, brief, cut, page, rule_answer
from pytest_dispatchguard.agents.parameters import inside, shown
from pytest_dispatchguard.agents.workplace import Call, Workplace
from pytest_dispatchguard.lint.judge import packs
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.report.traces.rows import Waited, costs_of, sentence, waits_of
from pytest_dispatchguard.spelling import nearest

_MOST_COSTS = 10


def explain_rule(workplace: Workplace, call: Call, arguments: dict[str, Any]) -> Answer:
    """The page of a rule, and its first specimen."""
    asked = arguments["code"]
    infos = packs.catalog().infos
    found = next((i for i in infos if asked.upper() == i.code or asked == i.name), None)
    if found is None:
        near = nearest(asked, [word for i in infos for word in (i.code, i.name)])
        raise UserError(f"no rule {shown(asked)}" + (f"; the nearest is {near}" if near else ""))
    specimen = next(
        (
            path
            for folder in packs.load().specimens
            for path in sorted(folder.glob(f"{found.code}/specimen*.py"))
        ),
        None,
    )
    return rule_answer(found, None if specimen is None else _read(specimen))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def read_trace(workplace: Workplace, call: Call, arguments: dict[str, Any]) -> Answer:
    """Where the host waits in a trace of PyTorch's profiler, and what keeps the device idle."""
    from pytest_dispatchguard.traced.told import told

    path = inside(workplace.root, arguments["path"])
    if not path.is_file():
        raise UserError(f"path {shown(arguments['path'])}: name a file")
    (found,) = told((path,), workplace.root, (), cache=False, tell=call.progress)
    trace, waits = found.trace, waits_of([found], linted=True)
    return {
        "summary": cut(sentence(found, waits)),
        "damage": cut(trace.damage) or None,
        "steps": len(trace.steps) if trace.has_steps else 0,
        "idle_share": round(trace.idle_share, 4) if trace.devices else None,
        "host_bound": trace.host_bound,
        "devices": [cut(device.name, 100) for device in trace.devices[:8]],
        "stacks": trace.stacks,
        **page(map(_wait, waits.all), arguments["offset"], arguments["limit"], "waits"),
        "overheads": [
            {
                "place": cut(one.place(), 200),
                "host_us": round(one.overhead.host_us, 1),
                "device_us": round(one.overhead.device_us, 1),
                "launches": one.overhead.launches,
                "remarks": [cut(remark, 200) for remark in one.remarks],
            }
            for one in costs_of([found])[:_MOST_COSTS]
        ],
    }


def _wait(wait: Waited) -> Answer:
    return {
        "path": cut(wait.line.file, 300) or None,
        "line": wait.line.line or None,
        "function": cut(wait.line.function, 200) or None,
        "of_the_project": wait.line.ours,
        "call": cut(wait.around, 200),
        "kind": wait.kind,
        "times_per_step": round(wait.times, 3),
        "us_per_step": round(wait.us, 1),
        "idle_share": round(wait.idle, 4),
        "findings": [brief(finding) for finding in wait.findings[:5]],
    }
