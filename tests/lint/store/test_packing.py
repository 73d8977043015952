"""Facts, briefs and findings come back from JSON as they went in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.lint.facts import (
    Brief,
    CalleeBrief,
    CallFact,
    ClassBrief,
    ClassFact,
    FileFacts,
    FunctionFact,
    HotFact,
)
from pytest_dispatchguard.lint.store import packing
from pytest_dispatchguard.model.findings import Edit, Finding, Fix, Hot, Span

_TEXT = st.text(max_size=8)
_WORDS = st.lists(_TEXT, max_size=3)
_TOKENS = st.lists(
    st.text(st.characters(exclude_categories=("Z", "C")), min_size=1, max_size=8), max_size=3
)
_TABLE = st.dictionaries(_TEXT, _WORDS, max_size=3)
_CALLS = st.builds(CallFact, name=_TEXT, line=st.integers(1, 99), loop=st.booleans(), how=_TEXT)
_FUNCTIONS = st.builds(
    FunctionFact,
    name=_TEXT, line=st.integers(1, 99), end_line=st.integers(1, 99),
    start_byte=st.integers(0, 99), end_byte=st.integers(0, 99), params=_WORDS,
    calls=st.lists(_CALLS, max_size=3), looks=_TOKENS, hinges=_TABLE, tensors=_WORDS, returns=_TEXT,
)  # fmt: skip
_CLASSES = st.builds(ClassFact, name=_TEXT, line=st.integers(1, 99), bases=_WORDS, attrs=_TABLE)
_FACTS = st.builds(
    FileFacts,
    imports=st.lists(st.tuples(_TEXT, _TEXT), max_size=3),
    assigns=_TABLE,
    functions=st.lists(_FUNCTIONS, max_size=3),
    classes=st.lists(_CLASSES, max_size=3),
    error=st.none() | st.tuples(st.integers(1, 9), st.integers(1, 9), _TEXT),
)
_BRIEFS = st.builds(
    Brief,
    path=_TEXT,
    module=_TEXT,
    names=_TABLE,
    globals=_TABLE,
    hot=st.dictionaries(
        _TEXT, st.builds(HotFact, root=_TEXT, path=_WORDS, reason=_TEXT), max_size=2
    ),
    classes=st.dictionaries(
        _TEXT, st.builds(ClassBrief, ancestors=_WORDS, attrs=_TABLE), max_size=2
    ),
    callees=st.dictionaries(_TEXT, st.builds(CalleeBrief, target=_TEXT), max_size=2),
    tensors=_TABLE,
)


@given(_FACTS)
def test_facts_come_back(facts: FileFacts) -> None:
    assert packing.unpack_facts(packing.pack_facts(facts)) == facts


@given(_BRIEFS)
def test_briefs_come_back(brief: Brief) -> None:
    assert packing.unpack_brief(packing.pack_brief(brief)) == brief


@given(_FACTS, st.integers(0, 50))
def test_the_shape_knows_no_positions(facts: FileFacts, shift: int) -> None:
    before = packing.shape(facts)
    for function in facts.functions:
        function.line += shift
        function.end_byte += shift
        for call in function.calls:
            call.line += shift
    assert packing.shape(facts) == before
    facts.assigns["new name"] = ["int"]
    assert packing.shape(facts) != before


def test_findings_come_back() -> None:
    finding = Finding(
        "DG101", "rule", "a.py", Span(1, 2, 3, 4), "f", "a → b", "maybe",
        Hot("m.f", ("m.f", "m.g"), "forward of a torch.nn.Module", True, "step", 2.5), None,
        Fix("unsafe", "do", (Edit("a.py", Span(1, 1, 1, 1), "x"),)), "  x = 1",
        dry=True,
    )  # fmt: skip
    plain = Finding("DG102", "rule", "a.py", Span(1, 2, 3, 4), "", "m")
    packed = packing.pack_findings([finding, plain])
    assert packing.unpack_findings(packed, "a.py") == [finding, plain]
