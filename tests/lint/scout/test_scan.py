from __future__ import annotations

import gc
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_dispatchguard.lint.facts import FileFacts, FunctionFact
from pytest_dispatchguard.lint.knowledge.cold_names import cold_by_name
from pytest_dispatchguard.lint.scout.scan import scan
from pytest_dispatchguard.lint.store.packing import pack_facts, unpack_facts


def facts_of(text: str, module: str = "pkg.mod", is_package: bool = False) -> FileFacts:
    return scan(textwrap.dedent(text), module, is_package)


def function(text: str, name: str = "f") -> FunctionFact:
    return next(f for f in facts_of(text).functions if f.name == name)


def looks(
    body: str, header: str = "def f(x: Tensor, y: Tensor, mask: Tensor = None, training=False):"
) -> set[str]:
    text = "import torch\n" + header + "\n" + textwrap.indent(textwrap.dedent(body), "    ")
    return set(function(text).looks)


# --- names and places ---------------------------------------------------------------------------


def test_functions_have_qualified_names_and_exact_places() -> None:
    text = "import a\n\n@a.deco\ndef f(x):\n    def g(): ...\n    return g\nclass C:\n    def m(self): ...\n"
    facts = facts_of(text)
    assert [f.name for f in facts.functions] == ["f", "f.<locals>.g", "C.m"]
    first = facts.functions[0]
    assert (first.line, first.end_line) == (4, 6)
    assert text.encode()[first.start_byte : first.end_byte].decode().startswith("@a.deco\ndef f(x)")
    assert first.decorators == ["a.deco"]
    assert first.params == ["x"]
    assert first.returns_function


def test_places_count_bytes_of_utf8() -> None:
    text = '"""äöü"""\ndef f():\n    return "ß"\n'
    fact = facts_of(text).functions[0]
    assert text.encode()[fact.start_byte : fact.end_byte].decode() == 'def f():\n    return "ß"'


def test_imports_are_resolved_against_the_module() -> None:
    text = """
    import torch.nn.functional as F
    import os.path
    from . import sibling
    from ..up import thing as other
    from .star import *
    try:
        import fast
    except ImportError:
        import slow as fast
    def f():
        from torch import nn
    """
    assert facts_of(text, "pkg.sub.mod").imports == [
        ("F", "torch.nn.functional"),
        ("os", "os"),
        ("sibling", "pkg.sub.sibling"),
        ("other", "pkg.up.thing"),
        ("*", "pkg.sub.star"),
        ("fast", "fast"),
        ("fast", "slow"),
        ("nn", "torch.nn"),
    ]
    assert facts_of("from .a import b\n", "pkg.sub", True).imports == [("b", "pkg.sub.a.b")]


def test_classes_know_what_their_methods_assign() -> None:
    text = """
    import torch
    from torch import nn
    class Layer(nn.Module, Generic[T]):
        scale: float
        flag = True
        def __init__(self, size: int, act=None, bias=True):
            super().__init__()
            self.size = size
            self.bias = bias
            self.act = act
            self.linear = nn.Linear(size, size)
            self.weight = nn.Parameter(torch.empty(size))
            self.register_buffer("mask", torch.ones(3))
            self.register_parameter("extra", None)
            layers = nn.ModuleList()
            self.layers = layers
            self.fn = torch.relu
            self.pick = nn.ReLU() if act else nn.GELU()
    """
    [fact] = facts_of(text).classes
    assert fact.bases == ["nn.Module", "Generic"]
    assert fact.attrs == {
        "scale": ["ann:float"],
        "flag": ["bool"],
        "size": ["ann:int"],
        "bias": ["bool", "default:True"],
        "act": ["none", "unknown"],
        "linear": ["call:torch.nn.Linear"],
        "weight": ["param"],
        "mask": ["buffer"],
        "extra": ["none"],
        "layers": ["call:torch.nn.ModuleList"],
        "fn": ["name:torch.relu"],
        "pick": ["call:torch.nn.ReLU", "call:torch.nn.GELU"],
    }


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("torch.arange(4).float()", "built"),
        ("torch.arange(4, device='cpu').float()", "built"),
        ("torch.ones(4).to(torch.float16)[None]", "built"),
        ("(1.0 - torch.linspace(0, 1, n)) * 2", "built"),
        ("-torch.from_numpy(n).cumsum(0)", "built"),
        ("torch.arange(4, device=device)", "tensor"),
        ("torch.ones(4).to(device).float()", "tensor"),
        ("torch.ones(4).cuda() + 1", "tensor"),
        ("torch.ones(4).to(device=device, dtype=torch.half)", "tensor"),
        ("torch.arange(4)", "call:torch.arange"),
        ("torch.ones(4).max(0)", "unknown"),
        ("torch.ones(4).tolist()", "unknown"),
        ("n.float()", "unknown"),
        ("1 - n", "unknown"),
        ("-1", "int"),
    ],
)
def test_tensors_that_a_class_makes(value: str, word: str) -> None:
    text = f"import torch\nclass A:\n    def __init__(self, n, device):\n        self.x = {value}\n"
    [fact] = facts_of(text).classes
    assert fact.attrs == {"x": [word]}


def test_module_level_names() -> None:
    text = "import torch\nA = 3\nB = torch.zeros(2)\nrelu = torch.nn.functional.relu\nC: 'Tensor' = None\n"
    assert facts_of(text).assigns == {
        "A": ["int"],
        "B": ["call:torch.zeros"],
        "relu": ["name:torch.nn.functional.relu"],
        "C": ["ann:Tensor", "none"],
    }


