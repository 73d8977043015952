"""What processes have in common that take turns: where stacks begin, and where objects lie."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.measure.processes.launching import (
    ALIKE,
    Launch,
    alike,
    packages_of,
    start,
)
from pytest_dispatchguard.model.errors import UserError

FOLDERS = ("a", "a-longer-one/with a space/é")
WHAT = """
places = [id(sys), id(json.loads), id(json.decoder.JSONDecoder), id(os.environ)]
torch = sys.modules.get("torch")
if torch is not None:
    places += [id(torch.relu), id(torch.nn.Module), id(torch.nn.functional.linear)]
import ours
names = sys.argv, sys.path, os.getcwd(), os.environ.get("PYTHONPATH"), ours.__file__
print(json.dumps([places, *names]))
print(os.read(0, 1))
print(open("/proc/self/personality").read().strip() if sys.platform == "linux" else "")
"""


@given(
    st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), max_size=5),
    st.integers(0, 7),
)
def test_processes_of_one_number_begin_their_stack_at_the_same_place(
    words: list[str], number: int
) -> None:
    def size(folder: str) -> int:
        command = ["python", "-c", "pass", folder, *words]
        found = alike(command, {"HOME": folder, "PYTHONPATH": folder}, 5, number, ["/site"])
        strings = [*command, *(f"{name}={value}" for name, value in found.items())]
        return sum(len(os.fsencode(one)) + 9 for one in strings) % 4096

    assert size("/a") == size("/a/much/longer/path") == 97 * number


def test_a_seed_and_a_number_are_what_processes_share() -> None:
    def seeds(seed: int, number: int) -> str:
        return alike(["python"], {}, seed, number, [])["DISPATCHGUARD_SCATTER"]

    assert seeds(5, 1) == seeds(5, 1)
    assert len({seeds(5, 1), seeds(5, 2), seeds(6, 1)}) == 3


@pytest.mark.parametrize("packages", [["/one", "/two"], []])
def test_torch_comes_first_where_packages_are_given(packages: list[str]) -> None:
    found = alike(["python"], {}, 5, 1, packages)["DISPATCHGUARD_PACKAGES"]
    assert json.loads(found or "[]") == packages


def test_packages_are_what_is_not_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "env" / "lib").mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    installed = [str(tmp_path / "env/lib"), str(tmp_path / "x/site-packages"), "/elsewhere/lib"]
    ours = [str(tmp_path), str(tmp_path / "src"), "", "src"]
    assert packages_of([*ours, *installed], tmp_path) == installed


def test_a_python_within_the_project_is_none_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "python"))
    inside = str(tmp_path / "python" / "lib")
    assert packages_of([str(tmp_path / "src"), inside], tmp_path) == [inside]


def said_by(launch: Launch, number: int, *, turns: bool) -> list[str]:
    """What a process of a source tree says."""
    with tempfile.TemporaryFile() as output:
        words = ["--one", str(launch.folder)]
        process = start(launch, number, WHAT, words, given=(), output=output, turns=turns)
        status = process.wait(60)
        output.seek(0)
        said = output.read().decode()
        assert status == 0, said
        return said.splitlines()[-3:]


def tree(folder: Path) -> Launch:
    folder.mkdir(parents=True)
    (folder / "ours.py").touch()
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    installed = packages_of(sys.path, Path.cwd())
    return Launch((), folder, [str(folder), *sys.path], environment, packages=installed, seed=5)


@pytest.mark.parametrize("turns", [True, False])
def test_a_process_is_told_of_which_tree_it_is(tmp_path: Path, *, turns: bool) -> None:
    launch = tree(tmp_path / FOLDERS[1])
    said, read, _ = said_by(launch, 1, turns=turns)
    _, words, path, folder, variable, ours = json.loads(said)
    assert words == ["-c", "--one", str(launch.folder)]
    assert path == launch.path
    assert folder == variable == str(launch.folder)
    assert Path(ours).parent == launch.folder
    assert read == "b''", "nothing can be read"


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere layouts stay random")
@pytest.mark.parametrize("number", [1, 2])
def test_processes_of_one_number_have_all_at_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    if find_spec("torch") is not None:
        monkeypatch.setitem(sys.modules, "torch", sys)  # as if the run had imported it
    found = []
    for name in FOLDERS:
        said, _, personality = said_by(tree(tmp_path / name), number, turns=True)
        if not int(personality, 16) & 0x40000:
            pytest.skip("the system does not let the layout be fixed")
        found.append(json.loads(said)[0])
    assert found[0] == found[1]


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a worker cannot be started in .*gone"):
        said_by(Launch((), tmp_path / "gone", sys.path), 1, turns=False)


def kept_with(seed: str, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The small objects that a process of a seed begins with."""
    monkeypatch.setenv("DISPATCHGUARD_SCATTER", seed)
    names: dict[str, list[bytes]] = {}
    exec(ALIKE, names)
    return names["kept"]


def test_small_objects_of_every_size_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = kept_with("one", monkeypatch)
    assert len({sys.getsizeof(one) for one in kept}) > 20
    assert len({len(kept_with(str(seed), monkeypatch)) for seed in range(5)}) > 1
    assert kept == kept_with("one", monkeypatch)
