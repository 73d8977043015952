"""Where pytest's settings are found: where pytest itself finds them, on real files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dispatchguard.history.pytest_ini import setting
from pytest_dispatchguard.model.errors import UserError

NAME = "overhead_history"
INI = f"[pytest]\n{NAME} = postgresql+psycopg://ci:p%40s#s@db/overhead  # ours\n"
LAYOUTS = {
    "nothing": {},
    "pytest.ini": {"pytest.ini": INI},
    "its hidden form": {".pytest.ini": INI},
    "pyproject.toml": {"pyproject.toml": f'[tool.pytest.ini_options]\n{NAME} = "a://b"\n'},
    "tox.ini": {"tox.ini": f"[tox]\nenvlist = a\n{INI}"},
    "setup.cfg": {"setup.cfg": f"[metadata]\nname = a\n[tool:pytest]\n{NAME} = a.sqlite\n"},
    "several lines": {"pytest.ini": f"[pytest]\naddopts =\n    -q\n    -ra\n{NAME}=a.sqlite\n"},
    "an empty pytest.ini is the settings": {"pytest.ini": "", "tox.ini": INI},
    "settings nearer that do not set it": {"sub/pytest.ini": "[pytest]\n", "pytest.ini": INI},
    "no settings nearer": {
        "sub/pyproject.toml": '[project]\nname = "a"\n',
        "sub/setup.cfg": "[metadata]\n",
        "sub/tox.ini": "[tox]\n",
        "tox.ini": INI,
    },
    "the first of one folder": {
        "tox.ini": INI,
        "pyproject.toml": f'[tool.pytest.ini_options]\n{NAME} = "first"\n',
    },
    "set to nothing": {"pytest.ini": f"[pytest]\n{NAME} =\n"},
}
SINCE_9 = {
    "pytest.toml": {"pytest.toml": f'[pytest]\n{NAME} = "a://b"\n', "pytest.ini": INI},
    "an empty pytest.toml": {"pytest.toml": "", "pytest.ini": INI},
    "plain settings in pyproject.toml": {"pyproject.toml": f'[tool.pytest]\n{NAME} = "a"\n'},
}
ASK = """
import contextlib, io, json, os, sys
import pytest

class Asking:
    def pytest_configure(self, config):
        said = config.getini(sys.argv[1])
        found.append([said, str(config.rootpath)] if said else None)

found = []
for folder in sys.argv[2:]:
    os.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--collect-only", "-p", "no:cacheprovider", *PLUGIN], [Asking()])
print(json.dumps(found))
"""


def test_what_pytest_finds_is_found(tmp_path: Path, plugin_flags: tuple[str, ...]) -> None:
    layouts = {**LAYOUTS, **(SINCE_9 if pytest.version_tuple >= (9,) else {})}
    folders = []
    for number, files in enumerate(layouts.values()):
        folder = tmp_path / str(number)
        (folder / "sub").mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        folders.append(folder / "sub")
    # An outer pytest.ini ends the search, so that settings above the tests' folder do not count.
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-c", ASK.replace("PLUGIN", repr(plugin_flags)), NAME, *folders],
        capture_output=True,
        text=True,
        check=True,
    )
    for name, folder, said in zip(
        layouts, folders, json.loads(done.stdout.splitlines()[-1]), strict=True
    ):
        found = setting(NAME, folder)
        assert (found and [found.value, str(found.folder)]) == said, name


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("pytest.ini", "[pytest]\nhunter2\n", "line 2 is not valid in an ini file"),
        ("setup.cfg", "x = //ci:hunter2@db\n", "line 1 is not valid in an ini file"),
        ("pyproject.toml", "[tool.pytest]\nx = y://ci:hunter2@db\n", "not valid TOML"),
    ],
)
def test_broken_settings_are_told_without_what_they_hold(
    tmp_path: Path, file: str, text: str, told: str
) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(UserError) as caught:
        setting(NAME, tmp_path)
    assert told in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=60), st.sampled_from(["pytest.ini", "tox.ini", "pyproject.toml"]))
def test_whatever_stands_there_is_a_setting_or_an_error_of_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, file: str
) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / file).write_bytes(b"[pytest]\noverhead_history" + data)
    try:
        found = setting(NAME, folder)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        assert found is None or found.value