def test_marks() -> None:
    text = """
    def a():  # dispatchguard: hot
        pass
    # dispatchguard: cold
    def b():
        pass
    @deco  # dispatchguard: hot
    def c():
        x = 1  # dispatchguard: cold
    class D:  # dispatchguard: hot
        pass
    def e():
        pass
    """
    facts = facts_of(text)
    assert [f.mark for f in facts.functions] == ["hot", "cold", "hot", ""]
    assert facts.classes[0].mark == "hot"


# --- calls ----------------------------------------------------------------------------------------


def test_calls_and_all_that_may_lead_on() -> None:
    text = """
    import functools
    from pkg import tree, Spec, apply
    class C:
        def f(self, x):
            spec = Spec(x)
            spec.check()
            for part in self.parts:
                self.helper(part)
            with tree.scope():
                tree.map(self.visit, x)
            fn = functools.partial(local, 1)
            apply(fn, x)
            return super().f(self.width)
    def local(): ...
    """
    fact = function(text, "C.f")
    calls = {(c.name, c.how, c.loop) for c in fact.calls}
    assert {
        ("Spec", "call", False),
        ("spec.check", "call", False),
        ("self.helper", "call", True),
        ("tree.scope", "new-scope", False),
        ("self.visit", "passed", False),
        ("apply", "call", False),
        ("fn", "passed", False),
        ("super().f", "call", False),
        ("self.width", "passed", False),
    } <= calls
    assert fact.locals == {"spec": ["call:pkg.Spec"], "fn": ["name:local"]}


@pytest.mark.parametrize(
    "body",
    [
        "raise ValueError(helper(x))",
        "try:\n    pass\nexcept Exception:\n    helper(x)",
        "assert x, helper(x)",
        "if torch.jit.is_tracing():\n    helper(x)",
        "if x is None:\n    helper(x)\n    raise ValueError",
        "if x:\n    pass\nelse:\n    helper(x)\n    raise ValueError",
        "if self._n is None:\n    self._n = helper(x)",
        "if self._n is not None:\n    return self._n\nself._n = helper(x)\nreturn self._n",
        "y = helper(x) if torch.jit.is_scripting() else x",
        "if x:\n    pass\nelif self.verbose:\n    helper(x)",
        "y = plans.get(x)\nif y is None:\n    plans[x] = y = helper(x)",
        "if x:\n    logger.warning('no')\n    return helper(x)",
        "for y in x:\n    if y:\n        logging.error('no')\n        helper(x)\n        continue",
        "if torch.cuda.is_current_stream_capturing():\n    helper(x)",
        "if x and use_legacy_cache:\n    logger.warning_once('old')\n    helper(x)",
        "if x.deprecated_mask is not None:\n    warnings.warn('old')\n    y = helper(x)",
        "if getattr(x, '_hooks_installed', False):\n    return\nhelper(x)",
        "if self._n is not None:\n    y = self._n\nelse:\n    y = self._n = helper(x)",
        "if self.init_done:\n    return x\nelse:\n    helper(x)\n    self.init_done = True",
        "y = (plans.get(x))\nif y is not None:\n    y = y + 1\n    return y\ny = plans[x] = helper(x)",
        "y = self.plans.get(x)\nif y is None:\n    y = helper(x)\n    self.plans[x] = y",
        "y = plans[x]\nif y is not None:\n    return y\ny = helper(x)\nplans[x] = y\nreturn y",
        "if x:\n    y = plans.get(1)\nelse:\n    y = plans.get(2)\nif y is None:\n    plans[1] = helper(x)",
        "if self._n is None:\n    if x:\n        self._n = helper(x)\n    else:\n        self._n = 0",
        "if x not in _PLANS:\n    with lock:\n        _PLANS[x] = helper(x)",
        "try:\n    if x:\n        return 1\n    else:\n        return 0\nexcept E:\n    pass\nhelper(x)",
    ],
)
def test_cold_regions_do_not_count(body: str) -> None:
    found = function("def f(self, x):\n" + textwrap.indent(body, "    "))
    assert "helper" not in [c.name for c in found.calls]
    assert "call:helper" not in found.looks


@pytest.mark.parametrize(
    "body",
    [
        "if helper(x) is None:\n    raise ValueError",
        "try:\n    helper(x)\nfinally:\n    pass",
        "if not torch.jit.is_tracing():\n    helper(x)",
        "if x is None:\n    x = helper(x)",
        "g = lambda: helper(x)",
        "if self.a is not None:\n    return self.a\nself.b = helper(x)",
        "own = {}\ny = own.get(x)\nif y is None:\n    own[x] = helper(x)",
        "if x:\n    logger.info('yes')\n    return helper(x)",
        "if x:\n    logger.warning('no')\n    helper(x)",
        "if x:\n    self.warn('no')\n    return helper(x)",
        "if x:\n    logger.warning_once('slow')\n    return helper(x)",
        "if use_legacy_cache:\n    helper(x)",
        "if not self.legacy:\n    warnings.warn('new')\n    helper(x)",
        "if not self.is_patched:\n    helper(x)",
        "if x:\n    y = None\nelse:\n    y = plans.get(x)\nif y is None:\n    plans[x] = helper(x)",
        "if getattr(x, 'training', False):\n    return\nhelper(x)",
        "if self.a is not None:\n    self.a = 1\nelse:\n    helper(x)",
        "y = self.get(1)\nif y is None:\n    self[1] = helper(x)",
        "if self.a is not None:\n    y = self.a\nelse:\n    y = self.b = helper(x)",
        "y = x.get(1)\nif y is None:\n    x[1] = helper(x)",
        "y = plans.get(x)\nif y is None:\n    others[x] = helper(x)",
        "y = plans.get(x)\ny = x\nif y is None:\n    plans[x] = helper(x)",
        "if self._n is None:\n    if x:\n        self._n = 1\n    helper(x)",
        "try:\n    if x:\n        return plans[x]\nexcept KeyError:\n    pass\nhelper(x)",
        "y = plans.pop(x)\nif y is None:\n    plans[x] = helper(x)",
    ],
)
def test_hot_regions_do(body: str) -> None:
    found = function("def f(self, x):\n" + textwrap.indent(body, "    "))
    assert "helper" in [c.name for c in found.calls]
    assert "call:helper" in found.looks


