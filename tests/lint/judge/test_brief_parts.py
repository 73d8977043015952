"""What judging a function reads: what is found with its part of the brief is what is found with the whole,
and what stands beside the part changes nothing."""

from __future__ import annotations

import copy
import json
import keyword
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import libcst as cst
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.lint.callgraph import build
from pytest_dispatchguard.lint.facts import Brief, CalleeBrief, ClassBrief, HotFact
from pytest_dispatchguard.lint.hotness import solve
from pytest_dispatchguard.lint.judge import brief_parts, briefs, judge, packs
from pytest_dispatchguard.lint.judge.place import Place
from pytest_dispatchguard.lint.judge.rule import Call, Rule
from pytest_dispatchguard.lint.judge.target import Target
from pytest_dispatchguard.lint.scout import scan
from pytest_dispatchguard.lint.store.packing import hot_in_brief, pack_brief, pack_findings
from pytest_dispatchguard.lint.syntax import chunks, nodes
from pytest_dispatchguard.model.findings import Finding

pytest.importorskip(
    "dispatchguard_rules",
    reason="the rule pack is not importable: install the project (pip install -e .)",
)

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
FILES = sorted(FIXTURES.rglob("*.py"))


class Example(NamedTuple):
    """A file with hot functions."""

    lines: chunks.Lines
    outlines: list[chunks.Outline]
    brief: Brief


def examples() -> Iterator[Example]:
    """All specimens, and what other files of the fixtures can be read by themselves."""
    tokens = {t for rule in packs.load().rules for look in rule.looks() for t in look.tokens}
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        facts = scan.scan(text, path.stem, False)
        built = build.build({"mod.py": facts})
        briefer = briefs.Briefer(built, solve.solve(built))
        if "mod.py" in briefer.hot:
            brief = briefer.brief("mod.py")
            outlines = chunks.worth_judging(facts, *hot_in_brief(brief), tokens)
            yield Example(chunks.Lines(text), outlines, brief)


def judged(example: Example, brief: Brief) -> list[judge.Judged]:
    """What judging with a brief gives, function by function."""
    target = Target()
    benched = judge.bench(target, packs.installed())
    return judge.judge_chunks(example.lines, example.outlines, brief, benched, target)


def told(one: judge.Judged) -> str:
    return f"{pack_findings(one.findings)} {one.problems} {one.asked}"


def found(example: Example) -> list[str]:
    return [told(one) for one in judged(example, example.brief)]


class Whole(brief_parts.Parts):
    """Cuts nothing."""

    def of(self, name: str, source: str) -> Brief:
        return self._brief


@pytest.mark.thorough
def test_a_part_says_what_the_whole_says(monkeypatch: pytest.MonkeyPatch) -> None:
    all_of_them = list(examples())
    with_parts = [found(example) for example in all_of_them]
    monkeypatch.setattr(judge, "Parts", Whole)
    with_wholes = [found(example) for example in all_of_them]
    assert with_parts == with_wholes
    assert sum(text.count('"DG') for file in with_parts for text in file) > 300


def test_a_part_is_less() -> None:
    wholes = cuts = 0
    for example in examples():
        for outline in example.outlines:
            part = brief_parts.Parts(example.brief).of(
                outline.name, example.lines.chunk(outline)[0]
            )
            cuts += len(pack_brief(part))
            wholes += len(pack_brief(example.brief))
    assert cuts < wholes / 4


@pytest.mark.parametrize("case", ["subclasses", "siblings", "same names"])
def test_parts_do_not_grow_with_the_classes_of_a_file(sweeps: ModuleType, case: str) -> None:
    make, _ = sweeps.CASES[case]

    def most(n: int) -> int:
        """The largest part of a method, but for the one that calls all others."""
        text = make(n)
        built = build.build({"mod.py": scan.scan(text, "mod", False)})
        brief = briefs.Briefer(built, solve.solve(built)).brief("mod.py")
        parts = brief_parts.Parts(brief)
        source = "def m(self, x):\n    return self.helper(self.step(super().forward(self.w)))\n"
        hot = (name for name in brief.hot if not name.startswith("All."))
        return max(len(pack_brief(parts.of(name, source))) for name in hot)

    assert most(400) < 1.1 * most(100)


# -- what changes nothing --------------------------------------------------------------------------


def changed(brief: Brief, rng: random.Random) -> Brief:
    """A brief with some of it gone, some other, and some more."""
    new = copy.deepcopy(brief)
    tables: list[dict[str, object]] = [
        new.names, new.globals, new.hot, new.classes, new.callees, new.tensors, new.given, new.on_cpu,
    ]  # type: ignore[list-item]  # fmt: skip
    for table in tables:
        for key in [k for k in table if rng.random() < 0.2]:
            del table[key]
    for key in [k for k in new.names if rng.random() < 0.2]:
        new.names[key] = ["torch.ones"]
    for key in [k for k in new.globals if rng.random() < 0.2]:
        new.globals[key] = ["call:torch.tensor"]
    for key in [k for k in new.callees if rng.random() < 0.2]:
        new.callees[key] = CalleeBrief("mod:other", returns="call:torch.tensor")
    for name, class_ in new.classes.items():
        if rng.random() < 0.5:
            methods = {m: t for m, t in class_.methods.items() if rng.random() < 0.9}
            more = rng.choice(["to", "device", "__setattr__", "added_here"])
            new.classes[name] = replace(class_, methods={**methods, more: f"mod:{name}.{more}"})
    new.names["added_here"] = ["torch.add"]
    new.globals["ADDED"] = ["int"]
    new.callees["torch.added_there"] = CalleeBrief("mod:g")
    new.hot["added_here"] = HotFact("mod.g", ["mod.g"], "")
    new.classes["Added"] = ClassBrief()
    if rng.random() < 0.2:
        new.imports = [*new.imports, "zzz"]
    return new


