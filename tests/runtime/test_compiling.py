"""What torch's compiler remembers of a program, as what costs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.runtime.compiling import AGAIN, BREAKS, Compiling

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
