"""DG42x: the size of a result depends on values on the device, or a tensor stands where Python
needs a number."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from dispatchguard_rules._syncs import (
    Certainty,
    mask_of,
    on_host_by_trade,
    say,
    tell,
    tensor_certainty,
    waits_inside,
)

from pytest_dispatchguard import Call, Finding, Getitem, Place, Rule, Setitem


def _worked_on(call: cst.Call, place: Place) -> tuple[cst.BaseExpression, Certainty] | None:
    """The tensor that `torch.f(x)` or `x.f()` works on, if the host may have to wait for it. What is given to
    a function of torch is a tensor, wherever it comes from."""
    if place.last_name(call) in place.qualname.split("."):
        return None  # the function is there to be that operation
    if place.name(call).startswith("torch."):
        given = place.argument(call, 0, "input")
        if given is None or place.kind(given).host or place.kind(given).not_tensor:
            return None
        certainty: Certainty | None = "sure"
    else:
        given = place.receiver(call)
        if given is None or place.name(call):
            return None
        certainty = tensor_certainty(given, place, strict=True)
    if certainty is None or on_host_by_trade(place) or waits_inside(given, place):
        return None
    return given, certainty


class Nonzero(Rule):
    """`nonzero`, `argwhere` or one-argument `where`: the host waits to learn how many there are.

    ## What it does

    Finds `nonzero`, `argwhere` and `torch.where(condition)` of device tensors in hot code.

    ## Why it costs

    The size of the result depends on values, so the host waits until the device has counted before it can go
    on. The same shape for every input would need no wait, and would not make `torch.compile` break the graph.

    ## Example

    ```python
    rows = (scores > 0.5).nonzero()
    x = x.index_fill(0, rows[:, 0], 0.0)
    ```

    ## Instead

    ```python
    x = x.masked_fill((scores > 0.5)[:, None], 0.0)
    ```

    ## Fix safety

    No fix: how to do without the indices is for a reader to find.
    """

    code = "DG421"
    name = "indices-of-nonzero"
    origin = "pytorch#131256"
    looks_for = Call("nonzero", "argwhere", "where")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A call that looks positions up."""
        if place.last_name(node) == "where" and (
            not place.is_torch(node, "where") or len(node.args) != 1
        ):
            return None
        worked_on = _worked_on(node, place)
        if worked_on is None:
            return None
        if _position_is_read(node, place):
            return tell(
                place,
                node,
                f"`{say(place, node)}` looks a position up on the device, and the host waits for "
                "it, and once more to read it. Keep the position as a Python number from where "
                "it is known (a counter).",
                certainty=worked_on[1],
            )
        return tell(
            place,
            node,
            f"`{say(place, node)}` gives as many rows as there are hits, so the host waits for "
            "the device to count them. Keep the mask and use `torch.where(mask, a, b)` or "
            "`masked_fill`, or take a fixed number with `topk`.",
            certainty=worked_on[1],
        )


def _position_is_read(call: cst.Call, place: Place) -> bool:
    """Whether what was found is brought to Python at once: `(ts == t).nonzero().item()`."""
    node: cst.CSTNode | None = place.parent(call)
    while isinstance(node, cst.Attribute | cst.Subscript | cst.Call):
        if isinstance(node, cst.Call) and place.last_name(node) in ("item", "int"):
            return True
        node = place.parent(node)
    return False


