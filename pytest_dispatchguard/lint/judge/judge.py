"""Runs the rules on hot functions that contain what a rule looks for: takes source text and a brief,
returns findings."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import libcst as cst

from pytest_dispatchguard.lint.dataflow.reader import Reader
from pytest_dispatchguard.lint.dataflow.scene import Scene, Seen
from pytest_dispatchguard.lint.dataflow.statements import read_function
from pytest_dispatchguard.lint.facts import SCRIPT, Brief
from pytest_dispatchguard.lint.internal_errors import mistake
from pytest_dispatchguard.lint.judge import packs
from pytest_dispatchguard.lint.judge.brief_parts import Answer, Asked, Parts
from pytest_dispatchguard.lint.judge.place import Place, remember_text
from pytest_dispatchguard.lint.judge.rule import Rule
from pytest_dispatchguard.lint.judge.target import Target, applies
from pytest_dispatchguard.lint.knowledge.entry_points import CALLED_MODEL, TRAINS, over_batches
from pytest_dispatchguard.lint.syntax import nodes
from pytest_dispatchguard.lint.syntax.chunks import Lines, Outline
from pytest_dispatchguard.lint.syntax.nesting import too_deep
from pytest_dispatchguard.lint.syntax.positions import Position, positions
from pytest_dispatchguard.lint.syntax.recursion import (
    has_usual_stack,
    with_more_frames,
    with_room,
)
from pytest_dispatchguard.lint.syntax.spelling import dotted, text
from pytest_dispatchguard.lint.syntax.surrogates import has_surrogates, put_back, without
from pytest_dispatchguard.model.errors import pass_interrupt_on
from pytest_dispatchguard.model.findings import Finding, Span

MOST_SECONDS = 10.0
"""CPU seconds for one function; the largest that people write take a fraction of a second."""
_BETWEEN_LOOKS = 32
"""How many places to judge before the clock is checked again."""
_STATEMENT_LOOPS = (cst.For, cst.While)
_COMPILES = re.compile(
    r"torch\.compile|(?:torch\.)?jit\.script(?:_method|_if_tracing)?|"
    r"(?:\w+\.)*_?(?:torch|maybe|try|optional|conditional|lazy)_compiled?"
    r"(?:_\w+)?|(?:\w+\.)*_?compile_(?:if|when|with|maybe)\w*"
)
_STEPS = frozenset({"backward", "step"})


@dataclass(slots=True)
class Judged:
    """The result of judging one file."""

    findings: list[Finding] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """A line for each rule that failed; never silent."""
    asked: dict[str, Answer] = field(default_factory=dict)
    """What rules asked about the rest of the file, with the answers."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Rules prepared for judging: by event, and by the names that they look for."""

    named: dict[tuple[str, str], tuple[Rule, ...]]
    unnamed: dict[str, tuple[Rule, ...]]
    tokens: Mapping[str, tuple[Callable[[str], bool], ...] | None]
    """What the text of a function is asked, by the token that the function holds: one answer has to be yes.
    None where it is judged in any case."""

    def wants(self, outline: Outline, source: str) -> bool:
        """Whether a function may hold what a rule looks for, by its source text."""
        questions: dict[Callable[[str], bool], None] = {}
        for token in outline.tokens:
            asked = self.tokens.get(token, ())
            if asked is None:
                return True
            questions.update(dict.fromkeys(asked))
        return not outline.tokens or any(question(source) for question in questions)

    def asking(self, seen: Seen) -> Iterable[Rule]:
        """The rules that look for what was seen."""
        return (
            *self.unnamed.get(seen.event, ()),
            *self.named.get((seen.event, seen.name), ()),
        )


@lru_cache(maxsize=8)
def bench(target: Target, names: tuple[str, ...]) -> Bench:
    """The rules of packs that apply to the target, by what they look for."""
    rules = packs.load(names).rules
    return bench_of([rule for rule in rules if applies(target, rule.python, rule.torch)])


def bench_of(rules: Iterable[Rule]) -> Bench:
    """Rules by what they look for."""
    named: dict[tuple[str, str], list[Rule]] = defaultdict(list)
    unnamed: dict[str, list[Rule]] = defaultdict(list)
    tokens: dict[str, tuple[Callable[[str], bool], ...] | None] = {}
    for rule in rules:
        for look in rule.looks():
            if not look.names:
                unnamed[look.event].append(rule)
            for name in look.names:
                named[look.event, name].append(rule)
            for token in look.tokens:
                asked = tokens.get(token, ())
                if asked is None or look.text is None:
                    tokens[token] = None
                else:
                    tokens[token] = (*asked, look.text)
    return Bench(
        {key: tuple(rules) for key, rules in named.items()},
        {key: tuple(rules) for key, rules in unnamed.items()},
        tokens,
    )


