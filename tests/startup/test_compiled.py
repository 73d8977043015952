"""What `dataclasses` compiles is kept for the next process, and comes out the same."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from pytest_dispatchguard.startup import compiled

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="kept where folders have owners")

COMPILER = vars(re).get("_compiler") or vars(re)["sre_compile"]

TELL = """
import builtins, dataclasses, sys
compiled = []
def compile_(text, name, mode, *more, _compile=builtins.compile, **named):
    if (name, mode) == ("<string>", "exec"):
        compiled.append(text)
    return _compile(text, name, mode, *more, **named)
builtins.compile = compile_
from pytest_dispatchguard.startup import compiled as precompiled
keep = precompiled.begin() if sys.argv[1] == "kept" else (lambda: None)
import libcst, pytest_dispatchguard.lint.judge.judge, pytest_dispatchguard.commands.linting.check
others = dataclasses.make_dataclass("Other", ["a"])
keep()
from types import FunctionType
def plain(value):
    return sorted(value) if isinstance(value, frozenset) else value
made = {f.__code__ for m in list(sys.modules.values()) for c in vars(m).values()
        if isinstance(c, type) and dataclasses.is_dataclass(c)
        for f in vars(c).values() if isinstance(f, FunctionType)}
said = sorted(f"{c.co_name} {c.co_qualname if sys.version_info >= (3, 11) else ''} {c.co_varnames} "
              f"{list(map(plain, c.co_consts))} {c.co_names} {c.co_code.hex()}" for c in made
              if c.co_filename == "<string>")
print(len(compiled), len(said), others(1), sep="|")
print("\\n".join(s for s in said if " at 0x" not in s))
"""


def told(cache: Path, way: str = "kept") -> tuple[int, int, str]:
    """How many texts a process compiled, of how many methods it tells, and all that it tells of them."""
    done = subprocess.run(
        [sys.executable, "-c", TELL, way],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        check=True,
        capture_output=True,
        text=True,
    )
    first, _, rest = done.stdout.partition("\n")
    compiled, methods, other = first.split("|")
    assert other == "Other(a=1)"
    return int(compiled), int(methods), rest


def kept_in(cache: Path) -> Path:
    """The one file in a cache."""
    (file,) = (cache / "dispatchguard").iterdir()
    return file


def test_the_second_process_compiles_nothing_and_has_the_same(tmp_path: Path) -> None:
    cache = tmp_path / "not" / "there"
    first = told(cache)
    assert first[0] > 150
    file = kept_in(cache)
    written = file.stat().st_mtime_ns
    second = told(cache)
    assert second[0] < 10  # those of others
    assert second[1:] == first[1:] == told(cache, "plain")[1:]
    assert first[1] > 500
    assert file.stat().st_mtime_ns == written
    assert cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("data", [b"", b"some bytes", b"\0\0\0\0", b"\x00" * 5000])
def test_what_is_no_such_file_is_written_anew(tmp_path: Path, data: bytes) -> None:
    told(tmp_path)
    kept_in(tmp_path).write_bytes(data)
    assert told(tmp_path)[0] > 150
    assert told(tmp_path)[0] < 10


def test_a_file_that_was_cut_short_is_not_read(tmp_path: Path) -> None:
    told(tmp_path)
    file = kept_in(tmp_path)
    file.write_bytes(file.read_bytes()[:-7])
    assert told(tmp_path)[0] > 150


@pytest.mark.skipif(os.name == "posix" and os.getuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_costs_time_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert told(tmp_path)[1] > 500
    finally:
        tmp_path.chmod(0o700)


def test_nothing_is_read_where_others_can_write(tmp_path: Path) -> None:
    told(tmp_path)
    file = kept_in(tmp_path)
    file.write_bytes(b"theirs")
    file.parent.chmod(0o777)
    told(tmp_path)
    assert file.read_bytes() == b"theirs"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to keep things in; what `begin` did is undone in the end."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(vars(dataclasses), "exec", None)
    monkeypatch.delitem(vars(dataclasses), "exec")
    monkeypatch.setattr(COMPILER, "compile", COMPILER.compile)
    return tmp_path


def test_only_our_own_is_kept(cache: Path) -> None:
    keep = compiled.begin()
    names = {"__name__": "somebody.elses"}
    run = vars(dataclasses)["exec"]
    run("found = 1", names, names)
    assert names["found"] == 1
    keep()
    assert not list((cache / "dispatchguard").iterdir())
    names["__name__"] = "libcst.mine"
    run("found = 2", names, names)
    assert names["found"] == 2
    keep()
    assert compiled._read(str(kept_in(cache))).keys() == {"found = 2"}


PATTERNS = r"""
import re, sys
from pytest_dispatchguard.startup import compiled
keep = compiled.begin() if sys.argv[1] == "kept" else (lambda: None)
compiler = sys.modules.get("re._compiler") or sys.modules["sre_compile"]
made = []
def code(tree, flags, _code=compiler._code):
    made.append(sys._getframe(1).f_locals.get("pattern"))
    return _code(tree, flags)
