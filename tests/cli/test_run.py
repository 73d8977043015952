"""`dispatchguard run --ghost`: programs that know nothing of it, and what can befall them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

ROOT = Path(__file__).resolve().parents[2]
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

LIBRARY = """\
import torch


class Gate(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        scale = x.max().item()
        return x * (scale + scale)
"""
TRAIN = """\
import sys

import torch

from library import Gate


def main(steps):
    x = torch.ones(3, device="cuda")
    for _ in range(steps):
        x = Gate()(x)
    return x


print("result", main(int(sys.argv[1])).tolist())  # dispatchguard: ignore[DG413] -- printed once
"""


def column(known: int, otherwise: int = 9) -> int:
    """The column of an expression; of its line before Python knew of columns."""
    return known if sys.version_info >= (3, 11) else otherwise


def source(expression: str, line: str) -> str:
    """The source that is told of an expression on a line."""
    return expression if sys.version_info >= (3, 11) else line


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[tool.dispatchguard]\n")
    (tmp_path / "library.py").write_text(LIBRARY)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


@pytest.fixture
def run(python: Run) -> Run:
    def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        given = {"PYTHONPATH": os.pathsep.join(paths), **environment}
        return python("pytest_dispatchguard.cli", "run", *words, folder=folder, **given)

    return run


@needs_torch
def test_a_script_and_its_waits(project: Path, run: Run) -> None:
    done = run(project, "--ghost", "train.py", "4")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "result [32768.0, 32768.0, 32768.0]"
    read = source("x.max().item()", "scale = x.max().item()")
    said = (
        f"library.py:6:{column(17)} DG411 `{read}` made the host wait 4 times, "
        "in each of 4 rounds of the loop at train.py:10: a value is read back to the host"
    )
    assert lines[1] == said
    assert lines[2].startswith("  hot: seen running: <module> -> main -> ")
    assert "1 finding in 1 of 2 files (2 hot functions of 2)." in lines and "1 suppressed." in lines


@needs_torch
@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("--exit-zero",), 0),
        (("--ignore", "DG4"), 0),
        (("--select=DG5",), 0),
        (("--select", "DG411"), 1),
        (("--extend-select", "DG431"), 1),
    ],
)
def test_which_findings_count(project: Path, words: tuple[str, ...], status: int, run: Run) -> None:
    assert run(project, "--ghost", *words, "train.py", "1").returncode == status


@needs_torch
def test_a_baseline_and_a_machine_format(project: Path, run: Run) -> None:
    done = run(project, "--ghost", "--format=json", "--output", "out.json", "train.py", "2")
    assert done.returncode == 1 and done.stdout == "result [8.0, 8.0, 8.0]\n"
    (found,) = json.loads((project / "out.json").read_text())["findings"]
    assert (found["code"], found["rule"], found["path"], found["line"]) == (
        "DG411",
        "item-read",
        "library.py",
        6,
    )
    assert found["hot"]["path"][0] == "<module>" and found["function"].endswith("forward")
    # What the linter accepted when it read the code is accepted when it runs.
    check = [sys.executable, "-m", "pytest_dispatchguard.cli", "check"]
    given = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    subprocess.run(
        [*check, "--baseline=accepted.json", "--write-baseline"], cwd=project, env=given, check=True
    )
    done = run(project, "--ghost", "--baseline=accepted.json", "train.py", "2")
    assert done.returncode == 0, done.stdout
    assert "1 in the baseline" in done.stdout


COPIES = """
import copy, os
import torch

class Gate(torch.nn.Module):
    def forward(self, x):
        copy.deepcopy([])
        return x

os.makedirs("out", exist_ok=True)
os.chdir("out")
for _ in range(3):
    Gate()(1)
"""


@needs_torch
def test_a_program_that_goes_elsewhere(project: Path, run: Run) -> None:
    (project / "train.py").write_text(COPIES + "print(__file__)\n")
    done = run(project, "train.py")
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[0] == str(project / "train.py")
    assert "train.py:7:9 DG606 `deepcopy` ran 3 times" in done.stdout
    done = run(project, "--record", "train.py")
    assert "now has 1 function" in done.stderr
    assert (project / ".dispatchguard" / "profile.json").exists()


@needs_torch
def test_a_broken_profile_is_told_before_anything_runs(project: Path, run: Run) -> None:
    (project / ".dispatchguard").mkdir()
    (project / ".dispatchguard" / "profile.json").write_text("{")
    (project / "train.py").write_text(COPIES)
    done = run(project, "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "is no profile that this version has written" in line
    assert not (project / "out").exists()


@needs_torch
def test_what_cannot_be_told_does_not_keep_a_program_from_ending(project: Path, run: Run) -> None:
    program = COPIES.replace("os.chdir", "open('../p', 'w').close; os.makedirs")
    broken = "open('.dispatchguard/profile.json', 'w').write('{'); os._exit(0)\n"
    program = (
        program.replace('os.makedirs("out")', "") + "os.makedirs('.dispatchguard', exist_ok=True)\n"
    )
    (project / "train.py").write_text(program + broken)
    done = run(project, "train.py")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "is no profile that this version has written" in line


@needs_torch
def test_how_many_places_are_not_hot_is_a_note(project: Path, run: Run) -> None:
    (project / "train.py").write_text("import copy\n\ndef f():\n    copy.deepcopy([])\n\nf()\n")
    done = run(project, "train.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("note: 1 more in code that is not hot\n")


@needs_torch
def test_operations_by_line(project: Path, run: Run) -> None:
    done = run(project, "--ghost", "--ops", "--exit-zero", "train.py", "3")
    assert done.returncode == 0, done.stderr
    assert f"library.py:6:{column(17)} DG411" in done.stdout
    assert "1      3  library.py:7  Gate.forward  mul\n" in done.stdout
    done = run(project, "--ops", "--format", "markdown", "-m", "library")
    assert (done.returncode, done.stderr) == (0, "")
    assert "#### 0 operations from 0 lines of the project" in done.stdout


STEPS = """\
import torch

model = torch.nn.Linear(4, 2)
model.to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0.0
for step in range(5):
    x = torch.randn(3, 4).to("cuda")
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    total += loss.item()
    if step % 2:
        print(loss.item())
print(model.weight.sum().item())
"""


@needs_torch
@pytest.mark.thorough
def test_steps_are_told_from_what_runs_once(project: Path, run: Run) -> None:
    (project / "train.py").write_text(STEPS)
    done = run(project, "--ghost", "train.py")
    lines = done.stdout.splitlines()
    found = {
        int(line.split(":")[1]): line.partition(" DG")[2]
        for line in lines
        if line.startswith("train.py:")
    }
    copied = source('torch.randn(3, 4).to("cuda")', 'x = torch.randn(3, 4).to("cuda")')
    assert found[8].startswith(
        f"510 `{copied}` (copy to the device) made the host wait 5 times, in each of 5 steps: "
    )
    assert "made the host wait 5 times, in each of 5 steps: " in found[12]
    assert "made the host wait 2 times, in 5 steps: " in found[14]
    # What runs once beside the steps is a note.
    assert any('model.to("cuda")` (copy to the device) made the host wait once' in o for o in lines)
    assert 4 not in found and 15 not in found
    title = lines.index("Waits for the device while the program ran")
    assert lines[title + 1 :] == [
        "  in each of 5 steps of the loop at train.py:7: 2.4 waits (3 places)",
        "  once, outside of loops: 2 waits (2 places)",
    ]
    assert "<module>:" not in done.stdout


@needs_torch
def test_where_nothing_is_found_it_says_so(project: Path, run: Run) -> None:
    (project / "quiet.py").write_text("print(1)\n")
    done = run(project, "quiet.py")
    assert (done.returncode, done.stdout) == (0, "1\nNothing was found.\n")


@needs_torch
def test_a_module_and_a_command(project: Path, run: Run) -> None:
    (project / "pkg").mkdir()
    (project / "pkg" / "__main__.py").write_text(
        "import sys, torch\nprint(sys.argv[1:], __name__)\ntorch.ones(1, device='cuda').item()\n"
    )
    done = run(project, "--ghost", "-m", "pkg", "--deep", "x")
    assert done.returncode == 1 and done.stdout.startswith("['--deep', 'x'] __main__\n")
    assert "pkg/__main__.py:3:1 DG411" in done.stdout
    (project / "test_it.py").write_text(
        "import torch\nfrom library import Gate\n\n"
        "def test_gate():\n    assert Gate()(torch.ones(1).cuda()).is_cuda\n"
    )
    done = run(project, "--ghost", "--", "pytest", "-q", "-p", "no:cacheprovider")
    assert "1 passed" in done.stdout and f"library.py:6:{column(17)} DG411" in done.stdout
    assert done.returncode == 1


@needs_torch
@pytest.mark.parametrize(
    ("program", "status", "out", "error"),
    [
        ("raise SystemExit(3)", 3, "DG411", ""),
        ("raise SystemExit('no luck')", 1, "DG411", "no luck\n"),
        ("raise SystemExit", 1, "DG411", ""),
        ("def f():\n    return 1 / 0\nf()", 1, "DG411", "ZeroDivisionError: division by zero\n"),
        ("torch.tensor([1], device='cuda') + torch.ones(2)", 1, "DG411", "cuda:0 and cpu!\n"),
        ("import os; os._exit(7)", 7, "DG411", ""),
        ("import os\nif not os.fork(): os._exit(0)\nos.wait()", 1, "DG411", ""),
        ("import sys; sys.stdout.buffer.write(bytes(range(256)))", 1, "DG411", ""),
        ("import sys; sys.exit(0)", 1, "DG411", ""),
    ],
)
def test_how_programs_end(
    project: Path, program: str, status: int, out: str, error: str, run: Run
) -> None:
    script = project / "script.py"
    script.write_text(f"import torch\ntorch.ones(1, device='cuda').item()\n{program}\n")
    done = run(project, "--ghost", "script.py")
    assert done.returncode == status, done.stderr
    assert done.stdout.count(f"script.py:2:1 {out}") == 1
    assert done.stderr.endswith(error) and (error or not done.stderr)
    assert "pytest_dispatchguard" not in done.stderr and "runpy" not in done.stderr


@needs_torch
def test_a_script_that_does_not_parse(project: Path, run: Run) -> None:
    (project / "broken.py").write_text("def f(:\n")
    done = run(project, "--ghost", "broken.py")
    assert done.returncode == 1 and "SyntaxError" in done.stderr and "broken.py" in done.stderr
    assert "pytest_dispatchguard" not in done.stderr


@needs_torch
def test_waits_without_a_line_of_the_project(project: Path, tmp_path: Path, run: Run) -> None:
    elsewhere = tmp_path / ".venv" / "other.py"
    elsewhere.parent.mkdir()
    elsewhere.write_text("import torch\n\ndef wait():\n    torch.ones(1, device='cuda').item()\n")
    (project / "script.py").write_text(
        "import sys, threading\nsys.path.insert(0, '.venv')\nimport other\n"
        "thread = threading.Thread(target=other.wait)\nthread.start()\nthread.join()\nother.wait()\n"
    )
    done = run(project, "--ghost", "script.py")
    said = "script.py:7:1 DG411 `other.wait()` (item) made the host wait once, in other.py:4:"
    assert said in done.stdout
    assert "note: 1 more wait outside this project's code" in done.stdout


def test_a_program_that_breaks_off_is_told_as_such(project: Path, run: Run) -> None:
    (project / "train.py").write_text("raise SystemExit(3)\n")
    done = run(project, "train.py")
    assert done.returncode == 3
    assert (
        "note: the program exited with status 3: the findings are from what ran before"
        in done.stdout
    )


def test_what_hot_code_does_at_every_call(project: Path, run: Run) -> None:
    """No torch is needed for it, and no ghost."""
    (project / "library.py").write_text(
        "import copy\n\n\nclass Step:\n    def step(self, x):  # dispatchguard: hot\n"
        "        return copy.deepcopy(x)\n\n\ndef setup(x):\n    return copy.deepcopy(x)\n"
    )
    (project / "train.py").write_text(
        "from library import Step, setup\n\nfor _ in range(3):\n    Step().step(setup([]))\n"
    )
    done = run(project, "train.py")
    assert done.returncode == 1, done.stderr
    said = re.sub(r" \(\d+ instructions a call on this line\)", "", done.stdout)
    assert said != done.stdout
    assert said.startswith(
        f"library.py:6:{column(16)} DG606 `deepcopy` ran 3 times: all that hangs on it is copied each time"
    )
    assert done.stdout.count("DG606") == 1
    assert run(project, "--ignore", "DG606", "train.py").returncode == 0


COMPILED = """
import torch
from torch import nn

class Scale(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor  # one each

class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(Scale(1.0 + i) for i in range(64))

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        print(end="")
        return x
"""


@pytest.mark.thorough
@needs_torch
def test_what_torch_compile_made_of_it(project: Path, run: Run) -> None:
    (project / "library.py").write_text(COMPILED)
    (project / "train.py").write_text(
        "import torch\nfrom library import Chain\n\nstep = torch.compile(Chain(), backend='eager')\n"
        "for _ in range(3):\n    step(torch.ones(3))\n"
    )
    done = run(project, "train.py")
    assert done.returncode == 1, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("library.py:")]
    assert len(said) == 2, done.stdout
    assert (
        "library.py:11:9 DG713 compiled code checks what `return x * self.factor` reads before every "
        "call: `L['self'].parts[*].factor` is checked in each of 64\n"
    ) in done.stdout
    assert (
        "library.py:21:9 DG711 the graph that `torch.compile` makes breaks here, once: "
        in done.stdout
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing to run: name a script, -m MODULE, or -- COMMAND"),
        (("--ghost",), "nothing to run: name a script"),
        (("--ghost", "-m"), "nothing to run"),
        (("--record",), "nothing to run: name a script"),
        (("--ghost", "none.py"), "none.py: no such file\n"),
        (("--ghost", "none"), "none: no such file; for a module say -m none\n"),
        (("-m", "none.such"), "none.such: no module of that name can be found from here\n"),
        (
            ("--output", "no/file.txt", "none.py"),
            "no/file.txt: the directory does not exist; create it",
        ),
        (("--ghost", "--", "no-such-command"), "no-such-command: no package here installs"),
        (("--ghots", "train.py"), 'unknown option --ghots; did you mean "--ghost"'),
        (("--ghost", "--select", "DG9", "train.py"), "DG9"),
        (("--ghost", "--format", "pdf", "train.py"), "'pdf' is not a valid choice"),
        (("--ghost", "--baseline", "none.json", "train.py"), "none.json"),
    ],
)
def test_wrong_words_are_one_line(
    project: Path, words: tuple[str, ...], said: str, run: Run
) -> None:
    done = run(project, *words)
    assert done.returncode == 2 and not done.stdout
    assert said in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed")
def test_without_torch(project: Path, run: Run) -> None:
    done = run(project, "--ghost", "train.py", "1")
    assert done.returncode == 2
    assert done.stderr == "dispatchguard: --ghost needs torch, which is not installed\n"


@pytest.mark.thorough
@needs_torch
@pytest.mark.parametrize("words", [(), pytest.param(("before",), marks=pytest.mark.compiles)])
def test_operations_of_compiled_code_are_those_it_is_written_with(
    project: Path, run: Run, words: tuple[str, ...]
) -> None:
    """Whether the compiler was there before, or is asked for while operations are watched."""
    (project / "script.py").write_text(
        "import sys, torch\n"
        "if sys.argv[1:]:\n"
        "    import torch._dynamo\n"
        "double = torch.compile(lambda x: x * 2, backend='eager')\n"
        "print(double(torch.ones(3)).tolist(), torch.compile.__module__)\n"
    )
    done = run(project, "--ops", "script.py", *words)
    assert done.returncode == 0, done.stderr
    assert "[2.0, 2.0, 2.0] torch" in done.stdout
    assert "mul, ones" in done.stdout
