"""Which expressions make the host wait for the device. Shared by all rules about synchronizations (DG4xx)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import libcst as cst

from pytest_dispatchguard import Certainty, Finding, Place, nodes, weaker

from ..syntax import called_name, clauses, is_word, item_key, last_small, names_in, small_statements
from .host_code import works_on_host

READS = ("item", "tolist", "int", "float", "complex")
"""Last names of calls that bring the value of a tensor to Python."""
NUMBERS = frozenset({"int", "float", "complex"})
REDUCING = frozenset(
    "all amax amin any argmax argmin count_nonzero detach logsumexp max mean median min norm prod std sum "
    "var".split()
)
"""Methods that, in a file that knows no other arrays, say that what they are called on is a tensor."""
RANDOM = frozenset(
    "bernoulli dropout multinomial normal poisson rand rand_like randint randint_like randn "
    "randn_like randperm "
    "random sample uniform".split()
)
OTHER_ARRAYS = frozenset(
    {"numpy", "jax", "tensorflow", "cupy", "mlx", "paddle", "pandas", "openvino"}
)
_MASK = re.compile(
    r"(?:^|[._])(?:masks?|is_(?![a-z_]*(?:nonzero|indices|index|idx|ids?)$)[a-z_]+|valid|is_valid)$"
)
_HOST_TABLES = frozenset(
    "params flags meta metadata config options kwargs extra_args settings".split()
)
Asker = Literal["if", "while", "assert", "ternary", "filter", "each", "bool", "value"]


@dataclass(frozen=True, slots=True)
class Asked:
    """Who asks for the truth of an expression."""

    asker: Asker
    whole: cst.BaseExpression
    """The whole condition that the expression is part of."""
    by: cst.CSTNode | None = None
    """The If, While, Assert, IfExp, Call or comprehension."""


def asked(node: cst.BaseExpression, place: Place) -> Asked:
    """Who asks for the truth of a node shown for a `Truth` look."""
    whole, parent = _climbed(node, place)
    if isinstance(parent, cst.Call) and place.name(parent) == "bool":
        # `if bool(x.any())` and `assert bool(...)` are branches and checks.
        outer, above = _climbed(parent, place)
        around = _asked_by(outer, above, place)
        return around if around.asker not in ("bool", "value") else Asked("bool", whole, parent)
    return _asked_by(whole, parent, place)


def _climbed(
    node: cst.BaseExpression, place: Place
) -> tuple[cst.BaseExpression, cst.CSTNode | None]:
    """The whole condition that a node is part of, and what is around it; a long chain is climbed once for all
    its operands."""
    known: dict[int, tuple[cst.BaseExpression, cst.CSTNode | None]]
    known = place.once(("climbed",), dict)
    passed = []
    whole, parent = node, place.parent(node)
    while id(whole) not in known and (
        isinstance(parent, cst.BooleanOperation | cst.NamedExpr)
        or (isinstance(parent, cst.UnaryOperation) and isinstance(parent.operator, cst.Not))
    ):
        passed.append(whole)
        whole, parent = parent, place.parent(parent)
    found = known.get(id(whole), (whole, parent))
    known.update((id(one), found) for one in passed)
    return found


def _asked_by(whole: cst.BaseExpression, parent: cst.CSTNode | None, place: Place) -> Asked:
    if isinstance(parent, cst.IfExp) and parent.test is whole:
        return Asked("ternary", whole, parent)
    if isinstance(parent, cst.BaseComp):
        if any(one.test is whole for clause in clauses(parent) for one in clause.ifs):
            return Asked("filter", whole, parent)
        outer = place.parent(parent)
        if isinstance(outer, cst.Call) and place.name(outer) in ("any", "all"):
            return Asked("each", whole, outer)
        return Asked("value", whole, parent)
    if parent is None:
        return _asked_by_statement(whole, place)
    return Asked("value", whole, parent)


def _asked_by_statement(whole: cst.BaseExpression, place: Place) -> Asked:
    statement = place.statement
    if isinstance(statement, cst.While) and statement.test is whole:
        return Asked("while", whole, statement)
    branch: cst.CSTNode | None = statement
    while isinstance(branch, cst.If):
        if branch.test is whole:
            return Asked("if", whole, branch)
        branch = branch.orelse
    if isinstance(statement, cst.SimpleStatementLine):
        for small in statement.body:
            if isinstance(small, cst.Assert) and small.test is whole:
                return Asked("assert", whole, small)
    return Asked("value", whole, None)


def only_raises(branch: cst.CSTNode | None) -> bool:
    """Whether an if only raises, itself or by a helper (`check(False, ...)`): it checks values. It may put
    together what it says, and log it."""
    if not isinstance(branch, cst.If) or branch.orelse is not None:
        return False
    last = last_small(branch.body)
    raises = isinstance(last, cst.Raise) or (
        isinstance(last, cst.Expr) and isinstance(last.value, cst.Call) and _raises(last.value)
    )
    return raises and not any(_does_more(node, last) for node in nodes.walk(branch.body))


def _does_more(node: cst.CSTNode, last: cst.CSTNode | None) -> bool:
    """Whether a statement of a branch does what a check does not: it enters a context, or calls something for
    what that does."""
    if isinstance(node, cst.With):
        return True
    if not isinstance(node, cst.Expr) or node is last or not isinstance(node.value, cst.Call):
        return False
    return SAYING.fullmatch(called_name(node.value)) is None


SAYING = re.compile(
    r"append|extend|critical|debug|error|exception|fatal|info|log|print|warn|warning(?:_once)?|write"
)
"""Calls that tell somebody something, or note it."""
_RAISING = re.compile(r"(?:^|_)(?:raise|fail)(?:_|$)", re.IGNORECASE)
_CHECKING = re.compile(r"check|error|assert|raise|fail|expect|require", re.IGNORECASE)


def _raises(call: cst.Call) -> bool:
    """Whether a call surely raises: of `raise_*`, or of a check with the constant False."""
    last = called_name(call)
    first = call.args[0].value if call.args else None
    failed = is_word(first, "False")
    return bool(_RAISING.search(last) or (failed and _CHECKING.search(last)))


def only_warns(branch: cst.CSTNode | None) -> bool:
    """Whether an if does nothing but warn."""
    if not isinstance(branch, cst.If) or branch.orelse is not None:
        return False
    smalls = list(small_statements(branch.body))
    if (
        len(smalls) != 1
        or not isinstance(smalls[0], cst.Expr)
        or not isinstance(smalls[0].value, cst.Call)
    ):
        return False
    return "warn" in called_name(smalls[0].value)


@dataclass(frozen=True, slots=True)
class Read:
    """A call that brings a tensor's value to Python, and waits for the device to have it."""

    call: cst.Call
    tensor: cst.BaseExpression
    how: str
    """item, tolist, int, float, complex."""
    certainty: Certainty