compiler._code = code
import pytest_dispatchguard.lint.judge.judge, pytest_dispatchguard.commands.linting.check
import pytest_dispatchguard.lint.scout.scan
import pytest_dispatchguard.lint.knowledge.cold_names, pytest_dispatchguard.lint.knowledge.library_names
from pytest_dispatchguard.lint.judge import packs
packs.load(("dispatchguard_rules",))
keep()
ours = [p for name, m in sorted(sys.modules.items())
        if name.startswith(("pytest_dispatchguard", "dispatchguard_rules", "libcst", "tomllib"))
        for _, p in sorted(vars(m).items()) if isinstance(p, re.Pattern)]
print(len(made))
for p in ours:
    words = ("is not None", "get_config", "torch.nn.Linear", "# dispatchguard: hot", "")
    found = [m and (m.regs, m.groupdict(), m.lastgroup) for m in map(p.search, words)]
    print(repr(p.pattern), p.flags, p.groups, p.groupindex, found)
"""


def test_expressions_are_kept_and_match_the_same(tmp_path: Path) -> None:
    def told(way: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-c", PATTERNS, way],
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
            check=True,
            capture_output=True,
            text=True,
        )
        made, _, rest = done.stdout.partition("\n")
        return int(made), rest

    plain, first, second = told("plain"), told("kept"), told("kept")
    assert plain[1].count("\n") > 100
    assert plain[1] == first[1] == second[1]
    assert plain[0] == first[0] > 150
    assert second[0] < 40  # those of others, and of functions


OF_PYTHON = """
import re, sys
for name in ("textwrap", "shlex", "configparser"):
    sys.modules.pop(name, None)
from pytest_dispatchguard.startup import compiled
keep = compiled.begin()
compiler = sys.modules.get("re._compiler") or sys.modules["sre_compile"]
made = []
def code(tree, flags, _code=compiler._code):
    made.append(tree)
    return _code(tree, flags)
compiler._code = code
import configparser, textwrap
keep()
section = configparser.ConfigParser.SECTCRE.match("[a]")
print(len(made), textwrap.wrap("one two-three four", 8), section["header"])
"""


def test_what_modules_of_python_compile_is_kept(tmp_path: Path) -> None:
    def told() -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-c", OF_PYTHON],
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
            check=True,
            capture_output=True,
            text=True,
        )
        made, _, rest = done.stdout.partition(" ")
        return int(made), rest

    first, second = told(), told()
    assert first[0] > 4 and second[0] == 0
    assert first[1] == second[1] == "['one two-', 'three', 'four'] a\n"


def test_classes_of_others_are_as_without(cache: Path) -> None:
    compiled.begin()

    made = dataclasses.make_dataclass("Made", [("a", int)])
    assert typing.get_type_hints(made.__init__)["a"] is int


def test_of_too_much_only_what_was_used_stays(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"__name__": "libcst"}
    for number in range(3):
        keep = compiled.begin()
        vars(dataclasses)["exec"](f"found = {number}", names, names)
        monkeypatch.setattr(compiled, "_MOST", 2)
        keep()
        monkeypatch.delitem(vars(dataclasses), "exec")
    assert compiled._read(str(kept_in(cache))).keys() == {"found = 2"}


def test_who_began_does_not_begin_again(cache: Path) -> None:
    compiled.begin()
    first = vars(dataclasses)["exec"]
    compiled.begin()
    assert vars(dataclasses)["exec"] is first


@pytest.mark.parametrize("base", ["relative", "/proc/nowhere", ""])
def test_no_folder_no_change(monkeypatch: pytest.MonkeyPatch, base: str, cache: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", base)
    monkeypatch.delenv("HOME", raising=False)
    compiled.begin()()
    assert "exec" not in vars(dataclasses)
