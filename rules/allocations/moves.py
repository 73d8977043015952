"""DG504: tensors made on the CPU and moved to the device, and such indexes."""

from __future__ import annotations

import libcst as cst

from pytest_dispatchguard import (
    Call,
    Edit,
    Finding,
    Fix,
    Getitem,
    Place,
    Rule,
    Setitem,
    Span,
    nodes,
)

from ..syncs.host_code import gives_data, works_on_host
from ..syncs.used import used_as_tensor
from ..syntax import assigned, is_word, subscripts_written
from .data import (
    FACTORIES,
    FILLED,
    LIKE,
    RANDOM,
    Safety,
    is_legacy_of_sizes,
    is_number,
    without_casts,
)
from .devices import is_device, makes_tensors_there, move_target
from .uses import is_for_nothing, loads

RESHAPING = frozenset(
    "view reshape unsqueeze squeeze expand permute transpose t contiguous flatten repeat view_as "
    "reshape_as expand_as".split()
)
"""Methods that change a tensor's layout and none of its numbers."""
OF_ONE = frozenset(
    "triu tril exp log sin cos sqrt rsqrt pow abs neg cumsum flip square reciprocal".split()
)
"""Functions and methods that compute from one tensor, and numbers, the same on every device."""
ROUNDED = frozenset("exp log sin cos rsqrt pow cumsum".split())
"""Those that a device may round differently."""
_FILLING = frozenset({"fill_", "zero_"})
_DRAWING = frozenset({"bernoulli_", "exponential_", "normal_", "random_", "uniform_"})
LONGEST = 12
"""Expressions behind one another that are followed."""
_OF_THE_CPU = frozenset({"generator", "out", "pin_memory"})
"""What a factory is given that belongs to the CPU."""
_OTHER_DRAWS = "; the device's generator may draw different numbers from the CPU's"
_OTHER_ROUNDING = "; the device may round the numbers differently"


def _stays(node: cst.Call, factory: cst.Call, place: Place) -> bool:
    """Whether a tensor like another is moved to where that one is, where it already is: DG514."""
    target = place.argument(node, 0, "device") or place.argument(node, 0, "other")
    where = place.dotted(target).removesuffix(".device") if target is not None else ""
    return place.name(factory) in LIKE and where == place.dotted(factory.args[0].value) != ""


def _is_empty(factory: cst.Call, place: Place) -> bool:
    """Whether a new tensor has no elements: one of its sizes is 0. There is nothing to copy."""
    if place.last_name(factory).removesuffix("_like") not in (
        "empty",
        "ones",
        "rand",
        "randn",
        "zeros",
    ):
        return False
    sizes: list[cst.BaseExpression] = []
    for argument in factory.args:
        if argument.keyword is None:
            given = argument.value
            inner = given.elements if isinstance(given, cst.Tuple | cst.List) else ()
            sizes += [one.value for one in inner] or [given]
    return any(isinstance(size, cst.Integer) and size.evaluated_value == 0 for size in sizes)


def _under(node: cst.BaseExpression, place: Place) -> cst.BaseExpression:
    """What is reshaped, cast, or computed from with numbers alone: `torch.ones(n, n)` of
    `torch.triu(torch.ones(n, n) * 2).bool()[None]`."""
    inner: cst.BaseExpression | None = node
    while inner is not None:
        node = without_casts(inner)
        inner = _operand(node, place)
    return node


def _reshaped(node: cst.BaseExpression, place: Place) -> cst.BaseExpression:
    """What is given another shape, and nothing else."""
    while isinstance(node, cst.Call) and place.last_name(node) in RESHAPING:
        inner = place.receiver(node)
        if inner is None or place.name(node).startswith("torch."):
            break
        node = inner
    return node


def _operand(node: cst.BaseExpression, place: Place) -> cst.BaseExpression | None:
    """What an operation takes that gives the same on every device."""
    if isinstance(node, cst.Call):
        of_torch = place.name(node).startswith("torch.")
        last = place.last_name(node)
        if last not in (OF_ONE if of_torch else RESHAPING | OF_ONE | _FILLING | _DRAWING):
            return None
        others = node.args[1:] if of_torch else node.args
        if last not in RESHAPING and not all(is_number(a.value, place) for a in others):
            return None
        given = node.args[0].value if node.args and not node.args[0].star else None
        return given if of_torch else place.receiver(node)
    if isinstance(node, cst.Subscript):
        return node.value if all(map(is_view, node.slice)) else None
    if isinstance(node, cst.UnaryOperation):
        return node.expression if isinstance(node.operator, cst.Minus | cst.BitInvert) else None
    if isinstance(node, cst.BinaryOperation):
        for side, other in ((node.left, node.right), (node.right, node.left)):
            if is_number(other, place):
                return side
    return None