def read_of(call: cst.Call, place: Place) -> Read | None:
    """What a call reads; None where it reads no tensor, or one that is surely on the CPU, or where something
    inside it has waited already."""
    last = place.last_name(call)
    if last in ("item", "tolist") and isinstance(call.func, cst.Attribute):
        if call.args:
            return None
        tensor = call.func.value
        certainty = tensor_certainty(tensor, place, strict=last == "tolist")
        if last == "tolist" and certainty != "sure" and _listed_as_tensor(tensor, place):
            certainty = "note"
        if last == "item" and certainty == "maybe" and not _from_elsewhere(tensor, place):
            certainty = "note"  # little else has such a method in a file that imports torch
    elif place.name(call) in NUMBERS and len(call.args) == 1 and not call.args[0].star:
        tensor = call.args[0].value
        certainty = place.certainty(tensor)
        if certainty != "sure" and _reduced_among_tensors(tensor, place):
            certainty = "note"
    else:
        return None
    if certainty is None or waits_inside(tensor, place):
        return None
    if is_of_grid(tensor, place):
        certainty = weaker(certainty, "note")
    return Read(call, tensor, last, certainty)


_GRID = re.compile(r"(?:^|[._])grid_?(?:thw|hw|sizes?|shapes?)s?(?:$|[._\[])|_thw(?:$|[._\[])")


def is_of_grid(node: cst.BaseExpression, place: Place, depth: int = 2) -> bool:
    """Whether a value comes from the grid sizes of images, by their name (`image_grid_thw`). The processors
    that make them leave them on the CPU, and only some projects move them to a device."""
    for name in nodes.names_in(node):
        written = name.value
        if _GRID.search(written):
            return True
        for loop in place.loops:
            for clause in clauses(loop) if isinstance(loop, cst.BaseComp) else (loop,):
                if not isinstance(clause, cst.For | cst.CompFor) or not depth:
                    continue
                if written in names_in(clause.target) and is_of_grid(clause.iter, place, depth - 1):
                    return True
        held = place.value_of(name) if depth else None
        if held is not None and is_of_grid(held, place, depth - 1):
            return True
    return any(
        isinstance(one, cst.Attribute) and _GRID.search(one.attr.value) for one in nodes.walk(node)
    )


