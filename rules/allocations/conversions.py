"""DG507, DG508, DG509, DG511, DG514: conversions of what is a tensor already, legacy tensor types, and moves
to where a tensor already is."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from pytest_dispatchguard import Call, Finding, Kind, Place, Rule

from ..syntax import is_word, unpacked
from .batches import is_of_a_loader
from .data import COPIED, LEGACY_CLASSES, data_argument
from .uses import bare


class LegacyTensorType(Rule):
    """A tensor is converted to a legacy tensor type, which also moves it to the CPU.

    ## What it does

    Finds `x.type(torch.BoolTensor)` and its like, also by their names as text. A tensor that is surely on the
    CPU already is left alone, and so is a batch as a data loader gives it. It is a note where nothing says
    that it is a tensor on the device, and for `x.type(torch.cuda.BoolTensor)`, which moves nothing that is
    there already.

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
        if module == "torch" and is_of_a_loader(node, place):
            return None  # it is on the CPU yet
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

    Finds `torch.tensor([a, b])` and `torch.tensor([f(x) for x in xs])` where the elements are tensors; where
    only some of them surely are, it is a note.

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
    looks_for = Call("tensor", "as_tensor", "asarray", "Tensor", *LEGACY_CLASSES, place="torch")
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A list whose elements are surely tensors that may live on a device."""
        data = data_argument(node, place)
        if place.name(node) in COPIED and len(node.args) == 1:
            data = node.args[0].value
        if not isinstance(data, _HOLDERS):
            return None
        kind = place.kind(data)
        if kind.what != "nested" or not kind.sure or kind.cls == "dict":
            return None
        parts = kind.items or (kind.element,)
        if not parts or not all(p is not None and _is_read(p) for p in parts):
            return self._some(node, data, parts, place)
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

    def _some(
        self,
        node: cst.Call,
        data: cst.BaseExpression,
        parts: Sequence[Kind | None],
        place: Place,
    ) -> Finding | None:
        """A list some of whose elements are tensors: those are read."""
        known = [part for part in parts if part is not None]
        if isinstance(data, cst.Name):
            known += [
                place.kind(call.args[0].value)
                for call, _ in place.calls("append")
                if is_word(place.receiver(call), data.value) and len(call.args) == 1
            ]
        if not any(map(_is_read, known)):
            return None
        return place.finding(
            node,
            f"`{place.text(node.func)}` reads the tensors among `{place.short(data)}` back to the host, and "
            "waits for the device each time; make all of them tensors, and join them with `torch.stack`",
            certainty="note",
        )


class TensorOfTensor(Rule):
    """A tensor is copied by `torch.tensor`, which warns on every call.

    ## What it does

    Finds `torch.tensor(x)` where `x` is a tensor already, and `self.x = torch.tensor(self.x)`, which is one
    from the second call on.

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
        if data is not None and _of_itself(node, data, place):
            return place.finding(
                node,
                f"`{place.short(data)}` is a tensor from the second call on: `{place.text(node.func)}` of it "
                "raises a warning on every call before it copies; make it a tensor once, or ask "
                "`isinstance` first",
            )
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


def _of_itself(node: cst.Call, data: cst.BaseExpression, place: Place) -> bool:
    """Whether an attribute is assigned a tensor of itself, whatever it is."""
    parent = place.parent(node)
    if not isinstance(data, cst.Attribute) or not isinstance(parent, cst.Assign):
        return False
    own = place.self_name and place.dotted(data).startswith(f"{place.self_name}.")
    if place.assignments(place.dotted(data)) > 1 or "list" in place.attribute_values(
        data.attr.value
    ):
        return False  # gathered anew each time
    asked = any(_ASKS_TYPE.search(place.text(test)) for test, _ in place.conditions)
    return bool(own) and not asked and any(place.same(t.target, data) for t in parent.targets)


_ASKS_TYPE = re.compile(r"isinstance|is_tensor|\btype\(")


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