def _rounds(move: cst.Call, place: Place) -> bool:
    """Whether what is moved is computed by something that a device may round differently."""
    node = place.receiver(move)
    for _ in range(LONGEST):
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Power):
            return True
        if isinstance(node, cst.Call) and place.last_name(node) in ROUNDED:
            return True
        if node is None:
            return False
        plain = without_casts(node)
        if plain is not node:
            node = plain
        else:
            node = place.value_of(node) if isinstance(node, cst.Name) else _operand(node, place)
    return True


def is_view(element: cst.SubscriptElement) -> bool:
    """Whether an index selects without a copy: a slice, a number, `...` or `None`."""
    index = element.slice
    return isinstance(index, cst.Slice) or (
        isinstance(index, cst.Index)
        and (isinstance(index.value, cst.Integer | cst.Ellipsis) or is_word(index.value, "None"))
    )


def _end(node: cst.BaseExpression, place: Place) -> Span | None:
    """The place behind an expression and its parentheses; None where these stand apart."""
    at = place.after(node, "").span
    if any(not p.whitespace_before.empty for p in node.rpar):
        return None
    column = at.column + len(node.rpar)
    return Span(at.line, column, at.line, column)


def _behind(receiver: cst.BaseExpression, call: cst.Call, place: Place) -> Edit | None:
    """Takes away what a call has behind its receiver: `.to(device)` of `x.to(device)`."""
    end = _end(receiver, place)
    if end is None:
        return None
    whole = place.replace(call, "", safety="safe", message="").edits[0]
    gone = Span(end.line, end.column, whole.span.end_line, whole.span.end_column)
    return Edit(whole.path, gone, "")


def _is_drawn(node: cst.BaseExpression, place: Place) -> bool:
    """Whether a tensor is filled with random numbers on the way, by names or not."""
    waiting, seen = [node], {id(node)}
    while waiting:
        for one in nodes.walk(waiting.pop()):
            if isinstance(one, cst.Call) and place.last_name(one) in _DRAWING:
                return True
            held = place.value_of(one) if isinstance(one, cst.Name) else None
            if held is not None and id(held) not in seen:
                seen.add(id(held))
                waiting.append(held)
    return False


