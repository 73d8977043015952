"""What is said to lead nowhere leads nowhere, as whoever has read the whole project knows."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

import pyperf
import pytest
import rich

from pytest_dispatchguard.lint import calls, project, scout
from pytest_dispatchguard.lint.facts import CallFact, FileFacts, FunctionFact
from pytest_dispatchguard.lint.module_names import module_name
from pytest_dispatchguard.lint.nowhere import Around, Body
from pytest_dispatchguard.lint.unmoved import words_in

from .relinted import demo

OURS = Path(__file__).resolve().parents[2] / "pytest_dispatchguard"


def scanned(texts: Mapping[str, str]) -> dict[str, FileFacts]:
    return {
        rel: scout.scan(textwrap.dedent(text), module_name(rel, ()), rel.endswith("__init__.py"))
        for rel, text in texts.items()
    }


def folder(top: Path) -> dict[str, str]:
    """The files of an installed package."""
    return {
        path.relative_to(top.parent).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(top.rglob("*.py"))
    }


def bodies(
    files: Mapping[str, FileFacts], made: project.Project
) -> dict[str, tuple[FileFacts, Body]]:
    words = words_in(files.values())
    around = Around(made.packages, lambda name: f".{name}" in words)
    return {
        rel: (facts, Body(rel, facts, made.module_of[rel], around)) for rel, facts in files.items()
    }


def nowhere(body: Body, fact: FunctionFact, call: CallFact) -> bool:
    """Whether a function that has but this call has none that may lead somewhere."""
    alone = FunctionFact(**{n: getattr(fact, n) for n in fact.__slots__ if n != "calls"})
    alone.calls.append(call)
    (kept, _) = body.leading(alone, frozenset())
    return not kept


@pytest.mark.parametrize(
    "texts",
    [demo(), *(folder(Path(str(m.__file__)).parent) for m in (rich, pyperf)), folder(OURS)],
    ids=["demo", "rich", "pyperf", "ours"],
)
def test_what_leads_nowhere_reaches_nothing(texts: Mapping[str, str]) -> None:
    files = scanned(texts)
    made = project.build(files)
    said = doubted = 0
    for rel, (facts, body) in bodies(files, made).items():
        for fact in facts.functions:
            scope = calls.scope_of(made, f"{made.module_of[rel]}:{fact.name}")
            for call in fact.calls:
                if not nowhere(body, fact, call):
                    doubted += 1
                    continue
                said += 1
                assert not calls._reached(made, scope, fact, call), (rel, fact.name, call)
                things = calls.things_called(made, scope, fact, call.name)
                assert not [thing for thing in things if thing.kind == "function"]
    assert said > doubted / 10


FILES = {
    "pkg/__init__.py": "",
    "pkg/other.py": """
        def helper(x):
            return x

        class Thing:
            def get_all_things(self):
                pass
    """,
    "pkg/mod.py": """
        import numpy as np
        import outside.tools as tools
        from pkg import other
        from pkg.other import Thing as T
        from outside import made as ready

        ALIAS = other
        SIZE = (1, 2)
        BOX = tools.Box()
        RING = RING2
        RING2 = RING

        class Mine:
            def __init__(self):
                self.held = other.helper

            def own(self, x, given: "T", box: "tools.Box"):
                one = tools.Box()
                two = other.Thing()
                three = one
                four = unknown(x)
                def inner():
                    return x
                {line}
    """,
}
NOWHERE = [
    "tools.run(x)", "ready(x)", "one.run()", "three.run()", "four.run()", "x.run()", "x.other_long_name()",
    "self.nothing()", "super().nothing()", "box.run()", "BOX.run()", "SIZE.count(1)", "nobody(x)",
    "with tools.run():\n                    pass", "one.run(four)",
]  # fmt: skip
DOUBTED = [
    "other.helper(x)", "T(x)", "two.run()", "x.get_all_things()", "self.held(x)", "self.own(x)", "self(x)",
    "super().own()", "given.run()", "ALIAS.run()", "inner()", "Mine()", "RING()", "pkg.other.helper(x)",
    "tools.run(other.helper)", "x.register_hook(nobody)", "return inner",
]  # fmt: skip


@pytest.mark.parametrize("line", [*NOWHERE, *DOUBTED])
def test_calls_are_told_from_their_file_alone(line: str) -> None:
    def kept(line: str) -> object:
        texts = {rel: textwrap.dedent(text) for rel, text in FILES.items()}
        texts["pkg/mod.py"] = texts["pkg/mod.py"].replace("{line}", textwrap.dedent(line))
        files = scanned(texts)
        assert not files["pkg/mod.py"].error
        facts, body = bodies(files, project.build(files))["pkg/mod.py"]
        (fact,) = (f for f in facts.functions if f.name == "Mine.own")
        return body.leading(fact, frozenset())

    assert (kept(line) == kept("pass")) is (line in NOWHERE)


def test_names_that_count_are_kept_wherever_they_lead() -> None:
    files = scanned({"m.py": "def f(x, y):\n    x.other_long_name()\n    y.other_long_name(x)\n"})
    made = project.build(files)
    ((facts, body),) = bodies(files, made).values()
    (fact,) = facts.functions
    assert body.leading(fact, frozenset()) == [[], {}]
    (kept, _) = body.leading(fact, frozenset({"other_long_name"}))
    assert len(kept) == 2


def test_a_module_may_have_the_name_of_something_assigned() -> None:
    texts = {
        "pkg/__init__.py": 'ops = __import__("pkg.ops", fromlist=["x"])\n\ndef f(x):\n    ops.run(x)\n',
        "pkg/ops.py": "def run(x):\n    return x\n",
    }
    files = scanned(texts)
    facts, body = bodies(files, project.build(files))["pkg/__init__.py"]
    (kept, _) = body.leading(facts.functions[0], frozenset())
    assert kept


def test_star_imports_may_bring_anything() -> None:
    files = scanned({"m.py": "from outside import *\n\ndef f(x):\n    anything(x)\n"})
    ((facts, body),) = bodies(files, project.build(files)).values()
    (kept, _) = body.leading(facts.functions[0], frozenset())
    assert kept
