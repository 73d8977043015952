"""Calls taken apart, for real. Nothing here depends on how fast the machine is: what is planted takes many
times what is around it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pytest_dispatchguard.measure.layers.layers import Wanted, layers
from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.model.layers import Layers

SECONDS = 0.2


def apart(function: Callable[..., Any], *args: Any, **settings: Any) -> Layers:
    return layers(Wanted(Call(function, args), "f", SECONDS, **settings))


def of(found: Layers, name: str) -> float:
    return sum(part.us.value for part in found.layers if part.name.endswith(name))


def spin(n: int) -> int:
    total = 0
    for i in range(n):
        total += i
    return total


def test_python_is_told_by_function_without_what_each_calls() -> None:
    def inner() -> int:
        return spin(300)

    def outer() -> int:
        return inner() + spin(600)

    found = apart(outer)
    assert found.layers[0].name.endswith("outer")
    spinning = [part for part in found.layers if part.name == "spin"]
    assert sorted(part.depth for part in spinning) == [1, 2]
    assert sum(part.us.value for part in spinning) > 0.8 * found.whole_us.value
    assert of(found, "outer") + of(found, "inner") < 0.2 * found.whole_us.value
    assert found.sum_us == pytest.approx(found.whole_us.value, rel=0.2)


def test_what_is_planted_is_found_where_it_is_planted() -> None:
    def low() -> int:
        return sum(i for i in range(100) for _ in (0, 1))

    def middle() -> int:
        total = 0
        for i in range(1600):
            total += i
        return total + low()

    def high() -> int:
        total = middle()
        for i in range(3200):
            total += i
        return total

    found = apart(high)
    ratio = of(found, "high") / of(found, "middle")
    assert ratio == pytest.approx(2, rel=0.25)
    assert of(found, "low") < of(found, "middle")


def test_the_same_functions_are_told_each_time() -> None:
    def rare() -> int:
        return spin(40)

    def often() -> int:
        return spin(600) + rare()

    told = {tuple(part.name for part in apart(often).layers) for _ in range(5)}
    assert len(told) == 1


def test_what_cannot_be_done_again_is_told_with_its_caller() -> None:
    state = {"n": 0}

    def counting() -> int:
        state["n"] += 1
        return spin(100 * state["n"] % 1000)

    def whole() -> int:
        return counting() + spin(500)

    found = apart(whole)
    assert "counting" not in " ".join(part.name for part in found.layers)
    assert any("does something else each time" in note for note in found.notes)


def test_a_function_that_breaks_when_called_again_does_no_harm() -> None:
    stack = [1]

    def pop() -> int:
        value = stack.pop()
        spin(300)
        return value

    def whole() -> int:
        stack.append(1)
        return pop() + spin(300)

    found = apart(whole)
    assert not any(part.name.endswith("pop") for part in found.layers)
    assert found.sum_us == pytest.approx(found.whole_us.value, rel=0.2)


def test_state_is_made_anew_where_the_subject_says_how() -> None:
    held: list[int] = []
    made = 0

    def fresh() -> None:
        nonlocal made
        made += 1
        held[:] = [1, 2, 3]

    def emptied() -> int:
        total = held[0]  # fails where nobody made it anew
        held.append(total)
        return total

    found = apart(emptied, prepare=fresh)
    assert made >= found.rounds >= 60


def test_nothing_but_c_has_no_layers_of_python() -> None:
    found = apart(sum, range(300))
    (itself,) = found.layers
    assert itself.name == "the call itself, in C"
    assert itself.us.value == pytest.approx(found.whole_us.value, rel=0.2)


def test_the_profiler_of_others_is_put_back() -> None:
    def theirs(frame: Any, event: str, arg: Any) -> None:
        pass

    sys.setprofile(theirs)
    try:
        apart(spin, 10)
        assert sys.getprofile() is theirs
    finally:
        sys.setprofile(None)


class TestOfTorch:
    """Calls of torch, below Python."""

    @pytest.fixture(autouse=True)
    def one_thread(self) -> Iterator[Any]:
        torch = pytest.importorskip("torch", reason="calls of torch")
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(before)

    def test_an_operation_has_all_its_layers_and_they_add_up(self) -> None:
        torch = pytest.importorskip("torch", reason="code on torch runs")
        x = torch.ones(4, 4)
        found = apart(torch.add, x, x)
        kinds = [part.kind for part in found.layers]
        assert {"binding", "dispatcher", "allocation"} <= set(kinds)
        assert "autograd" not in kinds
        assert found.torch_calls == {"torch.add": 1}
        assert found.sum_us == pytest.approx(found.whole_us.value, rel=0.1)

    @pytest.mark.parametrize("size", [(16,), (4, 16)])
    @pytest.mark.parametrize("mode", ["grad", "inference"])
    def test_shares_of_a_layer_come_to_the_whole_and_nothing_warns(
        self, size: tuple[int, ...], mode: str, recwarn: pytest.WarningsRecorder
    ) -> None:
        torch = pytest.importorskip("torch", reason="code on torch runs")
        modes = {"inference": torch.inference_mode, "grad": torch.enable_grad}
        found = apart(torch.nn.Linear(16, 16), torch.ones(size), mode=modes[mode])
        assert all(0 <= share <= 1 for share in found.shares)
        assert all(part.us.value >= 0 for part in found.layers)
        remainder = 1 - found.sum_us / found.whole_us.value
        assert sum(found.shares) + remainder == pytest.approx(1)
        assert abs(remainder) < 0.01
        assert not recwarn.list

    def test_what_the_call_itself_warns_of_is_told(self, recwarn: pytest.WarningsRecorder) -> None:
        import warnings

        def warning() -> int:
            warnings.warn("mine", stacklevel=1)
            return spin(10)

        apart(warning)
        assert {str(one.message) for one in recwarn} == {"mine"}

    def test_recording_for_backward_is_a_layer_of_its_own(self) -> None:
        torch = pytest.importorskip("torch", reason="code on torch runs")
        x, y = torch.ones(4, 4), torch.ones(4, 4, requires_grad=True)
        assert any(part.kind == "autograd" for part in apart(torch.add, x, y).layers)
        found = apart(torch.add, x, y, mode=torch.no_grad)
        assert not any(part.kind == "autograd" for part in found.layers)

    def test_the_kernel_takes_most_of_what_is_large(self) -> None:
        torch = pytest.importorskip("torch", reason="code on torch runs")
        x = torch.ones(300, 300)
        found = apart(torch.matmul, x, x)
        kernels = sum(part.us.value for part in found.layers if part.kind == "kernel")
        assert kernels > 0.7 * found.whole_us.value

    def test_python_around_torch_is_told_from_torch(self) -> None:
        torch = pytest.importorskip("torch", reason="code on torch runs")
        x = torch.ones(4, 4)

        def wrapper(value: Any) -> Any:
            spin(600)
            return torch.add(value, value)

        found = apart(wrapper, x)
        assert of(found, "spin") > 0.5 * found.whole_us.value
        assert {"binding", "dispatcher"} <= {part.kind for part in found.layers}

    def test_what_is_written_in_place_does_not_grow(self) -> None:
        torch = pytest.importorskip("torch", reason="code on torch runs")
        held, x = torch.ones(4), torch.ones(4, requires_grad=True)

        def whole() -> Any:
            made = x * 1
            made.add_(1)
            held.mul_(0.5)
            return made

        found = apart(whole)
        assert found.torch_calls == {"Tensor.mul": 1, "Tensor.add_": 1, "Tensor.mul_": 1}
        assert x.grad_fn is None and x.is_leaf
        assert not any("cannot be told" in note for note in found.notes)

    def test_contexts_of_torch_keep_their_place(self) -> None:
        torch = pytest.importorskip("torch", reason="code on torch runs")
        x = torch.ones(4, requires_grad=True)

        def whole() -> Any:
            with torch.no_grad():
                return torch.add(x, x)

        found = apart(whole)
        assert torch.is_grad_enabled()
        assert not any(part.kind == "autograd" for part in found.layers)
        assert found.torch_calls == {"torch.add": 1}

    def test_what_compiled_code_takes_is_told_by_who_takes_it(self) -> None:
        torch = pytest.importorskip("torch", reason="code on torch runs")

        @contextmanager
        def nothing() -> Iterator[None]:
            yield

        def scaled(value: Any) -> Any:
            return value * 2 + 1

        compiled = torch.compile(scaled, backend="eager")

        def around(value: Any) -> Any:
            with nothing():
                return compiled(value)

        found = apart(around, torch.ones(4))
        names = [part.name for part in found.layers]
        assert "Dynamo's way in" in names
        assert "scaled, as Dynamo rewrote it" in names
        (guards,) = (part for part in found.layers if part.name == "guards")
        assert guards.us.low > 0
        assert any(part.kind == "context" for part in found.layers)

    def test_guards_are_of_all_that_is_looked_through_and_of_the_mode_it_was_called_in(
        self,
    ) -> None:
        torch = pytest.importorskip("torch", reason="code on torch runs")
        numbers = [float(n) for n in range(200)]

        def once(x: Any, power: int) -> Any:
            return x * sum(numbers) ** power

        def guards_of(powers: int) -> float:
            torch.compiler.reset()
            compiled = torch.compile(once, backend="eager", dynamic=False)

            def quiet(x: Any) -> Any:
                with torch.no_grad():
                    for power in range(powers):
                        compiled(x, power)
                    return compiled(x, 0)

            found = apart(quiet, torch.ones(4, requires_grad=True))
            assert not any("guards" in note for note in found.notes)
            return sum(part.us.value for part in found.layers if part.kind == "guards")

        assert guards_of(7) > 1.5 * guards_of(1)  # 8 calls for 2, and more to look through

    def test_trees_are_looked_through_in_the_order_of_calls(self) -> None:
        torch = pytest.importorskip("torch", reason="code on torch runs")
        from pytest_dispatchguard.runtime.compiled.calls import checks_of, is_rewritten
        from pytest_dispatchguard.runtime.hooks.call_tree import CallTree

        torch.compiler.reset()
        compiled = torch.compile(lambda x, n: x * len(n), backend="eager", dynamic=False)

        def several(x: Any) -> Any:
            for name in ("a", "bb", "ccc", "dddd"):
                compiled(x, name)
            return compiled(x, "a")

        for _ in range(3):
            several(torch.ones(2))
        tree = CallTree()
        tree.record(lambda: several(torch.ones(2)))
        found = checks_of(filter(is_rewritten, tree.calls))
        assert [len(one.roots) for one in found if one is not None] == [1, 4, 4, 4, 4]

    def test_settings_of_torch_stay_as_they_are(self) -> None:
        """Where a compiled call changes one and puts it back, neither is done alone."""
        torch = pytest.importorskip("torch", reason="code on torch runs")
        import torch._dynamo.config as config

        def settings() -> tuple[bool, ...]:
            return config.assume_static_by_default, config.automatic_dynamic_shapes

        before = settings()
        apart(torch.compile(lambda x: x * 2, backend="eager", dynamic=False), torch.ones(4))
        assert settings() == before
        apart(torch.compile(lambda x: x * 2, backend="eager", dynamic=True), torch.ones(4))
        assert settings() == before

    def test_guards_that_hold_only_within_the_call_are_told_so(self) -> None:
        torch = pytest.importorskip("torch", reason="code on torch runs")
        state = {"n": 0}

        @torch.compile(backend="eager")  # type: ignore[untyped-decorator]  # torch is not there
        def double(x: Any) -> Any:
            return x * state["n"]

        def within(x: Any) -> Any:
            state["n"] = 2
            try:
                return double(x)
            finally:
                state["n"] = 3

        found = apart(within, torch.ones(4))
        assert any("guards hold only within the call" in note for note in found.notes)

    def test_functions_are_held_in_the_grad_mode_that_they_ran_in(self) -> None:
        torch = pytest.importorskip("torch", reason="code on torch runs")
        x, weight = torch.ones(4), torch.ones(4, requires_grad=True)

        def helper(value: Any) -> Any:
            for _ in range(8):
                value = value * weight
            return value

        def under(value: Any) -> Any:
            with torch.no_grad():
                return helper(value)

        found = apart(under, x)
        assert of(found, "helper") < 0.4 * found.whole_us.value
        contexts = [part for part in found.layers if part.kind == "context"]
        assert [part.name for part in contexts] == ["no_grad"]
        assert not any(part.depth > 1 and part.kind == "python" for part in found.layers)

    @pytest.mark.parametrize("around", ["autocast", "device"])
    def test_what_is_entered_by_the_call_itself_is_left_to_its_python(self, around: str) -> None:
        torch = pytest.importorskip("torch", reason="code on torch runs")
        entered = {
            "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
            "device": lambda: torch.device("cpu"),
        }[around]
        linear = torch.nn.Linear(4, 4)

        def whole(value: Any) -> Any:
            with entered():
                return linear(value)

        found = apart(whole, torch.ones(2, 4))
        told = any("told with the Python that makes them" in note for note in found.notes)
        assert told is (around == "autocast")
        assert all(part.us.value > -0.2 * found.whole_us.value for part in found.layers)

    def test_kernels_that_trust_what_they_are_given_are_not_emptied(self) -> None:
        torch = pytest.importorskip("torch", reason="code on torch runs")
        found = apart(torch.nn.LSTM(4, 4), torch.ones(4, 4))
        assert any("aten::lstm" in note for note in found.notes)

    def test_a_way_of_its_own_for_nothing_is_no_kernel(self) -> None:
        torch = pytest.importorskip("torch", reason="code on torch runs")
        found = apart(torch.nn.functional.dropout, torch.ones(4))
        assert any("aten::dropout" in note for note in found.notes)

    @pytest.mark.parametrize(
        "call",
        [
            "torch.func.vmap(torch.sum)(X)",
            "X.to_sparse() @ X",
            'X.clone().random_(**{"from": 0, "to": 9})',
            "Optimizer.step()",
        ],
    )
    def test_odd_calls_end_in_layers(self, call: str) -> None:
        torch = pytest.importorskip("torch", reason="code on torch runs")
        model = torch.nn.Linear(4, 4)
        names: dict[str, Any] = {"torch": torch, "X": torch.ones(4, 4)}
        names["Optimizer"] = torch.optim.SGD(model.parameters(), lr=0.1)
        model(names["X"]).sum().backward()
        before = model.weight.detach().clone()
        found = apart(eval(f"lambda: {call}", names))
        assert found.layers
        assert torch.isfinite(model.weight).all() and before.shape == model.weight.shape
