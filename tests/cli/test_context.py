"""A file named alone is judged as it is in a run over the whole project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import A, B, Run, Write


def of(found: list[dict[str, object]], *paths: str) -> list[dict[str, object]]:
    return [f for f in found if f["path"] in paths]


@pytest.mark.parametrize("cache", [(), ("--no-cache",)])
def test_one_file_says_the_same_as_the_whole(
    project: Path, run: Run, cache: tuple[str, ...]
) -> None:
    one = run("check", "pkg/b.py", "--format", "json", *cache)
    whole = run("check", "--format", "json", *cache)
    assert one.findings
    assert one.findings == of(whole.findings, "pkg/b.py")
    assert run("check", "pkg/b.py", "--format", "json", *cache).out == one.out


def test_several_files_as_a_hook_names_them(project: Path, run: Run) -> None:
    whole = run("check", "--format", "json")
    hook = run("check", "pkg/b.py", "pkg/a.py", "pkg/b.py", "--format", "json")
    assert hook.findings == whole.findings


def test_from_another_folder(
    project: Path, tmp_path_factory: pytest.TempPathFactory, run: Run
) -> None:
    whole = run("check", "--format", "json")
    far = tmp_path_factory.mktemp("far")
    assert run("check", project / "pkg" / "b.py", "--format", "json", cwd=far).findings == of(
        whole.findings, "pkg/b.py"
    )
    assert run("check", "b.py", "--format", "json", cwd=project / "pkg").findings == of(
        whole.findings, "pkg/b.py"
    )
    dotted = run("check", "../pkg/b.py", "--format", "json", cwd=project / "pkg")
    assert dotted.findings == of(whole.findings, "pkg/b.py")
    assert not (far / ".dispatchguard").exists()
    assert not (project / "pkg" / ".dispatchguard").exists()


def test_a_package_without_any_project_file(write: Write, run: Run) -> None:
    write({"p/pkg/__init__.py": "", "p/pkg/a.py": A, "p/pkg/b.py": B})
    whole = run("check", "p", "--format", "json")
    one = run("check", "p/pkg/b.py", "--format", "json")
    assert len(one.findings) == 1
    assert [f["hot"] for f in one.findings] == [
        f["hot"] for f in whole.findings if str(f["path"]).endswith("b.py")
    ]


def test_standard_input_gives_its_hotness_to_others_and_takes_it(project: Path, start: Run) -> None:
    words = ("check", "-", "--stdin-filename", "pkg/b.py", "--format", "json")
    moved = start(*words, stdin=b"\n" + B.encode())
    assert [line for _, line, _ in moved.places] == [6]
    assert json.loads(moved.out)["findings"][0]["hot"]["path"] == [
        "pkg.a.Gate.forward",
        "pkg.b.helper",
    ]
