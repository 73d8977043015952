from __future__ import annotations

from pathlib import Path

import pytest

from pytest_dispatchguard.config.load import load_config
from pytest_dispatchguard.config.project_root import find_root, names_project, nested_roots
from pytest_dispatchguard.lint.sources.packages import made_to_be_installed


def test_packages_below_a_project_are_made_to_be_installed() -> None:
    packages = {"lib", "lib/ops", "src/other", "tools/helper", "app"}
    assert made_to_be_installed(packages, {""}) == {"lib", "src/other", "app"}
    assert made_to_be_installed(packages, {"src"}) == {"src/other"}
    assert made_to_be_installed(packages, set()) == set()


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("setup.py", "", True),
        ("pyproject.toml", "[project]\nname = 'x'\n", True),
        ("pyproject.toml", "[tool.poetry]\nname = 'x'\n", True),
        ("pyproject.toml", "[tool.ruff]\n", False),
        ("setup.cfg", "[metadata]\nname = x\n", True),
        ("setup.cfg", "[flake8]\n", False),
    ],
)
def test_what_names_a_project(tmp_path: Path, name: str, text: str, names: bool) -> None:
    (tmp_path / name).write_text(text)
    assert names_project(tmp_path) is names
    assert not names_project(tmp_path / "nowhere")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    for name in ("libs/one/setup.py", "libs/one/one/__init__.py", "libs/two/pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "libs/two/src/two").mkdir(parents=True)
    return tmp_path


def test_a_repository_is_one_project(repository: Path) -> None:
    assert find_root([repository / "libs/one/one/__init__.py"]) == repository
    assert find_root([repository / "libs/two"]) == repository


def test_a_nearer_configuration_makes_one_of_its_own(repository: Path) -> None:
    (repository / "libs/two/pyproject.toml").write_text("[tool.dispatchguard]\n")
    assert find_root([repository / "libs/two/src"]) == repository / "libs/two"
    assert find_root([repository / "libs/one"]) == repository


def test_each_package_keeps_what_it_is_imported_from(repository: Path) -> None:
    assert nested_roots(repository) == ("libs/one", "libs/two", "libs/two/src")
    config = load_config((repository / "libs",), cwd=repository, known_codes=())
    assert config.import_roots == (".", "src", "libs/one", "libs/two", "libs/two/src")


def test_a_package_with_a_setup_of_its_own_is_imported_as_one(repository: Path) -> None:
    for name in ("align/__init__.py", "align/setup.py", "align/ops/setup.py"):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).touch()
    assert "align" not in nested_roots(repository)
    assert "align/ops" not in nested_roots(repository)


def test_a_folder_without_git_has_no_further_projects(repository: Path) -> None:
    (repository / ".git").rmdir()
    assert nested_roots(repository) == ()
    assert find_root([repository / "libs/one/one"]) == repository / "libs/one"
