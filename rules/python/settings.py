"""DG622: lists that are worked out of settings on every call."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import Comprehension, Finding, Iterated, Place, Rule, nodes

from ..allocations.constants.of_numbers import is_setting
from ..allocations.uses import is_kept
from ..source_text import comprehends_own_attributes
from ..syntax import clauses, names_in, target_names

_PURE = frozenset(
    "abs bool divmod enumerate float int isinstance len list max min range reversed round set sorted str sum "
    "tuple zip".split()
)
_OF_TEXT = frozenset(
    "endswith find format index isdigit join lower lstrip removeprefix removesuffix replace rpartition "
    "rsplit rstrip split startswith strip upper".split()
)
"""Methods of texts, which change nothing."""
_PLAIN = frozenset({"items", "keys", "values"})


class SettingsWorkedOut(Rule):
    """A list is worked out of the settings of a module on every call.

    ## What it does

    Finds comprehensions in what runs per call of a module that use nothing but attributes of `self`, literals
    and builtin functions: `[int(name[1:]) for name in self.channels if name[0] == "z"]`. Left alone are
    attributes that may hold tensors or modules, what the function changes, and lists of literals alone. It is
    a note: only the author knows whether somebody changes the attribute later.

    ## Why it costs

    Python works through all elements each time, a tenth of a microsecond and more for each, and always gives
    the same.

    ## Example

    ```python
    def forward(self, x):
        sizes = [end - start for start, end in zip(self.bounds, self.bounds[1:])]
        return x.split(sizes)
    ```

    ## Instead

    ```python
    def __init__(self, bounds):
        super().__init__()
        self.sizes = [end - start for start, end in zip(bounds, bounds[1:])]

    def forward(self, x):
        return x.split(self.sizes)
    ```

    ## Fix safety

    No fix: only the author knows when the settings are final.
    """

    code = "DG622"
    name = "settings-worked-out-per-call"
    also_compiled = False
    origin = "makani#pangu"
    looks_for = Comprehension(having=Iterated()).where(comprehends_own_attributes)

    def judge(self, node: cst.BaseComp, place: Place) -> Finding | None:
        """A comprehension of settings alone."""
        if not place.in_module or not place.per_call or not place.self_name:
            return None
        if any(loop is not node for loop in place.loops) or not _of_settings(node, place):
            return None
        if _only_copies(node) or is_kept(node, place):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` depends on settings of the module alone, and is worked out on every "
            "call; work it out in `__init__`",
            certainty="note",
        )


def _of_settings(node: cst.BaseComp, place: Place) -> bool:
    """Whether a comprehension uses nothing but settings of the module, literals, and builtin functions, and
    goes through a setting, or counts to one."""
    inside = {id(part) for part in nodes.walk(node)}
    bound = set().union(
        *(target_names(part) for part in nodes.walk(node) if isinstance(part, cst.BaseComp))
    )
    used = False
    for part in nodes.walk(node):
        if isinstance(part, cst.Lambda | cst.Await | cst.Yield | cst.NamedExpr):
            return False
        if isinstance(part, cst.List | cst.Dict) and not part.elements:
            return False  # to be filled in this call
        if isinstance(part, cst.Call) and not _is_pure(part, bound, place):
            return False
        if isinstance(part, cst.Attribute) and part.attr.value == "training":
            return False  # a mode, which changes
        if isinstance(part, cst.Attribute):
            called = id(place.parent(part)) in inside and isinstance(place.parent(part), cst.Call)
            if is_setting(part, place) and place.kind(part).what not in ("module", "modules"):
                used = True
            elif not called:
                return False
        elif isinstance(part, cst.Subscript) and not _is_literal_index(part):
            return False  # what is there may be a tensor, or of this call
        elif (
            isinstance(part, cst.Name)
            and place.assignments(part.value)
            and part.value not in bound | {place.self_name}
        ):
            return False
    return used and all(
        _goes_through_settings(clause.iter, bound, place) for clause in clauses(node)
    )


def _is_pure(call: cst.Call, bound: set[str], place: Place) -> bool:
    """Whether a call is one of a builtin function, or of a method of texts or dicts."""
    if isinstance(call.func, cst.Name):
        return call.func.value in _PURE and call.func.value not in bound
    return isinstance(call.func, cst.Attribute) and call.func.attr.value in _OF_TEXT | _PLAIN


def _goes_through_settings(node: cst.BaseExpression, bound: set[str], place: Place) -> bool:
    """Whether what is iterated over is of some length that only settings know."""
    return any(
        isinstance(part, cst.Attribute | cst.Name)
        and (is_setting(part, place) or (isinstance(part, cst.Name) and part.value in bound))
        for part in nodes.walk(node)
    )


def _is_literal_index(node: cst.Subscript) -> bool:
    """Whether a subscript takes what stands at a number that is written down, or a slice."""
    indices = [e.slice.value if isinstance(e.slice, cst.Index) else None for e in node.slice]
    return all(i is None or isinstance(i, cst.Integer | cst.UnaryOperation) for i in indices)


def _only_copies(node: cst.BaseComp) -> bool:
    """Whether a comprehension lists what it goes through as it is, or as many times the same: a copy, or a
    new container, to be changed perhaps."""
    made = node.value if isinstance(node, cst.DictComp) else getattr(node, "elt", None)
    targets = target_names(node)
    if made is None or not targets & names_in(made):
        return True
    plain = isinstance(made, cst.Name) and made.value in targets
    return plain and not node.for_in.ifs and node.for_in.inner_for_in is None
