"""The private names of torch that are used here: small functions, so that a torch that has renamed one is met
in one place.

Importing this imports no torch; the functions are for where torch is imported already, those about compiled
code for where `torch._dynamo` is.
"""

from __future__ import annotations

import inspect
import logging
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_CACHES = (
    ("torch._inductor.config", "fx_graph_cache", False),
    ("torch._inductor.config", "fx_graph_remote_cache", False),
    ("torch._inductor.config", "compile_threads", 1),
    ("torch._functorch.config", "enable_autograd_cache", False),
    ("torch._dynamo.config", "automatic_dynamic_local_pgo", False),
    ("torch._dynamo.config", "automatic_dynamic_remote_pgo", False),
)
"""Settings that keep torch from using what earlier processes compiled, and have it compile in one thread."""

HELPERS = {
    "skip_guard_on_inbuilt_nn_modules_unsafe": "hooks and attributes of torch's own modules, as nn.Linear",
    "skip_guard_on_globals_unsafe": "globals, among them functions and classes of modules",
    "skip_guard_on_all_nn_modules_unsafe": "hooks, attributes, parameters and submodules of all modules",
    "keep_tensor_guards_unsafe": "everything but tensors that are given, grad mode and autocast too",
}
"""What `torch.compiler` offers as `guard_filter_fn`, and what may then change unseen: the safest first."""

_MOST_RECORDS = 100_000
_OPTIMIZERS = str(Path("torch", "optim", "optimizer.py"))


def compiler_is_there() -> bool:
    """Whether torch's compiler was imported: where it was not, nothing is compiled."""
    # Where importing it failed, parts of it are left there.
    return "torch._dynamo" in sys.modules and "torch._dynamo.eval_frame" in sys.modules


def entry_file() -> str:
    """The file that every compiled callable is called through."""
    return str(sys.modules["torch._dynamo.eval_frame"].__file__)


def lookups(run: Callable[[], object]) -> int | None:
    """How often a call looks for compiled code whose guards hold; None where this torch cannot tell."""
    from torch._C._dynamo import eval_frame

    hook = getattr(eval_frame, "set_guard_complete_hook", None)
    if hook is None:
        return None
    seen = 0

    def looked(hit: bool) -> Any:
        nonlocal seen
        seen += 1
        return before(hit) if before is not None else hit  # what is not true is compiled again

    before = hook(looked)
    try:
        run()
    finally:
        hook(before)
    return seen


@contextmanager
def compiled_codes() -> Iterator[list[CodeType]]:
    """Yields the code that torch compiles in here, in order: again where it is compiled again."""
    from torch._dynamo.convert_frame import register_bytecode_hook

    found: list[CodeType] = []

    def noted(code: CodeType, made: CodeType) -> None:
        found.append(code)

    handle = register_bytecode_hook(noted)
    try:
        yield found
    finally:
        handle.remove()


def cache_entries(code: CodeType) -> list[Any]:
    """What torch has compiled a piece of code to: the entries that it looks through when it is called."""
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    return list(_debug_get_cache_entry_list(code))


def code_before(made: CodeType) -> CodeType | None:
    """The code that Dynamo rewrote; None for what it did not write."""
    from torch._dynamo.utils import orig_code_map

    found: CodeType | None = orig_code_map.get(made)
    return found


def no_guards_tree() -> Any:
    """The root of guards that check nothing."""
    from torch._C._dynamo.guards import RootGuardManager

    return RootGuardManager()


def guard_tree(entry: Any) -> Any:
    """The root of the guards that are checked before an entry is used."""
    manager = getattr(entry, "guard_manager", None)
    root = getattr(manager, "root", None)
    if root is None:
        raise NotImplementedError("this torch keeps its guards in no tree")
    return root