def judge_chunks(
    lines: Lines, outlines: Iterable[Outline], brief: Brief, benched: Bench, target: Target
) -> list[Judged]:
    """The findings of the functions of one file, one function at a time. Each function only sees its own
    part of the brief, so that its findings cannot depend on anything else."""
    if not has_usual_stack():
        return with_room(lambda: _judge_chunks(lines, outlines, brief, benched, target))
    return _judge_chunks(lines, outlines, brief, benched, target)


def _judge_chunks(
    lines: Lines, outlines: Iterable[Outline], brief: Brief, benched: Bench, target: Target
) -> list[Judged]:
    out = []
    parts = Parts(brief)
    for outline in outlines:
        source = lines.chunk(outline)[0]
        judged = Judged()
        try:
            if benched.wants(outline, source):
                part = parts.of(outline.name, source)
                judged = with_more_frames(
                    partial(_judge_function, lines, outline, part, brief, benched, target)
                )
        except (RecursionError, TooDeep):
            judged.findings = [
                unjudged(lines, outline, brief, "is nested too deeply to be checked")
            ]
        except cst.ParserSyntaxError as error:
            # The scout accepts what libcst does not: mixed tabs and spaces, newer syntax.
            said = f"cannot be parsed: {error.message}"
            judged.findings = [
                _unread(lines, outline, brief, error.raw_line, error.raw_column + 1, said)
            ]
        except Exception as error:  # noqa: BLE001 - one function must not hide what others hold
            pass_interrupt_on(error)
            judged = Judged()
            judged.problems.append(
                mistake(f"{brief.path}:{outline.line}: {outline.name} could not be checked", error)
            )
        out.append(judged)
    return out


def unjudged(lines: Lines, outline: Outline, brief: Brief, said: str) -> Finding:
    """The finding that a function was not judged, and why."""
    return _unread(lines, outline, brief, 1, 1, said)


def _unread(
    lines: Lines, outline: Outline, brief: Brief, line: int, column: int, said: str
) -> Finding:
    """Where and why a function was not judged."""
    _, first, indented = lines.chunk(outline)
    at = min(max(first, first + line - (2 if indented else 1)), len(lines.starts))
    return Finding(
        code="DG001",
        rule="unparsable-file",
        path=brief.path,
        span=Span(at, column, at, column),
        function=outline.name,
        message=f"{outline.name} {said}, so it was not checked",
        source=lines.line(at),
    )


def _given_up(lines: Lines, outline: Outline, brief: Brief) -> Finding:
    """The finding that the rest of a function was not judged because it would have taken too long."""
    told = unjudged(lines, outline, brief, "")
    message = f"{outline.name} takes more than {MOST_SECONDS:g} s to check, so the rest of it was not checked"
    return replace(told, certainty="note", message=message)


def load() -> None:
    """Imports what the first function that is judged needs."""
    too_deep("")
    _parsed("def f(): pass\n")


class TooDeep(Exception):  # noqa: N818 - said of a function, no error of anybody's
    """A function is nested too deeply for libcst."""


class Chunk:
    """One outermost function, parsed on its own, with positions in its file."""

    def __init__(self, lines: Lines, outline: Outline) -> None:
        self._lines = lines
        source, first, indented = lines.chunk(outline)
        # Wrapping an indented function in an `if` keeps its columns, including multi-line strings.
        source = f"if 1:\n{source}\n" if indented else source + "\n"
        if too_deep(source):
            raise TooDeep
        self.has_surrogates = has_surrogates(source)
        if self.has_surrogates:
            source = without(source)
        self.source = source
        self.module = _parsed(source)
        self._shift = first - (2 if indented else 1)
        self._positions: dict[int, Position] | None = None
        is_script = outline.name == SCRIPT
        self.function = _script(self.module) if is_script else _first_function(self.module)

    def span(self, node: cst.CSTNode) -> Span:
        """Where a whole node is in the file."""
        if self._positions is None:
            self._positions = positions(self.module)
            # The function of a script is not in its text.
            self._positions.setdefault(id(self.function), (1, 0, 1, 0))
        line, column, end_line, end_column = self._positions[id(node)]
        return Span(line + self._shift, column + 1, end_line + self._shift, end_column + 1)

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


def _parsed(source: str) -> cst.Module:
    """The tree of a source text. Nodes validate themselves when they are created; for nodes from the
    parser this finds nothing and takes a fifth of the time, so it is skipped. Nodes that rules create are
    validated as usual."""
    check = cst.CSTNode.__post_init__
    cst.CSTNode.__post_init__ = _unchecked  # type: ignore[method-assign]  # put back below
    try:
        return cst.parse_module(source)
    finally:
        cst.CSTNode.__post_init__ = check  # type: ignore[method-assign]  # as above


