"""DG619: einops, which reads its patterns in Python on every call."""

from __future__ import annotations

import re

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Place, Rule

_FUNCTIONS = frozenset({"rearrange", "reduce", "repeat"})
_TOKENS = re.compile(r"\(|\)|[A-Za-z]\w*|\S")
_NAME = re.compile(r"[A-Za-z]\w*")
_MOST_STEPS = 2
"""Functions of torch in place of one of einops, at most, that are surely cheaper."""


class EinopsPerCall(Rule):
    """`einops.rearrange`, `repeat` or `reduce` is called in hot code.

    ## What it does
    Finds calls of these functions in what runs per call. It is a note: the pattern also says what the axes
    are, and only the author knows what that is worth.

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
    Unsafe, and offered where axes are only moved and joined: einops also checks how many dimensions there
    are.
    """

    code = "DG619"
    name = "einops-per-call"
    also_compiled = False
    origin = "stable-diffusion-webui#15804"
    looks_for = Call(*_FUNCTIONS, place="imported")
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A call of einops, with what torch has for it."""
        name = place.name(node)
        given = place.argument(node, 0, "tensor")
        if name.partition(".")[0] != "einops" or name.rpartition(".")[2] not in _FUNCTIONS:
            return None
        if given is None or not place.per_call or place.kind(given).cls == "numpy":
            return None
        steps = _in_torch(node, place)
        shown = f"`{place.short(given, 24)}{steps}`" if steps else "`permute`, `flatten`, `expand`"
        return place.finding(
            node,
            f"`{place.short(node)}` reads its pattern in Python on every call, which takes about as long as "
            f"the work of torch does again; {shown} {'does' if steps else 'and the like do'} without",
            certainty="note",
            fix=_fix(node, given, steps, place) if steps else None,
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


def _fix(node: cst.Call, given: cst.BaseExpression, steps: str, place: Place) -> Fix | None:
    if not place.is_tensor(given) or "#" in place.text(node):
        return None
    plain = isinstance(given, cst.Name | cst.Attribute | cst.Call | cst.Subscript)
    text = place.text(given) if plain or given.lpar else f"({place.text(given)})"
    return place.replace(
        node,
        text + steps,
        safety="unsafe",
        message="Does not check the number of dimensions, as einops does",
    )
