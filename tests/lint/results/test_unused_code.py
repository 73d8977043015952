"""What an application does not use of its own definitions, and what becomes of the findings there."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_dispatchguard.lint.check import check
from pytest_dispatchguard.lint.request import Request
from pytest_dispatchguard.lint.results.unused_code import Application
from pytest_dispatchguard.model.findings import Finding

HEAD = """\
import torch


class Head(torch.nn.Module):
    def forward(self, x):
        return x + torch.zeros(3).to(x.device)


"""
TRAIN = """\
from model import Net


def main():
    return Net()


if __name__ == "__main__":
    main()
"""
NET = "class Net:\n    pass\n"
SCRIPT = {"train.py": TRAIN}


@pytest.mark.parametrize(
    ("texts", "used"),
    [
        ({}, False),
        ({"model.py": HEAD + NET.replace("pass", "head = Head")}, True),
        ({"model.py": HEAD + NET + "\n\nHEADS = [Head]\n"}, True),
        ({"model.py": HEAD + NET + "\n\nHEADS = ['Head']\n"}, True),
        ({"model.py": HEAD + NET + "# not like Head\nx = 1  # no Head\n"}, False),
        ({"model.py": HEAD + "class Old:\n    head = Head\n\n\n" + NET}, False),
        ({"model.py": HEAD + "@keep\nclass Old:\n    head = Head\n\n\n" + NET}, True),
        ({"model.py": HEAD.replace("class", "@keep\nclass") + NET}, True),
        (
            {"model.py": HEAD + "class Old:\n    a = 'Odd'\n\n\nclass Odd(Old, Head):\n    pass\n"},
            False,
        ),
        ({"other.py": "from model import Head\n"}, False),
        ({"other.py": "from model import (\n    Head,\n)\n"}, False),
        ({"other.py": "from model import Head as Top\n\nprint(Top)\n"}, True),
        ({"other.py": "from model import *\n"}, True),
        ({"other.py": "import model\n\nnet = getattr(model, name)()\n"}, True),
        ({"other.py": "import model\n\nnet = model.__dict__[name]()\n"}, True),
        ({"other.py": "import model\n\nnet = vars(model)[name]()\n"}, True),
        ({"other.py": "for one in Base.__subclasses__():\n    print(one)\n"}, True),
        ({"other.py": "from importlib import import_module\n"}, False),
        ({"train.py": "x = 1\n\n\nif __name__ == '__main__':\n    import_module(x)\n"}, True),
        ({"model.py": HEAD + NET + "\n\nnet = eval(name)()\n"}, True),
        ({"model.py": HEAD + NET + "\n\nnet = net.eval()\n"}, False),
        ({"heads/__init__.py": "from model import Head\n"}, True),
        (
            {"tests/test_model.py": "from model import Head\n\n\ndef test_it():\n    Head()\n"},
            False,
        ),
        ({"tests/test_model.py": "from model import Head\n\nprint(Head)\n"}, True),
        ({"hubconf.py": "from model import Head\n\n\ndef head():\n    return Head()\n"}, True),
        ({"try.ipynb": '{"source": ["from model import Head\\n", "Head()"]}'}, True),
        # Without a script beside it there is no application.
        ({"train.py": "x = 1\n"}, True),
        ({"train.py": "", "net/__init__.py": "", "net/run.py": TRAIN}, True),
        ({"train.py": "", "tests/run.py": TRAIN}, True),
        ({"train.py": "", "model.py": HEAD + TRAIN}, True),
    ],
)
def test_what_is_used(texts: dict[str, str], used: bool, tmp_path: Path) -> None:
    all_ = {"model.py": HEAD + NET, **SCRIPT, **texts}
    assert Application(tmp_path, all_, all_.get).uses("model.py", "Head") is used


@pytest.mark.parametrize("name", ["config.yaml", "configs/a/head.json", "run.sh", "setup.cfg"])
def test_a_configuration_may_name_it(name: str, tmp_path: Path) -> None:
    texts = {"model.py": HEAD + NET, **SCRIPT}
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("head: model.Header\n")
    assert not Application(tmp_path, texts, texts.get).uses("model.py", "Head")
    (tmp_path / name).write_text("head: model.Head\n")
    assert Application(tmp_path, texts, texts.get).uses("model.py", "Head")
    (tmp_path / name).write_text("head: model.Head\n" + 70_000 * "#")
    assert not Application(tmp_path, texts, texts.get).uses("model.py", "Head"), "that is data"


def test_definitions_that_use_one_another_run_only_if_one_of_them_does(tmp_path: Path) -> None:
    ring = HEAD.replace("torch.zeros", "Neck().zeros") + "class Neck:\n    head = Head\n\n\n"
    texts = {"model.py": ring + NET, **SCRIPT}
    one = Application(tmp_path, texts, texts.get)
    assert not one.uses("model.py", "Head")
    assert not one.uses("model.py", "Neck")
    texts["model.py"] = ring + NET.replace("pass", "neck = Neck")
    assert Application(tmp_path, texts, texts.get).uses("model.py", "Head")


def found(folder: Path) -> list[Finding]:
    shown = {"select": ("DG504",), "notes": True}
    return list(check(Request((Path(),), folder, settings=shown)).report.findings)


@pytest.fixture
def application(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[tool.dispatchguard]\n")
    (tmp_path / "model.py").write_text(HEAD + NET)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def test_a_finding_there_is_a_note_that_says_so(application: Path) -> None:
    for _ in range(2):  # from the cache, too
        (one,) = found(application)
        assert one.hot is not None
        assert (one.certainty, one.function) == ("note", "Head.forward")
        assert one.hot.reason == "forward of a torch.nn.Module; nothing in the project uses Head"
    (application / "model.py").write_text(HEAD + NET.replace("pass", "head = Head"))
    (one,) = found(application)
    assert one.hot is not None
    assert (one.certainty, one.hot.reason) == ("sure", "forward of a torch.nn.Module")
    (application / "model.py").write_text(HEAD + NET)
    (application / "train.py").write_text(TRAIN.replace("Net()", "Net(), Head()"))
    assert [f.certainty for f in found(application)] == ["sure"]


def test_what_a_library_offers_stays_a_finding(application: Path) -> None:
    package = application / "heads"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "head.py").write_text(HEAD)
    (application / "model.py").unlink()
    assert [f.certainty for f in found(application)] == ["note"]
    (application / "pyproject.toml").write_text("[project]\nname = 'heads'\n")
    assert [f.certainty for f in found(application)] == ["sure"]


@pytest.mark.parametrize("mark", ["class Head", "def forward"])
def test_what_its_author_calls_hot_stays_a_finding(application: Path, mark: str) -> None:
    text = "\n".join(
        f"{line}  # dispatchguard: hot" if mark in line else line for line in HEAD.split("\n")
    )
    (application / "model.py").write_text(text)
    assert [f.certainty for f in found(application)] == ["sure"]


@pytest.mark.parametrize("place", ["model.Head.forward", "model.*"])
def test_so_does_what_the_configuration_calls_hot(application: Path, place: str) -> None:
    (application / "pyproject.toml").write_text(f"[tool.dispatchguard]\nhot-roots = ['{place}']\n")
    assert [f.certainty for f in found(application)] == ["sure"]
