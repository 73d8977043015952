"""Settings: where they are found, how they combine, and what a mistake in them is told as."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pytest_dispatchguard.config.config import Config, ignored_in_file, selected
from pytest_dispatchguard.config.globs import glob_pattern
from pytest_dispatchguard.config.load import load_config, unread_python
from pytest_dispatchguard.config.project_root import find_root, is_project
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.traces import TraceLimits

CODES = ("DG001", "DG002", "DG101", "DG102", "DG401", "DG402", "DG601", "DG602")


def project(folder: Path, text: str = "", name: str = "pyproject.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def load(folder: Path, *paths: str, config: str | None = None, **overrides: Any) -> Config:
    return load_config(
        [Path(path) for path in paths],
        cwd=folder,
        config_file=None if config is None else Path(config),
        known_codes=CODES,
        **overrides,
    )


def complaint(folder: Path, *paths: str, config: str | None = None, **overrides: Any) -> str:
    with pytest.raises(UserError) as caught:
        load(folder, *paths, config=config, **overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_defaults_without_any_settings(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert config == Config(root=tmp_path)
    assert config.select is None
    assert not is_project(config)


def test_every_key_is_read(tmp_path: Path) -> None:
    project(
        tmp_path,
        """
        [project]
        requires-python = ">=3.10"
        dependencies = ["numpy", "torch[opt] >=2.1, <3 ; python_version > '3'"]
        [tool.dispatchguard]
        select = ["DG4"]
        extend-select = ["DG601"]
        ignore = ["DG402"]
        per-file-ignores = { "tests/*" = ["DG"], "a.py" = ["DG401", "DG1"] }
        exclude = ["generated/"]
        hot-roots = ["pkg.ops.*", "@pkg.hot"]
        cold = ["pkg.debug"]
        src = ["lib"]
        tensor-types = ["pkg.Tensor"]
        tree-modules = ["pkg.tree"]
        baseline = "ci/baseline.json"
        pedantic = true
        """,
    )
    assert load(tmp_path) == Config(
        root=tmp_path,
        file=tmp_path / "pyproject.toml",
        select=("DG4",),
        extend_select=("DG601",),
        ignore=("DG402",),
        per_file_ignores=(("tests/*", ("DG",)), ("a.py", ("DG401", "DG1"))),
        exclude=("generated/",),
        hot_roots=("pkg.ops.*", "@pkg.hot"),
        cold=("pkg.debug",),
        src=("lib",),
        tensor_types=("pkg.Tensor",),
        tree_modules=("pkg.tree",),
        baseline=tmp_path / "ci/baseline.json",
        pedantic=True,
        requires_python=">=3.10",
        torch_requirement=">=2.1,<3",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dependencies = ['torch']", ""),
        ("dependencies = ['torch>=2.1']", ">=2.1"),
        ("dependencies = ['torch (>=2.1)']", ">=2.1"),
        ("dependencies = ['Torch ~= 2.1']", "~=2.1"),
        ("dependencies = ['torchvision>=0.3', 'torch-geometric>1']", None),
        ("dependencies = ['torch @ https://example.org/t.whl']", ""),
        ("optional-dependencies.gpu = ['torch==2.4']", "==2.4"),
        ("dependencies = ['torch']\noptional-dependencies.x = ['torch>2']", ">2"),
        ("dependencies = 3", None),
    ],
)
def test_torch_requirement(tmp_path: Path, text: str, expected: str | None) -> None:
    project(tmp_path, f"[project]\n{text}\n")
    assert load(tmp_path).torch_requirement == expected


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ('excluded = ["a"]', ['unknown key "excluded"', 'did you mean "exclude"?']),
        ('hot_roots = ["a"]', ['unknown key "hot_roots"', '"hot-roots"']),
        ("zzz = 1", ['unknown key "zzz"', "choose from: baseline, budgets, cold,"]),
        ('select = "DG4"', ["select must be a list of strings"]),
        ("ignore = [4]", ["ignore must be a list of strings"]),
        ('select = ["DG411"]', ["select", 'unknown code "DG411"; did you mean "DG4']),
        ('ignore = ["dg501"]', ["ignore", 'unknown code "DG501"']),
        ('select = ["DG9"]', ['unknown code "DG9"; the families are: DG0, DG1, DG4, DG6']),
        ('select = ["DG40x"]', ['unknown code "DG40X"; the codes in DG40 are: DG401, DG402']),
        ('select = [""]', ["empty"]),
        ('per-file-ignores = ["a"]', ["per-file-ignores must be a table"]),
        ('per-file-ignores = { "a.py" = ["DG7"] }', ['"a.py"', 'unknown code "DG7"']),
        ('exclude = ["!a"]', ["exclude", "negation is not supported"]),
        ('exclude = ["."]', ["whole project"]),
        ('pedantic = "yes"', ["pedantic must be true or false"]),
        ("budgets = [1]", ["budgets must be a table of test IDs to limits"]),
        ('budgets = { "t.py::*" = 1 }', ["budgets must be a table of test IDs to limits"]),
        ("baseline = 3", ["baseline must be a file path"]),
        ('tensor-types = ["a b"]', ["tensor-types", '"a b" is not a dotted name']),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path: Path, settings: str, parts: list[str]) -> None:
    project(tmp_path, f"[tool.dispatchguard]\n{settings}\n")
    message = complaint(tmp_path)
    assert message.startswith("pyproject.toml: [tool.dispatchguard]")
    for part in parts:
        assert part in message


def test_table_of_the_wrong_type(tmp_path: Path) -> None:
    project(tmp_path, "[tool]\ndispatchguard = 3\n")
    assert complaint(tmp_path) == "pyproject.toml: [tool.dispatchguard] must be a table"


def test_broken_toml_is_told_with_its_position(tmp_path: Path) -> None:
    project(tmp_path, "[tool.dispatchguard]\nselect = [\n")
    message = complaint(tmp_path)
    assert message.startswith("pyproject.toml: not valid TOML: ")
    assert "line" in message or "end of document" in message


def test_toml_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"# \xe9\n")
    assert "not UTF-8 at byte 2" in complaint(tmp_path)


def test_toml_with_a_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    text = "\ufeff[tool.dispatchguard]\r\nignore = ['DG401']\r\n"
    (tmp_path / "pyproject.toml").write_bytes(text.encode())
    assert load(tmp_path).ignore == ("DG401",)


def test_command_line_replaces_select_and_adds_to_the_rest(tmp_path: Path) -> None:
    project(tmp_path, '[tool.dispatchguard]\nselect = ["DG1"]\nignore = ["DG402"]\n')
    config = load(tmp_path, select=["DG4", "DG601"], ignore=["DG601"], extend_select=None)
    assert config.select == ("DG4", "DG601")
    assert config.ignore == ("DG402", "DG601")
    assert load(tmp_path, pedantic=True, baseline="b.json").baseline == tmp_path / "b.json"


def test_a_code_named_on_the_command_line_beats_the_file(tmp_path: Path) -> None:
    project(tmp_path, '[tool.dispatchguard]\nignore = ["DG401", "DG6"]\n')
    config = load(tmp_path, select=["DG401"])
    assert selected(config, "DG401")
    config = load(tmp_path, select=["DG4"])
    assert not selected(config, "DG401")
    assert selected(config, "DG402")
    config = load(tmp_path, select=["DG401"], ignore=["DG401"])
    assert not selected(config, "DG401")


def test_letter_case_of_codes_is_not_asked_for(tmp_path: Path) -> None:
    project(tmp_path, '[tool.dispatchguard]\nignore = ["dg402"]\n')
    config = load(tmp_path, select=["dg4", "Dg1"])
    assert (config.select, config.ignore) == (("DG4", "DG1"), ("DG402",))


def test_command_line_mistakes_name_the_option(tmp_path: Path) -> None:
    assert complaint(tmp_path, select=["DG4O1"]).startswith('--select: unknown code "DG4O1"; did')
    assert complaint(tmp_path, extend_select=["X"]).startswith("--extend-select: unknown code")


def test_root_is_the_nearest_marker(tmp_path: Path) -> None:
    project(tmp_path, name="setup.py")
    inner = project(tmp_path / "inner", name="setup.cfg")
    deep = inner / "pkg"
    deep.mkdir()
    (deep / "a.py").touch()
    assert find_root([deep / "a.py"]) == inner
    assert find_root([deep / "a.py", tmp_path]) == tmp_path
    assert load(tmp_path, "inner/pkg/a.py").root == inner


def test_root_is_where_the_settings_are(tmp_path: Path) -> None:
    project(tmp_path, '[tool.dispatchguard]\nignore = ["DG4"]\n')
    member = project(tmp_path / "packages/a", "[project]\nname = 'a'\n")
    assert load(tmp_path, "packages/a").root == tmp_path
    (tmp_path / "packages/a/.git").mkdir()
    # Another repository is another project.
    assert load(tmp_path, "packages/a").root == member


def test_root_without_markers(tmp_path: Path) -> None:
    package = tmp_path / "lib/pkg/sub"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "a.py").touch()
    (tmp_path / "lib/loose.py").touch()
    assert find_root([package / "a.py"]) == tmp_path / "lib"
    assert find_root([package]) == tmp_path / "lib"
    assert find_root([tmp_path / "lib/loose.py"]) == tmp_path / "lib"
    assert find_root([tmp_path]) == tmp_path


def test_installed_packages_are_no_part_of_the_project_around(tmp_path: Path) -> None:
    project(tmp_path, "[tool.dispatchguard]\nignore = ['DG4']\n")
    package = tmp_path / ".venv/lib/site-packages/pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    config = load(tmp_path, str(package))
    assert config.root == package.parent
    assert config.ignore == ()
    assert load(package, ".").root == package.parent


def test_config_file_sets_settings_not_the_root(tmp_path: Path) -> None:
    root = project(tmp_path / "p", "[project]\nrequires-python = '>=3.11'\n[tool.dispatchguard]\n")
    other = project(tmp_path / "etc", "ignore = ['DG4']\nbaseline = 'b.json'\n", "guard.toml")
    config = load(root, config="../etc/guard.toml")
    assert (config.root, config.file) == (root, other / "guard.toml")
    assert config.ignore == ("DG4",)
    assert config.baseline == other / "b.json"
    assert config.requires_python == ">=3.11"
    assert complaint(root, config="no.toml") == "no.toml: no such configuration file"


def test_config_file_is_the_root_of_what_has_none(tmp_path: Path) -> None:
    project(tmp_path, "[tool.dispatchguard]\nignore = ['DG4']\n", "guard.toml")
    (tmp_path / "deep").mkdir()
    config = load(tmp_path, "deep", config="guard.toml")
    assert config.root == tmp_path
    assert is_project(config)


@pytest.mark.parametrize(
    ("settings", "code", "default", "expected"),
    [
        ({}, "DG401", True, True),
        ({}, "XX401", True, True),
        ({}, "XX401", False, False),
        ({"select": ()}, "DG401", True, False),
        ({"select": ("DG",)}, "XX401", True, False),
        ({"select": ("DG",), "extend_select": ("XX",)}, "XX401", True, True),
        ({"extend_select": ("XX",)}, "DG401", True, True),
        ({"ignore": ("XX",)}, "XX401", True, False),
        ({"extend_select": ("DG401",), "ignore": ("DG4",)}, "DG401", True, True),
        ({"select": ("DG4",)}, "DG001", True, True),
        ({"select": ("DG4",), "ignore": ("DG0",)}, "DG001", True, False),
        ({"ignore": ("DG001",)}, "DG001", True, False),
        ({"select": ("DG4",)}, "DG002", True, False),
        ({"ignore": ("DG4",)}, "DG401", True, False),
        ({"select": ("DG401",), "ignore": ("DG4",)}, "DG401", True, True),
        ({"select": ("DG4",), "ignore": ("DG401",)}, "DG401", True, False),
        ({"select": ("DG401",), "ignore": ("DG401",)}, "DG401", True, False),
        ({"select": ("DG1",), "extend_select": ("DG401",)}, "DG401", True, True),
        ({"select": ("DG1",), "extend_select": ("DG401",)}, "DG402", True, False),
        ({}, "DG602", False, False),
        ({"select": ("DG6",)}, "DG602", False, False),
        ({"select": ("DG602",)}, "DG602", False, True),
        ({"extend_select": ("DG602",)}, "DG602", False, True),
        ({"extend_select": ("DG6",)}, "DG602", False, True),
        ({"extend_select": ("DG",)}, "DG602", False, False),
        ({"extend_select": ("DG6",), "ignore": ("DG602",)}, "DG602", False, False),
        ({"select": ("ALL",)}, "XX401", True, True),
        ({"select": ("ALL",)}, "DG602", False, True),
        ({"extend_select": ("ALL",)}, "DG602", False, True),
        ({"select": ("ALL",), "ignore": ("D",)}, "DG401", True, False),
        ({"ignore": ("ALL",)}, "DG401", True, False),
        ({"ignore": ("ALL",)}, "DG001", True, False),
        ({"select": ("D",), "ignore": ("ALL",)}, "DG401", True, True),
        ({"select": ("ALL",), "ignore": ("ALL",)}, "DG401", True, False),
    ],
)
def test_selected(settings: dict[str, Any], code: str, default: bool, expected: bool) -> None:
    assert selected(Config(root=Path("/p"), **settings), code, default) is expected


@pytest.mark.parametrize(
    ("glob", "matching", "other"),
    [
        ("tests", ["tests/a.py", "pkg/tests/a.py"], ["pkg/tests.py", "mytests/a.py"]),
        ("tests/*", ["tests/a.py", "tests/deep/a.py"], ["pkg/tests/a.py", "tests"]),
        ("/tests", ["tests/a.py"], ["mytests/a.py"]),
        ("tests/", ["tests/a.py", "pkg/tests/a.py"], ["tests"]),
        ("*_test.py", ["a_test.py", "deep/a_test.py"], ["a_test.pyc", "test.py"]),
        ("**/gen/*.py", ["gen/a.py", "x/y/gen/a.py"], ["gen/deep/a.py", "agen/b.py"]),
        ("a/**/b.py", ["a/b.py", "a/x/b.py", "a/x/y/b.py"], ["b.py", "ab.py"]),
        ("a/**", ["a/b.py", "a/x/b.py"], ["a", "b/a/c.py"]),
        ("v?.py", ["v1.py"], ["v10.py", "v.py"]),
        ("v[0-9].py", ["v1.py"], ["vx.py"]),
        ("v[!0-9].py", ["vx.py"], ["v1.py"]),
        ("./a.py", ["a.py", "x/a.py"], ["b.py"]),
        ("a+(b).py", ["a+(b).py"], ["aab.py"]),
    ],
)
def test_globs(glob: str, matching: list[str], other: list[str]) -> None:
    pattern = glob_pattern(glob)
    assert [path for path in matching if not pattern.fullmatch(path)] == []
    assert [path for path in other if pattern.fullmatch(path)] == []


def test_ignored_in_file() -> None:
    config = Config(root=Path("/p"), per_file_ignores=(("tests/*", ("DG4",)), ("a.py", ("DG101",))))
    assert ignored_in_file(config, "tests/deep/b.py", "DG401")
    assert not ignored_in_file(config, "tests/deep/b.py", "DG101")
    assert ignored_in_file(config, "x/a.py", "DG101")


@pytest.mark.parametrize(
    "requires", [">=3.10", ">=3.8,<4", "~=3.9", "== 3.11.*", ">=3.13.0rc1, !=3.9", ""]
)
def test_versions_of_python_that_can_be_read(requires: str) -> None:
    assert list(unread_python(Config(root=Path(), requires_python=requires))) == []


@pytest.mark.parametrize("requires", [">=3.x", "3.10", "^3.8", ">=3.8 <4", ">=3.8;", "three"])
def test_versions_of_python_that_cannot_be_read_are_told(requires: str) -> None:
    (told,) = unread_python(Config(root=Path(), requires_python=requires))
    assert f'requires-python: "{requires}" is not a version specifier' in told


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ("waits_per_step = -1", "waits_per_step must be a number from 0"),
        ("waits_per_step = true", "waits_per_step must be a number from 0"),
        ("waits_per_step = inf", "waits_per_step must be a number from 0"),
        ("idle_share = 10", "idle_share must be a share from 0 to 1"),
        ("idle_share = nan", "idle_share must be a share from 0 to 1"),
        ("idle_shares = 0", 'unknown limit "idle_shares"; did you mean "idle_share"?'),
    ],
)
def test_wrong_limits_of_traces_are_told(tmp_path: Path, limits: str, said: str) -> None:
    project(tmp_path, f"[tool.dispatchguard.trace]\n{limits}\n")
    assert complaint(tmp_path) == f"pyproject.toml: [tool.dispatchguard] trace: {said}"


def test_limits_of_traces_are_those_that_traces_are_held_against(tmp_path: Path) -> None:
    project(tmp_path, "[tool.dispatchguard.trace]\nwaits_per_step = 2\nidle_share = 0.1\n")
    limits = dict(load(tmp_path).trace)
    assert limits == asdict(TraceLimits(waits_per_step=2, idle_share=0.1))
