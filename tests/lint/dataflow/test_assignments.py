"""Assignments carry kinds: annotations, unpacking, augmented assignments, walrus."""

from __future__ import annotations

import libcst as cst
import pytest

from pytest_dispatchguard.lint.syntax.spelling import text

from .reading import body, read, words


def test_assignments_carry_kinds() -> None:
    source = body(
        """
        y = x * 2
        n = y.shape[0]
        z = w = y
        y = n
        m: int = 3
        t: Tensor = unheard_of(x)
        show(x, y, n, z, w, m, t)
        """
    )
    assert words(source) == ["tensor", "scalar", "scalar", "tensor", "tensor", "scalar", "tensor"]


def test_an_annotation_without_a_value_counts() -> None:
    assert words(body("y: Tensor\nshow(y)")) == ["tensor"]


def test_augmented_assignments() -> None:
    source = body(
        """
        total = 0
        total += x
        n = 1
        n += 2
        show(total, n)
        x += n
        show(x)
        """
    )
    assert words(source) == ["tensor", "scalar", "tensor"]


@pytest.mark.parametrize(
    "statement, kinds",
    [
        ("a, b = x, 1", ["tensor", "scalar"]),
        ("a, b = x.shape", ["scalar", "scalar"]),
        ("(a, b) = x.chunk(2)", ["tensor", "tensor"]),
        ("[a, b] = [x, x]", ["tensor", "tensor"]),
        ("a, b = torch.max(x, dim=0)", ["tensor", "tensor"]),
        ("a, b = x.sort()", ["tensor", "tensor"]),
        ("a, *b = x.shape", ["scalar", "nested"]),
        ("a, (b, c) = 1, (x, 2)", ["scalar", "tensor"]),
        ("a = b = x", ["tensor", "tensor"]),
        ("a, b = unheard_of(x)", ["unknown", "unknown"]),
        ("a, b = x", ["tensor", "tensor"]),
        ("a, b = x.topk(2, dim=-1)", ["tensor", "tensor"]),
        ("a, b = F.max_pool2d(x, 2, return_indices=True)", ["tensor", "tensor"]),
    ],
)
def test_unpacking(statement: str, kinds: list[str]) -> None:
    assert words(body(f"{statement}\nshow(a, b)")) == kinds


def test_a_walrus_binds() -> None:
    source = body(
        """
        if (total := x.sum()) > 0:
            show(total)
        show(n := x.shape[0], n)
        """
    )
    assert words(source) == ["tensor", "scalar", "scalar"]


def test_values_that_names_surely_hold() -> None:
    reader = read(
        body(
            """
            a = x + 1
            b = 2
            show(a, b)
            for _ in range(3):
                show(a, b)
                b = 3
            if x.dim():
                a = 4
            show(a)
            """
        )
    )
    calls = [e.node for e in reader.events if e.event == "call" and e.name == "show"]
    held = []
    for call in calls:
        assert isinstance(call, cst.Call)
        for argument in call.args:
            value = reader.values.get(id(argument.value))
            held.append(None if value is None else text(value))
    assert held == ["x + 1", "2", "x + 1", None, None]