class MaskRead(Rule):
    """A tensor is indexed with a boolean mask: the host waits to learn how many elements are left.

    ## What it does

    Finds `x[mask]` and `masked_select` with masks on a device, also with a comparison in the brackets.

    ## Why it costs

    The size of the result depends on values, so the host waits until the device has counted the mask.

    ## Example

    ```python
    mean = x[mask].mean()
    ```

    ## Instead

    ```python
    mean = torch.where(mask, x, 0.0).sum() / mask.sum()
    ```

    ## Fix safety

    No fix: what the selection is for is for a reader to see.
    """

    code = "DG422"
    name = "mask-read"
    origin = "vLLM#38047"
    looks_for = (Getitem(), Call("masked_select"))

    def judge(self, node: cst.Subscript | cst.Call, place: Place) -> Finding | None:
        """A selection by a mask, the first of those by one mask."""
        if isinstance(node, cst.Call):
            worked_on = _worked_on(node, place)
            if worked_on is None:
                return None
            certainty, mask = (
                worked_on[1],
                place.argument(node, 1 if place.name(node) else 0, "mask"),
            )
        else:
            mask = mask_of(node, place)
            if mask is None or on_host_by_trade(place) or waits_inside(node.value, place):
                return None
            if _in_mask_write(node, place) or any(
                _selects_by(o, mask, place) for o in _earlier(node, place)
            ):
                return None
            certainty = "sure"
            count = sum(
                _selects_by(o, mask, place) for o, s in place.subscripts() if s.block == place.block
            )
            if count > 1:
                return tell(
                    place,
                    node,
                    f"`{say(place, node)}` and {count - 1} more select by the same mask, and the "
                    "host waits for the device to count it each time. Turn it into indices once "
                    "(`rows = mask.nonzero(as_tuple=True)`) and select by those, or work on all "
                    "elements and blank out the rest (`torch.where`).",
                )
        shown = say(place, mask) if mask is not None else "mask"
        return tell(
            place,
            node,
            f"`{say(place, node)}` keeps as many elements as `{shown}` says, so the host waits "
            "for the device to count them. Work on all of them and blank out the rest "
            "(`torch.where`, `masked_fill`, a weighted sum), or keep the mask on the CPU.",
            certainty=certainty,
        )


def _selects_by(node: cst.Subscript, mask: cst.BaseExpression, place: Place) -> bool:
    found = mask_of(node, place)
    return found is not None and place.same(found, mask) and not _in_mask_write(node, place)


def _in_mask_write(node: cst.Subscript, place: Place) -> bool:
    """Whether a subscript is written to (`x[m] += 1`), or read for a write by the same mask (`y[m] = x[m]`):
    the write is told."""
    if not isinstance(place.statement, cst.SimpleStatementLine):
        return False
    for small in place.statement.body:
        targets: list[cst.BaseExpression] = []
        if isinstance(small, cst.Assign):
            targets = [t.target for t in small.targets]
        elif isinstance(small, cst.AugAssign):
            targets = [small.target]
        for target in targets:
            if target is node:
                return True
            if isinstance(target, cst.Subscript):
                written, read = mask_of(target, place), mask_of(node, place)
                if written is not None and read is not None and place.same(written, read):
                    return True
    return False


class MaskWrite(Rule):
    """A tensor is written through a boolean mask: the host waits to learn how many elements are hit.

    ## What it does

    Finds `x[mask] = tensor` and `x[mask] += …` with masks on a device. Writing a Python number
    (`x[mask] = 0`) becomes `masked_fill_`, which waits for nothing, and is not told.

    ## Why it costs

    The mask is turned into indices first; their number depends on values, so the host waits for the device.

    ## Example

    ```python
    x[mask] = other[mask]
    ```

    ## Instead

    ```python
    x = torch.where(mask, other, x)
    ```

    ## Fix safety

    No fix: `torch.where` makes a new tensor, and the shapes have to fit.
    """

    code = "DG423"
    name = "mask-write"
    origin = "diffusers#13461"
    looks_for = Setitem()

    def judge(
        self, node: cst.Assign | cst.AugAssign | cst.AnnAssign, place: Place
    ) -> Finding | None:
        """An assignment through a mask."""
        if on_host_by_trade(place) or isinstance(node, cst.AnnAssign):
            return None
        targets = (
            [node.target] if isinstance(node, cst.AugAssign) else [t.target for t in node.targets]
        )
        for target in targets:
            if not isinstance(target, cst.Subscript):
                continue
            mask = mask_of(target, place)
            if mask is None:
                continue
            if isinstance(node, cst.Assign) and not _tensor_value(node.value, place):
                continue
            base, shown, value = say(place, target.value, 24), say(place, mask, 32), node.value
            operator = place.text(node.operator) if isinstance(node, cst.AugAssign) else "="
            if len(target.slice) > 1:
                how = "Writing the whole slice with `torch.where(mask, new, old)`"
            elif operator in ("+=", "-=", "*=", "/="):
                how = f"`{base} {operator} torch.where({shown}, new, {0 if operator in ('+=', '-=') else 1})`"
            elif isinstance(value, cst.Subscript) and place.same(
                mask_of(value, place) or value, mask
            ):
                how = f"`{base} = torch.where({shown}, {say(place, value.value, 24)}, {base})`"
            elif place.kind(value).ndim == 0:
                how = f"`{base} = torch.where({shown}, {say(place, value, 24)}, {base})`"
            else:
                picked = f"torch.where({shown}, new, {base})"
                how = f"Compute the value for all of `{base}` and pick with `{picked}`, which"
            return tell(
                place,
                node,
                f"`{say(place, target)} {operator} …` with a tensor turns the mask into indices, "
                f"and the host waits for the device to count them. {how} waits for nothing.",
            )
        return None


