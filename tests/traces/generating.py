"""Traces of a device that is not there, each with the truth: programs made at random run on a simulated host
and an in-order queue, and what happens is written as the profiler writes it, of 2021 or today."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Stacks = Literal["frames", "call stack", "none"]
Event = dict[str, Any]


@dataclass(frozen=True)
class Spelling:
    """How a release of PyTorch on some vendor's device names things."""

    old: bool
    """As of 2021: its categories, names of threads, whole microseconds."""
    category: str
    """Of the runtime's calls."""
    driver: str
    launch: str
    copy: str
    """Copies and does not wait."""
    waits: dict[str, str]
    """Calls that wait, by kind."""
    nested: str
    """What the driver calls its part of a wait."""


CUDA_WAITS = {
    "stream": "cudaStreamSynchronize",
    "device": "cudaDeviceSynchronize",
    "event": "cudaEventSynchronize",
    "copy": "cudaMemcpy",
}
HIP_WAITS = {
    "stream": "hipStreamSynchronize",
    "device": "hipDeviceSynchronize",
    "event": "hipEventSynchronize",
    "copy": "hipMemcpyWithStream",
}
XPU_WAITS = {"stream": "urQueueFinish", "event": "urEventWait", "device": "zeDeviceSynchronize"}
MTIA_WAITS = {"stream": "mtiaStreamSynchronize", "device": "mtiaDeviceSynchronize"}
SPELLINGS = {
    "cuda 2021": Spelling(
        True, "Runtime", "Runtime", "cudaLaunchKernel", "cudaMemcpyAsync", CUDA_WAITS, ""
    ),
    "cuda": Spelling(
        False,
        "cuda_runtime",
        "cuda_driver",
        "cudaLaunchKernel",
        "cudaMemcpyAsync",
        CUDA_WAITS,
        "cuStreamSynchronize",
    ),
    "rocm": Spelling(
        False, "cuda_runtime", "cuda_driver", "hipLaunchKernel", "hipMemcpyAsync", HIP_WAITS, ""
    ),
    "xpu": Spelling(
        False,
        "xpu_runtime",
        "xpu_driver",
        "urEnqueueKernelLaunch",
        "urEnqueueUSMMemcpy",
        XPU_WAITS,
        "zeEventHostSynchronize",
    ),
    "mtia": Spelling(
        False, "mtia_runtime", "mtia_runtime", "runFunction", "mtiaMemcpyAsync", MTIA_WAITS, ""
    ),
}
GO_ON = ("EventRecord", "EventQuery", "StreamWaitEvent", "StreamIsCapturing", "FuncGetAttributes")
"""Calls of the runtime that neither wait nor give the device work."""


# -- programs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """The host computes."""

    us: int


@dataclass(frozen=True)
class Function:
    """A Python function; `line` is where it begins."""

    file: str
    line: int
    name: str
    body: tuple[Node, ...]


@dataclass(frozen=True)
class Operator:
    """An operator, called by a line."""

    name: str
    line: int
    body: tuple[Node, ...]


@dataclass(frozen=True)
class Launch:
    """A kernel is launched."""

    call_us: int
    latency_us: int
    kernel_us: int


@dataclass(frozen=True)
class Wait:
    """The host waits for the device; a copy that blocks gives it work first."""

    number: int
    kind: str
    least_us: int
    tail_us: int
    copy_us: int


@dataclass(frozen=True)
class Loading:
    """The host waits for its data loader."""

    us: int


@dataclass(frozen=True)
class Marked:
    """A `record_function`."""

    name: str
    body: tuple[Node, ...]


@dataclass(frozen=True)
class Backward:
    """Another thread does this, and the host waits for that thread."""

    body: tuple[Node, ...]


Node = Work | Function | Operator | Launch | Wait | Loading | Marked | Backward

PROJECT = "/home/someone/proj/"
OURS = ("src/train.py", "src/net/blocks.py", "src/net/loss.py")
BESIDE = "/opt/extra/helper.py"
LIBRARY = (
    ("torch/nn/modules/module.py", 1501, "_call_impl"),
    ("/usr/lib/python3.11/contextlib.py", 79, "inner"),
    ("/home/someone/env/lib/python3.11/site-packages/einops/einops.py", 500, "rearrange"),
)
OPERATORS = ("aten::linear", "aten::item", "aten::to", "aten::nonzero", "aten::add", "aten::copy_")