@pytest.mark.thorough
def test_what_stands_beside_the_part_changes_nothing() -> None:
    kept = other = 0
    for number, example in enumerate(examples()):
        brief = changed(example.brief, random.Random(number))
        old, new = brief_parts.Parts(example.brief), brief_parts.Parts(brief)
        pairs = zip(judged(example, example.brief), judged(example, brief), strict=True)
        for outline, (was, now) in zip(example.outlines, pairs, strict=True):
            source = example.lines.chunk(outline)[0]
            before, after = (pack_brief(p.of(outline.name, source)) for p in (old, new))
            if before == after and brief_parts.same_answers(
                brief, json.loads(json.dumps(was.asked))
            ):
                assert told(was) == told(now), outline.name
                kept += 1
            else:
                other += told(was) != told(now)
    assert kept > 50
    assert other > 50


# -- what a rule asks beyond it --------------------------------------------------------------------


class Asking(Rule):
    """Asks what no function says."""

    code, name, origin = "XX001", "asking", "test"
    looks_for = Call("ping")

    def judge(self, node: cst.Call, place: Place) -> Finding:
        said = (
            place.is_taken("F"),
            place.spelling("torch.relu"),
            tuple(place.global_values("SIZE")),
            place.defines("run", "stop"),
        )
        return place.finding(node, repr(said))


def test_answers_to_what_a_rule_asked_are_part_of_what_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packs, "load", lambda names: packs.Packs((Asking(),), {}))
    judge.bench.cache_clear()
    head = "class C:\n"
    text = f"{head}    def f(self):\n        ping()\n"
    example = Example(
        chunks.Lines(text),
        [chunks.Outline("C.f", 2, len(head) + 4, len(text) - 1)],
        Brief("mod.py", "mod", hot={"C.f": HotFact("mod.C.f", ["mod.C.f"], "")}),
    )

    def asking(
        methods: Sequence[str] = (), properties: Sequence[str] = (), **more: dict[str, list[str]]
    ) -> tuple[Brief, judge.Judged]:
        class_ = ClassBrief(methods=dict.fromkeys(methods, ""), properties=[*properties])
        brief = Brief("mod.py", "mod", hot=example.brief.hot, classes={"C": class_}, **more)  # type: ignore[arg-type]  # by name
        (one,) = judged(example, brief)
        return brief, one

    brief, one = asking()
    assert one.findings[0].message == "(False, '', (), False)"
    asked = json.loads(json.dumps(one.asked))
    assert brief_parts.same_answers(brief, asked)
    assert brief_parts.same_answers(
        asking(["walk"], names={"g": ["mod.g"], "torc": ["torc"]})[0], asked
    )
    for brief, one, new in (
        (*asking(names={"F": ["numpy"]}), "(True, '', (), False)"),
        (*asking(globals={"F": ["int"]}), "(True, '', (), False)"),
        (*asking(names={"torch": ["torch"]}), "(False, 'torch.relu', (), False)"),
        (*asking(names={"relu": ["torch.relu"], "torch": ["torch"]}), "(False, 'relu', (), False)"),
        (*asking(methods=["run"]), "(False, '', (), True)"),
        (*asking(properties=["stop"]), "(False, '', (), True)"),
        (*asking(globals={"SIZE": ["tuple"]}), "(False, '', ('tuple',), False)"),
    ):
        assert one.findings[0].message == new
        assert not brief_parts.same_answers(brief, asked)
    judge.bench.cache_clear()


# -- words -----------------------------------------------------------------------------------------

_NAMES = st.text(
    st.sampled_from("abz_9\u00e9\u0301\u00b7\u4e2d\u0387"), min_size=1, max_size=6
).filter(lambda name: name.isidentifier() and not keyword.iskeyword(name))


@given(st.lists(_NAMES, min_size=1, max_size=6), st.sampled_from(["+", "*", ", "]))
def test_every_name_is_a_word(names: list[str], between: str) -> None:
    source = between.join(names) + "\n"
    module = cst.parse_module(source)
    read = {node.value for node in nodes.walk(module) if isinstance(node, cst.Name)}
    assert {*names} == read <= brief_parts.words_of(source)


def test_names_in_text_are_words_too() -> None:
    words = brief_parts.words_of("def f(x: 'list[T\u00b7ensor]', y=0or z): '\u201cquoted\u201d'")
    assert {"list", "T\u00b7ensor", "T", "ensor", "z", "quoted"} - words == set()
