"""What a function treats as a tensor, whatever it is called: by methods that only tensors have, and by
functions of torch that take nothing else."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Place, nodes

from .waits import only_torch

_OF_TENSORS = frozenset(
    """contiguous cuda detach device dim expand expand_as float gather half index_add_ index_select int
    is_cuda long masked_fill masked_select new_empty new_full new_ones new_zeros numel permute requires_grad
    scatter scatter_ scatter_add_ type_as unbind unsqueeze view""".split()
)
"""Attributes that no other value has which a tensor may be mistaken for."""
_OF_ARRAYS = frozenset(
    "argmax argmin cumsum dtype max mean min ndim reshape shape squeeze std sum transpose".split()
)
"""Those that arrays of other libraries have as well."""
_TAKING = frozenset(
    """abs amax amin any all argsort bincount clamp cumsum diff empty_like exp flatten gather index_select log
    logsumexp max mean min nonzero ones_like permute prod rand_like randn_like repeat_interleave softmax sort
    split sqrt squeeze std sum topk transpose unbind unique unsqueeze zeros_like""".split()
)
"""Functions of torch whose first argument is a tensor."""


def used_as_tensor(node: cst.BaseExpression, place: Place) -> bool:
    """Whether the function does with a name, an attribute or an entry what can only be done with a tensor."""
    key = ("used as tensors", id(place.function))
    used = place.once(key, lambda: frozenset(_used(place)))
    written = [node]
    if isinstance(node, cst.Name):
        held = place.value_of(node)
        written += [held] if isinstance(held, cst.Subscript | cst.Attribute) else []
    return any(place.text(one) in used for one in written)


def _used(place: Place) -> list[str]:
    torch_alone = only_torch(place)
    attributes = _OF_TENSORS | (_OF_ARRAYS if torch_alone else frozenset())
    found: list[str] = []
    for one in nodes.walk(place.function):
        if torch_alone and isinstance(one, cst.Subscript) and _is_of_an_array(one):
            found.append(place.text(one.value))
        if isinstance(one, cst.Attribute) and one.attr.value in attributes:
            found.append(place.text(one.value))
        elif isinstance(one, cst.Call) and one.args and not one.args[0].star:
            owner, _, last = place.dotted(one.func).rpartition(".")
            alone = last == "repeat_interleave" and len(one.args) == 1
            if owner == "torch" and (last in _TAKING or alone):
                found.append(place.text(one.args[0].value))
    return found


def _is_of_an_array(node: cst.Subscript) -> bool:
    """Whether a subscript takes something along several dimensions: `x[:, i]`, `x[..., 0]`."""
    parts = [element.slice for element in node.slice]
    return len(parts) > 1 and any(
        isinstance(part, cst.Slice)
        or (isinstance(part, cst.Index) and isinstance(part.value, cst.Ellipsis))
        for part in parts
    )