def test_what_the_function_around_binds_is_no_lasting_container() -> None:
    text = """
    def f(self, xs):
        own = {}
        def once(k):
            m = own.get(k)
            if m is None:
                m = own[k] = helper(k)
            return m
        return [once(x) for x in xs]
    """
    assert "helper" in [c.name for c in function(text, "f.<locals>.once").calls]


def test_comprehensions_are_loops() -> None:
    fact = function("def f(xs):\n    return [g(x) for x in h(xs)]\n")
    assert {c.name: c.loop for c in fact.calls} == {"g": True, "h": False}


def test_training_loops() -> None:
    text = "def f(o, m):\n    for b in d:\n        m(b).backward()\n        o.step()\n"
    assert function(text).training_loop
    assert not function("def f(o, m):\n    m(b).backward()\n    o.step()\n").training_loop


def test_what_an_epoch_does_is_no_step() -> None:
    fact = function("""
        def f(o, model, loader, scheduler):
            for epoch in range(9):
                begin(epoch)
                for batch in loader:
                    both(batch)
                    for part in batch:
                        loss(model, part).backward()
                    if batch:
                        o.optimizer.step()
                    log(batch)
                scheduler.step()
                both(epoch)
                while True:
                    evaluate(model)
    """)
    assert fact.training_loop
    loops = {c.name: c.loop for c in fact.calls if c.name in "begin both loss log evaluate".split()}
    assert loops == {"begin": False, "both": True, "loss": True, "log": True, "evaluate": False}


@pytest.mark.parametrize(
    ("left_over", "hot"),
    [
        ("if batch:\n            o.optimizer.step()\n            log(batch)", False),
        ("if batch:\n            loss(model, batch).backward()\n            log(batch)", True),
    ],
)
def test_what_an_epoch_leaves_over_is_no_step(left_over: str, hot: bool) -> None:
    fact = function(
        "def f(o, model, loader):\n"
        "    for epoch in range(9):\n"
        "        for batch in loader:\n"
        "            loss(model, batch).backward()\n"
        "            o.optimizer.step()\n"
        f"        {left_over}\n"
    )
    assert {c.name: c.loop for c in fact.calls}["log"] is hot


def test_hooks_are_told() -> None:
    text = "class C:\n    def __init__(self, m):\n        m.register_forward_hook(self.hook)\n"
    assert ("self.hook", "hook") in [(c.name, c.how) for c in function(text, "C.__init__").calls]


def test_hooks_that_are_taken_away_again_are_not_told() -> None:
    text = "def f(m):\n    h = [x.register_forward_hook(g) for x in m]\n    for x in h:\n        x.remove()\n"
    assert "hook" not in [c.how for c in function(text, "f").calls]
    assert "hook" in [c.how for c in function(text.replace("x.remove()", "x.remove(1)"), "f").calls]


def test_hooks_that_a_function_around_takes_away_again_are_not_told() -> None:
    text = (
        "def summary(m):\n    def register(x):\n        h.append(x.register_forward_hook(hook))\n"
        "    h = []\n    m.apply(register)\n    m()\n    for x in h:\n        x.remove()\n"
    )
    name = "summary.<locals>.register"
    assert "hook" not in [c.how for c in function(text, name).calls]
    assert "hook" in [c.how for c in function(text.replace("remove", "show"), name).calls]


# --- looks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "if mask:\n    pass",
        "if x > 0:\n    pass",
        "if x.sum() > 0 and training:\n    pass",
        "while x.any():\n    pass",
        "assert not x.isnan().any()",
        "y = 1 if mask else 2",
        "z = y or x",
        "return [v for v in x if v]",
        "ok = x.any()\nif ok:\n    pass",
        "return bool(x)",
        "return any(v > 0 for v in x)",
    ],
)
def test_truth_of_a_possible_tensor(body: str) -> None:
    assert "truth" in looks(body)


@pytest.mark.parametrize(
    "body",
    [
        "if mask is None:\n    pass",
        "if training:\n    pass",
        "if x.shape[0] > 2:\n    pass",
        "if x.ndim == 3 and x.dtype != torch.float32:\n    pass",
        "if isinstance(x, list) or callable(y):\n    pass",
        "if len(x):\n    pass",
        "if x.dim() == 2:\n    pass",
        "if 'a' in y:\n    pass",
        "if y == 'same':\n    pass",
        "n = len(x)\nif n > 2:\n    pass",
        "n = x.shape[0]\nif n:\n    pass",
        "for i in range(3):\n    if i > 1:\n        pass",
        "if not is_flag(x):\n    pass",
        "if x.requires_grad:\n    pass",
        "ok = mask is None\nif ok:\n    pass",
    ],
)
def test_truth_of_a_host_value_is_passed_over(body: str) -> None:
    assert "truth" not in looks(body)


@pytest.mark.parametrize(
    ("parameter", "there"),
    [
        ("scale: float = 1.0", False),
        ("scale: float | torch.Tensor = 1.0", True),
        ("scale: Union[bool, Tensor] = False", True),
        ("scale=1.0", False),
    ],
)
def test_a_default_says_what_a_parameter_is_where_no_annotation_says_more(
    parameter: str, there: bool
) -> None:
    text = f"""
    import torch
    from typing import Union
    from torch import Tensor
    def f(x, {parameter}):
        if scale > 0:
            pass
    """
    assert ("truth" in function(text, "f").looks) is there


