"""What is hot after a change is told from what was hot before, where the change is of bodies of functions and
of functions that nobody can have noticed; and nothing comes out other than if all had been found out anew."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from pytest_dispatchguard.lint.incremental.cached_briefs import cached_briefs, solved_briefs
from pytest_dispatchguard.lint.pipeline.progress import no_progress
from pytest_dispatchguard.lint.scout import scan
from pytest_dispatchguard.profile import Profile, packed
from pytest_dispatchguard.project_folder import PROFILE

from ..relinted import EDITS, PROJECT, SETTINGS, Edit, Editor, Linted, demo, edited

Start = Callable[..., Linted]

# -- what follows, and what does not ---------------------------------------------------------------

_LOG = "    return format_line(text)"
_STRIP = "    return text.strip()"
_GATE = "h.gate(x)\n"
_WIDE = "    def hook_point(self, x: torch"
_CLIP = "    return guard_low(x, low)"

UNNOTICED: dict[str, Edit] = {
    "a function that nobody names": (
        "pkg/helpers.py", "class Store", "def zq_new(x):\n    return clip(x)\n\nclass Store"
    ),
    "one goes that nobody names": (
        "pkg/layers.py", "def unused_tool(a, b=None):\n    return a.some_rare_method(b)\n", ""
    ),
    "one is renamed": ("pkg/layers.py", "def unused_tool", "def zq_renamed"),
    "a method that nobody names": (
        "pkg/layers.py", _WIDE, f"    def zq_new(self):\n        return 1\n\n{_WIDE}"
    ),
    "a function in a cold one": (
        "pkg/train.py", "    return loss\n", "    def zq_inner(y):\n        return y\n    return loss\n"
    ),
    "a cold body calls more": ("pkg/helpers.py", _LOG, f"    clip(text)\n{_LOG}"),
    "a cold method calls what is hot": (
        "pkg/layers.py", "        return h.log_line", "        self.forward(1)\n        return h.log_line"
    ),
    "a cold body has locals": (
        "pkg/helpers.py", _STRIP, f"    made = Store()\n    made.get_value()\n{_STRIP}"
    ),
    "a cold body uses tensors": ("pkg/helpers.py", _STRIP, f"    text.unsqueeze(0)\n{_STRIP}"),
    "lines move": ("pkg/base.py", "import torch", "# moved\nimport torch"),
    "a hot body calls a library": ("pkg/helpers.py", "return x.nonzero()", "return torch.relu(x).nonzero()"),
    "a hot body calls a library less": ("pkg/helpers.py", "torch.tensor(low)", "low"),
    "a hot body uses what a library gives": (
        "pkg/layers.py", _GATE, f"made = torch.zeros(3)\n        made.sum(made.add_(x))\n        {_GATE}"
    ),
    "a hot body gives a library something": ("pkg/layers.py", _GATE, f"torch.add(x, out)\n        {_GATE}"),
    "a hot body calls what is built in": ("pkg/layers.py", _GATE, f"print(len(x), out)\n        {_GATE}"),
    "a hot body waits": ("pkg/layers.py", _GATE, f"x.item()\n        {_GATE}"),
    "a hot body uses more tensors": ("pkg/layers.py", _GATE, f"x.unsqueeze(0)\n        {_GATE}"),
    "a hot body calls what nobody has": ("pkg/layers.py", _GATE, f"self.zq_no(out)\n        {_GATE}"),
}  # fmt: skip


FOLLOWS: dict[str, Edit] = {
    "a hot body": ("pkg/helpers.py", "return x\n", "return shape_of(x)\n"),
    "a hot body calls a library by a name that it leads to": (
        "pkg/layers.py", _GATE, f"made = torch.ones(2)\n        made.clip(x)\n        {_GATE}"
    ),
    "a hot body gives what it leads to something else": ("pkg/layers.py", "h.clip(x, 0.0)", "h.clip(x)"),
    "a hot body leads to more": ("pkg/layers.py", _GATE, f"h.slow_way(x)\n        {_GATE}"),
    "a hot body leads to less": ("pkg/layers.py", _GATE, "pass\n"),
    "a local name stands for something else": ("pkg/layers.py", _GATE, f"h = torch\n        {_GATE}"),
    "a hot body calls a name that only one has": (
        "pkg/layers.py", _GATE, f"x.some_rare_method(1)\n        {_GATE}"
    ),
    "a hot body hands something on": ("pkg/layers.py", _GATE, f"torch.vmap(h.slow_way)(x)\n        {_GATE}"),
    "a hot method calls one of its own": ("pkg/layers.py", _GATE, f"self.describe()\n        {_GATE}"),
    "a hot method reads one of its own": ("pkg/base.py", "self.masked_values(x)", "self.depth"),
    "a hot method calls what it holds": ("pkg/layers.py", _GATE, f"self.scale(x)\n        {_GATE}"),
    "a hot body enters something": (
        "pkg/layers.py", _GATE, f"with h.Store():\n            pass\n        {_GATE}"
    ),
    "what a function gives that would be hot were it not ruled out": (
        "pkg/helpers.py", "shape_of(x, None)", "shape_of(x, 'all')"
    ),
    "a method comes to a class whose like are elsewhere": (
        "pkg/base.py",
        "    def hook_point",
        "    def zq_new(self):\n        return 1\n\n    def hook_point",
    ),
    "a call in a hot body that leads nowhere": (
        "pkg/helpers.py", _CLIP, f"    x.zq_other()\n{_CLIP}"
    ),
    "a call that makes something hot": ("pkg/helpers.py", _CLIP, f"    log_line(x)\n{_CLIP}"),
    "a call that makes it hot by a shorter way": (
        "pkg/base.py", "        if mask is", "        self.describe_shape()\n        if mask is"
    ),
    "a call goes, and what it ran is cold": ("pkg/helpers.py", _CLIP, "    return x"),
    "a call into a loop": (
        "pkg/helpers.py", _CLIP, "    for _ in x:\n        guard_low(x, low)\n    return x"
    ),
    "other arguments, so that a branch runs": ("pkg/layers.py", "h.gate(x)", "h.gate(x, 'slow')"),
    "other arguments, so that none does": ("pkg/helpers.py", "shape_of(x)", "shape_of(x, None)"),
    "what is ruled out no longer": (
        "pkg/helpers.py", "        slow_way(x)", "        slow_way(x)\n    slow_way(x)"
    ),
    "a tensor on the CPU": (
        "pkg/helpers.py", "torch.maximum(x, torch.tensor(low))", "shape_of(torch.tensor(low))"
    ),
    "a hot body uses tensors": ("pkg/helpers.py", _CLIP, f"    low.unsqueeze(0)\n{_CLIP}"),
    "a training loop calls more": (
        "pkg/train.py", "        report(loss)", "        report(loss)\n        plot(loss)"
    ),
    "a property does more": (
        "pkg/base.py", "        return 2", "        self.masked_values(2)\n        return 2"
    ),
    "what a decorator puts in place of functions does more": (
        "pkg/layers.py", "        note_call(args)", "        note_call(args)\n        h.log_line(args)"
    ),
    "a helper comes, and is called": (
        "pkg/helpers.py",
        _CLIP,
        "    return zq_helped(guard_low(x, low))\n\ndef zq_helped(x):\n    return format_line(x)",
    ),
    "a method comes to a class that others inherit from, and is called": (
        "pkg/base.py",
        "    def hook_point",
        "    def zq_new(self, x=None):\n        return self.describe_shape()\n\n    def hook_point",
    ),
    "a property comes to a class that others inherit from": (
        "pkg/layers.py",
        "    def close",
        "    def zq_new(self):\n        return 1\n\n    def close",
    ),
    "a function comes that is cold": (
        "pkg/helpers.py", _CLIP, "    return zq_log(x)\n\ndef save_state(x):\n    return clip(x)"
    ),
    "a method comes that is defined elsewhere": (
        "pkg/helpers.py", "class Store:\n", "class Store:\n    def zq_twice(self):\n        return 1\n\n"
    ),
    "a local is another": ("pkg/twice.py", "made = Twice()", "made = Once()"),
}  # fmt: skip


MEANS_THE_SAME: dict[str, Edit] = {
    "what a cold function returns": ("pkg/helpers.py", "format_line(text):", "format_line(text) -> int:"),
    "a cold function takes more": ("pkg/helpers.py", "format_line(text):", "format_line(text, *more):"),
    "what self holds": ("pkg/base.py", "super().__init__()", "super().__init__()\n        self.more = 1"),
    "an import": ("pkg/helpers.py", "import torch", "import torch\nimport math"),
    "what a function returns": ("pkg/helpers.py", "format_line(text):", "format_line(text) -> int:"),
    "a function takes more": ("pkg/helpers.py", "format_line(text):", "format_line(text, *more):"),
    "a hot function takes another default": ("pkg/helpers.py", "whole=None", "whole=True"),
    "a hot function takes more, and is given it": (
        "pkg/helpers.py", "def gate(x, mode=None):", "def gate(x, mode=None, low=None):\n    clip(x, low)"
    ),
    "what a hot function returns": ("pkg/helpers.py", "return guard_low(x, low)", "return torch.relu(x)"),
    "what a method returns": ("pkg/base.py", "return x.item()", "return torch.relu(x)"),
    "an import that is used": (
        "pkg/helpers.py", "import torch\n", "import torch\nfrom pkg.train import plot as zq_plot\n"
    ),
    "a name that is assigned": ("pkg/train.py", "import torch\n", "import torch\nZQ_MOST = torch\n"),
    "a method comes that others have": (
        "pkg/helpers.py", "class Store:\n", "class Store:\n    def describe(self):\n        return 1\n\n"
    ),
}  # fmt: skip

SOLVED: dict[str, Edit] = {
    "a function comes that a call names": (
        "pkg/layers.py", "def note_call", "def zq_known(x):\n    return x\n\ndef note_call"
    ),
    "a method comes that takes the place of another": (
        "pkg/layers.py", _WIDE, f"    def masked_values(self, x):\n        return x\n\n{_WIDE}"
    ),
    "a method comes that a library calls": (
        "pkg/helpers.py", "Store:\n", "Store:\n    def log_prob(self, x):\n        return x\n\n"
    ),
    "a method comes that python calls": (
        "pkg/helpers.py", "Store:\n", "Store:\n    def __enter__(self):\n        return self\n\n"
    ),
    "a method comes that torch calls": (
        "pkg/helpers.py", "Store:\n", "Store:\n    def __torch_function__(self, x):\n        return x\n\n"
    ),
    "a cold function hands out one instead of the other": ("pkg/helpers.py", "return one", "return two"),
    "a method comes to a class marked hot": (
        "pkg/base.py", "    def quiet", "    def zq_new(self, x):\n        return x\n\n    def quiet"
    ),
    "the one of a rare name goes": (
        "pkg/helpers.py", "    def some_rare_method(self, value):\n        return value\n\n", ""
    ),
    "a function comes with a decorator": (
        "pkg/train.py", "def plot", "@torch.compile\ndef zq_new(x):\n    return x\n\ndef plot"
    ),
    "a function comes that is marked": (
        "pkg/train.py", "def plot", "# dispatchguard: hot\ndef zq_new(x):\n    return x\n\ndef plot"
    ),
    "a training loop comes": (
        "pkg/train.py",
        "def plot",
        "def zq_new(data, opt):\n    for x in data:\n        x.backward()\n        opt.step()\n\ndef plot",
    ),
    "a function comes that sets a hook": (
        "pkg/train.py",
        "def plot",
        "def zq_new(x):\n    x.register_forward_hook(plot)\n\ndef plot",
    ),
    "a function comes into a hot one": (
        "pkg/helpers.py", "    if low is None", "    def zq_in(y):\n        return y\n    if low is None"
    ),
    "a hook is set where it was not": (
        "pkg/train.py", "    return loss\n", "    loss.register_hook(report)\n    return loss\n"
    ),
    "a hook is another": ("pkg/base.py", "forward_hook(watch)", "forward_hook(print)"),
    "a cold function hands out another": (
        "pkg/helpers.py", _STRIP, "    def made():\n        return text\n    return made"
    ),
    "a cold function is decorated": ("pkg/helpers.py", "def format_line", "@traced\ndef format_line"),
    "a base": ("pkg/layers.py", "class Layer(Base)", "class Layer(torch.nn.Module)"),
    "an alias": ("pkg/layers.py", "SIZE = (1, 2)", "SIZE = (1, 2)\nstep = traced_step"),
    "a class": ("pkg/layers.py", "SIZE = (1, 2)", "class New:\n    pass"),
    "functions change places": (
        "pkg/train.py",
        "def report(loss):\n    return float(loss)\n\ndef plot(loss):\n    return loss\n",
        "def plot(loss):\n    return loss\n\ndef report(loss):\n    return float(loss)\n",
    ),
    "a file that cannot be read": ("pkg/train.py", "def plot(loss)", "def plot(loss"),
    "a hook is set": (
        "pkg/train.py", "    return loss\n", "    loss.register_hook(report)\n    return loss\n"
    ),
    "a function hands out another": ("pkg/helpers.py", "return one", "return two"),
    "an import by a name that is written already": (
        "pkg/layers.py", "SIZE = (1, 2)", "from pkg.helpers import clip as zq_known\nSIZE = (1, 2)"
    ),
    "an import into what is imported as a whole": (
        "pkg/layers.py", "SIZE = (1, 2)", "from pkg.helpers import clip as report\nSIZE = (1, 2)"
    ),
    "an import that goes": ("pkg/layers.py", "import functools\n", ""),
    "what self holds is of the project": (
        "pkg/base.py", "super().__init__()", "super().__init__()\n        self.kept = Marked()"
    ),
    "what self holds makes it a module": (
        "pkg/helpers.py",
        "class Store:\n",
        "class Store:\n    def zq_set(self):\n        self.kept = torch.nn.Linear(1, 1)\n\n",
    ),
    "a function returns what is of the project": (
        "pkg/helpers.py", "format_line(text):", "format_line(text) -> Store:"
    ),
    "self is called something else": ("pkg/layers.py", "def close(self):", "def close(this):"),
    "a method comes that others call": (
        "pkg/helpers.py",
        "class Store:\n",
        "class Store:\n    def describe_shape(self):\n        return 1\n\n",
    ),
    "a method comes that users of a library class call": (
        "pkg/helpers.py",
        "class Store:\n",
        "class Store:\n    def prepare_inputs_for_generation(self):\n        return 1\n\n",
    ),
}  # fmt: skip


_TWICE = """\
import torch

