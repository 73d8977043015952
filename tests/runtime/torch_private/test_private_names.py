"""Every private name of torch that is used is there, and does what it is used for."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.runtime.torch_private import (
    compile_records,
    compiler,
    dispatcher,
    guard_trees,
    lazy_backend,
)

Python = Callable[..., "subprocess.CompletedProcess[str]"]

torch = pytest.importorskip("torch", reason="holds names of torch")

NAMES = (
    "torch._C:DisableTorchFunctionSubclass",
    "torch._C:_AutoDispatchBelowAutograd",
    "torch._C:_create_function_from_graph",
    "torch._C:_disabled_torch_function_impl",
    "torch._C:_get_graph_executor_optimize",
    "torch._C:_is_any_autocast_enabled",
    "torch._C:_is_torch_function_enabled",
    "torch._C:_len_torch_dispatch_stack",
    "torch._C:_len_torch_function_stack",
    "torch._C:_jit_resolve_packet",
    "torch._C:_jit_set_profiling_executor",
    "torch._C:_set_graph_executor_optimize",
    "torch._C:parse_ir",
    "torch._C._dynamo.eval_frame:set_eval_frame",
    "torch._C._dynamo.guards:RootGuardManager",
    "torch._C:DispatchKey.ADInplaceOrView",
    "torch._C:DispatchKeySet",
    "torch._C:_ExcludeDispatchKeyGuard",
    "torch.jit._builtins:_find_builtin",
    "torch._lazy:mark_step",
    "torch._lazy.ts_backend:init",
    "torch._lazy.metrics:counter_names",
    "torch._lazy.metrics:counter_value",
    "torch._dynamo.eval_frame:_debug_get_cache_entry_list",
    "torch._dynamo.convert_frame:register_bytecode_hook",
    "torch._dynamo.exc:TorchDynamoException",
    "torch._dynamo.utils:_compilation_metrics",
    "torch._dynamo.utils:counters",
    "torch._dynamo.utils:get_compilation_metrics",
    "torch._dynamo.utils:orig_code_map",
    "torch._dynamo.utils:graph_break_reasons",
    "torch._dynamo.utils:set_compilation_metrics_limit",
    "torch._subclasses.fake_tensor:FakeTensorMode.cache_clear",
    "torch._subclasses.fake_tensor:FakeTensorMode.cache_info",
    "torch.utils._stats:simple_call_counter",
)


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_there(name: str) -> None:
    module, _, path = name.partition(":")
    found: Any = import_module(module)
    for part in path.split("."):
        assert hasattr(found, part), f"this torch has no {name} any more"
        found = getattr(found, part)


@pytest.fixture
def compiled() -> Callable[[Any], Any]:
    torch.compiler.reset()

    def double(x: Any) -> Any:
        return x * 2

    made: Callable[[Any], Any] = torch.compile(double, backend="eager")
    return made


def test_a_lookup_is_seen_where_compiled_code_is_called(compiled: Any) -> None:
    x = torch.ones(3)
    compiled(x)
    with compiler.compiled_codes() as codes:
        assert compiler.lookups(lambda: compiled(x)) == 1, "set_guard_complete_hook is silent"
    assert not codes, "looking made torch compile again"
    assert compiler.lookups(lambda: x * 2) == 0
    assert compiler.lookups(lambda: (compiled(x), compiled(x))) == 2


def test_code_that_is_compiled_is_told_with_its_guards(compiled: Any) -> None:
    with compiler.compiled_codes() as codes:
        compiled(torch.ones(3))
        compiled(torch.ones(3))
    assert [code.co_name for code in codes] == ["double"]
    compiled(torch.ones(3, 3))
    assert len(codes) == 1, "told after the end"
    entries = guard_trees.cache_entries(codes[0])
    assert len(entries) == 2, "one for each number of dimensions"
    root = guard_trees.guard_tree(entries[0])
    sources = [manager.get_source() for manager in guard_trees.managers(root)]
    assert "L['x']" in sources
    kinds = [
        type(leaf).__name__
        for manager in guard_trees.managers(root)
        for leaf in guard_trees.leaf_guards(manager)
    ]
    assert {"TENSOR_MATCH", "GLOBAL_STATE"} <= set(kinds)


def test_every_guard_that_torch_prints_is_found(compiled: Any) -> None:
    class Net(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]  # torch is not there when types are checked
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3))
            self.options = {"a": 1.0, "b": (2, [3])}

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x)
            return x * self.options["a"] + self.options["b"][1][0]

    with compiler.compiled_codes() as codes:
        torch.compile(Net(), backend="eager")(torch.ones(2, 2))
    (entry,) = guard_trees.cache_entries(codes[0])
    printed = [line for line in str(entry.guard_manager).splitlines() if "+- " in line]
    guards = [
        line for line in printed if line.split("+- ")[1].partition(":")[0].isupper()
    ]  # the rest are nodes
    found = [
        leaf
        for manager in guard_trees.managers(guard_trees.guard_tree(entry))
        for leaf in guard_trees.leaf_guards(manager)
    ]
    # A guard of many parts has a line for each; torch prints no keys of dictionaries' nodes twice.
    assert len(guards) >= len(found) > 30


def test_caches_are_off_and_on_again() -> None:
    from torch._functorch import config as functorch
    from torch._inductor import config as inductor

    def state() -> tuple[object, ...]:
        return (
            inductor.fx_graph_cache,
            inductor.compile_threads,
            functorch.enable_autograd_cache,
            torch._dynamo.config.automatic_dynamic_local_pgo,
        )

    before = state()
    with compiler.no_caches():
        assert state() == (False, 1, False, False)
    assert state() == before


def test_records_leave_the_limit_as_it_was(compiled: Any) -> None:
    from torch._dynamo import utils

    limit = utils._compilation_metrics.maxlen
    with compile_records.records() as records:
        compiled(torch.ones(2))
        compiled(torch.ones(2, 2))
        found = records()
    assert utils._compilation_metrics.maxlen == limit
    assert [record.again for record in found] == [False, True]
    assert found[0].function == "double" and found[0].file == __file__
    assert "rank mismatch" in found[1].reason or "dim" in found[1].reason
    assert found[0].seconds["entire_frame_compile"] > 0


def test_what_the_compiler_counts(compiled: Any) -> None:
    compiler.reset_compiler()
    before = compile_records.totals()
    compiled(torch.ones(5))
    after = compile_records.totals()
    assert after.graphs == before.graphs + 1
    assert after.misses > before.misses
    assert after.dispatches["FakeTensorMode"] > before.dispatches.get("FakeTensorMode", 0)


def test_only_the_compilers_own_handlers_hear_its_steps() -> None:
    trace = logging.getLogger("torch.__trace")
    mine = logging.NullHandler()
    trace.addHandler(mine)
    try:
        with compiler.without_trace_logs():
            assert mine not in trace.handlers
        assert mine in trace.handlers
    finally:
        trace.removeHandler(mine)


def test_which_failures_are_of_compiling() -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        raise ValueError("not today")

    with pytest.raises(Exception, match="not today") as told:
        torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert compile_records.compile_failed(told.value)

    def opens(x: Any) -> Any:
        return x + len(Path("/there/is/none").read_bytes())

    with pytest.raises(OSError, match="none") as told_too:
        torch.compile(opens, backend="eager")(torch.ones(2))
    assert not compile_records.compile_failed(told_too.value), "the subject's own"


@pytest.fixture
def lazy() -> str:
    missing = lazy_backend.lazy_backend_started()
    if missing:
        pytest.skip(missing)
    return "lazy"


def test_the_lazy_backend_may_be_asked_for_again(lazy: str) -> None:
    assert lazy_backend.lazy_backend_started() == ""
    assert torch.ones(2, device=lazy).device.type == "lazy"


def test_why_there_is_no_lazy_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise RuntimeError("not built for this\nmore of it")

    def absent(*args: object, **kwargs: object) -> None:
        raise NotImplementedError("no such backend")

    from torch._lazy import ts_backend

    monkeypatch.setattr(torch, "empty", absent)
    monkeypatch.setattr(ts_backend, "init", refused)
    said = lazy_backend.lazy_backend_started()
    assert said == "torch's lazy backend does not start: not built for this"


def test_a_trace_is_executed(lazy: str) -> None:
    x = torch.ones(2, device=lazy)
    lazy_backend.lazy_trace_executed()
    for _ in range(3):
        x.add_(1)
    assert pending(x) == 3
    lazy_backend.lazy_trace_executed()
    assert pending(x) == 0
    assert x.tolist() == [4, 4]


def pending(tensor: object) -> int:
    """How many additions a lazy tensor stands for."""
    text: str = torch._C._lazy._get_tensors_text([tensor])
    return text.count("aten::add")


def test_lazy_operations_are_counted_traced_or_not(lazy: str) -> None:
    x = torch.ones(2, 2, device=lazy)
    before = lazy_backend.lazy_operations()
    torch.relu(x + x)
    assert lazy_backend.lazy_operations() - before == 2
    torch.lgamma(x)  # runs at once, between a copy to the CPU and one back
    assert lazy_backend.lazy_operations() - before == 2 + 3


def test_an_overload_is_found_by_what_is_given() -> None:
    x = torch.ones(2)
    assert dispatcher.resolved("add", (x, x), {}) == "Tensor"
    assert dispatcher.resolved("relu", (x,), {}) == "default"
    assert dispatcher.resolved("add", ("x",), {}) is None
    assert dispatcher.operation_behind(torch._C._nn.linear) == "linear"
    assert dispatcher.operation_behind(len) in ("", "len")


def test_classes_with_a_say_are_known() -> None:
    class Plain(torch.Tensor):  # type: ignore[misc]  # torch is not there when types are checked
        pass

    assert dispatcher.overrides(Plain)
    assert not dispatcher.overrides(torch.Tensor)
    assert not dispatcher.overrides(torch.nn.Parameter)
    assert not dispatcher.overrides(int)
    with dispatcher.plain_tensors():
        assert not dispatcher.overrides(Plain)


def test_nothing_is_recorded_below_autograd() -> None:
    x = torch.ones(2, requires_grad=True)
    with dispatcher.below_autograd():
        assert (x * 2).grad_fn is None
        assert not x[0]._is_view(), "views are looked after yet: ADInplaceOrView is not left out"
        assert not torch.ones(2)[0]._is_view()
    assert (x * 2).grad_fn is not None
    assert x[0]._is_view()


def test_a_tree_without_guards_always_holds() -> None:
    assert guard_trees.no_guards_tree().check({"x": 1})


def test_dynamo_is_as_before(compiled: Any) -> None:
    from torch._C._dynamo import eval_frame

    with compiler.dynamo_restored() as switched:
        compiled(torch.ones(3))
        assert not switched()
        eval_frame.set_eval_frame(False)
        assert switched()
    assert eval_frame.set_eval_frame(None) is None


def test_what_is_compiled_is_listed(compiled: Any) -> None:
    with compile_records.records() as told:
        compiled(torch.ones(3))
        (record,) = told()
        assert compile_records.recorded()[-1] == record
    assert compiled.__wrapped__.__code__ in compiler.codes_compiled()


def test_code_is_known_by_what_it_was_made_from(compiled: Any) -> None:
    compiled(torch.ones(3))
    code = compiled.__wrapped__.__code__
    (entry,) = guard_trees.cache_entries(code)
    assert compiler.code_before(entry.code) is code, "orig_code_map knows no compiled code"
    assert compiler.code_before(code) is None


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("inference", [False, True])
def test_grad_mode_is_as_it_was(grad: bool, inference: bool) -> None:
    around = dispatcher.grad_state()
    with dispatcher.in_grad_state(grad, inference):
        assert dispatcher.grad_state() == (grad and not inference, inference)
    assert dispatcher.grad_state() == around


def test_compiled_code_is_found_and_none_is_made(compiled: Any) -> None:
    seen: list[int] = []

    def doubled(x: Any) -> Any:
        seen.append(1)  # runs in Python alone
        return x * 2

    with compiler.only_compiled_code(), compiler.compiled_codes() as codes:
        doubled(torch.ones(3))
    assert seen and not codes


def test_an_error_of_the_user_is_not_the_compiler_s() -> None:
    def reading(x: Any) -> Any:
        Path("/nowhere/data.csv").read_text()
        return x

    for run in (torch.vmap(reading), reading):
        with pytest.raises(OSError) as told:
            run(torch.ones(2))
        assert not compile_records.compile_failed(told.value)


def test_shapes_are_tried_without_the_compiler(python: Python, tmp_path: Path) -> None:
    """It comes as it is afterwards, and what was run without it then asks it to look away."""
    (tmp_path / "tried.py").write_text(
        "import sys\n"
        "import torch\n"
        "from pytest_dispatchguard.runtime.torch_private.compiler import without_compiler\n"
        "x, ops = torch.ones(0, 4, device='meta'), torch.ops.aten\n"
        "with without_compiler():\n"
        "    results = [ops.relu(x), ops.add(x, x), ops.addmm(x[0:0, 0], x, x.t()), ops.mean(x, [1])]\n"
        "    results.append(ops.native_layer_norm(x, [4], None, None, 1e-5)[0])\n"
        "assert [tuple(r.shape) for r in results] == [(0, 4), (0, 4), (0, 0), (0,), (0, 4)]\n"
        "assert not [name for name in sys.modules if name.startswith('torch._dynamo')]\n"
        "asked = []\n"
        "import torch._dynamo\n"
        "real = torch._dynamo.disable\n"
        "torch._dynamo.disable = lambda *given, **named: asked.append(given) or real(*given, **named)\n"
        "ops.relu(x)\n"
        "told = bool(asked)\n"
        "print(torch.compile(lambda y: y + 1, backend='eager')(torch.ones(1)).item(), told)\n"
    )
    done = python("tried", folder=tmp_path)
    assert (done.stdout, done.returncode) == ("2.0 True\n", 0), done.stderr


def test_steps_of_optimizers_are_known() -> None:
    stepping = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    code = type(stepping).step.__code__
    assert dispatcher.is_optimizer_step(code)
    assert not dispatcher.is_optimizer_step(torch.optim.Optimizer.zero_grad.__code__)
