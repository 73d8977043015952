from __future__ import annotations

import pytest

from pytest_dispatchguard.lint.scout.scan import scan
from pytest_dispatchguard.lint.syntax.chunks import worth_judging

ASKING = """
def f(n):
    if helper(n):
        pass


def g(x, n):
    return x[helper(n)]
"""


@pytest.mark.parametrize(
    ("returns", "worth"),
    [
        ({}, ["f", "g"]),
        ({"helper": "ann:torch.Tensor"}, ["f", "g"]),
        ({"helper": "call:torch.zeros"}, ["f", "g"]),
        ({"helper": "ann:bool"}, []),
        ({"helper": "unknown"}, []),
        ({"helper": "name:pkg.CONSTANT"}, []),
        ({"helper": "list"}, ["g"]),
        ({"another": "ann:bool"}, ["f", "g"]),
    ],
)
def test_what_hinges_on_a_call_is_worth_judging_unless_it_gives_no_tensor(
    returns: dict[str, str], worth: list[str]
) -> None:
    facts = scan(ASKING, "mod", False)
    found = worth_judging(facts, {"f", "g"}, (), returns, (), {"truth", "subscript"})
    assert [outline.name for outline in found] == worth


def test_what_hinges_on_a_call_is_worth_nothing_where_no_rule_asks_or_nothing_is_hot() -> None:
    facts = scan(ASKING, "mod", False)
    assert not worth_judging(facts, {"f", "g"}, (), {}, (), {"call:item"})
    assert not worth_judging(facts, set(), (), {}, (), {"truth", "subscript"})
