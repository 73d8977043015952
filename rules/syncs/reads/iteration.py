"""DG420, DG428: Python iterates over a tensor, or compares tensors one by one."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import ComparingCall, Finding, Fix, Iterated, Place, Rule, weaker

from ...syntax import clauses, contains
from ..data_flow import around, held_by, loads
from ..host_code import works_on_host
from ..waits import READS, Read, read_of, waits_inside
from .roles import HANDS_ON, READ_CALLS, iterated_by


class PythonExtremumOfTensors(Rule):
    """Python's `max`, `min` or `sorted` compares tensors, and waits for the device at each comparison.

    ## What it does

    Finds `max(a, b)`, `min(...)`, `sorted(...)` with tensors among what they compare, and over lists and
    comprehensions of tensors.

    ## Why it costs

    Python converts each comparison to bool, so the host waits for the device once per element.

    ## Example

    ```python
    largest = max(g.abs().max() for g in grads)
    ```

    ## Instead

    ```python
    largest = torch.stack([g.abs().max() for g in grads]).max()
    ```

    ## Fix safety

    No fix: the two treat empty input and NaN differently.
    """

    code = "DG420"
    name = "python-extremum-of-tensors"
    origin = "DeepSpeed#4915"
    looks_for = ComparingCall()

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A call with tensors among what it compares."""
        how = place.name(node)
        if how not in ("max", "min", "sorted") or works_on_host(place):
            return None
        if any(a.star or a.keyword is not None for a in node.args) or not node.args:
            return None
        shown = place.short(node)
        if len(node.args) > 1:
            return self._of_arguments(node, how, shown, place)
        given = node.args[0].value
        kind = place.kind(given)
        if kind.on_device:
            better = f"{place.short(given)}.{'sort().values' if how == 'sorted' else how + '()'}"
            return place.finding(
                node,
                f"Python's `{shown}` iterates over the tensor and waits for the device at each "
                f"comparison. `{better}` is one operation.",
            )
        element = kind.element
        if kind.cls == "dict":
            return None  # its keys are compared
        if kind.what == "nested" and kind.sure and element is not None and element.on_device:
            better = "torch.stack(...)" + (".sort().values" if how == "sorted" else f".{how}()")
            return place.finding(
                node,
                f"`{shown}` compares one tensor after the other, and the host waits for the "
                f"device each time. `{better}` compares on the device.",
            )
        return None

    def _of_arguments(self, node: cst.Call, how: str, shown: str, place: Place) -> Finding | None:
        kinds = [place.kind(a.value) for a in node.args]
        if not any(k.on_device for k in kinds) or any(k.what == "nested" for k in kinds):
            return None
        if any(waits_inside(a.value, place) for a in node.args):
            return None
        if all(k.is_tensor for k in kinds):
            better = f"torch.{how}imum(...)"
        else:
            better = f".clamp({'min' if how == 'max' else 'max'}=...)"
        return place.finding(
            node,
            f"Python's `{shown}` compares tensors and tests the result, so the host waits for the "
            f"device. `{better}` stays on the device.",
            # A size or a bound of Python's needs the number anyway.
            certainty="note" if _a_bound(node, place) else "sure",
        )


def _a_bound(node: cst.Call, place: Place) -> bool:
    """Whether what is chosen is where a slice ends, or is given to what takes a number, by a name or not."""
    seen: list[cst.BaseExpression] = [node]
    name = held_by(node, place) or _rebound(node, place)
    seen.extend(loads(name, place) if name else ())
    for one in seen:
        parent = around(one, place)
        while isinstance(parent, cst.BinaryOperation):
            parent = around(parent, place)
        if isinstance(parent, cst.Slice):
            return True
        if isinstance(parent, cst.Call) and place.last_name(parent) in _BOUNDED:
            return True
    return False


_BOUNDED = frozenset(
    "arange empty expand full int item narrow one_hot ones pad randint range repeat reshape split view "
    "zeros".split()
)


def _rebound(node: cst.Call, place: Place) -> str:
    """The local name that an assignment gives the value, whatever else it held before."""
    parent = around(node, place)
    if isinstance(parent, cst.Assign) and isinstance(parent.targets[0].target, cst.Name):
        return parent.targets[0].target.value
    return ""


