"""One call of every function, looked into."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pytest_dispatchguard.runtime.hooks.function_calls import each_function
from pytest_dispatchguard.runtime.watch import instruction_profile as module
from pytest_dispatchguard.runtime.watch.instruction_profile import InstructionProfiles


@contextlib.contextmanager
def scope() -> Iterator[None]:
    yield


def kind(word: str, deep: int = 0) -> str:
    """Takes a while, and says the same each time."""
    number = 0
    for char in word:
        number += ord(char) % 3
    return "odd" if (number + deep) % 2 else "even"


def counter(numbers: list[int]) -> int:
    """Says something else each time."""
    numbers.append(1)
    for _ in range(10):
        pass
    return len(numbers)


def seen(
    run: Callable[[], object], own: Callable[[str], bool] | None = None
) -> InstructionProfiles:
    """What is seen of a run."""
    looks = InstructionProfiles(own or (lambda path: path == __file__))
    with each_function(looks.entered):
        run()
        looks.end()
    return looks


def lines(looks: InstructionProfiles, function: Callable[..., object]) -> dict[int, int]:
    """Instructions by line of a function, counted from its first."""
    code = function.__code__
    own = {line for _, _, line in code.co_lines()}
    return {
        line - code.co_firstlineno: number
        for (_, line), number in looks.lines.items()
        if line in own
    }


def test_lines_take_what_they_call() -> None:
    def subject() -> None:
        with scope():
            pass
        kind("abcdef")
        cheap = 1  # noqa: F841 - one instruction or two

    def twice() -> None:
        subject()
        subject()

    taken = lines(seen(twice), subject)
    assert taken[1] > 40  # Python's own code of the context as well
    assert taken[3] > 50
    assert taken[4] <= 4
    assert taken == lines(seen(twice), subject)  # exact


def test_the_first_call_may_make_what_others_use() -> None:
    made: list[int] = []

    def subject() -> int:
        if not made:
            made.extend(sum(range(n)) for n in range(100))
        return made[0]

    taken = lines(seen(lambda: [subject() for _ in range(3)]), subject)
    assert 2 not in taken and 3 in taken


def test_functions_that_are_called_once_are_not_looked_into() -> None:
    def subject() -> None:
        kind("a")

    assert lines(seen(subject), subject) == {}


def test_functions_of_others_are_not_looked_into() -> None:
    looks = seen(lambda: [kind("a") for _ in range(3)], own=lambda path: False)
    assert looks.lines == {}


def test_functions_inside_of_a_look_have_their_own_later() -> None:
    def inner() -> None:
        kind("a")

    def outer() -> None:
        inner()

    looks = seen(lambda: [outer() for _ in range(4)])
    assert lines(looks, outer)[1] > lines(looks, inner)[1] > 10


def test_a_call_without_end_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST", 200)

    def subject() -> None:
        for _ in range(1000):
            pass

    def after() -> None:
        kind("a")

    looks = seen(lambda: [(subject(), after()) for _ in range(3)])
    assert lines(looks, subject) == {}
    assert lines(looks, after)  # what follows is looked into all the same


def said(looks: InstructionProfiles) -> list[str]:
    """What is asked again and again."""
    return [text for at in looks.remarks(lambda path: "here.py") for text in at.seen]


def test_the_same_answers() -> None:
    def subject() -> None:
        for _ in range(3):
            kind("abcdef")
            kind("abcdef", 1 if _ else 0)  # once as it is without

    (text,) = said(seen(lambda: [subject() for _ in range(2)]))
    assert text.startswith("`kind` gives the same answer to the same arguments 4 times a call (")


def test_other_answers_and_other_arguments() -> None:
    numbers: list[int] = []

    def subject() -> None:
        for n in range(4):
            counter(numbers)
            kind("abcdef", n)
            kind(f"abcde{n}")
            scope()
            print(end="")

    assert said(seen(lambda: [subject() for _ in range(2)])) == []


def test_attributes_of_modules() -> None:
    torch = pytest.importorskip("torch", reason="whose modules they are of")

    class Layer(torch.nn.Module):  # type: ignore[misc]  # torch is not read when types are checked
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(2))
            self.shift = torch.nn.Parameter(torch.ones(2))

        def forward(self, x: Any) -> Any:
            for _ in range(10):
                x = x * self.scale
            return x + self.shift

    layer = Layer()
    looks = seen(lambda: [layer(torch.ones(2)) for _ in range(2)])
    (text,) = said(looks)
    assert text.startswith("`scale` of one module is looked up 10 times a call")
    ((_, line, function),) = looks.again
    assert function.endswith("forward") or function == "forward"
    assert line == Layer.forward.__code__.co_firstlineno + 2


def test_nothing_lives_on() -> None:
    class Held:
        pass

    refs: list[weakref.ref[Held]] = []

    def take(held: Held) -> int:
        return sum(range(10))

    def subject() -> None:
        held = Held()
        refs.append(weakref.ref(held))
        for _ in range(3):
            take(held)

    seen(lambda: [subject() for _ in range(3)])
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3


def test_threads() -> None:
    def subject() -> None:
        kind("abcdef")

    def works() -> None:
        for _ in range(20):
            subject()

    def run() -> None:
        threads = [threading.Thread(target=works) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert lines(seen(run), subject)[1] > 50
