"""A small part of `make attack`: mutants, replayed commits, random edits; and what goes wrong is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture
def attacks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The command of the suite, which is no part of the package."""
    monkeypatch.syspath_prepend(str(BENCH))
    import bench_attacks

    return bench_attacks


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's own."""
    for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        (tmp_path / name).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(tmp_path / name))


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


def few(attacks: Any, number: int, seed: int = 0) -> list[Any]:
    return list(attacks.mutants.mutants(attacks.mutants.OWN, number, seed))


# -- mutants -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [3, 4])
def test_mutants_are_linted_without_a_fault(attacks: Any, home: None, seed: int) -> None:
    found = attacks.mutated.attack(attacks.mutants.OWN, 60, seed, 1, attacks.mutated.Linted())
    assert [line for lot in found for line in lot] == []


def test_a_mutant_depends_on_its_number_alone(attacks: Any, tmp_path: Path) -> None:
    assert few(attacks, 30)[:10] == few(attacks, 10)
    assert few(attacks, 10) != few(attacks, 10, seed=1)
    # Long files of their own: two mutants of a short one may be the same.
    for name in "abc":
        lines = [f"{name}_{number} = f({number}, [{number}])\n" for number in range(300)]
        (tmp_path / f"{name}.py").write_text("".join(lines))
    made = attacks.mutants.mutants([tmp_path], 50, 0)
    assert len({one.data for one in made}) == 50


def test_every_way_changes_something(attacks: Any) -> None:
    data = (BENCH / "attacks" / "cache_flips.py").read_bytes()
    for way in attacks.mutants.WAYS:
        seeds = map(attacks.odd_answers.random.Random, range(20))
        assert any(way(rng, data, b"x = [1]\n" * 9) != data for rng in seeds), way
        for empty in (b"", b"\n", b"("):
            way(attacks.odd_answers.random.Random(0), empty, empty)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("import os; os.abort()", "died of signal 6"),
        ("import time; time.sleep(60)", "gave no answer within 1 s"),
        ("print('could not be checked'); raise SystemExit(1)", "could not be checked"),
        ("raise SystemExit(3)", "ended with 3"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_the_mutant_at_fault_is_named_and_kept(
    attacks: Any, tmp_path: Path, fault: str, said: str
) -> None:
    mutants = few(attacks, 2)
    here = f"import pathlib, sys\nif (pathlib.Path(sys.argv[1]) / 'm00001.py').exists():\n    {fault}\n"
    hangs = "no answer" in said
    how = attacks.mutated.Linted(python(here), 1.0 if hangs else 60.0, kept=tmp_path / "found")
    if hangs:
        mutants = mutants[1:]
    (line,) = attacks.mutated.blamed(mutants, how)
    assert line.startswith("m00001.py (") and line.endswith(f": {said}")
    (kept,) = (tmp_path / "found").iterdir()
    assert kept.read_bytes() == mutants[-1].data


def test_two_that_fail_only_together_are_named_together(attacks: Any) -> None:
    both = "import os, sys; sys.exit(len(os.listdir(sys.argv[1])) == 3)"  # with the settings
    (line,) = attacks.mutated.blamed(few(attacks, 2), attacks.mutated.Linted(python(both)))
    assert "m00000.py (" in line and "m00001.py (" in line


@pytest.mark.parametrize("cached", [False, True])
def test_an_error_and_another_report_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool, home: None
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    from attacks import lint_twice

    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "pyproject.toml").write_text("[tool.dispatchguard]\n")
    assert list(lint_twice.wrong_of(tmp_path)) == []
    real = lint_twice.check

    def failing(request: Any) -> Any:
        if not cached:
            raise RecursionError("too deep")
        if request.cache:
            (tmp_path / "b.py").write_text("def f(:\n")
        return real(request)

    monkeypatch.setattr(lint_twice, "check", failing)
    assert next(lint_twice.wrong_of(tmp_path)) == (
        "with a new cache: told something else than without a cache"
        if cached
        else "without a cache: RecursionError('too deep')"
    )


