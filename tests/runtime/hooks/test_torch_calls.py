"""What a call asks of torch's C functions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="calls of torch")

from pytest_dispatchguard.runtime.hooks.torch_calls import TorchCall, recording  # noqa: E402 - after torch

F = torch.nn.functional
X = torch.ones(4, 4)


def asked(run: Callable[[], object]) -> list[TorchCall]:
    calls: list[TorchCall] = []
    with recording(lambda frame: 7, calls):
        run()
    return calls


@pytest.mark.parametrize(
    ("run", "names"),
    [
        (lambda: torch.add(X, X), ["torch.add"]),
        (lambda: X + 1, ["Tensor.add"]),
        (lambda: F.relu(X), ["torch.relu"]),
        (lambda: F.softmax(X, -1), ["Tensor.softmax"]),
        (lambda: F.layer_norm(X, (4,)), ["torch.layer_norm"]),
        (lambda: torch.nn.Linear(4, 4)(X)[0], ["torch.linear", "Tensor.__getitem__"]),
        (lambda: X.shape, ["Tensor.shape"]),
        (lambda: torch.zeros(3), ["torch.zeros"]),
        (lambda: bool(X.sum() > 0), ["Tensor.sum", "Tensor.gt", "Tensor.__bool__"]),
        (lambda: F.max_pool2d(X[None], 2), ["Tensor.__getitem__", "torch.max_pool2d"]),
        (lambda: torch.norm(X), ["Tensor.layout", "Tensor.device", "torch.linalg_vector_norm"]),
        (lambda: len("abc"), []),
    ],
)
def test_functions_of_python_are_looked_through(
    run: Callable[[], object], names: list[str]
) -> None:
    calls = asked(run)
    made = [call.name for call in calls if not call.name.startswith(("torch.rand", "Tensor.uni"))]
    assert made[-len(names) :] == names if names else not made
    assert all(call.owner == 7 for call in calls)


def test_what_is_given_and_what_comes_back_is_kept() -> None:
    (call,) = asked(lambda: torch.add(X, X, alpha=2))
    assert call.args[0] is X
    assert call.kwargs == {"alpha": 2}
    assert torch.equal(call.result, X * 3)


def test_the_state_of_every_call_is_kept() -> None:
    def run() -> None:
        torch.add(X, X)
        with torch.no_grad():
            torch.add(X, X)
        with torch.inference_mode():
            torch.add(X, X)

    states = [(call.state.grad, call.state.inference) for call in asked(run)]
    assert states == [(True, False), (False, False), (False, True)]


class Counting(torch.Tensor):  # type: ignore[misc]  # torch is not there when types are checked
    """Has a way of its own for every function."""

    seen = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # as torch has it
        Counting.seen += 1
        return super().__torch_function__(func, types, args, kwargs or {})


def test_subclasses_have_their_say_and_what_they_ask_is_seen() -> None:
    Counting.seen = 0
    given = X.as_subclass(Counting)
    results: list[object] = []
    calls = asked(lambda: results.append(F.relu(given)))
    assert Counting.seen >= 1
    assert isinstance(results[0], Counting)
    assert "torch.relu" in [call.name for call in calls]


def test_torch_asks_for_overrides_again_afterwards() -> None:
    asks = torch.nn.functional.has_torch_function_unary
    with pytest.raises(ValueError, match="mine"):
        asked(lambda: (_ for _ in ()).throw(ValueError("mine")))
    assert torch.nn.functional.has_torch_function_unary is asks
