"""What a change of a file is to the others."""

from __future__ import annotations

import textwrap

import pytest

from pytest_dispatchguard.lint.facts import FileFacts
from pytest_dispatchguard.lint.incremental.changes import (
    Change,
    FileSummary,
    Relevance,
    change_of,
    is_unnoticed,
    roots_in,
    words_in,
)
from pytest_dispatchguard.lint.scout import scan


def scanned(text: str) -> FileFacts:
    return scan.scan(textwrap.dedent(text), "m", False)


def test_a_body_counts_where_it_was_walked() -> None:
    old, new = scanned("def f(x):\n    g(x)\n"), scanned("def f(x):\n    h(x)\n")
    assert change_of(old, new, frozenset()) == Change([], [], {}, False)
    assert change_of(old, new, frozenset({"f"})) == Change([], [], {"f": old.functions}, False)


def test_tensors_count_where_a_body_was_walked() -> None:
    text = "import torch\ndef f(x):\n    g()\n"
    old, new = scanned(text), scanned(f"{text}    x.unsqueeze(0)\n")
    assert change_of(old, new, frozenset()) == Change([], [], {}, False, offers=True)
    change = change_of(old, new, frozenset({"f"}))
    assert change is not None
    assert change.tensors


def test_a_stand_in_for_a_forward_that_takes_tensors_now_is_a_new_root() -> None:
    text = "import torch\ndef {}(x):\n    g()\n"
    for name, change in (("gate_forward", None), ("f", Change([], [], {}, False, offers=True))):
        old = scanned(text.format(name))
        new = scanned(text.format(name) + "    x.unsqueeze(0)\n")
        assert change_of(old, new, frozenset()) == change


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("def f(x, y):\n    g(x)\n", {"takes": {"f"}}),
        ("def f(x=None):\n    g(x)\n", {"takes": {"f"}}),
        ("def f(x):\n    g(x)\n    return h(x)\n", {"returns": {"f"}}),
        ("import h\ndef f(x):\n    g(x)\n", {"bound": {"h"}}),
        ("h = 1\ndef f(x):\n    g(x)\n", {"bound": {"h"}}),
        ("@g\ndef f(x):\n    g(x)\n", None),
        ("def f(y):\n    g(y)\n", {"takes": {"f"}}),
        ("import f\ndef f(x):\n    g(x)\n", None),
        ("from h import *\ndef f(x):\n    g(x)\n", None),
        ("class H:\n    pass\ndef f(x):\n    g(x)\n", None),
    ],
)
def test_what_others_see_is_told_apart(text: str, change: dict[str, set[str]] | None) -> None:
    found = change_of(scanned("def f(x):\n    g(x)\n"), scanned(text), frozenset())
    assert found == (None if change is None else Change([], [], {}, False, **change))


@pytest.mark.parametrize(
    ("line", "same"), [("self.y = g(x)", True), ("self.y = torch.nn.Linear(1, 1)", False)]
)
def test_attributes_count_where_they_do_not_make_a_module(line: str, same: bool) -> None:
    text = "import torch\nclass C:\n    def f(self, x):\n        self.x = g(x)\n"
    found = change_of(scanned(text), scanned(f"{text}        {line}\n"), frozenset())
    assert found == (Change([], [], {}, False, attrs=frozenset({"C"})) if same else None)


def test_words_are_those_that_lead_somewhere() -> None:
    text = """
        from a.b import c as d
        E = f.g(1)

        class H(I.j):
            k: L = None

            @m
            def n(self, o: P = None) -> Q[R]:
                s = T()
                s.u(o)
                self.v(w=x)

        def y():
            return H
    """
    words = words_in([scanned(text)])
    assert set("a b c d E f g H I j k L m P Q R T u v".split()) - words == set()
    assert words.isdisjoint({"n", "y"})


def test_roots_are_the_names_that_are_looked_up() -> None:
    text = """
        from a.b import c as d
        E = f.g(1)

        class H(i.j):
            k: l.m[n] = None

            @o.p
            def q(self):
                s = t.u()
                s.v(w)
                self.x.y()
    """
    roots = roots_in(scanned(text))
    assert set("f i l n o t s self".split()) <= roots
    assert roots.isdisjoint(set("a b c d g j m p u v y".split()))


SERVER = """
class S:
    def __init__(self, model):
        self.model = model
    def handle(self, x):
        return self.model{}(x)
"""
WRAPPER = """
class W:
    def __call__(self, x, {}):
        return self.model(x)
"""
CALLBACK = """
class C:
    def __call__(self, x):
        self.model{}()
        return self.model(x)
"""
ENVIRONMENT = """
class E:
    def reset(self):
        pass
    def step(self, {}):
        pass
"""
MAIN = """
def main():
    def f(x):
        pass
    for x in y:
        {}(x)
"""


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (SERVER, ".other", ".forward"),
        (SERVER, "", ".forward"),
        (WRAPPER, "t", "trainer"),
        (CALLBACK, ".cpu", ".eval"),
        (ENVIRONMENT, "x, action=None", "action, x=None"),
        (MAIN, "f", "g"),
    ],
)
def test_what_makes_a_root_or_takes_it_away_is_more_than_a_change(
    text: str, before: str, after: str
) -> None:
    old, new = scanned(text.format(before)), scanned(text.format(after))
    assert change_of(old, new, frozenset({"main"})) is None
    assert change_of(new, old, frozenset({"main"})) is None
    assert change_of(old, old, frozenset({"main"})) is not None


def test_a_reset_beside_a_step_is_noticed() -> None:
    facts = scanned(
        "class E:\n    def reset(self):\n        pass\n    def other(self):\n        pass\n"
    )
    about = FileSummary("m", frozenset(), {})
    matters = Relevance(lambda word: False, frozenset(), (), False)
    unnoticed = {f.name: is_unnoticed(f, facts, about, matters) for f in facts.functions}
    assert unnoticed == {"E.reset": False, "E.other": True}
