"""Every option of every command does what it says, and the exit status is 0, 1 or 2."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from pytest_dispatchguard.commands import options

from .conftest import A, Done, Run, Write, command, one_line

FORMATS = ("text", "json", "sarif", "github", "gitlab", "rdjson", "markdown", "prompt", "html")


def code_at(done: Done, path: str, line: int) -> str:
    (code,) = [c for p, at, c in done.places if (p, at) == (path, line)]
    return code


@pytest.fixture
def found(project: Path, run: Run) -> Done:
    return run("check", "--format", "json")


def test_findings_are_status_1_with_reasons(found: Done) -> None:
    assert found.status == 1
    assert [(p, line) for p, line, _ in found.places] == [
        ("pkg/a.py", 8),
        ("pkg/a.py", 10),
        ("pkg/b.py", 5),
    ]
    helper = found.findings[-1]["hot"]
    assert helper["path"] == ["pkg.a.Gate.forward", "pkg.b.helper"]


def test_clean_is_status_0(write: Write, run: Run) -> None:
    write({"a.py": "x = 1\n"})
    done = run("check")
    assert (done.status, done.err) == (0, "")


def test_a_missing_path_is_status_2_and_leaves_nothing_behind(project: Path, run: Run) -> None:
    assert one_line(run("check", "pkg/nope.py")) == (
        "dispatchguard: pkg/nope.py: no such file or directory"
    )
    assert "no/such/x.py" in one_line(run("check", "pkg/a.py", "no/such/x.py"))
    assert "nope" in one_line(run("hot", "nope"))
    assert "nope" in one_line(run("clean", "nope"))
    assert not list(project.rglob(".dispatchguard"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["chek"], 'did you mean "check"?'),
        (["check", "--selct", "DG4"], 'unknown option --selct; did you mean "--select"?'),
        (["check", "--formt=json"], 'unknown option --formt; did you mean "--format"?'),
        (["check", "--unsafe"], 'did you mean "--unsafe-fixes"?'),
        (["check", "--format", "jsn"], 'did you mean "json"?'),
        (["check", "--select", "DG4O1"], 'unknown code "DG4O1"; did you mean "DG4'),
        (["check", "--select", "D4"], 'unknown code "D4"; did you mean "DG4"?'),
        (["check", "--ignore", "XYZ9"], 'unknown code "XYZ9"'),
        (["check", "--select", "factory-then-move"], 'for factory-then-move, write "DG504"'),
        (["check", "--ignore", "factory-then-mov"], 'for factory-then-move, write "DG504"'),
        (["check", "--select", "DG42x"], "the codes in DG42 are: DG42"),
        (["check", "--select", "DG9"], "the families are: DG0, DG1, DG2"),
        (["check", "--select", ""], "names no code"),
        (["check", ""], "an empty path"),
        (["hot", ""], "an empty path"),
        (["clean", ""], "an empty path"),
        (["check", "--config", ""], "an empty path"),
        (["check", "--baseline", ""], "an empty path"),
        (["check", "--output", ""], "an empty path"),
        (["check", "--jobs", "0"], "'0' is not a positive whole number"),
        (["check", "--config", "none.toml"], "none.toml: no such configuration file"),
        (["check", "--unsafe-fixes"], "requires --fix or --diff"),
        (["check", "--fix", "--diff"], "--fix cannot be combined with --diff"),
        (["check", "--diff", "--format", "json"], "--diff cannot be combined"),
        (["check", "--diff", "--statistics"], "--diff cannot be combined"),
        *(
            (
                ["check", "--statistics", "--format", name],
                f"cannot be combined with --format {name}",
            )
            for name in FORMATS[2:]
        ),
        (["check", "--stdin-filename", "x.py"], "requires the path -"),
        (["check", "-", "pkg"], "cannot be combined with other paths"),
        (["check", "--write-baseline"], "pass --baseline FILE"),
        (["check", "--baseline", "none.json"], "no such baseline"),
        (["check", "--diff-base", "HEAD"], "--diff-base"),
        (["rule", "DG4O1"], "the nearest is DG4"),
        (["rule", "item-raed"], "the nearest is item-read"),
        (["rule"], "CODE"),
        (["rules", "x"], "unexpected argument 'x'"),
        (["hot", "--slect", "x"], "unknown option --slect"),
        ([], "COMMAND"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    project: Path, run: Run, words: list[str], told: str
) -> None:
    assert told in one_line(run(*words))


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ('selct = ["DG4"]', 'unknown key "selct"; did you mean "select"?'),
        ('ignore = ["DG4O1"]', 'did you mean "DG4'),
        ("exclude = 3", "exclude"),
        ("[", "not valid TOML"),
    ],
)
def test_a_wrong_configuration_is_one_line_and_status_2(
    project: Path, run: Run, table: str, told: str
) -> None:
    (project / "pyproject.toml").write_text(f"[tool.dispatchguard]\n{table}\n")
    for words in (["check"], ["hot"]):
        assert told in one_line(run(*words))


def test_select_ignore_and_extend_select(project: Path, run: Run, found: Done) -> None:
    truth, item = code_at(found, "pkg/a.py", 8), code_at(found, "pkg/b.py", 5)
    only = run("check", "--format", "json", "--select", truth)
    assert [c for *_, c in only.places] == [truth]
    more = run("check", "--format", "json", "--select", truth, "--extend-select", item)
    assert [c for *_, c in more.places] == [truth, item]
    less = run("check", "--format", "json", "--ignore", truth, "--ignore", truth)
    assert truth not in [c for *_, c in less.places]
    assert len(less.places) == len(found.places) - 1
    (project / "pyproject.toml").write_text(f'[tool.dispatchguard]\nignore = ["{truth}"]\n')
    assert run("check", "--format", "json").places == less.places
    assert truth in [c for *_, c in run("check", "--format", "json", "--select", truth).places]


def test_a_file_that_does_not_parse_is_told_and_the_others_are_checked(
    project: Path, run: Run, found: Done
) -> None:
    (project / "pkg" / "c.py").write_text("x = 1\ndef f(:\n    pass\n")
    done = run("check", "--format", "json")
    assert done.status == 1
    assert [f for f in done.places if f[0] != "pkg/c.py"] == found.places
    (told,) = [f for f in done.findings if f["path"] == "pkg/c.py"]
    assert (told["code"], told["line"], told["column"]) == ("DG001", 2, 7)


def test_an_unparsable_file_never_passes_for_clean(project: Path, run: Run) -> None:
    (project / "pkg" / "c.py").write_text("def f(:\n")
    assert run("check", "pkg/c.py", "--select", "DG4").status == 1
    assert run("check", "pkg/c.py", "--ignore", "DG001").status == 0


def test_text_speaks_of_paths_from_where_it_was_asked_for(project: Path, run: Run) -> None:
    here = run("check")
    below = run("check", "..", cwd=project / "pkg")
    assert "pkg/a.py:" in here.out
    assert below.out == here.out.replace("pkg/", "")


@pytest.mark.parametrize("format", [f for f in FORMATS if f not in ("text", "prompt")])
def test_machine_formats_speak_of_paths_from_the_root(project: Path, run: Run, format: str) -> None:
    here = run("check", "--format", format)
    assert here.status == 1
    assert "pkg/a.py" in here.out
    assert str(project) not in here.out
    below = run("check", "..", "--format", format, cwd=project / "pkg")
    assert below.out == here.out


def test_output_goes_to_a_file(project: Path, run: Run) -> None:
    done = run("check", "--format", "json", "--output", "out.json")
    assert (done.status, done.out, done.err) == (1, "", "")
    assert json.loads((project / "out.json").read_text())["findings"]


def test_output_is_written_whole_or_not_at_all(project: Path, run: Run) -> None:
    (project / "kept").mkdir()
    assert "kept" in one_line(run("check", "--output", "kept"))
    assert "none" in one_line(run("check", "--output", "none/out.json"))
    assert sorted(p.name for p in project.iterdir() if not p.name.startswith(".")) == [
        "kept",
        "pkg",
        "pyproject.toml",
    ]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_device_is_written_to_and_not_replaced(project: Path, run: Run) -> None:
    pipe = project / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        assert run("check", "--format", "json", "--output", pipe).status == 1
        assert reader.communicate()[0].startswith(b"{")
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="no /dev/stdout")
@pytest.mark.parametrize("way", ["/dev/stdout", "/dev/stderr", "link"])
def test_a_stream_by_its_name_is_written_to_where_it_leads(project: Path, way: str) -> None:
    (project / "link").symlink_to("/dev/stdout")
    log = project / "log"
    log.write_text("before\n")
    inode = log.stat().st_ino
    with log.open("a") as stream:
        words = command(["check", "--format", "json", "--output", way], project)
        streams = {"stderr": stream} if way == "/dev/stderr" else {"stdout": stream}
        assert subprocess.run(words, cwd=project, **streams, check=False).returncode == 1
        stream.write("after\n")
    assert log.stat().st_ino == inode
    text = log.read_text()
    assert text.startswith("before\n{")
    assert text.endswith("}\nafter\n")


def test_statistics(project: Path, run: Run) -> None:
    done = run("check", "--statistics")
    assert done.status == 1
    assert done.out.splitlines()[-1].split() == ["3", "in", "all"]
    counts = json.loads(run("check", "--statistics", "--format", "json").out)["statistics"]
    assert sum(row["count"] for row in counts) == 3
    assert sum(row["fixable"] for row in counts) == 3


def test_exit_zero(project: Path, run: Run) -> None:
    done = run("check", "--exit-zero", "--format", "json")
    assert done.status == 0
    assert done.findings
    assert run("check", "nope", "--exit-zero").status == 2


def test_pedantic_shows_the_maybes(write: Write, run: Run) -> None:
    write(
        {
            "a.py": "import pandas\nimport torch\n\n"
            "def f(x, other):  # dispatchguard: hot\n    return pandas.Series(other).item()\n"
        }
    )
    assert run("check", "--format", "json").findings == []
    shown = run("check", "--format", "json", "--pedantic").findings
    assert [f["certainty"] for f in shown] == ["maybe"]
    write({"pyproject.toml": "[tool.dispatchguard]\npedantic = true\n"})
    assert run("check", "--format", "json").findings == shown


def test_suppressed_maybes_count_only_for_the_pedantic(write: Write, run: Run) -> None:
    text = "import pandas\nimport torch\n\ndef f(x, other):  # dispatchguard: hot\n"
    write({"a.py": f"{text}    return pandas.Series(other).item()  # dispatchguard: ignore\n"})
    for option, count in (("--pedantic", 1), ("--exit-zero", 0)):
        done = run("check", "--format", "json", option)
        assert done.findings == []
        assert json.loads(done.out)["summary"]["suppressed"] == count


def test_rules_and_rule(run: Run) -> None:
    listed = json.loads(run("rules", "--format", "json").out)["rules"]
    codes = [r["code"] for r in listed]
    assert codes == sorted(codes)
    assert {"DG001", "DG002"} < set(codes)
    text = run("rules")
    assert text.status == 0
    assert all(code in text.out for code in codes)
    rule = listed[-1]
    family = run("rule", "dg4")
    assert family.status == 0
    assert [line[:5] for line in family.out.splitlines() if line.startswith("DG")] == [
        code for code in codes if code.startswith("DG4")
    ]
    for word in (rule["code"], rule["code"].lower(), rule["name"]):
        page = run("rule", word)
        assert page.status == 0
        assert rule["code"] in page.out
        assert rule["name"] in page.out


def test_hot_lists_hot_functions_with_their_paths(project: Path, run: Run) -> None:
    done = run("hot")
    assert done.status == 0
    assert "pkg.a.Gate.forward -> pkg.b.helper" in done.out
    assert "cold" not in done.out
    only = json.loads(run("hot", "pkg/b.py", "--format", "json").out)
    assert "pkg.b.helper" in json.dumps(only)
    assert "Gate.forward" in json.dumps(only)
    assert run("hot", "--no-cache", "--jobs", "1").out == done.out


def test_clean_drops_the_cache_and_nothing_else(project: Path, run: Run) -> None:
    assert run("clean").out.startswith("no cache")
    run("check")
    cache = project / ".dispatchguard"
    (cache / "profile.json").write_text("{}")
    assert run("clean", cwd=project / "pkg").out.startswith("dropped")
    assert sorted(p.name for p in cache.iterdir() if p.name != ".gitignore") == ["profile.json"]


def test_no_cache_leaves_no_cache(project: Path, run: Run) -> None:
    assert run("check", "--no-cache").status == 1
    assert not (project / ".dispatchguard").exists()


def test_version_and_help(run: Run) -> None:
    assert run("--version").out.startswith("dispatchguard ")
    for words in (["--help"], ["check", "--help"], ["hot", "--help"]):
        done = run(*words)
        assert done.status == 0
        assert "usage" in done.out.lower()


# -- standard input --------------------------------------------------------------------------------


def test_standard_input_stands_for_the_file_it_names(project: Path, start: Run) -> None:
    text = A.replace('get("GATE")', 'get("GATE") or os.environ.get("MORE")')
    words = ("check", "--format", "json", "--stdin-filename", "pkg/a.py", "-")
    done = start(*words, stdin=text.encode())
    assert done.status == 1
    assert {p for p, *_ in done.places} == {"pkg/a.py"}
    assert (project / "pkg" / "a.py").read_text() == A
    assert start(*words, stdin=b"").status == 0


def test_standard_input_that_cannot_be_read_is_a_finding(project: Path, start: Run) -> None:
    words = ("check", "-", "--stdin-filename", "pkg/new.py", "--format", "json")
    done = start(*words, stdin=b"x = 1\ny = '\xff'\n")
    assert done.status == 1
    assert done.places == [("pkg/new.py", 2, "DG001")]
    done = start(*words, "--fix", stdin=b"y = '\xff'\n")
    assert done.status == 1
    assert "DG001" in done.err


def test_standard_input_is_fixed_to_standard_output(project: Path, start: Run) -> None:
    given = b"\xef\xbb\xbf" + A.replace("\n", "\r\n").encode()
    words = ("check", "-", "--stdin-filename", "pkg/a.py")
    done = start(*words, "--fix", stdin=given)
    assert done.status == 1
    assert done.out.encode() == given.replace(
        b"torch.zeros(3).to(x.device)", b"torch.zeros(3, device=x.device)"
    )
    assert "pkg/a.py:8" in done.err
    shown = start(*words, "--diff", stdin=given)
    assert shown.status == 1
    assert "+        mask = torch.zeros(3, device=x.device)  # the mask" in shown.out
    clean = start(*words, "--fix", stdin=b"x = 1\n")
    assert (clean.status, clean.out) == (0, "x = 1\n")


def test_standard_input_of_an_excluded_file_is_passed_over(project: Path, start: Run) -> None:
    (project / "pyproject.toml").write_text('[tool.dispatchguard]\nexclude = ["pkg/a.py"]\n')
    done = start("check", "-", "--stdin-filename", "pkg/a.py", "--fix", stdin=A.encode())
    assert (done.status, done.out) == (0, A)


def test_hot_says_what_it_could_not_read(project: Path, run: Run) -> None:
    (project / "broken.py").write_text("x = (\n")
    done = run("hot", "broken.py")
    assert done.status == 0
    (line,) = done.err.splitlines()
    assert line.startswith("dispatchguard: note: broken.py:1:5: ")
    assert line.endswith("; nothing in this file was analyzed")
    assert done.out.startswith("no hot functions")
    assert "nothing in this file" in run("hot").err
    assert run("hot", "pkg").err == ""


# -- where the output goes -------------------------------------------------------------------------


def test_a_reader_that_has_had_enough_sees_no_trace(project: Path) -> None:
    (project / "pkg" / "many.py").write_text(
        "import inspect, torch\n"
        + "".join(
            f"class M{i}(torch.nn.Module):\n    def forward(self, x: torch.Tensor):\n"
            "        return inspect.signature(x)\n"
            for i in range(400)
        )
    )
    with subprocess.Popen(
        command(["check"], project),
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        assert running.stdout.read(10)
        running.stdout.close()
        assert running.stderr.read() == b""
        running.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_line(project: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command(["check"], project), cwd=project, stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert "No space left" in line
    with Path("/dev/full").open("wb"):
        done = subprocess.run(
            command(["check", "--output", "/dev/full"], project),
            cwd=project,
            capture_output=True,
        )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert Path("/dev/full").is_char_device()


FORMATS = "text json sarif github gitlab rdjson markdown prompt html".split()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "words",
    [
        *(["check", "--format", form] for form in FORMATS[:2]),
        *(
            pytest.param(["check", "--format", form], marks=pytest.mark.thorough)
            for form in FORMATS[2:]
        ),
        ["check", "--statistics"],
        ["check", "--diff"],
        ["check", "--help"],
        ["--version"],
        ["hot"],
        ["rules"],
        ["rule", "DG401"],
        ["clean"],
        ["daemon"],
    ],
    ids=" ".join,
)
def test_output_that_cannot_be_written_is_an_error(project: Path, words: list[str]) -> None:
    def run(stderr: int | IO[bytes]) -> subprocess.CompletedProcess[bytes]:
        line = command(words, project)
        return subprocess.run(line, cwd=project, stdout=full, stderr=stderr, check=False)

    with Path("/dev/full").open("wb") as full:
        done = run(subprocess.PIPE)
        assert done.returncode == 2
        (line,) = done.stderr.decode().splitlines()
        assert line == "dispatchguard: the report cannot be written: No space left on device"
        # Where standard error takes nothing either, the status still tells.
        assert run(full).returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "words", [["check", "--nope"], ["check", "nowhere"], ["nope"], ["run", "-x"]]
)
def test_errors_that_cannot_be_told_have_their_status(project: Path, words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command(words, project), cwd=project, stderr=full, check=False)
    assert done.returncode == 2


@pytest.mark.skipif(sys.platform == "win32", reason="shell syntax")
def test_closed_output_is_no_crash(project: Path) -> None:
    words = " ".join(command(["check"], project))
    done = subprocess.run(f"{words} >&-", shell=True, cwd=project, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == b""


def test_stdout_of_a_narrow_encoding(project: Path, start: Run) -> None:
    (project / "pkg" / "a.py").write_text(A.replace("# the mask", "# die Maske für ñ →"))
    done = start("check", env={"PYTHONIOENCODING": "ascii"})
    assert done.status == 1


def test_the_summary_says_what_only_pedantic_tells(write: Write, run: Run) -> None:
    write(
        {
            "a.py": "import pandas\nimport torch\ndef f(x, other):  # dispatchguard: hot\n"
            "    return pandas.Series(other).item()\n"
        }
    )
    quiet, loud = run("check"), run("check", "--pedantic")
    assert (quiet.status, loud.status) == (0, 1)
    assert "1 uncertain (see --pedantic)" in quiet.out
    assert "uncertain" not in loud.out
    numbers = [json.loads(run("check", *w, "--format", "json").out) for w in ([], ["--pedantic"])]
    assert [n["summary"]["unheard"] for n in numbers] == [1, 0]


def test_a_file_that_is_no_python_is_one_line(write: Write, run: Run, start: Run) -> None:
    root = write({"README.md": "# text\n", "data.txt": "x", "a.py": "x = 1\n"})
    told = "dispatchguard: README.md: "
    told += "not a Python file; name directories, or files that end in .py, .pyi or .ipynb"
    assert one_line(run("check", "a.py", "README.md")) == told
    assert one_line(run("hot", "README.md")) == told
    assert one_line(start("check", "-", "--stdin-filename", "README.md", stdin=b"x")) == told
    (root / "link.md").symlink_to("README.md")
    assert "link.md: not a Python file" in one_line(run("check", "link.md"))
    (root / "pyproject.toml").write_text("[tool.dispatchguard]\nexclude = ['*.md']\n")
    assert run("check", "README.md").status == 0


def test_scripts_are_python_by_their_first_line(write: Write, run: Run, start: Run) -> None:
    root = write(
        {
            "tool": "x = 1\n",
            "run.cgi": "#!/usr/bin/env python3\nx = 1\n",
            "stub.pyi": "x: int\n",
            "real.py": "x = 1\n",
        }
    )
    (root / "link.txt").symlink_to("real.py")
    done = run("check", "tool", "run.cgi", "stub.pyi", "link.txt")
    assert (done.status, done.err) == (0, "")
    assert "4 files" in done.out
    stdin = b"#!/usr/bin/python\nx = 1\n"
    assert start("check", "-", "--stdin-filename", "new.cgi", stdin=stdin).status == 0


def test_help_names_every_exit_status(run: Run) -> None:
    told = " ".join(run("--help").out.split())
    assert "0 clean, 1 findings" in told
    assert "130 interrupted" in told


@pytest.mark.parametrize(
    ("name", "said", "form"),
    [
        ("found.json", None, "json"),
        ("found.MD", None, "markdown"),
        ("found.svg", None, "svg"),
        ("found.html", None, "text"),
        ("found.txt", None, "text"),
        ("found.json", "markdown", "markdown"),
        (None, None, "text"),
        (None, "svg", "svg"),
    ],
)
def test_the_name_of_a_file_chooses_among_the_formats_of_a_command(
    name: str | None, said: str | None, form: str
) -> None:
    parser = argparse.ArgumentParser()
    formats = ("text", "json", "markdown", "svg")
    options.format_and_file(parser, formats)
    words = [*(["--output", name] if name else []), *(["--format", said] if said else [])]
    assert options.chosen_format(parser.parse_args(words), formats) == form
    assert ".json, .md, .svg choose the format" in " ".join(parser.format_help().split())
