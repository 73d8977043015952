"""DG206 to DG211: profiler ranges, grad modes, autocast, devices and attention backends entered per call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from pytest_dispatchguard import Call, Finding, Place, Rule, With

from ..allocations.devices import sets_device
from ..syntax import is_word
from .entering import WATCHING, around_a_loop, entered, guarded, whole_body_of

_NO_GRAD = frozenset(
    {"torch.no_grad", "torch.autograd.no_grad", "torch.autograd.grad_mode.no_grad"}
)
_INFERENCE = frozenset(
    {
        "torch.inference_mode",
        "torch.autograd.inference_mode",
        "torch.autograd.grad_mode.inference_mode",
    }
)
_ENABLE = frozenset(
    {
        "torch.enable_grad",
        "torch.set_grad_enabled",
        "torch.autograd.enable_grad",
        "torch.autograd.set_grad_enabled",
        "torch.autograd.grad_mode.enable_grad",
        "torch.autograd.grad_mode.set_grad_enabled",
    }
)
_AUTOCAST = {
    "torch.autocast": 2,
    "torch.amp.autocast": 2,
    "torch.amp.autocast_mode.autocast": 2,
    "torch.cuda.amp.autocast": 0,
    "torch.cuda.amp.autocast_mode.autocast": 0,
    "torch.cpu.amp.autocast": 0,
}
_RANGES = frozenset(
    {
        "torch.profiler.record_function",
        "torch.profiler.profiler.record_function",
        "torch.autograd.profiler.record_function",
        "torch.cuda.nvtx.range",
        "torch.cuda.nvtx.range_push",
        "torch.profiler.itt.range",
        "torch.profiler.itt.range_push",
        "nvtx.annotate",
    }
)
_DEVICES = frozenset({"torch.cuda.device", "torch.cuda.device_of", "torch.xpu.device"})
_ATTENTION_BACKENDS = frozenset(
    {"torch.nn.attention.sdpa_kernel", "torch.backends.cuda.sdp_kernel"}
)
_ASKS_DEVICE = re.compile(r"current_device|device_count|num_gpus|n_gpu|index")
_ASKS_AUTOCAST = re.compile(r"autocast|\bamp\b|fp16|mixed_precision")


class RangeAlwaysRecorded(Rule):
    """A profiler range is opened on every call, whether a profiler runs or not.

    ## What it does
    Flags `with record_function(...)`, `torch.cuda.nvtx.range(...)` and `range_push(...)` in hot
    functions that no condition guards.

    ## Why it costs
    Without a profiler the range still goes through Python and the dispatcher twice: several
    microseconds of host time, as much as the operation it names.

    ## Example
    ```python
    def forward(self, x):
        with torch.profiler.record_function("attention"):
            return self.attend(x)
    ```

    ## Instead
    ```python
    def forward(self, x):
        if not torch.autograd._profiler_enabled():
            return self.attend(x)
        with torch.profiler.record_function("attention"):
            return self.attend(x)
    ```

    ## Fix safety
    No fix: only the project knows what switches profiling on.
    """

    code = "DG206"
    name = "range-always-recorded"
    also_compiled = False
    origin = "TransformerEngine#2377"
    looks_for = (With(), Call("range_push"))

    def judge(self, node: cst.With | cst.Call, place: Place) -> Iterator[Finding]:
        """Flags ranges that nothing guards."""
        if not place.per_call or guarded(place, WATCHING):
            return
        for call in entered(node) if isinstance(node, cst.With) else [node]:
            if place.name(call) in _RANGES:
                yield place.finding(
                    call,
                    f"`{place.text(call.func)}` opens a range on every call, which costs several "
                    "microseconds on the host even if no profiler runs. Open it only if profiling is on",
                    certainty="note",
                )


class GradModeHoistable(Rule):
    """A grad mode is entered again in every iteration of a loop, or where it holds already.

    ## What it does
    Flags `with torch.no_grad():` (`inference_mode`, `enable_grad`, `set_grad_enabled`) that is the
    whole body of a loop, and `no_grad` inside another `no_grad`, in hot functions.
    `no_grad` entered per call in the forward of a module is a note.

    ## Why it costs
    Each entry makes an object and switches a mode on and off: one to two microseconds of host time.

    ## Example
    ```python
    for p, q in zip(params, shadow):
        with torch.no_grad():
            q.lerp_(p, 0.1)
    ```

    ## Instead
    ```python
    with torch.no_grad():
        for p, q in zip(params, shadow):
            q.lerp_(p, 0.1)
    ```

    ## Fix safety
    No fix: the whole block has to be indented again.
    """

    code = "DG207"
    name = "grad-mode-hoistable"
    also_compiled = False
    origin = "pytorch#128182"
    looks_for = With()

    def judge(self, node: cst.With, place: Place) -> Finding | None:
        """Flags grad modes that could be entered further out."""
        if not place.per_call:
            return None
        for call in entered(node):
            name = place.name(call)
            if name not in _NO_GRAD | _INFERENCE | _ENABLE:
                continue
            shown = f"`{place.text(call)}`"
            if name in _NO_GRAD and _already_off(call, node, place):
                return place.finding(
                    call,
                    f"Gradients are off here already: {shown} makes an object and switches the mode "
                    "for nothing, which costs a microsecond or two on the host. Remove it",
                )
            if len(node.items) == 1 and whole_body_of(node, place) is not None:
                return place.finding(
                    call,
                    f"{shown} is entered and left in every iteration of the loop, a microsecond or "
                    "two on the host each. Put it around the loop",
                )
            if place.in_module and place.function.name.value == "forward" and place.hot.loop:
                return place.finding(
                    call,
                    f"{shown} is entered on every call of this module, a microsecond or two on "
                    "the host. If all callers can enter it once for all layers, enter it there",
                    certainty="note",
                )
        return None


def _already_off(call: cst.Call, node: cst.With, place: Place) -> bool:
    """Whether the innermost grad mode around a context of a with statement is no_grad or "
    "inference_mode."""
    before = [item.item for item in node.items]
    around = [item.item for outer in place.withs for item in outer.items]
    for entered_first in reversed([*around, *before[: before.index(call)]]):
        if not isinstance(entered_first, cst.Call):
            return False
        name = place.name(entered_first)
        if name in _NO_GRAD | _INFERENCE | _ENABLE:
            return name not in _ENABLE and not entered_first.args
    for decorator in place.function.decorators:
        mode = decorator.decorator
        given = mode.args if isinstance(mode, cst.Call) else ()
        name = place.dotted(mode.func if isinstance(mode, cst.Call) else mode)
        if name.removeprefix("torch.") in ("no_grad", "inference_mode"):
            return not given
    return False


