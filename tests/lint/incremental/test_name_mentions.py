"""Who may mean something by a name is told by what is written, in doubt as one who does."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.lint.callgraph.build import build
from pytest_dispatchguard.lint.incremental.name_mentions import Mentions
from pytest_dispatchguard.lint.store.packing import pack_facts

from .test_lazy_project import scanned

TEXTS = {
    "pkg/__init__.py": "from pkg.parts import *\n",
    "pkg/one.py": "import torch\ndef f(x):\n    return x.rare_helper()\n",
    "pkg/two.py": "from pkg import one\nfrom pkg.one import f as g\ndef h(x):\n    one.late(x)\n    g(x)\n",
    "pkg/three.py": "from pkg import two as t\ndef k(x):\n    t.early(x)\n    rare_helper(x)\n",
    "pkg/parts.py": "def part(x):\n    known(x)\n",
}
FACTS = scanned(TEXTS)


def mentions() -> Mentions:
    rows = {rel: pack_facts(facts) for rel, facts in FACTS.items()}
    return Mentions(lambda: rows, build(FACTS).modules.keys())


def test_members_are_what_stands_behind_a_dot() -> None:
    assert mentions().member("rare_helper") == {"pkg/one.py"}
    assert mentions().member("f") == {"pkg/two.py"}
    assert mentions().member("rare") == set()


def test_names_that_are_called_something_else() -> None:
    assert mentions().renamed("f")
    assert not mentions().renamed("one")
    assert not mentions().renamed("rare_helper")


@pytest.mark.parametrize(
    ("rel", "module", "name", "asked"),
    [
        ("pkg/one.py", "pkg.one", "late", True),
        ("pkg/one.py", "pkg.one", "early", False),
        ("pkg/one.py", "pkg.one", "math", False),
        ("pkg/two.py", "pkg.two", "g", True),
        ("pkg/two.py", "pkg.two", "early", True),
        ("pkg/two.py", "pkg.two", "known", False),
        ("pkg/two.py", "pkg.two", "größe", True),
        ("pkg/parts.py", "pkg.parts", "math", True),
        ("pkg/__init__.py", "pkg", "one", True),
    ],
)
def test_what_a_module_may_be_asked_for(rel: str, module: str, name: str, asked: bool) -> None:
    assert mentions().is_asked_for(rel, FACTS[rel], module, name) is asked
