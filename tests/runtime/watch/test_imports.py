"""Imports that functions make again and again."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable

import pytest

from pytest_dispatchguard.runtime.watch.imports import Importing


def subject(number: int) -> None:
    """Imports one module at every call, another at the first alone."""
    if number == 0:
        import string  # noqa: F401 - what is looked for
    from os import path  # noqa: F401 - what is looked for


def seen(run: Callable[[], object], *, own: bool = True) -> dict[tuple[str, int], int]:
    """What was imported, at which line of the subject, and how often."""
    importing = Importing(lambda path: own and path == __file__)
    with importing.watching():
        run()
    first = subject.__code__.co_firstlineno
    assert all(s.code == "DG602" and not s.waits for s in importing.times)
    return {(s.operation, s.frames[0].line - first): n for s, n in importing.times.items()}


def test_each_is_counted() -> None:
    assert seen(lambda: [subject(n) for n in range(5)]) == {("import os", 4): 5}


@pytest.mark.parametrize("calls", [1, 2])
def test_a_few_are_no_habit(calls: int) -> None:
    assert seen(lambda: [subject(n) for n in range(calls)]) == {}


def test_functions_of_others() -> None:
    assert seen(lambda: [subject(n) for n in range(5)], own=False) == {}


def test_modules_import_as_they_like() -> None:
    source = compile("import os\n", __file__, "exec")
    assert seen(lambda: [exec(source, {}) for _ in range(5)]) == {}


def test_all_threads() -> None:
    def run() -> None:
        threads = [threading.Thread(target=subject, args=(1,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert seen(run) == {("import os", 4): 4}


def test_an_import_that_fails_fails_as_ever() -> None:
    def fails() -> None:
        import no_such_module_at_all  # noqa: F401 - what fails

    def run() -> None:
        for _ in range(3):
            with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
                fails()

    ((name, _),) = seen(run)
    assert name == "import no_such_module_at_all"


def test_what_was_there_is_put_back() -> None:
    before = builtins.__import__
    with Importing(lambda path: True).watching():
        assert builtins.__import__ is not before
    assert builtins.__import__ is before
    importing = Importing(lambda path: True)
    with pytest.raises(KeyError), importing.watching():
        raise KeyError("meant")
    assert builtins.__import__ is before


def test_who_comes_later_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(name: str, *rest: object) -> object:
        return before(name, *rest)  # type: ignore[arg-type]  # as it is called by Python

    before = builtins.__import__
    with Importing(lambda path: True).watching():
        monkeypatch.setattr(builtins, "__import__", other)
    assert builtins.__import__ is other