class AutocastOffPerCall(Rule):
    """Autocast is switched off on every call, although it is rarely on.

    ## What it does
    Flags `with torch.autocast(..., enabled=False):` in hot functions, where no condition asks first
    whether autocast is on; and any autocast that is the whole body of a loop.

    ## Why it costs
    `torch.autocast` resolves the device, asks several backends for their state, and sets and resets the
    mode: four microseconds of host time and more, with no effect while autocast is off.

    ## Example
    ```python
    with torch.autocast(x.device.type, enabled=False):
        freqs = self.inv_freq * x.float()
    ```

    ## Instead
    ```python
    _NOTHING = contextlib.nullcontext()

    def without_autocast(device_type):
        if torch.is_autocast_enabled(device_type):
            return torch.autocast(device_type, enabled=False)
        return _NOTHING

    with without_autocast(x.device.type):
        freqs = self.inv_freq * x.float()
    ```

    ## Fix safety
    No fix: the shared object needs a name and a place in the module.
    """

    code = "DG208"
    name = "autocast-off-per-call"
    also_compiled = False
    origin = "TransformerEngine#1191"
    looks_for = With()

    def judge(self, node: cst.With, place: Place) -> Finding | None:
        """Flags autocast switched off unconditionally, and autocast that could be entered around the "
        "loop.
        """
        if not place.per_call or guarded(place, _ASKS_AUTOCAST):
            return None
        for call in entered(node):
            name = place.name(call)
            if name not in _AUTOCAST:
                continue
            if len(node.items) == 1 and whole_body_of(node, place) is not None:
                return place.finding(
                    call,
                    f"`{place.text(call.func)}` is entered and left in every iteration of the loop, "
                    "several microseconds on the host each. Put it around the loop",
                )
            if is_word(
                place.argument(call, _AUTOCAST[name], "enabled"), "False"
            ) and not around_a_loop(node):
                return place.finding(
                    call,
                    f"`{place.text(call)}` costs the host several microseconds on every call, with "
                    "no effect while autocast is off. Enter it only if "
                    "`torch.is_autocast_enabled(...)` is true, otherwise a `nullcontext()` made once",
                    certainty="note",
                )
        return None


