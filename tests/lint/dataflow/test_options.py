"""Branches that the defaults of options leave out."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.lint.dataflow.options import left_out_by_default
from pytest_dispatchguard.lint.syntax.spelling import text

from .reading import read

CLASS = """
class Head(nn.Module):
    def __init__(self, config, kind="mean", weight=0.0, parts=1, on=False, limit=0.5):
        self.kind = kind
        self.weight = weight
        self.parts = parts
        self.on = on
        self.limit = limit
        self.place = getattr(config, "place", "absolute")
        self.norm = config.get("norm", "layer")
        self.mode = kind
        {anew}

    def set_mode(self, mode):
        self.mode = mode

    def forward(self, x: Tensor):
        if {condition}:
            show(1)
        else:
            show(2)
"""


def left_out(condition: str, anew: str = "pass") -> list[str]:
    reader = read(CLASS.format(condition=condition, anew=anew))
    found = []
    for seen in reader.events:
        if seen.event == "call" and seen.name == "show":
            told = left_out_by_default(reader, seen.scene)
            assert told is None or text(told[0]) == condition
            found.append("" if told is None else "then" if told[1] else "else")
    return found


@pytest.mark.parametrize(
    "condition",
    [
        "self.kind == 'sum'",
        "self.weight > 0",
        "self.weight > 0 and x.dim() == 2",
        "self.place == 'relative' or self.place == 'relative_query'",
        "self.norm in ('batch', 'group')",
        "self.kind != 'mean'",
        "self.limit == 0",
        "self.on",
        "self.on and x.dim() == 2",
        "self.limit <= 0.0",
    ],
)
def test_what_runs_only_with_another_option_is_left_out(condition: str) -> None:
    assert left_out(condition) == ["then", ""]


def test_an_else_may_be_what_is_left_out() -> None:
    assert left_out("self.kind == 'mean'") == ["", "else"]


@pytest.mark.parametrize(
    "condition",
    [
        "self.parts > 1",  # as many as there are, as a rule
        "self.mode == 'sum'",  # set later on, perhaps
        "x.kind == 'sum'",
        "self.kind == x.kind",
        "self.weight.kind == 'sum'",
        "self.weight > 0 or x.dim() == 2",
        "x.dim() == 2",
    ],
)
def test_other_conditions_leave_out_nothing(condition: str) -> None:
    assert left_out(condition) == ["", ""]


def test_an_option_that_is_set_anew_is_not_known() -> None:
    assert left_out("self.kind == 'sum'", "self.kind = 'sum'") == ["", ""]
