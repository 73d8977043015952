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


@pytest.mark.parametrize(
    ("returned", "worth"),
    [
        (None, False),
        ("unknown", False),
        ("tuple", False),
        ("ann:bool", False),
        ("ann:tuple[torch.Tensor, int]", True),
        ("call:torch.frexp", True),
    ],
)
def test_parts_of_what_a_call_returns_count_where_somebody_says_what_they_are(
    returned: str | None, worth: bool
) -> None:
    facts = scan("def f(n):\n    a, b = helper(n)\n    if a:\n        pass\n", "mod", False)
    returns = {} if returned is None else {"helper": returned}
    assert bool(worth_judging(facts, {"f"}, (), returns, (), {"truth"})) is worth
