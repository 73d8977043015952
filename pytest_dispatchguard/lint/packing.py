"""Facts, briefs and findings as JSON text and back, for the cache and for worker processes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import fields
from operator import attrgetter
from typing import Any

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
from pytest_dispatchguard.model import Edit, Finding, Fix, Hot, Span

_Row = Callable[[Any], tuple[Any, ...]]


def _row(cls: type, *but: str) -> _Row:
    """The fields of a dataclass as a tuple, without those that are named."""
    return attrgetter(*(f.name for f in fields(cls) if f.name not in but))


_FUNCTION, _CALL, _CLASS = _row(FunctionFact), _row(CallFact), _row(ClassFact)
_CALLS_AT = [f.name for f in fields(FunctionFact)].index("calls")
_FUNCTION_SHAPE = _row(FunctionFact, "line", "end_line", "start_byte", "end_byte", "looks", "calls")
_CALL_SHAPE = _row(CallFact, "line")
_CLASS_SHAPE = _row(ClassFact, "line")
_HOT, _CLASS_BRIEF, _CALLEE = _row(HotFact), _row(ClassBrief), _row(CalleeBrief)
_BRIEF = _row(Brief, "hot", "classes", "callees")
_BRIEF_NAMES = [f.name for f in fields(Brief) if f.name not in ("hot", "classes", "callees")]


def _text(data: object) -> str:
    return json.dumps(data, separators=(",", ":"))


def pack_facts(facts: FileFacts) -> str:
    """The facts of a file as JSON."""
    functions = []
    for function in facts.functions:
        row = list(_FUNCTION(function))
        row[_CALLS_AT] = [_CALL(c) for c in function.calls]
        functions.append(row)
    return _text(
        [facts.imports, facts.assigns, functions, [_CLASS(c) for c in facts.classes], facts.error]
    )


def unpack_facts(text: str) -> FileFacts:
    """The facts of a file from JSON."""
    imports, assigns, functions, classes, error = json.loads(text)
    for row in functions:
        row[_CALLS_AT] = [CallFact(*c) for c in row[_CALLS_AT]]
    return FileFacts(
        imports=[(a, b) for a, b in imports],
        assigns=assigns,
        functions=[FunctionFact(*row) for row in functions],
        classes=[ClassFact(*row) for row in classes],
        error=tuple(error) if error else None,
    )


def shape(facts: FileFacts) -> str:
    """A hash of all that hotness and briefs are made from: the facts, without positions."""
    data = _text(
        [
            facts.imports,
            facts.assigns,
            [[_FUNCTION_SHAPE(f), [_CALL_SHAPE(c) for c in f.calls]] for f in facts.functions],
            [_CLASS_SHAPE(c) for c in facts.classes],
            bool(facts.error),
        ]
    )
    return hashlib.sha256(data.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def pack_brief(brief: Brief) -> str:
    """A brief as JSON."""
    return _text(
        [
            _BRIEF(brief),
            {k: _HOT(v) for k, v in brief.hot.items()},
            {k: _CLASS_BRIEF(v) for k, v in brief.classes.items()},
            {k: _CALLEE(v) for k, v in brief.callees.items()},
        ]
    )


def unpack_brief(text: str) -> Brief:
    """A brief from JSON."""
    plain, hot, classes, callees = json.loads(text)
    return Brief(
        **dict(zip(_BRIEF_NAMES, plain, strict=True)),
        hot={k: HotFact(*v) for k, v in hot.items()},
        classes={k: ClassBrief(*v) for k, v in classes.items()},
        callees={k: CalleeBrief(*v) for k, v in callees.items()},
    )


def pack_findings(findings: Iterable[Finding]) -> str:
    """Findings of one file as JSON; prices are not kept, they are looked up anew."""
    return json.dumps([_packed(f) for f in findings], separators=(",", ":"))


def unpack_findings(text: str, path: str) -> list[Finding]:
    """The findings of the file at a path."""
    return [_unpacked(item, path) for item in json.loads(text)]


def _packed(f: Finding) -> list[Any]:
    hot = None
    if f.hot is not None:
        h = f.hot
        hot = [h.root, list(h.path), h.reason, h.loop, h.per, h.seen]
    fix = None
    if f.fix is not None:
        fix = [f.fix.safety, f.fix.message, [[*_span(e.span), e.replacement] for e in f.fix.edits]]
    return [f.code, f.rule, *_span(f.span), f.function, f.message, f.certainty, hot, fix, f.source]


def _span(span: Span) -> list[int]:
    return [span.line, span.column, span.end_line, span.end_column]


def _unpacked(item: list[Any], path: str) -> Finding:
    (
        code,
        rule,
        line,
        column,
        end_line,
        end_column,
        function,
        message,
        certainty,
        hot,
        fix,
        source,
    ) = item
    return Finding(
        code=code,
        rule=rule,
        path=path,
        span=Span(line, column, end_line, end_column),
        function=function,
        message=message,
        certainty=certainty,
        hot=None if hot is None else Hot(hot[0], tuple(hot[1]), *hot[2:]),
        fix=None
        if fix is None
        else Fix(fix[0], fix[1], tuple(Edit(path, Span(*e[:4]), e[4]) for e in fix[2])),
        source=source,
    )
