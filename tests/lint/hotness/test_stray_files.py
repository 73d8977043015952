"""Files of an application that nobody comes to."""

from __future__ import annotations

import pytest

from pytest_dispatchguard.lint.callgraph.build import build
from pytest_dispatchguard.lint.hotness.solve import solve
from pytest_dispatchguard.lint.hotness.stray_files import stray_files
from pytest_dispatchguard.lint.scout.scan import scan
from pytest_dispatchguard.lint.sources.module_names import module_name

NET = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x): return x\n"
FILES = {
    "train.py": "from nets.unet import Net\nNet()(1)\n",
    "nets/__init__.py": "",
    "nets/unet.py": NET,
    "nets/old.py": NET,
}


def stray(files: dict[str, str], *packaged: str) -> set[str]:
    facts = {
        path: scan(text, module_name(path), path.endswith("__init__.py"))
        for path, text in files.items()
    }
    project = build(facts, packaged=frozenset(packaged))
    found = stray_files(project)
    hot = {project.modules[name.partition(":")[0]] for name in solve(project).hot}
    assert found.isdisjoint(hot)
    return set(found)


def test_what_nothing_imports_is_stray() -> None:
    assert stray(FILES) == {"nets/old.py"}


@pytest.mark.parametrize(
    "more",
    [
        {"train.py": "from nets.unet import Net\nfrom nets import old\n"},
        {"train.py": "from nets.unet import Net\nimport nets.old as o\n"},
        {"train.py": "from nets.unet import Net\nimport nets.old\n"},
        {"train.py": "from nets.unet import Net\nfrom nets import *\n"},
        {"nets/old.py": NET + "try:\n    main()\nexcept ValueError:\n    pass\n"},
        {"nets/old.py": NET + "setup_and_train()\n"},
        {"train.py": "from lightning.pytorch.cli import LightningCLI\nfrom nets.unet import Net\n"},
        {"nets/__init__.py": "from .unet import *\nfrom .old import Net as Old\n"},
        {"nets/extra.py": "from old import Net\n"},
        {"tests/test_old.py": "from nets.old import Net\n"},
        {"nets/old.py": NET + "if __name__ == '__main__':\n    Net()(1)\n"},
        {"nets/old.py": NET + "for x in range(3):\n    Net()(x)\n"},
        {"nets/old.py": NET + "print(Net()(1))\n"},
        {"nets/old.py": NET.replace("class", "@register('old')\nclass")},
        {"nets/old.py": "from nets.unet import Net as Base\n" + NET},
        {"train.py": "import importlib\nfrom nets.unet import Net\n"},
        {"train.py": "Net = None\n"},
        {"nets/modeling_old.py": NET, "nets/old.py": ""},
    ],
    ids=[
        "imported", "imported as a module", "imported by its whole name", "starred", "tries",
        "sets up and runs", "by a command line", "in the package", "by its folder", "in a test",
        "is a program", "loops", "prints", "registered", "imports others", "by name", "none is imported",
        "loaded by name",
    ],
)  # fmt: skip
def test_others_are_not(more: dict[str, str]) -> None:
    assert stray({**FILES, **more}) <= (
        {"nets/old.py"} if "nets/modeling_old.py" in more else set()
    )


def test_what_prepares_runs_nothing() -> None:
    begins = "import sys, warnings\nsys.path.append('.')\nwarnings.filterwarnings('ignore')\n"
    assert stray({**FILES, "nets/old.py": begins + NET}) == {"nets/old.py"}


def test_a_library_has_none() -> None:
    assert stray(FILES, "nets") == set()
