"""What keeps old findings out of the way: baselines, and `--diff-base` in a real git repository."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .conftest import A, B, Run, Write, one_line
from .test_fixes import BAD, GOOD, HEAD


def git(folder: Path, *words: str) -> None:
    names = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(project: Path) -> Path:
    git(project, "init", "-q", "-b", "main")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "all")
    return project


# -- baseline --------------------------------------------------------------------------------------


def test_a_baseline_accepts_what_is_there_and_shows_what_comes(project: Path, run: Run) -> None:
    made = run("check", "--baseline", "b.json", "--write-baseline")
    assert made.status == 0
    assert "3 findings accepted into b.json" in made.out
    assert run("check", "--baseline", "b.json").status == 0
    (project / "pkg" / "b.py").write_text(B.replace("\n\ndef helper", "\n# moved\n\n\ndef helper"))
    assert run("check", "--baseline", "b.json").status == 0
    (project / "pyproject.toml").write_text('[tool.dispatchguard]\nbaseline = "b.json"\n')
    (project / "pkg" / "b.py").write_text(
        B.replace("    return", "    y = inspect.signature(x.max)\n    return y,")
    )
    done = run("check", "--format", "json")
    assert done.status == 1
    assert ("pkg/b.py", 5) in [(p, line) for p, line, _ in done.places]


def test_what_no_longer_matches_is_told_and_pruned(project: Path, run: Run) -> None:
    run("check", "--baseline", "b.json", "--write-baseline")
    (project / "pkg" / "b.py").write_text("def helper(x):\n    return x\n")
    done = run("check", "--baseline", "b.json")
    assert done.status == 0
    assert "no longer matches anything" in done.out
    assert "--prune-baseline" in done.out
    pruned = run("check", "--baseline", "b.json", "--prune-baseline")
    assert "1 entries pruned" in pruned.out or "1 entry pruned" in pruned.out
    assert "pkg/b.py" not in (project / "b.json").read_text()
    assert "note" not in run("check", "--baseline", "b.json").out


def test_only_what_was_looked_at_can_be_stale(project: Path, run: Run) -> None:
    run("check", "--baseline", "b.json", "--write-baseline")
    for words in (["pkg/b.py"], ["--select", "DG1"], ["--jobs", "1"]):
        done = run("check", "--baseline", "b.json", *words)
        assert "no longer matches" not in done.out, words


def test_maybes_keep_their_entries_when_they_are_not_shown(write: Write, run: Run) -> None:
    root = write(
        {
            "a.py": "import pandas\nimport torch\n\ndef f(x, o):  # dispatchguard: hot\n"
            "    return pandas.Series(o).item()\n"
        }
    )
    run("check", "--pedantic", "--baseline", "b.json", "--write-baseline")
    before = (root / "b.json").read_text()
    assert "a.py" in before
    done = run("check", "--baseline", "b.json", "--prune-baseline", "--format", "json")
    assert (root / "b.json").read_text() == before
    assert json.loads(done.out)["summary"]["baselined"] == 0


def test_accepted_maybes_stay_accepted_when_they_are_not_shown(write: Write, run: Run) -> None:
    head = "import pandas\nimport torch\n\ndef f(x, o):  # dispatchguard: hot\n"
    root = write({"a.py": head + "    return pandas.Series(o).item()\n"})
    run("check", "--pedantic", "--baseline", "b.json", "--write-baseline")
    before = (root / "b.json").read_text()
    write({"b.py": head.replace("f(", "g(") + "    return pandas.Index(o).item()\n"})
    run("check", "--baseline", "b.json", "--write-baseline")
    assert (root / "b.json").read_text() == before
    write({"a.py": "x = 1\n"})
    run("check", "--baseline", "b.json", "--write-baseline")
    assert "a.py" not in (root / "b.json").read_text()


def test_writing_for_some_codes_keeps_the_entries_of_others(project: Path, run: Run) -> None:
    run("check", "--baseline", "b.json", "--write-baseline")
    whole = (project / "b.json").read_text()
    assert '"DG6' in whole
    run("check", "--select", "DG4", "--baseline", "b.json", "--write-baseline")
    assert (project / "b.json").read_text() == whole


def test_writing_for_some_paths_keeps_the_entries_of_others(project: Path, run: Run) -> None:
    run("check", "--baseline", "b.json", "--write-baseline")
    whole = (project / "b.json").read_text()
    run("check", "pkg/b.py", "--baseline", "b.json", "--write-baseline")
    assert (project / "b.json").read_text() == whole
    (project / "pkg" / "a.py").unlink()
    run("check", "pkg/b.py", "--baseline", "b.json", "--write-baseline")
    assert "pkg/a.py" not in (project / "b.json").read_text()


def test_a_baseline_that_is_none_is_one_line(project: Path, run: Run) -> None:
    (project / "b.json").write_text('{"tool": "dispatchguard", ]')
    assert "not valid JSON" in one_line(run("check", "--baseline", "b.json"))
    assert run("check", "--baseline", "b.json", "--write-baseline").status == 0
    assert run("check", "--baseline", "b.json").status == 0


def test_no_other_file_is_written_over(project: Path, run: Run) -> None:
    (project / "README.md").write_text("# Read me\n")
    line = one_line(run("check", "--baseline", "README.md", "--write-baseline"))
    assert "README.md: not a dispatchguard baseline" in line
    assert "name another file" in line
    assert (project / "README.md").read_text() == "# Read me\n"


def test_a_file_that_does_not_parse_is_never_accepted(project: Path, run: Run) -> None:
    (project / "pkg" / "bad.py").write_text("x = (\n")
    for _ in range(2):
        made = run("check", "--baseline", "b.json", "--write-baseline", "--format", "json")
        assert (made.status, [f["code"] for f in made.findings]) == (1, ["DG001"])
        assert "DG001" not in (project / "b.json").read_text()
        assert "3 findings accepted" in made.out
    text = (project / "b.json").read_text()
    old = '{"path": "pkg/bad.py", "code": "DG001", "function": "", "count": 1, "text": "", "hash": "%s"},'
    digest = "e3b0c44298fc1c14"  # of an empty line, as DG001 has it
    (project / "b.json").write_text(text.replace("[\n", "[\n    " + old % digest + "\n", 1))
    done = run("check", "--baseline", "b.json", "--format", "json")
    assert (done.status, [f["code"] for f in done.findings]) == (1, ["DG001"])


@pytest.mark.parametrize("way", ["--write-baseline", "--prune-baseline"])
def test_what_could_not_be_read_keeps_its_entries(project: Path, run: Run, way: str) -> None:
    run("check", "--baseline", "b.json", "--write-baseline")
    whole = (project / "b.json").read_text()
    (project / "pkg" / "b.py").write_text(B + "x = (\n")
    assert "no longer matches" not in run("check", "--baseline", "b.json").out
    for more in ([], ["--ignore", "DG001"]):
        done = run("check", "--baseline", "b.json", way, *more)
        assert done.status == (0 if more else 1)
        assert (project / "b.json").read_text() == whole
    (project / "pkg" / "b.py").write_text(B)
    assert run("check", "--baseline", "b.json").status == 0


def test_a_function_that_cannot_be_read_keeps_the_entries_of_its_file(
    project: Path, run: Run
) -> None:
    run("check", "--baseline", "b.json", "--write-baseline")
    whole = (project / "b.json").read_text()
    (project / "pkg" / "b.py").write_text(
        B.replace("return", f"y = x{'.real' * 60_000}\n    return")
    )
    run("check", "--baseline", "b.json", "--write-baseline")
    assert (project / "b.json").read_text() == whole


@pytest.mark.parametrize("way", ["--write-baseline", "--prune-baseline"])
def test_a_rule_that_fails_leaves_the_baseline_as_it_was(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    from pytest_dispatchguard.lint.judge import judge, packs

    run("check", "--baseline", "b.json", "--write-baseline")
    whole = (project / "b.json").read_text()

    def fail(*_: object) -> None:
        raise ZeroDivisionError("no")

    for rule in packs.load().rules:
        if rule.code == "DG601":
            monkeypatch.setattr(type(rule), "judge", fail)
    judge.bench.cache_clear()
    words = ("check", "--baseline", "b.json", "--no-cache", "--jobs", "1")
    done = run(*words, way)
    assert done.status == 2
    assert "DG601 failed" in done.err
    assert "b.json: left unchanged, because not everything could be checked" in done.err
    assert (project / "b.json").read_text() == whole
    assert "no longer matches" not in run(*words).out


# -- changed lines ---------------------------------------------------------------------------------


def test_only_changed_lines_and_untracked_files_speak(repository: Path, run: Run) -> None:
    assert run("check", "--diff-base", "HEAD").status == 0
    (repository / "pkg" / "b.py").write_text(
        B.replace("inspect.signature(x)", "inspect.signature(x.max)")
    )
    (repository / "pkg" / "c.py").write_text(A.replace("Gate", "Other"))
    done = run("check", "--diff-base", "HEAD", "--format", "json")
    assert done.status == 1
    assert [(p, line) for p, line, _ in done.places] == [
        ("pkg/b.py", 5),
        ("pkg/c.py", 8),
        ("pkg/c.py", 10),
    ]
    below = run("check", "--diff-base", "HEAD", "--format", "json", cwd=repository / "pkg")
    assert below.out == done.out


def test_the_merge_base_counts_not_the_tip(repository: Path, run: Run) -> None:
    git(repository, "checkout", "-q", "-b", "topic")
    git(repository, "checkout", "-q", "main")
    (repository / "pkg" / "b.py").write_text("import torch\n")
    git(repository, "commit", "-q", "-am", "main goes on")
    git(repository, "checkout", "-q", "topic")
    assert run("check", "--diff-base", "main").status == 0


def test_an_unknown_revision_is_one_line(repository: Path, run: Run) -> None:
    assert 'git knows no revision "nope"' in one_line(run("check", "--diff-base", "nope"))


def test_fix_touches_changed_lines_only_also_when_lines_move(repository: Path, run: Run) -> None:
    path = repository / "pkg" / "m.py"
    other = BAD.replace("a =", "b =")
    path.write_text(
        HEAD + "        x = x + 1  # dispatchguard: ignore\n" + BAD + "        return a\n"
    )
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "m")
    text = (
        HEAD
        + "        # dispatchguard: ignore[DG999]\n        # dispatchguard: ignore[DG401]\n"
        + "        x = x + 1  # dispatchguard: ignore\n"
        + BAD
        + "        return a\n"
        + HEAD.replace("import inspect, torch\n", "").replace("M(", "N(")
        + other
        + "        return b\n"
    )
    path.write_text(text)
    done = run("check", "pkg/m.py", "--diff-base", "HEAD", "--fix", "--format", "json")
    now = path.read_text()
    assert BAD in now
    assert "# dispatchguard: ignore\n" in now
    assert other not in now
    assert "ignore[DG401]" not in now
    assert GOOD.replace("a =", "b =") in now
    assert {line for _, line, _ in done.places} <= {6}


def test_a_baseline_is_not_stale_because_of_unchanged_lines(repository: Path, run: Run) -> None:
    run("check", "--baseline", "b.json", "--write-baseline")
    done = run("check", "--baseline", "b.json", "--diff-base", "HEAD")
    assert done.status == 0
    assert "no longer matches" not in done.out


def test_standard_input_is_held_against_the_revision(repository: Path, start: Run) -> None:
    words = (
        "check",
        "-",
        "--stdin-filename",
        "pkg/a.py",
        "--diff-base",
        "HEAD",
        "--format",
        "json",
    )
    text = "# new\n\n" + A.replace('"GATE"', '"OTHER"')
    done = start(*words, stdin=text.encode())
    assert [line for _, line, _ in done.places] == [10]
    assert start(*words, stdin=A.encode()).status == 0


# -- what a change makes hot elsewhere -------------------------------------------------------------

CALLS_COLD = A.replace("import helper", "import cold, helper").replace(
    "        return x * mask", "        return cold(x) * mask"
)


def test_a_new_call_is_told_what_it_makes_hot(repository: Path, run: Run) -> None:
    (repository / "pkg" / "a.py").write_text(CALLS_COLD)
    done = run("check", "--diff-base", "main", "--format", "json")
    (found,) = done.findings
    assert (found["path"], found["line"], found["code"]) == ("pkg/a.py", 11, "DG601")
    line = CALLS_COLD.splitlines()[10]
    assert line[found["column"] - 1 : found["end_column"] - 1] == "cold"
    assert found["function"] == "Gate.forward"
    assert found["message"].startswith("makes `cold` hot, where pkg/b.py:9 has: ")
    assert found["fix"] is None
    assert found["elsewhere"]["path"] == "pkg/b.py"
    assert (found["elsewhere"]["line"], found["elsewhere"]["function"]) == (9, "cold")
    # A hook is given the changed files alone; what they make hot may be in others.
    alone = run("check", "--diff-base", "main", "--format", "json", "pkg/a.py")
    assert alone.findings == [found]
    # It is no news where the new call is not asked for.
    assert run("check", "--diff-base", "main", "pkg/b.py").status == 0


def test_a_call_more_of_what_was_hot_is_no_news(repository: Path, run: Run) -> None:
    more = A.replace("        return x * mask", "        return helper(x) * mask")
    (repository / "pkg" / "a.py").write_text(more)
    assert run("check", "--diff-base", "main").status == 0


def test_a_new_call_in_a_new_function_leads_on(repository: Path, run: Run) -> None:
    way = CALLS_COLD.replace("cold(x)", "between(x)").replace("cold, ", "") + (
        "\n\ndef between(x):\n    from pkg.b import cold\n\n    return cold(x)\n"
    )
    (repository / "pkg" / "a.py").write_text(way)
    done = run("check", "--diff-base", "main", "--format", "json", "--select", "DG601")
    (found,) = done.findings
    # The first of the two new calls is the one that made both hot.
    assert (found["path"], found["line"]) == ("pkg/a.py", 11)


def test_a_class_that_becomes_a_module_is_told_what_that_makes_hot(
    repository: Path, run: Run
) -> None:
    plain = (
        "import inspect\n\nfrom torch import nn\n\n\nclass Plain{}:\n    def forward(self, x):\n"
    )
    body = "        return inspect.signature(x)\n"
    (repository / "pkg" / "c.py").write_text(plain.format("") + body)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "plain")
    assert run("check", "pkg/c.py").status == 0
    (repository / "pkg" / "c.py").write_text(plain.format("(nn.Module)") + body)
    done = run("check", "--diff-base", "main", "--format", "json")
    (found,) = done.findings
    assert (found["path"], found["line"], found["code"]) == ("pkg/c.py", 6, "DG601")
    assert found["elsewhere"]["line"] == 8


def test_a_file_that_only_moved_makes_nothing_hot(repository: Path, run: Run) -> None:
    git(repository, "mv", "pkg/b.py", "pkg/moved.py")
    (repository / "pkg" / "a.py").write_text(A.replace("pkg.b", "pkg.moved"))
    assert run("check", "--diff-base", "main").status == 0


def test_what_a_change_makes_hot_can_be_accepted_and_silenced(repository: Path, run: Run) -> None:
    (repository / "pkg" / "a.py").write_text(CALLS_COLD)
    run("check", "--baseline", "b.json", "--write-baseline")
    words = ("check", "--diff-base", "main", "pkg/a.py")
    assert run(*words).status == 1
    assert run(*words, "--baseline", "b.json").status == 0
    silent = B.replace("(x)\n\n\ndef cold", "(x)\n\n\ndef cold").rstrip("\n")
    (repository / "pkg" / "b.py").write_text(silent + "  # dispatchguard: ignore[DG601] -- rare\n")
    assert run(*words).status == 0


def test_removed_and_broken_files_make_nothing_hot(repository: Path, run: Run) -> None:
    (repository / "pkg" / "old.py").write_text("def f(:\n")
    (repository / "pkg" / "gone.py").write_text("def g(x):\n    return x\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "more")
    (repository / "pkg" / "gone.py").unlink()
    (repository / "pkg" / "old.py").write_text("def f():\n    return 1\n")
    assert run("check", "--diff-base", "main").status == 0


def test_what_only_has_a_new_name_is_no_news(repository: Path, run: Run) -> None:
    renamed = A.replace("class Gate", "class Door").replace("helper", "assistant")
    (repository / "pkg" / "a.py").write_text(renamed)
    (repository / "pkg" / "b.py").write_text(B.replace("def helper", "def assistant"))
    assert run("check", "--diff-base", "main").status == 0
    # But a function that is hot since then is news under any name.
    more = renamed.replace("import assistant", "import assistant, icy").replace(
        "return x * mask", "return icy(x) * mask"
    )
    (repository / "pkg" / "a.py").write_text(more)
    (repository / "pkg" / "b.py").write_text(
        B.replace("def helper", "def assistant").replace("def cold", "def icy")
    )
    done = run("check", "--diff-base", "main", "--format", "json")
    assert [(f["path"], f["line"]) for f in done.findings] == [("pkg/a.py", 11)]
