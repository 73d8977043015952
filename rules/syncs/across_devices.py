"""DG443: writes into a tensor of the other side, of the device or of the host."""

from __future__ import annotations

import re

import libcst as cst

from pytest_dispatchguard import Call, Certainty, Finding, Place, Rule, Setitem

from ..allocations.computed import of_numbers
from ..allocations.data import COPIED, FACTORIES, FROM_DATA, is_constant_table, is_number
from ..allocations.devices import makes_tensors_there
from ..allocations.uses import is_for_nothing, looked_at
from ..syntax import has_default, is_word, subscripts_written
from .host_code import gives_data, works_on_host


class WriteAcrossDevices(Rule):
    """What is on the device is written into a tensor of the CPU, or the other way round.

    ## What it does

    Finds `x.copy_(y)` and `x[i] = y` in hot code where the function itself makes one of the two on the CPU,
    and the other may be on the device. It is a finding where a single number is kept in every iteration of a
    loop, and where the device could make itself what is written, from numbers; elsewhere a note: a result
    that is too large for the device has to be on the CPU. `copy_(…, non_blocking=True)` is left alone,
    what is called `…_cpu`, `…_host` or `pinned_…`, and parameters that have a default: a constant, perhaps.

    ## Why it costs

    The write is a copy between device and host, and the host waits until the device has worked off its
    queue and made it: in a loop once for each iteration.

    ## Example

    ```python
    losses = torch.zeros(steps)
    for step in range(steps):
        losses[step] = model(batch[step]).mean()
    ```

    ## Instead

    ```python
    losses = torch.zeros(steps, device=device)
    for step in range(steps):
        losses[step] = model(batch[step]).mean()
    losses = losses.cpu()
    ```

    ## Fix safety

    No fix: only the author knows where the tensor is needed.
    """

    code = "DG443"
    name = "write-across-devices"
    origin = "fairseq#48d9afbe"
    looks_for = (Call("copy_"), Setitem())

    def judge(
        self, node: cst.Call | cst.Assign | cst.AnnAssign | cst.AugAssign, place: Place
    ) -> Finding | None:
        """A copy, or an assignment to a part of a tensor."""
        if works_on_host(place) or is_for_nothing(place) or makes_tensors_there(place):
            return None
        if isinstance(node, cst.Call):
            into, value = place.receiver(node), place.argument(node, 0, "src")
            later = place.argument(node, 1, "non_blocking")
            if later is not None and not is_word(later, "False"):
                return None
        else:
            written = subscripts_written(node)
            if isinstance(node, cst.AugAssign) or len(written) != 1:
                return None
            into, value = written[0].value, node.value
            if value is not None and place.kind(value).host and place.kind(value).ndim == 0:
                return None  # a row is filled with a number of the CPU
        if into is None or value is None:
            return None
        here, given = place.kind(into), place.kind(value)
        if not (here.is_tensor and here.sure and given.is_tensor and given.sure):
            return None
        if (
            here.host
            and given.on_device
            and _made_here(into, place)
            and not has_default(value, place)
        ):
            return self._to_the_host(node, into, value, place)
        return self._to_the_device(node, value, place) if here.on_device and given.host else None

    def _to_the_host(
        self, node: cst.CSTNode, into: cst.BaseExpression, value: cst.BaseExpression, place: Place
    ) -> Finding:
        loop = place.loops[-1] if place.loops else None
        fits = place.kind(value).ndim == 0 and loop is not None and not looked_at(into, loop)
        every = " in every iteration" if place.loops else ""
        name = place.short(into, 32)
        instead = (
            f"Make `{name}` there (`device=`), and move it once, after the loop."
            if fits
            else f"If the device has room for it, make `{name}` there, and move it once at the end."
        )
        return place.finding(
            node,
            f"`{name}` is on the CPU: `{place.short(value)}` is copied from the device{every}, and the host "
            f"waits for it. {instead}",
            certainty="sure" if fits else "note",
        )

    def _to_the_device(
        self, node: cst.CSTNode, value: cst.BaseExpression, place: Place
    ) -> Finding | None:
        certainty, instead = _instead(value, place)
        if not instead or gives_data(place):
            return None
        return place.finding(
            node,
            f"`{place.short(value)}` is on the CPU: written into one on the device, it makes the host wait "
            f"for the copy. {instead}",
            certainty=certainty,
        )


_BY_CHOICE = re.compile(r"cpu|host|pinned|offload", re.IGNORECASE)
"""Says that a tensor is to be on the CPU."""


def _made_here(node: cst.BaseExpression, place: Place) -> bool:
    """Whether the function itself makes a tensor, and says nothing of where."""
    if not isinstance(node, cst.Name) or _BY_CHOICE.search(node.value):
        return False
    made = place.value_of(node)
    return isinstance(made, cst.Call) and place.name(made) in FACTORIES


def _instead(value: cst.BaseExpression, place: Place) -> tuple[Certainty, str]:
    """How to do without the copy, and whether that surely fits; empty where nothing is known."""
    made = place.value_of(value) if isinstance(value, cst.Name) else value
    if isinstance(made, cst.Call) and place.name(made) in FROM_DATA | COPIED and made.args:
        data = made.args[0].value
        if is_number(data, place):
            return "sure", f"`.fill_({place.short(data)})` waits for nothing."
        if is_constant_table(data):
            return "sure", "Keep it on the device, as a buffer."
        return "note", "Copy it from pinned memory with `copy_(…, non_blocking=True)`."
    if of_numbers(value, place):
        factory = isinstance(made, cst.Call) and place.name(made) in FACTORIES
        return "sure", f"{'Make' if factory else 'Compute'} it on the device (`device=`)."
    return "note", ""  # what others put on the CPU may be there for all that is done here
