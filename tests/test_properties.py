"""What holds for any Python: the scout's places, rules that never fail, suppressions and fixes."""

from __future__ import annotations

import ast
import json
import os
import random
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.edits import apply_edits, offsets
from pytest_dispatchguard.lint import engine
from pytest_dispatchguard.lint.judge.cached_catalog import catalog
from pytest_dispatchguard.lint.judge.catalog import Catalog
from pytest_dispatchguard.lint.pipeline.outcome import Outcome
from pytest_dispatchguard.lint.processes.workers import Pool
from pytest_dispatchguard.lint.results.fixes import fix
from pytest_dispatchguard.lint.scout import scan
from pytest_dispatchguard.lint.session import Session
from pytest_dispatchguard.lint.sources.files import Discovery, File
from pytest_dispatchguard.model.findings import Finding

ROOT = Path("/nowhere")

_HEAD = """\
from __future__ import annotations
import contextlib, functools, inspect, logging, os, warnings
from contextlib import contextmanager, nullcontext, suppress
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

log = logging.getLogger(__name__)
SCALE = torch.tensor([1.0, 2.0])

@contextmanager
def scope(name):
    yield name
"""

# What rules look for, and what they must not trip over. § is an expression, ¤ a name.
_EXPRESSIONS = """
x|y|z|self.weight|self.items|self.n|mask|SCALE|3|2.5|"s"|None|True|...|b"b"|args|kwargs
§.item()|§.tolist()|float(§)|int(§)|bool(§)|§.cpu()|§.numpy()|§.to("cpu")|§.any()|§.all()
§.sum()|§.max()|§ + §|§ * §|§ @ §|§ > §|§ == §|§ is None|§ in §|not §|-§|~§
§ and §|§ or §|§ if § else §|(§, §)|[§, §]|{"a": §, **kwargs}|{§, {}}|§[§]|§[§:§]
§[mask]|§[..., None]|torch.zeros(3).to(§.device)|torch.tensor(§)|torch.tensor([§, §], device=x.device)
torch.cat([§, §])|torch.where(§)|torch.nonzero(§)|torch.unique(§)|torch.as_tensor(§)
torch.stack([§ for v in §])|[v for v in § if §]|{v: § for v in {}}|sum(v for v in §)|(w := §)
lambda a, *b, c=§, **d: §|f"{¤!r:>{self.n}} {x.item()}"|print(§)|len(§)|range(§)|max(§, §)
isinstance(§, torch.Tensor)|hasattr(self, "a")|getattr(§, "b", §)|helper(§)|self.step(§, *args, **kwargs)
pytree.tree_flatten(§)|pytree.tree_map(lambda t: §, §)|pytree.tree_leaves(§)[0]|inspect.signature(§)
os.environ.get("A", §)|functools.partial(helper, §)(§)|list(self.parameters())|self.layers[1:]
nn.MSELoss()(§, §)|torch.compile(helper)(§)|torch.vmap(helper)(§)|await_(§)|§.type(torch.BoolTensor)
np.asarray(§)|torch.cuda.is_available()|copy.deepcopy(§)|torch.equal(§, §)|§.repeat_interleave(§)
x.data_ptr()|"%s" % §|log.debug(f"{¤}")|self.fn(§)(x)(y)|§.real.imag|(yield_ := §)|(*x, y)
M0.fn|M0.cache|self.cache.fn|type(self).fn|M0|super().step(§)|(§, *(§))|[*§, *(§)]
"""

_STATEMENTS = """
y = §
x, (y, *z) = §, (§, §)
y: torch.Tensor = §
x += §
x[§] = §
x[mask] = §
self.cache = §
self.n += 1
del y
assert §, §
§
return §
global G
import math
from copy import deepcopy as dc
import copy
raise ValueError(f"{¤}")
warnings.warn(str(§))
log.info(f"n {¤}")
pass
y = x = §
self.fn = §
self.fn = M0.fn
M0.fn = M0.cache
return §, *(§)
y = *[§] * 2, *§, §
y = (§ if §$# odd$                                                else §)
"""

_BLOCKS = """
if §:|else:
if §:|elif §:|else:
while §:
for v in §:|else:
for i, v in enumerate(§):
for i in range(§):
with torch.no_grad():
with scope(§) as s, nullcontext():
with suppress(KeyError), torch.autocast("cuda", enabled=False):
with contextlib.ExitStack() as stack:
try:|except (ValueError, TypeError) as e:|else:|finally:
try:|except Exception:
def inner(a, *, b=§, **c):
async def later(a):
class Local(Base):
if isinstance(§, torch.Tensor) and §:
if self.training:
if x is None:|else:
@functools.wraps(helper)~def wrapped(*args, **kwargs):
"""

