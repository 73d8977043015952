"""Shows hot functions that hold something a rule looks for to the rules: text and a brief in, findings out."""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from pytest_dispatchguard.lint import packs
from pytest_dispatchguard.lint.facts import Brief, FileFacts, FunctionFact
from pytest_dispatchguard.lint.place import Place
from pytest_dispatchguard.lint.reading import Reader, Scene, Seen
from pytest_dispatchguard.lint.rule import Look, Rule
from pytest_dispatchguard.lint.target import Target, applies
from pytest_dispatchguard.model import Finding, Span

_NEWLINE = re.compile(r"\r\n|\r|\n")
_STATEMENT_LOOPS = (cst.For, cst.While)
_STEPS = frozenset({"backward", "step", "training_step", "train_step"})


@dataclass(slots=True)
class Judged:
    """What judging one file gave."""

    findings: list[Finding] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Rules that failed and functions that could not be read, a line each: never silent."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Rules made ready for judging: by event, and the tokens that make a function worth reading."""

    by_event: dict[str, list[tuple[Look, Rule]]]
    tokens: frozenset[str]


@lru_cache(maxsize=8)
def bench(target: Target) -> Bench:
    """The rules of all packs that are about the target, by what they look for."""
    by_event: dict[str, list[tuple[Look, Rule]]] = defaultdict(list)
    tokens: set[str] = set()
    for rule in packs.load().rules:
        if not applies(target, rule.python, rule.torch):
            continue
        for look in rule.looks():
            by_event[look.event].append((look, rule))
            tokens |= look.tokens
    return Bench(dict(by_event), frozenset(tokens))


def judge_file(text: str, facts: FileFacts, brief: Brief, benched: Bench, target: Target) -> Judged:
    """All findings of one file, unsorted."""
    out = Judged()
    lines: Lines | None = None
    for outer, inner in outermost(facts):
        hot = [f for f in (outer, *inner) if f.name in brief.hot]
        if not any(not benched.tokens.isdisjoint(f.looks) for f in hot):
            continue
        if lines is None:
            lines = Lines(text)
        try:
            _judge_function(lines, outer, brief, benched, target, out)
        except RecursionError:
            out.problems.append(
                f"{brief.path}:{outer.line}: {outer.name} is nested too deeply to be read"
            )
        except cst.ParserSyntaxError as error:
            out.problems.append(
                f"{brief.path}:{outer.line}: {outer.name} could not be parsed: {error.message}"
            )
    return out


def outermost(facts: FileFacts) -> Iterable[tuple[FunctionFact, list[FunctionFact]]]:
    """Functions that no other function encloses, each with those inside it."""
    inside: dict[str, list[FunctionFact]] = defaultdict(list)
    tops: list[FunctionFact] = []
    for function in facts.functions:
        head, local, _ = function.name.partition(".<locals>.")
        if local:
            inside[head].append(function)
        else:
            tops.append(function)
    for top in tops:
        mine = [
            f for f in inside.get(top.name, []) if top.start_byte <= f.start_byte < top.end_byte
        ]
        yield top, mine


class Lines:
    """A text by lines and by bytes, as Python counts them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.data = text.encode()
        self.starts = [0, *(m.end() for m in _NEWLINE.finditer(text))]
        self.ascii = len(self.data) == len(text)

    def offset(self, byte: int) -> int:
        """The character at a byte."""
        return byte if self.ascii else len(self.data[:byte].decode())

    def line_of(self, offset: int) -> int:
        """The line, from 1, of a character."""
        return bisect.bisect_right(self.starts, offset)

    def line(self, number: int) -> str:
        """One line's text, without its newline."""
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[self.starts[number - 1] : end].rstrip("\r\n")


