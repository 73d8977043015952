"""DG606, DG612, DG613, DG616: deep copies, constants, tables and attribute names built on every call."""

from __future__ import annotations

import re

import libcst as cst

from pytest_dispatchguard import Call, ConstantCopy, Finding, Place, Rule, Tables, nodes

from ..certainty import may_return_before
from ..syntax import call_of, called_name, is_word

_COPIES_BY_NAME = re.compile(r"copy|clone|^reset|^make_|build|init|prepare|setup|^_?start")


_OF_FIELDS = "Read the fields that are needed; `vars` has all of them, and copies nothing"
_DEEP = {
    "copy.deepcopy": "Copy only what you change afterwards, and only when you change it",
    "dataclasses.asdict": _OF_FIELDS,
    "dataclasses.astuple": _OF_FIELDS,
}
"""What copies deep, with what to do instead."""


class DeepcopyPerCall(Rule):
    """`copy.deepcopy` runs on every call of a hot function.

    ## What it does
    Flags `copy.deepcopy(...)` in hot functions, and `dataclasses.asdict` and `astuple`, which copy what the
    fields hold in the same way.

    ## Why it costs
    Every object underneath is visited, looked up by type, and remembered in a table, in Python;
    tensors are cloned.

    ## Example
    ```python
    def forward(self, x, **overrides):
        options = copy.deepcopy(self.options)
        options.update(overrides)
        return self.op(x, **options)
    ```

    ## Instead
    ```python
    def forward(self, x, **overrides):
        options = {**self.options, **overrides} if overrides else self.options
        return self.op(x, **options)
    ```

    ## Fix safety
    No fix: only the author knows what is changed afterwards, and how deep.
    """

    code = "DG606"
    name = "deepcopy-per-call"
    origin = "kornia#3819"
    looks_for = Call("deepcopy", "asdict", "astuple", place="imported")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """Flags deep copies."""
        name = place.name(node)
        if name not in _DEEP or not place.per_call:
            return None
        if _COPIES_BY_NAME.search(place.function.name.value) or _remembers(place):
            return None
        near = len(place.hot.path) <= 2 and not place.conditions and not may_return_before(place)
        return place.finding(
            node,
            f"`{place.text(node)}` visits every nested object in Python, and clones tensors, on "
            f"every call. {_DEEP[name]}",
            certainty="sure" if near or self._changed_flat(node, place) else "note",
        )

    @staticmethod
    def _changed_flat(node: cst.Call, place: Place) -> bool:
        """Whether only the copy's own entries are changed in what follows: a flat copy does."""
        parent = place.parent(node)
        if not isinstance(parent, cst.Assign) or len(parent.targets) != 1:
            return False
        name = place.dotted(parent.targets[0].target)
        following = list(place.block[place.block.index(place.statement) + 1 :])
        return bool(name) and f"{name}.update" in {_called(s, place) for s in following}


def _called(statement: cst.CSTNode, place: Place) -> str:
    """What a statement that is one call calls."""
    if isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Expr):
        value = statement.body[0].value
        return place.dotted(value.func) if isinstance(value, cst.Call) else ""
    return ""


def _remembers(place: Place) -> bool:
    """Whether a decorator of the function remembers its results."""
    return any(
        "cache" in place.text(d.decorator) or "memo" in place.text(d.decorator)
        for d in place.function.decorators
    )


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

    No fix: only the author knows whether the constant is filled later.
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
            f"`{place.text(node)}` copies a constant on every call. Make the copy once, at module level",
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
    """A table of constants inside a function is built on every call.

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

    No fix: only the author knows where the table should live.
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
            f"`{target.value}` is a table of constants that is built on every call. Define it once, "
            "at module level",
            certainty="sure" if place.per_call else "note",
        )


def _in_every_call(place: Place) -> bool:
    """Whether what runs here runs in layers, ops or each step, not under a rare condition."""
    return not place.scene.tries


def _is_constant(node: cst.BaseExpression, place: Place) -> bool:
    if isinstance(node, cst.SimpleString | cst.Integer | cst.Float):
        return True
    if is_word(node, "None", "True", "False"):
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


class AttributeByMadeName(Rule):
    """An attribute is looked up by a name that is put together on every call.

    ## What it does

    Flags `getattr(self, f"weight{i}")`, `getattr(self, name + "_weight")` and `name in dir(self)` in code
    that runs per call. Where what is found is not called at once, or outside of modules and loops, it is a
    note.

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

    No fix: only the author knows where to keep the attributes.
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
        formatted = isinstance(key, cst.Call) and called_name(key) == "format"
        if not formatted and not isinstance(key, cst.FormattedString | cst.BinaryOperation):
            return None
        if isinstance(key, cst.BinaryOperation) and not self._is_text(key, place):
            return None
        return place.finding(
            node,
            f"`{place.text(node)}` builds a name and looks it up on the object on every call. Keep "
            "the attributes in a list or dict, or look it up once",
            certainty="sure" if self._runs(node, place) else "note",
        )

    def _is_text(self, key: cst.BinaryOperation, place: Place) -> bool:
        """Whether an operation makes text: of text, or of anything and text that is written down."""
        written = (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString)
        return place.kind(key).what == "text" or any(
            isinstance(part, written)
            or (isinstance(part, cst.BinaryOperation) and self._is_text(part, place))
            for part in (key.left, key.right)
        )

    def _runs(self, node: cst.Call, place: Place) -> bool:
        """Whether what is looked up is called: a layer, which a list can hold. Buffers are others after
        a move, and have to be looked up."""
        return call_of(node, place) is not None and (place.in_module or bool(place.loops))

    def _of_listing(self, node: cst.Call, place: Place) -> Finding | None:
        parent = place.parent(node)
        if not isinstance(parent, cst.Comparison) or parent.left is node:
            return None
        return place.finding(
            node,
            f"`{place.text(node)}` collects and sorts all names of the object on every call, to look "
            "for one. `hasattr` looks up just one; `in type(self).__dict__` does so without `__getattr__`",
        )
