"""Which devices are here, and how tests are run on each."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_dispatchguard.measure.timing import devices

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

SUITE = """
import pytest

@pytest.mark.overhead_budget(ratio=3.0)
def test_add(overhead, overhead_device):
    torch = pytest.importorskip("torch", reason="runs torch code")
    x = torch.ones(4, device=overhead_device)
    overhead(torch.add, x, x).against(torch.add, x, x)
"""
SHARED = "tests were measured without a process of their own: an accelerator is in use"


@pytest.fixture
def run(pytester: pytest.Pytester, plugin_flags: tuple[str, ...]) -> Any:
    def started(*words: str) -> pytest.RunResult:
        return pytester.runpytest_subprocess(*plugin_flags, "-p", "no:cacheprovider", *words)

    return started


def torch_with(monkeypatch: pytest.MonkeyPatch, **parts: Any) -> SimpleNamespace:
    """A torch that has these parts alone."""
    torch = SimpleNamespace(**parts)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


def accelerator(kind: str | None) -> SimpleNamespace:
    """torch.accelerator of a torch that is built for one kind."""
    device = None if kind is None else SimpleNamespace(type=kind)
    return SimpleNamespace(current_accelerator=lambda: device, is_available=lambda: 1 / 0)


def test_before_torch_is_imported_there_is_no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert devices.accelerator() is None
    assert devices.here() is devices.HOST
    assert devices.here("cpu") is devices.HOST


@pytest.mark.parametrize(("count", "found"), [(0, None), (2, "xpu")])
def test_an_accelerator_is_counted_and_not_woken(
    monkeypatch: pytest.MonkeyPatch, count: int, found: str | None
) -> None:
    module = SimpleNamespace(device_count=lambda: count)
    torch_with(monkeypatch, accelerator=accelerator("xpu"), xpu=module)
    assert devices.accelerator() == found


@pytest.mark.parametrize(("count", "found"), [(0, None), (1, "cuda")])
def test_a_torch_without_torch_accelerator_is_asked_for_cuda(
    monkeypatch: pytest.MonkeyPatch, count: int, found: str | None
) -> None:
    torch_with(monkeypatch, cuda=SimpleNamespace(device_count=lambda: count))
    assert devices.accelerator() == found


def test_a_torch_that_raises_for_want_of_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    def current_accelerator() -> None:
        raise RuntimeError("Cannot access accelerator device when none is available.")

    torch_with(monkeypatch, accelerator=SimpleNamespace(current_accelerator=current_accelerator))
    assert devices.accelerator() is None


def cuda_of(events: type, *, initialised: bool, mode: int = 0) -> SimpleNamespace:
    """torch.cuda of a machine with a GPU."""
    cuda = SimpleNamespace(
        device_count=lambda: 1,
        is_initialized=lambda: initialised,
        synchronize=lambda: None,
        Event=events,
        _sleep=lambda cycles: cuda.slept.append(cycles),
        slept=[],
        modes=[mode],
        get_sync_debug_mode=lambda: cuda.modes[-1],
        set_sync_debug_mode=lambda wanted: cuda.modes.append(wanted),
    )
    return cuda


class Event:
    """An event of a device on which each takes a microsecond."""

    made: int = 0

    def __init__(self, *kind: str, enable_timing: bool) -> None:
        assert enable_timing
        Event.made += 1
        self.at = Event.made

    def record(self, *stream: object) -> None:
        assert not stream, "the current stream is the one that counts"

    def query(self) -> bool:
        return True

    def elapsed_time(self, later: Event) -> float:
        return (later.at - self.at) / 1000


@pytest.mark.parametrize("initialised", [False, True])
def test_the_accelerator_counts_once_it_is_in_use_or_asked_for(
    monkeypatch: pytest.MonkeyPatch, initialised: bool
) -> None:
    torch_with(monkeypatch, cuda=cuda_of(Event, initialised=initialised))
    assert devices.here().name == ("cuda" if initialised else "cpu")
    assert devices.here("cuda").name == "cuda"
    assert devices.here("cpu") is devices.HOST


@pytest.mark.parametrize("generic", [False, True])
def test_events_and_holding(monkeypatch: pytest.MonkeyPatch, generic: bool) -> None:
    cuda = cuda_of(Event, initialised=True)
    parts: dict[str, Any] = {"cuda": cuda}
    if generic:
        waited = SimpleNamespace(**vars(accelerator("cuda")), synchronize=lambda: None)
        parts |= {"accelerator": waited, "Event": Event}
        cuda.Event = None
    torch_with(monkeypatch, **parts)
    queue = devices.here().queue
    assert queue is not None
    assert queue.mark().until(queue.mark()) == pytest.approx(1000)
    assert queue.hold(50_000)
    # One million cycles took a microsecond, so a nanosecond is a thousand of them.
    assert cuda.slept == [1_000_000, 1_000_000, 50_000_000]
    assert queue.hold(1_000)
    assert cuda.slept[3:] == [1_000_000]


def test_events_without_a_clock_leave_host_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clockless(Event):
        def elapsed_time(self, later: Event) -> float:
            raise NotImplementedError("no clock")

    torch_with(monkeypatch, cuda=cuda_of(Clockless, initialised=True))
    device = devices.here()
    assert device.name == "cuda" and device.queue is None


def test_syncs_are_counted_in_the_mode_for_it_which_is_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = cuda_of(Event, initialised=True, mode=2)
    torch_with(monkeypatch, cuda=cuda)
    queue = devices.here().queue
    assert queue is not None

    def waits() -> None:
        assert cuda.modes[-1] == "warn"
        for said in (
            "called a synchronizing CUDA operation (Triggered internally at CUDAFunctions.cpp:1)",
            "Synchronization debug mode does not yet detect all synchronizing operations",
            "called a synchronizing CUDA operation (Triggered internally at CUDAFunctions.cpp:1)",
        ):
            warnings.warn(said, stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert queue.syncs(waits) == 2
    assert cuda.modes == [2, "warn", 2]
    with pytest.raises(ZeroDivisionError):
        queue.syncs(lambda: 1 / 0)
    assert cuda.modes[-1] == 2


def test_an_accelerator_that_is_not_cuda_tells_no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = SimpleNamespace(**vars(accelerator("xpu")), synchronize=lambda: None)
    xpu = SimpleNamespace(device_count=lambda: 1)
    torch_with(
        monkeypatch, accelerator=waited, Event=Event, xpu=xpu, cuda=SimpleNamespace(_sleep=None)
    )
    queue = devices.here().queue
    assert queue is not None
    assert queue.syncs(lambda: 1 / 0) is None, "and the call is not made for nothing"
    assert not queue.hold(1)


def test_words_for_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_with(monkeypatch, accelerator=accelerator("ours"))
    assert devices.named("cuda, cpu,cuda,") == ("cuda", "cpu")
    assert devices.named("ours") == ("ours",), "a backend of one's own"
    with pytest.raises(ValueError, match="'cuda:0' is no kind of device: say cpu, cuda, "):
        devices.named("cpu,cuda:0")
    with pytest.raises(ValueError, match="names no device"):
        devices.named(" ,")


def test_the_axis_is_what_is_here_or_what_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(device_count=lambda: 1)
    torch_with(monkeypatch, accelerator=accelerator("xpu"), xpu=module)
    assert devices.axis(None) == [("cpu", ""), ("xpu", "")]
    assert devices.axis(["cuda", "xpu"]) == [("cuda", "no cuda device here"), ("xpu", "")]


def test_without_torch_the_axis_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert devices.axis(None) == [("cpu", "")]
    assert devices.axis(["cuda"]) == [("cuda", "no cuda device here")]


def test_named_devices_are_run_and_absent_ones_skip(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        def test_on(overhead_device):
            print(overhead_device)
        """
    )
    result = run("--overhead-device", "mtia,cpu", "-rs", "-v")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        ["*::test_on?mtia? SKIPPED*", "*::test_on?cpu? PASSED*", "SKIPPED*: no mtia device here"]
    )
    pytester.makeini("[pytest]\noverhead_device = cpu\n")
    run().assert_outcomes(passed=1)
    run("--overhead-device=mtia").assert_outcomes(skipped=1)