def test_truth_of_an_attribute_counts_where_it_is_a_tensor() -> None:
    text = """
    import torch
    class C(torch.nn.Module):
        def __init__(self):
            self.flag = True
            self.register_buffer("ready", torch.zeros(1))
        def f(self, x):
            if self.flag:
                pass
        def g(self, x):
            if self.ready:
                pass
    """
    assert "truth" not in function(text, "C.f").looks
    assert "truth" in function(text, "C.g").looks


@pytest.mark.parametrize(
    ("body", "token", "there"),
    [
        ("return x[mask]", "subscript", True),
        ("return x[~y]", "subscript", True),
        ("return x[x > 0]", "subscript", True),
        ("return x[:, 0], x[..., None], x['a'], x[1:3]", "subscript", False),
        ("for i in range(2):\n    x[i]", "subscript", False),
        ("x[mask] = 0", "setitem", True),
        ("x[0] = 0", "setitem", False),
        ("for v in x:\n    pass", "looped", True),
        ("for v in x:\n    pass", "iterate", False),
        ("for v in range(3):\n    pass", "looped", False),
        ("for k, v in y.items():\n    pass", "looped", False),
        ("a, b = x", "iterate", True),
        ("a, b = x.shape", "iterate", False),
        ("a, b = torch.chunk(x, 2)", "iterate", False),
        ("return list(x)", "iterate", True),
        ("return sum(len(v) for v in [1])", "iterate", False),
        ("return f'{x}'", "fstring", True),
        ("return 'plain'", "fstring", False),
        ("import os", "import", True),
        ("def g(): pass", "def", True),
        ("return lambda: 1", "lambda", True),
        ("return x.data.shape", "attr:data", True),
        ("return x.item()", "call:item", True),
        ("with torch.no_grad():\n    pass", "with", True),
        ("while False:\n    pass", "loop", True),
        ("return x == y", "comparison", True),
        ("for i in range(n):\n    x[i]", "counted", True),
        ("for i in range(n):\n    y[m[0], i] = 1", "counted", True),
        ("for i in range(n):\n    x.narrow(0, i, 1)", "counted", True),
        ("for i in range(n):\n    f(i)", "counted", False),
        ("for i in x:\n    y[i]", "counted", False),
        ("return [x[i] for i in range(n)]", "counted", True),
        ("return [f(i) for i in range(n)]", "counted", False),
        ("return tuple(_TYPES)", "constant-copy", True),
        ("return list(pkg.NAMES  # all of them\n)", "constant-copy", True),
        ("return tuple(types)", "constant-copy", False),
        ("return sorted(NAMES)", "constant-copy", False),
        ("x = 1", "assign", True),
        ("pass", "name:f", True),
        # what a loop runs over, and what is only unpacked
        ("return [v for v in x]", "looped", True),
        ("for i, v in enumerate(x):\n    pass", "looped", True),
        ("for v, w in zip([1], x):\n    pass", "looped", True),
        ("a, b = x", "looped", False),
        # numbers of what may be tensors
        ("return int(x)", "number", True),
        ("return int(x.shape[0])", "number", False),
        ("return int(len(x))", "number", False),
        ("parts = [1]\nreturn float(parts[0])", "number", True),
        ("return max(x, 1)", "compared", True),
        ("return max(training, 1)", "compared", False),
        ("return max(lengths)", "compared", True),
        ("return math.sqrt(x)", "math-call", True),
        ("return math.sqrt(x.shape[-1])", "math-call", False),
        ("return math.prod(x.shape)", "shape-product", True),
        ("return math.prod(training)", "shape-product", False),
        ("return any(x)", "whole:any", True),
        ("return any(v > 0 for v in x)", "whole:any", False),
        ("return any([v > 0 for v in x])", "whole:any", False),
        # masks by their names, whatever holds them
        ("return y[batch.mask]", "subscript", True),
        ("return y[batch.is_left]", "subscript", True),
        ("return y[batch.width]", "subscript", False),
        # rows by the number of the round
        ("for i in range(n):\n    x.shape[i]", "counted", False),
        ("sizes = [1]\nfor i in range(n):\n    sizes[i]", "counted", False),
        ("for i in range(n):\n    x[m[0][1], i]", "counted", True),
        # functions that could stand elsewhere
        ("def g(v): return v\nh(g)", "def:plain", True),
        ("def g(): return x.sum()\nh(g)", "def:plain", False),
        ("def g(): return x.sum()\nreturn g()", "def:plain", True),
        ("def g(): return h(lambda x: x.sum())\nh(g)", "def:plain", True),
        ("@wraps(h)\ndef g(): pass", "def:decorated", True),
        ("def g(): pass", "def:decorated", False),
        ("h(lambda: 1)", "lambda:plain", True),
        ("from torch import nn", "import:torch", True),
        ("import torch.nn", "import:torch", True),
        ("from . import other", "import:.", True),
        ("import numpy", "import:torch", False),
    ],
)
def test_tokens(body: str, token: str, there: bool) -> None:
    assert (token in looks(body)) is there


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ("torch.equal(x, y)", {"torch", "imported"}),
        ("F.relu(x)", {"torch", "imported"}),
        ("same(x, y)", {"torch", "imported"}),
        ("x.equal(y)", {"torch"}),
        ("x[0].equal(y)", {"torch"}),
        ("self.x.equal(y)", {"torch"}),
        ("np.equal(x, y)", {"imported"}),
        ("pkg.ops.equal(x, y)", {"imported"}),
        ("helper(x, y)", set()),
        ("np = x\nnp.equal(y)", {"torch"}),
        ("either.equal(x, y)", {"torch", "imported"}),
        ("xp.equal(x, y)", {"torch", "imported"}),
    ],
)
def test_where_a_call_may_come_from(body: str, tokens: set[str]) -> None:
    imports = """
    import numpy as np, pkg.ops, torch
    import torch.nn.functional as F
    from torch import equal as same
    try:
        import numpy as either
    except ImportError:
        import torch as either
    xp = np
    """
    text = textwrap.dedent(imports) + "class C:\n    def m(self, x, y):\n"
    found = function(text + textwrap.indent(body, "        ") + "\n", "C.m").looks
    told = {token.partition(":")[0] for token in found if token.startswith(("torch:", "imported:"))}
    assert told == tokens


