"""DG619: einops, which works through its patterns in Python on every call."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Place, Rule

from ..syntax import contains

_FUNCTIONS = frozenset({"rearrange", "reduce", "repeat"})
_TOKENS = re.compile(r"\(|\)|[A-Za-z]\w*|\S")
_NAME = re.compile(r"[A-Za-z]\w*")
_MOST_STEPS = 2
"""Functions of torch in place of one of einops, at most, that are surely cheaper."""


class EinopsPerCall(Rule):
    """`einops.rearrange`, `repeat` or `reduce` is called in hot code.

    ## What it does
    Finds calls of these functions in what runs per call, and tells the first of each function. It is a note:
    the pattern also says what the axes are, and only the author knows what that is worth.

    ## Why it costs
    Every call makes a key of the pattern, the axes and the shape, looks up a recipe, and runs it through
    several Python functions: about twice the time of the functions of torch that do the same, on top of
    them. Compiled code pays for that only while it is traced.

    ## Example
    ```python
    out = rearrange(out, "b h n d -> b n (h d)")
    ```

    ## Instead
    ```python
    out = out.transpose(1, 2).flatten(2)
    ```

    ## Fix safety
    Unsafe, and offered where all calls of a function only move and join axes: einops also checks how many
    dimensions there are.
    """

    code = "DG619"
    name = "einops-per-call"
    also_compiled = False
    origin = "stable-diffusion-webui#15804"
    looks_for = Call(*_FUNCTIONS, place="imported")
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """The first call of einops in a function, with what torch has for it and for others."""
        calls = [
            call
            for call, scene in place.calls(*_FUNCTIONS)
            if scene.function is place.function and not scene.cold and _is_of_einops(call, place)
        ]
        if not calls or calls[0] is not node or not place.per_call:
            return None
        more = f" and {len(calls) - 1} more of einops" if len(calls) > 1 else ""
        takes, patterns = ("take", "their patterns") if more else ("takes", "its pattern")
        steps = _in_torch(node, place)
        given = place.argument(node, 0, "tensor")
        instead = "`permute`, `flatten`, `expand` and the like do without"
        if steps and given is not None:
            instead = f"`{place.short(given, 24)}{steps}` does without"
        return place.finding(
            node,
            f"`{place.short(node)}`{more} {takes} {patterns} through several Python functions on every call, "
            f"about as long again as the work of torch; {instead}",
            certainty="note",
            fix=_fix(calls, place),
        )


def _is_of_einops(call: cst.Call, place: Place) -> bool:
    """Whether a call rearranges what may be a tensor."""
    root, _, last = place.name(call).partition(".")
    given = place.argument(call, 0, "tensor")
    return (
        root == "einops"
        and last.rpartition(".")[2] in _FUNCTIONS
        and given is not None
        and place.kind(given).cls != "numpy"
    )


def _in_torch(node: cst.Call, place: Place) -> str:
    """The methods that move and join axes as a pattern says; empty where it does more."""
    pattern = place.argument(node, 1, "pattern")
    if len(node.args) != 2 or not isinstance(pattern, cst.SimpleString):
        return ""
    written = pattern.evaluated_value
    if not isinstance(written, str) or place.name(node).rpartition(".")[2] != "rearrange":
        return ""
    before, arrow, after = written.partition("->")
    left, right = _axes(before), _axes(after)
    if not arrow or left is None or right is None or any(len(group) != 1 for group in left):
        return ""
    names = [group[0] for group in left]
    order = [name for group in right for name in group]
    if sorted(order) != sorted(names) or len(set(names)) != len(names):
        return ""
    steps = [_moved([names.index(name) for name in order])]
    at = len(order)
    for group in reversed(right):
        end, at = at, at - len(group)
        if len(group) > 1:
            steps.append(f".flatten({at})" if end == len(order) else f".flatten({at}, {end - 1})")
    steps = [step for step in steps if step]
    return "".join(steps) if 0 < len(steps) <= _MOST_STEPS else ""


def _axes(side: str) -> list[tuple[str, ...]] | None:
    """The axes of one side of a pattern, those in brackets together; None where it has more than names."""
    found: list[tuple[str, ...]] = []
    inside: list[str] | None = None
    for token in _TOKENS.findall(side):
        if token == "(" and inside is None:
            inside = []
        elif token == ")" and inside:
            found.append(tuple(inside))
            inside = None
        elif not _NAME.fullmatch(token):
            return None
        elif inside is None:
            found.append((token,))
        else:
            inside.append(token)
    return found if inside is None else None


def _moved(order: list[int]) -> str:
    """The method that brings axes into an order; empty where they are."""
    moved = [i for i, axis in enumerate(order) if i != axis]
    if not moved:
        return ""
    if len(moved) == 2:
        return f".transpose({moved[0]}, {moved[1]})"
    return f".permute({', '.join(map(str, order))})"


def _fix(calls: Sequence[cst.Call], place: Place) -> Fix | None:
    """The methods of torch in place of all calls of a function; None where they do not do for each: who reads
    one pattern wants to read the others, too."""
    edits = []
    for call in calls:
        given, steps = place.argument(call, 0, "tensor"), _in_torch(call, place)
        if given is None or not steps or not place.is_tensor(given) or "#" in place.text(call):
            return None
        if any(contains(given, other) for other in calls if other is not call):
            return None
        plain = isinstance(given, cst.Name | cst.Attribute | cst.Call | cst.Subscript)
        text = place.text(given) if plain or given.lpar else f"({place.text(given)})"
        edits.append((call, text + steps))
    message = "Does not check the number of dimensions, as einops does"
    return place.edits(edits, safety="unsafe", message=message)