_TRAILERS = (
    "",
    "",
    "",
    "",
    "  # é ☃",
    "  # dispatchguard: ignore[DG4] -- why",
    "  # noqa: DG999",
    "  #",
)
_ENDS = ("\n", "\r\n", "\r")


def lines_of(table: str) -> list[str]:
    return [line for line in table.strip().splitlines() if line]


EXPRESSIONS = [part for line in lines_of(_EXPRESSIONS) for part in line.split("|")]
LEAVES = EXPRESSIONS[: EXPRESSIONS.index("kwargs") + 1]
STATEMENTS, BLOCKS = lines_of(_STATEMENTS), lines_of(_BLOCKS)


class Writer:
    """Writes random modules that Python accepts, or nearly always."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.indent = rng.choice(("    ", "  ", "\t", "   "))

    def expression(self, depth: int) -> str:
        return self.fill(self.rng.choice(LEAVES if depth <= 0 else EXPRESSIONS), depth - 1)

    def inner(self, depth: int) -> str:
        """An expression that can stand anywhere."""
        text = self.expression(depth)
        plain = text.isidentifier() or (text[0].isalpha() and text[-1] == ")" and " " not in text)
        return text if plain and self.rng.random() < 0.8 else f"({text})"

    def fill(self, form: str, depth: int | None = None) -> str:
        parts = re.split("([§¤])", form)
        for i, part in enumerate(parts):
            if part == "§":
                parts[i] = self.inner(self.rng.randrange(3) if depth is None else depth)
            elif part == "¤":
                parts[i] = self.rng.choice(("x", "self.n", "x.sum()", "y"))
        return "".join(parts)

    def body(self, level: int, depth: int, budget: int) -> list[str]:
        pad = self.indent * level
        out: list[str] = []
        for _ in range(self.rng.randrange(1, budget + 1)):
            if self.rng.random() < 0.12:
                out.append(
                    self.rng.choice((f"{pad}# about it", "", f"{pad}# dispatchguard: ignore", "\f"))
                )
            if depth > 0 and self.rng.random() < 0.4:
                clauses = self.rng.choice(BLOCKS).split("|")
                for clause in clauses:
                    *before, head = clause.split("~")
                    # What an `except` defines anew is no function of its own to the scout.
                    number = self.rng.randrange(1000)
                    head = re.sub(
                        r"(?<= )(inner|later|wrapped|Local)(?=\()", rf"\g<1>{number}", head
                    )
                    out.extend(pad + line for line in before)
                    out.append(pad + self.fill(head) + self.rng.choice(_TRAILERS))
                    out.extend(self.body(level + 1, depth - 1, 3))
            else:
                form = self.rng.choice(STATEMENTS)
                lines = self.fill(form).replace("$", "\n")
                out.append(pad + lines + self.rng.choice(_TRAILERS))
        return (
            out
            if any(line.strip() and line.strip()[0] != "#" for line in out)
            else [*out, pad + "pass"]
        )

    def module(self) -> str:
        rng, pad = self.rng, self.indent
        out = [_HEAD, "def helper(x: torch.Tensor, *args):", *self.body(1, 2, 4)]
        for number in range(rng.randrange(1, 3)):
            base = rng.choice(("nn.Module", "torch.nn.Module, Mixin", "Base", "torch.Tensor"))
            out += ["", f"class M{number}({base}):", f"{pad}def __init__(self, n):"]
            out += [
                f"{pad * 2}super().__init__()",
                f"{pad * 2}self.weight = nn.Parameter(torch.zeros(n))",
            ]
            out.append(f"{pad * 2}self.layers = nn.ModuleList([nn.Linear(n, n) for _ in range(3)])")
            for name in rng.sample(
                ["forward", "step", "__call__", "helper", "__torch_function__"], 2
            ):
                if rng.random() < 0.2:
                    out.append(
                        pad + rng.choice(("@property", "@torch.no_grad()", "@functools.cache"))
                    )
                word = "async def" if rng.random() < 0.1 else "def"
                out.append(
                    f"{pad}{word} {name}(self, x: torch.Tensor, y=None, *args, mask=None, **kwargs):"
                )
                if rng.random() < 0.3:
                    out.append(f'{pad * 2}"""Does it.\n\n  Odd: é.\n{pad * 2}"""')
                out += self.body(2, 3, 6)
        text = "\n".join(out) + rng.choice(("\n", "", "\n\n\f\n"))
        return text.replace("\n", rng.choice(_ENDS) if rng.random() < 0.4 else "\n")


def python(seed: int) -> str | None:
    """A random module; None where it came out as no Python."""
    text = Writer(random.Random(seed)).module()
    try:
        compile(text, "random.py", "exec", ast.PyCF_ONLY_AST)
    except SyntaxError:
        return None
    return text


@pytest.fixture(scope="module")
def rules() -> Catalog:
    return catalog(None)


def check(text: str, rules: Catalog, **settings: object) -> Outcome:
    return check_all({"pkg/mod.py": text}, rules, **settings)


def check_all(texts: Mapping[str, str], rules: Catalog, **settings: object) -> Outcome:
    files = tuple(File(str(ROOT / rel), rel, 0, 0, 0, 0) for rel in texts)
    config = Config(root=ROOT, pedantic=True, **settings)  # type: ignore[arg-type]  # by name
    with Pool(1) as pool:
        session = Session(config, lambda: rules, None, pool)
        return engine.run(session, Discovery(files, files), texts=texts)


def found(text: str, rules: Catalog) -> list[Finding]:
    outcome = check(text, rules)
    assert outcome.problems == ()
    return list(outcome.findings)


EXAMPLES = int(os.environ.get("DISPATCHGUARD_EXAMPLES", "20"))
SEEDS = st.integers(0, 2**32)
QUICK = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def test_most_random_modules_are_python() -> None:
    good = [seed for seed in range(60) if python(seed)]
    assert len(good) > 50


@QUICK
@given(SEEDS)
def test_the_scout_finds_each_function_where_it_stands(seed: int) -> None:
    text = python(seed)
    if text is None:
        return
    facts = scan.scan(text, "pkg.mod", False)
    assert facts.error is None
    data = text.encode()
    tree = ast.parse(text)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    # Two definitions of one name on one line cannot come about, so name and line tell them apart.
    wanted = sorted((n.name, n.lineno, _source(text, n)) for n in functions)
    got = sorted(
        (f.name.rpartition(".")[2], f.line, data[f.start_byte : f.end_byte].decode())
        for f in facts.functions
    )
    assert [g[:2] for g in got] == [w[:2] for w in wanted]
    for (_, _, mine), (_, _, theirs) in zip(got, wanted, strict=True):
        assert mine.startswith(theirs)
        rest = re.split("[\r\n\f]", mine[len(theirs) :])
        assert all(line.strip() == "" or line.lstrip()[0] == "#" for line in rest)


def _source(text: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The text of a function with its decorators, as Python itself places it."""
    begin = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    lines = re.split("(?<=\n)|(?<=\r)(?!\n)", text)
    assert node.end_lineno is not None and node.end_col_offset is not None
    last = lines[node.end_lineno - 1].encode()[: node.end_col_offset].decode()
    first = lines[begin - 1].encode()[node.col_offset :].decode()
    if begin == node.end_lineno:
        return last.encode()[node.col_offset :].decode()
    return "".join([first, *lines[begin : node.end_lineno - 1], last])


