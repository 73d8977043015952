"""Where a change cannot have moved what is hot, it is not found out anew, and nothing comes out other than if
it had been."""

from __future__ import annotations

import random
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_dispatchguard.config import PROFILE, Config
from pytest_dispatchguard.lint import engine, scout
from pytest_dispatchguard.lint.cache import Cache
from pytest_dispatchguard.lint.catalog import Catalog, catalog
from pytest_dispatchguard.lint.facts import FileFacts
from pytest_dispatchguard.lint.files import Discovery, File
from pytest_dispatchguard.lint.pool import Pool
from pytest_dispatchguard.lint.survey import Survey, scout_files
from pytest_dispatchguard.lint.unmoved import change_of, words_in
from pytest_dispatchguard.profile import Profile, packed

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"

# Inheritance, properties, decorators, hooks, marks, star imports, names by which anything may be meant.
PROJECT = {
    "pkg/__init__.py": "from pkg.layers import *\nfrom pkg import helpers\n",
    "pkg/base.py": """
        import torch

        class Base(torch.nn.Module):
            def __init__(self, width=1):
                super().__init__()
                self.scale = torch.nn.Linear(width, width)
                self.register_forward_hook(watch)

            @property
            def depth(self):
                return 2

            def forward(self, x, mask=None):
                if mask is not None:
                    x = self.masked_values(x)
                return self.hook_point(x) * self.depth

            def hook_point(self, x):
                return x

            def masked_values(self, x):
                return x.item()

            def describe(self):
                return self.describe_shape()

            def describe_shape(self):
                return str(self.scale)

        def watch(module, args, result):
            return result

        # dispatchguard: hot
        class Marked:
            def one(self, x):
                return x

            def quiet(self):
                return 1
    """,
    "pkg/layers.py": """
        import functools

        import torch
        from pkg.base import Base
        from pkg import helpers as h
        from pkg.helpers import shape_of

        SIZE = (1, 2)

        def traced(fn):
            @functools.wraps(fn)
            def wrapper(*args, **kwargs):
                note_call(args)
                return fn(*args, **kwargs)
            return wrapper

        def note_call(args):
            return len(args)

        class Layer(Base):
            def hook_point(self, x):
                out = h.clip(x, 0.0)
                h.gate(x)
                return traced_step(out, self.depth)

            def summary(self):
                rows = [shape_of(self.scale)]
                return rows

            def close(self):
                return h.log_line("closed")

        class Wide(Layer):
            def hook_point(self, x: torch.Tensor):
                return super().hook_point(x) if x.sum() > 0 else x.tolist()

        @traced
        def traced_step(x, depth):
            for _ in range(depth):
                x = x + shape_of(x)
            return x

        def unused_tool(a, b=None):
            return a.some_rare_method(b)
    """,
    "pkg/helpers.py": """
        import torch

        def clip(x, low=None):
            if low is None:
                return x
            return guard_low(x, low)

        def guard_low(x, low):
            return torch.maximum(x, torch.tensor(low)).item()

        def shape_of(x, whole=None):
            if whole is None:
                return tuple(x.shape)
            return x.nonzero()

        def gate(x, mode=None):
            if mode is not None:
                slow_way(x)
            return shape_of(x)

        def slow_way(x):
            return shape_of(x, None)

        def log_line(text):
            return format_line(text)

        def format_line(text):
            return text.strip()

        def hand_out(text):
            def one():
                return text.item()
            def two():
                return text.tolist()
            return one

        class Store:
            def some_rare_method(self, value):
                return value

            def get_value(self):
                return 1
    """,
    "pkg/train.py": """
        from pkg.layers import Wide
        import torch

        def fit(loader):
            model = Wide()
            optimizer = torch.optim.SGD(model.parameters())
            for batch in loader:
                loss = model(batch).sum()
                loss.backward()
                optimizer.step()
                report(loss)

        def report(loss):
            return float(loss)

        def plot(loss):
            return loss
    """,
}
PROJECT = {rel: textwrap.dedent(text).lstrip("\n") for rel, text in PROJECT.items()}


@pytest.fixture(scope="module")
def rules() -> Catalog:
    return catalog(None)


