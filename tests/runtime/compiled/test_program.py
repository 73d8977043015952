"""What torch's compiler remembers of a program, as what costs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.runtime.compiled.program import AGAIN, BREAKS, GUARDS, Compiling

torch = pytest.importorskip("torch", reason="looks at what torch compiles")


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def broken(x: Any) -> Any:
    x = x + 1
    print(end="")
    return x * 2


def named(x: Any, name: str) -> Any:
    return x * len(name) + (name == "a")


def test_what_was_compiled_before_is_not_told() -> None:
    compiled = torch.compile(broken, backend="eager")
    compiled(torch.ones(2))
    watched = Compiling()
    with watched.watching():
        compiled(torch.ones(2))
    assert not watched.times


def test_what_is_open_is_told_already_and_counted_once() -> None:
    compiled = torch.compile(broken, backend="eager")
    watched = Compiling()
    with watched.watching():
        compiled(torch.ones(2))
        within = watched.times
    assert within == watched.times and within.total() == 1
    with watched.watching():
        torch.compiler.reset()
        compiled(torch.ones(2))
    assert watched.times.total() == 2
    ((sync, _),) = watched.times.items()
    assert (sync.code, sync.waits) == (BREAKS, False)
    assert Path(sync.frames[0].path) == Path(__file__) and sync.frames[0].function == "broken"


def test_a_break_in_a_helper_has_the_way_to_it() -> None:
    def outer(x: Any) -> Any:
        return broken(x) + 1

    compiled = torch.compile(outer, backend="eager")
    watched = Compiling()
    with watched.watching():
        compiled(torch.ones(2))
    assert {sync.frames[0].function for sync in watched.times} == {"broken"}
    assert ["broken", "outer"] in [[f.function for f in sync.frames] for sync in watched.times]


@pytest.mark.parametrize(("number", "told"), [(4, 0), (5, 4), (6, 5)])
def test_compiled_again_is_told_from_four_times_on(number: int, told: int) -> None:
    compiled = torch.compile(named, backend="eager")
    watched = Compiling()
    with watched.watching():
        for name in ("a", "bb", "ccc", "dddd", "eeeee", "ffffff")[:number]:
            compiled(torch.ones(2), name)
    assert {(sync.code, times) for sync, times in watched.times.items()} == (
        {(AGAIN, told)} if told else set()
    )


def test_what_somebody_wants_is_not_told() -> None:
    def twice(x: Any) -> Any:
        return x * 2

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # torch is not there when types are checked
    def logged(x: Any) -> Any:
        return x

    def asked(x: Any) -> Any:
        x = logged(x + 1)
        torch._dynamo.graph_break()
        return x * 2

    watched = Compiling()
    with watched.watching():
        buckets = torch.compile(twice, backend="eager", dynamic=False)
        for size in range(2, 9):
            buckets(torch.ones(size))
        torch.compile(asked, backend="eager")(torch.ones(2))
    assert not watched.times


def test_rounds_are_not_added_up() -> None:
    watched = Compiling()
    with watched.watching():
        for _ in range(4):
            torch.compiler.reset()
            compiled = torch.compile(named, backend="eager")
            compiled(torch.ones(2), "a")
            compiled(torch.ones(2), "bb")
    assert not watched.times


class Scale(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]  # torch is not there when types are checked
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Any) -> Any:
        return x * self.factor


@pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13),
    reason="older releases do not say which line has torch check",
)
@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize(("number", "told"), [(20, False), (60, True)])
def test_instances_are_counted_once_however_often_they_are_compiled(
    number: int, told: bool, equal: bool
) -> None:
    watched = Compiling()
    for _ in range(2):
        torch.compiler.reset()
        with watched.watching():
            parts = (Scale(2.0 if equal else 1 + i / 64) for i in range(number))
            compiled = torch.compile(torch.nn.Sequential(*parts), backend="eager")
            for kind in (torch.float32, torch.float64):
                compiled(torch.ones(2, dtype=kind))
    found = [sync for sync in watched.times if sync.code == GUARDS]
    assert bool(found) is told
    if told:
        assert "is checked in each of 60" in found[0].why
        assert ("with the same value" in found[0].why) is equal


def test_where_nothing_is_compiled_torch_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo.eval_frame", raising=False)
    watched = Compiling()
    with watched.watching():
        pass
    assert not watched.times


def test_an_error_of_the_program_leaves_what_was_seen() -> None:
    compiled = torch.compile(broken, backend="eager")
    watched = Compiling()
    with pytest.raises(ZeroDivisionError), watched.watching():
        compiled(torch.ones(2))
        raise ZeroDivisionError
    assert watched.times.total() == 1
