"""DG416 to DG419: values read from tensors one after the other, or over and over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from pytest_dispatchguard import Finding, Fix, Place, weaker

from ...allocations.aliases import is_written_through
from ...allocations.uses import bare
from ...before_loops import may_move, outside
from ...fresh_names import fresh_name
from ...kept_results import used_again
from ...same_value import settled
from ...syntax import bound_names, contains, line_before, names_in, shown_as_owner, target_names
from ..data_flow import ends
from ..waits import READS, Read, read_of
from .read_fixes import READ_AS, read_ahead, read_before, read_together
from .roles import ReadRule, bound_again, copied_beside, found, is_first, read_before_it


class ReadPerElement(ReadRule):
    """A loop reads one tensor after the other, and waits for the device each time.

    ## What it does

    Finds `.item()`, `float()`, `int()` and `.tolist()` of what a loop or comprehension runs over.

    ## Why it costs

    Every read waits for the device. Stacked, all values come in one wait.

    ## Example

    ```python
    counts = [m.sum().item() for m in masks]
    ```

    ## Instead

    ```python
    counts = torch.stack([m.sum() for m in masks]).tolist()
    ```

    ## Fix safety

    Unsafe: stacking fails on an empty list, needs all values on one device, and converts mixed dtypes to
    one. A tensor that is read element by element is read as a whole before the loop, which takes one of one
    dimension.
    """

    code = "DG416"
    name = "read-per-element"
    origin = "torchrec#1485"
    roles = ("each",)
    fixes = "unsafe"

    def report(self, read: Read, row: Sequence[Read], place: Place) -> Finding | None:
        """One read in every iteration of a loop, the first of its statement."""
        shown = place.short(read.call)
        loop = place.loops[-1]
        if _read_before(read, place):
            return None
        base = _indexed(read.tensor, loop)
        if base is not None and isinstance(loop, cst.For) and _made_in(base, loop):
            base = None
        listed = base is not None and place.kind(base).what == "nested"
        over = None if bound_again(read, loop) else _taken_apart(loop, place)
        split = _split_tensor(loop, place)
        if read.how == "tolist" and over is None and base is None:
            alone = isinstance(read.tensor, cst.Name) and split is not None
            read = read if alone else replace(read, certainty=weaker(read.certainty, "note"))
            before = f"`{place.short(split)}.tolist()`" if split is not None else "the whole"
            how = f"Read {before} once before the loop, and iterate over the list."
        elif over is not None:
            how = f"Loop over `{shown_as_owner(over, place, 48)}.tolist()`: one wait in all."
        elif base is not None and listed:
            how = f"Read `torch.stack({place.short(base)}).tolist()` once before the loop."
        elif base is not None:
            how = f"Read `{place.short(base)}.tolist()` once before the loop and index the list."
        elif isinstance(loop, cst.For):
            needed = _steers(read, place) or _carried(read, loop)
            if place.conditions or needed or copied_beside(read, place):
                read = replace(read, certainty=weaker(read.certainty, "note"))
            how = (
                "Compute it for all iterations first, or collect the tensors, and read them at once "
                "with one `torch.stack(...).tolist()`."
            )
        else:
            how = "Stack them and read once: `torch.stack([...]).tolist()`."
        whole = None if base is None or listed else _read_whole(read, base, loop, place)
        return found(
            place,
            read,
            f"`{shown}` makes the host wait for the device in every iteration. {how}",
            whole or _stacked(read, place),
        )


_SPLITTING = frozenset({"chunk", "hsplit", "split", "split_with_sizes", "tensor_split"})


def _split_tensor(loop: cst.CSTNode, place: Place) -> cst.BaseExpression | None:
    """The tensor whose parts a loop runs over, itself or zipped with others: parts may be of unlike sizes,
    which cannot be stacked."""
    over = loop.iter if isinstance(loop, cst.For) else None
    over = loop.for_in.iter if isinstance(loop, cst.BaseComp) else over
    if over is None:
        return None
    values = [over]
    if isinstance(over, cst.Call) and place.name(over) in ("enumerate", "zip"):
        values = [a.value for a in over.args]
    for value in values:
        made = place.value_of(value) or value
        if isinstance(made, cst.Call) and place.last_name(made) in _SPLITTING:
            torch = place.name(made).startswith("torch.")
            return place.argument(made, 0, "tensor") if torch else place.receiver(made)
    return None


def _steers(read: Read, place: Place) -> bool:
    """Whether what is read decides how the round goes on."""
    return not ends(read.call, place).isdisjoint({"branch"})


def _made_in(base: cst.BaseExpression, loop: cst.For) -> bool:
    """Whether a tensor is another in each round of a loop."""
    return bool(names_in(base) & bound_names(loop.body.body))


def _carried(read: Read, loop: cst.For) -> bool:
    """Whether what is read comes from what the loop itself works out, round by round."""
    return bool((names_in(read.tensor) - target_names(loop)) & bound_names(loop.body.body))


def _read_before(read: Read, place: Place) -> bool:
    """Whether the statement reads another tensor of the same loop before: one place, one finding."""
    loop = place.loops[-1]
    if isinstance(loop, cst.BaseComp):
        return False
    for call, scene in place.calls(*READS):
        if call is read.call:
            return False
        other = read_of(call, place) if scene.statement is place.statement else None
        if (
            other is not None
            and scene.loops == place.loops
            and names_in(other.tensor) & target_names(loop)
        ):
            return True
    return False


def _taken_apart(loop: cst.CSTNode, place: Place) -> cst.BaseExpression | None:
    """The one device tensor that a for loop iterates over."""
    if not isinstance(loop, cst.For):
        return None
    over = loop.iter
    if isinstance(over, cst.Call) and place.name(over) == "enumerate" and over.args:
        over = over.args[0].value
    return over if place.on_device(over) else None


def _indexed(tensor: cst.BaseExpression, loop: cst.CSTNode) -> cst.BaseExpression | None:
    """`x` of `x[i]`, where the loop's variable is the index."""
    if (
        isinstance(tensor, cst.Subscript)
        and len(tensor.slice) == 1
        and isinstance(tensor.slice[0].slice, cst.Index)
    ):
        index = tensor.slice[0].slice.value
        targets = target_names(loop)
        if (
            isinstance(index, cst.Name)
            and index.value in targets
            and not names_in(tensor.value) & targets
        ):
            return tensor.value
    return None


