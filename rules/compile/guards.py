"""DG705: guards that make the compiler compile once per instance."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from pytest_dispatchguard import Decorated, Finding, Place, Rule, nodes

_INDEX_NAME = re.compile(r"(?:.*_)?(?:idx|index|layer_id|block_id|layer_number|layer_num|depth_id)")


def _self_reads(self_name: str, body: cst.CSTNode) -> dict[str, cst.Attribute]:
    """Where each attribute of self is first read."""
    found: dict[str, cst.Attribute] = {}
    for node in nodes.walk(body):
        of_self = isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name)
        if of_self and node.value.value == self_name:
            found.setdefault(node.attr.value, node)
    return found


class NumberGuardInCompiledForward(Rule):
    """A compiled method reads a number that differs between instances: each instance is compiled separately.

    ## What it does

    Finds methods decorated with `torch.compile` that read an index of the instance (`self.layer_idx`), set
    in `__init__` from an argument. With `--pedantic`, any number set from an argument.

    ## Why it costs

    The compiled code is shared by all instances and guarded on the number: each new value means another
    compilation, every call walks the guards of the entries before its own, and beyond the recompile limit
    the method runs uncompiled.

    ## Example

    ```python
    class Block(nn.Module):
        def __init__(self, layer_idx: int):
            super().__init__()
            self.layer_idx = layer_idx

        @torch.compile
        def forward(self, x, cache):
            return x + cache[self.layer_idx]
    ```

    ## Instead

    ```python
    class Block(nn.Module):
        @torch.compile
        def forward(self, x, entry):
            return x + entry
    ```

    Look up what depends on the number outside, and pass it in; or hold the number in a buffer.

    ## Fix safety

    No fix: the callers change too.
    """

    code = "DG705"
    name = "number-guard-in-compiled-forward"
    origin = "pytorch#171598"
    looks_for = Decorated("compile")

    def judge(self, node: cst.FunctionDef, place: Place) -> Iterator[Finding]:
        """Numbers of self in a method decorated with torch.compile."""
        decorators = (d.decorator for d in node.decorators)
        written = (place.dotted(d.func if isinstance(d, cst.Call) else d) for d in decorators)
        if not place.self_name or not any(w == "torch.compile" for w in written):
            return
        for name, read in _self_reads(place.self_name, node.body).items():
            values = place.attribute_values(name)
            if not values or not all(v in ("ann:int", "ann:float") for v in values):
                continue
            sure = _INDEX_NAME.fullmatch(name) is not None and set(values) == {"ann:int"}
            yield place.finding(
                read,
                f"`{place.text(read)}` is a number that differs between instances, read in a compiled "
                "method: its guard makes the compiler recompile for each value; compute what depends on it "
                "outside the compiled method, and pass that in",
                certainty="sure" if sure else "maybe",
            )