def test_all_names_of_a_module_may_hide_any_call() -> None:
    found = function("from math import *\ndef f(x):\n    prod(x)\n").looks
    assert {"imported:prod", "torch:prod"} <= set(found)


def test_a_function_that_reads_self_needs_the_call() -> None:
    text = "class C:\n    def m(self, x):\n        {}\n"
    for body, plain in (
        ("h(lambda: self.x)", False),
        ("h(key=lambda v: self.x + v)", False),
        ("f = lambda: self.x", True),
        ("h(lambda: x)", True),
    ):
        assert ("lambda:plain" in function(text.format(body), "C.m").looks) is plain, body


@pytest.mark.parametrize(
    ("header", "body", "asked"),
    [
        ("sizes", "for n in sizes:\n    if n: pass", False),
        ("sizes: list[int]", "for n in sizes:\n    if n: pass", True),
        ("sizes", "for n in list(sizes):\n    if n: pass", False),
        ("sizes", "a, b = sizes\nif a: pass", False),
        ("x", "h, w = x.shape[-2:]\nif h: pass", False),
        ("x", "h, w = ops.shape(x)\nif h > w: pass", False),
        ("x", "a, b = ops.halves(x)\nif a: pass", False),
        ("x", "a, b = torch.frexp(x)\nif a: pass", True),
        ("x: Tensor", "a, b = x, 1\nif a: pass", True),
        ("x", "a, b = 1, 2\nif a: pass", False),
        ("x", "found = []\nfound.append(x.sum())\nfor v in found:\n    if v: pass", True),
        ("x", "found = [1]\nfor v in found:\n    if v: pass", False),
        ("x: Tensor", "for i, v in enumerate(x):\n    if i: pass", False),
        ("x: Tensor", "for i, v in enumerate(x):\n    if v: pass", True),
        ("x: Tensor, n", "for a, b in zip(n, x):\n    if a: pass", False),
        ("x: Tensor, n", "for a, b in zip(n, x):\n    if b: pass", True),
        ("axis", "if isinstance(axis, (int, tuple)): pass\nif axis: pass", False),
        ("axis", "if isinstance(axis, (int, Tensor)): pass\nif axis: pass", True),
        ("a, b", "if [a, b].count(None) != 1: pass", False),
    ],
)
def test_parts_of_what_holds_no_tensors_are_none(header: str, body: str, asked: bool) -> None:
    assert ("truth" in looks(body, f"def f({header}):")) is asked


def test_what_the_documentation_calls_tensors_may_be_such() -> None:
    text = """
    def f(flags, other):
        \"\"\"Counts.

        Args:
            flags (torch.Tensor): Which to count.
            other: How.
        \"\"\"
        if {}: pass
    """
    assert "truth" in looks_of(text, "flags")
    assert "truth" not in looks_of(text, "other")


def looks_of(text: str, condition: str) -> set[str]:
    return set(function("import torch\n" + textwrap.dedent(text).format(condition)).looks)


def test_what_a_nested_function_holds_its_outer_one_holds() -> None:
    found = looks("def g():\n    return x.item()\nreturn g")
    assert "call:item" in found
    assert "name:g" not in found


def test_writing_to_self_counts() -> None:
    text = "class C:\n    def f(self):\n        self.x = 1\n    def g(self, o):\n        o.x = 1\n"
    assert "self-write" in function(text, "C.f").looks
    assert "self-write" not in function(text, "C.g").looks


# --- tensors by use -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("return x.unsqueeze(0)", ["x"]),
        ("return torch.relu(x)", ["x"]),
        ("return x.mean()", []),
        ("return x.mean(dim=-1)", ["x"]),
        ("return x.max(1, keepdim=True)", ["x"]),
        ("return x.mean(dim='time')", []),
        ("return x.mean(axis=-1)", []),
        ("if isinstance(x, list): pass\nreturn x.unsqueeze(0)", []),
        ("x = torch.as_tensor(x)\nreturn x.unsqueeze(0)", []),
        ("z = x.unsqueeze(0)\nx = z\nreturn x", ["x"]),
        ("h = net(x)\nreturn h.softmax(-1)", ["h"]),
        ("return torch.tensor(x)", []),
        ("return training.unsqueeze(0)", []),
        ("return x.view(np.uint8)", []),
        ("g = lambda x: x.unsqueeze(0)", []),
        ("return torch.zeros(x.shape, device=x.device)", ["x"]),
        ("return torch.zeros(3, device=x.device)", []),
        ("x = load(x.shape)\nreturn torch.zeros(3, device=x.device)", []),
        ("return x[:, 0]", ["x"]),
        ("return x[..., None]", ["x"]),
        ("return x[1:]", []),
        ("return x[0, 1]", []),
        ("return x.iloc[:, 0]", []),
    ],
)
def test_names_used_as_only_tensors_are(body: str, found: list[str]) -> None:
    text = "import torch\ndef f(x, training=False):\n" + textwrap.indent(body, "    ")
    assert function(text).tensors == found


def test_axes_of_arrays_are_indexed_too() -> None:
    text = "import numpy as np\nimport torch\ndef f(x):\n    return x[:, 0]\n"
    assert function(text).tensors == []


