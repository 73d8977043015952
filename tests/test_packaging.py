"""What a user gets from pip: everything that is named, nothing left over, nothing heavy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SOURCES = ("pytest_dispatchguard", "rules", "fixtures", "pyproject.toml", "README.md", "LICENSE")


def pip(*arguments: str | Path, cwd: Path | None = None) -> None:
    """Run pip; what it says is in the failure."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def copy_of_the_sources(root: Path, to: Path) -> Path:
    """The files that a build reads: building in the checkout would leave files there."""
    to.mkdir()
    for name in SOURCES:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, to / name)
    return to


def environment(at: Path) -> Path:
    """An empty virtual environment that sees the dependencies of this one, and nothing of ours.

    A path from a ``.pth`` file is searched last and its own ``.pth`` files are not run, so an
    editable install in this environment does not show through.
    """
    venv.create(at, with_pip=False)
    python = at / "bin" / "python"
    code = "import json, sysconfig; print(json.dumps(sysconfig.get_paths()['purelib']))"
    there = json.loads(subprocess.check_output([python, "-c", code], text=True))
    here = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True))
    (Path(there) / "dependencies.pth").write_text(here + "\n", encoding="utf-8")
    return python


@pytest.fixture(scope="module")
def sources(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_the_sources(root, tmp_path_factory.mktemp("packaging") / "sources")


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("setuptools", minversion="77", reason="building needs setuptools 77")
    out = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", out, sources)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that the wheel is installed in."""
    interpreter = environment(tmp_path_factory.mktemp("installed") / "venv")
    pip("--python", interpreter, "install", "--no-deps", wheel)
    return interpreter


def run(python: Path, *arguments: str, cwd: Path) -> str:
    result = subprocess.run(
        [python, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_wheel_holds_every_module_and_the_type_marker(root: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert "pytest_dispatchguard/py.typed" in names
    assert "pytest_dispatchguard/dispatchguard.schema.json" in names
    for folder, package in (
        ("pytest_dispatchguard", "pytest_dispatchguard"),
        ("rules", "dispatchguard_rules"),
    ):
        for path in (root / folder).rglob("*.py"):
            assert f"{package}/{path.relative_to(root / folder).as_posix()}" in names
    for name in ("page.css", "page.js"):
        assert f"pytest_dispatchguard/report/html/{name}" in names
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "dispatchguard_rules",
        "pytest_dispatchguard",
    }


def test_base_dependencies_are_small(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = message_from_string(archive.read(name).decode())
    required = {
        requirement.split(";")[0].rstrip("0123456789.<>=!~, ").strip()
        for requirement in metadata.get_all("Requires-Dist", [])
        if "extra ==" not in requirement
    }
    assert required == {
        "libcst",
        "pluggy",
        "pyperf",
        "pytest",
        "rich",
        "tomli",
        "tree-sitter",
        "tree-sitter-python",
    }
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.10"


def test_installed_entry_points(python: Path, tmp_path: Path) -> None:
    code = """
import json
from importlib.metadata import distribution
points = distribution("pytest-dispatchguard").entry_points
print(json.dumps(sorted([p.group, p.name, p.value] for p in points)))
"""
    assert json.loads(run(python, "-c", code, cwd=tmp_path)) == [
        ["console_scripts", "dispatchguard", "pytest_dispatchguard.start:command"],
        ["dispatchguard", "builtin", "dispatchguard_rules"],
        ["pytest11", "dispatchguard", "pytest_dispatchguard.plugin"],
    ]


def test_installed_packages_import(python: Path, tmp_path: Path) -> None:
    code = """
import sys
import dispatchguard_rules, pytest_dispatchguard
assert "torch" not in sys.modules
print(dispatchguard_rules.__file__)
print(pytest_dispatchguard.__file__)
"""
    home = str(python.parents[1])
    for line in run(python, "-c", code, cwd=tmp_path).splitlines():
        assert line.startswith(home)


def test_installed_command_says_its_version(python: Path, tmp_path: Path) -> None:
    version = run(
        python, "-c", "import pytest_dispatchguard as p; print(p.__version__)", cwd=tmp_path
    )
    said = subprocess.check_output([python.parent / "dispatchguard", "--version"], text=True)
    assert version.strip() in said


def test_installed_plugin_loads_by_itself(python: Path, tmp_path: Path) -> None:
    said = run(python, "-m", "pytest", "--markers", "-p", "no:cacheprovider", cwd=tmp_path)
    assert "@pytest.mark.overhead_budget" in said


def test_installed_command_makes_a_page(python: Path, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.dispatchguard]\n")
    (tmp_path / "a.py").write_text("x = 1\n")
    run(python, "-m", "pytest_dispatchguard", "report", "--output", "r.html", cwd=tmp_path)
    page = (tmp_path / "r.html").read_text()
    assert "dispatchguard: 0 findings" in page and "color-scheme" in page


def test_editable_install_maps_the_rules(
    sources: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pytest.importorskip("setuptools", minversion="77", reason="building needs setuptools 77")
    checkout = tmp_path_factory.mktemp("editable") / "checkout"
    shutil.copytree(sources, checkout)
    python = environment(checkout.parent / "venv")
    pip("--python", python, "install", "--no-deps", "--no-build-isolation", "-e", checkout)
    code = (
        "import dispatchguard_rules as r, pytest_dispatchguard as p; print(r.__file__, p.__file__)"
    )
    rules, package = run(python, "-c", code, cwd=tmp_path).split()
    assert Path(rules).resolve() == (checkout / "rules" / "__init__.py").resolve()
    assert Path(package).resolve() == (checkout / "pytest_dispatchguard" / "__init__.py").resolve()
    # A package without an __init__ module would put a name that is no folder there.
    assert "__path_hook__" not in run(python, "-c", "import sys; print(sys.path)", cwd=tmp_path)
