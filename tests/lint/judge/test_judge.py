"""The judge shows rules what they look for, in hot regions only, with positions of the file."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any

import libcst as cst
import pytest

from pytest_dispatchguard.lint.callgraph import build
from pytest_dispatchguard.lint.hotness import solve
from pytest_dispatchguard.lint.judge import briefs, judge, packs
from pytest_dispatchguard.lint.judge.place import IMPORTS, Place
from pytest_dispatchguard.lint.judge.rule import Call, Function, Look, Rule, Truth
from pytest_dispatchguard.lint.judge.target import Target
from pytest_dispatchguard.lint.scout import scan
from pytest_dispatchguard.lint.syntax import chunks
from pytest_dispatchguard.model.findings import Finding, Span


class Ping(Rule):
    """Calls of ping."""

    code, name, origin = "XX001", "ping", "test"
    looks_for: Look = Call("ping")

    def judge(self, node: cst.Call, place: Place) -> Finding:
        fix = place.replace(node, "pong()", safety="safe", message="pong", imports=["import pongs"])
        return place.finding(node, f"{place.text(node)} in {place.qualname}", fix=fix)


class Asked(Rule):
    """Truths."""

    code, name, origin = "XX002", "asked", "test"
    looks_for = Truth()

    def judge(self, node: cst.BaseExpression, place: Place) -> Finding:
        return place.finding(node, place.text(node), certainty="maybe")


class Failing(Rule):
    """Fails."""

    code, name, origin = "XX003", "failing", "test"
    looks_for = Function("boom")

    def judge(self, node: cst.FunctionDef, place: Place) -> None:
        raise ZeroDivisionError("no")


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    found = packs.Packs((Ping(), Asked(), Failing()), {})
    monkeypatch.setattr(packs, "load", lambda names=None: found)
    judge.bench.cache_clear()
    yield
    judge.bench.cache_clear()


def judged(source: str) -> judge.Judged:
    text = textwrap.dedent(source)
    facts = scan.scan(text, "mod", False)
    built = build.build({"mod.py": facts})
    brief = briefs.Briefer(built, solve.solve(built)).brief("mod.py")
    tokens = {t for rule in packs.load().rules for look in rule.looks() for t in look.tokens}
    outlines = chunks.worth_judging(facts, brief.hot, (), {}, (), tokens)
    out = judge.Judged()
    target = Target()
    benched = judge.bench(target, packs.installed())
    for one in judge.judge_chunks(chunks.Lines(text), outlines, brief, benched, target):
        out.findings += one.findings
        out.problems += one.problems
    return out


def messages(source: str, code: str = "XX001") -> list[str]:
    return [f.message for f in judged(source).findings if f.code == code]


def test_only_hot_functions_are_shown() -> None:
    assert messages(
        """
        # dispatchguard: hot
        def f(): return helper()
        def helper(): ping(1)
        def cold(): ping(2)
        """
    ) == ["ping(1) in helper"]


def test_cold_regions_are_not_shown() -> None:
    found = messages(
        """
        import torch
        # dispatchguard: hot
        def f(x):
            if x is None:
                raise ValueError(ping(1))
            try:
                ping(2)
            except KeyError:
                ping(3)
            if torch.jit.is_scripting():
                ping(4)
            return ping(5)
        """
    )
    assert found == ["ping(2) in f", "ping(5) in f"]


def test_what_the_hot_callers_arguments_rule_out_is_not_shown() -> None:
    found = messages(
        """
        import torch
        # dispatchguard: hot
        def f(x): return helper(x, mode="fast")
        def helper(x, mask=None, mode="slow"):
            if mask is not None:
                ping(1)
            elif mode == "slow":
                ping(2)
            else:
                ping(3)
            a = ping(4) if mask is None else ping(5)
            b = mask is not None and ping(6)
            if mask is None:
                mask = x
            if mask is None:
                ping(7)
            if mode == "fast":
                return ping(8)
            return ping(9)
        """
    )
    assert found == [f"ping({n}) in helper" for n in (3, 4, 7, 8)]


def test_types_rule_branches_out() -> None:
    found = messages(
        """
        import torch
        # dispatchguard: hot
        def f(x: torch.Tensor, y):
            width, depth = x.shape[-1], x.shape[-2]
            if isinstance(width, torch.Tensor):
                ping(1)
            if not isinstance(width, torch.Tensor):
                ping(2)
            if isinstance(x, (int, float)):
                ping(3)
            if torch.is_tensor(y):
                ping(4)
            if isinstance(x, torch.Tensor):
                ping(5)
            return ping(6) if x.numel() == 0 else ping(7)
        """
    )
    assert found == [f"ping({n}) in f" for n in (2, 4, 5, 7)]


def test_positions_are_those_of_the_file() -> None:
    source = '''
    class A:
        """é"""

        # dispatchguard: hot
        @staticmethod
        def f(x):
            s = """
    at the margin
    """
            return s, "é", ping(
                x)
    '''
    text = textwrap.dedent(source)
    (finding,) = (f for f in judged(source).findings if f.code == "XX001")
    lines = text.splitlines()
    span = finding.span
    assert lines[span.line - 1][span.column - 1 :] == "ping("
    assert lines[span.end_line - 1][: span.end_column - 1].strip() == "x)"
    assert finding.source == lines[span.line - 1]
    assert finding.function == "A.f"
    assert finding.fix is not None
    assert [e.span for e in finding.fix.edits] == [span, IMPORTS]


def test_a_root_and_a_path_are_told() -> None:
    (finding,) = judged(
        """
        import torch
        class A(torch.nn.Module):
            def forward(self, x):
                return self.inner(x)
            def inner(self, x):
                for _ in range(2):
                    ping()
        """
    ).findings
    assert finding.hot is not None
    assert finding.hot.root == "mod.A.forward"
    assert finding.hot.path == ("mod.A.forward", "mod.A.inner")
    assert finding.hot.loop


def test_only_loops_of_training_functions_are_hot() -> None:
    found = messages(
        """
        import torch
        def train(model, loader, optimizer):
            ping(1)
            for epoch in range(3):
                ping(2)
                for x in loader:
                    ping(3)
                    model(x).sum().backward()
                    optimizer.step()
                ping(4)
            ping(5)
        """
    )
    assert found == ["ping(3) in train"]


def test_a_branch_with_which_a_loop_ends_is_not_one_of_its_steps() -> None:
    found = messages(
        """
        import torch
        def train(model, loader, optimizer):
            for x in loader:
                model(x).sum().backward()
                optimizer.step()
                if ping(1):
                    ping(2)
                    return ping(3)
                if x:
                    ping(4)
                    break
                for y in x:
                    if y:
                        ping(5)
                        break
                if x:
                    ping(6)
                    continue
        """
    )
    assert found == ["ping(1) in train", "ping(5) in train", "ping(6) in train"]


def test_a_rule_that_fails_is_told_and_hides_nothing() -> None:
    out = judged(
        """
        # dispatchguard: hot
        def boom():
            ping()
        """
    )
    assert [f.message for f in out.findings] == ["ping() in boom"]
    (problem,) = out.problems
    assert re.match(
        r"mod.py:[34]: rule XX003 failed in boom: ZeroDivisionError: no \(set DISP", problem
    )


def test_a_function_that_cannot_be_judged_is_told_and_hides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = judge.read_function

    def broken(function: cst.FunctionDef, *rest: Any) -> judge.Reader:
        if function.name.value == "odd":
            raise IndexError("out of\nrange")
        return read(function, *rest)

    monkeypatch.setattr(judge, "read_function", broken)
    result = judged(
        """
        # dispatchguard: hot
        def odd():
            ping()

        # dispatchguard: hot
        def f():
            ping()
        """
    )
    assert [f.function for f in result.findings] == ["f"]
    (problem,) = result.problems
    assert problem.startswith(
        "mod.py:3: odd could not be checked: IndexError: out of range (set DISP"
    )


def test_truth_is_asked_of_single_operands() -> None:
    asked = messages(
        """
        # dispatchguard: hot
        def f(a: torch.Tensor, b, c, d, xs):
            if a and not b.any() or (c > 0):
                return 1
            while d.all(): pass
            assert a.sum() > 0, ping()
            e = a.max() if b.min() else c
            return [x for x in xs if x.any()], bool(a.any()), any(x.all() for x in xs)
        """,
        "XX002",
    )
    assert asked == [
        "a", "b.any()", "(c > 0)", "d.all()", "a.sum() > 0", "b.min()", "x.any()", "a.any()", "x.all()",
    ]  # fmt: skip


def test_a_finding_on_a_compound_statement_points_at_its_header() -> None:
    class Head(Ping):
        looks_for = Function("f")

    text = "# dispatchguard: hot\ndef f(x):\n    return x\n"
    facts = scan.scan(text, "mod", False)
    built = build.build({"mod.py": facts})
    brief = briefs.Briefer(built, solve.solve(built)).brief("mod.py")
    benched = judge.bench_of([Head()])
    outlines = chunks.worth_judging(facts, brief.hot, (), {}, (), {"name:f"})
    (one,) = judge.judge_chunks(chunks.Lines(text), outlines, brief, benched, Target())
    assert [f.span for f in one.findings] == [Span(2, 1, 2, 6)]


def test_a_function_that_takes_too_long_is_told_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "MOST_SECONDS", -1.0)
    source = "# dispatchguard: hot\ndef f():\n" + "    ping()\n" * 100
    found = judged(source).findings
    told = [f for f in found if f.code == "DG001"]
    assert len(told) == 1
    assert told[0].certainty == "note"
    assert "so the rest of it was not checked" in told[0].message
    assert len(found) < 100


def test_the_text_of_a_function_is_asked_only_where_no_rule_wants_it_as_it_is() -> None:
    asked = []

    def holds(source: str) -> bool:
        asked.append(source)
        return "twice" in source

    class Careful(Ping):
        code = "XX003"
        looks_for = Call("ping", "pong").where(holds)

    benched = judge.bench_of([Ping(), Careful()])
    one = chunks.Outline("f", 1, 0, 9, ("call:pong",))
    assert benched.wants(one, "pong() twice")
    assert not benched.wants(one, "pong()")
    assert asked == ["pong() twice", "pong()"]
    assert benched.wants(one._replace(tokens=("call:ping", "call:pong")), "ping()")
    assert benched.wants(one._replace(tokens=()), "seen with tensors")
    assert not benched.wants(one._replace(tokens=("call:of-no-rule-that-applies",)), "")
    assert len(asked) == 2


def test_the_loop_of_a_script_that_trains_is_shown_and_nothing_twice() -> None:
    found = judged(
        """
        import torch

        def helper(x):
            return ping(1)

        ping(2)
        for epoch in range(3):
            ping(3)
            for batch in batches:
                def closure():
                    return ping(4)
                class Local:
                    ping(5)
                ping(6)
                helper(batch)
                loss = model(batch)
                loss.backward()
                opt.step(closure)
        ping(7)
        """
    )
    assert not found.problems
    told = [(f.message, f.span.line, f.span.column) for f in found.findings]
    assert sorted(told) == [
        ("ping(1) in helper", 5, 12),
        ("ping(4) in closure", 12, 20),
        ("ping(6) in <module>", 15, 9),
    ]


def test_an_evaluation_beside_a_training_is_shown_and_what_an_epoch_does_is_not() -> None:
    told = messages(
        """
        import torch

        def main(model, batches, opt):
            for epoch in range(3):
                model.train()
                for batch in batches:
                    model(batch).backward()
                    opt.step()
                    ping("trained")
                ping("an epoch")
                sampled = model(batches[0])
                with torch.no_grad():
                    for batch in batches:
                        seen = model(batch)
                        ping("evaluated")
                        helper(seen)
                    for name in ("a", "b"):
                        ping("named")
                        once(name)

        def helper(seen):
            ping("called")

        def once(name):
            ping("shown")
        """
    )
    assert sorted(told) == [
        "ping('called') in helper".replace("'", '"'),
        "ping('evaluated') in main".replace("'", '"'),
        "ping('trained') in main".replace("'", '"'),
    ]


@pytest.mark.parametrize(
    ("around", "inner", "shown"),
    [
        ("for data in samples:", "for part in data:", True),
        ("while True:", "for part in x.split(3):", True),
        ("for epoch in range(3):", "for part in samples:", False),
        ("for fold in folds:", "for part in samples:", False),
        ("for data in sets:", "for part in enumerate(data.test_loader):", False),
        ("for name in names:", "for part in read(dataset):", False),
    ],
)
def test_loops_around_the_one_that_feeds_a_model(around: str, inner: str, *, shown: bool) -> None:
    told = messages(
        f"""
        import torch

        def embed(model, samples, x, sets, folds, names):
            model.eval()
            {around}
                {inner}
                    model(part)
                    ping("inner")
                ping("around")
        """
    )
    assert told == ['ping("inner") in embed'] + shown * ['ping("around") in embed']


def test_an_evaluation_every_few_epochs_is_hot_batch_by_batch() -> None:
    told = messages(
        """
        import torch

        def main(model, loader, val_loader, opt, names):
            for epoch in range(100):
                for step, batch in enumerate(loader):
                    model(batch).backward()
                    opt.step()
                    if step % 50 == 0:
                        ping("logged")
                        for name in names:
                            ping("named")
                if epoch % 10 != 0:
                    continue
                ping("begun")
                with torch.no_grad():
                    for batch in val_loader:
                        helper(model(batch))
                        ping("evaluated")
                        if batch.verbose:
                            ping("shown")
                        if batch % 50 == 0:
                            ping("logged as well")

        def helper(seen):
            ping("called")
        """
    )
    assert sorted(told) == ['ping("called") in helper', 'ping("evaluated") in main']


def test_an_evaluation_that_is_only_for_debugging_is_cold() -> None:
    told = messages(
        """
        import torch

        def main(model, loader, val_loader, opt, debug):
            for step, batch in enumerate(loader):
                model(batch).backward()
                opt.step()
                if step % 50 == 0:
                    if debug:
                        for batch in val_loader:
                            ping(model(batch))
        """
    )
    assert told == []
