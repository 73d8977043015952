"""Files and folders as nobody wants them: a finding or one clear line each, the right status, no trace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import Done, Run, Write, command, one_line, write_files
from .test_fixes import HEAD

HOT = HEAD + "        return inspect.signature(x)\n"


@pytest.mark.parametrize(
    ("data", "places"),
    [
        (b"x = (\n", [(1, 5)]),
        (b"x = 1\n  y = 2\n", None),
        (b"def f():\nreturn 1\n", [(2, 1)]),
        (b"print 'two'\n", [(1, 1)]),
        (b"class A:\n\tx = 1\n        y = 2\n", None),
        (b"x = '\xe9'\n", [(1, 6)]),
        (b"\xff\xfex\x00=\x001\x00", None),
        (b"# coding: nonsense\nx = 1\n", [(1, 11)]),
        (b"# coding: base64\nx = 1\n", [(1, 11)]),
        (b"\xef\xbb\xbf# coding: latin-1\nx = 1\n", None),
        (b"x = 1\ny = \x00\n", [(2, 5)]),
        (b"x = 'abc\n", [(1, 5)]),
        (b"x = f'{a b}'\n", None),
        (b"x = '''abc\n", None),
    ],
)
def test_what_is_no_python_is_one_finding(
    write: Write, run: Run, data: bytes, places: list[tuple[int, int]] | None
) -> None:
    write({"bad.py": data, "good.py": HOT, "pyproject.toml": ""})
    done = run("check", "--format", "json")
    assert (done.status, done.err) == (1, "")
    assert [f["path"] for f in done.findings] == ["bad.py", "good.py"]
    bad = done.findings[0]
    assert bad["code"] == "DG001"
    assert bad["message"].count("\n") == 0
    if places is not None:
        assert [(bad["line"], bad["column"])] == places
    again = run("check", "--format", "json", "--fix")
    assert again.findings == done.findings
    assert Path("bad.py").read_bytes() == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"# nothing",
        b"\xef\xbb\xbf",
        b"\f\n\f",
        b"x = 1\r",
        b"if 1:\n\tx = 1\n",
        "# coding: latin-1\nx = 'é'\n".encode("latin-1"),
        "名前 = 'ünï'\n".encode(),
        b"x = '\\ud800'\n",
    ],
)
def test_odd_but_sound_files_are_clean(write: Write, run: Run, data: bytes) -> None:
    write({"odd.py": data})
    done = run("check")
    assert (done.status, done.err) == (0, "")


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t,
        lambda t: t.replace("\n", "\r\n"),
        lambda t: "\ufeff" + t,
        lambda t: t.replace("\n\n\n", "\n\f\n\f\n"),
        lambda t: t.replace("    ", "\t"),
        lambda t: t.replace(" torch\n", " torch  # é\u2028 \x0c \x85 名\n"),
        lambda t: t.replace("\n", "\r"),
    ],
    ids=["plain", "crlf", "bom", "form feeds", "tabs", "unicode line ends", "cr"],
)
def test_lines_and_columns_are_counted_as_python_counts(
    write: Write, run: Run, change: Callable[[str], str]
) -> None:
    text = change(HOT)
    write({"a.py": text.encode()})
    done = run("check", "--format", "json")
    (found,) = done.findings
    lines = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    at = next(i for i, line in enumerate(lines, 1) if "signature" in line)
    assert found["line"] == at
    line = lines[at - 1]
    assert line[found["column"] - 1 : found["end_column"] - 1] == "inspect.signature(x)"


def nested(kind: str) -> str:
    deep = 500
    body = {
        "attributes": f"return y{'.real' * deep}",
        "calls": f"return x{'.add(1)' * (deep // 2)}",
        "subscripts": f"return x{'[0]' * (deep // 2)}",
        "operators": f"return y{' + 1' * deep}",
        "nots": f"return {'not ' * deep}y",
        "parentheses": f"return {'(' * 190}y{')' * 190}",
        "lists": f"return {'[' * 190}y{']' * 190}",
        "ternaries": f"return {'1 if y else ' * deep}2",
        "lambdas": f"return {'lambda: ' * deep}y",
        "strings": "return (" + "\n'a'" * 1500 + ")",
    }.get(kind)
    if kind == "ifs":
        body = "".join(f"{' ' * (i and 8 + i)}if y:\n" for i in range(95)) + " " * 110 + "return y"
    if kind == "elifs":
        body = "if y:\n            pass\n" + "        elif y:\n            pass\n" * deep
    if kind == "functions":
        body = "".join(f"{' ' * (i and 8 + i)}def f():\n" for i in range(95)) + " " * 110 + "pass"
    return HEAD + f"        y = inspect.signature(x)\n        {body}\n"


@pytest.mark.parametrize(
    "kind",
    "attributes calls subscripts operators nots parentheses lists ternaries lambdas strings ifs elifs"
    " functions".split(),
)
def test_deep_nesting_is_read(write: Write, run: Run, kind: str) -> None:
    text = nested(kind)
    compile(text, "deep.py", "exec")
    write({"deep.py": text, "flat.py": HOT, "pyproject.toml": ""})
    done = run("check", "--format", "json")
    assert (done.status, done.err) == (1, "")
    assert ("flat.py", 6) in [(p, line) for p, line, _ in done.places]
    if sys.version_info[:2] == (3, 12) and kind in ("calls", "strings"):
        # 3.12 alone counts frames of C apart, by a limit that nobody can raise: told, not judged.
        assert [c for p, _, c in done.places if p == "deep.py"] == ["DG001"]
        return
    (code,) = {c for p, line, c in done.places if (p, line) == ("deep.py", 6)}
    assert code != "DG001"


def test_what_is_nested_beyond_all_bounds_is_a_finding(write: Write, run: Run) -> None:
    write({"a.py": HEAD + f"        y = x.item()\n        return y{'.real' * 60_000}\n"})
    done = run("check", "--format", "json", "--select", "DG001")
    assert (done.status, done.err) == (1, "")
    assert [c for *_, c in done.places] == ["DG001"]


@pytest.mark.parametrize(
    "expression",
    [
        "+" + "(" * 1500 + "x.item()" + ")" * 1500,
        "x" + ".a" * 20_000 + ".item()",
        "-" * 20_000 + "x.item()",
    ],
    ids=["parentheses", "attributes", "signs"],
)
@pytest.mark.parametrize("stack", [None, 1024 * 1024])
def test_what_a_native_parser_dies_of_costs_one_function(
    write: Write, tmp_path: Path, expression: str, stack: int | None
) -> None:
    resource = pytest.importorskip("resource", reason="stacks are limited by it")
    write({"a.py": HEAD + f"        return {expression}\n", "b.py": HOT, "pyproject.toml": ""})
    asked = command(["check", "--format", "json", "--jobs", "1", "--no-cache"], tmp_path)

    def smaller() -> None:
        if stack is not None:
            resource.setrlimit(resource.RLIMIT_STACK, (stack, resource.RLIM_INFINITY))

    done = subprocess.run(
        asked, cwd=tmp_path, capture_output=True, text=True, timeout=60, preexec_fn=smaller
    )
    assert (done.returncode, done.stderr) == (1, "")
    told = {(f["path"], f["code"]): f["message"] for f in json.loads(done.stdout)["findings"]}
    assert told["a.py", "DG001"].startswith("M.forward is nested too deeply to be checked")
    assert ("b.py", "DG601") in told


def test_a_long_file(write: Write, run: Run) -> None:
    block = HOT.replace("import inspect, torch\n", "").strip("\n").replace("class M", "class M{}")
    text = "import inspect, torch\n" + "\n".join(
        block.format(i) + "\n\n    def cold(self):\n" + "        x = 1\n" * 190 for i in range(100)
    )
    assert text.count("\n") > 19_000
    write({"long.py": text})
    done = run("check", "--format", "json")
    assert done.status == 1
    assert len(done.findings) == 100


def test_links_in_a_circle(write: Write, run: Run) -> None:
    root = write({"pkg/a.py": HOT, "pyproject.toml": ""})
    (root / "pkg" / "loop").symlink_to(root)
    (root / "self.py").symlink_to("self.py")
    (root / "one.py").symlink_to("two.py")
    (root / "two.py").symlink_to("one.py")
    done = run("check", "--format", "json")
    assert [p for p, *_ in done.places] == ["pkg/a.py"]
    assert "self.py" in one_line(run("check", "self.py"))


def test_names_that_are_no_files(write: Write, run: Run) -> None:
    root = write({"a.py": HOT, "x.py/inner.py": HOT, "pyproject.toml": ""})
    (root / "gone.py").symlink_to("nowhere.py")
    if hasattr(os, "mkfifo"):
        os.mkfifo(root / "pipe.py")
        assert "neither a file nor a directory" in one_line(run("check", "pipe.py"))
    done = run("check", "--format", "json")
    assert [p for p, *_ in done.places] == ["a.py", "x.py/inner.py"]
    assert [p for p, *_ in run("check", "x.py", "--format", "json").places] == ["x.py/inner.py"]
    assert "gone.py" in one_line(run("check", "gone.py"))


@pytest.mark.skipif(sys.platform == "win32", reason="modes")
@pytest.mark.parametrize("named", [True, False])
def test_an_unreadable_file_is_a_finding(
    write: Write, run: Run, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    root = write({"a.py": HOT, "locked.py": HOT, "pyproject.toml": ""})
    (root / "locked.py").chmod(0)
    real = Path.read_bytes

    def read_bytes(self: Path) -> bytes:
        # Root may read anything; to this process the mode decides.
        if self.name == "locked.py":
            raise PermissionError(13, "Permission denied")
        return real(self)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    for _ in range(2):
        done = run(
            "check", *(["locked.py", "a.py"] if named else []), "--format", "json", "--jobs", "1"
        )
        assert (done.status, done.err) == (1, "")
        assert [(p, c) for p, _, c in done.places if p == "locked.py"] == [("locked.py", "DG001")]
        assert "a.py" in [p for p, *_ in done.places]


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A project with a folder that an ordinary user, as who the test runs, may not look into."""
    if not hasattr(os, "geteuid"):
        pytest.skip("modes")
    folder = tmp_path
    if os.geteuid() == 0:
        folder = Path(tempfile.mkdtemp())  # root's own temporary folders are closed to others
        folder.chmod(0o777)
    write_files(folder, {"a.py": HOT, "locked/x.py": HOT, "pyproject.toml": ""})
    for name, target in (("lnk.py", "locked/x.py"), ("sub", "locked/sub"), ("gone.py", "nowhere")):
        (folder / name).symlink_to(target)
    (folder / "locked").chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield folder
    if root:
        os.seteuid(0)
    (folder / "locked").chmod(0o700)
    if folder != tmp_path:
        shutil.rmtree(folder)


