from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import pytest

from pytest_dispatchguard.lint.callgraph.build import build
from pytest_dispatchguard.lint.callgraph.project import Project
from pytest_dispatchguard.lint.facts import Brief, HotFact
from pytest_dispatchguard.lint.hotness.solve import listed, solve
from pytest_dispatchguard.lint.judge.briefs import Briefer
from pytest_dispatchguard.lint.knowledge.cold_names import cold_by_name
from pytest_dispatchguard.lint.scout.scan import scan
from pytest_dispatchguard.lint.sources.module_names import module_name
from pytest_dispatchguard.lint.store.packing import pack_brief, unpack_brief


def project_of(files: Mapping[str, str], sparing: bool = False) -> Project:
    facts = {}
    for path, given in files.items():
        text = textwrap.dedent(given)
        cold = cold_by_name(path, text) if sparing else None
        facts[path] = scan(text, module_name(path), path.endswith("__init__.py"), cold)
    return build(facts)


def heat_of(
    files: Mapping[str, str] | str, hot_roots: Sequence[str] = (), cold: Sequence[str] = ()
) -> dict[str, HotFact]:
    """Dotted name to fact of all that is hot."""
    given = {"m.py": files} if isinstance(files, str) else files
    solved = solve(project_of(given), hot_roots, cold)
    if not hot_roots:
        # What the scout spares itself in functions that are cold by their names changes nothing.
        assert solve(project_of(given, sparing=True), hot_roots, cold) == solved
    return {function.replace(":", "."): fact for function, fact in solved.hot.items()}


def brief_of(files: Mapping[str, str], path: str) -> Brief:
    project = project_of(files)
    return Briefer(project, solve(project)).brief(path)


MODULE = "import torch\nfrom torch import nn\n"


# --- roots --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "method", "reason", "per"),
    [
        ("torch.nn.Module", "forward", "forward of a torch.nn.Module", "call"),
        ("torch.nn.Linear", "forward", "forward of a torch.nn.Module", "call"),
        ("torch.nn.modules.module.Module", "__call__", "__call__ of a torch.nn.Module", "call"),
        ("torch.autograd.Function", "backward", "backward of a torch.autograd.Function", "call"),
        ("torch.optim.Optimizer", "step", "step of a torch.optim.Optimizer", "step"),
        ("torch.optim.lr_scheduler.StepLR", "get_lr", "of a torch.optim.lr_scheduler.LRScheduler", "step"),
        ("keras.Layer", "call", "call of a keras.Layer", "call"),
        ("keras.layers.Dense", "call", "call of a keras.Layer", "call"),
        ("keras.src.ops.operation.Operation", "__call__", "__call__ of a keras.Operation", "call"),
        ("torchmetrics.Metric", "update", "update of a torchmetrics.Metric", "call"),
        ("torchmetrics.metric.Metric", "update", "update of a torchmetrics.Metric", "call"),
        ("pytorch_lightning.LightningModule", "training_step", "of a lightning.LightningModule", "step"),
        ("lightning.pytorch.callbacks.Callback", "on_train_batch_end", "of a lightning.Callback", "step"),
        ("transformers.PreTrainedModel", "forward", "forward of a transformers.PreTrainedModel", "call"),
        ("transformers.TrainerCallback", "on_step_end", "of a transformers.TrainerCallback", "step"),
        ("lightning.pytorch.callbacks.Timer", "on_train_batch_end", "of a lightning.Callback", "step"),
        ("lightning.pytorch.strategies.DDPStrategy", "training_step", "of a lightning.Strategy", "step"),
        ("lightning.fabric.plugins.MixedPrecision", "convert_input", "of a lightning.Precision", "step"),
        ("diffusers.hooks.ModelHook", "pre_forward", "pre_forward of a diffusers.hooks.ModelHook", "call"),
        ("mmengine.model.BaseModule", "forward", "forward of a torch.nn.Module", "call"),
        ("mmengine.model.base_model.BaseModel", "train_step", "of a mmengine.BaseModel", "step"),
        ("torch_geometric.nn.GATConv", "message", "of a torch_geometric.nn.MessagePassing", "call"),
        ("torch_geometric.nn.Linear", "forward", "forward of a torch.nn.Module", "call"),
        ("gpytorch.kernels.Kernel", "forward", "forward of a torch.nn.Module", "call"),
        ("skorch.NeuralNetClassifier", "train_step_single", "of a skorch.NeuralNet", "step"),
        ("ignite.metrics.Accuracy", "update", "update of an ignite.Metric", "step"),
        ("pyro.poutine.messenger.Messenger", "_pyro_sample", "_pyro_sample of a pyro.Messenger", "call"),
        ("vllm.v1.attention.backend.AttentionImpl", "forward", "forward of a vllm.AttentionImpl", "call"),
    ],
)  # fmt: skip
def test_roots_of_libraries(base: str, method: str, reason: str, per: str) -> None:
    root = base.partition(".")[0]
    text = f"import {root}\nclass C({base}):\n    def {method}(self, x): ...\n    def other(self): ...\n"
    name = f"m.C.{method}"
    [(found, fact)] = heat_of(text).items()
    assert found == name
    assert fact.reason in (reason, f"{method} {reason}")
    assert (fact.root, fact.path, fact.loop, fact.per) == (name, [name], False, per)


