"""DG433, DG434, DG436, DG437: helpers that read, selections that are only counted, elements written or added
one by one."""

from __future__ import annotations

import re

import libcst as cst

from pytest_dispatchguard import (
    Call,
    Certainty,
    Elements,
    Finding,
    HelperCall,
    Look,
    Place,
    Rule,
)

from ...allocations.uses import looked_at
from ...syntax import has_few_rounds, is_word, names_in, shown_as_owner, target_names
from ..host_code import works_on_host
from ..lightning import is_shown, logged, may_log
from ..waits import as_sure_as_its_mask, mask_of, read_of
from .roles import reported

_READERS = frozenset(
    "item to_item get_item _item scalar to_scalar as_scalar to_float to_python to_py tensor_to_scalar "
    "to_number "
    "to_numpy tensor_to_numpy to_np t2n tonumpy as_numpy to_cpu move_to_cpu tensor_to_cpu to_list "
    "tensor_to_list "
    "get_value to_value reduce_item all_reduce_item has_inf_or_nan _has_inf_or_nan has_overflow "
    "_has_overflow "
    "has_nan has_nan_or_inf is_nan contains_nan check_nan any_nan all_reduce_scalar reduce_scalar".split()
)
_CHECKS = re.compile(r"_*(?:assert|check|detect|ensure|has|is|validate|verify)_?[a-zA-Z]\w*")
"""Names of helpers that look at values."""


class ReadBehindHelper(Rule):
    """A helper of the project reads the tensor that it is given, and the host waits for the device.

    ## What it does

    Finds calls of a project's own helpers (`utils.item(loss)`, `to_numpy(x)`,
    `self._has_inf_or_nan(grad)`) that read what they are given: they call `.item()`, `float()`,
    `.tolist()`, `.cpu()` of a parameter, or ask whether `any` or `all` of it is so (`check_finite(x)`), and
    of short functions that make a number of a tensor, whatever they are called (`longest(lengths)`).
    `self.log(…, prog_bar=True)` in a `training_step` of Lightning is such a helper, too.
    It is a note: the wait is behind a name, and whether the number is needed is the caller's to decide.

    ## Why it costs

    The read makes the host wait until the device has worked through everything queued before it, and where
    it is called that does not show.

    ## Example

    ```python
    logging_output = {"loss": utils.item(loss.data)}
    ```

    ## Instead

    ```python
    logging_output = {"loss": loss.detach()}
    ```

    ## Fix safety

    No fix: only the author knows whether the number is needed on the host.
    """

    code = "DG433"
    name = "read-behind-helper"
    origin = "fairseq#1df3e50a"
    looks_for = (HelperCall(), Call("log").where(may_log))

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A call of a helper that reads."""
        value = logged(node, place)
        if value is not None:
            return self._shown(node, value, place)
        callee = place.callee(node)
        if callee is None or not callee.reads or works_on_host(place) or not node.args:
            return None
        last = place.last_name(node)
        given = node.args[0].value
        kind = place.kind(given)
        gives_number = kind.is_tensor and place.kind(node).what == "scalar"
        if not (last in _READERS or _CHECKS.fullmatch(last) or gives_number):
            return None
        if kind.host or (kind.not_tensor and kind.what != "nested"):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` reads the tensor it is given (`{callee.target.replace(':', '.')}` "
            "does), and the host waits for the device. "
            + (
                "Where the host knows the number, or a bound, pass that on."
                if gives_number
                else "Hand on the tensor, and read it where it is logged."
            ),
            certainty="note" if last not in _READERS else self._certainty(node, given, place),
        )

    def _shown(self, node: cst.Call, value: cst.BaseExpression, place: Place) -> Finding | None:
        """What the progress bar of Lightning shows is read each time that it moves. Of a number, Lightning
        makes a tensor first."""
        if not is_shown(node, place) or place.kind(value).host:
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` has the progress bar read `{place.short(value)}` in every step, and the "
            "host waits for the device. Show it on the bar only where somebody looks at it, or have the bar "
            "move less often (`refresh_rate`).",
            certainty="note",
        )

    def _certainty(self, node: cst.Call, given: cst.BaseExpression, place: Place) -> Certainty:
        """What is read for a table of figures can be handed on as it is."""
        kind = place.kind(given)
        if not (kind.is_tensor or kind.what == "unknown"):
            return "maybe"
        known = kind.is_tensor or _OF_A_TENSOR.search(place.text(given)) is not None
        return "sure" if known and reported(node, place) else "note"


_FEW = 4
"""Rounds in which a tensor on the CPU may be filled."""
_OF_A_TENSOR = re.compile(r"\.(?:data|detach\(\)|sum\(\)|mean\(\))$")


class SelectionCounted(Rule):
    """Elements are selected only to be counted: the host waits to learn how many there are.

    ## What it does

    Finds `x[mask].numel()`, `x[mask].shape[0]`, `len(x[mask])`, and the same of `nonzero()`, in hot code.
    What is not zero of a tensor of numbers is counted by `torch.count_nonzero`.

    ## Why it costs

    The selection itself waits until the device has counted the mask, and makes a tensor that nobody uses.
    `mask.sum()` counts on the device.

    ## Example

    ```python
    active = x[mask].numel()
    ```

    ## Instead

    ```python
    active = mask.sum()
    ```

    ## Fix safety

    No fix: the count becomes a tensor, which what comes after has to take.
    """

    code = "DG434"
    name = "selection-counted"
    origin = "torchmetrics#568b68e7"
    looks_for = Look(
        "call",
        frozenset({"numel", "nelement", "size", "len"}),
        frozenset({"subscript", "call:nonzero"}),
    )

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A count of what was selected."""
        if works_on_host(place):
            return None
        selected = (
            node.args[0].value
            if place.name(node) == "len" and len(node.args) == 1
            else place.receiver(node)
        )
        if selected is None:
            return None
        mask: cst.BaseExpression | None = None
        of_numbers = False
        if isinstance(selected, cst.Subscript):
            mask = mask_of(selected, place)
        elif isinstance(selected, cst.Call) and place.last_name(selected) == "nonzero":
            torch = place.name(selected) == "torch.nonzero"
            mask = place.argument(selected, 0, "input") if torch else place.receiver(selected)
            if mask is not None and not place.on_device(mask):
                mask = None
            of_numbers = mask is not None and place.kind(mask).dtype != "bool"
        if mask is None:
            return None
        count = f"{shown_as_owner(mask, place)}.sum()"
        if of_numbers:
            count = f"torch.count_nonzero({place.short(mask, 32)})"
        found = place.finding(
            node,
            f"`{place.short(node)}` selects elements only to count them, and the host waits for the "
            "device. "
            f"`{count}` counts on the device; read that where a number is needed.",
        )
        return as_sure_as_its_mask(found, mask, place)


