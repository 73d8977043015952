"""Narrowing by tests for None, types and devices."""

from __future__ import annotations

import pytest

from .reading import body, read, shown, words


def test_none_is_ruled_out() -> None:
    source = body(
        """
        show(m)
        if m is not None:
            show(m)
        else:
            show(m)
        if m is None:
            m = x
        show(m)
        """,
        "x: Tensor, m: Optional[Tensor] = None",
    )
    assert words(source) == ["tensor|none", "tensor", "none", "tensor"]


def test_early_returns_rule_none_out() -> None:
    source = body(
        """
        if m is None:
            return x
        show(m)
        """,
        "x: Tensor, m: Optional[Tensor] = None",
    )
    assert words(source) == ["tensor"]


def test_truth_rules_none_out() -> None:
    source = body(
        """
        if n:
            show(n)
        if not n:
            return x
        show(n)
        """,
        "x: Tensor, n: Optional[int] = None",
    )
    assert words(source) == ["scalar", "scalar"]


def test_what_is_no_tensor_is_what_else_it_may_be() -> None:
    source = body(
        """
        t = p
        if not torch.is_tensor(t):
            show(t)
        else:
            show(t)
        if isinstance(q, Tensor):
            q = q.item()
        show(q)
        if not isinstance(r, torch.Tensor):
            show(r)
        if not isinstance(s, torch.Tensor):
            show(s)
        """,
        "p: Union[Tensor, float, int], q: float | Tensor, r: Union[Tensor, int, list], s: Tensor",
    )
    assert words(source) == ["scalar", "tensor", "scalar", "other", "other"]


def test_isinstance_narrows_both_ways() -> None:
    source = body(
        """
        if isinstance(p, torch.Tensor):
            show(p)
        elif isinstance(p, (int, float)):
            show(p)
        elif isinstance(p, (list, tuple)):
            show(p)
        else:
            show(p)
        show(p)
        """,
        "p",
    )
    first, second, third, fourth, last = shown(source)
    assert first.is_tensor and second.what == "scalar" and third.what == "nested"
    assert not fourth.maybe_tensor and not last.is_tensor


@pytest.mark.parametrize(
    "test", ["torch.is_tensor(p)", "isinstance(p, Tensor)", "isinstance(p, (Tensor, nn.Parameter))"]
)
def test_tests_for_tensors(test: str) -> None:
    source = body(
        f"""
        if not {test}:
            show(p)
            raise TypeError
        show(p)
        """,
        "p",
    )
    before, after = shown(source)
    assert not before.maybe_tensor and after.is_tensor


def test_a_tensor_is_made_where_there_was_none() -> None:
    source = body(
        """
        if not isinstance(p, Tensor):
            p = torch.tensor(p)
        show(p)
        """,
        "p",
    )
    (kind,) = shown(source)
    assert kind.is_tensor and not kind.host


def test_and_and_or_narrow_within_the_condition() -> None:
    source = body(
        """
        if m is not None and show(m):
            show(m)
        if m is None or show(m):
            show(m)
        y = m is not None and show(m)
        if isinstance(p, Tensor) and p.any() and show(p):
            show(p)
        z = show(m) if m is not None else 1
        w = [show(v) for v in p if isinstance(v, Tensor)]
        """,
        "m: Optional[Tensor], p",
    )
    assert words(source) == [
        "tensor",
        "tensor",
        "tensor",
        "tensor|none",
        "tensor",
        "tensor",
        "tensor",
        "tensor",
        "tensor",
    ]


def test_not_turns_narrowing_round() -> None:
    source = body(
        """
        if not (m is None or n is None):
            show(m, n)
        if not isinstance(p, Tensor):
            return
        show(p)
        """,
        "m: Optional[Tensor], n: Optional[Tensor], p",
    )
    assert words(source) == ["tensor", "tensor", "tensor"]


def test_asserts_narrow() -> None:
    source = body(
        "assert m is not None and isinstance(p, Tensor)\nshow(m, p)", "m: Optional[Tensor], p"
    )
    assert words(source) == ["tensor", "tensor"]


def test_a_device_that_is_asked_for() -> None:
    source = body(
        """
        if x.device.type == "cpu":
            show(x)
        if not x.is_cuda:
            show(x)
        else:
            show(x)
        """
    )
    assert words(source) == ["tensor@cpu", "tensor@cpu", "tensor"]