def _tensor_value(value: cst.BaseExpression, place: Place) -> bool:
    """Whether what is written is a tensor, and no single CPU number, which would be filled in."""
    kind = place.kind(value)
    return kind.is_tensor and not (kind.host and kind.ndim == 0)


class Unique(Rule):
    """`unique` makes the host wait for the device.

    ## What it does

    Finds `unique` and `unique_consecutive` of device tensors in hot code.

    ## Why it costs

    The size of the result depends on values: the host waits until the device has sorted and counted.

    ## Example

    ```python
    classes = torch.unique(labels)
    counts = torch.stack([(labels == c).sum() for c in classes])
    ```

    ## Instead

    ```python
    counts = torch.zeros(num_classes).scatter_add_(0, labels, torch.ones_like(labels, dtype=torch.float))
    ```

    ## Fix safety

    No fix: the number of values the host can count on is for a reader to know.
    """

    code = "DG424"
    name = "unique-values"
    origin = "pytorch#107132"
    looks_for = Call("unique", "unique_consecutive")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A call on a device tensor."""
        worked_on = _worked_on(node, place)
        if worked_on is None:
            return None
        return tell(
            place,
            node,
            f"`{say(place, node)}` gives as many elements as there are values, so the host waits "
            "for the device to sort and count them. Where the possible values are known, count "
            "into a tensor of fixed size (`scatter_add_`).",
            certainty=worked_on[1],
        )


class Bincount(Rule):
    """`bincount` makes the host wait for the device, also with `minlength`.

    ## What it does

    Finds `bincount` of device tensors in hot code.

    ## Why it costs

    The size of the result depends on the largest value, which the host waits for; `minlength` does not
    spare the wait.

    ## Example

    ```python
    counts = torch.bincount(labels, minlength=n)
    ```

    ## Instead

    ```python
    counts = torch.zeros(n, dtype=torch.long).scatter_add_(0, labels, torch.ones_like(labels))
    ```

    ## Fix safety

    No fix: values beyond the fixed size fail in `scatter_add_`, and grow the result of `bincount`.
    """

    code = "DG425"
    name = "bincount-of-tensor"
    origin = "torchmetrics#1413"
    looks_for = Call("bincount")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A call on a device tensor."""
        worked_on = _worked_on(node, place)
        if worked_on is None:
            return None
        size = place.argument(node, 2 if place.name(node) else 1, "minlength")
        new = f"torch.zeros({say(place, size, 24) if size is not None else 'n'}, …)"
        return tell(
            place,
            node,
            f"`{say(place, node)}` asks for the largest value first, and the host waits for the "
            f"device. `{new}.scatter_add_(0, x, ones)` has a fixed size and waits for nothing.",
            certainty=worked_on[1],
        )


