"""DG301, DG302, DG304: functions and partials built on every call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import libcst as cst

from pytest_dispatchguard import Call, Def, Finding, Fix, Lambda, Place, Rule, nodes

from ..certainty import layer_certainty
from ..syntax import assigned, call_of
from .captures import called_once, captures_local, is_negligible
from .hoisting import hoisted


class _Put(cst.CSTTransformer):
    """Puts expressions in place of names."""

    def __init__(self, given: Mapping[str, cst.BaseExpression]) -> None:
        self.given = given

    def visit_Attribute_attr(self, node: cst.Attribute) -> None:
        pass

    def visit_Arg_keyword(self, node: cst.Arg) -> None:
        pass

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self.given.get(original_node.value, updated_node)


class FunctionBuiltForOneCall(Rule):
    """A function is built on every call, to be called once.

    ## What it does

    Flags in hot code a lambda that is called where it stands, and a nested `def` (or a lambda with a name)
    that needs values of the call around it and is used for one call only.

    ## Why it costs

    Python makes a function object and cells for what it captures, then a frame for the call, and drops all
    of it. The same statements in place need none of this.

    ## Example

    ```python
    scale = (lambda: x.shape[-1] ** -0.5)()
    ```

    ## Instead

    ```python
    scale = x.shape[-1] ** -0.5
    ```

    ## Fix safety

    Safe where offered: for a lambda that is called at once with plain names or literals, or with nothing. A
    nested `def` has to be inlined by hand.
    """

    code = "DG301"
    name = "function-built-for-one-call"
    also_compiled = False
    origin = "keras#23183"
    looks_for = (Lambda("plain"), Def("plain"))
    fixes = "safe"

    def judge(self, node: cst.Lambda | cst.FunctionDef, place: Place) -> Finding | None:
        """Flags functions that can be replaced by their body at their only call."""
        if is_negligible(place):
            return None
        call = call_of(node, place)
        if isinstance(node, cst.Lambda) and call is not None:
            message = (
                "this lambda is built on every call and called once, right here; inline its body"
            )
            fix = self._fix(node, call, place)
            return place.finding(node, message, certainty=layer_certainty(place), fix=fix)
        if isinstance(node, cst.FunctionDef):
            name = "" if node.decorators or node.asynchronous else node.name.value
        else:
            held = assigned(node, place)
            name = held.value if held is not None else ""
        if (
            not name
            or _stays(node)
            or not called_once(name, place)
            or not captures_local(node, place)
        ):
            return None
        message = (
            f"`{name}` and its closure are built on every call, to be called once below; inline it "
            "there, or make it a module-level function that takes what it needs as arguments"
        )
        return place.finding(node, message, certainty=layer_certainty(place))

    def _fix(self, node: cst.Lambda, call: cst.Call, place: Place) -> Fix | None:
        params = node.params
        others = (*params.posonly_params, *params.kwonly_params)
        stars = isinstance(params.star_arg, cst.Param) or params.star_kwarg is not None
        if others or stars or len(params.params) != len(call.args) or _nested_scope(node.body):
            return None
        given: dict[str, cst.BaseExpression] = {}
        for param, arg in zip(params.params, call.args, strict=True):
            plain = isinstance(arg.value, cst.Name | cst.Integer | cst.Float | cst.SimpleString)
            if arg.star or arg.keyword is not None or not plain:
                return None
            given[param.name.value] = arg.value
        if given and _renames(node.body, given):
            return None
        body = node.body.visit(_Put(given)) if given else node.body
        assert isinstance(body, cst.BaseExpression)
        shown = place.text(body)
        simple = isinstance(body, cst.Name | cst.Call | cst.Attribute | cst.Subscript) or body.lpar
        return place.replace(
            call,
            shown if simple else f"({shown})",
            safety="safe",
            message="Write the lambda's body in place",
        )


@dataclass(slots=True)
class _Inner:
    """What an expression or a function's body holds that ties it to its place."""

    scopes: bool = False
    yields: bool = False
    makes: bool = False
    labels: set[str] = field(default_factory=set)


def _inner(node: cst.CSTNode) -> _Inner:
    found = _Inner()
    for inner in nodes.walk(node):
        kind = type(inner)
        if kind is cst.Attribute:
            found.labels.add(inner.attr.value)
        elif kind is cst.Arg:
            if inner.keyword is not None:
                found.labels.add(inner.keyword.value)
        elif kind is cst.Lambda or kind is cst.FunctionDef:
            found.scopes = found.makes = True
        elif kind is cst.CompFor or kind is cst.NamedExpr:
            found.scopes = True
        elif kind is cst.Yield or kind is cst.Await:
            found.yields = True
    return found


def _nested_scope(node: cst.CSTNode) -> bool:
    """Whether an expression makes names of its own, or waits: it cannot move without care."""
    found = _inner(node)
    return found.scopes or found.yields


def _stays(node: cst.FunctionDef | cst.Lambda) -> bool:
    """Whether a function has to be one: a generator, or a factory of functions that are passed on."""
    found = _inner(node.body)
    return found.yields or found.makes


def _renames(body: cst.CSTNode, given: Iterable[str]) -> bool:
    """Whether a parameter's name is also an attribute or keyword in the body, which must not be replaced."""
    return bool(_inner(body).labels & set(given))