@dataclass
class Maker:
    """Makes programs at random."""

    random: random.Random
    waits: list[str]
    """Kinds that the device's runtime has."""
    number: int = 0

    def program(self, steps: int) -> list[tuple[Node, ...]]:
        """The bodies of steps."""
        return [self.step() for _ in range(steps)]

    def step(self) -> tuple[Node, ...]:
        nodes: list[Node] = [Loading(self.random.randint(1, 300))] * self.random.randint(0, 1)
        nodes += [self.function(3) for _ in range(self.random.randint(1, 3))]
        if self.random.random() < 0.6:
            backward = Backward(tuple(self.backward() for _ in range(self.random.randint(1, 4))))
            nodes.append(Function(PROJECT + OURS[0], 30, "backward", (Work(3), backward, Work(2))))
        return tuple(nodes)

    def backward(self) -> Node:
        name = "autograd::engine::evaluate_function: MmBackward0"
        return Operator(name, 0, (Operator("MmBackward0", 0, self.inside(1)), *self.inside(0)))

    def function(self, depth: int) -> Function:
        which = self.random.random()
        if which < 0.55:
            number = self.random.randrange(len(OURS))
            file, line, name = PROJECT + OURS[number], 10 * self.random.randint(1, 9), "f"
            name = f"f{line}"
        elif which < 0.7:
            file, line, name = BESIDE, 7, "help_out"
        else:
            file, line, name = self.random.choice(LIBRARY)
        nodes: list[Node] = [self.node(depth) for _ in range(self.random.randint(1, 4))]
        return Function(file, line, name, tuple(nodes))

    def node(self, depth: int) -> Node:
        which = self.random.random()
        if depth and which < 0.35:
            return self.function(depth - 1)
        if which < 0.75:
            line = self.random.randint(100, 999)
            return Operator(self.random.choice(OPERATORS), line, self.inside(1))
        if depth and which < 0.82:
            name = self.random.choice(("## forward ##", "loss", "enumerate"))
            return Marked(name, (self.node(depth - 1), self.node(depth - 1)))
        if which < 0.9:
            return Work(self.random.randint(1, 120))
        return self.launch() if which < 0.96 else self.wait()

    def inside(self, depth: int) -> tuple[Node, ...]:
        nodes: list[Node] = [Work(self.random.randint(1, 30))]
        for _ in range(self.random.randint(0, 3)):
            which = self.random.random()
            if which < 0.6:
                nodes.append(self.launch())
            elif which < 0.75:
                nodes.append(self.wait())
            elif depth:
                line = self.random.randint(100, 999)
                nodes.append(Operator("aten::_inner", line, self.inside(depth - 1)))
        return (*nodes, Work(self.random.randint(1, 10)))

    def launch(self) -> Launch:
        long = self.random.random() < 0.3
        kernel = self.random.randint(100, 2000) if long else self.random.randint(1, 20)
        return Launch(self.random.randint(2, 12), self.random.randint(1, 20), kernel)

    def wait(self) -> Wait:
        self.number += 1
        kind, tail = self.random.choice(self.waits), self.random.randint(1, 8)
        return Wait(self.number, kind, self.random.randint(1, 9), tail, self.random.randint(1, 300))


