"""What a change of a file is to the others."""

from __future__ import annotations

import textwrap

from pytest_dispatchguard.lint import scout
from pytest_dispatchguard.lint.facts import FileFacts
from pytest_dispatchguard.lint.unnoticed import change_of, words_in


def scanned(text: str) -> FileFacts:
    return scout.scan(textwrap.dedent(text), "m", False)


def test_a_body_counts_where_it_was_walked() -> None:
    old, new = scanned("def f(x):\n    g(x)\n"), scanned("def f(x):\n    h(x)\n")
    assert change_of(old, new, frozenset()) == ([], [], {}, False)
    assert change_of(old, new, frozenset({"f"})) == ([], [], {"f": old.functions}, False)


def test_tensors_count_where_a_body_was_walked() -> None:
    text = "import torch\ndef f(x):\n    g()\n"
    old, new = scanned(text), scanned(f"{text}    x.unsqueeze(0)\n")
    assert change_of(old, new, frozenset()) == ([], [], {}, False)
    change = change_of(old, new, frozenset({"f"}))
    assert change is not None
    assert change.tensors


def test_what_others_see_of_a_function_is_more_than_its_body() -> None:
    old, new = scanned("def f(x):\n    g(x)\n"), scanned("def f(x, y):\n    g(x)\n")
    assert change_of(old, new, frozenset()) is None


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
