"""Counters of rounds in conditions, by their names, and which rounds are the first, the last, or few."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable

COUNTER = re.compile(r"step|iter|epoch|batch|idx|index|count|^i$|^n$|(?:^|_)itr?$", re.IGNORECASE)


def dotted(node: ast.expr) -> str:
    """``a.b.c`` as written; empty for any other expression."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    parts.append(node.id)
    return ".".join(reversed(parts))


_TOTAL = re.compile(
    r"(?:num|total|max|n)_\w*(?:steps?|iters?|iterations|batches|epochs?|rounds)\w*|"
    r"(?:steps|batches|iters)_per_\w+"
)
"""How many rounds there are."""
_TOTAL_BATCH = re.compile(r"(?:total|num)_batch")


def is_last_round(left: ast.expr, right: ast.expr) -> bool:
    """Whether a counter is compared with how many rounds there are, or with the last of them."""
    if isinstance(right, ast.BinOp) and isinstance(right.op, ast.Sub):
        right = right.left
    if isinstance(right, ast.Call) and dotted(right.func) == "len" and right.args:
        total = re.search("load|batches", dotted(right.args[0])) is not None
    else:
        total = _TOTAL.fullmatch(dotted(right).rpartition(".")[2]) is not None
    if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add):
        # `i + 1 == total_batch`: what else is called so is a size.
        total = total or _TOTAL_BATCH.fullmatch(dotted(right).rpartition(".")[2]) is not None
        left = left.left
    return total and COUNTER.search(dotted(left).rpartition(".")[2]) is not None


def is_first_round(node: ast.expr) -> bool:
    """Whether a counter is asked to be zero, or one of the first: ``it == 0``, ``step <= 100``."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return False
    op, first = node.ops[0], node.comparators[0]
    counter = COUNTER.search(dotted(node.left).rpartition(".")[2]) is not None
    if not (counter and isinstance(first, ast.Constant) and type(first.value) is int):
        return False
    return first.value == 0 if isinstance(op, ast.Eq) else isinstance(op, ast.Lt | ast.LtE)


_ROUND = re.compile(
    r"_?(?:(?:global|cur|current|train|training)_)?(?:step|iteration|iter|epoch)(?:_(?:idx|num|no|id))?|"
    r"batch_(?:idx|nb|num)"
)


_START = re.compile(r"_?(?:\w+_)?(?:start|begin|first)(?:ing)?_(?:step|iter|iteration|idx|index)")


def is_one_round(left: ast.expr, right: ast.expr) -> bool:
    """Whether a counter of steps is compared with a number, or with the first of some: ``step == 1``,
    ``step == start_step``."""
    number = isinstance(right, ast.Constant) and type(right.value) is int
    one = number or _START.fullmatch(dotted(right).rpartition(".")[2]) is not None
    return one and _ROUND.fullmatch(dotted(left).rpartition(".")[2]) is not None


def is_one_of(node: ast.expr, beside: Iterable[ast.expr]) -> bool:
    """Whether a condition is about one round of what another beside it counts: ``step == total`` beside
    ``step % log_every == 0``."""
    counted = (one.left for one in beside if isinstance(one, ast.Compare))
    counters = {
        _plain(one.left)
        for one in counted
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod)
    } - {""}
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.Eq)
        and not counters.isdisjoint({_plain(node.left), _plain(node.comparators[0])})
    )


def _plain(node: ast.expr) -> str:
    """The counter that an expression is, or is one more or less than: `step` of ``step + 1``."""
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
        return dotted(node.left) if isinstance(node.op, ast.Add | ast.Sub) else ""
    return dotted(node)


_ROUNDS_TO_LOG = re.compile(
    r"(?:log|save|print|eval|plot|display|checkpoint|ckpt|snapshot|report)\w*_(?:steps?|iters?|iterations|epochs?|at)"
)


def are_few_rounds(left: ast.expr, right: ast.expr) -> bool:
    """Whether a counter is looked up among the rounds in which something is shown or saved:
    ``it in self.log_iters``."""
    counter = COUNTER.search(dotted(left).rpartition(".")[2]) is not None
    return counter and _ROUNDS_TO_LOG.fullmatch(dotted(right).rpartition(".")[2]) is not None


_INTERVAL = re.compile(
    r"log|print|report|save|ckpt|checkpoint|eval|plot|display|visual|interval|every|freq|period|"
    r"(?:steps|iters|iterations|batches|updates)_per_(?:epoch|scale|stage|phase|cycle|round|run|update)|"
    r"viz|snapshot|summary|valid|status|monitor|division|wandb|tensorboard|"
    r"(?<![a-z])(?:val|vis|dump|render|tick)(?![a-z])",
    re.IGNORECASE,
)
_DIVIDES = re.compile(r"_?(?:is_)?(?:evenly_)?divisible(?:_by)?")
"""The name of a function that says whether its first argument is a multiple of the second."""
ENDS = re.compile(r"_?(?:is_)?(?:done|finished|stop(?:ped|ping)?|final)(?:_\w+)?")
"""Says that there is no further round."""


def is_one_step(name: str) -> str:
    """How it is said of a period that it is one step unless somebody asks for less."""
    return f"{name} is 1"


def _counter_of(node: ast.expr) -> str:
    """The last part of a name, or the key under which a value is held: ``state["step"]``,
    ``kwargs.get("step")``."""
    key: ast.expr | None = None
    if isinstance(node, ast.Subscript):
        key = node.slice
    elif isinstance(node, ast.Call) and dotted(node.func).endswith(".get") and node.args:
        key = node.args[0]
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return key.value
    return dotted(node).rpartition(".")[2]


def is_of_few_rounds(node: ast.expr, assigned: Collection[str]) -> bool:
    """``step % log_every``: true on all but few steps."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)):
        return False
    left = _counter_of(node.left)
    if not left and isinstance(node.left, ast.BinOp):
        left = _counter_of(node.left.left)
    if is_one_step(dotted(node.right)) in assigned and "epoch" not in left:
        return False
    if isinstance(node.right, ast.Constant):
        big = isinstance(node.right.value, int) and node.right.value >= 10
        return big and COUNTER.search(left) is not None
    return _INTERVAL.search(dotted(node.right)) is not None


PERIOD = re.compile(r"(?<![a-z])(?:interval|every|freq(?:uency)?|period)(?![a-z])", re.IGNORECASE)
"""How many steps there are from one round of something to the next, by its name."""
_ASKS_THE_TIME = re.compile(
    r"_?(?:is|should|do|due|time_to|every|needs?|must|at|on)(?:_\w+)?|_?(?:\w+_)?every(?:_\w+)?"
)
"""The name of a function that says whether a step is one of few, given the step and a period."""


def remainder(node: ast.Call) -> ast.BinOp | None:
    """What ``divisible_by(step, log_every)`` compares with zero, ``step % log_every``, or what
    ``should_log(step, config.log_every)`` and ``self.every_n_steps(trainer, self.interval)`` will."""
    last = dotted(node.func).rpartition(".")[2]
    if len(node.args) == 2 and _DIVIDES.fullmatch(last):
        return ast.BinOp(node.args[0], ast.Mod(), node.args[1])
    if len(node.args) < 2 or not _ASKS_THE_TIME.fullmatch(last):
        return None
    period = next((a for a in node.args[1:] if PERIOD.search(dotted(a).rpartition(".")[2])), None)
    return None if period is None else ast.BinOp(node.args[0], ast.Mod(), period)
