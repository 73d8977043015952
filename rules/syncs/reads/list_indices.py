"""DG438: indices that are lists, or arrays of NumPy."""

from __future__ import annotations

import re
from itertools import pairwise

import libcst as cst

from pytest_dispatchguard import Certainty, Finding, Fix, Look, Place, Rule, nodes

from ...syntax import is_word, subscripts_written
from ..host_code import works_on_host
from ..waits import OTHER_ARRAYS, indices


class IndexByList(Rule):
    """A tensor on the device is indexed by a Python list or a NumPy array, which is copied there first.

    ## What it does

    Finds `x[[i]]`, `x[..., [i, j]]` and `x[rows]` of a list or an array `rows`, of device tensors in hot
    code, also where they are written to. One number in brackets is a finding, and so are numbers in equal
    steps (`boxes[:, [0, 2]]`): a slice does the same. Others, lists with a name, and arrays are a note.
    What has methods that only arrays have (`boxes.copy()`), or is given to `torch.from_numpy`, is no tensor.

    ## Why it costs

    The list becomes a tensor on the CPU and is copied to the device on every call, and the host waits for
    the copy.

    ## Example

    ```python
    first = means[..., [self.index]]
    ```

    ## Instead

    ```python
    first = means[..., self.index, None]
    ```

    ## Fix safety

    Safe where one number selects an operand, and where a slice is written to with what comes from elsewhere;
    unsafe elsewhere: a slice shares the memory of what is indexed. None is offered for other numbers: only
    the author knows where to keep a tensor of them.
    """

    code = "DG438"
    name = "index-by-list"
    origin = "botorch#414"
    looks_for = (
        Look("getitem", frozenset(), frozenset({"list-index"})),
        Look("setitem", frozenset(), frozenset({"list-index"})),
    )
    fixes = "safe"

    def judge(
        self, node: cst.Subscript | cst.Assign | cst.AnnAssign | cst.AugAssign, place: Place
    ) -> Finding | None:
        """The first list among the indices."""
        if isinstance(node, cst.Subscript):
            told = self._indexed(node, None, place)
            # What `x[[0]] += 1` reads is told where it writes.
            return None if told is not None and _is_added_to(node, place) else told
        for target in subscripts_written(node):
            if (found := self._indexed(target, node.value, place)) is not None:
                return found
        return None

    def _indexed(
        self, node: cst.Subscript, value: cst.BaseExpression | None, place: Place
    ) -> Finding | None:
        """A list among the indices of what is read, or written to with a value."""
        if works_on_host(place) or not self._of_a_tensor(node, place):
            return None
        for element in node.slice:
            index = element.slice.value if isinstance(element.slice, cst.Index) else None
            if isinstance(index, cst.Name) and self._holds_numbers(index, place):
                return self._by_value(node, f"list `{index.value}`", place)
            if index is not None and _is_array(index, place):
                return self._by_value(node, f"array `{place.short(index, 24)}`", place)
            if not isinstance(index, cst.List) or not index.elements:
                continue
            values = [e.value for e in index.elements]
            if any(place.kind(v).what not in ("scalar", "unknown") for v in values):
                return None
            one = len(values) == 1 and value is None
            steps = _steps(values) if len(values) > 1 and _alone(index, node) else ""
            instead = (
                f"`{_slice_of(values[0], place) if one else steps}` slices without a copy"
                if one or steps
                else "Keep a tensor of indices on the device, or slice"
            )
            return place.finding(
                node,
                f"`{place.short(node)}` copies the list to the device on every call, and the host waits "
                f"for the copy. {instead}.",
                certainty=self._certainty(node, values, one or bool(steps), place),
                fix=self._sliced(node, index, steps, value, place)
                if steps
                else self._fix(node, index, place)
                if one
                else None,
            )
        return None

    def _sliced(
        self,
        node: cst.Subscript,
        index: cst.List,
        steps: str,
        value: cst.BaseExpression | None,
        place: Place,
    ) -> Fix | None:
        """`x[:, 0:3:2]` for `x[:, [0, 2]]`. A view of the same, written to it, would be overwritten on the
        way."""
        if index.lpar or "#" in place.text(index) or not place.on_device(node.value):
            return None
        whole = rf"(?<![\w.]){re.escape(place.text(node.value))}\b"
        apart = (
            value is not None
            and (
                isinstance(value, cst.BinaryOperation | cst.Call)
                or place.kind(value).what == "scalar"
            )
            and not re.search(whole, place.text(value))
        )
        return place.replace(
            index,
            steps,
            safety="safe" if apart else "unsafe",
            message="slice" if apart else "slice; it shares the memory of what is indexed",
        )

    def _holds_numbers(self, index: cst.Name, place: Place) -> bool:
        """Whether a name surely holds a list, not a tuple, of numbers."""
        held = place.value_of(index)
        if held is None and place.assignments(index.value) <= 1:
            held = _annotation(index.value, place)
        if not isinstance(held, cst.List | cst.ListComp | cst.Subscript):
            return False
        kind = place.kind(index)
        element = kind.element
        return (
            kind.what == "nested"
            and kind.sure
            and not kind.optional
            and element is not None
            and element.what == "scalar"
        )

    def _by_value(self, node: cst.Subscript, what: str, place: Place) -> Finding | None:
        if not place.on_device(node.value) or not place.kind(node.value).is_tensor:
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` copies the {what} to the device on every call, and the host waits for "
            "the copy. Keep a tensor of indices on the device, or slice.",
            certainty="note",
        )

    def _fix(self, node: cst.Subscript, index: cst.List, place: Place) -> Fix | None:
        """`x[..., i, None]` for `x[..., [i]]`, where all other indices are slices and numbers."""
        number = index.elements[0].value
        others = indices(node)
        plain = all(
            o is index or isinstance(o, cst.Ellipsis) or place.kind(o).what == "scalar"
            for o in others
        )
        if (
            not plain
            or index.lpar
            or place.kind(number).what != "scalar"
            or is_word(number, "True", "False")
        ):
            return None
        at_once = isinstance(place.parent(node), cst.BinaryOperation | cst.Comparison)
        return place.replace(
            index,
            f"{place.text(number)}, None",
            safety="safe" if at_once else "unsafe",
            message="Select without a copy" + ("" if at_once else "; the result shares its memory"),
        )

    def _of_a_tensor(self, node: cst.Subscript, place: Place) -> bool:
        """Whether what is indexed is on a device: a tensor, or what has more than one dimension in a file
        that knows no arrays but torch's."""
        kind = place.kind(node.value)
        unknown = kind.what == "unknown" and not kind.cls
        return place.on_device(node.value) or (
            unknown
            and len(node.slice) > 1
            and OTHER_ARRAYS.isdisjoint(place.imports)
            and not _is_of_numpy(node.value, place)
        )

    def _certainty(
        self, node: cst.Subscript, values: list[cst.BaseExpression], slices: bool, place: Place
    ) -> Certainty:
        known = slices and all(place.kind(value).what == "scalar" for value in values)
        return "sure" if known and place.on_device(node.value) else "note"


_OF_NUMPY = ("astype", "copy")
"""Methods that arrays have, and tensors have not."""


def _is_of_numpy(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a function calls a method of what it indexes, or of what that is made of, that only arrays
    have, or makes a tensor of it with `torch.from_numpy`."""
    held = place.value_of(node) if isinstance(node, cst.Name) else None
    if isinstance(held, cst.Call) and place.last_name(held) in _OF_NUMPY:
        return place.name(held) != "copy.copy"
    name = place.dotted(node)
    for call, _ in place.calls(*_OF_NUMPY, "from_numpy"):
        made = place.is_torch(call, "from_numpy")
        of = place.argument(call, 0, "ndarray") if made else place.receiver(call)
        if of is not None and name and place.dotted(of) == name:
            return True
    return False


_ARRAYS = frozenset(
    "arange argsort array asarray concatenate flatnonzero permutation repeat setdiff1d tile unique".split()
)
"""Functions of NumPy that give more than one number."""
_SIZED = {"choice": 2, "integers": 3, "randint": 3}
"""Those that do if they are told a size: how many arguments that takes."""


def _is_array(index: cst.BaseExpression, place: Place) -> bool:
    """Whether an index is surely an array of NumPy, not one number of such."""
    kind = place.kind(index)
    if kind.cls != "numpy" or not kind.sure or kind.optional:
        return False
    made = place.value_of(index) if isinstance(index, cst.Name) else index
    if not isinstance(made, cst.Call):
        return made is None and isinstance(index, cst.Name)  # by its annotation
    last = place.last_name(made)
    given = [a.value for a in made.args if a.keyword is None and not a.star]
    if last in ("array", "asarray") and given and place.kind(given[0]).what == "scalar":
        return False
    sized = place.argument(made, None, "size") is not None
    return last in _ARRAYS or (last in _SIZED and (sized or len(given) >= _SIZED[last]))


def _is_added_to(node: cst.Subscript, place: Place) -> bool:
    """Whether a statement such as `x[0] += 1` works on a subscript."""
    return any(
        isinstance(one, cst.AugAssign) and one.target is node for one in nodes.walk(place.statement)
    )


def _alone(index: cst.BaseExpression, node: cst.Subscript) -> bool:
    """Whether all other indices are slices or `...`."""
    return all(
        isinstance(one, cst.Slice)
        or (
            isinstance(one, cst.Index)
            and (one.value is index or isinstance(one.value, cst.Ellipsis))
        )
        for one in (element.slice for element in node.slice)
    )


def _steps(values: list[cst.BaseExpression]) -> str:
    """The slice of numbers that are written down and grow in equal steps; empty for others."""
    numbers = [value.evaluated_value for value in values if isinstance(value, cst.Integer)]
    if len(numbers) < len(values):
        return ""
    step = numbers[1] - numbers[0]
    if step < 1 or any(b - a != step for a, b in pairwise(numbers)):
        return ""
    return f"{numbers[0]}:{numbers[-1] + 1}" + (f":{step}" if step > 1 else "")


def _annotation(name: str, place: Place) -> cst.BaseExpression | None:
    """The annotation of a parameter that is a list: ``List[int]``."""
    params = place.function.params
    for param in (*params.posonly_params, *params.params, *params.kwonly_params):
        if param.name.value == name and param.annotation is not None:
            written = param.annotation.annotation
            is_list = isinstance(written, cst.Subscript) and place.dotted(written.value) in _LISTS
            return written if is_list else None
    return None


_LISTS = frozenset({"list", "List", "typing.List"})


def _slice_of(index: cst.BaseExpression, place: Place) -> str:
    """The slice that takes one index alone: the last one has no end to name."""
    shown = place.short(index, 24)
    if re.fullmatch(r"-?\d+", shown):
        end = int(shown) + 1
        return f"{shown}:{end or ''}"
    return f"{shown}:{shown} + 1"
