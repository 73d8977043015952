"""Layers that were measured apart, reconciled with the whole call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.measure.layers.reconciling import reconciled
from pytest_dispatchguard.model.layers import Layer, LayerKind
from pytest_dispatchguard.model.measurements import Interval


def layer(kind: LayerKind, us: float, depth: int = 0) -> Layer:
    return Layer(kind, kind, Interval(us, us - 0.1, us + 0.1), depth)


def values(layers: list[Layer]) -> list[float]:
    return [round(one.us.value, 6) for one in layers]


def test_what_fits_stays_as_it_was_measured() -> None:
    layers = [layer("python", 1.0), layer("binding", 0.5), layer("kernel", 0.0)]
    assert reconciled(layers) == (layers, 0.0)


def test_what_torch_took_too_long_for_is_taken_off_the_next_layer_inside() -> None:
    made, off = reconciled(
        [
            layer("python", 2.0),
            layer("binding", 0.5),
            layer("allocation", -1.5),
            layer("dispatcher", 3.0),
            layer("kernel", 1.0),
        ]
    )
    assert values(made) == [2.0, 0.5, 0.0, 2.5, 0.0]
    assert off == 1.5
    # What was measured is still within the interval.
    assert (made[3].us.low, made[3].us.high) == (2.5, 3.1)
    assert made[2].us == Interval(0.0, -1.6, 0.0)


def test_what_a_function_calls_took_too_long_is_taken_off_that_alone() -> None:
    made, off = reconciled(
        [
            layer("python", 4.0),
            layer("python", -1.0, 1),
            layer("python", 3.0, 2),
            layer("python", 5.0, 1),
            layer("binding", 1.0),
        ]
    )
    assert values(made) == [4.0, 0.0, 2.25, 5.0, 0.75]
    assert off == 1.0


def test_where_nothing_is_inside_the_rest_of_the_call_has_it() -> None:
    made, _ = reconciled([layer("python", 3.0), layer("guards", -1.0, 1)])
    assert values(made) == [2.0, 0.0]


KINDS = st.sampled_from(["python", "context", "guards", "compiled"])


@given(
    st.lists(st.tuples(KINDS, st.floats(-5, 50), st.integers(0, 4)), max_size=8),
    st.lists(st.floats(-5, 50), min_size=6, max_size=6),
)
def test_nothing_is_less_than_nothing_and_the_sum_stays(
    python: list[tuple[LayerKind, float, int]], torch: list[float]
) -> None:
    kinds: tuple[LayerKind, ...] = (
        *("binding", "autograd", "tracking", "allocation", "dispatcher", "kernel"),
    )
    layers = [layer(*one) for one in python]
    layers += [layer(kind, us) for kind, us in zip(kinds, torch, strict=True)]
    made, off = reconciled(layers)
    assert all(value >= 0 for value in values(made))
    assert off >= 0
    whole = sum(one.us.value for one in layers)
    assert sum(values(made)) == pytest.approx(max(whole, 0.0), abs=1e-4)
    assert all(one.us.low <= one.us.value <= one.us.high for one in made)
