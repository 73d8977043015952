"""DG612 to DG616: constants, texts and attribute names that are made anew on every call, and what is
printed."""

from __future__ import annotations

import re

import libcst as cst

from pytest_dispatchguard import Call, ConstantCopy, Finding, Place, Rule, Tables, nodes

_CONSTANT_NAME = re.compile(r"_*[A-Z][A-Z0-9_]*|__\w+__")


class ConstantCopied(Rule):
    """A constant of the module is copied into a tuple, list or set on every call.

    ## What it does

    Flags `tuple(CONSTANT)`, `list(CONSTANT)` and `set(CONSTANT)` of names that are written as constants
    are, in code that runs per call.

    ## Why it costs

    The copy walks all elements each time, a few tenths of a microsecond on the host, and always gives the
    same.

    ## Example

    ```python
    if isinstance(value, tuple(_ACCEPTED_CLASSES)):
        ...
    ```

    ## Instead

    ```python
    _ACCEPTED = tuple(_ACCEPTED_CLASSES)  # once, in the module

    if isinstance(value, _ACCEPTED):
        ...
    ```

    ## Fix safety

    No fix: whether the constant is filled later is for the author to know.
    """

    code = "DG612"
    name = "constant-copied-per-call"
    also_compiled = False
    origin = "tensordict#1060"
    looks_for = ConstantCopy()

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags copies of constants that nobody changes."""
        made = place.name(node)
        if (
            made not in ("tuple", "list", "set", "frozenset")
            or len(node.args) != 1
            or not (place.per_call or place.hot.users)
        ):
            return None
        given = node.args[0].value
        written = place.dotted(given)
        if not written or not _CONSTANT_NAME.fullmatch(written.rpartition(".")[2]):
            return None
        if written.startswith(f"{place.self_name}.") and place.self_name:
            return None
        if place.assignments(written.partition(".")[0]):
            return None
        if made in ("list", "set") and not _only_asked(node, place):
            return None
        return place.finding(
            node,
            f"`{place.text(node)}` copies a constant on every call. Make the copy once, in the module",
        )


def _only_asked(node: cst.Call, place: Place) -> bool:
    """Whether a copy is only looked into: nobody changes it."""
    parent = place.parent(node)
    if isinstance(parent, cst.Comparison | cst.ComparisonTarget):
        return True
    return isinstance(parent, cst.Call) and place.name(parent) in (
        "isinstance",
        "issubclass",
        "len",
    )


class TableRebuilt(Rule):
    """A table of constants is written down inside a function, and built anew on every call.

    ## What it does

    Flags dicts of two constants or more (texts, numbers, dtypes, other constants of modules) that a
    function assigns to a name and only looks up in. Where code runs once a step it is a note.

    ## Why it costs

    Python builds the dict each time, hashing every key: about a tenth of a microsecond for each entry.

    ## Example

    ```python
    def convert(self, x):
        to_dtype = {"bf16": torch.bfloat16, "16": torch.float16}
        return x.to(to_dtype[self.precision])
    ```

    ## Instead

    ```python
    _TO_DTYPE = {"bf16": torch.bfloat16, "16": torch.float16}

    def convert(self, x):
        return x.to(_TO_DTYPE[self.precision])
    ```

    ## Fix safety

    No fix: where the table should live is for the author to say.
    """

    code = "DG613"
    name = "table-rebuilt-per-call"
    also_compiled = False
    origin = "pytorch-lightning#17670"
    looks_for = Tables()

    def judge(
        self, node: cst.Assign | cst.AnnAssign | cst.AugAssign, place: Place
    ) -> Finding | None:
        """Flags tables that no round of the function changes."""
        if (
            not isinstance(node, cst.Assign)
            or len(node.targets) != 1
            or not isinstance(node.value, cst.Dict)
        ):
            return None
        target = node.targets[0].target
        table = node.value
        if not isinstance(target, cst.Name) or len(table.elements) < 2 or not _in_every_call(place):
            return None
        if not all(
            isinstance(e, cst.DictElement)
            and _is_constant(e.key, place)
            and _is_constant(e.value, place)
            for e in table.elements
        ):
            return None
        if place.assignments(target.value) != 1 or not _only_looked_up(target.value, place):
            return None
        return place.finding(
            table,
            f"`{target.value}` is a table of constants that every call builds anew. Write it down once, "
            f"in the module",
            certainty="sure" if place.per_call else "note",
        )


def _in_every_call(place: Place) -> bool:
    """Whether what runs here runs in layers, ops or each step, not under a rare condition."""
    return not place.scene.tries


def _is_constant(node: cst.BaseExpression, place: Place) -> bool:
    if isinstance(node, cst.SimpleString | cst.Integer | cst.Float):
        return True
    if isinstance(node, cst.Name) and node.value in ("None", "True", "False"):
        return True
    if isinstance(node, cst.Tuple):
        return all(_is_constant(e.value, place) for e in node.elements)
    name = place.name(node)
    return name.startswith("torch.") and isinstance(node, cst.Attribute)


def _only_looked_up(name: str, place: Place) -> bool:
    """Whether a table is only asked for entries: `t[k]`, `t.get(k)`, `k in t`."""
    found = 0
    for inner in nodes.walk(place.function.body):
        if isinstance(inner, cst.Name) and inner.value == name:
            parent = place.parent(inner)
            if parent is None or isinstance(parent, cst.AssignTarget):
                continue
            if (
                (isinstance(parent, cst.Subscript) and parent.value is inner)
                or (
                    isinstance(parent, cst.Attribute)
                    and parent.attr.value
                    in (
                        "get",
                        "keys",
                        "values",
                        "items",
                    )
                )
                or isinstance(parent, cst.Comparison | cst.ComparisonTarget)
            ):
                found += 1
            else:
                return False
    return found > 0


class PrintInHotCode(Rule):
    """Something is printed on every call.

    ## What it does

    Flags `print(…)` in hot code. Under a condition, and in the loops of a training, it is a note.

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

    No fix: whether somebody reads it is for the author to know.
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
        return place.finding(
            node,
            f"`{_short(place.text(node))}` prints on every call. Drop it, or log it where somebody asked "
            f"for it",
            certainty="note" if place.conditions or at_step else "sure",
        )