# -- sizes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time", "calls", "seconds", "steep"),
    [
        (1.1, 1.2, 3.0, False),
        (2.0, 1.0, 3.0, True),
        (2.6, 1.0, 0.04, False),
        (0.7, 1.7, 0.04, True),
    ],
)
def test_what_grows_too_fast_is_told(
    attacks: Any,
    monkeypatch: pytest.MonkeyPatch,
    time: float,
    calls: float,
    seconds: float,
    steep: bool,
) -> None:
    found = {"time_exponent": time, "call_exponent": calls, "sizes": [9], "seconds": [seconds]}
    monkeypatch.setattr(attacks, "_swept", lambda case: found if case == "sum" else "died")
    tally = attacks.Tally()
    attacks.sizes(SimpleNamespace(), tally)
    assert tally.attempts == len(attacks.size_sweeps.CASES)
    assert len(tally.wrong) == tally.attempts - 1 + steep
    assert any(line.startswith("sum: grows too fast") for line in tally.wrong) == steep


# -- commits and edits -------------------------------------------------------------------------------


@pytest.fixture
def repository(attacks: Any, tmp_path: Path) -> Path:
    """Three commits: a project, a folder that becomes a file, a file that goes."""
    root = tmp_path / "owner+name"

    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)

    attacks.cache_flips.write_project(root)
    (root / "old.py").mkdir()
    (root / "old.py" / "inner.py").write_text("def f(:\n")
    git("init", "-q")
    helpers = root / "pkg" / "helpers.py"
    for change in (
        lambda: None,
        lambda: ((root / "old.py" / "inner.py").unlink(), (root / "old.py").rmdir()),
        lambda: (
            (root / "old.py").write_text("x = 1\n"),
            helpers.write_text("def masked(x): pass\n"),
        ),
    ):
        change()
        git("add", ".")
        git("commit", "-q", "-m", "a commit")
    return root


@pytest.mark.thorough
def test_commits_are_replayed_without_a_difference(
    attacks: Any, repository: Path, home: None
) -> None:
    git = attacks.relinted.git_folder_of(repository)
    try:
        assert list(attacks.relinted.replay(git, 2, 0, daemon=True)) == [""] * 6
    finally:
        attacks.relinted.end_daemons()


def test_a_run_that_fails_and_one_that_differs_are_told(attacks: Any) -> None:
    differs = attacks.relinted._difference
    assert differs("here", (0, b"{}", ""), (0, b"{}", "")) == ""
    assert differs("here", (0, b"{}", ""), (1, b"{}", "")).startswith("here: told something else")
    assert (
        differs("here", (2, b"", "no\n"), (2, b"", "no\n"))
        == "here: without a cache: ended with 2: no"
    )


@pytest.mark.thorough
def test_edits_change_nothing_but_what_they_change(
    attacks: Any, tmp_path: Path, home: None
) -> None:
    root = tmp_path / "project"
    attacks.cache_flips.write_project(root)
    assert list(attacks.relinted.edited(root, 30, 0)) == [""] * 30


def test_edits_that_are_not_seen_are_told(
    attacks: Any, tmp_path: Path, home: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    attacks.cache_flips.write_project(root)
    real = attacks.relinted.check
    first = real(attacks.relinted.Request((Path(),), root))
    stale = SimpleNamespace(report=first.report)
    monkeypatch.setattr(attacks.relinted, "check", lambda r: stale if r.cache else real(r))
    assert any(attacks.relinted.edited(root, 10, 0))


# -- the command -------------------------------------------------------------------------------------


def test_results_are_written_and_what_was_wrong_ends_with_1(
    attacks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(options: Any, tally: Any) -> None:
        """Something that breaks."""
        tally.add(["", "it broke"])

    def failing(options: Any, tally: Any) -> None:
        """Something that cannot attack."""
        raise OSError("no room")

    monkeypatch.setattr(attacks, "PARTS", {"broken": broken, "failing": failing})
    output = tmp_path / "attacks.json"
    assert attacks.main(["--output", str(output)]) == 1
    said = output.with_suffix(".md").read_text()
    assert "| Something that breaks | 2 | 1 |" in said and "- `it broke`" in said
    assert "the attack itself: OSError('no room')" in said
    assert attacks.main(["--only", "broken", "--number", "1"]) == 1


def test_only_a_whole_run_is_a_result(
    attacks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacks, "PARTS", {"fine": lambda options, tally: tally.add([""])})
    monkeypatch.setattr(attacks, "RESULTS", tmp_path)
    monkeypatch.setattr(attacks.PARTS["fine"], "__doc__", "Nothing.")
    assert attacks.main(["--number", "10"]) == 0
    assert not list(tmp_path.iterdir())
    assert attacks.main([]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["attacks.json", "attacks.md"]