@QUICK
@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda b: b.decode("latin-1")))
def test_the_scout_takes_any_text(text: str) -> None:
    facts = scan.scan(text, "m", False)
    if facts.error is not None:
        line, column, message = facts.error
        assert line >= 1 and column >= 1 and message


@QUICK
@given(SEEDS, st.data())
def test_the_scout_and_the_judge_take_broken_files(seed: int, data: st.DataObject) -> None:
    text = Writer(random.Random(seed)).module()
    cut = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 60))
    outcome = check(text[:cut] + text[cut + length :], catalog(None))
    assert outcome.problems == ()


@QUICK
@given(SEEDS)
def test_rules_never_fail_and_say_places_that_are_there(seed: int) -> None:
    text = python(seed)
    if text is None:
        return
    for finding in found(text, catalog(None)):
        assert finding.code != "DG001", finding
        start, end = offsets(text, finding.span)
        assert start < end
        assert finding.message and "\n" not in finding.message
        if finding.fix is not None:
            apply_edits(text, finding.fix.edits)


# Names that lead to one another, and back to themselves: § is a name, ¤ a module.
_TANGLES = """
from ¤ import A|from ¤ import B as A|from ¤ import *|from ¤ import f|from ¤ import f as g|import ¤
A = §|B = §|f = §|g = §|A.x = §|B.y = §|f.x = §|g = f(§)|A.x = A.y = B|A, B = B, A
def f(x): return §|def f(x): return f(§)(x)|def g(f): return f(x) if f else §|def g(x): return lambda: §
def f(x: A = §) -> B: return x.x(x.y)|async def g(x: "B"): return await x.y(§)|@§~def f(x): return g(x)
class A(§): x = §|class A(B): y = §|class B(A): x = §|@§~class B(A, §): x = A.x|class B(§): A = A
class A(torch.nn.Module):~  y = §~  def forward(self, x): return self.x(§), self.y.x(x)
class B(A):~  x = §~  def forward(self, x): return super().forward(self.y(x)).item()
class A(B):~  def __init__(self): self.y = self.x = §; self.z = A(§)~  forward = x = §
class A(B):~  @property~  def x(self): return self.y~  @property~  def y(self): return self.x
class B(torch.nn.Module):~  def __getattr__(self, x): return getattr(§, x)~  def f(self, x): return self.y
class A(B):~  def __call__(self, x): return self.x(x)~  x = staticmethod(§)~  y = classmethod(§)
"""
_NAMES = (
    "A|B|f|g|A.x|B.y|A.x.y|f.x|m0.A|m1.B.x|m2.f|self.x|self.y|A()|B(A).x|f(g)|f(A)().x|super().x"
)


