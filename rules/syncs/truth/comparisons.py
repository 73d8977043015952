"""DG429: `torch.equal` and `allclose` compare whole tensors."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Call, Finding, Place, Rule, weaker

from ..data_flow import selectable
from ..waits import asked, device_input, only_raises


class CompareWholeTensors(Rule):
    """`torch.equal` or `allclose` makes the host wait for the device.

    ## What it does

    Finds `allclose` of device tensors in hot code. `equal` is a note: for a tensor and itself, and for
    different shapes, it answers without the device.

    ## Why it costs

    Both give a Python bool: the host waits until the device has compared.

    ## Example

    ```python
    if not torch.allclose(a, b):
        x = x + 1
    ```

    ## Instead

    ```python
    x = torch.where(torch.isclose(a, b).all(), x, x + 1)
    ```

    ## Fix safety

    No fix: only the author knows what depends on the answer.
    """

    code = "DG429"
    name = "compare-whole-tensors"
    origin = "pytorch#36853"
    looks_for = Call("equal", "allclose", place="torch")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """The first comparison of a statement."""
        worked_on = device_input(node, place)
        if worked_on is None or any(place.kind(a.value).host for a in node.args):
            return None
        if any(place.kind(a.value).not_tensor for a in node.args[:2] if a.keyword is None):
            return None
        if not _first_of(node, place):
            return None
        who = asked(node, place)
        branches = who.asker in ("if", "while", "filter")
        last = place.last_name(node)
        # Of one tensor twice, or of unlike shapes, `equal` answers without the device; who asks it may mean
        # just that, and `(a == b).all()` raises then.
        if last == "equal" or (
            branches and not only_raises(who.by) and not selectable(who.by, place)
        ):
            worked_on = (worked_on[0], weaker(worked_on[1], "note"))
        how = "(a == b).all()" if last == "equal" else "torch.isclose(a, b).all()"
        keep = f"Keep the result on the device (`{how}`), or track on the host what changed."
        if who.asker == "assert" or only_raises(who.by):
            keep = f"Check on the device (`torch._assert_async({how})`), or only behind a debug option."
        if last == "equal":
            keep += " That needs equal shapes."
        return place.finding(
            node,
            f"`{place.short(node)}` returns a Python bool, so the host waits for the device to "
            f"compare. {keep}",
            certainty=worked_on[1],
        )


def _first_of(node: cst.Call, place: Place) -> bool:
    """Whether a comparison is the first of its statement: one place, one finding."""
    first = next(c for c, s in place.calls("equal", "allclose") if s.statement is place.statement)
    return first is node