@pytest.mark.parametrize(
    "base",
    [
        "lightning.pytorch.loggers.Logger",
        "mmengine.hooks.Hook",
        "pyro.poutine.runtime.NonlocalExit",
    ],
)
def test_not_all_classes_of_libraries_have_roots(base: str) -> None:
    text = f"import {base.partition('.')[0]}\nclass C({base}):\n    def forward(self, x): ...\n"
    assert heat_of(text) == {}


def test_attention_processors_inherit_from_nothing() -> None:
    hot = heat_of(
        """
class FancyAttnProcessor2_0:
    def __call__(self, attn, hidden_states): ...
class AttentionProcessorConfig:
    def __call__(self, config): ...
class Processor:
    def __call__(self, attn): ...
"""
    )
    assert {name: fact.reason for name, fact in hot.items()} == {
        "m.FancyAttnProcessor2_0.__call__": "__call__ of an attention processor"
    }


def test_what_runs_per_call_is_told_so_however_near_a_step_is() -> None:
    hot = heat_of(
        MODULE
        + """
class Lit(pytorch_lightning.LightningModule):
    def forward(self, x):
        return self.net(x)
    def net(self, x):
        return self.embed(x)
    def training_step(self, batch):
        return self.embed(batch), self.log_it(batch)
    def embed(self, x): ...
    def log_it(self, x): ...
"""
    )
    assert {name: fact.per for name, fact in hot.items()} == {
        "m.Lit.forward": "call",
        "m.Lit.net": "call",
        "m.Lit.embed": "call",
        "m.Lit.training_step": "step",
        "m.Lit.log_it": "step",
    }


def test_overloads_do_not_make_a_function_cold() -> None:
    hot = heat_of(
        MODULE
        + """
from typing import overload
class A(nn.Module):
    @overload
    def forward(self, x: int): ...
    @overload
    def forward(self, x: str): ...
    def forward(self, x):
        return helper(x)
def helper(x): ...
"""
    )
    assert set(hot) == {"m.A.forward", "m.helper"}


def test_messengers_are_made_in_every_call() -> None:
    hot = heat_of(
        MODULE
        + """
import pyro
class Scale(pyro.poutine.messenger.Messenger):
    def __init__(self, how):
        self.table = table_of(how)
    def _pyro_sample(self, msg): ...
class Model(nn.Module):
    def forward(self, x):
        with Scale(x):
            return x
def table_of(how): ...
"""
    )
    assert "m.table_of" in hot


def test_a_base_is_found_through_the_project() -> None:
    hot = heat_of(
        {
            "pkg/base.py": "import torch\nclass Base(torch.nn.Module): ...\n",
            "pkg/__init__.py": "from .base import Base as Root\n",
            "pkg/a.py": "import pkg\nclass A(pkg.Root):\n    def forward(self): ...\n",
            "pkg/b.py": "class Module: ...\nclass B(Module):\n    def forward(self): ...\n",
        }
    )
    assert list(hot) == ["pkg.a.A.forward"]


UNKNOWN_BASE = """
import elsewhere, jax
class A(elsewhere.Thing):
    def __init__(self):
        self.linear = torch.nn.Linear(2, 2)
    def forward(self, x): ...
class B(elsewhere.Thing):
    def __init__(self):
        self.n = 2
    def forward(self, x): ...
    def describe(self, x): ...
class C(jax.Thing):
    def forward(self, x): ...
class D(elsewhere.Thing):
    def backward(self, x): ...
class E(Unbound):
    def forward(self, x): ...
"""


@pytest.mark.parametrize(
    ("imports", "hot"),
    [("import torch", ["m.A.forward", "m.B.forward"]), ("import torchless as torch", [])],
    ids=["torch", "no torch"],
)
def test_an_unknown_base_counts_in_a_file_that_uses_torch(imports: str, hot: list[str]) -> None:
    assert sorted(heat_of(imports + UNKNOWN_BASE)) == hot


