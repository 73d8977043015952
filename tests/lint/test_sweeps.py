"""Work that grows no faster than the code it is about: counted, not timed."""

from __future__ import annotations

from types import ModuleType

import pytest


@pytest.mark.parametrize(
    ("case", "most"),
    [
        ("tensor parameters", 1.15),
        ("conjunction", 1.15),
        pytest.param("list", 1.15, marks=pytest.mark.thorough),
        ("sum", 1.15),
        ("calls", 1.25),
        pytest.param("attributes", 1.25, marks=pytest.mark.thorough),
        ("statements", 1.15),
        pytest.param("branches", 1.25, marks=pytest.mark.thorough),
        pytest.param("subscripts", 1.25, marks=pytest.mark.thorough),
        pytest.param("signs", 1.25, marks=pytest.mark.thorough),
        pytest.param("ternaries", 1.25, marks=pytest.mark.thorough),
        pytest.param("aliases", 1.15, marks=pytest.mark.thorough),
        pytest.param("siblings", 1.15, marks=pytest.mark.thorough),
        pytest.param("same names", 1.15, marks=pytest.mark.thorough),
        pytest.param("methods", 1.15, marks=pytest.mark.thorough),
        pytest.param("nested functions", 1.25, marks=pytest.mark.thorough),
        pytest.param("decorators", 1.15, marks=pytest.mark.thorough),
        pytest.param("table of functions", 1.15, marks=pytest.mark.thorough),
        ("one line each", 1.15),
    ],
)
def test_twice_the_code_is_twice_the_work(sweeps: ModuleType, case: str, most: float) -> None:
    one = sweeps.sweep(case, (30, 60, 120), times=1)
    assert one.call_exponent < most, one
    assert one.problems == ()