def _read_whole(
    read: Read, base: cst.BaseExpression, loop: cst.CSTNode, place: Place
) -> Fix | None:
    """A list of all numbers of a tensor before the loop that reads them one by one."""
    around, source = outside(loop, place), place.text(base)
    flat = place.kind(base).ndim in (None, 1)
    if around is None or not flat or "\n" in source or read.certainty != "sure":
        return None
    if not place.invariant(base, loop) or not may_move(base, loop, around, place):
        return None
    if is_written_through(base, place) or not settled(base, place):
        return None
    name = fresh_name(source, around, place, ending="list")
    others = [
        read_of(call, place)
        for call, s in place.calls(*READS)
        if loop in s.loops and not s.deferred and s.function is place.function
    ]
    pairs: list[tuple[cst.CSTNode, str]] = []
    for one in others:
        own = None if one is None else _indexed(one.tensor, loop)
        if one is None or own is None or not place.same(own, base) or one.call.lpar:
            continue
        assert isinstance(one.tensor, cst.Subscript)
        if one.how not in ("item", "int", "float"):
            return None
        index = place.text(one.tensor.slice[0])
        pairs.append((one.call if one.how == "item" else one.tensor, f"{name}[{index}]"))
    if not name or not any(node in (read.call, read.tensor) for node, _ in pairs):
        return None
    return place.edits(
        pairs,
        safety="unsafe",
        message="Read all of it once, before the loop; needs a tensor of one dimension",
        more=[line_before(around, f"{name} = {bare(base, place)}.tolist()", place)],
    )