def test_protocols_compiled_functions_and_hooks() -> None:
    hot = heat_of(
        MODULE
        + """
class T:
    def __torch_function__(cls, func, types, args=(), kwargs=None): ...
@torch.compile(fullgraph=True)
def fast(x): ...
def watch(module, args): ...
def attach(model):
    model.register_forward_hook(watch)
"""
    )
    assert {name: fact.reason for name, fact in hot.items()} == {
        "m.T.__torch_function__": "torch calls it for every function of torch",
        "m.fast": "compiled by torch.compile",
        "m.watch": "a hook that torch calls",
    }


def test_only_the_loops_of_a_training_loop_are_hot() -> None:
    hot = heat_of(
        """
def train(model, data, optimizer):
    model = prepare(model)
    for batch in data:
        loss = compute(model, batch)
        loss.backward()
        optimizer.step()
    report()
def prepare(model): ...
def compute(model, batch): ...
def report(): ...
def main():
    train(1, 2, 3)
"""
    )
    assert set(hot) == {"m.train", "m.compute"}
    assert hot["m.train"].only_loops
    assert hot["m.train"].per == "step"
    assert not hot["m.compute"].only_loops


def test_a_forward_that_is_a_whole_training_is_hot_in_its_loop_alone() -> None:
    hot = heat_of(
        """
import torch
class Embedding(torch.nn.Module):
    def forward(self, graph):
        optimizer = torch.optim.Adam(self.parameters())
        for batch in graph:
            loss = self.loss(batch)
            loss.backward()
            optimizer.step()
    def loss(self, batch): ...
"""
    )
    forward = hot["m.Embedding.forward"]
    assert (forward.reason, forward.only_loops) == ("a training loop", True)
    assert hot["m.Embedding.loss"].per == "step"


def test_a_training_loop_in_main_counts() -> None:
    text = "def main():\n    for b in data:\n        loss(b).backward()\n        optimizer.step()\n"
    assert list(heat_of({"scripts/train.py": text})) == ["scripts.train.main"]
    assert heat_of({"tests/test_train.py": text}) == {}


# --- paths --------------------------------------------------------------------------------------


def test_what_hot_functions_call_is_hot_by_the_shortest_path() -> None:
    hot = heat_of(
        MODULE
        + """
class A(nn.Module):
    def forward(self, x):
        return self.far(x) + near(x)
    def far(self, x):
        return near(x)
    def unused(self): ...
def near(x):
    return deep(x)
def deep(x): ...
def other(): ...
"""
    )
    assert {name: fact.path for name, fact in hot.items()} == {
        "m.A.forward": ["m.A.forward"],
        "m.A.far": ["m.A.forward", "m.A.far"],
        "m.near": ["m.A.forward", "m.near"],
        "m.deep": ["m.A.forward", "m.near", "m.deep"],
    }


def test_loops_are_told() -> None:
    hot = heat_of(
        MODULE
        + """
class A(nn.Module):
    def forward(self, xs):
        for x in xs:
            inner(x)
        once(xs)
def inner(x):
    below(x)
def below(x): ...
def once(x): ...
"""
    )
    assert {name.removeprefix("m."): fact.loop for name, fact in hot.items()} == {
        "A.forward": False,
        "inner": True,
        "below": True,
        "once": False,
    }


def test_self_reaches_subclasses_and_super_reaches_bases() -> None:
    hot = heat_of(
        MODULE
        + """
class Base(nn.Module):
    def forward(self, x):
        return self.inner(x)
    def helper(self, x): ...
    def unused(self): ...
class Sub(Base):
    def inner(self, x):
        return super().helper(x)
class Other:
    def inner(self, x): ...
"""
    )
    assert set(hot) == {"m.Base.forward", "m.Sub.inner", "m.Base.helper"}


@pytest.mark.parametrize(
    ("body", "reached"),
    [
        ("return apply(helper, x)", True),
        ("return functools.partial(helper, 1)(x)", True),
        ("fn = helper\n        return fn(x)", True),
        ("return [helper(v) for v in x]", True),
        ("g = lambda v: helper(v)\n        return g(x)", True),
        ("def inner(v):\n            return helper(v)\n        return inner(x)", True),
        ("raise ValueError(helper(x))", False),
        ("if self._n is None:\n            self._n = helper(x)", False),
        ("if torch.jit.is_tracing():\n            helper(x)", False),
        ("return helper", False),
    ],
)
def test_ways_to_call(body: str, reached: bool) -> None:
    text = f"import functools, torch\nclass A(torch.nn.Module):\n    def forward(self, x):\n        {body}\n"
    assert ("m.helper" in heat_of(text + "def helper(v): ...\n")) is reached