class MovedWhereItIs(Rule):
    """A result is moved to the device of its input, where it already is.

    ## What it does

    Finds `.to(x.device)` of what torch computed from `x` in the same function, in code that runs per call.

    ## Why it costs

    Operations put their result where their inputs are. Asking for the device, and for a move that does
    nothing, takes most of a microsecond on the host.

    ## Example

    ```python
    def forward(self, x):
        index = torch.argmin(x, dim=-1).to(x.device)
        return index
    ```

    ## Instead

    ```python
    def forward(self, x):
        return torch.argmin(x, dim=-1)
    ```

    ## Fix safety

    Safe: the move gives back the tensor itself.
    """

    code = "DG514"
    name = "moved-where-it-is"
    also_compiled = False
    origin = "bitsandbytes#3343bac6"
    looks_for = Call("to")
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A move to the device of one of the tensors that a result was computed from."""
        receiver = place.receiver(node)
        if receiver is None or len(node.args) != 1 or not place.per_call:
            return None
        target = node.args[0]
        if target.star or (target.keyword is not None and target.keyword.value != "device"):
            return None
        device = target.value
        if isinstance(device, cst.Name):
            held = place.value_of(device)
            device = held if held is not None else device
        if not isinstance(device, cst.Attribute) or device.attr.value != "device":
            return None
        if not place.on_device(device.value) or not _is_there(receiver, place):
            return None
        if not _computed_from(receiver, device.value, place):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` moves a value computed from `{place.text(device.value)}` to the "
            "device it is already on, and checks that on every call",
            fix=None
            if "#" in place.text(node) or isinstance(receiver, cst.Name)
            else place.replace(node, place.text(receiver), safety="safe", message="drop the move"),
        )


_KEEPS_PLACE = frozenset(
    "abs all amax amin any argmax argmin argsort bool chunk clamp clone contiguous cos cumsum detach div "
    "exp expand flatten float floor half int log long max mean min mul neg norm permute pow prod repeat "
    "requires_grad_ reshape round rsqrt sigmoid sign sin softmax split sqrt squeeze std sub sum tanh "
    "transpose tril triu unbind unsqueeze var view where empty_like full_like ones_like rand_like "
    "randn_like zeros_like new_empty new_full new_ones new_zeros".split()
)
"""Methods, and functions of torch, that put their result where their input is."""


_DEEPEST = 6
"""How many steps of a computation are followed back."""


def _is_there(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a value is on a device, or a part of what is."""
    taken = unpacked(place).get(node.value) if isinstance(node, cst.Name) else None
    if isinstance(taken, cst.Call):
        given = taken.args[0].value if taken.args else None
        whole = given if place.name(taken).startswith("torch.") else place.receiver(taken)
        return whole is not None and place.on_device(whole)
    return place.on_device(node)


def _bound_anew(tensor: cst.BaseExpression, place: Place) -> bool:
    return isinstance(tensor, cst.Name) and place.assignments(tensor.value) > 1


def _computed_from(
    node: cst.BaseExpression, tensor: cst.BaseExpression, place: Place, depth: int = _DEEPEST
) -> bool:
    """Whether torch computes a value from a tensor and nothing else that could be elsewhere."""
    if not depth:
        return False
    if place.same(node, tensor):
        # By another name it may be what the tensor was before it was bound anew.
        return depth == _DEEPEST or not _bound_anew(tensor, place)
    if isinstance(node, cst.Name):
        held = place.value_of(node)
        held = unpacked(place).get(node.value) if held is None else held
        return held is not None and _computed_from(held, tensor, place, depth - 1)
    if isinstance(node, cst.Call):
        if place.last_name(node) not in _KEEPS_PLACE:
            return False
        if place.name(node).startswith("torch."):
            return bool(node.args) and _computed_from(node.args[0].value, tensor, place, depth - 1)
        owner = place.receiver(node)
        return owner is not None and _computed_from(owner, tensor, place, depth - 1)
    if isinstance(node, cst.BinaryOperation | cst.Comparison):
        sides = (
            (node.left, node.right)
            if isinstance(node, cst.BinaryOperation)
            else (node.left, *(one.comparator for one in node.comparisons))
        )
        return any(_computed_from(side, tensor, place, depth - 1) for side in sides) and all(
            place.on_device(side) or place.kind(side).what == "scalar" for side in sides
        )
    if isinstance(node, cst.UnaryOperation):
        return _computed_from(node.expression, tensor, place, depth - 1)
    if isinstance(node, cst.Subscript):
        return _computed_from(node.value, tensor, place, depth - 1)
    return False
