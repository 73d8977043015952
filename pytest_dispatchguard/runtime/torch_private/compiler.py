"""Private names of torch's compiler: whether it is loaded, what it compiled, its caches, logs and switches.

Importing this imports no torch. The functions expect `torch._dynamo` to be imported already, but for
`load_compiler` and those that check whether it is.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType, ModuleType
from typing import Any

from pytest_dispatchguard.runtime.torch_private.guard_trees import helpers

_CACHES = (
    ("torch._inductor.config", "fx_graph_cache", False),
    ("torch._inductor.config", "fx_graph_remote_cache", False),
    ("torch._inductor.config", "compile_threads", 1),
    ("torch._functorch.config", "enable_autograd_cache", False),
    ("torch._dynamo.config", "automatic_dynamic_local_pgo", False),
    ("torch._dynamo.config", "automatic_dynamic_remote_pgo", False),
)
"""Settings that disable the caches on disk, and make torch compile in one thread."""


def compiler_is_there() -> bool:
    """Whether torch's compiler is imported; if not, nothing is compiled."""
    # A failed import leaves parts of it in `sys.modules`.
    return "torch._dynamo" in sys.modules and "torch._dynamo.eval_frame" in sys.modules


def load_compiler() -> bool:
    """Imports torch's compiler; whether its guards can be listed and filtered."""
    import torch._dynamo

    return hasattr(torch._dynamo.guards, "GuardFilterEntry") and bool(helpers())


def entry_file() -> str:
    """The file that every compiled callable is called through."""
    return str(sys.modules["torch._dynamo.eval_frame"].__file__)


def lookups(run: Callable[[], object]) -> int | None:
    """How often a call looks up compiled code by its guards; None where this torch has no hook for that."""
    from torch._C._dynamo import eval_frame

    hook = getattr(eval_frame, "set_guard_complete_hook", None)
    if hook is None:
        return None
    seen = 0

    def looked(hit: bool) -> Any:
        nonlocal seen
        seen += 1
        return before(hit) if before is not None else hit  # a false value makes torch compile again

    before = hook(looked)
    try:
        run()
    finally:
        hook(before)
    return seen


@contextmanager
def compiled_codes() -> Iterator[list[CodeType]]:
    """Yields a list of the code that torch compiles in this context, in order, recompiled code repeatedly."""
    from torch._dynamo.convert_frame import register_bytecode_hook

    found: list[CodeType] = []

    def noted(code: CodeType, made: CodeType) -> None:
        found.append(code)

    handle = register_bytecode_hook(noted)
    try:
        yield found
    finally:
        handle.remove()


def codes_compiled() -> list[CodeType]:
    """All code that has been compiled."""
    from torch._dynamo.utils import orig_code_map

    return [code for code in list(orig_code_map.values.values()) if isinstance(code, CodeType)]


def code_before(made: CodeType) -> CodeType | None:
    """The original of code that Dynamo made; None for other code."""
    from torch._dynamo.utils import orig_code_map

    found: CodeType | None = orig_code_map.get(made)
    return found


def reset_compiler() -> None:
    """Drops all compiled code of this process, and the cache of fake tensors."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    torch.compiler.reset()
    FakeTensorMode.cache_clear()


def clear_dynamic_marks(tensor: Any) -> None:
    """Removes the dynamic sizes that an earlier compilation noted on a tensor, as they change the next one.
    Nested tensors have them from the start."""
    if not tensor.is_nested:
        vars(tensor).pop("_dynamo_propagated_dynamic_indices", None)


@contextmanager
def without_trace_logs() -> Iterator[None]:
    """Sends the compiler's trace log to torch's own handlers alone. pytest captures all loggers, and
    formatting these thousands of records makes compiling ten times slower."""
    trace = logging.getLogger("torch.__trace")
    others = [one for one in trace.handlers if not type(one).__module__.startswith("torch.")]
    for handler in others:
        trace.removeHandler(handler)
    try:
        yield
    finally:
        for handler in others:
            trace.addHandler(handler)


@contextmanager
def no_caches() -> Iterator[None]:
    """Compiles without caches on disk, in one thread."""
    with ExitStack() as stack:
        for module, name, value in _CACHES:
            config = sys.modules.get(module)
            if config is not None and hasattr(config, name):
                stack.enter_context(config.patch({name: value}))
        stack.enter_context(_guards_know_their_place())
        yield


@contextmanager
def _guards_know_their_place() -> Iterator[None]:
    """Makes guards know the user's line that caused them: before torch 2.13 only verbose logging of guards
    does."""
    log = logging.getLogger("torch._dynamo.guards.__verbose_guards")
    before = log.level, log.propagate, log.handlers[:]
    log.setLevel(logging.DEBUG)
    log.propagate = bool(before[2]) and before[1]
    if not before[2]:
        log.addHandler(logging.NullHandler())
    try:
        yield
    finally:
        log.setLevel(before[0])
        log.propagate = before[1]
        log.handlers[:] = before[2]


@contextmanager
def only_compiled_code() -> Iterator[None]:
    """Runs the code that Dynamo made where there is some, and compiles nothing."""
    from torch._C._dynamo import eval_frame

    before = eval_frame.set_eval_frame(False)
    try:
        yield
    finally:
        eval_frame.set_eval_frame(before)


@contextmanager
def dynamo_restored() -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether Dynamo's state in this thread has changed; restores it at the
    end."""
    if not compiler_is_there():
        yield lambda: False
        return
    from torch._C._dynamo import eval_frame

    def switched() -> bool:
        now = eval_frame.set_eval_frame(None)
        eval_frame.set_eval_frame(now)
        return now is not before

    before = eval_frame.set_eval_frame(None)
    eval_frame.set_eval_frame(before)
    try:
        yield switched
    finally:
        eval_frame.set_eval_frame(before)


def hidden_from_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, marked so that torch.compile does not trace it."""
    import torch

    found: Callable[..., Any] = torch._disable_dynamo(function)
    return found


@contextmanager
def without_compiler() -> Iterator[None]:
    """Runs operations on the device ``meta`` without importing torch's compiler. Many import it only to
    disable it for themselves, which takes seconds. Nothing else may run meanwhile."""
    import torch

    if "torch._dynamo" in sys.modules:
        yield
        return
    asked: list[Any] = []

    def disable(function: Any, *_: Any, **__: Any) -> Any:
        asked.append(function)
        return function

    stand_in = ModuleType("torch._dynamo")
    stand_in.disable = disable  # type: ignore[attr-defined]  # of a module made here
    sys.modules["torch._dynamo"] = torch._dynamo = stand_in
    try:
        yield
    finally:
        if sys.modules.get("torch._dynamo") is stand_in:
            del sys.modules["torch._dynamo"]
        if vars(torch).get("_dynamo") is stand_in:
            del torch._dynamo
        for function in asked:  # torch caches the answer on the function
            vars(function).pop("__dynamo_disable", None)