def _unchecked(self: cst.CSTNode) -> None:
    """Replaces a node's validation."""


def _script(module: cst.Module) -> cst.FunctionDef:
    """A function that does what a module does itself."""
    body = cst.IndentedBlock(body=module.body)
    return cst.FunctionDef(name=cst.Name("script"), params=cst.Parameters(), body=body)


def _first_function(module: cst.Module) -> cst.FunctionDef:
    node: cst.CSTNode = module.body[0]
    if isinstance(node, cst.If):
        node = node.body.body[0]
    if not isinstance(node, cst.FunctionDef):
        raise cst.ParserSyntaxError("no function here", lines=[], raw_line=1, raw_column=0)
    return node


def _judge_function(
    lines: Lines, outer: Outline, brief: Brief, whole: Brief, benched: Bench, target: Target
) -> Judged:
    began = time.thread_time()
    asked = Asked(whole)
    out = Judged(asked=asked.answers)
    chunk = Chunk(lines, outer)
    reader = read_function(chunk.function, brief, outer.name, target.tensor_types)
    remember_text(reader, chunk.function, chunk.source)
    hot_loops = _hot_loops(reader.events)
    feeding = _feeding_loops(reader)
    if feeding:
        hot_loops |= feeding - _around(hot_loops, reader.events)
    for number, seen in enumerate(reader.events):
        rules = benched.asking(seen)
        if not rules:
            continue
        if number % _BETWEEN_LOOKS == 0 and time.thread_time() - began > MOST_SECONDS:
            out.findings.append(_given_up(lines, outer, brief))
            break
        fact = brief.hot.get(seen.scene.qualname)
        if fact is None or (fact.only_loops and not _in_hot_loop(seen.scene, hot_loops)):
            continue
        for rule in rules:
            if seen.scene.cold and not rule.also_cold:
                continue
            if not rule.also_compiled and _compiled(chunk.function, seen.scene.function):
                continue
            place = Place(
                reader, asked, seen.scene, seen.node, (rule.code, rule.name), target,
                chunk.head, chunk.span, chunk.first_line,
            )  # fmt: skip
            try:
                out.findings.extend(_findings(rule.judge(seen.node, place)))
            except RecursionError:
                raise
            # A failing rule must not hide the findings of others, nor make the run look clean.
            except (Exception, SystemExit) as error:  # noqa: BLE001 - for the reason above
                line = _line(chunk, seen.node, outer.line)
                what = f"{brief.path}:{line}: rule {rule.code} failed in {seen.scene.qualname}"
                out.problems.append(mistake(what, error))
    if chunk.has_surrogates:
        out.findings = [put_back(finding) for finding in out.findings]
    return out


def _compiled(*functions: cst.FunctionDef) -> bool:
    """Whether a function is decorated with `torch.compile`, by a project's own name perhaps, or `jit.script`:
    both leave out what nobody reads, and compute once what is written twice."""
    for function in functions:
        for decorator in function.decorators:
            node = decorator.decorator
            name = dotted(node.func if isinstance(node, cst.Call) else node) or ""
            if _COMPILES.fullmatch(name):
                return True
            asked = node.args if isinstance(node, cst.Call) else ()
            if name.endswith("partial") and any(dotted(a.value) == "torch.compile" for a in asked):
                return True
    return False


def _findings(answer: object) -> list[Finding]:
    """The answer of a rule, which a third party may have written, checked for its type."""
    if answer is None:
        return []
    if not isinstance(answer, Iterable) or isinstance(answer, str):
        answer = (answer,)
    findings = []
    for one in answer:
        if not isinstance(one, Finding):
            raise TypeError(f"judge returned {one!r}, not a Finding")
        findings.append(one)
    return findings


def _line(chunk: Chunk, node: cst.CSTNode, otherwise: int) -> int:
    """The line of a node, if it has one."""
    try:
        return chunk.span(node).line
    except KeyError:
        return otherwise


_ASK_MODULES = frozenset({"eval", "train", "parameters", "state_dict", "zero_grad", "modules"})


_EPOCHS = re.compile(
    r"(?:^|_)(?:epochs?|ep|folds?|runs?|seeds?|trials?|rounds?|splits?|phases?|datasets?|subsets?)(?:$|_)"
)
"""What counts epochs, whole trainings and ways through data."""


