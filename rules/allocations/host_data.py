"""DG510: Python or NumPy data copied to the device on every call."""

from __future__ import annotations

import re
from typing import TypeGuard

import libcst as cst

from pytest_dispatchguard import Call, Finding, Kind, Place, Rule, nodes

from ..same_value import draws
from ..syncs.host_code import gathers_objects
from ..syncs.lightning import logged, may_log
from ..syntax import assigned, is_word, item_key, method_call
from .constants.fixes import filled, made_there
from .data import COPIED, FROM_DATA, LEGACY_CLASSES, is_constant_table, is_host_data, is_number
from .devices import cast_by, device_of, follows_a_tensor
from .uses import is_for_nothing, is_kept, is_no_tensor_here, is_written_to


def _of_an_accelerator(call: cst.Call, place: Place) -> bool:
    """Whether a call makes a tensor of an accelerator's own class: `torch.cuda.FloatTensor([…])`,
    `get_accelerator().ByteTensor([…])`."""
    if place.last_name(call) not in LEGACY_CLASSES or not isinstance(call.func, cst.Attribute):
        return False
    name = place.name(call)
    return name.startswith("torch.cuda.") or (not name and isinstance(call.func.value, cst.Call))


def _written_down(data: cst.BaseExpression, place: Place) -> bool:
    """Whether data is a list that is put together here, by a name or not, of values of which none is surely a
    tensor: whatever they are, the host waits, for the copy or to read them."""
    kind = place.kind(data)
    if (
        isinstance(data, cst.Attribute)
        and place.dotted(data) == f"{place.self_name}.{data.attr.value}"
    ):
        known = place.attribute_values(data.attr.value)
        return bool(known) and set(known) == {"list"} and _may_be_numbers(kind.element)
    if isinstance(data, cst.Name):
        held = place.value_of(data)
        if not isinstance(held, cst.List | cst.ListComp):
            return False
        if not isinstance(held, cst.List) or held.elements:
            return _written_down(held, place)
        return _is_filled(data.value, place) and _may_be_numbers(kind.element)
    if not isinstance(data, cst.List | cst.ListComp):
        return False
    if isinstance(data, cst.List) and any(isinstance(e.value, cst.List) for e in data.elements):
        return all(
            is_number(e.value, place) or _written_down(e.value, place) for e in data.elements
        )
    return _may_be_numbers(kind.element)


def _is_filled(name: str, place: Place) -> bool:
    """Whether something is put into a list that is empty at first."""
    return any(
        place.dotted(call.func) == f"{name}.{place.last_name(call)}"
        for call, _ in place.calls("append", "extend", "insert")
    )


def _may_be_numbers(element: Kind | None) -> bool:
    """Whether what a list holds may be numbers, or lists of such, and is not surely tensors."""
    if element is None or element.what in ("unknown", "scalar", "other"):
        return True
    if element.what == "nested" and element.cls != "dict":
        return _may_be_numbers(element.element)
    return element.maybe_tensor and not element.sure