def managers(root: Any) -> Iterator[Any]:
    """The nodes of a guard tree, each before those below it."""
    yield root
    pairs = getattr(root, "get_key_value_managers", None)
    below = [m for _, pair in sorted(pairs().items()) for m in pair] if pairs is not None else []
    for manager in (*below, *root.get_child_managers()):
        if manager is not None:
            yield from managers(manager)


def leaf_guards(manager: Any) -> list[Any]:
    """The checks of one node of a guard tree."""
    last = getattr(manager, "get_epilogue_lambda_guards", list)
    return [*manager.get_leaf_guards(), *last()]


def guarded_type(manager: Any) -> type:
    """The type of the value that a node of a guard tree is about: before 2.9, as far as its checks tell."""
    known = getattr(manager, "get_type_of_guarded_value", None)
    if known is not None:
        found: type = known()
        return found
    import torch

    kinds = {type(leaf).__name__ for leaf in leaf_guards(manager)}
    if "TENSOR_MATCH" in kinds:
        tensor: type = torch.Tensor
        return tensor
    constant = kinds & {"EQUALS_MATCH", "TRUE_MATCH", "FALSE_MATCH"}
    return float if constant else object


def forget_compiled() -> None:
    """Has torch forget all that it has compiled in this process, and what it knows of operations on fake
    tensors."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    torch.compiler.reset()
    FakeTensorMode.cache_clear()


def unmark(tensor: Any) -> None:
    """Takes off what code that was compiled before has left on a tensor for what is compiled next: which of
    its sizes were dynamic. Nested tensors are born with it."""
    if not tensor.is_nested:
        vars(tensor).pop("_dynamo_propagated_dynamic_indices", None)


@contextmanager
def unheard() -> Iterator[None]:
    """What the compiler tells of its steps, in thousands of lines, is told to its own handlers alone: pytest
    listens to all loggers, and compiling takes ten times as long where anybody does."""
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
    """Nothing that is compiled in here comes from a cache on disk, and all in one thread."""
    with ExitStack() as stack:
        for module, name, value in _CACHES:
            config = sys.modules.get(module)
            if config is not None and hasattr(config, name):
                stack.enter_context(config.patch({name: value}))
        stack.enter_context(_guards_know_their_place())
        yield


@contextmanager
def _guards_know_their_place() -> Iterator[None]:
    """Guards are made with the line that made torch check: releases before 2.13 look for it only where guards
    are to be logged in full."""
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


@dataclass(frozen=True, slots=True)
class Totals:
    """What the compiler counts since the process began."""

    graphs: int
    dispatches: Mapping[str, int]
    """By the class whose `__torch_dispatch__` was asked."""
    hits: int
    """Of the cache of fake tensors."""
    misses: int


def totals() -> Totals:
    """What the compiler has counted up to now."""
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
    """What the compiler noted of one piece of work."""

    again: bool
    """Whether the same code had been compiled before."""
    compiled: str
    """Which code, and which time: ``0/1``."""
    function: str
    file: str
    line: int
    reason: str
    """Why it was compiled again; empty where that is not known."""
    failed: str
    """Why nothing was compiled; empty where it was."""
    failed_file: str
    failed_line: int
    seconds: Mapping[str, float]
    """By part of the work."""


_PARTS = ("entire_frame_compile", "backend_compile", "inductor_compile")


@contextmanager
def records() -> Iterator[Callable[[], list[Record]]]:
    """Yields what tells of all that was compiled in here by then."""
    from torch._dynamo import utils

    limit = utils._compilation_metrics.maxlen
    utils.set_compilation_metrics_limit(_MOST_RECORDS)
    before = len(utils.get_compilation_metrics())
    try:
        yield lambda: [_record(metrics) for metrics in utils.get_compilation_metrics()[before:]]
    finally:
        utils.set_compilation_metrics_limit(limit)


def recorded() -> list[Record]:
    """What the compiler remembers of what it compiled, as far as that goes back."""
    from torch._dynamo.utils import get_compilation_metrics

    return [_record(metrics) for metrics in get_compilation_metrics()]


def codes_compiled() -> list[CodeType]:
    """All code that there is compiled code for."""
    from torch._dynamo.utils import orig_code_map

    return [code for code in list(orig_code_map.values.values()) if isinstance(code, CodeType)]


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
"""Why a graph broke, and the places that led to it, the outermost first: file, line, function."""


def breaks(known: Sequence[object] = ()) -> list[Break]:
    """The graph breaks since the compiler was reset, but for those of which `known` has the records."""
    return [
        (found.reason, [(at.filename, at.lineno or 0, at.name) for at in found.user_stack])
        for found in break_records()
        if not any(found is one for one in known)
    ]


def break_records() -> list[Any]:
    """What the compiler remembers of graph breaks."""
    from torch._dynamo.utils import graph_break_reasons

    return list(graph_break_reasons)


def compile_failed(error: BaseException) -> bool:
    """Whether an exception comes from compiling, not from what was compiled."""
    exceptions = sys.modules.get("torch._dynamo.exc")
    if exceptions is not None and isinstance(error, exceptions.TorchDynamoException):
        return True
    return isinstance(error, OSError) and _raised_in(error).startswith(_COMPILER)


def is_of_files(error: BaseException) -> bool:
    """Whether compiling failed for a file or folder."""
    seen: list[BaseException | None] = [error, getattr(error, "inner_exception", None)]
    seen += [one.__cause__ or one.__context__ for one in seen if one is not None]
    return any(isinstance(one, OSError) for one in seen)


_COMPILER = ("torch._inductor", "torch._dynamo", "torch._functorch._aot_autograd")
_STDLIB = (sysconfig.get_paths()["stdlib"], "<frozen ")


def _raised_in(error: BaseException) -> str:
    """The module that an exception comes from, Python's own left out; not who called a user's function."""
    found, at = "", error.__traceback__
    while at is not None:
        path = at.tb_frame.f_code.co_filename
        if not path.startswith(_STDLIB) or "site-packages" in path:
            found = str(at.tb_frame.f_globals.get("__name__"))
        at = at.tb_next
    return found


GuardFilter = Callable[[list[Any]], list[bool]]
"""Which guards to keep, as `guard_filter_fn` of `torch.compile` has it."""


@dataclass(frozen=True, slots=True)
class Built:
    """The guards of one piece of code, as they were built when it was compiled."""

    code: CodeType
    root: Any
    again: Any
    """The root of the same guards built once more, as those without some are: how a tree lies in memory makes
    a difference too."""
    values: Mapping[str, object]
    """What the guards are checked on: the variables of the call that was compiled."""
    entries: list[Any]
    """What a filter is given."""
    without: Callable[[GuardFilter], Any]
    """Builds the guards that a filter keeps once more, and gives their root. Only while compiling."""


@contextmanager
def guards_built(seen: Callable[[Built], None]) -> Iterator[None]:
    """Tells of all guards that torch builds in here."""
    from torch._dynamo.guards import CheckFunctionManager

    build = CheckFunctionManager.__init__
    form = inspect.signature(build)
    building = False

    def built(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal building
        build(self, *args, **kwargs)
        if building:
            return
        bound = form.bind(self, *args, **kwargs)
        users = bound.arguments.get("guard_filter_fn")
        entries: list[Any] = []

        def noted(given: list[Any]) -> list[bool]:
            entries.extend(given)
            return [True] * len(given)

        def without(keeps: GuardFilter) -> Any:
            def both(given: list[Any]) -> list[bool]:
                kept = users(given) if users is not None else [True] * len(given)
                return [bool(a and b) for a, b in zip(kept, keeps(given), strict=True)]

            other = CheckFunctionManager.__new__(CheckFunctionManager)
            changed = {**bound.arguments, "guard_filter_fn": both, "self": other}
            if "cache_entries" in changed:
                changed["cache_entries"] = None
            build(**changed)
            return other.guard_manager.root

        building = True
        try:
            again = without(noted)
            graph = bound.arguments["output_graph"]
            values = dict(graph.local_scope)
            root, code = self.guard_manager.root, bound.arguments["f_code"]
            seen(Built(code, root, again, values, entries, without))
        finally:
            building = False

    CheckFunctionManager.__init__ = built
    try:
        yield
    finally:
        CheckFunctionManager.__init__ = build


def helpers() -> dict[str, GuardFilter]:
    """The filters that this torch offers, the safest first."""
    import torch

    offered = ((name, getattr(torch.compiler, name, None)) for name in HELPERS)
    return {name: keeps for name, keeps in offered if keeps is not None}


def no_guards(given: list[Any]) -> list[bool]:
    """The filter that keeps nothing."""
    return [False] * len(given)


def name_of(entry: Any) -> str:
    """What a guard checks, of what a filter is given."""
    name = entry.orig_guard.name
    return str(name() if callable(name) else name)


def modes_are_guarded() -> bool:
    """Whether this torch compiles code anew where somebody watches it who was not there before."""
    from torch.utils._python_dispatch import TorchDispatchMode

    return not hasattr(TorchDispatchMode, "ignore_compile_internals")


def see_operators_of_functions(mode: type) -> None:
    """Has a kind of mode see operators that take functions, in a torch that asks for a rule for each."""
    from torch._ops import _higher_order_ops
    from torch.utils._python_dispatch import TorchDispatchMode

    if hasattr(TorchDispatchMode, "supports_higher_order_operators"):
        return

    def rule(operator: Any) -> Callable[..., Any]:
        return lambda mode, *args, **kwargs: mode.__torch_dispatch__(operator, (), args, kwargs)

    for operator in _higher_order_ops.values():
        operator.python_key_table.setdefault(mode, rule(operator))


def lazy_backend_started() -> str:
    """Has torch's lazy device there from now on; why it cannot be, or nothing where it can."""
    try:
        import torch
        from torch._lazy import ts_backend
    except ImportError as error:
        return "torch is not installed" if error.name == "torch" else "torch has no lazy backend"
    try:
        torch.empty(0, device="lazy")
        return ""  # somebody has started it, and nobody may twice
    except (RuntimeError, NotImplementedError):
        pass
    try:
        ts_backend.init()
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        return f"torch's lazy backend does not start: {str(error).strip().partition(chr(10))[0]}"
    return ""


