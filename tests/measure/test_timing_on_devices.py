"""Timing on an accelerator: by a fake one with a fake clock everywhere, by a real one where it is."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from pytest_dispatchguard.measure.budgets.verdicts import Timing, judged
from pytest_dispatchguard.measure.timing import queues
from pytest_dispatchguard.measure.timing.calling import Call
from pytest_dispatchguard.measure.timing.devices import Queue, here
from pytest_dispatchguard.measure.timing.measurements import measurement
from pytest_dispatchguard.measure.timing.subject import Subject
from pytest_dispatchguard.measure.timing.timing import Sample, sample
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.verdicts import Limit


class Fake:
    """An accelerator: calls cost the host time and ask for work, which is done one after another; who
    asks while the queue is full waits. What happens is written into a log, a letter each."""

    name = "fake"
    most_calls = 50
    block_ns = 100_000

    def __init__(self, *, depth: int = 1000, holds: bool = True, tells_syncs: bool = True) -> None:
        self.now = 0
        self.work: deque[float] = deque()
        """When each piece of work in the queue will be done."""
        self.done: float = 0
        """When the last one will be."""
        self.log: list[str] = []
        self.depth = depth
        self.holds = holds
        self.tells_syncs = tells_syncs
        self.drained = 0
        self.mark_ns = 700
        self.queue: Queue | None = self

    def clock(self) -> int:
        self.log.append("c")
        return int(self.now)

    def ask(self, host_ns: int, device_ns: float) -> float:
        self.now += host_ns
        while self.work and self.work[0] <= self.now:
            self.work.popleft()
        if len(self.work) == self.depth:
            self.now = int(self.work.popleft())
        self.done = max(self.now, self.done) + device_ns
        self.work.append(self.done)
        return self.done

    def drain(self) -> None:
        self.now = int(max(self.now, self.done))
        self.work.clear()

    def wait(self) -> None:
        self.log.append("w")
        self.drain()
        self.now += 9_000

    def hold(self, nanoseconds: float) -> bool:
        self.log.append("h")
        if self.holds:
            self.ask(4_000, nanoseconds)
        return self.holds

    def mark(self) -> FakeMark:
        self.log.append("m")
        return FakeMark(self, self.ask(2_000, self.mark_ns))

    def syncs(self, run: Callable[[], object]) -> int | None:
        self.log.append("s")
        before = self.drained
        run()
        return self.drained - before if self.tells_syncs else None

    def call(
        self, *, host_ns: int, device_ns: float, kernels: int = 1, drains: int = 0
    ) -> Callable[[], None]:
        """A call, all in all so long on the host and on the device."""

        def called() -> None:
            self.log.append("k")
            for _ in range(kernels):
                self.ask(host_ns // kernels, device_ns / kernels)
            for _ in range(drains):
                self.drained += 1
                self.drain()

        return called


class FakeMark:
    def __init__(self, device: Fake, at: float) -> None:
        self.device = device
        self.at = at

    def passed(self) -> bool:
        return self.at <= self.device.now

    def until(self, later: FakeMark) -> float:
        return later.at - self.at


def measured(
    device: Fake,
    subject: Callable[[], None],
    reference: Callable[[], None] | None = None,
    pairs: int = 100,
    *,
    device_limited: bool = False,
) -> Sample:
    return sample(
        Call(subject),
        None if reference is None else Call(reference),
        enough=lambda found: found.pairs >= pairs,
        seconds=30,
        confidence=0.999,
        device=device,
        clock=device.clock,
        device_limited=device_limited,
    )


@pytest.mark.parametrize(("limited", "blocks"), [(True, 400), (False, 200)])
def test_device_time_is_taken_for_as_long_as_something_limits_it(
    limited: bool, blocks: int
) -> None:
    device = Fake()
    call = device.call(host_ns=12_000, device_ns=3_000)
    measured(device, call, pairs=400, device_limited=limited)
    tried = measured_blocks(device)
    assert blocks <= tried < blocks + 100


def measured_blocks(device: Fake) -> int:
    """How many blocks had their device time taken."""
    return len(re.findall(r"hmc?k+c?m", "".join(device.log)))


def test_host_and_device_time_are_told_apart() -> None:
    device = Fake()
    found = measured(
        device,
        device.call(host_ns=12_000, device_ns=3_000),
        device.call(host_ns=6_000, device_ns=5_000),
    )
    assert found.device_us is not None and found.reference_us is not None and found.ratio
    assert found.subject_us.value == pytest.approx(12)
    assert found.reference_us.value == pytest.approx(6)
    assert found.ratio.value == pytest.approx(2)
    assert found.device_us.value == pytest.approx(3)
    assert found.control == pytest.approx(1)
    assert found.note == ""


def test_work_that_outlasts_the_host_changes_no_host_time() -> None:
    device = Fake()
    found = measured(device, device.call(host_ns=10_000, device_ns=400_000))
    assert found.device_us is not None
    assert found.subject_us.value == pytest.approx(10)
    assert found.device_us.value == pytest.approx(400)
    note = measurement([found], 0.999).note
    assert note.startswith("the device works 400.0 µs on a call that returns after 10.0 µs")


def test_a_wait_stands_before_and_after_every_block_and_never_within() -> None:
    device = Fake()
    measured(
        device,
        device.call(host_ns=12_000, device_ns=30_000),
        device.call(host_ns=6_000, device_ns=5_000),
    )
    log = "".join(device.log)
    blocks = re.findall(r"wck+cw|whmck+cm?w|sk+w|k+", re.sub(r"w(?=[ch])", "ww", log))
    assert {block[0] for block in blocks} == {"w", "s"}, "every run of calls is one of the forms"
    timed = [block for block in blocks if block.startswith("wck")]
    assert len(timed) > 200
    assert max(block.count("k") for block in blocks) <= device.most_calls
    assert len([block for block in blocks if block.endswith("mw")]) > 50


def test_setup_is_no_part_of_a_block() -> None:
    device = Fake()
    sample(
        Call(device.call(host_ns=12_000, device_ns=3_000)),
        None,
        enough=lambda found: found.pairs >= 50,
        seconds=30,
        confidence=0.999,
        device=device,
        clock=device.clock,
        prepare=lambda: device.log.append("p"),
    )
    log = "".join(device.log)
    assert "pwck" in log and "pwhmck" in log and "psk" in log
    assert not re.search(r"kp[^w]|[^w]ck", log.replace("hmck", "").replace("psk", ""))


def test_a_block_has_no_more_calls_than_the_device_says() -> None:
    device = Fake()
    found = measured(device, device.call(host_ns=100, device_ns=50))
    assert found.loops == (50, 50)


@pytest.mark.parametrize("kernels", [1, 40, 100, 900])
def test_blocks_are_shorter_than_the_queue_whatever_a_call_asks_for(kernels: int) -> None:
    device = Fake()
    device.block_ns = 10**9  # so that a block would be as long as it can
    found = measured(
        device,
        device.call(host_ns=kernels * 5_000, device_ns=kernels * 50_000, kernels=kernels),
        pairs=50,
    )
    assert found.loops[0] * kernels < device.depth
    assert found.loops[0] == 50 or (2 * found.loops[0] + 1) * kernels + 2 > device.depth
    assert found.subject_us.value == pytest.approx(kernels * 5)
    assert found.device_us is not None
    assert found.device_us.value == pytest.approx(kernels * 50)


def test_a_queue_that_fills_would_show_in_host_time() -> None:
    """What the test above guards against is there to be guarded against."""
    device = Fake()
    call = device.call(host_ns=500_000, device_ns=5_000_000, kernels=100)
    start = device.now
    for _ in range(50):
        call()
    assert device.now - start > 50 * 500_000 * 2


def test_a_call_that_waits_by_itself_is_told_with_how_often() -> None:
    device = Fake()
    waits = device.call(host_ns=10_000, device_ns=30_000, drains=2)
    found = measured(device, waits, device.call(host_ns=10_000, device_ns=30_000))
    assert found.note == (
        "the subject waits for the device 2 times in each call: its host time holds device time; "
        "device time holds the gaps between what the host asks for"
    )
    assert found.subject_us.value == pytest.approx(40)
    assert found.loops[0] > 1, "its queue is empty after every call: nothing to shorten blocks for"
    assert measurement([found, found], 0.999).note == found.note


def test_a_reference_that_waits_is_told() -> None:
    device = Fake()
    found = measured(
        device,
        device.call(host_ns=10_000, device_ns=3_000),
        device.call(host_ns=10_000, device_ns=3_000, drains=1),
    )
    assert found.note == (
        "the reference waits for the device once in each call: its host time holds device time"
    )
    assert found.device_us is not None and found.device_us.value == pytest.approx(3)


@pytest.mark.parametrize(
    "call",
    [
        {"host_ns": 10_000, "device_ns": 30_000, "drains": 1},
        {"host_ns": 9_000_000, "device_ns": 90_000_000, "kernels": 1800},
    ],
)
def test_a_wait_that_the_device_does_not_tell_is_found_by_holding_it(call: dict[str, int]) -> None:
    device = Fake(tells_syncs=False)
    found = measured(device, device.call(**call), pairs=50)
    assert found.note.startswith(
        "the subject waits for the device by itself, or fills its queue with one call"
    )


def test_a_device_that_cannot_be_held_tells_that_gaps_are_in_its_time() -> None:
    device = Fake(holds=False, tells_syncs=False)
    found = measured(device, device.call(host_ns=10_000, device_ns=3_000))
    assert found.note == "device time holds the gaps between what the host asks for"
    assert found.subject_us.value == pytest.approx(10)
    assert found.device_us is not None and 3 < found.device_us.value <= 10.1


@pytest.mark.parametrize(("host_ns", "note"), [(500_000_000, False), (900_000_000, True)])
def test_a_device_is_not_held_for_seconds(host_ns: int, note: bool) -> None:
    device = Fake()
    held: list[float] = []
    hold = device.hold
    device.hold = lambda ns: (held.append(ns), hold(ns))[1]  # type: ignore[method-assign]  # watched
    found = measured(device, device.call(host_ns=host_ns, device_ns=100_000, kernels=10), pairs=2)
    assert max(held) <= 1e9
    assert found.subject_us.value == pytest.approx(host_ns / 1000)
    assert found.note == ("device time holds the gaps between what the host asks for" * note)


def test_a_device_whose_clock_nobody_can_read_still_waits() -> None:
    device = Fake()
    device.queue = None
    found = measured(device, device.call(host_ns=10_000, device_ns=400_000))
    assert found.device_us is None and found.note == ""
    assert found.subject_us.value == pytest.approx(10)
    assert re.fullmatch(r"(c|w+(ck+c)?)*", "".join(device.log).replace("cw", "cww"))


def test_a_host_that_has_got_slower_has_the_device_held_longer() -> None:
    device = Fake()
    block = Call(device.call(host_ns=100_000, device_ns=3_000)).block(device.clock)
    side = queues.Watched(block, loops=10, block_ns=100_000)  # a tenth of what it takes by now
    times = queues.DeviceTimes(side, device, device, lambda: None)
    for _ in range(6):
        times.block()
        times.empty()
    assert len(times.loose) == 2 and len(times.dense) == 4
    assert times.values() == pytest.approx([3_000] * 4)
    assert times.said() == ""


def verdict_on(device: Fake, call: Callable[[], None], *limits: Limit) -> Any:
    subject = Subject(Call(call), "subject").against(device.call(host_ns=10_000, device_ns=3_000))
    timing = Timing(0.05, 0.999, device=device)
    return judged("t", subject, {limit.name: limit for limit in limits}, None, timing)[0]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A fake whose clock `judged` takes for the real one."""
    device = Fake()
    from functools import partial

    from pytest_dispatchguard.measure.budgets import verdicts

    monkeypatch.setattr(verdicts, "sample", partial(sample, clock=device.clock))
    return device