_PRINTS = re.compile(r"print|report|summar|debug|log|verbose|progress|display|show|main|dump|trace")


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 48 else flat[:47] + "…"


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

    No fix: how to ask whether the helper is on is for the author to write.
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
            f"The text for `{place.text(node.func)}` is made on every call, also while it is off. Ask "
            f"first whether "
            "it is on, or give it the values",
            certainty="sure" if place.per_call or place.loops else "note",
        )


_ASKS = re.compile(r"debug|verbose|enabled|log|rank", re.IGNORECASE)


def _works(part: cst.CSTNode) -> bool:
    """Whether a part of a text calls something, or walks something."""
    return isinstance(part, cst.FormattedStringExpression) and any(
        isinstance(inner, cst.Call | cst.BaseComp) for inner in nodes.walk(part.expression)
    )


class AttributeByMadeName(Rule):
    """An attribute is looked up by a name that is put together on every call.

    ## What it does

    Flags `getattr(self, f"weight{i}")` and `name in dir(self)` in code that runs per call. Where what is
    found is not called at once, or outside of modules and loops, it is a note.

    ## Why it costs

    Each call makes the text and looks it up, past what Python keeps for names written down; of a module
    `Module.__getattr__` searches three tables in Python, about a microsecond. `dir()` collects and sorts
    all names of an object and its classes, tens of microseconds.

    ## Example

    ```python
    def forward(self, x):
        for i in range(self.depth):
            x = getattr(self, f"layer{i}")(x)
        return x
    ```

    ## Instead

    ```python
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
    ```

    ## Fix safety

    No fix: where the attributes are to be kept is for the author to say.
    """

    code = "DG616"
    name = "attribute-by-made-name"
    also_compiled = False
    origin = "TransformerEngine#1191"
    looks_for = (Call("getattr", place="self"), Call("dir", "__dir__"))

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags names that are made, and lists of names that are searched."""
        if not place.per_call:
            return None
        if place.last_name(node) in ("dir", "__dir__"):
            return self._of_listing(node, place)
        if place.name(node) != "getattr" or len(node.args) < 2 or not place.self_name:
            return None
        owner, key = node.args[0].value, node.args[1].value
        if place.dotted(owner) != place.self_name:
            return None
        if isinstance(key, cst.Name):
            key = place.value_of(key) or key
        if not isinstance(key, cst.FormattedString | cst.BinaryOperation):
            return None
        if isinstance(key, cst.BinaryOperation) and place.kind(key).what != "text":
            return None
        return place.finding(
            node,
            f"`{place.text(node)}` makes a name and searches the object for it on every call. Keep "
            "what it stands for in a list or dict, or bind it once",
            certainty="sure" if self._runs(node, place) else "note",
        )

    def _runs(self, node: cst.Call, place: Place) -> bool:
        """Whether what is looked up is called: a layer, which a list can hold. Buffers are others after
        a move, and have to be looked up."""
        parent = place.parent(node)
        called = isinstance(parent, cst.Call) and parent.func is node
        return called and (place.in_module or bool(place.loops))

    def _of_listing(self, node: cst.Call, place: Place) -> Finding | None:
        parent = place.parent(node)
        if not isinstance(parent, cst.Comparison) or parent.left is node:
            return None
        return place.finding(
            node,
            f"`{place.text(node)}` collects and sorts all names of the object on every call, to look "
            "for one. `hasattr` asks for one; `in type(self).__dict__` looks without `__getattr__`",
        )
