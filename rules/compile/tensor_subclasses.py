"""DG706, DG707: what tensor subclasses do in every operation."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Call, Finding, Function, Place, Rule, nodes

_TREE_FUNCTIONS = ("tree_map", "tree_map_only", "tree_flatten", "map_structure")


class TreeMapInTensorHandler(Rule):
    """A tensor subclass maps over trees of arguments in every operation, where nearly all are flat.

    ## What it does

    Finds `__torch_dispatch__` and `__torch_function__` that call `tree_map` (or `tree_flatten`) on what
    they are given, with no path around it.

    ## Why it costs

    The handler runs for every operation on the subclass. A tree map walks and rebuilds tuples, lists and
    dicts in Python, several microseconds each time, while nearly every operation has flat arguments and no
    keywords.

    ## Example

    ```python
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = tree_map(unwrap, (args, kwargs or {}))
        return wrap(func(*args, **kwargs))
    ```

    ## Instead

    ```python
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if not kwargs and not any(type(a) in (list, tuple, dict) for a in args):
            return wrap(func(*[unwrap(a) for a in args]))
        args, kwargs = tree_map(unwrap, (args, kwargs or {}))
        return wrap(func(*args, **kwargs))
    ```

    ## Fix safety

    No fix: only the author knows which arguments an operation can have.
    """

    code = "DG706"
    name = "tree-map-in-tensor-handler"
    origin = "pytorch#110132"
    looks_for = Function("__torch_dispatch__", "__torch_function__")

    def judge(self, node: cst.FunctionDef, place: Place) -> Finding | None:
        """The first tree map that every call reaches."""
        if place.cls is None or any(a.endswith("Mode") for a in place.cls.ancestors):
            return None
        for call, scene in place.calls(*_TREE_FUNCTIONS):
            if scene.function is not node or scene.cold or scene.conditions or scene.deferred:
                continue
            if not place.is_tree_call(call, *_TREE_FUNCTIONS) or self._way_around(
                node, scene.statement
            ):
                continue
            return place.finding(
                call,
                f"`{place.short(call)}` walks and rebuilds the arguments of every operation on "
                f"`{place.class_name.rpartition('.')[2]}`; handle flat arguments first, and map over "
                "trees only if there are any",
            )
        return None

    def _way_around(self, node: cst.FunctionDef, last: cst.CSTNode) -> bool:
        """Whether some calls return before a statement."""
        for statement in node.body.body:
            if statement is last:
                return False
            compound = isinstance(statement, cst.If | cst.With | cst.Try | cst.For | cst.Match)
            if compound and _returns(statement):
                return True
        return False


def _returns(node: cst.CSTNode) -> bool:
    inside = nodes.walk(node, without=(cst.FunctionDef,))
    return any(isinstance(n, cst.Return) for n in inside)


_TENSORS = frozenset({"torch.Tensor", "torch.nn.Parameter", "torch.nn.parameter.Parameter"})


def _only_raises(node: cst.FunctionDef) -> bool:
    """Whether a function is only there to be overridden."""
    first = node.body.body[0] if node.body.body else None
    return isinstance(first, cst.SimpleStatementLine) and isinstance(first.body[0], cst.Raise)


class DeviceThroughHandler(Rule):
    """A tensor subclass answers every read of `.device` by running its `__torch_function__`.

    ## What it does

    Finds subclasses of `torch.Tensor` with a `__torch_function__` of their own and no `device` property,
    and `dispatch_device=True` given to `_make_wrapper_subclass` in classes without one.

    ## Why it costs

    On such a class, `.device` is an operation like any other: torch packs its arguments, calls the handler
    in Python, and often enters a context in it, for an answer that never changes; with
    `dispatch_device=True` it goes through the dispatcher and `__torch_dispatch__`. Devices are asked for
    before nearly every operation. A property answers directly. The same is true of `.shape` and `.dtype`.

    ## Example

    ```python
    class Wrapped(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None): ...
    ```

    ## Instead

    ```python
    class Wrapped(torch.Tensor):
        @property
        def device(self):
            return self.inner.device

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None): ...
    ```

    A subclass that holds no other tensor asks `super().device` inside
    `torch._C.DisableTorchFunctionSubclass()`.

    ## Fix safety

    No fix: only the author knows which tensor to ask for the device.
    """

    code = "DG707"
    name = "device-through-handler"
    origin = "torchvision#6681"
    looks_for = (Function("__torch_function__"), Call("_make_wrapper_subclass"))

    def judge(self, node: cst.FunctionDef | cst.Call, place: Place) -> Finding | None:
        """The handler of a tensor class, or the call that makes its instances."""
        if place.cls is None or place.defines("device"):
            return None
        name = place.class_name.rpartition(".")[2]
        if isinstance(node, cst.Call):
            asked = place.argument(node, None, "dispatch_device")
            if not isinstance(asked, cst.Name) or asked.value != "True":
                return None
            return place.finding(
                node,
                f"`dispatch_device=True` sends each `.device` of a `{name}` through the dispatcher "
                "and `__torch_dispatch__`; define a `device` property that reads the inner tensor's device",
            )
        if _TENSORS.isdisjoint(place.cls.ancestors) or _only_raises(node):
            return None
        return place.finding(
            node,
            f"Every read of `.device` on a `{name}` runs this handler in Python; define a `device` "
            "property "
            "in the class, so that the read needs no handler",
        )
