"""Statements made again, timed as a block."""

from __future__ import annotations

from itertools import repeat

from pytest_dispatchguard.measure.layers.statements import Statement, statements_arm


def test_statements_run_in_order_with_their_values() -> None:
    seen: list[object] = []
    first, second = object(), object()
    arm = statements_arm(
        [Statement("{0}.append({1})", (seen, first)), Statement("{0}.append({1})", (seen, second))],
        lambda: 0,
    )
    arm.block(repeat(None, 2))
    assert seen == [first, second, first, second]


def test_values_that_are_to_be_others_are_made_before_every_block() -> None:
    seen: list[object] = []
    old = object()
    made = iter(range(5))
    statement = Statement("{0}.append({1})", (seen, old))
    arm = statements_arm([statement], lambda: 0, renewed={id(old): lambda: next(made)})
    for _ in range(2):
        arm.fresh()
        arm.block(repeat(None, 2))
    assert seen == [0, 0, 1, 1]