class Once:
    def run_it(self, x):
        return x

class Twice:
    def run_it(self, x):
        return x.item()

    def zq_twice(self):
        return 2

class Runs(torch.nn.Module):
    def forward(self, x):
        made = Twice()
        made.run_it(x)
        return x
"""
_CALLED = ("pkg/base.py", "        if mask is", "        self.zq_new(x)\n        if mask is")


@pytest.mark.parametrize("edit", UNNOTICED.values(), ids=list(UNNOTICED))
def test_what_nobody_reads_follows(linted: Start, edit: Edit) -> None:
    project = linted(PROJECT)
    new = edited(PROJECT, edit)
    assert project.proved(new)
    # And back again, with what was kept of it.
    assert project.proved(PROJECT)
    assert project.outcome(new, project.cache) == project.outcome(new, None)


@pytest.mark.parametrize("edit", FOLLOWS.values(), ids=list(FOLLOWS))
def test_what_bodies_lead_to_follows(linted: Start, edit: Edit) -> None:
    texts = {**PROJECT, "pkg/twice.py": _TWICE}
    project = linted(texts)
    new = edited(texts, edit)
    if "zq_new" in edit[2]:
        new = edited(new, _CALLED)
    assert project.proved(new)
    # Back again follows as well, but for what goes and was called.
    assert project.proved(texts) or "def zq_" in edit[2]
    assert project.outcome(new, project.cache) == project.outcome(new, None)


@pytest.mark.parametrize("edit", MEANS_THE_SAME.values(), ids=list(MEANS_THE_SAME))
def test_what_means_the_same_to_all_others_follows(linted: Start, edit: Edit) -> None:
    project = linted(PROJECT)
    new = edited(PROJECT, edit)
    assert project.proved(new)
    project.proved(PROJECT)
    assert project.outcome(new, project.cache) == project.outcome(new, None)


def test_what_is_given_all_batches_is_not_called_in_steps(linted: Start) -> None:
    whole = "def zq_score(x: torch.Tensor, {}):\n    return x.relu()\n\nclass Store"
    comes = ("pkg/helpers.py", "class Store", whole.format("low"))
    texts = edited(PROJECT, comes)
    project = linted(texts, library=True)
    assert not project.proved(
        edited(texts, ("pkg/helpers.py", "Tensor, low)", "Tensor, val_loader)"))
    )
    assert not project.proved(texts)


@pytest.mark.parametrize("edit", SOLVED.values(), ids=list(SOLVED))
def test_more_than_bodies_is_solved_anew(linted: Start, edit: Edit) -> None:
    texts = edited(PROJECT, ("pkg/layers.py", "return len(args)", "return zq_known(args)"))
    project = linted(texts)
    assert not project.proved(edited(texts, edit))


def test_what_a_forward_returns_is_told_to_those_that_call_its_module(linted: Start) -> None:
    project = linted(PROJECT)
    new = edited(PROJECT, ("pkg/base.py", "return self.hook_point(x) *", "return x, 1  #"))
    assert not project.proved(new)
    assert project.outcome(new, project.cache) == project.outcome(new, None)
    codes = [
        [f.code for f in project.outcome(t, None).findings if f.path == "run.py"]
        for t in (PROJECT, new)
    ]
    assert codes[0] == ["DG401"] and codes[1] == []


def test_files_that_come_and_go_are_solved_anew(linted: Start) -> None:
    project = linted(PROJECT)
    more = {**PROJECT, "pkg/more.py": "def zq_new():\n    return 1\n"}
    assert not project.proved(more)
    assert not project.proved(PROJECT)


def test_a_word_that_came_counts_though_its_file_is_another(linted: Start) -> None:
    """What is said since the project was solved counts as well: also by a change that was proved."""
    project = linted(PROJECT)
    said = edited(PROJECT, ("pkg/helpers.py", _STRIP, f"    zq_word(text)\n{_STRIP}"))
    assert project.proved(said)
    comes = ("pkg/layers.py", "def note_call", "def zq_word(x):\n    return x\n\ndef note_call")
    assert not project.proved(edited(said, comes))
    project = linted(PROJECT)
    assert project.proved(edited(said, comes)), "both at once are seen"


def test_patterns_of_the_configuration_count(linted: Start) -> None:
    comes = (
        "pkg/helpers.py",
        "class Store",
        "def zq_tool(x):\n    return x\n\nclass Store",
    )
    new = edited(PROJECT, comes)
    assert not linted(PROJECT, hot_roots=("pkg.helpers.zq_*", "pkg.helpers.clip")).proved(new)
    assert not linted(PROJECT, cold=("pkg.helpers",)).proved(new)
    assert not linted(PROJECT, hot_roots=("pkg.helpers.zq_tols",)).proved(new)  # "did you mean"
    assert not linted(PROJECT, tensor_types=("pkg.helpers.zq_tool",)).proved(new)
    assert (
        linted(PROJECT, hot_roots=("pkg.train.report",), cold=("@lru_cache", "pkg.t*")).proved(new)
        is False
    )  # nothing is called lru_cache
    assert linted(PROJECT, hot_roots=("pkg.train.report", "@traced")).proved(new)


def test_what_was_recorded_is_never_held_over(linted: Start) -> None:
    """What was recorded knows functions by their text, and no facts tell of that."""
    project = linted(PROJECT)
    body = edited(PROJECT, UNNOTICED["a cold body calls more"])
    profile = project.config.root / PROFILE
    profile.parent.mkdir(parents=True, exist_ok=True)
    profile.write_text(packed(Profile()), encoding="utf-8")
    assert not project.proved(body)
    assert not project.proved(PROJECT)
    assert not project.proved(body)
    profile.unlink()
    assert not project.proved(PROJECT)
    assert project.proved(body)


def test_without_the_facts_of_before_nothing_is_proved(linted: Start) -> None:
    project = linted(PROJECT)
    project.cache.prune("facts", ())
    assert not project.proved(edited(PROJECT, UNNOTICED["a cold body calls more"]))


def test_files_that_the_cache_has_lost_are_asked_all_the_same(linted: Start) -> None:
    project = linted(PROJECT)
    edit = MEANS_THE_SAME["an import that is used"]
    comes = edited(
        PROJECT, (edit[0], edit[1], edit[2].replace("plot as zq_plot", "plot as report"))
    )
    asks = edited(comes, ("pkg/layers.py", "h.gate(x)", "h.report(x)"))
    assert project.proved(edited(PROJECT, ("pkg/layers.py", "h.gate(x)", "h.report(x)")))
    rows = project.cache.keys("facts")
    project.cache.prune("facts", {key for key in rows if not key.endswith(":pkg/layers.py")})
    assert not project.proved(asks)


@pytest.mark.parametrize("kind", ["trails", "families"])
def test_what_the_cache_has_lost_is_found_out_anew(linted: Start, kind: str) -> None:
    project = linted(PROJECT)
    project.cache.prune(kind, ())
    assert not project.proved(edited(PROJECT, FOLLOWS["a call that makes something hot"]))
    assert project.proved(PROJECT)


def test_a_state_in_passing_is_proved_and_not_kept(linted: Start) -> None:
    project = linted(PROJECT)
    new = edited(PROJECT, UNNOTICED["a function that nobody names"])
    assert project.proved(new, keep=False)
    solved = project.solved
    cached_briefs(
        project.config, project.survey(PROJECT), project.rules, project.cache, no_progress
    )
    assert project.solved == solved
    assert project.proved(PROJECT)


def test_methods_of_one_name_keep_the_order_of_their_files(linted: Start) -> None:
    """Of several that a call may run, what is told of it is told of the first."""
    inherits = _TWICE.replace("class Twice:", "class Twice(Base):")
    texts = {**PROJECT, "pkg/twice.py": f"from pkg.base import Base\n{inherits}"}
    project = linted(texts)
    method = "    def zq_twice(self):\n        return 1\n\n    def close"
    new = edited(texts, ("pkg/layers.py", "    def close", method))
    new = edited(new, (_CALLED[0], _CALLED[1], "        self.zq_twice()\n        if mask is"))
    assert project.proved(new)
    briefs = solved_briefs(project.config, project.survey(new), project.rules, project.cache)
    assert "pkg.layers:Layer.zq_twice" in briefs.text("pkg/base.py")


_ROUND = {
    "pkg/__init__.py": "from pkg.helpers import *\nfrom pkg.layers import *\n",
    "pkg/helpers.py": "import torch\n\ndef clip_it(t):\n    return t.sum().item()\n",
    "pkg/layers.py": """\
