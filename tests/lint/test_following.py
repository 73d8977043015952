"""What is hot in a project that is remembered is told after a change of functions' bodies without solving it
anew, and nothing comes out other than if it had been."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from pytest_dispatchguard.config import PROFILE
from pytest_dispatchguard.lint import engine, learning, remembered, scout, solved
from pytest_dispatchguard.profile import Profile, packed

from .relinted import EDITS, PROJECT, SETTINGS, Edit, Editor, Remembering, demo, edited

Start = Callable[..., Remembering]


_CLIP = "    return guard_low(x, low)"

CARRIED: dict[str, Edit] = {
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
    "a cold body calls more": (
        "pkg/helpers.py", "    return format_line(text)", "    clip(text)\n    return format_line(text)"
    ),
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
    "one goes that nobody names": (
        "pkg/layers.py", "def unused_tool(a, b=None):\n    return a.some_rare_method(b)\n", ""
    ),
}  # fmt: skip

SOLVED: dict[str, Edit] = {
    "a hook is set": (
        "pkg/train.py", "    return loss\n", "    loss.register_hook(report)\n    return loss\n"
    ),
    "a function hands out another": ("pkg/helpers.py", "return one", "return two"),
    "what a function returns": ("pkg/helpers.py", "format_line(text):", "format_line(text) -> int:"),
    "a function takes more": ("pkg/helpers.py", "format_line(text):", "format_line(text, *more):"),
    "what self holds": ("pkg/base.py", "super().__init__()", "super().__init__()\n        self.a = 1"),
    "an import": ("pkg/helpers.py", "import torch", "import torch\nimport math"),
    "a file that cannot be read": ("pkg/train.py", "def plot(loss)", "def plot(loss"),
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


@pytest.mark.parametrize("edit", CARRIED.values(), ids=list(CARRIED))
def test_what_nobody_else_sees_is_carried_over(remembering: Start, edit: Edit) -> None:
    texts = {**PROJECT, "pkg/twice.py": _TWICE}
    project = remembering(texts)
    new = edited(texts, edit)
    if "zq_new" in edit[2]:
        new = edited(new, _CALLED)
    assert project.proved(new)
    assert project.proved(texts), "what the cache has of a later state does not matter"
    assert project.outcome(new, project.cache) == project.outcome(new, None)


def test_methods_of_one_name_keep_the_order_of_their_files(remembering: Start) -> None:
    """Of several that a call may run, what is told of it is told of the first."""
    inherits = _TWICE.replace("class Twice:", "class Twice(Base):")
    texts = {**PROJECT, "pkg/twice.py": f"from pkg.base import Base\n{inherits}"}
    project = remembering(texts)
    method = "    def zq_twice(self):\n        return 1\n\n    def close"
    new = edited(texts, ("pkg/layers.py", "    def close", method))
    new = edited(new, (_CALLED[0], _CALLED[1], "        self.zq_twice()\n        if mask is"))
    assert project.proved(new)
    briefs = engine.new_briefs(project.config, project.survey(new), project.rules, project.cache)
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
    remembering: Start, edits: list[Edit]
) -> None:
    project = remembering(_ROUND)
    new = dict(_ROUND)
    for edit in edits:
        new = edited(new, edit)
    assert project.proved(new)


@pytest.mark.parametrize("edit", SOLVED.values(), ids=list(SOLVED))
def test_more_than_bodies_is_solved_anew(remembering: Start, edit: Edit) -> None:
    project = remembering(PROJECT)
    assert not project.proved(edited(PROJECT, edit))


def test_files_that_come_and_go_are_solved_anew(remembering: Start) -> None:
    project = remembering(PROJECT)
    more = {**PROJECT, "pkg/more.py": "def zq_new():\n    return 1\n"}
    assert not project.proved(more)


def test_a_word_that_came_counts(remembering: Start) -> None:
    """What a body has named since is looked for, and was not there."""
    project = remembering(PROJECT)
    named = edited(PROJECT, ("pkg/helpers.py", _CLIP, f"    zq_word(x)\n{_CLIP}"))
    assert project.proved(named)
    project.learn()
    comes = ("pkg/helpers.py", "class Store", "def zq_word(x):\n    return x\n\nclass Store")
    assert not project.proved(edited(named, comes))
    project = remembering(PROJECT)
    assert project.proved(edited(named, comes)), "both at once are seen"


def test_what_was_recorded_is_not_carried(remembering: Start) -> None:
    project = remembering(PROJECT)
    profile = project.config.root / PROFILE
    profile.parent.mkdir(parents=True, exist_ok=True)
    profile.write_text(packed(Profile()), encoding="utf-8")
    assert not project.proved(edited(PROJECT, CARRIED["a call that makes something hot"]))
    learning.learn(project.config.root, lambda: None)
    assert not remembered.projects


def test_what_others_solved_meanwhile_does_not_matter(remembering: Start) -> None:
    """Briefs that the cache lost to a state that somebody else solved are made again."""
    project = remembering(demo())
    edits = [*CARRIED.values()]
    texts = edited(demo(), edits[1])
    remembering = dict(remembered.projects)
    remembered.projects.clear()
    assert not project.proved({**texts, "pkg/more.py": "import pkg.base\n"})
    remembered.projects.update(remembering)
    assert project.proved(edited(demo(), edits[3]))
    assert project.outcome(texts, project.cache) == project.outcome(texts, None)


@SETTINGS
def test_nothing_comes_out_other_than_solved_anew(
    remembering: Start, settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solved, "_MOST_MORE", 3)
    start = demo()
    carried: Counter[bool] = Counter()
    for seed in range(4):
        rng = random.Random(f"following {seed}")
        texts = dict(start)
        project = remembering(texts, **settings)
        for number in range(30):
            for _ in range(rng.choice([1, 1, 1, 2, 3])):
                rel = rng.choice([*PROJECT, *PROJECT, *texts])
                kind = rng.choice(["change_body", "change_body", "add_helper", "add_method"])
                if rng.random() < 0.1:
                    kind = rng.choice([*EDITS])
                new = getattr(Editor(rng, texts), kind)(texts[rel])
                if not scout.scan(new, "m", False).error:
                    texts[rel] = new
            if rng.random() < 0.15:
                rel = rng.choice([*PROJECT])
                texts[rel] = start[rel]
            carried[project.proved(texts, passing=rng.random() < 0.1)] += 1
            if rng.random() < 0.7:
                project.learn()
            if number == 15:
                assert project.outcome(texts, project.cache) == project.outcome(texts, None)
    assert carried[True] >= 40, carried