@pytest.mark.parametrize(
    ("layer", "body", "found"),
    [
        ("nn.Linear(4, 4)", "return self.layer(x)", ["x"]),
        ("nn.LayerNorm(4) if dim else nn.Identity()", "return self.layer(x)", ["x"]),
        ("nn.Linear(4, 4)", "y = load()\nreturn self.layer(y)", ["y"]),
        ("nn.Linear(4, 4)", "x = load(x)\nreturn self.layer(x)", []),
        ("nn.Linear(4, 4)", "if isinstance(x, list): pass\nreturn self.layer(x)", []),
        ("nn.Linear(4, 4)", "return self.layer(x + 1), self.layer(*x), self.other(x)", []),
        ("nn.LSTM(4, 4)", "return self.layer(x)", []),
        ("nn.ModuleList()", "return self.layer(x)", []),
        ("Encoder(4)", "return self.layer(x)", []),
    ],
)
def test_what_layers_of_torch_take_are_tensors(layer: str, body: str, found: list[str]) -> None:
    text = (
        "from torch import nn\nclass M(nn.Module):\n    def __init__(self, dim):\n"
        f"        self.layer = {layer}\n    def head(self, x):\n" + textwrap.indent(body, " " * 8)
    )
    assert function(text, "M.head").tensors == found


def test_without_torch_nothing_is_surely_a_tensor() -> None:
    assert function("def f(x):\n    return x.unsqueeze(0)\n").tensors == []


@pytest.mark.parametrize(
    ("text", "returns"),
    [
        ("def f() -> 'Tensor': ...", "ann:Tensor"),
        ("import torch as t\ndef f(x) -> t.Tensor: ...", "ann:torch.Tensor"),
        ("import torch\ndef f(x):\n    return torch.zeros(2)", "call:torch.zeros"),
        ("def f(x):\n    if x: return 1\n    return 2", "int"),
        ("def f(x):\n    if x: return 1\n    return 'a'", "unknown"),
        ("def f(x):\n    return x.sum()", "unknown"),
        ("def f(x): ...", "none"),
    ],
)
def test_what_is_returned(text: str, returns: str) -> None:
    assert function(text).returns == returns


# --- bad input ------------------------------------------------------------------------------------


def test_broken_syntax_is_placed() -> None:
    line, column, message = facts_of("x = 1\ndef f(:\n    pass\n").error or (0, 0, "")
    assert line == 2
    assert column > 1
    assert message


@pytest.mark.parametrize("text", ["print 'x'\n", "def f():\n    print x\n", "x = \0\n"])
def test_what_is_no_python_is_an_error(text: str) -> None:
    assert scan(text, "m", False).error is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\ufeffx = 1\n",
        "x = 1\r\nif x:\r\n\ty = 2\r\n",
        "\x0cdef f():\n\treturn 1\n",
        "match x:\n    case [a, *b]:\n        f(a)\n",
        "s = 'print x'\n",
    ],
)
def test_odd_but_right_text_is_none(text: str) -> None:
    assert scan(text, "m", False).error is None


def nested() -> Iterator[str]:
    yield "x = " + "(" * 500 + "1" + ")" * 500 + "\n"
    yield "x = " + "+".join(["y"] * 3000) + "\n"
    yield "".join("    " * i + "if x:\n" for i in range(90)) + "    " * 90 + "f(x)\n"
    yield "def f(x):\n    return x" + ".g(1)" * 700 + "\n"


@pytest.mark.parametrize("text", list(nested()))
def test_deep_nesting_ends_well(text: str) -> None:
    limit = sys.getrecursionlimit()
    scan(text, "m", False)
    assert sys.getrecursionlimit() == limit


def test_a_long_file() -> None:
    facts = scan("def f(x):\n    return g(x)\n" * 10_000, "m", False)
    assert len(facts.functions) == 10_000


STATEMENTS = st.recursive(
    st.sampled_from(
        [
            "x = f(y)",
            "return x",
            "self.a = b[c]",
            "raise E(x)",
            "import torch",
            "a, b = x",
            "assert x, y",
        ]
    ),
    lambda inner: st.builds(
        lambda head, body: head + ":\n" + textwrap.indent("\n".join(body), "    "),
        st.sampled_from(
            [
                "if x",
                "for i in x",
                "while f(x)",
                "with f() as g",
                "def f(a, *b, c=1, **d)",
                "class C(B)",
            ]
        ),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STATEMENTS, max_size=4))
def test_generated_code_is_read_and_survives_json(statements: list[str]) -> None:
    text = "\n".join(statements) + "\n"
    facts = scan(text, "pkg.m", False)
    source = text.encode()
    for fact in facts.functions:
        assert source[fact.start_byte : fact.end_byte].startswith(b"def ")
        assert fact.looks == sorted(fact.looks)
    assert unpack_facts(pack_facts(facts)) == facts


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80))
def test_any_text_is_answered(text: str) -> None:
    assert isinstance(scan(text, "m", False), FileFacts)


# --- what is spared -------------------------------------------------------------------------------


def spared(text: str, path: str = "pkg/mod.py") -> FileFacts:
    text = textwrap.dedent(text)
    return scan(text, "pkg.mod", False, cold_by_name(path, text))


def test_cold_functions_are_read_for_what_others_live_by() -> None:
    text = """
    import torch
    class C(torch.nn.Module):
        def build(self, shape):
            if shape:
                self.w = torch.nn.Parameter(torch.zeros(shape))
            with open("x") as f:
                self.register_buffer("b", torch.zeros(3))
            for i in range(3):
                helper(i)
                self.n: int = i
            setattr(self, "s", torch.nn.Linear(2, 2))
            self.register_forward_hook(self.after)
            def inner(x):
                return helper(x)
            return inner
        def forward(self, x):
            return helper(x)
    """
    facts = spared(text)
    full = facts_of(text)
    assert facts.classes == full.classes
    build, inner, forward = facts.functions
    assert [c.name for c in build.calls] == ["inner", "self.after"]
    assert build.returns_function
    assert (inner, forward) == tuple(full.functions[1:])