class WrittenOneByOne(Rule):
    """Elements of a tensor on the device are written one by one from Python.

    ## What it does

    Finds two or more writes of Python numbers into single elements of one device tensor in a row
    (`buffer[0] = size // 255`), and as a note such a write in a loop. A single write is told where the
    function shows that it is to one element, and not to a row. A tensor that the function makes on the CPU,
    and fills in a loop, is a note, too: there it is Python's work alone that costs.

    ## Why it costs

    Every write indexes the tensor and launches a kernel for one number, several microseconds each on the
    host. Until torch 2.15 a number for one element is copied to the device, and the host waits for that:
    `x[0].fill_(number)` and `x[:1] = number` do not. A tensor that is filled on the CPU and copied once takes
    one launch.

    ## Example

    ```python
    header[0] = size // 255
    header[1] = size % 255
    ```

    ## Instead

    ```python
    header[:2] = torch.tensor([size // 255, size % 255])
    ```

    ## Fix safety

    Safe for a single write of an integer, unsafe for other numbers, which `fill_` may round differently into
    a tensor of integers. None is offered for several writes: only the author knows whether the values can be
    collected first.
    """

    code = "DG436"
    name = "written-one-by-one"
    origin = "fairseq#48d9afbe"
    looks_for = Elements()
    fixes = "safe"

    def judge(self, node: cst.Assign | cst.AugAssign, place: Place) -> Finding | None:
        """The first of several writes of one number each."""
        target = _element(node, place)
        if target is None or works_on_host(place):
            return None
        looped = bool(place.loops) and bool(
            names_in(target) & frozenset().union(*(target_names(loop) for loop in place.loops))
        )
        rows = any(isinstance(e.slice, cst.Slice) for e in target.slice)
        if not place.on_device(target.value):
            return self._on_the_cpu(node, target, place) if looped and not rows else None
        alike = [] if rows else [s for s in place.block if _writes_like(s, target, place)]
        if alike and alike[0] is not place.statement:
            return None
        waits = _is_one(target, place) and not place.needs_torch(">=2.15")
        if len(alike) < 2 and not looped:
            return self._alone(node, target, place) if waits else None
        often = "in every iteration of the loop" if looped else f"{len(alike)} times in a row"
        return place.finding(
            node,
            f"`{place.short(target)} = …` writes one number into a tensor on the device, {often}: a kernel "
            f"for each{', for which the host waits until torch 2.15' if waits else ''}. Collect the numbers, "
            "and write them in one copy.",
            certainty="sure"
            if (len(alike) > 1 and _by_numbers(target, place))
            or self._collectable(target, rows, place)
            else "note",
        )

    def _on_the_cpu(
        self, node: cst.Assign | cst.AugAssign, target: cst.Subscript, place: Place
    ) -> Finding | None:
        """A loop that fills a tensor which this function made on the CPU."""
        loops = [one for one in place.loops if names_in(target) & target_names(one)]
        short = all(has_few_rounds(one, _FEW, place) for one in loops)
        if short or _made_here(target, place) is None or looked_at(target.value, loops[0]):
            return None  # an entry may be made of others
        return place.finding(
            node,
            f"`{place.short(target)} = …` in a loop indexes a tensor on the CPU for each element, and fills "
            "it by an operation of torch. Put the numbers into a list, and make the tensor of it once.",
            certainty="note",
        )

    def _alone(
        self, node: cst.Assign | cst.AugAssign, target: cst.Subscript, place: Place
    ) -> Finding:
        """One number for one element."""
        written, value = place.text(target), place.text(node.value)
        whole = isinstance(node.value, cst.Integer) or place.kind(node.value).dtype == "int"
        return place.finding(
            node,
            f"`{place.short(node)}` copies a number into one element on the device, and until torch 2.15 the "
            f"host waits for that. `{place.short(target)}.fill_({place.short(node.value)})` does not.",
            fix=place.replace(
                node,
                f"{written}.fill_({value})",
                safety="safe" if whole else "unsafe",
                message="fill the element",
            )
            if "#" not in written + value
            else None,
        )

    def _collectable(self, target: cst.Subscript, rows: bool, place: Place) -> bool:
        """Whether what a loop writes one by one is written into a tensor that this function has just made for
        it: a list can take its place, and be copied once."""
        return (
            not rows
            and len(place.loops) == 1
            and len(target.slice) == 1
            and _made_here(target, place) is not None
        )


