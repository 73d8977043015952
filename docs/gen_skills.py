"""Writes the skills for coding agents (`skills/`) from the rule pages, in the open Agent Skills format.

`make skills` writes them; a test fails where the committed file is not what this writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_dispatchguard.report.formats.prompt import sections
from pytest_dispatchguard.report.wording import docs_url

ROOT = Path(__file__).resolve().parent.parent
NAME = "host-side-waits"
FILE = ROOT / "skills" / NAME / "SKILL.md"

DESCRIPTION = (
    "Makes PyTorch code free of host-side waits (device syncs) such as .item(), branches on tensors, boolean "
    "mask indexing, .cpu() and copies in forward passes, training steps and other hot code. Use when GPU "
    "utilization is low, a profiler shows cudaStreamSynchronize, or dispatchguard reports DG4xx findings."
)
_HEAD = f"""\
---
name: {NAME}
description: {DESCRIPTION}
license: MIT
compatibility: Python 3.10 or newer; `pip install pytest-dispatchguard`; torch for budgets
---

# Make code free of host-side waits

<!-- Written by `make skills` from the rule pages: change those, not this file. -->

A GPU works through a queue. Python fills it, and should never wait for it: wherever Python needs the
value of a tensor, it stops until everything queued before is done, and the queue runs empty. One such
line in a forward pass can cost more than all the kernels around it.

## Steps

1. **Find them.** `dispatchguard check PATH --select DG4,DG5 --format prompt` reads the code and lists
   the waits in hot code with the reason, the price and the advice.
   `dispatchguard review --base REV --format prompt` lists only what a change adds. Through MCP
   (`dispatchguard mcp`): `check`, `check_diff`. With a trace of PyTorch's profiler,
   `dispatchguard trace FILE` says which of them took how long: begin with these.
2. **Understand one.** `dispatchguard rule CODE` has its page. `dispatchguard hot PATH` says by which
   calls a function is hot. If the value is needed on the host (a shape, a stopping test, a log that
   people read), the wait may be right: leave it, or do it less often, and say so.
3. **Change it** as the rule advises, below. Keep results the same: dtype, shape, device, gradients,
   behavior on empty inputs and on NaN. `dispatchguard check PATH --fix` makes the fixes that are safe by
   themselves.
4. **Verify.** Check again: the finding is gone and no new one came. Run the tests of the code. Without a
   GPU, `dispatchguard run --ghost -m PROGRAM` counts the waits of a run. A budget keeps it so: mark a
   test with `@pytest.mark.overhead_budget(syncs=0)` and run `pytest --overhead-budget`. Through MCP:
   `verify_patch`.
5. **Report** what changed, what was left and why. To leave one place as it is:
   `# dispatchguard: ignore[CODE] -- the reason`.

## What must stay true

- Both sides of a branch that becomes `torch.where` are computed: neither may raise or have side effects,
  and a gradient through the side that is not taken must not be NaN.
- A mask that selects (`x[mask]`) changes the shape. `masked_fill`, `where` and sums with weights do not:
  use them where the shape does not matter, and divide by the count, not by the length.
- What is only logged can be kept on the device and read once in many steps. What stops a loop or raises
  an error changes behavior if it is read later: ask before you move it.
- `.to(device, non_blocking=True)` from pageable memory may still wait. Make the tensor on the device
  instead.

## The rules
"""


def is_about_waits(rule: dict[str, Any]) -> bool:
    """Whether a rule is about the host waiting for the device."""
    price = rule.get("price") or {}
    return rule["code"].startswith("DG4") or bool(price.get("waits"))


def skill(found: Sequence[dict[str, Any]]) -> str:
    """The whole file."""
    parts = [_HEAD, *(_rule(rule) for rule in found if is_about_waits(rule))]
    return "\n".join(parts)


def _rule(rule: dict[str, Any]) -> str:
    return "\n".join(_lines(rule)) + "\n"


def _lines(rule: dict[str, Any]) -> Iterator[str]:
    parts = sections(rule["help"])
    fix = {"safe": " A safe fix: `--fix`.", "unsafe": " A fix: `--fix --unsafe-fixes`."}
    yield f"### [{rule['code']}]({docs_url(rule['code'])}) {rule['name']}"
    yield f"{rule['summary']}{fix.get(rule['fix'], '')}"
    if "Instead" in parts:
        yield ""
        yield from _short(parts["Instead"]).splitlines()
    if rule["fix"] != "none" and parts.get("Fix safety"):
        yield "Must stay true: " + _sentences(parts["Fix safety"])


def _short(text: str) -> str:
    """A section without what follows its first block of code."""
    found = re.match(r"(?s)(.*?```.*?^```)", text, re.MULTILINE)
    return found.group(1) if found else text


def _sentences(text: str) -> str:
    return " ".join(text.split())


def main() -> None:
    """Write the file."""
    from gen_rules import rules  # beside this script

    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(skill(rules()), encoding="utf-8")


if __name__ == "__main__":
    main()
