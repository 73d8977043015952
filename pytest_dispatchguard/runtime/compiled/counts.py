"""Counts what torch.compile does for a call: guards, graphs, breaks, recompiles, and the work of
compiling."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from pytest_dispatchguard.model.compiled import Compiled, CompileEvent
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.runtime.code.foreign import is_foreign_file
from pytest_dispatchguard.runtime.compiled.guards import grouped, guards_of
from pytest_dispatchguard.runtime.torch_private import compile_records, compiler, guard_trees

NAMES = (
    "guards",
    "graphs",
    "graph_breaks",
    "recompiles",
    "cache_size",
    "fake_dispatches",
    "fake_mode_dispatches",
    "proxy_dispatches",
    "fake_cache_hits",
    "fake_cache_misses",
)
"""The counters of compiled code, in the order of reports."""

CALLS = 4
"""Calls that are counted: the first compiles, the next two warm up, the last has no reason to compile."""


@dataclass(frozen=True, slots=True)
class Found:
    """The counters of a subject that runs compiled code."""

    values: Mapping[str, int]
    facts: Compiled
    varying: tuple[str, ...] = ()
    """Counters that differ between compilations; the maximum is kept."""


def runs_compiled(run: Callable[[], object], files: set[str]) -> bool:
    """Whether a call that runs code of these files runs compiled code. It is only called again if it may."""
    if not compiler.compiler_is_there() or compiler.entry_file() not in files:
        return False
    return compiler.lookups(run) != 0


def compiles(run: Callable[[], object]) -> bool:
    """Runs a function; whether anything was compiled meanwhile."""
    if not compiler.compiler_is_there():
        run()
        return False
    with compile_records.records() as records:
        run()
        return bool(records())


def counted(
    run: Callable[[], object], prepare: Callable[[], object], given: object = ()
) -> Found | None:
    """Recompiles what a call compiles, and counts, until two counts in a row are equal: torch's setup in the
    first does not count. None if nothing is compiled. `given` are the arguments, as earlier compilations
    leave marks on tensors."""
    from pytest_dispatchguard.runtime.hooks.tensors import tensors

    found: list[Found] = []
    with compiler.no_caches():
        for _ in range(3):
            for tensor in tensors(given):
                compiler.clear_dynamic_marks(tensor)
            one = _once(run, prepare)
            if one is None:
                return None
            found.append(one)
            if len(found) > 1 and found[-2].values == one.values:
                return one
    before, last = found[-2].values, found[-1].values
    varying = tuple(name for name in NAMES if before[name] != last[name])
    most = {name: max(before[name], last[name]) for name in NAMES}
    return Found(most, found[-1].facts, varying)


def _once(run: Callable[[], object], prepare: Callable[[], object]) -> Found | None:
    compiler.reset_compiler()
    before = compile_records.totals()
    with compiler.compiled_codes() as codes, compile_records.records() as records:
        for _ in range(CALLS - 1):
            prepare()
            run()
        by_then = len(records())
        prepare()
        run()
        made = records()
    after = compile_records.totals()
    if not made:
        return None
    different = list(dict.fromkeys(codes))
    guards = guards_of(different)
    breaks = _breaks(made)
    again = _recompiles(made, by_then)

    def rise(name: str) -> int:
        return after.dispatches.get(name, 0) - before.dispatches.get(name, 0)

    values = {
        "guards": len(guards),
        "graphs": after.graphs - before.graphs,
        "graph_breaks": len(breaks),
        "recompiles": len(again),
        "cache_size": max(map(_entries, different), default=0),
        "fake_dispatches": rise("FakeTensor"),
        "fake_mode_dispatches": rise("FakeTensorMode"),
        "proxy_dispatches": rise("ProxyTorchDispatchMode"),
        "fake_cache_hits": after.hits - before.hits,
        "fake_cache_misses": after.misses - before.misses,
    }
    return Found(values, Compiled(grouped(guards), breaks, again, _seconds(made)))


def _entries(code: CodeType) -> int:
    return len(guard_trees.cache_entries(code))


def _breaks(made: Sequence[compile_records.Record]) -> tuple[CompileEvent, ...]:
    """The distinct graph breaks, with those that left a whole function uncompiled."""
    found = [
        CompileEvent(_innermost(places), first_of(why)) for why, places in compile_records.breaks()
    ]
    found += [
        CompileEvent(
            _shown(r.failed_file or r.file, r.failed_line or r.line),
            f"{first_of(r.failed)}; {r.function} is not compiled at all",
        )
        for r in made
        if r.failed
    ]
    return tuple(dict.fromkeys(found))


def _recompiles(made: Sequence[compile_records.Record], last: int) -> tuple[CompileEvent, ...]:
    """The recompiles; those in the last call are marked."""
    found: dict[str, CompileEvent] = {}
    for number, record in enumerate(made):
        if not record.again or (record.compiled in found and not record.reason):
            continue
        reason = first_of(record.reason) or "torch gives no reason"
        if number >= last:
            reason += f"; in call {CALLS} still: it may compile at every call"
        found[record.compiled] = CompileEvent(
            f"{_shown(record.file, record.line)} in {record.function}", reason
        )
    return tuple(found.values())


def _seconds(made: Sequence[compile_records.Record]) -> dict[str, float]:
    whole, backend, inductor = (
        sum(record.seconds[f"{part}_compile"] for record in made)
        for part in ("entire_frame", "backend", "inductor")
    )
    return {
        "tracing": round(max(whole - backend, 0.0), 4),
        "backend": round(max(backend - inductor, 0.0), 4),
        "inductor": round(inductor, 4),
    }


def _innermost(places: Sequence[tuple[str, int, str]]) -> str:
    """The innermost place in user code, if there is one."""
    own = [place for place in places if not is_foreign_file(place[0])]
    path, line, _ = (own or list(places) or [("", 0, "")])[-1]
    return _shown(path, line)


def first_of(reason: str) -> str:
    """The first sentence of torch's long reasons."""
    lines = [" ".join(line.split()) for line in reason.strip().splitlines()]
    said = lines[0] if lines else ""
    if said.endswith(":") and lines[1:]:
        said += f" {lines[1]}"
    if said.startswith("generic_jump Tensor"):
        said = f"a branch depends on the value of a tensor ({said})"
    why = next((line for line in lines[1:] if line.startswith("Explanation:")), "")
    return ". ".join(filter(None, [said, why.removeprefix("Explanation:").strip()])).replace(
        ";", ","
    )


def _shown(path: str, line: int) -> str:
    here = Path.cwd()
    inside = bool(path) and Path(path).is_absolute() and Path(path).is_relative_to(here)
    return f"{os.path.relpath(path, here) if inside else path}:{line}"


def failure(error: BaseException) -> UserError | None:
    """The one-line error for an exception of the compiler; None for other exceptions."""
    if not compile_records.compile_failed(error):
        return None
    words = str(error)
    said = first_of(words) or type(error).__name__
    if "InvalidCxxCompiler" in words or type(error).__name__ == "InvalidCxxCompiler":
        return UserError(
            "it cannot be compiled: no C++ compiler works here; install one, or name it by the environment "
            "variable CXX"
        )
    if compile_records.is_file_error(error):
        return UserError(
            f"it cannot be compiled: torch cannot write its cache: {said}; name a folder that can be written "
            "by the environment variable TORCHINDUCTOR_CACHE_DIR"
        )
    return UserError(
        f"it cannot be compiled: {type(error).__name__}: {said}; run by itself it shows more"
    )