def _made_here(target: cst.Subscript, place: Place) -> cst.Call | None:
    """The call with which this function makes the tensor that is written to."""
    made = place.value_of(target.value) if isinstance(target.value, cst.Name) else None
    if not isinstance(made, cst.Call):
        return None
    return made if place.is_torch(made, "zeros", "empty", "ones", "full") else None


def _element(node: cst.CSTNode, place: Place) -> cst.Subscript | None:
    """The element of a tensor to which a statement gives a Python number."""
    if not isinstance(node, cst.Assign) or len(node.targets) != 1:
        return None
    target = node.targets[0].target
    if not isinstance(target, cst.Subscript) or not place.is_tensor(target.value):
        return None
    read = read_of(node.value, place) if isinstance(node.value, cst.Call) else None
    if place.kind(node.value).what != "scalar" or read is not None:
        return None  # `x[0] = loss.item()` is told where it is read
    parts = [e.slice for e in target.slice]
    if not any(isinstance(part, cst.Index) for part in parts):
        return None
    for part in parts:
        if not isinstance(part, cst.Index):
            continue
        if place.kind(part.value).what not in ("scalar", "unknown"):
            return None
        if isinstance(part.value, cst.Ellipsis) or mask_of(target, place) is not None:
            return None
    return target


def _by_numbers(target: cst.Subscript, place: Place) -> bool:
    """Whether the indices of a write are surely numbers: what nothing is known of may be a mask."""
    indices = (e.slice.value for e in target.slice if isinstance(e.slice, cst.Index))
    return all(place.kind(index).what == "scalar" for index in indices)