def test_links_into_a_locked_folder_are_passed_over(locked: Path, run: Run) -> None:
    done = run("check", "--no-cache", "--format", "json", "--jobs", "1", cwd=locked)
    assert (done.status, done.err) == (1, "")
    assert [p for p, *_ in done.places] == ["a.py"]
    assert json.loads(done.out)["summary"]["notes"] == [
        "locked/: skipped: Permission denied",
        "lnk.py: skipped: Permission denied",
        "sub: skipped: Permission denied",
    ]


def test_a_link_that_may_not_be_read_is_passed_over(
    write: Write, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write({"a.py": HOT, "pyproject.toml": ""})
    (root / "lnk.py").symlink_to("a.py")
    real = os.path.realpath

    def realpath(path: str, **more: bool) -> str:
        # As a link of another user's process in /proc answers.
        if str(path).endswith("lnk.py"):
            raise PermissionError(13, "Permission denied")
        return str(real(path, **more))

    monkeypatch.setattr(os.path, "realpath", realpath)
    done = run("check", "--format", "json", "--jobs", "1")
    assert [p for p, *_ in done.places] == ["a.py"]
    assert "lnk.py: skipped: Permission denied" in done.out
    assert run("check", "lnk.py", "--format", "json", "--jobs", "1").places == [
        ("lnk.py", line, code) for _, line, code in done.places
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("check", "locked"),
        ("check", "locked/x.py"),
        ("check", "lnk.py"),
        ("hot", "locked"),
        ("hot", "locked/x.py"),
        ("clean", "locked"),
        ("clean", "locked/x.py"),
        ("check", "a.py", "--config", "locked/c.toml"),
        ("check", "a.py", "--baseline", "locked/b.json"),
        ("check", "a.py", "--baseline", "locked/b.json", "--write-baseline"),
        ("check", "a.py", "--output", "locked/out"),
    ],
)
def test_a_locked_folder_is_one_line(locked: Path, run: Run, words: tuple[str, ...]) -> None:
    line = one_line(run(*words, *(["--jobs", "1"] if words[0] != "clean" else []), cwd=locked))
    assert "locked" in line or "lnk.py" in line
    assert line.endswith("Permission denied")


