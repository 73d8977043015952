"""Where a change cannot have moved what is hot, it is not found out anew, and nothing comes out other than if
it had been."""

from __future__ import annotations

import random
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_dispatchguard.config import PROFILE
from pytest_dispatchguard.lint import engine, scout, solved
from pytest_dispatchguard.lint.cache import Cache
from pytest_dispatchguard.lint.catalog import Catalog
from pytest_dispatchguard.lint.facts import FileFacts
from pytest_dispatchguard.lint.unmoved import change_of, words_in
from pytest_dispatchguard.profile import Profile, packed

from .relinted import (
    EDITS,
    PROJECT,
    SETTINGS,
    Edit,
    Editor,
    Linted,
    count_solutions,
    demo,
    edited,
    quietly,
)

Start = Callable[..., Linted]


@pytest.fixture
def linted(rules: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Gives a project that was linted once."""
    with_cache: list[Linted] = []
    count_solutions(monkeypatch, with_cache)

    def start(texts: dict[str, str], **settings: object) -> Linted:
        cache = Cache.open(tmp_path / f"{len(with_cache)}.sqlite", "1")
        made = Linted(tmp_path, rules, cache, settings)
        with_cache.append(made)
        assert not made.proved(texts)
        return made

    yield start
    for one in with_cache:
        one.cache.close()


# -- what is proved, and what is not ---------------------------------------------------------------

_LOG = "    return format_line(text)"
_STRIP = "    return text.strip()"
_GATE = "h.gate(x)\n"
_WIDE = "    def hook_point(self, x: torch"

PROVED: dict[str, Edit] = {
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

SOLVED: dict[str, Edit] = {
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
    "what a function gives that would be hot were it not ruled out": (
        "pkg/helpers.py", "shape_of(x, None)", "shape_of(x, 'all')"
    ),
    "a cold function hands out one instead of the other": ("pkg/helpers.py", "return one", "return two"),
    "a method comes to a class whose like are elsewhere": (
        "pkg/base.py",
        "    def hook_point",
        "    def zq_new(self):\n        return 1\n\n    def hook_point",
    ),
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
    "what a cold function returns": ("pkg/helpers.py", "format_line(text):", "format_line(text) -> int:"),
    "a cold function takes more": ("pkg/helpers.py", "format_line(text):", "format_line(text, *more):"),
    "a cold function is decorated": ("pkg/helpers.py", "def format_line", "@traced\ndef format_line"),
    "what self holds": ("pkg/base.py", "super().__init__()", "super().__init__()\n        self.more = 1"),
    "a base": ("pkg/layers.py", "class Layer(Base)", "class Layer(torch.nn.Module)"),
    "an import": ("pkg/helpers.py", "import torch", "import torch\nimport math"),
    "an alias": ("pkg/layers.py", "SIZE = (1, 2)", "SIZE = (1, 2)\nstep = traced_step"),
    "a class": ("pkg/layers.py", "SIZE = (1, 2)", "class New:\n    pass"),
    "functions change places": (
        "pkg/train.py",
        "def report(loss):\n    return float(loss)\n\ndef plot(loss):\n    return loss\n",
        "def plot(loss):\n    return loss\n\ndef report(loss):\n    return float(loss)\n",
    ),
    "a file that cannot be read": ("pkg/train.py", "def plot(loss)", "def plot(loss"),
}  # fmt: skip


@pytest.mark.parametrize("edit", PROVED.values(), ids=list(PROVED))
def test_what_nobody_reads_is_proved(linted: Start, edit: Edit) -> None:
    project = linted(PROJECT)
    new = edited(PROJECT, edit)
    assert project.proved(new)
    # And back again, with what was kept of it.
    assert project.proved(PROJECT)
    assert project.outcome(new, project.cache) == project.outcome(new, None)


@pytest.mark.parametrize("edit", SOLVED.values(), ids=list(SOLVED))
def test_what_may_be_read_is_solved_anew(linted: Start, edit: Edit) -> None:
    texts = edited(PROJECT, ("pkg/layers.py", "return len(args)", "return zq_known(args)"))
    project = linted(texts)
    assert not project.proved(edited(texts, edit))


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
    assert not project.proved(edited(said, comes))


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
    body = edited(PROJECT, PROVED["a cold body calls more"])
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
    assert not project.proved(edited(PROJECT, PROVED["a cold body calls more"]))


def test_a_state_in_passing_is_proved_and_not_kept(linted: Start) -> None:
    project = linted(PROJECT)
    new = edited(PROJECT, PROVED["a function that nobody names"])
    assert project.proved(new, passing=True)
    solved = project.solved
    engine.briefs_of(project.config, project.survey(PROJECT), project.rules, project.cache, quietly)
    assert project.solved == solved
    assert project.proved(PROJECT)


# -- at random -------------------------------------------------------------------------------------


@SETTINGS
def test_nothing_comes_out_other_than_solved_anew(
    linted: Start, settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solved, "_MOST_MORE", 3)
    start = demo()
    proved: Counter[bool] = Counter()
    kinds: Counter[str] = Counter()
    for seed in range(4):
        rng = random.Random(seed)
        texts = dict(start)
        project = linted(texts, **settings)
        for number in range(25):
            made = []
            for _ in range(rng.choice([1, 1, 1, 2, 3])):
                rel = rng.choice([*PROJECT, *PROJECT, *texts])
                (kind,) = rng.choices([*EDITS], [*EDITS.values()])
                new = getattr(Editor(rng, texts), kind)(texts[rel])
                if not scout.scan(new, "m", False).error:
                    texts[rel] = new
                    made.append(kind)
            if rng.random() < 0.5:
                rel = rng.choice([*PROJECT])
                texts[rel] = start[rel]
            spared = project.proved(texts, passing=rng.random() < 0.1)
            proved[spared] += 1
            kinds.update(made if spared else ())
            if number == 12:
                assert project.outcome(texts, project.cache) == project.outcome(texts, None)
    # It is used, and it is not always.
    assert proved[True] >= 10, proved
    assert proved[False] >= 10, proved
    assert min(kinds[kind] for kind in ("add_function", "change_body")) >= 1, kinds


# -- the proof by itself ---------------------------------------------------------------------------


def scanned(text: str) -> FileFacts:
    return scout.scan(textwrap.dedent(text), "m", False)


def test_a_body_counts_where_it_was_walked() -> None:
    old, new = scanned("def f(x):\n    g(x)\n"), scanned("def f(x):\n    h(x)\n")
    assert change_of(old, new, frozenset()) == ([], [], [])
    assert change_of(old, new, frozenset({"f"})) is None


def test_words_are_those_that_lead_somewhere() -> None:
    text = """
        from a.b import c as d
        E = f.g(1)

        class H(I.j):
            k: L = None

            @m
            def n(self, o: P = None) -> Q[R]:
                s = T()
                s.u(o)
                self.v(w=x)

        def y():
            return H
    """
    words = words_in([scanned(text)])
    assert set("a b c d E f g H I j k L m P Q R T u v".split()) - words == set()
    assert words.isdisjoint({"n", "y"})
