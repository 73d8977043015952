"""A project that is linted again and again while it is edited, for tests of what is carried over from one
state of it to the next."""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.lint import engine
from pytest_dispatchguard.lint.incremental.cached_briefs import cached_briefs, solved_briefs
from pytest_dispatchguard.lint.judge.catalog import Catalog
from pytest_dispatchguard.lint.pipeline import solve
from pytest_dispatchguard.lint.pipeline.outcome import Outcome
from pytest_dispatchguard.lint.pipeline.progress import no_progress
from pytest_dispatchguard.lint.pipeline.survey import Survey, scout_files
from pytest_dispatchguard.lint.processes.workers import Pool
from pytest_dispatchguard.lint.session import Session
from pytest_dispatchguard.lint.sources.files import Discovery, File
from pytest_dispatchguard.lint.store.cache import Cache

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
    "run.py": """
        import torch
        from pkg import helpers
        from pkg.layers import Wide

        def seen(x):
            return helpers.shape_of(x)

        model = Wide()
        optimizer = torch.optim.SGD(model.parameters())
        if __name__ == "__main__":
            for batch in torch.randn(3, 3):
                out = model(batch)
                seen(out)
                if out > 0:
                    out.sum().backward()
                optimizer.step()
    """,
}
PROJECT = {rel: textwrap.dedent(text).lstrip("\n") for rel, text in PROJECT.items()}


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
        settings = dict(settings)
        if settings.pop("library", False):
            (root / "setup.py").touch()  # then users call what is public in it
        self.config = Config(root=root, **settings)  # type: ignore[arg-type]  # by name
        self.rules = rules
        self.cache = cache
        self.solved = 0

    def files(self, texts: dict[str, str]) -> Discovery:
        found = tuple(File(str(self.config.root / rel), rel, 0, 0, 0, 0) for rel in sorted(texts))
        return Discovery(found, found)

    def survey(self, texts: dict[str, str]) -> Survey:
        with Pool(1) as pool:
            return scout_files(self.config, self.files(texts), self.cache, pool, texts, no_progress)

    def outcome(self, texts: dict[str, str], cache: Cache | None) -> Outcome:
        with Pool(1) as pool:
            session = Session(self.config, lambda: self.rules, cache, pool)
            return engine.run(session, self.files(texts), texts=texts)

    def proved(self, texts: dict[str, str], *, keep: bool = True) -> bool:
        """Compares `cached_briefs` with a full solve to the letter, and says whether a full solve was
        spared."""
        before = self.solved
        survey = self.survey(texts)
        warm = cached_briefs(self.config, survey, self.rules, self.cache, no_progress, keep=keep)
        spared = self.solved == before
        fresh = solved_briefs(self.config, survey, self.rules, self.cache)
        assert dict(warm.hot) == dict(fresh.hot)
        assert list(warm.idle) == list(fresh.idle)
        for rel in fresh.hot:
            assert warm.text(rel) == fresh.text(rel)
            assert warm.key(rel) == fresh.key(rel)
        return spared


def count_solutions(monkeypatch: pytest.MonkeyPatch, projects: Sequence[Linted]) -> None:
    """Has each time that a project is solved from the beginning counted, in all of these."""
    whole = solve.solve

    def counting(*args: object, **named: object) -> object:
        for one in projects:
            one.solved += 1
        return whole(*args, **named)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(solve, "solve", counting)


SETTINGS = pytest.mark.parametrize(
    "settings",
    [
        {},
        {"hot_roots": ("pkg.helpers.Store.get_*", "@traced"), "cold": ("pkg.train",)},
        {"library": True},
    ],
    ids=["plain", "patterns", "library"],
)

Edit = tuple[str, str, str]
"""A file, what stands there, what comes in its place."""


def edited(texts: dict[str, str], edit: Edit) -> dict[str, str]:
    rel, old, new = edit
    assert old in texts[rel], edit
    return {**texts, rel: texts[rel].replace(old, new, 1)}


# -- at random -----------------------------------------------------------------------------------

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

    def add_helper(self, text: str) -> str:
        """A function, or a method, that what stands beside it calls."""
        found = self.function(text)
        if found is None:
            return text
        name, indent = "zq_" + "".join(self.rng.choices("abc", k=6)), found[1]
        mine = "self." if indent and "self" in found[3] else ""
        call = (
            f"{indent}    {self.rng.choice(['', 'x = ', 'return '])}{mine}{name}({self.name()})\n"
        )
        given = "self, x" if mine else "x=None"
        body = f"{indent}    {self.rng.choice([f'{self.name()}(x)', 'return x', f'x.{self.name()}(1)'])}\n"
        helper = f"{indent}def {name}({given}):\n{body}\n"
        return f"{text[: found.start()]}{helper}{found[0]}{call}{text[found.end() :]}"

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
                f"self.{self.name()} = Store()",
                f"self.{self.name()} = torch.nn.Linear(1, 2)",
                "return Store()",
                f"return {self.name()}(x)",
                "return torch.relu(x)",
                f"x.register_hook({self.name()})",
                f"def inner(fn):\n{found[1]}        return {self.name()}(fn)\n{found[1]}    return inner",
                "yield 1",
                "return 1",
                "x.unsqueeze(0)",
                f"torch.{self.name()}(x, {self.name()})",
                f"made = torch.{self.name()}(x)\n{found[1]}    made.{self.name()}()",
                f"for one in x.{self.name()}():\n{found[1]}        torch.add(one, x)",
                f"{self.name()} = torch.ones(2)\n{found[1]}    {self.name()}.{self.name()}()",
                f"if b is None:\n{found[1]}        len(x), super().{self.name()}(x)",
                f"with torch.{self.name()}(self.{self.name()}):\n{found[1]}        x.some_rare_method()",
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
            [
                f"import {self.name()}",
                f"from pkg import {self.name()}",
                f"from pkg.helpers import {self.name()}",
                f"from pkg.layers import {self.name()} as {self.name()}",
                "from pkg.helpers import *",
                f"ZQ = {self.name()}",
                f"{self.name()} = {self.name()}",
                f"{self.name()} = 1",
                "# moved",
            ]
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
