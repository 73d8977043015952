"""The engine: what depends on what, seen from a run over texts that need no disk."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from pytest_dispatchguard.config.config import Config
from pytest_dispatchguard.lint import engine
from pytest_dispatchguard.lint.facts import FileFacts
from pytest_dispatchguard.lint.judge.cached_catalog import catalog
from pytest_dispatchguard.lint.judge.catalog import Catalog
from pytest_dispatchguard.lint.pipeline import judge_files, solve
from pytest_dispatchguard.lint.pipeline.outcome import Outcome, unreadable_input
from pytest_dispatchguard.lint.processes.workers import Pool
from pytest_dispatchguard.lint.session import Session
from pytest_dispatchguard.lint.sources.files import Discovery, File, Unreadable
from pytest_dispatchguard.lint.store.cache import Cache
from pytest_dispatchguard.lint.syntax import chunks

ROOT = Path("/nowhere")
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
HOT = "import torch\n\nclass M(torch.nn.Module):\n    def forward(self, x: torch.Tensor):\n"


@pytest.fixture(scope="module")
def rules() -> Catalog:
    return catalog(None)


def run(
    texts: dict[str, str],
    rules: Catalog,
    *,
    targets: tuple[str, ...] | None = None,
    cache: Cache | None = None,
    keep: bool = True,
    **settings: object,
) -> Outcome:
    files = tuple(File(str(ROOT / rel), rel, 0, 0, 0, 0) for rel in sorted(texts))
    asked = tuple(f for f in files if targets is None or f.rel in targets)
    config = Config(root=ROOT, **settings)  # type: ignore[arg-type]  # by name
    with Pool(1) as pool:
        found = Discovery(asked, files)
        return engine.run(
            Session(config, lambda: rules, cache, pool), found, texts=texts, keep=keep
        )


def test_only_targets_speak_and_all_give_hotness(rules: Catalog) -> None:
    texts = {
        "a.py": HOT.replace("import torch", "import torch\nfrom b import f")
        + "        return f(x)\n",
        "b.py": "import torch\n\ndef f(x: torch.Tensor):\n    return x.item()\n",
    }
    outcome = run(texts, rules, targets=("b.py",))
    (found,) = outcome.findings
    assert (found.path, found.span.line) == ("b.py", 4)
    assert found.hot is not None
    assert found.hot.path == ("a.M.forward", "b.f")
    assert (outcome.files, outcome.functions, outcome.hot_functions) == (1, 1, 1)
    assert run({"b.py": texts["b.py"]}, rules).findings == ()


def test_maybes_are_in_the_outcome(rules: Catalog) -> None:
    text = "import numpy\nimport torch\n\ndef f(x, params):  # dispatchguard: hot\n"
    text += "    return params['order'].item()\n"
    assert {f.certainty for f in run({"a.py": text}, rules).findings} == {"maybe"}


def test_suppressions_come_before_selection_by_file(rules: Catalog) -> None:
    text = HOT + "        return x.item()  # dispatchguard: ignore\n"
    outcome = run({"a.py": text}, rules)
    assert outcome.findings == ()
    assert len(outcome.suppressed) == 1
    (code,) = {f.code for f in outcome.suppressed}
    ignored = run({"a.py": text}, rules, per_file_ignores=(("a.py", (code, "DG002")),))
    assert (ignored.findings, ignored.suppressed) == ((), ())


def test_lines_that_move_are_not_judged_anew(
    rules: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_dispatchguard.lint.judge import judge

    cache = Cache.open(tmp_path / "cache.sqlite", "1")
    text = HOT + "        return x.item()\n"
    (before,) = run({"a.py": text}, rules, cache=cache).findings

    def never(*_: object) -> None:
        raise AssertionError("judged again")

    monkeypatch.setattr(judge, "judge_chunks", never)
    (after,) = run({"a.py": "# moved\n\n" + text}, rules, cache=cache).findings
    assert after.span.line == before.span.line + 2
    assert after.message == before.message
    with pytest.raises(AssertionError, match="judged again"):
        run({"a.py": text.replace("x.item()", "x.max().item()")}, rules, cache=cache)
    cache.close()


def test_functions_that_came_beside_others_judge_none_of_them_anew(
    rules: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_dispatchguard.lint.judge import judge

    cache = Cache.open(tmp_path / "cache.sqlite", "1")
    text = HOT + "        return x.item(), reads(x)\n"
    run({"a.py": text}, rules, cache=cache)
    judged: list[list[str]] = []
    whole = judge.judge_chunks

    def noting(lines: object, outlines: list[chunks.Outline], *rest: object) -> object:
        judged.append([outline.name for outline in outlines])
        return whole(lines, outlines, *rest)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(judge, "judge_chunks", noting)
    for more, now in (
        ("\ndef other(x):\n    return 1\n", []),
        ("\n# dispatchguard: hot\ndef own(x: torch.Tensor):\n    return float(x)\n", [["own"]]),
        ("\ndef reads(x: torch.Tensor):\n    return x.tolist()\n", [["M.forward", "reads"]]),
    ):
        judged.clear()
        cached = run({"a.py": text + more}, rules, cache=cache)
        assert judged == now
        assert cached == run({"a.py": text + more}, rules)
    cache.close()


def test_the_comment_behind_the_last_line_is_quoted_as_it_is(
    rules: Catalog, tmp_path: Path
) -> None:
    cache = Cache.open(tmp_path / "cache.sqlite", "1")
    for comment in ("", "  # one", "  # two"):
        text = HOT + f"        return x.item(){comment}\n\nx = 1\n"
        (found,) = run({"a.py": text}, rules, cache=cache).findings
        assert found.source == f"        return x.item(){comment}"
    cache.close()


def test_a_name_that_a_fix_would_take_is_seen_wherever_it_is(
    rules: Catalog, tmp_path: Path
) -> None:
    cache = Cache.open(tmp_path / "cache.sqlite", "1")
    text = """
        from torch.nn import Dropout, Module

        class M(Module):
            def forward(self, x):
                return Dropout(0.5)(x)
    """
    fixable = []
    for more in ("", "\ndef G():\n    pass\n", "\ndef F():\n    pass\n", ""):
        texts = {"a.py": textwrap.dedent(text) + more}
        outcome = run(texts, rules, cache=cache)
        assert outcome == run(texts, rules)
        fixable.append(["F.dropout" in str(f.fix) for f in outcome.findings])
    assert fixable == [[True], [True], [False], [True]]
    cache.close()


def test_a_state_in_passing_leaves_what_is_known_of_the_other(
    rules: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache.open(tmp_path / "cache.sqlite", "v1")
    now = {"a.py": HOT + "        return x.item()\n", "b.py": "def f():\n    return 1\n"}
    before = {"a.py": HOT + "        return x.tolist(), x.item()\n"}
    found = run(now, rules, cache=cache)
    passed = run(before, rules, cache=cache, keep=False)
    assert passed.findings == run(before, rules).findings
    monkeypatch.delattr(solve, "solve")  # what is hot need not be found out again
    assert run(now, rules, cache=cache).findings == found.findings
    cache.close()


def test_rules_without_selection_cost_no_finding(rules: Catalog) -> None:
    text = HOT + "        return x.item()\n"
    assert run({"a.py": text}, rules, select=("DG1",)).findings == ()
    broken = run({"a.py": "def f(:\n"}, rules, select=("DG1",))
    assert [f.code for f in broken.findings] == ["DG001"]


def test_standard_input_that_cannot_be_read(rules: Catalog) -> None:
    what = Unreadable("a.py", 3, 4, "no text")
    outcome = unreadable_input(Config(root=ROOT), rules.infos, what)
    (found,) = outcome.findings
    assert (found.code, found.path, found.span.line, found.span.column) == ("DG001", "a.py", 3, 4)
    assert unreadable_input(Config(root=ROOT, ignore=("DG001",)), rules.infos, what).findings == ()


def test_what_hinges_on_a_call_is_judged_where_the_call_gives_a_tensor(rules: Catalog) -> None:
    text = """
        import torch

        def gives(x: torch.Tensor) -> torch.Tensor:
            return x + 1

        def says(x: torch.Tensor) -> bool:
            return x.ndim == 2

        class M(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(2, 2)

            def own(self, x: torch.Tensor) -> torch.Tensor:
                return x + 2

            def forward(self, x: torch.Tensor):
                return x * M.by(self, x) * self.and_by(x) * self.by_layer(x) * self.and_spared(x)

            def by(self, x: torch.Tensor):
                return 1 if gives(x) else 2

            def and_by(self, x: torch.Tensor):
                return 1 if self.own(x) else 2

            def by_layer(self, x: torch.Tensor):
                return 1 if self.layer(x) else 2

            def and_spared(self, x: torch.Tensor):
                return 1 if says(x) else 2
        """
    found = run({"pkg/a.py": textwrap.dedent(text)}, rules).findings
    asked = [(f.code, f.function, f.message.split("`")[1]) for f in found]
    assert asked == [
        ("DG401", "M.by", "gives(x)"),
        ("DG401", "M.and_by", "self.own(x)"),
        ("DG401", "M.by_layer", "self.layer(x)"),
    ]


@pytest.mark.thorough
def test_what_the_scout_spares_the_judge_has_nothing_in(
    rules: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        f"pkg/{path.parent.name.lower()}_{path.name}": path.read_text(encoding="utf-8")
        for path in sorted(FIXTURES.glob("DG*/*.py"))
    }
    judged = []

    def all_hot(facts: FileFacts, hot: list[str], *_: object) -> list[chunks.Outline]:
        found = [
            chunks.Outline(outer.name, outer.line, outer.start_byte, outer.end_byte)
            for outer, inner in chunks.outermost(facts)
            if any(f.name in hot for f in (outer, *inner))
        ]
        judged.extend(found)
        return found

    spared = run(texts, rules)
    monkeypatch.setattr(judge_files, "worth_judging", all_hot)
    thorough = run(texts, rules)
    assert spared.findings == thorough.findings
    assert len(judged) > len(spared.findings) > 200
