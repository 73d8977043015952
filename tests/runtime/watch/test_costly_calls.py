"""Costly calls that are seen running: those that their maker can change, once each, at his own line."""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest

from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.runtime.watch import costly_calls

from ..conftest import seen_in


@contextlib.contextmanager
def scope() -> Iterator[None]:
    yield


def seen(run: Callable[[], object]) -> Counter[tuple[str, str, str]]:
    """Code, operation and function of what was seen."""
    watch = costly_calls.CostlyCalls()
    with watch.watching():
        run()
    found: Counter[tuple[str, str, str]] = Counter()
    for sync, number in seen_in(watch, __file__).items():
        found[sync.code, sync.operation, sync.frames[0].function.rpartition(".")[2]] += number
    return found


def test_contexts() -> None:
    def enters() -> None:
        for _ in range(3):
            with scope(), contextlib.nullcontext(), contextlib.suppress(KeyError):
                pass
        with contextlib.ExitStack() as stack:
            stack.enter_context(scope())  # by the stack, which is told of itself

    assert seen(enters) == {
        ("DG201", "scope", "enters"): 3,
        ("DG203", "nullcontext", "enters"): 3,
        ("DG204", "suppress", "enters"): 3,
        ("DG202", "ExitStack", "enters"): 1,
    }


def test_python_s_own_slow_ways() -> None:
    def asks() -> None:
        inspect.signature(seen)
        copy.deepcopy({"a": [1, {"b": 2}]})
        os.environ.get("HOME")
        os.getenv("HOME")
        os.environ["PATH"]

    assert seen(asks) == {
        ("DG601", "inspect.signature", "asks"): 1,
        ("DG606", "deepcopy", "asks"): 1,
        ("DG603", "os.environ", "asks"): 3,
    }


def test_what_python_does_for_itself_is_nobody_s() -> None:
    import subprocess
    import tempfile

    def works() -> None:
        with tempfile.TemporaryDirectory():  # which reads the environment
            subprocess.list2cmdline(["a"])

    assert not seen(works)


def test_where_it_is_and_how_it_came_there() -> None:
    def outer() -> None:
        inner()

    def inner() -> None:
        copy.deepcopy([])

    watch = costly_calls.CostlyCalls()
    with watch.watching():
        outer()
    ((sync, number),) = seen_in(watch, __file__).items()
    names = [frame.function.rpartition(".")[2] for frame in sync.frames]
    assert number == 1 and names[:2] == ["inner", "outer"]
    assert sync.frames[0].path == __file__
    assert sync.frames[0].line == inner.__code__.co_firstlineno + 1


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_trees_of_one_leaf() -> None:
    import torch
    from torch.utils import _pytree as tree

    x = torch.ones(2)

    def walks() -> None:
        tree.tree_flatten(x)
        tree.tree_flatten([x, x])
        tree.tree_map(torch.relu, x)

    assert seen(walks) == {("DG101", "tree_flatten", "walks"): 1, ("DG102", "tree_map", "walks"): 1}


def test_two_who_watch_share_one_place() -> None:
    first, second = costly_calls.CostlyCalls(), costly_calls.CostlyCalls()
    with first.watching():
        copy.deepcopy([])
        with second.watching():
            copy.deepcopy([])
        copy.deepcopy([])
    assert [seen_in(watch, __file__).total() for watch in (first, second)] == [3, 1]
    assert sys.getprofile() is None


def test_threads_that_live_on_are_watched_no_more() -> None:
    go, done = threading.Event(), threading.Event()

    def lives_on() -> None:
        go.wait()
        copy.deepcopy([])
        done.set()

    watch = costly_calls.CostlyCalls()
    before = threading.gettrace()
    with watch.watching():
        thread = threading.Thread(target=lives_on)
        thread.start()
        copy.deepcopy([])
    go.set()
    done.wait()
    thread.join()
    assert seen_in(watch, __file__).total() == 1
    assert threading.gettrace() is before


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="monitoring shares with everybody")
def test_where_nothing_can_watch_it_is_told() -> None:
    sys.settrace(lambda *_: None)
    sys.setprofile(lambda *_: None)
    try:
        with pytest.raises(UserError, match="cannot be watched"):
            seen(scope)
    finally:
        sys.settrace(None)
        sys.setprofile(None)
