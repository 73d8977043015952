"""`dispatchguard price`: specimens of packs are measured, kept, and told."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_dispatchguard.prices import NAME

pytest.importorskip("torch", reason="prices are of code on torch")
Run = Callable[..., "subprocess.CompletedProcess[str]"]

QUICK = ("--seconds", "0.3")


@pytest.fixture
def price(python: Run, tmp_path: Path) -> Run:
    (tmp_path / "pyproject.toml").write_text("[tool.dispatchguard]\n")

    def price(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return python("pytest_dispatchguard", "price", *words, folder=tmp_path, **environment)

    return price


@pytest.mark.thorough
def test_prices_are_measured_kept_and_told(price: Run, python: Run, tmp_path: Path) -> None:
    done = price("DG303", "DG401", *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is measurably cheaper for 2 of 2 rules" in done.stdout
    assert "1 → 0" in done.stdout
    table = json.loads((tmp_path / NAME).read_text())
    waits = {one["specimen"]: one["waits"] for one in table["specimens"] if one["code"] == "DG401"}
    assert waits["specimen"] == [1, 0]
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x: torch.Tensor, mask: torch.Tensor):\n"
        "        run = wrap(self.run)\n"
        "        if mask.any():\n"
        "            x = x.masked_fill(mask, 0.0)\n"
        "        return run(x)\n"
        "    def run(self, x):\n"
        "        return x\n"
        "def wrap(f):\n"
        "    def wrapper(x):\n"
        "        return f(x)\n"
        "    return wrapper\n"
    )
    words = ("check", "--pedantic", "--select", "DG303,DG401")
    told = python("pytest_dispatchguard", *words, folder=tmp_path)
    first, second = (line for line in told.stdout.splitlines() if line.startswith("net.py:"))
    assert "DG401" in first and "DG303" in second
    assert "  waits for the device\n" in told.stdout
    assert "µs per call on this machine\n" in told.stdout
    assert "What the flagged lines cost in one call of\n  net.Net.forward: ≈ " in told.stdout
    assert " µs and 1 wait for the device (2 findings)\n" in told.stdout

    # What was measured before stays where it is not measured anew.
    price("DG304", "--format", "json", "--output", "out.json", *QUICK)
    kept = {one["code"] for one in json.loads((tmp_path / NAME).read_text())["specimens"]}
    assert kept == {"DG303", "DG304", "DG401"}
    assert {
        one["code"] for one in json.loads((tmp_path / "out.json").read_text())["specimens"]
    } == {"DG304"}


@pytest.mark.thorough
def test_a_form_that_is_not_cheaper_is_told(price: Run, tmp_path: Path) -> None:
    folder = tmp_path / "specimens" / "MY101"
    folder.mkdir(parents=True)
    (folder / "specimen.py").write_text(
        "def bad(x):\n    return x + 1\n"
        "def good(x):\n    return sum([x, 1])\n"
        "def inputs():\n    return (1,)\n"
    )
    (folder / "specimen_broken.py").write_text("def bad(x):\n    return x\n")
    (folder / "specimen_unfinished.py").write_text("def bad(x:\n")
    (folder / "specimen_without_fix.py").write_text(
        "def bad(x):\n    return x + 1\n"
        "def good(x):\n    return x + 1  # as it is\n"
        "def inputs():\n    return (1,)\n"
    )
    (folder / "specimen_slow.py").write_text(
        "import time\n"
        "def bad(x):\n    time.sleep(0.06)  # expect: MY101, MY101, MY101\n"
        "def good(x):\n    time.sleep(0.05)  # expect: MY101\n"
        "def inputs():\n    return (1,)\n"
    )
    (tmp_path / "mypack.py").write_text(
        "from pathlib import Path\n"
        "from pytest_dispatchguard import Rule, hookimpl\n"
        "from pytest_dispatchguard import Call\n"
        "class Mine(Rule):\n"
        "    '''Mine.'''\n"
        "    code, name, origin, looks_for = 'MY101', 'my-rule', 'here', Call('x')\n"
        "@hookimpl\n"
        "def dispatchguard_rules():\n    return [Mine]\n"
        "@hookimpl\n"
        f"def dispatchguard_specimens():\n    return Path({str(folder.parent)!r})\n"
    )
    info = tmp_path / "mypack-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mypack\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[dispatchguard]\nmypack = mypack\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = price("MY101", *QUICK, PYTHONPATH=path)
    assert done.returncode == 1, done.stderr
    assert "MY101/specimen, MY101/specimen_broken, MY101/specimen_slow" in done.stdout
    assert "MY101/specimen_unfinished" in done.stdout and "SyntaxError" in done.stdout
    assert "0.3 s are too short to tell; give it more by --seconds" in done.stdout
    assert "specimen_without_fix" not in done.stdout
    table = json.loads((tmp_path / NAME).read_text())
    places = {one["specimen"]: one["places"] for one in table["specimens"]}
    assert places == {
        "specimen": 1,
        "specimen_broken": 1,
        "specimen_slow": 2,
        "specimen_unfinished": 1,
    }
    assert "has no attribute 'good'" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("DG999",), "unknown code 'DG999'; did you mean"),
        (("DG101", "--seconds", "0"), "is not a number of seconds"),
        (
            ("DG101", "--output", "no/such/file.txt"),
            "the directory does not exist; create it first",
        ),
    ],
)
def test_mistakes_end_in_one_line(
    price: Run, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    done = price(*words)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / NAME).exists()  # told before it measures