def test_training_loops_are_read_wherever_they_stand() -> None:
    text = "def main():\n    for b in d:\n        loss(b).backward()\n        o.step()\n"
    assert spared(text).functions[0].training_loop
    assert spared(text, "scripts/train.py").functions[0].training_loop
    assert not spared(text, "tests/test_train.py").functions[0].training_loop


@pytest.mark.parametrize(
    ("head", "foreign"),
    [
        ("import tensorflow as tf\n", True),
        ("from jax import numpy as jnp\n", True),
        ("import jax\nimport torch\n", False),
        ("try:\n    import jax\nexcept ImportError:\n    jax = None\n", False),
        ('"""Example:\n\nimport jax\n"""\n', False),
        ("import numpy as np\n", False),
    ],
)
def test_files_of_other_frameworks_are_passed_over(head: str, foreign: bool) -> None:
    text = head + "def f(x):\n    return helper(x)\n"
    assert (spared(text).functions[0].calls == []) is foreign


def test_what_the_user_marks_hot_is_read_whatever_its_name_and_file() -> None:
    text = "import jax\n# dispatchguard: hot\ndef build(x):\n    return helper(x)\n"
    assert [c.name for c in spared(text).functions[0].calls] == ["helper"]


def test_bad_indentation_is_told_in_cold_functions_too() -> None:
    text = "def build():\n    a = 1\n      b = 2\n"
    assert spared(text).error is not None


# --- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("def f(x):\n    if x: pass\n", False),
        ("def f(x: Tensor):\n    if x: pass\n", True),
        ("def f(x: int):\n    if x: pass\n", False),
        ("def f(x):\n    if x: pass\n    return x.unsqueeze(0)\n", True),
        ("class C:\n    def forward(self, x):\n        if x: pass\n", True),
        ("def f(x):\n    y = x.sum()\n    if y: pass\n", True),
        ("import numpy\ndef f(x):\n    y = x.sum()\n    if y: pass\n", False),
        ("def f(x):\n    y = x.other()\n    if y: pass\n", False),
        ("def f(x: Tensor):\n    y = x.sum()\n    if y: pass\n", True),
        ("def f(x):\n    if isinstance(x, Tensor) and x.sum(): pass\n", True),
        ("class C:\n    def forward(self, x):\n        if x.sum(): pass\n", True),
        ("class C:\n    def call(self, x):\n        if x.sum(): pass\n", True),
    ],
)
def test_a_parameter_of_which_nothing_is_known_is_no_tensor(text: str, asked: bool) -> None:
    assert ("truth" in facts_of("import torch\n" + text).functions[0].looks) is asked


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ("torch.zeros(n, 4)", False),
        ("x.view(-1, n)", False),
        ("torch.zeros(x.max(), 4)", True),
        ("m = x.max()\n    range(m)", True),
        ("m = int(x.max())\n    range(m)", False),
        ("m = math.ceil(n)\n    range(m)", False),
        ("x.reshape((x.sum(), 2))", True),
    ],
)
def test_sizes_that_may_be_tensors(body: str, asked: bool) -> None:
    text = f"import math, torch\ndef f(x: torch.Tensor, n):\n    {body}\n"
    assert ("sized" in facts_of(text).functions[0].looks) is asked


def test_calls_that_are_given_self_first() -> None:
    text = "class C:\n    def m(self, x):\n        hasattr(self, 'a'); getattr(x, 'b', self); self.m(self)\n"
    found = set(function(text, "C.m").looks)
    assert {"self:hasattr", "self:m"} <= found
    assert "self:getattr" not in found


# --- what hinges on calls -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "hinges"),
    [
        ("if helper(n): pass", {"truth": ["helper"]}),
        ("if helper(n) > other.helper(n): pass", {"truth": ["helper", "other.helper"]}),
        ("y = helper(n)\nwhile not y: pass", {"truth": ["helper"]}),
        ("y = helper(n)\nz = y + 1\nif z: pass", {"truth": ["helper"]}),
        ("a, b = helper(n)", {"iterate": ["helper"]}),
        ("for y in helper(n):\n    if y: pass", {"looped": ["helper"], "truth": ["helper[]"]}),
        ("y, z = self.m(n)\nif y: pass", {"iterate": ["C.self.m"], "truth": ["C.self.m[]"]}),
        ("x[helper(n)]", {"subscript": ["helper"]}),
        ("range(helper(n))", {"sized": ["helper"]}),
        ("if self.helper(n): pass", {"truth": ["C.self.helper"]}),
        ("if super().helper(n): pass", {"truth": ["C.super().helper"]}),
        ("if collections.Counter(n): pass", {}),
        ("if is_helper(n) or len(n): pass", {}),
    ],
)
def test_what_hinges_on_calls_is_left_for_those_who_know_them(
    body: str, hinges: dict[str, list[str]]
) -> None:
    text = "import collections, other, torch\nclass C:\n    def m(self, x: torch.Tensor, n):\n"
    found = function(text + textwrap.indent(body, "        ") + "\n", "C.m")
    assert found.hinges == hinges
    assert not {"truth", "iterate", "sized", "subscript"} & set(found.looks)


def test_a_project_may_be_called_like_a_package_that_gives_no_tensors() -> None:
    text = "from rich import helper\ndef f(n):\n    if helper(n): pass\n"
    assert facts_of(text, "rich.mod").functions[0].hinges == {"truth": ["helper"]}
    assert facts_of(text, "pkg.mod").functions[0].hinges == {}