def only_torch(place: Place) -> bool:
    """Whether a file works with tensors of torch, and knows no arrays but these."""
    return "torch" in place.imports and OTHER_ARRAYS.isdisjoint(place.imports)


def names_a_function(call: cst.Call, place: Place) -> bool:
    """Whether what is called is a function of a module or class, and no method of a value."""
    name = place.name(call)
    return bool(name) and not name.startswith("self.")


def tensor_certainty(
    node: cst.BaseExpression, place: Place, strict: bool = False
) -> Certainty | None:
    """Whether an expression is a tensor whose value the host may have to wait for. Unless `strict`, one of
    unknown kind may be: maybe where nothing speaks against it, and as sure as its spelling tells."""
    kind = place.kind(node)
    if kind.what != "unknown":
        certainty = place.certainty(node)
        if certainty == "sure" and _from_table(node):
            return "maybe"
        if certainty != "maybe":
            return certainty
        if strict:
            return "note" if only_torch(place) or _reads_in_a_module(place) else "maybe"
        return _spelled(node, place)
    if kind.cls or kind.host or "torch" not in place.imports or strict:
        return None
    methods = list(_methods(node))
    if "cpu" in methods or "numpy" in methods:
        return None
    return _spelled(node, place)


def _spelled(node: cst.BaseExpression, place: Place) -> Certainty:
    """The same of what may be a tensor, by how it is written: sure where it ends in a reduction or `detach()`
    and the file knows no arrays but torch's."""
    if "detach" in list(_methods(node))[:2] or _is_a_loss(node, place):
        return "sure"
    if only_torch(place):
        return _among_tensors(node)
    figure = _FIGURE.search(place.dotted(node)) or _reads_in_a_module(place)
    return "note" if figure else "maybe"


_LOSS = re.compile(r"_?(?:\w+_)?(?:criterion|loss_?(?:fn|func|fct|function))|_?loss")
_MODEL = re.compile(r"_?(?:model|module|net|network|transformer|unet)")


