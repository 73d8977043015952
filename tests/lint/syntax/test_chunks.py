from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.lint.scout.scan import scan
from pytest_dispatchguard.lint.syntax.chunks import module_imports, worth_judging

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
    ("text", "bound"),
    [
        ("import itertools\n", {"itertools": "itertools"}),
        ("import numpy as np, os.path\n", {"np": "numpy", "os": "os"}),
        ("from torch import nn as layers\n", {"layers": "torch.nn"}),
        ("from . import tree\n", {"tree": "..tree"}),
        ("try:\n    import triton\nexcept ImportError:\n    triton = None\n", {"triton": "triton"}),
        ("if True:\n    import json\n", {"json": "json"}),
        ("def f():\n    import itertools\n", {}),
        ("class A:\n    import itertools\n", {}),
        ("", {}),
    ],
)
def test_only_imports_outside_functions_and_classes_count(text: str, bound: dict[str, str]) -> None:
    assert module_imports(text) == bound


@given(
    st.lists(
        st.sampled_from(["import a", "import b.c", "from d import e", "x = 1", "def f(): import g"])
    )
)
def test_every_import_of_a_module_is_found(statements: list[str]) -> None:
    found = module_imports("\n".join(statements))
    expected = {"import a": "a", "import b.c": "b", "from d import e": "e"}
    assert set(found) == {expected[s] for s in statements if s in expected}