class RepeatInterleave(Rule):
    """`repeat_interleave` with a tensor of repeats and no `output_size` makes the host wait for the device.

    ## What it does

    Finds `repeat_interleave` whose repeats are a device tensor and that is not told its `output_size`. A
    Python
    number as repeats waits for nothing.

    ## Why it costs

    The size of the result is the sum of the repeats: the host waits until the device has it.

    ## Example

    ```python
    y = torch.repeat_interleave(x, lengths, dim=0)
    ```

    ## Instead

    ```python
    y = torch.repeat_interleave(x, lengths, dim=0, output_size=total)
    ```

    ## Fix safety

    No fix: a wrong `output_size` is a device-side assertion.
    """

    code = "DG426"
    name = "repeat-interleave-without-size"
    origin = "torchtitan#2440"
    looks_for = Call("repeat_interleave")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A call whose repeats are a tensor."""
        if on_host_by_trade(place) or place.argument(node, None, "output_size") is not None:
            return None
        first = 1 if place.is_torch(node, "repeat_interleave") else 0
        repeats = place.argument(node, first, "repeats")
        if repeats is None and first and len(node.args) == 1:
            repeats = place.argument(node, 0)
        if repeats is None or waits_inside(repeats, place):
            return None
        certainty = place.certainty(repeats)
        if certainty is None:
            return None
        return tell(
            place,
            node,
            f"`repeat_interleave` with the tensor `{say(place, repeats)}` makes the host wait "
            "for the device to add it up. Where the host knows the total, say it: "
            "`output_size=total`.",
            certainty=certainty,
        )


_FACTORIES = frozenset("zeros ones empty full rand randn eye arange linspace".split())
_SIZED_METHODS = frozenset(
    "expand view reshape repeat new_zeros new_ones new_empty new_full narrow unflatten tile".split()
)
_SIZE_NAMES = frozenset("size shape start end steps length n m".split())


class TensorAsNumber(Rule):
    """A tensor stands where Python needs a number: a size, a bound, an index, a range.

    ## What it does

    Finds device tensors as arguments of `range`, as bounds of slices, as indices of Python lists, as sizes
    (`torch.zeros(n)`, `x.view(n, -1)`), and tensors of no dimension as indices of tensors.

    ## Why it costs

    Python asks the tensor for its number: it is `.item()` without the word, and the host waits for the
    device.

    ## Example

    ```python
    height = ids.max() + 1
    grid = torch.zeros(height, width)
    ```

    ## Instead

    ```python
    grid = torch.zeros(known_height, width)
    ```

    ## Fix safety

    No fix: where the host can get the number from is for a reader to find.
    """

    code = "DG427"
    name = "tensor-as-number"
    origin = "diffusers#13356"
    looks_for = (Call("range", *sorted(_FACTORIES | _SIZED_METHODS)), Getitem(), Setitem())

    def judge(self, node: cst.CSTNode, place: Place) -> Iterator[Finding]:
        """A call or subscript with a tensor where a number belongs."""
        if on_host_by_trade(place):
            return
        if isinstance(node, cst.Call):
            found = self._in_call(node, place)
        elif isinstance(node, cst.Subscript):
            found = self._in_brackets(node, place)
        elif isinstance(node, cst.Assign):
            subscripts = [t.target for t in node.targets if isinstance(t.target, cst.Subscript)]
            found = next((f for s in subscripts if (f := self._in_brackets(s, place))), None)
        else:
            found = None  # the target of an augmented assignment is read as well, and shown as read
        if found is not None:
            yield found

    def _in_call(self, call: cst.Call, place: Place) -> Finding | None:
        last = place.last_name(call)
        if last == "range":
            if place.name(call) != "range":
                return None
        elif last in _FACTORIES:
            if not place.is_torch(call, last):
                return None
        elif not (isinstance(call.func, cst.Attribute) and place.is_tensor(call.func.value)):
            return None
        for argument in call.args:
            if argument.star or (
                argument.keyword is not None and argument.keyword.value not in _SIZE_NAMES
            ):
                continue
            if last in ("full", "new_full") and argument is not call.args[0]:
                continue
            parts = [argument.value]
            if isinstance(argument.value, cst.Tuple | cst.List):
                parts = [e.value for e in argument.value.elements]
            for part in parts:
                if self._number(part, place) and not _given_before(part, call, place):
                    return tell(
                        place,
                        part,
                        f"`{last}` needs a number where the tensor `{say(place, part)}` is "
                        "given, so the host waits for the device to have it. Pass a number that "
                        "the host knows.",
                    )
        return None

    def _in_brackets(self, node: cst.Subscript, place: Place) -> Finding | None:
        base = place.kind(node.value)
        for element in node.slice:
            part = element.slice
            if isinstance(part, cst.Slice):
                for bound in (part.lower, part.upper, part.step):
                    if bound is not None and self._number(bound, place):
                        return tell(
                            place,
                            node,
                            f"The bound `{say(place, bound)}` is a tensor: slicing needs its "
                            "number, and the host waits for the device. Slice by a number that "
                            "the host knows, or mask by position (`torch.arange(n) < bound`).",
                        )
            elif isinstance(part, cst.Index) and self._number(part.value, place):
                shown = say(place, part.value)
                if base.what in ("nested", "modules") and base.cls != "dict" and base.sure:
                    return tell(
                        place,
                        node,
                        f"`{say(place, node)}` picks from a Python sequence by the tensor "
                        f"`{shown}`, so the host waits for the device. Stack what is picked from "
                        "and index on the device, or pick by a number that the host knows.",
                    )
                if (
                    base.is_tensor
                    and place.kind(part.value).ndim == 0
                    and place.kind(part.value).dtype != "bool"
                ):
                    if _indexed_before(part.value, node, place):
                        return None
                    return tell(
                        place,
                        node,
                        f"`{shown}` is a tensor of no dimension: each index by it reads its "
                        "number, and the host waits for the device. `index_select(0, "
                        f"{shown}.reshape(1))` stays on the device; where several tensors are "
                        f"indexed by it, read it once (`int({shown})`).",
                    )
        return None

    def _number(self, node: cst.BaseExpression, place: Place) -> bool:
        """Whether a device tensor stands here that Python must ask for its number, unasked as yet."""
        kind = place.kind(node)
        return kind.on_device and not waits_inside(node, place)


def _given_before(part: cst.BaseExpression, call: cst.Call, place: Place) -> bool:
    """Whether the same number was asked for on the way to what the call works on: one place, one finding."""
    node: cst.BaseExpression = call.func
    while isinstance(node, cst.Attribute | cst.Call | cst.Subscript):
        if isinstance(node, cst.Call):
            if any(place.same(a.value, part) for a in node.args):
                return True
            node = node.func
        else:
            node = node.value
    return False


def _indexed_before(index: cst.BaseExpression, node: cst.Subscript, place: Place) -> bool:
    """Whether the same index was used before in the block: one place, one finding."""
    return any(
        any(
            isinstance(e.slice, cst.Index) and place.same(e.slice.value, index) for e in other.slice
        )
        for other in _earlier(node, place)
    )


def _earlier(node: cst.Subscript, place: Place) -> Iterator[cst.Subscript]:
    """The subscripts read before in the same block."""
    for other, scene in place.subscripts():
        if other is node:
            return
        if scene.block is place.block or scene.block == place.block:
            yield other


class CompareWholeTensors(Rule):
    """`torch.equal` or `allclose` makes the host wait for the device.

    ## What it does

    Finds `equal` and `allclose` of device tensors in hot code.

    ## Why it costs

    Both give a Python bool: the host waits until the device has compared.

    ## Example

    ```python
    if not torch.equal(a, b):
        x = x + 1
    ```

    ## Instead

    ```python
    x = torch.where((a == b).all(), x, x + 1)
    ```

    ## Fix safety

    No fix: what depends on the answer is for a reader to see.
    """

    code = "DG429"
    name = "compare-whole-tensors"
    origin = "pytorch#36853"
    looks_for = Call("equal", "allclose")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """The first comparison of a statement."""
        worked_on = _worked_on(node, place)
        if worked_on is None or any(place.kind(a.value).host for a in node.args):
            return None
        if any(place.kind(a.value).not_tensor for a in node.args[:2] if a.keyword is None):
            return None
        if not _first_of(node, place):
            return None
        last = place.last_name(node)
        how = "(a == b).all()" if last == "equal" else "torch.isclose(a, b).all()"
        return tell(
            place,
            node,
            f"`{say(place, node)}` gives a Python bool, so the host waits for the device to "
            f"compare. Keep the answer on the device (`{how}`), or remember on the host what "
            "changed.",
            certainty=worked_on[1],
        )


def _first_of(node: cst.Call, place: Place) -> bool:
    """Whether a comparison is the first of its statement: one place, one finding."""
    first = next(c for c, s in place.calls("equal", "allclose") if s.statement is place.statement)
    return first is node
