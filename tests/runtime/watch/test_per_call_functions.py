"""Functions that are built at every call: those that are built for that call alone."""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable
from typing import Any

import pytest

from pytest_dispatchguard.runtime.watch.costly_calls import CostlyCalls

from ..conftest import seen_in


def seen(run: Callable[[], object], times: int = 4) -> list[tuple[str, str, str, int]]:
    """Code, what was built, by which function, and how often."""
    watch = CostlyCalls()
    with watch.watching():
        for _ in range(times):
            run()
    return [
        (sync.code, sync.operation, sync.frames[0].function.rpartition(".")[2], number)
        for sync, number in seen_in(watch, __file__).items()
    ]


def with_message(function: Callable[[int], int]) -> Callable[[int], int]:
    @functools.wraps(function)
    def wrapper(x: int) -> int:
        return function(x)

    return wrapper


def body(x: int) -> int:
    return x + 1


def test_a_wrapper_of_one_call() -> None:
    def layer() -> int:
        return with_message(body)(1)

    assert ("DG303", "wrapper", "with_message", 4) in seen(layer)
    assert not seen(layer, times=2)  # too few to say


def test_a_function_that_is_called_on_the_spot() -> None:
    def layer(x: int = 1) -> int:
        def scaled() -> int:
            return x * 2

        return scaled()

    assert seen(layer) == [("DG301", "scaled", "layer", 4)]


def test_a_function_that_needs_nothing_of_the_call() -> None:
    def layer() -> int:
        def one() -> int:
            return 1

        return one()

    assert seen(layer) == [("DG302", "one", "layer", 4)]


def test_a_function_that_needs_its_default_of_the_call() -> None:
    def layer(x: int = 1) -> int:
        def scaled(y: int = x) -> int:
            return y

        return scaled()

    assert seen(layer) == [("DG301", "scaled", "layer", 4)]


def test_equal_code_of_two_files_is_told_apart() -> None:
    source = "def layer(x=1):\n    def scaled():\n        return x\n    return scaled()\n"
    spaces: list[dict[str, Any]] = [{}, {}]
    for name, space in zip(("one.py", "two.py"), spaces, strict=True):
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        exec(compile(source, name, "exec"), space)
    watch = CostlyCalls()
    with watch.watching():
        for _ in range(3):
            spaces[0]["layer"]()
        spaces[1]["layer"]()
    ((sync, number),) = seen_in(watch, "one.py", "two.py").items()
    assert (sync.frames[0].path, number) == ("one.py", 3)


def test_the_place_is_where_it_is_built() -> None:
    def outer() -> int:
        return layer(1)

    def layer(x: int) -> int:
        def scaled() -> int:
            return x * 2

        return scaled()

    watch = CostlyCalls()
    with watch.watching():
        for _ in range(3):
            outer()
    (sync,) = seen_in(watch, __file__)
    names = [frame.function.rpartition(".")[2] for frame in sync.frames]
    assert names[:2] == ["layer", "outer"]
    assert sync.frames[0].line == layer.__code__.co_firstlineno + 1


WRAPPED = with_message(body)


def _kept(x: int = 1) -> int:
    return WRAPPED(x)


def _often(x: int = 1) -> int:
    def scaled(y: int) -> int:
        return x * y

    return sum(scaled(y) for y in range(9)) + scaled(1) + scaled(2) + scaled(3) + scaled(4)


def _given(x: int = 1) -> int:
    def key(y: int) -> int:
        return -y * x

    return sorted([3, 1], key=key)[0]


def _asked_once(x: int = 1) -> int:
    def key(y: int) -> int:
        return -y * x

    return max([3], key=key)


def _handed_on(x: int = 1) -> int:
    def scaled() -> int:
        return x

    return _calls(scaled)


def _calls(function: Callable[[], int]) -> int:
    return function()


def _seldom(x: int = 1, state: list[int] = []) -> int:  # noqa: B006 - a memory is what it is for
    def rare() -> int:
        return x

    state.append(1)
    return rare() if len(state) % 4 == 1 else x


def _expressions(x: int = 1) -> Any:
    return (
        [y * x for y in range(2)],
        (lambda: x)(),
        {y: x + y for y in range(2)},
        sum(y for y in [x]),
    )


def _class(x: int = 1) -> Any:
    class Local:
        def method(self) -> int:
            return x

    return Local


@pytest.mark.parametrize(
    "layer", [_kept, _often, _given, _asked_once, _handed_on, _seldom, _expressions, _class]
)
def test_what_only_looks_like_it(layer: Callable[[], object]) -> None:
    assert seen(layer) == []