def demo() -> dict[str, str]:
    """The project above, that of the fixtures, and some specimens."""
    found = dict(PROJECT)
    for path in sorted(FIXTURES.glob("demo/minilayers/**/*.py")):
        found[path.relative_to(FIXTURES / "demo").as_posix()] = path.read_text(encoding="utf-8")
    for path in sorted(FIXTURES.glob("DG*/specimen.py"))[::16]:
        found[f"specimens/{path.parent.name.lower()}.py"] = path.read_text(encoding="utf-8")
    return found


class Linted:
    """A project that is linted again and again with one cache."""

    def __init__(
        self, root: Path, rules: Catalog, cache: Cache, settings: dict[str, object]
    ) -> None:
        self.config = Config(root=root, **settings)  # type: ignore[arg-type]  # by name
        self.rules = rules
        self.cache = cache
        self.solved = 0

    def files(self, texts: dict[str, str]) -> Discovery:
        found = tuple(File(str(self.config.root / rel), rel, 0, 0, 0, 0) for rel in sorted(texts))
        return Discovery(found, found)

    def survey(self, texts: dict[str, str]) -> Survey:
        with Pool(1) as pool:
            return scout_files(self.config, self.files(texts), self.cache, pool, texts, _quietly)

    def outcome(self, texts: dict[str, str], cache: Cache | None) -> engine.Outcome:
        with Pool(1) as pool:
            return engine.run(
                self.config, self.files(texts), lambda: self.rules, cache, pool, texts=texts
            )

    def proved(self, texts: dict[str, str], *, passing: bool = False) -> bool:
        """Finds out what is hot with the cache and without, holds the one against the other to the letter,
        and says whether the one was spared."""
        before = self.solved
        survey = self.survey(texts)
        warm = engine.briefs_of(
            self.config, survey, self.rules, self.cache, _quietly, passing=passing
        )
        spared = self.solved == before
        fresh = engine.new_briefs(self.config, survey, self.rules, self.cache)
        assert dict(warm.hot) == dict(fresh.hot)
        assert list(warm.idle) == list(fresh.idle)
        for rel in fresh.hot:
            assert warm.text(rel) == fresh.text(rel)
            assert warm.key(rel) == fresh.key(rel)
        return spared


Start = Callable[..., Linted]