# -- what happens ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Waited:
    """One wait as it happened."""

    number: int
    call: str
    kind: str
    place: tuple[str, int, str]
    operator: str
    annotation: str
    start: int
    end: int
    step: int

    @property
    def us(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Ran:
    """One kernel as it ran."""

    start: int
    end: int
    launched: tuple[int, int]
    """When the call that launched it began and ended."""


@dataclass(frozen=True)
class Gap:
    """The device has nothing to do; `after` is the number of the kernel that ends it."""

    start: int
    end: int
    after: int | None


@dataclass
class Truth:
    """All that happened."""

    waits: list[Waited] = field(default_factory=list)
    kernels: list[Ran] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    loadings: list[tuple[int, int]] = field(default_factory=list)

    def gaps(self) -> Iterator[Gap]:
        """From the first step to the end of the last."""
        at, last = self.steps[0][0], self.steps[-1][1]
        for number, kernel in enumerate(self.kernels):
            if kernel.start > at:
                yield Gap(at, kernel.start, number)
            at = max(at, kernel.end)
        if at < last:
            yield Gap(at, last, None)

    def idle(self, step: int) -> int:
        """For how long the device is idle in a step."""
        start, end = self.steps[step]
        return sum(max(0, min(g.end, end) - max(g.start, start)) for g in self.gaps())


_BEGAN = 1_700_000_000_000_000
_MAIN, _AUTOGRAD = 4711, 4712


@dataclass
class Run:
    """One run of a program. Waits that are left out take no time, and are not made."""

    spelling: Spelling
    stacks: Stacks
    files: bool = False
    """Whether the project's files are known: code beside it is then nobody's place."""
    left_out: Collection[int] = ()
    pid: int = 4711
    device: int = 0
    truth: Truth = field(default_factory=Truth)
    events: list[Event] = field(default_factory=list)
    now: int = _BEGAN
    queue: int = 0
    """When the device has done all that it was given."""
    correlation: int = 1000
    thread: int = _MAIN
    functions: list[Function] = field(default_factory=list)
    operators: list[tuple[str, int]] = field(default_factory=list)
    """Since the innermost function of the user: names, and the lines that call them."""
    marks: list[str] = field(default_factory=list)

    def run(self, program: list[tuple[Node, ...]]) -> Run:
        """Runs all steps, as the body of a script."""
        script = Function(PROJECT + OURS[0], 1, "<module>", ())
        self.functions.append(script)
        began = self.now
        for number, body in enumerate(program):
            start = self.now
            self.nodes(body)
            self.now += 5
            self.truth.steps.append((start, self.now))
            category = "Operator" if self.spelling.old else "user_annotation"
            self.event(category, f"ProfilerStep#{number + 3}", start, self.thread)
            self.now += 2
        if self.stacks == "frames":
            self.frame(script, began)
        self.others()
        return self

    def nodes(self, body: tuple[Node, ...]) -> None:
        for node in body:
            getattr(self, f"_{type(node).__name__.lower()}")(node)

    def event(self, category: str, name: str, start: int, thread: int, **args: Any) -> Event:
        """Notes what began at `start` and ends now."""
        event = {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": self.pid,
            "tid": str(thread) if self.spelling.old else thread,
            "ts": start,
            "dur": self.now - start,
            "args": {"External id": len(self.events), **args},
        }
        self.events.append(event)
        return event

    def frame(self, function: Function, start: int) -> None:
        name = f"{function.file}({function.line}): {function.name}"
        self.event("python_function", name, start, self.thread, **{"Python id": len(self.events)})

    # -- the host ------------------------------------------------------------------------------------

    def _work(self, node: Work) -> None:
        self.now += node.us

    def _function(self, node: Function) -> None:
        start, operators = self.now, self.operators
        self.functions.append(node)
        if self.user(node) and self.stacks == "frames":
            self.operators = []
        self.now += 1
        self.nodes(node.body)
        self.now += 1
        if self.stacks == "frames":
            self.frame(node, start)
        self.functions.pop()
        self.operators = operators

    def _operator(self, node: Operator) -> None:
        start = self.now
        self.operators.append((node.name, node.line))
        self.now += 1
        self.nodes(node.body)
        self.now += 1
        args = {}
        if self.stacks == "call stack" and self.thread == _MAIN:
            args["Call stack"] = self.call_stack(self.operators[0][1])
        self.event(
            "Operator" if self.spelling.old else "cpu_op", node.name, start, self.thread, **args
        )
        self.operators.pop()

    def _marked(self, node: Marked) -> None:
        start = self.now
        self.marks.append(node.name)
        self.nodes(node.body)
        self.now += 1
        if self.spelling.old:  # no difference is made there
            self.marks.pop()
            return
        self.event("user_annotation", node.name, start, self.thread)
        self.marks.pop()

    def _loading(self, node: Loading) -> None:
        start = self.now
        self.now += node.us
        self.truth.loadings.append((start, self.now))
        name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        self.event("Operator" if self.spelling.old else "user_annotation", name, start, self.thread)

    def _backward(self, node: Backward) -> None:
        operators, marks = self.operators, self.marks
        self.operators, self.marks, self.thread = [], [], _AUTOGRAD
        self.nodes(node.body)
        self.operators, self.marks, self.thread = operators, marks, _MAIN

    # -- the device ----------------------------------------------------------------------------------

    def call(self, category: str, name: str, start: int) -> None:
        self.event(category, name, start, self.thread, correlation=self.correlation, cbid=211)

    def kernel(self, name: str, latency: int, us: int, start: int) -> int:
        """Queues work for a call that began at `start`; when it is done."""
        begins = max(self.queue, start + latency)
        self.queue = begins + us
        old = self.spelling.old
        copies = name.startswith("Memcpy")
        category = (
            ("Memcpy" if old else "gpu_memcpy") if copies else ("Kernel" if old else "kernel")
        )
        event = self.event(category, name, self.now, 7, correlation=self.correlation)
        event |= {"ts": begins, "dur": us, "pid": self.device, "tid": "stream 7" if old else 7}
        event["args"] |= {"device": self.device, "stream": 7}
        return self.queue

    def _launch(self, node: Launch) -> None:
        self.correlation += 1
        start = self.now
        self.now += node.call_us
        begins = max(self.queue, start + node.latency_us)
        self.truth.kernels.append(Ran(begins, begins + node.kernel_us, (start, self.now)))
        self.call(self.spelling.category, self.spelling.launch, start)
        self.kernel("void some_kernel<float>(float*)", node.latency_us, node.kernel_us, start)

    def _wait(self, node: Wait) -> None:
        left_out = node.number in self.left_out
        if left_out and node.kind != "copy":
            return
        self.correlation += 1
        start = self.now
        if node.kind == "copy":
            done = self.kernel("Memcpy DtoH (Device -> Pageable)", 3, node.copy_us, start)
        else:
            done = self.queue
        if not left_out:
            self.now = max(start + node.least_us, done + node.tail_us)
        if node.kind == "copy":
            self.truth.kernels.append(Ran(done - node.copy_us, done, (start, self.now)))
        if left_out:
            self.call(self.spelling.category, self.spelling.copy, start)
            return
        call = self.spelling.waits[node.kind]
        self.call(self.spelling.category, call, start)
        if self.spelling.nested and node.kind in ("stream", "event"):
            self.call(self.spelling.driver, self.spelling.nested, start)
        self.truth.waits.append(
            Waited(
                node.number,
                call,
                node.kind,
                self.place(),
                self.operators[0][0] if self.operators else "",
                self.marks[-1] if self.marks and not self.spelling.old else "",
                start,
                self.now,
                len(self.truth.steps),
            )
        )

    # -- places --------------------------------------------------------------------------------------

    def user(self, function: Function) -> bool:
        """Whether a function counts as the user's."""
        return function.file.startswith(PROJECT) or (
            function.file == BESIDE and not (self.files and self.ours_around())
        )

    def ours_around(self) -> bool:
        return any(function.file.startswith(PROJECT) for function in self.functions)

    def place(self) -> tuple[str, int, str]:
        """Where the user's code is."""
        if self.stacks == "none" or (self.stacks == "call stack" and self.thread != _MAIN):
            return "", 0, ""
        if self.stacks == "call stack" and not self.operators:
            return "", 0, ""
        function = next(one for one in reversed(self.functions) if self.user(one))
        file = function.file.removeprefix(PROJECT) if self.files else function.file
        innermost = function is self.functions[-1]
        if self.stacks == "frames":
            return file, function.line, function.name
        line = self.operators[0][1] if innermost else function.line + 1
        return file, line, function.name

    def call_stack(self, line: int) -> str:
        """The frames around an operator that a line of the innermost function calls."""
        frames = [
            f"{one.file}({line if one is self.functions[-1] else one.line + 1}): {one.name}"
            for one in reversed(self.functions)
        ]
        return ";".join(frames)

    def others(self) -> None:
        """Events that are no news: names, arrows, counters, calls that go on."""
        begins, ends = self.truth.steps[0][0], self.now
        for number, name in enumerate(GO_ON):
            at = begins + (ends - begins) * number // len(GO_ON)
            self.now = at
            prefix = self.spelling.launch[:4]
            self.event(self.spelling.category, f"{prefix}{name}", at, 99, correlation=number + 1)
            self.event("cuda_sync", "Stream Synchronize", at, 7, stream=7)
            self.event("ac2g", "ac2g", at, self.thread)["ph"] = "s"
        self.event("Trace", "PyTorch Profiler (0)", begins - 50, 0)["pid"] = "Spans"
        self.event("", "process_name", begins, 0)["ph"] = "M"
        self.now = ends


@dataclass(frozen=True)
class Made:
    """A trace, and what is true of it."""

    path: Path
    truth: Truth
    stacks: Stacks
    files: bool
    rank: int | None


def made(seed: int, folder: Path) -> Made:
    """Writes a trace of its own for each seed."""
    chance = random.Random(seed)
    spelling = SPELLINGS[chance.choice(sorted(SPELLINGS))]
    kinds: list[Stacks] = (
        ["call stack", "none"] if spelling.old else ["frames", "call stack", "none"]
    )
    stacks, files = chance.choice(kinds), chance.random() < 0.5
    program = Maker(chance, sorted(spelling.waits)).program(chance.randint(1, 4))
    run = Run(spelling, stacks, files).run(program)
    chance.shuffle(run.events)
    rank = chance.choice((None, 0, 7))
    path = folder / f"trace-{seed}.json"
    return Made(written(path, run.events, rank, chance), run.truth, stacks, files, rank)


def written(path: Path, events: list[Event], rank: int | None, chance: random.Random) -> Path:
    """Writes a file as one or another release does."""
    content: Any = {"schemaVersion": 1, "traceEvents": events, "traceName": str(path)}
    if rank is not None:
        content["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 8}
    elif chance.random() < 0.2:
        content = events
    text = json.dumps(content, indent=chance.choice((None, None, 2)))
    if chance.random() < 0.3:
        path = path.with_name(f"{path.name}.gz")
        path.write_bytes(gzip.compress(text.encode(), 1))
    else:
        path.write_text(text, encoding="utf-8")
    return path