class FunctionWithoutCaptures(Rule):
    """A function that needs nothing of the call is built again on every call.

    ## What it does

    Flags in hot code a nested `def`, or a lambda with a name, that captures no local value of the function
    around it: it could stand in the module. Lambdas passed on as arguments are shown with `--pedantic`.

    ## Why it costs

    Each call makes a function object that is the same as the last one. Defined in the module, or as a static
    method, it is made once.

    ## Example

    ```python
    def forward(self, state):
        def double(x):
            return x * 2

        return [double(x) for x in state]
    ```

    ## Instead

    ```python
    def double(x):
        return x * 2


    def forward(self, state):
        return [double(x) for x in state]
    ```

    ## Fix safety

    Safe: the function moves to the module, under its name with an underscore before it. None is offered where
    that name is in use, for defaults that each call works out anew, and for functions that refer to
    themselves.
    """

    code = "DG302"
    name = "function-without-captures"
    also_compiled = False
    origin = "keras#23183"
    looks_for = (Lambda("plain"), Def("plain"))
    fixes = "safe"

    def judge(self, node: cst.Lambda | cst.FunctionDef, place: Place) -> Finding | None:
        """Flags functions that could be defined in the module."""
        if is_negligible(place) or (isinstance(node, cst.FunctionDef) and node.decorators):
            return None
        if isinstance(node, cst.Lambda) and call_of(node, place) is not None:
            return None
        if place.scene.deferred or captures_local(node, place):
            return None
        name = node.name if isinstance(node, cst.FunctionDef) else assigned(node, place)
        shown = f"`{name.value}`" if name is not None else "this lambda"
        message = (
            f"{shown} captures nothing from this call, yet is built again each time; define it once, "
            "at module level"
        )
        return place.finding(
            node,
            message,
            certainty=layer_certainty(place) if name is not None else "maybe",
            fix=hoisted(node, place) if name is not None else None,
        )


class PartialBuiltPerCall(Rule):
    """A `functools.partial` is built on every call though none is needed.

    ## What it does

    Flags in hot code a `functools.partial` that is called where it stands or once further down, and one that
    binds only constants and names of the module.

    ## Why it costs

    A partial is an object with a tuple and a dict of its own, and its call merges them with the arguments
    given. Calling the function with all arguments needs none of this; a partial that is the same each time
    can be made once.

    ## Example

    ```python
    y = functools.partial(torch.add, x, alpha=2)(other)
    ```

    ## Instead

    ```python
    y = torch.add(x, other, alpha=2)
    ```

    ## Fix safety

    Safe where offered: for a partial that is called where it stands, no keyword given twice, and nothing
    in the arguments whose result depends on the order in which they are evaluated.
    """

    code = "DG304"
    name = "partial-built-per-call"
    also_compiled = False
    origin = "transformer-engine#1191"
    looks_for = Call("partial")
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags partials that are called at once, called once, or the same each time."""
        if (
            place.name(node) != "functools.partial"
            or not node.args
            or node.args[0].star
            or is_negligible(place)
        ):
            return None
        function = place.text(node.args[0].value)
        call = call_of(node, place)
        if call is not None:
            message = (
                f"a partial of `{function}` is built and called immediately; call `{function}` with "
                "all arguments"
            )
            return place.finding(node, message, fix=self._fix(node, call, place))
        name = assigned(node, place)
        if name is not None and called_once(name.value, place):
            message = (
                f"`{name.value}` is built on every call and called once; "
                f"call `{function}` with all arguments instead"
            )
            return place.finding(node, message)
        if place.scene.deferred or not all(_same_each_time(a.value, place) for a in node.args):
            return None
        message = (
            f"this partial of `{function}` binds only constants, yet is built again on every call; "
            "build it once, at module level"
        )
        return place.finding(node, message)

    def _fix(self, node: cst.Call, call: cst.Call, place: Place) -> Fix | None:
        inner, outer = node.args[1:], call.args
        if any(a.star for a in (*inner, *outer)):
            return None
        keywords = [a.keyword.value for a in (*inner, *outer) if a.keyword is not None]
        moves = any(a.keyword is not None for a in inner) and any(a.keyword is None for a in outer)
        if len(set(keywords)) != len(keywords) or (
            moves and not all(_plain(a.value) for a in (*inner, *outer))
        ):
            return None
        args = sorted((*inner, *outer), key=lambda a: a.keyword is not None)
        shown = ", ".join(
            f"{a.keyword.value}={place.text(a.value)}"
            if a.keyword is not None
            else place.text(a.value)
            for a in args
        )
        function = place.text(node.args[0].value)
        if not isinstance(node.args[0].value, cst.Name | cst.Attribute):
            return None
        return place.replace(
            call, f"{function}({shown})", safety="safe", message=f"Call `{function}` directly"
        )


def _plain(node: cst.BaseExpression) -> bool:
    """Whether an expression is computed without running anyone's code."""
    if isinstance(node, cst.UnaryOperation):
        return isinstance(node.expression, cst.BaseNumber)
    return isinstance(node, cst.Name | cst.BaseNumber | cst.SimpleString)


def _same_each_time(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression is a literal or a name of the module."""
    if isinstance(node, cst.UnaryOperation):
        node = node.expression
    if isinstance(node, cst.Tuple):
        return all(_same_each_time(e.value, place) for e in node.elements)
    if isinstance(node, cst.BaseNumber | cst.SimpleString):
        return True
    name = place.name(node) if isinstance(node, cst.Name | cst.Attribute) else ""
    if name in ("True", "False", "None"):
        return True
    root = place.dotted(node).partition(".")[0]
    return (
        bool(name)
        and name.partition(".")[0] not in ("self", place.self_name)
        and not place.assignments(root)
    )
