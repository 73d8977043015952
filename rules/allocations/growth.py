"""DG506, DG512, DG515: tensors grown by concatenation, and parameters updated one by one."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Call, Finding, Loop, Place, Rule, SelfWrite

from ..syntax import target_names
from .uses import loads

_CATS = frozenset(
    f"torch.{n}" for n in ("cat", "concat", "concatenate", "hstack", "vstack", "dstack")
)
_STATEMENT_LOOPS = (cst.For, cst.While)


class ConcatenationInLoop(Rule):
    """A tensor grows by concatenation in a loop: every round copies everything so far.

    ## What it does

    Finds `out = torch.cat([out, y])` in a loop that uses `out` for nothing else.

    ## Why it costs

    Each round allocates and copies the whole result so far, so that n rounds copy on the order of n² rows.
    A list of parts and one `torch.cat` after the loop copies each row once, with one call.

    ## Example

    ```python
    out = x.new_empty(0)
    for step in steps:
        out = torch.cat([out, step(x)])
    ```

    ## Instead

    ```python
    parts = []
    for step in steps:
        parts.append(step(x))
    out = torch.cat(parts)
    ```

    ## Fix safety

    No fix: it changes the initial value, and the result of a loop without rounds.
    """

    code = "DG506"
    name = "concatenation-in-loop"
    origin = "keras#23305"
    looks_for = Call("cat", "concat", "concatenate", place="loop")

    def judge(self, call: cst.Call, place: Place) -> Finding | None:
        """`name = cat([name, …])`, and the loop asks for `name` nowhere else."""
        node = place.parent(call)
        if not isinstance(node, cst.Assign) or len(node.targets) != 1 or not place.loops:
            return None
        target, loop = node.targets[0].target, place.loops[-1]
        if not isinstance(target, cst.Name):
            return None
        if (
            place.name(call) not in _CATS
            or not isinstance(loop, _STATEMENT_LOOPS)
            or self._short(loop)
        ):
            return None
        parts = place.argument(call, 0, "tensors")
        if not isinstance(parts, cst.List | cst.Tuple):
            return None
        name = target.value
        if not any(isinstance(e.value, cst.Name) and e.value.value == name for e in parts.elements):
            return None
        if any(r for r in loads(name, loop).reads if not self._start(r, place, parts)):
            return None
        return place.finding(
            node,
            f"`{name} = {place.text(call.func)}([{name}, …])` copies all of `{name}` in every "
            "iteration of the "
            f"loop; append to a list and concatenate once after it",
        )

    def _start(self, read: cst.Name, place: Place, parts: cst.List | cst.Tuple) -> bool:
        """Whether a mention is no use of what has grown: the cat itself, an assignment, `is None`."""
        parent = place.parent(read)
        if parent is None or parent is parts:
            return True
        if isinstance(parent, cst.Comparison):
            return all(isinstance(c.operator, cst.Is | cst.IsNot) for c in parent.comparisons)
        return False

    def _short(self, loop: cst.CSTNode) -> bool:
        if not isinstance(loop, cst.For):
            return False
        if isinstance(loop.iter, cst.List | cst.Tuple):
            return len(loop.iter.elements) < 4
        call = loop.iter
        one = isinstance(call, cst.Call) and len(call.args) == 1 and isinstance(call.func, cst.Name)
        if not one or not isinstance(call, cst.Call):
            return False
        stop = call.args[0].value
        return isinstance(stop, cst.Integer) and int(stop.evaluated_value) < 4


class GrownByCopy(Rule):
    """An attribute grows by a copy of everything it holds, on every call.

    ## What it does

    Flags `self.seen = torch.cat([self.seen, x])` in hot code. It is a note: only the author knows when
    the parts are needed as one tensor.

    ## Why it costs

    The n-th call copies n parts, so the time for all calls grows with the square of their number. Each copy
    also allocates memory and launches a kernel.

    ## Example

    ```python
    def update(self, scores):
        self.scores = torch.cat([self.scores, scores])
    ```

    ## Instead

    ```python
    def update(self, scores):
        self.parts.append(scores)  # one torch.cat where they are needed
    ```

    ## Fix safety

    No fix: code that reads the attribute has to accept a list, or a buffer allocated in advance.
    """

    code = "DG515"
    name = "grown-by-copy"
    origin = "ignite#68452b98"
    looks_for = SelfWrite()

    def judge(self, node: cst.CSTNode, place: Place) -> Finding | None:
        """Flags an attribute that is assigned a concatenation of itself and more."""
        if not isinstance(node, cst.Assign) or len(node.targets) != 1:
            return None
        target, made = node.targets[0].target, node.value
        if not isinstance(made, cst.Call) or place.name(made) not in _CATS or not made.args:
            return None
        parts = made.args[0].value
        if not isinstance(parts, cst.List | cst.Tuple):
            return None
        if not any(place.same(e.value, target) for e in parts.elements):
            return None
        return place.finding(
            made,
            f"`{place.text(target)}` is copied whole on every call to grow by one part, so each call "
            "copies more. Collect the parts in a list and join them once, or write into a "
            "preallocated tensor",
            certainty="note",
        )


class ParameterLoop(Rule):
    """Every parameter is updated by operations of its own, in a Python loop.

    ## What it does

    Finds loops over `parameters()` whose body only updates tensors in place: averaging of weights,
    scaling of gradients, copies from one model to another.

    ## Why it costs

    Each operation pays Python, the dispatcher and a kernel launch for every parameter. The
    `torch._foreach_*` functions, which torch's own optimizers use, take whole lists: one call, and few
    launches.

    ## Example

    ```python
    for p, q in zip(self.average.parameters(), self.model.parameters()):
        p.mul_(0.9).add_(q, alpha=0.1)
    ```

    ## Instead

    ```python
    ps, qs = list(self.average.parameters()), list(self.model.parameters())
    torch._foreach_mul_(ps, 0.9)
    torch._foreach_add_(ps, qs, alpha=0.1)
    ```

    with the two lists made once.

    ## Fix safety

    No fix: the lists belong somewhere that lasts, and the functions want lists of one length.
    """

    code = "DG512"
    name = "parameter-loop"
    also_compiled = False
    origin = "timm#1553"
    looks_for = Loop(having=Call("parameters", "buffers"))

    def judge(self, node: cst.For | cst.While, place: Place) -> Finding | None:
        """A for loop over parameters, and one in-place update in it."""
        if not isinstance(node, cst.For) or not self._over_parameters(node.iter, place):
            return None
        names = target_names(node)
        update = self._update(node.body, names)
        if update is None:
            return None
        method = update.func.attr.value if isinstance(update.func, cst.Attribute) else ""
        return place.finding(
            update,
            f"`.{method}(…)` runs once per parameter, and pays for Python, dispatcher and kernel "
            f"launch each time; collect the tensors in lists once and call `torch._foreach_{method}`",
        )

    def _over_parameters(self, node: cst.BaseExpression, place: Place) -> bool:
        if not isinstance(node, cst.Call):
            return False
        if place.name(node) == "zip" and node.args:
            return all(self._over_parameters(a.value, place) for a in node.args)
        return place.last_name(node) in ("parameters", "buffers") and not place.name(
            node
        ).startswith("torch.")

    def _update(self, body: cst.BaseSuite, names: frozenset[str]) -> cst.Call | None:
        statements = body.body
        if len(statements) != 1:
            return None
        only = statements[0]
        if isinstance(only, cst.If) and only.orelse is None:
            return self._update(only.body, names)
        small = only.body[0] if isinstance(only, cst.SimpleStatementLine) else only
        if not isinstance(small, cst.Expr) or not isinstance(small.value, cst.Call):
            return None
        call = small.value
        func = call.func
        if not isinstance(func, cst.Attribute) or func.attr.value not in _FOREACH:
            return None
        root: cst.BaseExpression = func.value
        while isinstance(root, cst.Attribute | cst.Call):
            root = root.value if isinstance(root, cst.Attribute) else root.func
        return call if isinstance(root, cst.Name) and root.value in names else None


_FOREACH = frozenset(
    "add_ sub_ mul_ div_ lerp_ copy_ zero_ addcmul_ addcdiv_ neg_ abs_ sqrt_ clamp_min_ clamp_max_".split()
)