def test_a_file_that_vanishes_or_changes_during_the_run_is_one_line(
    write: Write, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_dispatchguard.lint import engine

    root = write({"a.py": HOT, "b.py": HOT, "pyproject.toml": ""})
    real = engine.judge_files

    def change_first(*arguments: object) -> object:
        (root / "a.py").write_text("# other\n" + HOT)
        (root / "b.py").unlink(missing_ok=True)
        return real(*arguments)  # type: ignore[arg-type]  # handed on as they came

    monkeypatch.setattr(engine, "judge_files", change_first)
    done = run("check", "--jobs", "1")
    assert done.status == 2
    assert [line.partition(":")[2] for line in sorted(done.err.splitlines())] == [
        " a.py: changed while it was being checked; run again",
        " b.py: changed while it was being checked; run again",
    ]
    monkeypatch.undo()
    after = run("check", "--format", "json")
    assert [(p, line) for p, line, _ in after.places] == [("a.py", 7)]


def test_file_names_of_any_kind(write: Write, run: Run) -> None:
    names = ["sp ace.py", "new\nline.py", "ü.py", "-dash.py", "'quote\".py", "%41.py"]
    names += ["a:b.py", "a%0A,b:c.py", ":.py", "a:b:M.forward.py"]
    root = write(dict.fromkeys(names, HOT))
    if sys.platform == "linux":
        (Path(os.fsdecode(os.fsencode(root) + b"/\xff.py"))).write_text(HOT)
        names.append("\udcff.py")
    write({"pyproject.toml": ""})
    done = run("check", "--format", "json")
    assert sorted({str(f["path"]) for f in done.findings}) == sorted(names)
    for format in ("text", "github", "gitlab", "sarif", "rdjson", "markdown"):
        assert run("check", "--format", format).status == 1
        assert run("check", "--format", format, "--output", "out").status == 1
    assert run("check", "--baseline", "b.json", "--write-baseline").status == 0
    assert run("check", "--baseline", "b.json").status == 0


def test_a_configuration_nested_beyond_all_bounds_is_one_line(write: Write, run: Run) -> None:
    write({"a.py": HOT, "pyproject.toml": "[tool.dispatchguard]\nselect = " + "[" * 5_000})
    for words in (["check"], ["hot"], ["check", "--config", "pyproject.toml"]):
        assert "pyproject.toml: cannot be read: nested too deeply" in one_line(run(*words))


@pytest.mark.skipif(sys.platform != "linux", reason="a working folder that others hold")
@pytest.mark.parametrize("words", [("check",), ("check", "a.py"), ("hot",), ("clean",)])
def test_a_working_folder_that_is_gone_is_one_line(
    write: Write, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"cd '{gone}' && rmdir '{gone}' && exec \"$@\""
    # Python itself cannot find its modules by a folder that is gone.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    done = subprocess.run(
        ["/bin/sh", "-c", script, "sh", *command(words, gone)],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
    )
    said = Done(done.returncode, done.stdout, done.stderr)
    assert "the current directory cannot be found" in one_line(said)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes")
def test_a_pipe_is_no_baseline_nor_configuration(project: Path, run: Run) -> None:
    os.mkfifo(project / "pipe")
    for words in (["--baseline"], ["--write-baseline", "--baseline"]):
        assert "pipe: not a file" in one_line(run("check", *words, "pipe"))
    assert "pipe: no such configuration file" in one_line(run("check", "--config", "pipe"))


def test_an_internal_error_is_one_line(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_dispatchguard.lint import engine

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("oh no")

    monkeypatch.setattr(engine, "run", fail)
    line = one_line(run("check"))
    assert "internal error: RuntimeError: oh no" in line
    assert "DISPATCHGUARD_TRACEBACK" in line
