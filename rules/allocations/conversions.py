"""DG507, DG508, DG509, DG511: conversions of what is a tensor already, and legacy tensor types."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Call, Finding, Kind, Place, Rule

from .data import LEGACY_CLASSES, data_argument
from .uses import bare


class LegacyTensorType(Rule):
    """A tensor is converted to a legacy tensor type, which also moves it to the CPU.

    ## What it does

    Finds `x.type(torch.BoolTensor)` and its like, also by their names as text. A tensor that is surely on the
    CPU already is left alone. It is a note where nothing says that it is a tensor on the device, and for
    `x.type(torch.cuda.BoolTensor)`, which moves nothing that is there already.

    ## Why it costs

    `torch.BoolTensor` means *bool, on the CPU*: a tensor on the device is copied to the host, which waits
    for it. A dtype converts it where it is.

    ## Example

    ```python
    mask = mask.type(torch.BoolTensor)
    ```

    ## Instead

    ```python
    mask = mask.type(torch.bool)
    ```

    ## Fix safety

    Unsafe: the result stays on the device, which is nearly always what was meant.
    """

    code = "DG507"
    name = "legacy-tensor-type"
    origin = "vllm#51738"
    looks_for = Call("type", place="torch")
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """`.type(` with a legacy class."""
        receiver = place.receiver(node)
        if receiver is None or len(node.args) != 1 or place.kind(receiver).not_tensor:
            return None
        given = node.args[0].value
        if isinstance(given, cst.SimpleString):
            name = str(given.evaluated_value)
        else:
            name = place.name(given)
        module, _, last = name.rpartition(".")
        dtype = LEGACY_CLASSES.get(last)
        if dtype is None or module not in ("torch", "torch.cuda"):
            return None
        if module == "torch" and place.kind(receiver).is_tensor and place.kind(receiver).host:
            return None
        kind = place.kind(receiver)
        sure = module == "torch" and kind.is_tensor and kind.sure
        where = "the CPU" if module == "torch" else "the current GPU"
        fix = None
        if module == "torch" and node.args[0].keyword is None:
            prefix = place.text(given.value) if isinstance(given, cst.Attribute) else ""
            if prefix:
                fix = place.replace(
                    given,
                    f"{prefix}.{dtype}",
                    safety="unsafe",
                    message=f"convert to torch.{dtype} on the tensor's own device",
                )
        return place.finding(
            node,
            f"`{place.text(given)}` means `torch.{dtype}` on {where}: the conversion also moves the tensor "
            f"there, so the host waits for it. Use `torch.{dtype}`, which leaves the tensor on its device",
            certainty="sure" if sure else "note",
            fix=fix,
        )


def _is_read(kind: Kind) -> bool:
    """Whether an element is a tensor on a device, or a list of such."""
    if kind.what == "nested" and kind.sure and kind.cls != "dict" and kind.element is not None:
        return _is_read(kind.element)
    return kind.on_device and not kind.optional


_HOLDERS = (cst.List, cst.Tuple, cst.ListComp, cst.Name, cst.Attribute, cst.Subscript)
"""Expressions that may stand for a list of tensors."""


class TensorOfTensors(Rule):
    """`torch.tensor` is given a list of tensors: each is read back to the host, one wait after the other.

    ## What it does

    Finds `torch.tensor([a, b])` and `torch.tensor([f(x) for x in xs])` where the elements are tensors.

    ## Why it costs

    `torch.tensor` wants Python numbers, so that it calls `item()` on every element: a wait for the device
    each, then a copy back. `torch.stack` joins them on the device.

    ## Example

    ```python
    losses = torch.tensor([a.mean(), b.mean()], device=x.device)
    ```

    ## Instead

    ```python
    losses = torch.stack([a.mean(), b.mean()])
    ```

    ## Fix safety

    Unsafe: `stack` keeps the device and the gradient history of the elements, `torch.tensor` does not.
    None is offered where no device is named, for the result is then on the CPU, or where a dtype is.
    """

    code = "DG508"
    name = "tensor-of-tensors"
    origin = "diffusers#13356"
    looks_for = Call("tensor", "as_tensor", "asarray", place="torch")
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A list whose elements are surely tensors that may live on a device."""
        data = data_argument(node, place)
        if not isinstance(data, _HOLDERS):
            return None
        kind = place.kind(data)
        if kind.what != "nested" or not kind.sure or kind.cls == "dict":
            return None
        parts = kind.items or (kind.element,)
        if not parts or not all(p is not None and _is_read(p) for p in parts):
            return None
        fix = None
        keywords = [a.keyword.value for a in node.args[1:] if a.keyword is not None]
        plain = (
            isinstance(node.func, cst.Attribute) and keywords == ["device"] and len(node.args) == 2
        )
        scalars = all(p is not None and p.ndim == 0 for p in parts)
        if plain and scalars and node.args[0].keyword is None:
            assert isinstance(node.func, cst.Attribute)
            fix = place.replace(
                node,
                f"{place.text(node.func.value)}.stack({place.text(data)})",
                safety="unsafe",
                message="stack the tensors where they are",
            )
        return place.finding(
            node,
            f"`{place.text(node.func)}` reads every tensor in `{place.short(data)}` back to the "
            "host, and waits for the device each time; join them with `torch.stack`",
            fix=fix,
        )