@pytest.mark.parametrize(
    "body",
    [
        "if torch.any(n): pass",
        "if helper(n)(n): pass",
        "helper = n.helper\nif helper(n): pass",
        "y = helper(n)\nif y: pass\ny.unsqueeze(0)",
        "y = helper(n)\nif isinstance(y, torch.Tensor) and y: pass",
        "y: torch.Tensor = helper(n)\nif y: pass",
        "y = helper(n)\nz = y\nif z: pass\nz.unsqueeze(0)",
        "for y in x.rows(n):\n    if y: pass",
        "a, b = self.halves(n)\nif a: pass",
        "xs = {}\nif xs.pop(n): pass",
        "if n[0].sum(): pass",
        "if x.sum(): pass",
        "if helper(n) or x.sum(): pass",
    ],
)
def test_what_the_function_itself_tells_hinges_on_nothing(body: str) -> None:
    head = "import torch\nclass C:\n    def m(self, x: torch.Tensor, n):\n"
    found = function(head + textwrap.indent(body, "        ") + "\n", "C.m")
    assert "truth" in found.looks
    assert "truth" not in found.hinges


def test_nothing_of_a_file_stays_in_a_circle_where_no_collector_runs() -> None:
    folder = Path(__file__).parents[3] / "rules" / "allocations"
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
    assert len(text) > 50_000
    scan(text, "rules.allocations", False)
    gc.collect()
    gc.disable()
    try:
        scan(text, "rules.allocations", False)
        assert gc.collect() == 0
    finally:
        gc.enable()


# --- scripts ------------------------------------------------------------------------------------

SCRIPT = """
import torch
from pkg import nets

def helper(x):
    for part in x:
        part.backward()
    return x

model = nets.Net()
if __name__ == "__main__":
    for batch in batches:
        loss = helper(model(batch))
        loss.backward()
        opt.step()
        kept.append(loss.item())
"""


def test_a_training_at_module_level_is_read_as_a_function() -> None:
    facts = facts_of(SCRIPT)
    helper, module = facts.functions
    assert not helper.training_loop
    assert module.name == "<module>" and module.training_loop
    assert (module.line, module.start_byte, module.end_byte) == (12, 0, len(SCRIPT))
    assert {(c.name, c.loop) for c in module.calls} >= {("helper", True), ("nets.Net", False)}
    assert module.locals["model"] == ["call:pkg.nets.Net"]
    assert "call:item" in module.looks and "import" not in module.looks
    # What a function of the file reads of the module is known as before.
    without = facts_of(SCRIPT.replace("    for batch in batches:", "    if True:"))
    assert [f.name for f in without.functions] == ["helper"]
    assert without.assigns == facts.assigns and "model" in facts.assigns
    assert unpack_facts(pack_facts(facts)) == facts


@pytest.mark.parametrize(
    "text",
    [
        SCRIPT.replace("import torch", "import other"),
        SCRIPT.replace("    for batch in batches:", "    if True:"),
        "import torch\nclass C:\n    for x in y:\n        x.backward()\n        opt.step()\n",
        "import torch\nfor name, value in torch.load('x').items():\n    print(name, value.norm())\n",
    ],
)
def test_other_scripts_are_not_read_as_functions(text: str) -> None:
    assert "<module>" not in [f.name for f in facts_of(text).functions]


ONCE = """
import torch

def once({params}):
    for part in {over}:
        {does}

def f(model, x):
    for epoch in range(3):
        once(model, x)
"""


@pytest.mark.parametrize(
    ("params", "over", "does", "feeds"),
    [
        ("model, batch", "batch", "model(part)", False),  # its own loop does
        ("model, loader", "loader", "model(part)", False),
        ("model, val_loader", "enumerate(it(val_loader))", "model(part)", False),
        ("model, batch, opt", "batch", "model(part).backward(); opt.step()", False),
        ("model, batch", "batch", "model(part)\n    model(batch)", True),
        ("model, batch", "self.loader", "model(part)\n    model(batch)", False),
        (
            "model, batch",
            "b",
            "model(b)\n    for (\n        a,\n    ) in loader: pass\n    model(b)",
            False,
        ),
    ],
)
def test_a_loop_over_epochs_feeds_no_model(
    params: str, over: str, does: str, *, feeds: bool
) -> None:
    facts = facts_of(ONCE.format(params=params, over=over, does=does))
    assert facts.functions[-1].name == "f"
    assert facts.functions[-1].feeds_model is feeds


@pytest.mark.parametrize(
    ("loop", "feeds"),
    [
        ("for batch in data:\n        y = model(batch)", True),
        ("while True:\n        y = model(tokenize(input('> ')))", False),
        (
            "while True:\n        q = input()\n        for step in range(n):\n            q = model(q)",
            True,
        ),
        ("while True:\n        q = read(input)\n        y = model(q)", True),
        ("for _ in range(args.warmup_iters):\n        y = model(x)", False),
        ("for _ in range(args.iters):\n        y = model(x)", True),
        ("while True:\n        y = chat(input('> '))", False),
        ("while True:\n        y = chat(next(data))", True),
        ("for epoch in range(9):\n        chat(x)", True),
        ("for dataset in data:\n        chat(dataset)", True),
        ("for epoch in range(9):\n        save_model(x)\n        serialize_model(x)", False),
    ],
)
def test_a_loop_that_asks_somebody_or_warms_up_feeds_no_model(loop: str, *, feeds: bool) -> None:
    source = f"""\
import torch
def chat(q):
    return model(q)
def main(model: torch.nn.Module, data, args, n, x):
    {loop}
"""
    assert scan(source, "talk", False).functions[1].feeds_model is feeds
