"""Operations by line: how many, what becomes of their results, and what is done twice."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the operations are torch's")

from pytest_dispatchguard import ghost  # noqa: E402 - needs torch
from pytest_dispatchguard.model.operations import OperationsAt  # noqa: E402 - as above
from pytest_dispatchguard.runtime.torch_private.lazy_backend import lazy_backend_started  # noqa: E402 - as above
from pytest_dispatchguard.runtime.watch.operations import Operations  # noqa: E402 - as above

See = Callable[..., dict[int, OperationsAt]]


@pytest.fixture
def see(tmp_path: Path) -> See:
    """Calls `f(x)` of a file of the project some times, and gives what was seen by line."""

    def seen(source: str, calls: int = 4, x: Any = None) -> dict[int, OperationsAt]:
        path = tmp_path / "user.py"
        path.write_text(textwrap.dedent(source).lstrip())
        space: dict[str, Any] = {"torch": torch}
        exec(compile(path.read_text(), str(path), "exec"), space)
        operations = Operations(lambda name: "user.py" if name == str(path) else None)
        given = torch.randn(4, 8) if x is None else x
        with operations.watching():
            for _ in range(calls):
                space["f"](given)
        return {at.line: at for at in operations.report()}

    return seen


def remarks(found: dict[int, OperationsAt]) -> dict[int, tuple[str, ...]]:
    return {line: at.remarks for line, at in sorted(found.items()) if at.remarks}


def test_counts_by_line_and_call(see: See) -> None:
    found = see(
        """
        def f(x):
            y = x + 1
            return g(y) * 2

        def g(y):
            return torch.nn.functional.linear(y, y) + y.sum()
        """
    )
    assert {line: (at.function, at.calls, dict(at.operations)) for line, at in found.items()} == {
        2: ("f", 4, {"add": 4}),
        3: ("f", 4, {"mul": 4}),
        6: ("g", 4, {"t": 4, "mm": 4, "sum": 4, "add": 4}),
    }
    assert [at.total for at in found.values()] == [16, 4, 4]


def test_the_backward_pass_is_told_as_such(see: See) -> None:
    found = see(
        """
        def f(x):
            loss = (x * x).sum()
            loss.backward()
        """,
        x=torch.randn(3, requires_grad=True),
    )
    assert remarks(found) == {3: (f"{found[3].total - 4} of them in the backward pass",)}


def test_lazy_tensors_have_no_memory_to_look_at(see: See) -> None:
    missing = lazy_backend_started()
    if missing:
        pytest.skip(missing)
    found = see(
        """
        def f(x):
            made = torch.zeros(2, device="lazy")
            made.add_(1)
            return made * x
        """,
        x=torch.ones(2, device="lazy"),
    )
    assert [at.calls for at in found.values()] == [4, 4, 4]
    assert found[3].operations == {"add_": 4}


USED = {
    "returned": "return x.abs()",
    "an argument": "return x.abs().sum()",
    "read": "y = x.abs(); return y.tolist()",
    "asked for its shape": "y = x.abs(); return y.shape",
    "kept": "KEPT.append(x.abs())",
    "a local name that nobody reads, which may be meant": "y = x.abs(); return x",
    "changed in place": "y = x.abs(); y.add_(1); return x",
    "one of two results": "return x.max(0).indices",
    "a view": "x.t(); return x",
    "taken over by a parameter": "p = torch.nn.Parameter(x.abs()); return p",
    "taken over by a layer": "return torch.nn.PReLU(1, 0.5)",
}


@pytest.mark.parametrize("body", USED.values(), ids=USED)
def test_results_that_are_used_or_may_be(see: See, body: str) -> None:
    found = see(f"KEPT = []\ndef f(x):\n    {body}\n")
    assert remarks(found) == {}


@pytest.mark.parametrize(
    "body",
    ["x.abs(); return x", "y = x.abs(); y = x.sum(); return y", "torch.stack([x, x]); return x"],
)
@pytest.mark.parametrize("grad", [False, True])
def test_results_that_nobody_uses(see: See, body: str, grad: bool) -> None:
    found = see(f"def f(x):\n    {body}\n", x=torch.randn(4, 8, requires_grad=grad))
    if body.startswith("y"):
        assert remarks(found) == {}  # the line also does what is used
    else:
        assert remarks(found) == {2: ("the result is dropped unused",)}


def test_what_ran_before_in_the_same_call(see: See) -> None:
    found = see(
        """
        def f(x):
            a = x.softmax(-1)
            b = x.softmax(0)
            c = x.softmax(-1)
            return a + b + c
        """
    )
    assert remarks(found) == {
        4: ("`_softmax` of the same tensors ran already at line 2 in the same call",)
    }


NOT_AGAIN = {
    "the input was changed": "a = x.exp(); x.add_(1); return a + x.exp()",
    "the first result was changed": "a = x.exp(); a.add_(1); return a + x.exp()",
    "it is random": "p = x.sigmoid(); return torch.bernoulli(p) + torch.bernoulli(p)",
    "copies": "return x.clone().add_(1) + x.clone()",
    "another tensor each time": "return sum(torch.exp(x + i) for i in range(3))",
    "other numbers": "return x.clamp(0, 1) + x.clamp(0, 2)",
    "in another call": "return x.exp()",
    "the input was changed behind autograd's back": "a = x.exp(); x.data.add_(1); return a + x.exp()",
    "in another grad mode": "a = x.exp()\n    with torch.no_grad(): return a + x.exp()",
}


@pytest.mark.parametrize("body", NOT_AGAIN.values(), ids=NOT_AGAIN)
def test_what_only_looks_like_it_ran_before(see: See, body: str) -> None:
    assert remarks(see(f"def f(x):\n    {body}\n")) == {}


@pytest.mark.parametrize(
    "made", ["torch.ones(3)", "torch.arange(4)", "torch.tensor([1., 2.])", "torch.eye(2)"]
)
def test_constants_that_are_made_again(see: See, made: str) -> None:
    found = see(f"def f(x):\n    y = {made}\n    return y + 1\n")
    assert remarks(found) == {2: ("the same constant is made again and again: keep it",)}


NO_CONSTANTS = {
    "filled afterwards": "y = torch.zeros(3); y += 1; return y",
    "filled through a view": "y = torch.zeros(3); y[0] = 1; return y",
    "other numbers": "y = torch.full((2,), float(x.sum())); x.add_(1); return y",
    "other values": "y = torch.tensor([float(x.sum())]); x.add_(1); return y",
    "random": "return torch.randn(3) + 1",
    "memory": "return torch.empty(3)",
}


@pytest.mark.parametrize("body", NO_CONSTANTS.values(), ids=NO_CONSTANTS)
def test_what_is_no_constant(see: See, body: str) -> None:
    found = see(f"def f(x):\n    {body}\n")
    assert not any("constant" in remark for told in remarks(found).values() for remark in told)


def test_a_constant_made_once_is_none_to_tell(see: See) -> None:
    assert remarks(see("def f(x):\n    return torch.ones(3)\n", calls=2)) == {}


def test_chains_of_small_operations(see: See) -> None:
    source = """
        def f(x):
            y = x * 2
            y = y + 1
            y = y.tanh()
            return y * y
    """
    said = (
        "4 small operations one on the other's result to line 5, over 4x8: fusing makes them one",
    )
    assert remarks(see(source)) == {2: said}
    assert remarks(see(source, x=torch.randn(4, 8, requires_grad=True))) == {2: said}
    assert remarks(see(source, x=torch.randn(600, 600))) == {}  # its kernels are what costs


def test_what_is_no_chain(see: See) -> None:
    assert remarks(see("def f(x):\n    return [x + 1, x * 2, x - 3, x / 4, x.exp()]\n")) == {}
    assert remarks(see("def f(x):\n    return (x + 1).sum().exp().mean().neg()\n")) == {}


def test_a_loop_is_no_chain(see: See) -> None:
    assert (
        remarks(see("def f(x):\n    for _ in range(50):\n        x = x * 1.0\n    return x\n"))
        == {}
    )
    found = see(
        "def f(x):\n    for _ in range(50):\n        x = x * 2\n        x = x / 2\n    return x\n"
    )
    assert remarks(found) == {}


def test_what_is_no_row(see: See) -> None:
    assert remarks(see("def f(x):\n    return [x + i for i in range(9)]\n")) == {}


def test_recursion_is_several_calls(see: See) -> None:
    found = see(
        """
        def f(x, depth=2):
            y = f(x, depth - 1) if depth else 0
            return x.exp() + y
        """
    )
    assert remarks(found) == {}


def test_other_threads_do_not_count(see: See) -> None:
    found = see(
        """
        import threading

        def f(x):
            thread = threading.Thread(target=g, args=(x,))
            thread.start()
            thread.join()
            return g(x)

        def g(x):
            return x.exp()
        """
    )
    assert [(at.calls, at.total) for at in found.values()] == [(4, 4)]


def test_one_long_call_is_looked_at_in_part(see: See) -> None:
    found = see(
        """
        def f(x):
            for i in range(2000):
                torch.full((), i)
                y = x.exp() + i
        """,
        calls=4,
    )
    assert sum(at.total for at in found.values()) == 4 * 6000


def test_compiled_code_runs_as_it_is_written() -> None:
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    for full in (True, False):
        for warm in (True, False):
            torch._dynamo.reset()
            counter.clear()
            subject = torch.compile(lambda x: (x + 1) * 2, backend=counter, fullgraph=full)
            x = torch.ones(2)
            if warm:
                subject(x)
            operations = Operations(lambda name: "here.py" if name == __file__ else None)
            with operations.watching():
                subject(x)
            assert sum(at.total for at in operations.report()) == 2
            assert counter.frame_count == int(warm)
            subject(x)
            assert counter.frame_count == 1


def test_operators_that_take_functions() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 1, 128, 16)
    operations = Operations(lambda name: None)
    plain = flex_attention(q, q, q)
    with operations.watching():
        assert torch.allclose(flex_attention(q, q, q), plain)
    with ghost("cuda"):
        ghosts = q.to("cuda")
        found = flex_attention(ghosts, ghosts, ghosts)
        assert found.device.type == "cuda" and torch.allclose(found.cpu(), plain)


def test_rows_of_one_operation(see: See) -> None:
    found = see(
        """
        MANY = [torch.zeros(2) for _ in range(9)]

        def f(x):
            for p in MANY:
                p.mul_(0.9)
        """
    )
    (said,) = found[5].remarks
    assert said.startswith("9 of a kind in a row") and "`torch._foreach_mul_`" in said


def test_how_an_optimizer_makes_its_step_is_its_own_affair(see: See) -> None:
    found = see(
        """
        P = torch.nn.Parameter(torch.ones(3))
        ADAM = torch.optim.Adam([P], foreach=False)

        def f(x):
            P.grad = torch.ones(3)
            ADAM.step()
        """
    )
    assert found[6].total > 20 and found[6].remarks == ()


def test_many_calls_are_counted_and_only_the_first_looked_at(see: See) -> None:
    found = see("def f(x):\n    x.abs()\n", calls=500)
    assert (found[2].calls, found[2].total) == (500, 500)
    assert found[2].remarks == ("the result is dropped unused",)


def test_what_others_ask_for_counts_for_none(see: See, tmp_path: Path) -> None:
    operations = Operations(lambda name: None)
    with operations.watching():
        torch.ones(2) + 1
    assert operations.report() == [] and operations.elsewhere == 2


def test_on_the_ghost_and_in_inference_mode(see: See) -> None:
    with ghost("cuda"):
        found = see(
            "def f(x):\n    return x.to('cuda').exp()\n",
        )
        assert found[2].operations["exp"] == 4
    with torch.inference_mode():
        assert see("def f(x):\n    return x.exp() + x.exp()\n", x=torch.ones(2))[2].total == 12


def test_an_exception_leaves_nothing_behind(see: See) -> None:
    with pytest.raises(ZeroDivisionError):
        see("def f(x):\n    return x + 1 / 0\n")
    assert torch._C._len_torch_dispatch_stack() == 0
    assert torch._C._len_torch_function_stack() == 0
