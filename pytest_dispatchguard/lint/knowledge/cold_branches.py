"""Which branches of an `if` are cold: error paths, once-only guards, tracing, debugging. Pure
functions on the text of the condition, so that the scout and the judge decide alike."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

from pytest_dispatchguard.lint.knowledge.backends import (
    OTHER_DEVICE,
    collectives_of_the_host,
    framework,
    on_other_device,
)
from pytest_dispatchguard.lint.knowledge.counters import (
    COUNTER,
    ENDS,
    PERIOD,
    are_few_rounds,
    dotted,
    is_first_round,
    is_last_round,
    is_of_few_rounds,
    is_one_of,
    is_one_round,
    is_one_step,
    remainder,
)
from pytest_dispatchguard.lint.knowledge.versions import runs_with_old_torch

_WORTH_PARSING = (
    *"""type_checking is_scripting is_tracing onnx is_compiling is_dynamo is_exporting debug verbose
    isenabledfor % hasattr built initialized initialised warned main_process is_fx_tracing
    is_torchdynamo captur backend framework symbolic len( numel( nelement( size( .shape[ is_nan isnan isinf
    xla neuron _mps mlu musa sdaa validated checked first cached done needs_ need_ finite _installed
    _registered _applied legacy deprecated should_log do_log is_log log_ tuning dump
    wall_clock record_ is_save should_save do_save is_last_ is_report should_report should_record should_summ
    is_ckpt cache_hit in_cache is_checkpoint should_checkpoint plot visuali last_ vis_
    loglevel log_level anomaly divisible interval every freq period version nccl gloo snapshot""".split(),
)
"""In lower case. Looking for one after the other is many times faster than for all in one pattern."""
_WORTH_PARSING_TOO = re.compile(
    r"is\s+(?:not\s+)?(?:none|self\.|true\b|false\b)|=\s+(?:true|false)\b|in\b(?<!\win)|"
    r"not\s+(?:[a-z_]\w*\.|\w*state\b|true\b|false\b)|[!=]=\s*self\.|self\.[\w.\[\]]+\s*[!=]=|"
    r"[!=]=\s*[\w.]*(?:num_|total_|max_|n_|_per_|start_|first_|begin_)|^self\.\w+(?:$|\s+and\b)|!=\s*[a-z_]|\bis\s+[a-z_]|max\w*\s*[<>]|^\w+\s*[!=<>]=?\s*[01]$|[<>]=?\s*self\.\w*max|nans?\b|infs?\b|npu\b|hpu\b|tpu\b|mps(?<!\wmps)"
)
_COLD_CALLS = frozenset(
    "is_scripting is_tracing is_compiling is_dynamo_compiling is_exporting isEnabledFor "
    "is_torchdynamo_compiling is_torchdynamo_exporting is_jit_tracing is_fx_tracing is_tracing_or_exporting "
    "torch_jit_is_tracing any_symbolic any_symbolic_tensors is_symbolic "
    "is_current_stream_capturing is_capturing is_stream_capturing is_capture_mode in_capture_mode "
    "get_is_capture_mode is_in_cuda_graph_capture is_graph_capturing is_anomaly_enabled "
    "is_anomaly_check_nan_enabled".split()
)
_DEBUG = re.compile(
    r"(?:.*_)?(?:debug|verbose|verbosity)(?:_mode|_level|_enabled|_on|_asserts?|_checks?|_prints?|_nans?|_?vi[sz]\w*)?|"
    r"is_debug\w*|debug_(?!info)\w+|debugging|wall_clock_breakdown",
    re.IGNORECASE,
)
_DEBUG_SETTING = re.compile(r"_?debug_\w+", re.IGNORECASE)
"""A setting that whoever looks for an error gives a value."""
_SNAPSHOT = re.compile(r"_?(?:\w+_)?snapshot(?:_(?:data|dict|path|pkl))?")
"""What a training saves now and then: it is there in few rounds."""
_ASKS_DEBUG = re.compile(
    r"_*(?:(?:is|should|in|do|use)_)?(?:\w+_)?(?:debug|verbose)(?:ging)?(?:_\w+)?_(?:enabled|on|active|mode|flag)|"
    r"_*(?:is|should|in|do)_(?:\w+_)?(?:debug|verbose)(?:_\w+)?",
    re.IGNORECASE,
)
"""The name of a function that says whether somebody looks for an error."""
_NOW_AND_THEN = re.compile(
    r"_?(?:\w+_)?vis_(?:results?|images?|flag)|_?(?:is|should|do|to)_log(?:ging)?(?:_\w+)?|_?log_(?:\w+_)?(?:info|stats|details|histograms?|images?)|_?(?:is_|in_)?(?:auto)?tuning(?:_mode)?|"
    r"_?(?:should_|do_|is_)?dump(?:_enabled|_inputs|_outputs|_tensors)?|"
    r"_?(?:is|should|do|to)_(?:save|report|plot|render|checkpoint|ckpt|record|summari[sz]e)(?:_\w+)?|"
    r"_?(?:do_|with_|make_|save_)?(?:plots?|plotting|visuali[sz](?:e|ations?))|"
    r"_?(?:is_)?last_(?:step|batch|iter|iteration|epoch)|_?(?:in_|is_)?onnx_(?:trac|export)(?:e|ing)?|"
    r"_?record_\w*(?:counters?|counts?|metrics?|stats|statistics|miss(?:es)?)"
)
"""Says that this is one of few calls: one that is logged, plotted, saved, tuned or dumped, or the last."""
_LEVEL = re.compile(r"(?:\w+_)?(?:log_?level|debug_?level|verbosity)", re.IGNORECASE)
_FRAMEWORK = re.compile("backend|framework", re.IGNORECASE)
_BROKEN = re.compile(r"_?(?:\w+_)?(?:nans?|infs?)(?:_mask|_indices|_idx)?")
_FINE = re.compile(r"_?(?:\w+_)?(?:is_?)?finite|_*(?:\w+_)?(?:cache_hit|in_cache)")
_COLD_NAMES = frozenset({"TYPE_CHECKING"})
_DONE = re.compile(
    r"_*(?:is|was|has|have|been|already|all)?_?(?:been_)?(?:built|initiali[sz]ed|warned|set_?up_done|"
    r"lazily_initiali[sz]ed|set_?up|validated|checked|warning_(?:issued|shown|given|emitted))(?:_once)?|"
    r"_*\w+_(?:initiali[sz]ed|warned|built|validated|checked)|"
    r"_*(?:\w+_)?(?:hooks?|handlers?|patch(?:es)?)_(?:installed|registered|applied)"
)
_FIRST = re.compile(
    r"_*(?:is_)?first(?:_(?:call|time|run|pass|step|batch|forward|use|iter(?:ation)?))?|"
    r"_*needs?_(?:to_be_)?(?:init\w*|set_?up|built|building)|_*(?:not_|un)initiali[sz]ed"
)
"""Says that something has not been done yet, where the branch that does it takes it back."""
_LOOKS_ONCE = re.compile(
    r"check|verif|valid|warn|first|once|init|build|set_?up|calibrat|alloc|statistic|diagnos"
)
"""The same of what the branch switches off: other flags are switched on again, step by step."""
_SIZES = frozenset({"numel", "nelement", "size"})
_EXTENT = re.compile(r"max|longest|capacity", re.IGNORECASE)
_MADE_BEFORE = re.compile(r"cached(?!_property)", re.IGNORECASE)
_STATE = re.compile(r"(?:\w+_)?state")
_GROUP = re.compile(r"(?:param_?)?group")
"""What optimizers call a table of settings, and of what they make once for them."""
_CACHE = re.compile(r"_*(?:\w+_)?(?:cache|memo)s?|_*(?:already_)?warned(?:_\w+)?", re.IGNORECASE)
"""What is looked up in it is filled in where it is missing, by whatever the branch calls."""
_CACHED = re.compile(r"cache|memo(?![a-z])", re.IGNORECASE)
_SENTINEL = re.compile(
    r"_*(?:\w+_)?(?:UN[A-Z]+|NOT_[A-Z]+|MISSING|EMPTY|NOTHING|SENTINEL|NO_[A-Z]+)_*"
)
"""What stands for nothing where None is a value."""
_LEGACY = re.compile(r"_*(?:is_|use_|\w+_)?legacy(?:_\w+)?|_*\w*deprecated\w*")
_WARNS = re.compile(
    r"(?:^|[._])(?:warn|warning|warnings|warning_once|deprecate|deprecated)(?:$|[._])"
)
_NAME = re.compile(r"[^\W\d]\w*")
_GLOBAL_MEMO = re.compile(r"_*[A-Z][A-Z0-9_]*|_\w*(?:cache|memo|registry)\w*|\w*_cache")

_MAY_WARN = re.compile(r"\\|\d[^\W\d]")
"""Of which Python warns while it reads them: odd escapes, and numbers that run into a word."""


@lru_cache(maxsize=65536)
def parse_condition(condition: str) -> ast.expr | None:
    """The condition of an `if`, over several lines perhaps; None where it is none."""
    text = f"(\n{condition}\n)"
    try:
        if _MAY_WARN.search(condition) is None:
            return ast.parse(text, mode="eval").body
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _cold_atom(node: ast.expr) -> bool:
    """Whether an expression is true only where nobody minds the cost."""
    if isinstance(node, ast.Call):
        called = dotted(node.func).rpartition(".")[2].lstrip("_")
        if called in _COLD_CALLS or "onnx_export" in called:
            return True
        if OTHER_DEVICE.fullmatch(called) is not None:
            return True
        return _ASKS_DEBUG.fullmatch(called) is not None
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        asked = dotted(node.left).rpartition(".")[2]
        return isinstance(node.ops[0], (ast.Gt, ast.GtE)) and _LEVEL.fullmatch(asked) is not None
    last = dotted(node).rpartition(".")[2]
    if not last:
        return False
    rare = _DEBUG.fullmatch(last) or OTHER_DEVICE.fullmatch(last) or _NOW_AND_THEN.fullmatch(last)
    return last in _COLD_NAMES or bool(rare)


@lru_cache(maxsize=65536)
def foreign_branches(condition: str) -> tuple[bool, bool]:
    """Whether the body of ``if condition:`` is for another framework than torch, and whether its
    else is: such code does not run where torch does, and what it imports means nothing there."""
    node = parse_condition(condition) if _FRAMEWORK.search(condition) else None
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return False, False
    return framework(node.left, node.ops[0], node.comparators[0])


def _lasting(name: str, assigned: Collection[str]) -> bool:
    """Whether a name outlives the call: an attribute, what is declared global, or by its name a constant or
    cache of the module."""
    return "." in name or f"global {name}" in assigned or _GLOBAL_MEMO.fullmatch(name) is not None


def _keeps(name: str, assigned: Collection[str]) -> bool:
    """Whether a name outlives the call, or is what optimizers call the state they keep of a parameter."""
    return _lasting(name, assigned) or _STATE.fullmatch(name) is not None


def _keeps_what_is_made(name: str) -> bool:
    """Whether what is put there is for later calls, by its name."""
    if "." in name:
        return _CACHED.search(name) is not None or name.endswith(".__dict__")
    return _GLOBAL_MEMO.fullmatch(name) is not None and len(name.strip("_")) > 3


def names_in(condition: str) -> list[str]:
    """The names in a condition, and words that look like names."""
    return _NAME.findall(condition)


def looked_up(name: str, container: str) -> str:
    """How `body_assigns` says that a name was looked up in a container that outlives the call."""
    return f"{name} from {container}"


_NOT_YET = re.compile(
    r"(?:self\.(\w+) is None|not self\.(_?(?:is_)?(?:initiali[sz]ed|built|ready|loaded)))"
)
_BEGINS = re.compile(
    r"self\._?(?:lazy_?)?(?:build|compile|construct|create|init|initiali[sz]e|load|make|prepare|read|set_?up)"
    r"(?:_\w+)?\("
)


def not_yet(condition: str) -> str:
    """The attribute that a condition asks for because it may not be there yet: `engine` of `self.engine is
    None`; empty for other conditions."""
    asked = _NOT_YET.fullmatch(condition)
    return (asked[1] or asked[2]) if asked is not None else ""


def begins(block: str) -> bool:
    """Whether a branch has a method make something, by its name."""
    return _BEGINS.match(block) is not None


def counted(name: str) -> str:
    """How `body_assigns` says that a name is the number of elements or rows of something."""
    return f"{name} counts"


def may_count(condition: str) -> bool:
    """Whether a condition may ask if there is any of something: a quick no."""
    return "0" in condition or "1" in condition


def counts(expression: str) -> bool:
    """Whether an expression is the number of elements, or of rows, by its text."""
    node = parse_condition(expression)
    return node is not None and not isinstance(node, ast.Name) and _counts(node, ())


def periods_of_one(condition: str, owner: str, is_one: Callable[[str], bool]) -> set[str]:
    """How `body_assigns` says that what is done every so many steps is done in every step, unless somebody
    asks for less: where an attribute of `owner` is 1 by default."""
    if "%" not in condition or not owner:
        return set()
    return {is_one_step(f"{owner}.{name}") for name in names_in(condition) if is_one(name)}


def switched_off(name: str) -> str:
    """How `body_assigns` says that a name is set to False."""
    return f"{name} off"


def _put_back(name: str, assigned: Collection[str]) -> bool:
    """Whether what a name was looked up in is filled where it was not found."""
    return any(looked_up(name, container) in assigned for container in assigned)


def _verdict(node: ast.expr, assigned: Collection[str]) -> tuple[bool, bool]:
    """Whether what runs when the condition is true is cold, and what runs when it is false;
    `assigned` are the names that the branch in question fills."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        when_true, when_false = _verdict(node.operand, assigned)
        return when_false, when_true
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitOr, ast.BitAnd)):
        joins = ast.Or() if isinstance(node.op, ast.BitOr) else ast.And()  # of tensors
        node = ast.BoolOp(joins, [node.left, node.right])
    if isinstance(node, ast.BoolOp):
        parts = [_verdict(value, assigned) for value in node.values]
        if isinstance(node.op, ast.And):
            return any(t for t, _ in parts), all(f for _, f in parts)
        # ``it == 0 or it % 500 == 0``: the first of few rounds.
        few = [
            t
            or is_first_round(v)
            or is_one_of(v, node.values)
            or ENDS.fullmatch(dotted(v).rpartition(".")[2])
            for (t, _), v in zip(parts, node.values, strict=True)
        ]
        broken = any(isinstance(v, ast.Call) and _finds_broken_values(v) for v in node.values)
        return broken or (all(few) and any(t for t, _ in parts)), any(f for _, f in parts)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _verdict_of_comparison(node.left, node.ops[0], node.comparators[0], assigned)
    if is_of_few_rounds(node, assigned):
        return False, True
    if isinstance(node, ast.Call):
        if dotted(node.func) in ("hasattr", "getattr") and len(node.args) >= 2:
            owner, attribute = dotted(node.args[0]), node.args[1]
            if owner.partition(".")[0] == "torch":
                return False, True  # what an old version lacks
            if (
                owner
                and isinstance(attribute, ast.Constant)
                and (
                    f"{owner}.{attribute.value!s}" in assigned
                    or _DONE.fullmatch(str(attribute.value))
                )
            ):
                return False, True
        if _counts(node, assigned) or _finds_all_fine(node):
            return False, True
        divided = remainder(node)
        if divided is not None and is_of_few_rounds(divided, assigned):
            return True, False
        return _cold_atom(node) or _finds_broken_values(node), False
    name = dotted(node)
    if "." in name and switched_off(name) in assigned and _LOOKS_ONCE.search(name):
        return True, False
    if name in assigned and _lasting(name, assigned) and _FIRST.fullmatch(name.rpartition(".")[2]):
        return True, False
    if "." in name and _DONE.fullmatch(name.rpartition(".")[2]):
        return False, True
    if name in assigned and _keeps(name, assigned):
        return False, True
    return _cold_atom(node), _FINE.fullmatch(name.rpartition(".")[2]) is not None


def _verdict_of_comparison(
    left: ast.expr, op: ast.cmpop, right: ast.expr, assigned: Collection[str]
) -> tuple[bool, bool]:
    if isinstance(op, (ast.Is, ast.IsNot)) and _is_nothing(right):
        last = dotted(left).rpartition(".")[2]
        if _DEBUG_SETTING.fullmatch(last) or _SNAPSHOT.fullmatch(last):
            return (False, True) if isinstance(op, ast.Is) else (True, False)
        filled = _is_filled(left, assigned)
        return (filled, False) if isinstance(op, ast.Is) else (False, filled)
    if (
        isinstance(right, ast.Constant)
        and isinstance(right.value, bool)
        and isinstance(op, (ast.Eq, ast.Is, ast.NotEq, ast.IsNot))
    ):
        when_true, when_false = _verdict(left, assigned)
        same = isinstance(op, (ast.Eq, ast.Is)) is right.value
        return (when_true, when_false) if same else (when_false, when_true)
    if isinstance(op, (ast.In, ast.NotIn)) and are_few_rounds(left, right):
        return (True, False) if isinstance(op, ast.In) else (False, True)
    if isinstance(op, (ast.In, ast.NotIn)):
        name = dotted(right).removesuffix(".__dict__")
        kept = _lasting(name, assigned) and _CACHE.fullmatch(name.rpartition(".")[2]) is not None
        named = isinstance(left, ast.Constant) and _GROUP.fullmatch(name) is not None
        if kept or (name in assigned and (named or _keeps(name, assigned))):
            return (True, False) if isinstance(op, ast.NotIn) else (False, True)
    if isinstance(op, (ast.Is, ast.IsNot)) and any(
        ("." in name or f"global {name}" in assigned) and name in assigned
        for name in (dotted(left), dotted(right))
    ):
        # The object that was met last, kept with what was made of it.
        return (False, True) if isinstance(op, ast.Is) else (True, False)
    if isinstance(op, (ast.Eq, ast.NotEq)) and (
        is_last_round(left, right) or is_one_round(left, right)
    ):
        return (True, False) if isinstance(op, ast.Eq) else (False, True)
    outgrown, fits = _outgrown(left, op, right, assigned)
    fits = fits or (
        type(op) in _OPPOSITE and _outgrown(left, _OPPOSITE[type(op)], right, assigned)[0]
    )
    if outgrown or fits:
        return outgrown, fits
    if isinstance(right, ast.Constant) and right.value == 0 and _counts(left, assigned):
        if isinstance(op, (ast.Eq, ast.LtE)):
            return True, False
        return False, isinstance(op, (ast.NotEq, ast.Gt))
    if isinstance(right, ast.Constant) and right.value == 1 and _counts(left, assigned):
        return isinstance(op, ast.Lt), isinstance(op, ast.GtE)
    if isinstance(op, (ast.Eq, ast.NotEq)) and on_other_device(left, right):
        return (True, False) if isinstance(op, ast.Eq) else (False, True)
    for ask in (framework, collectives_of_the_host, runs_with_old_torch):
        others = ask(left, op, right)
        if any(others):
            return others
    if isinstance(op, ast.Eq) and is_of_few_rounds(left, assigned):
        return True, False
    if isinstance(op, ast.NotEq) and is_of_few_rounds(left, assigned):
        return False, True
    if isinstance(op, (ast.Gt, ast.GtE, ast.Eq)) and _cold_atom(left):
        return True, False
    return False, False


def _is_nothing(node: ast.expr) -> bool:
    """Whether an expression stands for nothing: None, or what does where None is a value."""
    if isinstance(node, ast.Constant):
        return node.value is None
    return _SENTINEL.fullmatch(dotted(node).rpartition(".")[2]) is not None


def _is_filled(node: ast.expr, assigned: Collection[str]) -> bool:
    """Whether what was nothing is there from then on."""
    name = dotted(node)
    if (
        not name
        and isinstance(node, ast.Call)
        and dotted(node.func) == "getattr"
        and len(node.args) >= 2
    ):
        key = node.args[1]
        name = f"{dotted(node.args[0])}.{key.value!s}" if isinstance(key, ast.Constant) else ""
    if name in assigned and _lasting(name, assigned):
        return True
    if name.startswith("self.") and _MADE_BEFORE.search(name):
        return True  # a helper fills it
    # `m = cache.get(key)` before it, `cache[key] = m` in it.
    return any(map(_keeps_what_is_made, assigned)) or _put_back(name, assigned)


_OPPOSITE: Mapping[type[ast.cmpop], ast.cmpop] = {
    ast.Eq: ast.NotEq(), ast.Lt: ast.GtE(), ast.LtE: ast.Gt(), ast.Gt: ast.LtE(), ast.GtE: ast.Lt(),
}  # fmt: skip


def _outgrown(
    left: ast.expr, op: ast.cmpop, right: ast.expr, assigned: Collection[str]
) -> tuple[bool, bool]:
    """Of ``self.shape != shape``, ``length > self.max_length`` and the like: whether what runs when it is
    true, and when it is false, makes anew what was kept for another shape, device or length."""
    if isinstance(left, ast.Constant) or isinstance(right, ast.Constant):
        return False, False
    for side, smaller in ((left, (ast.Lt, ast.LtE)), (right, (ast.Gt, ast.GtE))):
        if isinstance(op, (ast.NotEq, *smaller)) and _describes_kept(side, assigned):
            return True, False
        for name in {dotted(side), _held(side)}:
            if "." not in name and f"global {name}" not in assigned:
                continue
            before = _MADE_BEFORE.search(name) is not None
            if isinstance(op, ast.Eq) and before:
                return False, True
            counted = COUNTER.search(name.rpartition(".")[2]) is not None
            if isinstance(op, ast.NotEq) and (before or (name in assigned and not counted)):
                return True, False
            extent = before or (name in assigned and _EXTENT.search(name) is not None)
            if isinstance(op, smaller) and extent:
                return True, False
    return False, False


def _describes_kept(node: ast.expr, assigned: Collection[str]) -> bool:
    """Whether an expression is an attribute of what outlives the call and the branch makes anew: the size
    that ``_buffer.nbytes`` says, or the group that it is for."""
    owner, _, last = dotted(node).rpartition(".")
    lasting = "." in owner or f"global {owner}" in assigned
    return owner in assigned and lasting and COUNTER.search(last) is None


def _held(node: ast.expr) -> str:
    """What is kept, of an expression for it, for its shape, device, dtype or length."""
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call):
        if dotted(node.func) == "getattr" and len(node.args) > 1:
            name = node.args[1]
            return (
                f"{dotted(node.args[0])}.{name.value!s}" if isinstance(name, ast.Constant) else ""
            )
        if dotted(node.func) == "len" and len(node.args) == 1:
            node = node.args[0]
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _SIZES:
            node = node.func.value
    if isinstance(node, ast.Attribute) and node.attr in ("shape", "device", "dtype"):
        node = node.value
    return dotted(node)


def _finds_broken_values(node: ast.Call) -> bool:
    """``torch.isnan(x).any()``: what runs then is no ordinary step."""
    if dotted(node.func).rpartition(".")[2] in ("isnan", "isinf"):
        return True  # of one number
    if dotted(node.func) == "torch.any" and node.args:
        asked: ast.expr = node.args[0]
    elif isinstance(node.func, ast.Attribute) and node.func.attr == "any":
        asked = node.func.value
    else:
        return False
    called = asked.func if isinstance(asked, ast.Call) else asked
    last = called.attr if isinstance(called, ast.Attribute) else dotted(called)
    return last in ("isnan", "isinf") or _BROKEN.fullmatch(last) is not None


def _finds_all_fine(node: ast.Call) -> bool:
    """``torch.isfinite(x).all()``: what runs when it is false is no ordinary step."""
    last = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
    asked: ast.expr | None = None
    if last == "all" and node.args:
        asked = node.args[0]
    elif last in ("all", "item") and isinstance(node.func, ast.Attribute):
        asked = node.func.value
    if isinstance(asked, ast.Call):
        return _finds_all_fine(asked)
    if asked is not None:
        return _FINE.fullmatch(dotted(asked).rpartition(".")[2]) is not None
    return last == "isfinite"


def _counts(node: ast.expr, assigned: Collection[str]) -> bool:
    """Whether an expression is the number of elements, or of rows: what there is for nothing is rare. A list
    of the function's own that the branch fills starts empty on every call."""
    if isinstance(node, ast.Name):
        return counted(node.id) in assigned
    if isinstance(node, ast.Subscript):
        return dotted(node.value).endswith(".shape")
    if not isinstance(node, ast.Call):
        return False
    if dotted(node.func) == "len" and node.args:
        name = dotted(node.args[0])
        return name not in assigned or _keeps(name, assigned)
    return isinstance(node.func, ast.Attribute) and node.func.attr in _SIZES


@lru_cache(maxsize=65536)
def _cold_branches(condition: str, body_assigns: frozenset[str]) -> tuple[bool, bool]:
    if not worth_asking(condition):
        return False, False
    node = parse_condition(condition)
    if node is None:
        return False, False
    return _verdict(node, body_assigns)


@lru_cache(maxsize=65536)
def worth_asking(condition: str) -> bool:
    """Whether the condition can make a branch cold at all: a quick no spares the reader the
    branch."""
    lowered = condition.lower()
    for word in _WORTH_PARSING:
        if word in lowered:
            return True
    return _WORTH_PARSING_TOO.search(lowered) is not None


def cold_branches(
    condition: str,
    *,
    body_assigns: Collection[str] = (),
    orelse_assigns: Collection[str] = (),
    body_raises: bool = False,
    orelse_raises: bool = False,
) -> tuple[bool, bool]:
    """Whether the body of ``if condition:`` is cold, and whether its else is.

    `body_assigns` are the dotted names that statements directly in the body assign (``self._x``; of
    ``self._cache[k] = v`` the part before the bracket; of what is declared global also ``global x``; and
    what the names of the condition were `looked_up` in, `periods_of_one`, what is `counted`, and what is
    `switched_off`), `orelse_assigns` the same of the else, `body_raises` and `orelse_raises` say
    whether that block's last statement is a `raise`. The condition itself is hot."""
    if condition in ("False", "0"):
        return True, orelse_raises
    body = _cold_branches(condition, frozenset(body_assigns))[0]
    orelse = _cold_branches(condition, frozenset(orelse_assigns))[1]
    return body or body_raises, orelse or orelse_raises


def _may_count_rounds(text: str) -> bool:
    """A quick no."""
    return "%" in text or "divisible" in text or PERIOD.search(text) is not None


def now_and_then(condition: str) -> bool:
    """Whether a condition holds in one of several rounds, which it counts: ``epoch % every == 0``."""
    node = parse_condition(condition) if _may_count_rounds(condition) else None
    return node is not None and any(
        (isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod))
        or (isinstance(part, ast.Call) and remainder(part) is not None)
        for part in ast.walk(node)
    )


_ASKS_A_FLAG = re.compile(r"(?:not\s+)?([a-z_]\w*)(?:\s+and\b.*)?", re.DOTALL)


def with_flag(condition: str, value_of: Callable[[str], str]) -> str:
    """A condition that asks a name first, with what the name was given last in its place, where that counts
    rounds: ``should_log = step % 10 == 0``, then ``if should_log:``."""
    asked = _ASKS_A_FLAG.fullmatch(condition)
    value = value_of(asked[1]) if asked is not None else ""
    if asked is None or not _may_count_rounds(value):
        return condition
    return f"{condition[: asked.start(1)]}({value}){condition[asked.end(1) :]}"


def of_the_past(condition: str, called: Collection[str]) -> bool:
    """Whether a condition asks for what older versions did, by its names, and the branch warns of it: the
    names of what is `called` there."""
    if not any(_WARNS.search(name) for name in called):
        return False
    node = parse_condition(condition)
    return node is not None and _asks_for_the_past(node)


def _asks_for_the_past(node: ast.expr) -> bool:
    if isinstance(node, ast.BoolOp):
        return isinstance(node.op, ast.And) and any(map(_asks_for_the_past, node.values))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        none = isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None
        return none and isinstance(node.ops[0], ast.IsNot) and _asks_for_the_past(node.left)
    if isinstance(node, ast.Call):
        return _asks_for_the_past(node.func)
    return _LEGACY.fullmatch(dotted(node).rpartition(".")[2]) is not None


def rest_is_cold(condition: str, body_returns: bool, following_assigns: Collection[str]) -> bool:
    """Whether what follows ``if condition: … return`` in the same block runs only rarely:
    ``if self._cached is not None: return self._cached``, then statements that fill
    ``self._cached``; ``if not torch.jit.is_scripting(): return …``. `following_assigns` as
    `body_assigns` above, of the statements that follow; `body_returns`: the body ends in return,
    and there is no else."""
    if not body_returns:
        return False
    return _cold_branches(condition, frozenset(following_assigns))[1]
