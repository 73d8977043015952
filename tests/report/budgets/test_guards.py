"""Guards of compiled code as text and as JSON."""

from __future__ import annotations

import json
import math

from pytest_dispatchguard.model.compiled import GuardedCode, GuardFilter, GuardGroup
from pytest_dispatchguard.model.measurements import Interval
from pytest_dispatchguard.report.budgets.guards import as_json, as_text

CODE = GuardedCode(
    "Net.forward",
    "/elsewhere/net.py",
    7,
    6,
    Interval(4.0, 3.5, 4.5),
    (
        GuardGroup(
            "module attribute",
            "L['self'].layers[*].scale",
            5,
            {"EQUALS_MATCH": 5},
            ("net.py:9 in forward: return x * self.scale",),
            Interval(0.8, 0.5, 1.1),
            ("write less",),
        ),
        GuardGroup("ambient state", "", 1, {"GLOBAL_STATE": 1}, cost_us=Interval(0.01, -0.1, 0.2)),
    ),
    (GuardFilter("skip_some_unsafe", 1, Interval(0.7, -math.inf, math.inf), "attributes"),),
)


def test_text() -> None:
    assert as_text("model(x)", [CODE]) == (
        "model(x): 6 guards of 1 compiled function are checked at every call\n"
        "\n"
        "Net.forward (/elsewhere/net.py:7): 6 guards; checking them takes 4.00 µs (3.50 to 4.50)\n"
        "      5  module attribute L['self'].layers[*].scale: 0.80 µs (0.50 to 1.10)\n"
        "         5 EQUALS_MATCH\n"
        "         at net.py:9 in forward: return x * self.scale\n"
        "         fewer: write less\n"
        "      1  ambient state: too small to tell\n"
        "         1 GLOBAL_STATE\n"
        '  filters that torch offers, as options={"guard_filter_fn": torch.compiler.…}:\n'
        "    skip_some_unsafe: 1 guard left, saves too small to tell\n"
        "      unsafe: may change unseen: attributes\n"
    )


def test_what_was_not_measured_is_not_told() -> None:
    bare = GuardedCode("f", "f.py", 1, 1, None, (GuardGroup("global", "K", 1, {}),), (), "why")
    told = as_text("f()", [bare, bare])
    assert "µs" not in told and "  why\n" in told and "2 guards of 2 compiled functions" in told


def test_small_groups_are_told_together() -> None:
    groups = tuple(GuardGroup("global", f"K{i}", 1, {}) for i in range(25))
    told = as_text("f()", [GuardedCode("f", "f.py", 1, 25, None, groups, ())])
    assert "      5  in 5 smaller groups\n" in told and "K20" not in told


def test_json() -> None:
    found = json.loads(as_json("model(x)", [CODE]))
    assert (found["schema"], found["target"]) == (1, "model(x)")
    (function,) = found["functions"]
    assert function["groups"][0]["kinds"] == {"EQUALS_MATCH": 5}
    assert function["filters"][0]["saves_us"] == {"value": 0.7, "low": None, "high": None}
