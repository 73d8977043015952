"""A rule: one class that says what it looks for, judges it, and may rewrite it."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pytest_dispatchguard.lint.dataflow.scene import Event
from pytest_dispatchguard.lint.facts import (
    COMPARING_CALLS,
    COPYING_CALLS,
    HELPER_CALL,
    NUMBER_CALLS,
    SIZED_CALLS,
)
from pytest_dispatchguard.model.findings import Finding, RuleInfo

if TYPE_CHECKING:
    from pytest_dispatchguard.lint.judge.place import Place


@dataclass(frozen=True, slots=True)
class Look:
    """What a rule looks for. The scout answers it for whole functions without parsing them in full
    (`tokens`); each matching node is then shown to the rule."""

    event: Event
    names: frozenset[str] = frozenset()
    """Limits the event to these names; empty for all."""
    tokens: frozenset[str] = frozenset()
    """A function is judged if its facts contain one of these."""
    text: Callable[[str], bool] | None = None
    """Asked of the source text of such a function before it is parsed; None if every one is judged."""

    def where(self, text: Callable[[str], bool]) -> Look:
        """The same, in functions whose source text this accepts: far cheaper than parsing those that cannot
        hold what the rule finds."""
        return replace(self, text=text)


def Call(
    *names: str,
    arguments: int | None = None,
    place: Literal["", "loop", "bare", "whole", "self", "torch", "imported"] = "",
) -> Look:
    """Calls whose last name is one of these: ``Call("item")`` matches ``x.sum().item()`` and ``item(x)``.

    To parse fewer functions: `arguments` requires a call with exactly that many arguments (0 to 3); `place`,
    a call in a loop, one by its bare name (`whole`: given anything but a comprehension), one with `self` as
    first argument, one of torch's or of a method (`torch`: of nothing imported from elsewhere), or one of
    something imported. Other calls by these names in the same function are shown as well.
    """
    word = place or ("call" if arguments is None else f"call{arguments}")
    return Look(
        "call", frozenset(names), frozenset(f"{word}:{n}" for n in names) or frozenset({word})
    )


def ConstantCopy() -> Look:
    """Calls of `tuple`, `list`, `set` and `frozenset`, in functions that pass one of them something named
    like a constant."""
    return Look("call", COPYING_CALLS, frozenset({"constant-copy"}))


def SizedCall() -> Look:
    """Calls that take sizes or bounds (`range`, `torch.zeros`, `x.view`, …), in functions that may pass a
    tensor as a number."""
    return Look("call", SIZED_CALLS, frozenset({"sized"}))


def Truth() -> Look:
    """Expressions converted to bool: conditions of if, while, assert, conditional expressions and
    comprehension filters, operands of `not`, `and`, `or`, arguments of `bool`, in functions in which one may
    be a tensor. The node is the expression itself (the single operands, never the `and`/`or`/`not` around
    them)."""
    return Look("truth", frozenset(), frozenset({"truth"}))


def With() -> Look:
    """With statements (`cst.With`)."""
    return Look("with", frozenset(), frozenset({"with"}))


def Loop(having: Look | Iterable[Look] = ()) -> Look:
    """For and while statements (`cst.For`, `cst.While`); with `having`, in functions that contain what it, or
    one of several, looks for."""
    looks = (having,) if isinstance(having, Look) else having
    tokens = frozenset().union(*(look.tokens for look in looks))
    return Look("loop", frozenset(), tokens or frozenset({"loop"}))


def Iterated(place: Literal["", "loop"] = "") -> Look:
    """Expressions that are iterated over: in for loops, comprehensions, `*x`, tuple unpacking, and the
    argument of list, tuple, set, sorted, enumerate, zip, sum, max, min, any, all. With `place`, in functions
    that have a loop or comprehension over such an expression, directly or through `enumerate` or `zip`."""
    return Look("iterate", frozenset(), frozenset({"looped"} if place else {"iterate", "looped"}))


def Getitem() -> Look:
    """Subscripts that are read (`cst.Subscript`)."""
    return Look("getitem", frozenset(), frozenset({"subscript"}))


def Setitem() -> Look:
    """Assignments to a subscript: the node is the `cst.Assign` or `cst.AugAssign`."""
    return Look("setitem", frozenset(), frozenset({"setitem"}))


def Assignment(having: Look | None = None) -> Look:
    """Assignment statements (`cst.Assign`, `cst.AnnAssign`, `cst.AugAssign`); with `having`, in functions
    that contain what it looks for."""
    return Look("assign", frozenset(), having.tokens if having else frozenset({"assign"}))


def Elements() -> Look:
    """Assignments to a subscript, in functions that write to elements by their number or by a loop
    counter."""
    return Look("setitem", frozenset(), frozenset({"element"}))


def Rounds() -> Look:
    """For and while statements, in functions with a loop over `range` that may use the counter as an
    index."""
    return Look("loop", frozenset(), frozenset({"counted"}))


def Tables() -> Look:
    """Assignment statements, in functions that assign a dict literal of two or more entries."""
    return Look("assign", frozenset(), frozenset({"table"}))


def Attribute(*names: str) -> Look:
    """Attributes that are read, by their last name: ``Attribute("environ")``. Not the function of a call."""
    return Look("attribute", frozenset(names), frozenset(f"attr:{n}" for n in names))


def SelfWrite() -> Look:
    """Statements that assign to an attribute of `self` (`cst.Assign`, `cst.AnnAssign`, `cst.AugAssign`)."""
    return Look("attribute-write", frozenset(), frozenset({"self-write"}))


def Import(*packages: str) -> Look:
    """Import statements inside functions (`cst.Import`, `cst.ImportFrom`); with `packages`, in functions that
    import from one of these: ``"torch"``, or ``"."`` for relative imports."""
    return Look(
        "import", frozenset(), frozenset(f"import:{p}" for p in packages) or frozenset({"import"})
    )


def FString() -> Look:
    """Formatted strings (`cst.FormattedString`)."""
    return Look("fstring", frozenset(), frozenset({"fstring"}))


def Lambda(which: Literal["", "plain"] = "") -> Look:
    """Lambdas; with `which`, in functions that hold one that may need nothing of the call, or is not just
    passed on."""
    return Look("lambda", frozenset(), frozenset({f"lambda:{which}" if which else "lambda"}))


def Def(which: Literal["", "decorated", "plain"] = "") -> Look:
    """Functions defined inside the hot function (`cst.FunctionDef`). With `which`, in functions that hold a
    decorated one, or one without decorators that may need nothing of the call, or is called there."""
    return Look("def", frozenset(), frozenset({f"def:{which}" if which else "def"}))


def Class() -> Look:
    """Classes defined inside the hot function (`cst.ClassDef`)."""
    return Look("class", frozenset(), frozenset({"class"}))


def MadeCall() -> Look:
    """Calls in functions that call what they have just created: ``make(x)(y)``, or ``f = make(x)`` and
    then ``f(y)``, with a call or a lambda for ``make(x)``. All calls of such functions are shown."""
    return Look("call", frozenset(), frozenset({"made-call"}))


def Comprehension(having: Look) -> Look:
    """Comprehensions and generator expressions, in functions that contain what a look looks for."""
    return Look("comprehension", frozenset(), having.tokens)


def HelperCall() -> Look:
    """Calls of short helpers of the project that read the value of their arguments."""
    return Look("helper-call", frozenset(), frozenset({HELPER_CALL}))


def NumberCall() -> Look:
    """Calls of `int`, `float` and `complex`, in functions that may pass a tensor to one."""
    return Look("call", NUMBER_CALLS, frozenset({"number"}))


def ComparingCall() -> Look:
    """Calls of `max`, `min` and `sorted`, in functions that may pass a tensor to one, or several."""
    return Look("call", COMPARING_CALLS, frozenset({"compared"}))


def ShapeProduct() -> Look:
    """Calls of what is named `prod`, in functions that pass one a shape."""
    return Look("call", frozenset({"prod"}), frozenset({"shape-product"}))


def MathCall(*names: str) -> Look:
    """Calls of functions of `math` by these names, in functions that may pass a tensor to one."""
    return Look("call", frozenset(names), frozenset({"math-call"}))


def Comparison() -> Look:
    """Comparisons (`cst.Comparison`)."""
    return Look("comparison", frozenset(), frozenset({"comparison"}))


def Function(*names: str, having: Iterable[Look] = ()) -> Look:
    """Whole hot functions (`cst.FunctionDef`): those with one of these names, or those that contain what
    one of the looks in `having` looks for."""
    tokens = {f"name:{n}" for n in names}
    for look in having:
        tokens |= look.tokens
    return Look("function", frozenset(names), frozenset(tokens))


def Decorated(*names: str) -> Look:
    """Whole hot functions that have a decorator with one of these last names: ``Decorated("compile")``.
    Functions inside them are included."""
    return Look("function", frozenset(), frozenset(f"decorator:{n}" for n in names))


class Rule:
    """A pattern that costs host time on hot paths.

    A subclass states what it is about in class attributes, and in its docstring as Markdown: one line of
    summary, a blank line, then the sections ``## What it does``, ``## Why it costs``, ``## Example``,
    ``## Instead``, ``## Fix safety``. It decides in `judge`, which is called once for every node that
    `looks_for` matches, in hot functions only, outside cold regions (error paths, once-only guards).
    """

    code: ClassVar[str]
    """``DG101``: two letters or more, then three digits."""
    name: ClassVar[str]
    """In kebab case: ``flatten-of-one-tensor``."""
    origin: ClassVar[str]
    """Where the pattern was paid for: ``keras#23183``."""
    looks_for: ClassVar[Look | tuple[Look, ...]] = ()
    fixes: ClassVar[Literal["safe", "unsafe", "none"]] = "none"
    """The best fix this rule ever offers."""
    default: ClassVar[bool] = True
    """Whether the rule runs without being selected by its own code."""
    python: ClassVar[str] = ""
    """Specifier of the Python releases on which the pattern costs: ``<3.12``. Empty: on all."""
    torch: ClassVar[str] = ""
    """Specifier of the torch releases on which the pattern costs. Empty: on all."""
    also_compiled: ClassVar[bool] = True
    """Whether it applies to compiled functions: code that runs only while they are traced costs their
    calls nothing."""
    also_cold: ClassVar[bool] = False
    """Whether cold regions of hot functions are shown too."""
    running: ClassVar[bool] = False
    """Whether the rule needs running code: the linter then looks for nothing."""

    def judge(self, node: Any, place: Place) -> Finding | Iterable[Finding] | None:
        """The verdict on one node: a finding (made by `place.finding`), several, or None."""
        raise NotImplementedError

    @classmethod
    def looks(cls) -> tuple[Look, ...]:
        """What the rule looks for, as a tuple."""
        return cls.looks_for if isinstance(cls.looks_for, tuple) else (cls.looks_for,)

    @classmethod
    def info(cls) -> RuleInfo:
        """What reports and docs say about the rule."""
        text = inspect.cleandoc(cls.__doc__ or "")
        summary, _, rest = text.partition("\n\n")
        return RuleInfo(
            code=cls.code,
            name=cls.name,
            summary=" ".join(summary.split()),
            help=textwrap.dedent(rest).strip(),
            fix=cls.fixes,
            origin=cls.origin,
            default=cls.default,
            running=cls.running,
        )
