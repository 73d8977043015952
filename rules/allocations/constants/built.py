"""DG502, DG505: constant tensors built or moved on every call."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from pytest_dispatchguard import Call, Finding, Place, Rule, nodes

from ...syntax import VIEWS, assigned, assigned_once, called_name, is_word, item_key, method_call
from ..data import (
    COMPUTED,
    COPIED,
    FACTORIES,
    FROM_DATA,
    LEGACY_CLASSES,
    is_constant,
    is_constant_table,
)
from ..devices import device_of, is_device, move_target
from ..uses import given_to_writers, is_for_nothing, is_kept, is_written_to, loads
from .fixes import filled, kept
from .of_numbers import grown_of_numbers, is_setting, is_size, is_triangle

_COMPUTED = COMPUTED | {"eye", "scalar_tensor"}
_FILLED = frozenset({"full", "ones", "zeros"})


_SCRATCH = frozenset({"empty"})
_WORKSPACE = re.compile(
    r"(?:^|_)(?:buf|buffer|lock|locks|scratch|te?mp\d?|workspace)(?:_|$)", re.IGNORECASE
)
"""Memory to work in, by its name."""


def _held(node: cst.BaseExpression, place: Place) -> cst.BaseExpression:
    """What a name that gets one value holds."""
    held = place.value_of(node) if isinstance(node, cst.Name) else None
    return node if held is None else held


_KEEPING = frozenset({"append", "extend", "insert", "mark_non_differentiable", "save_for_backward"})
"""Calls that keep what they are given."""


def _outlives(read: cst.Name, parent: cst.CSTNode | None, place: Place) -> bool:
    """Whether somebody keeps a tensor, or a view of it, longer than the call."""
    if isinstance(parent, cst.Call) and parent.func is not read:
        return place.last_name(parent) in _KEEPING
    whole: cst.CSTNode | None = parent
    while isinstance(whole, cst.Attribute | cst.Subscript) or (
        isinstance(whole, cst.Call) and isinstance(whole.func, cst.Attribute)
    ):
        whole = place.parent(whole)
    return isinstance(whole, cst.Assign | cst.Return | cst.Tuple)


def _only_iterated(node: cst.Call, place: Place) -> bool:
    """Whether a tensor of one dimension is used for nothing but its numbers, one by one."""
    data = node.args[0].value if node.args else node
    flat = isinstance(data, cst.List | cst.Tuple) and all(
        is_constant(e.value) for e in data.elements
    )
    name = assigned_once(node, place) if flat else None
    if name is None:
        return False
    around = place.once(("around", id(place.function)), lambda: nodes.around(place.function))
    reads = loads(name.value, place.function).reads
    return bool(reads) and all(_taken_apart(around.get(id(n)), n) for n in reads)


def _taken_apart(parent: cst.CSTNode | None, name: cst.Name) -> bool:
    """Whether a use of a name loops over what it holds, or asks for its list."""
    if isinstance(parent, cst.Attribute):
        return parent.attr.value == "tolist"
    return isinstance(parent, cst.For | cst.CompFor) and parent.iter is name


def where_to_keep(place: Place) -> str:
    """Advice on where a constant tensor can live."""
    if place.in_module and place.self_name:
        return "register it as a non-persistent buffer in `__init__`"
    return "build it once per device and dtype, and keep it"


class ConstantTensorBuiltPerCall(Rule):
    """A tensor of constants is built on every call.

    ## What it does

    Finds `torch.tensor([0.1, 0.2])` and its like in hot code, where the numbers are literals in the call,
    or in a tuple that never changes. Notes are: a tensor of what a configuration says
    (`torch.tensor(self.config.sizes)`); what factories compute on the device of constants, or of settings of
    the module (`torch.arange(self.bins, device=x.device)`); what two operations or more compute of sizes
    alone (`torch.arange(n, device=x.device)[None] / n < 0.5`), a triangle
    (`torch.ones(n, n, device=x.device).tril()`) or an identity matrix (`torch.eye(n, device=x.device)`);
    what is returned as is (the caller may modify it); and a workspace of one size for a kernel
    (`tmp = torch.empty(1024, device=…)`). What is given to a call for its effect, which may fill it, is left
    alone.

    ## Why it costs

    Every call walks the Python numbers, allocates, and, with a device, waits for a copy to it. What the
    device computes waits for nothing, but launches a kernel for each operation.

    ## Example

    ```python
    def forward(self, x):
        mean = torch.tensor([0.485, 0.456, 0.406], device=x.device)
        return x - mean
    ```

    ## Instead

    ```python
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]), persistent=False)

    def forward(self, x):
        return x - self.mean
    ```

    Or build it once for each device, in a function that keeps what it gave.

    ## Fix safety

    Safe for a single number, which `torch.full` makes on the device itself. Unsafe for tables: they are built
    by a new function at module level that keeps the last eight, and every call gives the same tensor, which
    nobody may change in place. None is offered for data of the instance, and for a module that has to become
    another one's buffer.
    """

    code = "DG502"
    name = "constant-tensor-built-per-call"
    also_compiled = False
    origin = "diffusers#13406"
    looks_for = Call(
        "tensor",
        "as_tensor",
        "asarray",
        "new_tensor",
        *LEGACY_CLASSES,
        "Tensor",
        *_COMPUTED,
        *_FILLED,
        *_SCRATCH,
        place="torch",
    )
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A table of constants that nothing changes afterwards."""
        name = place.name(node)
        if place.last_name(node) in _COMPUTED | _FILLED:
            return self._computed(node, place)
        if place.last_name(node) in _SCRATCH:
            return self._scratch(node, place)
        if place.last_name(node) == "new_tensor":
            source = place.receiver(node)
            if source is None or not place.is_tensor(source):
                return None
        elif name not in FROM_DATA and not name.startswith("torch."):
            return None
        data = place.argument(node, 0, "data")
        if data is not None and self._of_a_setting(node, data, place):
            return place.finding(
                node,
                f"`{place.short(node)}` makes a tensor of the same setting on every call; "
                f"{where_to_keep(place)}",
                certainty="note",
                dry=True,
            )
        if data is None or not (is_constant_table(data) or self._lasting_tuple(data, place)):
            return None
        if place.argument(node, None, "requires_grad") is not None or is_kept(node, place):
            return None
        if is_written_to(node, place) or is_for_nothing(place):
            return None
        on_device = device_of(node, place) is not None
        legacy = place.last_name(node) in LEGACY_CLASSES or name == "torch.Tensor"
        if legacy and place.argument(node, None, "device") is not None:
            return None  # these make tensors on the CPU alone, and refuse any other device
        copied = on_device or place.last_name(node) == "new_tensor"
        cost = "and waits for the copy to the device " if copied else ""
        shown = place.text(data)
        shown = shown if len(shown) <= 40 and "\n" not in shown else "[…]"
        advice = where_to_keep(place)
        if _only_iterated(node, place):
            advice = "only its elements are used, one by one: keep a Python list"
        return place.finding(
            node,
            f"`{place.text(node.func)}({shown})` builds the same constant {cost}on every call; {advice}",
            certainty="note" if _is_returned(node, place) else "sure",
            dry=not copied and _stays_on_host(node, place),
            fix=None
            if _only_iterated(node, place)
            else filled(node, data, place) or kept(node, data, place),
        )

    def _computed(self, node: cst.Call, place: Place) -> Finding | None:
        """What a factory computes on the device of numbers that are the same in every call."""
        if place.argument(node, None, "out") is not None or not place.is_torch(
            node, *_COMPUTED, *_FILLED
        ):
            return None
        given = [
            a.value for a in node.args if a.keyword is None or a.keyword.value not in _SETTINGS
        ]
        if not given or not all(not a.star for a in node.args):
            return None
        if device_of(node, place) is None or is_for_nothing(place):
            return None
        if place.last_name(node) in _FILLED or not all(_is_set(one, place) for one in given):
            return self._grown(node, given, place)
        if is_kept(node, place) or is_written_to(node, place):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` computes the same constant on every call; {where_to_keep(place)}",
            certainty="note",
        )

    def _scratch(self, node: cst.Call, place: Place) -> Finding | None:
        """Memory of the same size in every call, that a kernel is given to work in."""
        name = assigned_once(node, place)
        if name is None or not place.is_torch(node, *_SCRATCH) or not _WORKSPACE.search(name.value):
            return None
        sizes = [a.value for a in node.args if a.keyword is None]
        if len(sizes) == 1 and isinstance(sizes[0], cst.Tuple | cst.List):
            sizes = [e.value for e in sizes[0].elements]
        if not sizes or not all(_is_set(_held(one, place), place) for one in sizes):
            return None
        if device_of(node, place) is None or is_for_nothing(place) or _is_returned(node, place):
            return None
        reads = loads(name.value, place.function).reads
        around = [place.parent(read) for read in reads]
        if not any(isinstance(one, cst.Call) for one in around) or any(
            _outlives(read, one, place) for read, one in zip(reads, around, strict=True)
        ):
            return None
        return place.finding(
            node,
            f"`{place.short(node)}` allocates a workspace of the same size on every call; allocate it once "
            "per device, and keep it",
            certainty="note",
        )

    def _grown(
        self, node: cst.Call, given: Sequence[cst.BaseExpression], place: Place
    ) -> Finding | None:
        """What several operations compute of sizes alone: the same for every input of a size."""
        if not place.per_call or not all(is_size(one, place) for one in given[-2:]):
            return None
        if len(given) > 1 and place.last_name(node) == "arange" and not is_constant(given[0]):
            return None  # it begins elsewhere each time
        if next(place.calls("register_buffer"), None) is not None:
            return None  # kept for the next call
        whole, steps = grown_of_numbers(node, place)
        more = -1 if is_triangle(node, place) else place.last_name(node) in _FILLED
        if steps < _STEPS_WORTH_KEEPING + more and place.last_name(node) != "eye":
            return None
        if is_kept(whole, place) or is_written_to(whole, place):
            return None
        if _is_filled(node, place) or _is_filled(whole, place):
            return None
        first: dict[int, cst.CSTNode] = place.once(("grown of numbers",), dict)
        if first.setdefault(id(whole), node) is not node:
            return None  # told where the first of its parts is made
        depends = f" and {_counted(steps)} on it depend" if steps else " depends"
        return place.finding(
            node,
            f"`{place.short(node)}`{depends} on numbers alone, but {'run' if steps else 'runs'} on every "
            "call; cache the result for each size and device",
            certainty="note",
        )

    def _of_a_setting(self, node: cst.Call, data: cst.BaseExpression, place: Place) -> bool:
        """Whether a tensor on the CPU is made of a setting of the module, under a key or not. One that is
        copied to a device is DG510."""
        while isinstance(data, cst.Subscript) and item_key(data):
            data = data.value
        return (
            place.name(node) in FROM_DATA
            and place.per_call
            and is_setting(data, place)
            and _CONFIGURATION.search(place.dotted(data)) is not None
            and device_of(node, place) is None
            and not is_kept(node, place)
            and not is_written_to(node, place)
            and not _is_returned(node, place)
            and not is_for_nothing(place)
        )

    def _lasting_tuple(self, data: cst.BaseExpression, place: Place) -> bool:
        if not isinstance(data, cst.Name | cst.Attribute):
            return False
        owner, _, last = place.dotted(data).rpartition(".")
        if owner and owner == place.self_name:
            return set(place.attribute_values(last)) == {"tuple"}
        constant = not owner and place.assignments(last) == 0 and last.isupper()
        return constant and set(place.global_values(last)) in ({"tuple"}, {"list"})


_CONFIGURATION = re.compile(
    r"\._?(?:\w+_)?(?:cfg|conf|config|hparams|args|opts?|options|settings)(?:\.|$)"
)
"""Where settings are kept that nobody changes, by its name."""


def _is_filled(node: cst.BaseExpression, place: Place) -> bool:
    """Whether what is made is given, by its name, to a call for its effect: that fills it, perhaps."""
    name = assigned(node, place)
    if name is None:
        return False
    function = place.function
    key = ("given to writers", id(function))
    return name.value in place.once(key, lambda: given_to_writers(function.body, place))


def _is_returned(node: cst.Call, place: Place) -> bool:
    """Whether a tensor, or a view of it, is what the function returns, or a part of that."""
    whole = node
    while (view := method_call(whole, place)) is not None and called_name(view) in VIEWS:
        whole = view
    name = assigned_once(whole, place)
    if name is None:
        return isinstance(_around_elements(whole, place), cst.Return)
    return any(
        isinstance(_around_elements(read, place), cst.Return)
        for read in loads(name.value, place.function).reads
    )


def _around_elements(node: cst.CSTNode, place: Place) -> cst.CSTNode | None:
    """What a value is part of, tuples aside."""
    parent = place.parent(node)
    while isinstance(parent, cst.Tuple):
        parent = place.parent(parent)
    return parent


_SETTINGS = frozenset({"device", "dtype", "layout", "pin_memory"})
_STEPS_WORTH_KEEPING = 2
"""Operations on what a factory gives, at least; one more where it only fills, one less for a triangle."""


def _counted(steps: int) -> str:
    """So many operations."""
    return f"{steps} operations" if steps > 1 else "1 operation"


def _is_set(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression is computed of numbers that are written down, and of settings of the module."""
    if isinstance(node, cst.BinaryOperation):
        return _is_set(node.left, place) and _is_set(node.right, place)
    if isinstance(node, cst.UnaryOperation):
        return _is_set(node.expression, place)
    if isinstance(node, cst.Call) and place.name(node) == "int" and len(node.args) == 1:
        return _is_set(node.args[0].value, place)
    return is_setting(node, place) or is_constant(node)


def _stays_on_host(node: cst.Call, place: Place) -> bool | None:
    """Whether a tensor that is made on the CPU is an operand there: with one on a device it would fail. None
    where it may be moved, or index one on a device."""
    made_there = ".cuda." in f".{place.name(node)}"
    beside = isinstance(place.parent(node), cst.BinaryOperation | cst.Comparison | cst.AugAssign)
    return (beside and not made_there) or None


_SCHEDULES = re.compile(
    r"(?:^|[._])scheduler(?:_\w+)?\.(?:alphas|alphas_cumprod|betas|sigmas|timesteps)"
)
"""Tables of schedulers, by the names that diffusers gives them."""


def _of_a_schedule(receiver: cst.BaseExpression, place: Place) -> bool:
    """Whether what is moved is a table of a noise scheduler, by its name, in a function that does not have
    it made on the device."""
    written = place.dotted(receiver)
    return (
        _SCHEDULES.search(written) is not None
        and place.kind(receiver).what == "unknown"
        and not next(place.calls("set_timesteps"), None)
    )


def _default_of(node: cst.Call, receiver: cst.BaseExpression, place: Place) -> cst.Call | None:
    """The tensor on the CPU that a parameter, which a call moves, is where callers give nothing else. What it
    gives may take its name."""
    if not isinstance(receiver, cst.Name) or place.scene.deferred:
        return None
    others = place.assignments(receiver.value) - 1
    if others > 1 or (others and not is_word(assigned(node, place), receiver.value)):
        return None
    given = place.function.params
    for param in (*given.posonly_params, *given.params, *given.kwonly_params):
        made = param.default
        if param.name.value == receiver.value and isinstance(made, cst.Call):
            known = place.name(made) in FACTORIES | COPIED | FROM_DATA
            return made if known and place.argument(made, None, "device") is None else None
    return None


_TO_BE_FILLED = frozenset({"empty", "full", "ones", "rand", "randn", "zeros"})
"""What somebody else writes to, row by row: a buffer of what was seen."""
_COMPUTING = frozenset(
    f"torch.{n}"
    for n in "cat cos cumprod cumsum exp flip log meshgrid outer sin sqrt stack tril triu".split()
)


def _is_computed(value: str) -> bool:
    """Whether what is assigned is computed by torch, nobody knows where."""
    head, _, name = value.partition(":")
    return head == "call" and name in _COMPUTING


class ConstantMovedPerCall(Rule):
    """A constant tensor that lives on the CPU is moved to the device on every call.

    ## What it does

    Finds `self.table.to(x.device)`, or `self.table[t].to(x.device)`, where `self.table` is a plain attribute
    that was built on the CPU, no buffer and no parameter, and `TABLE.to(device)` where `TABLE` is a tensor at
    module level. It is a note where torch computed the table, nobody knows where, for a tensor that is the
    default of a parameter (`def look(self, x, up=torch.tensor([0.0, 1.0, 0.0]))`), and for what an object
    holds that the object holds (`self.space.low.to(x.device)`): its device is not known. So is a table of a
    noise scheduler (`noise_scheduler.sigmas.to(device)`).

    ## Why it costs

    `module.to(device)` does not move plain attributes, so that every call copies the same numbers from
    pageable memory, and the host waits for each copy.

    ## Example

    ```python
    def __init__(self):
        super().__init__()
        self.table = torch.arange(16)

    def forward(self, x):
        return x + self.table.to(x.device)
    ```

    ## Instead

    ```python
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(16), persistent=False)

    def forward(self, x):
        return x + self.table
    ```

    ## Fix safety

    No fix: the change is in another method, and buffers take part in `module.to(dtype)`.
    """

    code = "DG505"
    name = "constant-moved-per-call"
    origin = "diffusers#13406"
    looks_for = Call("to", "cuda")

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A tensor that every call finds on the CPU again."""
        receiver = place.receiver(node)
        if is_kept(node, place) or not self._moves(node, place):
            return None
        row = isinstance(receiver, cst.Subscript)
        if isinstance(receiver, cst.Subscript):
            receiver = receiver.value
        if not isinstance(receiver, cst.Name | cst.Attribute):
            return None
        elsewhere = self._of_others(node, receiver, row, place)
        if elsewhere:
            return place.finding(node, elsewhere, certainty="note")
        owner, _, last = place.dotted(receiver).rpartition(".")
        if owner and owner == place.self_name:
            known = place.attribute_values(last)
            if place.cls is None or place.defines("_apply", "to", "cuda"):
                return None
            advice = (
                f"register it with `register_buffer({last!r}, …, persistent=False)`"
                if place.in_module
                else "keep it on the device, one copy per device if there are several"
            )
        elif not owner and place.assignments(last) == 0:
            known = place.global_values(last)
            advice = "keep one copy per device, or make it a buffer of the module that uses it"
        else:
            return None
        if not known or not all(self._on_cpu(v) or _is_computed(v) for v in known):
            return None
        if row and any(value.rpartition(".")[2] in _TO_BE_FILLED for value in known):
            return None
        if row or not all(map(self._on_cpu, known)):
            return place.finding(
                node,
                f"`{place.text(receiver)}` is computed once, as a plain tensor, and `{place.text(node)}` "
                "moves it on every call: if it is on the CPU, the host waits for a copy each time; "
                + advice,
                certainty="note",
            )
        return place.finding(
            node,
            f"`{place.text(receiver)}` is a plain tensor on the CPU: `{place.text(node)}` copies it on "
            f"every call, and the host waits for the copy; {advice}",
        )

    def _of_others(
        self, node: cst.Call, receiver: cst.Name | cst.Attribute, row: bool, place: Place
    ) -> str:
        """What is said of a tensor that neither the class nor the module keeps; empty where it is no such."""
        if not row and self._of_a_plain_object(receiver, place):
            return (
                f"`{place.text(node)}` moves an attribute of a plain object on every call: if it is "
                "on the CPU, each call copies it, and the host waits. Keep one copy per device"
            )
        default = None if row else _default_of(node, receiver, place)
        if default is not None:
            return (
                f"`{place.text(receiver)}` is `{place.short(default)}` where callers give none, a tensor on "
                f"the CPU: `{place.text(node)}` then copies it on every call, and the host waits for the "
                "copy. Keep one copy per device"
            )
        if _of_a_schedule(receiver, place):
            return (
                f"`{place.text(node)}` moves a table of the schedule on every call: schedulers of diffusers "
                "keep their tables on the CPU, so each call copies it, and the host waits. Keep one copy per "
                "device"
            )
        return ""

    def _of_a_plain_object(self, receiver: cst.BaseExpression, place: Place) -> bool:
        """Whether what is moved is an attribute of an attribute, by itself or by a name, in a class that does
        not move what it holds."""
        if isinstance(receiver, cst.Name):
            held = place.value_of(receiver)
            receiver = held if held is not None else receiver
        written = place.dotted(receiver)
        return (
            bool(place.self_name)
            and written.startswith(f"{place.self_name}.")
            and written.count(".") > 1
            and place.kind(receiver).what == "unknown"
            and not place.in_module
            and not place.defines("_apply", "to", "cuda")
        )

    def _moves(self, node: cst.Call, place: Place) -> bool:
        if move_target(node, place) is not None:
            return True
        first = place.argument(node, 0, "device")
        if first is None or place.last_name(node) != "to":
            return False
        return is_device(first, place) or place.on_device(first)

    def _on_cpu(self, value: str) -> bool:
        head, _, name = value.partition(":")
        made = head == "call" and (name in FACTORIES | COPIED or name == "torch.tensor")
        return made or value == "built"
