"""What is said to be all that came to a body is all that makes it lead elsewhere."""

from __future__ import annotations

import textwrap

import pytest

from pytest_dispatchguard.lint.callgraph.build import build
from pytest_dispatchguard.lint.callgraph.calls import edges, edges_with
from pytest_dispatchguard.lint.callgraph.project import Project
from pytest_dispatchguard.lint.incremental.resolve import _came
from pytest_dispatchguard.lint.scout import scan

MODULE = """
def one(x):
    return x

def two(x):
    return x

def both(x):
    yield one(x), two(x)

class Thing:
    def run_it(self):
        return 1

"""
BODY = """
def f(x, low=None):
    made = Thing()
    made.run_it()
    one(x)
"""


def read(body: str) -> Project:
    return build({"m.py": scan.scan(MODULE + textwrap.dedent(body), "m", False)})


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("    two(x)", ["two"]),
        ("    y = two(x)\n    y.run_it()", ["two", "y.run_it"]),
        ("    for _ in x:\n        two(x)", ["two"]),
        ("    if low is None:\n        two(x)", ["two"]),
        ("    pass", []),
        ("    made.run_it()", []),
    ],
)
def test_calls_that_came_are_followed_alone(line: str, names: list[str]) -> None:
    before, now = read(BODY), read(f"{BODY}{line}\n")
    more = _came(before.functions["m:f"], now.functions["m:f"])
    assert more is not None
    assert [call.name for call in more] == names
    known = edges(before, "m:f")
    assert set(edges_with(now, "m:f", known, more)) == set(edges(now, "m:f"))


@pytest.mark.parametrize(
    "body",
    [
        "def f(x, low=None):\n    made = Thing()\n    made.run_it()\n",
        "def f(x, low=None):\n    made = one(x)\n    made.run_it()\n    one(x)\n",
        "def f(x, low=None):\n    one = two\n    made = Thing()\n    made.run_it()\n    one(x)\n",
        "def f(x, low=None):\n    made = Thing()\n    made.run_it()\n    for _ in x:\n        one(x)\n",
        BODY + BODY,
    ],
    ids=["a call goes", "a local", "a local that a call names", "a loop", "twice"],
)
def test_all_is_followed_anew_where_more_is_other(body: str) -> None:
    assert _came(read(BODY).functions["m:f"], read(body).functions["m:f"]) is None