class IterationOverTensor(Rule):
    """A loop iterates over a tensor on the host and reads its elements one by one.

    ## What it does

    Finds loops and comprehensions over a tensor whose elements are read (`.item()`, `int()`, …) in the
    loop; the reads in the body of a `for` loop are notes beside it. A loop that does not read them waits for
    nothing, but makes one view per element: it is a note.

    ## Why it costs

    Taking the tensor apart makes a view per element, and each read of one waits for the device.

    ## Example

    ```python
    for n in lengths:
        out.append(int(n))
    ```

    ## Instead

    ```python
    for n in lengths.tolist():
        out.append(n)
    ```

    ## Fix safety

    Unsafe, and offered only for `[v.item() for v in x]`: with more than one dimension, `x.tolist()` gives
    nested lists.
    """

    code = "DG428"
    name = "iteration-over-tensor"
    origin = "speechbrain#2683"
    looks_for = (Iterated(place="loop"), *READ_CALLS)
    fixes = "unsafe"

    def judge(self, node: cst.BaseExpression, place: Place) -> Finding | None:
        """What a loop runs over, and, as a note, where it is read in another line."""
        if isinstance(node, cst.Call) and place.last_name(node) in READS:
            told = self._read(node, place)
            if told is not None:
                return told
        if not place.on_device(node) or waits_inside(node, place) or works_on_host(place):
            return None
        loop = _loop_over(node, place)
        if loop is None:
            return None
        shown = place.short(node)
        reads = [
            r
            for call, scene in place.calls(*READS)
            if loop in scene.loops and (r := read_of(call, place)) is not None
            and iterated_by(r, scene, place) is node
        ]  # fmt: skip
        if reads and _zipped_before(node, place):
            return None
        if reads:
            return place.finding(
                node,
                f"The loop iterates over `{shown}`, and `{place.short(reads[0].call)}` makes the "
                f"host wait for the device for each element. `{shown}.tolist()` reads them all "
                "at once.",
                fix=self._fix(node, loop, reads[0], place),
            )
        return place.finding(
            node,
            f"The loop iterates over `{shown}` on the host, one view per element. Work on the "
            "whole tensor, or read it once with `.tolist()` if the values are needed on the "
            "host.",
            certainty="note",
        )

    def _read(self, node: cst.Call, place: Place) -> Finding | None:
        """A read of an element, in a statement of the loop's body."""
        read = read_of(node, place)
        over = iterated_by(read, place.scene, place) if read is not None else None
        if read is None or over is None or works_on_host(place):
            return None
        loops = (one for one in place.loops if isinstance(one, cst.For))
        if not any(contains(loop.iter, over) for loop in loops):
            return None  # a comprehension: the same line
        return place.finding(
            node,
            f"`{place.short(node)}` makes the host wait for the device for each element of "
            f"`{place.short(over)}`, over which the loop iterates.",
            certainty=weaker(read.certainty, "note"),
        )

    def _fix(
        self, node: cst.BaseExpression, loop: cst.CSTNode, read: Read, place: Place
    ) -> Fix | None:
        if not isinstance(loop, cst.ListComp) or loop.elt is not read.call or read.how != "item":
            return None
        if (
            loop.for_in.ifs
            or loop.for_in.inner_for_in is not None
            or loop.for_in.iter is not node
            or loop.lpar
        ):
            return None
        text = place.text(node)
        if not isinstance(node, cst.Name | cst.Attribute | cst.Call | cst.Subscript):
            text = f"({text})"
        return place.replace(
            loop,
            f"{text}.tolist()",
            safety="unsafe",
            message="Read the tensor once; meant for one dimension",
        )


def _zipped_before(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a zip or chain runs over another tensor before this one: one place gets one finding."""
    parent = place.parent(node)
    if not isinstance(parent, cst.Call) or place.name(parent) not in ("itertools.chain", "zip"):
        return False
    values = [a.value for a in parent.args]
    return any(
        place.on_device(v) for v in values[: next(i for i, v in enumerate(values) if v is node)]
    )


_HANDS_ON = HANDS_ON | {"enumerate", "itertools.groupby", "zip"}
"""Functions that give a loop the elements of what they are given, perhaps with others."""


def _loop_over(node: cst.BaseExpression, place: Place) -> cst.CSTNode | None:
    """The for loop or comprehension that runs over an expression, directly or through what hands on its
    elements."""
    outer: cst.CSTNode | None = node
    parent = place.parent(node)
    if isinstance(parent, cst.Call) and place.name(parent) in _HANDS_ON:
        outer, parent = parent, place.parent(parent)
    if isinstance(parent, cst.BaseComp):
        return parent if any(clause.iter is outer for clause in clauses(parent)) else None
    if parent is None and isinstance(place.statement, cst.For) and place.statement.iter is outer:
        return place.statement
    return None
