"""DG604, DG605, DG614, DG615: log texts, warnings and prints made on every call."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from pytest_dispatchguard import Call, Certainty, Finding, Place, Rule, nodes

from ..certainty import may_return_before
from ..syntax import names_in
from .lazy_logging import lazy_call, literals, values_in

_WARNS_BY_NAME = re.compile(r"warn|deprecat|^__init__$", re.IGNORECASE)
_LEVELS = ("debug", "info")
_LOGGERS = frozenset({"logger", "_logger", "log", "_log"})


class EagerLogText(Rule):
    """The text of a log call is formatted before the logger checks its level.

    ## What it does
    Flags f-strings, `%` and `str.format` as the message of `logger.debug` in hot functions. The same of
    `logger.info` is a note, as most programs show it, and so is what is under a condition.

    ## Why it costs
    The text is formatted on every call, and thrown away when the level is off. Formatting a tensor takes
    more than a hundred microseconds, and waits for the device.

    ## Example
    ```python
    logger.debug(f"mask {mask} of {x.shape}")
    ```

    ## Instead
    ```python
    logger.debug("mask %s of %s", mask, x.shape)
    ```

    ## Fix safety
    Unsafe: `%s` is `str(x)` where an f-string asks `format(x, "")`, and errors in formatting are
    reported by logging instead of raised. Offered for loggers of the `logging` module.
    """

    code = "DG604"
    name = "eager-log-text"
    origin = "Emerging-Optimizers#255"
    looks_for = Call(*_LEVELS)
    fixes = "unsafe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags messages that are made at once."""
        if not place.per_call or not node.args:
            return None
        first = node.args[0]
        if first.keyword is not None or first.star or not _is_logger(node, place):
            return None
        how = _made_at_once(first.value, place)
        if not how:
            return None
        return place.finding(
            node,
            f"{how} formats the text on every call, even while `{place.text(node.func)}` is off. "
            "Pass the values to the logger, which formats them only if the level is enabled",
            # At `info`, most programs want the text.
            certainty="note" if place.conditions or place.last_name(node) == "info" else "sure",
            fix=lazy_call(node, place),
            dry=_is_dry(_shown(first.value), place),
        )


def _is_logger(node: cst.Call, place: Place) -> bool:
    name = place.name(node)
    if name.startswith(("loguru.", "structlog.")):
        return False
    receiver = place.receiver(node)
    if receiver is None:
        return False
    if name in ("logging.debug", "logging.info"):
        return True
    return place.dotted(receiver).rpartition(".")[2].lower() in _LOGGERS


def _made_at_once(node: cst.BaseExpression, place: Place) -> str:
    if isinstance(node, cst.FormattedString) and values_in(node):
        return "The f-string"
    if isinstance(node, cst.ConcatenatedString):
        return "The f-string" if any(values_in(p) for p in literals(node)) else ""
    strings = cst.SimpleString | cst.ConcatenatedString
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo):
        return "`%`" if isinstance(node.left, strings) else ""
    if isinstance(node, cst.Call) and place.last_name(node) == "format":
        return "`str.format`" if isinstance(place.receiver(node), strings) else ""
    return ""


def _is_dry(values: Sequence[cst.BaseExpression], place: Place) -> bool | None:
    """Whether showing values waits for nothing: none of them is a tensor; None where nobody knows."""
    if any(place.on_device(value) for value in values):
        return False
    return all(_is_plain(value, place) for value in values) or None


def _is_plain(value: cst.BaseExpression, place: Place) -> bool:
    if isinstance(value, cst.Attribute) and value.attr.value in ("__name__", "__qualname__"):
        return True
    kind = place.kind(value)
    inside = kind.element if kind.what == "nested" else kind
    return inside is not None and inside.not_tensor and inside.what != "nested"


