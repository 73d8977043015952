"""DG307: classes built on every call."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Call, Class, Finding, Place, Rule

from .captures import needs_the_call, not_run_by_torch
from .hoisting import hoisted


class ClassBuiltPerCall(Rule):
    """A class is built on every call.

    ## What it does

    Flags `class` statements in hot code whose classes use no value of the call, and calls of `namedtuple`,
    `make_dataclass` and of `type` with three arguments.

    ## Why it costs

    Building a class runs its body, its metaclass and `__init_subclass__`, and makes an object that only the
    garbage collector can free; a `NamedTuple` compiles a constructor as well. Nothing that is built per call
    costs more host time.

    ## Example

    ```python
    def forward(self, x):
        class Output(NamedTuple):
            hidden: torch.Tensor

        return Output(x.relu())
    ```

    ## Instead

    ```python
    class Output(NamedTuple):
        hidden: torch.Tensor


    def forward(self, x):
        return Output(x.relu())
    ```

    ## Fix safety

    Unsafe: the class moves to the module, under its name with an underscore before it, which shows where
    it is printed, and all calls share it. None is offered for classes with decorators, and where that name
    is in use.
    """

    code = "DG307"
    name = "class-built-per-call"
    also_compiled = False
    origin = "torchvision#1452"
    looks_for = (
        Class(),
        Call("namedtuple", "make_dataclass", place="imported"),
        Call("type", arguments=3),
    )
    fixes = "unsafe"

    def judge(self, node: cst.ClassDef | cst.Call, place: Place) -> Finding | None:
        """Flags classes."""
        if not_run_by_torch(place):
            return None
        if needs_the_call(node, place):
            return None
        if isinstance(node, cst.Call):
            name = place.name(node)
            three = name == "type" and len(node.args) == 3
            if not three and name not in ("collections.namedtuple", "dataclasses.make_dataclass"):
                return None
            shown = f"`{place.text(node.func)}(…)`"
        else:
            shown = f"class `{node.name.value}`"
        message = (
            f"{shown} builds a class on every call, which costs more host time than a kernel launch; "
            "define it once, at module level"
        )
        return place.finding(node, message, fix=hoisted(node, place))
