"""Real daemons and real commands that ask them: the same runs, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_dispatchguard import start
from pytest_dispatchguard.daemon import serving, wire

pytestmark = pytest.mark.skipif(not wire.POSSIBLE, reason="daemons need fork and Unix sockets")

LAYER = """\
import os, torch


class Gate(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if os.environ.get("GATE"):
            return x
        mask = torch.zeros(3).to(x.device)
        return x * mask
"""

Done = tuple[int, bytes, bytes]


class User:
    """Somebody with a project, and a folder for daemons of their own."""

    def __init__(self, project: Path, folder: Path) -> None:
        self.project = project
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "COLUMNS": "90"}
        self.folder = folder / f"dispatchguard-{os.getuid()}"

    def begin(
        self, *words: str, cwd: Path | None = None, stdin: int = subprocess.DEVNULL, **more: str
    ) -> subprocess.Popen[bytes]:
        """A command that runs on its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "pytest_dispatchguard", *words],
            cwd=cwd or self.project,
            env=self.environment | more,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_heed_ctrl_c,
        )

    def run(self, *words: str, cwd: Path | None = None, text: bytes = b"", **more: str) -> Done:
        """A command, from its beginning to its end."""
        running = self.begin(*words, cwd=cwd, stdin=subprocess.PIPE, **more)
        out, err = running.communicate(text, timeout=120)
        return running.returncode, out, err

    def runs(self) -> int:
        """How many runs the daemon has done; -1 where there is none."""
        said = self.run("daemon")[1].decode()
        return int(said.rpartition(": ")[2]) if said.startswith("process ") else -1

    def process(self) -> int:
        """The daemon's number."""
        return int(self.run("daemon")[1].split()[1].rstrip(b","))

    def wait(self) -> None:
        """Until a daemon listens."""
        _until(lambda: self.runs() >= 0)


def _heed_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "waited for a minute"
        time.sleep(0.02)


def _lives(process: int) -> bool:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] != "Z"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.dispatchguard]\n")
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "layer.py").write_text(LAYER)
    return tmp_path


@pytest.fixture
def user(project: Path) -> Iterator[User]:
    """Somebody for whom no daemon has begun."""
    folder = Path(tempfile.mkdtemp(prefix="dg-"))  # short: it is part of a socket's path
    user = User(project, folder)
    yield user
    user.run("daemon", "--stop")
    shutil.rmtree(folder)


@pytest.fixture
def served(user: User) -> User:
    """Somebody for whom a daemon waits."""
    assert user.run("check", "--daemon")[0] == 1
    user.wait()
    return user


WORDS = [
    ("--format", "json"),
    ("pkg/layer.py", "--color", "always"),
    ("--statistics",),
    ("--diff", "--unsafe-fixes"),
    ("nowhere",),
    ("--select", "DG999"),
    ("--no-such-option",),
    ("--help",),
]


def test_says_what_the_command_says_by_itself(served: User) -> None:
    for words in WORDS:
        assert served.run("check", "--daemon", *words) == served.run("check", *words)
    assert served.runs() == len(WORDS)


def test_is_where_and_who_the_command_is(served: User) -> None:
    here = served.project / "pkg"
    for more in ({"COLUMNS": "60"}, {"COLUMNS": "140", "FORCE_COLOR": "1"}):
        words = ("check", "layer.py")
        assert served.run(*words, "--daemon", cwd=here, **more) == served.run(
            *words, cwd=here, **more
        )
    words = ("check", "-", "--stdin-filename", "pkg/new.py", "--format", "github")
    asked = served.run(*words, "--daemon", text=LAYER.encode())
    assert asked == served.run(*words, text=LAYER.encode())
    assert b"pkg/new.py" in asked[1]
    assert served.runs() == 3


def test_writes_what_fixes_make_with_the_rights_the_command_gives(served: User) -> None:
    def fixed(*words: str) -> tuple[str, int]:
        file = served.project / "pkg" / "layer.py"
        file.write_text(LAYER)
        out = served.project / "out.json"
        out.unlink(missing_ok=True)
        served.run("check", "--fix", "--unsafe-fixes", "--output", "out.json", *words)
        return file.read_text() + out.read_text(), out.stat().st_mode

    old = os.umask(0o077)
    try:
        alone = fixed()
        assert fixed("--daemon") == alone
    finally:
        os.umask(old)
    assert "device=x.device" in alone[0]
    assert alone[1] & 0o777 == 0o600


def test_many_ask_at_once(served: User) -> None:
    alone = served.run("check", "--format", "json")
    with ThreadPoolExecutor(6) as many:
        asked = [many.submit(served.run, "check", "--format", "json", "--daemon") for _ in range(6)]
    assert [a.result() for a in asked] == [alone] * 6
    assert served.runs() == 6


def test_whoever_reads_no_more_ends_the_run(served: User) -> None:
    running = served.begin("check", "--daemon", stdin=subprocess.DEVNULL)
    assert running.stdout is not None
    running.stdout.close()
    assert running.wait(60) == 2
    assert served.runs() == 1


@pytest.fixture
def large(served: User) -> User:
    for n in range(60):
        body = "".join(LAYER.replace("Gate", f"Gate{k}") for k in range(8))
        (served.project / "pkg" / f"m{n}.py").write_text(body)
    return served