def test_properties_contexts_and_instances() -> None:
    hot = heat_of(
        MODULE
        + """
class Scope:
    def __init__(self): ...
    def __enter__(self): ...
    def __exit__(self, *a): ...
    def other(self): ...
class Spec:
    def __init__(self, x): ...
    def check(self): ...
class A(nn.Module):
    def __init__(self):
        self.spec = Spec(1)
    @property
    def width(self): ...
    @width.setter
    def width(self, value):
        set_width(value)
    def forward(self, x):
        with Scope():
            spec = Spec(self.width)
            spec.check()
def set_width(value): ...
"""
    )
    assert set(hot) == {
        "m.A.forward",
        "m.A.width",
        "m.Scope.__init__",
        "m.Scope.__enter__",
        "m.Scope.__exit__",
        "m.Spec.__init__",
        "m.Spec.check",
    }


def test_wrappers_of_decorators_and_factories_are_hot_and_decorators_are_not() -> None:
    hot = heat_of(
        """
import functools, torch
def plain(fn):
    @functools.wraps(fn)
    def wrapper(*args):
        return before(*args)
    return wrapper
def with_arguments(n):
    def decorator(fn):
        def wrapped(*args):
            return fn(*args)
        return wrapped
    return decorator
def inject(fn, name):
    def handler(*args):
        return fn(*args)
    return handler
def before(*args): ...
class A(torch.nn.Module):
    @plain
    @with_arguments(2)
    def forward(self, x):
        fn = inject(self.inner, "a")
        return fn(x)
    def inner(self, x): ...
"""
    )
    assert set(hot) == {
        "m.A.forward",
        "m.A.inner",
        "m.plain.<locals>.wrapper",
        "m.with_arguments.<locals>.decorator.<locals>.wrapped",
        "m.inject",
        "m.inject.<locals>.handler",
        "m.before",
    }


def test_an_unknown_receiver_is_guessed_only_by_a_rare_name() -> None:
    files = {
        "pkg/helper.py": "class H:\n    def fuse_all_inputs(self): ...\n    def compute(self): ...\n",
        "pkg/model.py": MODULE + "class A(nn.Module):\n    def forward(self, h):\n"
        "        h.fuse_all_inputs()\n        h.compute()\n",
    }  # fmt: skip
    assert set(heat_of(files)) == {"pkg.model.A.forward", "pkg.helper.H.fuse_all_inputs"}
    files["pkg/kin.py"] = (
        "from pkg.helper import H\nclass K(H):\n    def fuse_all_inputs(self): ...\n"
    )
    both = {"pkg.helper.H.fuse_all_inputs", "pkg.kin.K.fuse_all_inputs"}
    assert set(heat_of(files)) == {"pkg.model.A.forward", *both}
    files["pkg/other.py"] = "class O:\n    def fuse_all_inputs(self): ...\n"
    assert set(heat_of(files)) == {"pkg.model.A.forward"}, "of two families, neither is meant"
    del files["pkg/other.py"]
    files["tests/test_it.py"] = "class T:\n    def fuse_all_inputs(self): ...\n"
    assert set(heat_of(files)) == {"pkg.model.A.forward", *both}, "tests do not count"


def test_what_a_method_of_self_gives_is_no_name_of_another_package() -> None:
    text = f"""{MODULE}class Made:
    def work_on_it(self): inner()
class A(nn.Module):
    def forward(self, x):
        made = self.kept_for(x)
        made.work_on_it()
    def kept_for(self, x): return self.table[x]
def inner(): ...
"""
    assert {"m.Made.work_on_it", "m.inner"} <= set(heat_of(text))


def test_hooks_are_hot_however_they_are_handed_over() -> None:
    text = f"""{MODULE}import functools
def plain(*a): ...
def given(n, *a): ...
def factory(n):
    def made(*a): ...
    return made
def at_the_end(): ...
def pack(x): ...
def unpack(x): ...
def install(module, p):
    module.register_forward_hook(plain)
    module.register_forward_hook(functools.partial(given, 1))
    p.register_hook(factory(1))
    engine.queue_callback(at_the_end)
    torch.autograd.graph.saved_tensors_hooks(pack, unpack)
"""
    hot = {"m.plain", "m.given", "m.factory.<locals>.made", "m.at_the_end", "m.pack", "m.unpack"}
    assert set(heat_of(text)) == hot


# --- guesses ------------------------------------------------------------------------------------

_MANY = "".join(f"class E{i}(Env):\n    def _step(self): deep{i}()\n" for i in range(5))
_ENV = "class Env:\n    def roll(self): self._step()\n    def _step(self): base()\n"


