"""Results agree, or it is said where they do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from pytest_dispatchguard.measure.budgets.agreement import disagreement
from pytest_dispatchguard.measure.timing.subject import Tolerance

torch = pytest.importorskip("torch", reason="compares tensors")


@dataclass
class Output:
    logits: Any
    states: Any


def agree(one: Any, other: Any, tolerance: Tolerance | None = None) -> str:
    return disagreement(one, other, tolerance or Tolerance())


def test_equal_values_agree() -> None:
    x = torch.rand(3)
    for one, other in (
        (x, x.clone()),
        ((x, [x, {"a": x}]), (x.clone(), [x.clone(), {"a": x.clone()}])),
        (Output(x, (x, None)), Output(x.clone(), (x.clone(), None))),
        (None, None),
        ("a", "a"),
        (1, 1.0),
        (1.0, 1.0 + 1e-9),
        (float("nan"), float("nan")),
        (True, 1),
        (torch.tensor([float("nan")]), torch.tensor([float("nan")])),
    ):
        assert agree(one, other) == ""


@pytest.mark.parametrize(
    ("one", "other", "where"),
    [
        (torch.ones(2), torch.zeros(2), "result: "),
        ((torch.ones(2), torch.ones(2)), (torch.ones(2), torch.zeros(2)), "result[1]: "),
        ({"a": [torch.ones(2)]}, {"a": [torch.zeros(2)]}, "result['a'][0]: "),
        (Output(1, 2), Output(1, 3), "result.states: "),
        (torch.ones(2), [1.0, 1.0], "result: Tensor and list"),
        (torch.ones(2), torch.ones(3), "result: "),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), "result: "),
        ((1, 2), (1, 2, 3), "result: "),
        (1.0, 1.1, "result: not equal"),
        ({"a": 1}, {"b": 1}, "result: "),
    ],
)
def test_differences_are_told_where_they_are(one: Any, other: Any, where: str) -> None:
    said = agree(one, other)
    assert said.startswith(where)
    assert "subject:" in said and "reference:" in said


def test_tolerance() -> None:
    one, other = torch.ones(2), torch.full((2,), 1.01)
    assert agree(one, other)
    assert agree(one, other, Tolerance(rtol=0.1, atol=0.0)) == ""


def test_what_cannot_be_compared_is_told() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError("no")

        __hash__ = None  # type: ignore[assignment]  # as Python does where __eq__ stands alone

    assert "cannot be compared: ValueError: no" in agree(Odd(), Odd())