def lazy_trace_executed() -> None:
    """Until all that lazy tensors stand for is computed: nothing is left to trace on from."""
    import torch._lazy

    torch._lazy.mark_step(wait=True)


def lazy_operations() -> int:
    """How many operations lazy tensors were asked for in this process. Those that the backend cannot trace
    are among them: it computes what they need, and runs them at once."""
    from torch._lazy import metrics

    names = [n for n in metrics.counter_names() if n.startswith(("lazy::", "aten::"))]
    return sum(int(metrics.counter_value(name)) for name in names)


def resolved(operation: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """The name of the overload of an operation that takes what is given, `Tensor` or `default`; None where
    none does."""
    import torch

    try:
        return torch._C._jit_resolve_packet(f"aten::{operation}", *args, **kwargs) or "default"
    except (RuntimeError, TypeError):
        return None


def is_optimizer_step(code: CodeType) -> bool:
    """Whether code is what torch has around `step` of every optimizer."""
    return code.co_name == "wrapper" and code.co_filename.endswith(_OPTIMIZERS)


def operation_behind(function: Callable[..., Any]) -> str:
    """The operation that a function of torch is known to stand for, `linear`; empty where none is."""
    import torch

    return str(torch.jit._builtins._find_builtin(function) or "").rpartition("::")[2]


def script(source: str) -> Callable[..., Any]:
    """A function from the text of a TorchScript graph."""
    import torch

    made: Callable[..., Any] = torch._C._create_function_from_graph(
        "script", torch._C.parse_ir(source)
    )
    return made


@contextmanager
def scripts_unoptimised() -> Iterator[None]:
    """Scripts that run for the first time in here run as they are written, now and later."""
    import torch

    before = torch._C._get_graph_executor_optimize()
    profiling = torch._C._jit_set_profiling_executor(False)
    torch._C._set_graph_executor_optimize(False)
    try:
        yield
    finally:
        torch._C._set_graph_executor_optimize(before)
        torch._C._jit_set_profiling_executor(profiling)


def overrides(kind: type) -> bool:
    """Whether a class has a say in functions of torch that are given one of it, here and now."""
    import torch

    none = torch._C._disabled_torch_function_impl
    if kind is torch.Tensor or getattr(kind, "__torch_function__", none) is none:
        return False
    return bool(torch._C._is_torch_function_enabled())


def plain_tensors() -> AbstractContextManager[object]:
    """No subclass of tensors has a say in functions of torch."""
    import torch

    found: AbstractContextManager[object] = torch._C.DisableTorchFunctionSubclass()
    return found


@contextmanager
def below_autograd() -> Iterator[None]:
    """Operations begin below the keys of autograd, of views and of writing in place, and so do those that
    kernels call: those find these keys left out after autograd's own kernels too."""
    import torch

    views = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
    with torch._C._AutoDispatchBelowAutograd(), torch._C._ExcludeDispatchKeyGuard(views):
        yield


@contextmanager
def compiled_code_found() -> Iterator[None]:
    """Functions run in the form that Dynamo gave them, where they have one; none is compiled anew."""
    from torch._C._dynamo import eval_frame

    before = eval_frame.set_eval_frame(False)
    try:
        yield
    finally:
        eval_frame.set_eval_frame(before)


@contextmanager
def dynamo_kept() -> Iterator[Callable[[], bool]]:
    """Yields what says whether Dynamo was switched on or off in this thread; afterwards it is as before."""
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


def surroundings() -> tuple[object, ...]:
    """What is around a call beside grad mode that decides what torch does: autocast, modes, the default type;
    empty where torch is not imported."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ()
    return (
        torch._C._is_any_autocast_enabled(),
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
        torch.get_default_dtype(),
    )


def grad_state() -> tuple[bool, bool]:
    """Whether a backward pass is recorded for, and whether tensors are for inference alone."""
    torch = sys.modules.get("torch")
    if torch is None:
        return True, False
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled()


@contextmanager
def in_grad_state(grad: bool, inference: bool) -> Iterator[None]:
    """As `grad_state` told."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with torch.inference_mode() if inference else torch.set_grad_enabled(grad):
        yield


def schema_of(operation: Any) -> Any:
    """What an overload takes and returns; None for operators that take functions, such as flex_attention."""
    return getattr(operation, "_schema", None)


def overloads_of(operation: Any) -> list[Any]:
    """All overloads of what this is one of."""
    packet = operation._overloadpacket
    return [getattr(packet, name) for name in packet.overloads()]


def in_backward() -> bool:
    """Whether a backward pass runs here."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)


def left_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which torch.compile does not look into."""
    import torch

    found: Callable[..., Any] = torch._disable_dynamo(function)
    return found


@contextmanager
def compiler_left_out() -> Iterator[None]:
    """Operations on shapes alone (the device ``meta``) run without importing torch's compiler, which many
    would do only to tell it to look away, and which takes seconds. Nothing else may run meanwhile."""
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
        for function in asked:  # torch keeps the answer with the function
            vars(function).pop("__dynamo_disable", None)


def load_compiler() -> bool:
    """Imports torch's compiler; whether its guards can be told apart."""
    import torch._dynamo

    return hasattr(torch._dynamo.guards, "GuardFilterEntry") and bool(helpers())
