"""A project kept in memory: it tells what a run over the same texts tells, and does little twice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pytest_dispatchguard.lint import resident as resident_module
from pytest_dispatchguard.lint.check import check
from pytest_dispatchguard.lint.judge.catalog import Catalog
from pytest_dispatchguard.lint.pipeline import judge_files, survey
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.lint.resident import Resident, Solved, Told, resident_around
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.findings import Finding

MODEL = """\
import os

import torch

from pkg.ops import helper, other


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        if os.environ.get("GATE"):
            x = helper(x)
        return x

    def setup(self, x: torch.Tensor):
        return other(x)
"""
OPS = """\
import inspect

import torch


def helper(x: torch.Tensor):
    mask = torch.zeros(3).to(x.device)
    return x * mask


def other(x: torch.Tensor):
    return inspect.signature(x)
"""
FILES = {
    "pyproject.toml": "[tool.dispatchguard]\n",
    "pkg/__init__.py": "",
    "pkg/model.py": MODEL,
    "pkg/ops.py": OPS,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for rel, text in FILES.items():
        write(tmp_path / rel, text)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


@pytest.fixture
def resident(root: Path) -> Iterator[Resident]:
    made = resident_around(root / "pkg/model.py")
    yield made
    made.close()


def checked(root: Path, *rels: str, **settings: object) -> list[Finding]:
    """What a run says that knows nothing of before."""
    request = Request(tuple(root / rel for rel in rels), root, cache=False, settings=settings)
    return list(check(request).report.findings)


def codes(told: Told) -> list[tuple[str, int]]:
    return [(f.code, f.span.line) for f in told.findings]


def solved(resident: Resident, texts: Mapping[str, str]) -> Solved:
    unsolved = resident.unsolved(texts)
    assert unsolved is not None
    return unsolved.solved()


def test_it_tells_what_a_run_tells(root: Path, resident: Resident) -> None:
    found = [f for rel in ("pkg/model.py", "pkg/ops.py") for f in resident.check(rel, {}).findings]
    assert found == checked(root)
    assert {f.path for f in found} == {"pkg/model.py", "pkg/ops.py"}
    assert all(f.hot is not None for f in found)
    assert any(f.price is not None for f in found)


def test_what_is_typed_counts_in_all_files(resident: Resident) -> None:
    assert (
        codes(resident.check("pkg/ops.py", {"pkg/model.py": MODEL.replace("helper(x)", "x")})) == []
    )
    both = MODEL.replace("return x\n", "return other(x)\n", 1)
    assert codes(resident.check("pkg/ops.py", {"pkg/model.py": both})) == [
        ("DG504", 7),
        ("DG601", 12),
    ]
    assert codes(resident.check("pkg/ops.py", {})) == [("DG504", 7)]


def test_texts_that_no_file_can_hold_are_judged(resident: Resident) -> None:
    text = OPS.replace("return x * mask", 'return x * mask, "a\udfff" + str(x.item())')
    told = resident.check("pkg/ops.py", {"pkg/ops.py": text})
    assert told.problems == ()
    assert ("DG411", 8) in codes(told)
    assert any("a\udfff" in (f.source or "") for f in told.findings)


def test_hotness_may_come_later(resident: Resident) -> None:
    texts = {"pkg/ops.py": OPS, "pkg/model.py": MODEL}
    before = resident.check("pkg/ops.py", texts)
    texts["pkg/model.py"] = MODEL.replace("return x\n", "return other(x)\n", 1)
    early = resident.check("pkg/ops.py", texts, wait=False)
    assert (early.findings, early.settled) == (before.findings, False)
    resident.accept(solved(resident, texts))
    late = resident.check("pkg/ops.py", texts, wait=False)
    assert late.settled
    assert codes(late) == [("DG504", 7), ("DG601", 12)]
    assert resident.unsolved(texts) is None


def test_typing_in_a_function_asks_for_no_hotness(
    resident: Resident, monkeypatch: pytest.MonkeyPatch
) -> None:
    resident.check("pkg/model.py", {"pkg/model.py": MODEL})
    monkeypatch.setattr(resident_module, "solved_briefs", never)
    text = MODEL.replace("GATE", "WAY").replace("import torch\n", "import torch\n\n")
    told = resident.check("pkg/model.py", {"pkg/model.py": text}, wait=False)
    assert told.settled
    assert codes(told) == [("DG603", 11)]


def test_what_did_not_change_is_not_read_or_judged_again(
    resident: Resident, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"pkg/model.py": MODEL.replace("GATE", "WAY"), "pkg/ops.py": OPS}
    first = resident.check("pkg/model.py", texts)
    monkeypatch.setattr(survey, "_scan", never)
    monkeypatch.setattr(judge_files, "_judge_one", never)
    assert resident.check("pkg/model.py", texts) == first


def never(*_: object, **__: object) -> None:
    raise AssertionError("done again")


def test_undoing_needs_no_hotness(resident: Resident, monkeypatch: pytest.MonkeyPatch) -> None:
    more = MODEL.replace("return x\n", "return other(x)\n", 1)
    first = resident.check("pkg/model.py", {"pkg/model.py": MODEL})
    resident.check("pkg/model.py", {"pkg/model.py": more})
    monkeypatch.setattr(resident_module, "solved_briefs", never)
    assert resident.check("pkg/model.py", {"pkg/model.py": MODEL}, wait=False) == first


def test_broken_while_it_is_typed(root: Path, resident: Resident) -> None:
    resident.check("pkg/ops.py", {})
    broken = MODEL.replace("helper(x)", "helper(x")
    told = resident.check("pkg/model.py", {"pkg/model.py": broken}, wait=False)
    assert [code for code, _ in codes(told)] == ["DG001"]
    assert told.settled
    # The other files keep what they had from the file as it was …
    assert codes(resident.check("pkg/ops.py", {"pkg/model.py": broken})) == [("DG504", 7)]
    # … until it is saved as it is.
    write(root / "pkg/model.py", broken)
    resident.refresh()
    assert list(resident.check("pkg/ops.py", {"pkg/model.py": broken}).findings) == checked(
        root, "pkg/ops.py"
    )
    assert resident.check("pkg/ops.py", {"pkg/model.py": broken}).findings == ()


def test_files_that_are_not_there(root: Path, resident: Resident) -> None:
    new = "import torch\n\nfrom pkg.ops import other\n\n\nclass M(torch.nn.Module):\n"
    new += "    def forward(self, x: torch.Tensor):\n        return other(x)\n"
    texts = {"pkg/new.py": new}
    assert codes(resident.check("pkg/ops.py", texts)) == [("DG504", 7), ("DG601", 12)]
    assert resident.check("pkg/gone.py", {}).findings == ()
    assert resident.check("pkg/new.py", texts).settled
    (root / "pkg/model.py").unlink()
    resident.refresh()
    kept = {"pkg/model.py": MODEL}
    assert codes(resident.check("pkg/model.py", kept)) == [("DG603", 10)]
    assert codes(resident.check("pkg/ops.py", kept)) == [("DG504", 7)]
    assert resident.check("pkg/ops.py", {}).findings == ()


def test_a_file_of_no_project(tmp_path: Path) -> None:
    path = tmp_path / "lone" / "a.py"
    text = "import inspect\n\nimport torch\n\nclass M(torch.nn.Module):\n"
    text += "    def forward(self, x: torch.Tensor):\n"
    write(path, text + "        return inspect.signature(x)\n")
    made = resident_around(path)
    assert codes(made.check(made.rel(path), {})) == [("DG601", 7)]
    assert not (path.parent / ".dispatchguard").exists()
    other = path.with_name("b.py")
    assert codes(made.check(made.rel(other), {made.rel(other): path.read_text()})) == [("DG601", 7)]
    made.close()


def test_settings_speak(root: Path) -> None:
    write(
        root / "pyproject.toml",
        '[tool.dispatchguard]\nexclude = ["pkg/ops.py"]\npedantic = true\nbaseline = "base.json"\n',
    )
    run = Request((root / "pkg/model.py",), root, cache=False, write_baseline=True)
    check(run)
    made = resident_around(root / "pkg/model.py")
    assert made.check("pkg/ops.py", {"pkg/ops.py": OPS}).findings == ()
    assert made.check("pkg/model.py", {}).findings == ()
    more = MODEL.replace("return x\n", "return os.getenv('B')\n", 1)
    assert codes(made.check("pkg/model.py", {"pkg/model.py": more})) == [("DG603", 12)]
    write(root / "base.json", "nonsense")
    made.refresh()
    (said,) = made.complaints
    assert "base.json" in said
    assert codes(made.check("pkg/model.py", {"pkg/model.py": more})) == [("DG603", 12)]
    made.close()


def test_a_broken_configuration_is_an_error_of_the_user(root: Path) -> None:
    write(root / "pyproject.toml", "[tool.dispatchguard]\nselct = []\n")
    with pytest.raises(UserError, match="selct"):
        resident_around(root / "pkg/model.py")


def test_a_cache_that_another_process_empties(root: Path) -> None:
    with_cache = Request((root,), root)
    check(with_cache)
    made = resident_around(root / "pkg/model.py")
    made.refresh()
    from pytest_dispatchguard.lint.store.cache import cache_path, clean

    assert clean(root)
    assert not cache_path(root).exists()
    write(root / "pkg/ops.py", OPS.replace("mask = ", "mask_ = mask = "))
    made.refresh()
    assert list(made.check("pkg/ops.py", {}).findings) == checked(root, "pkg/ops.py")
    made.close()


def test_fixes_are_those_of_the_command(root: Path, resident: Resident) -> None:
    text = "import os\n\nimport torch\n\n\nclass M(torch.nn.Module):\n"
    text += "    def forward(self, x: torch.Tensor):\n"
    text += "        for layer in self.layers[:2]:\n            x = layer(x)\n"
    text += "        mask = torch.zeros(3).to(x.device)  # ä\n        return x * mask\n"
    text += "    def __init__(self):\n        super().__init__()\n"
    text += "        self.layers = torch.nn.ModuleList()\n"
    texts = {"pkg/fix.py": text}
    fixed = resident.fixed("pkg/fix.py", texts)
    write(root / "pkg/fix.py", text)
    check(Request((root / "pkg/fix.py",), root, cache=False, fix="safe"))
    assert fixed is not None
    assert fixed != text
    assert fixed.encode() == (root / "pkg/fix.py").read_bytes()
    assert resident.fixed("pkg/fix.py", {"pkg/fix.py": fixed}) is None
    # Asking for fixes changes nothing of what is told.
    assert [code for code, _ in codes(resident.check("pkg/fix.py", texts))] == ["DG609", "DG504"]


# -- any edits --------------------------------------------------------------------------------------

LINES = (
    "        x = helper(x)\n",
    "        x = other(x)\n",
    "        x = self.setup(x)\n",
    "        os.environ.get('B')\n",
    "        inspect.signature(x)\n",
    "        y = 1\n",
    "        mask = torch.zeros(3).to(x.device)  # dispatchguard: ignore[DG504]\n",
    "        z = 2  # dispatchguard: ignore\n",
    "    def more(self, x: torch.Tensor):  # dispatchguard: hot\n        return other(x)\n",
    "        )\n",
    "\n",
    "# é comment\n",
)
OPS_LINES = (
    "    x = other(x)\n",
    "    inspect.signature(x)\n",
    "\n",
    "def third(x: torch.Tensor):\n    return inspect.signature(x)\n\n",
    "    )\n",
    "# dispatchguard: ignore-file[DG504]\n",
    "    z = 2\n",
)


def edited(rng: random.Random, rel: str, text: str) -> str:
    """The text with a line more, a line less, or as it was at first."""
    lines = text.splitlines(keepends=True)
    at = rng.randrange(len(lines) + 1)
    what = rng.random()
    if what < 0.15 or not lines:
        return FILES[rel]
    if what < 0.35 and at < len(lines):
        del lines[at]
    else:
        lines.insert(at, rng.choice(LINES if rel.endswith("model.py") else OPS_LINES))
    return "".join(lines)


@pytest.mark.parametrize("seed", range(4))
def test_after_any_edits_it_tells_what_a_run_tells(
    root: Path, resident: Resident, seed: int
) -> None:
    rng = random.Random(seed)
    now = {rel: text for rel, text in FILES.items() if rel.endswith(("model.py", "ops.py"))}
    met: set[str] = set()
    for _ in range(25):
        rel = rng.choice(sorted(now))
        for _ in range(rng.randrange(1, 3)):
            now[rel] = edited(rng, rel, now[rel])
            # As it is typed.
            told = resident.check(rel, dict(now), wait=rng.random() < 0.5)
            assert told.text == now[rel]
            if not told.settled and rng.random() < 0.5:
                resident.accept(solved(resident, dict(now)))
        write(root / rel, now[rel])
        resident.refresh()
        opened = {r: text for r, text in now.items() if rng.random() < 0.7}
        found = [f for r in sorted(now) for f in resident.check(r, opened).findings]
        assert found == checked(root)
        met.update(f.code for f in found)
    assert {"DG001", "DG504"} <= met


def test_any_fixable_specimen_is_fixed_as_by_the_command(
    root: Path, resident: Resident, rules: Catalog
) -> None:
    fixtures = Path(__file__).resolve().parents[2] / "fixtures"
    fixable = [info.code for info in rules.infos if info.fix == "safe"]
    paths = [path for code in fixable for path in sorted(fixtures.glob(f"{code}/specimen*.py"))]
    made = 0
    for path in paths[::4]:
        rel = f"pkg/{path.parent.name.lower()}_{path.name}"
        text = path.read_bytes().decode()
        write(root / rel, text)
        resident.refresh()
        fixed = resident.fixed(rel, {rel: text})
        check(Request((root / rel,), root, cache=False, fix="safe"))
        assert (text if fixed is None else fixed).encode() == (root / rel).read_bytes()
        made += fixed is not None
        (root / rel).unlink()
    assert made > 0