class DeviceGuardPerCall(Rule):
    """The current device is set and reset on every call.

    ## What it does
    Flags `with torch.cuda.device(...)` and `device_of(...)` that is the whole body of a loop in hot
    functions; with `--pedantic` any that is entered per call, unless a condition asks for the
    current device or the number of devices first.

    ## Why it costs
    The device is parsed, asked for and set, and reset at the end, also when it is the current one
    already, as it is on every machine with one device.

    ## Example
    ```python
    for x in xs:
        with torch.cuda.device(device):
            launch(x)
    ```

    ## Instead
    ```python
    with torch.cuda.device(device):
        for x in xs:
            launch(x)
    ```

    ## Fix safety
    No fix: the linter cannot see whether the callers have set the device.
    """

    code = "DG209"
    name = "device-guard-per-call"
    also_compiled = False
    origin = "pytorch#91045"
    looks_for = With()

    def judge(self, node: cst.With, place: Place) -> Finding | None:
        """Flags device guards entered per call."""
        if not place.per_call or guarded(place, _ASKS_DEVICE):
            return None
        if around_a_loop(node) and not place.loops:
            return None
        for call in entered(node):
            if place.name(call) not in _DEVICES:
                continue
            around_loop = len(node.items) == 1 and whole_body_of(node, place) is not None
            advice = (
                "Put it around the loop"
                if around_loop
                else "Enter it once around the whole pass, or only when the device is not the current one"
            )
            return place.finding(
                call,
                f"`{place.text(call)}` reads, sets and resets the current device on every call, a "
                f"microsecond or more on the host, even if the device is already current. {advice}",
                certainty="sure" if around_loop else "note",
            )
        return None


class DeviceModePerCall(Rule):
    """`with torch.device(...)` puts a Python layer under every torch call of a hot function.

    ## What it does
    Flags `torch.device(...)`, and the device of a tensor, entered as a context in hot functions.

    ## Why it costs
    As a context, `torch.device` is a torch function mode: entering it costs several microseconds of
    host time, and while it lasts *every* torch call, not only factories, first runs a Python
    function.

    ## Example
    ```python
    with torch.device(x.device):
        mask = torch.ones(x.shape[:2])
        return self.attend(x, mask)
    ```

    ## Instead
    ```python
    mask = torch.ones(x.shape[:2], device=x.device)
    return self.attend(x, mask)
    ```

    ## Fix safety
    No fix: the linter cannot see which factories are called underneath.
    """

    code = "DG210"
    name = "device-mode-per-call"
    also_compiled = False
    origin = "pytorch#92701"
    looks_for = With()
    torch = ">=2.0"

    def judge(self, node: cst.With, place: Place) -> Finding | None:
        """Flags devices entered as contexts."""
        if not place.per_call:
            return None
        for item in node.items:
            for side in _sides(item.item):
                if sets_device(side, place):
                    return place.finding(
                        side,
                        f"Inside `with {place.text(side)}` every torch call first runs a Python "
                        "function, and entering it costs the host several microseconds. Pass "
                        "`device=` to the calls that create tensors",
                        certainty="sure" if self._makes_tensors(node, place) else "note",
                    )
        return None

    @staticmethod
    def _makes_tensors(node: cst.With, place: Place) -> bool:
        """Whether the body calls torch itself: there `device=` can be given."""
        return any(
            place.name(call).startswith("torch.") and node in scene.withs
            for call, scene in place.calls()
        )


def _sides(node: cst.BaseExpression) -> Sequence[cst.BaseExpression]:
    return (node.body, node.orelse) if isinstance(node, cst.IfExp) else (node,)


class AttentionBackendPerCall(Rule):
    """The backend of attention is chosen and put back on every call.

    ## What it does
    Flags `with sdpa_kernel(...)` (and the older `sdp_kernel`) in hot functions.

    ## Why it costs
    The context reads the switches of all backends, and their order, through Python, sets them one
    by one, and sets them all again at the end: tens of microseconds of host time, as much as the
    attention of a small model itself.

    ## Example
    ```python
    def forward(self, q, k, v):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v)
    ```

    ## Instead
    ```python
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # once, around all layers
        for layer in self.layers:
            x = layer(x)
    ```

    ## Fix safety
    No fix: only the author knows where the pass over all layers begins.
    """

    code = "DG211"
    name = "attention-backend-per-call"
    also_compiled = False
    origin = "pytorch#85984"
    looks_for = With()

    def judge(self, node: cst.With, place: Place) -> Finding | None:
        """Flags backends chosen in hot functions."""
        if not place.per_call or (around_a_loop(node) and not place.loops):
            return None
        for call in entered(node):
            if place.name(call) in _ATTENTION_BACKENDS:
                return place.finding(
                    call,
                    f"`{place.text(call.func)}` reads, sets and restores the flags of all attention "
                    "backends on every call, tens of microseconds on the host. Enter it once, around the "
                    "whole pass",
                )
        return None
