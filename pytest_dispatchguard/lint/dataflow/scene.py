"""Where a node is in its function, and the nodes that rules may ask to see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import libcst as cst

Event = Literal[
    "call",
    "truth",
    "with",
    "loop",
    "iterate",
    "getitem",
    "setitem",
    "assign",
    "attribute",
    "attribute-write",
    "import",
    "fstring",
    "lambda",
    "def",
    "class",
    "function",
    "comparison",
    "comprehension",
    "helper-call",
]


@dataclass(frozen=True, slots=True)
class Scene:
    """What surrounds a place."""

    function: cst.FunctionDef
    qualname: str
    statement: cst.CSTNode
    loops: tuple[cst.CSTNode, ...] = ()
    """For and while statements and comprehensions around it in its own function, outermost first."""
    cold: bool = False
    seldom: bool = False
    """Cold because it runs in one of several rounds: loops over all batches there are hot all the same."""
    conditions: tuple[tuple[cst.BaseExpression, bool], ...] = ()
    """Conditions of the enclosing ifs, and whether the place is where they hold."""
    withs: tuple[cst.With, ...] = ()
    tries: tuple[cst.Try | cst.TryStar, ...] = ()
    block: tuple[cst.CSTNode, ...] = ()
    """The statements of the block that holds the statement."""
    deferred: bool = False
    """Inside a lambda."""

    def at(self, statement: cst.CSTNode, block: tuple[cst.CSTNode, ...]) -> Scene:
        """The same surroundings at a statement of a block."""
        return Scene(
            self.function, self.qualname, statement, self.loops, self.cold, self.seldom, self.conditions,
            self.withs, self.tries, block, self.deferred,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """One event: a node that a rule may ask for."""

    event: Event
    node: cst.CSTNode
    scene: Scene
    name: str = ""