class FactoryThenMove(Rule):
    """A tensor is made on the CPU and moved to the device at once.

    ## What it does

    Finds `torch.zeros(n).to(device)`, `torch.arange(n).cuda()`, `torch.ones(n).type_as(x)`,
    `torch.FloatTensor(n, m).to(device)` and the same with names, views, casts, `triu`, `exp`, `fill_` and
    arithmetic with numbers between, when nothing else is done with the tensor on the CPU. Also
    `x[torch.arange(n), labels]`: an index that is made on the CPU is copied to where `x` is. An index that is
    drawn at random is a note.
    `torch.zeros_like(x).to(device)` is a note where nothing says that `x` is on the CPU.

    ## Why it costs

    The tensor is allocated and filled on the CPU, then copied from pageable memory, and the host waits for
    that copy. Factories take `device=`, which launches one kernel and waits for nothing.

    ## Example

    ```python
    def forward(self, x):
        state = torch.zeros(x.shape[0], 8).to(x.device)
    ```

    ## Instead

    ```python
    def forward(self, x):
        state = torch.zeros(x.shape[0], 8, device=x.device)
    ```

    ## Fix safety

    Safe for `zeros`, `ones`, `full`, `empty`, `eye` and integer ranges. Unsafe for ranges of floats and
    windows, which a device may round differently, and for random factories, whose numbers come from the
    device's own generator.
    """

    code = "DG504"
    name = "factory-then-move"
    origin = "transformers#22378"
    looks_for = (Call("to", "cuda", "type_as"), Getitem(), Setitem())
    fixes = "safe"

    def judge(
        self,
        node: cst.Call | cst.Subscript | cst.Assign | cst.AnnAssign | cst.AugAssign,
        place: Place,
    ) -> Finding | None:
        """A factory under the move, with nothing but reshaping between."""
        if makes_tensors_there(place):
            return None
        if not isinstance(node, cst.Call):
            subscripts = [node] if isinstance(node, cst.Subscript) else subscripts_written(node)
            return next(filter(None, (self._indexed(one, place) for one in subscripts)), None)
        receiver = place.receiver(node)
        if receiver is None:
            return None
        moved = _under(receiver, place)
        factory = self._factory(moved, place)
        if factory is None or place.argument(factory, None, "device") is not None:
            return None
        if is_for_nothing(place) or _stays(node, factory, place) or _is_empty(factory, place):
            return None
        given = {a.keyword.value for a in factory.args if a.keyword is not None}
        if given & {"out", "pin_memory"}:
            return None
        seeded = bool(given & {"generator", "requires_grad"})
        drawn = _is_drawn(receiver, place)
        arguments = self._arguments(node, factory, place)
        if arguments is None:
            return None
        name = place.text(factory.func)
        fix, legacy = None, is_legacy_of_sizes(factory, place)
        if legacy or drawn:
            pass  # other numbers, or another factory
        elif _reshaped(receiver, place) is factory and arguments and not seeded:
            fix = self._fix(node, receiver, factory, arguments, place)
        elif not seeded:
            fix = self._placed(node, factory, place)
        last = place.last_name(node)
        where, waits = "on the CPU", "and the host waits for that copy"
        guessed = len(node.args) == 1 and self._to_what_may_be(node.args[0].value, place)
        elsewhere = place.name(factory) in LIKE and not place.kind(factory.args[0].value).host
        if elsewhere:
            where = f"where `{place.short(factory.args[0].value)}` is"
            waits = "which waits for a copy if that is the CPU"
        return place.finding(
            node,
            f"`{name}(…)` is made {where} and then moved by `.{last}(…)`, {waits}; "
            + (
                "make it there with `torch.empty(…, device=…)`"
                if legacy
                else f"pass {self._given(node, place)} to the factory instead"
            )
            + self._unless(given)
            + self._other_numbers(factory, drawn, place),
            certainty="note" if seeded or elsewhere or guessed or gives_data(place) else "sure",
            fix=None if guessed else fix,
        )

    def _indexed(self, node: cst.Subscript, place: Place) -> Finding | None:
        """A tensor that is indexed by one made on the CPU."""
        if works_on_host(place):
            return None
        if not place.is_tensor(node.value) or not place.on_device(node.value):
            return None
        for element in node.slice:
            index = element.slice.value if isinstance(element.slice, cst.Index) else None
            made = self._made(index, place) if index is not None else None
            if made is None or place.argument(made, None, "device") is not None:
                continue
            if not place.kind(made).host or place.kind(made).dtype == "bool":
                continue  # a mask would be counted on the device
            drawn = place.last_name(made) in RANDOM
            return place.finding(
                node,
                f"`{place.name(made)}(…)` is made on the CPU, and `{place.short(node)}` copies it to where "
                "the tensor is, and waits for that copy; pass `device=` to it"
                + self._other_numbers(made, drawn, place),
                certainty="note" if drawn or gives_data(place) else "sure",
                fix=self._made_there(node, made, place),
            )
        return None

    def _made_there(self, node: cst.Subscript, made: cst.Call, place: Place) -> Fix | None:
        """The factory of an index, on the device of what it picks from; None for an index with a name, which
        may be needed on the CPU as well."""
        like = place.dotted(node.value)
        end = _end(made.args[-1].value, place) if made.args else None
        if not like or end is None or made not in nodes.walk(node):
            return None
        given = {a.keyword.value for a in made.args if a.keyword is not None}
        if any(a.star for a in made.args) or "#" in place.text(made) or given & _OF_THE_CPU:
            return None
        edit = Edit(place.after(node, "").path, end, f", device={like}.device")
        drawn = place.last_name(made) in RANDOM
        return Fix(
            "unsafe" if drawn else "safe",
            f"create it on the device{_OTHER_DRAWS if drawn else ''}",
            (edit,),
        )

    def _made(self, node: cst.BaseExpression, place: Place) -> cst.Call | None:
        """The factory behind an index, which may be used more than once."""
        node = _under(node, place)
        held = place.value_of(node) if isinstance(node, cst.Name) else None
        node = _under(held, place) if held is not None else node
        return node if isinstance(node, cst.Call) and place.name(node) in FACTORIES else None

    def _unless(self, given: set[str]) -> str:
        """What has to be so for the factory to take the device."""
        if "generator" in given:
            return " if its generator belongs to the device"
        return " if the tensor itself may be the leaf" if "requires_grad" in given else ""

    def _other_numbers(self, factory: cst.Call, drawn: bool, place: Place) -> str:
        """What becomes different where the factory takes the device."""
        if not drawn and place.last_name(factory).removesuffix("_like") not in RANDOM:
            return ""
        return "; the device's generator then draws the numbers, so the same seed gives different values"

    def _given(self, node: cst.Call, place: Place) -> str:
        """What the factory takes in place of the move."""
        given = "`device=`"
        if place.last_name(node) == "type_as" or self._to_tensor(node, place):
            like = node.args[0].value
            shown = place.text(like) if isinstance(like, cst.Name | cst.Attribute) else "other"
            given = f"`device={shown}.device, dtype={shown}.dtype`"
        elif place.argument(node, 1, "dtype") is not None:
            given = "`device=` and `dtype=`"
        return given

    def _factory(self, node: cst.BaseExpression, place: Place, depth: int = 0) -> cst.Call | None:
        """The factory behind a value, of which nothing else is made on the way."""
        if isinstance(node, cst.Name):
            value = place.value_of(node) if depth < LONGEST else None
            made = (
                self._factory(_under(value, place), place, depth + 1) if value is not None else None
            )
            if made is None:
                return None
            reads = [
                n for n in loads(node.value, place.function).reads if place.value_of(n) is value
            ]
            return made if reads == [node] else None
        if isinstance(node, cst.Call) and place.name(node) in FACTORIES:
            if place.name(node) == "torch.normal" and place.argument(node, 2, "size") is None:
                return None  # drawn where its tensors are, and it takes no device
            return node
        if isinstance(node, cst.Call) and place.name(node) in LIKE and node.args:
            return node
        return node if isinstance(node, cst.Call) and is_legacy_of_sizes(node, place) else None

    def _arguments(self, node: cst.Call, factory: cst.Call, place: Place) -> str | None:
        """What the factory has to be given; empty where the author must say, None where nothing is wrong."""
        if place.last_name(node) == "type_as" or self._to_tensor(node, place):
            other = node.args[0].value if len(node.args) == 1 else None
            if other is None or not (place.on_device(other) or self._to_what_may_be(other, place)):
                return None
            like = place.text(other)
            simple = isinstance(other, cst.Name | cst.Attribute)
            exact = place.is_torch(factory, "zeros", "ones", "empty", "eye")
            typed = place.argument(factory, None, "dtype") is not None
            return (
                f"device={like}.device, dtype={like}.dtype"
                if simple and exact and not typed
                else ""
            )
        target = move_target(node, place)
        if target is None:
            return self._with_dtype(node, factory, place)
        return 'device="cuda"' if target == "cuda" else f"device={place.text(target)}"

    def _to_tensor(self, node: cst.Call, place: Place) -> bool:
        one = place.last_name(node) == "to" and len(node.args) == 1 and node.args[0].keyword is None
        if not one:
            return False
        other = node.args[0].value
        return place.is_tensor(other) or self._to_what_may_be(other, place)

    def _to_what_may_be(self, other: cst.BaseExpression, place: Place) -> bool:
        """Whether nothing is known of what a tensor is moved to, but that the function uses it as a
        tensor."""
        kind = place.kind(other)
        unknown = kind.what == "unknown" and not kind.cls
        return unknown and not is_device(other, place) and used_as_tensor(other, place)

    def _with_dtype(self, node: cst.Call, factory: cst.Call, place: Place) -> str | None:
        if place.last_name(node) != "to":
            return None
        device = place.argument(node, 0, "device")
        dtype = place.argument(node, 1, "dtype")
        known = {"device", "dtype", "non_blocking"}
        if device is None or dtype is None or not is_device(device, place):
            return None
        if any(
            a.star or (a.keyword is not None and a.keyword.value not in known) for a in node.args
        ):
            return None
        exact = place.is_torch(factory, "zeros", "ones", "empty", "eye")
        if not exact or place.argument(factory, None, "dtype") is not None:
            return ""
        return f"device={place.text(device)}, dtype={place.text(dtype)}"

    def _fix(
        self,
        node: cst.Call,
        receiver: cst.BaseExpression,
        factory: cst.Call,
        arguments: str,
        place: Place,
    ) -> Fix | None:
        if not factory.args or any(a.star for a in factory.args):
            return None
        if "#" in place.text(node):
            return None
        inner, gone = _end(factory.args[-1].value, place), _behind(receiver, node, place)
        if inner is None or gone is None:
            return None
        return Fix(
            self._safety(factory, place),
            f"create it on the device{self._differs(factory, place)}",
            (Edit(gone.path, inner, f", {arguments}"), gone),
        )

    def _placed(self, node: cst.Call, factory: cst.Call, place: Place) -> Fix | None:
        """The factory with the device alone: the move stays, converts there, and copies nothing."""
        if not factory.args or any(a.star for a in factory.args):
            return None
        device = self._device(node, factory, place)
        end = _end(factory.args[-1].value, place)
        if not device or end is None or "#" in place.text(factory):
            return None
        edit = Edit(place.after(node, "").path, end, f", device={device}")
        safety, differs = self._safety(factory, place), self._differs(factory, place)
        if safety == "safe" and _rounds(node, place):
            safety, differs = "unsafe", _OTHER_ROUNDING
        gone = self._needless_move(node, factory, place)
        return Fix(
            safety,
            f"create it on the device{', and convert it there' if gone is None else ''}{differs}",
            (edit,) if gone is None else (edit, gone),
        )

    def _needless_move(self, node: cst.Call, factory: cst.Call, place: Place) -> Edit | None:
        """Takes away a move that only names the device, once the tensor is made there: behind the factory, or
        as a statement of its own (`x = x.to(device)`)."""
        moved = place.argument(node, 0, "device")
        receiver = place.receiver(node)
        alone = place.last_name(node) == "to" and len(node.args) == 1
        if not alone or moved is None or receiver is None or not is_device(moved, place):
            return None
        if factory in nodes.walk(node):
            return None if "#" in place.text(node) else _behind(receiver, node, place)
        held = assigned(node, place)
        if held is None or not isinstance(receiver, cst.Name) or held.value != receiver.value:
            return None
        return place.without(place.statement)

    def _device(self, node: cst.Call, factory: cst.Call, place: Place) -> str:
        """The source of the device that a tensor is moved to; empty where it is not known by the time that
        the tensor is made."""
        moved = place.argument(node, 0, "device") or place.argument(node, 0, "other")
        if place.last_name(node) == "type_as" or self._to_tensor(node, place):
            like = place.dotted(moved) if moved is not None else ""
            device, names = f"{like}.device" if like else "", [like.partition(".")[0]]
        elif moved is not None and is_device(moved, place):
            device, names = place.text(moved), [n.value for n in nodes.names_in(moved)]
        else:
            return ""
        params = place.function.params
        given = {
            p.name.value for p in (*params.posonly_params, *params.params, *params.kwonly_params)
        }
        here = factory in nodes.walk(node)
        early = all(n in given and place.assignments(n) <= 1 for n in names)
        return device if here or early else ""

    def _differs(self, factory: cst.Call, place: Place) -> str:
        """What else the fix changes."""
        if self._safety(factory, place) == "safe":
            return ""
        drawn = place.last_name(factory).removesuffix("_like") in RANDOM
        return _OTHER_DRAWS if drawn else _OTHER_ROUNDING

    def _safety(self, factory: cst.Call, place: Place) -> Safety:
        last = place.name(factory).rpartition(".")[2].removesuffix("_like")
        if last in FILLED:
            return "safe"
        whole = last == "arange" and all(
            isinstance(a.value, cst.Integer)
            or (place.kind(a.value).dtype == "int" and is_number(a.value, place))
            for a in factory.args
        )
        return "safe" if whole or last in ("tril_indices", "triu_indices") else "unsafe"
