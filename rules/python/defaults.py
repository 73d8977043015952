"""DG620: defaults that are computed whether they are needed or not."""

from __future__ import annotations

import re
from functools import partial

import libcst as cst

from pytest_dispatchguard import Call, Finding, Place, Rule, nodes

from ..allocations.data import FACTORIES, LIKE
from ..allocations.devices import is_device
from ..source_text import computes_the_last_argument
from ..syntax import is_word

_MAKES = FACTORIES | LIKE | {"torch.as_tensor", "torch.cat", "torch.stack", "torch.tensor"}
_NEW = frozenset({"new_full", "new_ones", "new_tensor", "new_zeros"})
_COMPUTES = frozenset(
    "argmax argmin clone cpu cuda cumsum exp float item log long max mean min norm numpy repeat sigmoid "
    "softmax sqrt std sum to tolist".split()
)
"""Methods of tensors that launch something, or wait."""


_LOOK_UP = ("get", "pop", "setdefault")
_NO_TABLE = re.compile(r"client|http|queue|requests|session", re.IGNORECASE)
"""What has methods of these names that look nothing up, by its name."""


class DefaultComputed(Rule):
    """A default is computed on every call, also where it is not needed.

    ## What it does

    Finds `batch.get("mask", torch.ones(n, device=x.device))`, `kwargs.pop("scale", x.mean())`,
    `cache.setdefault(key, table.to(device))` and `getattr(self, "weight", torch.zeros(n))` in hot code: what
    is given in place of a missing value launches kernels, or waits, and Python evaluates it before it looks.
    It is a note: only the author knows how often the value is there.

    ## Why it costs

    Arguments are evaluated before the call. Where the value is there, which is what the lookup is for, the
    kernels, the memory and the wait are in vain.

    ## Example

    ```python
    mask = batch.get("mask", torch.ones(x.shape[:2], device=x.device))
    ```

    ## Instead

    ```python
    mask = batch.get("mask")
    if mask is None:
        mask = torch.ones(x.shape[:2], device=x.device)
    ```

    ## Fix safety

    No fix: a value that is there may be `None`.
    """

    code = "DG620"
    name = "default-computed"
    also_compiled = False
    origin = "efficientdet-pytorch#DetBenchEval"
    looks_for = (
        Call(*_LOOK_UP, arguments=2).where(partial(computes_the_last_argument, names=_LOOK_UP)),
        Call("getattr", arguments=3).where(partial(computes_the_last_argument, names=("getattr",))),
    )

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A lookup with a default that is computed."""
        if any(a.star or a.keyword is not None for a in node.args):
            return None
        if place.last_name(node) == "getattr":
            known = place.name(node) == "getattr" and len(node.args) == 3
        else:
            receiver = place.receiver(node)
            known = (
                receiver is not None
                and len(node.args) == 2
                and not place.is_tensor(receiver)
                and not _NO_TABLE.search(place.text(receiver))
                and not is_word(node.args[0].value, "True", "False")
            )
        if not known:
            return None
        default = node.args[-1].value
        made = next((one for one in nodes.walk(default, (cst.Lambda,)) if _costs(one, place)), None)
        if made is None:
            return None
        return place.finding(
            node,
            f"`{place.short(default)}` is computed on every call, also where "
            f"`{place.short(node.args[-2].value)}` is there; look first, and compute it only where "
            "nothing is found",
            certainty="note",
        )


def _costs(node: cst.CSTNode, place: Place) -> bool:
    """Whether an expression launches something, or waits for the device."""
    if not isinstance(node, cst.Call):
        return False
    if place.name(node) in _MAKES:
        return True
    receiver = place.receiver(node)
    last = place.last_name(node)
    if receiver is None:
        return False
    to = last == "to" and any(is_device(argument.value, place) for argument in node.args)
    moves = to or (last == "cuda" and not place.kind(receiver).not_tensor)
    return moves or (last in _COMPUTES | _NEW and place.is_tensor(receiver))