def test_overrides_of_a_receiver_are_not_all_followed_where_they_are_many() -> None:
    text = f"""{MODULE}{_ENV}{_MANY}class A(nn.Module):
    def __init__(self, env: Env): self.env = env
    def forward(self, x):
        self.env.roll()
        self.env._step()
"""
    assert set(heat_of(text)) == {"m.A.forward", "m.Env.roll", "m.Env._step"}


def test_many_functions_of_no_class_that_an_attribute_holds_are_followed() -> None:
    """They override nothing, whatever they are called."""
    names = [f"forward_{i}" for i in range(5)]
    text = MODULE + "".join(f"def {name}(x): return x\n" for name in names)
    text += "class A(nn.Module):\n    def __init__(self, kind):\n"
    text += "".join(f"        if kind == {i}: self.way = {name}\n" for i, name in enumerate(names))
    text += "    def forward(self, x): return self.way(x)\n"
    assert set(heat_of(text)) == {"m.A.forward", *(f"m.{name}" for name in names)}


def test_few_overrides_of_a_receiver_are_followed() -> None:
    few = "".join(_MANY.splitlines(keepends=True)[:6])
    text = f"""{MODULE}{_ENV}{few}class A(nn.Module):
    def __init__(self, env: Env): self.env = env
    def forward(self, x): self.env.roll()
"""
    hot = {"m.A.forward", "m.Env.roll", "m.Env._step", *(f"m.E{i}._step" for i in range(3))}
    assert set(heat_of(text)) == hot


def test_all_overrides_of_self_are_followed_in_the_family_of_the_root() -> None:
    text = MODULE + _ENV.replace("class Env", "class Env(nn.Module)") + _MANY
    text = text.replace("def roll", "def forward")
    hot = {"m.Env.forward", "m.Env._step", *(f"m.E{i}._step" for i in range(5))}
    assert set(heat_of(text)) == hot


def test_a_way_away_from_home_does_not_hide_one_at_home() -> None:
    """Breadth first comes to `_run` through the helper sooner than through its own root."""
    text = MODULE + _ENV.replace("class Env", "class Env(nn.Module)") + _MANY
    text += """class A(nn.Module):
    def __init__(self, env: Env): self.env = env
    def forward(self, x): self.env.roll()
"""
    text = text.replace(
        "    def roll",
        "    def forward(self): self.one()\n    def one(self): self.roll()\n    def roll",
    )
    assert {f"m.E{i}._step" for i in range(5)} <= set(heat_of(text))


def test_other_frameworks_do_not_compete() -> None:
    files = {"p/env.py": _ENV, "p/__init__.py": ""}
    for i in range(4):
        files[f"p/e{i}.py"] = (
            f"import {'torch' if i == 0 else 'jax'}\nfrom p.env import Env\n"
            "class E(Env):\n    def _step(self): ...\n"
        )
    files["p/a.py"] = f"""{MODULE}from p.env import Env
class A(nn.Module):
    def __init__(self, env: Env): self.env = env
    def forward(self, x): self.env.roll()
"""
    assert "p.e0.E._step" in heat_of(files)


def test_a_long_way_with_a_guess_on_it_is_cut() -> None:
    chain = "".join(f"def f{i}(x): f{i + 1}(x)\n" for i in range(8)) + "def f8(x): ...\n"
    sure = f"{MODULE}{chain}class A(nn.Module):\n    def forward(self, x): f0(x)\n"
    assert "m.f7" in heat_of(sure)
    guessed = f"""{MODULE}{chain}class H:
    def go(self, x): f0(x)
class A(nn.Module):
    def __init__(self, h: H): self.h = h
    def forward(self, x): self.h.go(x)
"""
    hot = heat_of(guessed)
    assert "m.f3" in hot
    assert "m.f4" not in hot
    assert max(len(fact.path) for fact in hot.values()) == 6


def test_hooks_that_are_taken_away_again_are_no_roots() -> None:
    text = """import torch
def watch(m, i, o): ...
def calibrate(model, x):
    handle = model.register_forward_hook(watch)
    model(x)
    handle.remove()
"""
    assert heat_of(text) == {}
    assert set(heat_of(text.replace("    handle.remove()\n", ""))) == {"m.watch"}


@pytest.mark.parametrize(
    "name",
    "reset _reset setup_run on_fit_start on_train_begin calibrate_scales profile_memory".split(),
)
def test_some_names_are_cold_unless_roots(name: str) -> None:
    text = f"{MODULE}class A(nn.Module):\n    def forward(self, x): self.{name}()\n"
    text += f"    def {name}(self): ...\n"
    assert set(heat_of(text)) == {"m.A.forward"}
    assert f"m.A.{name}" in heat_of(text, (f"m.A.{name}",))
    assert f"m.A.{name}" in heat_of(
        f"import torch\n{text}def f(m): m.register_forward_hook(A.{name})\n"
    )