def _stacked(read: Read, place: Place) -> Fix | None:
    """`[int(x.item()) for …]` with one stack and one read, where each value is one number for sure."""
    kind = place.kind(read.tensor)
    if read.certainty != "sure" or kind.ndim != 0 or read.how == "tolist":
        return None
    element: cst.BaseExpression = read.call
    cast = "" if read.how == "item" else read.how
    parent = place.parent(element)
    if (
        isinstance(parent, cst.Call)
        and place.name(parent) in ("int", "float")
        and len(parent.args) == 1
        and not cast
    ):
        element, cast = parent, place.last_name(parent)
        parent = place.parent(element)
    if not isinstance(parent, cst.ListComp) or parent.elt is not element or parent.lpar:
        return None
    new = place.text(parent.with_changes(elt=read.tensor))
    if "\n" in new:
        return None
    text = f"torch.stack({new}).tolist()"
    if cast and cast != kind.dtype:
        text = f"[{cast}(v) for v in {text}]"
    return place.replace(
        parent,
        text,
        safety="unsafe",
        message="Stack and read once; fails on an empty list, needs one device and one dtype",
        imports=("import torch",),
    )


class ReadsInARow(ReadRule):
    """Several tensors are read one right after the other.

    ## What it does

    Finds two or more `.item()`, `float()` or `int()` reads in one statement, or in statements that
    follow each other, none of which uses the result of another. The reads in other statements than the first
    are notes: what is said of the first takes care of them.

    ## Why it costs

    Each read is a wait and a copy of its own. Stacked on the device, they come in one.

    ## Example

    ```python
    low, high = x.min().item(), x.max().item()
    ```

    ## Instead

    ```python
    low, high = torch.stack([x.min(), x.max()]).tolist()
    ```

    ## Fix safety

    Unsafe: stacking needs one device, and converts mixed dtypes to one; all are read before the first
    statement that needs one of them. None is offered for what does not fit on a line or two.
    """

    code = "DG417"
    name = "reads-in-a-row"
    origin = "vLLM#42850"
    roles = ("row", "in-row")
    fixes = "unsafe"

    def report(self, read: Read, row: Sequence[Read], place: Place) -> Finding | None:
        """The first read of a row, and the first in every other statement of it, as a note."""
        statement = place.statement
        here = place.once(
            ("first of a row", id(row), id(statement)),
            lambda: next((r for r in row if contains(statement, r.call)), None),
        )
        if here is None or here.call is not read.call:
            return None
        if read.call is not row[0].call:
            before = row[[r.call for r in row].index(read.call) - 1]
            return found(
                place,
                replace(read, certainty=weaker(read.certainty, "note")),
                f"`{place.short(read.call)}` makes the host wait once more, right after "
                f"`{place.short(before.call, 32)}`; one wait would do for both.",
            )
        names = ", ".join(place.short(r.tensor, 24) for r in row[:4]) + (
            ", …" if len(row) > 4 else ""
        )
        return found(
            place,
            read,
            f"{len(row)} reads in a row, each of which makes the host wait for the device. "
            f"`torch.stack([{names}]).tolist()` waits once{_of_one_dtype(row, place)}.",
            _unpacked(row, place) or read_together(row, place) or read_ahead(row, place),
        )


def _of_one_dtype(row: Sequence[Read], place: Place) -> str:
    """What is to be said where integers would be stacked with other numbers."""
    dtypes = {place.kind(r.tensor).dtype for r in row}
    mixed = len(dtypes) > 1 and not dtypes.isdisjoint({"int", "bool"})
    return (
        "; make them `.double()` first, as small floats do not hold all integers" if mixed else ""
    )