def test_narrowing_ends_with_a_new_value() -> None:
    source = body(
        """
        if isinstance(p, Tensor):
            p = p.shape
            show(p)
        """,
        "p",
    )
    assert words(source) == ["nested"]


@pytest.mark.parametrize(
    ("annotation", "test"),
    [
        ("Union[Tensor, List[int]]", "isinstance(p, list)"),
        ("Tensor | List[int]", "isinstance(p, (list, tuple))"),
        ("Union[Tensor, Dict[str, Tensor]]", "isinstance(p, dict)"),
        ("Union[float, Tensor]", "isinstance(p, float)"),
        ("Union[int, float, Tensor]", "isinstance(p, (int, float))"),
    ],
)
def test_what_is_not_the_other_of_two_is_the_tensor(annotation: str, test: str) -> None:
    source = body(f"show(p)\nif not {test}:\n    show(p)\nshow(p)", f"p: {annotation}")
    before, inside, after = shown(source)
    assert not before.is_tensor and inside.is_tensor and not after.is_tensor


@pytest.mark.parametrize(
    ("annotation", "test"),
    [
        ("Union[Tensor, List[int], float]", "isinstance(p, list)"),
        ("Union[Tensor, Dict[str, Tensor]]", "isinstance(p, list)"),
        ("Union[int, float, Tensor]", "isinstance(p, float)"),
        ("Union[Tensor, Batch]", "isinstance(p, Batch)"),
        ("Any", "isinstance(p, list)"),
    ],
)
def test_one_of_three_is_left_open(annotation: str, test: str) -> None:
    source = body(f"if not {test}:\n    show(p)", f"p: {annotation}")
    (inside,) = shown(source)
    assert not inside.is_tensor


def test_a_list_made_a_tensor_is_one_either_way() -> None:
    source = body(
        """
        if isinstance(p, list):
            p = torch.tensor(p)
        show(p)
        """,
        "p: Union[Tensor, List[int]]",
    )
    (after,) = shown(source)
    assert after.is_tensor


@pytest.mark.parametrize(
    ("test", "kinds"),
    [
        ("use_gpu", ["tensor", "tensor@cpu", "tensor@cpu"]),
        ("args.cuda", ["tensor", "tensor@cpu", "tensor@cpu"]),
        ("use_more", ["tensor", "tensor", "tensor"]),
        ('mode != "cpu"', ["tensor", "tensor@cpu", "tensor@cpu"]),
        ('mode != "bfloat16"', ["tensor", "tensor", "tensor"]),
    ],
)
def test_where_there_is_no_gpu_all_is_on_the_cpu(test: str, kinds: list[str]) -> None:
    statements = f"""
        if {test}:
            show(x)
            x = x.cpu()
        else:
            show(x)
        show(x)
        """
    assert words(body(statements, "x: Tensor, use_gpu, use_more, args, mode")) == kinds


def hot_lines(statements: str) -> list[bool]:
    """Of the calls of `show`, whether they are reached."""
    events = read(body(statements)).events
    return [not e.scene.cold for e in events if e.event == "call" and e.name == "show"]


@pytest.mark.parametrize(
    ("between", "reached"),
    [
        ("pass", [False, True]),
        ("if x.dim():\n    m = x", [True, True]),
        ("m = find(x)", [True, True]),
        ("for m in x:\n    pass", [True, True]),
        ("with x as m:\n    pass", [True, True]),
        ("def g():\n    nonlocal m\n    m = 1\ng()", [True, True]),
        ("try:\n    import m\nexcept ImportError:\n    pass", [True, True]),
    ],
)
def test_what_was_just_set_to_none_is_none(between: str, reached: list[bool]) -> None:
    statements = f"m = None\n{between}\nif m is not None:\n    show(m)\nelse:\n    show(x)\n"
    assert hot_lines(statements) == reached


def test_what_a_loop_sets_later_is_not_none() -> None:
    statements = """
    best = None
    for row in x:
        if best is not None:
            show(best)
        best = row
    for row in x:
        for part in row:
            if best is None:
                show(part)
    """
    assert hot_lines(statements) == [True, True]
