"""Branches, loops, `try` and nested functions."""

from __future__ import annotations

from pytest_dispatchguard.lint.syntax.spelling import text

from .reading import body, read, words


def test_branches_are_joined() -> None:
    source = body(
        """
        if flag:
            a, b, c, d = x, 1, None, x
        else:
            a, b, c, d = x + 1, 2.0, x, 3
        show(a, b, c, d)
        e = x if flag else None
        g = x if flag else 0
        show(e, g)
        """,
        "x: Tensor, flag",
    )
    assert words(source) == ["tensor", "scalar", "tensor|none", "tensor?", "tensor|none", "tensor?"]


def test_a_branch_that_leaves_does_not_count() -> None:
    source = body(
        """
        y = x
        if flag:
            y = 1
            return y
        show(y)
        if other:
            y = 2
            raise ValueError
        else:
            y = x + 1
        show(y)
        """,
        "x: Tensor, flag, other",
    )
    assert words(source) == ["tensor", "tensor"]


def test_a_loop_is_read_as_its_second_round_sees_it() -> None:
    source = body(
        """
        n = 0
        last = None
        y = x
        for i in range(3):
            show(n, last, y, i)
            n = x.sum()
            last = x
            y = y * 2
        show(n, last, y)
        """
    )
    assert words(source) == [
        "tensor?",
        "tensor|none",
        "tensor",
        "scalar",
        "tensor?",
        "tensor|none",
        "tensor",
    ]


def test_while_loops_too() -> None:
    source = body(
        """
        t = x
        while show(t):
            t = t.item()
        """
    )
    assert words(source) == ["tensor?"]


def test_events_of_a_loop_are_told_once() -> None:
    reader = read(
        body(
            "for a in x:\n    for b in a:\n        while b:\n            show(b)\n            b = b - 1\n"
        )
    )
    assert [text(e.node) for e in reader.events if e.event == "call"] == ["show(b)"]
    assert [text(e.node) for e in reader.events if e.event == "truth"] == ["b"]
    assert reader.assigned["a"] == 1 and reader.assigned["b"] == 2


def test_what_is_iterated() -> None:
    source = body(
        """
        for v in x:
            show(v)
        for i, v in enumerate(xs):
            show(i, v)
        for a, b in zip(xs, [1, 2]):
            show(a, b)
        for n in x.shape:
            show(n)
        for v in x.tolist():
            show(v)
        for k, v in table.items():
            show(k, v)
        show([v for v in xs][0], {v for v in x}, [show(w) for v in xs for w in v])
        """,
        "x: Tensor, xs: List[Tensor], table: Dict[str, Tensor]",
    )
    assert words(source) == [
        "tensor", "scalar", "tensor", "tensor", "scalar", "scalar", "scalar", "text", "tensor?",
        "tensor", "tensor", "nested", "nested",
    ]  # fmt: skip


def test_what_try_leaves_behind() -> None:
    source = body(
        """
        try:
            y = x * 2
        except RuntimeError:
            y = None
        show(y)
        """
    )
    assert words(source) == ["tensor"]


def test_functions_inside_see_what_is_around() -> None:
    source = """
    # dispatchguard: hot
    def f(x: Tensor, n: int):
        y = x * 2
        def g(z: Tensor, n=None):
            show(x, y, z, n)
            return z
        h = lambda v: show(v, y)
        return g(y), h
    """
    assert words(source) == ["tensor", "tensor", "tensor", "unknown|none", "unknown", "tensor"]