class HostDataToDevice(Rule):
    """Python or NumPy data is copied to the device on every call, and the host waits for the copy.

    ## What it does

    Finds `torch.tensor(values, device=…)` and `torch.as_tensor(values, device=…)` of Python sequences of
    numbers and NumPy arrays, and `torch.from_numpy(array).to(device)`, in hot code, also where it goes to the
    device of another tensor (`.to(x)`). What may be other data on every call (arguments, computed lists), or
    is sent to other processes, is a note, as are numbers that a LightningModule logs
    (`self.log("lr", lr)`). What is there for callers who have no tensor
    (`if not torch.is_tensor(t):`) is a maybe.

    ## Why it costs

    The data is turned into a tensor on the CPU, and copied from pageable memory: the host waits until the
    device has worked off its queue and made the copy.

    ## Example

    ```python
    def forward(self, x):
        size = torch.tensor([x.shape[-2], x.shape[-1]], device=x.device)
        return x[..., :2] / size
    ```

    ## Instead

    ```python
    def forward(self, x):
        height, width = x.shape[-2:]
        return torch.stack((x[..., 0] / height, x[..., 1] / width), dim=-1)
    ```

    Pass single numbers to the operation as they are, keep what repeats (for each shape and device) and
    copy it once, or compute it on the device. What does change on every call can be copied from pinned
    memory with `non_blocking=True`, as long as nobody writes to that memory before the copy is done.

    ## Fix safety

    Safe for one number, which `torch.full` puts there. Unsafe for a range of numbers, which the device counts
    itself (an empty one gives integers), and for numbers that are written down: their copy comes from memory
    that is pinned for it, which nobody else writes to. None is offered for data of unknown origin, where an
    unpinned or reused source with `non_blocking=True` would be a race.
    """

    code = "DG510"
    name = "host-data-to-device"
    origin = "vllm#51458"
    looks_for = (
        Call(
            "tensor", "as_tensor", "asarray", "from_numpy", "new_tensor", "Tensor", *LEGACY_CLASSES
        ),
        Call("log").where(may_log),
    )
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Data that is surely the host's, put where the device is."""
        last = place.last_name(node)
        if last == "log":
            return self._logged(node, place)
        if last == "new_tensor":
            source = place.receiver(node)
            if source is None or not place.on_device(source):
                return None
        elif not _of_an_accelerator(node, place) and (
            place.name(node) not in FROM_DATA | COPIED
            or (device_of(node, place) is None and not follows_a_tensor(node, place))
        ):
            return None
        data = place.argument(node, 0, "data")
        if data is None or is_kept(node, place) or is_for_nothing(place) or gathers_objects(place):
            return None
        if _copied_without_waiting(node, place):
            return None
        if isinstance(data, cst.List | cst.Tuple) and not data.elements:
            return None  # nothing to copy
        if is_constant_table(data) and not (_has_one(data) and is_written_to(node, place)):
            return None
        surely = is_host_data(data, place) or last == "from_numpy"
        if (
            not surely
            and not _written_down(data, place)
            and not self._of_anything(node, data, place)
        ):
            return None
        if last.endswith("Tensor") and not (
            isinstance(place.value_of(data) or data, cst.List | cst.ListComp)
            or place.kind(data).cls == "numpy"
        ):
            return None
        sure, advice = self._advice(node, data, place)
        sure = sure and surely
        waits = "the host waits for the copy"
        if not surely and place.kind(data).maybe_tensor:
            waits += ", unless it is a tensor already, for which `.clone()` is there"
        converts = is_no_tensor_here(data, place)
        often = "whenever the caller passes no tensor" if converts else "on every call"
        return place.finding(
            node,
            f"`{place.text(node.func)}({place.short(data)})` copies host data to the device {often}, "
            f"and {waits}; {advice}",
            certainty="maybe" if converts else "sure" if sure else "note",
            fix=(filled(node, data, place) or made_there(node, data, place))
            if surely and cast_by(node, place) is node and not follows_a_tensor(node, place)
            else None,
        )

    def _logged(self, node: cst.Call, place: Place) -> Finding | None:
        """A number that Lightning makes a tensor of, on the device."""
        value = logged(node, place)
        if value is None or not is_number(value, place) or is_for_nothing(place):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` makes a tensor on the device of a number, and the host waits for the "
            "copy. Log it less often, or hand it to the logger itself (`self.logger.log_metrics`), which "
            "takes numbers.",
            certainty="note",
        )

    def _of_anything(self, node: cst.Call, data: cst.BaseExpression, place: Place) -> bool:
        """Whether `torch.tensor` is given what nothing is known of, or a sequence of such: as a tensor it
        would be `clone()`. What is converted only where it is no tensor is for callers to avoid. So is
        `torch.as_tensor` of what is spelled as a constant: numbers, or a tensor on the CPU."""
        if place.name(node) == "torch.as_tensor":
            return _CONSTANT.fullmatch(place.dotted(data)) is not None and (
                place.kind(data).what == "unknown" and not place.assignments(place.dotted(data))
            )
        if place.name(node) != "torch.tensor":
            return False
        owner = data.value if isinstance(data, cst.Subscript) and item_key(data) else data
        if not isinstance(owner, cst.Name | cst.Attribute):
            return False
        kind = place.kind(data)
        if kind.what == "nested":
            if kind.cls == "dict" or kind.is_empty or not _may_be_numbers(kind.element):
                return False
        elif kind.what != "unknown" and (kind.sure or not kind.maybe_tensor):
            return False
        root = place.dotted(owner).partition(".")[0]
        converts = any(
            re.search(rf"(?:isinstance|is_tensor)\(\s*{root}\b", place.text(test))
            for test, _ in place.conditions
        )
        return not converts and not place.qualname.endswith(".__init__")

    def _advice(self, node: cst.Call, data: cst.BaseExpression, place: Place) -> tuple[bool, str]:
        """How to do without the copy, and whether that surely fits: what is another on every call has to be
        copied."""
        if (
            place.loops
            and place.invariant(node, place.loops[-1])
            and not is_written_to(node, place)
            and not any(map(draws, nodes.walk(node)))
        ):
            return True, "it is the same in every iteration of the loop: build it before"
        one = data.elements[0].value if _has_one(data) else None
        if one is not None and place.kind(one).what != "nested" and _may_be_one_number(one, place):
            full = "new_full((1,), …)" if place.last_name(node) == "new_tensor" else ""
            full = full or "torch.full((1,), …, device=…)"
            return True, f"create it there with `{full}` of the same dtype, which does not wait"
        inner = data.args[0].value if _is_list_of(data, place) else data
        if isinstance(inner, cst.Call) and place.name(inner) == "range":
            bounds = ", ".join(place.text(a.value) for a in inner.args)
            return (
                True,
                f"`torch.arange({bounds}, device=…)` counts on the device and does not wait",
            )
        if _goes_to_other_processes(node, place):
            return False, (
                "a collective of a CPU group (`gloo`) takes it as it is, and pinned memory is copied without "
                "waiting"
            )
        owner = place.dotted(data).partition(".")[0]
        if isinstance(data, cst.Attribute) and owner == place.self_name != "":
            return True, "if the values stay the same, keep one tensor per device and dtype"
        written = isinstance(data, cst.List | cst.Tuple) and all(
            is_number(e.value, place) for e in data.elements
        )
        return written, (
            "use the numbers as they are, keep the tensor for later calls if it is the same in all of them, "
            "or compute it on the device"
            if written
            else "keep the tensor if its values repeat, or compute it on the device; "
            "values that differ on every call can be copied from pinned memory"
        )


_CONSTANT = re.compile(r"(?:\w+\.)*[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


def _has_one(data: cst.BaseExpression) -> TypeGuard[cst.List | cst.Tuple]:
    return isinstance(data, cst.List | cst.Tuple) and len(data.elements) == 1


def _may_be_one_number(node: cst.BaseExpression, place: Place) -> bool:
    """Whether nothing says that a value is a list: it is not filled, and not called after several things."""
    if not isinstance(node, cst.Name):
        return True
    return not _is_filled(node.value, place) and not node.value.endswith(("ids", "list", "tokens"))


def _goes_to_other_processes(node: cst.Call, place: Place) -> bool:
    """Whether a tensor is what a collective sends."""
    name = assigned(node, place)
    return any(
        argument.value is node or (name is not None and is_word(argument.value, name.value))
        for call, _ in place.calls(*_COLLECTIVES)
        for argument in call.args
    )


_COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single", "broadcast",
    "gather", "reduce", "reduce_scatter", "reduce_scatter_tensor",
)  # fmt: skip


def _copied_without_waiting(node: cst.Call, place: Place) -> bool:
    """Whether a tensor is made in pinned memory, and moved from there with `non_blocking`."""
    outer = method_call(node, place)
    pinned = place.argument(node, None, "pin_memory") is not None
    return pinned and outer is not None and place.argument(outer, None, "non_blocking") is not None


def _is_list_of(data: cst.BaseExpression, place: Place) -> TypeGuard[cst.Call]:
    """Whether an expression is `list(...)` or `tuple(...)` of one thing."""
    made = isinstance(data, cst.Call) and place.name(data) in ("list", "tuple")
    return isinstance(data, cst.Call) and made and len(data.args) == 1
