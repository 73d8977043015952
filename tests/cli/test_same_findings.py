"""The same findings with any number of processes, with a cold, warm or absent cache, after any change."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import A, B, Run, Write, command

BASES = "import torch\n\nclass Base({base}):\n    pass\n"
USER = (
    "import torch, inspect\nfrom bases import Base\n\nclass User(Base):\n"
    "    def forward(self, x: torch.Tensor):\n        return inspect.signature(x)\n"
)


def many(count: int) -> dict[str, str]:
    files = {f"lib/m{i}.py": A.replace("pkg.b", f"lib.h{i % 5}") for i in range(count)}
    files.update({f"lib/h{i}.py": B for i in range(5)})
    return {**files, "lib/__init__.py": "", "lib/broken.py": "def f(:\n", "pyproject.toml": ""}


def test_any_number_of_processes_cold_and_warm(write: Write, run: Run) -> None:
    root = write(many(40))
    one = run("check", "--jobs", "1", "--no-cache", "--format", "json")
    assert len(one.findings) > 80
    for words in (
        ("--jobs", "2", "--no-cache"),
        ("--jobs", "3"),
        ("--jobs", "1"),
        ("--jobs", "100000", "--no-cache"),
    ):
        assert run("check", *words, "--format", "json").out == one.out, words
    (root / ".dispatchguard").rename(root / ".gone")
    assert run("check", "lib", "--jobs", "2", "--format", "json").out == one.out


def test_a_changed_base_class_in_another_file_counts(write: Write, run: Run) -> None:
    root = write({"bases.py": BASES.format(base="object"), "user.py": USER, "pyproject.toml": ""})
    assert run("check").status == 0
    assert run("check").status == 0
    (root / "bases.py").write_text(BASES.format(base="torch.nn.Module"))
    assert run("check", "user.py", "--format", "json").places[0][:2] == ("user.py", 6)
    (root / "bases.py").write_text(BASES.format(base="object"))
    assert run("check").status == 0
    (root / "bases.py").unlink()
    assert run("check").out == run("check", "--no-cache").out


def test_changed_settings_count(write: Write, run: Run) -> None:
    text = (
        "from mine import Array, trees\n\ndef work(x: Array):\n"
        "    if x.any():\n        return x.item()\n    return trees.map_structure(abs, x)\n"
    )
    root = write({"a.py": text, "src/pkg/__init__.py": "", "src/pkg/a.py": text})
    lines = (
        "",
        'hot-roots = ["a.work"]',
        'hot-roots = ["a.work", "pkg.a.work"]',
        'hot-roots = ["a.work"]\ntensor-types = ["mine.Array"]',
        'hot-roots = ["a.work"]\ntensor-types = ["mine.Array"]\ntree-modules = ["mine.trees"]',
        'hot-roots = ["a.work"]\ntensor-types = ["mine.Array"]\ncold = ["a.*"]',
        'hot-roots = ["pkg.a.work"]\ntensor-types = ["mine.Array"]\nsrc = ["."]',
        'hot-roots = ["src.pkg.a.work"]\ntensor-types = ["mine.Array"]\nsrc = ["."]',
        (
            'hot-roots = ["a.work"]\ntensor-types = ["mine.Array"]\n[project]\nname = "a"\n'
            'requires-python = ">=3.12"\ndependencies = ["torch>=2.9"]'
        ),
    )
    seen = set()
    for settings in (*lines, *reversed(lines)):
        (root / "pyproject.toml").write_text(f"[tool.dispatchguard]\n{settings}\n")
        warm = run("check", "--format", "json", "--pedantic")
        assert warm.out == run("check", "--format", "json", "--pedantic", "--no-cache").out
        seen.add(warm.out)
    assert len(seen) >= 4


def test_relative_imports_follow_the_source_roots(write: Write, run: Run) -> None:
    root = write(
        {
            "src/pkg/__init__.py": "",
            "src/pkg/a.py": A.replace("pkg.b", ".b"),
            "src/pkg/b.py": B,
            "pyproject.toml": "[tool.dispatchguard]\n",
        }
    )
    for settings in ("", 'src = ["."]', 'src = ["src/pkg"]', ""):
        (root / "pyproject.toml").write_text(f"[tool.dispatchguard]\n{settings}\n")
        warm = run("check", "--format", "json")
        assert warm.out == run("check", "--format", "json", "--no-cache").out, settings


def test_two_runs_at_once_on_one_cache(write: Write, run: Run, tmp_path: Path) -> None:
    write(many(30))
    words = ("check", "--jobs", "1", "--format", "json")
    running = [
        subprocess.Popen(
            command(words, tmp_path), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(3)
    ]
    said = [r.communicate() for r in running]
    assert {out for out, _ in said} == {run(*words, "--no-cache").out.encode()}
    assert {err for _, err in said} == {b""}
    assert {r.returncode for r in running} == {1}
    assert run(*words).out.encode() == said[0][0]


# -- at random -------------------------------------------------------------------------------------

_BASES = ("torch.nn.Module", "object", "Layer", "Unknown")
_BODIES = (
    "        return x.sum().item()\n",
    "        if x.any():\n            return helper(x)\n        return x\n",
    "        return self.step(helper(x))\n",
    "        y = torch.zeros(3).to(x.device)\n        return helper(y)\n",
    "        # dispatchguard: ignore[DG4]\n        return float(x.sum())\n",
    "        return [float(helper(v)) for v in x]\n",
)
_HELPERS = (
    "def helper(x: torch.Tensor):\n    return x.max().item()\n",
    "def helper(x):\n    return x\n",
    (
        "def helper(x: torch.Tensor):\n    return inner(x)\n\ndef inner(x: torch.Tensor):\n"
        "    return x.tolist()\n"
    ),
    "# dispatchguard: cold\ndef helper(x: torch.Tensor):\n    return x.item()\n",
    "class Layer(torch.nn.Module):\n    pass\n\ndef helper(x):\n    return x\n",
    "from .m0 import helper\n",
    "def helper(:\n",
)


def _module(rng: random.Random, number: int) -> str:
    target = rng.randrange(4)
    lines = ["import torch\n", f"from p.m{target} import *\n" * (rng.random() < 0.2)]
    lines.append(f"from p.m{target} import helper, Layer\n" * (rng.random() < 0.7))
    lines.append("\n" * rng.randrange(3))
    lines.append(rng.choice(_HELPERS) * (rng.random() < 0.6))
    for name in range(rng.randrange(1, 3)):
        lines.append(f"\nclass C{number}{name}({rng.choice(_BASES)}):\n")
        lines.append("    def forward(self, x: torch.Tensor):\n" + rng.choice(_BODIES))
        lines.append("    def step(self, x):\n" + rng.choice(_BODIES))
    return "".join(lines)


def _edit(rng: random.Random, root: Path) -> str:
    """Changes one thing of the project; says what."""
    path = root / "p" / f"m{rng.randrange(4)}.py"
    what = rng.randrange(8)
    if what == 0 and path.exists():
        path.unlink()
        return f"unlink {path.name}"
    if what == 1:
        settings = rng.choice(
            [
                "",
                'hot-roots = ["p.m1.helper"]',
                'cold = ["p.m2.*"]',
                'ignore = ["DG411"]',
                'src = ["p"]',
            ]
        )
        (root / "pyproject.toml").write_text(f"[tool.dispatchguard]\n{settings}\n")
        return f"settings {settings}"
    if what == 2 and path.exists():
        path.write_text("# moved\n" * rng.randrange(1, 4) + path.read_text())
        return f"move lines of {path.name}"
    if what == 3 and path.exists():
        path.write_text(path.read_text().replace("\n\n", "\n", 1))
        return f"drop a line of {path.name}"
    path.write_text(_module(rng, rng.randrange(4)))
    return f"write {path.name}"


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (2, 3))]
)
def test_a_warm_run_says_what_a_run_without_cache_says(write: Write, run: Run, seed: int) -> None:
    rng = random.Random(seed)
    root = write({"p/__init__.py": "", "pyproject.toml": "", "p/m0.py": _module(rng, 0)})
    done: list[str] = []
    found = 0
    for _ in range(14):
        done.append(_edit(rng, root))
        words: list[str | Path] = ["check", "--format", "json", "--jobs", "1"]
        if rng.random() < 0.3:
            words += rng.sample(sorted((root / "p").glob("*.py")), 1)
        warm = run(*words)
        assert warm.status in (0, 1), (done, warm)
        cold = run(*words, "--no-cache")
        assert warm.out == cold.out, done
        assert run(*words).out == warm.out, done
        assert run("hot").out == run("hot", "--no-cache").out
        found += len(warm.findings)
    assert found


def test_the_cache_does_not_grow_without_end(write: Write, run: Run) -> None:
    import sqlite3

    from pytest_dispatchguard.lint.store import cache

    root = write({"a.py": A})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "KEPT_LEAST", 3)
        for i in range(20):
            (root / "a.py").write_text(A.replace("Gate", f"Gate{i}"))
            run("check")
    connection = sqlite3.connect(root / ".dispatchguard" / "cache.sqlite")
    counts = dict(connection.execute("SELECT namespace, count(*) FROM rows GROUP BY namespace"))
    connection.close()
    assert max(counts[n] for n in ("scouted", "facts", "judged")) <= 7


Change = Callable[[bytes], bytes]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"",
        lambda data: b"no database at all, but in its place",
        lambda data: data[:200],
        lambda data: data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
        lambda data: data[:4096] + b"\xff" * (len(data) - 4096),
        lambda data: data.replace(b'"', b"'"),
    ],
    ids=["empty", "text", "cut", "zeroed", "overwritten", "rows of nonsense"],
)
def test_a_corrupt_cache_costs_only_time(project: Path, run: Run, change: Change) -> None:
    good = run("check", "--format", "json")
    cache = project / ".dispatchguard" / "cache.sqlite"
    cache.write_bytes(change(cache.read_bytes()))
    for _ in range(3):
        done = run("check", "--format", "json")
        assert (done.status, done.findings) == (good.status, good.findings)
        assert len(done.err.splitlines()) <= 1


def test_a_foreign_database_is_left_alone(project: Path, run: Run) -> None:
    import sqlite3

    cache = project / ".dispatchguard" / "cache.sqlite"
    cache.parent.mkdir()
    connection = sqlite3.connect(cache)
    connection.execute("CREATE TABLE mine (x)")
    connection.commit()
    connection.close()
    before = cache.read_bytes()
    done = run("check")
    assert done.status == 1
    assert "not a dispatchguard cache" in done.out
    assert cache.read_bytes() == before
    assert run("clean").status == 2


def test_a_cache_folder_that_cannot_be_made_is_no_matter(project: Path, run: Run) -> None:
    (project / ".dispatchguard").write_text("a file in its place")
    assert run("check").status == 1