def _at_work(user: User) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A command, and the processes that do it once workers are among them."""
    running = user.begin("check", "--daemon", "--fix", "--no-cache", "--jobs", "3")
    daemon = user.process()

    def at_work() -> list[int]:
        found = [daemon]
        for parent in found:
            children = Path(f"/proc/{parent}/task/{parent}/children")
            if children.exists():
                found += map(int, children.read_text().split())
        return found[1:]

    _until(lambda: len(at_work()) >= 3)
    return running, at_work()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_ctrl_c_ends_the_run_and_leaves_the_daemon(large: User) -> None:
    before = {p: p.read_bytes() for p in large.project.rglob("*.py")}
    running, processes = _at_work(large)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, b"")
    assert err == b"dispatchguard: interrupted; nothing was half-written\n"
    _until(lambda: not any(map(_lives, processes)))
    assert {p: p.read_bytes() for p in large.project.rglob("*.py")} == before
    assert large.run("check", "--daemon", "pkg/layer.py")[0] == 1
    assert large.runs() == 2


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_nothing_goes_on_for_a_command_that_was_killed(large: User) -> None:
    before = {p: p.read_bytes() for p in large.project.rglob("*.py")}
    running, processes = _at_work(large)
    running.kill()
    running.communicate(timeout=60)
    _until(lambda: not any(map(_lives, processes)))
    assert {p: p.read_bytes() for p in large.project.rglob("*.py")} == before
    assert large.runs() == 1


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_daemon_that_is_killed_is_one_line_and_the_next_one_begins(large: User) -> None:
    running, processes = _at_work(large)
    for process in (large.process(), *processes):
        os.kill(process, signal.SIGKILL)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 2
    (line,) = err.decode().splitlines()
    assert line == "dispatchguard: the daemon's run was ended before it was done; run again"
    assert large.run("check", "--daemon", "pkg/layer.py")[0] == 1
    large.wait()
    assert large.runs() == 0


def test_what_was_imported_and_has_changed_is_imported_anew(user: User) -> None:
    site = user.project / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import added\n")
    added = site / "added.py"
    added.write_text("")
    old = user.environment.get("PYTHONPATH")
    user.environment["PYTHONPATH"] = os.pathsep.join([str(site), *([old] if old else [])])
    user.run("check", "--daemon")
    user.wait()
    first = user.process()
    assert user.run("check", "--daemon")[0] == 1
    assert user.runs() == 1
    added.write_text("# of another version\n")
    assert user.run("check", "--daemon")[0] == 1
    user.wait()
    assert user.process() != first
    assert user.runs() == 0


def test_others_who_could_write_there_are_not_asked(user: User) -> None:
    alone = user.run("check")
    user.folder.mkdir(mode=0o700)
    user.folder.chmod(0o777)
    assert user.run("check", "--daemon") == alone
    assert user.run("daemon")[1].startswith(b"none is running")
    assert list(user.folder.iterdir()) == []


def test_a_folder_too_deep_for_sockets_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    short = tempfile.mkdtemp(prefix="dg-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"{short}/{'deep/' * 20}")
    monkeypatch.setenv("TMPDIR", short)
    place = wire.place(wire.identity())
    assert place is not None and place.startswith(f"{short}/dispatchguard-")
    shutil.rmtree(short)


def test_another_environment_has_another_daemon(served: User) -> None:
    assert served.run("check", "--daemon", PYTHONIOENCODING="latin-1")[0] == 1
    assert served.runs() == 0


def test_nonsense_ends_no_daemon(served: User) -> None:
    (path,) = (p for p in served.folder.iterdir() if p.is_socket())
    for said in (b"", b"\xff\xff\xff\xff", b"\0\0\0\5nonsense", b"\0\0\0\1("):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(said)
    assert served.run("check", "--daemon")[0] == 1
    assert served.runs() == 1


def test_is_told_of_and_ended(served: User) -> None:
    status, out, err = served.run("daemon")
    assert (status, err) == (0, b"")
    assert out.startswith(b"process ") and out.endswith(b", runs so far: 0\n")
    assert served.run("daemon", "--stop") == (0, b"stopped\n", b"")
    assert served.run("daemon", "--stop") == (0, b"none is running\n", b"")
    none = b"none is running; the next `dispatchguard check --daemon` begins one\n"
    assert served.run("daemon") == (0, none, b"")


def test_a_daemon_that_cannot_begin_says_why(user: User) -> None:
    site = user.project / "site" / "libcst"
    site.mkdir(parents=True)
    (site / "__init__.py").write_text("raise OSError('no room')\n")
    old = user.environment.get("PYTHONPATH")
    user.environment["PYTHONPATH"] = os.pathsep.join([str(site.parent), *([old] if old else [])])
    user.run("check", "--daemon", "--help")
    _until(lambda: b"the last one ended with: OSError: no room" in user.run("daemon")[1])


def test_ends_when_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(tempfile.mkdtemp(prefix="dg-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setattr(serving, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(serving, "LOOK_SECONDS", 0.05)
    path = wire.place(wire.identity())
    assert path is not None
    process = os.fork()
    if not process:
        try:
            serving.serve(start.command, start.interrupted)
        finally:
            os._exit(0 if not Path(path).exists() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
    shutil.rmtree(folder)
