"""Real daemons and real commands that ask them: the same runs, and nothing left behind."""

from __future__ import annotations

import json
import marshal
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
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import dispatchguard_rules
import pytest

from pytest_dispatchguard import start
from pytest_dispatchguard.daemon import wire

if not wire.POSSIBLE:
    pytest.skip("daemons need fork and Unix sockets", allow_module_level=True)

from pytest_dispatchguard.daemon import asking, serving

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
        self.earlier = 0

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

    def daemons(self) -> list[str]:
        """A line for each daemon."""
        return [x for x in self.run("daemon")[1].decode().splitlines() if x.startswith("process ")]

    def run(self, *words: str, cwd: Path | None = None, text: bytes = b"", **more: str) -> Done:
        """A command, from its beginning to its end."""
        running = self.begin(*words, cwd=cwd, stdin=subprocess.PIPE, **more)
        out, err = running.communicate(text, timeout=120)
        return running.returncode, out, err

    def runs(self) -> int:
        """How many runs the daemon has done for this user; -1 where there is none."""
        done = (int(line.rpartition(": ")[2]) for line in self.daemons())
        return next(done, self.earlier - 1) - self.earlier

    def process(self) -> int:
        """The daemon's number."""
        (line,) = self.daemons()
        return int(line.split()[1].rstrip(","))

    def add_path(self, site: Path) -> None:
        """Has Python import from there."""
        old = self.environment.get("PYTHONPATH")
        self.environment["PYTHONPATH"] = os.pathsep.join([str(site), *([old] if old else [])])

    def wait(self) -> None:
        """Until a daemon listens."""
        _until(lambda: self.runs() >= 0)


def _age(folder: Path) -> None:
    """Waits until what was written there is older than what begins now."""
    latest = max(path.stat().st_ctime for path in folder.rglob("*"))
    while time.time() - 1.1 < latest:
        time.sleep(0.1)


def _heed_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "waited for a minute"
        time.sleep(0.02)


def _stopped(process: int) -> bool:
    return "T" in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def _hears(process: int, number: int) -> bool:
    """Whether it does something of its own at a signal."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    (caught,) = (line for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


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


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for daemons, which end with it."""
    folder = Path(tempfile.mkdtemp(prefix="dg-"))  # short: it is part of a socket's path
    yield folder
    User(folder, folder).run("daemon", "--stop")
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """The folder of a daemon that outlives a test."""
    with _folder() as folder:
        yield folder


@pytest.fixture
def user(project: Path) -> Iterator[User]:
    """Somebody for whom no daemon has begun."""
    with _folder() as folder:
        yield User(project, folder)


@pytest.fixture
def owner(user: User) -> User:
    """Somebody whose daemon waits for nobody else."""
    return _begun(user)


@pytest.fixture
def served(project: Path, shared: Path) -> User:
    """Somebody for whom a daemon waits, as it did for others: it is to be left as it was."""
    user = User(project, shared)
    user.earlier = user.runs() if user.daemons() else _begun(user).runs()
    return user


def _begun(user: User) -> User:
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
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "pytest_dispatchguard", "check", "--daemon"]
    done = subprocess.run(
        words, cwd=served.project, env=served.environment, stdout=writing, timeout=60, check=False
    )
    os.close(writing)
    assert done.returncode == 2
    assert served.runs() == 1


