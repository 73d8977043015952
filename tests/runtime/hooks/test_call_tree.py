"""Which Python functions a call runs, and how each can be called again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pytest_dispatchguard.runtime.hooks import call_tree
from pytest_dispatchguard.runtime.hooks.call_tree import CallTree, PythonCall, variables_of


def recorded(run: Callable[[], object]) -> list[PythonCall]:
    tree = CallTree()
    tree.record(run)
    return tree.calls


def inner(a: int, /, b: int, *rest: int, c: int = 3, **more: int) -> tuple[Any, ...]:
    return a, b, rest, c, more


def outer(n: int) -> tuple[Any, ...]:
    return inner(n, 2, 5, 6, c=4, z=9)


def test_calls_are_nested_and_timed() -> None:
    first, second = recorded(lambda: outer(1))
    assert (first.code.co_name, first.parent) == ("outer", -1)
    assert (second.code.co_name, second.parent) == ("inner", first.number)
    assert 0 < second.ns <= first.ns


def test_every_call_can_be_made_again_with_what_it_was_given() -> None:
    for call in recorded(lambda: outer(1)):
        assert call.function is not None
        assert call.function(*call.args, **call.kwargs) == (1, 2, (5, 6), 4, {"z": 9})


def test_variables_are_those_of_the_frame() -> None:
    free = 7

    def reading(a: int, *rest: int, c: int = 3, **more: int) -> dict[str, Any]:
        seen = dict(locals())
        return seen if free else {}

    def plain(a: int, /, b: int) -> dict[str, Any]:
        return dict(locals())

    for call in recorded(lambda: (reading(1, 2, 5, c=4, z=9), reading(1), plain(1, b=2))):
        if call.code.co_name != "<lambda>":
            assert variables_of(call) == call.result


def test_the_least_of_what_calls_took_is_kept() -> None:
    tree, other = CallTree(), CallTree()
    tree.record(lambda: outer(1))
    took = tree.times()
    faster = [(code, ns // 2) for code, ns in took]
    other.record(lambda: outer(2) and outer(3))
    tree.at_best([faster, other.times(), [(code, ns * 2) for code, ns in took]])
    assert tree.times() == faster


def test_closures_methods_and_super_can_be_called_again() -> None:
    class Base:
        def work(self, n: int) -> int:
            return n + 1

    class Derived(Base):
        def work(self, n: int) -> int:
            def twice(m: int) -> int:
                return m * n

            return twice(super().work(n))

    for call in recorded(lambda: Derived().work(3)):
        assert call.function is not None
        assert call.function(*call.args, **call.kwargs) == call.result


def test_generators_are_seen_but_not_called_again() -> None:
    @contextmanager
    def scope() -> Iterator[int]:
        yield 1

    def run() -> None:
        with scope():
            pass

    calls = {call.code.co_name: call for call in recorded(run)}
    assert calls["scope"].function is None
    assert calls["helper"].function is not None


def test_lists_are_kept_as_they_were_given() -> None:
    def emptied(values: list[int]) -> int:
        total = sum(values)
        values.clear()
        return total

    (call,) = recorded(lambda: emptied([1, 2]))
    assert call.args == ([1, 2],)


def test_what_is_given_an_iterator_is_not_called_again() -> None:
    def summed(values: Iterator[int]) -> int:
        return sum(values)

    (call,) = recorded(lambda: summed(iter([1, 2])))
    assert call.function is None


def test_a_call_that_fails_leaves_nothing_behind() -> None:
    def failing() -> None:
        raise ValueError

    def run() -> None:
        for _ in range(2):
            try:
                failing()
            except ValueError:
                outer(1)

    names = [(call.code.co_name, call.parent) for call in recorded(run)]
    assert names == [
        ("failing", -1),
        ("outer", -1),
        ("inner", 1),
        ("failing", -1),
        ("outer", -1),
        ("inner", 4),
    ]


def test_endless_calls_are_cut_off(monkeypatch: Any) -> None:
    monkeypatch.setattr(call_tree, "MOST_CALLS", 10)
    tree = CallTree()
    tree.record(lambda: [outer(1) for _ in range(100)])
    assert len(tree.calls) == 10
    assert not tree.complete
