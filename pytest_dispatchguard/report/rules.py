"""The list of all rules, and one rule's page in the terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import asdict

from pytest_dispatchguard.model.findings import SCHEMA, RuleInfo
from pytest_dispatchguard.report.wording import cost, count
from pytest_dispatchguard.visible import one_line, visible

_FIX = {"safe": "--fix", "unsafe": "--fix --unsafe-fixes", "none": "by hand"}
_FIX_SIGNS = {"safe": "*", "unsafe": "!"}


def listing(rules: Iterable[RuleInfo], format: str) -> str:
    """All rules, one line each, or as JSON."""
    rules = list(rules)
    if format == "json":
        return json.dumps({"schema": SCHEMA, "rules": [asdict(r) for r in rules]}, indent=2) + "\n"
    width = max((len(r.name) for r in rules), default=0)
    return (
        "".join(
            one_line(f"{r.code}  {r.name:<{width}}  {_FIX_SIGNS.get(r.fix, ' ')} {r.summary}")
            + "\n"
            for r in rules
        )
        + f"\n{count(len(rules), 'rule')}; * has a safe fix, ! an unsafe one. "
        "`dispatchguard rule CODE` explains one.\n"
    )


def page(rule: RuleInfo, *, color: bool, width: int) -> str:
    """One rule explained."""
    head = f"# {rule.code} {rule.name}\n\n{rule.summary}\n\nFix: {_FIX[rule.fix]}. Origin: {rule.origin}."
    if not rule.default:
        head += " Off by default."
    if rule.running:
        head += " Seen only in code that runs: `dispatchguard run`, `pytest --overhead-lint`."
    if rule.price is not None:
        head += f" Price: {cost(rule.price)}."
    text = visible(f"{head}\n\n{rule.help}\n")
    if not color:
        return text
    from rich.console import Console
    from rich.markdown import Markdown

    out = io.StringIO()
    Console(file=out, force_terminal=True, width=min(width, 100)).print(Markdown(text))
    return out.getvalue()
