"""DG617 and DG618: sizes that are multiplied in Python, and checks that make a function for their message."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Place, Rule, ShapeProduct

from ..allocations.data import FROM_DATA, without_casts
from ..syncs.waits import only_torch


class SizeByProduct(Rule):
    """The number of elements of a tensor is multiplied from its shape on every call.

    ## What it does

    Flags `math.prod(x.shape)`, `np.prod(x.size())`, and `np.prod` or `torch.prod(torch.tensor(…))` of a part
    of a shape, in code that runs per call.

    ## Why it costs

    The shape becomes a tuple of Python numbers that are multiplied one by one; `np.prod` makes an array of it
    first, and `torch.prod` a tensor, several microseconds. The tensor knows its number of elements:
    `x.numel()` takes a twentieth of a microsecond.

    ## Example

    ```python
    def forward(self, x):
        n = np.prod(x.shape)
        return x.reshape(n)
    ```

    ## Instead

    ```python
    def forward(self, x):
        n = x.numel()
        return x.reshape(n)
    ```

    ## Fix safety

    Safe for `math.prod` of a whole shape. Unsafe for `np.prod`, which gives a number of NumPy's; of a part of
    a shape it becomes `math.prod`, where the file imports `math`.
    """

    code = "DG617"
    name = "size-by-product"
    origin = "bitsandbytes#857b83d9"
    looks_for = ShapeProduct()
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A product over a shape."""
        if not place.per_call or len(node.args) != 1 or node.args[0].star:
            return None
        numpy = place.name(node) == "numpy.prod"
        shape = node.args[0].value
        if place.is_torch(node, "prod"):
            return self._by_a_tensor(node, shape, place)
        if not numpy and not self._multiplies(node, place):
            return None
        tensor = _shape_of(shape, place)
        if tensor is not None:
            return place.finding(
                node,
                f"`{place.text(node)}` multiplies the sizes one by one on every call; "
                f"`{place.text(tensor)}.numel()` returns the product",
                certainty="sure" if place.is_tensor(tensor) else "note",
                fix=self._fix(node, f"{place.text(tensor)}.numel()", numpy, place)
                if place.is_tensor(tensor)
                else None,
            )
        part = isinstance(shape, cst.Subscript) and _shape_of(shape.value, place) is not None
        if not numpy or not part:
            return None
        spelled = place.spelling("math.prod")
        written = f"{spelled}({place.text(shape)})" if spelled else ""
        return place.finding(
            node,
            f"`{place.text(node)}` makes an array of a few sizes on every call, which takes "
            "microseconds on the host; use `math.prod`",
            fix=self._fix(node, written, numpy, place) if written else None,
        )

    def _by_a_tensor(
        self, node: cst.Call, made: cst.BaseExpression, place: Place
    ) -> Finding | None:
        """A product of a tensor that is made of sizes for it."""
        made = without_casts(made)
        if not isinstance(made, cst.Call) or place.name(made) not in FROM_DATA or not made.args:
            return None
        shape = made.args[0].value
        whole = shape.value if isinstance(shape, cst.Subscript) else shape
        tensor = _shape_of(whole, place)
        if tensor is None or len(made.args) > 1:
            return None
        instead = (
            f"{place.text(tensor)}.numel()" if whole is shape else f"math.prod({place.text(shape)})"
        )
        return place.finding(
            node,
            f"`{place.text(node)}` makes a tensor of a few sizes on every call to multiply them, which takes "
            f"microseconds on the host; use `{instead}`, a Python number",
            certainty="sure" if place.is_tensor(tensor) else "note",
        )

    def _multiplies(self, node: cst.Call, place: Place) -> bool:
        """Whether a call multiplies numbers in Python: `math.prod`, or what is called `prod` and imported."""
        name = place.name(node)
        return name == "math.prod" or (
            isinstance(node.func, cst.Name)
            and name.rpartition(".")[2] == "prod"
            and "torch" not in name
        )

    def _fix(self, node: cst.Call, written: str, numpy: bool, place: Place) -> Fix:
        return place.replace(
            node,
            written,
            safety="unsafe" if numpy else "safe",
            message="ask the tensor" + (" (a Python number, not a NumPy one)" if numpy else ""),
        )


def _shape_of(node: cst.BaseExpression, place: Place) -> cst.BaseExpression | None:
    """The tensor whose whole shape an expression is."""
    if isinstance(node, cst.Attribute) and node.attr.value == "shape":
        tensor = node.value
    elif isinstance(node, cst.Call) and place.last_name(node) == "size" and not node.args:
        found = place.receiver(node)
        if found is None:
            return None
        tensor = found
    else:
        return None
    kind = place.kind(tensor)
    open_ = (kind.what == "unknown" and not kind.cls) or kind.maybe_tensor
    return tensor if kind.is_tensor or (open_ and only_torch(place)) else None


class CheckWithClosure(Rule):
    """`torch._check` is given a function for its message, which is made on every call.

    ## What it does

    Flags `torch._check(condition, lambda: f"…")` in code that runs per call and eagerly. It is a note: for
    `torch.export` and symbolic sizes the check itself may be needed.

    ## Why it costs

    Each call makes a function that is nearly never called, and passes through two functions of Python before
    the condition is looked at. `if not condition: raise` looks at it at once.

    ## Example

    ```python
    def forward(self, x):
        torch._check(x.ndim == 2, lambda: f"expected two dimensions, got {x.ndim}")
        return x.t()
    ```

    ## Instead

    ```python
    def forward(self, x):
        if x.ndim != 2:
            raise RuntimeError(f"expected two dimensions, got {x.ndim}")
        return x.t()
    ```

    ## Fix safety

    No fix: only the author knows whether the check is there for a compiler.
    """

    code = "DG618"
    name = "check-with-closure"
    also_compiled = False
    origin = "bitsandbytes#857b83d9"
    looks_for = Call("_check", "_check_value", "_check_index", "_check_type", "_check_with")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A check with a lambda."""
        if not place.per_call or not place.name(node).startswith("torch._check"):
            return None
        made = next((a.value for a in node.args if isinstance(a.value, cst.Lambda)), None)
        if made is None:
            return None
        return place.finding(
            node,
            f"`{place.text(node.func)}` gets a function that is built on every call, only for a "
            "message that is almost never used. `if not …: raise` tests directly and builds the "
            "message only on failure",
            certainty="note",
        )