def _is_one(target: cst.Subscript, place: Place) -> bool:
    """Whether a write is surely to one element: as many numbers as the tensor has dimensions."""
    numbers = [
        e.slice.value
        for e in target.slice
        if isinstance(e.slice, cst.Index)
        and place.kind(e.slice.value).what == "scalar"
        and place.kind(e.slice.value).dtype != "bool"
        and not isinstance(e.slice.value, cst.Comparison)
        and not is_word(e.slice.value, "True", "False")
    ]
    return place.kind(target.value).ndim == len(target.slice) == len(numbers)


def _writes_like(statement: cst.CSTNode, target: cst.Subscript, place: Place) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    for small in statement.body:
        other = _element(small, place)
        if other is not None and place.same(other.value, target.value):
            return True
    return False


def _goes_backward(node: cst.Call, place: Place) -> bool:
    """Whether what is made is named, and `backward` is called on it: a tensor, made of tensors."""
    parent = place.parent(node)
    if not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
        return False
    name = place.dotted(parent.targets[0].target)
    return bool(name) and any(
        place.dotted(call.func.value) == name
        for call, _ in place.calls("backward")
        if isinstance(call.func, cst.Attribute)
    )


def _cuts(call: cst.Call, place: Place) -> bool:
    """Whether a call cuts a tensor into pieces."""
    owner = place.receiver(call)
    return place.is_torch(call, "chunk", "split") or (
        place.last_name(call) in ("chunk", "split") and owner is not None and place.is_tensor(owner)
    )


def _pieces(call: cst.Call, place: Place) -> int:
    """How many pieces there are; where nobody says, there may be many."""
    at = 1 if place.is_torch(call, "chunk") else 0
    number = place.argument(call, at, "chunks") if place.last_name(call) == "chunk" else None
    return number.evaluated_value if isinstance(number, cst.Integer) else _FEW


class PythonSumOfTensors(Rule):
    """Python's `sum` adds up tensors one after the other.

    ## What it does

    Finds `sum(…)` over a list or a comprehension of tensors, in hot code. Over what may be a few it is a
    note, and so is the sum of pieces into which one tensor is cut (`x.split(n)`), which a view adds up.

    ## Why it costs

    Every addition is an operation of its own: a launch for each tensor, a few microseconds on the host,
    and the first one adds to a Python `0`. `torch.stack(...).sum()` is two.

    ## Example

    ```python
    total = sum(p.square().sum() for p in params)
    ```

    ## Instead

    ```python
    total = torch.stack([p.square().sum() for p in params]).sum()
    ```

    ## Fix safety

    No fix: stacking needs equal shapes and one device, and of nothing it fails.
    """

    code = "DG437"
    name = "python-sum-of-tensors"
    origin = "DeepSpeed#9f0e2136"
    looks_for = Call("sum", place="bare")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A sum over tensors that may be many."""
        if place.name(node) != "sum" or len(node.args) != 1 or works_on_host(place):
            return None
        given = node.args[0].value
        kind = place.kind(given)
        shown = place.short(node)
        if kind.is_tensor and not kind.host:
            return place.finding(
                node,
                f"Python's `{shown}` iterates over the tensor and adds one element at a time, an "
                "operation each. "
                f"`{shown_as_owner(given, place)}.sum(0)` is one.",
            )
        element = kind.element
        summed = kind.what == "nested" and kind.sure and element is not None and element.on_device
        if not summed and not _goes_backward(node, place):
            return None
        made = place.value_of(given) or given
        if isinstance(made, cst.Call) and _cuts(made, place):
            return (
                None
                if _pieces(made, place) < _FEW
                else place.finding(
                    node,
                    f"`{shown}` adds one piece after the other, a kernel launch each. Where they are of one "
                    "size, `x.unflatten(dim, (pieces, -1)).sum(dim)` adds them all at once.",
                    certainty="note",
                )
            )
        few = isinstance(made, cst.List | cst.Tuple) and len(made.elements) < 4
        if few or not isinstance(made, cst.GeneratorExp | cst.ListComp | cst.Name | cst.Call):
            return None
        return place.finding(
            node,
            f"`{shown}` adds one tensor after the other, a kernel launch each. "
            "`torch.stack([...]).sum(0)` adds them all at once.",
            certainty="note",
        )
