"""Short structured answers: findings, rules and verdicts as plain objects, with limits on size."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pytest_dispatchguard.model.findings import Finding, RuleInfo
from pytest_dispatchguard.model.verdicts import Verdict
from pytest_dispatchguard.report.formats.prompt import fix_diff
from pytest_dispatchguard.report.wording import (
    cost,
    costs,
    docs_url,
    heat,
    place,
    ranked,
    remedy,
)
from pytest_dispatchguard.visible import one_line

MOST = 24_000
"""Characters of the JSON of a list, about 6,000 tokens."""
MOST_LISTED = 50
USUAL = 20
_MOST_OF_A_LINE = 400
_MOST_OF_A_DIFF = 2_000
_MOST_OF_A_PAGE = 6_000
_MOST_OF_CODE = 3_000
_MOST_LINES = 5
_MOST_COUNTERS = 40

Answer = dict[str, Any]
Source = Callable[[str], "str | None"]


def cut(text: str, most: int = _MOST_OF_A_LINE) -> str:
    """A text on one line, shortened if it is long."""
    line = one_line(" ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def plain(value: Any) -> Any:
    """An answer as all JSON readers take it: no halves of surrogate pairs, no infinite numbers."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {plain(key): plain(inner) for key, inner in value.items()}
    return list(map(plain, value)) if isinstance(value, list | tuple) else value


def page(items: Iterable[Answer], offset: int, limit: int, key: str) -> Answer:
    """As many of the items as fit, and how many are left: `next` is the offset to ask for them."""
    everything = list(items)
    told: list[Answer] = []
    size = 0
    for item in everything[offset : offset + limit]:
        size += len(json.dumps(item))
        if told and size > MOST:
            break
        told.append(item)
    end = min(offset, len(everything)) + len(told)
    left = len(everything) - end
    return {
        key: told,
        "total": len(everything),
        "offset": offset,
        "left": left,
        "next": {"offset": end} if left else None,
    }


def important(findings: Iterable[Finding]) -> list[Finding]:
    """Findings first, then notes, then what is only maybe so; in each the most expensive first."""
    levels = {"sure": 0, "note": 1, "maybe": 2}
    return sorted(ranked(findings), key=lambda finding: levels[finding.certainty])


def finding_answer(finding: Finding, source: Source) -> Answer:
    """A finding: its place, exactly, and all that `check` says of it in short."""
    span, price = finding.span, finding.price
    return {
        "code": finding.code,
        "rule": finding.rule,
        "certainty": finding.certainty,
        "path": finding.path,
        "place": place(finding),
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
        "function": finding.function,
        "message": cut(finding.message),
        "source": cut(finding.source, 200),
        "hot": None if finding.hot is None else cut(heat(finding.hot)),
        "price": costs(finding) or None,
        "price_us": None if price is None else price.us,
        "waits": 0 if price is None else price.waits,
        "fix": _fix(finding, source),
    }


def _fix(finding: Finding, source: Source) -> Answer | None:
    if finding.fix is None:
        return None
    diff = fix_diff(finding, finding.path, source(finding.path))
    fits = 0 < len(diff) <= _MOST_OF_A_DIFF
    return {
        "safety": finding.fix.safety,
        "message": cut(remedy(finding.fix)),
        "diff": diff if fits else None,
    }


def brief(finding: Finding) -> Answer:
    """A finding in short."""
    return {
        "code": finding.code,
        "certainty": finding.certainty,
        "path": finding.path,
        "line": finding.span.line,
        "function": finding.function,
        "message": cut(finding.message, 200),
    }


def rule_answer(rule: RuleInfo, specimen: str | None) -> Answer:
    """A rule: its page, and the specimen that its price was measured on."""
    return {
        "summary": f"{rule.code} {rule.name}: {rule.summary}",
        "code": rule.code,
        "name": rule.name,
        "fix": rule.fix,
        "origin": rule.origin,
        "price": None if rule.price is None else cost(rule.price),
        "only_when_run": rule.running,
        "page": block(rule.help, _MOST_OF_A_PAGE),
        "specimen": None if specimen is None else block(specimen, _MOST_OF_CODE),
        "url": docs_url(rule.code),
    }


def verdict_answer(verdict: Verdict) -> Answer:
    """What a budget came to."""
    base = verdict.base
    measured = verdict.measured
    return {
        "test": verdict.node_id,
        "subject": verdict.subject,
        "verdict": verdict.verdict,
        "reason": block(verdict.reason, 600),
        "counters": _some(verdict.counters),
        "limits": {limit.name: limit.value for limit in verdict.limits},
        "subject_us": None
        if measured is None or measured.subject_us is None
        else measured.subject_us.value,
        "moved": {} if base is None else moved(base.counters, verdict.counters, verdict.varying),
        "lines": [
            {
                "path": line.path,
                "line": line.line,
                "extra": line.extra,
                "text": cut(line.text, 120),
            }
            for line in verdict.lines[:_MOST_LINES]
        ],
    }


def moved(
    before: Mapping[str, int], after: Mapping[str, int], varying: Sequence[str]
) -> dict[str, list[int]]:
    """The counters that differ: before and after. Those that vary from call to call are left out."""
    return {
        name: [before[name], now]
        for name, now in after.items()
        if name in before and before[name] != now and name not in varying
    }


def _some(counters: Mapping[str, int]) -> dict[str, int]:
    return dict(list(counters.items())[:_MOST_COUNTERS])


def block(text: str, most: int) -> str:
    """Lines of text, shortened if there are many."""
    if len(text) <= most:
        return text
    kept = text[:most].rpartition("\n")[0] or text[:most]
    return f"{kept}\n… ({len(text) - len(kept)} more characters)"


def names(words: Sequence[str], most: int = 10) -> str:
    """Some names in a line."""
    told = ", ".join(words[:most])
    return f"{told} and {len(words) - most} more" if len(words) > most else told
