"""What torch.compile makes of a call, counted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from pytest_dispatchguard.runtime.compiled.counts import CALLS, NAMES, Found, counted, failure
from pytest_dispatchguard.runtime.counters.counters import OF_PYTHON, count

torch = pytest.importorskip("torch", reason="counts what torch compiles")


def found(run: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> Found:
    made = counted(run, prepare)
    assert made is not None
    return made


def eager(function: Any, **how: Any) -> Any:
    return torch.compile(function, backend="aot_eager", **how)


def test_a_function() -> None:
    x, compiled = torch.ones(4), eager(lambda x: x * 2 + 1)
    made = found(lambda: compiled(x))
    assert list(made.values) == list(NAMES) and not made.varying
    told = {name: made.values[name] for name in ("graphs", "graph_breaks", "recompiles")}
    assert told == {"graphs": 1, "graph_breaks": 0, "recompiles": 0}
    assert made.values["cache_size"] == 1 and made.values["guards"] > 0
    assert made.values["proxy_dispatches"] >= 2 and made.values["fake_cache_misses"] > 0
    assert sum(group.number for group in made.facts.guards) == made.values["guards"]
    assert set(made.facts.compile_s) == {"tracing", "backend", "inductor"}
    assert made.facts.compile_s["tracing"] > 0


def test_it_repeats_whatever_was_compiled_before() -> None:
    x, compiled = torch.ones(4), eager(lambda x: x.relu() * 2)
    before = found(lambda: compiled(x)).values
    eager(lambda x: torch.nn.functional.softmax(x @ x, 0))(torch.ones(3, 3))
    assert found(lambda: compiled(x)).values == before
    assert torch.equal(compiled(x), x * 2)


def test_it_repeats_whatever_the_tensor_was_given_to_before() -> None:
    def written(x: Any) -> Any:
        x.add_(1)
        return x

    def counts(x: Any) -> Any:
        compiled = eager(lambda x: x.sum() * 2)
        made = counted(lambda: compiled(x), lambda: None, ([x],))
        assert made is not None
        return made.values

    used = torch.ones(4, 3)
    eager(written, dynamic=True)(used)
    if "_dynamo_propagated_dynamic_indices" not in vars(used):
        pytest.skip("this torch leaves the mark that users make themselves: it must stay")
    assert counts(used) == counts(torch.ones(4, 3))


def test_each_constant_of_an_instance_is_a_guard_more() -> None:
    class Scaled(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]  # torch is not there when types are checked
        def __init__(self, scale: Any) -> None:
            super().__init__()
            self.scale = scale

        def forward(self, x: Any) -> Any:
            return x * self.scale

    def guards(number: int) -> int:
        net = eager(torch.nn.Sequential(*(Scaled(1.0 + i) for i in range(number))))
        return found(lambda: net(torch.ones(2))).values["guards"]

    two, three, four = guards(2), guards(3), guards(4)
    assert four - three == three - two >= 1


def test_graph_breaks_are_told_with_place_and_reason() -> None:
    def breaks(x: Any) -> Any:
        x = x + 1
        print(end="")
        if x.sum() > 0:
            x = x * 2
        return x

    compiled = eager(breaks)
    made = found(lambda: compiled(torch.ones(2)))
    assert made.values["graph_breaks"] == len(made.facts.breaks) == 2
    first = breaks.__code__.co_firstlineno
    places = [event.place.rpartition(":")[2] for event in made.facts.breaks]
    assert places == [str(first + 2), str(first + 3)]
    assert "print" in made.facts.breaks[0].reason
    assert "value of a tensor" in made.facts.breaks[1].reason
    assert made.values["graphs"] == 3


def test_a_break_that_leaves_a_function_uncompiled_counts() -> None:
    def breaks(x: Any) -> Any:
        try:
            x = x + 1
            torch._dynamo.graph_break()
        except ValueError:
            pass
        return x

    compiled = eager(breaks)
    made = found(lambda: compiled(torch.ones(2)))
    assert (made.values["graph_breaks"], made.values["graphs"]) == (1, 0)
    assert "not compiled at all" in made.facts.breaks[0].reason
    assert "test_counts.py:" in made.facts.breaks[0].place


def test_a_recompile_within_a_call_is_told_with_its_reason() -> None:
    compiled = eager(lambda x: x * 2)
    made = found(lambda: [compiled(torch.ones(n)) for n in (2, 3, 4)])
    assert (made.values["recompiles"], made.values["cache_size"]) == (1, 2)
    (event,) = made.facts.recompiles
    assert "size mismatch at index 0. expected 2, actual 3" in event.reason
    assert "call" not in event.reason.partition("actual")[2]


def test_recompiles_at_every_call_are_told_as_such() -> None:
    calls: list[int] = []
    compiled = eager(lambda x, text: x * len(text), dynamic=False)

    def run() -> None:
        calls.append(1)
        compiled(torch.ones(2), "a" * len(calls))

    made = found(run)
    assert made.values["recompiles"] == CALLS - 1 == made.values["cache_size"] - 1
    still = [event for event in made.facts.recompiles if "at every call" in event.reason]
    assert still == [made.facts.recompiles[-1]]


def test_of_what_compiles_at_every_call_nothing_else_is_counted() -> None:
    calls: list[int] = []
    compiled = eager(lambda x, text: x * len(text), dynamic=False)

    def run() -> None:
        calls.append(1)
        compiled(torch.ones(2), "a" * len(calls))

    told = count(lambda: run())
    assert told.compiled and not told.values
    settled = eager(lambda x, n: x * n)

    def settles() -> None:
        calls.append(1)
        settled(torch.ones(2), len(calls))

    settles()
    assert count(lambda: settles()).values["instructions"] > 0, "a number turns dynamic"


def test_a_dynamic_shape_is_what_torch_makes_it() -> None:
    compiled = eager(lambda x: x * 2, dynamic=True)
    made = found(lambda: [compiled(torch.ones(n)) for n in (2, 3, 4)])
    assert (made.values["recompiles"], made.values["cache_size"]) == (0, 1)


def test_fresh_state_is_made_before_every_call() -> None:
    made_states: list[int] = []
    compiled = eager(lambda x: x * 2)
    found(lambda: compiled(torch.ones(2)), lambda: made_states.append(1))
    assert len(made_states) % CALLS == 0 and made_states


def test_a_call_that_compiles_nothing() -> None:
    assert counted(lambda: torch.ones(2) + 1, lambda: None) is None


def test_only_calls_that_run_compiled_code_say_so() -> None:
    x, compiled = torch.ones(2), eager(lambda x: x + 1)
    compiled(x)
    inside = lambda: compiled(x) + 1  # noqa: E731 - a function without a name
    assert count(lambda: inside()).compiled
    assert not count(lambda: x + 1).compiled
    # What torch keeps out of the compiler goes through the same file, and is not compiled.
    weight = torch.ones(2, requires_grad=True)
    step = torch.optim.SGD([weight], lr=0.1)
    assert "torch._dynamo" in sys.modules and not count(lambda: step.step()).compiled


def test_where_nobody_watches_instructions_nothing_is_said() -> None:
    compiled = eager(lambda x: x + 1)
    assert not count(lambda: compiled(torch.ones(2)), OF_PYTHON[1:2]).compiled


def test_a_failure_to_compile_is_told_in_one_line() -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        raise ValueError("not today\nand not tomorrow")

    with pytest.raises(Exception, match="not today") as told:
        torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    said = str(failure(told.value))
    assert "not today" in said and "\n" not in said and said.startswith("it cannot be compiled")
    with pytest.raises(torch._dynamo.exc.Unsupported) as broken:
        torch.compile(lambda x: print(x), fullgraph=True, backend="eager")(torch.ones(2))
    assert "print" in str(failure(broken.value)) and "\n" not in str(failure(broken.value))
    assert failure(ValueError("its own")) is None