def test_setters_are_not_listed_with_what_reads_the_property() -> None:
    text = f"""{MODULE}class A(nn.Module):
    def forward(self, x): return self.p
    @property
    def p(self): return 1
    @p.setter
    def p(self, value): other(value)
def other(value): ...
"""
    project = project_of({"m.py": text})
    assert [(f.function, f.line) for f in listed(project, solve(project))] == [
        ("A.forward", 4),
        ("A.p", 6),
    ]


@pytest.mark.parametrize(
    "guarded",
    [
        "if not self._keys_validated:\n            check(x)",
        "if not self._done:\n            check(x)\n        self._done = True",
        "if self._done is False:\n            check(x)\n            self._done = True",
        "if self._done is not True:\n            check(x)\n            self._done = True",
        "if self.first:\n            check(x)\n            self.first = False",
        "if self.shape != x.shape:\n            check(x)\n            self.shape = x.shape",
        "if x.shape[0] > self.max_len_cached:\n            check(x)",
    ],
)
def test_what_is_checked_once_is_cold(guarded: str) -> None:
    text = f"{MODULE}def check(x): ...\nclass A(nn.Module):\n    def forward(self, x):\n        {guarded}\n"
    assert set(heat_of(text)) == {"m.A.forward"}


# --- cold ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "__init__",
        "build",
        "extra_repr",
        "get_config",
        "state_dict",
        "reset_parameters",
        "save_pretrained",
        "_handle_oom",
        "_handle_nan_recovery",
        "capture",
        "_capture_cuda_graph",
        "graph_pool_capture_scope",
    ],
)
def test_set_up_is_cold_whoever_calls_it(name: str) -> None:
    hot = heat_of(
        MODULE + f"class A(nn.Module):\n    def forward(self, x):\n        return self.{name}()\n"
        f"    def {name}(self):\n        return below()\ndef below(): ...\n"
    )
    assert list(hot) == ["m.A.forward"]


@pytest.mark.parametrize(
    "path",
    [
        "tests/a.py",
        "pkg/test_a.py",
        "pkg/a_test.py",
        "pkg/cli/a.py",
        "pkg/convert_a.py",
        "pkg/exporter.py",
        "pkg/pipelines/deprecated/a.py",
    ],
)
def test_files_that_are_cold(path: str) -> None:
    assert heat_of({path: MODULE + "class A(nn.Module):\n    def forward(self): ...\n"}) == {}


@pytest.mark.parametrize(
    "decorator", ["functools.lru_cache", "_per_device_cache", "memoize", "utils.run_once"]
)
def test_cached_functions_are_cold(decorator: str) -> None:
    hot = heat_of(
        f"import functools, torch\n@{decorator}\ndef table(): ...\n"
        "class A(torch.nn.Module):\n    def forward(self):\n        table()\n"
    )
    assert list(hot) == ["m.A.forward"]


@pytest.mark.parametrize(
    "written",
    [
        "class A(DeprecatedMixin, nn.Module):\n    def forward(self, x): ...\n",
        "class Before(DeprecatedMixin): ...\nclass A(nn.Module, Before):\n    def forward(self, x): ...\n",
        "@deprecated('use B')\nclass A(nn.Module):\n    def forward(self, x): ...\n",
        "class A(nn.Module):\n    @warnings.deprecated('use B')\n    def forward(self, x): ...\n",
    ],
)
def test_what_goes_away_is_cold(written: str) -> None:
    assert heat_of(f"{MODULE}from warnings import deprecated\nimport warnings\n{written}") == {}


@pytest.mark.parametrize(
    "written",
    [
        "class A(DeprecatedArgumentsMixin, nn.Module):\n    def forward(self, x): ...\n",
        "class A(DeprecatedMixin, nn.Module):  # dispatchguard: hot\n    def forward(self, x): ...\n",
        """class A(nn.Module):
    def forward(self, x): ...
    @deprecated('no')
    def forward(self, x, y): ...
""",
    ],
)
def test_what_does_not_go_away_as_a_whole_is_hot(written: str) -> None:
    assert "m.A.forward" in heat_of(f"{MODULE}from warnings import deprecated\n{written}")


@pytest.mark.parametrize("decorator", ["deprecated_arg('y')", "deprecate_kwarg('y')"])
def test_what_only_an_argument_of_goes_away_from_is_hot(decorator: str) -> None:
    written = f"class A(nn.Module):\n    @{decorator}\n    def forward(self, x): ...\n"
    assert "m.A.forward" in heat_of(
        f"{MODULE}from others import deprecated_arg, deprecate_kwarg\n{written}"
    )


