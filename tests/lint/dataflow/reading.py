"""Reads a function given as text, and shows the kinds of the values it passes to `show(...)`."""

from __future__ import annotations

import textwrap

import libcst as cst

from pytest_dispatchguard.lint.callgraph import build
from pytest_dispatchguard.lint.dataflow.reader import Reader
from pytest_dispatchguard.lint.dataflow.statements import read_function
from pytest_dispatchguard.lint.facts import Brief
from pytest_dispatchguard.lint.hotness import solve
from pytest_dispatchguard.lint.judge import briefs, judge
from pytest_dispatchguard.lint.kinds.kinds import Kind
from pytest_dispatchguard.lint.scout import scan
from pytest_dispatchguard.lint.syntax import chunks

HEAD = """
from __future__ import annotations
import math
from typing import Dict, List, Optional, Tuple, Union
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
"""


def project_brief(source: str) -> tuple[str, Brief]:
    whole = HEAD + textwrap.dedent(source)
    made = build.build({"mod.py": scan.scan(whole, "mod", False)})
    return whole, briefs.Briefer(made, solve.solve(made)).brief("mod.py")


def read(source: str) -> Reader:
    """The reader after reading the hot function (or method) of the source that calls `show`."""
    whole, brief = project_brief(source)
    facts = scan.scan(whole, "mod", False)
    lines = chunks.Lines(whole)
    for outline in chunks.worth_judging(facts, brief.hot, (), {}, (), frozenset({"call:show"})):
        return read_function(judge.Chunk(lines, outline).function, brief, outline.name)
    raise AssertionError("no hot function calls show")


def shown(source: str) -> list[Kind]:
    """The kinds of what is given to `show(...)`, call by call, in the order of reading."""
    reader = read(source)
    calls = [e.node for e in reader.events if e.event == "call" and e.name == "show"]
    return [reader.kinds[id(a.value)] for c in calls if isinstance(c, cst.Call) for a in c.args]


def body(statements: str, params: str = "x: torch.Tensor") -> str:
    inner = textwrap.indent(textwrap.dedent(statements), "    ")
    return f"# dispatchguard: hot\ndef f({params}):\n{inner}\n"


def word(kind: Kind) -> str:
    """A kind in one word: what it is, `?` where nobody is sure, `@cpu` where it surely is there."""
    name = kind.what + ("" if kind.sure or kind.what == "unknown" else "?")
    if kind.host:
        name += "@cpu"
    if kind.roaming:
        name += "@any"
    return name + ("|none" if kind.optional else "")


def words(source: str) -> list[str]:
    return [word(k) for k in shown(source)]