def _is_a_loss(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a value is what a loss function gives, by its name, or the `loss` of what a model does."""
    held: cst.BaseExpression | None = node
    for _ in range(3):
        if isinstance(held, cst.Name):
            held = place.value_of(held)
        if isinstance(held, cst.Call):
            # What another package calls so may give numbers of NumPy's.
            root = place.name(held).partition(".")[0]
            ours = root == "torch" or root not in place.imports
            return ours and _LOSS.fullmatch(place.last_name(held)) is not None
        if not isinstance(held, cst.Attribute) or held.attr.value != "loss":
            return False
        held = place.value_of(held.value) if isinstance(held.value, cst.Name) else held.value
        if isinstance(held, cst.Call):
            return _MODEL.fullmatch(place.last_name(held)) is not None
    return False


def _reads_in_a_module(place: Place) -> bool:
    """Whether what is read is read by a module, which works with tensors where a file knows other arrays."""
    return place.in_module and not works_on_host(place)


def _listed_as_tensor(node: cst.BaseExpression, place: Place) -> bool:
    """Whether what a list is asked of may be a tensor, where a file knows no other arrays."""
    kind = place.kind(node)
    unknown = kind.what == "unknown" and not kind.cls and not kind.host
    may_be = unknown or (kind.maybe_tensor and not kind.host)
    return may_be and only_torch(place) and not _from_table(node)


_FIGURE = re.compile(
    r"(?:^|[._])(?:\w+_)?(?:loss|losses|logits?|grad_norm|entropy|kl|kld|logp|logprob)(?:_\w+)?$"
)
"""Usual names of tensors in training code, which other arrays do not have."""


def _among_tensors(node: cst.BaseExpression) -> Certainty:
    """Whether what is read is a tensor on a device where nobody knows arrays but torch's: it is a tensor."""
    methods = list(_methods(node))
    return "sure" if methods and methods[0] in REDUCING else "note"


def _reduced_among_tensors(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a value of which little is known is what a reduction gives, in a file that knows no arrays but
    torch's: `float(x.mean())`."""
    if not isinstance(node, cst.Call) or not _listed_as_tensor(node, place):
        return False
    return next(_methods(node), "") in REDUCING and not names_a_function(node, place)


def _from_table(node: cst.BaseExpression) -> bool:
    """Whether a value comes out of a table of settings (`params["order"]`), which nobody moves
    to a device."""
    while isinstance(node, cst.Attribute | cst.Subscript | cst.Call):
        inner = node.func if isinstance(node, cst.Call) else node.value
        if (
            isinstance(node, cst.Subscript)
            and isinstance(inner, cst.Name)
            and inner.value in _HOST_TABLES
        ):
            return True
        node = inner
    return False


def _from_elsewhere(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a value comes out of a table of settings, or a function of another package, which may give
    NumPy's."""
    if _from_table(node):
        return True
    while isinstance(node, cst.Attribute | cst.Subscript | cst.Call):
        if isinstance(node, cst.Call):
            package = place.name(node).partition(".")[0]
            own = ("torch", place.module.partition(".")[0])
            if package in place.imports and package not in own:
                return True
            node = node.func
        else:
            node = node.value
    return False


def _methods(node: cst.BaseExpression) -> Iterator[str]:
    """The methods called on the way to a value, last first."""
    while True:
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            yield node.func.attr.value
            node = node.func.value
        elif isinstance(node, cst.Attribute | cst.Subscript):
            node = node.value
        else:
            return


def waits_inside(node: cst.BaseExpression, place: Place) -> bool:
    """Whether the expression itself, on the way to its value, has already waited for that value: a finding of
    its own stands there, and one place gets one finding."""
    while True:
        if isinstance(node, cst.Subscript):
            if mask_of(node, place) is not None or _indexed_by_number(node, place):
                return True
            node = node.value
        elif isinstance(node, cst.Call):
            last = place.last_name(node)
            if last in (
                "nonzero",
                "masked_select",
                "unique",
                "unique_consecutive",
                "argwhere",
                "bincount",
            ):
                return True
            if not isinstance(node.func, cst.Attribute) or place.name(node).startswith("torch."):
                if not place.name(node).startswith("torch.") or not node.args:
                    return False
                node = node.args[0].value
            else:
                node = node.func.value
        elif isinstance(node, cst.Attribute):
            node = node.value
        elif isinstance(node, cst.UnaryOperation):
            node = node.expression
        elif isinstance(node, cst.Comparison):
            node = node.left
        else:
            return False


def indices(node: cst.Subscript) -> list[cst.BaseExpression]:
    """What a subscript takes, without slices."""
    return [e.slice.value for e in node.slice if isinstance(e.slice, cst.Index)]


def _indexed_by_number(node: cst.Subscript, place: Place) -> bool:
    """Whether a tensor is indexed by a device tensor of no dimension, whose number has to be read for it."""
    if not place.is_tensor(node.value):
        return False
    kinds = [place.kind(index) for index in indices(node)]
    return any(k.on_device and k.ndim == 0 and k.dtype != "bool" for k in kinds)


def mask_of(node: cst.Subscript, place: Place) -> cst.BaseExpression | None:
    """The boolean device tensor that a subscript selects by; None where it selects by anything else."""
    base = place.kind(node.value)
    if base.not_tensor or base.host:
        return None
    for element in node.slice:
        if isinstance(element.slice, cst.Index):
            index = element.slice.value
            kind = place.kind(index)
            surely = kind.on_device and kind.dtype in ("bool", "")
            if surely and (kind.dtype == "bool" or _named_mask(index, place)):
                return None if _may_hold_indices(index, place) else index
            if is_mask_by_name(index, place) and (base.is_tensor or only_torch(place)):
                return None if _may_hold_indices(index, place) else index
    return None


def is_mask_by_name(index: cst.BaseExpression, place: Place) -> bool:
    """Whether an index of which nothing is known is a mask by its name, or inverted: nobody knows where."""
    inner = index.expression if isinstance(index, cst.UnaryOperation) else index
    kind = place.kind(inner)
    open_ = (kind.what == "unknown" and not kind.cls) or (kind.maybe_tensor and not kind.sure)
    return open_ and not kind.host and _named_mask(index, place)


def as_sure_as_its_mask(
    found: Finding | None, mask: cst.BaseExpression | None, place: Place
) -> Finding | None:
    """A finding on a selection, which is a note where the mask is one by its name alone."""
    if found is None or mask is None or not is_mask_by_name(mask, place):
        return found
    return replace(found, certainty=weaker(found.certainty, "note"))


def _may_hold_indices(index: cst.BaseExpression, place: Place) -> bool:
    """Whether the function, or one around it, asks if a mask is one, or holds indices."""
    name = place.dotted(index)

    def asked_for() -> frozenset[str]:
        functions = {id(s.function): s.function for _, s in place.calls()}
        functions[id(place.function)] = place.function
        inside = (n for f in functions.values() for n in nodes.walk(f))
        return frozenset(place.dotted(n.left) for n in inside if isinstance(n, cst.Comparison))

    return bool(name) and f"{name}.dtype" in place.once(("compared", id(place.function)), asked_for)


def _named_mask(index: cst.BaseExpression, place: Place) -> bool:
    """Whether an index of unknown type is a mask by its name, by its `~`, or by what else the function does
    with it: nobody indexes by an inverted number."""
    held = place.value_of(index) if isinstance(index, cst.Name) else None
    if isinstance(index, cst.Comparison):
        return True
    if any(_inverted(one) is not None for one in (index, held) if one is not None):
        return True
    if isinstance(index, cst.Name):
        key = ("used as masks", id(place.function))
        if index.value in place.once(key, lambda: frozenset(_used_as_masks(place))):
            return True
    whole = index
    while isinstance(whole, cst.Subscript):  # rows of a mask are masks
        if _MASK.search(item_key(whole)):
            return True
        whole = whole.value
    if whole is not index and (place.kind(whole).host or place.kind(whole).what == "nested"):
        return False
    return _MASK.search(place.dotted(whole)) is not None


def _inverted(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """What `~x` inverts."""
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.BitInvert):
        return node.expression
    return None


_CHOOSING = {"torch.where": 3, "masked_fill": 2, "masked_fill_": 2}
"""Calls whose first argument is a mask, where there are so many."""


_OF_INDICES = re.compile(r"(?:^|_)(?:ids?|idxs?|ind|inds|index|indexes|indices|perm|order|topk)$")


def _used_as_masks(place: Place) -> Iterator[str]:
    """Names that only masks are used as in a function: inverted as an index, what `torch.where` and
    `masked_fill` choose by, or what is asked whether `any` or `all` of it holds."""
    for node in nodes.walk(place.function):
        chosen: cst.BaseExpression | None = None
        if isinstance(node, cst.Index):
            chosen = _inverted(node.value)
        elif isinstance(node, cst.Call) and not node.args:
            asks = isinstance(node.func, cst.Attribute) and node.func.attr.value in ("all", "any")
            chosen = node.func.value if asks and isinstance(node.func, cst.Attribute) else None
        elif isinstance(node, cst.Call) and not node.args[0].star:
            called = (
                "torch.where" if place.dotted(node.func) == "torch.where" else called_name(node)
            )
            if _CHOOSING.get(called) == len(node.args):
                chosen = node.args[0].value
                chosen = _inverted(chosen) or chosen
        if isinstance(chosen, cst.Name) and not _OF_INDICES.search(chosen.value):
            yield chosen.value


_OF_TORCH_ALONE = frozenset({"masked_select", "unique_consecutive"})


def _of_torch(call: cst.Call, place: Place) -> bool:
    """Whether a method is one that only tensors have, by its name or what it is given."""
    last = place.last_name(call)
    given = {a.keyword.value for a in call.args if a.keyword is not None}
    if last == "bincount":
        return all(
            a.keyword is not None for a in call.args
        )  # `np.bincount(x)` is given what it counts
    return last in _OF_TORCH_ALONE or (last == "nonzero" and "as_tuple" in given)


def _of_arrays(call: cst.Call, place: Place) -> bool:
    """Whether a method is one that only arrays have, of a mask that is computed there, in a file that knows
    none but torch's."""
    mask = place.receiver(call)
    computed = isinstance(mask, cst.Comparison | cst.BinaryOperation | cst.UnaryOperation)
    return computed and place.last_name(call) in ("nonzero", "argwhere") and only_torch(place)


def device_input(call: cst.Call, place: Place) -> tuple[cst.BaseExpression, Certainty] | None:
    """The tensor that `torch.f(x)` or `x.f()` works on, if the host may have to wait for it. What is given to
    a function of torch is a tensor, wherever it comes from."""
    if place.last_name(call) in place.qualname.split("."):
        return None  # the function is there to be that operation
    if place.name(call).startswith("torch."):
        given = place.argument(call, 0, "input")
        if given is None or place.kind(given).host or place.kind(given).not_tensor:
            return None
        certainty: Certainty | None = "sure"
    else:
        given = place.receiver(call)
        if given is None or names_a_function(call, place):
            return None
        certainty = tensor_certainty(given, place, strict=True)
        kind = place.kind(given)
        undecided = (
            kind.what == "unknown" and not kind.cls if certainty is None else certainty == "maybe"
        )
        if undecided and (_of_torch(call, place) or _of_arrays(call, place)):
            certainty = "note"
    if certainty is None or works_on_host(place) or waits_inside(given, place):
        return None
    return given, certainty
