"""Private names of torch's compiler for what it counts and logs: compilations, graph breaks, failures."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_MOST_RECORDS = 100_000
_PARTS = ("entire_frame_compile", "backend_compile", "inductor_compile")
_COMPILER = ("torch._inductor", "torch._dynamo", "torch._functorch._aot_autograd")
_STDLIB = (sysconfig.get_paths()["stdlib"], "<frozen ")


@dataclass(frozen=True, slots=True)
class Totals:
    """The compiler's counters since the process started."""

    graphs: int
    dispatches: Mapping[str, int]
    """Calls of `__torch_dispatch__`, by class."""
    hits: int
    """Of the cache of fake tensors."""
    misses: int


def totals() -> Totals:
    """The compiler's counters now."""
    from torch._dynamo.utils import counters
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._stats import simple_call_counter

    asked = {
        name.partition(".")[0]: number
        for name, number in simple_call_counter.items()
        if name.endswith(".__torch_dispatch__")
    }
    cache = FakeTensorMode.cache_info()
    return Totals(counters["stats"]["unique_graphs"], asked, cache.hits, cache.misses)


@dataclass(frozen=True, slots=True)
class Record:
    """The compiler's metrics of one compilation."""

    again: bool
    """Whether the same code had been compiled before."""
    compiled: str
    """Its compile id: code and attempt, ``0/1``."""
    function: str
    file: str
    line: int
    reason: str
    """Why it was recompiled; empty if unknown."""
    failed: str
    """Why compiling failed; empty if it did not."""
    failed_file: str
    failed_line: int
    seconds: Mapping[str, float]
    """By phase."""


@contextmanager
def records() -> Iterator[Callable[[], list[Record]]]:
    """Yields a function that returns the records of what was compiled in this context so far."""
    from torch._dynamo import utils

    limit = utils._compilation_metrics.maxlen
    utils.set_compilation_metrics_limit(_MOST_RECORDS)
    before = len(utils.get_compilation_metrics())
    try:
        yield lambda: [_record(metrics) for metrics in utils.get_compilation_metrics()[before:]]
    finally:
        utils.set_compilation_metrics_limit(limit)


def recorded() -> list[Record]:
    """The records that the compiler still has."""
    from torch._dynamo.utils import get_compilation_metrics

    return [_record(metrics) for metrics in get_compilation_metrics()]


def _record(metrics: Any) -> Record:
    number = str(getattr(metrics, "compile_id", None) or "")
    seconds = {part: getattr(metrics, f"{part}_time_s", None) or 0.0 for part in _PARTS}
    reason = getattr(metrics, "recompile_reason", None) or ""
    return Record(
        not number.endswith("/0") and "/" in number,
        number,
        metrics.co_name or "",
        metrics.co_filename or "",
        metrics.co_firstlineno or 0,
        reason,
        getattr(metrics, "fail_reason", None) or "",
        getattr(metrics, "fail_user_frame_filename", None) or "",
        getattr(metrics, "fail_user_frame_lineno", None) or 0,
        seconds,
    )


Break = tuple[str, list[tuple[str, int, str]]]
"""Why a graph broke, and the user's stack, outermost frame first: file, line, function."""


def breaks(known: Sequence[object] = ()) -> list[Break]:
    """The graph breaks since the last reset, except those in `known`."""
    return [
        (found.reason, [(at.filename, at.lineno or 0, at.name) for at in found.user_stack])
        for found in break_records()
        if not any(found is one for one in known)
    ]


def break_records() -> list[Any]:
    """The compiler's records of graph breaks."""
    from torch._dynamo.utils import graph_break_reasons

    return list(graph_break_reasons)


def compile_failed(error: BaseException) -> bool:
    """Whether an exception was raised by the compiler, not by the compiled code."""
    exceptions = sys.modules.get("torch._dynamo.exc")
    if exceptions is not None and isinstance(error, exceptions.TorchDynamoException):
        return True
    return isinstance(error, OSError) and _raised_in(error).startswith(_COMPILER)


def is_file_error(error: BaseException) -> bool:
    """Whether compiling failed because of a file or folder."""
    seen: list[BaseException | None] = [error, getattr(error, "inner_exception", None)]
    seen += [one.__cause__ or one.__context__ for one in seen if one is not None]
    return any(isinstance(one, OSError) for one in seen)


def _raised_in(error: BaseException) -> str:
    """The module that raised an exception, the standard library aside."""
    found, at = "", error.__traceback__
    while at is not None:
        path = at.tb_frame.f_code.co_filename
        if not path.startswith(_STDLIB) or "site-packages" in path:
            found = str(at.tb_frame.f_globals.get("__name__"))
        at = at.tb_next
    return found
