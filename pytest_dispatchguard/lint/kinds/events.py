"""The kinds of places in code that a rule may ask to see."""

from __future__ import annotations

from typing import Literal

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
