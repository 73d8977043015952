"""DG513: results computed on the CPU and moved to the device."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Call, Finding, Place, Rule

from ..syncs.host_code import works_on_host
from .data import COPIED, FACTORIES, FROM_DATA, RANDOM, is_number, without_casts
from .devices import is_device, makes_tensors_there, move_target
from .moves import LONGEST, OF_ONE, RESHAPING, ROUNDED, FactoryThenMove, is_view
from .uses import is_for_nothing, is_kept, is_written_to, loads


class ComputedThenMoved(Rule):
    """A result computed on the CPU is moved to the device on every call.

    ## What it does

    Finds `.to(device)` and `.cuda()` of tensors that the function itself makes on the CPU and works on there:
    `torch.multinomial(torch.ones(n), k).to(device)`, `torch.cat(parts).to(device)` of parts on the CPU.
    Where something but factories and numbers goes into it, it is a note: the author has to find a way to
    compute on the device, or to keep what is the same in every call. A factory that is moved at once is
    DG504, data of Python DG510.

    ## Why it costs

    The result is copied from pageable memory, and the host waits until the device has worked off its
    queue and made the copy.

    ## Example

    ```python
    def forward(self, x):
        weights = torch.ones(x.shape[0]).cumsum(0)
        weights[0] = 0.5
        return x * weights.to(x.device)[:, None]
    ```

    ## Instead

    ```python
    def forward(self, x):
        weights = torch.ones(x.shape[0], device=x.device).cumsum(0)
        weights[0] = 0.5
        return x * weights[:, None]
    ```

    ## Fix safety

    No fix: some of what is computed may need the CPU.
    """

    code = "DG513"
    name = "computed-then-moved"
    origin = "pyro#103b79ce"
    looks_for = Call("to", "cuda", "type_as")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A tensor on the CPU that is sent to the device."""
        receiver = place.receiver(node)
        if receiver is None or is_kept(node, place) or is_for_nothing(place):
            return None
        if makes_tensors_there(place):
            return None
        kind = place.kind(receiver)
        if not kind.is_tensor or not kind.host or works_on_host(place):
            return None
        first = place.argument(node, 0, "device")
        to_tensor = first is not None and place.on_device(first)
        converts = place.last_name(node) == "to" and place.argument(node, 1, "dtype") is not None
        there = converts and first is not None and is_device(first, place)
        if move_target(node, place) is None and not to_tensor and not there:
            return None
        if any(a.keyword is not None and a.keyword.value == "non_blocking" for a in node.args):
            return None
        made = without_casts(receiver)
        if isinstance(made, cst.Name):
            made = place.value_of(made) or made
        copied = isinstance(made, cst.Call) and (
            place.name(made) in FROM_DATA | COPIED | FACTORIES
            or place.last_name(made) in ("cpu", "from_numpy")
        )
        written = isinstance(made, cst.Call) and (
            place.name(made) in FACTORIES and is_written_to(made, place)
        )
        if (copied and not written) or _FACTORY_THEN_MOVE.judge(node, place) is not None:
            return None
        if (
            isinstance(receiver, cst.Name | cst.Attribute)
            and place.assignments(place.dotted(receiver)) == 0
        ):
            return None  # made elsewhere
        return place.finding(
            node,
            f"`{place.short(node)}` copies a value computed on the CPU to the device, and the host "
            "waits for that copy on every call; compute it on the device",
            certainty="sure" if of_numbers(receiver, place) else "note",
        )


_PURE = (
    RESHAPING
    | OF_ONE
    | frozenset("cat concat stack hstack vstack meshgrid outer where ne eq".split())
)


def of_numbers(node: cst.BaseExpression, place: Place, depth: int = LONGEST) -> bool:
    """Whether a value is computed from factories and numbers alone, by what every device computes alike: no
    doubles, and nothing that is rounded."""
    if "double" in (shown := place.text(node)) or "float64" in shown:
        return False
    node = without_casts(node)
    if depth == 0:
        return False
    if is_number(node, place) or place.kind(node).what == "scalar":
        return True
    if isinstance(node, cst.Name):
        held = place.value_of(node)
        if held is None or loads(node.value, place.function).written:
            return False
        return of_numbers(held, place, depth - 1)
    parts: list[cst.BaseExpression] = []
    if isinstance(node, cst.List | cst.Tuple):
        parts = [element.value for element in node.elements]
    elif isinstance(node, cst.Call):
        name, last = place.name(node), place.last_name(node)
        if name in FACTORIES:
            return last not in RANDOM and place.argument(node, None, "device") is None
        parts = [a.value for a in node.args if a.keyword is None]
        receiver = place.receiver(node)
        if last not in _PURE or last in ROUNDED:
            return False
        if not name.startswith("torch."):
            if receiver is None:
                return False
            parts.append(receiver)
    elif isinstance(node, cst.BinaryOperation):
        if isinstance(node.operator, cst.Power | cst.Divide):
            return False
        parts = [node.left, node.right]
    elif isinstance(node, cst.UnaryOperation):
        parts = [node.expression]
    elif isinstance(node, cst.Comparison):
        parts = [node.left, *(c.comparator for c in node.comparisons)]
    elif isinstance(node, cst.Subscript) and all(map(is_view, node.slice)):
        parts = [node.value]
    return bool(parts) and all(of_numbers(part, place, depth - 1) for part in parts)


_FACTORY_THEN_MOVE = FactoryThenMove()
