"""`--fix` and `--diff`: what is changed, what is left alone to the byte, and what is told afterwards."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_dispatchguard.lint import check as checking

from .conftest import A, Run, Write

FIXED = A.replace("torch.zeros(3).to(x.device)", "torch.zeros(3, device=x.device)")

HEAD = "import inspect, torch\n\n\nclass M(torch.nn.Module):\n    def forward(self, x: torch.Tensor):\n"
BAD = "        a = torch.zeros(3).to(x.device)\n"
GOOD = "        a = torch.zeros(3, device=x.device)\n"


def test_fix_changes_the_file_and_reports_what_remains(project: Path, run: Run) -> None:
    done = run("check", "--fix", "--format", "json")
    assert done.status == 1
    assert (project / "pkg" / "a.py").read_text() == FIXED
    assert [(p, line) for p, line, _ in done.places] == [("pkg/a.py", 8), ("pkg/b.py", 5)]
    assert json.loads(done.out)["summary"]["fixed"] == 1
    again = run("check", "--fix", "--format", "json")
    assert again.findings == done.findings
    assert json.loads(again.out)["summary"]["fixed"] == 0


def test_fix_that_leaves_nothing_is_clean(write: Write, run: Run) -> None:
    root = write({"a.py": HEAD + BAD + "        return a\n"})
    assert run("check", "--fix").status == 0
    assert (root / "a.py").read_text() == HEAD + GOOD + "        return a\n"


def test_diff_changes_nothing_and_is_status_1_when_not_empty(project: Path, run: Run) -> None:
    done = run("check", "--diff")
    assert done.status == 1
    assert re.match(
        r"# pkg/a\.py:10:16 DG\d+ \[\*\] .*\n--- a/pkg/a\.py\n\+\+\+ b/pkg/a\.py\n", done.out
    )
    assert "+        mask = torch.zeros(3, device=x.device)  # the mask\n" in done.out
    assert (project / "pkg" / "a.py").read_text() == A
    run("check", "--fix")
    empty = run("check", "--diff")
    assert (empty.status, empty.out) == (0, "")
    assert run("check", "--diff", "--output", "d.patch").status == 0
    assert (project / "d.patch").read_text() == ""


def test_fix_respects_selection_suppressions_and_per_file_ignores(write: Write, run: Run) -> None:
    root = write({"a.py": HEAD + BAD + "        return a\n"})
    ((_, _, code),) = run("check", "--format", "json").places
    other = "DG4" if not code.startswith("DG4") else "DG5"
    before = (root / "a.py").read_text()
    assert run("check", "--fix", "--select", other).status == 0
    assert run("check", "--fix", "--ignore", code).status == 0
    assert (root / "a.py").read_text() == before
    write({"pyproject.toml": f'[tool.dispatchguard.per-file-ignores]\n"a.py" = ["{code}"]\n'})
    assert run("check", "--fix").status == 0
    assert (root / "a.py").read_text() == before
    write({"pyproject.toml": ""})
    quiet = before.replace("x.device)\n", f"x.device)  # dispatchguard: ignore[{code}]\n")
    write({"a.py": quiet})
    assert run("check", "--fix").status == 0
    assert (root / "a.py").read_text() == quiet


def test_fix_respects_the_baseline(write: Write, run: Run) -> None:
    root = write({"a.py": HEAD + BAD + "        return a\n"})
    run("check", "--baseline", "b.json", "--write-baseline")
    before = (root / "a.py").read_text()
    assert run("check", "--baseline", "b.json", "--fix").status == 0
    assert (root / "a.py").read_text() == before


def test_unused_suppressions_are_removed(write: Write, run: Run) -> None:
    root = write({"a.py": "x = 1  # dispatchguard: ignore[DG401]\n"})
    assert run("check").status == 1
    assert run("check", "--fix").status == 0
    assert (root / "a.py").read_text() == "x = 1\n"


@pytest.mark.parametrize(
    "before",
    [
        (lambda t: t.replace("\n", "\r\n")),
        (lambda t: "\ufeff" + t),
        (lambda t: t.replace(" " * 8, "\t\t").replace(" " * 4, "\t")),
        (lambda t: t.replace("\n\n\n", "\n\f\n")),
        (lambda t: t.rstrip("\n")),
        (lambda t: t.replace(" torch\n", " torch  # ä\u2028ö\x85\n")),
    ],
    ids=["crlf", "bom", "tabs", "form feed", "no newline at the end", "odd line ends in a comment"],
)
def test_bytes_outside_the_edit_stay(write: Write, run: Run, before: Callable[[str], str]) -> None:
    text = before(HEAD + BAD + "        return a\n")
    root = write({"a.py": text})
    assert run("check", "--fix").status == 0
    assert (root / "a.py").read_bytes() == text.replace(
        "torch.zeros(3).to(x.device)", "torch.zeros(3, device=x.device)"
    ).encode()


def test_latin_1_stays_latin_1(write: Write, run: Run) -> None:
    text = (
        "# -*- coding: latin-1 -*-\n" + HEAD + "        n = 'é'\n" + BAD + "        return a, n\n"
    )
    root = write({"a.py": text.encode("latin-1")})
    assert run("check", "--fix").status == 0
    assert (root / "a.py").read_bytes() == text.replace(BAD, GOOD).encode("latin-1")


def test_lone_carriage_returns_stay(write: Write, run: Run) -> None:
    text = (HEAD + BAD + "        return a\n").replace("\n", "\r")
    root = write({"a.py": text.encode()})
    done = run("check", "--fix")
    assert done.status in (0, 1)
    now = (root / "a.py").read_bytes()
    assert now in (
        text.encode(),
        text.replace(".to(x.device)", "").encode(),
        text.replace("zeros(3).to(x.device)", "zeros(3, device=x.device)").encode(),
    )
    assert b"\n" not in now


def test_the_mode_is_kept_and_no_other_file_is_left(write: Write, run: Run) -> None:
    root = write({"a.py": HEAD + BAD + "        return a\n"})
    (root / "a.py").chmod(0o750)
    assert run("check", "--fix", "--no-cache").status == 0
    assert stat.S_IMODE((root / "a.py").stat().st_mode) == 0o750
    assert [p.name for p in root.iterdir()] == ["a.py"]


def test_a_link_is_still_a_link(write: Write, run: Run) -> None:
    root = write({"real.txt": HEAD + BAD + "        return a\n"})
    (root / "a.py").symlink_to("real.txt")
    assert run("check", "a.py", "--fix").status == 0
    assert (root / "a.py").is_symlink()
    assert (root / "real.txt").read_text() == HEAD + GOOD + "        return a\n"


def test_what_cannot_be_written_is_one_line_and_the_others_are_fixed(
    write: Write, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = HEAD + BAD + "        return a\n"
    root = write({"a.py": text, "b.py": text})
    (root / "a.py").chmod(0o444)
    real = os.access
    # Root may write anywhere; to this process the mode decides.
    monkeypatch.setattr(
        os,
        "access",
        lambda path, mode, **more: (
            real(path, mode, **more)
            and not (mode & os.W_OK and not Path(path).stat().st_mode & stat.S_IWUSR)
        ),
    )
    done = run("check", "--fix", "--format", "json")
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert "a.py" in line and "read-only" in line
    assert (root / "a.py").read_text() == text
    assert (root / "b.py").read_text() == text.replace(BAD, GOOD)
    assert [p for p, *_ in done.places] == ["a.py"]


def test_a_file_changed_meanwhile_is_not_overwritten(
    write: Write, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write({"a.py": HEAD + BAD + "        return a\n"})
    real = checking.write_fixes
    newer = "# newer\n" + HEAD + BAD + "        return a\n"

    def write_late(*arguments: object) -> object:
        (root / "a.py").write_text(newer)
        return real(*arguments)  # type: ignore[arg-type]  # handed on as they came

    monkeypatch.setattr(checking, "write_fixes", write_late)
    done = run("check", "--fix")
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert "a.py: changed while it was being fixed" in line
    assert (root / "a.py").read_text() == newer


def test_a_diff_of_what_could_not_be_read_is_no_success(write: Write, run: Run) -> None:
    write({"a.py": "def f(:\n"})
    done = run("check", "--diff")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("dispatchguard: a.py:1:") and "DG001" in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.skipif(os.name == "nt", reason="links are for administrators there")
def test_what_lies_outside_behind_a_link_is_not_written(write: Write, run: Run) -> None:
    root = write(
        {
            "out/other.py": HEAD + BAD,
            "out/folder/another.py": HEAD + BAD,
            "p/pyproject.toml": "[tool.dispatchguard]\n",
            "p/a.py": HEAD + BAD,
            "p/real/b.py": HEAD + BAD,
        }
    )
    (root / "p" / "link.py").symlink_to("../out/other.py")
    (root / "p" / "linked").symlink_to("../out/folder", target_is_directory=True)
    (root / "p" / "within.py").symlink_to("real/b.py")
    done = run("check", "--fix", "--unsafe-fixes", cwd=root / "p")
    assert done.status == 2
    assert sorted(done.err.splitlines()) == [
        "dispatchguard: link.py: a link that leads out of the project, so not written; fix the file there",
        (
            "dispatchguard: linked/another.py: a link that leads out of the project, so not "
            "written; fix the file there"
        ),
    ]
    assert (root / "out" / "other.py").read_text() == HEAD + BAD
    assert (root / "out" / "folder" / "another.py").read_text() == HEAD + BAD
    assert GOOD in (root / "p" / "a.py").read_text()
    assert GOOD in (root / "p" / "real" / "b.py").read_text()


def test_an_import_that_a_fix_adds_is_shown(write: Write, run: Run) -> None:
    write(
        {
            "a.py": "import torch\n\n\nclass M(torch.nn.Module):\n    def __init__(self):\n"
            "        super().__init__()\n        self.parts = torch.nn.ModuleList()\n\n"
            "    def forward(self, x: torch.Tensor):\n        for part in self.parts[1:3]:\n"
            "            x = part(x)\n        return x\n"
        }
    )
    assert "1 + import itertools" in run("check", "--select", "DG609").out
    assert (
        "+import itertools\n+\n import torch\n" in run("check", "--select", "DG609", "--diff").out
    )


def test_the_loop_of_a_script_is_fixed_where_it_stands(write: Write, run: Run) -> None:
    text = (
        "import torch; from torch import nn\n\n\ndef unused():\n    return 'torch.zeros(3).to(device)'\n\n\n"
        "device = 'cuda'\nmodel = nn.Linear(3, 3).to(device)\n"
        "if __name__ == '__main__':\n    for x in loader:\n"
        "        y = model(x) + torch.zeros(3).to(device)  # wide\n"
        "        y.mean().backward()\n        opt.step()\n"
    )
    root = write({"pyproject.toml": "[tool.dispatchguard]\n", "train.py": text})
    run("check", "--fix")
    fixed = text.replace("+ torch.zeros(3).to(device)", "+ torch.zeros(3, device=device)")
    assert (root / "train.py").read_text() == fixed
    assert run("check").status == 0
    assert (root / "train.py").read_text() == fixed


STEP = "        loss = model(x).sum()\n        loss.backward()\n        opt.step()\n"


def test_the_sum_of_an_epoch_is_read_where_it_is_shown(write: Write, run: Run) -> None:
    head = "import torch\n\n\ndef train(model, loader, opt: torch.optim.Optimizer):\n"
    before = (
        f"{head}    for epoch in range(10):\n      total = 0.0\n      for i, x in enumerate(loader):\n{STEP}"
        "        total += loss.item()\n        if i % 100 == 99:\n            print(f'{total / 100:.3f}')\n"
        "            total = 0.0\n      print(epoch, total)\n"
    )
    root = write({"a.py": before})
    run("check", "--fix", "--unsafe-fixes")
    assert (root / "a.py").read_text() == before.replace(".item()", ".detach()").replace(
        "{total / 100", "{float(total) / 100"
    ).replace("epoch, total", "epoch, float(total)")


@pytest.mark.parametrize(
    ("above", "below"),
    [
        ("", "    print(f'{total=}')\n"),
        ("", "    total /= total + 1\n    print(total)\n"),
        ("    global total\n", "    print(total)\n"),
    ],
)
def test_sums_shown_as_they_are_written_or_shared_stay(
    write: Write, run: Run, above: str, below: str
) -> None:
    before = (
        f"import torch\n\n\ndef train(model, loader, opt: torch.optim.Optimizer):\n{above}    total = 0.0\n"
        f"    for x in loader:\n{STEP}        total += loss.item()\n{below}"
    )
    root = write({"a.py": before})
    done = run("check", "--fix", "--unsafe-fixes", "--format", "json")
    assert [f["code"] for f in done.findings] == ["DG411"]
    assert (root / "a.py").read_text() == before


@pytest.mark.parametrize(
    ("scaled", "after"),
    [
        ("/= len(loader)", "= float(total) / len(loader)"),
        ("/= 2 + len(loader)", "= float(total) / (2 + len(loader))"),
        ("*= 100", "= float(total) * 100"),
    ],
)
def test_the_mean_of_a_sum_is_made_of_a_number(
    write: Write, run: Run, scaled: str, after: str
) -> None:
    before = (
        "import torch\n\n\ndef train(model, loader, opt: torch.optim.Optimizer):\n    total = 0.0\n"
        f"    for x in loader:\n{STEP}        total += loss.item()\n"
        f"    print(total)\n    total {scaled}\n    print(total)\n    return total\n"
    )
    root = write({"a.py": before})
    run("check", "--fix", "--unsafe-fixes")
    expected = before.replace(".item()", ".detach()").replace(scaled, after)
    assert (root / "a.py").read_text() == expected.replace("print(total)", "print(float(total))", 1)


def test_a_sum_that_is_scaled_before_its_loop_is_read_behind_it(write: Write, run: Run) -> None:
    before = (
        "import torch\n\n\ndef train(model, loader, opt: torch.optim.Optimizer):\n    total = 0.0\n"
        "    for epoch in range(10):\n      total *= 0.9\n"
        f"      for x in loader:\n{STEP}        total += loss.item()\n      print(total)\n"
    )
    root = write({"a.py": before})
    run("check", "--fix", "--unsafe-fixes")
    expected = before.replace(".item()", ".detach()").replace("*= 0.9", "= float(total) * 0.9")
    assert (root / "a.py").read_text() == expected.replace("print(total)", "print(float(total))")


def test_what_is_counted_stays_a_whole_number(write: Write, run: Run) -> None:
    before = (
        "import torch\n\n\n@torch.no_grad()\ndef test(model, loader):\n    model.eval()\n    right = 0\n"
        "    for x, y in loader:\n        right += model(x).argmax(1).eq(y).sum().item()\n    return right\n"
    )
    root = write({"a.py": before})
    run("check", "--fix", "--unsafe-fixes")
    after = before.replace(".item()", ".detach()").replace("return right", "return int(right)")
    assert (root / "a.py").read_text() == after
