"""Compares the results of a subject and its reference, tensors in nested structures too."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from pytest_dispatchguard.measure.timing.subject import Tolerance

_WIDEST = 300
"""Characters of a value that are shown."""


def kept(value: Any) -> Any:
    """A snapshot of a value: its tensors are copied, as later calls may change them."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {key: kept(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [kept(inner) for inner in value]
    if is_dataclass(value) and not isinstance(value, type):
        same = copy.copy(value)
        for field in fields(value):
            object.__setattr__(same, field.name, kept(getattr(value, field.name)))
        return same
    return value


def disagreement(subject: Any, reference: Any, tolerance: Tolerance) -> str:
    """A description of the first difference; empty if they agree."""
    for where, one, other in _pairs(subject, reference, "result"):
        said = _differ(one, other, tolerance)
        if said:
            return f"{where}: {said}\n  subject:   {_shown(one)}\n  reference: {_shown(other)}"
    return ""


def _pairs(one: Any, other: Any, where: str) -> Iterator[tuple[str, Any, Any]]:
    """Pairs of the leaves of two values, with their paths; containers that do not match are leaves."""
    both = (one, other)
    if all(isinstance(v, Mapping) for v in both) and one.keys() == other.keys():
        for key in one:
            yield from _pairs(one[key], other[key], f"{where}[{key!r}]")
    elif all(isinstance(v, list | tuple) for v in both) and len(one) == len(other):
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _pairs(a, b, f"{where}[{i}]")
    elif type(one) is type(other) and is_dataclass(one) and not isinstance(one, type):
        for field in fields(one):
            a, b = getattr(one, field.name), getattr(other, field.name)
            yield from _pairs(a, b, f"{where}.{field.name}")
    else:
        yield where, one, other


def _differ(one: Any, other: Any, tolerance: Tolerance) -> str:
    torch = sys.modules.get("torch")  # without torch imported there are no tensors
    tensors = [torch is not None and isinstance(value, torch.Tensor) for value in (one, other)]
    if tensors[0] != tensors[1]:
        return f"{type(one).__name__} and {type(other).__name__} are two kinds of value"
    if torch is not None and tensors[0]:
        if _identical(torch, one, other):
            return ""
        try:
            given = tolerance.rtol is not None or tolerance.atol is not None
            torch.testing.assert_close(
                one,
                other,
                rtol=tolerance.rtol or 0.0 if given else None,
                atol=tolerance.atol or 0.0 if given else None,
                equal_nan=True,
            )
        except AssertionError as error:
            return str(error).strip().replace("\n", "\n  ")
        return ""
    if all(isinstance(value, int | float | complex) for value in (one, other)):
        return "" if _close(one, other, tolerance) else "not equal"
    try:
        same = bool(one == other)
    except Exception as error:  # noqa: BLE001 - comparing is the test's own code
        return f"cannot be compared: {type(error).__name__}: {error}"
    own = "__eq__" in {name for kind in type(one).__mro__[:-1] for name in vars(kind)}
    return (
        ""
        if same
        else "not equal"
        if own
        else "two objects that compare by identity; .unchecked()?"
    )


def _identical(torch: Any, one: Any, other: Any) -> bool:
    """Whether tensors are bitwise equal: checked first, since `torch.testing` takes a second to import."""
    if type(one) is not torch.Tensor or type(other) is not torch.Tensor:
        return False
    alike = all(
        getattr(one, name) == getattr(other, name)
        for name in ("dtype", "device", "layout", "shape")
    )
    plain = not one.is_quantized and one.layout is torch.strided and one.device.type != "meta"
    return alike and plain and bool(torch.equal(one, other))


def _close(one: complex, other: complex, tolerance: Tolerance) -> bool:
    """Whether numbers are equal, or within torch's tolerance for float64."""
    if one == other or (one != one and other != other):
        return True
    given = tolerance.rtol is not None or tolerance.atol is not None
    rtol = tolerance.rtol or 0.0 if given else 1e-7
    atol = tolerance.atol or 0.0 if given else 1e-7
    return abs(one - other) <= atol + rtol * abs(other)


def _shown(value: Any) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception as error:  # noqa: BLE001 - showing it is the value's own code
        text = f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