@pytest.mark.parametrize(
    ("limit", "outcome", "said"),
    [
        (Limit("host_us", 15), "pass", ""),
        (Limit("host_us", 9), "fail", "host_us: 12.000 µs (*"),
        (Limit("device_us", 7), "pass", ""),
        (Limit("device_us", 4), "fail", "device_us: 6.000 µs (*"),
        (Limit("extra_us", 4), "pass", ""),
        (Limit("extra_us", 0.5), "fail", "extra_us: 2.000 µs (*"),
    ],
)
def test_limits_on_an_accelerator_are_decided(
    fake: Fake, limit: Limit, outcome: str, said: str
) -> None:
    found = verdict_on(fake, fake.call(host_ns=12_000, device_ns=6_000), limit)
    assert found.verdict == outcome, found.reason
    assert found.reason.startswith(said.rstrip("*"))


def test_what_the_device_makes_of_times_is_in_the_reason(fake: Fake) -> None:
    found = verdict_on(
        fake, fake.call(host_ns=12_000, device_ns=6_000, drains=1), Limit("host_us", 50)
    )
    assert found.verdict == "pass"
    assert found.reason.startswith("the subject waits for the device once in each call")
    assert found.measured is not None and found.measured.note == found.reason


def test_device_time_is_refused_where_there_is_none(fake: Fake) -> None:
    with pytest.raises(UserError, match=r"^device_us needs an accelerator: on the CPU there is"):
        judged(
            "t",
            Subject(Call(int), "int"),
            {"device_us": Limit("device_us", 1)},
            None,
            Timing(0.1, 0.9),
        )
    fake.queue = None
    with pytest.raises(UserError, match=r"^device_us needs a device with a clock of its own: fake"):
        verdict_on(fake, fake.call(host_ns=12_000, device_ns=6_000), Limit("device_us", 1))


