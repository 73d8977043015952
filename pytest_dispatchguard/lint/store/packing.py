"""Facts, briefs and findings as JSON text and back, for the cache and for worker processes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from pytest_dispatchguard.model.findings import Edit, Finding, Fix, Hot, Span

_Row = Callable[[Any], tuple[Any, ...]]


def _row(cls: type, *but: str) -> _Row:
    """The fields of a dataclass as a tuple, except those named."""
    return attrgetter(*(f.name for f in fields(cls) if f.name not in but))


_FUNCTION, _CALL, _CLASS = _row(FunctionFact), _row(CallFact), _row(ClassFact)
_CALLS_AT, _LOOKS_AT = ([f.name for f in fields(FunctionFact)].index(n) for n in ("calls", "looks"))
_FUNCTION_SHAPE = _row(
    FunctionFact, "line", "end_line", "start_byte", "end_byte", "looks", "hinges", "calls"
)
_FUNCTION_FRAME = _row(
    FunctionFact, "line", "end_line", "start_byte", "end_byte", "looks", "hinges", "calls", "tensors",
    "locals", "takes_tensors", "reads",
)  # fmt: skip
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
        row[_LOOKS_AT] = " ".join(
            function.looks
        )  # faster than one by one, and these are most of all words
        functions.append(row)
    return _text(
        [facts.imports, facts.assigns, functions, [_CLASS(c) for c in facts.classes], facts.error]
    )


def unpack_facts(text: str) -> FileFacts:
    """The facts of a file from JSON."""
    imports, assigns, functions, classes, error = json.loads(text)
    for row in functions:
        row[_CALLS_AT] = [CallFact(*c) for c in row[_CALLS_AT]]
        row[_LOOKS_AT] = row[_LOOKS_AT].split()
    return FileFacts(
        imports=[(a, b) for a, b in imports],
        assigns=assigns,
        functions=[FunctionFact(*row) for row in functions],
        classes=[ClassFact(*row) for row in classes],
        error=tuple(error) if error else None,
    )


def shape(facts: FileFacts) -> str:
    """A hash of everything that hotness and briefs depend on: the facts without positions."""
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


def frame(function: FunctionFact) -> object:
    """Everything that hotness and briefs depend on in a function whose body is not analyzed, that is, how
    it looks to others; for comparison. A function that registers hooks counts as a whole."""
    calls = function.calls
    if any(call.how.startswith("hook") for call in calls):
        return _FUNCTION_SHAPE(function), [_CALL_SHAPE(c) for c in calls]
    returned = [_CALL_SHAPE(c) for c in calls if c.how == "returned"]
    return _FUNCTION_FRAME(function), returned


def packed_call(call: CallFact) -> object:
    """Everything about a call except its position; for comparison."""
    return _CALL_SHAPE(call)


def frame_of_class(class_: ClassFact) -> object:
    """The same for a class."""
    return _CLASS_SHAPE(class_), list(class_.attrs)


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


def hot_in_brief(brief: Brief) -> tuple[list[str], set[str], dict[str, str], set[str]]:
    """From a brief: the hot functions, those recorded with tensors, the return kinds of callees except
    for CPU tensors, and the last names of the callees that read their arguments."""
    seen = brief.seen.items()
    given = {name for name, kinds in seen if any("tensor" in k for k in kinds.values())}
    returns = {name: callee.returns for name, callee in brief.callees.items() if not callee.on_cpu}
    readers = {name.rpartition(".")[2] for name, callee in brief.callees.items() if callee.reads}
    return list(brief.hot), given.intersection(brief.hot), returns, readers


def pack_findings(findings: Iterable[Finding], line: int = 1) -> str:
    """The findings of one function or file as JSON, with lines counted from `line`. Prices are not
    stored; they are looked up again. Each line is stored once, however many findings it has."""
    lines: dict[str, int] = {}
    packed = [_packed(f, line - 1, lines.setdefault(f.source, len(lines))) for f in findings]
    return _text([list(lines), packed])


def pack_judged(findings: Iterable[Finding], line: int, asked: Mapping[str, Any]) -> str:
    """The result of judging one function as two lines of JSON: what rules asked about the file, and the
    findings."""
    return f"{_text(asked)}\n{pack_findings(findings, line)}"


def asked_in(text: str) -> dict[str, Any]:
    """What rules asked about the file while a function was judged, and the answers."""
    asked: dict[str, Any] = json.loads(text.partition("\n")[0])
    return asked


def unpack_judged(text: str, path: str, line: int) -> list[Finding]:
    """The findings of the function, with lines counted from `line`."""
    return unpack_findings(text.partition("\n")[2], path, line)


def unpack_findings(text: str, path: str, line: int = 1) -> list[Finding]:
    """The findings of the file at a path, with lines counted from `line`."""
    lines, packed = json.loads(text)
    return [_unpacked(item, path, line - 1, lines) for item in packed]


def _packed(f: Finding, shift: int, source: int) -> list[Any]:
    hot = None
    if f.hot is not None:
        h = f.hot
        hot = [h.root, list(h.path), h.reason, h.loop, h.per, h.seen, h.users]
    fix = None
    if f.fix is not None:
        edits = [[*_packed_span(e.span, shift), e.replacement] for e in f.fix.edits]
        fix = [f.fix.safety, f.fix.message, edits]
    span = _packed_span(f.span, shift)
    return [f.code, f.rule, span, f.function, f.message, f.certainty, hot, fix, source, f.dry]


def _packed_span(span: Span, shift: int) -> list[int]:
    if span.line == 0:  # not a line of the function: where the file's imports go
        return [0, span.column, 0, span.end_column]
    return [span.line - shift, span.column, span.end_line - shift, span.end_column]


def _span(packed: list[int], shift: int) -> Span:
    line, column, end_line, end_column = packed
    return Span(line and line + shift, column, end_line and end_line + shift, end_column)


def _unpacked(item: list[Any], path: str, shift: int, lines: Sequence[str]) -> Finding:
    code, rule, span, function, message, certainty, hot, fix, source, dry = item
    return Finding(
        code=code,
        rule=rule,
        path=path,
        span=_span(span, shift),
        function=function,
        message=message,
        certainty=certainty,
        hot=None if hot is None else Hot(hot[0], tuple(hot[1]), *hot[2:]),
        fix=None
        if fix is None
        else Fix(fix[0], fix[1], tuple(Edit(path, _span(e[:4], shift), e[4]) for e in fix[2])),
        source=lines[source],
        dry=dry,
    )