class Tangler:
    """Writes projects of three modules in which names stand for one another."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines = "|".join(lines_of(_TANGLES)).split("|")

    def line(self) -> str:
        text = self.rng.choice(self.lines).replace("~", "\n")
        while "§" in text:
            text = text.replace("§", self.rng.choice(_NAMES.split("|")), 1)
        return text.replace("¤", f"m{self.rng.randrange(3)}")

    def project(self) -> dict[str, str]:
        lines = [[self.line() for _ in range(self.rng.randrange(1, 8))] for _ in range(3)]
        return {f"m{i}.py": "\n".join(["import torch", *ls, ""]) for i, ls in enumerate(lines)}


@QUICK
@given(SEEDS)
def test_names_that_lead_round_in_circles_come_to_an_end(seed: int) -> None:
    texts = Tangler(random.Random(seed)).project()
    for text in texts.values():
        ast.parse(text)
    outcome = check_all(texts, catalog(None))
    assert outcome.problems == ()


@QUICK
@given(SEEDS)
def test_the_same_text_gives_the_same_findings(seed: int) -> None:
    text = python(seed)
    if text is not None:
        assert check(text, catalog(None)) == check(text, catalog(None))


def unsuppressed(text: str) -> str:
    """Without the comments that are there already, which would hide some of the findings."""
    for word in ("dispatchguard: ignore[DG4] -- why", "dispatchguard: ignore", "noqa: DG999"):
        text = text.replace(word, "...")
    return text


def newline_of(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\r" if "\r" in text else "\n"


@QUICK
@given(SEEDS)
def test_suppressing_every_finding_leaves_none(seed: int) -> None:
    text = python(seed)
    if text is None:
        return
    rules = catalog(None)
    quiet = unsuppressed(text)
    before = found(quiet, rules)
    codes = sorted({f.code for f in before})
    if not codes:
        return
    newline = newline_of(quiet)
    whole = f"# dispatchguard: ignore-file[{', '.join(codes)}]{newline}{quiet}"
    outcome = check(whole, rules)
    assert outcome.findings == ()
    assert len(outcome.suppressed) == len(before)


@QUICK
@given(SEEDS)
def test_a_comment_on_the_line_suppresses_what_is_there(seed: int) -> None:
    text = python(seed)
    if text is None:
        return
    rules = catalog(None)
    text = unsuppressed(text)
    before = found(text, rules)
    if not before:
        return
    newline = newline_of(text)
    lines = text.split(newline)
    at: dict[int, set[str]] = {}
    for finding in before:
        at.setdefault(finding.span.line, set()).add(finding.code)
    for line, codes in at.items():
        body, _, comment = lines[line - 1].partition("  #")
        lines[line - 1] = f"{body}  # dispatchguard: ignore[{', '.join(sorted(codes))}]" + (
            f"  # {comment}" if comment else ""
        )
    after = found(newline.join(lines), rules)
    assert after == []


@QUICK
@given(SEEDS, st.sampled_from([("safe",), ("safe", "unsafe")]))
def test_fixes_keep_the_file_python_and_come_to_an_end(
    seed: int, safeties: tuple[str, ...]
) -> None:
    text = python(seed)
    if text is None:
        return
    rules = catalog(None)
    seen = [text]
    for _ in range(12):
        findings = found(text, rules)
        done = fix(text, findings, safeties)  # type: ignore[arg-type]  # literals
        if not done.made:
            break
        _same_outside(text, done.text, done.made)
        text = done.text
        compile(text, "fixed.py", "exec", ast.PyCF_ONLY_AST)
        assert text not in seen, "fixes go in circles"
        seen.append(text)
    else:
        pytest.fail("fixes come to no end")


def _same_outside(before: str, after: str, made: tuple[Finding, ...]) -> None:
    """Between the edits the text is the same to the character."""
    edits = sorted(
        {e for f in made if f.fix is not None for e in f.fix.edits}, key=lambda e: e.span
    )
    at = done = 0
    end_of_line = "\r\n" if before.partition("\n")[0].endswith("\r") else "\n"
    for edit in edits:
        start, end = offsets(before, edit.span)
        kept = before[done:start]
        assert after[at : at + len(kept)] == kept
        at += len(kept)
        put = re.sub(r"(?<!\r)\n", end_of_line, edit.replacement)
        assert after[at : at + len(put)] == put
        at += len(put)
        done = end
    assert after[at:] == before[done:]
    assert json.dumps(after)