@pytest.fixture
def cuda() -> ModuleType:
    import torch

    torch.ones(1, device="cuda")
    module: ModuleType = torch
    return module


def on_cuda(subject: Call, reference: Call | None = None) -> Sample:
    subject.once()()
    return sample(
        subject,
        reference,
        enough=lambda found: found.pairs >= 100,
        seconds=20,
        confidence=0.999,
        device=here("cuda"),
    )


@pytest.mark.gpu
def test_a_small_call_on_cuda(cuda: Any) -> None:
    x = cuda.ones(16, device="cuda")
    found = on_cuda(Call(cuda.add, (x, x)), Call(cuda.add, (x, x)))
    assert found.device_us is not None and found.ratio is not None
    assert 1 <= found.loops[0] <= 50
    assert 0.5 < found.subject_us.value < 200
    assert 0.2 < found.device_us.value < 20
    assert 0.8 < found.ratio.value < 1.25
    assert found.note == ""


@pytest.mark.gpu
def test_large_work_on_cuda_hides_no_host_time(cuda: Any) -> None:
    small, large = (cuda.ones(n, n, device="cuda") for n in (64, 4096))
    found = on_cuda(Call(cuda.mm, (large, large)), Call(cuda.mm, (small, small)))
    assert found.device_us is not None and found.ratio is not None
    assert found.device_us.value > 5 * found.subject_us.value
    assert 0.3 < found.ratio.value < 3
    assert measurement([found], 0.999).note.startswith("the device works")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["item", "nonzero", "cpu"])
def test_calls_that_wait_on_cuda_are_told(cuda: Any, name: str) -> None:
    x = cuda.ones(1, device="cuda")
    before = cuda.cuda.get_sync_debug_mode()
    found = on_cuda(Call(getattr(x, name)))
    assert found.note.startswith("the subject waits for the device")
    assert cuda.cuda.get_sync_debug_mode() == before


@pytest.mark.gpu
def test_a_wait_that_cuda_does_not_tell_is_found_by_holding_it(cuda: Any) -> None:
    x = cuda.ones(16, device="cuda")

    def waits() -> None:
        x.add(1)
        cuda.cuda.synchronize()

    assert "waits for the device" in on_cuda(Call(waits)).note


@pytest.mark.gpu
def test_the_current_stream_is_left_as_it_is_on_cuda(cuda: Any) -> None:
    x = cuda.ones(16, device="cuda")
    stream = cuda.cuda.Stream()
    with cuda.cuda.stream(stream):
        found = on_cuda(Call(cuda.add, (x, x)))
        assert cuda.cuda.current_stream() == stream
    assert found.device_us is not None and found.device_us.value < 20