class TensorOfTensor(Rule):
    """A tensor is copied by `torch.tensor`, which warns on every call.

    ## What it does

    Finds `torch.tensor(x)` where `x` is a tensor already.

    ## Why it costs

    Each call builds and raises a warning (that it should be written otherwise) before it copies; the
    warning machinery takes longer than the copy.

    ## Example

    ```python
    start = torch.tensor(x)
    ```

    ## Instead

    ```python
    start = x.detach().clone()
    ```

    Where no copy is needed, `x.detach()` or `x` alone.

    ## Fix safety

    Safe: it is what the warning recommends, and what `torch.tensor` does; only the warning is gone.
    """

    code = "DG509"
    name = "tensor-of-tensor"
    origin = "torchmetrics#3284"
    looks_for = Call("tensor", place="torch")
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """`torch.tensor` of what is surely a tensor."""
        if not place.is_torch(node, "tensor"):
            return None
        data = place.argument(node, 0, "data")
        if data is None or not place.is_tensor(data) or place.kind(data).optional:
            return None
        rest = node.args[1:]
        keywords = {a.keyword.value for a in rest if a.keyword is not None}
        fix = None
        if (
            node.args[0].value is data
            and keywords <= {"dtype", "device"}
            and len(keywords) == len(rest)
        ):
            copy = "clone()"
            if rest:
                given = ", ".join(
                    place.text(a.with_changes(comma=cst.MaybeSentinel.DEFAULT)) for a in rest
                )
                copy = f"to({given}, copy=True)"
            fix = place.replace(
                node,
                f"{bare(data, place)}.detach().{copy}",
                safety="safe",
                message="copy with `detach` and `clone`",
            )
        return place.finding(
            node,
            f"`{place.short(data)}` is a tensor already: `{place.text(node.func)}` of it raises a "
            "warning on every call before it copies; write `.detach().clone()`",
            fix=fix,
        )


class AsTensorOfTensor(Rule):
    """`torch.as_tensor` is called on a tensor.

    ## What it does

    Finds `torch.as_tensor(x)` and `torch.asarray(x)`, without dtype or device, where `x` is surely a
    tensor.

    ## Why it costs

    The call parses its arguments and returns the very object it was given.

    ## Example

    ```python
    def forward(self, x: torch.Tensor):
        x = torch.as_tensor(x)
    ```

    ## Instead

    ```python
    def forward(self, x: torch.Tensor):
        x = x
    ```

    Where `x` may be something else, ask first: `if not isinstance(x, torch.Tensor): x = torch.as_tensor(x)`.

    ## Fix safety

    Safe: the call returns its argument.
    """

    code = "DG511"
    name = "as-tensor-of-tensor"
    origin = "keras#22674"
    looks_for = Call("as_tensor", "asarray", place="torch")
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Nothing is converted."""
        if not place.is_torch(node, "as_tensor", "asarray") or len(node.args) != 1:
            return None
        arg = node.args[0]
        if arg.star or not place.is_tensor(arg.value) or place.kind(arg.value).optional:
            return None
        return place.finding(
            node,
            f"`{place.short(arg.value)}` is a tensor already: `{place.text(node.func)}` returns "
            "it unchanged; drop the call",
            fix=place.replace(
                node, bare(arg.value, place), safety="safe", message="leave the conversion out"
            ),
        )