def _feeding_loops(reader: Reader) -> set[int]:
    """The loops that feed a model: those around a call of a module, from the inside to the one over all
    batches."""
    calls = [seen for seen in reader.events if seen.event == "call"]
    modules = {
        dotted(seen.node.func.value)
        for seen in calls
        if seen.name in _ASK_MODULES
        and isinstance(seen.node, cst.Call)
        and isinstance(seen.node.func, cst.Attribute)
    } - {None}
    asking = {  # somebody for every input
        id(loops[-1])
        for seen in calls
        if seen.name == "input" and (loops := _statement_loops(seen.scene))
    }
    out: set[int] = set()
    for seen in calls:
        if not isinstance(seen.node, cst.Call) or not seen.node.args:
            continue
        func = seen.node.func
        kind = reader.kinds.get(id(func))
        name = dotted(func)
        is_model = name in modules or (name and CALLED_MODEL.fullmatch(name) is not None)
        if is_model or (kind is not None and kind.what == "module"):
            loops = _statement_loops(seen.scene)
            for loop in reversed(loops):
                around = loop is not loops[-1]
                if id(loop) in out or id(loop) in asking or (around and _counts_epochs(loop)):
                    break
                out.add(id(loop))
                if isinstance(loop, cst.For) and over_batches(text(loop.target), text(loop.iter)):
                    break
    return out


def _statement_loops(scene: Scene) -> list[cst.For | cst.While]:
    return [n for n in scene.loops if isinstance(n, _STATEMENT_LOOPS)]


def _counts_epochs(loop: cst.For | cst.While) -> bool:
    if not isinstance(loop, cst.For):
        return False
    through = loop.iter.elements if isinstance(loop.iter, cst.List | cst.Tuple) else ()
    texts = bool(through) and all(isinstance(one.value, cst.SimpleString) for one in through)
    return texts or _EPOCHS.search(text(loop.target)) is not None


def _around(inner: Collection[int], events: Sequence[Seen]) -> set[int]:
    """The loops around some loops: epochs, where those are steps of a training."""
    found: set[int] = set()
    for seen in events:
        loops = list(map(id, _statement_loops(seen.scene)))
        if loops and loops[-1] in inner:
            found.update(loops[:-1])
    return found


def _hot_loops(events: Sequence[Seen]) -> set[int]:
    """The loops that run once per step: the innermost ones around a backward or step."""
    trains = any(seen.event == "call" and seen.name == "backward" for seen in events)
    what: dict[int, set[str]] = {}
    around: dict[int, list[int]] = {}
    for seen in events:
        if (
            seen.event == "call"
            and (seen.name in _STEPS or ("_" in seen.name and TRAINS.fullmatch(seen.name)))
            and not (trains and _of_schedule(seen.node))
        ):
            loops = list(map(id, _statement_loops(seen.scene)))
            if loops:
                what.setdefault(loops[-1], set()).add(seen.name)
                around[loops[-1]] = loops[:-1]
    # A step with no backward, around a loop that has both, is for what an epoch leaves over.
    whole = [loop for loop, does in what.items() if {"backward", "step"} <= does]
    left_over = {outer for loop in whole for outer in around[loop] if what.get(outer) == {"step"}}
    return what.keys() - left_over


def _of_schedule(node: cst.CSTNode) -> bool:
    """Whether a `step` is that of a learning rate schedule, which usually runs once per epoch."""
    return isinstance(node, cst.Call) and "sched" in (dotted(node.func) or "").lower()


def _in_hot_loop(scene: Scene, hot_loops: set[int]) -> bool:
    """Whether a place is inside of a loop that is hot, and not in a branch with which that ends."""
    loops = _statement_loops(scene)
    last = scene.block[-1] if loops and scene.conditions else None
    ends = type(last.body[-1]) if isinstance(last, cst.SimpleStatementLine) else None
    if ends in (cst.Return, cst.Break) and _is_a_branch(scene.block, loops[-1]):
        if ends is cst.Return:
            return False
        loops = loops[:-1]
    return any(id(n) in hot_loops for n in loops) if hot_loops else bool(loops)


def _is_a_branch(block: Sequence[cst.CSTNode], loop: cst.For | cst.While) -> bool:
    """Whether statements are what an `if` in a loop chooses, and no step of a training themselves."""
    for one in nodes.walk(loop.body):
        if isinstance(one, cst.If):
            suites = (one.body, one.orelse.body if isinstance(one.orelse, cst.Else) else None)
            if any(suite is not None and block[-1] in suite.body for suite in suites):
                break
    else:
        return False
    calls = (one for part in block for one in nodes.walk(part) if isinstance(one, cst.Call))
    return not any((dotted(call.func) or "").rpartition(".")[2] in _STEPS for call in calls)
