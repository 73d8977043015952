"""Operations in loops below Python: the right ones, and really run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="operations of torch")

from pytest_dispatchguard.runtime.aten_loops import (  # noqa: E402 - after torch
    Operation,
    as_they_are,
    bare_loop,
    loop_of,
    operations_of,
)
from pytest_dispatchguard.runtime.hooks.dispatch_mode import DispatchMode  # noqa: E402 - after torch
from pytest_dispatchguard.runtime.hooks.torch_calls import TorchCall, recording  # noqa: E402 - after torch

F = torch.nn.functional
X, Y = torch.ones(4, 4), torch.ones(4, 4, requires_grad=True)
IMAGE, MASK, PLACES = torch.ones(1, 3, 8, 8), torch.ones(4, 4) > 0, torch.tensor([0, 1])
BY_NAME: dict[str, Callable[[], object]] = {
    "add.Tensor": lambda: torch.add(X, Y),
    "add.Tensor of a number": lambda: X + 1,
    "softmax.int": lambda: X.softmax(-1),
    "relu.default": lambda: F.relu(X),
    "linear.default": lambda: F.linear(X, X, X[0]),
    "matmul.default": lambda: X @ X,
    "select.int": lambda: X[0],
    "index.Tensor": lambda: X[MASK],
    "index.Tensor of places": lambda: X[PLACES],
    "zeros.default": lambda: torch.zeros(2, 3),
    "cat.default": lambda: torch.cat([X, X], 1),
    "split.Tensor": lambda: X.split(2),
    "view.default": lambda: X.view(2, 8),
    "permute.default": lambda: X.permute(1, 0),
    "to.dtype": lambda: X.to(torch.float64),
    "sum.dim_IntList": lambda: X.sum(0),
    "mean.dim": lambda: X.mean(-1, keepdim=True),
    "max.dim": lambda: X.max(dim=0),
    "max_pool2d.default": lambda: F.max_pool2d(IMAGE, 2),
    "layer_norm.default": lambda: F.layer_norm(X, (4,)),
    "clamp.default": lambda: torch.clamp(X, 0, 1),
    "pow.Tensor_Scalar": lambda: X**2,
    "div.Tensor": lambda: X / 3,
    "where.ScalarOther": lambda: torch.where(MASK, X, 0.0),
    "addmm.default": lambda: torch.addmm(X, X, X, beta=2),
    "add_.Tensor": lambda: X.clone().add_(1),
    "item.default": lambda: X.sum().item(),
}


@pytest.fixture(autouse=True)
def as_written() -> Iterator[None]:
    with as_they_are():
        yield


def last_call(run: Callable[[], object]) -> TorchCall:
    calls: list[TorchCall] = []
    with recording(lambda frame: -1, calls):
        run()
    return calls[-1]


class Seen(DispatchMode):
    """Counts what gets to the bottom of the dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.times: Counter[str] = Counter()

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        self.times[str(func)] += 1
        return func(*args, **kwargs)


def counted(run: Callable[[], object]) -> Counter[str]:
    seen = Seen()
    with seen:
        run()
    return seen.times


@pytest.mark.parametrize("name", BY_NAME)
def test_a_call_is_known_by_its_operation_and_the_loop_runs_it(name: str) -> None:
    call = last_call(BY_NAME[name])
    (operation,) = operations_of(call)
    assert str(operation.overload) == f"aten.{name.partition(' ')[0]}"
    once = counted(lambda: call.function(*call.args, **call.kwargs))
    loop = loop_of([operation])
    loop(1)
    assert counted(lambda: loop(5)) == {what: 5 * times for what, times in once.items()}


def test_what_asks_nothing_of_the_dispatcher_has_no_operation() -> None:
    assert operations_of(last_call(lambda: X.shape)) == []
    assert operations_of(last_call(lambda: X.dim())) == []


def test_a_loop_runs_nothing_of_its_own() -> None:
    operations = operations_of(last_call(lambda: torch.add(X, X)))
    assert not counted(lambda: bare_loop(operations)(5))
    written = torch.zeros(3)
    adding = Operation(torch.ops.aten.add_.Tensor, [written, torch.ones(3), 1])
    loop_of([adding, adding])(7)
    assert written.tolist() == [14.0, 14.0, 14.0]


def test_results_are_written_where_there_is_room() -> None:
    (adding,) = operations_of(last_call(lambda: torch.add(X, X)))
    writing = adding.writing()
    assert writing is not None
    assert writing.run().data_ptr() == writing.values[-1].data_ptr()
    (cloning,) = operations_of(last_call(lambda: X.clone()))
    copying = cloning.writing()
    assert copying is not None and copying.name == "aten::copy_"
    (viewing,) = operations_of(last_call(lambda: X.view(16)))
    assert viewing.writing() is None
    (making,) = operations_of(last_call(lambda: torch.empty(3)))
    assert making.only_allocates and not adding.only_allocates


def test_how_loops_run_is_put_back() -> None:
    before = torch._C._get_graph_executor_optimize()
    with as_they_are():
        pass
    assert torch._C._get_graph_executor_optimize() is before


def test_what_resizes_the_room_that_it_is_given_does_not_write_into_it() -> None:
    weight, vector = torch.ones(4, 4, requires_grad=True), torch.ones(4)
    (linear,) = operations_of(last_call(lambda: F.linear(vector, weight)))
    assert linear.name == "aten::linear"
    assert linear.writing() is None
    (of_many,) = operations_of(last_call(lambda: F.linear(torch.ones(2, 4), weight)))
    assert of_many.writing() is not None