def _at_work(user: User) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A command, and the processes that do it: it waits for its text, and cannot be over."""
    daemon = user.process()
    words = ("check", "--daemon", "-", "--fix")
    running = user.begin(*words, stdin=subprocess.PIPE)

    def at_work() -> list[int]:
        return list(map(int, Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()))

    _until(at_work)
    return running, at_work()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_ctrl_c_ends_the_run_and_leaves_the_daemon(served: User) -> None:
    before = {p: p.read_bytes() for p in served.project.rglob("*.py")}
    running, processes = _at_work(served)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, b"")
    assert err == b"dispatchguard: interrupted; nothing was half-written\n"
    _until(lambda: not any(map(_lives, processes)))
    assert {p: p.read_bytes() for p in served.project.rglob("*.py")} == before
    assert served.run("check", "--daemon", "pkg/layer.py")[0] == 1
    assert served.runs() == 2


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_nothing_goes_on_for_a_command_that_was_killed(served: User) -> None:
    before = {p: p.read_bytes() for p in served.project.rglob("*.py")}
    running, processes = _at_work(served)
    running.kill()
    running.communicate(timeout=60)
    _until(lambda: not any(map(_lives, processes)))
    assert {p: p.read_bytes() for p in served.project.rglob("*.py")} == before
    assert served.runs() == 1


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_daemon_that_is_killed_is_one_line_and_the_next_one_begins(owner: User) -> None:
    running, processes = _at_work(owner)
    os.kill(owner.process(), signal.SIGKILL)
    out, err = running.communicate(LAYER.encode(), timeout=60)
    _until(lambda: not any(map(_lives, processes)))
    assert running.returncode == 2
    assert b"device=x.device" in out
    last = err.decode().splitlines()[-1]
    assert last == "dispatchguard: the daemon's run was ended before it was done; run again"
    assert owner.run("check", "--daemon", "pkg/layer.py")[0] == 1
    owner.wait()
    assert owner.runs() == 0


@pytest.mark.thorough
def test_what_was_imported_and_has_changed_is_imported_anew(user: User) -> None:
    site = user.project / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import added\n")
    added = site / "added.py"
    added.write_text("")
    _age(site)
    user.add_path(site)
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


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_ctrl_z_pauses_the_run(served: User) -> None:
    running, (process,) = _at_work(served)
    _until(lambda: _hears(running.pid, signal.SIGTSTP))
    running.send_signal(signal.SIGTSTP)
    _until(lambda: _stopped(running.pid) and _stopped(process))
    running.send_signal(signal.SIGCONT)
    _until(lambda: not _stopped(process))
    out, _ = running.communicate(LAYER.encode(), timeout=60)
    assert b"device=x.device" in out


@pytest.mark.thorough
def test_a_table_of_prices_that_has_changed_is_read_anew(user: User) -> None:
    site = user.project / "site"
    site.mkdir()
    about = site / "dear-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: dear\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[dispatchguard]\ndear = dear\n")
    table = json.loads((Path(dispatchguard_rules.__file__).parent / "prices.json").read_text())
    prices = site / "prices.json"
    prices.write_text(json.dumps(table))
    (site / "dear.py").write_text(
        "from pytest_dispatchguard import hookimpl\n"
        f"@hookimpl\ndef dispatchguard_prices():\n    return {str(prices)!r}\n"
    )
    _age(site)
    user.add_path(site)
    user.run("check", "--daemon")
    user.wait()
    words = ("check", "--format", "json")
    assert user.run(*words, "--daemon") == user.run(*words)
    assert user.runs() == 1
    for one in table["specimens"]:
        one["saves_us"] = {name: 100 * value for name, value in one["saves_us"].items()}
    prices.write_text(json.dumps(table))
    assert user.run(*words, "--daemon") == user.run(*words) == user.run(*words, "--no-cache")


def test_folders_that_others_can_write_to_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "b"
    base.mkdir(mode=0o700)
    monkeypatch.setattr(wire, "_LONGEST", 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    monkeypatch.setenv("TMPDIR", "relative")
    monkeypatch.chdir(tmp_path)
    ours = base / f"dispatchguard-{os.getuid()}"
    assert wire.folder() == str(ours)
    assert ours.stat().st_mode & 0o777 == 0o700
    ours.chmod(0o770)
    assert wire.folder() != str(ours)
    ours.rmdir()
    ours.symlink_to(tmp_path)
    assert wire.folder() != str(ours)
    ours.unlink()
    base.chmod(0o777)
    assert wire.folder() != str(ours)
    assert not ours.exists()
    base.chmod(0o1777)  # where nobody can move what is another's, as in /tmp
    assert wire.folder() == str(ours)
    assert not (tmp_path / "relative").exists()


def test_names_of_the_callers_own_files_are_left_to_the_caller(served: User) -> None:
    reading, writing = os.pipe()
    words = [sys.executable, "-m", "pytest_dispatchguard", "check", "--daemon"]
    subprocess.run(
        [*words, "--format", "json", "--output", f"/dev/fd/{writing}"],
        cwd=served.project,
        env=served.environment,
        pass_fds=[writing],
        timeout=60,
        check=False,
    )
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert json.loads(pipe.read())["findings"]
    assert served.runs() == 0


@pytest.mark.thorough
def test_flags_of_python_have_another_daemon(owner: User) -> None:
    words = [sys.executable, "-O", "-m", "pytest_dispatchguard", "check", "--daemon"]
    for _ in range(2):
        subprocess.run(
            words, cwd=owner.project, env=owner.environment, capture_output=True, check=False
        )
        _until(lambda: len(owner.daemons()) == 2)
    assert sorted(line[-1] for line in owner.daemons()) == ["0", "1"]


def test_whoever_says_nothing_keeps_nobody_waiting(served: User) -> None:
    (path,) = (p for p in served.folder.iterdir() if p.is_socket())
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        first.connect(str(path))
        second.connect(str(path))
        assert served.run("check", "--daemon")[0] == 1
    assert served.runs() == 1


@pytest.mark.thorough
def test_a_daemon_that_does_not_answer_is_left_alone(owner: User) -> None:
    alone = owner.run("check")
    daemon = owner.process()
    os.kill(daemon, signal.SIGSTOP)
    try:
        assert owner.run("check", "--daemon") == alone
    finally:
        os.kill(daemon, signal.SIGCONT)


def test_a_folder_that_is_gone_is_told(served: User) -> None:
    gone = served.project / "gone"
    gone.mkdir()
    code = (
        "import os, sys; os.rmdir(os.getcwd()); sys.argv[1:] = ['check', '--daemon']; del sys.path[0];"
        "from pytest_dispatchguard.start import command; command()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=gone,
        env=served.environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(b"dispatchguard: the current directory cannot be found")
    assert served.runs() == 1


def test_a_folder_too_deep_for_sockets_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    short = tempfile.mkdtemp(prefix="dg-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", f"{short}/{'deep/' * 20}")
    monkeypatch.setenv("TMPDIR", short)
    place = wire.place(wire.identity())
    assert place is not None and place.startswith(f"{short}/dispatchguard-")
    shutil.rmtree(short)


def test_another_environment_has_another_daemon(owner: User) -> None:
    for _ in range(2):
        assert owner.run("check", "--daemon", PYTHONIOENCODING="latin-1")[0] == 1
        _until(lambda: len(owner.daemons()) == 2)
    assert sorted(line[-1] for line in owner.daemons()) == ["0", "1"]


def test_nonsense_ends_no_daemon(served: User) -> None:
    (path,) = (p for p in served.folder.iterdir() if p.is_socket())
    well_formed = [marshal.dumps(x) for x in ((), 5, ("run",), ("run", 1, 2), ("tell", None, 3))]
    framed = [len(x).to_bytes(4, "big") + x for x in well_formed]
    for said in (b"", b"\xff\xff\xff\xff", b"\0\0\0\5nonsense", b"\0\0\0\1(", *framed):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(said)
    assert served.run("check", "--daemon")[0] == 1
    assert served.runs() == 1


def test_is_told_of_and_ended(owner: User) -> None:
    status, out, err = owner.run("daemon")
    assert (status, err) == (0, b"")
    assert out.startswith(b"process ") and out.endswith(b", runs so far: 0\n")
    assert owner.run("daemon", "--stop") == (0, b"stopped\n", b"")
    assert owner.run("daemon", "--stop") == (0, b"none is running\n", b"")
    none = b"none is running; the next `dispatchguard check --daemon` starts one\n"
    assert owner.run("daemon") == (0, none, b"")


def test_a_daemon_that_cannot_begin_says_why(user: User) -> None:
    site = user.project / "site" / "libcst"
    site.mkdir(parents=True)
    (site / "__init__.py").write_text("raise OSError('no room')\n")
    user.add_path(site.parent)
    user.run("check", "--daemon", "--help")
    _until(lambda: b"the last one did not start: OSError: no room" in user.run("daemon")[1])


# -- a daemon that does something else -------------------------------------------------------------


class Own:
    """A daemon of this process, whose commands are a test's."""

    def __init__(self, folder: Path, **work: object) -> None:
        self.folder = folder
        self.path = Path(wire.place(wire.identity()) or "")
        self.process = os.fork()
        if not self.process:
            try:
                serving.serve(replace(_idle_work(), **work))  # type: ignore[arg-type]  # by name
            except BaseException:  # noqa: BLE001 - whatever it is, it is told by the status
                os._exit(3)
            os._exit(0)
        _until(asking.told)  # its socket is there before it listens

    def ended(self) -> int:
        """How it ended; -1 where it has not."""
        process, status = os.waitpid(self.process, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if process else -1

    def end(self) -> None:
        assert asking.stop() == 1
        _until(lambda: self.ended() == 0)


def _idle_work() -> serving.Work:
    return serving.Work(
        start.command,
        start.interrupted,
        prepare=lambda: (),
        stamp=lambda files: "same",
    )


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Own]]:
    """Begins a daemon of one's own."""
    folder = Path(tempfile.mkdtemp(prefix="dg-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield partial(Own, folder)
    shutil.rmtree(folder)


def test_ends_when_nobody_asks(own: Callable[..., Own], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "IDLE_SECONDS", 0.4)
    monkeypatch.setattr(serving, "LOOK_SECONDS", 0.05)
    daemon = own()
    _until(lambda: daemon.ended() == 0)
    assert not daemon.path.exists()


# -- one state after the other ---------------------------------------------------------------------

_HELPED = (
    LAYER.replace("return x * mask", "return self.helped(x) * mask")
    + """
    def helped(self, x):
        if x.sum() > 0:
            return x
        return -x
"""
)


@pytest.mark.thorough
def test_tells_what_a_command_that_begins_at_the_beginning_tells(owner: User) -> None:
    """Whatever has changed since the last one."""
    assert owner.run("check", "--daemon")[0] == 1
    layer, other = owner.project / "pkg" / "layer.py", owner.project / "pkg" / "other.py"
    other.write_text("def shape_of(x):\n    return x.tolist()\n")
    for text in (
        LAYER,
        LAYER.replace("return x * mask", "return x * mask.item()"),
        _HELPED,
        _HELPED.replace("import os", "from pkg.other import shape_of as s\nimport os"),
        _HELPED.replace("import os", "from pkg.other import shape_of as s\nimport os").replace(
            "return -x", "return s(x)"
        ),
        "def forward(:",
        LAYER,
    ):
        layer.write_text(text)
        asked = owner.run("check", "--daemon", "--format", "json")
        assert asked == owner.run("check", "--no-cache", "--format", "json")