@pytest.mark.parametrize("where", ["option", "ini"])
def test_unknown_devices_are_one_line(pytester: pytest.Pytester, run: Any, where: str) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    if where == "ini":
        pytester.makeini("[pytest]\noverhead_device = cpu,gpu\n")
    result = run(*["--overhead-device=cpu,gpu"] * (where == "option"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "'gpu' is no kind of device: say cpu, cuda, hpu" in result.stderr.str()
    assert "Traceback" not in result.stderr.str()


@pytest.mark.fresh_python
def test_torch_is_imported_for_the_axis_alone(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing():
            assert "torch" not in sys.modules
        """
    )
    run().assert_outcomes(passed=1)
    run("--overhead-device=cpu,cuda").assert_outcomes(passed=1)
    pytester.makepyfile(
        """
        import sys

        def test_on(overhead_device):
            assert overhead_device == "cpu" and "torch" not in sys.modules
        """
    )
    run("--overhead-device=cpu").assert_outcomes(passed=1)


@needs_torch
def test_collecting_wakes_no_accelerator(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(
        """
        def test_on(overhead_device):
            import torch

            assert not torch.cuda.is_initialized()
        """
    )
    result = run()
    assert result.ret == 0 and result.parseoutcomes()["passed"] >= 1


def test_fixtures_and_parametrisations_of_that_name_are_left_alone(
    pytester: pytest.Pytester, run: Any
) -> None:
    pytester.makepyfile(
        test_own="""
        import pytest

        @pytest.fixture
        def overhead_device():
            return "own"

        def test_own(overhead_device):
            assert overhead_device == "own"
        """,
        test_wrapped="""
        import pytest

        @pytest.fixture
        def overhead_device(overhead_device):
            return overhead_device.upper()

        def test_wrapped(overhead_device):
            assert overhead_device == "CPU"
        """,
        test_parametrised="""
        import pytest

        @pytest.fixture(scope="module")
        def wide(overhead_device):
            return overhead_device

        @pytest.mark.parametrize("overhead_device, n", [("a", 1), ("b", 2)])
        def test_direct(overhead_device, n):
            assert overhead_device in "ab"

        def test_wide(wide, overhead_device):
            assert wide == overhead_device == "cpu"
        """,
    )
    run("--overhead-device=cpu").assert_outcomes(passed=5)


@needs_torch
def test_budgets_on_devices(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(SUITE)
    result = run("--overhead-budget", "--overhead-device=cpu,mtia", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        ["*::test_add?cpu?  *pass", "SKIPPED*: no mtia device here"], consecutive=False
    )
    result.stdout.no_fnmatch_line(SHARED)


@needs_torch
@pytest.mark.parametrize("words", [(), ("-n2",)])
@pytest.mark.thorough
def test_where_no_child_is_forked_it_is_told_once(
    pytester: pytest.Pytester, run: Any, words: tuple[str, ...]
) -> None:
    if words:
        pytest.importorskip("xdist", reason="runs tests in several processes")
    pytester.makepyfile(SUITE)
    pytester.makeconftest(
        """
        from pytest_dispatchguard.measure.budgets import verdicts
        from pytest_dispatchguard.measure.timing import devices

        devices.accelerator = lambda: "cuda"
        verdicts._by_time = lambda limits, measured: ("undecided", [])
        """
    )
    result = run(
        "--overhead-budget",
        "--overhead-device=cpu",
        "--overhead-max-time=0.7",
        "--overhead-json=out.json",
        *words,
    )
    assert result.stdout.str().count(SHARED) == 1
    tests = json.loads((pytester.path / "out.json").read_text())["tests"]
    # Asked again and again, as it is never decided: one verdict all the same, of the last time.
    assert len(tests) == 1 and tests[0]["processes"] > 1


@needs_torch
def test_device_time_on_the_cpu_is_refused_in_one_line(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(SUITE.replace("ratio=3.0", "device_us=3.0"))
    result = run("--overhead-budget", "--overhead-device=cpu")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["add: device_us needs an accelerator: on the CPU there is host_us"]
    )


def test_a_process_with_cuda_at_hand_does_not_fork() -> None:
    """In one place, and from what torch says without waking the device."""
    source = (
        "import sys, types\n"
        "torch = sys.modules['torch'] = types.SimpleNamespace()\n"
        "from pytest_dispatchguard.measure.workers.children import may_fork\n"
        "for count in (0, 1):\n"
        "    torch.cuda = types.SimpleNamespace(device_count=lambda: count)\n"
        "    print(may_fork())\n"
    )
    found = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert found.stdout.split() == ["True", "False"], found.stderr


@pytest.mark.gpu
def test_budgets_on_cuda(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(SUITE.replace("ratio=3.0", "ratio=3.0, device_us=1000"))
    result = run("--overhead-budget", "--overhead-device=cuda", "--overhead-json=out.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([SHARED])
    (test,) = json.loads((pytester.path / "out.json").read_text())["tests"]
    assert test["device_us"]["value"] > 0