import torch
from pkg import clip_it

class Layer(torch.nn.Module):
    def forward(self, t):
        y = 1
        return t
""",
    "pkg/user.py": """\
import pkg
import torch

class User(torch.nn.Module):
    def forward(self, t):
        y = pkg.clip_it(t)
        return t
""",
    "pkg/one.py": """\
import torch
from pkg.two import gate_it

class One(torch.nn.Module):
    def forward(self, t):
        y = 1
        return t
""",
    "pkg/two.py": """\
import torch
try:
    from pkg.one import gate_it
except ImportError:
    def gate_it(t):
        return t.sum().item()

class Two(torch.nn.Module):
    def forward(self, t):
        y = gate_it(t)
        return t
""",
}
"""Modules that import from one another in a round."""


_RULED_OUT = """
import torch

class M(torch.nn.Module):
    def forward(self, x):
        y = 1
        return x

def f(x, mask=None):
    if mask is not None:
        g(x)

def g(x):
    return x.item()
"""
_DEEP = """
import torch

class M(torch.nn.Module):
    def forward(self, x):
        a6(1)
        c(x)

def c(x):
    f(2)

def a6(x=None):
    return a5(x)

def a5(x=None):
    return a4(x)

def a4(x=None):
    return a3(x)

def a3(x=None):
    return a2(x)