# --- the user's word ----------------------------------------------------------------------------


TWO = """
import torch
class A(torch.nn.Module):
    def forward(self, x):
        return middle(x)
def middle(x):
    return last(x)
def last(x): ...
class Plain:
    def __init__(self): ...
    def run(self): ...
def build(x): ...
"""


@pytest.mark.parametrize(
    ("hot", "cold", "found"),
    [
        ((), (), {"A.forward", "middle", "last"}),
        ((), ("m.middle",), {"A.forward"}),
        ((), ("m.A",), set()),
        ((), ("m.*",), set()),
        (("m.Plain",), (), {"A.forward", "middle", "last", "Plain.__init__", "Plain.run"}),
        (("m.build",), (), {"A.forward", "middle", "last", "build"}),
        (("m.b*",), (), {"A.forward", "middle", "last"}),
        (("m.last",), ("m.last",), {"A.forward", "middle"}),
    ],
)
def test_configuration(hot: tuple[str, ...], cold: tuple[str, ...], found: set[str]) -> None:
    assert set(heat_of(TWO, hot, cold)) == {f"m.{name}" for name in found}


def test_decorators_in_the_configuration() -> None:
    text = "from lib import op\n@op\ndef f(x): ...\n@op.other\ndef g(x): ...\n"
    assert set(heat_of(text, ["@lib.op"])) == {"m.f"}
    assert set(heat_of(text, ["@lib.*"])) == {"m.f", "m.g"}


def test_marks() -> None:
    text = TWO.replace("def middle(x):", "def middle(x):  # dispatchguard: cold").replace(
        "def build(x)", "# dispatchguard: hot\ndef build(x)"
    )
    assert set(heat_of(text)) == {"m.A.forward", "m.build"}


def test_library_roots_of_third_parties() -> None:
    project = project_of({"m.py": "import lib\nclass C(lib.Layer):\n    def run(self): ...\n"})
    assert solve(project).hot == {}
    solved = solve(project, library_roots={"lib.Layer": ["run"]})
    assert solved.hot["m:C.run"].reason == "run of a lib.Layer"
    [line] = listed(project, solved)
    assert (line.path, line.function, line.line) == ("m.py", "C.run", 3)


def test_the_same_project_gives_the_same_heat() -> None:
    files = {"b.py": TWO, "a.py": TWO, "c.py": "from a import *\nfrom b import middle as m\n"}
    there, back = project_of(files), project_of(dict(reversed(files.items())))
    first, second = solve(there), solve(back)
    assert listed(there, first) == listed(back, second)
    assert list(first.hot.items()) == list(second.hot.items())


# --- briefs -------------------------------------------------------------------------------------


FILES = {
    "pkg/__init__.py": "",
    "pkg/tree/__init__.py": "from pkg.tree.api import flatten\n",
    "pkg/tree/api.py": "def flatten(x) -> list: ...\n",
    "pkg/base.py": """
        import torch
        from torch import nn
        class Base(nn.modules.Module):
            def __init__(self):
                self.scale = nn.Parameter(torch.ones(1))
            @property
            def width(self): ...
            def helper(self, x):
                return torch.relu(x)
        def factory(fn):
            def inner(*args):
                return fn(*args)
            return inner
    """,
    "pkg/model.py": """
        import contextlib
        import torch
        from pkg import tree
        from pkg.base import Base, factory
        LIMIT = 3
        class Block(Base):
            def __init__(self):
                self.inner = Base()
                self.linear = torch.nn.Linear(2, 2)
            def forward(self, x):
                y = self.helper(x)
                parts = tree.flatten(x)
                return factory(y)(x.unsqueeze(0))
        @contextlib.contextmanager
        def scope():
            yield
    """,
    "pkg/idle.py": "def f(): ...\n",
}


def test_a_brief_tells_what_judging_one_file_needs() -> None:
    brief = brief_of(FILES, "pkg/model.py")
    assert brief.module == "pkg.model"
    assert brief.imports == ["contextlib", "pkg", "torch"]
    assert brief.names["tree"] == ["pkg.tree"]
    assert brief.names["Base"] == ["pkg.base.Base"]
    assert brief.names["Block"] == ["pkg.model.Block"]
    assert brief.globals == {"LIMIT": ["int"]}
    assert list(brief.hot) == ["Block.forward"]
    assert brief.tensors == {"Block.forward": ["x"]}
    block = brief.classes["Block"]
    assert block.is_module
    assert block.ancestors == ["pkg.base.Base", "torch.nn.Module"]
    assert block.attrs == {
        "inner": ["call:pkg.base.Base"],
        "linear": ["call:torch.nn.Linear"],
        "scale": ["param"],
    }
    assert block.methods["helper"] == "pkg.base:Base.helper"
    assert block.properties == ["width"]
    assert brief.callees["Block.self.helper"].returns == "call:torch.relu"
    assert brief.callees["tree.flatten"].target == "pkg.tree.api:flatten"
    assert brief.callees["factory"].returns_function
    assert "pkg.base.Base" in brief.modules
    assert "pkg.tree" not in brief.modules


