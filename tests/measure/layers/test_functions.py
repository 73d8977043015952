"""The Python functions of a call, put in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pytest_dispatchguard.measure.layers.functions import Part, parts_of
from pytest_dispatchguard.runtime.compiled.calls import Role
from pytest_dispatchguard.runtime.hooks.call_tree import CallTree


def work(n: int) -> int:
    return sum(range(n))


@contextmanager
def scope() -> Iterator[None]:
    work(20_000)
    yield


class Entered:
    """A context that is a class."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __enter__(self) -> int:
        return work(self.n)

    def __exit__(self, *error: object) -> None:
        work(self.n)


def parts(run: Callable[[], object]) -> list[Part]:
    tree = CallTree()
    tree.record(run)
    return parts_of(tree.calls)


def shown(found: list[Part]) -> list[tuple[int, str, str, int]]:
    return [(part.depth, part.name, part.kind, len(part.statements)) for part in found]


def test_the_only_function_of_a_call_is_the_whole() -> None:
    def whole() -> None:
        work(50_000)
        work(50_000)

    found = parts(lambda: whole())
    assert shown(found)[0][2:] == ("python", 0)
    assert shown(found)[1:] == [(1, "work", "python", 2)]
    assert found[1].parent == 0


def test_contexts_are_one_part_from_entering_to_leaving() -> None:
    def whole() -> None:
        with scope():
            work(20_000)
        with Entered(20_000):
            pass

    found = parts(lambda: whole())
    kinds = {part.name: part for part in found}
    assert kinds["scope"].kind == "context"
    (entering,) = (part for part in found if part.kind == "context" and part.name != "scope")
    for part in (kinds["scope"], entering):
        (statement,) = part.statements
        assert statement.text.startswith("with ") and statement.text.endswith(": pass")
        names = {f"a{i}": value for i, value in enumerate(statement.values)}
        exec(statement.text.format(*names), dict(names))


def test_what_takes_next_to_nothing_is_told_with_its_caller() -> None:
    def small() -> None:
        pass

    def whole() -> None:
        small()
        work(1_000_000)

    assert [part.name for part in parts(lambda: whole())][1:] == ["work"]


def test_what_takes_long_is_told_however_deep_it_lies() -> None:
    scope: dict[str, Callable[[], None]] = {"work": work}  # type: ignore[dict-item]  # called by what follows
    smalls = "".join(f"def small{i}(): work(100_000)\n" for i in range(10))
    called = "; ".join(f"small{i}()" for i in range(10))
    exec(
        f"{smalls}def deep(): work(900_000)\ndef middle(): deep()\ndef whole(): {called}; middle()",
        scope,
    )
    found = [part.name for part in parts(lambda: scope["whole"]())]
    # How many of the short ones are told is up to the machine's pace.
    assert len(found) <= 16
    assert {"whole", "middle", "deep", "work"} <= {*found}


def test_statements_do_again_what_was_done() -> None:
    seen: list[object] = []

    def noting(a: int, *rest: int, key: str, **more: object) -> None:
        work(100_000)
        seen.append((a, rest, key, more))

    found = parts(lambda: [noting(1, 2, key="k", z=[3]), work(100_000)])
    (statement,) = next(part for part in found if part.name.endswith("noting")).statements
    names = {f"a{i}": value for i, value in enumerate(statement.values)}
    eval(statement.text.format(*names), dict(names))
    assert seen == [(1, (2,), "k", {"z": [3]})] * 2


def test_functions_of_one_role_are_one_part() -> None:
    def within() -> None:
        work(50_000)

    def around() -> None:
        within()

    def whole() -> None:
        around()

    tree = CallTree()
    tree.record(lambda: whole())
    role = Role("wrapping", "wrapper")
    found = parts_of(
        tree.calls, lambda call: role if call.code.co_name in ("within", "around") else None
    )
    assert [(part.name.rpartition(".")[2], part.kind) for part in found] == [
        ("whole", "python"),
        ("wrapping", "wrapper"),
        ("work", "python"),
    ]
    assert [part.parent for part in found] == [-1, 0, 1]


def test_a_call_without_python_has_no_parts() -> None:
    assert parts_of([]) == []


def test_what_a_comprehension_calls_is_its_functions() -> None:
    def whole() -> list[int]:
        return [work(50_000) for _ in (1, 2, 3)]

    found = parts(lambda: [whole(), len("x")])
    assert [(part.name.rpartition(".")[2], part.depth) for part in found] == [
        ("whole", 0),
        ("work", 1),
    ]
    assert len(found[1].statements) == 3