@pytest.fixture
def linted(rules: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Gives a project that was linted once."""
    with_cache: list[Linted] = []
    whole = engine.new_briefs

    def counting(*args: object, **named: object) -> engine.Briefs:
        for one in with_cache:
            one.solved += 1
        return whole(*args, **named)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(engine, "new_briefs", counting)

    def start(texts: dict[str, str], **settings: object) -> Linted:
        cache = Cache.open(tmp_path / f"{len(with_cache)}.sqlite", "1")
        made = Linted(tmp_path, rules, cache, settings)
        with_cache.append(made)
        assert not made.proved(texts)
        return made

    yield start
    for one in with_cache:
        one.cache.close()


def _quietly(what: str, done: int, total: int) -> None:
    """Shows no progress."""


# -- what is proved, and what is not ---------------------------------------------------------------

Edit = tuple[str, str, str]
"""A file, what stands there, what comes in its place."""

_LOG = "    return format_line(text)"
_STRIP = "    return text.strip()"
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
}  # fmt: skip

SOLVED: dict[str, Edit] = {
    "a hot body": ("pkg/helpers.py", "return x\n", "return shape_of(x)\n"),
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


def edited(texts: dict[str, str], edit: Edit) -> dict[str, str]:
    rel, old, new = edit
    assert old in texts[rel], edit
    return {**texts, rel: texts[rel].replace(old, new, 1)}


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
    engine.briefs_of(
        project.config, project.survey(PROJECT), project.rules, project.cache, _quietly
    )
    assert project.solved == solved
    assert project.proved(PROJECT)


# -- at random -------------------------------------------------------------------------------------

_DEF = re.compile(r"^( *)def (\w+)\(([^()]*)\)(?: -> [^:\n]*)?:\n", re.MULTILINE)
_CLASS = re.compile(r"^class (\w+)(?:\(([^()]*)\))?:\n", re.MULTILINE)


class Editor:
    """Makes edits at random: such as matter, and such as do not."""

    def __init__(self, rng: random.Random, texts: dict[str, str]) -> None:
        self.rng = rng
        self.texts = texts

    def name(self) -> str:
        """A name of the project, or one that it does not have."""
        if self.rng.random() < 0.5:
            return "zq_" + "".join(self.rng.choices("abc", k=4))
        return self.rng.choice([m[2] for t in self.texts.values() for m in _DEF.finditer(t)])

    def function(self, text: str) -> re.Match[str] | None:
        found = list(_DEF.finditer(text))
        return self.rng.choice(found) if found else None

    def add_function(self, text: str) -> str:
        body = self.rng.choice(["return a", f"return {self.name()}(a)", f"a.{self.name()}()"])
        return f"{text}\n\ndef {self.name()}(a, b=None):\n    {body}\n"

    def add_method(self, text: str) -> str:
        found = list(_CLASS.finditer(text))
        if not found:
            return text
        at = self.rng.choice(found).end()
        name = self.rng.choice([self.name(), self.name(), "forward", "__call__", "step"])
        return f"{text[:at]}    def {name}(self, x=None):\n        return x\n\n{text[at:]}"

    def change_body(self, text: str) -> str:
        found = self.function(text)
        if found is None:
            return text
        line = self.rng.choice(
            [
                f"self.{self.name()}()",
                f"{self.name()}(1)",
                f"made = {self.name()}(2)\n{found[1]}    made.{self.name()}()",
                f"made.{self.name()}(3)",
                "1 + 1",
                f"self.{self.name()} = {self.name()}",
                f"x.register_hook({self.name()})",
                f"def inner(fn):\n{found[1]}        return {self.name()}(fn)\n{found[1]}    return inner",
                "yield 1",
                "return 1",
                "x.unsqueeze(0)",
            ]
        )
        return f"{text[: found.end()]}{found[1]}    {line}\n{text[found.end() :]}"

    def rename(self, text: str) -> str:
        found = self.function(text)
        if found is None:
            return text
        new = self.name()
        if self.rng.random() < 0.5:
            return re.sub(rf"\b{found[2]}\b", new, text)
        return f"{text[: found.start(2)]}{new}{text[found.end(2) :]}"

    def delete(self, text: str) -> str:
        found = self.function(text)
        if found is None:
            return text
        rest = re.compile(rf"^ {{0,{len(found[1])}}}\S", re.MULTILINE).search(text, found.end())
        left = f"{found[1]}pass\n" if found[1] else ""
        return text[: found.start()] + left + (text[rest.start() :] if rest else "")

    def decorate(self, text: str) -> str:
        found = self.function(text)
        if found is None:
            return text
        line = self.rng.choice(
            ["@property", "@staticmethod", "@torch.compile", "# dispatchguard: hot", "@traced"]
        )
        return f"{text[: found.start()]}{found[1]}{line}\n{text[found.start() :]}"

    def rebase(self, text: str) -> str:
        found = [m for m in _CLASS.finditer(text) if m[2]]
        if not found:
            return text
        one = self.rng.choice(found)
        base = self.rng.choice(["object", "torch.nn.Module", "Base", "Layer"])
        return text[: one.start(2)] + base + text[one.end(2) :]

    def take(self, text: str) -> str:
        found = self.function(text)
        if found is None or not found[3]:
            return text
        return f"{text[: found.end(3)]}, zq_more=None{text[found.end(3) :]}"

    def top(self, text: str) -> str:
        line = self.rng.choice(
            [f"import {self.name()}", f"ZQ = {self.name()}", f"{self.name()} = 1", "# moved"]
        )
        return f"{line}\n{text}"


EDITS: dict[str, int] = {
    "add_function": 4,
    "add_method": 2,
    "change_body": 6,
    "rename": 1,
    "delete": 1,
    "decorate": 1,
    "rebase": 1,
    "take": 1,
    "top": 1,
}
"""How often each is made."""


@pytest.mark.parametrize(
    "settings",
    [{}, {"hot_roots": ("pkg.helpers.Store.get_*", "@traced"), "cold": ("pkg.train",)}],
    ids=["plain", "patterns"],
)
def test_nothing_comes_out_other_than_solved_anew(
    linted: Start, settings: dict[str, object]
) -> None:
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
    assert change_of(old, new, frozenset()) == ([], [])
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