def _shown(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The values that a message made at once shows."""
    if isinstance(node, cst.Call):
        return [argument.value for argument in node.args]
    if isinstance(node, cst.BinaryOperation):
        right = node.right
        return [e.value for e in right.elements] if isinstance(right, cst.Tuple) else [right]
    return [e.expression for part in literals(node) for e in values_in(part)]


class WarningPerCall(Rule):
    """A hot function warns on every call.

    ## What it does
    Flags `warnings.warn(...)` that no condition guards in hot functions.

    ## Why it costs
    Each call checks whether the warning was shown before: the caller's frame is looked
    up, its registry searched, and the filters are matched one after the other.

    ## Example
    ```python
    def scale(x, factor):
        warnings.warn("scale() goes away; multiply", DeprecationWarning, stacklevel=2)
        return x * factor
    ```

    ## Instead
    ```python
    _warned = False

    def scale(x, factor):
        global _warned
        if not _warned:
            _warned = True
            warnings.warn("scale() goes away; multiply", DeprecationWarning, stacklevel=2)
        return x * factor
    ```

    ## Fix safety
    No fix: the flag needs a name and a place, and a warning per caller becomes one for
    all.
    """

    code = "DG605"
    name = "warning-per-call"
    origin = "pytorch#76952"
    looks_for = Call("warn", place="imported")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags warnings that every call passes."""
        often = place.per_call or place.hot.users
        if place.name(node) != "warnings.warn" or not often or place.conditions:
            return None
        if place.scene.tries or place.scene.deferred or may_return_before(place):
            return None
        if _WARNS_BY_NAME.search(place.function.name.value) or _stands_in(place):
            return None
        return place.finding(
            node,
            "`warnings.warn` looks up frames, registries and filters on every call, even when "
            "the warning is not shown again. Warn once, behind a flag, or where the object is created",
        )


def _stands_in(place: Place) -> bool:
    """Whether the function is defined under an `if` or `try` of the module, deeper than its scopes alone
    would put it: what stands in for a package that is missing says so when it is used."""
    body = place.function.body
    if not isinstance(body, cst.IndentedBlock) or not body.body:
        return False
    deep, deeper = len(place.indent(place.function)), len(place.indent(body.body[0]))
    scopes = place.qualname.replace(".<locals>", "").count(".")
    return deep > scopes * (deeper - deep)


class PrintInHotCode(Rule):
    """Something is printed on every call.

    ## What it does

    Flags `print(…)` in hot code. In the loops of a training or an evaluation it is a note: it may be what
    the program is there for; and so it is under a condition that only asks for attributes of the object.
    Under another, and in what users of a library call, it is a *maybe*: such prints are nearly all for what
    hardly happens. What is printed under a condition where something has gone wrong, by its text, is left
    alone.

    ## Why it costs

    Printing formats its arguments and writes to a stream each time: microseconds on the host, more where
    the stream is slow, and a graph break under `torch.compile`.

    ## Example

    ```python
    def forward(self, x):
        print("stem is captured")
        return self.stem(x)
    ```

    ## Instead

    ```python
    def forward(self, x):
        return self.stem(x)
    ```

    ## Fix safety

    No fix: only the author knows whether somebody reads it.
    """

    code = "DG614"
    name = "print-in-hot-code"
    origin = "pytorch-image-models#2559"
    looks_for = Call("print", place="bare")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags what every call prints."""
        if place.name(node) != "print" or place.scene.deferred or place.scene.tries:
            return None
        if any(_PRINTS.search(part) for part in place.qualname.lower().split(".")):
            return None
        if any(place.kind(a.value).maybe_tensor for a in node.args):
            return None  # DG415 says more
        at_step = not (place.per_call or place.hot.users)
        if at_step and (place.conditions or not place.loops):
            return None
        if place.conditions and _complains(node):
            return None  # what rarely happens
        return place.finding(
            node,
            f"`{place.short(node)}` prints on every call. Remove it, or log it behind a debug option",
            certainty=_how_sure(place, at_step),
        )


def _how_sure(place: Place, at_step: bool) -> Certainty:
    """How sure it is that a text is printed again and again."""
    if place.hot.users or not all(_of_settings(test, place) for test, _ in place.conditions):
        return "maybe"
    return "note" if at_step or place.conditions else "sure"


def _of_settings(test: cst.BaseExpression, place: Place) -> bool:
    """Whether a condition asks for what the object is set up with, and not for what it is given."""
    return place.self_name != "" and names_in(test) <= {place.self_name, "None", "True", "False"}


_COMPLAINS = re.compile(
    r"(?i)\b(?:warn(?:ing)?|fail(?:ed|ure)?|can(?:no|')t|could(?:n't| not)|invalid|missing|unexpected|"
    r"unknown|skipp(?:ed|ing)|not (?:found|supported|implemented)|no such)\b"
)
"""What a text says where something has gone wrong."""


def _complains(node: cst.Call) -> bool:
    """Whether a text that is printed says that something has gone wrong."""
    return any(
        _COMPLAINS.search(one.value) is not None
        for one in nodes.walk(node)
        if isinstance(one, cst.SimpleString | cst.FormattedStringText)
    )


_PRINTS = re.compile(
    r"print|report|summar|debug|log(?!it|prob)|verbose|progress|display|show|(?<![a-z])main|dump|trace|warn|"
    r"error|info"
)


_HELPERS = (
    "debug_rank0 print_rank_0 print_rank0 print_rank log_rank0 log_rank_0 debug_print dprint vprint "
    "debug_log "
    "log_debug trace_log see_memory_usage print_once vlog print_debug log_once debug_once print_object "
    "log_dist "
    "rank_zero_debug rank_zero_info logger_debug rank0_print rank0_log debug_msg"
).split()


class TextForHelper(Rule):
    """A text is made for a debugging helper that is mostly off.

    ## What it does

    Flags f-strings with calls, comprehensions or attributes in them that are given to helpers which log or
    print for debugging (`debug_rank0(f"fetch {param.summary()}")`), in hot code.

    ## Why it costs

    The text is made before the helper is called, also where the helper then throws it away: what stands in
    it is called, walked and formatted each time, microseconds on the host, more where it reads tensors.

    ## Example

    ```python
    debug_rank0(f"-fetch: {param.summary()}")
    ```

    ## Instead

    ```python
    if logger.isEnabledFor(logging.DEBUG):
        debug_rank0(f"-fetch: {param.summary()}")
    ```

    ## Fix safety

    No fix: only the author knows how to ask whether the helper is on.
    """

    code = "DG615"
    name = "text-for-debug-helper"
    origin = "DeepSpeed#0977106a"
    looks_for = Call(*_HELPERS)

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags texts that are made whether anybody reads them or not."""
        if not node.args or place.scene.deferred:
            return None
        if any(_ASKS.search(place.text(test)) for test, holds in place.conditions if holds):
            return None
        text = node.args[0].value
        if not isinstance(text, cst.FormattedString) or not any(map(_works, text.parts)):
            return None
        return place.finding(
            node,
            f"The text for `{place.text(node.func)}` is formatted on every call, even if that output "
            "is disabled. Check first whether it is enabled, or pass the values",
            certainty="sure" if place.per_call or place.loops else "note",
        )


_ASKS = re.compile(r"debug|verbose|enabled|log|rank", re.IGNORECASE)


def _works(part: cst.CSTNode) -> bool:
    """Whether a part of a text calls something, or walks something."""
    return isinstance(part, cst.FormattedStringExpression) and any(
        isinstance(inner, cst.Call | cst.BaseComp) for inner in nodes.walk(part.expression)
    )