class Chunk:
    """One outermost function, parsed for itself, with positions in its file."""

    def __init__(self, lines: Lines, start_byte: int, end_byte: int) -> None:
        self._lines = lines
        start = lines.offset(start_byte)
        first = lines.line_of(start)
        line_start = lines.starts[first - 1]
        source = lines.text[line_start : lines.offset(end_byte)]
        indented = lines.text[line_start:start].strip(" \t\f") == "" and start > line_start
        # An `if` around an indented function keeps its columns, multi-line strings and all.
        self.module = cst.parse_module(f"if 1:\n{source}\n" if indented else source + "\n")
        self._shift = first - (2 if indented else 1)
        self._positions: dict[cst.CSTNode, CodeRange] | None = None
        self.function = _first_function(self.module)

    def span(self, node: cst.CSTNode) -> Span:
        """Where a whole node is in the file."""
        if self._positions is None:
            wrapper = MetadataWrapper(self.module, unsafe_skip_copy=True)
            self._positions = dict(wrapper.resolve(PositionProvider))
        found = self._positions[node]
        return Span(
            found.start.line + self._shift,
            found.start.column + 1,
            found.end.line + self._shift,
            found.end.column + 1,
        )

    def head(self, node: cst.CSTNode) -> Span:
        """Where a finding on the node points: the node, or the header of a compound statement."""
        whole = self.span(node)
        last: cst.CSTNode | None = None
        if isinstance(node, cst.With):
            last = node.items[-1]
        elif isinstance(node, cst.For):
            last = node.iter
        elif isinstance(node, cst.While | cst.If):
            last = node.test
        elif isinstance(node, cst.FunctionDef | cst.ClassDef):
            last = node.name
        if last is None:
            return whole
        end = self.span(last)
        return Span(whole.line, whole.column, end.end_line, end.end_column)

    def first_line(self, span: Span) -> str:
        """The text of the line on which a span starts."""
        return self._lines.line(span.line)


def _first_function(module: cst.Module) -> cst.FunctionDef:
    node: cst.CSTNode = module.body[0]
    if isinstance(node, cst.If):
        node = node.body.body[0]
    if not isinstance(node, cst.FunctionDef):
        raise cst.ParserSyntaxError("no function here", lines=[], raw_line=1, raw_column=0)
    return node


def _judge_function(
    lines: Lines, outer: FunctionFact, brief: Brief, benched: Bench, target: Target, out: Judged
) -> None:
    chunk = Chunk(lines, outer.start_byte, outer.end_byte)
    reader = Reader(brief, outer.name, target.tensor_types)
    reader.read(chunk.function)
    hot_loops = _hot_loops(reader.events, brief)
    for seen in reader.events:
        rules = benched.by_event.get(seen.event)
        if rules is None:
            continue
        fact = brief.hot.get(seen.scene.qualname)
        if fact is None or (fact.only_loops and not _in_hot_loop(seen.scene, hot_loops)):
            continue
        for look, rule in rules:
            if (look.names and seen.name not in look.names) or (
                seen.scene.cold and not rule.also_cold
            ):
                continue
            place = Place(
                reader, seen.scene, seen.node, (rule.code, rule.name), target,
                chunk.head, chunk.span, chunk.first_line, lambda: import_line(lines),
            )  # fmt: skip
            try:
                answer = rule.judge(seen.node, place)
                if answer is None:
                    continue
                out.findings.extend([answer] if isinstance(answer, Finding) else answer)
            except Exception as error:  # noqa: BLE001 - a rule that fails must not hide the others' findings
                out.problems.append(
                    f"{brief.path}:{outer.line}: rule {rule.code} failed in {seen.scene.qualname}: "
                    f"{type(error).__name__}: {error}"
                )


def _hot_loops(events: Sequence[Seen], brief: Brief) -> set[int]:
    """The loops that run once per step: the innermost ones around a backward or step."""
    out = set()
    for seen in events:
        if seen.event == "call" and seen.name in _STEPS:
            loops = [n for n in seen.scene.loops if isinstance(n, _STATEMENT_LOOPS)]
            if loops:
                out.add(id(loops[-1]))
    return out


def _in_hot_loop(scene: Scene, hot_loops: set[int]) -> bool:
    loops = [n for n in scene.loops if isinstance(n, _STATEMENT_LOOPS)]
    return any(id(n) in hot_loops for n in loops) if hot_loops else bool(loops)


def import_line(lines: Lines) -> tuple[int, bool]:
    """The line before which a new import can stand, and whether a blank line must follow it."""
    after = 0
    blank = False
    module = cst.parse_module(lines.text)
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    positions = wrapper.resolve(PositionProvider)
    for i, statement in enumerate(module.body):
        if not isinstance(statement, cst.SimpleStatementLine):
            break
        small = statement.body[0]
        docstring = (
            i == 0 and isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString)
        )
        if docstring or isinstance(small, cst.Import | cst.ImportFrom):
            after = positions[statement].end.line
            blank = docstring
        else:
            break
    if after == 0:
        after = len(module.header) and _header_lines(lines)
        blank = True
    return after + 1, blank


def _header_lines(lines: Lines) -> int:
    number = 0
    while number < len(lines.starts) and lines.line(number + 1).lstrip().startswith("#"):
        number += 1
    return number