def test_only_files_with_hot_functions_have_briefs() -> None:
    project = project_of(FILES)
    briefer = Briefer(project, solve(project))
    assert set(briefer.hot) == {"pkg/base.py", "pkg/model.py", "pkg/tree/api.py"}
    assert briefer.brief("pkg/base.py").hot


def test_a_brief_survives_json() -> None:
    brief = brief_of(FILES, "pkg/model.py")
    assert unpack_brief(pack_brief(brief)) == brief


def test_names_keep_the_nearest_name_first() -> None:
    files = {
        "pkg/__init__.py": "from pkg.impl import thing\n",
        "pkg/impl.py": "def thing(): ...\n",
        "pkg/use.py": MODULE
        + "from pkg import thing\nclass A(nn.Module):\n    def forward(self):\n        thing()\n",
    }
    assert brief_of(files, "pkg/use.py").names["thing"] == ["pkg.thing", "pkg.impl.thing"]


def test_a_module_made_once_behind_a_global_is_cold() -> None:
    hot = heat_of(
        MODULE
        + """
_compiled = None
class A(nn.Module):
    def forward(self, x):
        return get()(x)
def get():
    global _compiled
    if _compiled is None:
        _compiled = load()
    return _compiled
def load(): ...
"""
    )
    assert "m.get" in hot and "m.load" not in hot


def test_what_is_loaded_for_another_name_than_the_last_is_cold() -> None:
    hot = heat_of(
        MODULE
        + """
_loaded = None
_run = None
class A(nn.Module):
    def forward(self, x):
        return run_of(self.how)(x)
def run_of(how):
    global _loaded, _run
    if how is not None and _loaded != how:
        _run = load(how)
        _loaded = how
    return _run
def load(how): ...
"""
    )
    assert "m.run_of" in hot and "m.load" not in hot


@pytest.mark.parametrize(
    ("tried", "cold"),
    [
        ("try:\n        return TABLE[x]\n    except KeyError:\n        pass\n", True),
        (
            "try:\n        return fast(x)\n    except (TypeError, ValueError) as e:\n        note(e)\n",
            True,
        ),
        ("try:\n        return fast(x)\n    except ImportError:\n        pass\n", False),
        ("try:\n        y = TABLE[x]\n    except KeyError:\n        return x\n", False),
        (
            "try:\n        y = x\n    except KeyError:\n        pass\n    else:\n        return y\n",
            False,
        ),
        ("try:\n        return TABLE[x]\n    finally:\n        pass\n", False),
    ],
)
def test_what_only_a_failure_goes_on_to_is_cold(tried: str, cold: bool) -> None:
    hot = heat_of(
        f"{MODULE}class A(nn.Module):\n    def forward(self, x):\n        return made(x)\n"
        f"def made(x):\n    {tried}    return slow(x)\ndef slow(x): ...\n"
    )
    assert ("m.slow" not in hot) is cold


def test_a_stand_in_for_a_missing_package_is_not_the_class_of_the_same_name() -> None:
    brief = brief_of(
        {
            "m.py": MODULE
            + """
try:
    import fast
    class Likelihood(nn.Module):
        def forward(self, x):
            return self.prefix
    def one(x):
        return x
except ImportError:
    class Likelihood(nn.Module):
        @property
        def prefix(self):
            return 1
    class Other(nn.Module):
        def forward(self, x):
            return x
    def one(x):
        return two(x)
"""
        },
        "m.py",
    )
    assert set(brief.hot) == {"Likelihood.forward", "Other.forward"}
    assert brief.classes["Likelihood"].properties == []


@pytest.mark.parametrize("name", ["clear_device_cache", "free_memory", "offload", "setup_hooks"])
def test_what_now_and_then_makes_room_is_cold(name: str) -> None:
    functions = heat_of(
        MODULE
        + f"""
def {name}(x):
    return used(x)
def used(x):
    return x
class A(nn.Module):
    def {name}(self, x):
        return x
    def forward(self, x):
        {name}(x)
        return self.{name}(x)
"""
    )
    assert set(functions) == {"m.A.forward"}