def _unpacked(row: Sequence[Read], place: Place) -> Fix | None:
    """`a, b = x.item(), y.item()` with one stack and one read."""
    kinds = [place.kind(r.tensor) for r in row]
    if any(r.how != "item" or r.certainty != "sure" for r in row) or any(
        k.ndim != 0 for k in kinds
    ):
        return None
    whole = place.parent(row[0].call)
    if not isinstance(whole, cst.Tuple) or len({k.dtype for k in kinds}) > 1:
        return None
    if [e.value for e in whole.elements] != [r.call for r in row]:
        return None
    assign = place.parent(whole)
    if not isinstance(assign, cst.Assign) or not all(
        isinstance(t.target, cst.Tuple) for t in assign.targets
    ):
        return None
    text = f"torch.stack([{', '.join(place.text(r.tensor) for r in row)}]).tolist()"
    if "\n" in text:
        return None
    return place.replace(
        whole,
        text,
        safety="unsafe",
        message="Read once; needs one device and one dtype",
        imports=("import torch",),
    )


class SameReadTwice(ReadRule):
    """The same value is read from the device once more.

    ## What it does

    Finds a read (`.item()`, `float()`, `.tolist()` …) of what was read before, with nothing between that
    changes it.

    ## Why it costs

    Each read is a wait and a copy of its own, though Python has the value already.

    ## Example

    ```python
    if n.item() > 1:
        x = x / n.item()
    ```

    ## Instead

    ```python
    count = n.item()
    if count > 1:
        x = x / count
    ```

    ## Fix safety

    Unsafe: the first value gets a name before its statement, or has one, and is used again. None is offered
    where the first read stands in a loop's header, a comprehension, or a line of several statements.
    """

    code = "DG418"
    name = "same-read-twice"
    origin = "diffusers#13461"
    roles = ("again",)
    fixes = "unsafe"

    def report(self, read: Read, row: Sequence[Read], place: Place) -> Finding | None:
        """A read that was made before."""
        shown = place.short(read.call)
        return found(
            place,
            read,
            f"`{shown}` was read before, and makes the host wait for the device once more. Keep "
            "the first result in a name.",
            _used_again(read, place),
        )


def _used_again(read: Read, place: Place) -> Fix | None:
    """The first value in place of a later read."""
    first, scene = next(read_before_it(read, place))
    ending = READ_AS.get(read.how, "value")
    if read.how == "tolist" and not _only_looked_at(read, place):
        return None
    # Where it is none of the first, that one gets a name, which does for all.
    source = place.text(read.tensor) if is_first(first, place) else ""
    name = fresh_name(source, scene.statement, place, ending=ending, but=("detach",))
    return used_again(first.call, scene, read.call, name, place)


def _only_looked_at(read: Read, place: Place) -> bool:
    """Whether a list that is read once more goes to torch, or is indexed: others might change it."""
    parent = place.parent(read.call)
    if isinstance(parent, cst.Subscript):
        return True
    owner = place.receiver(parent) if isinstance(parent, cst.Call) else None
    return isinstance(parent, cst.Call) and (
        place.name(parent).startswith("torch.") or (owner is not None and place.is_tensor(owner))
    )


class ReadInvariantInLoop(ReadRule):
    """A loop reads the same value from the device in every iteration.

    ## What it does

    Finds reads inside loops of tensors that the loop does not change.

    ## Why it costs

    The host waits for the device in every iteration, for a value that it had after the first.

    ## Example

    ```python
    for layer in self.layers:
        x = layer(x, mask.sum(1).tolist())
    ```

    ## Instead

    ```python
    lengths = mask.sum(1).tolist()
    for layer in self.layers:
        x = layer(x, lengths)
    ```

    ## Fix safety

    Unsafe: the value is read before the loop, under a new name, also where the loop has no round. None is
    offered for loops inside loops.
    """

    code = "DG419"
    name = "invariant-read-in-loop"
    origin = "diffusers#12072"
    roles = ("invariant",)
    fixes = "unsafe"

    def report(self, read: Read, row: Sequence[Read], place: Place) -> Finding | None:
        """A read that gives the same in every iteration."""
        shown = place.short(read.call)
        return found(
            place,
            read,
            f"`{shown}` makes the host wait for the device in every iteration, for the same value: "
            "the loop does not change it. Read it once before the loop.",
            read_before(read, place),
        )