def a2(x=None):
    return a1(x)

def a1(x=None):
    return t(x)

def t(q=None):
    if q == 7:
        slow(q)
    f(q)

def f(p=None):
    t(p)

def slow(x):
    return x.item()
"""


@pytest.mark.parametrize(
    ("texts", "edits"),
    [
        ({"m.py": _RULED_OUT}, [("m.py", "y = 1", "y = f(x)")]),
        ({"m.py": _RULED_OUT}, [("m.py", "y = 1", "y = f(x, x)")]),
        ({"m.py": _DEEP}, [("m.py", "f(2)", "f(7)")]),
        ({"m.py": _DEEP}, [("m.py", "a6(1)", "a6(1)\n        f(7)")]),
        ({"m.py": _DEEP}, [("m.py", "a3(x)", "a3(7)")]),
        ({"m.py": _DEEP}, [("m.py", "def a4(x=None)", "def a4(x)")]),
        ({"m.py": _DEEP}, [("m.py", "def f(p=None)", "def f(p=7)")]),
        ({"m.py": _DEEP}, [("m.py", "def t(q=None)", "def t(r=None, q=None)")]),
        (
            {
                "a.py": "import torch\nfrom b import h\nclass M(torch.nn.Module):\n"
                "    def forward(self, x):\n        h(x)\n",
                "b.py": "def h(x):\n    return x.item()\n",
            },
            [("a.py", "h(x)", "pass"), ("b.py", "def h", "def zq_new(x):\n    return x\n\ndef h")],
        ),
        (
            {"pkg/a:b.py": _RULED_OUT, "pkg/c.py": "def late(x):\n    return x\n"},
            [("pkg/a:b.py", "y = 1", "y = f(x)")],
        ),
    ],
    ids=[
        "all ways are ruled out",
        "none is",
        "what is handed on round and round",
        "one more that hands it on",
        "what is handed on deep down",
        "a default that goes",
        "another default",
        "one more that is taken",
        "a file that is cold by it",
        "a colon in a path",
    ],
)
def test_edits_that_once_came_out_otherwise(
    linted: Start, texts: dict[str, str], edits: list[Edit]
) -> None:
    project = linted(texts)
    new = dict(texts)
    for edit in edits:
        new = edited(new, edit)
    assert project.proved(new)
    project.proved(texts)


@pytest.mark.parametrize(
    "edits",
    [
        [("pkg/layers.py", "y = 1", "y = [clip_it(t) for _ in range(9)]")],
        [
            ("pkg/two.py", "y = gate_it(t)", "y = 1"),
            ("pkg/one.py", "y = 1", "y = gate_it(t)"),
        ],
    ],
    ids=["star imports", "a fallback"],
)
def test_names_that_lead_round_mean_the_same_whoever_asked_first(
    linted: Start, edits: list[Edit]
) -> None:
    project = linted(_ROUND)
    new = dict(_ROUND)
    for edit in edits:
        new = edited(new, edit)
    assert project.proved(new)


# -- at random -------------------------------------------------------------------------------------


@SETTINGS
def test_nothing_comes_out_other_than_solved_anew(
    linted: Start, settings: dict[str, object]
) -> None:
    start = demo()
    proved: Counter[bool] = Counter()
    kinds: Counter[str] = Counter()
    for seed in range(2):
        rng = random.Random(seed)
        texts = dict(start)
        project = linted(texts, **settings)
        for number in range(25):
            made = []
            for _ in range(rng.choice([1, 1, 1, 2, 3])):
                rel = rng.choice([*PROJECT, *PROJECT, *texts])
                (kind,) = rng.choices([*EDITS], [*EDITS.values()])
                new = getattr(Editor(rng, texts), kind)(texts[rel])
                if not scan.scan(new, "m", False).error:
                    texts[rel] = new
                    made.append(kind)
            if rng.random() < 0.5:
                rel = rng.choice([*PROJECT])
                texts[rel] = start[rel]
            spared = project.proved(texts, keep=rng.random() >= 0.1)
            proved[spared] += 1
            kinds.update(made if spared else ())
            if number == 12:
                assert project.outcome(texts, project.cache) == project.outcome(texts, None)
    # It is used, and it is not always.
    assert proved[True] >= 10, proved
    assert proved[False] >= 10, proved
    assert min(kinds[kind] for kind in ("add_function", "change_body")) >= 1, kinds


@SETTINGS
@pytest.mark.thorough
def test_bodies_that_change_lead_to_the_same_as_solved_anew(
    linted: Start, settings: dict[str, object]
) -> None:
    start = demo()
    carried: Counter[bool] = Counter()
    for seed in range(4):
        rng = random.Random(f"following {seed}")
        texts = dict(start)
        project = linted(texts, **settings)
        for number in range(30):
            for _ in range(rng.choice([1, 1, 1, 2, 3])):
                rel = rng.choice([*PROJECT, *PROJECT, *texts])
                kind = rng.choice(["change_body", "change_body", "add_helper", "add_method"])
                if rng.random() < 0.1:
                    kind = rng.choice([*EDITS])
                new = getattr(Editor(rng, texts), kind)(texts[rel])
                if not scan.scan(new, "m", False).error:
                    texts[rel] = new
            if rng.random() < 0.15:
                rel = rng.choice([*PROJECT])
                texts[rel] = start[rel]
            carried[project.proved(texts, keep=rng.random() >= 0.1)] += 1
            if number == 15:
                assert project.outcome(texts, project.cache) == project.outcome(texts, None)
    assert carried[True] >= 40, carried


def test_a_function_of_autograd_becomes_a_placeholder_and_back(linted: Start) -> None:
    forward = "    @staticmethod\n    def forward(ctx, x):\n        return x.sum()\n"
    head = f"import torch\n\n\nclass ORT_NMS(torch.autograd.Function):\n{forward}"
    symbolic = "\n    def symbolic(g, x):\n        return x\n"
    backward = "\n    def backward(ctx, x):\n        return x\n"
    one = linted({"nms.py": head})
    for text in (head + symbolic, head + symbolic + backward, head + backward, head):
        assert not one.proved({"nms.py": text})


def test_a_function_that_was_passed_over_is_judged_once_it_holds_more(linted: Start) -> None:
    """Of `exp` alone its text says that there is nothing; that a branch tests a tensor, another file says."""
    gate = """
import torch
from pkg.b import larger

class Gate(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        y = x.exp()
        if larger(y):
            return y
        return x
"""
    helper = "import torch\n\ndef larger(y: torch.Tensor) -> {}:\n    return pick(y)\n"
    before = {"pkg/__init__.py": "", "pkg/a.py": gate, "pkg/b.py": helper.format("bool")}
    after = {**before, "pkg/b.py": helper.format("torch.Tensor")}
    project = linted(before)
    assert [f.code for f in project.outcome(after, project.cache).findings] == ["DG401"]
    assert not project.outcome(before, project.cache).findings
